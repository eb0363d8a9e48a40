"""`rado console`: look at a node in a browser, and decide."""

from pathlib import Path
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
    behind: Annotated[
        str | None,
        typer.Option(
            help="Address of the proxy that signs people on, as browsers see it: `https://HOST[/PATH]`.",
            show_default=False,
        ),
    ] = None,
    proxy_secret: Annotated[
        Path | None,
        typer.Option(help="With --behind: file with the secret that the proxy sends, mode 0600.", show_default=False),
    ] = None,
) -> Result:
    """Show a party, a coordinator or a learner in a browser on this machine, until SIGTERM or SIGINT.

    Prints a link that works once, within ten minutes. With --behind a reverse proxy signs people on instead, and says
    who decides. The configuration file says which role it is. Everything that the pages do exists as a command, too.
    """
    quiet_grpc()
    from dpcore.errors import ConfigurationError
    from radofed.console.app import serve, views_of
    from radofed.console.sign_on import SignOnAccess, check_policy

    if (behind is None) != (proxy_secret is None):
        raise ConfigurationError("--behind and --proxy-secret belong together: give both, or neither")
    found = views_of(config)
    opening = "open this link; it works once, within ten minutes:"
    sign_on = None
    if behind is not None and proxy_secret is not None:
        sign_on, opening = SignOnAccess(behind, proxy_secret), "people sign on at:"
        check_policy(config)
        if port == 0:
            raise ConfigurationError("--port: give the port that the proxy passes requests to")
    serve(found, port, lambda link: output.note(in_lines([opening, link])), sign_on)
    return Result({"role": found.role, "member": found.member, "ended": "stopped"})
