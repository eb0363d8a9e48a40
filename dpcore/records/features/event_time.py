"""Labels that are times to an event: in which interval of time a person's follow-up ended, and whether by the event.

A party stores one code for each row, and nothing else of the time. The codes are the cells of
dpcore.evaluation.life_table: with J intervals the events by interval, then the people censored by interval, then those
who were followed beyond the horizon. So a row is in one cell, however long it was followed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpcore.numbers.fixed_point import Mask
from dpcore.records.coding import Coding, Labels, event_time_codes
from dpcore.records.features.described import (
    CellError,
    Cells,
    Changed,
    MissingLabel,
    Policy,
    Tally,
    alike,
    as_numbers,
    as_texts,
    for_missing,
    for_unreadable,
    look_up,
)
from dpcore.records.features.described_label import LABEL_POLICIES, DescribedLabel, EncodedLabel, Reads
from dpcore.records.texts import (
    Form,
    SchemaFieldError,
    require_choice,
    require_disjoint,
    require_number,
    require_text,
    require_texts,
    settle,
    value_text,
)

EVENT_TIME_VERSION = 5
"""The first version of schemas with such labels."""

MOST_INTERVALS = 60
"""A label's codes are 8 bits, and there are two for each interval and one more."""


@dataclass(frozen=True, kw_only=True)
class EventTime(DescribedLabel):
    """The time until an event, or until a person was last seen without it, in intervals that end at `borders`.

    The first interval begins after time 0. Each includes its end. The last border is the horizon: times beyond it are
    known to be beyond, and no more.
    """

    type: ClassVar[str] = "event"
    has_type_field: ClassVar[bool] = True
    compared: ClassVar[tuple[tuple[str, ...], ...]] = (("happened", "censored"),)
    reals: ClassVar[tuple[str, ...]] = ("borders",)
    version: ClassVar[int] = EVENT_TIME_VERSION
    versioned_key: ClassVar[str] = "type"
    column: str
    """That of the time."""
    event: str
    """The column that says whether the event happened at that time."""
    happened: tuple[str, ...]
    """Its texts that mean that it did."""
    censored: tuple[str, ...] | None = None
    """Those that mean that it did not; None: all others."""
    borders: tuple[float, ...]
    """The ends of the intervals, ascending, in the time's units."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose time or event is empty."""
    unlisted: MissingLabel = "refuse"
    """How one is handled whose event's text is in neither list, if both are given."""
    unreadable: MissingLabel = "refuse"
    """How one is handled whose time is not a positive number."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        if require_text("label.event", self.event) == self.column:
            raise SchemaFieldError("label.event", "is the column of the time; name that of the event")
        happened = tuple(sorted(require_texts("label.happened", self.happened)))
        settle(self, happened=happened)
        if self.censored is not None:
            censored = tuple(sorted(require_texts("label.censored", self.censored)))
            require_disjoint("label.happened", happened, censored, "happened and censored")
            settle(self, censored=censored)
        borders = tuple(require_number("label.borders", border) for border in self.borders)
        settle(self, borders=borders)
        if not 1 <= len(borders) <= MOST_INTERVALS:
            sentence = f"has {len(borders)} ends of intervals; write 1 to {MOST_INTERVALS}"
            raise SchemaFieldError("label.borders", sentence)
        if any(later <= earlier for earlier, later in zip((0.0, *borders), borders, strict=False)):
            raise SchemaFieldError("label.borders", "must be positive and ascend; write the end of each interval")
        for policy in ("missing", "unlisted", "unreadable"):
            require_choice(f"label.{policy}", getattr(self, policy), LABEL_POLICIES)

    @property
    def columns(self) -> tuple[str, ...]:
        """That of the time, then that of the event."""
        return (self.column, self.event)

    @property
    def readings(self) -> tuple[Reads, ...]:
        """A number and a text."""
        return ("numbers", "texts")

    @property
    def coding(self) -> Coding:
        """The cell of a row."""
        return event_time_codes(len(self.borders))

    def interval(self, bound: Fraction) -> int:
        """The place of the interval that ends at this time. Raises ValueError if none does."""
        return [Fraction(border) for border in self.borders].index(bound)

    @property
    def words(self) -> str:
        """Its horizon and intervals."""
        return f"a time to an event, in {len(self.borders)} intervals up to {value_text(self.borders[-1])}"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, times that are not positive numbers, and events in neither list."""
        words = "in neither happened nor censored of the schema's label"
        return (
            for_missing(self.missing)._replace(columns=self.columns),
            for_unreadable(self.unreadable, "positive time"),
            Policy("unlisted", self.unlisted, "unlisted", words, (self.event,)),
        )

    def outcomes(self, labels: Labels) -> tuple[tuple[str, int], ...]:
        """How many rows had the event, were censored, and were followed beyond the horizon; labels: (m,), of all."""
        counts = np.bincount(labels, minlength=2 * len(self.borders) + 1)
        happened, censored, beyond = (
            int(part.sum()) for part in np.split(counts, [len(self.borders), counts.size - 1])
        )
        return (("event", happened), ("censored", censored), ("beyond the horizon", beyond))

    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:
        """The cell of each row: the code of its interval if the event happened, else J more; 2 J beyond the horizon."""
        times, events = as_numbers(self.column, columns[0]), as_texts(self.event, columns[1])
        meaning = {form(text): 1 for text in self.happened} | {form(text): 0 for text in self.censored or ()}
        found = look_up(events, meaning)
        no_event = events.codes < 0
        unlisted = (found < 0) & ~no_event if self.censored is not None else np.zeros_like(no_event)
        # Also false for what is not a number.
        positive = (times.values > 0) & (times.values < math.inf)
        unreadable = ~positive & ~times.missing
        self._refuse(times.missing, self.missing, self.column, f"there is no time; {_instead('missing')}")
        self._refuse(no_event, self.missing, self.event, f"there is a time without an event; {_instead('missing')}")
        sentence = (
            "is not a positive number in the digits 0 to 9: a person whose time is 0 was never followed; shift the "
            f"times if 0 counts, or {_instead('unreadable')}"
        )
        self._refuse(unreadable, self.unreadable, self.column, sentence)
        sentence = f"is in neither happened nor censored of the schema's label; {_instead('unlisted')}"
        self._refuse(unlisted, self.unlisted, self.event, sentence)
        intervals = len(self.borders)
        filled = np.where(positive & ~times.missing, times.values, math.inf)
        place = np.searchsorted(np.array(self.borders), filled, side="left")
        codes = np.where(place >= intervals, 2 * intervals, np.where(found == 1, place, intervals + place))
        missing = times.missing | no_event
        changed = Changed(unlisted)
        tally = Tally(
            self.column,
            int(np.count_nonzero(missing)),
            int(np.count_nonzero(unreadable)),
            changed.count,
            alike(events, changed, meaning),
        )
        return EncodedLabel(codes.astype(np.int8), missing | unreadable | unlisted, tally)

    def _refuse(self, cells: Mask, policy: str, column: str, sentence: str) -> None:
        if policy == "refuse" and cells.any():
            raise CellError(int(cells.argmax()), column, sentence)


def _instead(policy: str) -> str:
    return f'set label.{policy} = "zero-vector", or correct the file'
