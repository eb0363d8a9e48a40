"""Where simulated parties run: in this process, or as Ray actors with several parties each.

Ray stays inside one machine or one organisation's cluster. A cluster that is started here listens on loopback alone,
asks for a token and has no dashboard; one that is running already is used as it is. Ray is imported when it is used.
"""

import os
import secrets
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.rados.edges import Records
from radofed.simulation.errors import SimulationError, SimulationTimedOutError
from radofed.simulation.party import Ask, Host, Share, Upload
from wire.cohort import Acceptance
from wire.envelopes import Envelope

START_TIMEOUT_S = 120.0
# Uploads that may wait for the coordinator, for each worker.
_AHEAD = 2
_MEBIBYTE = 1 << 20
_STORE_BYTES = 256 * _MEBIBYTE
# Without it, Ray on Linux listens on every interface; its name is that of the systems where loopback is the default.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class Hosts(Protocol):
    """Parties, wherever they run. Shares are in the roster's order, and so is what comes back."""

    @property
    def workers(self) -> int:
        """How many processes; 0 where it is this one."""
        ...

    def signing_keys(self) -> dict[str, bytes]:
        """The public half of each party's key."""
        ...

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """The sum of all travel forms, see Host."""
        ...

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """Every party's acceptance."""
        ...

    def uploads(
        self, ask: Ask, shares: Sequence[Share], acceptances: Sequence[Acceptance], cohort_digest: bytes
    ) -> Iterator[Upload]:
        """Every party's upload; only a few are held at a time."""
        ...


def start_hosts(
    records: Records, seed: int, parties: Sequence[str], *, workers: int, timeout_s: float
) -> AbstractContextManager[Hosts]:
    """Hosts for these parties over this table, as a context that ends them.

    workers: Ray actors, 0 for none: then this process computes. timeout_s: for each answer of an actor. Raises
    ConfigurationError where Ray is not installed or cannot be kept to loopback, SimulationTimedOutError where it does
    not start.
    """
    if workers == 0:
        return nullcontext(LocalHosts(records, seed, parties))
    return RayHosts(records, seed, parties, workers=min(workers, len(parties)), timeout_s=timeout_s)


class LocalHosts:
    """All parties in this process."""

    workers = 0

    def __init__(self, records: Records, seed: int, parties: Sequence[str]) -> None:
        self._host = Host(records.features, records.labels, records.usable, seed, parties)

    def signing_keys(self) -> dict[str, bytes]:
        """See Hosts."""
        return self._host.signing_keys()

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """See Hosts."""
        return self._host.residues(ask, shares)

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """See Hosts."""
        return self._host.acceptances(ask, shares)

    def uploads(
        self, ask: Ask, shares: Sequence[Share], acceptances: Sequence[Acceptance], cohort_digest: bytes
    ) -> Iterator[Upload]:
        """See Hosts."""
        return (self._host.upload(ask, share, acceptances, cohort_digest) for share in shares)


class _Guarded:
    """A Host whose refusals travel as values: an error's class may not survive the way between processes."""

    def __init__(self, *arguments: Any) -> None:
        self._host = Host(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._host, method)(*arguments)
        except RadofedError as error:
            return _Refused(str(error), error.exit_code)


class _Refused:
    def __init__(self, sentence: str, exit_code: int) -> None:
        self.sentence, self.exit_code = sentence, exit_code


class RayHosts:
    """Parties dealt out to Ray actors in turn. The table goes to Ray's object store once; actors read it there."""

    def __init__(self, records: Records, seed: int, parties: Sequence[str], *, workers: int, timeout_s: float) -> None:
        self.workers, self._timeout_s, self._seed = workers, timeout_s, seed
        self._records, self._parties = records, tuple(parties)
        self._place = {party: place % workers for place, party in enumerate(parties)}
        self._ray: Any = None
        self._actors: list[Any] = []
        self._started = False

    def __enter__(self) -> Self:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            self._start()
        try:
            self._make_actors()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self) -> None:
        arrays = (self._records.features, self._records.labels, self._records.usable)
        self._ray.init(
            num_cpus=self.workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=_STORE_BYTES + 2 * sum(array.nbytes for array in arrays),
        )
        self._started = True
        address = str(self._ray.get_runtime_context().gcs_address)
        if not address.startswith(("127.", "[::1]", "localhost:")):
            self._end()
            raise ConfigurationError(
                f"Ray listens on {address} and could not be kept to loopback: simulate with 0 workers"
            )

    def _make_actors(self) -> None:
        records = self._records
        table = [self._ray.put(array) for array in (records.features, records.labels, records.usable)]
        actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Guarded)
        for place in range(self.workers):
            mine = [party for party in self._parties if self._place[party] == place]
            self._actors.append(actor.remote(*table, self._seed, mine))
        self._get([each.call.remote("signing_keys") for each in self._actors], "starting workers", START_TIMEOUT_S)

    def _end(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._started:
            self._ray.shutdown()
            self._started = False

    def signing_keys(self) -> dict[str, bytes]:
        """See Hosts."""
        keys: dict[str, bytes] = {}
        for found in self._get([actor.call.remote("signing_keys") for actor in self._actors], "making keys"):
            keys.update(found)
        return keys

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """See Hosts."""
        asked = self._ray.put(ask)
        parts = self._get(
            [actor.call.remote("residues", asked, mine) for actor, mine in self._dealt(shares)], "drawing contributions"
        )
        return np.asarray(np.sum(parts, axis=0, dtype=np.uint64))

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """See Hosts."""
        dealt = self._dealt(shares)
        asked = self._ray.put(ask)
        found = self._get([actor.call.remote("acceptances", asked, mine) for actor, mine in dealt], "accepting")
        by_party = {
            share.party: said
            for (_, mine), part in zip(dealt, found, strict=True)
            for share, said in zip(mine, part, strict=True)
        }
        return [by_party[share.party] for share in shares]

    def uploads(
        self, ask: Ask, shares: Sequence[Share], acceptances: Sequence[Acceptance], cohort_digest: bytes
    ) -> Iterator[Upload]:
        """See Hosts."""
        asked, accepted = self._ray.put(ask), self._ray.put(tuple(acceptances))
        waiting: deque[Any] = deque()
        for share in shares:
            actor = self._actors[self._place[share.party]]
            waiting.append(actor.call.remote("upload", asked, share, accepted, cohort_digest))
            if len(waiting) >= _AHEAD * self.workers:
                yield from self._get([waiting.popleft()], "encrypting")
        while waiting:
            yield from self._get([waiting.popleft()], "encrypting")

    def _dealt(self, shares: Sequence[Share]) -> list[tuple[Any, list[Share]]]:
        return [
            (actor, [share for share in shares if self._place[share.party] == place])
            for place, actor in enumerate(self._actors)
        ]

    def _get(self, references: list[Any], what: str, timeout_s: float | None = None) -> list[Any]:
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            found: list[Any] = self._ray.get(references, timeout=limit)
        except self._ray.exceptions.GetTimeoutError as error:
            raise SimulationTimedOutError(what, limit) from error
        except self._ray.exceptions.OutOfMemoryError as error:
            raise SimulationError(
                f"Ray ended a worker while {what}, as this machine's memory is nearly full: use fewer workers, or 0"
            ) from error
        except self._ray.exceptions.RayError as error:
            last = str(error).strip().splitlines()[-1]
            raise SimulationError(f"a worker failed while {what}: {last}; use fewer workers, or 0") from error
        for answer in found:
            if isinstance(answer, _Refused):
                raise SimulationError(answer.sentence, exit_code=answer.exit_code)
        return found


def _import_ray() -> Any:
    """Ray, told before its import to keep to loopback and to ask for a token."""
    if (known := sys.modules.get("ray")) is not None:
        if known.is_initialized():
            return known
        if os.environ.get(_LOOPBACK) != "0":
            raise ConfigurationError(
                "Ray was imported before it could be kept to loopback: simulate before importing it, connect it to a "
                "cluster of yours first, or simulate with 0 workers"
            )
    os.environ |= {_LOOPBACK: "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray  # noqa: PLC0415  (half a second, and only where it is used)
        import ray.exceptions  # noqa: PLC0415  (as above)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed: install radofed[ray], or simulate with 0 workers"
        ) from missing
    return ray
