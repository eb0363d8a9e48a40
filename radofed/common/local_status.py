"""A node's state, served as JSON over HTTP on a Unix socket in its state directory, and read by commands.

Whoever may open the directory may ask. No browser reaches a Unix socket, and no other machine.
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dpcore.errors import RadofedError
from radofed.common.files.reading import FileKind, parse_json, with_remedy
from radofed.common.local_http import NOT_FOUND, Answer, LocalServer, fetch

FILE = "node.sock"
PATH = "/status"
LIMIT_BYTES = 4 << 20
_STATUS = FileKind(with_remedy("restart the node"), limit_bytes=LIMIT_BYTES)


class NotRunningError(RadofedError):
    """No node answers for this directory."""

    exit_code = 2


class StatusServer(LocalServer):
    """Serves `read()`, in JSON types, in threads of its own until `close`. A context manager."""

    def __init__(self, directory: Path, read: Callable[[], Mapping[str, Any]]) -> None:
        """directory: of this node alone. Raises OSError."""
        self.read = read
        # The node holds the directory's lock, so a socket that is here belongs to no one.
        (directory / FILE).unlink(missing_ok=True)
        super().__init__(directory / FILE)

    def answer(self, path: str, host: str) -> Answer:  # noqa: ARG002  (no browser reaches a Unix socket)
        """The status as JSON. Says no more than the error's name if it cannot be read."""
        if path != PATH:
            return NOT_FOUND
        try:
            return Answer(json.dumps(self.read()).encode())
        except RadofedError as error:
            return Answer(type(error).__name__.encode(), "text/plain", HTTPStatus.SERVICE_UNAVAILABLE)


def read_status(directory: Path) -> dict[str, Any]:
    """What the running node of a directory says of itself. Raises NotRunningError if none answers."""
    try:
        status, content = fetch(directory / FILE, PATH, limit_bytes=LIMIT_BYTES)
        if status != HTTPStatus.OK:
            reason = content.decode(errors="replace")
            raise NotRunningError(f"the node of {directory} cannot say how it is ({reason}); see its log")
        return parse_json(content.decode(), directory / FILE, _STATUS)
    except (OSError, ValueError) as error:
        raise NotRunningError(f"no node answers for {directory} ({error}); start it") from error
