"""Claim: `rado --help` is immediate and `rado plan` takes little more than NumPy's own import.

This holds with any packages installed. Each is its own process, timed from start to end, compared with an interpreter
that does nothing and one that imports NumPy. All take turns in one run.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    draw_seconds,
    ratio,
    take_turns,
)

HELP, PLAN = "rado --help", "rado plan"
BARE, NUMPY = "python -c pass", "import numpy"
SIZES = ("--rows", "200000", "--parties", "4", "--rados", "1000", "--coordinates", "18")
NOISED = "rado plan, with noise"
COMMANDS: dict[str, tuple[str, ...]] = {
    BARE: ("-c", "pass"),
    NUMPY: ("-c", "import numpy"),
    HELP: ("-m", "radofed", "--help"),
    PLAN: ("-m", "radofed", "plan", *SIZES),
    NOISED: ("-m", "radofed", "plan", "--design", "gaussian", "--epsilon", "1", *SIZES),
}
HELP_S, PLAN_S = 0.6, 2.0


def _process(arguments: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def run(*, everything: bool = False) -> Report:
    works: dict[str, Callable[[], object]] = {name: partial(_process, words) for name, words in COMMANDS.items()}
    seconds = take_turns(works, 15 if everything else 7)
    measures = [Measure.of(name, "s", values) for name, values in seconds.items()]
    ratios = [
        ratio(f"{name} / {other}", seconds[name], seconds[other])
        for name, other in ((HELP, BARE), (PLAN, BARE), (PLAN, NUMPY), (NOISED, NUMPY))
    ]
    medians = {measure.what: measure.median for measure in measures}
    targets = [
        Target(name, "s", limit, medians[name], at_least=False)
        for name, limit in ((HELP, HELP_S), (PLAN, PLAN_S), (NOISED, PLAN_S))
    ]
    tables = [
        Table("From start to end of a process", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    setting = {"commands": {name: " ".join(words) for name, words in COMMANDS.items()}}
    claim = (__doc__ or "").partition("\n")[0]
    return Report("startup", claim, setting, measures, ratios, tables, targets=targets)


draw = draw_seconds
