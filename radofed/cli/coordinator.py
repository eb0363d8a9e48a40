"""`rado coordinator`: run the service that forms cohorts and multiplies ciphertexts."""

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import EXIT_CONNECTION, Output, Result
from radofed.common.logs import quiet_grpc

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

app = group("Run the coordinator and show its state.")


@command(app, "start")
def start(_output: Output, config: ConfigOption) -> Result:
    """Run the coordinator until SIGTERM or SIGINT.

    It then finishes open calls; every query's state stays on disk.
    """
    quiet_grpc()
    from coordinator.config import CoordinatorConfig
    from coordinator.server import serve

    loaded = CoordinatorConfig.load(config)
    serve(loaded)
    return Result({"coordinator": loaded.name, "ended": "drained"})


@command(app, "status")
def status(_output: Output, config: ConfigOption) -> Result:
    """Show the coordinator's health and queries.

    Run this on the coordinator's machine. The exit code is 2 if the coordinator does not run.
    """
    quiet_grpc()
    from coordinator.config import CoordinatorConfig
    from coordinator.status import read

    found = read(CoordinatorConfig.load(config))
    return Result(found, _words(found), exit_code=0 if found["running"] else EXIT_CONNECTION)


def _words(found: object, indent: str = "") -> str:
    """Nested fields as indented lines."""
    if isinstance(found, dict):
        parts = []
        for key, value in found.items():
            if value == "":
                continue
            nested = isinstance(value, dict | list) and value
            parts.append(f"{indent}{key}:\n{_words(value, indent + '  ')}" if nested else f"{indent}{key}: {value}")
        return "\n".join(parts)
    if isinstance(found, list | tuple):
        return "\n".join(f"{indent}-\n{_words(value, indent + '  ')}" for value in found)
    return f"{indent}{found}"
