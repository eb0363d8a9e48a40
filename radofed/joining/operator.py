"""The operator's side: found a federation, admit members by their requests, renew and replace, remove.

The operator's directory, kept offline: federation.key, ca.key, ca.pem, federation.pub, roster.signed, requests/, and
admissions/ with the answers to send. `rado provision init` makes one, too.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coordinator.config import CoordinatorConfig
from coordinator.membership import Admissions, read_own_roster
from dpcore.errors import ConfigurationError
from rado.v1 import join_pb2
from radobase.logs import Log
from radobase.writing import BY_UMASK, create_durably, write_durably
from radofed.certificates import LONGEST_FEDERATION, Authority, private_pem
from radofed.joining.installing import Admission, is_older, read_file
from radofed.joining.requests import SUFFIX, JoinRequest, ReceivedRequest
from radofed.provision import (
    ROSTER_DAYS,
    ROSTER_FILE,
    certificate_hosts,
    check_clock,
    check_empty,
    expiry_unix_s,
    join_address,
    signed_roster,
    split_address,
)
from wire.envelopes import (
    MessageType,
    SigningKey,
    fingerprint,
    load_public_key,
    public_key_of,
    save_public_key,
    sha256,
    spoken,
)
from wire.identity import Certificate
from wire.roster import Member, Role, Roster

ADMISSION_SUFFIX = ".admission"
REQUESTS, ADMISSIONS = "requests", "admissions"


@dataclass(frozen=True)
class Founded:
    """A federation without members."""

    directory: Path
    federation: str
    spoken: str

    def sentences(self) -> list[str]:
        """For the operator."""
        return [
            f"{self.directory}: keep it offline. Anyone who has it can add members.",
            f"the federation's fingerprint, to read to every member over the telephone: {self.spoken}",
            "next: `rado provision sign` with the coordinator's request and those of other members",
        ]


@dataclass(frozen=True)
class Admitted:
    """Members whose requests were signed."""

    roster: Roster
    roster_file: Path
    files: tuple[tuple[JoinRequest, Path], ...]
    """The admission of each, to send to it."""
    spoken: str
    warning: str = ""
    """Of the authority."""

    def sentences(self) -> list[str]:
        """For the operator: what to send to whom."""
        lines = [
            f"{file}: send it to {request.role.value} {request.name}; it holds no secret"
            for request, file in self.files
        ]
        return [
            *lines,
            f"the federation's fingerprint, to read to them over the telephone: {self.spoken}",
            f"{self.roster_file}: roster version {self.roster.version}, expires {self.roster.expiry_date}",
            *self._roster_words(),
            *self._acceptance_words(),
            *([f"Warning: {self.warning}."] if self.warning else []),
        ]

    def _roster_words(self) -> list[str]:
        """Who needs the roster, unless its answer to the coordinator carries it."""
        if any(request.role is Role.COORDINATOR for request, _ in self.files):
            return []
        command = "rado coordinator roster new.signed --config coordinator.toml"
        return [f"send the roster to the coordinator's administrator, who saves it as new.signed: {command}"]

    def _acceptance_words(self) -> list[str]:
        parties = [request.name for request, _ in self.files if request.role is Role.PARTY]
        if not parties:
            return []
        words = "no learner asks them, and they count for no party, until each learner and party has accepted them"
        return [f"{', '.join(parties)}: {words} (`rado learner accept`, `rado party accept`)"]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "federation": self.roster.federation,
            "federation_fingerprint": self.spoken,
            "roster_version": self.roster.version,
            "roster_expires": self.roster.expiry_date,
            "roster": self.roster_file,
            "authority_warning": self.warning,
            "admissions": [
                {"role": request.role.value, "name": request.name, "file": file} for request, file in self.files
            ],
        }


def found(directory: Path, federation: str, now: dt.datetime | None = None) -> Founded:
    """Make the keys of a new federation, without members. The directory must be absent or empty."""
    if len(federation) > LONGEST_FEDERATION:
        raise ConfigurationError(f"{federation!r}: give a name of at most {LONGEST_FEDERATION} characters")
    check_empty(directory)
    authority, key = Authority.create(federation, now or dt.datetime.now(dt.UTC)), SigningKey.generate(federation)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    key.save(directory / "federation.key")
    create_durably(directory / "ca.key", private_pem(authority.key))
    write_durably(directory / "ca.pem", authority.certificate_pem, mode=BY_UMASK)
    save_public_key(directory / "federation.pub", key.public_bytes)
    return Founded(directory, federation, spoken(key.public_bytes))


def admit(
    directory: Path,
    received: Sequence[ReceivedRequest],
    *,
    coordinator: str = "",
    replaced: bool = False,
    days: int = ROSTER_DAYS,
    now: dt.datetime | None = None,
) -> Admitted:
    """Sign certificates and the next roster for members whose requests the operator has compared.

    coordinator: "host:port" that members dial, if this directory has no coordinator's request. replaced: whether a
    member may get another signing key than the roster has. A request with the key that the roster has renews the
    certificate. Raises ConfigurationError before anything is signed.
    """
    now, requests = now or dt.datetime.now(dt.UTC), [each.request for each in received]
    own, authority = directory / "federation.key", Authority.load(directory)
    old = signed_roster(directory / ROSTER_FILE, public_key_of(own)) if (directory / ROSTER_FILE).exists() else None
    if old is not None:
        authority = replace(authority, federation=old.federation)
    key = SigningKey.load(own, authority.federation)
    _check_requests(requests, authority.federation)

    if old is not None:
        check_clock(now, old)
    for request in requests:
        _check_key(request, old, replaced=replaced)
    address = _coordinator_address(directory, requests, coordinator, old)
    certificates = [_certificate(authority, request, now, old) for request in requests]
    roster = _next_roster(authority.federation, old, requests, expiry_unix_s(now, days), int(now.timestamp()))
    return signed_answers(directory, received, Signing(authority, key, roster, address, now), certificates)


@dataclass(frozen=True)
class Signing:
    """What an operator signs a roster and admissions with."""

    authority: Authority
    key: SigningKey
    roster: Roster
    address: str
    """Where members dial the coordinator."""
    now: dt.datetime


def signed_answers(
    directory: Path, received: Sequence[ReceivedRequest], signing: Signing, certificates: Sequence[bytes]
) -> Admitted:
    """Sign the roster, and an admission for each request."""
    key, roster, authority = signing.key, signing.roster, signing.authority
    signed = roster.sign(key)
    # First of all: a version that was sent to a member must not be signed a second time, with other members.
    file = directory / ROSTER_FILE
    write_durably(file, signed.to_bytes(), mode=BY_UMASK)
    files = []
    for each, certificate in zip(received, certificates, strict=True):
        admission = join_pb2.Admission(
            request_digest=sha256(each.request.to_bytes()),
            certificate=certificate,
            authority=authority.certificate_pem,
            roster=signed.to_proto(),
            coordinator_address=signing.address,
        )
        files.append((each.request, _write(directory, each, key, admission)))
    return Admitted(roster, file, tuple(files), spoken(key.public_bytes), authority.expiry_warning(signing.now))


def _check_requests(requests: Sequence[JoinRequest], federation: str) -> None:
    if not requests:
        raise ConfigurationError("no request: give the files that members sent")
    names = [request.name for request in requests]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"several requests of {', '.join(twice)}; give the one that the member means")
    for request in requests:
        if request.federation != federation:
            raise ConfigurationError(
                f"{request.name} asks to join {request.federation!r}, and this directory is of {federation!r}; ask for "
                "a request to this federation"
            )


def _check_key(request: JoinRequest, old: Roster | None, *, replaced: bool) -> None:
    """Raise ConfigurationError if the roster has another member, or another key, under this name."""
    listed = None if old is None else next((m for m in old.members if m.name == request.name), None)
    if listed is None:
        if replaced:
            raise ConfigurationError(f"the roster has no member {request.name!r}: admit it with `rado provision sign`")
        return
    if listed.role is not request.role:
        raise ConfigurationError(f"the roster has a {listed.role.value} {request.name!r}; choose another name")
    if listed.signing_key and listed.signing_key != request.signing_key and not replaced:
        raise ConfigurationError(
            f"{request.name} has another signing key in the roster ({fingerprint(listed.signing_key)}): if it lost its "
            "keys, compare the new request with it and use `rado provision replace-key`"
        )


def _coordinator_address(directory: Path, requests: Sequence[JoinRequest], given: str, old: Roster | None) -> str:
    coordinators = [request for request in requests if request.role is Role.COORDINATOR]
    if not coordinators:
        kept = sorted((directory / REQUESTS).glob(f"*{SUFFIX}"))
        all_kept = (ReceivedRequest.load(file).request for file in kept)
        coordinators = [request for request in all_kept if request.role is Role.COORDINATOR]
    known = coordinators[-1].address if coordinators else ""
    if old is not None:
        known = old.dialled(known) or old.coordinator_address
    if known and given and given != known:
        raise ConfigurationError(
            f"--coordinator {given}, but members dial {known}: leave it out; if the coordinator moves there, use `rado "
            "provision move`"
        )
    address = given or known
    if not address:
        raise ConfigurationError(
            "no coordinator is known here: give its request first, or --coordinator HOST:PORT as members dial it"
        )
    return join_address(*split_address(address))


def _certificate(authority: Authority, request: JoinRequest, now: dt.datetime, old: Roster | None) -> bytes:
    address = request.address if old is None else old.dialled(request.address)
    hosts = certificate_hosts(split_address(address)[0]) if address else ()
    try:
        return authority.sign_request(request.certificate_request, request.role, request.name, now, hosts=hosts)
    except ConfigurationError as error:
        raise ConfigurationError(f"request of {request.name}: {error}") from error


def _next_roster(
    federation: str, old: Roster | None, requests: Sequence[JoinRequest], not_after: int, issued: int
) -> Roster:
    new = {request.name: request.member for request in requests}
    kept = () if old is None else tuple(new.pop(member.name, member) for member in old.members)
    members = _in_order((*kept, *new.values()))
    if [m.role for m in members].count(Role.COORDINATOR) != 1:
        raise ConfigurationError("a federation has exactly one coordinator: sign its request first, or with the others")
    if old is None:
        return Roster(federation, 1, issued, members, not_after)
    return replace(old, version=old.version + 1, issued_at_unix_s=issued, members=members, not_after_unix_s=not_after)


def _in_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """Coordinator, parties, learners; within a role as they joined."""
    order = (Role.COORDINATOR, Role.PARTY, Role.LEARNER)
    return tuple(sorted(members, key=lambda member: order.index(member.role)))


def _write(directory: Path, received: ReceivedRequest, key: SigningKey, admission: join_pb2.Admission) -> Path:
    """Keep the request, for a renewal, and write the answer to it."""
    envelope = key.sign(MessageType.ADMISSION, admission.SerializeToString(deterministic=True))
    content = join_pb2.AdmissionFile(federation_key=key.public_bytes, admission=envelope.to_proto())
    for name in (REQUESTS, ADMISSIONS):
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    name = received.request.name
    write_durably(directory / REQUESTS / f"{name}{SUFFIX}", received.content)
    file = directory / ADMISSIONS / f"{name}{ADMISSION_SUFFIX}"
    write_durably(file, content.SerializeToString(deterministic=True), mode=BY_UMASK)
    return file


def kept_requests(directory: Path, names: Sequence[str]) -> list[ReceivedRequest]:
    """The requests by which these members were admitted, to renew their certificates with the same keys.

    Raises ConfigurationError if one is not kept here.
    """
    files = [directory / REQUESTS / f"{name}{SUFFIX}" for name in names]
    for name, file in zip(names, files, strict=True):
        if not file.exists():
            raise ConfigurationError(
                f"{file}: no request of {name} is kept here: let it make a new one with `rado provision request`"
            )
    return [ReceivedRequest.load(file) for file in files]


# The coordinator's administrator leaves what the operator signed, for members to fetch.


def leave(config: Path, files: Sequence[Path]) -> list[str]:
    """Leave admissions at a coordinator, running or not, and return the members' names.

    Raises ConfigurationError, and leaves none, if one is not signed by the federation's key, is for no member of the
    coordinator's roster, or is older than the one that waits for its member.
    """
    loaded = CoordinatorConfig.load(config)
    key, members = load_public_key(loaded.federation_key), read_own_roster(loaded).members
    found: dict[str, bytes] = {}
    left = Admissions(loaded.admissions_directory, Log(loaded.name))
    for file in files:
        content = read_file(file)
        admission = Admission.of_bytes(content, file)
        if admission.federation_key != key:
            raise ConfigurationError(f"{file}: is of another federation than {loaded.federation_key}")
        san = Certificate.of_pem(admission.certificate, file).san
        member = next((member for member in members if member.certificate_san == san), None)
        if member is None:
            raise ConfigurationError(
                f"{file}: is for {san}, and the roster lists no such member: install the operator's newest roster "
                "first, with `rado coordinator roster`"
            )
        if (before := left.of(member.name)) and _is_older(admission, before, file):
            raise ConfigurationError(
                f"{file}: is older than the answer for {member.name} that waits here; leave the operator's newest one"
            )
        found[member.name] = content
    for name, content in found.items():
        left.leave(name, content)
    return list(found)


def _is_older(admission: Admission, before: bytes, file: Path) -> bool:
    """Whether what waits here has a newer roster or certificate. What cannot be read is replaced."""
    try:
        present = Admission.of_bytes(before, file)
    except ConfigurationError:
        return False
    return admission.roster.version < present.roster.version or is_older(admission.certificate, present.certificate)


# What an operator has signed: the roster's members, and until when their certificates are valid.


@dataclass(frozen=True)
class Listing:
    """The newest roster of an operator's directory."""

    roster: Roster
    certificates: Mapping[str, Certificate]
    """Those signed there, by the member's name."""
    now: dt.datetime
    authority: Authority
    """The one that signs certificates."""

    def sentences(self) -> list[str]:
        """For the operator: one line for each member, then what to renew."""
        roster = self.roster
        lines = [f"version {roster.version} of federation {roster.federation}, expires: {roster.expiry_date}"]
        for member in roster.members:
            digits = member.digits or "signs nothing"
            certificate = self.certificates.get(member.name)
            until = "was not signed here" if certificate is None else f"until {certificate.not_after:%Y-%m-%d}"
            lines.append(f"{member.role.value} {member.name}: {digits}; certificate {until}")
        lines.append(f"the authority that signs certificates: until {self.authority.not_after:%Y-%m-%d}")
        if warning := roster.expiry_warning(self.now.timestamp()):
            lines.append(f"Warning: {warning}.")
        if warning := self.authority.expiry_warning(self.now):
            lines.append(f"Warning: {warning}.")
        if self.due:
            lines.append(f"To renew now: rado provision renew OPERATOR {' '.join(self.due)}")
        return lines

    @property
    def due(self) -> list[str]:
        """Members with two thirds of their certificate's life over."""
        return [
            member.name
            for member in self.roster.members
            if member.name in self.certificates and self.certificates[member.name].needs_renewal(self.now)
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Times are ISO 8601, in UTC; null where no certificate was signed here."""
        ends = {name: found.not_after.isoformat(timespec="seconds") for name, found in self.certificates.items()}
        return {
            "federation": self.roster.federation,
            "version": self.roster.version,
            "expires": self.roster.expiry_date,
            "authority_not_after": self.authority.not_after.isoformat(timespec="seconds"),
            "authority_warning": self.authority.expiry_warning(self.now),
            "members": [
                {
                    "role": member.role.value,
                    "name": member.name,
                    "fingerprint": member.digits or None,
                    "certificate_not_after": ends.get(member.name),
                    "is_due": member.name in self.due,
                }
                for member in self.roster.members
            ],
        }


def listing(operator: Path, now: dt.datetime | None = None) -> Listing:
    """Read an operator's directory. Raises ConfigurationError if its key did not sign the roster or an admission."""
    key = public_key_of(operator / "federation.key")
    roster = signed_roster(operator / ROSTER_FILE, key)
    certificates = {}
    for member in roster.members:
        file = operator / ADMISSIONS / f"{member.name}{ADMISSION_SUFFIX}"
        if file.exists():
            admission = Admission.load(file)
            if admission.federation_key != key:
                raise ConfigurationError(f"{file}: another operator signed it; keep the files of one federation here")
            certificates[member.name] = Certificate.of_pem(admission.certificate, file)
    now = dt.datetime.now(dt.UTC) if now is None else now
    return Listing(roster, certificates, now, Authority.load(operator))
