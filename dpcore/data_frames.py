"""pandas, on first use: it is slow to import, few need it, and it is no dependency."""

from importlib import import_module
from typing import Any

from dpcore.errors import ConfigurationError


def load_pandas(instead: str) -> Any:
    """The module. instead: what gives the same without it. Raises ConfigurationError if it is not installed."""
    try:
        return import_module("pandas")
    except ImportError as error:
        raise ConfigurationError(f"pandas is not installed: install it, or use {instead}") from error
