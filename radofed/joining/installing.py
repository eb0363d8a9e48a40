"""A member installs the operator's answer beside its own keys."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509

from coordinator.config import CoordinatorConfig
from dpcore.errors import ConfigurationError
from learner.accepted_parties import AcceptedParties, parties_toml
from learner.config import LearnerConfig
from parties.config import PartyConfig
from parties.members import accepts
from parties.policy import Policy
from rado.v1 import join_pb2, member_service_pb2, member_service_pb2_grpc
from radobase.logs import Log
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import BY_UMASK, write_durably
from radofed import node_config
from radofed.joining.requests import SIGNING_KEY, SUFFIX, TLS_KEY, JoinRequest, ReceivedRequest
from radofed.node_config import NodeConfig, load_node_config, role_of
from radofed.provision import ROSTER_FILE, default_listen, split_address
from wire.codec import parse
from wire.envelopes import (
    Envelope,
    MessageType,
    load_public_key,
    public_key_of,
    save_public_key,
    set_passphrase,
    sha256,
    spoken,
)
from wire.errors import Code, WireError
from wire.identity import Certificate, TlsFiles
from wire.roster import Member, Role, Roster, open_roster, read_roster
from wire.transport import Caller, coordinator_of, open_channel

# A roster of a thousand members has some 200 KB.
_FILE = FileKind(with_remedy("ask the operator for the file again"), limit_bytes=8 << 20)
_FEDERATION_KEY = "federation.pub"
CERTIFICATE = "certificate.pem"


def read_file(path: Path) -> bytes:
    """The content of an answer, for `Admission.of_bytes`. Raises ConfigurationError."""
    return read_bytes(path, _FILE)


@dataclass(frozen=True)
class Admission:
    """The operator's answer to a request, verified against the federation key that came with it."""

    federation_key: bytes
    request_digest: bytes
    certificate: bytes
    authority: bytes
    roster: Roster
    roster_content: bytes
    coordinator_address: str

    @property
    def federation_spoken(self) -> str:
        """The digits that the operator reads to the member."""
        return spoken(self.federation_key)

    @classmethod
    def load(cls, path: Path) -> "Admission":
        """Read an answer. Raises ConfigurationError if it was changed on its way, or is none."""
        return cls.of_bytes(read_file(path), path)

    @classmethod
    def of_bytes(cls, content: bytes, path: Path) -> "Admission":
        """Like `load`, with the content of a file, or what a coordinator sent for it."""
        try:
            file = parse(join_pb2.AdmissionFile, content)
            signed = Envelope.from_proto(file.admission)
            message = parse(join_pb2.Admission, signed.payload)
            envelope = Envelope.from_proto(message.roster)
            roster = open_roster(envelope, file.federation_key)
            signed.open(MessageType.ADMISSION, roster.federation, file.federation_key)
        except WireError as error:
            raise _FILE.error(path, f"is no answer of an operator, or was changed ({error.public_sentence})") from error
        split_address(message.coordinator_address)
        return cls(
            file.federation_key,
            message.request_digest,
            message.certificate,
            message.authority,
            roster,
            envelope.to_bytes(),
            message.coordinator_address,
        )


@dataclass(frozen=True)
class Installed:
    """A member that is ready to be configured."""

    directory: Path
    role: Role
    roster: Roster
    new: tuple[str, ...]
    """The files that were made; others were there and are kept."""
    own_spoken: str
    """The digits of its key, which it reads to the other members; empty if it signs nothing."""
    others: tuple[Member, ...]
    to_accept: tuple[Member, ...]
    """Those of them that this member could accept, and has not."""

    @property
    def config(self) -> Path:
        """The member's configuration file."""
        return self.directory / f"{self.role.value}.toml"

    def sentences(self) -> list[str]:
        """For the member: the next steps."""
        lines = [f"{self.directory}: {', '.join(self.new)}"]
        if self.own_spoken:
            who = "each party and learner" if self.role is Role.PARTY else "each party"
            lines.append(f"your key's digits, to read to {who} over the telephone: {self.own_spoken}")
        names = " ".join(other.name for other in self.to_accept)
        if self.to_accept and self.role is Role.PARTY:
            lines.append("call the owners of these, and type the digits that they read out:")
            lines += [f"  {other.role.value} {other.name}" for other in self.to_accept]
            lines.append(f"  rado party accept {names} --config {self.config}")
        if self.role is Role.PARTY and "policy.toml" in self.new:
            lines.append(f"then choose what is answered; {self.directory / 'policy.toml'} refuses every query:")
            lines.append(f"  rado party policy, and rado party policy NAME --config {self.config} --write")
        if self.to_accept and self.role is Role.LEARNER:
            lines.append("this learner asks the parties that it accepts, with the digits that each owner reads out:")
            lines += [f"  party {other.name}" for other in self.to_accept]
            lines.append(f"  rado learner accept {names} --config {self.config}")
        return [*lines, f"roster version {self.roster.version}, expires {self.roster.expiry_date}"]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "config": self.config,
            "files": list(self.new),
            "roster_version": self.roster.version,
            "roster_expires": self.roster.expiry_date,
            "own_fingerprint": self.own_spoken,
            "members": [
                {"role": other.role.value, "name": other.name, "fingerprint": other.digits} for other in self.others
            ],
        }


def is_pinned(directory: Path, admission: Admission) -> bool:
    """Whether this member has compared the federation's key before."""
    pinned = directory / _FEDERATION_KEY
    return pinned.exists() and load_public_key(pinned) == admission.federation_key


def install(directory: Path, admission: Admission, *, now: dt.datetime | None = None) -> Installed:
    """Write certificate, public files and, where there are none, configurations beside the member's keys.

    The caller has compared `admission.federation_spoken` with the operator, unless the directory has the same
    federation key already. Raises ConfigurationError before anything is written, if the answer is to another request.
    """
    request = _own_request(directory)
    if admission.request_digest != sha256(request.to_bytes()):
        raise ConfigurationError(
            f"the operator's answer is to another request than {directory / (request.name + SUFFIX)}: give the "
            "answer to this one, or make a new request"
        )
    own_key = public_key_of(directory / SIGNING_KEY)
    # A roster that was signed before it listed TLS keys has the member without one.
    listed = {request.member, replace(request.member, tls_key_hash=b"")} & {*admission.roster.members}
    if own_key != request.signing_key or not listed:
        raise ConfigurationError(
            f"the roster in the answer does not list {request.name} with the key of {directory / SIGNING_KEY}: send "
            "the operator the request once more"
        )
    pinned = directory / _FEDERATION_KEY
    if pinned.exists() and not is_pinned(directory, admission):
        raise ConfigurationError(
            f"{pinned}: the key of another federation; if the operator changed its key, compare the new fingerprint, "
            "then delete this file"
        )
    now = now or dt.datetime.now(dt.UTC)
    check_certificate(
        admission.certificate,
        admission.authority,
        directory / TLS_KEY,
        request.federation,
        request.role,
        request.name,
        now,
    )
    _check_newer(directory, admission, request)
    others = tuple(m for m in admission.roster.members if m.signing_key and m.name != request.name)
    own = "" if request.role is Role.COORDINATOR else spoken(request.signing_key)
    new = tuple(_write(directory, request, admission))
    return Installed(
        directory, request.role, admission.roster, new, own, others, _to_accept(directory, request.role, others)
    )


def _to_accept(directory: Path, role: Role, others: Sequence[Member]) -> tuple[Member, ...]:
    """The members that the member's own files do not accept yet: all if its configuration cannot be read now."""
    try:
        config = None if role is Role.COORDINATOR else load_node_config(directory / f"{role.value}.toml")
        if isinstance(config, PartyConfig):
            policy = Policy.load(config.policy)
            return tuple(each for each in others if not accepts(policy, each))
        if isinstance(config, LearnerConfig):
            known = AcceptedParties.read(config.parties)
            return tuple(each for each in others if each.role is Role.PARTY and not known.accepts(each))
    except ConfigurationError:
        return tuple(others)
    return ()


def _check_newer(directory: Path, admission: Admission, request: JoinRequest) -> None:
    """Refuse an answer from before what is here: it would bring back an older roster, or an older certificate."""
    for roster in _known_rosters(directory, request.role):
        installed = read_roster(roster, admission.federation_key, _FILE)[1]
        if installed.version > admission.roster.version:
            raise ConfigurationError(
                f"{roster}: has version {installed.version}, and the answer for {request.name} is older, with version "
                f"{admission.roster.version}: there is nothing to install; if something is missing, ask the operator "
                "for a new answer"
            )
    present = directory / CERTIFICATE
    if present.exists() and is_older(admission.certificate, read_file(present)):
        raise ConfigurationError(
            f"{present}: was issued after the one in the answer for {request.name}, which is older: nothing is "
            "installed; delete the file first if the answer is meant"
        )


def _known_rosters(directory: Path, role: Role) -> list[Path]:
    """The roster that came with the last answer, and the newest that the node has seen since, or that it serves."""
    found, config = [directory / ROSTER_FILE], directory / f"{role.value}.toml"
    if config.exists():
        node = load_node_config(config)
        found += [node.state_directory / ROSTER_FILE]
        found += [node.roster] if isinstance(node, CoordinatorConfig) else []
    return [path for path in dict.fromkeys(found) if path.exists()]


def is_older(certificate: bytes, present: bytes) -> bool:
    """Whether a PEM certificate was issued before another; False if the other cannot be read."""
    try:
        other = x509.load_pem_x509_certificate(present)
    except ValueError:
        return False
    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc < other.not_valid_before_utc


def _own_request(directory: Path) -> JoinRequest:
    files = sorted(directory.glob(f"*{SUFFIX}"))
    if not files:
        raise ConfigurationError(
            f"{directory}: no request is here; give the directory that `rado provision request` made, and if its "
            f"NAME{SUFFIX} was moved away, copy it back"
        )
    if len(files) > 1:
        raise ConfigurationError(
            f"{directory}: {len(files)} requests are here; give the directory of one `rado provision request`"
        )
    return ReceivedRequest.load(files[0]).request


def check_certificate(
    certificate: bytes, authority: bytes, key: Path, federation: str, role: Role, name: str, now: dt.datetime
) -> Certificate:
    """Check a PEM certificate with its key and its authority as a node does at its start. Raises ConfigurationError."""
    with tempfile.TemporaryDirectory() as place:
        files = TlsFiles(Path(place) / "ca.pem", Path(place) / "certificate.pem", key)
        files.ca.write_bytes(authority)
        files.certificate.write_bytes(certificate)
        return files.check(federation, role, name, now)


def _write(directory: Path, request: JoinRequest, admission: Admission) -> list[str]:
    """Write the files; returns the names of those that are new or replaced."""
    write_durably(directory / "ca.pem", admission.authority, mode=BY_UMASK)
    write_durably(directory / "certificate.pem", admission.certificate, mode=BY_UMASK)
    written = ["ca.pem", "certificate.pem"]
    if not (directory / _FEDERATION_KEY).exists():
        save_public_key(directory / _FEDERATION_KEY, admission.federation_key)
        written.append(_FEDERATION_KEY)
    write_durably(directory / ROSTER_FILE, admission.roster_content, mode=BY_UMASK)
    written.append(ROSTER_FILE)
    for name, text in _configurations(request, admission).items():
        if not (directory / name).exists():
            write_durably(directory / name, text.encode(), mode=BY_UMASK)
            written.append(name)
    return written


def _configurations(request: JoinRequest, admission: Admission) -> dict[str, str]:
    """The configuration files of a new member. It accepts no one yet."""
    federation, name, coordinator = request.federation, request.name, admission.coordinator_address
    match request.role:
        case Role.COORDINATOR:
            listen = default_listen(*split_address(coordinator))
            return {"coordinator.toml": node_config.coordinator_toml(federation, name, listen)}
        case Role.LEARNER:
            learner = node_config.learner_toml(federation, name, coordinator)
            return {"learner.toml": learner, "parties.toml": parties_toml({})}
        case Role.PARTY:
            policy = node_config.policy_toml({}, {}, node_config.PolicyChoices())
            return {"party.toml": node_config.party_toml(federation, name, coordinator), "policy.toml": policy}


# A passphrase for the private keys of a directory: a member's, or the operator's.

_KEYS = "*.key"
_KEY = FileKind(with_remedy("give a directory of one member, or of the operator"), limit_bytes=1 << 20, secret=True,
                private=True)  # fmt: skip


def set_passphrases(directory: Path) -> list[str]:
    """Encrypt each private key of a directory that has no passphrase yet; returns their names.

    Raises ConfigurationError if there is none, no passphrase is named, or one of them is no key; those before it are
    encrypted then, and all can still be read.
    """
    files = sorted(directory.glob(_KEYS))
    if not files:
        raise ConfigurationError(
            f"{directory}: has no file {_KEYS}; give a directory of one member, or of the operator"
        )
    return [file.name for file in files if set_passphrase(file, _KEY)]


# When a node's certificate is to be renewed, and its renewal without a person at the node.
#
# New certificates wait at the coordinator, each in an admission that the operator signed; each node fetches its own.
# The coordinator can keep one back, and can neither make nor change one: the federation's key has signed it, and it is
# for the TLS key that this node has.

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Renewal:
    """A node's certificate, and what to do about it at a time."""

    certificate: Certificate
    now: dt.datetime
    is_new: bool = False
    """Whether it has just been renewed."""

    @property
    def is_due(self) -> bool:
        """Whether two thirds of the certificate's life are over."""
        return self.certificate.needs_renewal(self.now)

    def sentence(self) -> str:
        """For the administrator of the node."""
        found = self.certificate
        valid = f"{found.san}: {'renewed, ' if self.is_new else ''}valid until {found.not_after:%Y-%m-%d %H:%M} UTC"
        if not self.is_due:
            return f"{valid}; nothing to do before {found.renew_from:%Y-%m-%d}"
        return (
            f"{valid}; two thirds of its life are over. Ask the operator for `rado provision renew`, then run "
            "`rado certificate renew`, or install the answer with `rado provision install`"
        )

    def to_dict(self) -> dict[str, Any]:
        """For `--format json`. Times are ISO 8601, in UTC."""
        return {
            "member": self.certificate.san,
            "is_due": self.is_due,
            "is_new": self.is_new,
            "renew_from": self.certificate.renew_from.isoformat(timespec="seconds"),
            "not_after": self.certificate.not_after.isoformat(timespec="seconds"),
        }


def renewal_of(config: Path, now: dt.datetime) -> Renewal:
    """Of the node with this configuration file.

    Raises ConfigurationError if it is no node's configuration, or the certificate is not valid now or not this node's.
    """
    node = load_node_config(config)
    return Renewal(node.tls.files.check(node.federation, role_of(config), node.name, now), now)


def renew(config: Path, now: dt.datetime, *, before_due: bool = False) -> Renewal:
    """Put the newer certificate that the operator left at the coordinator into its place, if it is time.

    A running node reads it from there. before_due: also while nothing is due. Where there is no newer one, the result
    is that of `renewal_of`. Raises ConfigurationError, and changes nothing, if what the coordinator sends is not signed
    by the federation's key, or is for another member, key or authority; ConnectionLostError if it cannot be reached.
    """
    found, node, role = renewal_of(config, now), load_node_config(config), role_of(config)
    if not (found.is_due or before_due):
        return found
    content = _fetched(node)
    if not content:
        return found
    admission = Admission.of_bytes(content, Path("the certificate from the coordinator"))
    if admission.federation_key != load_public_key(node.federation_key):
        raise ConfigurationError(
            f"the certificate from the coordinator is signed by another key than {node.federation_key}; ask the "
            "operator, and change nothing before you know why"
        )
    files = node.tls.files
    # By the authority that this node has: another one is installed by a person, who compares fingerprints.
    renewed = check_certificate(
        admission.certificate, files.read()[0], files.key, node.federation, role, node.name, now
    )
    if renewed.not_after <= found.certificate.not_after:
        return found
    write_durably(files.certificate, admission.certificate, mode=BY_UMASK)
    return Renewal(renewed, now, is_new=True)


def _fetched(node: NodeConfig) -> bytes:
    """The answer for this node, from the coordinator; a coordinator has its own. Empty if there is none."""
    from coordinator.config import CoordinatorConfig  # noqa: PLC0415  (only where a node needs it)

    if isinstance(node, CoordinatorConfig):
        from coordinator.membership import Admissions  # noqa: PLC0415

        return Admissions(node.admissions_directory, Log(node.name)).of(node.name)
    address = coordinator_of(node)
    caller = Caller(address, give_up_after_s=_PATIENCE_S)
    with open_channel(address, node.tls.files) as channel:
        stub: Any = member_service_pb2_grpc.MemberServiceStub(channel)
        try:
            response = caller(stub.FetchAdmission, member_service_pb2.FetchAdmissionRequest())
        except WireError as error:
            if error.code is not Code.ROLE_FORBIDDEN:
                raise
            raise ConfigurationError(
                "the coordinator's version does not deliver certificates: ask its administrator to update it, or "
                "install the operator's answer with `rado provision install`"
            ) from error
    return bytes(response.admission)
