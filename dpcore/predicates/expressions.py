"""Statistical queries phi(x, y) in [0, 1] as expressions over a schema (Kearns, STOC 1993, section 2).

An expression names features, values and coordinates; `check` tests whether the schema has them. A record that is not
usable has value 0 for every predicate, including `Constant(True)` and every complement. Every class is frozen and valid
from construction. No tree is deeper than MOST_DEPTH.
"""

import operator
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import Any, Literal, SupportsIndex, get_args

from dpcore.errors import SchemaError
from dpcore.numbers.rationals import LARGEST_INTEGER
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Bound, Day, nearest
from dpcore.records.schema import BIAS, Schema

MOST_DEPTH = 32
"""The most levels of a predicate. An atom has one level."""

MOST_FORM = 1 << 32
"""Bound above sum |w_j| + |constant| of an affine form and above a scale: in units of 2^-30 both are below 2^62."""


LARGEST_LOG = 64
"""Of the logarithm of a rate, so that no exponential overflows."""

MOST_ERROR = 2
"""Places of labels between their bounds are from -1 to 1."""


class PredicateError(SchemaError):
    """A predicate, or a batch of them, is invalid or does not fit the schema."""


class _Node:
    """Base of all expressions: equality by structure, and a hash that is computed once."""

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        # How an expression is written is no part of what it is.
        return tuple(getattr(self, each.name) for each in fields(self) if each.compare)  # type: ignore[arg-type]  # all are dataclasses

    @cached_property
    def _hash(self) -> int:
        # A rational's own hash is its value modulo a known prime, so an adversary can choose thousands that collide.
        # The hash of a text is keyed differently in every process.
        return hash(
            (type(self).__name__, *(str(part) if isinstance(part, Fraction | Day) else part for part in self._key))
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Node):
            return NotImplemented
        return type(self) is type(other) and self._hash == other._hash and self._key == other._key

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # Texts hash differently in another process: a cached hash must not travel, and what arrives must be checked.
        return type(self), tuple(getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]  # as above


class _Predicate(_Node):
    """Base of all predicates: the operators & | ~ and the properties that other modules use."""

    def children(self) -> tuple["Predicate", ...]:
        """The parts of this predicate; none for an atom."""
        return ()

    @cached_property
    def depth(self) -> int:
        """Levels: 1 for an atom."""
        return 1 + max((part.depth for part in self.children()), default=0)

    @cached_property
    def boolean(self) -> bool:
        """Whether every value is 0 or 1."""
        return all(part.boolean for part in self.children())

    @cached_property
    def labelled(self) -> bool:
        """Whether the label occurs in it."""
        return any(part.labelled for part in self.children())

    def _check_children(self) -> None:
        for part in self.children():
            if not isinstance(part, _Predicate):
                raise PredicateError(f"{type(part).__name__} is not a predicate: compare it, or join it using & and |")
        if self.depth > MOST_DEPTH:
            raise PredicateError(f"a predicate is deeper than {MOST_DEPTH} levels: nest less, with more parts a level")

    def _merged(self, kind: type["And | Or"]) -> tuple["Predicate", ...]:
        """The parts that it contributes to a conjunction or disjunction: a & b & c is one And of three parts."""
        return self.children() if type(self) is kind else (self,)  # type: ignore[return-value]  # all are in the union

    def __and__(self, other: "Predicate") -> "And":
        return And((*self._merged(And), *other._merged(And))) if isinstance(other, _Predicate) else NotImplemented

    def __or__(self, other: "Predicate") -> "Or":
        return Or((*self._merged(Or), *other._merged(Or))) if isinstance(other, _Predicate) else NotImplemented

    def __invert__(self) -> "Not":
        return Not(self)  # type: ignore[arg-type]  # all are in the union

    def __bool__(self) -> bool:
        raise PredicateError("a predicate has no truth value: join predicates using &, | and ~, each in parentheses")


@dataclass(frozen=True, eq=False)
class Constant(_Predicate):
    """1 or 0 for every usable row."""

    value: bool

    def __post_init__(self) -> None:
        _require_bool(self.value)


@dataclass(frozen=True, eq=False)
class LabelIs(_Predicate):
    """y = +1 where `positive`, else y = -1. Of a time to an event: whether the event happened within the horizon."""

    positive: bool
    written: Literal["", "y.event"] = field(default="", compare=False, repr=False)
    """What is asked of, if not y alone: only some labels have it."""

    def __post_init__(self) -> None:
        _require_bool(self.positive)

    @cached_property
    def labelled(self) -> bool:
        """Always true: it is the label."""
        return True


@dataclass(frozen=True, eq=False)
class LabelClass(_Predicate):
    """The label is this one of several classes, a value that the schema's label lists."""

    value: str

    def __post_init__(self) -> None:
        _require_text(self.value)

    @cached_property
    def labelled(self) -> bool:
        """Always true: it is the label."""
        return True


@dataclass(frozen=True, eq=False)
class _LabelCompared(_Predicate):
    bound: Fraction
    written: Literal["", "y.time"] = field(default="", compare=False, repr=False)
    """As of LabelIs."""

    def __post_init__(self) -> None:
        if isinstance(self.bound, Day):
            raise PredicateError("the label is compared with numbers: give one, such as 0.5")
        object.__setattr__(self, "bound", _bound(self.bound))

    @cached_property
    def labelled(self) -> bool:
        """Always true: it is the label."""
        return True


class LabelAtLeast(_LabelCompared):
    """A label that is a number or a count is >= bound, in its units; numbers up to the encoding."""


class LabelAbove(_LabelCompared):
    """A label that is a number or a count is > bound, in its units; numbers up to the encoding."""


@dataclass(frozen=True, eq=False)
class LabelShare(_Predicate):
    """(1 + t) / 2 of a label that is a number or a count: 0 at its lower bound, 1 at its upper one."""

    @cached_property
    def boolean(self) -> bool:
        """Always false: its values are fractions."""
        return False

    @cached_property
    def labelled(self) -> bool:
        """Always true: it is the label."""
        return True


@dataclass(frozen=True, eq=False)
class LabelSquare(LabelShare):
    """t^2 of a label that is a number or a count: 1 at both bounds, 0 midway between them."""


@dataclass(frozen=True, eq=False)
class LabelExposure(LabelShare):
    """What a count was counted over, divided by its upper bound."""


@dataclass(frozen=True, eq=False)
class Flag(_Predicate):
    """A boolean or threshold feature is true."""

    feature: str

    def __post_init__(self) -> None:
        _require_text(self.feature)


@dataclass(frozen=True, eq=False)
class Equals(_Predicate):
    """A category feature has this value, one of those that it lists."""

    feature: str
    value: str

    def __post_init__(self) -> None:
        _require_text(self.feature)
        _require_text(self.value)


@dataclass(frozen=True, eq=False)
class _Compared(_Predicate):
    feature: str
    bound: Bound

    def __post_init__(self) -> None:
        _require_text(self.feature)
        object.__setattr__(self, "bound", _bound(self.bound))


class AtLeast(_Compared):
    """A number or date is >= bound, in the units of its column; exact up to the encoding (see `evaluation`)."""


class Above(_Compared):
    """A number or date is > bound, in the units of its column; exact up to the encoding (see `evaluation`)."""


@dataclass(frozen=True, eq=False)
class Affine(_Node):
    """sum_j w_j z_j + constant, where z_j is the coordinate of that name, in [-1, 1]. Not a predicate.

    Coordinates are the schema's, or those of the query's feature map (dpcore.predicates.expressions).

    Raises PredicateError if sum |w_j| + |constant| is 2^32 or more, so that every value in units of 2^-30 is exact in
    int64.
    """

    weights: tuple[tuple[str, int], ...]
    """(name, w_j), distinct names, kept sorted and without zeros."""
    constant: int = 0

    def __post_init__(self) -> None:
        weights = sorted((_require_text(name), _integer(weight)) for name, weight in self.weights)
        constant = _integer(self.constant)
        if len({name for name, _ in weights}) < len(weights):
            raise PredicateError("a coordinate occurs twice in an affine form: add its weights")
        if sum(abs(weight) for _, weight in weights) + abs(constant) >= MOST_FORM:
            raise PredicateError("the weights and the constant of an affine form add up to 2^32 or more: scale it down")
        object.__setattr__(self, "weights", tuple(pair for pair in weights if pair[1]))
        object.__setattr__(self, "constant", constant)


@dataclass(frozen=True, eq=False)
class NonNegative(_Predicate):
    """An affine form is >= 0, exactly."""

    form: Affine

    def __post_init__(self) -> None:
        _require_form(self.form)


@dataclass(frozen=True, eq=False)
class Clipped(_Predicate):
    """min(1, max(0, form / scale)), for an integer scale from 1 to 2^32 - 1."""

    form: Affine
    scale: int

    def __post_init__(self) -> None:
        _require_form(self.form)
        object.__setattr__(self, "scale", _scale(self.scale))

    @cached_property
    def boolean(self) -> bool:
        """Always false: its values are fractions."""
        return False


@dataclass(frozen=True, eq=False)
class CountShare(LabelShare):
    """min(y, most) / most of a count y."""

    most: int
    """A whole number from 1 to the label's upper bound."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", _integer(self.most))
        if self.most < 1:
            raise PredicateError(f"the largest count is {self.most}: give a whole number from 1")


@dataclass(frozen=True, eq=False)
class CountDeviance(CountShare):
    """How far a count is from one rate: half of its Poisson deviance, divided by the largest that the bounds allow.

    Counts above `most` count as it.
    """

    centre: Fraction
    """The rate's logarithm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "centre", _logarithm(self.centre))


@dataclass(frozen=True, eq=False)
class CountGain(CountDeviance):
    """How much likelier a count is at a predicted rate than at one rate for all, or less likely: its gain or its loss.

    The logarithm of the predicted rate is centre + reach (2 min(1, max(0, form / scale)) - 1). The value is the gain,
    or the loss, divided by the largest: dpcore.predicates.count_terms. A record has one of them at most.
    """

    form: Affine
    scale: int
    reach: Fraction
    is_loss: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_form(self.form)
        _require_bool(self.is_loss)
        object.__setattr__(self, "scale", _scale(self.scale))
        object.__setattr__(self, "reach", _logarithm(self.reach))
        if self.reach <= 0:
            raise PredicateError(f"the reach is {self.reach}: give a number above 0")


ErrorSort = Literal["over", "under", "square", "beyond"]


@dataclass(frozen=True, eq=False)
class LabelError(LabelShare):
    """How far a label that is a number or a count is from a predicted place, on the scale that is learned.

    The predicted place is p = 2 min(1, max(0, form / scale)) - 1. Of the label's place t, in units of `reach`, at most
    1:

    - over: max(0, t - p). A record has this or `under` at most.
    - under: max(0, p - t).
    - square: (t - p)^2, of a difference of at most `reach`.
    - beyond: whether |t - p| exceeds `reach`.
    """

    form: Affine
    scale: int
    reach: Fraction
    """Above 0, at most 2."""
    sort: ErrorSort

    def __post_init__(self) -> None:
        _require_form(self.form)
        object.__setattr__(self, "scale", _scale(self.scale))
        reach = _bound(self.reach)
        if isinstance(reach, Day) or not 0 < reach <= MOST_ERROR:
            raise PredicateError(f"the reach is {self.reach}: give a number above 0, at most {MOST_ERROR}")
        object.__setattr__(self, "reach", reach)
        if self.sort not in get_args(ErrorSort):
            raise PredicateError(f"there is no error {self.sort!r}: give one of {', '.join(get_args(ErrorSort))}")

    @cached_property
    def boolean(self) -> bool:
        """Whether it is a comparison."""
        return self.sort == "beyond"


@dataclass(frozen=True, eq=False)
class Not(_Predicate):
    """1 minus the part's value."""

    part: "Predicate"

    def __post_init__(self) -> None:
        self._check_children()

    def children(self) -> tuple["Predicate", ...]:
        """The one part."""
        return (self.part,)


@dataclass(frozen=True, eq=False)
class _Joined(_Predicate):
    parts: tuple["Predicate", ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if len(self.parts) < 2:
            raise PredicateError(f"{type(self).__name__} has fewer than two parts: give two, or use the one part alone")
        self._check_children()

    def children(self) -> tuple["Predicate", ...]:
        """The parts."""
        return self.parts


class And(_Joined):
    """The minimum of the values of two or more parts; if they are boolean, whether all hold."""


class Or(_Joined):
    """The maximum of the values of two or more parts; if they are boolean, whether any holds."""


LabelTest = (
    LabelIs
    | LabelClass
    | LabelAtLeast
    | LabelAbove
    | LabelShare
    | LabelSquare
    | LabelExposure
    | CountShare
    | CountDeviance
    | CountGain
    | LabelError
)
"""A predicate that is about the label alone."""
Predicate = LabelTest | Constant | Flag | Equals | AtLeast | Above | NonNegative | Clipped | Not | And | Or
"""A statistical query. An affine form alone is not one."""


def is_boolean(predicate: Predicate) -> bool:
    """Whether every value is 0 or 1: no `Clipped`, `LabelShare` or term of a count is in it."""
    return predicate.boolean


def depends_on_label(predicate: Predicate) -> bool:
    """Whether a `LabelTest` occurs in it."""
    return predicate.labelled


def swap_label(predicate: Predicate) -> Predicate:
    """phi(x, -y). Raises PredicateError if the label has no sign."""
    return _swapped(predicate, {})


def _swapped(predicate: Predicate, known: dict[int, Predicate]) -> Predicate:
    # By identity: shared parts are swapped once and stay shared.
    if not predicate.labelled:
        return predicate
    if id(predicate) not in known:
        match predicate:
            case LabelIs(positive):
                swapped: Predicate = LabelIs(not positive)
            case LabelClass(value):
                raise PredicateError(
                    f"{value!r} is one of several classes, which flip in no known way: leave noise_rate"
                )
            case LabelAtLeast() | LabelAbove() | LabelShare():
                raise PredicateError("a label that is a number has no classes, which flip: leave noise_rate")
            case Not(part):
                swapped = Not(_swapped(part, known))
            case And(parts) | Or(parts):
                swapped = type(predicate)(tuple(_swapped(part, known) for part in parts))
            case _:
                raise AssertionError(predicate)
        known[id(predicate)] = swapped
    return known[id(predicate)]


def _require_bool(value: object) -> None:
    if not isinstance(value, bool):
        raise PredicateError(f"{value!r} is not a boolean: write True or False")


def _require_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise PredicateError(f"{value!r} is not a name or value of a schema: give a non-empty text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PredicateError("a name or value is not valid Unicode: write it as the schema does") from None
    return value


def _require_form(value: object) -> None:
    if not isinstance(value, Affine):
        raise PredicateError(f"{type(value).__name__} is not an affine form: give an Affine")


def _integer(value: object) -> int:
    # The usual type comes first: testing for SupportsIndex is slow.
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise PredicateError(f"{value!r} is not an integer: round weights, constants and scales to integers")
    return operator.index(value)


def _scale(value: object) -> int:
    found = _integer(value)
    if not 1 <= found < MOST_FORM:
        raise PredicateError(f"the scale is {found}: give an integer from 1 to 2^32 - 1")
    return found


def _logarithm(value: object) -> Fraction:
    """An exact number between -LARGEST_LOG and LARGEST_LOG, the logarithm of a rate."""
    found = _bound(value)
    if isinstance(found, Day) or abs(found) > LARGEST_LOG:
        raise PredicateError(f"{value} is no logarithm of a rate: give a number from -{LARGEST_LOG} to {LARGEST_LOG}")
    return found


def _bound(value: object) -> Bound:
    if isinstance(value, Day):
        return value
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise PredicateError(f"{value!r} is not exact: write Fraction(1, 2), not 0.5")
    # NumPy's integers are rational too, but overflow.
    bound = Fraction(int(value.numerator), int(value.denominator))
    if max(abs(bound.numerator), bound.denominator) > LARGEST_INTEGER:
        raise PredicateError("a bound's numerator or denominator has more than 63 bits: give fewer digits")
    return bound


# The coordinates that affine forms are sums of: the schema's, or with a feature map those of mapped records, whose
# names are their place and what they are, cut if long, such as "3: age~40".


LONGEST_NAME = 60
"""Characters of a schema's coordinate that the names of a map's coordinates have."""


@dataclass(frozen=True)
class FormCoordinates:
    """What forms name."""

    schema: Schema
    feature_map: FeatureMap | None = None
    """Fits the schema; None for the schema's own coordinates."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of their places; the bias, if there is one, is the last and has its usual name."""
        if self.feature_map is None:
            return self.schema.coordinates
        terms = self.feature_map.names(self.schema, LONGEST_NAME)[: len(self.feature_map.terms)]
        named = tuple(f"{place}: {name}" for place, name in enumerate(terms))
        return (*named, BIAS) if self.feature_map.bias else named

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def place(self, name: str) -> int:
        """The place of a coordinate. Raises PredicateError, with the most similar name, if there is none."""
        if self.feature_map is None:
            try:
                return self.schema.coordinate(name)
            except SchemaError as error:
                raise PredicateError(str(error)) from None
        if name not in self._places:
            raise PredicateError(f"the feature map has no coordinate {name!r}; {nearest(name, self.names)}")
        return self._places[name]

    def columns(self, name: str) -> tuple[str, ...]:
        """The source columns that a coordinate is a function of: none for the bias, two for a product."""
        place = self.place(name)
        if self.feature_map is not None:
            return self.feature_map.columns(place, self.schema)
        column = self.schema.sources(name)
        return () if column is None else (column,)
