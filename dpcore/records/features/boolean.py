"""Columns of two values."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.records.features.described import (
    FALSE_TRUE,
    MISSING_POLICIES,
    Cells,
    Comparison,
    EncodedColumn,
    Missing,
    OneGroup,
    Policy,
    Tally,
    UnknownBoolean,
    Weights,
    absent_cells,
    alike,
    any_of,
    as_texts,
    begin,
    for_missing,
    look_up,
    require_boolean_impute,
)
from dpcore.records.texts import Form, require_choice, require_disjoint, require_texts, settle

_UNLISTED = (
    "is neither in true nor in false of the schema; add it, "
    'set unknown = "impute" or "zero-vector", or correct the file'
)


@dataclass(frozen=True, kw_only=True)
class BooleanFeature(OneGroup):
    """A yes or no, encoded as +1 or -1. `true` and `false` list the texts of each."""

    type: ClassVar[str] = "boolean"
    reals: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[Literal["numbers", "texts"]] = "texts"
    is_ordered: ClassVar[bool] = True
    comparison: ClassVar[Comparison] = "flag"
    comparison_words: ClassVar[str] = "a boolean feature: use it alone, without a comparison"
    is_one_hot: ClassVar[bool] = False
    scaled_coordinates: ClassVar[int] = 0
    unit_groups: ClassVar[int] = 1
    replaces_column: ClassVar[bool] = False
    name: str
    column: str = ""
    true: tuple[str, ...]
    false: tuple[str, ...]
    missing: Missing = "refuse"
    unknown: UnknownBoolean = "refuse"
    impute: bool | None = None

    def __post_init__(self) -> None:
        path = begin(self)
        # The order has no meaning here, so it must not change the digest.
        true = tuple(sorted(require_texts(f"{path}.true", self.true)))
        false = tuple(sorted(require_texts(f"{path}.false", self.false)))
        require_disjoint(f"{path}.true", true, false, "true and false")
        require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        require_choice(f"{path}.unknown", self.unknown, MISSING_POLICIES)
        require_boolean_impute(path, self.impute, (self.missing, self.unknown))
        settle(self, true=true, false=false)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The one coordinate, named as the feature."""
        return (self.name,)

    @property
    def squared_range(self) -> int:
        """The coordinate is -1 or 1."""
        return 4

    @property
    def mean_square(self) -> float:
        """The coordinate is -1 or 1."""
        return 1.0

    @property
    def bounds(self) -> None:
        """None: the values are true and false."""
        return None

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those in neither list."""
        unknown = Policy("unknown", self.unknown, "unlisted", "in neither true nor false of the schema")
        return for_missing(self.missing), unknown

    @property
    def imputed_text(self) -> str:
        """The first text of the imputed value, in quotation marks."""
        return "" if self.impute is None else repr((self.true if self.impute else self.false)[0])

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The texts of true, and those of false."""
        return (" or ".join(self.true), " or ".join(self.false)), FALSE_TRUE[::-1]

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """From false to true, in their text if each has one."""
        one_text = len(self.true) == len(self.false) == 1
        words = f"{self.true[0]} instead of {self.false[0]}" if one_text else "true instead of false"
        return ((words, ((self.name, 2.0),)),)

    @property
    def codes(self) -> NDArray[np.float64]:
        """Of false and of true."""
        return FALSE_TRUE

    @property
    def start(self) -> Weights:
        """Of false."""
        return ((self.name, -1.0),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """True in half of the rows."""
        return random.choice([-1.0, 1.0], (rows, 1))

    def encode(self, cells: Cells, form: Form) -> EncodedColumn:
        """+1 for the texts of true, -1 for those of false."""
        read = as_texts(self.column, cells)
        meaning = {form(text): 1 for text in self.true} | {form(text): 0 for text in self.false}
        codes = look_up(read, meaning)
        missing, unlisted = absent_cells(self.column, (self.missing, self.unknown), read, codes, _UNLISTED)
        true = codes == 1
        for changed in (missing, unlisted):
            if changed.count:
                true = np.where(changed.cells, bool(self.impute), true)
        tally = Tally(self.name, missing.count, 0, unlisted.count, alike(read, unlisted, meaning))
        return EncodedColumn(np.where(true, 1.0, -1.0), tally, any_of(missing.dropped, unlisted.dropped))
