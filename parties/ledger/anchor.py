"""The head of the ledger's chain in a second file beside it, so that the loss or replacement of the ledger is noticed.

The file is written after every commit that adds an entry, before the call that added it returns. A ledger that is ahead
of it is one whose process died between both. A ledger that lacks what it names was lost, cut or replaced by an older
copy. Both files replaced are noticed through other parties only (parties.answering.witnesses).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from parties.ledger.chain import Head
from parties.ledger.sums import Account
from radobase.files.reading import FileKind, read_json, with_remedy
from radobase.files.writing import write_durably
from radobase.printing import amount
from wire.envelopes import KEY_BYTES, sha256

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
