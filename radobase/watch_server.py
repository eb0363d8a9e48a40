"""Serves /metrics, /healthz and /readyz to this machine.

No password is asked, so the settings allow a loopback address or a Unix socket only. A browser of this machine that a
page on the Internet sends here under another name (DNS rebinding) sends that name in Host, and is refused.
"""

import errno
import ipaddress
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from dpcore.errors import ConfigurationError, NotYetError
from radobase.configuration import split_target
from radobase.local_status import NOT_FOUND, HttpAnswer, LocalServer, NotRunningError, fetch
from radobase.logs import Log
from radobase.metrics import Reason, Sample, WatchSettings, readiness_to_dict, ready_samples
from radobase.reading import FileKind, parse_json, with_remedy

METRICS, ALIVE, READY = "/metrics", "/healthz", "/readyz"
KEPT_FOR_S: Final = 1.0
"""What was read is answered again for this long: callers cannot make a node read its state all the time."""

T = TypeVar("T")


class _Kept(Generic[T]):
    """The result of a call, made again after KEPT_FOR_S, one call at a time."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._lock = call, threading.Lock()
        self._value: tuple[float, T] | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._value is None or time.monotonic() - self._value[0] > KEPT_FOR_S:
                found = self._call()
                self._value = time.monotonic(), found
            return self._value[1]


class WatchServer(LocalServer):
    """Answers for a node until it is closed. A context manager.

    reasons: why the node is not ready, empty if it is. samples: all others than those of readiness. Threads call both,
    one at a time; an error of either is the reason STATE_UNREADABLE.
    """

    def __init__(
        self,
        settings: WatchSettings,
        *,
        reasons: Callable[[], Sequence[Reason]],
        samples: Callable[[], Iterable[Sample]],
        log: Log,
    ) -> None:
        """Raises ConfigurationError if the place cannot be used, ModuleNotFoundError without prometheus_client."""
        from radobase import exposition  # noqa: PLC0415  (it imports an extra)

        self._exposition, self._log = exposition, log
        self._read_reasons, self._read_samples = reasons, samples
        self._reasons, self._page = _Kept(self._safe_reasons), _Kept(self._metrics)
        self._is_loopback = settings.listen is not None
        if settings.socket is not None:
            _remove_left(settings.socket)
        try:
            super().__init__(settings.place)
        except OSError as error:
            fault = NotYetError if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL) else ConfigurationError
            raise fault(
                f"cannot serve metrics on {settings.words} ({error.strerror or error}); choose a free port, or a "
                "socket in a directory of this user"
            ) from error

    def answer(self, path: str, host: str) -> HttpAnswer:
        """The page at a path."""
        if self._is_loopback and not _names_loopback(host):
            return HttpAnswer(b"use a loopback address\n", "text/plain", HTTPStatus.MISDIRECTED_REQUEST)
        match path:
            case "/metrics":
                return self._page()
            case "/healthz":
                return HttpAnswer(b"alive\n", "text/plain")
            case "/readyz":
                reasons = self._reasons()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                return HttpAnswer(json.dumps(readiness_to_dict(reasons)).encode(), status=status)
            case _:
                return NOT_FOUND

    def _safe_reasons(self) -> Sequence[Reason]:
        try:
            return self._read_reasons()
        except Exception as error:  # noqa: BLE001 - an error is an answer here: this node is not ready
            self._log.warning("state not readable", error=type(error).__name__, reason=str(error))
            return (Reason.STATE_UNREADABLE,)

    def _metrics(self) -> HttpAnswer:
        reasons = self._reasons()
        try:
            samples = list(self._read_samples())
        except Exception as error:  # noqa: BLE001 - as above
            self._log.warning("state not readable", error=type(error).__name__, reason=str(error))
            reasons, samples = (*reasons, Reason.STATE_UNREADABLE), []
        page = self._exposition.exposition([*samples, *ready_samples(reasons)])
        return HttpAnswer(page, self._exposition.CONTENT_TYPE)


def _remove_left(path: Path) -> None:
    """Remove the socket of a node that was killed, and no other file. Raises ConfigurationError if a node answers."""
    if not path.is_socket():
        return
    try:
        fetch(path, ALIVE, limit_bytes=1)
    except OSError:
        path.unlink(missing_ok=True)
    else:
        raise ConfigurationError(f"another node serves metrics on {path}; give each node a socket of its own")


def _names_loopback(host: str) -> bool:
    """Whether this is the Host of a caller that used a loopback address, with its port."""
    try:
        name, _ = split_target(host)
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


# Asks a running node whether it is ready.


LIMIT_BYTES = 64 << 10
_ANSWER = FileKind(with_remedy("check that a node of radofed listens there", NotRunningError), limit_bytes=LIMIT_BYTES)


@dataclass(frozen=True)
class Health:
    """A node's answer."""

    reasons: tuple[tuple[str, str], ...]
    """Code and sentence of each reason why it is not ready, none if it is."""

    @classmethod
    def of_answer(cls, content: bytes, place: str) -> Self:
        """Read what /readyz answered. place: for the error. Raises NotRunningError if no node answers this way."""
        found = parse_json(content.decode(errors="replace"), Path(place), _ANSWER)
        reasons = []
        match found:
            case {"ready": bool(is_ready), "reasons": list(entries)}:
                for entry in entries:
                    match entry:
                        case {"code": str(code), "sentence": str(sentence)}:
                            reasons.append((code, sentence))
                if len(reasons) == len(entries) and is_ready == (not reasons):
                    return cls(tuple(reasons))
        raise _ANSWER.error(Path(place), "did not answer as a node does")

    def to_dict(self) -> dict[str, Any]:
        """As the node said it."""
        return {
            "ready": not self.reasons,
            "reasons": [{"code": code, "sentence": sentence} for code, sentence in self.reasons],
        }


def ask_ready(settings: WatchSettings) -> Health:
    """What the node answers to /readyz. Raises NotRunningError if none answers there."""
    try:
        _, content = fetch(settings.place, READY, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        raise NotRunningError(f"no node answers at {settings.words} ({error}); start it") from error
    return Health.of_answer(content, settings.words)
