"""The last refusals of this party, in a file in its state directory, for `rado party check`.

For information only: the ledger counts; this file explains why the party did not take part in a query that is now gone,
because it refused the query, or accepted it and later refused its cohort or failed to compute.
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
    """One refusal. query_id: hexadecimal. detail: a sentence, such as the differing fields of a schema; may be empty.

    detail never quotes a cell. Raises ValueError if the fields are not a valid refusal.
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
            raise ValueError("not a date")

    @classmethod
    def now(cls, now_unix_s: float, query_id: bytes, attempt: int, code: Code, detail: str) -> "Refused":
        """A refusal at the given time. Truncates a long detail."""
        return cls(int(now_unix_s), query_id.hex(), attempt, code, detail[:LONGEST_DETAIL])

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Refused":
        """A refusal from its entry in a file. Raises ValueError, KeyError or TypeError."""
        return cls(**{**entry, "code": Code(entry["code"])})


class Refusals:
    """The last KEPT refusals, oldest first. One process writes; others may read at any time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._lock = threading.Lock()

    def kept(self) -> tuple[Refused, ...]:
        """The stored refusals; empty if the file is missing or damaged."""
        try:
            held = read_json(self._path, _REFUSALS)
            return tuple(Refused.of(entry) for entry in held["refusals"]) if held["format"] == _FORMAT else ()
        except (ConfigurationError, ValueError, KeyError, TypeError):
            return ()

    def note(self, refused: Refused) -> None:
        """Store a refusal. Replaces an earlier one of the same attempt. Raises OSError."""
        with self._lock:
            others = [old for old in self.kept() if (old.query_id, old.attempt) != (refused.query_id, refused.attempt)]
            entries = [asdict(each) for each in (*others, refused)[-KEPT:]]
            content = json.dumps({"format": _FORMAT, "refusals": entries}).encode()
            # Readers see the old file or the new one. A crash may lose the last refusals, which is harmless.
            write_durably(self._path, content, temporary=self._path.with_name(f".{FILE}.new"), synced=False)
