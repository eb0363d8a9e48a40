"""The label of a drafted schema: which texts are positive, which negative, which rows are left out, with counts.

A row is left out if its label is not understood. A wrong label would be learned, and a lost row is only a lost row.
"""

from collections.abc import Collection, Sequence

from dpcore.errors import ConfigurationError
from dpcore.records.features import Label, close_match
from parties.data.draft_columns import (
    FORM,
    MOST_TEXTS,
    Seen,
    alike,
    counted,
    is_number,
    may_mark_no_value,
    spellings,
    true_of,
)

_OPPOSITES = [("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("on", "off"), ("positive", "negative")]
_OPPOSITES += [("pos", "neg"), ("+", "-"), ("ja", "nein"), ("j", "n"), ("oui", "non"), ("si", "no"), ("sí", "no")]
#: Share of the labelled rows from which on two texts are the classes, and the others are not understood.
_TWO_CLASSES = 0.95


def draft_label(seen: Seen, positive: Sequence[str] | None, notes: list[str]) -> Label:
    """The label, with notes on each class. positive: its texts; without, the column must have two values.

    Marks for missing values are in no class, and neither are texts that are not understood. Spellings of a positive
    text are positive. Raises ConfigurationError if a class is empty, or has too many texts to be listed.
    """
    if seen.unreadable:
        raise ConfigurationError(f"the label's column {seen.name!r}: {seen.unreadable}")
    positive = None if positive is None else [*dict.fromkeys(map(FORM, positive))]
    if positive is None:
        positive = _only_two(seen, notes)
    elif seen.overflowed:
        raise ConfigurationError(
            f"the label's column {seen.name!r} has over {MOST_TEXTS} different values, and a draft lists those of both "
            "classes; make it a column of two values, or write the schema by hand"
        )
    if absent := [text for text in positive if text not in seen.counts]:
        raise _never(seen, absent[0])
    common = set(map(alike, positive))
    spelled = [text for text in seen.counts if text not in positive and alike(text) in common]
    rest = [text for text in seen.counts if text not in positive and text not in spelled]
    marks = _marks(seen, rest)
    candidates = [text for text in rest if text not in marks]
    unclear = _not_understood(seen, [*positive, *spelled], candidates)
    negative = [text for text in candidates if text not in unclear]
    if not negative:
        raise _no_negative(seen, rest)
    _say(seen, positive, spelled, negative, notes)
    _say_left_out(seen, marks, unclear, notes)
    return Label(column=seen.name, positive=(*positive, *spelled), negative=tuple(negative), missing="zero-vector")


def _only_two(seen: Seen, notes: list[str]) -> Sequence[str]:
    """The positive texts of a column with two values, beside marks for missing values."""
    marks = [] if seen.overflowed else _marks(seen, list(seen.counts))
    groups = spellings(sorted(text for text in seen.counts if text not in marks))
    if seen.overflowed or len(groups) != 2:
        beside = f" beside marks for missing values, {counted(marks, seen.counts)}" if marks else ""
        many = "many" if seen.overflowed else len(groups)
        raise ConfigurationError(
            f"the label's column {seen.name!r} has {many} different values{beside}, "
            "not two; specify which column is the label, and which of its values are positive"
        )
    return true_of(seen, groups.values(), notes)


def _marks(seen: Seen, texts: Collection[str]) -> list[str]:
    """The texts that mark a missing label. A minus beside a plus is a class."""
    return [text for text in texts if may_mark_no_value(text) and not (text == "-" and "+" in seen.counts)]


def _not_understood(seen: Seen, positive: Sequence[str], others: Sequence[str]) -> list[str]:
    """The texts that are probably not the other class: numbers among words, 01 beside 1, or rare beside two classes."""
    equal = {float(text) for text in positive if is_number(text)}
    nearly = {text for text in others if is_number(text) and float(text) in equal}
    others = [text for text in others if text not in nearly]
    numeric = set(filter(is_number, others))
    is_of_kind = {text for text in others if (text in numeric) == all(map(is_number, positive))}
    kept = is_of_kind or set(others)
    groups = spellings(text for text in others if text in kept)
    opposites = {
        second for pair in _OPPOSITES for first, second in (pair, pair[::-1]) if first in set(map(alike, positive))
    }
    found = [key for key in groups if key in opposites]
    size = {key: sum(seen.counts[text] for text in group) for key, group in groups.items()}
    labelled = sum(size.values()) + sum(seen.counts[text] for text in positive)
    if not found and size:
        largest = max(size, key=size.__getitem__)
        if labelled - sum(size.values()) + size[largest] >= _TWO_CLASSES * labelled:
            found = [largest]
    classes = {text for key in found or groups for text in groups[key]}
    return [*nearly, *(text for text in others if text not in classes)]


def _say(
    seen: Seen, positive: Sequence[str], spelled: Sequence[str], negative: Sequence[str], notes: list[str]
) -> None:
    both = [counted(texts, seen.counts, "row") for texts in ([*positive, *spelled], negative)]
    notes.append(f"The label {seen.name!r} is positive where it is {both[0]}, and negative where it is {both[1]}.")
    same = (group for group in spellings([*positive, *spelled, *negative]).values() if len(group) > 1)
    notes += [
        f"{seen.name!r} has spellings of one text, {counted(group, seen.counts, 'row')}: the draft takes them for one "
        "value. If they are not, correct positive and negative."
        for group in same
    ]


def _say_left_out(seen: Seen, marks: Sequence[str], unclear: Sequence[str], notes: list[str]) -> None:
    if seen.missing:
        rows = "1 row has" if seen.missing == 1 else f"{seen.missing} rows have"
        notes.append(f"{rows} no label in {seen.name!r}: a zero vector each.")
    for texts, what in (
        (marks, "a mark for a missing value"),
        (unclear, "in neither class as far as a draft can tell"),
    ):
        if texts:
            notes.append(
                f"{seen.name!r} is {counted(texts, seen.counts, 'row')}: {what}. These rows become zero vectors. "
                "If such a text is a class, add it to the label's positive or negative."
            )


def _never(seen: Seen, text: str) -> ConfigurationError:
    near = next((other for other in seen.counts if alike(other) == alike(text)), None) or close_match(text, seen.counts)
    hint = "check the values of the column" if near is None else f"did you mean {near!r}?"
    if "," in text and all(part.strip() in seen.counts for part in text.split(",")):
        hint = "give each value on its own: --positive A --positive B"
    return ConfigurationError(f"column {seen.name!r} never has the positive value {text!r}; {hint}")


def _no_negative(seen: Seen, rest: Sequence[str]) -> ConfigurationError:
    why = "no other value than the positive ones"
    if rest:
        why = f"only {counted(rest, seen.counts, 'row')} beside the positive values, which mark missing values"
    return ConfigurationError(
        f"the label's column {seen.name!r} has {why}, so that no row is negative; write the other class as a text of "
        "its own, such as no, or choose other positive values"
    )
