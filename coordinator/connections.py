"""Open connections: whose they are, and the end of those that are too many.

gRPC limits no connections by certificate, and shows a certificate only with a call. So the gate notes whose connection
each call came on, and the sockets of this process show which are open. A connection is ended by shutting its socket
down, which gRPC sees as a peer that has gone.
"""

import asyncio
import ipaddress
import os
import resource
import socket
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from radobase.failure import in_words
from radobase.logs import Log
from wire.errors import Code, WireError

CONNECTIONS_AT_ONCE: Final = 8
"""The most connections of one member. A node has one, and so has each command that runs."""
UNIDENTIFIED_AT_ONCE: Final = 256
"""The most connections without a call of a member, beside one for each member that has no connection.

All members may come at once, as after a fault of the network, and over slow lines none has called yet.
"""
IDENTIFIED_WITHIN_S: Final = 60.0
"""A connection without a call of a member is ended after this time."""
LOOKED_AT_EVERY_S: Final = 1.0

MOST_DESCRIPTORS: Final = 65_536
"""What this process asks for. Many systems grant 1,024 files and sockets until a process asks for more."""
LEAST_ROOM: Final = 2048
"""Connections that a small federation's coordinator accepts, if its descriptors suffice."""
OTHER_DESCRIPTORS: Final = 256
"""Kept for files and for other sockets, and to end connections: that takes descriptors too."""

_DESCRIPTORS: Final = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)

Address = tuple[str, int]


@dataclass
class _Connection:
    """An open connection."""

    since_s: float
    """When it was first seen."""
    san: str = ""
    """The rado:// name in its certificate, empty before the first call."""


class Connections:
    """The open connections to one port. Use it from one event loop.

    Ends those without a call in progress first, then the oldest, so that a member whose line was cut, or who comes
    while strangers open many, gets in. A member with as many at work as it may have gets no other: the oldest would
    come back, and so on without end. gRPC's keepalive finds those that are dead.
    """

    def __init__(
        self,
        port: int,
        log: Log,
        *,
        busy: Callable[[], Iterable[str]] = tuple,
        members: Callable[[], int] = lambda: 0,
        room: int = MOST_DESCRIPTORS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """port: of this server. busy: addresses with a call in progress, in gRPC's form. members: their number.

        room: the most connections that the server accepts. clock: monotonic seconds.
        """
        self._port, self._log, self._busy, self._clock = port, log, busy, clock
        self._members, self._room = members, room
        self._known: dict[Address, _Connection] = {}

    def note(self, peer: str, san: str) -> None:
        """A member's call came on this connection. peer: its address, in gRPC's form.

        Raises WireError(CALLS_TOO_MANY) if it is the first call of this connection, and as many others of the member as
        it may have are at work.
        """
        if (address := _address(peer)) is None:
            return
        connection = self._known.setdefault(address, _Connection(self._clock()))
        if not connection.san:
            at_work = sum(self._known[each].san == san for each in self._at_work() & self._known.keys())
            if at_work >= CONNECTIONS_AT_ONCE:
                raise WireError(Code.CALLS_TOO_MANY, f"The limit is {CONNECTIONS_AT_ONCE} connections at work.")
            connection.san = san

    def _at_work(self) -> set[Address]:
        return {address for peer in self._busy() if (address := _address(peer)) is not None}

    def look(self) -> None:
        """End connections beyond the limits."""
        open_now = {address for address, _ in _sockets(self._port)}
        now = self._clock()
        known = {address: self._known.get(address) or _Connection(now) for address in open_now}
        # Oldest first. A connection that was noted for a call stays in its place.
        self._known = dict(sorted(known.items(), key=lambda item: item[1].since_s))
        owned = defaultdict[str, list[Address]](list)
        for address, connection in self._known.items():
            owned[connection.san].append(address)
        ended: set[Address] = set()
        at_work = self._at_work()
        for san, found in owned.items():
            # Stable: the oldest stay first among those at work, and among the others.
            addresses = sorted(found, key=at_work.__contains__)
            most = CONNECTIONS_AT_ONCE if san else self._most_unidentified(owned)
            beyond = addresses[: max(0, len(addresses) - most)]
            if san and beyond:
                self._log.refused(
                    "connections ended", peer=san, code=Code.CALLS_TOO_MANY, count=len(beyond), limit=most
                )
            ended.update(beyond)
        ended.update(each for each in owned[""] if now - self._known[each].since_s > IDENTIFIED_WITHIN_S)
        if ended:
            _end(self._port, ended)

    def _most_unidentified(self, owned: Mapping[str, Sequence[Address]]) -> int:
        """A quarter of the room stays free for callers that come until the next look."""
        identified = [found for san, found in owned.items() if san]
        absent = max(0, self._members() - len(identified))
        free = self._room * 3 // 4 - sum(map(len, identified))
        return max(0, min(UNIDENTIFIED_AT_ONCE + absent, free))

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOKED_AT_EVERY_S)
            try:
                self.look()
            except OSError as error:  # no descriptor is free
                self._log.warning("connections not looked at", reason=in_words(error))


def most_needed(members: int) -> int:
    """The connections that so many members may have."""
    return CONNECTIONS_AT_ONCE * members


def make_room(members: int) -> int:
    """Raise the limit of this process's descriptors, if that is allowed, and return the most connections to accept.

    Without a limit on connections a stranger could take all descriptors, and nothing could be ended any more. Each also
    takes memory until the next look, so there are no more than twice what these members need: a roster may grow.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    limit = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    fit = max(limit // 2, limit - OTHER_DESCRIPTORS)
    return min(fit, max(LEAST_ROOM, 2 * (most_needed(members) + members + UNIDENTIFIED_AT_ONCE)))


def _address(peer: str) -> Address | None:
    """The address in gRPC's form, "ipv4:127.0.0.1:50000" or "ipv6:%5B::1%5D:50000"; None for another kind."""
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdecimal():
        return None
    return _plain(host.strip("[]")), int(port)


def _plain(host: str) -> str:
    """An address in one form. A server of both kinds sees IPv4 addresses within IPv6 ones."""
    found = ipaddress.ip_address(host.partition("%")[0])
    return str(getattr(found, "ipv4_mapped", None) or found)


def _sockets(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """The accepted sockets of a port, each valid until the next one, and the addresses of their peers."""
    for entry in () if _DESCRIPTORS is None else list(_DESCRIPTORS.iterdir()):
        with suppress(OSError), _duplicate(int(entry.name)) as found:
            if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockname()[1] == port:
                host, its_port = found.getpeername()[:2]
                yield (_plain(host), its_port), found


@contextmanager
def _duplicate(descriptor: int) -> Iterator[socket.socket]:
    """A socket of this process. gRPC may close its own descriptor at any time. Raises OSError if it is no socket."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError
    with socket.socket(fileno=os.dup(descriptor)) as found:
        yield found


def _end(port: int, addresses: set[Address]) -> None:
    for address, found in _sockets(port):
        if address in addresses:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
