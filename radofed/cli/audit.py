"""`rado audit`: compare what members say of their queries."""

from pathlib import Path
from typing import Annotated

import typer

from radobase.failure import EXIT_FAILED
from radobase.printing import amount, in_lines, listed
from radofed.cli.framework import command, group
from radofed.cli.output import Output, Result

app = group("Compare what members of a federation say.")


@command(app, "compare")
def compare(
    _output: Output,
    first: Annotated[Path, typer.Argument(help="A history, as printed with --format json.", show_default=False)],
    second: Annotated[Path, typer.Argument(help="Another member's.", show_default=False)],
) -> Result:
    """Compare the histories of two members: the same queries, learners and cohorts, or where they differ.

    The exit code is 1 if they contradict each other. What both leave out is not seen.
    """
    from radofed.audit import Exported
    from radofed.audit import compare as compared

    found = compared(Exported.load(first), Exported.load(second))
    lines = [f"{amount(found.agreed, 'query')} agree{'s' * (found.agreed == 1)}", *found.differences]
    names = tuple(found.only)
    for name, other in (names, names[::-1]):
        if alone := found.only[name]:
            lines.append(
                f"{name} has {amount(len(alone), 'query')} that {other} lacks, of a time that both cover: "
                f"{listed([each[:16] for each in alone])}. That is no contradiction: a member may not have been asked"
            )
    lines.append("no contradiction" if found.agrees else f"{len(found.differences)} contradictions")
    return Result(
        {
            "agrees": found.agrees,
            "agreed": found.agreed,
            "only": {name: list(alone) for name, alone in found.only.items()},
            "differences": list(found.differences),
        },
        in_lines(lines),
        exit_code=0 if found.agrees else EXIT_FAILED,
    )
