"""Predicates as Python expressions.

    (x["age"] >= 65) & (y == 1)          x["admitted"] < "2024-12-31"          ~x["smoker"] | (x["job"] == "clerk")
    3 * z["age"] - 2 * z["job=clerk"] + 5 >= 0          clip((3 * z["age"] + 5) / 16)

x["name"] is a feature in the units of its column, z["name"] an encoded coordinate in [-1, 1], y the label. Python binds
& and | more tightly than comparisons: put each comparison in parentheses. `check`, which knows the schema, tests
whether a feature has the type that its use requires.

Of a label that is a number or a count, y >= 30 is in its units, and y alone is its place between its bounds, from 0 to
1.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Rational, Real

from dpcore.numbers.rationals import LARGEST_INTEGER
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    CountDeviance,
    CountGain,
    CountShare,
    Equals,
    Flag,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelError,
    LabelExposure,
    LabelIs,
    LabelShare,
    LabelSquare,
    NonNegative,
    Not,
    Or,
    Predicate,
    PredicateError,
)
from dpcore.records.features import Bound, Day

__all__ = ["as_predicate", "clip", "false", "true", "x", "y", "z"]

true, false = Constant(value=True), Constant(value=False)


def as_predicate(written: object) -> Predicate:
    """The predicate that an expression means. Raises PredicateError, also for a bool: two predicates compared."""
    if isinstance(written, Reference):
        return Flag(written.feature)
    if isinstance(written, LabelReference):
        return LabelShare()
    if isinstance(written, Predicate):
        return written
    raise PredicateError(f"{type(written).__name__} is not a predicate: compare it, or join it using & and |")


class _Compared:
    """Base of values whose comparisons give predicates. They have no equality or truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise PredicateError("the expression is not a predicate yet: compare it, in parentheses")


@dataclass(frozen=True, eq=False)
class Reference(_Compared):
    """A feature that is still to be compared, or used as a Boolean."""

    feature: str

    def __ge__(self, bound: object) -> Predicate:
        return AtLeast(self.feature, _exact(bound))

    def __gt__(self, bound: object) -> Predicate:
        return Above(self.feature, _exact(bound))

    def __lt__(self, bound: object) -> Predicate:
        return Not(AtLeast(self.feature, _exact(bound)))

    def __le__(self, bound: object) -> Predicate:
        return Not(Above(self.feature, _exact(bound)))

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        if isinstance(value, str):
            return Equals(self.feature, value)
        if isinstance(value, bool):
            return Flag(self.feature) if value else Not(Flag(self.feature))
        raise PredicateError("== takes a category's value, a text; compare numbers using >=, >, < and <=")

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Not(self == value)

    def __and__(self, other: object) -> And:
        return Flag(self.feature) & as_predicate(other)

    def __rand__(self, other: object) -> And:
        return as_predicate(other) & Flag(self.feature)

    def __or__(self, other: object) -> Or:
        return Flag(self.feature) | as_predicate(other)

    def __ror__(self, other: object) -> Or:
        return as_predicate(other) | Flag(self.feature)

    def __invert__(self) -> Not:
        return Not(Flag(self.feature))


@dataclass(frozen=True, eq=False)
class Form(_Compared):
    """An affine form of coordinates that is still to be compared or clipped."""

    affine: Affine

    def __add__(self, other: object) -> "Form":
        return added((self, form(other)))

    __radd__ = __add__

    def __mul__(self, factor: object) -> "Form":
        k = _whole(factor)
        return Form(Affine(tuple((name, k * weight) for name, weight in self.affine.weights), k * self.affine.constant))

    __rmul__ = __mul__

    def __neg__(self) -> "Form":
        return self * -1

    def __sub__(self, other: object) -> "Form":
        return self + -form(other)

    def __rsub__(self, other: object) -> "Form":
        return form(other) + -self

    def __truediv__(self, scale: object) -> "Ratio":
        return Ratio(self.affine, _whole(scale))

    def __ge__(self, other: object) -> Predicate:
        return NonNegative((self - other).affine)

    def __le__(self, other: object) -> Predicate:
        return NonNegative((form(other) - self).affine)

    def __lt__(self, other: object) -> Predicate:
        return Not(self >= other)

    def __gt__(self, other: object) -> Predicate:
        return Not(self <= other)

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        raise PredicateError("forms are compared using >=, >, < and <=: join two of these for equality")

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self == other


def added(forms: Iterable[Form]) -> Form:
    """The sum of forms, in time linear in their weights."""
    weights: dict[str, int] = {}
    constant = 0
    for form in forms:
        constant += form.affine.constant
        for name, weight in form.affine.weights:
            weights[name] = weights.get(name, 0) + weight
    return Form(Affine(tuple(weights.items()), constant))


@dataclass(frozen=True)
class Ratio:
    """form / scale, which `clip` takes."""

    affine: Affine
    scale: int


def clip(written: Form | Ratio) -> Clipped:
    """min(1, max(0, form / scale)): a fraction, where a comparison gives only 0 or 1."""
    if isinstance(written, Ratio):
        return Clipped(written.affine, written.scale)
    if isinstance(written, Form):
        return Clipped(written.affine, 1)
    raise PredicateError('clip takes a form of coordinates only: write clip((3 * z["age"] + 5) / 16)')


def count(most: object) -> CountShare:
    """min(y, most) / most of a count y."""
    return CountShare(_whole(most))


def gain(written: Form | Ratio, centre: object, reach: object, most: object) -> CountGain:
    """How much likelier a count is at a predicted rate than at one rate: `dpcore.predicates.expressions.CountGain`."""
    place = clip(written)
    return CountGain(_whole(most), _number(centre), place.form, place.scale, _number(reach))


def loss(written: Form | Ratio, centre: object, reach: object, most: object) -> CountGain:
    """How much less likely it is there."""
    return replace(gain(written, centre, reach, most), is_loss=True)


def deviance(centre: object, most: object) -> CountDeviance:
    """How far a count is from one rate, whose logarithm is `centre`."""
    return CountDeviance(_whole(most), _number(centre))


def over(written: Form | Ratio, reach: object) -> LabelError:
    """How far the label is above a predicted place: `dpcore.predicates.expressions.LabelError`."""
    place = clip(written)
    return LabelError(place.form, place.scale, _number(reach), "over")


def under(written: Form | Ratio, reach: object) -> LabelError:
    """How far the label is below it."""
    return replace(over(written, reach), sort="under")


def squared(written: Form | Ratio, reach: object) -> LabelError:
    """The square of how far the label is from it."""
    return replace(over(written, reach), sort="square")


def beyond(written: Form | Ratio, reach: object) -> LabelError:
    """Whether the label is further from it than `reach`."""
    return replace(over(written, reach), sort="beyond")


def other_label(name: object) -> PredicateError:
    """That a query is about one label, which `y` is; parties hold the rows of each label apart."""
    return PredicateError(
        f"a query is about one label, which y is: name it by --label {name}, or label={name!r} in Python, and write y; "
        "ask about another label in a query of its own"
    )


class LabelReference(_Compared):
    """The label, which is still to be compared."""

    def __getitem__(self, name: object) -> "LabelReference":
        raise other_label(name)

    @property
    def event(self) -> LabelIs:
        """Of a time to an event, whether the event happened within the horizon."""
        return LabelIs(positive=True, written="y.event")

    @property
    def exposure(self) -> LabelExposure:
        """Of a count, what it was counted over, as a share of its upper bound."""
        return LabelExposure()

    @property
    def square(self) -> LabelSquare:
        """Of a number or a count, the square of its coordinate: 1 at both bounds, 0 midway between them."""
        return LabelSquare()

    @property
    def time(self) -> "TimeReference":
        """The time to an event, which > and <= compare with the end of an interval."""
        return TimeReference()

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        if isinstance(value, str):
            return LabelClass(value)
        if isinstance(value, bool) or value not in (-1, 1):
            raise PredicateError(
                "y is compared with 1 or -1, or with a class, a text: write y == 1; for a number use >=, >, < and <="
            )
        return LabelIs(value == 1)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return ~(self == value)

    def __ge__(self, bound: object) -> Predicate:
        return LabelAtLeast(_number(bound))

    def __gt__(self, bound: object) -> Predicate:
        return LabelAbove(_number(bound))

    def __lt__(self, bound: object) -> Predicate:
        return Not(LabelAtLeast(_number(bound)))

    def __le__(self, bound: object) -> Predicate:
        return Not(LabelAbove(_number(bound)))


class TimeReference(_Compared):
    """The time to an event, which is still to be compared."""

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        raise PredicateError("y.time is compared with the end of an interval: write y.time > 24 or y.time <= 24")

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return self == value

    def __ge__(self, bound: object) -> Predicate:
        return LabelAtLeast(_number(bound), "y.time")

    def __gt__(self, bound: object) -> Predicate:
        return LabelAbove(_number(bound), "y.time")

    def __lt__(self, bound: object) -> Predicate:
        return Not(LabelAtLeast(_number(bound), "y.time"))

    def __le__(self, bound: object) -> Predicate:
        return Not(LabelAbove(_number(bound), "y.time"))


class _Features:
    def __getitem__(self, name: str) -> Reference:
        return Reference(Flag(name).feature)


class _Coordinates:
    def __getitem__(self, name: str) -> Form:
        return Form(Affine(((name, 1),)))


x, y, z = _Features(), LabelReference(), _Coordinates()


def _exact(number: object) -> Bound:
    """The bound as it was written: a date, also as a text, or a number; a double is its shortest decimal."""
    if isinstance(number, Day):
        return number
    if isinstance(number, str) or hasattr(number, "isoformat"):
        day = Day.of(str(number))
        if day is None:
            raise PredicateError(
                f"{str(number)!r} is neither: a real feature is compared with a finite number, a date with another, "
                'such as "2024-12-31"'
            )
        return day
    if isinstance(number, Rational) and not isinstance(number, bool):
        return Fraction(number)
    if isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number):
        decimal = Fraction(repr(float(number)))
        short = decimal.limit_denominator(LARGEST_INTEGER)
        return short if float(short) == number else decimal
    raise PredicateError("a real feature is compared with a finite number: give one, such as 0.5")


def _number(bound: object) -> Fraction:
    """The number that a label is compared with, as `_exact`."""
    found = None if isinstance(bound, str) else _exact(bound)
    if not isinstance(found, Fraction):
        raise PredicateError("the label is compared with a finite number: give one, such as 0.5")
    return found


def _whole(number: object) -> int:
    if isinstance(number, Rational) and not isinstance(number, bool) and number.denominator == 1:
        return int(Fraction(number))
    raise PredicateError(f"{number!r} is not an integer: scale the form's weights, constants and scales to integers")


def form(written: object) -> Form:
    """A form unchanged, or an integer as a constant form."""
    return written if isinstance(written, Form) else Form(Affine((), _whole(written)))
