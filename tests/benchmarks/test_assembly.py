"""The benchmarks' assembly: what is registered, what is run by default, and that each can be found in the README."""

import inspect
import json
import re
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks import __main__ as assembly
from benchmarks import measuring
from benchmarks.environments import UnavailableError, work
from benchmarks.measuring import Report, Target, targets_table

pytestmark = pytest.mark.more

ROOT = Path(__file__).resolve().parents[2]


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
