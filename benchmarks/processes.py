"""Claim: nodes that share a machine slow one another down at most as much as their work grows.

Every computation of a node is timed in 1, 2, 4 and 8 processes at once, equal work in each, in the default environment:
no variable limits the threads of BLAS. Compared, in the same run, with what a user would write instead of moments:
NumPy's X.T @ X on the same rows as doubles, whole or block by block, with its BLAS's default threads.

In each turn as many processes first run a loop that needs a core and nothing else, the control: what it takes longer is
the machine's doing. Processor time says what processes cost one another also where other load makes them wait.

Two levels of threads multiply: if each of several processes starts a BLAS thread for each core, idle ones spin, and the
time may grow a hundred times more than the work.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import fmean, median

from matplotlib.figure import Figure
from threadpoolctl import threadpool_info

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, number, ratio, require
from benchmarks.processes_worker import Job, Turn
from dpcore.numbers.processors import processors

COUNTS = (1, 2, 4, 8)
REPEATS = 5
# Seconds of one process in a turn, and of the control: a scheduler moves processes to idle cores within milliseconds.
TURN_S, CONTROL_TIMES = 0.5, 10
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
)
NUMPY = ("NumPy", "NumPy, in blocks")
ALL_CORES = {"moments": True, "gradient": False, "statistic": False, "rados, dp-feat": True}
ALL_CORES |= {"rados, fixed support": True, "encryption": False, "adding": True}
"""The computations of a node, and whether one process uses all cores for it."""

MOST_OVER_WORK = 1.1
"""The most that time may grow over the work, and processor time over that of one process: repeats differ by a tenth."""

_LIMITS = ("OPENBLAS", "GOTO", "OMP", "MKL", "BLIS", "VECLIB", "NUMEXPR")
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Timing:
    """What processes took that did the same at once."""

    seconds: float
    """From the start signal to the last answer."""
    processor_s: float
    """Of one process, the mean, as the figures below."""
    faults: float = 0.0
    waits: float = 0.0
    preemptions: float = 0.0

    def each(self, times: int) -> "Timing":
        """For one of `times` times."""
        return Timing(*(figure / times for figure in astuple(self)))


class Processes:
    """The worker processes; the first `count` of them compute at once."""

    def __init__(self, started: Sequence["subprocess.Popen[str]"]) -> None:
        self._started = started
        self._digests: set[str] = set()

    def prepare(self, name: str) -> None:
        """Make all of them prepare a computation and run it once."""
        self._digests = set()
        self._tell(f"prepare {name}", len(self._started))

    def times_of_turn(self) -> int:
        """How often one process runs the computation in a turn."""
        return math.ceil(TURN_S / self.run(1, 1).seconds)

    def run(self, count: int, times: int) -> Timing:
        """The computation, `times` times in each of `count` processes."""
        return self._tell(f"run {times}", count)

    def control(self, count: int) -> Timing:
        """The control in each of `count` processes."""
        digests, self._digests = self._digests, set()
        timing = self._tell(f"control {CONTROL_TIMES}", count)
        self._digests = digests
        return timing

    def _tell(self, line: str, count: int) -> Timing:
        begun, turns = time.perf_counter(), []
        for process in self._started[:count]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
        for process in self._started[:count]:
            assert process.stdout is not None
            answer = process.stdout.readline()
            if not answer:
                assert process.stderr is not None
                require(condition=False, message=f"{line}: a process ended: {process.stderr.read()[-500:]}")
            turns.append(Turn(**json.loads(answer)))
        seconds = time.perf_counter() - begun
        self._digests |= {turn.digest for turn in turns}
        require(len(self._digests) == 1, f"{line}: processes found different sums")
        figures = ("processor_s", "faults", "waits", "preemptions")
        return Timing(seconds, **{each: fmean(getattr(turn, each) for turn in turns) for each in figures})


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
    """The turns of a computation, by the number of processes at once, and those of the control before each."""

    name: str
    turns: dict[int, list[Timing]]
    control: dict[int, list[Timing]]

    def seconds(self, count: int) -> list[float]:
        """Of each turn."""
        return [turn.seconds for turn in self.turns[count]]

    def of_time(self, count: int) -> Measure:
        """The time of `count` processes over that of one, turn by turn."""
        return ratio(f"{self.name}, {_words(count)} / 1", self.seconds(count), self.seconds(1))

    def of_control(self, count: int) -> float:
        """The same of the control: the median."""
        times = zip(self.control[count], self.control[1], strict=True)
        return median(several.seconds / one.seconds for several, one in times)

    def of_work(self, count: int) -> float:
        """The growth of the work over what the cores do at once."""
        if ALL_CORES.get(self.name, True):
            return float(count)
        # Cores that share resources do not quite add up: the control needs only a core.
        return max(1.0, count / processors(), self.of_control(count))

    def over_work(self) -> dict[int, float]:
        """The growth of time over that of the work, by the number of processes."""
        return {count: self.of_time(count).median / self.of_work(count) for count in self.turns}

    def of_processor_time(self, count: int) -> Measure:
        """Processor time of one of `count` processes over that of one alone, each over the control's in its turn."""

        def over_control(number: int) -> list[float]:
            turns = zip(self.turns[number], self.control[number], strict=True)
            return [turn.processor_s / control.processor_s for turn, control in turns]

        return ratio(f"{self.name}, processor time, {_words(count)} / 1", over_control(count), over_control(1))


def measured(job: Job) -> dict[str, Growth]:
    """All computations, each in all numbers of processes in turn."""
    found = {}
    with started(job, COUNTS[-1]) as processes:
        for name in (*ALL_CORES, *NUMPY):
            processes.prepare(name)
            times = processes.times_of_turn()
            turns: dict[int, list[Timing]] = {count: [] for count in COUNTS}
            control: dict[int, list[Timing]] = {count: [] for count in COUNTS}
            for _ in range(REPEATS):
                for count in COUNTS:
                    control[count].append(processes.control(count))
                    turns[count].append(processes.run(count, times).each(times))
                if turns[COUNTS[-1]][-1].seconds * times > LONG_TURN_S:
                    break
            found[name] = Growth(name, turns, control)
    return found


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    found = measured(JOB)
    measures = [
        Measure.of(f"{name}, {_words(count)}", "s", growth.seconds(count))
        for name, growth in found.items()
        for count in COUNTS
    ]
    ratios = [growth.of_time(count) for growth in found.values() for count in COUNTS[1:]]
    ratios += [growth.of_processor_time(count) for growth in found.values() for count in COUNTS[1:]]
    compared = [_beside(found[name], found["moments"], count) for name in NUMPY for count in COUNTS]
    over = {name: growth.over_work() for name, growth in found.items()}
    processor = {name: {c: growth.of_processor_time(c).median for c in COUNTS} for name, growth in found.items()}
    setting = {
        "job": asdict(JOB),
        "processes": list(COUNTS),
        "blas": [
            {key: library[key] for key in ("internal_api", "version", "num_threads", "architecture") if key in library}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
        "growth_of_work": {
            name: {str(count): round(growth.of_work(count), 3) for count in COUNTS} for name, growth in found.items()
        },
        "growth_of_control": {
            name: {str(count): round(growth.of_control(count), 3) for count in COUNTS} for name, growth in found.items()
        },
        "processor_time_over_control": {
            name: {str(count): round(value, 3) for count, value in values.items()} for name, values in processor.items()
        },
        "time_over_work": {
            name: {str(count): round(value, 3) for count, value in values.items()} for name, values in over.items()
        },
    }
    targets = [
        Target(f"{name}: growth of time / work", "times", MOST_OVER_WORK, max(over[name].values()), at_least=False)
        for name in ALL_CORES
    ]
    targets += [
        Target(
            f"{name}: growth of processor time", "times", MOST_OVER_WORK, max(processor[name].values()), at_least=False
        )
        for name in ALL_CORES
    ]
    notes = [
        "Seconds are from the start signal to the last process's answer; each computes as much as one alone.",
        f"The work grows k times if one process uses all cores, and k / {processors()} times if it uses one.",
        "It grows at least as the time of the control does, which shows how well this machine's cores scale.",
        "Processor time is of one process, over that of the control in the same turn, compared with one process alone.",
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
    header = ("", "time", "min to max", "work", "control", "processor time", "faults", "waits", "preemptions")
    rows: list[tuple[str, ...]] = []
    for name, growth in found.items():
        for count in COUNTS[1:]:
            time_grows, work_grows = growth.of_time(count), growth.of_work(count)
            spread = f"{number(time_grows.minimum)} to {number(time_grows.maximum)}"
            grown = (number(time_grows.median), spread, number(work_grows), number(growth.of_control(count)))
            turns = growth.turns[count]
            counted = [[turn.faults for turn in turns], [turn.waits for turn in turns], [t.preemptions for t in turns]]
            row = (f"{name}, {_words(count)}", *grown, number(growth.of_processor_time(count).median))
            rows.append((*row, *(number(median(each)) for each in counted)))
    return Table("Growth relative to one process", header, rows)


def _beside(theirs: Growth, ours: Growth, count: int) -> Measure:
    """Seconds over seconds of moments, for one computation in each process."""
    turns = min(len(theirs.turns[count]), len(ours.turns[count]))
    return ratio(
        f"{theirs.name} / {ours.name}, {_words(count)}", theirs.seconds(count)[:turns], ours.seconds(count)[:turns]
    )


def _words(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def draw(report: Report, figure: Figure) -> None:
    """The growth of time over that of the work, against the number of processes; NumPy's dashed."""
    axes = figure.subplots()
    for name, values in report.setting["time_over_work"].items():
        counts = [int(count) for count in values]
        style = "--" if name in NUMPY else "-"
        axes.plot(counts, list(values.values()), style, marker="o", label=name)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
    axes.set_xlabel("processes at once, equal work in each")
    axes.set_ylabel("growth of time / growth of work")
    axes.legend(fontsize=8)
