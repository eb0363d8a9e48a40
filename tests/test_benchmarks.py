"""The benchmarks' assembly: what is registered, what is run by default, and that each can be found in the README."""

import csv
import gzip
import inspect
import json
import re
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.linalg import sqrtm
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks import __main__ as assembly
from benchmarks import (
    additive,
    binding_cost,
    dp_feat_error,
    dp_feat_protocol,
    encryption,
    federated_run,
    measuring,
    private_curves,
    private_trees,
    processes,
    scaling,
    unseen_tables,
)
from benchmarks.datasets import RULES, DataSet
from benchmarks.dp_feat_protocol import Point, Sensitive
from benchmarks.environments import UnavailableError, work
from benchmarks.flower import Flower
from benchmarks.measuring import Report, Target, WrongResultError, targets_table
from benchmarks.node_processes import Event
from benchmarks.private_peers import (
    DescentSetting,
    ObjectiveSetting,
    Paired,
    SecondOrderSetting,
    Split,
    objective_perturbation,
    second_order,
)
from benchmarks.scaling import Curve
from dpcore.accounting.noise_shares import IntegerNoise, joint_squared

pytestmark = pytest.mark.more

ROOT = Path(__file__).resolve().parents[1]


class Made:
    """A benchmark."""

    found = 1.0
    notes: tuple[str, ...] = ()

    def run(self, *, everything: bool) -> Report:
        target = Target("rounds", "s", figure=1.5, measured=self.found, at_least=False)
        return Report("made", "", {}, [], [], [], notes=list(self.notes), targets=[target])

    def draw(self, report: Report, figure: Figure) -> None:
        figure.subplots()


@pytest.fixture
def made(monkeypatch, tmp_path):
    made = Made()
    monkeypatch.setattr(assembly, "RESULTS", tmp_path)
    monkeypatch.setitem(assembly.BENCHMARKS, "made", made)
    return made


def test_results_of_everything_are_not_replaced_by_those_of_a_part(made, tmp_path, capsys):
    made.notes = ("Skipped two tables.",)
    assembly.run_one("made", everything=True)
    made.found, made.notes = 2.0, ("All draws are seeded.",)
    assembly.run_one("made", everything=True)
    capsys.readouterr()
    made.found, made.notes = 3.0, ("Skipped two tables.",)
    picture = (tmp_path / "made.png").read_bytes()
    assembly.run_one("made", everything=True)
    assert "results/made.json stays as it was: this run skipped what that one did not" in capsys.readouterr().out
    assert json.loads((tmp_path / "made.json").read_text())["targets"][0]["measured"] == 2.0
    assert (tmp_path / "made.png").read_bytes() == picture


def test_results_keep_the_figures_of_the_run_before(made, tmp_path):
    assembly.run_one("made", everything=False)
    first = json.loads((tmp_path / "made.json").read_text())
    assert first["run_before"] is None
    made.found = 2.0
    assembly.run_one("made", everything=False)
    second = json.loads((tmp_path / "made.json").read_text())
    assert second["targets"][0]["measured"] == 2.0
    before = second["run_before"]
    assert (before["date"], before["targets"]) == (first["date"], first["targets"])
    assert before["cores_busy_elsewhere"] == first["machine"]["cores_busy_elsewhere"]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """What `main` runs, without running it."""
    calls = []
    monkeypatch.setattr(assembly, "RESULTS", tmp_path)
    monkeypatch.setattr(assembly, "run_one", lambda name, *, everything: calls.append((name, everything)) or [])
    monkeypatch.setattr(assembly, "run_at_once", lambda names: calls.extend((name, "at once") for name in names) or [])

    def run(*arguments):
        calls.clear()
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        assembly.main()
        return calls

    return run


@pytest.mark.parametrize("name", assembly.BENCHMARKS)
def test_every_benchmark_runs_draws_and_claims(name):
    module = assembly.BENCHMARKS[name]
    everything = inspect.signature(module.run).parameters["everything"]
    assert everything.kind is inspect.Parameter.KEYWORD_ONLY
    assert everything.default is False
    assert list(inspect.signature(module.draw).parameters) == ["report", "figure"]
    assert re.fullmatch(r"Claim: .+\.", module.__doc__.partition("\n")[0])
    assert module.__name__ == f"benchmarks.{name}"


@pytest.mark.parametrize("name", assembly.BENCHMARKS)
def test_the_readme_tells_of_every_benchmark(name):
    assert f"\n## {name}\n" in (ROOT / "benchmarks/README.md").read_text()


def test_every_module_with_a_run_is_registered():
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef run(" in path.read_text()}
    assert modules == set(assembly.BENCHMARKS)


def test_every_benchmark_is_in_a_make_target():
    assert set(assembly.QUICK) | set(assembly.SCIENCE) == set(assembly.BENCHMARKS)
    recipes = (ROOT / "Makefile").read_text()
    for target, arguments in (("bench", ""), ("bench-science", " --science")):
        assert re.search(rf"^{target}:.*\n\t\$\(BIN\)/python -m benchmarks{arguments}$", recipes, re.MULTILINE)


def test_what_is_run(ran):
    assert ran() == [(name, False) for name in assembly.QUICK]
    timed = [name for name in assembly.SCIENCE if name in assembly.QUICK]
    untimed = [name for name in assembly.SCIENCE if name not in assembly.QUICK]
    assert ran("--science") == [*((name, "at once") for name in untimed), *((name, True) for name in timed)]
    assert ran("leaks", "--all") == [("leaks", True)]


def test_benchmarks_at_once_give_their_targets_and_name_what_failed(monkeypatch, tmp_path, capsys):
    made = "import pathlib, sys; name = sys.argv[-1]; print('table of', name); {}"
    target = {"what": "rounds", "unit": "s", "figure": 1.5, "measured": 1.0, "at_least": False, "met": True}
    write = f"(pathlib.Path({str(tmp_path)!r}) / (name + '.json')).write_text({json.dumps({'targets': [target]})!r})"
    monkeypatch.setattr(assembly, "RESULTS", tmp_path)
    monkeypatch.setattr(assembly, "_command_of", lambda name: [sys.executable, "-c", made.format(write), name])
    assert [found.what for found in assembly.run_at_once(["one", "two"])] == ["rounds", "rounds"]
    assert "table of two" in capsys.readouterr().out
    # Which leaves the results of `two` as they were: their targets are not of this run.
    leave = f"name == 'two' or {write}"
    monkeypatch.setattr(assembly, "_command_of", lambda name: [sys.executable, "-c", made.format(leave), name])
    assert len(assembly.run_at_once(["one", "two"])) == 1
    fail = "sys.exit('no table' if name == 'one' else 0)"
    monkeypatch.setattr(assembly, "_command_of", lambda name: [sys.executable, "-c", made.format(fail), name])
    with pytest.raises(SystemExit, match="errors above: one"):
        assembly.run_at_once(["one", "two"])
    assert "no table" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("nothing",), ("leaks", "--science")])
def test_what_is_refused(ran, arguments):
    with pytest.raises(SystemExit) as stopped:
        ran(*arguments)
    assert stopped.value.code == 2


def table(rows=400, seed=0):
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=(rows, 3))
    categories = generator.choice(["a", "b"], size=(rows, 1)).astype(np.str_)
    return DataSet("made", numbers, categories, numbers[:, 1] + 0.5 * numbers[:, 0] > 0)


def test_a_table_without_numbers_is_encoded():
    data = replace(table(), numeric=np.empty((400, 0)))
    encoded = data.encode(np.arange(100))
    assert (encoded[:, 0] == (data.categories[:, 0] == "a")).all()
    assert encoded.shape == (400, 2 + 1)


def test_the_sensitive_column_becomes_one_coordinate_of_signs(monkeypatch):
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 2)
    data = table()
    number = dp_feat_protocol.folds_of(data, Sensitive("first >= median", 0, threshold=True), 1)[0]
    assert number.train.shape == (200, 1 + 2 + 2 + 1)  # signs, numbers left, one-hot, bias
    assert np.mean(number.train[:, 0] > 0) == pytest.approx(0.5)
    category = dp_feat_protocol.folds_of(data, Sensitive("letter", 0, category=True), 1)[0]
    assert category.train.shape == (200, 1 + 3 + 1)
    assert set(category.train[:, 0]) == {-1.0, 1.0}
    signs = dp_feat_protocol.sign_of(data.categories[:, 0], np.arange(400), Sensitive("letter", 0, category=True))
    assert ((signs > 0) == (data.categories[:, 0] == "b")).all()


def test_parties_share_out_every_row(monkeypatch):
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 3)
    fold = dp_feat_protocol.folds_of(table(), Sensitive("letter", 0, category=True), 1)[0]
    parts = fold.parties(4)
    assert sorted(part.rows for part in parts) == [66, 66, 67, 67]
    assert (np.concatenate([part.labels for part in parts]) == fold.train_labels).all()


def test_joint_is_asked_for_with_just_enough_noise():
    ask, counted = dp_feat_protocol.joint_ask(50, 4, Fraction(1))
    assert 0.999 < counted <= 1
    less = IntegerNoise(int(ask.design.share_sigma * 0.99), 4, 50)
    squared = joint_squared(dp_feat_protocol.SQUARED_RANGE, dp_feat_protocol.FRACTION_BITS)
    assert less.distribution(squared, 50, Fraction(1, 2)).epsilon(dp_feat_protocol.DELTA).upper > 1.001


def test_an_infinite_epsilon_is_none():
    assert dp_feat_protocol.exact_epsilon([4177], 100, Fraction(1, 2)) == pytest.approx(1.34, abs=0.01)
    assert dp_feat_protocol.exact_epsilon([4177], 100, Fraction(1, 10)) is None


def test_points_hold_as_many_rados_as_their_epsilon_pays_for():
    counted = dp_feat_protocol.counted_point(4177, 1000, Fraction(1))
    assert counted.epsilon <= 1 < dp_feat_protocol.exact_epsilon([4177], counted.rados + 1, None)
    theorem = dp_feat_protocol.theorem_point(4177, 1000, Fraction(1))
    assert (theorem.rados, theorem.theorem) == (10, pytest.approx(1))
    assert dp_feat_protocol.theorem_point(4177, 9, Fraction(1)) is None


@pytest.fixture
def small(monkeypatch):
    """The DP-FEAT benchmark on one small table, two folds once, five rounds."""
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 2)
    monkeypatch.setattr(dp_feat_protocol, "ROUNDS", 5)
    monkeypatch.setattr(dp_feat_error, "REPEATS", 1)
    monkeypatch.setattr(dp_feat_error, "SHARED", Path("/nowhere"))
    monkeypatch.setattr(dp_feat_error, "PACKAGED", {"made": Sensitive("first >= median", 0, threshold=True)})
    monkeypatch.setattr(dp_feat_error, "packaged", lambda: [table()])
    return dp_feat_error


@pytest.mark.more
def test_the_dp_feat_benchmark_reports_and_draws(small):
    report = small.run()
    written = json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    assert "made" in written
    (one,) = report.setting["sets"]
    truncated = [point for point in one["points"] if point["way"] == "truncated"]
    assert [point["theorem_epsilon"] for point in truncated[:6]] == [None, 200, 100, 50, 30, 10]
    assert truncated[0]["exact_epsilon"] is not None
    assert truncated[5]["exact_epsilon"] is None
    assert any("there is no shared/data" in note for note in report.notes)
    figure = Figure()
    small.draw(report, figure)
    assert len(figure.axes) == 3
    empty = Report("dp_feat_error", "", report.setting | {"sets": []}, [], [], [])
    small.draw(empty, Figure())


def test_a_truncation_that_lowers_epsilon_ends_the_run():
    none = Point("truncated", 1, 10, None, 2.0, None)
    lower = replace(none, per_rado=Fraction(1), epsilon=1.0)
    sensitive = Sensitive("x", 0)
    honest = dp_feat_error.Compared("made", sensitive, 100, 2, 0.0, (none, replace(lower, epsilon=2.5)))
    assert honest.raised() == [1.25]
    with pytest.raises(WrongResultError, match="lowers"):
        dp_feat_error.Compared("made", sensitive, 100, 2, 0.0, (none, lower)).raised()


@pytest.mark.parametrize(
    ("measured", "at_least", "met"), [(2, True, True), (1.9, True, False), (2, False, True), (2.1, False, False)]
)
def test_a_target_is_met_on_its_side(measured, at_least, met):
    target = Target("speed", "times", 2, measured, at_least=at_least)
    assert target.met is met
    assert targets_table([target]).rows == [
        (
            "speed",
            f"at {'least' if at_least else 'most'} 2.00",
            measuring.number(measured),
            "times",
            "yes" if met else "no",
        )
    ]
    (written,) = Report("x", "", {}, [], [], [], targets=[target]).as_json({}, "2000-01-01")["targets"]
    assert (written["figure"], written["met"]) == (2, met)


def test_targets_of_all_benchmarks_are_printed_last(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(assembly, "RESULTS", tmp_path)

    def run(*, everything):
        return Report(
            "x", "", {"everything": everything}, [], [], [], targets=[Target("speed", "s", 2, 3, at_least=False)]
        )

    for name in ("parity", "leaks"):
        monkeypatch.setattr(assembly.BENCHMARKS[name], "run", run)
        monkeypatch.setattr(assembly.BENCHMARKS[name], "draw", lambda report, figure: None)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "parity", "leaks"])
    assembly.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-2:]] == ["speed", "speed"]
    assert json.loads((tmp_path / "leaks.json").read_text())["targets"][0]["met"] is False


def test_what_comes_before_a_candidate_is_not_its_time(monkeypatch):
    clock = iter(range(100))
    calls = []
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock))
    seconds = measuring.take_turns(
        {"a": lambda: calls.append("a")}, 2, {"a": lambda: (next(clock), calls.append("before"))}
    )
    assert calls == ["before", "a"] * 3
    assert seconds == {"a": [1, 1]}


def test_a_worker_that_fails_is_unavailable():
    with pytest.raises(UnavailableError, match="flower_worker"):
        work(Path(sys.executable), "flower_worker.py", {"parties": 1})


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


def test_no_record_changes_a_tree_s_sums_by_more_than_they_are_noised_for():
    """In one leaf or in two, over all pairs of scores and labels; and the worst pair reaches the bound."""
    p = np.linspace(0, 1, 201)
    records = [(g, p * (1 - p)) for g in (p, p - 1)]
    same = max(
        ((g[:, None] - other_g[None]) ** 2 + (h[:, None] - other_h[None]) ** 2).max()
        for g, h in records
        for other_g, other_h in records
    )
    apart = 2 * max((g**2 + h**2).max() for g, h in records)
    assert max(same, apart) == pytest.approx(private_trees.LEAF_SENSITIVITY**2)
    assert 2 * max(h.max() for _, h in records) ** 2 == pytest.approx(private_trees.HISTOGRAM_SENSITIVITY**2)


@pytest.mark.parametrize("one_feature", [False, True])
def test_private_trees_learn_what_no_line_can(one_feature):
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (3000, 2))
    setting = private_trees.TreesSetting(30, one_feature)
    for epsilon, least, most in ((50.0, 0.0, 0.15), (0.01, 0.25, 0.75)):
        margins = private_trees.trees_margins(x, np.abs(x[:, 0]) < 0.5, x, epsilon, 1e-6, setting, random)
        assert least < np.mean((margins > 0) != (np.abs(x[:, 0]) < 0.5)) < most


def test_errors_are_paired_over_folds():
    apart = Paired.of([3.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert (apart.mean, apart.error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert str(apart) == "+2.00 +- 0.58"


@pytest.mark.parametrize(("mean", "error", "within"), [(0.2, 0.0, True), (0.21, 0.0, False), (0.59, 0.2, True)])
def test_what_is_allowed_above_newton(mean, error, within):
    assert additive.within_newton(Paired(mean, error)) is within
    assert not additive.within_newton(Paired(0.61, 0.2))


def test_a_peer_is_of_equal_privacy_and_not_ours():
    """The one with the weaker guarantee is left out."""
    errors = {
        unseen_tables.OURS: [3.0, 5.0],
        unseen_tables.NEWTON: [6.0, 6.0],
        "boosting, added": [2.0, 2.0],
        "boosting, replaced": [3.5, 4.0],
        private_curves.TREES: [9.0, 9.0],
        private_curves.DESCENT: [3.0, 3.0],
    }
    found = unseen_tables.Found(5000, None, {1.0: errors})
    assert found.best(1.0) == (private_curves.DESCENT, Paired(1.0, pytest.approx(1.0)))
    assert found.best(1.0, with_our_functions=False) == ("boosting, replaced", Paired(0.25, pytest.approx(0.75)))


@pytest.fixture
def few_tables(monkeypatch, tmp_path):
    """The benchmark of unseen tables with a made one in its directory, none of scikit-learn's, and one epsilon."""
    data = table(rows=300)
    with gzip.open(tmp_path / "phoneme.csv.gz", "wt", encoding="utf-8", newline="") as file:
        written = csv.writer(file)
        written.writerow(["Aa", "Ao", "Dcl", "letter", "label"])
        rows = zip(data.numeric.tolist(), data.categories.tolist(), data.positive.astype(int), strict=True)
        written.writerows([*numbers, *letters, label] for numbers, letters, label in rows)
    monkeypatch.setattr(unseen_tables, "packaged", list)
    monkeypatch.setattr(additive, "DRAWS", 1)
    monkeypatch.setattr(private_curves, "DRAWS", 1)
    # Threads of the trees without privacy wait for each other on a busy machine.
    few = partial(additive.HistGradientBoostingClassifier, max_iter=2)
    monkeypatch.setattr(additive, "HistGradientBoostingClassifier", few)
    monkeypatch.setattr(unseen_tables, "QUICK_FOLDS", 2)
    monkeypatch.setattr(unseen_tables, "ROWS_FOR_PEERS", 300)
    monkeypatch.setattr(unseen_tables, "FOLDS", 2)
    monkeypatch.setattr(unseen_tables, "EPSILONS_BESIDE_PEERS", (1.0,))
    monkeypatch.setattr(private_curves, "DESCENTS", (DescentSetting(5, 8.0, 0.5),))
    monkeypatch.setattr(private_curves, "SETTINGS_OF_TREES", (private_trees.TreesSetting(5, one_feature=False),))
    monkeypatch.setenv(unseen_tables.VARIABLE, str(tmp_path))
    return unseen_tables


@pytest.mark.more
def test_the_benchmark_of_unseen_tables_reports_and_draws(few_tables, monkeypatch):
    def unavailable(*_):
        raise UnavailableError("no network")

    monkeypatch.setattr(few_tables, "environment", unavailable)
    quick, every = few_tables.run(), few_tables.run(everything=True)
    (one,) = every.setting["sets"]
    assert (one["name"], one["rows"], one["d"]) == ("phoneme", 300, 3 + 2 + 1)
    assert one["above_newton"].keys() == {"0.1", "0.5", "1", "3"}
    assert one["above_best_peer"]["1"]["peer"] in {private_curves.DESCENT, private_curves.TREES, additive.NEWTON}
    assert quick.setting["sets"][0]["above_best_peer"] == {}
    assert any("spambase" in note for note in every.notes)
    assert "Without interpret: no network." in every.notes
    for report in (quick, every):
        json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
        figure = Figure()
        few_tables.draw(report, figure)
        assert len(figure.axes) == 2


def test_without_a_directory_the_unseen_tables_are_skipped(few_tables, monkeypatch):
    monkeypatch.delenv(few_tables.VARIABLE)
    report = few_tables.run()
    assert report.setting["sets"] == []
    assert any("names no directory" in note for note in report.notes)
    few_tables.draw(report, Figure())


def test_no_table_of_the_choice_is_unseen():
    assert not set(unseen_tables.SETS) & set(RULES)
    assert set(unseen_tables.QUICK_SETS) < set(unseen_tables.SETS)


def test_the_readme_has_the_rule_of_every_unseen_table():
    readme = (ROOT / "benchmarks/README.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", readme.partition("\n## unseen_tables\n")[2], re.MULTILINE)
    assert named == list(unseen_tables.SETS)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_objective_perturbation_is_private_and_with_less_noise_would_not_be(share):
    """One row of one coordinate, reversed: the density of theta is exact, and delta its integral."""
    setting, delta = ObjectiveSetting(share, 1.0), 1e-4

    def excess(epsilon, noise=1.0):
        ridge, sigma = setting.ridge(epsilon, 1.0), noise * setting.sigma(epsilon, delta, 1.0)
        b = np.linspace(-12 * sigma, 12 * sigma, 200_001)
        theta = b / ridge

        def log_density(edge):
            weight = 1 / (1 + np.exp(edge * theta))
            slope = ridge + weight * (1 - weight)
            return np.log(slope) - np.square(weight * edge - ridge * theta) / (2 * sigma**2) - np.log(sigma)

        first, second = np.exp(log_density(1.0)), np.exp(log_density(-1.0))
        step = (theta[1] - theta[0]) / np.sqrt(2 * np.pi)
        assert first.sum() * step == pytest.approx(1, abs=1e-3)
        return float(np.maximum(first - np.exp(epsilon) * second, 0).sum() * step)

    for epsilon in (0.5, 2.0):
        assert excess(epsilon) <= delta
        # These rows move b by R, not by 2 R as others may.
        assert excess(epsilon, noise=0.2) > delta


def test_objective_perturbation_without_noise_is_ridge_regression_on_the_logistic_loss():
    random = np.random.default_rng(1)
    rows = np.column_stack([random.uniform(-1, 1, size=(500, 2)), np.ones(500)])
    labels = np.where(rows @ np.array([3.0, -1.0, 0.2]) + random.logistic(size=500) > 0, 1.0, -1.0)
    split, setting = Split(rows, labels, rows, labels, np.sqrt(3.0)), ObjectiveSetting(0.3, 1.0)

    class Quiet:
        def standard_normal(self, size):
            return np.zeros(size)

    theta = objective_perturbation(split, 1.0, 1e-6, setting, Quiet())
    gradient = setting.ridge(1.0, split.norm) * theta - (labels / (1 + np.exp(labels * (rows @ theta)))) @ rows
    assert np.abs(gradient).max() < 1e-3
    assert split.error(theta) < split.error(-theta) / 2


SECOND_ORDER = [
    SecondOrderSetting(1, curvature, change, 1.0) for curvature in ("hessian", "bound") for change in ("add", "clip")
]


class Scripted:
    """Draws of a normal generator: zeros, or what is set for the draw of that number."""

    def __init__(self, **draws):
        self.draws, self.count = draws, 0

    def standard_normal(self, size):
        self.count += 1
        return np.zeros(size) + self.draws.get(f"draw{self.count}", 0.0)


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_the_curvatures_weights_are_those_of_the_loss_and_never_above_a_quarter(setting):
    margins = np.array([-700.0, -3.0, -1e-9, 0.0, 1e-7, 0.4, 20.0])
    weights = setting.weights(margins)
    assert (weights <= 0.25).all()
    a = np.array([-3.0, 0.4])
    loss = lambda z: np.logaddexp(0, -z)  # noqa: E731
    if setting.curvature == "hessian":
        second = (loss(a + 1e-4) - 2 * loss(a) + loss(a - 1e-4)) / 1e-8
        assert setting.weights(a) == pytest.approx(second, rel=1e-5)
    else:
        # The parabola of this curvature touches the loss at a and stays above it, and a flatter one does not.
        z, slope = np.linspace(-20, 20, 4001)[:, np.newaxis], -1 / (1 + np.exp(a))
        above = loss(a) + slope * (z - a) + setting.weights(a) / 2 * (z - a) ** 2 - loss(z)
        assert above.min() >= -1e-12
        assert (above - 0.001 * (z - a) ** 2).min() < -1e-6


@pytest.mark.parametrize("setting", SECOND_ORDER[:2], ids=lambda setting: setting.change)
def test_no_replaced_record_moves_the_inverse_curvature_by_more_than_its_sensitivity(setting):
    random, most = np.random.default_rng(3), 0.0
    for trial in range(3000):
        d, weight, least = int(random.integers(1, 5)), 10 ** random.uniform(-3, 0), 10 ** random.uniform(-2, 0)
        others = random.normal(size=(d, d)) * 10 ** random.uniform(-3, 0)
        others = others @ others.T if trial % 3 else np.eye(d) * least * (setting.change == "clip")
        one, other = random.normal(size=(2, d))
        one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
        first, second = (
            setting.inverse(others + weight * share * np.outer(u, u), least)
            for u, share in ((one, 1.0), (other, random.uniform()))
        )
        moved = float(np.linalg.norm(first - second, 2)) / setting.sensitivity(least, weight)
        most = max(most, moved)
    assert 0.6 < most <= 1 + 1e-9


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_a_step_of_second_order_descent_has_the_noise_of_its_epsilon(setting):
    """From the released step itself: its three noises, against the change of the exact sums for a reversed record."""
    rows, labels = np.array([[0.9, 1.0], [-0.4, 1.0], [0.2, 1.0]]), np.array([1.0, 1.0, -1.0])
    split = Split(rows, labels, rows, labels, 1.5)
    edges, n, epsilon, delta = rows * labels[:, np.newaxis] / 1.5, 3, 1.0, 1e-5
    run = lambda **draws: second_order(split, epsilon, delta, setting, Scripted(**draws))  # noqa: E731
    gradient = -edges.mean(axis=0) / 2
    curvature = edges.T @ edges / (4 * n)

    def least_of(trace):
        direction_mu = np.sqrt(0.27) * mu
        return max(np.cbrt(0.5 * trace / (n**2 * direction_mu**2 / 2)), 1 / n)

    # mu by the formula of Gaussian differential privacy, independently of the accounting.
    deltas = lambda mu: ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)  # noqa: E731
    mu = brentq(lambda mu: deltas(mu) - delta, 1e-3, 10)
    least = least_of(np.trace(curvature))
    if setting.change == "add":
        changed = curvature + least * np.eye(2)
    else:
        # |A| is the root of A^2.
        above = curvature - least * np.eye(2)
        changed = (curvature + least * np.eye(2) + sqrtm(above @ above).real) / 2
    assert run() == pytest.approx(-np.linalg.solve(changed, gradient), rel=1e-6)
    # The noise on the gradient.
    noisy = setting.inverse(curvature, least) @ (gradient + 2 / n / (np.sqrt(0.7) * mu) * np.array([1.0, 1.0]))
    assert run(draw1=1.0) == pytest.approx(-noisy, rel=1e-6)
    # On the trace, whose sensitivity is a weight.
    lower = least_of(np.trace(curvature) + 0.25 / n / (np.sqrt(0.03) * mu))
    assert run(draw2=1.0) == pytest.approx(-setting.inverse(curvature, lower) @ gradient, rel=1e-6)
    # On the direction.
    moved = setting.sensitivity(least, 0.25 / n) * np.linalg.norm(gradient) / (np.sqrt(0.27) * mu)
    assert run(draw3=1.0) - run() == pytest.approx(np.full(2, -moved), rel=1e-6)


@pytest.mark.parametrize("setting", SECOND_ORDER, ids=lambda setting: f"{setting.curvature}, {setting.change}")
def test_second_order_descent_without_noise_minimises_the_logistic_loss(setting):
    random = np.random.default_rng(1)
    rows = np.column_stack([random.uniform(-1, 1, size=(2000, 2)), np.ones(2000)])
    labels = np.where(rows @ np.array([3.0, -1.0, 0.2]) + random.logistic(size=2000) > 0, 1.0, -1.0)
    split = Split(rows, labels, rows, labels, np.sqrt(3.0))
    theta = second_order(split, 10.0, 1e-6, replace(setting, steps=60), Scripted()) / np.sqrt(3.0)
    gradient = (labels / (1 + np.exp(labels * (rows @ theta)))) @ rows / 2000
    assert np.abs(gradient).max() < 1e-3
