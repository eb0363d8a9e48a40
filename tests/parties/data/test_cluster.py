"""A party's sums over rows on a Ray cluster: lost work is repeated, and the sums are the same."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.moments import MomentsPart
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, SensitiveFeature, plain_design
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret, sum_on_threads
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from dpcore.records.records import BLOCK_ROWS
from parties.answering.coordinator_calls import StoppedError
from parties.config import PartyCluster, PartyConfig
from parties.data.cluster_row_sums import ClusterRowSums, sum_of_run
from parties.node import PartyNode
from radobase.cluster_jobs import ClusterJob
from radobase.logs import Log
from tests.federation.party import SCHEMA, make_records
from tests.ray_nodes import JobHere, needs_ray, one_more, slowly, with_one_blas_thread, wrong_shape
from tests.waiting import HANG_S

# Ten runs of one block, the last one not whole.
ROWS = 9 * BLOCK_ROWS + 77


@pytest.fixture(scope="module")
def records():
    return make_records(ROWS, seed=5)


@pytest.fixture(autouse=True)
def one_block_an_item(monkeypatch):
    monkeypatch.setattr("parties.data.cluster_row_sums.ITEM_BYTES", 1)
    # Another process next to each test.
    monkeypatch.setattr("radobase.cluster_jobs.check_cluster", lambda _: None)


@pytest.fixture
def sums(nodes):
    settings = PartyCluster(
        address=nodes.address, token_file=nodes.token_file, workers=1, timeout_s=HANG_S, from_rows=ROWS
    )
    return ClusterRowSums(settings, Log("party"))


PLAIN = plain_design(SCHEMA)


def contribution(records, row_sums, progress=None, design=PLAIN):
    query = RadosQuery(30, design)
    secret = PartySecret(bytes(32), SCHEMA.digest)
    return query.contribution(records, 16, Computation(SeededRandom(3), secret, row_sums, progress))


def on_workers(monkeypatch, function=None, kind=ClusterJob):
    """Have workers call `function` with the real one before its arguments; the jobs, and the runs that were sent.

    kind: of job.
    """
    jobs, sent = [], []

    class Job(kind):  # type: ignore[valid-type]  # a variable, one of two classes
        def __init__(self, settings, real, shared):
            super().__init__(settings, partial(function, real) if function else real, shared)
            jobs.append(self)

        def results(self, count, load, idle):
            def noted(number):
                sent.append(number)
                return load(number)

            return super().results(count, noted, idle)

    monkeypatch.setattr("parties.data.cluster_row_sums.ClusterJob", Job)
    return jobs, sent


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("loss", ["none", "remove_busy_node", "kill_busy_worker"])
def test_the_sums_are_the_same_after_any_loss(nodes, sums, records, monkeypatch, caplog, loss):
    """A node, or a worker's process, is killed while it computes; its rows are sent again.

    The coordinator's tests always lose a node; the job is the same.
    """
    nodes.fill(2)
    sums._settings = sums._settings.model_copy(update={"workers": 3})
    _, sent = on_workers(monkeypatch, slowly if loss != "none" else None)
    reported = []

    def progress(done, rows):
        reported.append(done)
        if len(reported) == 1 and loss != "none":
            getattr(nodes, loss)()

    expected = contribution(records, sum_on_threads)
    np.testing.assert_array_equal(contribution(records, sums, progress), expected)
    assert set(sent) == set(range(10))
    assert (len(sent) > 10) == (loss != "none")
    assert reported == sorted(reported)
    assert reported[-1] == ROWS
    assert not [record for record in caplog.records if "cluster failed" in record.getMessage()]


@pytest.mark.more
@needs_ray
def test_a_worker_of_the_cluster_has_one_blas_thread(sums, records, monkeypatch, caplog):
    _, sent = on_workers(monkeypatch, with_one_blas_thread)
    np.testing.assert_array_equal(contribution(records, sums), contribution(records, sum_on_threads))
    assert len(sent) == 10
    assert not [record for record in caplog.records if "cluster failed" in record.getMessage()]


@pytest.mark.slow
@needs_ray
def test_work_that_is_not_wanted_any_more_stops(sums, records, monkeypatch):
    _, sent = on_workers(monkeypatch, slowly)

    def progress(done, rows):
        raise StoppedError("the work is no longer wanted")

    with pytest.raises(StoppedError):
        contribution(records, sums, progress)
    assert len(sent) < 10


@needs_ray
@pytest.mark.parametrize("kind", [JobHere, pytest.param(ClusterJob, marks=pytest.mark.slow)])
def test_a_result_of_another_shape_is_not_added(request, records, monkeypatch, caplog, kind):
    on_workers(monkeypatch, wrong_shape, kind)
    nowhere = PartyCluster(address="127.0.0.1:1", workers=1, timeout_s=HANG_S, from_rows=ROWS)
    sums = ClusterRowSums(nowhere, Log("party")) if kind is JobHere else request.getfixturevalue("sums")
    np.testing.assert_array_equal(contribution(records, sums), contribution(records, sum_on_threads))
    (record,) = [record for record in caplog.records if "cluster failed" in record.getMessage()]
    assert "no sum of the query's shape" in record.fields["reason"]


@needs_ray
def test_workers_get_the_signs_of_rounded_rows_as_an_array(records, monkeypatch, caplog):
    design = DpFeatDesign((SensitiveFeature(0, "x", rounded=True),))

    def signs(function, shared, payload):
        assert isinstance(payload[1], np.ndarray)
        assert set(np.abs(payload[1][:, 0]).tolist()) <= {0, ONE}
        return function(shared, payload)

    _, sent = on_workers(monkeypatch, signs, JobHere)
    nowhere = PartyCluster(address="127.0.0.1:1", workers=1, timeout_s=HANG_S, from_rows=ROWS)
    found = contribution(records, ClusterRowSums(nowhere, Log("party")), design=design)
    np.testing.assert_array_equal(found, contribution(records, sum_on_threads, design=design))
    assert len(sent) == 10
    assert not caplog.records


@pytest.mark.slow
@needs_ray
def test_a_plausible_wrong_sum_is_added_as_the_party_cannot_notice(sums, records, monkeypatch, caplog):
    """Not protected (threat model, 4.14): a party's cluster can falsify sums as the party can. Ten runs, ten units."""
    _, sent = on_workers(monkeypatch, one_more)
    found, expected = contribution(records, sums), contribution(records, sum_on_threads)
    assert len(sent) == 10
    assert (found - expected).sum() == 10
    assert not [record for record in caplog.records if "cluster failed" in record.getMessage()]


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("ends", ["driver", pytest.param("cluster", marks=pytest.mark.ends_cluster)])
def test_a_cluster_that_is_gone_leaves_the_sums_to_this_machine(nodes, sums, records, monkeypatch, caplog, ends):
    """Ray ends the process that connects to the cluster if the cluster is gone."""
    # Ray's own patience with a head that does not answer is a minute.
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    jobs, _ = on_workers(monkeypatch, slowly)
    reported = []

    def progress(done, rows):
        reported.append(done)
        if len(reported) == 1 and ends == "driver":
            jobs[0]._process.kill()
        elif len(reported) == 1:
            nodes.end()

    np.testing.assert_array_equal(contribution(records, sums, progress), contribution(records, sum_on_threads))
    assert [record for record in caplog.records if "cluster failed, summing on this machine" in record.getMessage()]


def test_a_small_table_never_touches_the_cluster(records, caplog):
    settings = PartyCluster(address="127.0.0.1:1", from_rows=ROWS + 1)
    sums = ClusterRowSums(settings, Log("party"))
    np.testing.assert_array_equal(contribution(records, sums), contribution(records, sum_on_threads))
    assert not [record for record in caplog.records if "cluster failed" in record.getMessage()]


def test_a_worker_maps_the_rows_that_it_gets(records):
    """What `ClusterRowSums` sends for a run of rows."""
    feature_map = FeatureMap((Term(Hat(0, None, 0, ONE)), Term(Column(1))), bias=SCHEMA.bias)
    part = MomentsPart(feature_map.d, 10, Clip(Fraction(2), bias=SCHEMA.bias))
    run = records.mapped(feature_map).between(0, 500).zeroed()
    found = sum_of_run(part, (0, run.features, run.labels, run.usable, run.feature_map))
    assert np.array_equal(found, sum_on_threads(part, records.mapped(feature_map).between(0, 500)))


def test_without_ray_a_party_with_a_cluster_does_not_start(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"install radofed\[ray\]"):
        ClusterRowSums(PartyCluster(address="auto"), Log("party"))


def test_the_configuration_has_a_cluster_only_where_it_is_written(tmp_path):
    text = (
        'federation = "f"\nname = "p"\ncoordinator = "c:1"\nfederation_key = "k"\nsigning_key = "s"\npolicy = "p"\n'
        'schema = "s"\ndata = "d"\nstate_directory = "d"\n[tls]\nca = "c"\ncertificate = "c"\nkey = "k"\n'
    )
    path = tmp_path / "party.toml"
    path.write_text(text)
    assert PartyConfig.load(path).cluster is None
    path.write_text(text + '[cluster]\naddress = "auto"\nfrom_rows = 1000\n')
    cluster = PartyConfig.load(path).cluster
    assert (cluster.address, cluster.workers, cluster.from_rows, cluster.token_file) == ("auto", 8, 1000, None)
    path.write_text(text + '[cluster]\naddress = "auto"\nfrom_bytes = 1000\n')
    with pytest.raises(ConfigurationError, match="did you mean 'from_rows'"):
        PartyConfig.load(path)


def test_the_configured_summation_is_used(ada, small_comb):
    """And a node whose configuration has a cluster names it."""
    summed = []

    def row_sums(part, records, progress=None):
        summed.append(part.shape)
        return sum_on_threads(part, records, progress)

    ada.lifecycle._party = replace(ada.lifecycle._party, row_sums=row_sums)
    assert ada.go(ada.world.ask(ada.world.plain_query()))
    assert summed == [(20, 3)]


def test_a_node_with_a_cluster_sums_there(offline):
    config = PartyConfig.load(offline.directory("ada") / "party.toml")
    with PartyNode(config) as node:
        assert node._lifecycle._party.row_sums is sum_on_threads
    with PartyNode(config.model_copy(update={"cluster": PartyCluster(address="auto")})) as node:
        assert isinstance(node._lifecycle._party.row_sums, ClusterRowSums)


def test_workers_get_no_values_of_rows_outside_the_part(records, monkeypatch, caplog):
    """And return the sums of this machine. The job runs in this process, so that the test sees what it is given."""
    given = []

    def noted(function, shared, payload):
        given.append(payload)
        return function(shared, payload)

    on_workers(monkeypatch, noted, JobHere)
    settings = PartyCluster(address="auto", workers=1, timeout_s=HANG_S, from_rows=ROWS)
    numbers = RowNumbers(RowKey(bytes(32), "f", "p", "d"))
    part = numbers.part_of(records, HeldBack(Fraction(1, 5), Part.TRAINING))
    moments = MomentsPart(records.d, 10, Clip(Fraction(2), bias=True))
    np.testing.assert_array_equal(ClusterRowSums(settings, Log("party"))(moments, part), sum_on_threads(moments, part))
    assert len(given) == 10
    assert not [record for record in caplog.records if "cluster failed" in record.getMessage()]
    features, usable = (np.concatenate([payload[place] for payload in given]) for place in (1, 3))
    np.testing.assert_array_equal(usable, part.usable)
    assert not features[~usable].any()
    assert records.features[~usable].any(axis=1).all()
