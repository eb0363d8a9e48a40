"""Schema files."""

from pathlib import Path

from dpcore.records.schema import Schema
from radobase.files.reading import FileKind, read_text, with_remedy

# A query contains the schema in another form, and has at most 512 KiB.
_SCHEMA = FileKind(
    with_remedy("give a schema in TOML, such as a draft of `rado schema infer`"), limit_bytes=1 << 20, decides=True
)


def load_schema(path: Path) -> Schema:
    """The schema in a TOML file. Raises SchemaError, or ConfigurationError if the file cannot be read."""
    return Schema.from_toml(read_text(path, _SCHEMA), str(path))
