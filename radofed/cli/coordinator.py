"""`rado coordinator`: the service that forms cohorts and multiplies ciphertexts."""

from radofed.cli.framework import ConfigOption, command, group
from radofed.cli.output import EXIT_CONNECTION, Output, Result
from radofed.common.logs import quiet_grpc

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)

app = group("Run and look at the coordinator.")


@command(app, "start")
def start(_output: Output, config: ConfigOption) -> Result:
    """Serve until SIGTERM or SIGINT; then finish calls under way and keep every query's state."""
    quiet_grpc()
    from coordinator.config import CoordinatorConfig
    from coordinator.server import serve

    loaded = CoordinatorConfig.load(config)
    serve(loaded)
    return Result({"coordinator": loaded.name, "ended": "drained"})


@command(app, "status")
def status(_output: Output, config: ConfigOption) -> Result:
    """Show health and queries; run it where the coordinator's state directory is. Exit code 2 where it does not run."""
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
