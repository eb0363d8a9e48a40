"""Files of schemas and of feature maps."""

from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.records.feature_map import FeatureMap
from dpcore.records.feature_map_in_units import FeatureMapError, map_in_units
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from radobase.reading import FileKind, read_json, read_text, read_toml, with_remedy

# A query contains the schema in another form, and has at most 512 KiB.
_SCHEMA = FileKind(
    with_remedy("give a schema in TOML, such as a draft of `rado schema infer`"), limit_bytes=1 << 20, decides=True
)


def load_shared(path: Path) -> SharedSchema:
    """The schemas of the labels in a TOML file. Raises SchemaError, or ConfigurationError if it cannot be read."""
    return SharedSchema.from_toml(read_text(path, _SCHEMA), str(path))


def load_schema(path: Path, label: str | None = None) -> Schema:
    """The schema in a TOML file, of the label that is named or of the only one. Raises as `load_shared` does."""
    return schema_of(load_shared(path), label, str(path))


def shared_of(schema: Any) -> Schema | SharedSchema | None:
    """A schema as it is, or that of a file; None for None. Raises as `load_shared` does, and as `schema_of`."""
    if schema is None:
        return None
    _check_schema(schema)
    return load_shared(Path(schema)) if isinstance(schema, str | Path) else schema


def _check_schema(schema: Any) -> None:
    """Raise ConfigurationError for what is neither a schema nor the path of one, such as the text of a file."""
    if isinstance(schema, str | Path) and "\n" in str(schema):
        raise ConfigurationError("the schema is a text of several lines: give Schema.from_toml(text), or its file")
    if not isinstance(schema, Schema | SharedSchema | str | Path):
        raise ConfigurationError(
            f"the schema is a {type(schema).__name__}: give one, such as by Schema.from_toml, or the path of its file"
        )


def schema_of(schema: Schema | SharedSchema | Path | str, label: str | None = None, source: str = "") -> Schema:
    """The schema of a label: of a file, of several labels, or a schema as it is.

    source: named in errors. Raises as `load_shared` does, and ConfigurationError if it is none.
    """
    _check_schema(schema)
    if isinstance(schema, str | Path):
        return load_schema(Path(schema), label)
    try:
        return SharedSchema.of(schema).about(label)
    except SchemaError as error:
        raise SchemaError(f"{source}: {error}" if source else str(error)) from None


# Files of feature maps, in TOML or JSON.


_MAP = FileKind(
    with_remedy("give a feature map in TOML, or in JSON with a name in .json"), limit_bytes=1 << 20, decides=True
)


def load_feature_map(path: Path, schema: Schema) -> FeatureMap:
    """The feature map in a file, in the columns' units (dpcore.records.feature_map_in_units).

    A file whose name ends in .json has the same keys in JSON. Raises ConfigurationError if the file cannot be read,
    FeatureMapError if its content is no map or does not fit the schema.
    """
    content = read_json(path, _MAP) if path.suffix.lower() == ".json" else read_toml(path, _MAP)
    try:
        return map_in_units(content, schema)
    except FeatureMapError as error:
        raise FeatureMapError(f"{path}: {error}") from error
