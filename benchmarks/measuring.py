"""What the benchmarks share: repeats taken in turn, medians with their spread, the machine, tables and JSON."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dpcore.numbers.processors import processors

REPEATS = 5
LIBRARIES = (
    "radofed",
    "numpy",
    "numba",
    "scipy",
    "scikit-learn",
    "gmpy2",
    "phe",
    "tenseal",
    "pyarrow",
    "ray",
    "dp-accounting",
)


class WrongResultError(RuntimeError):
    """A benchmark's candidates do not agree: its times would compare different work."""


def require(condition: bool, message: str) -> None:
    """Raise WrongResultError if `condition` does not hold."""
    if not condition:
        raise WrongResultError(message)


@dataclass(frozen=True)
class Measure:
    """A median with its spread over `repeats` values; what one repeat is, the report's note says."""

    what: str
    unit: str
    median: float
    minimum: float
    maximum: float
    repeats: int

    @classmethod
    def of(cls, what: str, unit: str, values: Sequence[float]) -> "Measure":
        """The measure of `values`, at least one."""
        return cls(what, unit, statistics.median(values), min(values), max(values), len(values))

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it."""
        return (self.what, number(self.median), number(self.minimum), number(self.maximum), self.unit)


MEASURE_HEADER = ("", "median", "min", "max", "unit")


@dataclass(frozen=True)
class Target:
    """A figure that was to be reached on two cores, beside what was measured (a median).

    at_least: whether the figure is a floor; otherwise it is a ceiling.
    """

    what: str
    unit: str
    figure: float
    measured: float
    at_least: bool

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured >= self.figure if self.at_least else self.measured <= self.figure

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it."""
        bound = "at least" if self.at_least else "at most"
        return (
            self.what,
            f"{bound} {number(self.figure)}",
            number(self.measured),
            self.unit,
            "yes" if self.met else "no",
        )


TARGET_HEADER = ("target", "figure", "measured", "unit", "met")


@dataclass(frozen=True)
class Table:
    """Text for people: a header, and rows as wide as it."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def __str__(self) -> str:
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [self.header, *self.rows]
        ]
        lines.insert(1, "-" * len(lines[0]))
        return "\n".join([self.title, *lines])


@dataclass(frozen=True)
class Report:
    """What one benchmark found. `measures`, `ratios` and `targets` go into its JSON file with `setting`.

    `tables` are printed.
    """

    name: str
    claim: str
    setting: dict[str, Any]
    measures: list[Measure]
    ratios: list[Measure]
    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def as_json(self, machine: dict[str, Any], date: str) -> dict[str, Any]:
        """The content of benchmarks/results/<name>.json."""
        return {
            "name": self.name,
            "claim": self.claim,
            "date": date,
            "machine": machine,
            "setting": self.setting,
            "measures": [_rounded(measure) for measure in self.measures],
            "ratios": [_rounded(ratio) for ratio in self.ratios],
            "targets": [_rounded(target) | {"met": target.met} for target in self.targets],
            "notes": self.notes,
        }


def targets_table(targets: Sequence[Target]) -> Table:
    """What was to be reached, what was measured, and whether that is enough."""
    return Table("Targets (two cores)", TARGET_HEADER, [target.cells() for target in targets])


def _rounded(figure: Measure | Target) -> dict[str, Any]:
    return {key: float(f"{v:.5g}") if isinstance(v, float) else v for key, v in asdict(figure).items()}


def number(value: float) -> str:
    """Three significant digits, without an exponent where that is short."""
    if value == 0 or not abs(value) < float("inf"):
        return f"{value:g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 1e-3 else f"{value:.2e}"


def take_turns(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int = REPEATS,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each candidate, `repeats` times, after one call that does not count.

    The candidates take turns, so that whatever else the machine does slows them alike; ratios are taken turn by turn.
    before: what a candidate needs each time and what is not its own time.
    """
    before = before or {}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(repeats + 1):
        for name, work in candidates.items():
            if name in before:
                before[name]()
            gc.collect()
            start = time.perf_counter()
            work()
            elapsed = time.perf_counter() - start
            if turn:
                seconds[name].append(elapsed)
    return seconds


def ratio(what: str, numerator: Sequence[float], denominator: Sequence[float]) -> Measure:
    """How many times larger the numerator is, turn by turn."""
    return Measure.of(what, "times", [a / b for a, b in zip(numerator, denominator, strict=True)])


def draw_seconds(report: Report, figure: Figure) -> None:
    """A figure of the measures, which are seconds, with minimum and maximum."""
    axes = figure.subplots()
    shown = report.measures[::-1]
    spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
    axes.barh([m.what for m in shown], [m.median for m in shown], xerr=spread, color="tab:blue")
    axes.set_xlabel("seconds (median, min to max)")


def machine() -> dict[str, Any]:
    """What a reader needs to place the times; nothing that identifies the machine."""
    return {
        "cores": processors(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


class Neighbours:
    """How many cores others kept busy since this object was made: where not near 0, times are of a busy machine."""

    def __init__(self) -> None:
        self._start, self._others = time.perf_counter(), _seconds_of_others()

    def cores_busy(self) -> float | None:
        """The mean, time stolen by a hypervisor included; None where the system does not tell."""
        now = _seconds_of_others()
        if now is None or self._others is None:
            return None
        return round(max(0.0, now - self._others) / (time.perf_counter() - self._start), 2)


def _seconds_of_others() -> float | None:
    """Processor seconds since boot that neither this process nor its ended children used, from Linux's /proc/stat."""
    try:
        counters = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = map(int, counters)
    busy = user + nice + system + interrupts + soft_interrupts + stolen
    children = os.times()
    own = time.process_time() + children.children_user + children.children_system
    return busy / os.sysconf("SC_CLK_TCK") - own


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
