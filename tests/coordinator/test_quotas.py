"""Limits of learners: what is too much is refused before a party sees it, also after a restart, with a way out."""

import pytest

from coordinator.config import CoordinatorConfig, LearnerLimits
from coordinator.limits import DAY_S
from dpcore.errors import ConfigurationError
from radofed.cli.entry_point import run
from tests.coordinator.test_watching import Watched
from tests.federation.coordinator import Clients
from tests.federation.coordinator_core import on_bench, refusal, run_on
from tests.federation.processes import rado
from wire.errors import Code

QUERIES, BYTES = "queries_per_day_per_learner", "upload_bytes_per_day_per_learner"
SMALL = 4 * 1024
"""Bytes of the uploads of a test's query: one ciphertext of each of four parties."""


@run_on(queries_per_day_per_learner=2)
async def test_a_learner_asks_so_many_queries_within_a_day_and_others_are_not_concerned(bench):
    first = await bench.ask()
    await bench.cancel(first)
    await bench.turn(3600)
    await bench.ask()
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    # The first was asked at 22:13:20 on 14 November 2023.
    assert f"asked 2 in the last 24 hours, and {QUERIES} is 2 for it" in error.detail
    assert "There is room at 2023-11-15 22:14 UTC." in error.detail
    ann = bench.world.member("ann")
    assert len((await bench.views.work(ann, 0, 0))[0]) == 1, "no party saw it"
    await bench.ask(learner="lou")
    # The bytes of a query that was taken may be sent again.
    await bench.intake.query(first.envelope, bench.world.member("lea"))
    await bench.turn(DAY_S - 3601)
    await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    await bench.turn(1)
    await bench.ask()
    await refusal(Code.QUERIES_TOO_MANY, bench.ask())


@run_on(queries_per_day_per_learner=1, keep_finished_s=0)
async def test_what_was_asked_counts_after_a_restart_also_once_it_is_forgotten(bench):
    opened = await bench.ask()
    await bench.cancel(opened)
    await bench.turn(10)
    await bench.core._forget()
    assert bench.core.get(opened.query_id) is None
    await bench.crash(down_s=600)
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    assert "There is room at 2023-11-15 22:14 UTC." in error.detail
    await bench.crash(down_s=DAY_S)
    await bench.ask()


@on_bench
async def test_a_limit_that_was_lowered_has_room_once_enough_are_a_day_old(bench):
    for _ in range(3):
        await bench.cancel(await bench.ask())
        await bench.turn(60)
    bench.config = bench.world.with_limits(queries_per_day_per_learner=2)
    await bench.crash()
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    assert "asked 3 in the last 24 hours" in error.detail
    assert "There is room at 2023-11-15 22:15 UTC." in error.detail
    await bench.turn(DAY_S - 120)
    await bench.ask()


@run_on(upload_bytes_per_day_per_learner=3 * SMALL)
async def test_a_learner_causes_so_many_bytes_of_uploads_within_a_day(bench):
    await bench.ask()
    await bench.turn(60)
    await bench.ask(rados=60)
    assert bench.core.queries[-1].most_upload_bytes == 2 * SMALL
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    assert f"may need {SMALL} bytes" in error.detail
    assert (
        f"need {3 * SMALL}, and {BYTES} is {3 * SMALL} for it. There is room at 2023-11-15 22:14 UTC." in error.detail
    )
    # One of twice the size has to wait for the second one to be a day old.
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask(rados=60))
    assert "There is room at 2023-11-15 22:15 UTC." in error.detail
    error = await refusal(Code.QUERY_TOO_LARGE, bench.ask(rados=200))
    assert f"{BYTES} is {3 * SMALL}" in error.detail
    await bench.turn(DAY_S - 60)
    await bench.ask()
    await refusal(Code.QUERIES_TOO_MANY, bench.ask())


@run_on(
    open_queries_per_learner=1,
    queries_per_day_per_learner=1,
    learners={"lou": LearnerLimits(open_queries=2, queries_per_day=3)},
)
async def test_a_learner_may_have_limits_of_its_own(bench):
    await bench.ask()
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    assert "1 are open, 1 of them from this learner, and open_queries_per_learner is 1." in error.detail
    assert "the first expires at 2023-11-14 23:14 UTC" in error.detail
    for _ in range(2):
        await bench.ask(learner="lou")
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask(learner="lou"))
    assert "open_queries_per_learner is 2" in error.detail
    await bench.cancel(bench.core.queries[-1])
    await bench.ask(learner="lou")
    await bench.cancel(bench.core.queries[-1])
    error = await refusal(Code.QUERIES_TOO_MANY, bench.ask(learner="lou"))
    assert f"{QUERIES} is 3" in error.detail


@pytest.mark.parametrize("limit", ["open_queries", "queries_per_day", "upload_bytes_per_day"])
def test_a_limit_of_zero_shuts_a_learner_out_without_a_time(world, limit):
    @run_on(learners={"lea": LearnerLimits(**{limit: 0})})
    async def play(bench):
        code = Code.QUERY_TOO_LARGE if limit == "upload_bytes_per_day" else Code.QUERIES_TOO_MANY
        error = await refusal(code, bench.ask())
        assert "is 0" in error.detail
        assert "There is room" not in error.detail
        await bench.ask(learner="lou")

    play(world)


@on_bench
async def test_without_these_limits_a_learner_asks_as_often_as_before(bench):
    for _ in range(40):
        await bench.cancel(await bench.ask())


@run_on(queries_per_day_per_learner=1, spool_bytes=SMALL, open_queries=1)
async def test_refusals_are_counted_by_their_limit(bench):
    watched = Watched(bench)

    async def counted(limit):
        return (await watched.scrape())("rado_queries_refused_total", limit=limit)

    await bench.ask()
    await refusal(Code.QUERIES_TOO_MANY, bench.ask(learner="lou"))
    assert (await counted("open_queries"), await counted(QUERIES)) == (1, 0)
    await bench.cancel(bench.core.queries[0])
    await refusal(Code.QUERIES_TOO_MANY, bench.ask())
    await refusal(Code.QUERY_TOO_LARGE, bench.ask(learner="lou", rados=30))
    assert (await counted(QUERIES), await counted("spool_bytes")) == (1, 1)


@on_bench
async def test_a_store_keeps_what_was_asked_for_a_day_alone(bench):
    for _ in range(3):
        await bench.cancel(await bench.ask())
        await bench.turn(DAY_S / 2 + 1)
    assert len(bench.store.asked()) == 2


def test_the_status_shows_what_learners_use_of_their_limits(world, start_node, capsys):
    file = world.directories["coordinator"] / "coordinator.toml"
    own = "\n[limits.learners.lou]\nqueries_per_day = 1\n[limits.learners.lui]\nopen_queries = 1\n"
    file.write_text(file.read_text().replace("finished_per_learner = 200", "finished_per_learner = 200\n" + own, 1))
    config = CoordinatorConfig.load(file).model_copy(update={"listen": "127.0.0.1:0"})
    node = start_node(config)
    clients = Clients(world, node.address)
    clients["lou"].submit(world.query(learner="lou"))
    found = rado("coordinator", "status", "--config", str(file))["data"]
    lea, lou = found["quotas"]
    assert (lea["learner"], lea["open_queries"], lea["open_queries_limit"], lea["queries_per_day"]) == (
        "lea",
        0,
        4,
        None,
    )
    assert (lou["queries_last_day"], lou["queries_per_day"], lou["upload_bytes_last_day"]) == (1, 1, SMALL)
    assert found["unknown_learners"] == ["lui"]
    assert run(["coordinator", "status", "--config", str(file)]) == 0
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines() if line.startswith("lou ")][-1][:7] == [
        "lou", "1", "of", "4", "1", "of", "1",
    ]  # fmt: skip
    assert "names lui, and the roster has no such learner" in printed
    clients.close()


@pytest.mark.parametrize("text", ["queries_per_day = -1", "queries_a_day = 1", 'open_queries = "many"'])
def test_a_limit_that_is_no_limit_is_refused(world, text):
    file = world.directories["coordinator"] / "coordinator.toml"
    file.write_text(f"{file.read_text()}\n[limits.learners.lea]\n{text}\n")
    with pytest.raises(ConfigurationError, match=r"limits\.learners\.lea"):
        CoordinatorConfig.load(file)
