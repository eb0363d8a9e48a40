"""The operator's side: found a federation, admit members by their requests, renew and replace, remove.

The operator's directory, kept offline: federation.key, ca.key, ca.pem, federation.pub, roster.signed, requests/, and
admissions/ with the answers to send. `rado provision init` makes one, too.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import ConfigurationError
from rado.v1 import join_pb2
from radobase.files.writing import BY_UMASK, create_durably, write_durably
from radofed.certificates import LONGEST_FEDERATION, Authority, private_pem
from radofed.joining.requests import SUFFIX, JoinRequest, ReceivedRequest
from radofed.provision import certificate_hosts, check_empty, join_address, split_address
from radofed.provision_roster import ROSTER_DAYS, ROSTER_FILE, check_clock, expiry_unix_s, signed_roster
from wire.envelopes import Kind, SigningKey, fingerprint, public_key_of, save_public_key, sha256, spoken
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
            *self._acceptance_words(),
            *([f"Warning: {self.warning}."] if self.warning else []),
        ]

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
    address = _coordinator_address(directory, requests, coordinator)
    certificates = [_certificate(authority, request, now) for request in requests]
    roster = _next_roster(authority.federation, old, requests, expiry_unix_s(now, days), int(now.timestamp()))
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
            coordinator_address=address,
        )
        files.append((each.request, _write(directory, each, key, admission)))
    return Admitted(roster, file, tuple(files), spoken(key.public_bytes), authority.expiry_warning(now))


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


def _coordinator_address(directory: Path, requests: Sequence[JoinRequest], given: str) -> str:
    coordinators = [request for request in requests if request.role is Role.COORDINATOR]
    if not coordinators:
        kept = sorted((directory / REQUESTS).glob(f"*{SUFFIX}"))
        all_kept = (ReceivedRequest.load(file).request for file in kept)
        coordinators = [request for request in all_kept if request.role is Role.COORDINATOR]
    if coordinators and given and given != coordinators[-1].address:
        raise ConfigurationError(
            f"--coordinator {given}, but the coordinator's request says {coordinators[-1].address}: leave it out"
        )
    address = given or (coordinators[-1].address if coordinators else "")
    if not address:
        raise ConfigurationError(
            "no coordinator is known here: give its request first, or --coordinator HOST:PORT as members dial it"
        )
    return join_address(*split_address(address))


def _certificate(authority: Authority, request: JoinRequest, now: dt.datetime) -> bytes:
    hosts = certificate_hosts(split_address(request.address)[0]) if request.address else ()
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
    envelope = key.sign(Kind.ADMISSION, admission.SerializeToString(deterministic=True))
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
