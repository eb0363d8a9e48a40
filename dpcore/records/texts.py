"""The form in which texts of cells and of a schema are compared: the steps that the schema's `texts` lists.

    nfc    Unicode's composed form (Normalization Form C, Unicode Standard Annex 15)
    trim   without the characters of BLANKS at both ends
    case   full case folding (toCasefold of section 3.13 of the Unicode Standard), composed again if `nfc` is a step

They are applied in this order. Of two texts that are in the same form, one matches where the other is listed. A text of
more than LONGEST code points is left as it is: composing one takes time quadratic in a run of combining marks, and a
text may come from a peer's schema or from one record.
"""

import difflib
import math
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dpcore.errors import SchemaError

Form = Callable[[str], str]
"""Brings a text into the form in which it is compared."""

LONGEST = 256
TEXT_STEPS = ("nfc", "trim", "case")
DRAFTED_TEXTS = ("nfc", "trim")
"""The steps that a draft states."""

#: Unicode's White_Space, and the characters without width that spreadsheets and web pages leave at the ends of texts:
#: zero width space, word joiner, and byte order mark.
BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\u200b\u2060\ufeff"
)


def form_of(steps: Sequence[str]) -> Form:
    """A function that brings a text into the form of these steps. It can be sent to another process."""
    composes, trims, folds = (step in steps for step in TEXT_STEPS)
    return partial(_formed, composes, trims, folds)


def _formed(composes: bool, trims: bool, folds: bool, text: str) -> str:
    if len(text) > LONGEST:
        return text
    if composes and not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if trims:
        text = text.strip(BLANKS)
    if folds:
        text = text.casefold()
        if composes and not text.isascii():
            text = unicodedata.normalize("NFC", text)
    return text


def stored_form(steps: Sequence[str]) -> Form:
    """As `form_of`, but without `case`: how a schema keeps its own texts, whose case people read."""
    return form_of([step for step in steps if step != "case"])


def same_form(texts: Iterable[str], steps: Sequence[str]) -> tuple[str, str] | None:
    """The first two of different texts that are in the same form after these steps; None if there are none."""
    form, first = form_of(steps), dict[str, str]()
    for text in texts:
        other = first.setdefault(form(text), text)
        if other != text:
            return other, text
    return None


# TOML texts, with a bound on the parser's work.


MOST_KEY_PARTS = 32

# What may hold dots outside a key: texts and comments. Possessive, and an unclosed text reaches to the end, so that the
# time is linear; the parser refuses such a text.
_TEXT = re.compile(
    r'"""(?:\\.|[^\\"]|"(?!""))*+(?:""")?|\'\'\'(?:[^\']|\'(?!\'\'))*+(?:\'\'\')?'
    r'|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*+',
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises ValueError, also for a key of over 32 parts (quadratic time), RecursionError."""
    plain = _TEXT.sub(lambda found: "" if found.group().startswith("#") else "s", text)
    if _LONG_KEY.search(plain):
        raise ValueError(f"a key has more than {MOST_KEY_PARTS} parts")
    return tomllib.loads(text)


# Checks of the fields of a schema: each error names the field, and says what to do.


#: Characters trimmed from both ends of every cell and header, which may not surround a text of a schema.
TRIMMED = " \t\r\n"

#: Integral floats below this magnitude are exact integers and are written without a fraction.
_EXACT_INTEGERS = 2.0**53

#: Limits of the search for a similar name: length of a text in characters, and number of texts.
_LONGEST_COMPARED = 100
_MOST_COMPARED = 1000


class SchemaFieldError(SchemaError):
    """A field of a schema, such as "features.age.upper", is invalid; sentence: the cause and what to do."""

    def __init__(self, field: str, sentence: str, *, source: str = "") -> None:
        self.field, self.sentence, self.source = field, sentence, source
        super().__init__(": ".join(part for part in (source, field, sentence) if part))


def value_text(value: object) -> str:
    """The text of a value of a typed column, or of the TOML file, for comparison with a schema's texts.

    Booleans are "true" and "false", floats that are integers below 2^53 those integers, others the shortest decimal
    (Python's repr). Any other value is its text, trimmed of space, tab, CR and LF: in a CSV "01" is not "1".
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
    if not isinstance(name, str) or len(name) > _LONGEST_COMPARED:  # a program may give anything for a name
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


def require_number(field: str, value: object) -> float:
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


def require_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    """Check that `value` is one of the choices."""
    if value not in choices:
        raise SchemaFieldError(field, f"{value!r} is not one of {', '.join(choices)}; {nearest(str(value), choices)}")


def require_texts(field: str, values: object) -> tuple[str, ...]:
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


def require_disjoint(field: str, first: tuple[str, ...], second: tuple[str, ...], names: str) -> None:
    """Check that no text is in both lists, which are called `names`."""
    both = sorted(set(first) & set(second))
    if both:
        raise SchemaFieldError(field, f"{both[0]!r} is in both {names}; keep it in one")


def require_impute(field: str, value: object, policies: tuple[str | None, ...]) -> None:
    """Check that `impute` is given if and only if one of the feature's policies uses it."""
    wanted = "impute" in policies
    if wanted and value is None:
        raise SchemaFieldError(field, 'is needed if a policy is "impute"; write the value to impute')
    if not wanted and value is not None:
        raise SchemaFieldError(field, 'is given but no policy is "impute"; remove it, or set missing = "impute"')


def settle(instance: object, **values: object) -> None:
    """Write checked values into a frozen dataclass that is still being constructed."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
