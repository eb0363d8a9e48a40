"""A party's recode file: what its own table writes, in the schema's spellings, columns' names and units.

    [columns.sex]                            # the schema's column; in party.toml itself: [recode.columns.sex]
    column = "Geschlecht"                    # the table's name for it; default: the same
    cells = { "männlich" = "m", "weiblich" = "w", "k. A." = "" }

    [columns.dose_g]
    column = "Dosis_mg"
    unit = "mg"                              # of the table; where the schema states one for the column
    factor = 0.001                           # value of the schema = value of the table * factor + offset
    offset = 0.0                             # one IEEE-754 double multiplication, then one addition

Each cell is recoded once, before the schema reads it. Cells and spellings are compared in the form of the schema's
`texts`. "" makes a cell empty. A cell without an entry stays as it is. Nothing of the file leaves the party.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.records.encoding import Cells, Numbers, Texts, WantedColumn, sources
from dpcore.records.features import Day, SchemaFieldError, listed_texts, nearest
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import TRIMMED, Form, form_of, require_number, require_text, value_text
from dpcore.records.units import are_same, conversion
from radobase.reading import FileKind, read_toml, with_remedy

_REMEDY = "correct the recode file (`rado schema check SCHEMA DATA --recode FILE` tests it)"
_RECODE = FileKind(with_remedy(_REMEDY), limit_bytes=1 << 20, decides=True)
_DIGEST = b"rado.v1/recode\0"
_KEYS = ("column", "cells", "unit", "factor", "offset")
_MOST_NAMED = 5

Occurrences = Counter[tuple[str, str]]
"""By column of the schema and spelling, in how many cells it occurs; the spelling "" stands for changed numbers."""


@dataclass(frozen=True)
class RecodedColumn:
    """What is done with the cells of one column of the schema."""

    own: str
    """The table's name for it."""
    spelled: Mapping[str, str] = field(default_factory=dict)
    """The table's spelling of each recoded cell, by its form."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """The schema's text, by the form of the table's."""
    factor: float = 1.0
    offset: float = 0.0
    unit: str | None = None
    """The table's unit."""

    @property
    def is_scaled(self) -> bool:
        """Whether its numbers change."""
        return (self.factor, self.offset) != (1.0, 0.0)


@dataclass(frozen=True)
class Recode:
    """What a recode file says, for one schema."""

    columns: Mapping[str, RecodedColumn]
    """By column of the schema."""
    form: Form
    """In which the schema compares texts."""

    @property
    def digest(self) -> bytes:
        """SHA-256 over what the file says, without its comments and order."""
        said = {
            name: [
                *(each.own, sorted(each.cells.items()), each.factor.hex(), each.offset.hex()),
                *([] if each.unit is None else [each.unit]),
            ]
            for name, each in self.columns.items()
        }
        return hashlib.sha256(_DIGEST + json.dumps(said, sort_keys=True).encode()).digest()

    @property
    def own_names(self) -> frozenset[str]:
        """The table's columns that it names."""
        return frozenset(each.own for each in self.columns.values())

    def own(self, wanted: WantedColumn) -> WantedColumn:
        """The table's column for one of the schema's."""
        found = self.columns.get(wanted.column)
        return wanted if found is None else WantedColumn(found.own, wanted.kind)

    def apply(self, cells: Mapping[WantedColumn, Cells]) -> tuple[dict[WantedColumn, Cells], Occurrences]:
        """The cells of the schema's columns as the schema is to read them, and how often each entry occurred."""
        recoded, occurrences = dict(cells), Occurrences()
        for wanted, found in cells.items():
            column = self.columns.get(wanted.column)
            if column is None:
                continue
            if isinstance(found, Texts) and column.cells:
                recoded[wanted] = self._texts(wanted.column, found, column, occurrences)
            elif isinstance(found, Numbers) and column.is_scaled:
                with np.errstate(over="ignore", invalid="ignore"):
                    recoded[wanted] = Numbers(found.values * column.factor + column.offset, found.missing)
                occurrences[wanted.column, ""] += len(found.missing) - int(np.count_nonzero(found.missing))
        return recoded, occurrences

    def _texts(self, name: str, cells: Texts, column: RecodedColumn, occurrences: Occurrences) -> Texts:
        forms = [self.form(text) for text in cells.texts]
        rows = np.bincount(cells.codes[cells.codes >= 0], minlength=len(forms)).tolist()
        for form, count in zip(forms, rows, strict=True):
            if count and form in column.cells:
                occurrences[name, form] += count
        texts = tuple(column.cells.get(form, text) for form, text in zip(forms, cells.texts, strict=True))
        # As where the table is read: an empty text is a missing cell, and so is the place after the last.
        places = np.array([*(place if text else -1 for place, text in enumerate(texts)), -1], dtype=np.int64)
        return Texts(places[cells.codes], texts, cells.booleans)

    def counts(self, occurrences: Occurrences) -> dict[str, int]:
        """By column of the schema, how many cells became others."""
        found: dict[str, int] = {}
        for (name, form), count in occurrences.items():
            same = self.columns[name].cells.get(form)
            if same is None or self.form(same) != form:
                found[name] = found.get(name, 0) + count
        return {name: found[name] for name in self.columns if name in found}

    def unused(self, occurrences: Occurrences) -> Iterator[str]:
        """A sentence for each column with spellings that no cell has."""
        for name, column in self.columns.items():
            never = [spelling for form, spelling in column.spelled.items() if not occurrences[name, form]]
            if never:
                more = f" and {len(never) - _MOST_NAMED} more" if len(never) > _MOST_NAMED else ""
                words = ", ".join(map(repr, never[:_MOST_NAMED]))
                yield (
                    f"the recode file spells {words}{more} in column {column.own!r}, which no cell is: check the "
                    f"spelling, or remove the {'entry' if len(never) == 1 else 'entries'}"
                )


def recoded_words(counts: Mapping[str, int]) -> str:
    """Such as "1,203 cells of sex, 12 cells of dose_g"; empty if there are none."""
    return ", ".join(f"{cells:,} {'cell' if cells == 1 else 'cells'} of {name}" for name, cells in counts.items())


def columns_of(schema: Schema | SharedSchema, recode: Recode | None) -> frozenset[str]:
    """The columns that queries are about, by the schema's names and by the table's."""
    named = frozenset(source.column for each in SharedSchema.of(schema).schemas for source in sources(each, label=True))
    return named if recode is None else named | recode.own_names


def load_recode(path: Path, schema: Schema | SharedSchema) -> Recode:
    """The recode file of a party whose table is read with this schema.

    Raises ConfigurationError if the file cannot be read, if it names what the schema does not have, or if two of its
    entries are about one thing.
    """
    return read_recode(read_toml(path, _RECODE), schema, str(path))


def read_recode(content: Mapping[str, Any], schema: Schema | SharedSchema, place: str) -> Recode:
    """The recode of a parsed file, or of tables elsewhere. place: where they stand. Raises what `load_recode` does."""
    try:
        return recode_of(content, SharedSchema.of(schema))
    except SchemaFieldError as error:
        raise ConfigurationError(f"{place}: {error}") from error


def recode_of(content: Mapping[str, Any], schema: SharedSchema) -> Recode:
    """The recode of a parsed file. Raises SchemaFieldError as `load_recode` does."""
    for key in content:
        if key != "columns":
            raise SchemaFieldError(key, "is not a key; write a table [columns.NAME] for each column of the schema")
    tables = content.get("columns", {})
    if not isinstance(tables, dict):
        raise SchemaFieldError("columns", "is not a table; write [columns.NAME] for each column of the schema")
    form, known = form_of(schema.first.texts), _kinds(schema)
    columns = {}
    for name, table in tables.items():
        path = f"columns.{name}"
        if name not in known:
            raise SchemaFieldError(path, f"is not a column of the schema; {nearest(name, known)}")
        if not isinstance(table, dict):
            raise SchemaFieldError(path, "is not a table; write column, cells, or factor and offset below it")
        for key in table:
            if key not in _KEYS:
                raise SchemaFieldError(f"{path}.{key}", f"is not a key; {nearest(key, _KEYS)}")
        columns[name] = _column(path, name, table, known[name], form, schema)
    _check_distinct(columns, known)
    return Recode(columns, form)


def _kinds(schema: SharedSchema) -> dict[str, set[str]]:
    """How each column of the schema is read: as numbers, as texts, or as both."""
    known: dict[str, set[str]] = {}
    for source in sources(schema.first, label=True, others=schema.others):
        known.setdefault(source.column, set()).add(source.kind)
    return known


def _column(
    path: str, name: str, table: Mapping[str, Any], kinds: set[str], form: Form, schema: SharedSchema
) -> RecodedColumn:
    """What one table of the file says. kinds: how the schema reads the column. Raises SchemaFieldError."""
    own = require_text(f"{path}.column", table.get("column", name))
    of_numbers = ("unit", "factor", "offset")
    for keys, kind, other in ((("cells",), "texts", "factor and offset"), (of_numbers, "numbers", "cells")):
        for key in keys:
            if key in table and kinds != {kind}:
                read = " and ".join(sorted(kinds))
                sentence = f"is for a column of {kind}, and the schema reads {name!r} as {read}; leave it out"
                hint = f", or write {other}" if len(kinds) == 1 else ""
                if key == "cells":
                    hint += "; a text among numbers, such as 'n/a', is made an empty cell in the table or in the query"
                raise SchemaFieldError(f"{path}.{key}", sentence + hint)
    factor = require_number(f"{path}.factor", table.get("factor", 1.0))
    offset = require_number(f"{path}.offset", table.get("offset", 0.0))
    if factor == 0.0:
        raise SchemaFieldError(f"{path}.factor", "is 0, so that all values become one; write the factor of the units")
    unit = None if table.get("unit") is None else require_text(f"{path}.unit", table["unit"])
    if kinds == {"numbers"}:
        _check_units(path, unit, _unit_of(name, schema), factor, offset)
    spelled, cells = _cells(f"{path}.cells", table.get("cells", {}), _Listed.of(name, schema, form), form)
    return RecodedColumn(own, spelled, cells, factor, offset, unit)


def _unit_of(name: str, schema: SharedSchema) -> str | None:
    """What the schema's features or labels of a column state; the first, if there are several."""
    parts = [*schema.first.features, *(each.label for each in schema.schemas)]
    units = (getattr(each, "unit", None) for each in parts if each.column == name)
    return next((unit for unit in units if unit is not None), None)


def _check_units(path: str, own: str | None, wanted: str | None, factor: float, offset: float) -> None:
    """Raise SchemaFieldError if the units, or what is known of them, say otherwise than factor and offset.

    own: the table's unit. wanted: the schema's.
    """
    is_scaled = (factor, offset) != (1.0, 0.0)
    if wanted is None:
        if own is not None:
            sentence = "has nothing to compare with: the schema states no unit for this column; leave it out"
            raise SchemaFieldError(f"{path}.unit", sentence)
        return
    if own is None:
        if is_scaled:
            sentence = f"is missing: the schema's is {wanted!r}, and the numbers are converted; write the table's unit"
            raise SchemaFieldError(f"{path}.unit", sentence)
        return
    if are_same(own, wanted):
        if is_scaled:
            sentence = f"converts {own!r}, which is the schema's unit too; leave factor and offset out"
            raise SchemaFieldError(f"{path}.factor", sentence)
        return
    known = conversion(own, wanted)
    if known is not None and not known.agrees(factor, offset):
        said = f"factor = {factor:g}, offset = {offset:g}" if is_scaled else "neither factor nor offset"
        sentence = f"is {own!r}, and the schema's is {wanted!r}, but there is {said}; write {known.words}"
        raise SchemaFieldError(f"{path}.unit", sentence)
    if known is None and not is_scaled:
        sentence = f"is {own!r}, and the schema's is {wanted!r}; write the factor and the offset from one to the other"
        raise SchemaFieldError(f"{path}.unit", sentence)


@dataclass(frozen=True)
class _Listed:
    """The texts that a schema lists for a column, by their form; empty for dates, which it does not list."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, name: str, schema: SharedSchema, form: Form) -> "_Listed":
        features = schema.first.features
        texts = (text for each in schema.schemas for text in listed_texts(each.label, features, name))
        return cls({form(text): text for text in texts})

    def text(self, path: str, target: object, form: Form) -> str:
        """The schema's text for a target. Raises SchemaFieldError if it lists none."""
        if not isinstance(target, str | int | float):
            raise SchemaFieldError(path, f"{target!r} is not a text; put it in quotation marks")
        text = value_text(target)
        if not text:
            return ""
        if not self.texts:
            if Day.of(text) is None:
                sentence = f'{text!r} is not a date; write one, as 2024-12-31, or "" for an empty cell'
                raise SchemaFieldError(path, sentence)
            return text
        if form(text) not in self.texts:
            hint = nearest(text, self.texts.values())
            sentence = f'{text!r} is not listed by the schema for this column; {hint}, or write "" for an empty cell'
            raise SchemaFieldError(path, sentence)
        return self.texts[form(text)]


def _cells(path: str, entries: object, listed: _Listed, form: Form) -> tuple[dict[str, str], dict[str, str]]:
    """The spellings and the schema's texts of entries, by the spellings' form. Raises SchemaFieldError."""
    if not isinstance(entries, dict):
        raise SchemaFieldError(path, 'is not a table; write { "table\'s spelling" = "schema\'s text" }')
    spelled: dict[str, str] = {}
    cells = {}
    for spelling, target in entries.items():
        key = form(spelling.strip(TRIMMED))
        if not key:
            raise SchemaFieldError(path, "has an empty spelling; the schema's policy for missing cells decides on them")
        if (other := spelled.setdefault(key, spelling)) != spelling:
            raise SchemaFieldError(path, f"{other!r} and {spelling!r} are the same text to the schema; remove one")
        cells[key] = listed.text(f"{path}.{spelling}", target, form)
    return spelled, cells


def _check_distinct(columns: Mapping[str, RecodedColumn], known: Mapping[str, Any]) -> None:
    """Raise SchemaFieldError if one column of the table stands for two of the schema."""
    stands: dict[str, str] = {}
    for name in known:
        own = columns[name].own if name in columns else name
        if (other := stands.setdefault(own, name)) != name:
            at = name if name in columns else other
            raise SchemaFieldError(
                f"columns.{at}.column",
                f"{own!r} stands for two columns of the schema, {other!r} and {name!r}; name another column, or copy "
                "it under another name",
            )
