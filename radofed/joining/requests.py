"""A member's request to join: made with the member's keys, on its own machine."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpcore.errors import ConfigurationError
from rado.v1 import join_pb2
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import BY_UMASK, create_durably, write_durably
from radofed.certificates import make_request, request_key_hash
from radofed.provision import check_host, check_name, split_address
from wire.codec import parse
from wire.envelopes import KEY_BYTES, Envelope, MessageType, Signable, SigningKey, spoken
from wire.errors import WireError
from wire.roster import Member, Role, certificate_san

SIGNING_KEY, TLS_KEY = "signing.key", "tls.key"
SUFFIX = ".request"
_FILE = FileKind(with_remedy("ask the member for the file again"), limit_bytes=64 << 10)


@dataclass(frozen=True)
class JoinRequest(Signable[join_pb2.JoinRequest]):
    """What a member asks to be admitted as."""

    KIND: ClassVar[MessageType] = MessageType.JOIN_REQUEST
    federation: str
    role: Role
    name: str
    signing_key: bytes
    certificate_request: bytes
    made_at_unix_s: int
    rows_at_least: int | None = None
    address: str = ""
    """At which members dial a coordinator, empty for other roles."""

    def __post_init__(self) -> None:
        check_name("federation", self.federation)
        check_name("member", self.name)
        if len(self.signing_key) != KEY_BYTES:
            raise ConfigurationError("the signing key has the wrong length; make a new request")
        if (self.role is Role.COORDINATOR) != bool(self.address):
            raise ConfigurationError("a coordinator's request, and no other, has the address at which members dial it")
        if self.address:
            check_host(split_address(self.address)[0])
        if self.rows_at_least is not None and (self.role is not Role.PARTY or self.rows_at_least < 1):
            raise ConfigurationError("only a party states its rows, and at least one")

    @property
    def member(self) -> Member:
        """The roster's entry for this member."""
        key = b"" if self.role is Role.COORDINATOR else self.signing_key
        return Member(
            self.role,
            self.name,
            key,
            certificate_san(self.federation, self.role, self.name),
            self.rows_at_least,
            request_key_hash(self.certificate_request),
        )

    @property
    def fingerprint(self) -> str:
        """The digits that member and operator read to each other: of all that is asked for, keys included."""
        return spoken(self.to_bytes())

    @classmethod
    def read(cls, content: bytes, path: Path) -> "JoinRequest":
        """The request in a file's content. Raises ConfigurationError if it was changed on its way, or is none."""
        try:
            envelope = Envelope.from_bytes(content)
            message = parse(join_pb2.JoinRequest, envelope.payload)
            envelope.open(MessageType.JOIN_REQUEST, message.federation, message.signing_key)
        except WireError as error:
            raise _FILE.error(path, f"is no request of a member, or was changed ({error.public_sentence})") from error
        try:
            found = cls.from_proto(message)
        except WireError as error:
            raise _FILE.error(path, "asks for a role that this version does not know") from error
        except ConfigurationError as error:
            raise _FILE.error(path, str(error)) from error
        if found.to_bytes() != envelope.payload:
            raise _FILE.error(path, "is not written as this version writes requests")
        return found


@dataclass(frozen=True)
class ReceivedRequest:
    """A request, and its file's content as it was signed."""

    request: JoinRequest
    content: bytes

    @classmethod
    def load(cls, path: Path) -> "ReceivedRequest":
        """Read and verify a request. Raises ConfigurationError if it was changed on its way, or is none."""
        content = read_bytes(path, _FILE)
        return cls(JoinRequest.read(content, path), content)


@dataclass(frozen=True)
class MadeRequest:
    """A request that was written, and the file to send."""

    request: JoinRequest
    file: Path

    def sentences(self) -> list[str]:
        """For the member: what to do next."""
        return [
            f"{self.file}: send this file to the operator; it holds no secret",
            f"its fingerprint, to read to the operator over the telephone: {self.request.fingerprint}",
            f"{self.file.parent}: keep {SIGNING_KEY} and {TLS_KEY} here; no one else needs them, the operator included",
            "then install the operator's answer with `rado provision install`",
        ]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "federation": self.request.federation,
            "role": self.request.role.value,
            "name": self.request.name,
            "file": self.file,
            "fingerprint": self.request.fingerprint,
        }


def make_join_request(
    directory: Path,
    *,
    federation: str,
    role: Role,
    name: str,
    rows_at_least: int | None = None,
    address: str = "",
    now: dt.datetime | None = None,
) -> MadeRequest:
    """Make the keys of a member in its directory, and its request.

    Raises ConfigurationError if the directory has keys, or an argument cannot be used; then nothing is left.
    """
    for key in (SIGNING_KEY, TLS_KEY):
        if (directory / key).exists():
            raise ConfigurationError(
                f"{directory / key}: there is a key already; give a new directory, or move the old keys away to "
                "replace them"
            )
    signing, tls = SigningKey.generate(federation), make_request(federation, role, name)
    made_at = int((now or dt.datetime.now(dt.UTC)).timestamp())
    request = JoinRequest(
        federation, role, name, signing.public_bytes, tls.request_pem, made_at, rows_at_least, address
    )
    new = not directory.exists()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file, written = directory / f"{name}{SUFFIX}", []
    try:
        written.append(directory / SIGNING_KEY)
        signing.save(written[-1])
        written.append(directory / TLS_KEY)
        create_durably(written[-1], tls.key_pem)
        written.append(file)
        write_durably(file, signing.sign(MessageType.JOIN_REQUEST, request.to_bytes()).to_bytes(), mode=BY_UMASK)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        if new:
            directory.rmdir()
        raise
    return MadeRequest(request, file)
