"""Claim: nodes that share a machine slow one another down at most as much as their work grows.

Every computation of a node is timed in 1, 2, 4 and 8 processes at once, equal work in each, in the default environment:
no variable limits the threads of BLAS. Compared, in the same run, with what a user would write instead of moments:
NumPy's X.T @ X on the same rows as doubles, whole or block by block, with its BLAS's default threads.

Two levels of threads multiply: if each of several processes starts a BLAS thread for each core, idle ones spin, and the
time may grow a hundred times more than the work.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure
from threadpoolctl import threadpool_info

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, number, ratio, require
from benchmarks.processes_worker import Job
from dpcore.numbers.processors import processors

COUNTS = (1, 2, 4, 8)
REPEATS = 3
# Seconds of a turn above which a computation has no other turn.
LONG_TURN_S = 10.0
JOB = Job(
    rows={
        "moments": 1_250_000,
        "gradient": 1_000_000,
        "statistic": 1_000_000,
        "rados, dp-feat": 500_000,
        "rados, fixed support": 80_000,
    },
    predicates=200,
    rados=1_000,
    key_bits=3072,
    ciphertexts=512,
    uploads=33,
    hashed_mib=128,
)
HASHING = "hashing"
NUMPY = ("NumPy", "NumPy, in blocks")
ALL_CORES = {"moments": True, "gradient": False, "statistic": False, "rados, dp-feat": True}
ALL_CORES |= {"rados, fixed support": True, "encryption": False, "adding": True}
"""The computations of a node, and whether one process uses all cores for it."""

MOST_OVER_WORK = 1.1
"""The most that time may grow over the work: repeats differ by a tenth."""

_LIMITS = ("OPENBLAS", "GOTO", "OMP", "MKL", "BLIS", "VECLIB", "NUMEXPR")
ROOT = Path(__file__).resolve().parents[1]


class Processes:
    """The worker processes; the first `count` of them compute at once."""

    def __init__(self, started: Sequence["subprocess.Popen[str]"]) -> None:
        self._started = started
        self._digests: set[str] = set()

    def prepare(self, name: str) -> None:
        """Make all of them prepare a computation and run it once."""
        self._digests = set()
        self._tell(f"prepare {name}", len(self._started))

    def seconds(self, count: int) -> float:
        """Seconds from the start signal to the last answer of `count` processes."""
        begun = time.perf_counter()
        self._tell("run", count)
        return time.perf_counter() - begun

    def _tell(self, line: str, count: int) -> None:
        for process in self._started[:count]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
        for process in self._started[:count]:
            assert process.stdout is not None
            digest = process.stdout.readline().strip()
            if not digest:
                assert process.stderr is not None
                require(condition=False, message=f"{line}: a process ended: {process.stderr.read()[-500:]}")
            self._digests.add(digest)
        require(len(self._digests) == 1, f"{line}: processes found different sums")


def default_environment() -> dict[str, str]:
    """This process's environment without variables that limit the threads of libraries."""
    return {name: value for name, value in os.environ.items() if name.removesuffix("_NUM_THREADS") not in _LIMITS}


@contextmanager
def started(job: Job, count: int) -> Iterator[Processes]:
    """`count` processes in the default environment, which end with the context."""
    clean = default_environment()
    command = [sys.executable, "-m", "benchmarks.processes_worker", json.dumps(asdict(job))]
    pipe = subprocess.PIPE
    with ExitStack() as stack:
        running = []
        for _ in range(count):
            process = subprocess.Popen(command, cwd=ROOT, env=clean, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
            stack.enter_context(process)
            stack.callback(process.kill)
            running.append(process)
        yield Processes(running)


@dataclass(frozen=True)
class Growth:
    """Seconds of each turn of a computation, by the number of processes at once."""

    name: str
    seconds: dict[int, list[float]]

    def of_time(self, count: int) -> Measure:
        """The time of `count` processes over that of one, turn by turn."""
        return ratio(f"{self.name}, {_words(count)} / 1", self.seconds[count], self.seconds[1])

    def of_work(self, count: int, hashing: "Growth") -> float:
        """The growth of the work over what the cores do at once."""
        if ALL_CORES.get(self.name, self.name != HASHING):
            return float(count)
        # Cores that share resources do not quite add up: hashing needs only a core.
        return max(1.0, count / processors(), hashing.of_time(count).median)

    def over_work(self, hashing: "Growth") -> dict[int, float]:
        """The growth of time over that of the work, by the number of processes."""
        return {count: self.of_time(count).median / self.of_work(count, hashing) for count in self.seconds}


def measured(job: Job) -> dict[str, Growth]:
    """All computations, each in all numbers of processes in turn."""
    found = {}
    with started(job, COUNTS[-1]) as processes:
        for name in (HASHING, *ALL_CORES, *NUMPY):
            processes.prepare(name)
            seconds: dict[int, list[float]] = {count: [] for count in COUNTS}
            for _ in range(REPEATS):
                for count in COUNTS:
                    seconds[count].append(processes.seconds(count))
                if seconds[COUNTS[-1]][-1] > LONG_TURN_S:
                    break
            found[name] = Growth(name, seconds)
    return found


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    found = measured(JOB)
    hashing = found[HASHING]
    measures = [
        Measure.of(f"{name}, {_words(count)}", "s", values)
        for name, growth in found.items()
        for count, values in growth.seconds.items()
    ]
    ratios = [growth.of_time(count) for growth in found.values() for count in COUNTS[1:]]
    compared = [_beside(found[name], found["moments"], count) for name in NUMPY for count in COUNTS]
    over = {name: growth.over_work(hashing) for name, growth in found.items()}
    setting = {
        "job": asdict(JOB),
        "processes": list(COUNTS),
        "blas": [
            {key: library[key] for key in ("internal_api", "version", "num_threads", "architecture") if key in library}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
        "growth_of_work": {
            name: {str(count): round(growth.of_work(count, hashing), 3) for count in COUNTS}
            for name, growth in found.items()
        },
        "time_over_work": {
            name: {str(count): round(value, 3) for count, value in values.items()} for name, values in over.items()
        },
    }
    targets = [
        Target(f"{name}: growth of time / work", "times", MOST_OVER_WORK, max(over[name].values()), at_least=False)
        for name in ALL_CORES
    ]
    notes = [
        "Seconds are from the start signal to the last process's answer; each computes as much as one alone.",
        f"The work grows k times if one process uses all cores, and k / {processors()} times if it uses one.",
        "It grows at least as the time of hashing does, which shows how well this machine's cores scale.",
        "Sums are the same integers in all processes and turns.",
    ]
    tables = [
        Table("Seconds", MEASURE_HEADER, [measure.cells() for measure in measures]),
        _growth_table(found),
        Table("NumPy's X.T @ X by default, over moments", MEASURE_HEADER, [r.cells() for r in compared]),
    ]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("processes", claim, setting, measures, [*ratios, *compared], tables, notes, targets)


def _growth_table(found: dict[str, Growth]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, growth in found.items():
        for count in COUNTS[1:]:
            time_grows, work_grows = growth.of_time(count), growth.of_work(count, found[HASHING])
            spread = f"{number(time_grows.minimum)} to {number(time_grows.maximum)}"
            rows.append((f"{name}, {_words(count)}", number(time_grows.median), spread, number(work_grows)))
    return Table("Growth relative to one process", ("", "time", "min to max", "work"), rows)


def _beside(theirs: Growth, ours: Growth, count: int) -> Measure:
    turns = min(len(theirs.seconds[count]), len(ours.seconds[count]))
    return ratio(
        f"{theirs.name} / {ours.name}, {_words(count)}", theirs.seconds[count][:turns], ours.seconds[count][:turns]
    )


def _words(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def draw(report: Report, figure: Figure) -> None:
    """The growth of time over that of the work, against the number of processes; NumPy's dashed."""
    axes = figure.subplots()
    for name, values in report.setting["time_over_work"].items():
        counts = [int(count) for count in values]
        style = "--" if name in NUMPY else ":" if name == HASHING else "-"
        axes.plot(counts, list(values.values()), style, marker="o", label=name)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
    axes.set_xlabel("processes at once, equal work in each")
    axes.set_ylabel("growth of time / growth of work")
    axes.legend(fontsize=8)
