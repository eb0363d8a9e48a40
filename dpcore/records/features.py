"""The parts of a schema: how one source column is encoded, and how an unusable cell is handled.

Every class is valid from construction, so that data can be encoded with every instance. Field names are the keys of the
TOML file, so that an error names what the user wrote.
"""

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import SchemaError
from dpcore.records.text_forms import same_form, stored_form

Missing = Literal["refuse", "impute", "zero-vector"]
OutOfBounds = Literal["refuse", "clip", "zero-vector"]
UnknownBoolean = Literal["refuse", "impute", "zero-vector"]
UnknownCategory = Literal["refuse", "zero", "impute", "zero-vector"]
MissingLabel = Literal["refuse", "zero-vector"]
Unreadable = Literal["refuse", "impute", "zero-vector"]

MISSING_POLICIES = ("refuse", "impute", "zero-vector")

#: Characters trimmed from both ends of every cell and header, which may not surround a text of a schema.
TRIMMED = " \t\r\n"

#: Integral floats below this magnitude are exact integers and are written without a fraction.
_EXACT_INTEGERS = 2.0**53

#: Limits of the search for a similar name: length of a text in characters, and number of texts.
_LONGEST_COMPARED = 100
_MOST_COMPARED = 1000

#: Lists of texts that cells are compared with: no text of them may be in the other, or twice in one.
_COMPARED = (("positive", "negative"), ("true", "false"), ("values",))

T = TypeVar("T")
P = TypeVar("P", bound="Feature | Label")


class SchemaFieldError(SchemaError):
    """A field of a schema is invalid.

    field: its path, such as "features.age.upper". sentence: the cause and what to do. source: the file, if any.
    """

    def __init__(self, field: str, sentence: str, *, source: str = "") -> None:
        self.field, self.sentence, self.source = field, sentence, source
        super().__init__(": ".join(part for part in (source, field, sentence) if part))


def value_text(value: object) -> str:
    """The text of a value of a typed column, or of the TOML file, for comparison with a schema's texts.

    Booleans are "true" and "false", integers decimal, floats that are integers below 2^53 as those integers, other
    floats their shortest decimal that reads back as the same double (Python's repr). Any other value is its text,
    trimmed of space, tab, CR and LF. Cells of a CSV are texts and are only trimmed: "01" is not "1". Cells of a boolean
    column match a schema's texts in any case (dpcore.records.encoding.Texts).
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT_INTEGERS else repr(value)
    return str(value).strip(TRIMMED)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a name that is not in `names`: the most similar one, or the first of them."""
    known = sorted(set(names))
    near = close_match(name, known)
    if near is not None:
        return f"did you mean {near!r}?"
    shown = ", ".join(known[:12])
    return f"known: {shown}{', ...' if len(known) > 12 else ''}"


def close_match(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`; None if none is similar or `name` is too long to compare."""
    # Each comparison takes time quadratic in the length, and a schema may come from a peer.
    known = [other for other in names if len(other) <= _LONGEST_COMPARED]
    if len(name) > _LONGEST_COMPARED:
        return None
    folded = [other for other in known if other.casefold() == name.casefold()]
    if not folded and len(known) <= _MOST_COMPARED:
        folded = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return next(iter(folded), None)


def require_text(field: str, value: object) -> str:
    """`value` as a text that can match a cell: not empty, without surrounding blanks, valid Unicode."""
    if not isinstance(value, str):
        raise SchemaFieldError(field, f"{value!r} is not a text; put it in quotation marks")
    if not value.strip(TRIMMED):
        raise SchemaFieldError(field, "is empty; write a text")
    if value != value.strip(TRIMMED):
        raise SchemaFieldError(field, f"{value!r} has blanks around it, which are trimmed from every cell; remove them")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaFieldError(field, "is not valid Unicode; write it in UTF-8") from None
    return value


def require_name(field: str, value: object) -> str:
    """`value` as a name that can be printed on one line."""
    text = require_text(field, value)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise SchemaFieldError(field, f"{text!r} has control characters; remove them")
    return text


def _require_number(field: str, value: object) -> float:
    """`value` as a finite double. Minus zero becomes zero, because both have the same encoding."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaFieldError(field, f"{value!r} is not a number; write one, such as 1.5")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SchemaFieldError(field, f"{value!r} is not a finite number; write one, such as 1.5")
    return number + 0.0


def _require_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SchemaFieldError(field, f"{value!r} is not one of {', '.join(choices)}; {nearest(str(value), choices)}")


def _require_texts(field: str, values: object) -> tuple[str, ...]:
    """`values` (texts, numbers or booleans) as distinct texts, in the given order."""
    if not isinstance(values, list | tuple) or not values:
        raise SchemaFieldError(field, 'is not a list of values; write one, such as ["yes", "1"]')
    # A dictionary keeps the order. Searching a list would take quadratic time, and a schema may come from a peer.
    texts: dict[str, None] = {}
    for value in values:
        if not isinstance(value, str | int | float):
            raise SchemaFieldError(field, f"{value!r} is neither a text nor a number; put it in quotation marks")
        text = require_text(field, value if isinstance(value, str) else value_text(value))
        if text in texts:
            raise SchemaFieldError(field, f"{text!r} is in the list twice; remove one")
        texts[text] = None
    return tuple(texts)


def _require_disjoint(field: str, first: tuple[str, ...], second: tuple[str, ...], names: str) -> None:
    both = sorted(set(first) & set(second))
    if both:
        raise SchemaFieldError(field, f"{both[0]!r} is in both {names}; keep it in one")


def _require_unreadable(path: str, value: object) -> None:
    if value is not None:
        _require_choice(f"{path}.unreadable", value, MISSING_POLICIES)


def _require_impute(field: str, value: object, policies: tuple[str | None, ...]) -> None:
    """Check that `impute` is given if and only if one of the feature's policies uses it."""
    wanted = "impute" in policies
    if wanted and value is None:
        raise SchemaFieldError(field, 'is needed if a policy is "impute"; write the value to impute')
    if not wanted and value is not None:
        raise SchemaFieldError(field, 'is given but no policy is "impute"; remove it, or set missing = "impute"')


def _settle(instance: object, **values: object) -> None:
    """Write checked values into a frozen dataclass that is still being constructed."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


_EITHER = " | "
"""Between the texts of a class, in its name."""

Comparison = Literal["number", "value", "flag"]
"""What a predicate compares a feature with: a bound, a listed value, or nothing, because the feature is true or false.
"""


Unusual = Literal["missing", "unreadable", "unlisted", "beyond"]
"""Cells that a policy is for: empty; no finite number; in none of the schema's texts; outside of the bounds."""


class Policy(NamedTuple):
    """What a schema does with unusual cells. key: the field. choice: its value. words: what the cells are."""

    key: str
    choice: str
    cells: Unusual
    words: str


Weights = tuple[tuple[str, float], ...]
"""Coordinates with a weight for each."""


class DescribedFeature(ABC):
    """What other modules ask of a feature. They do not ask for its type, so a new type has to answer all of this."""

    type: ClassVar[str]
    reals: ClassVar[tuple[str, ...]]
    reads: ClassVar[Literal["numbers", "texts"]]
    is_ordered: ClassVar[bool]
    comparison: ClassVar[Comparison]
    comparison_words: ClassVar[str]
    is_one_hot: ClassVar[bool]
    scaled_coordinates: ClassVar[int]
    unit_groups: ClassVar[int]
    replaces_column: ClassVar[bool]
    """type: its name in a schema. reals: the fields that are doubles. reads: how its cells are read. is_ordered:
    whether a model can be made to rise or fall with it. comparison: with what a predicate compares it; comparison_words
    says so in an error. is_one_hot: whether at most one coordinate is 1 and the others are 0. scaled_coordinates: how
    many coordinates are anywhere in [-1, 1]. unit_groups: how many groups of other coordinates have the squared length
    1, or 0 for a value that is not listed. replaces_column: whether no other feature may derive from its column."""

    @property
    @abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """The names of its coordinates, in order."""

    @property
    @abstractmethod
    def squared_range(self) -> int:
        """The largest squared distance of the codings of two cells, rounded up. Noise of a joint design rests on it."""

    @property
    @abstractmethod
    def mean_square(self) -> float:
        """The mean square of each of its coordinates, if all values are equally likely."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest value, in the column's units; None if its values are no numbers."""

    @property
    @abstractmethod
    def policies(self) -> tuple[Policy, ...]:
        """What the schema does with its unusual cells, empty ones first."""

    @property
    @abstractmethod
    def imputed_text(self) -> str:
        """The value that it imputes, as people write it; "" if it imputes none."""

    @property
    @abstractmethod
    def codes(self) -> NDArray[np.float64]:
        """The coding of each value, (values, coordinates), for means over them; no value if they are numbers."""

    @property
    @abstractmethod
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The words and the codings of the values to show, (values, coordinates); no value if they are numbers."""

    @property
    @abstractmethod
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """Changes of a cell in words, and what each adds to the coordinates."""

    @property
    @abstractmethod
    def start(self) -> Weights:
        """The coordinates that are not 0 in the row of the intercept: of 0, false, or the first value."""

    @abstractmethod
    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Codings of made-up cells, independent and evenly spread, (rows, coordinates)."""


def _for_missing(choice: str) -> Policy:
    return Policy("missing", choice, "missing", "empty")


def _for_unreadable(choice: str) -> Policy:
    return Policy("unreadable", choice, "unreadable", "unreadable (no finite number)")


#: The codings of false and of true, (2, 1).
_FALSE_TRUE = np.array([[-1.0], [1.0]])
_FALSE_TRUE.setflags(write=False)


@dataclass(frozen=True, kw_only=True)
class RealFeature(DescribedFeature):
    """A number v in [lower, upper], encoded as 2 (v - lower) / (upper - lower) - 1. Bounds never come from the data."""

    type: ClassVar[str] = "real"
    reals: ClassVar[tuple[str, ...]] = ("lower", "upper", "impute")
    reads: ClassVar[Literal["numbers", "texts"]] = "numbers"
    is_ordered: ClassVar[bool] = True
    comparison: ClassVar[Comparison] = "number"
    comparison_words: ClassVar[str] = "a real feature: compare it with a number using >=, >, < or <="
    is_one_hot: ClassVar[bool] = False
    scaled_coordinates: ClassVar[int] = 1
    unit_groups: ClassVar[int] = 0
    replaces_column: ClassVar[bool] = False
    name: str
    column: str = ""
    lower: float
    upper: float
    missing: Missing = "refuse"
    impute: float | None = None
    out_of_bounds: OutOfBounds = "refuse"
    unreadable: Unreadable | None = None

    def __post_init__(self) -> None:
        path = _begin(self)
        lower, upper = _require_number(f"{path}.lower", self.lower), _require_number(f"{path}.upper", self.upper)
        if lower >= upper:
            raise SchemaFieldError(f"{path}.lower", f"{lower!r} is not below upper = {upper!r}; write lower < upper")
        if not math.isfinite(upper - lower):
            raise SchemaFieldError(f"{path}.upper", "is too far from lower for a double; bring the bounds closer")
        _require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        _require_choice(f"{path}.out_of_bounds", self.out_of_bounds, ("refuse", "clip", "zero-vector"))
        _require_unreadable(path, self.unreadable)
        _require_impute(f"{path}.impute", self.impute, (self.missing, self.unreadable))
        if self.impute is not None:
            _settle(self, impute=_require_number(f"{path}.impute", self.impute))
            if not lower <= self.impute <= upper:
                raise SchemaFieldError(f"{path}.impute", "is outside the bounds; choose a value within them")
        _settle(self, lower=lower, upper=upper)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The one coordinate, named as the feature."""
        return (self.name,)

    @property
    def squared_range(self) -> int:
        """The coordinate is from -1 to 1."""
        return 4

    @property
    def mean_square(self) -> float:
        """Of a uniform coordinate in [-1, 1]."""
        return 1 / 3

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper."""
        return self.lower, self.upper

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no number, and for those outside of the bounds."""
        return (
            _for_missing(self.missing),
            _for_unreadable(self.on_unreadable),
            Policy("out_of_bounds", self.out_of_bounds, "beyond", "beyond the schema's bounds"),
        )

    @property
    def imputed_text(self) -> str:
        """The number, with at most six digits."""
        return "" if self.impute is None else f"{self.impute:g}"

    @property
    def codes(self) -> NDArray[np.float64]:
        """None: numbers are not listed."""
        return np.zeros((0, 1))

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """None: numbers are not listed."""
        return (), self.codes

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """One unit of the column."""
        return (("for each unit more", ((self.name, 2.0 / (self.upper - self.lower)),)),)

    @property
    def start(self) -> Weights:
        """Of the number 0."""
        return ((self.name, -(self.upper + self.lower) / (self.upper - self.lower)),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Uniform between the bounds."""
        return random.uniform(-1.0, 1.0, (rows, 1))

    @property
    def on_unreadable(self) -> Unreadable:
        """What happens to a cell that is no finite number."""
        return on_unreadable(self.missing, self.unreadable)


@dataclass(frozen=True, kw_only=True)
class BooleanFeature(DescribedFeature):
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
        path = _begin(self)
        # The order has no meaning here, so it must not change the digest.
        true = tuple(sorted(_require_texts(f"{path}.true", self.true)))
        false = tuple(sorted(_require_texts(f"{path}.false", self.false)))
        _require_disjoint(f"{path}.true", true, false, "true and false")
        _require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        _require_choice(f"{path}.unknown", self.unknown, MISSING_POLICIES)
        _require_boolean_impute(path, self.impute, (self.missing, self.unknown))
        _settle(self, true=true, false=false)

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
        return _for_missing(self.missing), unknown

    @property
    def imputed_text(self) -> str:
        """The first text of the imputed value, in quotation marks."""
        return "" if self.impute is None else repr((self.true if self.impute else self.false)[0])

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The texts of true, and those of false."""
        return (" or ".join(self.true), " or ".join(self.false)), _FALSE_TRUE[::-1]

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """From false to true."""
        return (("true instead of false", ((self.name, 2.0),)),)

    @property
    def codes(self) -> NDArray[np.float64]:
        """Of false and of true."""
        return _FALSE_TRUE

    @property
    def start(self) -> Weights:
        """Of false."""
        return ((self.name, -1.0),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """True in half of the rows."""
        return random.choice([-1.0, 1.0], (rows, 1))


@dataclass(frozen=True, kw_only=True)
class CategoryFeature(DescribedFeature):
    """One of a list of values, one-hot encoded as 0/1, so that a row's norm does not grow with the number of values.

    unknown = "zero" leaves all indicators at 0 for a value that is not listed.
    """

    type: ClassVar[str] = "category"
    reals: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[Literal["numbers", "texts"]] = "texts"
    is_ordered: ClassVar[bool] = False
    comparison: ClassVar[Comparison] = "value"
    comparison_words: ClassVar[str] = "a category feature: compare it with one of its values using == or !="
    is_one_hot: ClassVar[bool] = True
    scaled_coordinates: ClassVar[int] = 0
    unit_groups: ClassVar[int] = 1
    replaces_column: ClassVar[bool] = False
    name: str
    column: str = ""
    values: tuple[str, ...]
    missing: Missing = "refuse"
    unknown: UnknownCategory = "refuse"
    impute: str | None = None

    def __post_init__(self) -> None:
        path = _begin(self)
        values = _require_texts(f"{path}.values", self.values)
        _require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        _require_choice(f"{path}.unknown", self.unknown, ("refuse", "zero", "impute", "zero-vector"))
        _require_impute(f"{path}.impute", self.impute, (self.missing, self.unknown))
        if self.impute is not None:
            impute: object = self.impute
            text = impute if isinstance(impute, str) else value_text(impute)
            if text not in values:
                raise SchemaFieldError(f"{path}.impute", f"{text!r} is not in values; {nearest(text, values)}")
            _settle(self, impute=text)
        _settle(self, values=values)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """One coordinate per value, named "feature=value", in the listed order."""
        return tuple(f"{self.name}={value}" for value in self.values)

    @property
    def squared_range(self) -> int:
        """Two values differ in two indicators by 1; a value that is not listed differs from another in one."""
        return 2

    @property
    def mean_square(self) -> float:
        """One of the indicators is 1."""
        return 1 / len(self.values)

    @property
    def bounds(self) -> None:
        """None: texts have no bounds."""
        return None

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those that are not among the values."""
        unknown = Policy("unknown", self.unknown, "unlisted", "not among the schema's values")
        return _for_missing(self.missing), unknown

    @property
    def imputed_text(self) -> str:
        """The value in quotation marks."""
        return "" if self.impute is None else repr(self.impute)

    @property
    def codes(self) -> NDArray[np.float64]:
        """Of the listed values."""
        return np.eye(len(self.values))

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The listed values, and any other if rows with one are kept."""
        if self.unknown != "zero":
            return self.values, self.codes
        return (*self.values, "any other value"), np.vstack([self.codes, np.zeros((1, len(self.values)))])

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """Each other value instead of the first."""
        first, *others = zip(self.values, self.coordinates, strict=True)
        return tuple((f"{value} instead of {first[0]}", ((name, 1.0), (first[1], -1.0))) for value, name in others)

    @property
    def start(self) -> Weights:
        """Of the first value."""
        return ((self.coordinates[0], 1.0),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Each value as often as one that is not listed, whose place is beyond the last."""
        values = random.integers(0, len(self.values) + 1, rows)
        return np.asarray(np.eye(len(self.values) + 1)[values, :-1])


@dataclass(frozen=True, kw_only=True)
class ThresholdFeature(DescribedFeature):
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
        path = _begin(self)
        _require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        _require_unreadable(path, self.unreadable)
        _require_boolean_impute(path, self.impute, (self.missing, self.unreadable))
        _settle(self, threshold=_require_number(f"{path}.threshold", self.threshold))

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
        return _for_missing(self.missing), _for_unreadable(self.on_unreadable)

    @property
    def imputed_text(self) -> str:
        """On which side of the threshold the imputed value is."""
        if self.impute is None:
            return ""
        return "a value at the threshold or above" if self.impute else "a value below the threshold"

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """At least the threshold, and below."""
        return (f"at least {self.threshold:g}", f"below {self.threshold:g}"), _FALSE_TRUE[::-1]

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """From below the threshold to at least that."""
        return ((f"at least {self.threshold:g}", ((self.name, 2.0),)),)

    @property
    def codes(self) -> NDArray[np.float64]:
        """Of false and of true."""
        return _FALSE_TRUE

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


Feature = RealFeature | BooleanFeature | CategoryFeature | ThresholdFeature
FEATURE_TYPES: Mapping[str, Callable[..., Feature]] = {
    kind.type: kind for kind in (RealFeature, BooleanFeature, CategoryFeature, ThresholdFeature)
}


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
        positive = tuple(sorted(_require_texts("label.positive", self.positive)))
        _settle(self, positive=positive)
        if self.negative is not None:
            negative = tuple(sorted(_require_texts("label.negative", self.negative)))
            _require_disjoint("label.positive", positive, negative, "positive and negative")
            _settle(self, negative=negative)
        _require_choice("label.missing", self.missing, ("refuse", "zero-vector"))

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those in neither list."""
        words = "in neither positive nor negative of the schema's label"
        return _for_missing(self.missing), Policy("missing", self.missing, "unlisted", words)

    @property
    def names(self) -> tuple[str, str]:
        """What to call the classes, negative first: by their text; by all their texts, if there are several.

        If any text but the positive ones is negative, the name is "not " before the positive name.
        """
        positive = _EITHER.join(self.positive)
        return (f"not {positive}" if self.negative is None else _EITHER.join(self.negative)), positive


def on_unreadable(missing: Missing, unreadable: Unreadable | None) -> Unreadable:
    """The policy for cells that are no finite number: `unreadable`, or what its absence means.

    Without it they are refused where missing cells are refused too; otherwise their rows become zero vectors. They are
    imputed only if the schema says so: a column that is wholly misread must not become a constant.
    """
    if unreadable is not None:
        return unreadable
    return "refuse" if missing == "refuse" else "zero-vector"


def in_form(part: P, steps: Sequence[str]) -> P:
    """The part of a schema with its texts as a schema with these steps keeps them (dpcore.records.text_forms).

    Raises SchemaFieldError if two of its texts are compared as the same text.
    """
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


def _begin(feature: Feature) -> str:
    """Check the fields of all features, set the default column, and return the path of the feature's fields."""
    path = f"features.{require_name('features.name', feature.name)}"
    _settle(feature, column=require_text(f"{path}.column", feature.column or feature.name))
    return path


def _require_boolean_impute(path: str, value: object, policies: tuple[str | None, ...]) -> None:
    _require_impute(f"{path}.impute", value, policies)
    if value is not None and not isinstance(value, bool):
        raise SchemaFieldError(f"{path}.impute", f"{value!r} is not a boolean; write true or false")


def build(kind: Callable[..., T], table: Mapping[str, Any], path: str) -> T:
    """A part of a schema from a parsed table; keys are the dataclass's field names.

    Raises SchemaFieldError for a key that is unknown (with the most similar one), missing, or an empty text.
    """
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
