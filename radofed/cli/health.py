"""`rado health`: whether a running node is ready, for probes that run a command."""

from pathlib import Path
from typing import Annotated

import typer

from radobase.failure import EXIT_FAILED
from radobase.printing import amount, in_lines
from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import Output, Result


def health(_output: Output, config: ConfigOption) -> Result:
    """Ask a running party or coordinator whether it is ready. Its file needs a section [watch].

    Exit code 0: ready; 1: it runs and is not ready, and the reasons are printed; 2: no node answers; 4: the
    configuration is wrong or has no section [watch].
    """
    from dpcore.errors import ConfigurationError
    from radobase.watch_server import ask_ready
    from radofed.node_config import load_node_config

    loaded = load_node_config(config)
    settings = getattr(loaded, "watch", None)
    if settings is None:
        raise ConfigurationError(
            f'{config}: has no section [watch], so no health is served; add it with `listen = "127.0.0.1:9464"`'
        )
    found = ask_ready(settings)
    reasons = [f"{code}: {sentence}" for code, sentence in found.reasons]
    return Result(found.to_dict(), in_lines(reasons) or "ready", exit_code=EXIT_FAILED if reasons else 0)


# `rado certificate`: whether a node's certificate should be renewed, and its renewal.

certificate_app = group("Say whether a node's certificate should be renewed, and renew it.")


@command(certificate_app, "needs-renewal")
def needs_renewal(_output: Output, config: ConfigOption) -> Result:
    """Say whether two thirds of a certificate's life are over. Exit code 0: nothing to do; 1: renew it now.

    The file is of a party, a coordinator or a learner. A certificate that is not valid or of another member exits with
    4.
    """
    import datetime as dt

    from radofed.joining.installing import renewal_of

    found = renewal_of(config, dt.datetime.now(dt.UTC))
    return Result(found.to_dict(), found.sentence(), exit_code=EXIT_FAILED if found.is_due else 0)


@command(certificate_app, "renew")
def renew(
    _output: Output,
    config: ConfigOption,
    *,
    before_due: Annotated[
        bool, typer.Option("--before-due", help="Also before two thirds of the certificate's life are over.")
    ] = False,
) -> Result:
    """Fetch the renewed certificate that the operator left at the coordinator, if it is time, and install it.

    The new certificate must be signed by the operator, for this member and its key. A running node uses it without a
    restart. Exit code 0: renewed, or nothing to do; 1: it is time, and the operator has left none yet. A timer of
    systemd in deploy/systemd runs this every day.
    """
    import datetime as dt

    from radofed.joining.installing import renew as fetch

    found = fetch(config, dt.datetime.now(dt.UTC), before_due=before_due)
    return Result(found.to_dict(), found.sentence(), exit_code=EXIT_FAILED if found.is_due else 0)


# `rado audit`: compare what members say of their queries.

audit_app = group("Compare what members of a federation say.")


@command(audit_app, "compare")
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
    for name, alone in found.only.items():
        if alone:
            lines.append(
                f"only in {name}: {amount(len(alone), 'query')} ({', '.join(each[:16] for each in alone[:3])}, ...)"
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
