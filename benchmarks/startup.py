"""Claim: `rado --help` is immediate and `rado plan` takes little more than NumPy's own import.

This holds with any packages installed. Each is its own process, timed from start to end, compared with an interpreter
that does nothing and one that imports NumPy. A party with 20,000 rows is timed from its start to the line `started` in
its log, and killed. All take turns in one run.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    draw_seconds,
    ratio,
    require,
    take_turns,
)
from radofed.demo.tables import schema, table
from radofed.provision import provision
from wire.roster import Role

HELP, PLAN = "rado --help", "rado plan"
BARE, NUMPY = "python -c pass", "import numpy"
SIZES = ("--rows", "200000", "--parties", "4", "--rados", "1000", "--coordinates", "18")
NOISED = "rado plan, with noise"
COMMANDS: dict[str, tuple[str, ...]] = {
    BARE: ("-c", "pass"),
    NUMPY: ("-c", "import numpy"),
    HELP: ("-m", "radofed", "--help"),
    PLAN: ("-m", "radofed", "plan", "--design", "dp-feat", *SIZES),
    NOISED: ("-m", "radofed", "plan", "--design", "gaussian", "--epsilon", "1", *SIZES),
}
PARTY = "rado party start, 20,000 rows"
HELP_S, PLAN_S, PARTY_S = 0.6, 2.0, 2.0


def _process(arguments: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def party(directory: Path) -> Path:
    """The configuration of a party with the demo's made-up patients, whose coordinator does not run."""
    made = provision(
        directory / "federation", federation="startup", coordinator_address="127.0.0.1:1", parties=["north", "south"]
    )
    member = made.of(Role.PARTY)[0]
    (member.directory / "schema.toml").write_text(schema().to_toml())
    table().write(None, member.directory / "data.csv")
    return member.config


def start_party(config: Path) -> None:
    """Start the node as a shell does, and return when it has logged `started`. Raises WrongResultError if it ends."""
    words = [sys.executable, "-m", "radofed", "party", "start", "--config", str(config)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        is_started = any('"started"' in line for line in node.stderr)
        node.kill()
    require(is_started, "a party starts")


def run(*, everything: bool = False) -> Report:
    works: dict[str, Callable[[], object]] = {name: partial(_process, words) for name, words in COMMANDS.items()}
    with tempfile.TemporaryDirectory() as directory:
        works[PARTY] = partial(start_party, party(Path(directory)))
        seconds = take_turns(works, 15 if everything else 7)
    measures = [Measure.of(name, "s", values) for name, values in seconds.items()]
    ratios = [
        ratio(f"{name} / {other}", seconds[name], seconds[other])
        for name, other in ((HELP, BARE), (PLAN, BARE), (PLAN, NUMPY), (NOISED, NUMPY))
    ]
    medians = {measure.what: measure.median for measure in measures}
    targets = [
        Target(name, "s", limit, medians[name], at_least=False)
        for name, limit in ((HELP, HELP_S), (PLAN, PLAN_S), (NOISED, PLAN_S), (PARTY, PARTY_S))
    ]
    tables = [
        Table("From start to end of a process, or of its start", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    setting = {"commands": {name: " ".join(words) for name, words in COMMANDS.items()}}
    claim = (__doc__ or "").partition("\n")[0]
    return Report("startup", claim, setting, measures, ratios, tables, targets=targets)


draw = draw_seconds
