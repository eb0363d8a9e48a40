"""The label of a drafted schema that is a time to an event, and what is said of it, with counts."""

from collections.abc import Sequence

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.records.features import EventTime
from parties.data.draft_columns import Seen

INTERVALS = 8
"""Few intervals have little noise each, and enough of them show the shape."""

_STILL_FOLLOWED = 0.1
"""The share of rows that are followed beyond the drafted horizon: later intervals would be mostly noise."""

_CODES = {frozenset({"0", "1"}): "1", frozenset({"false", "true"}): "true"}
"""Texts of an event's column that need no explanation, and which means that it happened."""


def draft_event(seen: Seen, event: Seen, happened: Sequence[str] | None, notes: list[str]) -> EventTime:
    """The label, with notes. seen: the column of times. happened: the texts that mean that the event did, if given.

    Raises ConfigurationError for no positive times, or if it is not clear which texts mean the event.
    """
    if seen.unreadable or not len(seen.sample) or seen.highest <= 0:
        why = seen.unreadable or "no cell is a positive number"
        raise ConfigurationError(f"the column {seen.name!r} has no times: {why}; choose another")
    texts = _texts(event, happened)
    positive = seen.sample[seen.sample > 0]
    horizon = _rounded_down(float(np.quantile(positive, 1.0 - _STILL_FOLLOWED)))
    borders = tuple(float(f"{horizon * (place + 1) / INTERVALS:.6g}") for place in range(INTERVALS))
    named = " or ".join(map(repr, texts))
    notes.append(
        f"The label is the time {seen.name!r} to an event, which happened where {event.name!r} is {named}; all other "
        f"rows count as censored. It has {INTERVALS} intervals up to {horizon:g}, beyond which a tenth are followed."
    )
    if lowest := int(np.count_nonzero(seen.sample <= 0)):
        notes.append(
            f"Rows without a positive {seen.name!r} become zero vectors ({lowest} of those that were looked at)."
        )
    return EventTime(
        column=seen.name,
        event=event.name,
        happened=texts,
        borders=borders,
        missing="zero-vector",
        unreadable="zero-vector",
    )


def _texts(event: Seen, happened: Sequence[str] | None) -> tuple[str, ...]:
    found = set(event.counts)
    if happened:
        if unknown := [text for text in happened if text not in found]:
            raise ConfigurationError(
                f"the event's column {event.name!r} has no {unknown[0]!r}: name texts that occur, which mean that the "
                "event happened"
            )
        return tuple(happened)
    known = _CODES.get(frozenset(found))
    if known is None:
        shown = ", ".join(map(repr, sorted(found)[:5]))
        raise ConfigurationError(
            f"which texts of {event.name!r} mean that the event happened? It has {shown}: name them (--positive)"
        )
    return (known,)


def _rounded_down(value: float) -> float:
    """To two digits."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 1.0)
    return float(f"{np.floor(value / scale) * scale:.6g}")
