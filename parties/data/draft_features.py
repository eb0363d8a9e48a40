"""The features of a drafted schema: what each column becomes, and what is said of it, always with counts.

A column becomes a number if nearly all its cells are numbers and nothing shows that they are a code, an id or separated
thousands. A column that is not understood is left out.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np

from dpcore.records.features import DateFeature, Day, Missing
from dpcore.records.schema import BIAS, BooleanFeature, CategoryFeature, Feature, RealFeature
from dpcore.records.units import unit_in_header
from parties.data.draft_columns import (
    MOST_TEXTS,
    Form,
    Seen,
    code_advice,
    counted,
    is_number,
    marks_no_value,
    may_mark_no_value,
    spellings,
    true_of,
)
from radobase.printing import amount

MOST_CATEGORIES = 30
#: The quantiles that bound a number.
LOWEST_QUANTILE, HIGHEST_QUANTILE = 0.005, 0.995
_QUANTILES_OF_DAYS = (LOWEST_QUANTILE, 0.5, HIGHEST_QUANTILE)
_LAST_MONTH = date.max.replace(day=1)
#: Largest share of a column's cells that are unlike the others, and do not change what the column is.
_FEW = 0.05
#: Exponent above which equal chance does not explain that n whole numbers of K possible ones all differ: the chance of
#: that is at most exp(-n (n - 1) / 2K), the birthday problem.
_NOT_BY_CHANCE = 10.0
#: Fewest rows for the note that all whole numbers differ.
_MANY = 20
_ID_NAME = re.compile(r"(?:^|[\W_])(?:id|ids|uuid|guid|mrn|ssn)$|[a-z]I[Dd]s?$", re.ASCII)
#: Names that pandas and R give to columns without a header, such as an index that was written and read again.
_UNNAMED = re.compile(r"Unnamed: [0-9]+(?:\.[0-9]+)?|__index_level_[0-9]+__")


def draft_feature(
    seen: Seen, notes: list[str], *, is_index: bool = False, is_bounded: bool = False, place: str = ""
) -> Feature | None:
    """The feature of a column, or None with a note if the column is left out.

    is_index: a library wrote the column as its frame's index. is_bounded: a person gave bounds, so it is a number.
    place: where the first cell is that is no number, such as "line 9".
    """
    reason = _no_feature(seen, is_index=is_index)
    if reason is None and _is_numeric(seen):
        reason = None if is_bounded else _no_measurement(seen)
        if reason is None and not seen.forms[Form.CODE]:
            return _number(seen, notes, place)
    if reason is None and _is_of_days(seen):
        return _date(seen, notes, is_bounded=is_bounded)
    reason = reason or near_number(seen)
    if reason is None:
        feature = _of_texts(seen, notes, place)
        if not isinstance(feature, str):
            return feature
        reason = feature
    notes.append(f"{seen.name!r} is left out: {reason}.")
    return None


def _no_feature(seen: Seen, *, is_index: bool) -> str | None:
    """Why a column of any kind is left out, or None."""
    if seen.unreadable:
        return seen.unreadable
    if is_index or _UNNAMED.fullmatch(seen.name):
        return f"pandas wrote its {amount(seen.rows, 'cell')} as the index of a frame, or the column had no header"
    if not seen.present:
        return f"it is empty ({amount(seen.rows, 'cell')})"
    if len(seen.counts) == 1:
        return f"it is constant ({amount(seen.present, 'cell')})"
    return None


def _is_numeric(seen: Seen) -> bool:
    """Whether a column is one of numbers, but for marks and few other texts."""
    return seen.numbers > 0 and seen.others <= _FEW * (seen.numbers + seen.others)


def _no_measurement(seen: Seen) -> str | None:  # noqa: PLR0911 - one for each cause
    """Why a column of numbers is left out, or None."""
    forms, count = seen.forms, seen.numbers
    if seen.infinite:
        return (
            f"it has {amount(seen.infinite, 'infinite number')} among {count}; make them finite, or empty if the value "
            "is not known"
        )
    if not seen.lowest < seen.highest:
        others = amount(seen.present - count, "other cell")
        return f"its {amount(count, 'number')} are all {seen.lowest:g}, beside {others}"
    if seen.consecutive and count > 2:
        return f"it counts the rows ({count})"
    if forms[Form.PLAIN_DAY] == count:
        return _days(count)
    if not forms[Form.CODE] and _thousands(seen):
        pointed = forms[Form.THREE_DECIMALS] + forms[Form.GROUPED]
        return (
            f"it has {amount(pointed, 'number')} of {count + seen.others} with a point before three digits, which "
            "seems to separate thousands, and is read as a decimal point; write numbers without separators of thousands"
        )
    if seen.whole and _all_differ(seen) and (_ID_NAME.search(seen.name) or _is_not_by_chance(seen)):
        return (
            f"its {count} whole numbers all differ, as an id's do; to take it for a number, give its bounds (--bounds)"
        )
    if seen.whole and _ID_NAME.search(seen.name) and _different(seen) > MOST_CATEGORIES:
        return f"its name says that it is an id, and it has {_different(seen)} different whole numbers in {count} cells"
    return None


def _all_differ(seen: Seen) -> bool:
    """Whether no number of the column occurs twice, as far as the sample shows."""
    return seen.numbers > 2 and _different(seen) == len(seen.sample)


def _different(seen: Seen) -> int:
    return len(np.unique(seen.sample))


def _is_not_by_chance(seen: Seen) -> bool:
    n = len(seen.sample)
    return n * (n - 1) / 2 > _NOT_BY_CHANCE * (seen.highest - seen.lowest + 1)


def _thousands(seen: Seen) -> bool:
    """Whether points separate thousands: three digits follow each, and a number without them or with two shows it."""
    forms = seen.forms
    if forms[Form.THREE_DECIMALS] + forms[Form.GROUPED] <= _FEW * seen.numbers:
        return False
    is_each = forms[Form.THREE_DECIMALS] == forms[Form.POINT]
    is_mixed = forms[Form.SMALL_WHOLE] > 0 and forms[Form.SMALL_WHOLE] + forms[Form.POINT] == seen.numbers
    return is_each and (forms[Form.GROUPED] > 0 or (is_mixed and forms[Form.LAST_ZERO] > 0))


def _is_of_days(seen: Seen) -> bool:
    """Whether a column is one of dates as a schema reads them, but for marks and few other texts."""
    return 0 < (1 - _FEW) * (seen.numbers + seen.others) <= seen.days.count


def _days(count: int, read: int = 0) -> str:
    """Why a column of dates is left out. read: how many of them a schema reads."""
    which = f", {read} of them" if read else ", none of them"
    return f"it has {count} dates or times{which} written as 2024-12-31; write all dates so, without a time zone"


def near_number(seen: Seen) -> str | None:  # noqa: PLR0911 - one for each cause
    """Why a column of texts that are nearly numbers, dates or UUIDs is left out, or None."""
    forms, cells = seen.forms, seen.numbers + seen.others
    most = (1 - _FEW) * cells
    commas, grouped = forms[Form.COMMA], forms[Form.GROUPED]
    if max(forms[Form.DATE], seen.dates) >= most:
        return _days(max(forms[Form.DATE], seen.dates), seen.days.count)
    if forms[Form.UUID] >= most:
        return f"its {forms[Form.UUID]} texts are UUIDs, which are ids"
    # A text such as 1,250 is of both forms.
    if commas + seen.numbers >= most and commas > _FEW * cells:
        return f"it has {amount(commas, 'number')} of {cells} with a comma; write them with a decimal point only"
    if max(commas, grouped) > _FEW * cells and commas + grouped + seen.numbers >= most:
        return f"it has {amount(grouped, 'number')} of {cells} with separators of thousands; write them without"
    if forms[Form.OTHER_DIGITS] + seen.numbers >= most and forms[Form.OTHER_DIGITS] > _FEW * cells:
        other = amount(forms[Form.OTHER_DIGITS], "number")
        return f"it has {other} of {cells} in the digits of another script; write them in the digits 0 to 9"
    if forms[Form.UNIT] + seen.numbers >= most and forms[Form.UNIT] > _FEW * cells and len(seen.units) == 1:
        return (
            f"it has {amount(forms[Form.UNIT], 'number')} of {cells} with the unit {next(iter(seen.units))!r}; write "
            "the numbers alone"
        )
    return None


def _number(seen: Seen, notes: list[str], place: str) -> Feature:
    """A column of numbers: a boolean if they are two, a real otherwise. Marks are imputed like empty cells."""
    groups = {} if seen.overflowed else spellings(filter(is_number, sorted(set(seen.counts) - set(seen.marks))))
    beside = [f"{text!r} ({count})" for text, count in sorted(seen.marks.items())]
    if seen.others:
        beside.append(f"{amount(seen.others, 'other text')}{f' (the first in {place})' if place else ''}")
    if beside:
        what = f"{seen.name!r} has {amount(seen.numbers, 'number')} and {', '.join(beside)}"
        if len(groups) == 2:
            notes.append(f"{what}: {_policy('unknown', seen)}.")
        else:
            notes.append(f"{what}: {_policy('unreadable', seen)}.")
    if len(groups) == 2:
        return _boolean(seen, list(groups.values()), notes)
    return _real(seen, notes)


def _policy(key: str, seen: Seen) -> str:
    """What a draft does with cells that are no number, in words."""
    if _imputes_marks(seen):
        return f'such cells are imputed like empty ones ({key} = "impute")'
    return f'such rows become zero vectors ({key} = "zero-vector"); empty cells would be imputed'


def _imputes_marks(seen: Seen) -> bool:
    """Whether a column's marks for missing values are imputed. One policy concerns them and other odd cells.

    Of numbers with such marks only, a mark is an empty cell. A text such as <0.5 is none: its row is left out.
    """
    return bool(seen.marks) and not (seen.numbers and seen.others)


def _empty(seen: Seen) -> int:
    """How many cells are empty, or imputed like empty ones."""
    return seen.missing + (seen.marks.total() if _imputes_marks(seen) else 0)


def _real(seen: Seen, notes: list[str]) -> RealFeature:
    lower, upper = map(float, np.quantile(seen.sample, [LOWEST_QUANTILE, HIGHEST_QUANTILE]))
    if not lower < upper:  # nearly constant
        lower, upper = outward(seen.lowest, seen.highest)
    median: float | None = None
    missing: Missing = "zero-vector"
    empty = _empty(seen)
    if empty:
        median, missing = min(max(float(np.median(seen.sample)), lower), upper), "impute"
        notes.append(
            f"{seen.name!r} has missing cells ({empty}): the draft imputes the median, {median:g}; choose a constant."
        )
    if (header := unit_in_header(seen.name)) is not None:
        notes.append(
            f"The header {seen.name!r} seems to say that its unit is {header[1]}: if so, state it (--unit "
            f"'{seen.name}={header[1]}'). Parties with another unit then convert it by a recode file."
        )
    forms = seen.forms
    if forms[Form.THREE_DECIMALS] and forms[Form.THREE_DECIMALS] == forms[Form.POINT]:
        notes.append(
            f"{seen.name!r} has {amount(forms[Form.POINT], 'number')} of {seen.numbers} with a point before three "
            "digits: it is read as a decimal point. If it separates thousands, write the numbers without it."
        )
    if forms[Form.POWER]:
        notes.append(
            f"{seen.name!r} has {amount(forms[Form.POWER], 'cell')} of {seen.numbers} written as 1E5 is, read as "
            "powers of ten. If they are codes, put another character into each."
        )
    if seen.whole and _all_differ(seen) and seen.numbers >= _MANY:
        notes.append(
            f"The {seen.numbers} whole numbers of {seen.name!r} all differ: if it is an id, remove the feature."
        )
    return RealFeature(
        name=feature_name(seen),
        column=seen.name,
        lower=lower,
        upper=upper,
        missing=missing,
        impute=median,
        out_of_bounds="clip",
        unreadable="impute" if _imputes_marks(seen) else "zero-vector",
    )


def _date(seen: Seen, notes: list[str], *, is_bounded: bool) -> DateFeature:
    """A column of dates, bounded by the months of its quantiles. Marks are imputed like empty cells."""
    days, odd = seen.days.values, seen.others + seen.numbers - seen.days.count
    lower, middle, upper = (date.fromisoformat(str(Day(round(at)))) for at in np.quantile(days, _QUANTILES_OF_DAYS))
    next_month = date(upper.year + upper.month // 12, upper.month % 12 + 1, 1) if upper < _LAST_MONTH else None
    first, last = lower.replace(day=1), date.max if next_month is None else next_month - timedelta(1)
    bounds = "" if is_bounded else f"bounds them by {first} and {last}, whole months of the data, and "
    notes.append(
        f"{seen.name!r} has {amount(seen.days.count, 'date')}: the draft {bounds}takes the days alone; add parts = "
        '["year", "month", "weekday"], or some of them, if they matter.'
    )
    if seen.times:
        notes.append(f"{seen.name!r} has {amount(seen.times, 'time')} of day: only the day counts.")
    imputes_marks = bool(seen.marks) and not odd
    if seen.marks or odd:
        beside = [f"{text!r} ({count})" for text, count in sorted(seen.marks.items())]
        beside += [amount(odd, "other text")] if odd else []
        how = (
            'such cells are imputed like empty ones (unreadable = "impute")'
            if imputes_marks
            else 'such rows become zero vectors (unreadable = "zero-vector"); empty cells would be imputed'
        )
        notes.append(f"{seen.name!r} has dates and {', '.join(beside)}: {how}.")
    empty = seen.missing + (seen.marks.total() if imputes_marks else 0)
    if empty:
        notes.append(
            f"{seen.name!r} has missing cells ({empty}): the draft imputes the median, {middle}; choose a constant."
        )
    return DateFeature(
        name=feature_name(seen),
        column=seen.name,
        first=str(first),
        last=str(last),
        missing="impute" if empty else "zero-vector",
        impute=str(middle) if empty else None,
        out_of_bounds="clip",
        unreadable="impute" if imputes_marks else "zero-vector",
    )


def _boolean(seen: Seen, groups: Sequence[Sequence[str]], notes: list[str]) -> BooleanFeature:
    """A column with two values, each in one or several spellings."""
    true = true_of(seen, groups, notes)
    false = next(group for group in groups if group is not true)
    is_missing = bool(seen.missing) or _imputes_marks(seen)
    size = [sum(seen.counts[text] for text in group) for group in (true, false)]
    impute = size[0] >= size[1] if is_missing else None
    if impute is not None:
        notes.append(imputes(seen, (true if impute else false)[0], _empty(seen)))
    _say_spellings(seen, groups, notes, "the draft takes them for one value")
    return BooleanFeature(
        name=feature_name(seen),
        column=seen.name,
        true=tuple(true),
        false=tuple(false),
        missing="impute" if is_missing else "zero-vector",
        # A mark is a text that is in neither list.
        unknown="impute" if _imputes_marks(seen) else "zero-vector",
        impute=impute,
    )


def _of_texts(seen: Seen, notes: list[str], place: str) -> Feature | str:
    """A column of texts: a boolean if they are two, a category of up to 30, or why it is left out."""
    texts = f"{seen.numbers} numbers and {seen.others} other texts"
    if seen.overflowed or len(seen.counts) > MOST_CATEGORIES:
        return _too_many(seen, texts, place)
    words = [text for text in seen.marks if not marks_no_value(text)]
    groups = spellings(sorted(set(seen.counts) - set(seen.marks)))
    if seen.forms[Form.CODE]:
        codes = f"{amount(seen.forms[Form.CODE], 'number')} of {seen.numbers + seen.others}"
        notes.append(
            f"{seen.name!r} has {codes} with a leading zero, a plus or over 15 digits, as codes have: the draft takes "
            "the column for texts."
        )
    elif seen.numbers and seen.others:
        notes.append(
            f"{seen.name!r} has {texts}{f' (the first in {place})' if place else ''}: the draft takes all for texts."
        )
    if len(groups) == 2 and not words:
        if seen.marks:
            marks = counted(seen.marks, seen.marks)
            notes.append(
                f"{seen.name!r} is {marks}, a mark for a missing value: such cells are imputed like empty ones."
            )
        return _boolean(seen, list(groups.values()), notes)
    return category_of_texts(seen, groups, notes)


def _too_many(seen: Seen, mixed: str, place: str) -> str:
    if seen.forms[Form.CODE]:
        codes = (
            f"{amount(seen.forms[Form.CODE], 'number')} of {seen.numbers} with a leading zero, a plus or over 15 digits"
        )
        return f"it has {codes}, as codes or ids have, and over {MOST_CATEGORIES} different texts"
    if seen.numbers and seen.others:
        first = f" (the first in {place})" if place else ""
        return (
            f"it has {mixed}{first}, over {MOST_CATEGORIES} of them different; make the others empty if the column is "
            "one of numbers"
        )
    if not seen.overflowed and len(seen.counts) == seen.present:
        return f"every row has a different text, as an id has ({amount(seen.present, 'row')})"
    many = f"over {MOST_TEXTS}" if seen.overflowed else str(len(seen.counts))
    alike = "" if seen.overflowed else f"{len(spellings(seen.counts))} but for case, blanks and Unicode form, "
    is_alike = not seen.overflowed and len(spellings(seen.counts)) < len(seen.counts)
    several = f"{many}, {alike if is_alike else ''}in {amount(seen.present, 'cell')}"
    return f"it has over {MOST_CATEGORIES} different texts ({several}){code_advice(seen)}"


def category_of_texts(seen: Seen, groups: Mapping[str, Sequence[str]], notes: list[str]) -> CategoryFeature:
    """A column of texts. A mark for a missing value is a value of its own, which stands for empty cells too."""
    values = tuple(sorted(seen.counts))
    marks = [text for text in values if marks_no_value(text)]
    words = [text for text in values if may_mark_no_value(text) and text not in marks]
    impute = max(marks or values, key=seen.counts.__getitem__) if seen.missing or marks else None
    if words:
        notes.append(
            f"{seen.name!r} is {counted(words, seen.counts)}, which may mark a missing value: the draft makes it a "
            "value of its own."
        )
    if marks:
        notes.append(
            f"{seen.name!r} is {counted(marks, seen.counts)}, a mark for a missing value: the draft makes it a value "
            f"of its own, also for empty cells ({seen.missing})."
        )
    elif impute is not None:
        notes.append(imputes(seen, impute, seen.missing))
    what = 'each is a value of its own; write them alike, or keep one and add "case" to texts if only case differs'
    _say_spellings(seen, list(groups.values()), notes, what)
    return CategoryFeature(
        name=feature_name(seen),
        column=seen.name,
        values=values,
        missing="zero-vector" if impute is None else "impute",
        unknown="zero",
        impute=impute,
    )


def _say_spellings(seen: Seen, groups: Sequence[Sequence[str]], notes: list[str], what: str) -> None:
    said = [counted(group, seen.counts) for group in groups if len(group) > 1]
    notes += [f"{seen.name!r} has spellings of one text, {group}: {what}." for group in said]


def imputes(seen: Seen, text: str, empty: int) -> str:
    """The note on the text that empty cells become."""
    return (
        f"{seen.name!r} has missing cells ({empty}): the draft imputes the most frequent text, {text!r}; "
        "choose a constant."
    )


def feature_name(seen: Seen) -> str:
    """The feature's name: the column's, on one line, and never the bias's."""
    name = "".join(" " if ord(character) < 32 or ord(character) == 127 else character for character in seen.name)
    return f"{name}_column" if name == BIAS else name


def outward(lowest: float, highest: float) -> tuple[float, float]:
    """Bounds at or beyond lowest < highest, rounded outwards to two significant digits of their distance."""
    distance = Decimal(highest) - Decimal(lowest)
    step = Decimal(1).scaleb(distance.adjusted() - 1)
    # Rounding a decimal to a double may move the bound inwards, past the value. Then the value is the bound.
    lower = float((Decimal(lowest) / step).to_integral_value(ROUND_FLOOR) * step)
    upper = float((Decimal(highest) / step).to_integral_value(ROUND_CEILING) * step)
    return min(lower, lowest), max(upper, highest)
