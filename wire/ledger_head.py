"""Where a party's ledger stands, as it travels in acceptances and receipts."""

from dataclasses import dataclass

from rado.v1 import cohort_pb2
from wire.envelopes import KEY_BYTES
from wire.errors import Code, WireError

MAX_SEALED_BYTES = 512


@dataclass(frozen=True)
class LedgerHead:
    """A ledger's chain after `entries` entries. digest: 32 bytes. sealed_sums: readable to the party alone."""

    entries: int
    digest: bytes
    sealed_sums: bytes

    def __post_init__(self) -> None:
        # A coordinator's database has signed 64-bit integers.
        if not 1 <= self.entries < 1 << 63 or len(self.digest) != KEY_BYTES or len(self.sealed_sums) > MAX_SEALED_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "A ledger head is not well formed.")

    def to_proto(self) -> cohort_pb2.LedgerHead:
        """The message that travels."""
        return cohort_pb2.LedgerHead(entries=self.entries, digest=self.digest, sealed_sums=self.sealed_sums)

    @classmethod
    def from_proto(cls, message: cohort_pb2.LedgerHead) -> "LedgerHead":
        """Raises WireError."""
        return cls(message.entries, message.digest, message.sealed_sums)
