"""Declared fields: a dataclass whose fields carry default, bounds, unit and help.

Commands, forms, Python keywords and documents read the same declaration, and `Declared` checks every value:

    @dataclass(frozen=True, kw_only=True)
    class Timing(Declared):
        answer_within_s: Annotated[int, Option("Time for parties to answer.", unit="seconds", at_least=1)] = 600
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import exact

Number = int | float | Fraction
_NUMBERS = {int: Integral, float: Real}


@dataclass(frozen=True)
class Option:
    """What a field has beside its type and its default."""

    help: str
    unit: str = ""
    """What a number counts, or what a text names."""
    at_least: Number | None = None
    at_most: Number | None = None
    above: Number | None = None
    """Every value is larger than this."""
    below: Number | None = None
    """Every value is smaller than this."""
    default: str = ""
    """What holds if the field is None, in words."""
    flag: str = ""
    """How commands spell it, if not as the field's name."""
    short: str = ""
    argument: bool = False
    """Whether commands take it by its place."""

    @property
    def range(self) -> str:
        """The bounds of x, such as 1<=x<=9; empty without any."""
        low = f"x>{self.above}" if self.above is not None else ""
        if self.at_least is not None:
            low = f"x>={self.at_least}"
        sign, most = ("<", self.below) if self.below is not None else ("<=", self.at_most)
        if most is None:
            return low
        if not low:
            return f"x{sign}{most}"
        least, strict = (self.at_least, "<=") if self.at_least is not None else (self.above, "<")
        return f"{least}{strict}x{sign}{most}"


@dataclass(frozen=True)
class Declaration:
    """One field of a `Declared`, as readers of it need it."""

    name: str
    kind: type
    """int, float, Fraction, bool, str or Path: of the value, or of each value of a list."""
    is_list: bool
    choices: tuple[str, ...]
    """The only texts that are known; empty if any is."""
    default: Any
    """MISSING if the field must be given."""
    option: Option

    @property
    def words(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def flag(self) -> str:
        """How commands spell it, such as --cohort-min."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def default_text(self) -> str:
        """The default as people write it; empty if there is none, or a switch."""
        if self.kind is bool or self.default in (MISSING, None, "", ()):
            return ""
        return number_text(self.default) if isinstance(self.default, Fraction) else str(self.default)

    @property
    def sentence(self) -> str:
        """The help, with the default in words."""
        return f"{self.option.help} Default: {self.option.default}." if self.option.default else self.option.help

    def is_changed(self, value: Any) -> bool:
        """Whether a value differs from the default. 0 is no False."""
        return (type(value), value) != (type(self.default), self.default) and value not in ((), None)

    def check(self, value: Any) -> None:
        """Raise ConfigurationError if a value is out of bounds, or of another type. None is in any."""
        if value is None or self.is_list:
            return
        if self.choices:
            if value not in self.choices:
                raise ConfigurationError(f"{self.words} {value!r} is not known: choose {', '.join(self.choices)}")
            return
        if self.kind is bool and not is_bool(value):
            raise ConfigurationError(f"{self.words} is {value!r}: give True or False")
        if self.kind in (int, float) and (isinstance(value, bool) or not isinstance(value, _NUMBERS[self.kind])):
            wanted = "an integer" if self.kind is int else "a number"
            raise ConfigurationError(f"{self.name} is {value!r}: give {wanted}")
        if self.kind in (int, float, Fraction):
            self._check_bounds(value)

    def _check_bounds(self, value: Number) -> None:
        option, name = self.option, self.words if self.kind is Fraction else self.name
        low, high = (option.at_least, option.above), (option.at_most, option.below)
        # In this form nan is out of bounds, too.
        inside = (
            (low[0] is None or value >= low[0])
            and (low[1] is None or value > low[1])
            and (high[0] is None or value <= high[0])
            and (high[1] is None or value < high[1])
        )
        if inside:
            return
        least, most = (next((bound for bound in pair if bound is not None), None) for pair in (low, high))
        shown = plain_number(value) if isinstance(value, Fraction) else value
        if most is None:
            least_words = "make it positive" if option.above == 0 else f"it must be at least {least}"
            kept = ", or leave it out" * (option.above == 0 and self.default is None)
            raise ConfigurationError(f"{name} is {shown}{':' if option.above == 0 else ';'} {least_words}{kept}")
        words = f"{least} to {most}"
        if option.below is not None:
            words = f"a number between {least} and {most}" if option.above is not None else f"{least} to below {most}"
        raise ConfigurationError(f"{name} is {shown}: choose {words}")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Base of dataclasses with declared fields. Raises ConfigurationError if a value is out of its bounds.

    An exact number may be given as people write it, such as 0.5 or "1e-6", and an integer as a float, such as 4.0.
    """

    def __post_init__(self) -> None:
        for field in declarations(type(self)):
            value = getattr(self, field.name)
            if field.kind is Fraction and not field.is_list and value is not None:
                value = exact(value, field.name)
                object.__setattr__(self, field.name, value)
            if field.kind is int and not field.is_list:
                value = whole(value)
                object.__setattr__(self, field.name, value)
            field.check(value)


def is_bool(value: object) -> bool:
    """Whether a value is True or False, NumPy's included. It does not import NumPy, which commands load late."""
    return isinstance(value, bool) or f"{type(value).__module__}.{type(value).__name__}" in (
        "numpy.bool",
        "numpy.bool_",
    )


def whole(value: Any) -> Any:
    """The integer of a float that is one, as R writes 4; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_KNOWN: dict[type[Declared], tuple[Declaration, ...]] = {}


def declarations(cls: type[Declared]) -> tuple[Declaration, ...]:
    """The declared fields of a class: what must be given first, then its own, then those of its bases."""
    if cls not in _KNOWN:
        order = {
            name: place
            for place, base in reversed([*enumerate(cls.__mro__)])
            for name in vars(base).get("__annotations__", ())
        }
        _KNOWN[cls] = tuple(sorted(_declarations(cls), key=lambda field: (not field.is_required, order[field.name])))
    return _KNOWN[cls]


def _declarations(cls: type[Declared]) -> Iterator[Declaration]:
    for field in fields(cls):
        if get_origin(field.type) is not Annotated:
            continue
        type_, option, *_ = get_args(field.type)
        parts = [part for part in (get_args(type_) or (type_,)) if part is not NoneType]
        if get_origin(type_) in (tuple, Literal):
            parts = [type_]
        lists = [part for part in parts if get_origin(part) is tuple]
        choices = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
        kind = get_args(lists[0])[0] if lists else str if choices else parts[0]
        yield Declaration(field.name, kind, bool(lists), choices, field.default, option)


def declaration(cls: type[Declared], name: str) -> Declaration:
    """The declared field of this name."""
    return next(field for field in declarations(cls) if field.name == name)


def values_of(given: Declared, group: type[Declared]) -> dict[str, Any]:
    """The values of a group's declared fields, by name. given: of a class that has them."""
    return {field.name: getattr(given, field.name) for field in declarations(group)}


def first_changed(given: Declared, names: Iterable[str]) -> str:
    """The flag of the first of these fields that differs from its default; empty if none does."""
    own = {field.name: field for field in declarations(type(given))}
    changed = (own[name] for name in names if own[name].is_changed(getattr(given, name)))
    return next((field.name if field.option.argument else field.flag for field in changed), "")


def with_fields(cls: type[Declared], function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function whose last parameter, `**fields`, takes the declared fields as keywords."""
    own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.is_required else field.default,
        )
        for field in declarations(cls)
    ]
    return inspect.Signature([*own, *added])


def names_of(given: str | Collection[str] | None) -> tuple[str, ...]:
    """One name, several or none, as a tuple."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, Collection) and not isinstance(given, str) else (given,)


def number_text(number: Fraction) -> str:
    """An exact number as people write it: 1e-6, 1/8."""
    digits = str(number.denominator)
    if number.numerator == 1 and len(digits) > 3 and digits.strip("0") == "1":
        return f"1e-{len(digits) - 1}"
    return str(number)


def plain_number(number: Fraction) -> str:
    """A number in decimal notation, or words if a double cannot represent it."""
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return "out of any range"
