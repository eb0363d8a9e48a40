"""Asks a running node whether it is ready."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from radofed.common.files.reading import FileKind, parse_json, with_remedy
from radofed.common.local_http import fetch
from radofed.common.local_status import NotRunningError
from radofed.common.watching.server import READY
from radofed.common.watching.settings import WatchSettings

_LIMIT_BYTES = 64 << 10
_ANSWER = FileKind(with_remedy("check that a node of radofed listens there", NotRunningError), limit_bytes=_LIMIT_BYTES)


def ask_ready(settings: WatchSettings) -> Mapping[str, Any]:
    """What the node answers to /readyz. Raises NotRunningError if none answers there."""
    try:
        status, content = fetch(settings.place, READY, limit_bytes=_LIMIT_BYTES)
    except OSError as error:
        raise NotRunningError(f"no node answers at {settings.words} ({error}); start it") from error
    found = parse_json(content.decode(errors="replace"), Path(settings.words), _ANSWER)
    match found:
        case {"ready": bool(is_ready), "reasons": list()} if is_ready == (status == HTTPStatus.OK):
            return found
        case _:
            raise _ANSWER.error(Path(settings.words), "did not answer as a node does")
