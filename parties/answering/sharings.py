"""The keys of attempts whose members may vanish, durable, in the ledger's file: one row an attempt, until it is over.

A row begins with the acceptance. `dealt` binds it to one sharing and `unmasked` to one set of survivors, each with the
bytes that are sent, in one transaction before they are sent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from parties.database import PartyDatabase
from parties.ledger.ledger import LedgerConflictError
from wire.envelopes import Envelope


@dataclass(frozen=True)
class Sharing:
    """What is kept of one attempt."""

    secret: bytes = field(repr=False)
    """What the share key and the seed of its own mask derive from."""
    mask_key: bytes = field(repr=False)
    """The raw X25519 private key of the acceptance."""
    sharing_digest: bytes | None
    """Of what it dealt for, None before that."""


class Sharings:
    """The rows of one party."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    def begin(self, query_id: bytes, attempt: int, *, secret: bytes, mask_key: bytes) -> None:
        """Keep the keys of an acceptance, within the caller's transaction."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO sharings VALUES (?, ?, ?, ?, NULL, NULL, NULL, NULL)",
                (query_id, attempt, secret, mask_key),
            )

    def find(self, query_id: bytes, attempt: int) -> Sharing:
        """What is kept. Raises LedgerConflictError if there is nothing: the file is a copy, or the attempt is over."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT secret, mask_key, sharing_digest FROM sharings WHERE query_id = ? AND attempt = ?",
                (query_id, attempt),
            ).fetchone()
        if row is None:
            raise LedgerConflictError(query_id, attempt, "has no keys to share any more")
        return Sharing(*row)

    def dealt(self, query_id: bytes, attempt: int, digest: bytes, make: Callable[[], Envelope]) -> Envelope:
        """Deal for the sharing of this digest: what was made first. Raises LedgerConflictError for another one."""
        return self._once("sharing_digest", "key_shares", query_id, attempt, digest, make)

    def unmasked(self, query_id: bytes, attempt: int, digest: bytes, make: Callable[[], Envelope]) -> Envelope:
        """Unmask the survivors of this digest: what was made first. Raises LedgerConflictError for others."""
        return self._once("survivors_digest", "unmasking", query_id, attempt, digest, make)

    def _once(
        self, bound: str, kept: str, query_id: bytes, attempt: int, digest: bytes, make: Callable[[], Envelope]
    ) -> Envelope:
        with self._database.transaction() as connection:
            self.find(query_id, attempt)
            former, envelope = connection.execute(
                f"SELECT {bound}, {kept} FROM sharings WHERE query_id = ? AND attempt = ?",  # noqa: S608  (own names)
                (query_id, attempt),
            ).fetchone()
            if former is not None:
                if former != digest:
                    raise LedgerConflictError(query_id, attempt, "gave its shares for other members")
                return Envelope.from_bytes(envelope)
            made = make()
            connection.execute(
                f"UPDATE sharings SET {bound} = ?, {kept} = ? WHERE query_id = ? AND attempt = ?",  # noqa: S608
                (digest, made.to_bytes(), query_id, attempt),
            )
            return made

    def erase(self, query_id: bytes, attempt: int) -> None:
        """Erase the keys of an attempt that is over, within the caller's transaction."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM sharings WHERE query_id = ? AND attempt = ?", (query_id, attempt))
