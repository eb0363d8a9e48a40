"""Statistics of a table's columns, from which a draft is made: counts of texts, quantiles, how cells are written."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.records.encoding import CellError, Texts, in_form
from dpcore.records.features import day_of
from dpcore.records.texts import DRAFTED_TEXTS, form_of
from radobase.printing import amount, listed
from radobase.tables.parquet_table import is_text
from radobase.tables.tables import numbers, texts

# What texts of a table look like to a draft: marks for missing values, spellings of one text, and near-numbers.
#
# A draft only takes a text for something else where it says so with a count. Nothing here is used to encode a record.


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
    #: Not read as a number: a digit of another script than 0 to 9.
    OTHER_DIGITS = r"^[+-]?[\p{Nd}.,\x{66b}\x{66c}]*[^\P{Nd}0-9][\p{Nd}.,\x{66b}\x{66c}]*$"
    DATE = (
        r"^[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([ T].*)?$|^[0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})([ T].*)?$"
        r"|^[0-9]{1,2}[-. ]+[A-Za-z]{3,9}[-., ]+[0-9]{2,4}$|^[A-Za-z]{3,9}[. ]+[0-9]{1,2},? +[0-9]{4}$"
        r"|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$"
    )
    UUID = r"^\{?[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}?$"


OF_NUMBERS = (Form.CODE, Form.THREE_DECIMALS, Form.LAST_ZERO, Form.POINT, Form.POWER, Form.SMALL_WHOLE, Form.PLAIN_DAY)
OF_TEXTS = (Form.COMMA, Form.GROUPED, Form.UNIT, Form.OTHER_DIGITS, Form.DATE, Form.UUID)


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
    # Python reads more: the digits of other scripts, and 1_0.
    return text.isascii() and "_" not in text


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


MOST_TEXTS = 1000
"""Largest number of distinct texts that is counted; a column with more of them is neither a category nor a label."""

#: The form in which a drafted schema compares texts.
FORM = form_of(DRAFTED_TEXTS)
#: Quantiles of a column use at most this many values, evenly spaced over the file.
_MOST_VALUES = 1 << 20
#: Largest number of distinct units that is kept: a column of numbers with a unit has one.
_MOST_UNITS = 8
_BEFORE_UNIT = "+-0123456789., \u00a0"


class Sample:
    """Evenly spaced values of a column, in its order: every stride-th, so that they are not too many."""

    def __init__(self) -> None:
        self.values: NDArray[np.float64] = np.empty(0)
        self.count = 0
        """How many values there were."""
        self._stride = 1

    def add(self, values: NDArray[np.float64]) -> None:
        """Take the next values of the column."""
        self.values = np.concatenate([self.values, values[-self.count % self._stride :: self._stride]])
        self.count += len(values)
        while len(self.values) > _MOST_VALUES:
            self.values, self._stride = self.values[::2], 2 * self._stride


@dataclass
class Seen:
    """Statistics of one column so far. rows counts all its cells, missing the empty ones."""

    name: str
    rows: int = 0
    missing: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False
    unreadable: str = ""
    #: Cells of Arrow's types of dates and times, and of a boolean type.
    dates: int = 0
    booleans: bool = False
    #: Cells that are marks for missing values, by text; cells that are read as numbers; and how cells are written.
    marks: Counter[str] = field(default_factory=Counter)
    numbers: int = 0
    forms: Counter[Form] = field(default_factory=Counter)
    units: set[str] = field(default_factory=set)
    #: The first cell that is neither empty, nor a mark, nor a number: its row, counted from 0.
    first_text: int | None = None
    infinite: int = 0
    lowest: float = math.inf
    highest: float = -math.inf
    whole: bool = True
    consecutive: bool = True
    finite: Sample = field(default_factory=Sample)
    #: Cells that are dates as a schema reads them, as days after 1970-01-01, and how many have a time of day too.
    days: Sample = field(default_factory=Sample)
    times: int = 0
    _previous: float | None = None

    @property
    def present(self) -> int:
        """Cells that are not empty."""
        return self.rows - self.missing

    @property
    def sample(self) -> NDArray[np.float64]:
        """Its finite numbers, or some of them, evenly spaced over the column."""
        return self.finite.values

    @property
    def others(self) -> int:
        """Cells that are neither empty, nor a mark for a missing value, nor a number."""
        return self.present - self.marks.total() - self.numbers

    def add(self, array: pa.Array) -> None:
        """Take the next cells of the column."""
        start, self.rows = self.rows, self.rows + len(array)
        try:
            cells = in_form(texts(array, self.name), FORM)
        except CellError as error:
            self.unreadable = error.sentence
            return
        tallies = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.texts))
        self.missing += int((cells.codes < 0).sum())
        self._count(cells, tallies)
        self.booleans = self.booleans or cells.booleans
        if cells.booleans:
            return
        if pa.types.is_temporal(array.type):
            self.dates += int(tallies.sum())
        is_mark = np.array([may_mark_no_value(text) for text in cells.texts], dtype=np.bool_)
        for place in np.flatnonzero(is_mark & (tallies > 0)):
            self.marks[cells.texts[place]] += int(tallies[place])
        self._read(array, cells, tallies, is_mark, start)
        self._read_days(cells)

    def _count(self, cells: Texts, tallies: NDArray[np.int64]) -> None:
        if self.overflowed:
            return
        for text, count in zip(cells.texts, tallies.tolist(), strict=True):
            if count:
                self.counts[text] += count
        self.overflowed = len(self.counts) > MOST_TEXTS

    def _read(
        self, array: pa.Array, cells: Texts, tallies: NDArray[np.int64], is_mark: NDArray[np.bool_], start: int
    ) -> None:
        """Measure the cells that are numbers, and count how all of them are written."""
        is_numeric = ~is_mark
        try:
            read = numbers(_without(array, cells, is_mark), self.name)
        except CellError:  # dates, for example
            is_numeric[:] = False
        else:
            values = read.values[~read.missing]
            is_nan = np.isnan(values)
            self._measure(values[~is_nan])
            if is_nan.any():
                is_numeric &= np.array([is_number(text) for text in cells.texts], dtype=np.bool_)
        if _holds_texts(array):
            self._note_forms(cells, tallies, is_numeric, OF_NUMBERS)
            self._note_forms(cells, tallies, ~is_numeric & ~is_mark, OF_TEXTS)
        is_other = np.append(~is_numeric & ~is_mark & (tallies > 0), False)
        if self.first_text is None and is_other.any():
            self.first_text = start + int(is_other[cells.codes].argmax())

    def _read_days(self, cells: Texts) -> None:
        """Measure the cells that are dates."""
        found = [day_of(text) for text in cells.texts]
        days = np.array([*(math.nan if day is None else day.number for day in found), math.nan])[cells.codes]
        self.days.add(days[~np.isnan(days)])
        has_time = [
            day is not None and bool(text[len("2024-12-31") :].strip("tT :.0"))
            for day, text in zip(found, cells.texts, strict=True)
        ]
        self.times += int(np.array([*has_time, False])[cells.codes].sum())

    def _note_forms(
        self, cells: Texts, tallies: NDArray[np.int64], is_of_kind: NDArray[np.bool_], forms: tuple[Form, ...]
    ) -> None:
        places = np.flatnonzero(is_of_kind & (tallies > 0))
        found = pa.array([cells.texts[place] for place in places], pa.string())
        for form in forms if len(found) else ():
            has = has_form(found, form)
            if not has.any():
                continue
            self.forms[form] += int(tallies[places][has].sum())
            if form is Form.UNIT and len(self.units) < _MOST_UNITS:
                self.units |= {text.lstrip(_BEFORE_UNIT) for text in pc.filter(found, pa.array(has)).to_pylist()}

    def _measure(self, values: NDArray[np.float64]) -> None:
        self.numbers += len(values)
        is_finite = np.isfinite(values)
        self.infinite += int((~is_finite).sum())
        values = values[is_finite]
        if not len(values):
            return
        self.lowest, self.highest = min(self.lowest, float(values.min())), max(self.highest, float(values.max()))
        self.finite.add(values)
        chain = values if self._previous is None else np.concatenate([[self._previous], values])
        self.consecutive = self.consecutive and bool((np.diff(chain) == 1).all())
        self._previous = float(values[-1])
        self.whole = self.whole and bool((values == np.floor(values)).all())


def _without(array: pa.Array, cells: Texts, is_left_out: NDArray[np.bool_]) -> pa.Array:
    """The cells of an array but those of some texts."""
    if not is_left_out.any():
        return array
    if pa.types.is_string_view(array.type):  # as polars hands over, and Arrow cannot filter
        array = array.cast(pa.large_string())
    return pc.filter(array, pa.array(~np.append(is_left_out, False)[cells.codes]))


def _holds_texts(array: pa.Array) -> bool:
    """Whether the column is of texts, which people or programs wrote, and not of numbers, dates or booleans."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


TRUE = ("1", "yes", "y", "true", "t", "on", "+1", "positive", "pos", "+")
"""Common words for true, in small letters."""


def true_of(seen: Seen, groups: Collection[Sequence[str]], notes: list[str]) -> Sequence[str]:
    """The true one of a column's two groups of texts: a common word for true, otherwise the greater text."""
    first, second = sorted(groups, key=lambda group: (group[0].casefold() in TRUE, *_order(group[0])))
    if (first[0].casefold() in TRUE) == (second[0].casefold() in TRUE):
        notes.append(f"{seen.name!r} has the values {first[0]!r} and {second[0]!r}: {second[0]!r} is taken as true.")
    return second


def _order(text: str) -> tuple[float, str]:
    return (float(text), text) if is_number(text) else (0.0, text)


# Codes of one form, such as those of diagnoses, which a category may group by their first characters.


#: Codes as those of diagnoses (ICD): a letter, two digits, and perhaps more after a point.
_CODE = re.compile(r"[A-Za-z][0-9]{2}(?:\.?[0-9A-Za-z]{1,4})?[*+!]?", re.ASCII)
#: Largest share of texts that are none.
_OTHER_TEXTS = 0.05
#: The numbers of first characters that are proposed, the first that gives few values.
_PREFIXES = (3, 2, 1)
_MOST_GROUPS = 300


def starts(seen: Seen, prefix: int) -> Counter[str]:
    """How many cells begin with each text of so many characters that a schema can list; marks do not count."""
    found: Counter[str] = Counter()
    for text, count in seen.counts.items():
        if text not in seen.marks and FORM(text[:prefix]) == text[:prefix]:
            found[text[:prefix]] += count
    return found


def code_advice(seen: Seen) -> str:
    """How a column of codes of one form can be a category; empty if it has others than codes, or has ids."""
    texts = [text for text in seen.counts if text not in seen.marks]
    codes = sum(_CODE.fullmatch(text) is not None for text in texts)
    if not texts or codes < (1 - _OTHER_TEXTS) * len(texts) or len(texts) == seen.present:
        return ""
    for prefix in _PREFIXES:
        if 1 < (values := len(starts(seen, prefix))) <= _MOST_GROUPS:
            return (
                f"; its texts are codes of one form, and by their first {prefix} characters they are {values} values: "
                f"--prefix {seen.name}={prefix} makes them a category"
            )
    return ""
