"""The parts of a schema: how one source column is encoded, and how an unusable cell is handled.

Valid from construction; field names are the TOML file's keys. A type of feature is one file, and the others ask it what
`described` lists.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from dpcore.records.features.boolean import BooleanFeature
from dpcore.records.features.category import CategoryFeature, require_prefixes
from dpcore.records.features.date import DateFeature, day_of
from dpcore.records.features.described import (
    Bound,
    Comparison,
    Day,
    DescribedFeature,
    Limit,
    Missing,
    Policy,
)
from dpcore.records.features.described_label import DescribedLabel
from dpcore.records.features.event_time import EventTime
from dpcore.records.features.labels import (
    LABEL_TYPES,
    Classes,
    Label,
    Target,
    event_time,
    measured,
    several_classes,
    two_classes,
    with_value,
)
from dpcore.records.features.measured_labels import Count, Number
from dpcore.records.features.real import RealFeature
from dpcore.records.features.threshold import ThresholdFeature
from dpcore.records.texts import (
    TRIMMED,
    SchemaFieldError,
    close_match,
    form_of,
    nearest,
    require_name,
    same_form,
    stored_form,
    value_text,
)

#: Lists of texts that a feature's cells are compared with: no text of them may be in the other, or twice in one.
_COMPARED = (("true", "false"), ("values",))

T = TypeVar("T")
P = TypeVar("P", bound="Feature | Target")

Group = RealFeature | BooleanFeature | CategoryFeature | ThresholdFeature
"""Coordinates of one column that belong together. Each is a feature too, and other features are made of several."""

Feature = Group | DateFeature
FEATURE_TYPES: Mapping[str, Callable[..., Feature]] = {
    kind.type: kind for kind in (RealFeature, BooleanFeature, CategoryFeature, ThresholdFeature, DateFeature)
}


def in_form(part: P, steps: Sequence[str]) -> P:
    """The part with its texts as a schema with these steps keeps them. Raises SchemaFieldError if two are the same."""
    form = stored_form(steps)
    path = "label" if isinstance(part, DescribedLabel) else f"features.{part.name}"
    changed: dict[str, Any] = {}
    for keys in part.compared if isinstance(part, DescribedLabel) else _COMPARED:
        lists = {key: found for key in keys if (found := getattr(part, key, None)) is not None}
        same = same_form((text for found in lists.values() for text in found), steps)
        if same is not None:
            sentence = f"{same[0]!r} and {same[1]!r} are the same text to texts = {list(steps)}; remove one"
            raise SchemaFieldError(f"{path}.{' and '.join(lists)}", sentence)
        changed |= {key: tuple(map(form, found)) for key, found in lists.items()}
    if (prefix := getattr(part, "prefix", None)) is not None:
        require_prefixes(path, prefix, changed["values"], form_of(steps))
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


def listed_texts(label: Target, features: Sequence[Feature], column: str) -> tuple[str, ...]:
    """The texts that a schema lists for the cells of a column; none if it is of numbers or dates."""
    found: dict[str, None] = {}
    lists: list[tuple[Any, tuple[str, ...]]] = [
        (part, keys) for part in features if part.column == column for keys in _COMPARED
    ]
    if label.columns[label.readings.index("texts") if "texts" in label.readings else 0] == column:
        lists += [(label, keys) for keys in label.compared]
    for part, keys in lists:
        for key in keys:
            found |= dict.fromkeys(getattr(part, key, None) or ())
    return tuple(found)


def plain(part: Feature | Target) -> dict[str, Any]:
    """A part of a schema as plain values: tuples as lists, None if a field is not set.

    But no `unreadable`, `prefix` and `unit` then, which earlier versions do not have.
    """
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    for later in ("prefix", "unit") if isinstance(part, DescribedLabel) else ("unreadable", "prefix", "unit"):
        if values.get(later, "") is None:
            del values[later]
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    if isinstance(part, DescribedLabel):
        return {"type": part.type, **listed} if part.has_type_field else listed
    return {"name": part.name, "type": part.type, **listed}


def build_label(table: Mapping[str, Any]) -> Target:
    """The label of a parsed table; without a type it has two classes. Raises SchemaFieldError."""
    values = dict(table)
    kind = values.pop("type", Label.type)
    if "type" in table and (not isinstance(kind, str) or not LABEL_TYPES.get(kind, Label).has_type_field):
        known = [name for name, each in LABEL_TYPES.items() if each.has_type_field]
        hint = f"{nearest(str(kind), known)}, or leave it out for a label of two classes"
        raise SchemaFieldError("label.type", f"{kind!r} is not a type of label; {hint}")
    of_type: Callable[..., Target] = LABEL_TYPES[kind]
    return build(of_type, values, "label")


__all__ = [
    "FEATURE_TYPES",
    "LABEL_TYPES",
    "TRIMMED",
    "BooleanFeature",
    "Bound",
    "CategoryFeature",
    "Classes",
    "Comparison",
    "Count",
    "DateFeature",
    "Day",
    "DescribedFeature",
    "EventTime",
    "Feature",
    "Group",
    "Label",
    "Limit",
    "Missing",
    "Number",
    "Policy",
    "RealFeature",
    "SchemaFieldError",
    "Target",
    "ThresholdFeature",
    "build",
    "build_label",
    "close_match",
    "day_of",
    "event_time",
    "in_form",
    "listed_texts",
    "measured",
    "nearest",
    "plain",
    "require_name",
    "several_classes",
    "two_classes",
    "value_text",
    "with_value",
]
