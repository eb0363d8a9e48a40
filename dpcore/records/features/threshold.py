"""Numbers of which only their side of a threshold is used."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.records.features.described import (
    FALSE_TRUE,
    MISSING_POLICIES,
    NOTHING,
    Cells,
    Comparison,
    EncodedColumn,
    Missing,
    OneGroup,
    Policy,
    Tally,
    Unreadable,
    Weights,
    any_of,
    as_numbers,
    begin,
    for_missing,
    for_unreadable,
    missing_cells,
    on_unreadable,
    require_boolean_impute,
    require_unreadable,
    unreadable_cells,
)
from dpcore.records.texts import Form, require_choice, require_number, settle


@dataclass(frozen=True, kw_only=True)
class ThresholdFeature(OneGroup):
    """A boolean that replaces a numeric column: +1 if the value is >= threshold, else -1."""

    type: ClassVar[str] = "threshold"
    reals: ClassVar[tuple[str, ...]] = ("threshold",)
    reads: ClassVar[Literal["numbers", "texts"]] = "numbers"
    is_ordered: ClassVar[bool] = False
    comparison: ClassVar[Comparison] = "flag"
    comparison_words: ClassVar[str] = "a threshold feature: use it alone, without a comparison"
    is_one_hot: ClassVar[bool] = False
    scaled_coordinates: ClassVar[int] = 0
    unit_groups: ClassVar[int] = 1
    replaces_column: ClassVar[bool] = True
    name: str
    column: str = ""
    threshold: float
    missing: Missing = "refuse"
    impute: bool | None = None
    unreadable: Unreadable | None = None

    def __post_init__(self) -> None:
        path = begin(self)
        require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        require_unreadable(path, self.unreadable)
        require_boolean_impute(path, self.impute, (self.missing, self.unreadable))
        settle(self, threshold=require_number(f"{path}.threshold", self.threshold))

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
        """For empty cells, and for those that are no number."""
        return for_missing(self.missing), for_unreadable(self.on_unreadable)

    @property
    def imputed_text(self) -> str:
        """On which side of the threshold the imputed value is."""
        if self.impute is None:
            return ""
        return "a value at the threshold or above" if self.impute else "a value below the threshold"

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """At least the threshold, and below."""
        return (f"at least {self.threshold:g}", f"below {self.threshold:g}"), FALSE_TRUE[::-1]

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """From below the threshold to at least that."""
        return ((f"at least {self.threshold:g}", ((self.name, 2.0),)),)

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

    @property
    def on_unreadable(self) -> Unreadable:
        """What happens to a cell that is no finite number."""
        return on_unreadable(self.missing, self.unreadable)

    def encode(self, cells: Cells, form: Form) -> EncodedColumn:  # noqa: ARG002  (numbers have no form)
        """+1 at the threshold and above, -1 below."""
        read = as_numbers(self.column, cells)
        missing = missing_cells(self.column, self.missing, read.missing)
        finite = np.isfinite(read.values)
        unreadable = (
            NOTHING if finite.all() else unreadable_cells(self.column, self.on_unreadable, ~(finite | read.missing))
        )
        high = read.values >= self.threshold
        for changed in (missing, unreadable):
            if changed.count:
                high = np.where(changed.cells, bool(self.impute), high)
        tally = Tally(self.name, missing.count, unreadable.count)
        return EncodedColumn(np.where(high, 1.0, -1.0), tally, any_of(missing.dropped, unreadable.dropped))
