"""The coordinator's sum on a Ray cluster: lost work is repeated, the total is the same.

Every job starts processes that import Ray, so these run in `make test-more`, and many cases in `make test-all` only.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest

from coordinator.config import CoordinatorCluster, CoordinatorConfig
from coordinator.uploads import Adding, ClusterSum, SpoolDamagedError
from dpcore.errors import ConfigurationError
from dpcore.paillier.public import multiply
from radobase.cluster_jobs import ITEMS_PER_WORKER, ClusterError, ClusterJob, check_cluster
from radobase.logs import Log
from tests.federation.coordinator import MANY_RADOS, PARTIES, Clients
from tests.federation.coordinator_core import on_bench
from tests.ray_nodes import JobHere, RayNodes, another_product, cut_off, for_ever, needs_ray, slowly, zeros
from tests.waiting import HANG_S, wait_until


@pytest.fixture
def settings(nodes):
    return CoordinatorCluster(
        address=nodes.address, token_file=nodes.token_file, workers=1, timeout_s=HANG_S, from_bytes=1
    )


@pytest.fixture(autouse=True)
def no_check_at_start(monkeypatch):
    """It would be another process next to each test."""
    monkeypatch.setattr("radobase.cluster_jobs.check_cluster", lambda _: None)


@pytest.fixture
def one_upload_an_item(monkeypatch):
    """Twelve items: three chunks of four parties."""
    monkeypatch.setattr("coordinator.uploads.ITEM_BYTES", 1)


def compute_by(monkeypatch, other, kind=ClusterJob):
    """Have workers call another function of (the real one, shared, payload). kind: of job."""

    def job(settings, function, shared, connecting):
        return kind(settings, partial(other, function), shared, connecting)

    monkeypatch.setattr("coordinator.uploads.ClusterJob", job)


def use(bench, settings, on_read=lambda number: None):
    """Have the bench's totals made on the cluster; the list of what is read from the spool."""
    reads, read = [], bench.core.spool.read

    def noted(query_id, attempt, party, index):
        reads.append((party, index))
        on_read(len(reads))
        return read(query_id, attempt, party, index)

    bench.core.spool.read = noted
    bench.core._adding._cluster = ClusterSum(settings, bench.core.spool, Log("core"))
    return reads


async def whole_round(bench):
    """From query to total; the total is the sum over all, and the bytes that one machine makes."""
    opened = await bench.ask(rados=MANY_RADOS)
    await bench.to_uploading(opened)
    uploads = {party: bench.world.chunks(opened, party) for party in PARTIES}
    await bench.contribute(opened, *PARTIES)
    await bench.settled()
    await bench.check_total(opened, PARTIES)
    for index in range(opened.chunks):
        expected = multiply(opened.public_key, [uploads[party][index].ciphertexts for party in PARTIES])
        assert bench.core.spool.read_total(opened.query_id, index) == expected


def made_here(*_):
    raise AssertionError("this machine made a chunk of the total")


def events(caplog):
    """Those about a total."""
    return [
        record.getMessage()
        for record in caplog.records
        if "cluster" in record.getMessage() and "adding" in record.getMessage()
    ]


@pytest.mark.more
@needs_ray
@pytest.mark.parametrize(
    "loss",
    [
        "none",
        pytest.param("remove_busy_node", marks=pytest.mark.slow),
        pytest.param("kill_busy_worker", marks=pytest.mark.slow),
    ],
)
def test_the_total_has_the_same_bytes_after_any_loss(
    world, nodes, settings, monkeypatch, caplog, one_upload_an_item, loss
):
    """A node, or a worker's process, is killed while it computes; what it had is read from the spool again."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Adding, "_make_chunk", made_here)
    if loss != "none":
        compute_by(monkeypatch, slowly)
        nodes.fill(2)

    def strike(number):
        if number == 3 and loss != "none":
            getattr(nodes, loss)()

    @on_bench
    async def play(bench):
        reads = use(bench, settings.model_copy(update={"workers": 3}), strike)
        await whole_round(bench)
        items = len(PARTIES) * 3
        assert len(set(reads)) == items
        assert (len(reads) > items) == (loss != "none")

    play(world)
    assert events(caplog) == ["adding on the cluster"]


@pytest.mark.slow
@needs_ray
def test_work_in_progress_is_bounded_for_any_length_of_the_job(settings):
    loaded, most = 0, 0

    def load(number):
        nonlocal loaded
        loaded += 1
        return number

    with ClusterJob(settings, max, 7) as job:
        for done, (number, result) in enumerate(job.results(20, load)):
            most = max(most, loaded - done)
            assert result == max(7, number)
    assert loaded == 20
    assert most == ITEMS_PER_WORKER * settings.workers


@pytest.mark.slow
@needs_ray
def test_a_damaged_spool_is_named_and_a_total_that_is_not_wanted_stops(world, settings, one_upload_an_item, caplog):
    @on_bench
    async def damaged(bench):
        opened = await bench.ask(rados=MANY_RADOS)
        await bench.to_uploading(opened)
        await bench.contribute(opened, *PARTIES[:3])
        await bench.upload(opened, "dan")
        cluster = ClusterSum(settings, bench.core.spool, Log("core"))
        live = bench.live(opened)
        before = len(live.round.receipts)
        assert before == 3
        cluster.make(live, lambda: True)
        assert not bench.core.spool.held_total(opened.query_id)
        (stored,) = bench.config.spool_directory.glob("*/1/cat/2-*")
        stored.write_bytes(stored.read_bytes()[:-1] + b"\0")
        with pytest.raises(SpoolDamagedError, match="chunk 2 of cat"):
            cluster.make(live, lambda: False)

    damaged(world)
    assert "cluster failed, adding on this machine" not in events(caplog)


@needs_ray
@pytest.mark.parametrize("wrong", [cut_off, zeros])
@pytest.mark.parametrize("kind", [JobHere, pytest.param(ClusterJob, marks=pytest.mark.slow)])
def test_an_invalid_product_is_not_stored(request, world, monkeypatch, caplog, kind, wrong):
    """As from a manipulated worker. This machine then computes the total."""
    compute_by(monkeypatch, wrong, kind)
    nowhere = CoordinatorCluster(address="127.0.0.1:1", from_bytes=1)
    used = nowhere if kind is JobHere else request.getfixturevalue("settings")

    @on_bench
    async def play(bench):
        use(bench, used)
        await whole_round(bench)

    play(world)
    (reason,) = [record.fields["reason"] for record in caplog.records if "failed" in record.getMessage()]
    assert "returned no valid product" in reason


@pytest.mark.slow
@needs_ray
def test_a_plausible_wrong_product_is_stored_as_the_coordinator_cannot_notice(world, settings, monkeypatch, caplog):
    """The learner's tag refuses it: tests/hostile/test_wrong_products.py."""

    @on_bench
    async def play(bench):
        use(bench, settings)
        opened = await bench.ask(rados=4)
        compute_by(monkeypatch, partial(another_product, opened.query.encoding.slot_bits))
        await bench.to_uploading(opened)
        uploads = [bench.world.chunks(opened, party)[0].ciphertexts for party in PARTIES]
        await bench.contribute(opened, *PARTIES)
        await bench.settled()
        key, stored = opened.public_key, bench.core.spool.read_total(opened.query_id, 0)
        assert stored == another_product(opened.query.encoding.slot_bits, multiply, key, uploads)
        assert stored != multiply(key, uploads)

    play(world)
    # A failure of the cluster would be a warning.
    assert events(caplog) == []


@pytest.mark.more
@needs_ray
def test_a_cluster_that_cannot_be_used_says_why(settings, tmp_path):
    wrong = tmp_path / "wrong.token"
    wrong.write_text("ab" * 32)
    cases = {
        "refuses this token": {"token_file": wrong},
        "it should hold the Ray cluster's token": {"token_file": tmp_path / "none"},
        "no Ray cluster answers at 127.0.0.1:1": {"address": "127.0.0.1:1"},
    }
    for sentence, change in cases.items():
        with pytest.raises(ClusterError, match=sentence):
            check_cluster(settings.model_copy(update=change))
    check_cluster(settings)


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_gives_no_answer_in_time_is_given_up(settings):
    short = settings.model_copy(update={"timeout_s": 8.0})
    with ClusterJob(short, for_ever, None) as job, pytest.raises(ClusterError, match="no answer within 8 s"):
        list(job.results(1, lambda number: number))


@pytest.mark.more
@needs_ray
def test_a_worker_that_runs_another_version_is_refused(settings, monkeypatch):
    monkeypatch.setattr("radobase.cluster_jobs.program_version", lambda: "0.0.1")
    with pytest.raises(ClusterError, match=r"but this node has 0\.0\.1: install the same version everywhere"):
        check_cluster(settings)


@pytest.mark.slow
@needs_ray
@pytest.mark.ends_cluster
def test_a_cluster_that_is_gone_leaves_the_total_to_this_machine(world, nodes, settings, monkeypatch, caplog):
    """Parties were charged, so the round goes on."""
    monkeypatch.setattr("coordinator.uploads.ITEM_BYTES", 1)
    # Ray's own patience with a head that does not answer is a minute.
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")

    def strike(number):
        if number == 3:
            nodes.end()

    @on_bench
    async def play(bench):
        use(bench, settings, strike)
        await whole_round(bench)

    play(world)
    assert "cluster failed, adding on this machine" in events(caplog)


@pytest.mark.more
@needs_ray
def test_a_cluster_that_asks_for_no_token_is_refused(tmp_path):
    """Here a server that answers as such a cluster does; the test below starts one."""
    (tmp_path / "ray.token").write_text("ab" * 32)
    server = grpc.server(ThreadPoolExecutor(1))
    alive = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", {"CheckAlive": alive})]
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with pytest.raises(ClusterError, match="requires no token"):
            check_cluster(CoordinatorCluster(address=address, token_file=tmp_path / "ray.token"))
    finally:
        server.stop(None)


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize(("authenticated", "sentence"), [(False, "requires no token"), (True, "has no processor")])
def test_an_open_cluster_and_one_without_processors_are_refused(tmp_path, authenticated, sentence):
    nodes = RayNodes(tmp_path, nodes=0, authenticated=authenticated)
    try:
        settings = CoordinatorCluster(address=nodes.address, token_file=nodes.token_file)
        with pytest.raises(ClusterError, match=sentence):
            check_cluster(settings)
    finally:
        nodes.end()


@pytest.mark.more
def test_small_totals_never_touch_the_cluster(world, caplog):
    caplog.set_level(logging.INFO)

    @on_bench
    async def play(bench):
        use(bench, CoordinatorCluster(address="127.0.0.1:1", from_bytes=1 << 40))
        await whole_round(bench)

    play(world)
    assert events(caplog) == []


@pytest.mark.more
@needs_ray
def test_a_coordinator_whose_cluster_is_not_there_serves_and_says_so(world, start_node, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr("radobase.cluster_jobs.check_cluster", check_cluster)
    settings = CoordinatorCluster(address="127.0.0.1:1", token_file=tmp_path / "none")
    node = start_node(world.config.model_copy(update={"cluster": settings}))
    wait_until(lambda: "cluster cannot be used" in [r.getMessage() for r in caplog.records], what="the check")
    clients = Clients(world, node.address)
    assert not clients["ann"].work().work
    clients.close()


def test_without_ray_a_coordinator_with_a_cluster_does_not_start(world, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"install radofed\[ray\]"):
        ClusterSum(CoordinatorCluster(address="auto"), None, Log("core"))


def test_the_configuration_has_a_cluster_only_where_it_is_written(world, tmp_path):
    path = world.directories["coordinator"] / "coordinator.toml"
    assert CoordinatorConfig.load(path).cluster is None
    written = path.read_text()
    path.write_text(written + '\n[cluster]\naddress = "10.0.0.1:6379"\ntoken_file = "ray.token"\nfrom_bytes = 5\n')
    cluster = CoordinatorConfig.load(path).cluster
    assert (cluster.address, cluster.workers, cluster.from_bytes) == ("10.0.0.1:6379", 8, 5)
    assert cluster.token_file == path.parent / "ray.token"
    for bad in ('address = "ray://10.0.0.1:10001"', 'address = "10.0.0.1"', 'address = "auto"\nworkers = 0'):
        path.write_text(f"{written}\n[cluster]\n{bad}\n")
        with pytest.raises(ConfigurationError, match="cluster"):
            CoordinatorConfig.load(path)
