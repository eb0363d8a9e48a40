"""`rado certificate`: until when a node's certificate is valid, and whether it should be renewed."""

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import Output, Result
from radofed.common.failure import EXIT_FAILED

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

app = group("Say whether a node's certificate should be renewed.")


@command(app, "needs-renewal")
def needs_renewal(_output: Output, config: ConfigOption) -> Result:
    """Say whether two thirds of a certificate's life are over. Exit code 0: nothing to do; 1: renew it now.

    The file is of a party, a coordinator or a learner. A certificate that is not valid or of another member exits with
    4. A timer of systemd in deploy/systemd runs this every day.
    """
    import datetime as dt

    from radofed.joining.renewal import renewal_of

    found = renewal_of(config, dt.datetime.now(dt.UTC))
    return Result(found.to_dict(), found.sentence(), exit_code=EXIT_FAILED if found.is_due else 0)
