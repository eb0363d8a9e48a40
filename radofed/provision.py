"""Provision a federation: keys, authority, certificates, the signed roster, and a directory for every member.

Directories:

    federation/     for the operator, kept offline: federation.key, ca.key, ca.pem, federation.pub, roster.signed
    members/NAME/   for one member: ca.pem, certificate.pem, tls.key, federation.pub, its configuration, and
                    signing.key (parties, learners), policy.toml (parties), parties.toml (learners),
                    roster.signed (coordinator)
"""

import datetime as dt
import ipaddress
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import ConfigurationError
from learner.accepted_parties import parties_toml
from radobase.configuration import check_end
from radobase.reading import FileKind, with_remedy
from radobase.writing import BY_UMASK, create_durably, write_durably
from radofed import node_config
from radofed.certificates import Authority, make_request, private_pem
from radofed.node_config import PolicyChoices
from wire.envelopes import SigningKey, fingerprint, public_key_of, save_public_key
from wire.roster import EXPIRY_SKEW_S, NAME, Member, Role, Roster, certificate_san, read_roster

# Renewal of a federation's roster, offline: the next version, with a new expiry, signed by the federation key.

ROSTER_DAYS = 90
"""How long a roster is valid, unless the operator chooses otherwise."""
MOST_ROSTER_DAYS = 3650
ROSTER_FILE = "roster.signed"
_ROSTER = FileKind(
    with_remedy("give the newest roster.signed, such as the coordinator's, with --roster"),
    limit_bytes=4 << 20,
    decides=True,
)


@dataclass(frozen=True)
class RenewedRoster:
    """A roster that was signed and written. removed: members of the version before that it does not list."""

    file: Path
    roster: Roster
    removed: tuple[Member, ...]

    def sentences(self) -> list[str]:
        """For the operator: what was signed, and the next step."""
        roster = self.roster
        lines = [f"{self.file}: version {roster.version} of federation {roster.federation}"]
        lines.append(f"expires: {roster.expiry_date}")
        lines += [f"{m.role.value} {m.name}: {_fingerprint(m) or 'signs nothing'}" for m in roster.members]
        lines += [f"removed: {m.role.value} {m.name}" for m in self.removed]
        lines.append(
            f"At the coordinator, run: rado coordinator roster {ROSTER_FILE} --config coordinator.toml. Every node "
            "fetches it within ten minutes."
        )
        return lines

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "federation": self.roster.federation,
            "file": self.file,
            "version": self.roster.version,
            "expires": self.roster.expiry_date,
            "not_after_unix_s": self.roster.not_after_unix_s,
            "members": [
                {"role": m.role.value, "name": m.name, "fingerprint": _fingerprint(m) or None}
                for m in self.roster.members
            ],
            "removed": [m.name for m in self.removed],
        }


def renew_roster(
    federation: Path,
    *,
    days: int = ROSTER_DAYS,
    newest: Path | None = None,
    without: Collection[str] = (),
    now: dt.datetime | None = None,
) -> RenewedRoster:
    """Sign the next version of a roster with a new expiry, and replace `roster.signed` in the federation's directory.

    federation: the operator's directory, with `federation.key` and `roster.signed`. newest: another file with a signed
    roster; it is used if its version is higher. without: names of members to remove. Raises ConfigurationError, and
    then changes nothing.
    """
    now = dt.datetime.now(dt.UTC) if now is None else now
    file = federation / "federation.key"
    old = _newest(federation / ROSTER_FILE, newest, public_key_of(file))
    key = SigningKey.load(file, old.federation)
    check_clock(now, old)
    removed = _removed(old, without)
    roster = replace(
        old,
        version=old.version + 1,
        issued_at_unix_s=int(now.timestamp()),
        members=tuple(member for member in old.members if member not in removed),
        not_after_unix_s=expiry_unix_s(now, days),
    )
    file = federation / ROSTER_FILE
    try:
        write_durably(file, roster.sign(key).to_bytes(), mode=BY_UMASK)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written ({error.strerror}); correct its permissions") from error
    return RenewedRoster(file, roster, removed)


def expiry_unix_s(now: dt.datetime, days: int) -> int:
    """The expiry of a roster that is signed now and valid for some days. Raises ConfigurationError."""
    if not 1 <= days <= MOST_ROSTER_DAYS:
        raise ConfigurationError(
            f"a roster cannot be valid for {days} days; give a number from 1 to {MOST_ROSTER_DAYS}"
        )
    return int((now + dt.timedelta(days=days)).timestamp())


def _newest(own: Path, other: Path | None, federation_key: bytes) -> Roster:
    files = [own] if other is None else [own, other]
    rosters = [signed_roster(file, federation_key) for file in files]
    newest = max(rosters, key=lambda roster: roster.version)
    if any(roster.version == newest.version and roster != newest for roster in rosters):
        raise ConfigurationError(
            f"{own} and {other}: two different rosters of version {newest.version}; give the one that the coordinator "
            "serves, and find out who signed the other"
        )
    return newest


def signed_roster(file: Path, federation_key: bytes) -> Roster:
    """A roster that this key signed. Raises ConfigurationError."""
    return read_roster(file, federation_key, _ROSTER)[1]


def check_clock(now: dt.datetime, newest: Roster) -> None:
    """Raise ConfigurationError if the clock shows a time before the newest roster was issued."""
    if int(now.timestamp()) < newest.issued_at_unix_s - EXPIRY_SKEW_S:
        raise ConfigurationError(
            f"this machine's clock shows {now:%Y-%m-%d %H:%M} UTC, before version {newest.version} was issued; set it"
        )


def _removed(roster: Roster, names: Collection[str]) -> tuple[Member, ...]:
    removed = tuple(m for m in roster.members if m.name in names and m.role is not Role.COORDINATOR)
    if unknown := sorted(set(names) - {member.name for member in removed}):
        raise ConfigurationError(
            f"the roster has no party or learner {', '.join(unknown)}; name members that it lists: "
            f"{', '.join(m.name for m in roster.members if m.role is not Role.COORDINATOR)}"
        )
    return removed


def _fingerprint(member: Member) -> str:
    return fingerprint(member.signing_key) if member.signing_key else ""


COORDINATOR = "coordinator"
DENY_EVERYTHING = PolicyChoices()

_PLURALS = {Role.PARTY: "parties", Role.LEARNER: "learners"}
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ProvisionedMember:
    """One member and its directory."""

    role: Role
    name: str
    directory: Path
    fingerprint: str
    """Of its signing key; empty for the coordinator."""

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.directory / f"{self.role.value}.toml"


@dataclass(frozen=True)
class Provisioned:
    """What provisioning made."""

    federation: str
    directory: Path
    federation_fingerprint: str
    members: tuple[ProvisionedMember, ...]
    """In the roster's order, coordinator, parties, learners."""
    roster: Roster

    def of(self, role: Role) -> tuple[ProvisionedMember, ...]:
        """The members of one role."""
        return tuple(member for member in self.members if member.role is role)

    def sentences(self) -> list[str]:
        """For the operator: which directory goes to which member, and the next steps."""
        lines = [
            f"{self.directory / 'federation'}: keep it offline. Anyone who has it can add members.",
            f"Give every member the federation key's fingerprint: {self.federation_fingerprint}",
        ]
        for member in self.members:
            what = "it has private keys: pass it on sealed, then delete it here"
            key = f"; signing key {member.fingerprint}" if member.fingerprint else ""
            lines.append(f"{member.directory}: for {member.role.value} {member.name}; {what}{key}")
        expiry, offline = self.roster.expiry_date, self.directory / "federation"
        return [
            *lines,
            f"The roster expires on {expiry}. Before that, run: rado provision renew-roster {offline}",
            "Every party edits policy.toml, which refuses every query until then, and adds its schema and data.",
            "Every party compares the other members' fingerprints with their owners, then runs `rado party check`.",
            "Every learner compares those in its parties.toml, the parties that it asks, and removes any that differs.",
        ]


def provision(
    directory: Path,
    *,
    federation: str,
    coordinator_address: str,
    parties: Sequence[str],
    learners: Sequence[str] = ("learner",),
    rows_at_least: Mapping[str, int] | None = None,
    listen: str | None = None,
    policy: PolicyChoices = DENY_EVERYTHING,
    roster_days: int = ROSTER_DAYS,
    now: dt.datetime | None = None,
) -> Provisioned:
    """Make a federation in `directory`, which must be absent or empty. A failure leaves nothing behind.

    - coordinator_address: "host:port" as members dial it; the coordinator's certificate names its host.
    - rows_at_least: the rows that parties say they have at least, by name, for planning.
    - listen: the "host:port" that the coordinator binds; by default the loopback address for a local host and every
      address otherwise.
    - policy: of every party; the default denies everything.
    - roster_days: the roster expires after so many days; `renew_roster` makes the next one.

    Raises ConfigurationError if names, addresses, days or the directory cannot be used.
    """
    now = dt.datetime.now(dt.UTC) if now is None else now
    rows = dict(rows_at_least or {})
    host, port = split_address(coordinator_address)
    check_host(host)
    if listen is not None:
        split_address(listen)
    _check_names(federation, parties, learners, rows)
    not_after_unix_s = expiry_unix_s(now, roster_days)
    directory = Path(directory).absolute()
    check_empty(directory)
    keys = {name: SigningKey.generate(federation) for name in (*parties, *learners)}
    members = _members(federation, parties, learners, keys, rows)
    roster = Roster(federation, 1, int(now.timestamp()), members, not_after_unix_s)
    maker = _Maker(Authority.create(federation, now), SigningKey.generate(federation), roster, keys, policy, now)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        maker.federation(draft / "federation")
        for member in members:
            place = draft / "members" / member.name
            hosts = certificate_hosts(host) if member.role is Role.COORDINATOR else ()
            maker.member(place, member, hosts)
            maker.configuration(place, member, join_address(host, port), listen or default_listen(host, port))
        draft.replace(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return _made(directory, maker)


def _members(
    federation: str,
    parties: Sequence[str],
    learners: Sequence[str],
    keys: Mapping[str, SigningKey],
    rows: Mapping[str, int],
) -> tuple[Member, ...]:
    roles = [
        (Role.COORDINATOR, COORDINATOR, b""),
        *((Role.PARTY, name, keys[name].public_bytes) for name in parties),
        *((Role.LEARNER, name, keys[name].public_bytes) for name in learners),
    ]
    return tuple(
        Member(role, name, key, certificate_san(federation, role, name), rows.get(name)) for role, name, key in roles
    )


def _made(directory: Path, maker: "_Maker") -> Provisioned:
    members = tuple(
        ProvisionedMember(
            m.role, m.name, directory / "members" / m.name, fingerprint(m.signing_key) if m.signing_key else ""
        )
        for m in maker.roster.members
    )
    key = fingerprint(maker.federation_key.public_bytes)
    return Provisioned(maker.roster.federation, directory, key, members, maker.roster)


@dataclass(frozen=True)
class _Maker:
    """Writes the directories of one federation."""

    authority: Authority
    federation_key: SigningKey
    roster: Roster
    keys: Mapping[str, SigningKey]
    policy: PolicyChoices
    now: dt.datetime

    def federation(self, place: Path) -> None:
        place.mkdir(mode=0o700)
        self.federation_key.save(place / "federation.key")
        create_durably(place / "ca.key", private_pem(self.authority.key))
        self._public_files(place)
        self._roster(place)

    def member(self, place: Path, member: Member, hosts: Sequence[str]) -> None:
        place.mkdir(mode=0o700, parents=True)
        request = make_request(self.roster.federation, member.role, member.name)
        certificate = self.authority.sign_request(request.request_pem, member.role, member.name, self.now, hosts=hosts)
        create_durably(place / "tls.key", request.key_pem)
        (place / "certificate.pem").write_bytes(certificate)
        self._public_files(place)
        if member.role is Role.COORDINATOR:
            self._roster(place)
        else:
            self.keys[member.name].save(place / "signing.key")

    def configuration(self, place: Path, member: Member, coordinator: str, listen: str) -> None:
        federation, name = self.roster.federation, member.name
        match member.role:
            case Role.COORDINATOR:
                text = node_config.coordinator_toml(federation, name, listen)
            case Role.LEARNER:
                text = node_config.learner_toml(federation, name, coordinator)
                parties = {m.name: fingerprint(m.signing_key) for m in self.roster.parties}
                (place / "parties.toml").write_text(parties_toml(parties), encoding="utf-8")
            case Role.PARTY:
                text = node_config.party_toml(federation, name, coordinator)
                others = {m.name: fingerprint(m.signing_key) for m in self.roster.parties if m.name != name}
                learners = {m.name: fingerprint(m.signing_key) for m in self.roster.members if m.role is Role.LEARNER}
                policy = node_config.policy_toml(learners, others, self.policy)
                (place / "policy.toml").write_text(policy, encoding="utf-8")
        (place / f"{member.role.value}.toml").write_text(text, encoding="utf-8")

    def _public_files(self, place: Path) -> None:
        (place / "ca.pem").write_bytes(self.authority.certificate_pem)
        save_public_key(place / "federation.pub", self.federation_key.public_bytes)

    def _roster(self, place: Path) -> None:
        (place / "roster.signed").write_bytes(self.roster.sign(self.federation_key).to_bytes())


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[IPv6]:port"; IPv6 in its shortest form. Raises ConfigurationError."""
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        if bracketed:
            host = ipaddress.IPv6Address(host[1:-1]).compressed
        well_formed = bool(host) and (bracketed or ":" not in host)
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        well_formed = False
    if not (well_formed and 0 <= number < 1 << 16):
        raise ConfigurationError(
            f"{address!r} is not HOST:PORT; write, say, rado.example.org:7443 or [2001:db8::1]:7443"
        )
    return host, number


def join_address(host: str, port: int) -> str:
    """The inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_host(host: str) -> None:
    """Raise ConfigurationError if a certificate cannot name this host, or members cannot dial it."""
    try:
        address = ipaddress.ip_address(check_end(host))
    except ValueError as error:
        if host.endswith("."):
            raise ConfigurationError(str(error)) from None
        if not _HOST_NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
            raise ConfigurationError(
                f"{host!r} is neither a host name nor an IP address; write an international name in its xn-- form"
            ) from None
        return
    if address.is_unspecified:
        raise ConfigurationError(
            f"members cannot dial {host}; give the address that they dial, and {host} as the address to listen on"
        )
    if getattr(address, "scope_id", None) is not None:
        raise ConfigurationError(f"{host} is valid on one machine only; give an address without a zone")


def certificate_hosts(host: str) -> tuple[str, ...]:
    """The hosts in the coordinator's certificate: the one given; for a local one, every local name."""
    return _LOCAL_HOSTS if host in _LOCAL_HOSTS else (host,)


def default_listen(host: str, port: int) -> str:
    """Where a coordinator listens that members dial at this host and port: on loopback for a local host."""
    ipv6 = ":" in host
    if host in _LOCAL_HOSTS:
        return join_address("::1" if ipv6 else "127.0.0.1", port)
    return join_address("::" if ipv6 else "0.0.0.0", port)  # noqa: S104 - a service that members dial


def check_name(what: str, name: str) -> None:
    """Raise ConfigurationError if this is no name of a federation or member. what: "federation" or "member"."""
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is not a {what} name; use at most 63 of a-z, 0-9 and '-', beginning with a letter"
        )


def _check_names(federation: str, parties: Sequence[str], learners: Sequence[str], rows: Mapping[str, int]) -> None:
    for what, name in [("federation", federation), *(("member", name) for name in (*parties, *learners))]:
        check_name(what, name)
    roles = {COORDINATOR: Role.COORDINATOR}
    for role, name in (*((Role.PARTY, name) for name in parties), *((Role.LEARNER, name) for name in learners)):
        if name in roles:
            who = f"two {_PLURALS[role]}" if roles[name] is role else f"a {role.value} and a {roles[name].value}"
            raise ConfigurationError(
                f"{who} would both be called {name!r}; directories, roster and logs use the name alone: "
                "give each member its own name"
            )
        roles[name] = role
    if not parties or not learners:
        raise ConfigurationError("a federation needs at least one party and one learner; name them")
    for name, count in rows.items():
        if name not in parties or count < 1:
            raise ConfigurationError(f"{name!r} with {count} rows: give a positive number, and a party's name")


def check_empty(directory: Path) -> None:
    """Raise ConfigurationError unless the directory is absent or empty."""
    if directory.exists() and (not directory.is_dir() or any(os.scandir(directory))):
        raise ConfigurationError(f"{directory}: already exists and is not empty; give another directory")
