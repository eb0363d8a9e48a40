"""Runs a console on a loopback address until SIGINT or SIGTERM."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from dpcore.errors import ConfigurationError
from radofed.console.access import Access
from radofed.console.app import Console
from radofed.console.pages import Views
from radofed.node_config import role_of
from wire.roster import Role

LOOPBACK = "127.0.0.1"
_MOST_CONNECTIONS = 64


def settings(application: ASGIApp) -> uvicorn.Config:
    """How an application is served: little of everything, as one person uses it."""
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
    )


def serve(views: Views, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. port: 0 takes any free port. announce: is given the link to open, once.

    Raises ConfigurationError if the port is taken.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigurationError(f"port {port} of {LOOPBACK}: {error.strerror}; give another --port") from error
        listener.listen()
        access = Access(listener.getsockname()[1])
        server = uvicorn.Server(settings(Console(views, access).application()))
        # The server ends at these signals, then raises them again: that must not end the process before it has closed.
        before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            announce(access.link)
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


# Which role a configuration file is of, and the views of that role.


def views_of(config: Path) -> Views:
    """The views of a node.

    Raises ConfigurationError if the file is no node's configuration.
    """
    # A role imports what another need not have installed.
    match role_of(config):
        case Role.PARTY:
            from radofed.console.party import party_views  # noqa: PLC0415

            return party_views(config)
        case Role.COORDINATOR:
            from radofed.console.coordinator import coordinator_views  # noqa: PLC0415

            return coordinator_views(config)
        case Role.LEARNER:
            from radofed.console.learner.views import learner_views  # noqa: PLC0415

            return learner_views(config)
