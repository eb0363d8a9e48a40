"""`rado console`: look at a node in a browser, and decide."""

from typing import Annotated

import typer

from radobase.logs import quiet_grpc
from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption
from radofed.cli.output import Output, Result


def console(
    output: Output,
    config: ConfigOption,
    port: Annotated[
        int, typer.Option(help="Port on the loopback address; 0 takes any free one.", min=0, max=65535)
    ] = 0,
) -> Result:
    """Show a party, a coordinator or a learner in a browser on this machine, until SIGTERM or SIGINT.

    Prints a link that works once, within ten minutes. The configuration file says which role it is. Everything that
    the pages do exists as a command, too.
    """
    quiet_grpc()
    from radofed.console.app import serve, views_of

    found = views_of(config)
    opening = "open this link; it works once, within ten minutes:"
    serve(found, port, lambda link: output.note(in_lines([opening, link])))
    return Result({"role": found.role, "member": found.member, "ended": "stopped"})
