"""Metrics of a node: what each means, who may know it, and its values. Imports no library for them."""

import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from radobase.version import program_version
from radobase.watching.readiness import Reason


class Kind(StrEnum):
    """The type of a metric, in Prometheus's words."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


@dataclass(frozen=True)
class Metric:
    """A metric."""

    name: str
    """As it is exported, with its unit, and `_total` for a counter or `_info`."""
    kind: Kind
    meaning: str
    known: str
    """From what the node's administrator knows this without the metric: it reveals nothing more."""
    labels: tuple[str, ...] = ()
    """Each has few values, which neither a learner nor another member chooses."""


@dataclass(frozen=True)
class Sample:
    """A value of a metric."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    """A value for each of the metric's labels."""

    def __post_init__(self) -> None:
        assert set(self.labels) == set(self.metric.labels), self.metric.name


class Counts:
    """Numbers that only grow, from the start of the process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a count."""
        with self._lock:
            self._counts[name] += amount

    def get(self, name: str) -> int:
        """A count, 0 if nothing was added."""
        with self._lock:
            return self._counts[name]


SENT, RECEIVED = "bytes sent", "bytes received"
LOST = "attempts lost"

_STATE = "its own log, files and disk"
_OWN_FILES = "its own configuration and installation"
BUILD = Metric(
    "rado_build_info", Kind.INFO, "Version of radofed and the node's role. Always 1.", _OWN_FILES, ("version", "role")
)
READY = Metric("rado_ready", Kind.GAUGE, "1 if the node does its work, otherwise 0.", _STATE)
NOT_READY = Metric(
    "rado_not_ready", Kind.GAUGE, "1 for each reason for which the node is not ready, otherwise 0.", _STATE,
    ("reason",),
)  # fmt: skip
CERTIFICATE_EXPIRY = Metric(
    "rado_certificate_expiry_timestamp_seconds", Kind.GAUGE,
    "When the certificate that this node uses expires, in Unix seconds.", "its own certificate",
)  # fmt: skip
ROSTER_EXPIRY = Metric(
    "rado_roster_expiry_timestamp_seconds", Kind.GAUGE,
    "When the newest roster that this node knows expires, in Unix seconds; +Inf if never.",
    "the roster, which all members have",
)  # fmt: skip
SENT_BYTES = Metric(
    "rado_sent_bytes_total", Kind.COUNTER,
    "Bytes of the messages that this node sent to members, without headers and TLS.",
    "its own network",
)  # fmt: skip
RECEIVED_BYTES = Metric(
    "rado_received_bytes_total", Kind.COUNTER,
    "Bytes of the messages that this node received from members, without headers and TLS.",
    "its own network",
)  # fmt: skip
SPOOL = Metric("rado_spool_bytes", Kind.GAUGE, "Bytes in the spool that count towards its quota.", "its own disk")
SPOOL_QUOTA = Metric("rado_spool_quota_bytes", Kind.GAUGE, "`spool_bytes` of the configuration file.", _OWN_FILES)
DISK_FREE = Metric("rado_disk_free_bytes", Kind.GAUGE, "Free bytes of the disk of the spool.", "its own disk")
DISK_SIZE = Metric("rado_disk_size_bytes", Kind.GAUGE, "Size of the disk of the spool.", "its own disk")

SHARED = (
    BUILD, READY, NOT_READY, CERTIFICATE_EXPIRY, ROSTER_EXPIRY, SENT_BYTES, RECEIVED_BYTES, SPOOL, SPOOL_QUOTA,
    DISK_FREE, DISK_SIZE,
)  # fmt: skip
"""Metrics that every role with a server exports."""


def build_sample(role: str) -> Sample:
    """The version of this process."""
    return Sample(BUILD, 1, {"version": program_version(), "role": role})


def traffic_samples(counts: Counts) -> list[Sample]:
    """Bytes sent and received since the start."""
    return [Sample(SENT_BYTES, counts.get(SENT)), Sample(RECEIVED_BYTES, counts.get(RECEIVED))]


def ready_samples(reasons: Sequence[Reason]) -> list[Sample]:
    """Whether the node is ready, and every reason with 1 or 0."""
    ready = Sample(READY, not reasons)
    return [ready, *(Sample(NOT_READY, reason in reasons, {"reason": reason.value}) for reason in Reason)]


# The room that a node's spool has.


@dataclass(frozen=True)
class Room:
    """Used and allowed bytes of a spool, and free bytes and size of its disk."""

    used_bytes: int
    quota_bytes: int
    disk_free_bytes: int
    disk_bytes: int

    @classmethod
    def of(cls, directory: Path, used_bytes: int, quota_bytes: int) -> Self:
        """Reads the disk. Raises OSError."""
        disk = shutil.disk_usage(directory)
        return cls(used_bytes, quota_bytes, disk.free, disk.total)

    def lacks(self, needed_bytes: int) -> bool:
        """Whether this many bytes more do not fit."""
        return needed_bytes > min(self.quota_bytes - self.used_bytes, self.disk_free_bytes)

    def samples(self) -> list[Sample]:
        """All four."""
        return [
            Sample(SPOOL, self.used_bytes),
            Sample(SPOOL_QUOTA, self.quota_bytes),
            Sample(DISK_FREE, self.disk_free_bytes),
            Sample(DISK_SIZE, self.disk_bytes),
        ]
