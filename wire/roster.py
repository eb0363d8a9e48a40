"""The roster: all members with their keys and certificates, signed by the federation key; how one is accepted."""

import datetime as dt
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from dpcore.errors import ConfigurationError
from rado.v1 import roster_pb2
from radobase.printing import amount
from radobase.reading import FileKind, read_bytes, with_remedy
from wire.codec import Travels, Wire
from wire.envelopes import (
    KEY_BYTES,
    Envelope,
    MessageType,
    Signable,
    fingerprint,
    key_id,
    load_public_key,
    same_digits,
    spoken,
)
from wire.errors import Code, WireError

NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
EXPIRY_SKEW_S = 300
"""How long after its expiry a roster is still used: clocks differ a little."""
EXPIRY_WARNING_DAYS = 30
"""Every node warns when its roster expires in fewer days than this."""
_DAY_S = 86_400
_LATEST_UNIX_S = 253_402_300_799  # the last second of the year 9999, the last that Python can print

MOST_ADDRESSES = 64
"""Of the coordinator, in a roster: the present one and former ones."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}")
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

    KIND: ClassVar[MessageType] = MessageType.ROSTER
    federation: str
    version: int
    issued_at_unix_s: int
    members: tuple[Member, ...]
    not_after_unix_s: int = 0
    coordinator_address: str = ""
    """Where members dial the coordinator since it moved; empty if it never did."""
    former_addresses: tuple[str, ...] = ()
    """Where they dialled it before."""

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
        self._check_addresses()

    def _check_addresses(self) -> None:
        all_ = (*self.former_addresses, *([self.coordinator_address] if self.coordinator_address else []))
        if bool(self.former_addresses) != bool(self.coordinator_address) or len(set(all_)) != len(all_):
            raise WireError(Code.MESSAGE_MALFORMED, "A roster has a new address of the coordinator or none, once each.")
        if len(all_) > MOST_ADDRESSES or not all(_ADDRESS.fullmatch(each) for each in all_):
            raise WireError(Code.MESSAGE_MALFORMED, "An address of the coordinator in the roster is not HOST:PORT.")

    def dialled(self, configured: str) -> str:
        """Where a member with this address in its configuration dials the coordinator."""
        return self.coordinator_address if configured in self.former_addresses else configured

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
        return self._by_certificate.get(san)

    # Looked up at every call of every member.
    @cached_property
    def _by_certificate(self) -> dict[str, Member]:
        return {m.certificate_san: m for m in self.members}


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
    envelope.open(MessageType.ROSTER, roster.federation, federation_key)
    return roster


def open_from_party(envelope: Envelope, kind: MessageType, name: str, roster: Roster) -> Member:
    """The party of this name, after verifying its envelope. Raises WireError(PEER_UNKNOWN or SIGNATURE_INVALID)."""
    member = roster.find(name, Role.PARTY)
    if member is None:
        raise WireError(Code.PEER_UNKNOWN, f"The roster has no party {name!r}.")
    open_from(envelope, kind, member, roster.federation)
    return member


def open_from(envelope: Envelope, kind: MessageType, member: Member, federation: str) -> bytes:
    """The payload of the envelope of a federation's member. Raises WireError(SIGNATURE_INVALID)."""
    if envelope.key_id != key_id(member.signing_key):
        raise WireError(Code.SIGNATURE_INVALID, f"The {kind} is not signed with {member.name}'s key in the roster.")
    return envelope.open(kind, federation, member.signing_key)


# A member is accepted by its key's fingerprint, which its owner read out over another channel, such as the telephone.
#
# Parties accept other parties and learners so (`rado party accept`), and learners parties (`rado learner accept`).


_INSTALLED = FileKind(with_remedy("install the operator's answer again"), limit_bytes=4 << 20, decides=True)
_KEY_ID = re.compile(r"[0-9a-f]{64}")


def _key_id(text: str) -> str:
    digits = re.sub(r"[:\s]", "", text).lower()
    if not _KEY_ID.fullmatch(digits):
        raise ValueError("a fingerprint has 64 hexadecimal digits, as `rado party check` prints them")
    return digits


KeyFingerprint = Annotated[str, AfterValidator(_key_id)]
"""A signing key's fingerprint, stored as 64 hexadecimal digits without colons."""


def installed_rosters(directory: Path, federation_key: bytes) -> list[Roster]:
    """The roster that the operator's answer brought into a member's directory, verified; empty if there is none.

    Raises ConfigurationError if it cannot be read, or another key signed it.
    """
    file = directory / "roster.signed"
    return [read_roster(file, federation_key, _INSTALLED)[1]] if file.exists() else []


def coordinator_addresses(configured: str, state_directory: Path, federation_key: Path) -> tuple[str, ...]:
    """Where a member dials the coordinator: after its last move that the member knows of, then as configured.

    One address if it did not move. Raises ConfigurationError if the stored roster cannot be read.
    """
    found = installed_rosters(state_directory, load_public_key(federation_key))
    return tuple(dict.fromkeys([*(roster.dialled(configured) for roster in found), configured]))


def find_confirmed(
    name: str,
    digits: str,
    known: Iterable[Roster],
    served: Callable[[], Roster | None],
    *,
    may_accept: Callable[[Member], bool],
    who: str,
) -> Member:
    """The member of this name whose key has this fingerprint.

    It is looked for in the newest of the rosters that are on disk, then in the one that the coordinator serves. digits:
    what the member's owner read out. known: verified. may_accept: which members may be accepted. who: their roles, for
    errors. Raises ConfigurationError if the newest roster has no such member, or another key.
    """

    def find(roster: Roster) -> Member | None:
        return next((m for m in roster.members if m.name == name and may_accept(m)), None)

    newest = max(known, key=lambda roster: roster.version, default=None)
    if newest is None or not _is_confirmed(find(newest), digits):
        newest = served() or newest
    if newest is None:
        raise ConfigurationError(
            f"no roster is here yet, and the coordinator cannot be reached, so no key of {name!r} is known: install "
            "the operator's answer, or try again later"
        )
    member = find(newest)
    if member is None:
        others = ", ".join(m.name for m in newest.members if may_accept(m))
        raise ConfigurationError(f"the roster has no {who} {name!r}; it has {others or 'none'}")
    if not _is_confirmed(member, digits):
        raise ConfigurationError(
            f"the roster's key of {name} has another fingerprint than {digits}: ask its owner again, to whom `rado "
            "provision install` and `rado party check` print it; if they still differ, accept nothing and ask the "
            "operator who signed this roster"
        )
    return member


def _is_confirmed(member: Member | None, digits: str) -> bool:
    """Whether these are the key's digits, or its whole fingerprint in hexadecimal digits."""
    if member is None:
        return False
    whole = fingerprint(member.signing_key).replace(":", "")
    return same_digits(digits, member.digits) or digits.replace(":", "").strip().lower() == whole
