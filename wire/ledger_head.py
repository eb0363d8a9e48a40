"""Where a party's ledger stands, as it travels in acceptances and receipts."""

from dataclasses import dataclass

from rado.v1 import cohort_pb2
from wire.codec import Wire
from wire.envelopes import KEY_BYTES
from wire.errors import Code, WireError

MAX_SEALED_BYTES = 512
MAX_ENTRIES = (1 << 63) - 1
"""The largest integer of a database."""


@dataclass(frozen=True)
class LedgerHead(Wire[cohort_pb2.LedgerHead]):
    """A ledger's chain after `entries` entries. digest: 32 bytes. sealed_sums: readable to the party alone."""

    entries: int
    digest: bytes
    sealed_sums: bytes

    def __post_init__(self) -> None:
        if (
            not 1 <= self.entries <= MAX_ENTRIES
            or len(self.digest) != KEY_BYTES
            or len(self.sealed_sums) > MAX_SEALED_BYTES
        ):
            raise WireError(Code.MESSAGE_MALFORMED, "A ledger head is not well formed.")
