"""A node's state, served as JSON over HTTP on a Unix socket in its state directory, and read by commands.

Only the node's own user may ask, and give a node the commands that it takes. No browser reaches a Unix socket, and no
other machine.
"""

import http.client
import json
import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Self

from dpcore.errors import RadofedError
from radobase.reading import FileKind, parse_json, with_remedy

# Small HTTP servers for callers on this machine, bounded in threads and in time: a caller cannot hold a node up.


TIMEOUT_S = 5.0
"""A caller that sends or takes nothing for this long is cut off."""
LONGEST_CALL_S = 10.0
"""A call that is not over by then is cut off, also if its caller sends a byte now and then."""
LOOKS_EVERY_S = 0.5
"""How often a server without callers looks whether it shall end, or a call takes too long."""
MOST_CALLERS = 8
"""Callers that are served at one time, each in a thread. Further ones are cut off."""


@contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """A socket's address. A path in it has at most 107 bytes, so Linux gets a short one for the same place."""
    if not sys.platform.startswith("linux"):
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class HttpAnswer:
    """The content of a response, and its type."""

    content: bytes
    content_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK


NOT_FOUND = HttpAnswer(b"not found\n", "text/plain", HTTPStatus.NOT_FOUND)
NO_COMMANDS = HttpAnswer(b"only GET\n", "text/plain", HTTPStatus.METHOD_NOT_ALLOWED)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a caller on this machine."""

    server: "LocalServer"
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._send(self.server.answer(self.path, self.headers.get("Host", "")))

    def do_POST(self) -> None:
        self._send(self.server.command(self.path))

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def address_string(self) -> str:
        return "local"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Nothing: who asks is on this machine."""


class LocalServer(ThreadingMixIn, TCPServer, ABC):
    """Serves `answer` to callers of this machine, within the limits above. A context manager."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, place: Path | tuple[str, int]) -> None:
        """place: of a Unix socket that only this user may use, or host and port. Raises OSError."""
        self._path = place if isinstance(place, Path) else None
        self._callers: dict[Any, float] = {}
        self._callers_lock = threading.Lock()
        if not isinstance(place, Path):
            self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            super().__init__(place, _Handler)
            return
        self.address_family = socket.AF_UNIX
        with unix_address(place) as address:
            super().__init__(address, _Handler, bind_and_activate=False)  # type: ignore[arg-type]  # a path is right here
            try:
                self.server_bind()
                # Before it listens: no one else may connect.
                place.chmod(0o600)
                self.server_activate()
            except BaseException:
                self.server_close()
                raise

    @abstractmethod
    def answer(self, path: str, host: str) -> HttpAnswer:
        """The response to GET. host: the header of this name, empty without one. Threads call this."""

    def command(self, path: str) -> HttpAnswer:  # noqa: ARG002  (for subclasses)
        """The response to POST, which has no content. Threads call this."""
        return NO_COMMANDS

    def __enter__(self) -> Self:
        serve = partial(self.serve_forever, poll_interval=LOOKS_EVERY_S)
        threading.Thread(target=serve, name="local http", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a caller in a thread, or cut it off if there are too many."""
        with self._callers_lock:
            has_room = len(self._callers) < MOST_CALLERS
            if has_room:
                self._callers[request] = time.monotonic()
        if has_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """End a call."""
        with self._callers_lock:
            self._callers.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off calls that take too long. The base class calls this every LOOKS_EVERY_S."""
        super().service_actions()
        before = time.monotonic() - LONGEST_CALL_S
        with self._callers_lock:
            late = [request for request, begun in self._callers.items() if begun < before]
        for request in late:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that goes away is no event: the base class would write a traceback to standard error."""


def fetch(place: Path | tuple[str, int], path: str, *, limit_bytes: int, method: str = "GET") -> tuple[int, bytes]:
    """Status and content that the server at a place answers to GET, or to POST. Raises OSError if none does."""
    host, port = ("localhost", None) if isinstance(place, Path) else place
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        if isinstance(place, Path):
            with unix_address(place) as address, ExitStack() as opened:
                client = opened.enter_context(socket.socket(socket.AF_UNIX))
                client.settimeout(TIMEOUT_S)
                client.connect(address)
                opened.pop_all()
            connection.sock = client
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(limit_bytes)
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer ({error!r})") from error
    finally:
        connection.close()


FILE = "node.sock"
PATH = "/status"
LIMIT_BYTES = 4 << 20
_STATUS = FileKind(with_remedy("restart the node"), limit_bytes=LIMIT_BYTES)


class NotRunningError(RadofedError):
    """No node answers for this directory."""

    exit_code = 2


class UnreadableStateError(NotRunningError):
    """A node answers for this directory and cannot read its own state."""


class StatusServer(LocalServer):
    """Serves `read()`, in JSON types, in threads of its own until `close`. A context manager."""

    def __init__(
        self,
        directory: Path,
        read: Callable[[], Mapping[str, Any]],
        commands: Mapping[str, Callable[[], Mapping[str, Any]]] | None = None,
    ) -> None:
        """directory: of this node alone. commands: by path, each with an answer in JSON types. Raises OSError."""
        self.read, self._commands = read, commands or {}
        # The node holds the directory's lock, so a socket that is here belongs to no one.
        (directory / FILE).unlink(missing_ok=True)
        super().__init__(directory / FILE)

    def answer(self, path: str, host: str) -> HttpAnswer:  # noqa: ARG002  (no browser reaches a Unix socket)
        """The status as JSON. Says no more than the error's name if it cannot be read."""
        return _called(self.read) if path == PATH else NOT_FOUND

    def command(self, path: str) -> HttpAnswer:
        """Execute a command."""
        execute = self._commands.get(path)
        return NOT_FOUND if execute is None else _called(execute)


def _called(read: Callable[[], Mapping[str, Any]]) -> HttpAnswer:
    try:
        return HttpAnswer(json.dumps(read()).encode())
    except (RadofedError, TimeoutError) as error:
        return HttpAnswer(type(error).__name__.encode(), "text/plain", HTTPStatus.SERVICE_UNAVAILABLE)


def read_status(directory: Path) -> dict[str, Any]:
    """What the running node of a directory says of itself. Raises NotRunningError if none answers.

    Raises UnreadableStateError, which is one, if a node answers and cannot read its state.
    """
    return _ask(directory, PATH, "GET")


def send_command(directory: Path, path: str) -> dict[str, Any]:
    """Give the running node of a directory a command. Raises NotRunningError if none answers."""
    return _ask(directory, path, "POST")


def _ask(directory: Path, path: str, method: str) -> dict[str, Any]:
    try:
        status, content = fetch(directory / FILE, path, limit_bytes=LIMIT_BYTES, method=method)
        if status != HTTPStatus.OK:
            reason = content.decode(errors="replace").strip()
            raise UnreadableStateError(f"the node of {directory} could not answer {path} ({reason}); see its log")
        return parse_json(content.decode(), directory / FILE, _STATUS)
    except (OSError, ValueError) as error:
        raise NotRunningError(f"no node answers for {directory} ({error}); start it") from error
