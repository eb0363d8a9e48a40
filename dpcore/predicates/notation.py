"""Predicates as text, in the notation of `frontend`.

    (x["age"] >= 65) & (y == 1)
    ~x["smoker"] | (x["job"] == "clerk")
    clip((3 * z["age"] - 2 * z["job=clerk"] + 5) / 16)

`&` binds more tightly than `|`, and both bind less tightly than comparisons, which need no parentheses here. `to_text`
writes the parentheses, so its output is valid Python too. Names and values are JSON strings. Real bounds are exact:
decimals, or fractions such as 1/3, which Python rounds to a double, as the comparison does.
"""

import json

from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    LabelIs,
    NonNegative,
    Not,
    Or,
    Predicate,
    PredicateError,
)
from dpcore.predicates.parser import MOST_TEXT, PredicateSyntaxError, parse
from dpcore.records.features import Bound, Day

__all__ = ["MOST_TEXT", "PredicateSyntaxError", "parse", "to_text"]


_MOST_DESCRIBED = 1000


def to_text(predicate: Predicate) -> str:
    """The text that `parse` reads as exactly this predicate. Comparisons are in parentheses, except a single one.

    Raises PredicateError if it is longer than 64 KiB; shared parts are written each time they occur.
    """
    return _Writer().text(predicate)


def described(predicate: Predicate) -> str:
    """The text, cut if it is long. For people; do not parse it."""
    try:
        text = to_text(predicate)
    except PredicateError:
        return f"(a predicate whose text has more than {MOST_TEXT} bytes)"
    return text if len(text) <= _MOST_DESCRIBED else f"{text[:_MOST_DESCRIBED]} ..."


class _Writer:
    """Writes each shared part once, so that it notices in time when a text grows too long."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def text(self, predicate: Predicate) -> str:
        """The text of a whole predicate."""
        if id(predicate) not in self._known:
            text = self._new(predicate)
            if len(text.encode()) > MOST_TEXT:
                raise PredicateError(f"a predicate's text is longer than {MOST_TEXT} bytes: split the predicate")
            self._known[id(predicate)] = text
        return self._known[id(predicate)]

    def _part(self, predicate: Predicate) -> str:
        """The text of a predicate as a part of another."""
        text = self.text(predicate)
        bare = isinstance(predicate, Flag | Constant | Clipped) or (isinstance(predicate, Not) and text[0] == "~")
        return text if bare else f"({text})"

    def _new(self, predicate: Predicate) -> str:  # noqa: PLR0911 - one for each kind
        match predicate:
            case And(parts):
                return " & ".join(self._part(part) for part in parts)
            case Or(parts):
                return " | ".join(self._part(part) for part in parts)
            case Not(AtLeast() | Above() | Equals() | LabelIs() | NonNegative() as part):
                return _comparison(part, negated=True)
            case Not(part):
                return f"~{self._part(part)}"
            case Constant(value):
                return "true" if value else "false"
            case Flag(feature):
                return f"x[{_quoted(feature)}]"
            case Clipped(form, scale):
                return f"clip(({_form(form)}) / {scale})"
            case _:
                return _comparison(predicate, negated=False)


def _comparison(predicate: Predicate, *, negated: bool) -> str:
    """The text of a comparison, or of its complement. Raises TypeError for a kind of predicate without notation."""
    match predicate:
        case AtLeast(feature, bound):
            return f"x[{_quoted(feature)}] {'<' if negated else '>='} {_number(bound)}"
        case Above(feature, bound):
            return f"x[{_quoted(feature)}] {'<=' if negated else '>'} {_number(bound)}"
        case Equals(feature, value):
            return f"x[{_quoted(feature)}] {'!=' if negated else '=='} {_quoted(value)}"
        case LabelIs(positive):
            return f"y {'!=' if negated else '=='} {1 if positive else -1}"
        case NonNegative(form):
            return f"{_form(form)} {'<' if negated else '>='} 0"
        case _:
            raise TypeError(f"{type(predicate).__name__} has no notation: add it to the writer and the parser")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: Bound) -> str:
    """A decimal if the value has one, else a fraction; a date as a text."""
    if isinstance(value, Day):
        return _quoted(str(value))
    twos = (value.denominator & -value.denominator).bit_length() - 1
    rest, fives = value.denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest > 1:
        return str(value)
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"


def _form(form: Affine) -> str:
    terms = [(weight, f"{abs(weight)} * z[{_quoted(name)}]") for name, weight in form.weights]
    if form.constant or not terms:
        terms.append((form.constant, str(abs(form.constant))))
    (first, text), *others = terms
    return f"{'-' if first < 0 else ''}{text}" + "".join(f" {'-' if w < 0 else '+'} {term}" for w, term in others)
