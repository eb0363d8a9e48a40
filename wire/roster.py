"""The roster: all members with their signing keys and certificates, signed by the offline federation key."""

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from rado.v1 import roster_pb2
from radobase.files.reading import FileKind, read_bytes
from radobase.printing import amount
from wire.codec import Travels, Wire
from wire.envelopes import KEY_BYTES, Envelope, Kind, Signable, key_id, spoken
from wire.errors import Code, WireError

NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
EXPIRY_SKEW_S = 300
"""How long after its expiry a roster is still used: clocks differ a little."""
EXPIRY_WARNING_DAYS = 30
"""Every node warns when its roster expires in fewer days than this."""
_DAY_S = 86_400
_LATEST_UNIX_S = 253_402_300_799  # the last second of the year 9999, the last that Python can print

LARGEST_VERSION = (1 << 63) - 1
"""A coordinator's database has signed 64-bit integers."""


class Role(Enum):
    """The role of a member."""

    PARTY = "party"
    COORDINATOR = "coordinator"
    LEARNER = "learner"


def certificate_san(federation: str, role: Role, name: str) -> str:
    """The URI subject alternative name of a member's TLS certificate."""
    return f"rado://{federation}/{role.value}/{name}"


@dataclass(frozen=True)
class Member(Wire[roster_pb2.Member]):
    """One organisation's node. `signing_key` is empty for a coordinator, which signs nothing.

    tls_key_hash: SHA-256 of its TLS key's SubjectPublicKeyInfo; empty if any certificate of its name is admitted.
    """

    role: Annotated[Role, Travels(unknown="This version does not know a member's role.")]
    name: str
    signing_key: bytes
    certificate_san: str
    rows_at_least: int | None = None
    tls_key_hash: bytes = b""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise WireError(Code.MESSAGE_MALFORMED, f"{self.name!r} is not a member's name (a-z, 0-9 and '-').")
        if len(self.signing_key) != (0 if self.role is Role.COORDINATOR else KEY_BYTES):
            raise WireError(Code.MESSAGE_MALFORMED, f"{self.name}'s signing key has the wrong length.")
        if len(self.tls_key_hash) not in {0, KEY_BYTES}:
            raise WireError(Code.MESSAGE_MALFORMED, f"The hash of {self.name}'s TLS key has the wrong length.")

    @property
    def digits(self) -> str:
        """30 digits of the signing key, which people read to each other; empty for a coordinator."""
        return spoken(self.signing_key) if self.signing_key else ""


@dataclass(frozen=True)
class Roster(Signable[roster_pb2.Roster]):
    """All members, in one version. not_after_unix_s: 0 if it does not expire.

    No member works with an expired roster: a coordinator that withholds the next version can keep a removed member in
    the federation only until then.
    """

    KIND: ClassVar[Kind] = Kind.ROSTER
    federation: str
    version: int
    issued_at_unix_s: int
    members: tuple[Member, ...]
    not_after_unix_s: int = 0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.federation) or not 1 <= self.version <= LARGEST_VERSION:
            raise WireError(Code.MESSAGE_MALFORMED, "The roster's federation or version is not valid.")
        if self.not_after_unix_s and not self.issued_at_unix_s < self.not_after_unix_s <= _LATEST_UNIX_S:
            raise WireError(Code.MESSAGE_MALFORMED, "The roster expires before it was issued, or after the year 9999.")
        for what, values in (
            ("names", [m.name for m in self.members]),
            ("signing keys", [m.signing_key for m in self.members if m.signing_key]),
            ("certificate names", [m.certificate_san for m in self.members]),
            ("TLS keys", [m.tls_key_hash for m in self.members if m.tls_key_hash]),
        ):
            if len(set(values)) != len(values):
                raise WireError(Code.MESSAGE_MALFORMED, f"Two members of the roster share {what}.")
        if sum(m.role is Role.COORDINATOR for m in self.members) != 1:
            raise WireError(Code.MESSAGE_MALFORMED, "A roster must have exactly one coordinator.")

    @property
    def parties(self) -> tuple[Member, ...]:
        """The parties, in the roster's order."""
        return tuple(m for m in self.members if m.role is Role.PARTY)

    def is_expired(self, now_unix_s: float) -> bool:
        """Whether no member may use it any more, with EXPIRY_SKEW_S of tolerance."""
        return self.not_after_unix_s != 0 and now_unix_s > self.not_after_unix_s + EXPIRY_SKEW_S

    def check_unexpired(self, now_unix_s: float) -> None:
        """Raise WireError(ROSTER_EXPIRED) if no member may use it any more."""
        if self.is_expired(now_unix_s):
            raise WireError(Code.ROSTER_EXPIRED, f"Version {self.version} expired on {self.expiry_date}.")

    @property
    def expiry_date(self) -> str:
        """The time of its expiry for people, "never" if it does not expire."""
        if not self.not_after_unix_s:
            return "never"
        return f"{dt.datetime.fromtimestamp(self.not_after_unix_s, dt.UTC):%Y-%m-%d %H:%M} UTC"

    def expiry_warning(self, now_unix_s: float) -> str:
        """One sentence for operators, empty if the roster is valid for EXPIRY_WARNING_DAYS or longer."""
        renew = "ask the operator to renew it with `rado provision renew-roster`"
        if not self.not_after_unix_s:
            return f"roster version {self.version} never expires, so a withheld newer one is not noticed; {renew}"
        days_left = (self.not_after_unix_s - now_unix_s) / _DAY_S
        if days_left >= EXPIRY_WARNING_DAYS:
            return ""
        if days_left < 0:
            return f"roster version {self.version} expired on {self.expiry_date}; {renew}"
        return (
            f"roster version {self.version} expires in {amount(int(days_left), 'day')}, on {self.expiry_date}; {renew}"
        )

    def find(self, name: str, role: Role) -> Member | None:
        """The member of this name and role, or None."""
        return self._by_name.get((name, role))

    def find_key(self, key_hash: bytes, role: Role) -> Member | None:
        """The member of this role whose signing key has this id, or None."""
        return self._by_key.get((key_hash, role))

    @cached_property
    def _by_key(self) -> dict[tuple[bytes, Role], Member]:
        return {(key_id(m.signing_key), m.role): m for m in self.members if m.signing_key}

    @cached_property
    def _by_name(self) -> dict[tuple[str, Role], Member]:
        return {(m.name, m.role): m for m in self.members}

    def find_certificate(self, san: str) -> Member | None:
        """The member whose certificate carries this name, or None."""
        return next((m for m in self.members if m.certificate_san == san), None)


def open_roster(envelope: Envelope, federation_key: bytes, *, at_least_version: int = 0) -> Roster:
    """Verify a roster against the pinned federation key and the newest version seen so far.

    Raises WireError(SIGNATURE_INVALID, MESSAGE_MALFORMED or ROSTER_STALE).
    """
    roster = _verified(envelope, federation_key)
    if roster.version < at_least_version:
        raise WireError(Code.ROSTER_STALE, f"Version {roster.version} came after version {at_least_version}.")
    return roster


def members_that_left(newest: Roster, older: Iterable[Roster]) -> list[tuple[Member, int]]:
    """Members that the newest roster does not list with the same key, each with the last older version that does."""
    present = {(member.role, member.name, member.signing_key) for member in newest.members}
    left: dict[tuple[Role, str, bytes], tuple[Member, int]] = {}
    for roster in sorted(older, key=lambda each: each.version):
        for member in roster.members:
            if (key := (member.role, member.name, member.signing_key)) not in present:
                left[key] = member, roster.version
    return list(left.values())


def read_roster(file: Path, federation_key: bytes, kind: FileKind) -> tuple[Envelope, Roster]:
    """The roster in a file, with its envelope. Raises the kind's error if the federation key did not sign it."""
    content = read_bytes(file, kind)
    try:
        envelope = Envelope.from_bytes(content)
        return envelope, open_roster(envelope, federation_key)
    except WireError as error:
        raise kind.error(file, f"is not a roster of this federation key ({error.public_sentence})") from error


# A learner opens its roster at every step of a query. An error is not kept.
@lru_cache(maxsize=4)
def _verified(envelope: Envelope, federation_key: bytes) -> Roster:
    roster = Roster.from_bytes(envelope.payload)
    envelope.open(Kind.ROSTER, roster.federation, federation_key)
    return roster


def open_from_party(envelope: Envelope, kind: Kind, name: str, roster: Roster) -> Member:
    """The party of this name, after verifying its envelope. Raises WireError(PEER_UNKNOWN or SIGNATURE_INVALID)."""
    member = roster.find(name, Role.PARTY)
    if member is None:
        raise WireError(Code.PEER_UNKNOWN, f"The roster has no party {name!r}.")
    open_from(envelope, kind, member, roster.federation)
    return member


def open_from(envelope: Envelope, kind: Kind, member: Member, federation: str) -> bytes:
    """The payload of the envelope of a federation's member. Raises WireError(SIGNATURE_INVALID)."""
    if envelope.key_id != key_id(member.signing_key):
        raise WireError(Code.SIGNATURE_INVALID, f"The {kind} is not signed with {member.name}'s key in the roster.")
    return envelope.open(kind, federation, member.signing_key)
