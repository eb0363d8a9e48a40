"""Claim: encrypted least squares of a million rows take at most 0.3 times the processor time of a fit on pooled rows.

Four parties, the coordinator and the learner are one process: from the plan to the fitted model, with the parties'
sums, noise, 3072-bit encryption and masks, the coordinator's checks and product, and the learner's two openings;
without sockets, disk and ledgers, which `federated_run` measures. Processor time, as it depends little on other load.
Compared with, in the same run: scikit-learn's LinearRegression on the same rows as doubles. And the same of a survival
curve by group of ten million people.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    draw_seconds,
    ratio,
    require,
)
from dpcore.estimators.least_squares import LeastSquares
from dpcore.evaluation.measured_evaluation import r_squared
from dpcore.records.features import BooleanFeature, EventTime, Number, RealFeature
from dpcore.records.schema import Schema
from learner.federation import Federation
from radofed.simulation.oracles import simulate_federation

Floats = NDArray[np.float64]
ROWS, COLUMNS, PARTIES, KEY_BITS = 1_000_000, 20, 4, 3072
PEOPLE, INTERVALS = 10_000_000, 20
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
REPEATS = 5
SETTLE_S = 0.5
MOST_TIMES_LONGER, MOST_SECONDS = 0.3, 10.0
# An encrypted run that learns nothing would also be fast.
WORSE_BY_AT_MOST = 0.005

OURS, POOLED, CURVES = f"linear, {PARTIES} parties", "LinearRegression, pooled rows", f"survival, {PARTIES} parties"


def number_schema() -> Schema:
    """Reals and a label in [-1, 1]."""
    reals = tuple(RealFeature(name=f"f{place:02}", lower=-1, upper=1) for place in range(COLUMNS))
    label = Number(column="label", lower=-1, upper=1, out_of_bounds="clip")
    return Schema(name="benchmark", label=label, features=reals)


def event_schema() -> Schema:
    """Times in intervals, and two groups."""
    borders = tuple(float(border) for border in range(1, INTERVALS + 1))
    label = EventTime(column="time", event="event", happened=("1",), borders=borders)
    return Schema(name="benchmark", label=label, features=(BooleanFeature(name="group", true=("1",), false=("0",)),))


def make_rows(count: int, seed: int) -> tuple[Floats, Floats]:
    """Correlated columns (count, COLUMNS), and labels of which a line explains about a half."""
    random = np.random.default_rng(seed)
    mixing = np.eye(COLUMNS) + 0.5 * random.standard_normal((COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    theta = random.standard_normal(COLUMNS)
    x = np.clip(random.standard_normal((count, COLUMNS)) @ mixing / 4, -1, 1)
    score = x @ theta
    spread = 4.0 * float(score.std())
    labels = np.clip((score + score.std() * random.standard_normal(count)) / spread, -1, 1)
    return x, labels


def regression_federation(x: Floats, labels: Floats) -> Federation:
    """Parties with a part of the rows each, in memory."""
    ends = np.linspace(0, len(labels), PARTIES + 1).astype(int).tolist()
    tables = {
        f"party-{place}": pa.table({f"f{i:02}": x[first:end, i] for i in range(COLUMNS)} | {"label": labels[first:end]})
        for place, (first, end) in enumerate(pairwise(ends))
    }
    return simulate_federation(tables, schema=number_schema(), encrypt=True, key_bits=KEY_BITS)


def survival_federation(people: int) -> Federation:
    """Parties with a part of the people each, in memory."""
    random, tables = np.random.default_rng(2), {}
    for place in range(PARTIES):
        size = people // PARTIES
        group = random.integers(0, 2, size)
        times, last = random.exponential(20.0 / (1 + group)), random.uniform(1.0, 30.0, size)
        tables[f"party-{place}"] = pa.table(
            {
                "time": np.minimum(times, last) + 1e-6,
                "event": pa.array((times <= last).astype(np.int8)),
                "group": pa.array(group.astype(np.int8)),
            }
        )
    return simulate_federation(tables, schema=event_schema(), encrypt=True, key_bits=KEY_BITS)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of this process, and seconds."""
    # Threads of NumPy's library wait busily for a moment after its last call: that is not of this work.
    time.sleep(SETTLE_S)
    start, processor = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - processor, time.perf_counter() - start


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    """Measure."""
    x, labels = make_rows(ROWS + ROWS // 10, 1)
    train, test = (x[:ROWS], labels[:ROWS]), (x[ROWS:], labels[ROWS:])
    federation = regression_federation(*train)
    explained: dict[str, list[float]] = {OURS: [], POOLED: []}

    def ours() -> None:
        theta = LeastSquares().fit_moments(federation.within(EPSILON, DELTA).number_moments()).theta_
        explained[OURS].append(r_squared(test[1], test[0] @ theta[:-1] + theta[-1]))

    def pooled() -> None:
        model = LinearRegression().fit(*train)
        explained[POOLED].append(r_squared(test[1], model.predict(test[0])))

    taken: dict[str, list[tuple[float, float]]] = {OURS: [], POOLED: [], CURVES: []}
    for turn in range(REPEATS + 1):
        for name, work in ((OURS, ours), (POOLED, pooled)):
            one = timed(work)
            if turn:
                taken[name].append(one)
    worst = max(explained[POOLED]) - min(explained[OURS])
    require(worst <= WORSE_BY_AT_MOST, f"R^2 is {worst:.4f} below the pooled one: a fast run that learns nothing")
    people = survival_federation(PEOPLE)
    for turn in range(REPEATS + 1):
        one = timed(lambda: people.survival(by="group", epsilon=EPSILON, delta=DELTA))
        if turn:
            taken[CURVES].append(one)
    return _report(taken, explained)


def _report(taken: dict[str, list[tuple[float, float]]], explained: dict[str, list[float]]) -> Report:
    measures = [
        Measure.of(f"{name}, {what}", "s", [one[place] for one in values])
        for name, values in taken.items()
        for place, what in enumerate(("processor time", "wall time"))
    ]
    ratios = [
        ratio(f"{OURS} / {POOLED}, {what}", [one[place] for one in taken[OURS]], [one[place] for one in taken[POOLED]])
        for place, what in enumerate(("processor time", "wall time"))
    ]
    accuracy = [Measure.of(f"{name}: R^2 of other rows", "R^2", values) for name, values in explained.items()]
    tables = [
        Table(
            f"m={ROWS:,} x {COLUMNS}, and {PEOPLE:,} people in {INTERVALS} intervals and two groups",
            MEASURE_HEADER,
            [one.cells() for one in [*measures, *accuracy]],
        ),
        Table("Ratios", MEASURE_HEADER, [one.cells() for one in ratios]),
    ]
    setting = {
        "rows": ROWS,
        "columns": COLUMNS,
        "parties": PARTIES,
        "key_bits": KEY_BITS,
        "epsilon": float(EPSILON),
        "people": PEOPLE,
        "intervals": INTERVALS,
    }
    curves = next(one.median for one in measures if one.what.startswith(CURVES))
    return Report(
        "million_rows",
        (__doc__ or "").partition("\n")[0],
        setting,
        [*measures, *accuracy],
        ratios,
        tables,
        ["Times are of all parties, the coordinator and the learner together, in one process; rows are in memory."],
        [
            Target(ratios[0].what, "times", MOST_TIMES_LONGER, ratios[0].median, at_least=False),
            Target(f"{CURVES}, processor time of all together", "s", MOST_SECONDS, curves, at_least=False),
        ],
    )


def draw(report: Report, figure: Figure) -> None:
    """The times."""
    draw_seconds(replace(report, measures=[one for one in report.measures if one.unit == "s"]), figure)
