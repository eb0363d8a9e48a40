"""What texts of a table look like to a draft: marks for missing values, spellings of one text, and near-numbers.

A draft only takes a text for something else where it says so with a count. Nothing here is used to encode a record.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from radobase.printing import amount, listed

#: What programs write for no value: R, pandas, SQL dumps, spreadsheets and their errors.
_NO_VALUE = frozenset(
    [
        *(
            "?",
            "??",
            "na",
            "n/a",
            "n.a.",
            "#n/a",
            "#na",
            "<na>",
            "nan",
            "nat",
            "null",
            "(null)",
            "<null>",
            "[null]",
            "\\n",
        ),
        *("#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!"),
    ]
)
#: What people write for no value, and also for a value: "none" may be a severity.
_NO_VALUE_OR_WORD = frozenset(
    ["none", "-", "--", ".", "nil", "unknown", "unk", "missing", "not known", "not available", "no data", "k.a."]
)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_WHOLE = re.compile(r"\+?(-?[0-9]+)(?:\.0*)?")


class Form(Enum):
    """How a cell is written that is not plainly a number or a text. The value is a regular expression (RE2)."""

    #: Read as a number, but a code: a leading zero, a telephone's plus, more digits than a double has.
    CODE = r"^[+-]?0[0-9]|^\+[0-9]{6,}$|^[+-]?[0-9]{16,}$"
    #: Read as a number, but three digits follow the point, as after a separator of thousands.
    THREE_DECIMALS = r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{3}$"
    #: The same with a last zero, which no program writes that drops zeros.
    LAST_ZERO = r"^[+-]?[1-9][0-9]{0,2}\.[0-9]{2}0$"
    POINT = r"\."
    #: Read as a number, but perhaps a code.
    POWER = r"^[0-9]+[eE][0-9]+$"
    SMALL_WHOLE = r"^[+-]?[0-9]{1,3}$"
    #: Read as a number, but a day: year, month and day without separators.
    PLAIN_DAY = r"^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$"
    #: Not read as a number: a decimal comma.
    COMMA = r"^[+-]?([0-9]*|[0-9]{1,3}([.'\x{2019} \x{a0}\x{2009}\x{202f}][0-9]{3})+),[0-9]+$"
    #: Not read as a number: separated thousands.
    GROUPED = r"^[+-]?[0-9]{1,3}([.,'\x{2019} \x{a0}\x{2009}\x{202f}][0-9]{3})+([.,][0-9]+)?$"
    #: Not read as a number: a unit or a percent sign follows.
    UNIT = r"^[+-]?[0-9]+([.,][0-9]+)?[ \x{a0}]?(%|‰|[A-Za-zµμ°€$£][^0-9]{0,9})$"
    DATE = (
        r"^[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([ T].*)?$|^[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})([ T].*)?$"
        r"|^[0-9]{1,2}[-. ]+[A-Za-z]{3,9}[-., ]+[0-9]{2,4}$|^[A-Za-z]{3,9}[. ]+[0-9]{1,2},? +[0-9]{4}$"
        r"|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$"
    )
    UUID = r"^\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?$"


OF_NUMBERS = (Form.CODE, Form.THREE_DECIMALS, Form.LAST_ZERO, Form.POINT, Form.POWER, Form.SMALL_WHOLE, Form.PLAIN_DAY)
OF_TEXTS = (Form.COMMA, Form.GROUPED, Form.UNIT, Form.DATE, Form.UUID)


def has_form(texts: pa.Array, form: Form) -> NDArray[np.bool_]:
    """Which of the texts are written in that form."""
    found = pc.match_substring_regex(texts, form.value)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def marks_no_value(text: str) -> bool:
    """Whether programs write this text for a missing value."""
    return text.casefold() in _NO_VALUE


def may_mark_no_value(text: str) -> bool:
    """Whether programs or people write this text for a missing value; people may also mean a value by it."""
    return marks_no_value(text) or text.casefold() in _NO_VALUE_OR_WORD


def is_number(text: str) -> bool:
    """Whether a cell with this text is read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def alike(text: str) -> str:
    """The same for texts that differ only in case, blanks, Unicode form, or as 1, +1 and 1.0 do; 01 is another."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    plain = " ".join(_INVISIBLE.sub("", folded).split())
    whole = _WHOLE.fullmatch(plain)
    return plain if whole is None else whole[1]


def spellings(texts: Iterable[str]) -> dict[str, list[str]]:
    """The texts in groups of those that are alike, by what they have in common."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(alike(text), []).append(text)
    return groups


def counted(texts: Collection[str], counts: Mapping[str, int], unit: str = "cell") -> str:
    """The texts with their counts, the most frequent first: "'yes' (12 cells), 'no' (3)"."""
    first, *others = sorted(texts, key=lambda text: (-counts[text], text))
    return listed([f"{first!r} ({amount(counts[first], unit)})", *(f"{text!r} ({counts[text]})" for text in others)])
