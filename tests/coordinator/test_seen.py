"""When members were last seen is stored soon after their first call, and then now and then."""

import asyncio
from contextlib import suppress

import pytest

from coordinator import membership
from coordinator.membership import LastSeen
from coordinator.store import Store, read_seen
from tests.waiting import HANG_S
from wire.roster import Member, Role

NORTH, SOUTH = (Member(Role.PARTY, name, bytes(32), f"rado://f/party/{name}") for name in ("north", "south"))


@pytest.fixture
def at(monkeypatch):
    """The time that is noted; saving is a thousand times as quick."""
    monkeypatch.setattr(membership, "NEW_SAVED_EVERY_S", 0.001)
    return [100.0]


def test_a_member_s_first_call_is_stored_at_once_and_later_ones_wait(tmp_path, at):
    file = tmp_path / "store.sqlite"
    store = Store(file, "f")
    last = LastSeen(store, lambda: at[0])

    async def until(expected: dict[str, int]) -> None:
        while read_seen(file) != expected:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.001)

    async def play() -> None:
        task = asyncio.create_task(last.run())
        last.note(NORTH)
        await asyncio.wait_for(until({"north": 100}), HANG_S)
        at[0] = 200.0
        last.note(NORTH)
        await asyncio.sleep(0.05)
        assert read_seen(file) == {"north": 100}
        # A member that is new brings what was noted of others.
        last.note(SOUTH)
        await asyncio.wait_for(until({"north": 200, "south": 200}), HANG_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(play())
    store.close()
