"""The coordinator moves: its new address is signed with the roster, and members follow."""

import datetime as dt
from dataclasses import dataclass, replace
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.printing import json_text
from radofed.certificates import Authority
from radofed.joining.operator import Admitted, Signing, kept_requests, signed_answers
from radofed.provision import (
    ROSTER_DAYS,
    ROSTER_FILE,
    certificate_hosts,
    check_clock,
    check_host,
    expiry_unix_s,
    join_address,
    signed_roster,
    split_address,
)
from wire.envelopes import SigningKey, public_key_of
from wire.roster import MOST_ADDRESSES, Role, Roster


@dataclass(frozen=True)
class Moved:
    """A coordinator's new address, signed."""

    admitted: Admitted
    """The coordinator's new certificate, and the roster that says where it is."""
    former: str
    """Where members dialled it before."""

    def sentences(self) -> list[str]:
        """For the operator: the next steps."""
        roster, ((request, file),) = self.admitted.roster, self.admitted.files
        new = roster.coordinator_address
        return [
            f"{file}: send it to coordinator {request.name}, for `rado provision install`, before it moves",
            f"it has a certificate for both addresses, and roster version {roster.version}, by which members follow",
            "wait until running parties have fetched that, within ten minutes, and learners, with their next plan",
            f"then stop the coordinator, move its directory with its state, and start it where members dial {new}",
            f"a member that did not fetch it changes one line of its configuration: coordinator = {json_text(new)}",
        ]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        address = self.admitted.roster.coordinator_address
        return {**self.admitted.to_dict(), "former_address": self.former, "address": address}


def move(directory: Path, address: str, *, days: int = ROSTER_DAYS, now: dt.datetime | None = None) -> Moved:
    """Sign that the coordinator moves to another "host:port": its certificate for both addresses, and the next roster.

    directory: the operator's. Members that have the roster and are configured with a former address dial the new one.
    Raises ConfigurationError before anything is signed.
    """
    now, own, authority = now or dt.datetime.now(dt.UTC), directory / "federation.key", Authority.load(directory)
    file = directory / ROSTER_FILE
    if not file.exists():
        raise ConfigurationError(f"{file}: not there, so the federation has no coordinator: sign its request first")
    old = signed_roster(file, public_key_of(own))
    authority, key = replace(authority, federation=old.federation), SigningKey.load(own, old.federation)
    check_clock(now, old)
    host, port = split_address(address)
    check_host(host)
    (received,) = kept_requests(directory, [m.name for m in old.members if m.role is Role.COORDINATOR])
    former, new = old.dialled(received.request.address), join_address(host, port)
    if port == 0 or new == former:
        raise ConfigurationError(f"{address}: members {'cannot dial port 0' if port == 0 else 'dial it there already'}")
    roster = _next(old, former, new, now, days)
    # Both, so that the coordinator is reached before it moves and after it.
    hosts = dict.fromkeys([*certificate_hosts(host), *certificate_hosts(split_address(former)[0])])
    request = received.request
    certificate = authority.sign_request(request.certificate_request, request.role, request.name, now, hosts=[*hosts])
    return Moved(
        signed_answers(directory, [received], Signing(authority, key, roster, new, now), [certificate]), former
    )


def _next(old: Roster, former: str, new: str, now: dt.datetime, days: int) -> Roster:
    before = [each for each in dict.fromkeys((*old.former_addresses, former)) if each != new]
    return replace(
        old,
        version=old.version + 1,
        issued_at_unix_s=int(now.timestamp()),
        not_after_unix_s=expiry_unix_s(now, days),
        coordinator_address=new,
        # Whoever is still configured with an older one edits its file.
        former_addresses=tuple(before[1 - MOST_ADDRESSES :]),
    )
