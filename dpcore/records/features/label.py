"""The column to predict."""

from dataclasses import dataclass
from typing import ClassVar

from dpcore.records.features.described import MissingLabel, Policy, for_missing
from dpcore.records.texts import require_choice, require_disjoint, require_text, require_texts, settle

_EITHER = " | "
"""Between the texts of a class, in its name."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """The column to predict.

    positive: the texts that mean +1. negative: the texts that mean -1; if omitted, all others do. missing: how a row is
    handled whose label is empty or, if `negative` is given, in neither list.
    """

    reals: ClassVar[tuple[str, ...]] = ()
    column: str
    positive: tuple[str, ...]
    negative: tuple[str, ...] | None = None
    missing: MissingLabel = "refuse"

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        positive = tuple(sorted(require_texts("label.positive", self.positive)))
        settle(self, positive=positive)
        if self.negative is not None:
            negative = tuple(sorted(require_texts("label.negative", self.negative)))
            require_disjoint("label.positive", positive, negative, "positive and negative")
            settle(self, negative=negative)
        require_choice("label.missing", self.missing, ("refuse", "zero-vector"))

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those in neither list."""
        words = "in neither positive nor negative of the schema's label"
        return for_missing(self.missing), Policy("missing", self.missing, "unlisted", words)

    @property
    def names(self) -> tuple[str, str]:
        """What to call the classes, negative first: by their text; by all their texts, if there are several.

        If any text but the positive ones is negative, the name is "not " before the positive name.
        """
        positive = _EITHER.join(self.positive)
        return (f"not {positive}" if self.negative is None else _EITHER.join(self.negative)), positive
