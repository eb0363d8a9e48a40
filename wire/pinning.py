"""A member is accepted by its key's fingerprint, which its owner read out over another channel, such as the telephone.

Parties accept other parties and learners so (`rado party accept`), and learners parties (`rado learner accept`).
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, with_remedy
from wire.envelopes import fingerprint, same_digits
from wire.roster import Member, Roster, read_roster

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
