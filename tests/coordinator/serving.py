"""A coordinator on a free port that logs everything, as the function of a process."""

from pathlib import Path

from coordinator.config import CoordinatorConfig
from coordinator.server import serve


def serve_debugging(config: str) -> None:
    """Serve until a signal. config: its configuration file."""
    loaded = CoordinatorConfig.load(Path(config))
    serve(loaded.model_copy(update={"listen": "127.0.0.1:0", "log_level": "debug"}))
