"""The pages of error codes, from the error catalogue.

The head of a page follows from the catalogue. What comes after it is written by hand and kept.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from docs.generate.tables import code, table
from dpcore.errors import RadofedError
from radobase.failure import local_code
from wire.errors import CATALOGUE, PAGES, Code, Entry, WireError, page_of

CAUSES = "## Why it happens\n"
REFUSALS = frozenset(
    {
        *(error for error in Code if error.value.startswith("POLICY_")),
        Code.MASKS_TOO_FEW,
        Code.BUDGET_EXCEEDED,
        Code.PLAN_INFEASIBLE,
        Code.EPOCH_EMPTY,
        Code.EPOCH_CHANGED,
        Code.PERSONS_UNKNOWN,
        Code.UNIT_REFUSED,
        Code.UNAVAILABLE,
    }
)
"""Codes that only a party's refusal carries, so that no command of the learner ends with one."""
AT_THE_LEARNER = (
    "**At the learner.** `rado learner status` shows this code beside the party that refused. The query continues "
    "without this party. If too few parties remain, the query ends with [COHORT_TOO_SMALL](COHORT_TOO_SMALL.md), whose "
    "detail lists the parties that refused and their codes. At the party, `rado party check` shows the reason.\n\n"
)
PACKAGES = ("dpcore", "wire", "parties", "coordinator", "learner", "radobase", "radofed")
INDEX = """# Error codes

This page is generated from the error catalogue. `rado` prints an error as one sentence, says what to do, and names the
page of its code. With `--format json` the code is in `error.code`.

## Between nodes

These codes cross the network: a node sends one with a failed call, or a party refuses a query with one.

{catalogue}
## Of the command

These codes stay on the machine. The sentence that `rado` prints says what is wrong.

{local}
```{{toctree}}
:hidden:
:glob:

[A-Z]*
```
"""


def error_pages(root: Path) -> dict[Path, str]:
    """Text of each code's page and of the index, by file. root: of the repository."""
    pages = {root / page_of(error): _page(error, entry, root / page_of(error)) for error, entry in CATALOGUE.items()}
    return {root / PAGES / "index.md": _index(), **pages}


def _page(error: Code, entry: Entry, file: Path) -> str:
    _, _, causes = file.read_text(encoding="utf-8").partition(CAUSES) if file.exists() else ("", "", "\n")
    at_the_learner = AT_THE_LEARNER if error in REFUSALS else ""
    facts = [(code(entry.status.name), str(entry.exit_code), "yes" if entry.retry else "no")]
    return (
        f"# {error.value}\n\n{entry.sentence}\n\n**What to do.** {entry.hint}\n\n{at_the_learner}"
        f"{table(('gRPC status', 'exit code of `rado`', 'retried by itself'), facts)}\n{CAUSES}{causes}"
    )


def _index() -> str:
    catalogue = [(f"[{error.value}]({error.value}.md)", entry.sentence) for error, entry in CATALOGUE.items()]
    local = sorted({(code(local_code(kind)), str(kind.exit_code), _summary(kind)) for kind in _local_errors()})
    commands = [
        ("`USAGE`", "4", "The command line is wrong."),
        ("`EXTRA_MISSING`", "4", "The command needs an extra that is not installed."),
        ("`FILE`", "1", "The operating system refused to read or write a file."),
        ("`INTERRUPTED`", "1", "The user interrupted the command."),
        ("`BUG`", "5", "An error that radofed does not raise on purpose. Run again with `--debug` and report it."),
    ]
    return INDEX.format(
        catalogue=table(("code", "meaning"), catalogue),
        local=table(("code", "exit code", "meaning"), [*commands, *local]),
    )


def _local_errors() -> Iterator[type[RadofedError]]:
    """Every class of error that does not cross the network."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    waiting = RadofedError.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.partition(".")[0] in PACKAGES and not issubclass(kind, WireError):
            yield kind


def _summary(kind: type[RadofedError]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
