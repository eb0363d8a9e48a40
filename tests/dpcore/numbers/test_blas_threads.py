"""BLAS has one thread where nodes compute, as many as before afterwards, and all of them where a learner learns.

What that saves is measured by benchmarks/processes.py. Here BLAS is given three threads, so that any machine can tell.
"""

import inspect
import subprocess
import sys
import threading
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import DataError
from dpcore.estimators import errors_of_weights
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.numbers import processors
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.numbers.processors import one_blas_thread
from dpcore.predicates.expressions import Flag
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsPart, MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import FixedSupportDesign, dp_feat_design, plain_design
from dpcore.randomness.sources import SeededRandom
from dpcore.records import computation
from dpcore.records.clipping import Basis, Clip
from dpcore.records.computation import Computation, PartySecret, sum_on_threads
from dpcore.records.records import BLOCK_ROWS
from parties.answering.contribution import integer_vector
from parties.config import PartyConfig
from parties.node import PartyNode
from radobase.cluster.jobs import run_item
from radobase.version import program_version
from radofed.simulation.workers import Host, _Guarded
from tests.federation import party
from tests.federation.coordinator import RunningNode
from tests.federation.coordinator import World as CoordinatorWorld
from tests.federation.processes import ProcessFederation
from tests.parties import test_node as test_party_node
from tests.radofed.simulation_world import made_up, simulate
from tests.waiting import HANG_S

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[3]
THREADS = 3
ROWS = 3 * BLOCK_ROWS + 5


def blas_threads() -> set[int]:
    """Threads that each BLAS of this process uses."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def three_threads():
    with threadpool_limits(THREADS, user_api="blas"):
        if not blas_threads():
            pytest.skip("threadpoolctl knows none of this machine's BLAS libraries")
        assert blas_threads() == {THREADS}
        yield
        assert blas_threads() == {THREADS}, "not restored"


@dataclass(frozen=True)
class Watched:
    """A part that notes how many threads BLAS has, on each thread that adds."""

    part: computation.RowPart
    seen: list

    @property
    def shape(self):
        return self.part.shape

    def add(self, total, records, first_row):
        self.seen.append(blas_threads())
        self.part.add(total, records, first_row)


CLIP = Clip(Fraction(5, 4), bias=True)
KINDS = {
    "plain": RadosQuery(20, plain_design(party.SCHEMA)),
    "dp-feat": RadosQuery(20, dp_feat_design(party.SCHEMA, ["smoker"])),
    "fixed-support": RadosQuery(20, FixedSupportDesign(Fraction(1, 3), CLIP, 5000)),
    "moments": MomentsQuery(CLIP, 1024, 900),
}
ON_ONE_THREAD = {
    "statistic": StatisticQuery((Flag("smoker"),), party.SCHEMA, GaussianShares(40)),
    "gradient": GradientQuery("hinge", (1 << 20, -(1 << 19), 7), Fraction(1, 2), 500),
    "gradient, in a basis": GradientQuery(
        "hinge", (1 << 20, -(1 << 19), 7), Fraction(1, 2), 500, Basis(((9000, 0, 0), (0, 2048, 5), (1, 2, 4096)))
    ),
}


def contribution(kind, secret_key, **options):
    world = party.World(secret_key)
    encoding = plan_encoding(largest_sum=1 << 55, max_parties=3, fraction_bits=10)
    opened = world.open(world.ask(world.query(kind=kind, encoding=encoding)))
    computation = Computation(SeededRandom(1), PartySecret(bytes(32), party.SCHEMA.digest), **options)
    return integer_vector(opened, party.make_records(ROWS), computation)


@pytest.mark.variants(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_over_rows_have_one(kind, threads, secret_key, monkeypatch):
    """Also where our own threads are none: another process may have the other processors."""
    monkeypatch.setattr(computation, "processors", lambda: threads)
    seen = []

    def watched(part, records, progress=None):
        return sum_on_threads(Watched(part, seen), records, progress)

    contribution(KINDS[kind], secret_key, row_sums=watched)
    assert len(seen) >= 4
    assert all(found == {1} for found in seen)


@pytest.mark.parametrize("kind", ON_ONE_THREAD)
def test_kinds_that_sum_by_themselves_have_one(kind, secret_key):
    seen = []
    contribution(ON_ONE_THREAD[kind], secret_key, progress=lambda *_: seen.append(blas_threads()))
    assert seen
    assert all(found == {1} for found in seen)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_mathematics_alone_has_one_and_restores_it_after_an_error(threads, monkeypatch):
    monkeypatch.setattr(computation, "processors", lambda: threads)
    records, part = party.make_records(ROWS), MomentsPart(3, 10, CLIP)
    seen = []
    sum_on_threads(Watched(part, seen), records)
    assert seen
    assert all(found == {1} for found in seen)
    with pytest.raises(ZeroDivisionError):
        sum_on_threads(part, records, lambda *_: 1 // 0)
    assert blas_threads() == {THREADS}


def test_the_last_to_leave_restores_it():
    """One thread enters first and leaves first, another is still inside."""
    entered, second_entered, left = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first():
        with one_blas_thread():
            entered.set()
            assert second_entered.wait(HANG_S)
        left.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(HANG_S)
    with one_blas_thread():
        second_entered.set()
        assert left.wait(HANG_S)
        seen.append(blas_threads())
    thread.join(HANG_S)
    assert seen == [{1}]
    assert blas_threads() == {THREADS}


@pytest.mark.more
def test_many_threads_that_enter_and_leave_at_once_agree():
    start = threading.Barrier(8)
    seen = []

    def work():
        start.wait(HANG_S)
        for _ in range(12):
            with one_blas_thread():
                seen.append(blas_threads())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert seen == [{1}] * 96
    assert blas_threads() == {THREADS}


def test_where_the_number_belongs_to_a_thread_each_sets_and_restores_its_own(monkeypatch):
    """As with MKL, and OpenBLAS over OpenMP; the OpenMP library that scikit-learn brings stands for them."""
    libraries = ThreadpoolController().select(internal_api="openmp").lib_controllers
    if not libraries:
        pytest.skip("scikit-learn brings no OpenMP library here")
    monkeypatch.setattr(processors, "_libraries", lambda _: libraries)
    seen, entered, left = [], threading.Event(), threading.Event()

    def note(where):
        seen.append((where, {library.num_threads for library in libraries}))

    def other():
        for library in libraries:
            library.set_num_threads(5)
        with one_blas_thread():
            note("other, inside")
            entered.set()
            assert left.wait(HANG_S)
            note("other, alone inside")
        note("other, after")

    with threadpool_limits(4, user_api="openmp"):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(HANG_S)
        note("main, before")
        with one_blas_thread():
            note("main, inside")
        note("main, after")
        left.set()
        thread.join(HANG_S)
    assert dict(seen) == {
        "other, inside": {1},
        "main, before": {4},
        "main, inside": {1},
        "main, after": {4},
        "other, alone inside": {1},
        "other, after": {5},
    }


LATE = """
from threadpoolctl import threadpool_info, threadpool_limits

import numpy

from dpcore.numbers.processors import one_blas_thread


def threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


threadpool_limits(3, user_api="blas")
with one_blas_thread():
    import scipy.linalg

    threadpool_limits(3, user_api="blas")
    with one_blas_thread():
        inside = threads()
    between = threads()
after = threads()
assert set(inside) == set(between) == {1}, (inside, between)
assert set(after) == {3}, after
"""


def test_a_library_that_is_loaded_later_is_limited_on_the_next_entry():
    """SciPy brings a BLAS of its own, which Numba loads."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_party_node_has_one_from_its_start_to_its_stop(tmp_path):
    parties = dict.fromkeys(("ada", "bo", "cy"), test_party_node.ROWS)
    with ProcessFederation(
        tmp_path, parties=parties, schema=test_party_node.SCHEMA, policy=test_party_node.ALLOWED
    ) as federation:
        config = PartyConfig.load(federation.member("ada").config)
        with PartyNode(config):
            assert blas_threads() == {1}
        assert blas_threads() == {THREADS}
        (federation.directory("ada") / "data.csv").write_text("years,smoker,stayed\n50,yes,no\n")
        with pytest.raises(DataError):
            PartyNode(config)
    assert blas_threads() == {THREADS}


def test_a_coordinator_has_one_from_its_start_to_its_stop(tmp_path, secret_key):
    node = RunningNode(CoordinatorWorld(tmp_path, secret_key).config)
    try:
        assert blas_threads() == {1}
    finally:
        node.close()
    assert blas_threads() == {THREADS}


def test_a_job_of_a_cluster_and_a_worker_of_a_simulation_have_one(monkeypatch):
    assert run_item(program_version(), lambda shared, payload: blas_threads(), None, None) == {1}
    monkeypatch.setattr(Host, "signing_keys", lambda self: blas_threads())
    records = party.make_records(8)
    worker = _Guarded(records.features, records.labels, records.usable, 1, ["ada"], bytes(32))
    assert worker.call("signing_keys") == {1}


@pytest.fixture
def learning(monkeypatch):
    """How many threads BLAS has each time that a learner decomposes a matrix, but for the small ones of its errors."""
    seen, real = [], np.linalg.eigh

    def eigh(*arguments, **options):
        if inspect.currentframe().f_back.f_globals["__name__"] != errors_of_weights.__name__:
            seen.append(blas_threads())
        return real(*arguments, **options)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    return seen


@pytest.mark.parametrize("estimator", [MeanVariance(), MomentsDiscriminant(), PrivateNewton()], ids=repr)
def test_a_learner_on_its_own_rows_keeps_all(estimator, learning):
    random = np.random.default_rng(1)
    rows = random.normal(size=(200, 3))
    estimator.fit(rows, rows[:, 0] > 0)
    assert learning
    assert all(found == {THREADS} for found in [*learning, blas_threads()])


@pytest.mark.more
def test_a_learner_that_asks_keeps_all_between_its_rounds(tmp_path, learning, monkeypatch):
    """In one process, as `simulate` without workers has it: parties have one thread, then the learner has them all."""
    summing, add = [], MomentsPart.add

    def watched(self, *arguments):
        summing.append(blas_threads())
        add(self, *arguments)

    monkeypatch.setattr(MomentsPart, "add", watched)
    simulate(made_up(tmp_path / "table.csv"), estimators=["newton"], epsilon=1, delta=0.001, folds=2)
    assert summing
    assert all(found == {1} for found in summing)
    assert learning
    assert all(found == {THREADS} for found in learning)
