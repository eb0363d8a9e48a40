"""What a schema file says: one schema, or a schema for each of several labels over the same features.

    [[labels]]                    in place of [label]
    name = "died"                 by which a query names it; the column, if it is left out
    column = "deceased"
    positive = ["yes"]

A query is about one label. It carries the schema of that label as if the file had no other, so that its digest, which
the learner and each party sign, binds the label. A party with several labels therefore answers queries of learners
whose file has one of them alone.

The digest of a file with several labels is for people who compare files:

    digest = SHA-256("rado.v1/labels" || 0x00 || the digests of its schemas, ascending)
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dpcore.errors import SchemaError
from dpcore.records.features import SchemaFieldError, Target, nearest, plain, require_name
from dpcore.records.features.described import SCHEMA_VERSION
from dpcore.records.schema import (
    Schema,
    SchemaDifference,
    differences,
    read_toml_text,
    schema_from_table,
    toml_text,
)

LABELS_VERSION = 5
MOST_LABELS = 20
"""A party holds the labels of all its rows in memory."""

_DIGEST_PREFIX = b"rado.v1/labels\0"
_ABSENT = "(absent)"
_LONGEST_SHOWN = 40


@dataclass(frozen=True)
class SharedSchema:
    """The schemas of one file, by the name of their label, in the file's order. Raises SchemaFieldError.

    They have the same features, and no column of any label is one.

    Two labels may be made of one column if they are of different types, have different second columns (event, exposure)
    or list different texts: a number and classes of it, two causes of death. Two that differ in bounds or policies
    alone are refused: the same outcome would have two scales, and models name the column.
    """

    by_label: Mapping[str, Schema]

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_label", MappingProxyType(dict(self.by_label)))
        if not 1 <= len(self.by_label) <= MOST_LABELS:
            raise SchemaFieldError("labels", f"has {len(self.by_label)} labels; write 1 to {MOST_LABELS}")
        seen: dict[bytes, str] = {}
        for name, schema in self.by_label.items():
            if replace(schema, label=self.first.label) != self.first:
                raise SchemaFieldError(f"labels.{name}", "is of a schema with other features; give all labels the same")
            if (other := seen.setdefault(schema.digest, name)) != name:
                raise SchemaFieldError(f"labels.{name}", f"is the same label as {other!r}; remove one of the two")
        outcomes: dict[object, str] = {}
        for name, schema in self.by_label.items():
            if (other := outcomes.setdefault(_outcome(schema.label), name)) != name:
                sentence = (
                    f"is of the column {schema.label.column!r} and of the same type as {other!r}, and differs from it "
                    "in nothing that says what happened; keep one of the two"
                )
                raise SchemaFieldError(f"labels.{name}", sentence)

    @classmethod
    def of(cls, schema: "Schema | SharedSchema") -> "SharedSchema":
        """A schema of one label, under its column's name; several as they are."""
        return schema if isinstance(schema, SharedSchema) else cls({schema.label.column: schema})

    @classmethod
    def from_toml(cls, text: str, source: str = "") -> "SharedSchema":
        """What a TOML text says, of a `source` named in errors. Raises SchemaError, SchemaFieldError."""
        return read_toml_text(text, source, _shared)

    @property
    def first(self) -> Schema:
        """The schema of the first label."""
        return next(iter(self.by_label.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        return tuple(self.by_label)

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """The schema of each label."""
        return tuple(self.by_label.values())

    @property
    def others(self) -> tuple[Target, ...]:
        """The labels after the first."""
        return tuple(schema.label for schema in self.schemas[1:])

    @cached_property
    def digest(self) -> bytes:
        """The schema's own digest if there is one label, else that of the module's docstring, 32 bytes."""
        if len(self.by_label) == 1:
            return self.first.digest
        return hashlib.sha256(_DIGEST_PREFIX + b"".join(sorted(each.digest for each in self.schemas))).digest()

    def about(self, label: str | None) -> Schema:
        """The schema of the label that is named; None: of the only one. Raises SchemaError, which lists the labels."""
        if label is None:
            if len(self.by_label) > 1:
                known = ", ".join(map(repr, self.labels))
                raise SchemaError(
                    f"the schema has {len(self.by_label)} labels, {known}: name one by --label, or by label= in Python"
                )
            return self.first
        if label not in self.by_label:
            raise SchemaError(f"the schema has no label {label!r}; {nearest(label, self.labels)}")
        return self.by_label[label]

    def nearest_to(self, schema: Schema) -> Schema:
        """Of its schemas the one with the fewest differences from another, without a weight if that has none."""
        own = (each.unweighted if schema.weight is None else each for each in self.schemas)
        return min(own, key=lambda each: len(differences(each, schema)))

    def to_toml(self, comments: Sequence[str] = ()) -> str:
        """An editable TOML text that reads back as these schemas, with `comments` at the top."""
        if len(self.by_label) == 1:
            return self.first.to_toml(comments)
        labels = [("[[labels]]", {"name": name, **plain(each.label)}) for name, each in self.by_label.items()]
        return toml_text(self.first, SCHEMA_VERSION, labels, comments)


def _outcome(label: Target) -> object:
    """What a label is about, whatever its bounds and policies: its type, its columns, and the texts that it lists."""
    texts = tuple(getattr(label, name) for names in label.compared for name in names)
    return label.type, label.columns, texts


def schema_words(schema: SharedSchema) -> str:
    """Name, coordinates, labels if there are several, and digest, for people; labels of one column are pointed out."""
    of_column: dict[str, list[str]] = {}
    for name, each in schema.by_label.items():
        of_column.setdefault(each.label.column, []).append(repr(name))
    shared = [f"{' and '.join(names)} of one column, {column!r}" for column, names in of_column.items() if names[1:]]
    pointed_out = f" ({'; '.join(shared)})" if shared else ""
    several = f"labels {', '.join(map(repr, schema.labels))}{pointed_out}, " if len(schema.labels) > 1 else ""
    return f"{schema.first.name!r}, {schema.first.d} coordinates, {several}digest {schema.digest.hex()}"


def shared_differences(mine: SharedSchema, theirs: SharedSchema) -> list[SchemaDifference]:
    """Every field in which the schemas differ, label by label; empty only if their digests are equal."""
    if len(mine.by_label) == len(theirs.by_label) == 1:
        return differences(mine.first, theirs.first)
    found: dict[SchemaDifference, None] = {}
    for name in dict.fromkeys((*mine.labels, *theirs.labels)):
        own, other = mine.by_label.get(name), theirs.by_label.get(name)
        if own is None or other is None:
            words = ["the label" if each is not None else _ABSENT for each in (own, other)]
            found[SchemaDifference(f"labels.{name}", *words)] = None
            continue
        for each in differences(own, other):
            of_label = each.field.startswith("label.")
            field = f"labels.{name}.{each.field.removeprefix('label.')}" if of_label else each.field
            found[SchemaDifference(field, each.mine, each.theirs)] = None
    return list(found)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _shared(table: Mapping[str, Any]) -> SharedSchema:
    """The schemas of the tables of a TOML file."""
    if "labels" not in table:
        return SharedSchema.of(schema_from_table(table))
    version, labels = table.get("schema_version"), table["labels"]
    if not isinstance(labels, list) or not labels or not all(isinstance(each, Mapping) for each in labels):
        raise SchemaFieldError(
            "labels", f"{_short(labels)} is not a list of tables; write [[labels]] before each label"
        )
    if "label" in table:
        raise SchemaFieldError("labels", "stands beside [label]; write [[labels]] before each label, and no [label]")
    if type(version) is int and version < LABELS_VERSION:
        needed = f"needs schema_version = {LABELS_VERSION}, which all parties must be able to read"
        raise SchemaFieldError("labels", needed)
    rest = {key: value for key, value in table.items() if key != "labels"}
    found: dict[str, Schema] = {}
    for number, each in enumerate(labels, start=1):
        own = dict(each)
        name = require_name(f"labels[{number}].name", own.pop("name", own.get("column", str(number))))
        if name in found:
            raise SchemaFieldError(f"labels.{name}", "is the name of two labels; give one of them another name")
        try:
            found[name] = schema_from_table({**rest, "label": own})
        except SchemaFieldError as error:
            field = error.field
            if field.startswith("label."):
                field = f"labels.{name}.{field.removeprefix('label.')}"
            raise SchemaFieldError(field, error.sentence) from None
    return SharedSchema(found)
