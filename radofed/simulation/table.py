"""The table of a simulation, read through a schema like a party's, all rows at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.changed_cells import why_unusable
from dpcore.records.encoding import Texts, WantedColumn
from dpcore.records.features import value_text
from dpcore.records.records import Records
from dpcore.records.schema import Feature, Schema
from dpcore.records.texts import stored_form
from parties.data.dataset import load
from parties.data.schema_draft import infer
from radobase.tables.tables import TableSource, open_table, read_blocks

NOT_PRIVATE = (
    "The schema was inferred from the whole table: bounds at the 0.5 % and 99.5 % quantiles, the texts that occur, "
    "missing cells imputed. This was not private, and no figure counts it; give a schema to avoid it."
)


@dataclass(frozen=True, eq=False)
class SimulationTable:
    """Rows as a schema encodes them."""

    schema: Schema
    records: Records
    groups: NDArray[np.int64] | None
    """(m,), the code of each row's text in the column that divides the parties, None if there is none."""
    notes: tuple[str, ...]
    """Sentences about how the table was read."""
    unusable: str | None = None
    """A clause on why rows are not usable; None if all are."""


def read_table(
    source: TableSource,
    *,
    label: str | None,
    positive: str | Sequence[str] | None,
    schema: Schema | None,
    group_column: str | None,
) -> SimulationTable:
    """Read a table, through `schema` or one inferred from the table.

    label, positive: the label's column and its positive texts, or one; required without a schema, otherwise None or the
    schema's. group_column: the column that divides the parties; an inferred schema makes no feature of it. Raises
    ConfigurationError, SchemaError or DataError, also if no row is usable.
    """
    label, positive = _texts_of_label(label, positive)
    groups = None if group_column is None else _groups(source, group_column)
    notes: list[str] = []
    if schema is None:
        if label is None or not positive:
            raise ConfigurationError("give the label's column and its positive values, or a schema")
        schema, notes = inferred_schema(source, label, positive, left_out=group_column)
    else:
        _check_label(schema, label, positive)
    data = load(source, schema)
    usable = int(data.records.usable.sum())
    why = why_unusable(data.report.changes, rows=data.report.rows, usable=usable)
    if not usable:
        raise DataError(f"{why}; correct the table or the schema", file=data.report.file)
    return SimulationTable(schema, data.records, groups, (*notes, *data.report.warnings), why)


def inferred_schema(
    source: TableSource, label: str, positive: Sequence[str], *, left_out: str | None = None
) -> tuple[Schema, list[str]]:
    """A schema drafted from a table, and notes about it. left_out: a column that must not be a feature.

    It is the draft of `rado schema infer`. Raises DataError or ConfigurationError.
    """
    draft, notes = infer(source, label, positive, left_out=left_out)
    # Leave out the draft's first note and those about missing cells: they ask the reader to correct the draft.
    kept = [note for note in notes[1:] if " missing cells (" not in note]
    said = [NOT_PRIVATE, *kept, *_imputed(draft.features)]
    if left_out is not None:
        said.append(f"{left_out!r} divides the rows among parties and is not a feature.")
    return draft, said


def _imputed(features: Sequence[Feature]) -> list[str]:
    """A sentence on the values imputed for missing cells, if there are any."""
    parts = [f"{feature.imputed_text} in {feature.column!r}" for feature in features if feature.impute is not None]
    return [f"Missing cells are imputed: {', '.join(parts)}."] if parts else []


def _texts_of_label(label: Any, positive: Any) -> tuple[str | None, tuple[str, ...] | None]:
    """The label's column and its positive texts. Raises ConfigurationError for what is no text."""
    if label is not None:
        _check_text("label", label)
    if positive is None:
        return label, None
    values = tuple(positive) if isinstance(positive, Iterable) and not isinstance(positive, str) else (positive,)
    for value in values:
        _check_text("a positive value", value)
    return label, values


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        plain = value.item() if isinstance(value, np.generic) else value
        raise ConfigurationError(f'{what} is {value!r}: give a text, such as "{value_text(plain)}"')


def _check_label(schema: Schema, label: str | None, positive: Sequence[str] | None) -> None:
    if label is not None and label != schema.label.column:
        raise ConfigurationError(
            f"the label is {label!r} and the schema's is {schema.label.column!r}: leave the label or the schema out"
        )
    if positive and tuple(sorted(map(stored_form(schema.texts), positive))) != schema.label.positive:
        known = ", ".join(schema.label.positive)
        raise ConfigurationError(f"the schema's positive values are {known}: leave --positive out, or give the same")


def _groups(source: TableSource, column: str) -> NDArray[np.int64]:
    """A code for each row (m,), equal for equal texts of `column`; missing cells form one group."""
    wanted = WantedColumn(column, "texts")
    codes: dict[str, int] = {}
    parts = []
    for block in read_blocks(open_table(source), [wanted]):
        cells = block.cells[wanted]
        assert isinstance(cells, Texts)
        table = np.array([*(codes.setdefault(text, len(codes)) for text in cells.texts), -1], dtype=np.int64)
        parts.append(table[cells.codes])
    return np.concatenate(parts)
