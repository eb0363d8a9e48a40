"""Renewal of a federation's roster, offline: the next version, with a new expiry, signed by the federation key."""

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, with_remedy
from radobase.files.writing import BY_UMASK, write_durably
from wire.envelopes import SigningKey, fingerprint, public_key_of
from wire.roster import EXPIRY_SKEW_S, Member, Role, Roster, read_roster

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
