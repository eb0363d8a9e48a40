"""The same question twice: what this learner asked before is found on its disk, so that no answer is paid for twice.

Two queries ask the same if schema, kind with its noise, part of the rows, feature map and asked parties are the same,
whatever their purposes are: an answer that was given for another purpose is found, with that purpose.
"""

from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.printing import json_text, local_time
from wire.envelopes import sha256
from wire.query import Query
from wire.query_kinds import kind_bytes

REUSE = "--reuse (reuses=True)"
ASK_AGAIN = "--ask-again (asks_again=True)"


@dataclass(frozen=True)
class AskedBefore:
    """An earlier query that asks the same."""

    query_id: bytes
    asked_at_unix_s: int
    release: Path | None
    """The directory of its answer; None if it has none yet."""
    other_purpose: str = ""
    """What it is for, if that was signed and is not what is asked for now; empty otherwise. Parties agreed to that
    purpose."""

    @property
    def words(self) -> str:
        """What became of it, as a clause."""
        what = "its answer is not fetched yet" if self.release is None else f"the answer is in {self.release}"
        purpose = f" for the purpose {json_text(self.other_purpose)}" if self.other_purpose else ""
        return (
            f"query {self.query_id.hex()[:16]} asked the same parties the same{purpose} on "
            f"{local_time(self.asked_at_unix_s)}, and {what}"
        )


class AskedBeforeError(ConfigurationError):
    """A question was asked before, and nobody said that it may be charged again. Nothing was sent."""

    def __init__(self, earlier: AskedBefore, reuse: str = f"{REUSE} takes it from there") -> None:
        """reuse: how to have the earlier answer, a clause."""
        self.earlier = earlier
        super().__init__(f"{earlier.words}: {reuse}, at no cost; {ASK_AGAIN} asks again, and is charged again")


class NotAskedBeforeError(ConfigurationError):
    """Nothing may be asked, and there is no earlier answer to the question."""

    def __init__(self) -> None:
        super().__init__(
            f"no answer to this question, with this budget, cohort and these parties, is on disk: leave {REUSE} out to "
            "ask it"
        )


def question_digest(query: Query) -> str:
    """Identifies a query independently of its time and parties: a hash of schema, kind, part of the rows and map."""
    message = query.to_proto()
    parts = (part.SerializeToString(deterministic=True) for part in (message.held_back, message.feature_map))
    return sha256(query.schema.digest, kind_bytes(query.kind), *parts).hex()


def asks_the_same(query: Query, payload: bytes) -> bool:
    """Whether an earlier query, serialised, asks the same. Reading one takes long, so most are told apart by bytes."""
    if kind_bytes(query.kind) not in payload or query.schema.digest not in payload:
        return False
    earlier = Query.from_bytes(payload)
    same_parties = (query.binding and query.binding.parties) == (earlier.binding and earlier.binding.parties)
    return same_parties and question_digest(earlier) == question_digest(query)
