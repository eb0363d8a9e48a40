"""Claim: a model of encrypted sums from four organisations costs about what a fit on their pooled rows costs.

Compared with, in the same run: scikit-learn's LogisticRegression on all rows in one place, the baseline, which no one
may compute; and Flower's SecAgg+ with federated averaging of the same model, in its own environment.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import binding_cost
from benchmarks.environments import UnavailableError
from benchmarks.flower import Flower, flower
from benchmarks.measuring import (
    MEASURE_HEADER,
    REPEATS,
    Measure,
    Report,
    Table,
    Target,
    number,
    ratio,
    require,
    take_turns,
)
from benchmarks.node_processes import KEY_BITS, Event, Floats, Labels, Nodes, nodes
from learner.requests import MomentsRequest, RadosRequest
from learner.session import Session
from learner.training import fitted

ROWS, COLUMNS, PARTIES, RADOS = 5_000_000, 18, 4, 1_000
HELD_OUT = 200_000
EPSILON = Fraction(1)
MOST_TIMES_LONGER = {"moments": 0.11, "rados": 0.5}
# An encrypted run that learns nothing would also be fast.
WORSE_BY_AT_MOST = 3.0

POOLED = "LogisticRegression, pooled rows"
FLOWER = "Flower, SecAgg+, federated averaging"


@dataclass(frozen=True, eq=False)
class Rows:
    """Synthetic rows. x: (m, columns) in [-1, 1]. y: -1 or +1."""

    x: Floats
    y: Labels

    def part(self, first: int, end: int) -> "Rows":
        """Rows first to end, not copied."""
        return Rows(self.x[first:end], self.y[first:end])

    def error(self, theta: Floats) -> float:
        """Error in % of sign(theta . (x, 1))."""
        return 100.0 * float(np.mean((self.x @ theta[:-1] + theta[-1] > 0) != (self.y > 0)))


def make_rows(count: int, seed: int) -> Rows:
    """Correlated columns, half of them skewed, and logistic labels; about one in five is on the wrong side."""
    random = np.random.default_rng(seed)
    mixing = np.eye(COLUMNS) + 0.5 * random.standard_normal((COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)
    theta = random.standard_normal(COLUMNS)
    x, y = np.empty((count, COLUMNS)), np.empty(count, dtype=np.int8)
    for first in range(0, count, 100_000):
        block = random.standard_normal((min(100_000, count - first), COLUMNS)) @ mixing
        block[:, COLUMNS // 2 :] = np.abs(block[:, COLUMNS // 2 :]) ** 1.5 - 1
        np.clip(block / 3, -1, 1, out=x[first : first + len(block)])
        odds = 1 / (1 + np.exp(-2.2 * x[first : first + len(block)] @ theta))
        y[first : first + len(block)] = np.where(random.random(len(block)) < odds, 1, -1)
    return Rows(x, y)


@dataclass
class Way:
    """The results of one candidate. phases_s: for each run, seconds by phase, in order."""

    errors: list[float] = field(default_factory=list)
    phases_s: list[dict[str, float]] = field(default_factory=list)


def ask_and_learn(running: Nodes, session: Session, request: MomentsRequest | RadosRequest) -> tuple[Floats, Any]:
    """From plan to fitted model; with the seconds of each phase from all nodes' logs."""
    begun = time.time()
    plan = session.plan(request)
    planned = time.time()
    query_id = session.ask(plan)
    session.watch(query_id)
    release = session.fetch(query_id)
    opened = time.time()
    theta = fitted(release, "mean-variance").theta_
    learned = time.time()
    marks = {"plan": planned, **phase_ends(running.events(query_id)), "fetch and open": opened, "learn": learned}
    phases, last = {}, begun
    for phase, at in marks.items():
        phases[phase], last = max(0.0, at - last), at
    return theta, phases


def phase_ends(events: list[Event]) -> dict[str, float]:
    """The end of each phase in the coordinator's log, at the last party."""

    def last(name: str) -> float:
        return max(event.at for event in events if event.node == "coordinator" and event.event == name)

    return {
        "submit": last("query submitted"),
        "accept": last("answer"),
        "contribute and encrypt": last("ready"),
        "mask, charge, upload": last("receipt"),
        "add": last("complete"),
    }


def _pooled(train: Rows, test: Rows, way: Way) -> Callable[[], None]:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (takes a second)

    def fit() -> None:
        model = LogisticRegression().fit(train.x, train.y)
        way.errors.append(test.error(np.append(model.coef_[0], model.intercept_[0])))
        way.phases_s.append({"iterations": float(model.n_iter_[0])})

    return fit


def _federated(
    running: Nodes, session: Session, request: MomentsRequest | RadosRequest, test: Rows, way: Way
) -> Callable[[], None]:
    def learn() -> None:
        theta, phases = ask_and_learn(running, session, request)
        way.errors.append(test.error(theta))
        way.phases_s.append(phases)

    return learn


def _compare(
    train: Rows, test: Rows, repeats: int
) -> tuple[dict[str, list[float]], dict[str, Way], list[binding_cost.Cost]]:
    """Seconds and results of every candidate, taking turns; the first run of each is a warm-up.

    Then the cost of binding and anchoring in the query for moments.
    """
    names = {"moments": f"moments, {PARTIES} parties", "rados": f"{RADOS:,} rados, {PARTIES} parties"}
    ways = {POOLED: Way(), **{name: Way() for name in names.values()}}
    ends = np.linspace(0, len(train.y), PARTIES + 1).astype(int)
    parts = [train.part(first, end) for first, end in pairwise(ends.tolist())]
    with (
        tempfile.TemporaryDirectory(prefix="rado-benchmark-") as directory,
        nodes(Path(directory), [(part.x, part.y) for part in parts]) as running,
        running.session() as session,
    ):
        requests: dict[str, MomentsRequest | RadosRequest] = {
            names["moments"]: MomentsRequest(running.schema, epsilon=EPSILON),
            names["rados"]: RadosRequest(running.schema, RADOS, design="plain"),
        }
        candidates = {POOLED: _pooled(train, test, ways[POOLED])}
        for name, request in requests.items():
            candidates[name] = _federated(running, session, request, test, ways[name])
        seconds = take_turns(candidates, repeats)
        length = session.plan(requests[names["moments"]]).query.length
        costs = binding_cost.measure(session.key.secret, length, PARTIES, Path(directory))
    return seconds, {name: Way(way.errors[1:], way.phases_s[1:]) for name, way in ways.items()}, costs


def _flower(train: Rows, test: Rows) -> Flower | str:
    """Flower's run, or the reason why there is none."""
    try:
        return flower(train.x, train.y, test.x, test.y, PARTIES)
    except UnavailableError as error:
        return str(error)


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    made = make_rows(ROWS + HELD_OUT, 1)
    train, test = made.part(0, ROWS), made.part(ROWS, ROWS + HELD_OUT)
    seconds, ways, costs = _compare(train, test, REPEATS)
    best = float(np.median(ways[POOLED].errors))
    for name, way in ways.items():
        require(max(way.errors) <= best + WORSE_BY_AT_MOST, f"{name} errs {max(way.errors):.1f} %, pooled {best:.1f} %")
    return _report(seconds, ways, _flower(train, test), costs)


def _report(
    seconds: dict[str, list[float]], ways: dict[str, Way], peer: Flower | str, costs: list[binding_cost.Cost]
) -> Report:
    measures = [Measure.of(name, "s", values) for name, values in seconds.items()]
    ours = [name for name in seconds if name != POOLED]
    ratios = [ratio(f"{name} / {POOLED}", seconds[name], seconds[POOLED]) for name in ours]
    targets = [
        Target(f"{name} / {POOLED}", "times", most, found.median, at_least=False)
        for name, most, found in zip(ours, MOST_TIMES_LONGER.values(), ratios, strict=True)
    ]
    bound, bound_table, bound_target = binding_cost.reported(costs, ours[0], statistics.median(seconds[ours[0]]))
    targets.append(bound_target)
    errors = [Measure.of(f"{name}: held-out error", "%", way.errors) for name, way in ways.items()]
    phases = [
        Measure.of(f"{name}: {phase}", "s", [run[phase] for run in ways[name].phases_s])
        for name in ours
        for phase in ways[name].phases_s[0]
    ]
    notes = [
        "A federated run begins with the plan and ends with the fitted model; parties have their rows in memory.",
        "All six processes and the fit on pooled rows have the same cores; phases end when the last party's does.",
    ]
    if isinstance(peer, Flower):
        whole = sum(peer.rounds_s)
        measures.append(Measure(f"{FLOWER}, {len(peer.rounds_s)} rounds", "s", whole, whole, whole, 1))
        errors.append(Measure(f"{FLOWER}: held-out error", "%", peer.error, peer.error, peer.error, 1))
        rounds = ", ".join(number(s) for s in peer.rounds_s)
        notes.append(
            f"Flower was run once, as its simulation and without TLS; its rounds took {rounds} s, the first with the "
            "start of the clients' processes. Its model has no protection beyond SecAgg+, which hides single updates."
        )
    else:
        notes.append(f"Flower was not run: {peer}.")
    setting = {
        "rows": ROWS,
        "columns": COLUMNS,
        "parties": PARTIES,
        "rados": RADOS,
        "epsilon": float(EPSILON),
        "key_bits": KEY_BITS,
        "pooled_iterations": ways[POOLED].phases_s[0]["iterations"],
    }
    tables = [
        Table(f"From query to model, m={ROWS:,} x {COLUMNS}", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
        Table("Held-out errors", MEASURE_HEADER, [e.cells() for e in errors]),
        Table("Phases", MEASURE_HEADER, [p.cells() for p in phases]),
        bound_table,
    ]
    claim = (__doc__ or "").partition("\n")[0]
    return Report(
        "federated_run", claim, setting, [*measures, *errors, *phases, *bound], ratios, tables, notes, targets
    )


def draw(report: Report, figure: Figure) -> None:
    """Left: seconds of every candidate. Right: those of the federated ones by phase."""
    left, right = figure.subplots(1, 2)
    whole = [m for m in report.measures if m.unit == "s" and ": " not in m.what][::-1]
    spread = [[m.median - m.minimum for m in whole], [m.maximum - m.median for m in whole]]
    left.barh([m.what for m in whole], [m.median for m in whole], xerr=spread, color="tab:blue")
    left.set_xlabel("seconds (median, min to max)")
    phases = [m for m in report.measures if m.unit == "s" and ": " in m.what]
    names = list(dict.fromkeys(m.what.split(": ")[0] for m in phases))
    reached = dict.fromkeys(names, 0.0)
    for phase in dict.fromkeys(m.what.split(": ")[1] for m in phases):
        lengths = [next(m.median for m in phases if m.what == f"{name}: {phase}") for name in names]
        right.barh(names, lengths, left=list(reached.values()), label=phase)
        reached = {name: reached[name] + length for name, length in zip(names, lengths, strict=True)}
    right.set_xlabel("seconds (medians)")
    right.legend(fontsize=8)
