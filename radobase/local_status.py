"""A node's state, served as JSON over HTTP on a Unix socket in its state directory, and read by commands.

Only the node's own user may ask, and give a node the commands that it takes. No browser reaches a Unix socket, and no
other machine.
"""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from dpcore.errors import RadofedError
from radobase.files.reading import FileKind, parse_json, with_remedy
from radobase.local_http import NOT_FOUND, Answer, LocalServer, fetch

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

    def answer(self, path: str, host: str) -> Answer:  # noqa: ARG002  (no browser reaches a Unix socket)
        """The status as JSON. Says no more than the error's name if it cannot be read."""
        return _called(self.read) if path == PATH else NOT_FOUND

    def command(self, path: str) -> Answer:
        """Execute a command."""
        execute = self._commands.get(path)
        return NOT_FOUND if execute is None else _called(execute)


def _called(read: Callable[[], Mapping[str, Any]]) -> Answer:
    try:
        return Answer(json.dumps(read()).encode())
    except (RadofedError, TimeoutError) as error:
        return Answer(type(error).__name__.encode(), "text/plain", HTTPStatus.SERVICE_UNAVAILABLE)


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
