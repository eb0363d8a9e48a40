"""Predicates that say in which range a number lies, for people: in the column's units, exact enough to tell all apart.

For `(1073741824 * z["age"] - 268435456 >= 0) & ...` a reader sees `63.75 <= age < 66.5`, and for a batch how many
ranges of which column, and what could single rows out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import groupby, pairwise
from operator import attrgetter

from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Above, And, AtLeast, NonNegative, Not, Or, Predicate
from dpcore.predicates.notation import described
from dpcore.predicates.squares import TANGENTS, squared
from dpcore.records.feature_map import stored
from dpcore.records.features import Day, RealFeature
from dpcore.records.schema import Schema

_MOST_COLUMNS = 10


@dataclass(frozen=True)
class Range:
    """Whether a real feature's value, as stored, is in [low, high)."""

    feature: RealFeature
    low: Fraction | None
    high: Fraction | None
    """In the column's units; None for no end."""
    step: Fraction
    """The distance between neighbouring stored values."""

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.feature.name

    @property
    def width(self) -> Fraction | None:
        """The distance of its ends; None if it has no end on a side."""
        return None if self.low is None or self.high is None else self.high - self.low

    @property
    def is_value(self) -> bool:
        """Whether it holds no more than one stored value."""
        return self.width is not None and self.width <= self.step

    def __str__(self) -> str:
        if self.feature.is_named:
            return self._named()
        if self.low is not None and self.width == self.step:
            return f"{self.name} = {_digits(self.low, self.step)}"
        low = high = ""
        if self.low is not None:
            text, is_beside = self._bound(self.low)
            low = f"{text} {'<' if is_beside else '<='} "
        if self.high is not None:
            text, is_beside = self._bound(self.high)
            high = f" {'<=' if is_beside else '<'} {text}"
        return f"{low}{self.name}{high}"

    def _named(self) -> str:
        low, high = (None if end is None else self.feature.written(float(end)) for end in (self.low, self.high))
        if low is not None and self.is_value:
            return f"{self.name} = {low}"
        return f"{'' if low is None else f'{low} <= '}{self.name}{'' if high is None else f' < {high}'}"

    def _bound(self, value: Fraction) -> tuple[str, bool]:
        """The digits of an end, or of the stored value below it if they are fewer, and whether they are those."""
        own, below = _digits(value, self.step), _digits(value - self.step, self.step)
        return (below, True) if len(below) < len(own) else (own, False)


def range_of(predicate: Predicate, schema: Schema) -> Range | None:
    """The range that a predicate over the schema's coordinates asks for; None if it is no range of one number."""
    parts = predicate.children() if isinstance(predicate, And) else (predicate,)
    ends: dict[bool, _End] = {}
    for part in parts:
        end = _end(part, schema)
        if end is None or end.is_low in ends or any(end.feature.name != other.feature.name for other in ends.values()):
            return None
        ends[end.is_low] = end
    (one, *_) = ends.values()
    low, high = (ends[side].at if side in ends else None for side in (True, False))
    if low is not None and high is not None and low >= high:
        return None
    return Range(one.feature, low, high, one.step)


def in_words(predicates: Sequence[Predicate], schema: Schema) -> str | None:
    """What a batch of ranges asks for, in one phrase; None unless each of several predicates is a range."""
    found = [range_of(predicate, schema) for predicate in predicates]
    ranges = [each for each in found if each is not None]
    if len(ranges) < max(2, len(found)):
        return None
    by = attrgetter("name")
    by_name = [(name, list(group)) for name, group in groupby(sorted(ranges, key=by), key=by)]
    phrases = [f"{name} in each of {len(group)} ranges{_details(group)}" for name, group in by_name[:_MOST_COLUMNS]]
    if len(by_name) > _MOST_COLUMNS:
        rest = [each for _, group in by_name[_MOST_COLUMNS:] for each in group]
        phrases.append(f"{len(by_name) - _MOST_COLUMNS} more columns in {len(rest)} ranges")
    return f"how many rows have {', '.join(phrases)}"


def readable(predicate: Predicate, schema: Schema) -> str:
    """The predicate as a range of a column, else in its notation, cut if it is long. For people; do not parse it."""
    found = range_of(predicate, schema)
    if found is not None:
        return str(found)
    if isinstance(predicate, And) and (joined := _joined(predicate.parts, schema)) is not None:
        return joined
    if (name := squared(predicate)) is not None:
        return f'z["{name}"]^2, or up to 1/{TANGENTS**2} less'
    dates = frozenset(group.name for group in schema.numbers if group.is_named)
    return described(_on_days(predicate, dates, {}) if dates else predicate)


def _joined(parts: Sequence[Predicate], schema: Schema) -> str | None:
    """The parts of a conjunction in words, of which two ends of one number are a range; None if no part gains by it."""
    ends: dict[str, list[Predicate]] = {}
    others: list[Predicate] = []
    for part in parts:
        end = _end(part, schema)
        if end is None:
            others.append(part)
        else:
            ends.setdefault(end.feature.name, []).append(part)
    found = [range_of(And(tuple(own)), schema) if len(own) == 2 else None for own in ends.values()]
    if None in found or not (found or any(squared(part) for part in others)):
        return None
    return " and ".join([*(readable(part, schema) for part in others), *map(str, found)])


def _on_day(predicate: Predicate, name: str, bound: Fraction) -> Predicate:
    """No date is the fraction itself, so "at least" and "above" are the same."""
    try:
        return AtLeast(name, Day(math.ceil(bound)))
    except ValueError:  # beyond all dates
        return predicate


def _on_days(predicate: Predicate, dates: frozenset[str], known: dict[int, Predicate]) -> Predicate:
    """The predicate with days for the fractions that dates are compared with. known: of the parts so far, by id."""
    if id(predicate) not in known:
        match predicate:
            case AtLeast(name, Fraction() as bound) | Above(name, Fraction() as bound) if name in dates:
                known[id(predicate)] = _on_day(predicate, name, bound)
            case Not(part):
                known[id(predicate)] = Not(_on_days(part, dates, known))
            case And(parts) | Or(parts):
                known[id(predicate)] = type(predicate)(tuple(_on_days(part, dates, known) for part in parts))
            case _:
                known[id(predicate)] = predicate
    return known[id(predicate)]


@dataclass(frozen=True)
class _End:
    feature: RealFeature
    is_low: bool
    at: Fraction
    step: Fraction


def _end(predicate: Predicate, schema: Schema) -> _End | None:
    is_low = not isinstance(predicate, Not)
    inner = predicate.part if isinstance(predicate, Not) else predicate
    if not isinstance(inner, NonNegative) or len(inner.form.weights) != 1:
        return None
    ((name, weight),) = inner.form.weights
    feature = next((each for each in schema.numbers if each.name == name), None)
    if feature is None or weight <= 0:
        return None
    # A double means its shortest decimal. Bounds are those of the stored values -1 and 1.
    lower, upper = Fraction(str(feature.lower)), Fraction(str(feature.upper))
    half = (upper - lower) / 2
    least = -Fraction(inner.form.constant, weight)
    at = lower + half * (1 + least)
    if feature.is_named:
        return _End(feature, is_low, Fraction(_first_whole(feature, math.floor(at), least * ONE)), Fraction(1))
    return _End(feature, is_low, at, half / ONE)


def _first_whole(feature: RealFeature, near: int, least: Fraction) -> int:
    """The first of the whole numbers beside `near` that is stored as at least this, or one after the bound."""
    for value in range(max(near - 1, int(feature.lower)), int(feature.upper) + 1):
        if stored(feature, float(value)) >= least:
            return value
    return int(feature.upper) + 1


def _low(found: Range) -> tuple[bool, Fraction]:
    return found.low is not None, found.low or Fraction(0)


def _details(group: Sequence[Range]) -> str:
    values = sum(each.is_value for each in group)
    widths = [each.width for each in group if each.width is not None and not each.is_value]
    said = [f"{values} of them single values"] if values else []
    if widths:
        said.append(f"the narrowest{' of the others' if values else ''} {float(min(widths)):.4g} wide")
    # None of them is empty, so if two overlap, so do two that follow one another.
    if any(_overlap(first, second) for first, second in pairwise(sorted(group, key=_low))):
        said.append("some overlap")
    return f" ({', '.join(said)})" if said else ""


def _overlap(first: Range, second: Range) -> bool:
    """Whether a range begins before an earlier one ends."""
    return first.high is None or second.low is None or second.low < first.high


def _digits(value: Fraction, step: Fraction) -> str:
    """As many digits as tell stored values that are `step` apart from one another, and one more."""
    with localcontext(prec=2 + len(str(math.ceil(abs(value) / step)))):
        return f"{(Decimal(value.numerator) / value.denominator).normalize():f}"
