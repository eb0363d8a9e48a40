"""The last refusals of this party, in a file beside its ledger, for `rado party check` to explain.

Advice, not evidence: the ledger counts, this only says why a query that is gone by now was not answered.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radofed.common.files.reading import FileKind, read_json, with_remedy
from radofed.common.files.writing import write_durably
from wire.errors import Code

FILE = "refusals.json"
KEPT = 20
LONGEST_DETAIL = 500
_FORMAT = 1
# The end of the year 9999.
_LAST_DATE_UNIX_S = 253_402_300_799
_REFUSALS = FileKind(with_remedy("remove the file"), limit_bytes=1 << 20)


@dataclass(frozen=True)
class Refused:
    """One refusal. query_id: hexadecimal. detail: a sentence, as a schema's differing fields; may be empty.

    detail never quotes a cell. Raises ValueError where it is not a refusal's record.
    """

    at_unix_s: int
    query_id: str
    attempt: int
    code: Code
    detail: str

    def __post_init__(self) -> None:
        bytes.fromhex(self.query_id)
        if not isinstance(self.at_unix_s, int) or not isinstance(self.attempt, int) or not isinstance(self.detail, str):
            raise ValueError(f"not a refusal: {self!r}")  # noqa: TRY004 - one error for all that a file may hold
        if not 0 <= self.at_unix_s <= _LAST_DATE_UNIX_S:
            raise ValueError("no date")

    @classmethod
    def now(cls, now_unix_s: float, query_id: bytes, attempt: int, code: Code, detail: str) -> "Refused":
        """A refusal as it is given; a long detail is cut."""
        return cls(int(now_unix_s), query_id.hex(), attempt, code, detail[:LONGEST_DETAIL])

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Refused":
        """What a file holds. Raises ValueError, KeyError or TypeError."""
        return cls(**{**entry, "code": Code(entry["code"])})


class Refusals:
    """The last KEPT refusals, oldest first. One process writes; others may read at any time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._lock = threading.Lock()

    def kept(self) -> tuple[Refused, ...]:
        """What is remembered; nothing where the file is absent or is not what was written."""
        try:
            held = read_json(self._path, _REFUSALS)
            return tuple(Refused.of(entry) for entry in held["refusals"]) if held["format"] == _FORMAT else ()
        except (ConfigurationError, ValueError, KeyError, TypeError):
            return ()

    def note(self, refused: Refused) -> None:
        """Remember a refusal, in place of an earlier one of the same attempt. Raises OSError."""
        with self._lock:
            others = [old for old in self.kept() if (old.query_id, old.attempt) != (refused.query_id, refused.attempt)]
            entries = [asdict(each) for each in (*others, refused)[-KEPT:]]
            content = json.dumps({"format": _FORMAT, "refusals": entries}).encode()
            # Readers see the old file or the new one; that a crash may lose the last refusals is no harm.
            write_durably(self._path, content, temporary=self._path.with_name(f".{FILE}.new"), synced=False)
