"""`rado conformance`: tests a party or a learner that someone else wrote."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.framework import group
from radofed.cli.output import Output, Result

if TYPE_CHECKING:
    from radofed.conformance.findings import Findings
    from radofed.conformance.kit import Kit

app = group("Test a party or a learner that is not radofed's, without a federation.")

Directory = Annotated[
    Path, typer.Argument(help="Directory of the kit's federation: absent, or that of a former run.", show_default=False)
]
Request = Annotated[Path, typer.Argument(help="The request to join of the one under test.", show_default=False)]
Listen = Annotated[
    str, typer.Option(help="HOST:PORT where the kit serves, as the one under test dials it.", show_default=False)
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="A schema in place of the kit's own.", show_default=False)
]
PatienceS = Annotated[float, typer.Option(help="Seconds within which something must happen.", min=1)]
OnlyPrepare = Annotated[bool, typer.Option("--only-prepare", help="Write the files for the one under test, and stop.")]


def party(
    output: Output,
    directory: Directory,
    request: Request,
    listen: Listen,
    schema: SchemaFile = None,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", help="A table in place of the kit's own; with --schema.", show_default=False),
    ] = None,
    wait_s: Annotated[float, typer.Option(help="Seconds that the party has to connect.", min=1)] = 600.0,
    patience_s: PatienceS = 30.0,
    quiet_s: Annotated[
        float, typer.Option(help="Seconds for which something that must not happen is waited for.", min=0.1)
    ] = 3.0,
    only_prepare: OnlyPrepare = False,
    set_back: Annotated[
        bool, typer.Option("--set-back", help="Try one thing: the party has lost its ledger since the last run.")
    ] = False,
    approve: Annotated[
        str,
        typer.Option(
            help="The command with which a person at the party approves the training of a query that waits; {query} in "
            "it is the query's id. Without it no approval is played.",
            show_default=False,
        ),
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Play this part alone, to find a fault; repeatable.", show_default=False),
    ] = None,
) -> Result:
    """Play the coordinator, a learner and all other parties against one party, good and bad ones.

    The party joins by its request. DIRECTORY/for-the-member has its admission, rows, schema, limits, and whom it
    accepts. Then start it. Exit code 1: something fails; the report names sections of docs/protocol.md.

    What the party does not state or compute is not played. The last lines, and the key not_played, name each such part
    with the reason.
    """
    from radofed.conformance.kit import prepare
    from radofed.conformance.party import Times, try_party
    from wire.roster import Role

    kit = prepare(directory, request, role=Role.PARTY, listen=listen, schema=schema, rows=rows)
    if only_prepare:
        return _prepared(kit)
    output.note(in_lines(kit.sentences()))
    times = Times(wait_s, patience_s, quiet_s)
    found = try_party(
        kit,
        times,
        lambda each: output.note(each.sentence),
        set_back=set_back,
        approve=approve,
        only=only or (),
    )
    return _reported(found)


def learner(
    output: Output,
    directory: Directory,
    request: Request,
    listen: Listen,
    command: Annotated[
        str,
        typer.Option(
            help="The program with its arguments. It asks one query, prints the total's integers as "
            '{"values": [...]}, and ends with 0; with another exit code if the query fails or the total is bad.',
            show_default=False,
        ),
    ] = "",
    schema: SchemaFile = None,
    patience_s: PatienceS = 60.0,
    only_prepare: OnlyPrepare = False,
    asks: Annotated[
        list[str] | None,
        typer.Option(
            "--asks",
            help="What the program asks where RADO_CONFORMANCE_ASK says so: dp-feat, fixed-support, persons, epoch, "
            "training, survivors; repeatable. What is not named is not played.",
            show_default=False,
        ),
    ] = None,
    only_asks: Annotated[
        bool, typer.Option("--only-asks", help="Play a first total and what --asks names alone, to find a fault.")
    ] = False,
) -> Result:
    """Play the coordinator and the parties against one learner: run its program, once for each good or bad total.

    The learner joins by its request. DIRECTORY/for-the-member has its admission, a schema, and whom it accepts.
    Exit code 1: something fails; the report names sections of docs/protocol.md, and what was not played, with reasons.
    """
    from radofed.conformance.kit import prepare
    from radofed.conformance.learner import try_learner
    from wire.roster import Role

    kit = prepare(directory, request, role=Role.LEARNER, listen=listen, schema=schema)
    if only_prepare:
        return _prepared(kit)
    words = _words(command)
    output.note(in_lines(kit.sentences()))
    found = try_learner(
        kit, words, patience_s, lambda each: output.note(each.sentence), asks=asks or (), only_asks=only_asks
    )
    return _reported(found)


def _words(command: str) -> list[str]:
    from dpcore.errors import ConfigurationError

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--command {command}: {error}; write it as in a shell") from None
    if not words:
        raise ConfigurationError("no --command: give the learner's program with its arguments")
    return words


def _prepared(kit: "Kit") -> Result:
    files = sorted(file.name for file in kit.handed_over.iterdir())
    return Result({"directory": kit.handed_over, "files": files}, in_lines(kit.sentences()))


def _reported(found: "Findings") -> Result:
    return Result(found.to_dict(), in_lines(found.sentences()), exit_code=0 if found.conforms else EXIT_FAILED)
