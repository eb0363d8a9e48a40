"""`rado certificate`: whether a node's certificate should be renewed, and its renewal."""

from typing import Annotated

import typer

from radobase.failure import EXIT_FAILED
from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import Output, Result

app = group("Say whether a node's certificate should be renewed, and renew it.")


@command(app, "needs-renewal")
def needs_renewal(_output: Output, config: ConfigOption) -> Result:
    """Say whether two thirds of a certificate's life are over. Exit code 0: nothing to do; 1: renew it now.

    The file is of a party, a coordinator or a learner. A certificate that is not valid or of another member exits with
    4.
    """
    import datetime as dt

    from radofed.joining.installing import renewal_of

    found = renewal_of(config, dt.datetime.now(dt.UTC))
    return Result(found.to_dict(), found.sentence(), exit_code=EXIT_FAILED if found.is_due else 0)


@command(app, "renew")
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
