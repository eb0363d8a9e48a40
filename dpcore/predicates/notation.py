"""Predicates as text, in the notation of `frontend`.

    (x["age"] >= 65) & (y == 1)
    ~x["smoker"] | (x["job"] == "clerk")
    clip((3 * z["age"] - 2 * z["job=clerk"] + 5) / 16)
    y >= 30

`&` binds more tightly than `|`, and both bind less tightly than comparisons, which need no parentheses here. `to_text`
writes the parentheses, so its output is valid Python too. Names and values are JSON strings. Real bounds are exact:
decimals, or fractions such as 1/3, which Python rounds to a double, as the comparison does.
"""

import json
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from json.decoder import JSONDecoder
from typing import Any, NamedTuple, NoReturn, TypeVar

from dpcore.predicates.expressions import (
    MOST_DEPTH,
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
from dpcore.predicates.frontend import (
    Form,
    LabelReference,
    Ratio,
    Reference,
    TimeReference,
    added,
    as_predicate,
    beyond,
    clip,
    count,
    deviance,
    form,
    gain,
    loss,
    other_label,
    over,
    squared,
    under,
    x,
    y,
    z,
)
from dpcore.records.features import Bound, Day

# Parser of predicates: recursive descent.
#
# The grammar:
#
#     any  = all {"|" all}        all = not {"&" not}        not = "~" not | atom
#     atom = "(" any ")" | "true" | "false" | "clip" "(" ratio ")" | side [comparison side]
#          | "y.exposure" | "y.square" | "count" "(" number ")" | "deviance" "(" exact "," number ")"
#          | ("gain" | "loss") "(" ratio "," exact "," exact "," number ")"
#          | ("over" | "under" | "squared" | "beyond") "(" ratio "," exact ")"
#     exact = ["-" | "+"] number ["/" number]
#     side = x "[" text "]" | "y" | "y.event" | "y.time" | text | "true" | "false" | sum
#     sum  = ["-" | "+"] term {("+" | "-") term}
#     ratio = "(" sum ")" ["/" number] | ["-" | "+"] term "/" number | sum
#     term = number ["/" number] | [number "*"] z "[" text "]" | z "[" text "]" "*" number
#
# where no bare comparison may follow "~", as in Python. `frontend` defines what the operators mean, as in Python.


MOST_TEXT = 1 << 16
"""The most bytes of a text in UTF-8."""

_EVENT = "y.event"
_MOST_NESTING = 2 * MOST_DEPTH
_LONGEST_NUMBER = 128
_SHOWN = 30

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?)"
    r"|(?P<name>y?\.(?:event|time|exposure|square)\b|[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|==|!=|[<>&|~()\[\]+*/,-])"
)
_BLANK = re.compile(r"[ \t\r\n]*")
_STRINGS = JSONDecoder()

_ERRORS = {"over": over, "under": under, "squared": squared, "beyond": beyond}

_COMPARISONS: dict[str, Callable[[Any, Any], object]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}

Linear = Form | Fraction
Side = Reference | LabelReference | TimeReference | LabelIs | Linear | str | bool
T = TypeVar("T")


class PredicateSyntaxError(PredicateError):
    """A text is not a predicate. position: the first character that does not fit, counted from 0."""

    def __init__(self, sentence: str, text: str, position: int) -> None:
        self.position = position
        first = max(0, position - _SHOWN)
        # One column for each character, also for a tab or a line break.
        shown = re.sub(r"\s", " ", text[first : position + _SHOWN])
        super().__init__(f"character {position + 1}: {sentence}\n  {shown}\n  {' ' * (position - first)}^")


class _Token(NamedTuple):
    kind: str
    value: str
    position: int


def parse(text: str) -> Predicate:
    """The predicate that a text stands for. Parentheses and complements may be nested 64 deep.

    Raises PredicateSyntaxError, which shows the position; PredicateError if it is longer than 64 KiB.
    """
    if len(text) > MOST_TEXT or len(text.encode(errors="surrogatepass")) > MOST_TEXT:
        raise PredicateError(f"a predicate's text is longer than {MOST_TEXT} bytes: split the predicate")
    return _Parser(text).whole()


def _tokens(text: str) -> list[_Token]:
    """The tokens. The last is of kind "end", and the value of a string is its content."""
    tokens = []
    position = _BLANK.match(text).end()  # type: ignore[union-attr]  # it also matches the empty text
    while position < len(text):
        if text[position] == '"':
            try:
                value, end = _STRINGS.raw_decode(text, position)
            except ValueError:
                raise PredicateSyntaxError("not a valid JSON string: correct or close it", text, position) from None
            tokens.append(_Token("text", value, position))
        else:
            match = _TOKEN.match(text, position)
            if match is None or match.end() - position > _LONGEST_NUMBER:
                found = f"{text[position]!r} is" if match is None else "this is"
                raise PredicateSyntaxError(f"{found} not part of the notation", text, position)
            tokens.append(_Token(match.lastgroup or "", match.group(), position))
            end = match.end()
        position = _BLANK.match(text, end).end()  # type: ignore[union-attr]  # as above
    return [*tokens, _Token("end", "", len(text))]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next, self._nesting = text, _tokens(text), 0, 0

    def whole(self) -> Predicate:
        predicate = self._any()
        if self._token.kind != "end":
            self._fail("expected &, | or the end of the text")
        return predicate

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _fail(self, sentence: str) -> NoReturn:
        raise PredicateSyntaxError(sentence, self._text, self._token.position)

    def _at(self, *signs: str) -> bool:
        return self._token.kind in {"sign", "name"} and self._token.value in signs

    def _took(self, *signs: str) -> str:
        """Consume the next token if it is one of these and return it; else return an empty text."""
        if not self._at(*signs):
            return ""
        self._next += 1
        return self._tokens[self._next - 1].value

    def _take(self, sign: str) -> None:
        if not self._took(sign):
            self._fail(f"expected {sign}")

    def _made(self, position: int, make: Callable[[], T]) -> T:
        """The result of `make`. An error that it raises is reported at `position`."""
        try:
            return make()
        except PredicateSyntaxError:
            raise
        except PredicateError as error:
            raise PredicateSyntaxError(str(error), self._text, position) from None

    def _any(self) -> Predicate:
        return self._chain("|", Or, self._all)

    def _all(self) -> Predicate:
        return self._chain("&", And, self._not)

    def _chain(self, sign: str, kind: type[And | Or], part: Callable[[], Predicate]) -> Predicate:
        start = self._token.position
        parts = [part()]
        while self._took(sign):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self._made(start, lambda: kind(tuple(parts)))

    def _nested(self, part: Callable[[], T]) -> T:
        self._nesting += 1
        if self._nesting > _MOST_NESTING:
            self._fail(f"parentheses and complements are nested more than {_MOST_NESTING} deep")
        result = part()
        self._nesting -= 1
        return result

    def _not(self, *, complement: bool = False) -> Predicate:
        start = self._token.position
        if not self._took("~"):
            return self._atom(complement=complement)
        part = self._nested(lambda: self._not(complement=True))
        return self._made(start, lambda: Not(part))

    def _atom(self, *, complement: bool) -> Predicate:
        start = self._token.position
        if self._took("("):
            predicate = self._nested(self._any)
            self._take(")")
            return predicate
        if self._took("clip"):
            self._take("(")
            ratio = self._ratio()
            self._take(")")
            return self._made(start, lambda: clip(ratio))
        if self._at("gain", "loss", "deviance", "count", "y.exposure", "y.square"):
            return self._count_term(start)
        if self._at(*_ERRORS):
            return self._label_error(start)
        left = self._side()
        if not self._at(*_COMPARISONS):
            return self._alone(left)
        if complement:
            self._fail("put the comparison that follows ~ in parentheses")
        return self._compared(start, left)

    def _count_term(self, start: int) -> Predicate:
        """y.exposure, y.square, gain(form / scale, centre, reach, most), loss, deviance(centre, most) count(most)."""
        if self._took("y.exposure"):
            return y.exposure
        if self._took("y.square"):
            return y.square
        name = self._took("gain", "loss", "deviance", "count")
        self._take("(")
        if name == "count":
            most = self._number()
            self._take(")")
            return self._made(start, lambda: count(most))
        if name == "deviance":
            centre = self._exact()
            self._take(",")
            most = self._number()
            self._take(")")
            return self._made(start, lambda: deviance(centre, most))
        ratio = self._ratio()
        self._take(",")
        centre = self._exact()
        self._take(",")
        reach = self._exact()
        self._take(",")
        most = self._number()
        self._take(")")
        return self._made(start, lambda: (gain if name == "gain" else loss)(ratio, centre, reach, most))

    def _label_error(self, start: int) -> Predicate:
        """over(form / scale, reach), or another error."""
        make = _ERRORS[self._took(*_ERRORS)]
        self._take("(")
        ratio = self._ratio()
        self._take(",")
        reach = self._exact()
        self._take(")")
        return self._made(start, lambda: make(ratio, reach))

    def _exact(self) -> Fraction:
        """A number with a sign, or a fraction of two."""
        negative = self._took("-", "+") == "-"
        found = self._number()
        if self._took("/"):
            start = self._token.position
            found = self._made(start, partial(_divided, found, self._number()))
        return -found if negative else found

    def _alone(self, side: Side) -> Predicate:
        if isinstance(side, bool):
            return Constant(side)
        if isinstance(side, LabelIs):
            return side
        if not isinstance(side, Reference | LabelReference):
            self._fail("expected a comparison")
        return as_predicate(side)

    def _compared(self, start: int, left: Side) -> Predicate:
        compare = _COMPARISONS[self._took(*_COMPARISONS)]
        right = self._side()
        if self._at(*_COMPARISONS):
            self._fail("a second comparison: join two comparisons using &")

        def comparison() -> Predicate:
            if isinstance(left, LabelIs) or isinstance(right, LabelIs):
                raise PredicateError("y.event is compared with nothing: write y.event, or ~y.event for its complement")
            constant = isinstance(left, Fraction) and isinstance(right, Fraction)
            try:
                return as_predicate(compare(form(left) if constant else left, right))
            except TypeError:
                raise PredicateError("the two sides cannot be compared with this operator") from None

        return self._made(start, comparison)

    def _side(self) -> Side:
        if self._took("x"):
            return x[self._bracketed()]
        if self._took("y"):
            self._refuse_named_label()
            return y
        if attribute := self._took("y.time", _EVENT):
            return y.event if attribute == _EVENT else y.time
        if self._took("label"):
            self._refuse_named_label()
            self._fail("expected [ and the name of a label; y is the label of the query")
        if truth := self._took("true", "false"):
            return truth == "true"
        if self._token.kind == "text":
            return self._string()
        return self._sum()

    def _refuse_named_label(self) -> None:
        """Raise for another label than that of the query, such as y["deaths"] or label["deaths"]."""
        start = self._token.position
        if self._at("["):
            name = self._bracketed()
            raise PredicateSyntaxError(str(other_label(name)), self._text, start)

    def _bracketed(self) -> str:
        self._take("[")
        name = self._string()
        self._take("]")
        return name

    def _string(self) -> str:
        token = self._token
        if token.kind != "text":
            self._fail("expected a name or value in double quotation marks")
        # An empty or invalid one is refused here, so that the error shows its position.
        self._made(token.position, lambda: Flag(token.value))
        self._next += 1
        return token.value

    def _ratio(self) -> Form | Ratio:
        start = self._token.position
        bracket = self._took("(")
        linear = self._nested(self._sum) if bracket else self._signed_term()
        if bracket:
            self._take(")")
        if self._took("/"):
            scale = self._number()
            return self._made(start, lambda: form(linear) / scale)
        if not bracket:
            linear = self._sum(linear)
        return self._made(start, lambda: form(linear))

    def _sum(self, first: Linear | None = None) -> Linear:
        start = self._token.position
        terms = [self._signed_term() if first is None else first]
        while self._at("+", "-"):
            terms.append(self._signed_term())
        numbers = [term for term in terms if isinstance(term, Fraction)]
        if len(numbers) == len(terms):
            return sum(numbers, Fraction(0))
        return self._made(start, lambda: added(map(form, terms)))

    def _signed_term(self) -> Linear:
        negative = self._took("-", "+") == "-"
        term = self._term()
        return -term if negative else term

    def _term(self) -> Linear:
        start = self._token.position
        if self._took("z"):
            coordinate = self._coordinate()
            factor = self._number() if self._took("*") else Fraction(1)
            return self._made(start, lambda: coordinate * factor)
        number = self._number()
        if self._took("*"):
            self._take("z")
            coordinate = self._coordinate()
            return self._made(start, lambda: coordinate * number)
        if not self._took("/"):
            return number
        start = self._token.position
        return self._made(start, partial(_divided, number, self._number()))

    def _coordinate(self) -> Form:
        return z[self._bracketed()]

    def _number(self) -> Fraction:
        token = self._token
        if token.kind != "number":
            self._fail('expected a number, a text, true, false, x["name"], z["name"], y, clip or (')
        self._next += 1
        return Fraction(token.value)


def _divided(number: Fraction, divisor: Fraction) -> Fraction:
    if not divisor:
        raise PredicateError("division by 0")
    return number / divisor


__all__ = ["MOST_TEXT", "PredicateSyntaxError", "parse", "to_text"]


_MOST_DESCRIBED = 1000


def to_text(predicate: Predicate) -> str:
    """The text that `parse` reads as exactly this predicate. Raises PredicateError if it is longer than 64 KiB."""
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
        bare = isinstance(predicate, Flag | Constant | Clipped | LabelShare) or text == _EVENT
        bare |= isinstance(predicate, Not) and text[0] == "~"
        return text if bare else f"({text})"

    def _new(self, predicate: Predicate) -> str:  # noqa: PLR0911 - one for each kind
        match predicate:
            case And(parts):
                return " & ".join(self._part(part) for part in parts)
            case Or(parts):
                return " | ".join(self._part(part) for part in parts)
            case Not(AtLeast() | Above() | Equals() | NonNegative() as part):
                return _comparison(part, negated=True)
            case Not(LabelIs() | LabelClass() | LabelAtLeast() | LabelAbove() as part):
                return _comparison(part, negated=True)
            case LabelShare():
                return _of_label(predicate)
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


def _of_label(predicate: LabelShare) -> str:  # noqa: PLR0911 - one for each kind
    """The text of a fraction of the label."""
    match predicate:
        case LabelExposure():
            return "y.exposure"
        case LabelSquare():
            return "y.square"
        case LabelError(form=affine, scale=scale, reach=reach, sort=sort):
            return f"{'squared' if sort == 'square' else sort}(({_form(affine)}) / {scale}, {_number(reach)})"
        case CountGain(form=affine, scale=scale, centre=centre, reach=reach, most=most):
            name = "loss" if predicate.is_loss else "gain"
            return f"{name}(({_form(affine)}) / {scale}, {_number(centre)}, {_number(reach)}, {most})"
        case CountDeviance(centre=centre, most=most):
            return f"deviance({_number(centre)}, {most})"
        case CountShare(most=most):
            return f"count({most})"
        case _:
            return "y"


def _comparison(predicate: Predicate, *, negated: bool) -> str:  # noqa: PLR0911 - one for each kind
    """The text of a comparison, or of its complement. Raises TypeError for a kind of predicate without notation."""
    match predicate:
        case AtLeast(feature, bound):
            return f"x[{_quoted(feature)}] {'<' if negated else '>='} {_number(bound)}"
        case Above(feature, bound):
            return f"x[{_quoted(feature)}] {'<=' if negated else '>'} {_number(bound)}"
        case Equals(feature, value):
            return f"x[{_quoted(feature)}] {'!=' if negated else '=='} {_quoted(value)}"
        case LabelIs(positive=True, written=written) if written:
            return f"{'~' if negated else ''}{_EVENT}"
        case LabelIs(positive):
            return f"y {'!=' if negated else '=='} {1 if positive else -1}"
        case LabelClass(value):
            return f"y {'!=' if negated else '=='} {_quoted(value)}"
        case LabelAtLeast(bound, written):
            return f"{written or 'y'} {'<' if negated else '>='} {_number(bound)}"
        case LabelAbove(bound, written):
            return f"{written or 'y'} {'<=' if negated else '>'} {_number(bound)}"
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
