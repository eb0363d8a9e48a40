"""Reads the party's schema file."""

from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema


def load_schema(path: Path) -> Schema:
    """The schema in a TOML file. Raises SchemaError, or ConfigurationError where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error})") from error
    return Schema.from_toml(text, str(path))
