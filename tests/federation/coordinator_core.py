"""A core without sockets, on a clock that the test controls."""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.config import CoordinatorLimits
from coordinator.core import Core
from coordinator.events import Cancelled
from coordinator.intake import Intake
from coordinator.membership import WitnessExchange
from coordinator.service import Views
from coordinator.store import Store
from coordinator.uploads import UploadSpool
from radobase.logs import Log
from tests.federation.coordinator import PARTIES
from tests.waiting import HANG_S
from wire.errors import WireError
from wire.query import Retry
from wire.roster import Roster
from wire.status import Phase


class Parts:
    """What a coordinator consists of, without sockets: store, core, intake, witnesses and views."""

    def open_parts(
        self,
        store_file: Path,
        spool: Path,
        *,
        roster: Callable[[], Roster],
        federation: str,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        limits: CoordinatorLimits | None = None,
    ) -> None:
        limits, log = limits or CoordinatorLimits(), Log("core")
        self.store = Store(store_file, federation)
        self.core = Core(
            self.store, UploadSpool(spool, limits.spool_bytes), limits, log, clock=clock, wall_clock=wall_clock
        )
        self.intake = Intake(self.core, roster, log)
        self.witnesses = WitnessExchange(self.store, roster, clock)
        self.views = Views(self.core, self.witnesses)


class Bench(Parts):
    """A core on a controlled clock, with the calls that members make. `restart`: as after a crash."""

    def __init__(self, world, **limits):
        self.world = world
        self.config = world.with_limits(**limits)
        self.now, self.wall = 1000.0, 1_700_000_000.0
        self.config.state_directory.mkdir(exist_ok=True)

    async def start(self):
        self.open_parts(
            self.config.store_file,
            self.config.spool_directory,
            roster=lambda: self.world.roster,
            limits=self.config.limits,
            federation=self.config.federation,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
        )
        await self.core.start()
        return self

    async def crash(self, *, down_s=0.0):
        """No connection is closed; the machine may boot with another monotonic clock."""
        # A process that is gone writes nothing more to the spool.
        carried = set(self.core._carried)
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)
        self.core._adding.close()
        self.store.close()
        self.wall += down_s
        self.now = 5.0
        await self.start()

    async def turn(self, seconds):
        self.now += seconds
        self.wall += seconds
        await self.core.tick()

    async def settled(self):
        while self.core._carried:
            await asyncio.wait(set(self.core._carried))

    def query(self, **changes):
        return self.world.open(self.world.query(now=self.wall, **changes))

    async def ask(self, **changes):
        opened = self.query(**changes)
        await self.intake.query(opened.envelope, self.world.member(opened.query.learner))
        return opened

    async def accept(self, opened, *names, attempt=1):
        for name in names:
            key = secrets.token_bytes(32) if opened.query.may_vanish else b""
            said = self.world.acceptance(opened.query_id, name, attempt=attempt, share_key=key)
            await self.intake.acceptance(said, self.world.member(name))

    async def refuse(self, opened, *names, attempt=1):
        for name in names:
            said = self.world.refusal(opened.query_id, name, attempt=attempt)
            await self.intake.refusal(said, self.world.member(name))

    async def ready(self, opened, *names, attempt=1):
        for name in names:
            said = self.world.ready(opened.query_id, name, attempt=attempt)
            await self.intake.ready(said, self.world.member(name))

    async def retry(self, opened, attempt=2):
        signed = Retry(opened.query_id, "lea", attempt).sign(self.world.keys["lea"])
        await self.intake.retry(signed, self.world.member("lea"))

    async def to_uploading(self, opened, attempt=1):
        await self.accept(opened, *PARTIES, attempt=attempt)
        await self.ready(opened, *PARTIES, attempt=attempt)
        assert self.live(opened).round.phase is Phase.UPLOADING

    async def upload(self, opened, *names, attempt=1):
        for name in names:
            for chunk in self.world.chunks(opened, name):
                await self.intake.chunk(opened.query_id, attempt, chunk, self.world.member(name))

    async def receipt(self, opened, *names):
        for name in names:
            chunks = self.world.chunks(opened, name)
            said = self.world.receipt(opened, self.live(opened).cohort, name, chunks)
            await self.intake.receipt(said, self.world.member(name))

    async def contribute(self, opened, *names, attempt=1):
        await self.upload(opened, *names, attempt=attempt)
        await self.receipt(opened, *names)

    async def cancel(self, opened):
        await self.core.move(opened.query_id, Cancelled())

    def live(self, opened):
        return self.core.find(opened.query_id)

    def phase(self, opened):
        return self.live(opened).round.phase

    async def status(self, opened):
        return (await self.views.watch(self.world.member(opened.query.learner), opened.query_id, 0, 0))[0]

    async def check_total(self, opened, members):
        lea = self.world.member("lea")
        total = self.views.total(lea, opened.query_id)
        chunks = [await self.views.total_chunk(lea, opened.query_id, i) for i in range(total.chunks)]
        self.world.check_total(opened, total, chunks, members)


def run_on(**limits):
    """Decorate an asynchronous test, to run it on a bench with these limits."""

    def decorate(test):
        def run(world):
            async def play():
                bench = await Bench(world, **limits).start()
                await test(bench)
                await bench.core.close()
                bench.store.close()

            asyncio.run(asyncio.wait_for(play(), HANG_S))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


on_bench = run_on()
"""Runs an asynchronous test on a bench with the usual limits."""


async def refusal(code, awaitable):
    with pytest.raises(WireError) as caught:
        await awaitable
    assert caught.value.code is code, str(caught.value)
    return caught.value
