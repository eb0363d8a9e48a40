"""Claim: eight rounds of `newton` in a federation of processes take less than a fit on a million pooled rows.

Four parties with 3072-bit keys, a coordinator and the learner are six processes on loopback, with mutual TLS, warm: one
training was before. Beside the time, what a round costs whatever the machine is: calls to the coordinator, syncs of the
disk, and processor time.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from benchmarks.federated_run import COLUMNS, Rows, make_rows
from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, number, ratio, require, take_turns
from benchmarks.node_processes import KEY_BITS, Nodes, nodes
from dpcore.estimators.private_newton import PrivateNewton
from learner.federation import Federation
from learner.journal import SessionSource
from learner.session import Session
from learner.training import AskedTraining

POOLED_ROWS, PARTIES, ROUNDS = 1_000_000, 4, 8
SIZES = {"16,000 rows": 16_000, "1,000,000 rows": POOLED_ROWS}
"""Rows of all parties: those of the demo, and as many as the fit has."""
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
HELD_OUT, WORSE_BY_AT_MOST = 100_000, 3.0
MOST_S = 1.5
REPEATS = 3
POOLED = "LogisticRegression, 1,000,000 pooled rows"
LEARNER, COORDINATOR, PARTY = "learner", "coordinator", "a party"


@dataclass
class Costs:
    """What trainings cost, for each run: seconds of processor time of each role, and calls by method."""

    errors: list[float] = field(default_factory=list)
    processor_s: list[dict[str, float]] = field(default_factory=list)
    calls: list[dict[str, int]] = field(default_factory=list)


def train(session: Session, running: Nodes, journal: Path) -> PrivateNewton:
    """One training as `rado learner train` asks: each query is on disk, in a journal and charged.

    Parties are asked first whether they would accept all of it.
    """
    source = SessionSource(session, journal, asks_again=True)
    asked = AskedTraining("newton", PrivateNewton(rounds=ROUNDS), running.schema, EPSILON, DELTA, {})
    trained = asked.run(Federation(source, running.schema))
    require(len(trained.oracle.answers) == ROUNDS, f"{len(trained.oracle.answers)} answers")
    return cast("PrivateNewton", trained.estimator)


def _training(
    running: Nodes, session: Session, journals: Iterator[Path], test: Rows, costs: Costs
) -> Callable[[], None]:
    def work() -> None:
        calls, nodes_s, own_s = running.calls(), running.processor_s(), time.process_time()
        model = train(session, running, next(journals))
        spent = {name: value - nodes_s[name] for name, value in running.processor_s().items()}
        parties = [value for name, value in spent.items() if name.startswith("party-")]
        costs.processor_s.append(
            {
                LEARNER: time.process_time() - own_s,
                COORDINATOR: spent["coordinator"],
                PARTY: sum(parties) / len(parties),
            }
        )
        costs.calls.append(dict(Counter(running.calls()) - Counter(calls)))
        costs.errors.append(test.error(model.theta_))

    return work


def _pooled(train_rows: Rows) -> Callable[[], None]:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (takes a second)

    return lambda: LogisticRegression().fit(train_rows.x, train_rows.y)


@contextmanager
def counted_syncs(pids: Mapping[str, int], directory: Path) -> Iterator[dict[str, int]]:
    """Count the calls of fsync and fdatasync of each process during the block; filled after it. Needs strace."""
    found: dict[str, int] = {}
    with ExitStack() as stack:
        for name, pid in pids.items():
            words = ["strace", "-f", "-q", "-e", "trace=fsync,fdatasync", "-o", str(directory / f"{name}.trace"), "-p"]
            tracing = stack.enter_context(subprocess.Popen([*words, str(pid)], stderr=subprocess.DEVNULL))
            stack.callback(tracing.terminate)
        time.sleep(1.0)
        yield found
    for name in pids:
        lines = (directory / f"{name}.trace").read_text(encoding="utf-8", errors="replace").splitlines()
        found[name] = sum("sync(" in line for line in lines)


def _syncs(running: Nodes, session: Session, directory: Path) -> dict[str, float] | str:
    """Syncs of the disk in a round, by role; or why they were not counted."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with counted_syncs({LEARNER: os.getpid(), **running.pids()}, directory) as found:
        train(session, running, directory / "counted")
        # What is written late, and the end of the last query at the parties.
        time.sleep(2.0)
    parties = [count for name, count in found.items() if name.startswith("party-")]
    if not all(found.values()):
        return "strace may not trace the processes here"
    counts = {LEARNER: found[LEARNER], COORDINATOR: found["coordinator"], PARTY: sum(parties) / len(parties)}
    return {name: count / ROUNDS for name, count in counts.items()}


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    made = make_rows(POOLED_ROWS + HELD_OUT, 1)
    pooled, test = made.part(0, POOLED_ROWS), made.part(POOLED_ROWS, POOLED_ROWS + HELD_OUT)
    costs = {name: Costs() for name in SIZES}
    candidates = {POOLED: _pooled(pooled)}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rado-benchmark-")))
        first: tuple[Nodes, Session] | None = None
        for place, (name, rows) in enumerate(SIZES.items()):
            ends = np.linspace(0, rows, PARTIES + 1).astype(int).tolist()
            parts = [(pooled.x[begin:end], pooled.y[begin:end]) for begin, end in pairwise(ends)]
            running = stack.enter_context(nodes(directory / str(place), parts))
            session = stack.enter_context(running.session())
            first = first or (running, session)
            journals = iter([directory / f"journal-{place}-{run}" for run in range(REPEATS + 1)])
            candidates[f"newton, {name}"] = _training(running, session, journals, test, costs[name])
        seconds = take_turns(candidates, REPEATS)
        assert first is not None
        syncs = _syncs(*first, directory)
    return _report(seconds, costs, syncs)


def _report(seconds: dict[str, list[float]], costs: dict[str, Costs], syncs: dict[str, float] | str) -> Report:
    measures = [Measure.of(name, "s", values) for name, values in seconds.items()]
    ours = [name for name in seconds if name != POOLED]
    ratios = [ratio(f"{name} / {POOLED}", seconds[name], seconds[POOLED]) for name in ours]
    spent = [
        Measure.of(f"{name}: processor time of {role}", "s", [run[role] for run in cost.processor_s[1:]])
        for name, cost in costs.items()
        for role in (LEARNER, COORDINATOR, PARTY)
    ]
    cost = costs[next(iter(SIZES))]
    methods = sorted({method for run in cost.calls for method in run})
    calls = {method: max(run.get(method, 0) for run in cost.calls[1:]) / ROUNDS for method in methods}
    notes = [
        f"A training is {ROUNDS} rounds: each query is signed, on disk, in a journal, charged and opened.",
        "Processor time is of the whole training; that of a party is the mean of four.",
    ]
    if isinstance(syncs, str):
        notes.append(f"Syncs of the disk were not counted: {syncs}.")
    setting = {
        "pooled_rows": POOLED_ROWS,
        "columns": COLUMNS,
        "parties": PARTIES,
        "rounds": ROUNDS,
        "epsilon": float(EPSILON),
        "key_bits": KEY_BITS,
        "calls_in_a_round": calls,
        "calls_in_a_round_in_all": sum(calls.values()),
        "syncs_in_a_round": None if isinstance(syncs, str) else syncs,
        "held_out_errors": {name: float(np.median(cost.errors)) for name, cost in costs.items()},
    }
    rows = [(method, number(count)) for method, count in calls.items()]
    counted = [] if isinstance(syncs, str) else [(f"syncs of the disk, {role}", number(n)) for role, n in syncs.items()]
    tables = [
        Table(f"Eight rounds of newton, {PARTIES} parties, warm", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
        Table("Processor time", MEASURE_HEADER, [m.cells() for m in spent]),
        Table("In a round", ("", "number"), [*rows, ("calls in all", number(sum(calls.values()))), *counted]),
    ]
    medians = {measure.what: measure.median for measure in measures}
    targets = [Target(ours[0], "s", MOST_S, medians[ours[0]], at_least=False)]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("rounds", claim, setting, [*measures, *spent], ratios, tables, notes, targets)


def draw(report: Report, figure: Figure) -> None:
    """Left: seconds. Right: calls of a round, by method."""
    left, right = figure.subplots(1, 2)
    whole = [m for m in report.measures if ": " not in m.what][::-1]
    spread = [[m.median - m.minimum for m in whole], [m.maximum - m.median for m in whole]]
    left.barh([m.what for m in whole], [m.median for m in whole], xerr=spread, color="tab:blue")
    left.set_xlabel("seconds (median, min to max)")
    calls = report.setting["calls_in_a_round"]
    right.barh(list(calls), list(calls.values()), color="tab:blue")
    right.set_xlabel("calls in a round, of all members")
