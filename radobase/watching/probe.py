"""Asks a running node whether it is ready."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from radobase.files.reading import FileKind, parse_json, with_remedy
from radobase.local_http import fetch
from radobase.local_status import NotRunningError
from radobase.watching.server import READY
from radobase.watching.settings import WatchSettings

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
