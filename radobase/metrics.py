"""Metrics of a node: what each means, who may know it, and its values. Imports no library for them."""

import ipaddress
import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from radobase.configuration import ConfigPath, Configuration, split_target
from radobase.version import program_version

# Why a node is not ready: codes, which programs read and which never change, and a sentence for people.


class Reason(StrEnum):
    """Why a node that runs does not do its work now. The value is the code."""

    sentence: str

    def __new__(cls, code: str, sentence: str) -> Self:
        """A code with its sentence."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    STARTING = "STARTING", "the node starts and does not serve yet"
    DATA_NOT_LOADED = "DATA_NOT_LOADED", "the party has not loaded its rows yet"
    COORDINATOR_UNREACHABLE = "COORDINATOR_UNREACHABLE", "the coordinator has not answered for a while; see the log"
    LEDGER_SET_BACK = "LEDGER_SET_BACK", "other members saw charges that the privacy ledger lacks: it was set back"
    WAITING_FOR_WITNESSES = "WAITING_FOR_WITNESSES", "too few accepted members have confirmed the privacy ledger yet"
    CERTIFICATE_EXPIRED = "CERTIFICATE_EXPIRED", "the certificate has expired; ask the operator to renew it"
    NO_ROSTER = "NO_ROSTER", "the party has not seen a roster yet"
    ROSTER_EXPIRED = "ROSTER_EXPIRED", "the newest roster that this node knows has expired"
    NOT_IN_ROSTER = "NOT_IN_ROSTER", "the newest roster does not list this party with its signing key"
    ROWS_UNUSABLE = "ROWS_UNUSABLE", "more rows than the policy allows are not usable; see `rado party status`"
    ROWS_DROPPED = "ROWS_DROPPED", "more rows than the policy allows are gone; see `rado party status`"
    CELLS_CHANGED = (
        "CELLS_CHANGED",
        "more cells than the policy allows were replaced or clipped by the schema's policies; see `rado party status`",
    )
    SPOOL_FULL = "SPOOL_FULL", "the spool's quota or its disk has no room for one more chunk"
    PAUSED = "PAUSED", "a person has paused the party; `rado party resume` ends it"
    NO_NEW_QUERIES = (
        "NO_NEW_QUERIES",
        "an administrator drains the coordinator: it takes no new query; `rado coordinator undrain` ends that",
    )
    DRAINING = "DRAINING", "the node stops and takes no new work"
    STATE_UNREADABLE = "STATE_UNREADABLE", "the node could not read its own state; see its log"


def reason_lines(codes: Sequence[str]) -> list[str]:
    """Reasons as `rado health` prints them, each with its code and sentence. Codes of newer nodes stand alone."""
    known = {reason.value: reason.sentence for reason in Reason}
    return [f"{code}: {known[code]}" if code in known else code for code in codes]


def readiness_to_dict(reasons: Sequence[Reason]) -> dict[str, Any]:
    """As /readyz answers: `{"ready": false, "reasons": [{"code": ..., "sentence": ...}]}`."""
    return {
        "ready": not reasons,
        "reasons": [{"code": reason.value, "sentence": reason.sentence} for reason in reasons],
    }


# The section `[watch]` of a node's configuration file.


def _loopback(listen: str) -> str:
    host, _ = split_target(listen)
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(
            'metrics and health have no password, so only this machine may read them: use "127.0.0.1:9464" or '
            '"[::1]:9464", or `socket`; another machine reads them through an agent on this one'
        )
    return listen


class WatchSettings(Configuration):
    """Metrics and health, over plain HTTP for this machine only. Needs the extra `metrics`."""

    listen: Annotated[str, AfterValidator(_loopback)] | None = None
    """Loopback address, such as `"127.0.0.1:9464"`. Every user of this machine can read it."""
    socket: ConfigPath | None = None
    """Unix socket, in place of `listen`. Only the node's own user can read it."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.listen is None) == (self.socket is None):
            raise ValueError("give either `listen` or `socket`")
        return self

    @property
    def place(self) -> Path | tuple[str, int]:
        """Path of the socket, or host and port."""
        if self.socket is not None:
            return self.socket
        assert self.listen is not None, "checked at construction"
        return split_target(self.listen)

    @property
    def words(self) -> str:
        """The place as the configuration file has it."""
        return str(self.socket or self.listen)


class MetricKind(StrEnum):
    """The type of a metric, in Prometheus's words."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


@dataclass(frozen=True)
class Metric:
    """A metric."""

    name: str
    """As it is exported, with its unit, and `_total` for a counter or `_info`."""
    kind: MetricKind
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
    "rado_build_info",
    MetricKind.INFO,
    "Version of radofed and the node's role. Always 1.",
    _OWN_FILES,
    ("version", "role"),
)
READY = Metric("rado_ready", MetricKind.GAUGE, "1 if the node does its work, otherwise 0.", _STATE)
NOT_READY = Metric(
    "rado_not_ready", MetricKind.GAUGE, "1 for each reason for which the node is not ready, otherwise 0.", _STATE,
    ("reason",),
)  # fmt: skip
CERTIFICATE_EXPIRY = Metric(
    "rado_certificate_expiry_timestamp_seconds", MetricKind.GAUGE,
    "When the certificate that this node uses expires, in Unix seconds.", "its own certificate",
)  # fmt: skip
ROSTER_EXPIRY = Metric(
    "rado_roster_expiry_timestamp_seconds", MetricKind.GAUGE,
    "When the newest roster that this node knows expires, in Unix seconds; +Inf if never.",
    "the roster, which all members have",
)  # fmt: skip
SENT_BYTES = Metric(
    "rado_sent_bytes_total", MetricKind.COUNTER,
    "Bytes of the messages that this node sent to members, without headers and TLS.",
    "its own network",
)  # fmt: skip
RECEIVED_BYTES = Metric(
    "rado_received_bytes_total", MetricKind.COUNTER,
    "Bytes of the messages that this node received from members, without headers and TLS.",
    "its own network",
)  # fmt: skip
SPOOL = Metric("rado_spool_bytes", MetricKind.GAUGE, "Bytes in the spool that count towards its quota.", "its own disk")
SPOOL_QUOTA = Metric("rado_spool_quota_bytes", MetricKind.GAUGE, "`spool_bytes` of the configuration file.", _OWN_FILES)
DISK_FREE = Metric("rado_disk_free_bytes", MetricKind.GAUGE, "Free bytes of the disk of the spool.", "its own disk")
DISK_SIZE = Metric("rado_disk_size_bytes", MetricKind.GAUGE, "Size of the disk of the spool.", "its own disk")

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
