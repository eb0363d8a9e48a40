"""`rado health`: whether a running node is ready, for probes that run a command."""

from radobase.failure import EXIT_FAILED
from radobase.printing import in_lines
from radofed.cli.framework import ConfigOption
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
