"""Schema files."""

from pathlib import Path

from dpcore.records.feature_map import FeatureMap
from dpcore.records.feature_map_in_units import FeatureMapError, map_in_units
from dpcore.records.schema import Schema
from radobase.reading import FileKind, read_json, read_text, read_toml, with_remedy

# A query contains the schema in another form, and has at most 512 KiB.
_SCHEMA = FileKind(
    with_remedy("give a schema in TOML, such as a draft of `rado schema infer`"), limit_bytes=1 << 20, decides=True
)


def load_schema(path: Path) -> Schema:
    """The schema in a TOML file. Raises SchemaError, or ConfigurationError if the file cannot be read."""
    return Schema.from_toml(read_text(path, _SCHEMA), str(path))


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
