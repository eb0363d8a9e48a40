"""Claim: curves of encrypted answers from four organisations take less than three times a boosted fit on pooled rows.

`PrivateAdditive` asks in eight rounds: histograms, moments over 200 terms, and six gradients in a whitened basis, with
noise (epsilon 1). Compared with, in the same run: scikit-learn's HistGradientBoostingClassifier on all rows in one
place, the baseline, which no one may compute.
"""

import os
import statistics
import tempfile
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.federated_run import Rows, Way, phase_ends
from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    ratio,
    require,
    take_turns,
)
from benchmarks.node_processes import KEY_BITS, Floats, Nodes, nodes
from dpcore.estimators.additive import PrivateAdditive
from dpcore.numbers.processors import one_blas_thread
from learner.budgeted_oracle import BudgetedOracle
from learner.federation import Federation
from learner.journal import SessionSource
from learner.release import Release
from learner.session import Session

ROWS, COLUMNS, PARTIES, KNOTS, ROUNDS = 1_000_000, 20, 4, 9, 8
TERMS = COLUMNS * (1 + KNOTS)
HELD_OUT = 200_000
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
MOST_TIMES_LONGER = 3.0
REPEATS = 3
# An encrypted run that learns nothing would also be fast. The classes are about equally frequent, and a straight model
# errs in more than one row of three.
MOST_ERROR = 33.0

PROCESSOR = "processor time"
OURS, POOLED = f"additive, {PARTIES} parties", "HistGradientBoosting, pooled rows"
KINDS = {"statistic": "histograms", "moments": "moments", "gradient": "gradients"}


def make_rows(count: int, seed: int) -> Rows:
    """Correlated columns inside their bounds; the log-odds of the labels are a sum of curves."""
    random = np.random.default_rng(seed)
    mixing = np.eye(COLUMNS) + 0.5 * random.standard_normal((COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    frequency, phase = random.uniform(1, 4, COLUMNS), random.uniform(0, 2 * np.pi, COLUMNS)
    x, y = np.empty((count, COLUMNS)), np.empty(count, dtype=np.int8)
    for first in range(0, count, 100_000):
        block = np.tanh(random.standard_normal((min(100_000, count - first), COLUMNS)) @ mixing / 2)
        odds = 0.8 * np.sin(frequency * np.pi / 2 * block + phase).sum(axis=1)
        x[first : first + len(block)] = block
        y[first : first + len(block)] = np.where(random.random(len(block)) < 1 / (1 + np.exp(-odds)), 1, -1)
    return Rows(x, y)


def _error(margins: Floats, rows: Rows) -> float:
    return 100.0 * float(np.mean((margins > 0) != (rows.y > 0)))


def _pooled(train: Rows, test: Rows, way: Way) -> Callable[[], None]:
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415  (takes a second)

    def fit() -> None:
        model = HistGradientBoostingClassifier(random_state=0).fit(train.x, train.y)
        way.errors.append(100.0 * float(np.mean(model.predict(test.x) != test.y)))
        way.phases_s.append({"iterations": float(model.n_iter_)})

    return fit


def _federated(running: Nodes, session: Session, test: Rows, way: Way) -> Callable[[], None]:
    def learn() -> None:
        oracle = Federation(SessionSource(session, asks_again=True), running.schema).within(EPSILON, DELTA)
        # As `rado learner train` does it.
        with one_blas_thread():
            model = PrivateAdditive(knots=KNOTS, pairs=False, rounds=ROUNDS).fit_queries(oracle)
        terms = 0 if model.feature_map_ is None else len(model.feature_map_.terms)
        require(model.rounds_done_ == ROUNDS and terms == TERMS, f"{model.rounds_done_} rounds over {terms} terms")
        way.errors.append(_error(model.decision_function(np.column_stack([test.x, np.ones(len(test.x))])), test))
        way.phases_s.append(_phases(running, oracle))

    return learn


def _phases(running: Nodes, oracle: BudgetedOracle) -> dict[str, float]:
    """Seconds of each phase from submission to total, by kind of query, added up over queries."""
    found: dict[str, float] = {}
    for answer in oracle.answers:
        assert isinstance(answer, Release), "a session's answers are releases"
        events = running.events(answer.query_id)
        kind = KINDS[answer.query.kind.name]
        for (_, begun), (phase, at) in pairwise(phase_ends(events).items()):
            found[f"{kind}: {phase}"] = found.get(f"{kind}: {phase}", 0.0) + max(0.0, at - begun)
    return found


def _processor_s() -> float:
    """Processor seconds that this process and its running descendants have used, from Linux's /proc; 0 elsewhere."""
    used: dict[int, tuple[int, float]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        used[int(file.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {process for process, (parent, _) in used.items() if parent in ours} - ours:
        ours |= more
    return sum(used[process][1] for process in ours & used.keys())


def _counted(work: Callable[[], None], way: Way) -> Callable[[], None]:
    """The work, with the processor seconds of all processes among its phases."""

    def counted() -> None:
        before = _processor_s()
        work()
        way.phases_s[-1][PROCESSOR] = _processor_s() - before

    return counted


def _compare(train: Rows, test: Rows, repeats: int) -> tuple[dict[str, list[float]], dict[str, Way]]:
    """Seconds and results of both, taking turns; the first run of each is a warm-up."""
    ways = {POOLED: Way(), OURS: Way()}
    ends = np.linspace(0, len(train.y), PARTIES + 1).astype(int)
    parts = [train.part(first, end) for first, end in pairwise(ends.tolist())]
    with (
        tempfile.TemporaryDirectory(prefix="rado-benchmark-") as directory,
        nodes(Path(directory), [(part.x, part.y) for part in parts]) as running,
        running.session() as session,
    ):
        candidates = {
            POOLED: _counted(_pooled(train, test, ways[POOLED]), ways[POOLED]),
            OURS: _counted(_federated(running, session, test, ways[OURS]), ways[OURS]),
        }
        seconds = take_turns(candidates, repeats)
    return seconds, {name: Way(way.errors[1:], way.phases_s[1:]) for name, way in ways.items()}


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    """Measure."""
    made = make_rows(ROWS + HELD_OUT, 1)
    train, test = made.part(0, ROWS), made.part(ROWS, ROWS + HELD_OUT)
    seconds, ways = _compare(train, test, REPEATS)
    worst = max(ways[OURS].errors)
    require(worst <= MOST_ERROR, f"the model errs {worst:.1f} %: a fast run that learns nothing proves nothing")
    return _report(seconds, ways)


def _report(seconds: dict[str, list[float]], ways: dict[str, Way]) -> Report:
    measures = [Measure.of(name, "s", values) for name, values in seconds.items()]
    found = ratio(f"{OURS} / {POOLED}", seconds[OURS], seconds[POOLED])
    processor = {name: [one.pop(PROCESSOR) for one in way.phases_s] for name, way in ways.items()}
    measures += [Measure.of(f"{name}, {PROCESSOR}", "s", values) for name, values in processor.items()]
    busy = ratio(f"{found.what}, {PROCESSOR}", processor[OURS], processor[POOLED])
    errors = [Measure.of(f"{name}: held-out error", "%", way.errors) for name, way in ways.items()]
    phases = [Measure.of(phase, "s", [one[phase] for one in ways[OURS].phases_s]) for phase in ways[OURS].phases_s[0]]
    inside = [sum(one.values()) for one in ways[OURS].phases_s]
    rest = [whole - part for whole, part in zip(seconds[OURS], inside, strict=True)]
    phases.append(Measure.of("learner: plan, submit, open, fit", "s", rest))
    setting = {
        "rows": ROWS,
        "columns": COLUMNS,
        "terms": TERMS,
        "rounds": ROUNDS,
        "parties": PARTIES,
        "epsilon": float(EPSILON),
        "delta": float(DELTA),
        "key_bits": KEY_BITS,
        "pooled_iterations": statistics.median(one["iterations"] for one in ways[POOLED].phases_s),
    }
    tables = [
        Table(
            f"From the first plan to the model, m={ROWS:,} x {COLUMNS}", MEASURE_HEADER, [m.cells() for m in measures]
        ),
        Table("Ratio", MEASURE_HEADER, [found.cells(), busy.cells()]),
        Table("Held-out errors", MEASURE_HEADER, [e.cells() for e in errors]),
        Table("Phases, added up over queries", MEASURE_HEADER, [p.cells() for p in phases]),
    ]
    notes = [
        "A federated run begins with the first plan and ends with the fitted model; parties have their rows in memory.",
        "Processor time is that of all processes, polls and the nodes' own work included. Other load changes it less.",
        "All six processes and the fit on pooled rows have the same cores; phases end when the last party's does.",
    ]
    return Report(
        "curves_run",
        (__doc__ or "").partition("\n")[0],
        setting,
        [*measures, *errors, *phases],
        [found, busy],
        tables,
        notes,
        [Target(found.what, "times", MOST_TIMES_LONGER, found.median, at_least=False)],
    )


def draw(report: Report, figure: Figure) -> None:
    """Left: seconds of both. Right: those of the federated run by phase."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 2))
    for axes, shown in (
        (left, [m for m in report.measures if m.unit == "s" and ": " not in m.what][::-1]),
        (right, [m for m in report.measures if m.unit == "s" and ": " in m.what][::-1]),
    ):
        spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
        axes.barh([m.what for m in shown], [m.median for m in shown], xerr=spread, color="tab:blue")
        axes.set_xlabel("seconds (median, min to max)")
        axes.tick_params(labelsize=8)
