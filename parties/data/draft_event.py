"""The label of a drafted schema that is a time to an event, and what is said of it, with counts."""

from collections.abc import Sequence

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.records.features import EventTime
from parties.data.draft_columns import FORM, Seen, alike, counted, may_mark_no_value
from parties.data.draft_features import near_number
from radobase.printing import amount

INTERVALS = 8
"""Few intervals have little noise each, and enough of them show the shape."""

_STILL_FOLLOWED = 0.1
"""The share of rows that are followed beyond the drafted horizon: later intervals would be mostly noise."""

_CODES = {
    frozenset({"0", "1"}): "1",
    frozenset({"0.0", "1.0"}): "1.0",
    frozenset({"false", "true"}): "true",
    frozenset({"no", "yes"}): "yes",
}
"""Texts of an event's column that need no explanation, and which means that it happened."""

_MOST_CENSORED = 30
"""A draft lists at most so many texts that mean censored, as many as a category has."""

_ZERO = "such rows become zero vectors"


def draft_event(seen: Seen, event: Seen, happened: Sequence[str] | None, notes: list[str]) -> EventTime:
    """The label, with notes. seen: the column of times. happened: the texts that mean that the event did, if given.

    A mark for a missing value means neither that the event happened nor that it did not: its row is left out.
    Raises ConfigurationError for no positive times, or if it is not clear which texts mean the event.
    """
    if seen.unreadable or not len(seen.sample) or seen.highest <= 0:
        why = seen.unreadable or near_number(seen) or "no cell is a positive number"
        raise ConfigurationError(f"the column {seen.name!r} has no times: {why}")
    texts = _texts(event, happened)
    rest = [text for text in event.counts if text not in texts]
    marks = [text for text in rest if may_mark_no_value(text)]
    censored = sorted(text for text in rest if text not in marks)
    is_listed = not event.overflowed and len(censored) <= _MOST_CENSORED
    positive = seen.sample[seen.sample > 0]
    horizon = _rounded_down(float(np.quantile(positive, 1.0 - _STILL_FOLLOWED)))
    borders = tuple(float(f"{horizon * (place + 1) / INTERVALS:.6g}") for place in range(INTERVALS))
    others = "all other texts count as censored, also marks for missing values"
    if is_listed:
        others = f"censored where it is {counted(censored, event.counts, 'row')}" if censored else "no row is censored"
    notes.append(
        f"The label is the time {seen.name!r} to an event, which happened where {event.name!r} is "
        f"{counted(texts, event.counts, 'row')}; {others}. It has {INTERVALS} intervals up to {horizon:g}, beyond "
        "which a tenth are followed."
    )
    _say_spellings(event, texts, happened, notes)
    _say_left_out(seen, event, marks if is_listed else [], notes)
    return EventTime(
        column=seen.name,
        event=event.name,
        happened=tuple(texts),
        censored=tuple(censored) if is_listed and censored else None,
        borders=borders,
        missing="zero-vector",
        unlisted="zero-vector",
        unreadable="zero-vector",
    )


def _texts(event: Seen, happened: Sequence[str] | None) -> list[str]:
    """The texts that mean that the event happened, all spellings of each."""
    if happened:
        given = [*dict.fromkeys(map(FORM, happened))]
        if unknown := [text for text in given if text not in event.counts]:
            raise ConfigurationError(
                f"the event's column {event.name!r} has no {unknown[0]!r}: name texts that occur, which mean that the "
                "event happened"
            )
        common = set(map(alike, given))
        return [*given, *sorted(text for text in event.counts if text not in given and alike(text) in common)]
    found = sorted(text for text in event.counts if not may_mark_no_value(text))
    known = _CODES.get(frozenset(text.casefold() for text in found))
    if known is None or event.overflowed:
        shown = ", ".join(map(repr, found[:5]))
        more = ", ..." if len(found) > 5 else ""
        raise ConfigurationError(
            f"which texts of {event.name!r} mean that the event happened? It has {shown}{more}: name them (--positive)"
        )
    return [text for text in found if text.casefold() == known]


def _say_spellings(event: Seen, texts: Sequence[str], happened: Sequence[str] | None, notes: list[str]) -> None:
    if happened and (own := [text for text in texts if text not in set(map(FORM, happened))]):
        notes.append(
            f"{event.name!r} has spellings of these texts too, {counted(own, event.counts, 'row')}: the draft takes "
            "them for the event. If they are not, correct happened."
        )


def _say_left_out(seen: Seen, event: Seen, marks: Sequence[str], notes: list[str]) -> None:
    if lowest := int(np.count_nonzero(seen.sample <= 0)):
        notes.append(
            f"Rows without a positive {seen.name!r} become zero vectors ({lowest} of those that were looked at)."
        )
    if lost := seen.present - seen.numbers:
        notes.append(f"{amount(lost, 'cell')} of {seen.name!r} {'is' if lost == 1 else 'are'} no number: {_ZERO}.")
    for column in (seen, event):
        if column.missing:
            are = "is" if column.missing == 1 else "are"
            notes.append(f"{amount(column.missing, 'cell')} of {column.name!r} {are} empty: {_ZERO}.")
    if marks:
        notes.append(
            f"{event.name!r} is {counted(marks, event.counts, 'row')}: a mark for a missing value. These rows become "
            "zero vectors. If such a text means something, add it to the label's happened or censored."
        )


def _rounded_down(value: float) -> float:
    """To two digits."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 1.0)
    return float(f"{np.floor(value / scale) * scale:.6g}")
