"""The benchmarks of time and memory: what they compute, how it grows, their targets and pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks import binding_cost, encryption, federated_run, measuring, processes, scaling
from benchmarks.environments import UnavailableError
from benchmarks.flower import Flower
from benchmarks.measuring import WrongResultError
from benchmarks.node_processes import Event
from benchmarks.scaling import Curve

pytestmark = pytest.mark.more


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_exponents_are_fitted(exponent):
    curve = Curve("m", {size: [3 * size**exponent] * 3 for size in (2, 8, 64)})
    assert curve.exponent == pytest.approx(exponent)
    assert curve.growth() == pytest.approx(32**exponent)


def test_the_scaling_benchmark_reports_and_draws(monkeypatch):
    def worked(job):
        if "sizes" in job:
            return {
                "seconds": [[size["m"] * size["d"] * size["n"] / 5e10] for size in job["sizes"]],
                "most_bytes": 2**30,
            }
        busy = [job["parties"] * 0.01]
        return {
            "seconds": [job["parties"] ** 0.5],
            "processor_seconds": busy,
            "most_bytes": 2**28,
            "most_bytes_beyond": 2**20,
        }

    monkeypatch.setattr(scaling, "worked", worked)
    report = scaling.run()
    assert report.setting["exponents"] == {"m": 1, "d": 1, "n": 1, "K": 0.5}
    assert [(target.what.partition(",")[0], target.met) for target in report.targets] == [
        ("contribution", True),
        ("time", True),
        ("the process's memory", True),
        ("coordinator's memory", True),
        ("processor time of `simulate --encrypt`", True),
    ]
    figure = Figure()
    scaling.draw(report, figure)
    assert len(figure.axes) == 4


def test_a_contribution_that_is_slow_misses_its_target(monkeypatch):
    slow = Curve("m", {size: [5.0] for size in scaling.GROWING["m"]})
    parties = Curve("K", {4: [1.0], 400: [101.0]})
    runs = {k: scaling.Simulated([1.0], [1.0], held, 0) for k, held in ((4, 100), (400, 200))}
    assert [target.met for target in scaling._targets((slow, 2**31), parties, runs)] == [False] * 4
    assert not scaling._target_of_many({100: [1.0], 1_000: [16.0]}).met


@pytest.fixture
def few_processes(monkeypatch):
    """The benchmark of processes, small, in one and two of them."""
    rows = dict.fromkeys(processes.JOB.rows, 5_000)
    small = replace(processes.JOB, rows=rows, predicates=5, rados=20, key_bits=2048, ciphertexts=70, uploads=2)
    monkeypatch.setattr(processes, "JOB", small)
    monkeypatch.setattr(processes, "TURN_S", 0.001)
    monkeypatch.setattr(processes, "CONTROL_TIMES", 1)
    monkeypatch.setattr(processes, "COUNTS", (1, 2))
    return small


@pytest.mark.slow
def test_the_benchmark_of_processes_computes_everything_in_each(few_processes):
    report = processes.run()
    json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    assert {target.what.partition(":")[0] for target in report.targets} == set(processes.ALL_CORES)
    names = {*processes.ALL_CORES, *processes.NUMPY}
    assert {measure.what.rpartition(", ")[0] for measure in report.measures} == names
    figure = Figure()
    processes.draw(report, figure)
    assert len(figure.axes[0].lines) == len(names) + 1


@pytest.mark.slow
def test_processes_that_compute_something_else_end_the_run(few_processes):
    with processes.started(few_processes, 1) as one:
        one.prepare("moments")
        one._digests = {"another"}
        with pytest.raises(WrongResultError, match="different sums"):
            one.run(1, 1)
        with pytest.raises(WrongResultError, match=r"(?s)a process ended.*KeyError"):
            one.prepare("nothing")


def test_processes_take_as_many_threads_as_they_do_by_default(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OTHER_NUM_THREADS", "1")
    found = processes.default_environment()
    assert [name for name in found if name.endswith("_NUM_THREADS")] == ["OTHER_NUM_THREADS"]


def test_time_that_grows_more_than_the_work_misses_its_target():
    def growth(name, one, eight):
        control = {1: [processes.Timing(1.0, 1.0)], 8: [processes.Timing(4.4, 1.1)]}
        return processes.Growth(name, {1: [processes.Timing(one, 0.1)], 8: [processes.Timing(eight, 0.121)]}, control)

    whole, single = growth("moments", 0.1, 0.9), growth("gradient", 0.1, 0.46)
    assert whole.over_work()[8] == pytest.approx(9 / 8)
    assert single.of_work(8) == max(8 / processes.processors(), 4.4)
    assert single.of_control(8) == pytest.approx(4.4)
    assert single.of_processor_time(8).median == pytest.approx(0.121 / 0.1 / 1.1)


def test_phases_end_with_the_last_party():
    names = ("query submitted", "answer", "ready", "receipt", "complete")
    events = [Event("coordinator", at, name, {}) for place, name in enumerate(names) for at in (place, place + 0.5)]
    # What parties log of the same name does not count.
    found = federated_run.phase_ends([*events, Event("party-1", 99.0, "ready", {})])
    assert list(found.values()) == [0.5, 1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize("peer", [Flower([3.0, 1.0], 20.0), "no network"])
def test_the_federated_benchmark_reports_and_draws(peer):
    ways = {name: federated_run.Way([16.0, 17.0], [{"accept": 0.5, "add": 1.0}] * 2) for name in ("moments", "rados")}
    ways = {federated_run.POOLED: federated_run.Way([16.0, 16.0], [{"iterations": 9.0}] * 2), **ways}
    seconds = {federated_run.POOLED: [40.0, 40.0], "moments": [2.9, 3.0], "rados": [30.1, 30.2]}
    # Twice 5 ms of the processor and one wait of 15 ms; half of 20 ms.
    costs = [
        binding_cost.Cost("head", 2.0, [0.01, 0.03], [0.005, 0.005]),
        binding_cost.Cost("phe", 0.5, [0.02], [0.02]),
    ]
    report = federated_run._report(seconds, ways, peer, costs)
    assert report.targets[-1].measured == pytest.approx(100 * 0.035 / 2.95)
    assert [target.met for target in report.targets] == [True, False, True]
    assert ("Flower was not run" in " ".join(report.notes)) is isinstance(peer, str)
    figure = Figure()
    federated_run.draw(report, figure)
    assert len(figure.axes) == 2


def test_the_cost_of_binding_is_that_of_parts_that_work(secret_key, tmp_path, monkeypatch):
    """Each part checks its own result, or is the call of a node."""
    monkeypatch.setattr(binding_cost, "REPEATS", 1)
    costs = binding_cost.measure(secret_key, 30, 3, tmp_path)
    assert all(cost.seconds[0] > 0 and cost.turns > 0 for cost in costs)
    assert (tmp_path / "ledger.sqlite.head").exists()


def test_made_rows_can_be_learned():
    made = federated_run.make_rows(4_000, 1)
    assert np.abs(made.x).max() <= 1
    least_squares = np.linalg.lstsq(np.column_stack([made.x, np.ones(4_000)]), made.y.astype(float), rcond=None)[0]
    assert 5 < made.error(least_squares) < 30
    assert made.error(-least_squares) > 70


@pytest.mark.slow
def test_the_encryption_benchmark_reports_and_draws(monkeypatch):
    def unavailable(mine, theirs, key_bits=0):
        raise UnavailableError("no network")

    once = measuring.take_turns
    # It takes longer than all the rest in a process with as many objects as this one.
    monkeypatch.setattr(measuring.gc, "collect", lambda: 0)
    monkeypatch.setattr(encryption, "take_turns", lambda works, before=None: once(works, 1, before))
    monkeypatch.setattr(encryption, "lattice", unavailable)
    monkeypatch.setattr(encryption, "heu", unavailable)
    small = {"KEY_BITS": 2048, "RADOS": 10, "COORDINATES": 25, "PHE_VALUES": 2, "PHE_PASSES": 2}
    small |= {"FULL_EXPONENT_CIPHERTEXTS": 2, "DECRYPTED_CIPHERTEXTS": 4}
    for name, value in small.items():
        monkeypatch.setattr(encryption, name, value)
    report = encryption.run()
    assert len(report.targets) == 5
    assert "HEU was not run: no network." in report.notes
    assert "TenSEAL was not run: no network." in report.notes
    json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    encryption.draw(report, Figure())
