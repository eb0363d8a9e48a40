"""The form in which texts of cells and of a schema are compared: the steps that the schema's `texts` lists.

    nfc    Unicode's composed form (Normalization Form C, Unicode Standard Annex 15)
    trim   without the characters of BLANKS at both ends
    case   full case folding (toCasefold of section 3.13 of the Unicode Standard), composed again if `nfc` is a step

They are applied in this order. Of two texts that are in the same form, one matches where the other is listed. A text of
more than LONGEST code points is left as it is: composing one takes time quadratic in a run of combining marks, and a
text may come from a peer's schema or from one record.
"""

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
    """A function that brings a text into the form of these steps."""
    composes, trims, folds = (step in steps for step in TEXT_STEPS)

    def form(text: str) -> str:
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

    return form


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
    """The table of a TOML text. Raises ValueError if it is none or a key has more than 32 parts, RecursionError.

    The parser takes time and memory quadratic in the parts of a key: a gigabyte for a text of 32 KB.
    """
    plain = _TEXT.sub(lambda found: "" if found.group().startswith("#") else "s", text)
    if _LONG_KEY.search(plain):
        raise ValueError(f"a key has more than {MOST_KEY_PARTS} parts")
    return tomllib.loads(text)
