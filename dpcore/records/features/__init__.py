"""The parts of a schema: how one source column is encoded, and how an unusable cell is handled.

Valid from construction; field names are the TOML file's keys. A type of feature is one file, and the others ask it what
`described` lists.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from dpcore.records.features.boolean import BooleanFeature
from dpcore.records.features.category import CategoryFeature
from dpcore.records.features.date import DateFeature, day_of
from dpcore.records.features.described import (
    Bound,
    Comparison,
    Day,
    DescribedFeature,
    Limit,
    Missing,
    MissingLabel,
    Policy,
    for_missing,
)
from dpcore.records.features.real import RealFeature
from dpcore.records.features.threshold import ThresholdFeature
from dpcore.records.texts import (
    TRIMMED,
    SchemaFieldError,
    close_match,
    nearest,
    require_choice,
    require_disjoint,
    require_name,
    require_text,
    require_texts,
    same_form,
    settle,
    stored_form,
    value_text,
)

#: Lists of texts that cells are compared with: no text of them may be in the other, or twice in one.
_COMPARED = (("positive", "negative"), ("true", "false"), ("values",))

T = TypeVar("T")
P = TypeVar("P", bound="Feature | Label")

_EITHER = " | "
"""Between the texts of a class, in its name."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """The column to predict."""

    reals: ClassVar[tuple[str, ...]] = ()
    column: str
    positive: tuple[str, ...]
    """The texts that mean +1."""
    negative: tuple[str, ...] | None = None
    """Those that mean -1; None: all others."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label is empty or, if `negative` is given, in neither list."""

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
        """What to call the classes, negative first: by all their texts, or "not " and the positive name."""
        positive = _EITHER.join(self.positive)
        return (f"not {positive}" if self.negative is None else _EITHER.join(self.negative)), positive


Group = RealFeature | BooleanFeature | CategoryFeature | ThresholdFeature
"""Coordinates of one column that belong together. Each is a feature too, and other features are made of several."""

Feature = Group | DateFeature
FEATURE_TYPES: Mapping[str, Callable[..., Feature]] = {
    kind.type: kind for kind in (RealFeature, BooleanFeature, CategoryFeature, ThresholdFeature, DateFeature)
}


def in_form(part: P, steps: Sequence[str]) -> P:
    """The part with its texts as a schema with these steps keeps them. Raises SchemaFieldError if two are the same."""
    form, path = stored_form(steps), "label" if isinstance(part, Label) else f"features.{part.name}"
    changed: dict[str, Any] = {}
    for keys in _COMPARED:
        lists = {key: found for key in keys if (found := getattr(part, key, None)) is not None}
        same = same_form((text for found in lists.values() for text in found), steps)
        if same is not None:
            sentence = f"{same[0]!r} and {same[1]!r} are the same text to texts = {list(steps)}; remove one"
            raise SchemaFieldError(f"{path}.{' and '.join(lists)}", sentence)
        changed |= {key: tuple(map(form, found)) for key, found in lists.items()}
    impute = getattr(part, "impute", None)
    if isinstance(impute, str):
        changed["impute"] = form(impute)
    return replace(part, **changed) if any(getattr(part, key) != value for key, value in changed.items()) else part


def build(kind: Callable[..., T], table: Mapping[str, Any], path: str) -> T:
    """A part of a schema from a parsed table; keys are the dataclass's field names. Raises SchemaFieldError."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # every kind is a dataclass
    for key, value in table.items():
        if key not in known:
            raise SchemaFieldError(f"{path}.{key}", f"is not a key; {nearest(key, known)}")
        if value == "":  # an empty column would otherwise silently become the default
            raise SchemaFieldError(f"{path}.{key}", "is empty; write a text, or leave the key out")
    for key, field in known.items():
        if key not in table and field.default is MISSING:
            raise SchemaFieldError(f"{path}.{key}", "is missing; write it")
    return kind(**table)


def plain(part: Feature | Label) -> dict[str, Any]:
    """A part of a schema as plain values: tuples as lists, None if a field is not set, but no `unreadable` then."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    if values.get("unreadable", "") is None:  # version 1 has no such field
        del values["unreadable"]
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return listed if isinstance(part, Label) else {"name": part.name, "type": part.type, **listed}


__all__ = [
    "FEATURE_TYPES",
    "TRIMMED",
    "BooleanFeature",
    "Bound",
    "CategoryFeature",
    "Comparison",
    "DateFeature",
    "Day",
    "DescribedFeature",
    "Feature",
    "Group",
    "Label",
    "Limit",
    "Missing",
    "Policy",
    "RealFeature",
    "SchemaFieldError",
    "ThresholdFeature",
    "build",
    "close_match",
    "day_of",
    "in_form",
    "nearest",
    "plain",
    "require_name",
    "value_text",
]
