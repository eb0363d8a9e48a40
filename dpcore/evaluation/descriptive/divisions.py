"""Divisions of rows into levels that exclude one another: by a category, a boolean, the label, ranges or a predicate.

A row is in one level of a division at most, so all cells of one or two divisions have a sensitivity of 2 together, if
facts prove it (dpcore.predicates.disjoint).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import assert_never

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.private_histograms import Cells
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import (
    Affine,
    And,
    Equals,
    Flag,
    LabelAtLeast,
    LabelClass,
    LabelIs,
    NonNegative,
    Not,
    Predicate,
)
from dpcore.predicates.notation import parse
from dpcore.records.feature_map import in_units_of, stored
from dpcore.records.features import (
    BooleanFeature,
    CategoryFeature,
    Classes,
    Count,
    EventTime,
    Group,
    Label,
    Limit,
    Number,
    RealFeature,
    ThresholdFeature,
    nearest,
    value_text,
)
from dpcore.records.schema import Schema

USUAL_RANGES = 4
"""Of a number that is divided without edges: between its bounds, of one length."""

Edges = Mapping[str, Sequence[Limit]]
"""Public edges of a number's ranges by column, in its units (dates: texts)."""

_OPERATORS = frozenset("<>=()[]&|~\"'")
ANY_OTHER = "any other value"


@dataclass(frozen=True)
class Division:
    """The levels of one column, or of a predicate and its complement."""

    name: str
    levels: tuple[str, ...]
    predicates: tuple[Predicate, ...]
    """One for each level; a row satisfies at most one of them."""


def label_name(schema: Schema) -> str:
    """What the label is called beside the features: its column, or "label" if a feature has that name."""
    column = schema.label.column
    return column if column not in {group.name for group in schema.groups} else "label"


def column_names(schema: Schema) -> tuple[str, ...]:
    """All that can be described: the features' groups, then the label."""
    return (*(group.name for group in schema.groups), label_name(schema))


def check_columns(schema: Schema, names: Sequence[str]) -> None:
    """Raise ConfigurationError for a column that the schema does not have, or that is given twice."""
    known = column_names(schema)
    for name in names:
        if name not in known:
            raise ConfigurationError(f"schema {schema.name!r} has no column {name!r}; {nearest(name, known)}")
        if list(names).count(name) > 1:
            raise ConfigurationError(f"column {name!r} is given twice: give it once")


def divided_names(schema: Schema, names: Sequence[str | None]) -> list[str]:
    """Those of the names that edges divide: numbers, and a label that is a number or a count."""
    label = [label_name(schema)] if schema.label.coding.is_measured else []
    return [name for name in (*(each.name for each in schema.numbers), *label) if name in names]


def check_edges(edges: Edges, divided: Sequence[str]) -> None:
    """Raise ConfigurationError if there are edges of a column that is not divided into ranges."""
    for name in edges:
        if name not in divided:
            hint = f"; {nearest(name, divided)}" if divided else ": leave them out"
            raise ConfigurationError(f"there are edges of {name!r}, which is not divided into ranges here{hint}")


def division_of(schema: Schema, text: str, edges: Edges | None = None) -> Division:
    """The division by a column's name, or by a predicate's text and its complement.

    A number is divided at its edges, or into USUAL_RANGES. Raises ConfigurationError, PredicateError.
    """
    groups: dict[str, Group] = {group.name: group for group in schema.groups}
    if text in groups:
        return _of_group(groups[text], edges or {})
    if text == label_name(schema):
        return _of_label(schema, edges or {})
    if not _OPERATORS & set(text):
        raise ConfigurationError(
            f'schema {schema.name!r} has no column {text!r}, and it is no predicate, such as x["age"] >= 65; '
            f"{nearest(text, column_names(schema))}"
        )
    predicate = parse(text)
    return Division(text, (text, f"not {text}"), (predicate, Not(predicate)))


def _of_group(group: Group, edges: Edges) -> Division:
    match group:
        case CategoryFeature():
            values: list[Predicate] = [Equals(group.name, value) for value in group.values]
            if group.unknown != "zero":
                return Division(group.name, group.values, tuple(values))
            others = [Not(value) for value in values]
            other = others[0] if len(others) == 1 else And(tuple(others))
            return Division(group.name, (*group.values, ANY_OTHER), (*values, other))
        case BooleanFeature() | ThresholdFeature():
            true, false = group.levels[0]
            return Division(group.name, (true, false), (Flag(group.name), Not(Flag(group.name))))
        case RealFeature():
            return Division(group.name, *ranges(group, edges.get(group.name)))
        case _:
            assert_never(group)


def ranges(feature: RealFeature, edges: Sequence[Limit] | None) -> tuple[tuple[str, ...], tuple[Predicate, ...]]:
    """Names and predicates of a number's ranges: between its edges, the first below and the last from the last edge on.

    Raises ConfigurationError for edges that `Cells.between` refuses.
    """
    if edges is None:
        inner = [-ONE + 2 * ONE * place // USUAL_RANGES for place in range(1, USUAL_RANGES)]
        words = [feature.written(in_units_of(feature, at), 6) for at in inner]
    else:
        Cells.between(feature, edges)
        inner = [stored(feature, feature.value(edge)) for edge in edges]
        words = [feature.written(feature.value(edge), 9) for edge in edges]
        if not all(-ONE < at < ONE for at in inner):
            raise ConfigurationError(f"an edge of {feature.name!r} is at a bound of the schema, so no row is beyond it")
    names = [f"below {words[0]}", *(f"{low} to below {high}" for low, high in pairwise(words)), f"{words[-1]} or more"]
    ends = [-ONE, *inner, ONE + 1]
    return tuple(names), tuple(_at_least(feature, low) & ~_at_least(feature, high) for low, high in pairwise(ends))


def _at_least(feature: RealFeature, value: int) -> Predicate:
    # The same weight everywhere, so that ranges are seen to be disjoint.
    return NonNegative(Affine(((feature.name, ONE),), -value))


def _of_label(schema: Schema, edges: Edges) -> Division:
    name, label = label_name(schema), schema.label
    match label:
        case Label():
            negative, positive = label.names
            return Division(name, (positive, negative), (LabelIs(True), LabelIs(False)))
        case Classes():
            return Division(name, label.values, tuple(map(LabelClass, label.values)))
        case EventTime():
            return Division(name, ("event", "no event"), (LabelIs(True), LabelIs(False)))
        case Number() | Count():
            return Division(name, *_label_ranges(label, edges.get(name)))
        case _:
            assert_never(label)


def _label_ranges(
    label: Number | Count, edges: Sequence[Limit] | None
) -> tuple[tuple[str, ...], tuple[Predicate, ...]]:
    """As `ranges`, of a label in its units. Raises ConfigurationError for edges that do not ascend within bounds."""
    if edges is None:
        evenly = label.in_units(np.linspace(-1.0, 1.0, USUAL_RANGES + 1)[1:-1])
        found = sorted({float(f"{value:.4g}") for value in (np.ceil(evenly) if isinstance(label, Count) else evenly)})
        inner = label_edges(label, found)
    else:
        inner = label_edges(label, edges)
    words = [value_text(value) for value in inner]
    names = (f"below {words[0]}", *(f"{low} to below {high}" for low, high in pairwise(words)), f"{words[-1]} or more")
    ends: list[Predicate] = [LabelAtLeast(Fraction(value)) for value in inner]
    within = [And((low, Not(high))) for low, high in pairwise(ends)]
    return names, (Not(ends[0]), *within, ends[-1])


def label_edges(label: Number | Count, edges: Sequence[Limit]) -> tuple[float, ...]:
    """Edges of a label's ranges. Raises ConfigurationError unless they are numbers that ascend within its bounds."""
    lowest, highest = label.in_units(np.array([-1.0, 1.0])).tolist()
    try:
        inner = tuple(float(edge) for edge in edges)
    except ValueError as error:
        raise ConfigurationError(f"edges of {label.column!r} are numbers: {error}") from error
    if not inner or any(high <= low for low, high in pairwise((lowest, *inner, highest))):
        raise ConfigurationError(f"edges of {label.column!r} must ascend, between {lowest:g} and {highest:g}")
    return inner


def met(first: Predicate, second: Predicate) -> Predicate:
    """The conjunction of two predicates, as one level of parts."""
    return And((*_parts(first), *_parts(second)))


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    return predicate.parts if isinstance(predicate, And) else (predicate,)
