"""Claim: time is linear in rows, coordinates and rados and sublinear in parties; coordinator memory does not grow.

A party's contribution (signatures and sums, on all cores) is timed while one of m, d and n grows; a whole encrypted
query, from plan to opened total, over simulated parties that share the same rows, while K grows; and one over parties
with as many rows each, in one process and by its processor time, from 100 parties to 1,000. Each curve, and each K, has
its own process. An exponent is fitted: seconds = c x^e by least squares of logarithms.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.measuring import (
    MEASURE_HEADER,
    REPEATS,
    Measure,
    Report,
    Table,
    Target,
    number,
    require,
)
from dpcore.numbers.processors import processors

# Long enough that fixed costs are negligible.
USUAL = {"m": 200_000, "d": 18, "n": 1_000}
GROWING = {
    "m": (312_500, 625_000, 1_250_000, 2_500_000, 5_000_000),
    "d": (8, 16, 32, 64, 128),
    "n": (500, 1_000, 2_000, 4_000, 8_000),
}
MOST_S, MOST_GIB = 4.0, 1.5
PARTIES = (4, 16, 64, 400)
SIMULATED = {"rows": 1_000_000, "columns": 17, "rados": 100, "key_bits": 3072}
FEWER_REPEATS_FROM, FEWER_REPEATS = 400, 3
MANY, MOST_MANY_TIMES = (100, 1_000), 15.0
"""Parties with as many rows each: masks between every two would take the square of ten times the time."""
ROWS_EACH = 200
OF_MANY = {"columns": 17, "rados": 20, "key_bits": 3072}
WORK_TIMEOUT_S = 1200
MOST_MEMORY_TIMES = 1.1
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Curve:
    """Seconds of each repeat at each size of the growing quantity."""

    grows: str
    seconds: dict[int, list[float]]

    @property
    def exponent(self) -> float:
        """The e of c x^e, by least squares of the logarithms of sizes and medians."""
        medians = [np.median(values) for values in self.seconds.values()]
        return float(np.polyfit(np.log(list(self.seconds)), np.log(medians), 1)[0])

    def measures(self) -> list[Measure]:
        """One for each size."""
        return [Measure.of(f"{self.grows} = {size:,}", "s", values) for size, values in self.seconds.items()]

    def growth(self) -> float:
        """The time of the largest size over that of the smallest."""
        medians = [float(np.median(values)) for values in self.seconds.values()]
        return medians[-1] / medians[0]


def worked(job: dict[str, Any]) -> dict[str, Any]:
    """The result of benchmarks.scaling_worker for a job."""
    command = [sys.executable, "-m", "benchmarks.scaling_worker", json.dumps(job)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, cwd=ROOT)
    require(done.returncode == 0, f"{job} failed: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def contribution_curve(grows: str) -> tuple[Curve, int | None]:
    """A party's contribution to plain rados; and the peak memory of its process, in bytes."""
    found = worked({"sizes": [USUAL | {grows: size} for size in GROWING[grows]]})
    return Curve(grows, dict(zip(GROWING[grows], found["seconds"], strict=True))), found["most_bytes"]


@dataclass(frozen=True)
class Simulated:
    """Seconds, and the coordinator's memory: its peak, and its peak above that before the first query."""

    seconds: list[float]
    processor_seconds: list[float]
    most_bytes: int | None
    most_bytes_beyond: int | None


def simulated(parties: int) -> Simulated:
    """Encrypted queries over this many parties, in their own process."""
    repeats = FEWER_REPEATS if parties >= FEWER_REPEATS_FROM else REPEATS
    return Simulated(**worked({**SIMULATED, "parties": parties, "repeats": repeats, "workers": processors()}))


def of_many(parties: int) -> list[float]:
    """The processor seconds of encrypted queries over so many parties with ROWS_EACH rows each, in one process."""
    job = {**OF_MANY, "rows": parties * ROWS_EACH, "parties": parties, "repeats": FEWER_REPEATS, "workers": 0}
    return Simulated(**worked(job)).processor_seconds


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    runs = {parties: simulated(parties) for parties in PARTIES}
    many = {parties: of_many(parties) for parties in MANY}
    contributions = {grows: contribution_curve(grows) for grows in GROWING}
    parties_curve = Curve("K", {parties: found.seconds for parties, found in runs.items()})
    curves = [*(curve for curve, _ in contributions.values()), parties_curve]
    measures = [measure for curve in curves for measure in curve.measures()]
    memory = _memory_measures(runs)
    if (held := contributions["m"][1]) is not None:
        memory.append(Measure.of(f"m = {GROWING['m'][-1]:,}: the party's process", "MiB", [held / MIB]))
    measures += [Measure.of(f"equal rows, K = {k:,}: processor time", "s", found) for k, found in many.items()]
    exponents = [Measure.of(f"exponent of {curve.grows}", "", [curve.exponent]) for curve in curves]
    setting: dict[str, Any] = {
        "contribution": USUAL,
        "simulation": SIMULATED | {"workers": processors()},
        "of_many": OF_MANY | {"rows_each": ROWS_EACH},
        "exponents": {curve.grows: round(curve.exponent, 3) for curve in curves},
    }
    usual = ", ".join(f"{name} = {size:,}" for name, size in USUAL.items())
    shared = f"{SIMULATED['rows']:,} rows are shared out, and a query asks for {SIMULATED['rados']} rados"
    notes = [
        f"Where m, d or n grows, the others are {usual}.",
        f"Where K grows, {shared} under a {SIMULATED['key_bits']}-bit key; workers on all cores are the parties.",
        f"Of equal rows, each party has {ROWS_EACH}, a query asks for {OF_MANY['rados']} rados, in one process.",
        "Fitted: " + ", ".join(f"{curve.grows}^{number(curve.exponent)}" for curve in curves) + ".",
    ]
    tables = [
        Table("A contribution, and a query of K parties", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Memory", MEASURE_HEADER, [m.cells() for m in memory]),
        Table("Fitted exponents", MEASURE_HEADER, [m.cells() for m in exponents]),
    ]
    claim = (__doc__ or "").partition("\n")[0]
    targets = [*_targets(contributions["m"], parties_curve, runs), _target_of_many(many)]
    return Report("scaling", claim, setting, [*measures, *memory, *exponents], [], tables, notes, targets)


def _targets(rows: tuple[Curve, int | None], parties: Curve, runs: dict[int, Simulated]) -> list[Target]:
    most, few, many = GROWING["m"][-1], PARTIES[0], PARTIES[-1]
    targets = [
        Target(f"contribution, m = {most:,}", "s", MOST_S, float(np.median(rows[0].seconds[most])), at_least=False),
        Target(f"time, K = {many} / K = {few}", "times", many / few, parties.growth(), at_least=False),
    ]
    if rows[1] is not None:
        held = rows[1] / (1 << 30)
        targets.append(Target(f"the process's memory, m = {most:,}", "GiB", MOST_GIB, held, at_least=False))
    held_few, held_many = runs[few].most_bytes, runs[many].most_bytes
    if held_few is not None and held_many is not None:
        what = f"coordinator's memory, K = {many} / K = {few}"
        targets.append(Target(what, "times", MOST_MEMORY_TIMES, held_many / held_few, at_least=False))
    return targets


def _target_of_many(many: dict[int, list[float]]) -> Target:
    few, most = (float(np.median(many[parties])) for parties in MANY)
    what = f"processor time of `simulate --encrypt`, equal rows, K = {MANY[1]:,} / K = {MANY[0]}"
    return Target(what, "times", MOST_MANY_TIMES, most / few, at_least=False)


def _memory_measures(runs: dict[int, Simulated]) -> list[Measure]:
    """The peak memory of the coordinator's process, and its growth with the queries; nothing if unknown."""
    if any(found.most_bytes is None or found.most_bytes_beyond is None for found in runs.values()):
        return []
    most = {f"K = {k:,}: coordinator's process": found.most_bytes for k, found in runs.items()}
    beyond = {f"K = {k:,}: beyond what it held before": found.most_bytes_beyond for k, found in runs.items()}
    return [Measure.of(what, "MiB", [held / MIB]) for what, held in (most | beyond).items() if held is not None]


def draw(report: Report, figure: Figure) -> None:
    """Four panels: seconds against m, d, n and K, both axes logarithmic, with the fitted line."""
    for axes, (grows, exponent) in zip(figure.subplots(1, 4), report.setting["exponents"].items(), strict=True):
        shown = {
            int(m.what.partition(" = ")[2].replace(",", "")): m
            for m in report.measures
            if m.unit == "s" and m.what.startswith(f"{grows} = ")
        }
        sizes, medians = np.array(list(shown)), np.array([m.median for m in shown.values()])
        spread = [[m.median - m.minimum for m in shown.values()], [m.maximum - m.median for m in shown.values()]]
        axes.errorbar(sizes, medians, yerr=spread, fmt="o", color="tab:blue")
        factor = np.exp(np.mean(np.log(medians) - exponent * np.log(sizes)))
        axes.plot(sizes, factor * sizes**exponent, color="tab:orange")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        axes.set_xticks([], minor=True)
        axes.set_xlabel(grows)
        axes.set_title(f"{grows}^{exponent:.2f}", fontsize=10)
    figure.axes[0].set_ylabel("seconds (median, min to max)")
