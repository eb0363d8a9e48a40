"""Schema files."""

from pathlib import Path

from dpcore.records.schema import Schema
from radofed.common.files.reading import FileKind, read_text, with_remedy

# A query holds the schema, and has at most 1 MiB.
_SCHEMA = FileKind(with_remedy("give a schema in TOML, such as `rado schema infer` drafts"), limit_bytes=4 << 20)


def load_schema(path: Path) -> Schema:
    """The schema in a TOML file. Raises SchemaError, or ConfigurationError where the file cannot be read."""
    return Schema.from_toml(read_text(path, _SCHEMA), str(path))
