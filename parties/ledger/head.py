r"""What a ledger holds in each scope, packed small: for the head beside it, and sealed in the heads that travel.

A party whose ledger was set back reads from them what it has to charge. Others hold the sealed form and cannot read it:
AES-256-GCM under a key that only the holder of the party's signing key can derive,

    key   = HKDF-SHA256(the signing key's X25519 private key, info = "rado.v1/ledger-sums\0"), 32 bytes
    bound to "rado.v1/ledger-sums\0" || u8(|party|) || party || u64(entries) || digest

with a random nonce of 12 bytes in front. The key seals one message for each entry, far below the 2^32 messages that
NIST SP 800-38D, section 8.3, allows for random nonces.
"""

import json
import math
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.accounting.concentrated import STEPS
from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit
from dpcore.errors import ConfigurationError, PlanError
from parties.ledger.chain import TRAIL_BYTES, Head
from parties.ledger.charges import PERSON, RECORD, Charge, Scope, ScopeKind
from parties.ledger.limits import Event, LedgerLimits, Scopes, counted
from radobase.printing import amount
from radobase.reading import FileKind, read_json, with_remedy
from radobase.writing import write_durably
from wire.envelopes import KEY_BYTES, SigningKey, sha256
from wire.statements import MAX_SEALED_BYTES, LedgerHead

_LABEL = b"rado.v1/ledger-sums\0"
_NONCE_BYTES = 12
# By their numbers in a head's file: new ones come last.
_KINDS = (ScopeKind.RECORD, ScopeKind.JOINT, ScopeKind.MARGINAL, ScopeKind.PERSON)
_LOSS = struct.Struct(">4d")
_COUNT = struct.Struct(">Q")
_SINGLE, _BITS = struct.Struct(">f"), struct.Struct(">I")
# zlib packs at most 1032 to 1, so that a few bytes cannot fill the memory.
_MOST_BYTES = 1 << 20
# Added to a scope's kind. Earlier versions wrote and read the first form only.
_FORMS = 16
_EARLIER, _WITH_CURVE, _WITHOUT_CURVE = 0, _FORMS, 2 * _FORMS
_CURVE = struct.Struct(f">{len(STEPS) + 2}f")
_NO_LIMITS = LedgerLimits(PrivacyLimit(Fraction(0), Fraction(0)))


@dataclass(frozen=True)
class Sums:
    """The sum of bounds in each scope, by scope; and the number of events without a bound for whole records."""

    scopes: tuple[tuple[Scope, Loss], ...]
    unbounded: int

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Sums":
        """The sums of events, charged or reserved."""
        return cls.of_charges(counted(events))

    @classmethod
    def of_charges(cls, charges: Mapping[Charge, int]) -> "Sums":
        """The sums of charges, each with its count. Names RECORD and every scope that one of them bounds.

        Both parts of a divided table count in full, and epochs of rows add up: the difference of two sums must cover
        what was charged in each, which the difference of two maxima does not.
        """
        charges = _about_all_rows(charges)
        scopes = Scopes(charges, _NO_LIMITS)
        totals = [(scope, scopes.total(charges, scope, is_plain=True)) for scope in scopes.all]
        return cls(tuple((scope, total.loss) for scope, total in totals), scopes.total(charges, RECORD).unbounded)

    def largest(self, other: "Sums") -> "Sums":
        """The maximum of both in each scope and part.

        A scope that only one of them names has in the other the sum of the scope around it.
        """
        named = {scope.key: scope for scope, _ in (*self.scopes, *other.scopes)}
        merged = [
            (scope, self.at(scope).largest(other.at(scope)))
            for scope in sorted(named.values(), key=lambda scope: scope.order)
        ]
        return Sums(tuple(merged), max(self.unbounded, other.unbounded))

    def at(self, scope: Scope) -> Loss:
        """The sum in a scope: its own, or that of the narrowest scope around it."""
        known = {named.key: loss for named, loss in self.scopes}
        if scope.key == PERSON.key:
            return known.get(scope.key, NO_LOSS)
        around = [scope.key, (ScopeKind.JOINT, scope.column), RECORD.key, PERSON.key]
        return next((known[key] for key in around if key in known), NO_LOSS)

    def less(self, other: "Sums") -> "Sums":
        """What is missing to `other` in each scope that one of them names, at least 0 in each part."""
        named = {scope.key: scope for scope, _ in (*self.scopes, *other.scopes)}
        missing = [
            (scope, self.at(scope).less(other.at(scope)))
            for scope in sorted(named.values(), key=lambda scope: scope.order)
        ]
        return Sums(tuple(missing), max(0, self.unbounded - other.unbounded))


def _about_all_rows(charges: Mapping[Charge, int]) -> Mapping[Charge, int]:
    """The same charges as if each were about all rows; of noised tables in two epochs none become one."""
    found: Counter[Charge] = Counter()
    for charge, count in charges.items():
        epoch = charge.epoch
        if charge.row_epoch is not None and epoch is not None:
            epoch += charge.row_epoch.encode()
        found[replace(charge, epoch=epoch, row_epoch=None)] += count
    return found


@dataclass(frozen=True)
class Account:
    """What a party writes for itself at a head: its sums, and the trail of the chain before it (parties.ledger.chain).

    From the trail it sees, if it was set back, up to which entry its ledger is the one that the head belongs to.
    """

    sums: Sums
    trail: tuple[bytes, ...]

    def packed(self, *, curves: bool = True) -> bytes:
        """Compressed bytes. Every number is rounded up. curves: otherwise only the rhos count, which may be much more.

        Raises OverflowError if a number is too large.
        """
        parts = [_COUNT.pack(self.sums.unbounded), bytes([len(self.trail)]), *self.trail]
        for scope, loss in self.sums.scopes:
            with_curve = curves and bool(loss.curve) and not loss.is_earlier
            form = _EARLIER if loss.is_earlier else _WITH_CURVE if with_curve else _WITHOUT_CURVE
            rho = loss.linear if with_curve else loss.rho
            parts += [bytes([form + _KINDS.index(scope.kind)]), _text(scope.name), _text(scope.column)]
            parts.append(_LOSS.pack(*map(_up, (loss.epsilon, loss.delta, rho, loss.failure))))
            if with_curve:
                parts.append(_CURVE.pack(*map(_up_to_single, (loss.curved, *loss.curve))))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def unpacked(cls, data: bytes) -> "Account":
        """The inverse of `packed`. Raises ValueError if the bytes were not made by it."""
        try:
            content = zlib.decompressobj().decompress(data, _MOST_BYTES)
            (unbounded,) = _COUNT.unpack_from(content)
            steps, at = content[_COUNT.size], _COUNT.size + 1
            trail = tuple(content[at + TRAIL_BYTES * n : at + TRAIL_BYTES * (n + 1)] for n in range(steps))
            scopes, at = [], at + TRAIL_BYTES * steps
            while at < len(content):
                form, kind = content[at] // _FORMS * _FORMS, _KINDS[content[at] % _FORMS]
                if form > _WITHOUT_CURVE:
                    raise ValueError("a form that this version does not know")
                at += 1
                name, at = _read_text(content, at)
                column, at = _read_text(content, at)
                epsilon, delta, rho, failure = map(Fraction, _LOSS.unpack_from(content, at))
                at += _LOSS.size
                curved, curve = Fraction(0), tuple[Fraction, ...]()
                if form == _WITH_CURVE:
                    curved, *values = map(Fraction, _CURVE.unpack_from(content, at))
                    curve, at = tuple(values), at + _CURVE.size
                loss = Loss(epsilon, delta, rho + curved, failure, curve, curved, form == _EARLIER)
                scopes.append((Scope(kind, name, column), loss))
        except (zlib.error, struct.error, IndexError, OverflowError, PlanError) as error:
            raise ValueError(f"not the sums of a ledger ({error})") from error
        return cls(Sums(tuple(scopes), unbounded), trail)


class SumsKey:
    """Seals the sums of a party's own heads, and opens them. Held by the party only. Prints as the party's name."""

    def __init__(self, party: str, signing_key: SigningKey) -> None:
        secret = signing_key.agreement_key().private_bytes_raw()
        self.party = party
        self._cipher = AESGCM(HKDF(SHA256(), 32, None, _LABEL).derive(secret))

    def __repr__(self) -> str:
        return f"SumsKey({self.party!r})"

    def seal(self, account: Account, entries: int, digest: bytes) -> bytes:
        """The account at a head, at most MAX_SEALED_BYTES; empty if they do not fit."""
        for curves in (True, False):
            nonce = os.urandom(_NONCE_BYTES)
            try:
                packed = account.packed(curves=curves)
                sealed = nonce + self._cipher.encrypt(nonce, packed, self._bound(entries, digest))
            except (OverflowError, ValueError):
                return b""
            if len(sealed) <= MAX_SEALED_BYTES:
                return sealed
        return b""

    def open(self, head: LedgerHead) -> Account | None:
        """The account at a head; None if it has none that this key opens."""
        sealed = head.sealed_sums
        try:
            content = self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound(head.entries, head.digest)
            )
            return Account.unpacked(content)
        except (InvalidTag, ValueError, PlanError):
            return None

    def _bound(self, entries: int, digest: bytes) -> bytes:
        name = self.party.encode()
        return _LABEL + bytes([len(name)]) + name + entries.to_bytes(8, "big") + digest


def _up(value: Fraction) -> float:
    rounded = float(value)  # raises OverflowError beyond the largest double
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


def _up_to_single(value: Fraction) -> float:
    """A number that single precision has, from `value` on."""
    (rounded,) = _SINGLE.unpack(_SINGLE.pack(float(value)))
    if Fraction(rounded) >= value:
        return float(rounded)
    (bits,) = _BITS.unpack(_SINGLE.pack(rounded))
    (following,) = _SINGLE.unpack(_BITS.pack(bits + 1))
    return float(following)


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise OverflowError("a name of more than 255 bytes")
    return bytes([len(data)]) + data


def _read_text(content: bytes, at: int) -> tuple[str, int]:
    # More follows every text, so that one that is cut off shows there.
    end = at + 1 + content[at]
    return content[at + 1 : end].decode(), end


# The head of the ledger's chain in a second file beside it, so that the loss or replacement of the ledger is noticed.
#
# The file is written after every commit that adds an entry, before the call that added it returns. A ledger that is
# ahead of it is one whose process died between both. A ledger that lacks what it names was lost, cut or replaced by an
# older copy. Both files replaced are noticed through other parties only (parties.answering.witnesses).


_FORMAT = 1
_OWNER = ("federation", "party", "source")
_HEAD = FileKind(with_remedy("keep it and the ledger, and run `rado ledger acknowledge`"), limit_bytes=16 << 20)


def head_path(ledger: Path) -> Path:
    """The head's file: beside the ledger itself, also if the ledger's path is a symbolic link."""
    resolved = ledger.resolve()
    return resolved.with_name(f"{resolved.name}.head")


@dataclass(frozen=True)
class LocalHead:
    """What the file says."""

    owner: tuple[str, str, str]
    """Federation, party and source."""
    genesis: bytes
    head: Head
    account: Account | None
    """None if it did not fit."""

    @classmethod
    def of(cls, identity: Mapping[str, str], genesis: bytes, head: Head, account: Account) -> "LocalHead":
        """The head of a ledger. identity: its owner, by key."""
        federation, party, source = (identity.get(key, "") for key in _OWNER)
        return cls((federation, party, source), genesis, head, account)

    @classmethod
    def read(cls, path: Path) -> "LocalHead | None":
        """The head of a file; None if there is no file. Raises ConfigurationError if it is not what was written."""
        if not path.exists():
            return None
        content = read_json(path, _HEAD)
        check = content.pop("check", None)
        if check != _check(content) or content.get("format") != _FORMAT:
            raise _HEAD.error(path, "the head of the ledger is damaged")
        try:
            owner = tuple(str(content[key]) for key in _OWNER)
            digest, genesis = bytes.fromhex(content["digest"]), bytes.fromhex(content["genesis"])
            packed = bytes.fromhex(content["account"])
            account = Account.unpacked(packed) if packed else None
            head = Head(int(content["entries"]), digest)
        except (KeyError, TypeError, ValueError) as error:
            raise _HEAD.error(path, f"the head of the ledger is damaged ({error})") from error
        if head.entries < 0 or not len(digest) == len(genesis) == KEY_BYTES:
            raise _HEAD.error(path, "the head of the ledger is damaged")
        return cls((owner[0], owner[1], owner[2]), genesis, head, account)

    def write(self, path: Path) -> None:
        """Replace the file durably. Raises OSError."""
        try:
            packed = b"" if self.account is None else self.account.packed()
        except OverflowError:
            packed = b""
        content: dict[str, Any] = {
            "format": _FORMAT,
            **dict(zip(_OWNER, self.owner, strict=True)),
            "genesis": self.genesis.hex(),
            "entries": self.head.entries,
            "digest": self.head.digest.hex(),
            "account": packed.hex(),
        }
        write_durably(path, json.dumps({**content, "check": _check(content)}, indent=1).encode())


def _check(content: Mapping[str, Any]) -> str:
    """Against damage, not against a person: it has no key."""
    return sha256(b"rado.v1/ledger-local-head\0", json.dumps(content, sort_keys=True).encode()).hex()


def difference(local: LocalHead | None, genesis: bytes, head: Head, digest_there: bytes | None) -> str:
    """How a ledger contradicts the head beside it: the part of a sentence, empty if it does not.

    digest_there: the ledger's digest after as many entries as the head names, None if it has no such entry.
    """
    if local is None:
        return f"it has {amount(head.entries, 'entry')}, and the head beside it is missing" if head.entries else ""
    if local.genesis != genesis:
        return "it is another ledger than the one whose head is beside it"
    if local.head.entries > head.entries:
        return f"it has {amount(head.entries, 'entry')}, and the head beside it names {local.head.entries}"
    if local.head.digest != digest_there:
        return f"it differs at entry {local.head.entries} from the head beside it"
    return ""


def read_or_none(path: Path) -> LocalHead | None:
    """The head of a file; None also if it is damaged."""
    try:
        return LocalHead.read(path)
    except ConfigurationError:
        return None
