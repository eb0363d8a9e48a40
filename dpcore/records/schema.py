"""The schema: how every party encodes its columns as the same coordinates, and the digest that identifies it.

A schema determines everything that influences encoding: order of coordinates, bounds, texts, and how unusable cells are
handled. Its canonical form can be written in any language:

    JSON in UTF-8; keys sorted by code point; no white space; every field explicit, null if not set; real numbers as
    texts of the 16 lower-case hexadecimal digits of the big-endian IEEE-754 double (minus zero never occurs); in texts
    only the quotation mark, the backslash and the characters below U+0020 are escaped (by backslash with b, f, n, r or
    t if JSON has that, else by backslash, u and four lower-case digits). The lists label.positive, label.negative, true
    and false are sorted by code point; features and values keep their order. Only the fields texts, if the list is
    empty, and unreadable, prefix, unit and weight, if not set, are left out; a schema with texts or unreadable is of
    version 2, one with a date of version 3, one whose label is of several classes of version 4, one with a prefix, a
    unit or a weight or whose label is of over 100 classes, a number, a count or a time to an event of version 5, any
    other of version 1. texts is in the order nfc, trim, case, and with the steps nfc and trim the schema's own texts
    are in that form.

    digest = SHA-256("rado.v1/schema" || 0x00 || canonical form)
"""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from dpcore.errors import SchemaError
from dpcore.records.features import (
    FEATURE_TYPES,
    LABEL_TYPES,
    BooleanFeature,
    CategoryFeature,
    Classes,
    Count,
    Feature,
    Group,
    Label,
    Number,
    RealFeature,
    SchemaFieldError,
    Target,
    ThresholdFeature,
    build,
    build_label,
    in_form,
    nearest,
    plain,
    require_name,
)
from dpcore.records.features.described import FIRST_VERSION, SCHEMA_VERSION
from dpcore.records.texts import DRAFTED_TEXTS, TEXT_STEPS, parse_toml
from dpcore.records.weight import WEIGHT_VERSION, Weight

if TYPE_CHECKING:
    from dpcore.records.encoding import EncodedRows

BIAS = "bias"

_DIGEST_PREFIX = b"rado.v1/schema\0"
_COLUMNS_PREFIX = b"rado.v1/schema-columns\0"
_ABSENT = "(absent)"
_KEYS = ("schema_version", "name", "bias", "texts", "label", "weight", "features")
_OPTIONAL = ("bias", "texts", "weight")


@dataclass(frozen=True)
class SchemaDifference:
    """One field, such as "features.age.upper", in which two schemas differ; texts, "(absent)" if there is none."""

    field: str
    mine: str
    theirs: str


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Encodes columns as coordinates in [-1, 1], and a label in its coding. Raises SchemaFieldError."""

    name: str
    label: Target
    features: tuple[Feature, ...]
    bias: bool = True
    """Whether the last coordinate is the bias, 1 in every usable row."""
    texts: tuple[str, ...] = ()
    """The steps after which texts are compared."""
    weight: Weight | None = None
    """What each row counts; None if all count alike."""

    def __post_init__(self) -> None:
        require_name("name", self.name)
        if not isinstance(self.bias, bool):
            raise SchemaFieldError("bias", f"{self.bias!r} is not a boolean; write true or false")
        object.__setattr__(self, "features", tuple(self.features))
        if not self.features:
            raise SchemaFieldError("features", "is empty; write at least one [[features]] table")
        self._settle_texts()
        self._check_names()
        self._check_columns()

    def _settle_texts(self) -> None:
        """Order the steps, and keep the schema's own texts in their form."""
        if not isinstance(self.texts, list | tuple):
            raise SchemaFieldError("texts", f"is not a list of steps; write texts = {list(DRAFTED_TEXTS)}")
        for step in self.texts:
            if step not in TEXT_STEPS:
                raise SchemaFieldError("texts", f"{step!r} is not a step; {nearest(str(step), TEXT_STEPS)}")
        steps = tuple(step for step in TEXT_STEPS if step in self.texts)
        object.__setattr__(self, "texts", steps)
        if steps:
            object.__setattr__(self, "label", in_form(self.label, steps))
            object.__setattr__(self, "features", tuple(in_form(feature, steps) for feature in self.features))

    def _check_names(self) -> None:
        seen_names: set[str] = set()
        parts = {group.name: each.name for each in self.features for group in each.groups if group.name != each.name}
        seen: dict[str, str] = {BIAS: "the bias"} if self.bias else {}
        for feature in self.features:
            field = f"features.{feature.name}"
            if feature.name in seen_names:
                raise SchemaFieldError(f"{field}.name", "is the name of two features; rename one")
            if feature.name in parts:
                sentence = f"is also what a part of feature {parts[feature.name]!r} is called; rename the feature"
                raise SchemaFieldError(f"{field}.name", sentence)
            seen_names.add(feature.name)
            for coordinate in feature.coordinates:
                if coordinate in seen:
                    sentence = (
                        f"its coordinate {coordinate!r} is also a coordinate of {seen[coordinate]}; rename the feature"
                    )
                    raise SchemaFieldError(f"{field}.name", sentence)
                seen[coordinate] = f"feature {feature.name!r}"

    def _check_columns(self) -> None:
        if self.weight is not None and self.weight.column in self.label.columns:
            raise SchemaFieldError("weight.column", f"{self.weight.column!r} is the label's column; name another")
        first: dict[str, Feature] = {}
        for feature in self.features:
            field = f"features.{feature.name}.column"
            if self.weight is not None and feature.column == self.weight.column:
                raise SchemaFieldError(field, f"{feature.column!r} is the column of the weight; remove the feature")
            if feature.column in self.label.columns:
                raise SchemaFieldError(
                    field, f"{feature.column!r} is the label's column and would reveal the label; remove the feature"
                )
            other = first.setdefault(feature.column, feature)
            if other is not feature and (feature.replaces_column or other.replaces_column):
                raise SchemaFieldError(
                    field,
                    f"{feature.column!r} is also the source of feature {other.name!r}, but a threshold replaces its "
                    "source column; remove one of the two",
                )

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the d coordinates in order, the bias last."""
        names = tuple(name for feature in self.features for name in feature.coordinates)
        return (*names, BIAS) if self.bias else names

    @property
    def d(self) -> int:
        """Number of coordinates, the bias included."""
        return len(self.coordinates)

    @cached_property
    def boolean_coordinates(self) -> tuple[str, ...]:
        """The coordinates coded -1/+1 (boolean and threshold features), which a query may declare sensitive."""
        return tuple(feature.name for feature in self.flags)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of coordinates of all features, in order: what estimators and predicates are about."""
        return tuple(group for feature in self.features for group in feature.groups)

    @property
    def numbers(self) -> tuple[RealFeature, ...]:
        """The groups with one coordinate anywhere in [-1, 1], in order."""
        return self._groups[0]

    @property
    def flags(self) -> tuple[BooleanFeature | ThresholdFeature, ...]:
        """The groups with one coordinate that is -1 or +1, in order."""
        return self._groups[1]

    @property
    def categories(self) -> tuple[CategoryFeature, ...]:
        """The groups with an indicator for each listed value, in order."""
        return self._groups[2]

    @cached_property
    def _groups(
        self,
    ) -> tuple[tuple[RealFeature, ...], tuple[BooleanFeature | ThresholdFeature, ...], tuple[CategoryFeature, ...]]:
        numbers: list[RealFeature] = []
        flags: list[BooleanFeature | ThresholdFeature] = []
        categories: list[CategoryFeature] = []
        for group in self.groups:
            match group:
                case RealFeature():
                    numbers.append(group)
                case BooleanFeature() | ThresholdFeature():
                    flags.append(group)
                case CategoryFeature():
                    categories.append(group)
                case _:
                    assert_never(group)
        return tuple(numbers), tuple(flags), tuple(categories)

    @cached_property
    def _sources(self) -> dict[str, str | None]:
        sources: dict[str, str | None] = {
            name: feature.column for feature in self.features for name in feature.coordinates
        }
        return {**sources, BIAS: None} if self.bias else sources

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.coordinates)}

    @cached_property
    def _derived(self) -> dict[str, tuple[str, ...]]:
        """Coordinates by column, so that a lookup does not search all coordinates."""
        derived: dict[str, list[str]] = {}
        for name, source in self._sources.items():
            if source is not None:
                derived.setdefault(source, []).append(name)
        return {source: tuple(names) for source, names in derived.items()}

    def coordinate(self, name: str) -> int:
        """Index of the coordinate `name`. Raises SchemaError, with the most similar name, if there is none."""
        self.sources(name)
        return self._positions[name]

    def sources(self, name: str) -> str | None:
        """The column that coordinate `name` derives from, None for the bias. Raises SchemaError if it is unknown."""
        if name not in self._sources:
            raise SchemaError(f"schema {self.name!r} has no coordinate {name!r}; {nearest(name, self.coordinates)}")
        return self._sources[name]

    def derived_from(self, column: str) -> tuple[str, ...]:
        """All coordinates that derive from `column`, in order."""
        return self._derived.get(column, ())

    @property
    def version(self) -> int:
        """The version of its files and of its canonical form: the first that has its fields."""
        parts = (self.label, *self.features)
        own = FIRST_VERSION if self.weight is None else WEIGHT_VERSION
        return max(2 if self.texts else FIRST_VERSION, own, *(part.version for part in parts))

    @property
    def unweighted(self) -> "Schema":
        """The same schema with all rows alike: what statistics are about."""
        return self if self.weight is None else replace(self, weight=None)

    def encode(self, frame: Any) -> "EncodedRows":
        """Encode a data frame, an Arrow table or a file: `x` (rows, d), `usable` (rows,), and the policies' `tallies`.

        frame: with the columns of the features, in any order; other columns, such as the label's, are not read. A row
        that a policy makes a zero vector is not usable and all zeros. Raises DataError if a column is absent or a
        policy refuses a cell, and ConfigurationError if it is not a table.
        """
        # Tables are above the mathematics, which needs none of them unless this is called.
        tables = import_module("radobase.tables.tables")
        rows: EncodedRows = tables.read_rows(tables.as_source(frame), self)
        return rows

    def canonical_bytes(self) -> bytes:
        """The canonical form, as defined in the module's docstring."""
        return self._canonical

    @cached_property
    def _canonical(self) -> bytes:
        return _dump({**_plain(self), "schema_version": self.version})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical form with its prefix, 32 bytes."""
        return hashlib.sha256(_DIGEST_PREFIX + self.canonical_bytes()).digest()

    @cached_property
    def columns_digest(self) -> bytes:
        """SHA-256 of the canonical form without the label and the version: of what labels of one file share."""
        rest = {key: value for key, value in _plain(self).items() if key != "label"}
        return hashlib.sha256(_COLUMNS_PREFIX + _dump(rest)).digest()

    @classmethod
    def from_toml(cls, text: str, source: str = "", *, label: str | None = None) -> "Schema":
        """The schema described by a TOML text, of a `source` named in errors. Raises SchemaError, SchemaFieldError.

        label: the name of the one that the schema is to have, if the text lists several.
        """
        # A text with several labels is several schemas, which stand above this module.
        several = import_module("dpcore.records.shared_schema").SharedSchema.from_toml(text, source)
        if label is None and len(several.labels) > 1:
            known = " and ".join(map(repr, several.labels))
            sentence = (
                f"are {known}, and a Schema has one: name it, as in Schema.from_toml(text, label={several.labels[0]!r})"
            )
            raise SchemaFieldError("labels", sentence, source=source)
        schema: Schema = several.about(label)
        return schema

    @classmethod
    def from_canonical(cls, data: bytes) -> "Schema":
        """The schema with exactly this canonical form. Raises SchemaError for any other bytes."""
        return _read_again(data) if len(data) <= _READ_AGAIN_BYTES else cls._from_canonical(data)

    @classmethod
    def _from_canonical(cls, data: bytes) -> "Schema":
        try:
            table = json.loads(data.decode())
            table = _decode_reals(table)
            if FIRST_VERSION < table["schema_version"] <= SCHEMA_VERSION:
                table.setdefault("texts", [])
            schema = schema_from_table(table)
            exact = schema.canonical_bytes() == data
        except SchemaError:
            raise
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise SchemaError(f"not the canonical form of a schema ({error}); send canonical_bytes()") from None
        if not exact:
            raise SchemaError("the schema is not in canonical form; send canonical_bytes()")
        return schema

    def to_toml(self, comments: Sequence[str] = ()) -> str:
        """An editable TOML text that reads back as this schema, with `comments` at the top."""
        return toml_text(self, self.version, [("[label]", plain(self.label))], comments)


def toml_text(
    schema: Schema, version: int, labels: Sequence[tuple[str, Mapping[str, Any]]], comments: Sequence[str]
) -> str:
    """A TOML text with the schema's features. labels: the header and the fields of each label's table."""
    lines = [f"# {line}" for comment in comments for line in comment.splitlines()]
    lines += [f"schema_version = {version}", f"name = {_toml(schema.name)}", f"bias = {_toml(schema.bias)}"]
    if version > FIRST_VERSION:
        lines.append(f"texts = {_toml(list(schema.texts))}")
    for header, table in labels:
        lines += ["", header, *_toml_lines(table)]
    if schema.weight is not None:
        lines += ["", "[weight]", *_toml_lines(asdict(schema.weight))]
    for feature in schema.features:
        lines += ["", *feature_lines(feature)]
    return "\n".join(lines) + "\n"


def feature_lines(feature: Feature) -> list[str]:
    """The lines of a feature in a TOML text."""
    table = plain(feature)
    if feature.column == feature.name:
        del table["column"]
    return ["[[features]]", *_toml_lines(table)]


def label_lines(label: Target, name: str) -> list[str]:
    """The lines of one of several labels in a TOML text."""
    return ["[[labels]]", *_toml_lines({"name": name, **plain(label)})]


def differences(mine: Schema, theirs: Schema) -> list[SchemaDifference]:
    """Every field in which two schemas differ; empty if and only if their digests are equal."""
    a, b = _flat(mine), _flat(theirs)
    found = [
        SchemaDifference(field, a.get(field, _ABSENT), b.get(field, _ABSENT))
        for field in dict.fromkeys((*a, *b))
        if a.get(field) != b.get(field)
    ]
    order_a, order_b = ([feature.name for feature in schema.features] for schema in (mine, theirs))
    if sorted(order_a) == sorted(order_b) and order_a != order_b:
        found.append(SchemaDifference("features (order)", ", ".join(order_a), ", ".join(order_b)))
    return found


def _flat(schema: Schema) -> dict[str, str]:
    flat = {"name": repr(schema.name), "bias": _toml(schema.bias), "texts": _toml(list(schema.texts))}
    parts = [("label", plain(schema.label))] + [(f"features.{f.name}", plain(f)) for f in schema.features]
    parts += [] if schema.weight is None else [("weight", asdict(schema.weight))]
    for path, part in parts:
        # A repr would distinguish 1 from 1.0, but every real is a float from construction.
        flat.update({f"{path}.{key}": "(none)" if value is None else _toml(value) for key, value in part.items()})
    return flat


def _plain(schema: Schema) -> dict[str, Any]:
    features = [plain(feature) for feature in schema.features]
    found = {"name": schema.name, "bias": schema.bias, "label": plain(schema.label), "features": features}
    if schema.weight is not None:
        found["weight"] = asdict(schema.weight)
    return {**found, "texts": list(schema.texts)} if schema.texts else found


Made = TypeVar("Made")


def read_toml_text(text: str, source: str, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """What `make` makes of the tables of a TOML text. Raises SchemaError, SchemaFieldError, which name the source."""
    place = f"{source}: " if source else ""
    try:
        table = parse_toml(text)
    except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
        raise SchemaError(f"{place}not valid TOML: {error}; correct the file") from None
    try:
        return make(table)
    except SchemaFieldError as error:
        raise SchemaFieldError(error.field, error.sentence, source=source) from None
    except ValueError as error:  # a hexadecimal integer may be too long to print
        raise SchemaError(f"{place}has a value that cannot be used: {error}; correct the file") from None


def schema_from_table(table: Mapping[str, Any]) -> Schema:
    """A schema from the tables of a TOML file; the canonical form has the same shape. Raises SchemaFieldError."""
    for key in table:
        if key not in _KEYS:
            raise SchemaFieldError(key, f"is not a key; {nearest(key, _KEYS)}")
    for key in _KEYS:
        if key not in table and key not in _OPTIONAL:
            raise SchemaFieldError(key, "is missing; write it")
    version = table["schema_version"]
    if type(version) is not int or not FIRST_VERSION <= version <= SCHEMA_VERSION:
        raise SchemaFieldError(
            "schema_version",
            f"{version!r} is none of {FIRST_VERSION} to {SCHEMA_VERSION}, the versions that this radofed reads",
        )
    if not isinstance(table["label"], Mapping):
        raise SchemaFieldError("label", "is not a table; write [label]")
    if not isinstance(table["features"], list):
        raise SchemaFieldError("features", "is not a list of tables; write [[features]] before each feature")
    label = build_label(_without_none(table["label"]))
    features = tuple(_feature(part, number) for number, part in enumerate(table["features"], start=1))
    _check_version(version, table, label, features)
    texts, weight = table.get("texts", ()), _weight(table.get("weight"))
    named = {"name": table["name"], "bias": table.get("bias", True), "texts": texts}
    return Schema(**named, label=label, features=features, weight=weight)


def _weight(table: object) -> Weight | None:
    """The weight of a parsed table; None without one."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise SchemaFieldError("weight", "is not a table; write [weight]")
    return build(Weight, _without_none(table), "weight")


def _check_version(version: int, table: Mapping[str, Any], label: Target, features: Sequence[Feature]) -> None:
    """Raise SchemaFieldError if a file has a field that its version lacks, or lacks one that its version needs."""
    if version > FIRST_VERSION and "texts" not in table:
        sentence = f"is missing; write texts = {_toml(list(DRAFTED_TEXTS))}, or [] to compare texts as they are"
        raise SchemaFieldError("texts", sentence)
    later = [("texts", 2)] if "texts" in table else []
    later += [("weight", WEIGHT_VERSION)] if "weight" in table else []
    later.append((f"label.{label.versioned_key}", label.version))
    later += [(f"features.{part.name}.{part.versioned_key}", part.version) for part in features]
    for field, needed in later:
        if version < needed:
            raise SchemaFieldError(field, f"needs schema_version = {needed}, which all parties must be able to read")


def _feature(table: object, number: int) -> Feature:
    """One feature. Until its name is known, errors use its number in the file, counted from 1."""
    path = f"features[{number}]"
    if not isinstance(table, Mapping):
        raise SchemaFieldError(path, "is not a table; write [[features]] before each feature")
    values = _without_none(table)
    path = f"features.{require_name(f'{path}.name', values['name'])}" if "name" in values else path
    kind = values.pop("type", None)
    if not isinstance(kind, str) or kind not in FEATURE_TYPES:
        found = "is missing" if kind is None else f"{kind!r} is not a type of feature"
        raise SchemaFieldError(f"{path}.type", f"{found}; {nearest(str(kind), FEATURE_TYPES)}")
    return build(FEATURE_TYPES[kind], values, path)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _dump(value: dict[str, Any]) -> bytes:
    text = json.dumps(_encode_reals(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def _encode_reals(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return {key: _encode_reals(part) for key, part in value.items()}
    return [_encode_reals(part) for part in value] if isinstance(value, list) else value


def _decode_reals(table: dict[str, Any]) -> dict[str, Any]:
    """The canonical form's table with its hexadecimal doubles decoded. Re-serialising detects all other errors."""
    label = _decoded(table["label"], LABEL_TYPES)
    if "weight" in table:
        reals = {key: _real(value) for key, value in table["weight"].items() if key in Weight.reals}
        table = {**table, "weight": {**table["weight"], **reals}}
    return {**table, "label": label, "features": [_decoded(part, FEATURE_TYPES) for part in table["features"]]}


def _decoded(part: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    reals = getattr(kinds.get(part.get("type", "")), "reals", ())
    return {key: _decoded_reals(value) if key in reals else value for key, value in part.items()}


def _decoded_reals(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded_reals(each) for each in value]
    return _real(value) if isinstance(value, str) else value


def _real(text: str) -> float:
    if not re.fullmatch("[0-9a-f]{16}", text):
        raise SchemaError(f"{text!r} is not 16 hexadecimal digits of a double; send canonical_bytes()")
    (value,) = struct.unpack(">d", bytes.fromhex(text))
    return float(value)


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]


def _toml(value: Any) -> str:
    """A text, boolean, double or list of texts as TOML, whose strings are those of JSON with DEL escaped too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_toml(part) for part in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


__all__ = [
    "BIAS",
    "SCHEMA_VERSION",
    "BooleanFeature",
    "CategoryFeature",
    "Classes",
    "Count",
    "Feature",
    "Group",
    "Label",
    "Number",
    "RealFeature",
    "Schema",
    "SchemaDifference",
    "SchemaFieldError",
    "Target",
    "ThresholdFeature",
    "differences",
]


_READ_AGAIN_BYTES = 1 << 16
"""A longer schema is read again each time, so that what is kept is small whoever sends it."""


@lru_cache(maxsize=8)
def _read_again(data: bytes) -> Schema:
    """A schema that was read lately: every query of a training has the same one, and each node reads it often."""
    return Schema._from_canonical(data)  # noqa: SLF001  (of this module)
