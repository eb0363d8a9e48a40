"""A node's state, served as JSON over HTTP on a Unix socket in its state directory, and read by commands.

Whoever may open the directory may ask. No browser reaches a Unix socket, and no other machine.
"""

import http.client
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Thread
from typing import Any, Self

from dpcore.errors import RadofedError
from radofed.common.files.reading import FileKind, parse_json, with_remedy

FILE = "node.sock"
PATH = "/status"
TIMEOUT_S = 5.0
_STATUS = FileKind(with_remedy("restart the node"), limit_bytes=4 << 20)


class NotRunningError(RadofedError):
    """No node answers for this directory."""

    exit_code = 2


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's address. A path in it has at most 107 bytes, so Linux gets a short one for the same place."""
    if not sys.platform.startswith("linux"):
        yield str(directory / FILE)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{FILE}"
    finally:
        os.close(descriptor)


class _Handler(BaseHTTPRequestHandler):
    server: "StatusServer"
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            content = json.dumps(self.server.read()).encode()
        except RadofedError as error:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, type(error).__name__)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "local"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Nothing: who asks is on this machine."""


class StatusServer(ThreadingMixIn, UnixStreamServer):
    """Serves `read()`, in JSON types, in threads of its own until `close`. A context manager."""

    daemon_threads = True

    def __init__(self, directory: Path, read: Callable[[], Mapping[str, Any]]) -> None:
        """directory: of this node alone. Raises OSError."""
        self.read = read
        self._path = directory / FILE
        # The node holds the directory's lock, so a socket that is here belongs to no one.
        self._path.unlink(missing_ok=True)
        with _address(directory) as address:
            super().__init__(address, _Handler)
        self._path.chmod(0o600)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that goes away is no event: the base class would write a traceback to standard error."""

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, name="status", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        with suppress(OSError):
            self._path.unlink()


def read_status(directory: Path) -> dict[str, Any]:
    """What the running node of a directory says of itself. Raises NotRunningError if none answers."""
    connection = http.client.HTTPConnection("local", timeout=TIMEOUT_S)
    try:
        with _address(directory) as address, socket.socket(socket.AF_UNIX) as client:
            client.settimeout(TIMEOUT_S)
            client.connect(address)
            connection.sock = client
            connection.request("GET", PATH)
            response = connection.getresponse()
            content = response.read(_STATUS.limit_bytes)
        if response.status != HTTPStatus.OK:
            raise NotRunningError(f"the node of {directory} cannot say how it is ({response.reason}); see its log")
        return parse_json(content.decode(), directory / FILE, _STATUS)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotRunningError(f"no node answers for {directory} ({error}); start it") from error
