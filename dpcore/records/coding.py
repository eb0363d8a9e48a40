"""How labels are stored beside the features of records: what their numbers mean, and of which type they are."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import SchemaError
from dpcore.numbers.fixed_point import ONE, STORED_FRACTION_BITS

Labels = NDArray[Any]
"""(m,), or (m, 2) of counts with an exposure: int8, int16 or int32, as the coding says."""
_MOST_BYTES = 127
"""Classes whose codes are 8 bits."""

OFFSET_BITS = 20
LARGEST_OFFSET = 32
"""Of an exposure's logarithm, which is stored in units of 2^-OFFSET_BITS."""


@dataclass(frozen=True)
class Coding:
    """What the numbers of a label are. Labels of rows that are not usable are 1 in every coding.

    - signs: -1 or +1, int8.
    - classes: codes from 0 to below `size`, int8, or int16 if there are more than fit.
    - number: t in units of 2^-30, within [-2^30, 2^30], int32.
    - event-time: cells from 0 to 2 J, int8: dpcore.records.features.event_time.
    - count: whole numbers from 0 to `size`, int32; with an exposure a second column has the exposure's logarithm.
    """

    kind: Literal["signs", "classes", "number", "count", "event-time"]
    size: int = 0
    """Of classes, their number; of counts, the largest; of times to an event, the number of intervals, J."""
    has_exposure: bool = False

    @property
    def classes(self) -> int:
        """The number of classes, if there are several; else 0."""
        return self.size if self.kind == "classes" else 0

    @property
    def words(self) -> str:
        """What the labels are, in a few words."""
        match self.kind:
            case "signs":
                return "two classes"
            case "classes":
                return f"{self.size} classes"
            case "number":
                return "a number"
            case "count":
                return f"a count up to {self.size}{' over an exposure' * self.has_exposure}"
            case "event-time":
                return f"a time to an event in {self.size} intervals"

    @property
    def intervals(self) -> int:
        """J of times to an event; else 0."""
        return self.size if self.kind == "event-time" else 0

    @property
    def has_value(self) -> bool:
        """Whether labels have a value t in [-1, 1], `scaled`: numbers, counts, and times to an event."""
        return self.is_measured or self.kind == "event-time"

    @property
    def is_measured(self) -> bool:
        """Whether labels are numbers or counts."""
        return self.kind in ("number", "count")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of each number."""
        if self.is_measured:
            return np.dtype(np.int32)
        return np.dtype(np.int16 if self.classes > _MOST_BYTES else np.int8)

    @property
    def columns(self) -> int:
        """Numbers of one label."""
        return 2 if self.has_exposure else 1

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the labels of so many rows."""
        return (rows, 2) if self.has_exposure else (rows,)

    def values(self, labels: Labels) -> Labels:
        """The labels (m,), without logarithms of exposures."""
        return labels[:, 0] if self.has_exposure else labels

    def offsets(self, labels: Labels) -> NDArray[np.int64]:
        """Logarithms of exposures (m,), in units of 2^-OFFSET_BITS; 0 without exposures."""
        return labels[:, 1].astype(np.int64) if self.has_exposure else np.zeros(len(labels), dtype=np.int64)

    def scaled(self, labels: Labels, fraction_bits: int) -> NDArray[np.int64]:
        """Numbers or counts as t, (m,), rounded to units of 2^-fraction_bits: within [-2^f, 2^f].

        Of counts y, t = 2 y / size - 1. Of times to an event, 1 if the event happened within the horizon, else -1.
        """
        values = self.values(labels).astype(np.int64)
        if self.kind == "event-time":
            return np.where(values < self.size, 1 << fraction_bits, -(1 << fraction_bits))
        if self.kind == "count":
            return ((values << fraction_bits + 1) + self.size // 2) // self.size - (1 << fraction_bits)
        shift = STORED_FRACTION_BITS - fraction_bits
        return (values + ((1 << shift) >> 1)) >> shift

    def check(self, labels: Labels) -> None:
        """Raise SchemaError if a label is out of range. labels: of this coding's type and shape."""
        values = self.values(labels)
        match self.kind:
            case "signs" if not bool((np.abs(values) == 1).all()):
                raise SchemaError("a label is neither -1 nor +1: encode labels by the schema")
            case "classes" if not bool(((values >= 0) & (values < self.size)).all()):
                raise SchemaError(f"a label is none of {self.size} classes: encode labels by the schema")
            case "event-time" if not bool(((values >= 0) & (values <= 2 * self.size)).all()):
                raise SchemaError(f"a label is no cell of {self.size} intervals: encode labels by the schema")
            case "number" if not bool(((values >= -ONE) & (values <= ONE)).all()):
                raise SchemaError("a label is beyond [-1, 1]: encode labels by the schema")
            case "count" if not bool(((values >= 0) & (values <= self.size)).all()):
                raise SchemaError(f"a label is no count from 0 to {self.size}: encode labels by the schema")
        if self.has_exposure and int(np.abs(labels[:, 1]).max(initial=0)) > LARGEST_OFFSET << OFFSET_BITS:
            raise SchemaError("an exposure is out of range: encode labels by the schema")

    def spread(self, places: NDArray[np.float64]) -> Labels:
        """Made-up labels that rise with places from 0 to below 1, spread evenly over what labels can be."""
        match self.kind:
            case "signs":
                labels = np.where(places < 0.5, -1.0, 1.0)
            case "number":
                labels = (2.0 * places - 1.0) * ONE
            case "classes":
                labels = places * self.size
            case "count":
                labels = places * (self.size + 1)
            case "event-time":
                labels = places * (2 * self.size + 1)
        found = np.floor(labels).astype(self.dtype)
        return np.column_stack([found, np.zeros_like(found)]) if self.has_exposure else found

    @property
    def digested(self) -> bytes:
        """What a digest of records is over before the arrays; empty for signs."""
        match self.kind:
            case "signs":
                return b""
            case "classes":
                return b"classes\0" + self.size.to_bytes(8, "big")
            case _:
                return self.kind.encode() + b"\0" + self.size.to_bytes(8, "big") + bytes([self.columns])


SIGNS = Coding("signs")
"""Of a label of two classes."""
NUMBER = Coding("number")
"""Of a label that is a number."""


def class_codes(classes: int) -> Coding:
    """Of a label of so many classes."""
    return Coding("classes", classes)


def event_time_codes(intervals: int) -> Coding:
    """Of a label that is a time to an event, in so many intervals."""
    return Coding("event-time", intervals)
