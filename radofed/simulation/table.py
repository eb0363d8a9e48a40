"""The table of a simulation, read through a schema like a party's, all rows at once."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.records.encoding import Texts, WantedColumn, why_unusable
from dpcore.records.features import LABEL_TYPES, Classes, EventTime, Label, nearest, two_classes, value_text
from dpcore.records.persons import earlier
from dpcore.records.records import Records
from dpcore.records.schema import Feature, Schema
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import stored_form
from parties.data.dataset import load
from parties.data.schema_draft import infer
from radobase.printing import amount
from radobase.tables.recoding import columns_of
from radobase.tables.tables import TableSource, numbers_of, open_table, read_blocks

NOT_PRIVATE = (
    "The schema was inferred from the whole table: bounds at the 0.5 % and 99.5 % quantiles, the texts that occur, "
    "missing cells imputed. This was not private, and no figure counts it; give a schema to avoid it."
)


_WEIGHTED = (
    "Weights count in moments and gradients. Test errors, and estimators on the pooled rows, count all rows alike."
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
    times: NDArray[np.float64] | None = None
    """(m,), the exact times, if the label is a time to an event, whose records keep intervals."""
    persons: "TablePersons | None" = None
    """Whose rows are; None if rows are the unit of privacy."""
    unusable: str | None = None
    """A clause on why rows are not usable; None if all are."""


def read_table(
    source: TableSource,
    *,
    label: str | None,
    positive: str | Sequence[str] | None,
    schema: Schema | SharedSchema | None,
    group_column: str | None,
    target: str | None = None,
    exposure: str | None = None,
    event: str | None = None,
    id_column: str | None = None,
    persons_may_repeat: int = 1,
) -> SimulationTable:
    """Read a table, through `schema` or one inferred from the table.

    label, positive: the label's column and its positive texts, or one; required without a schema, otherwise None or the
    schema's. Of a schema with several labels, label is the name of one.

    group_column: the column that divides the parties; an inferred schema makes no feature of it. target: the type of
    the label (`LABEL_TYPES`); None: the schema's, or two classes.

    id_column: names each row's person, who may be at so many parties; no column of the schema. Raises
    ConfigurationError, SchemaError or DataError, also if no row is usable.
    """
    label, positive = _texts_of_label(label, positive)
    _check_texts(target=target, exposure=exposure, event=event, id_column=id_column)
    if target is not None and target not in LABEL_TYPES:
        raise ConfigurationError(f"no type of label is called {target!r}; {nearest(target, LABEL_TYPES)}")
    groups = None if group_column is None else _groups(source, group_column)
    persons = None if id_column is None else TablePersons(ids_of(source, id_column), persons_may_repeat)
    notes: list[str] = []
    if schema is None:
        divided = {} if group_column is None else {group_column: "what divides the rows"}
        divided |= {} if id_column is None else {id_column: "the ids of persons"}
        asked = _asked_label(label, positive, target)
        schema, notes = inferred_schema(source, *asked, target=target, exposure=exposure, event=event, left_out=divided)
    else:
        if isinstance(schema, SharedSchema):
            # The name of one of several labels need not be a column.
            schema, label = (schema.about(label), None) if len(schema.labels) > 1 else (schema.first, label)
        _check_label(schema, label, positive, target)
        if id_column is not None and id_column in columns_of(schema, None):
            raise ConfigurationError(
                f"id_column {id_column!r} is a column of the schema: name a column of ids, which nothing is learned of"
            )
        _check_no_column(event, exposure)
    data = load(source, schema)
    usable = int(data.records.usable.sum())
    why = why_unusable(data.report.changes, rows=data.report.rows, usable=usable)
    if not usable:
        raise DataError(f"{why}; correct the table or the schema", file=data.report.file)
    if schema.weight is not None:
        notes = [*notes, _WEIGHTED]
    times = numbers_of(source, schema.label.column) if isinstance(schema.label, EventTime) else None
    return SimulationTable(schema, data.records, groups, (*notes, *data.report.warnings), times, persons, why)


def _asked_label(
    label: str | None, positive: Sequence[str] | None, target: str | None
) -> tuple[str, Sequence[str] | None]:
    """The label's column, and its positive values if it has two classes. Raises ConfigurationError."""
    if target == EventTime.type and label is not None:
        return label, positive
    if target not in (None, Label.type):
        if label is None or positive:
            raise ConfigurationError(f"for a target of {target} give the label's column, and no positive values")
        return label, None
    if label is None or not positive:
        raise ConfigurationError(
            "give the label's column and its positive values, or its target (classes for all of its values, number, "
            "count or event), or a schema"
        )
    return label, positive


def inferred_schema(
    source: TableSource,
    label: str,
    positive: Sequence[str] | None,
    *,
    target: str | None = None,
    exposure: str | None = None,
    event: str | None = None,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Schema, list[str]]:
    """A schema drafted from a table, and notes about it. positive: None for a label of all values of the column.

    target: the type of the label; None: two classes, or without positive values several. exposure, event: as of
    `parties.data.schema_draft.infer`. left_out: columns that must not be features, and
    what each of them holds, in words.

    It is the draft of `rado schema infer`. Raises DataError or ConfigurationError.
    """
    kind = target or (Label.type if positive else Classes.type)
    draft, notes = infer(source, label, positive, target=kind, exposure=exposure, event=event, left_out=left_out)
    # Leave out the draft's first note and those about missing cells: they ask the reader to correct the draft.
    kept = [note for note in notes[1:] if " missing cells (" not in note]
    said = [NOT_PRIVATE, *kept, *_imputed(draft.features)]
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
        example = f', such as "{value_text(plain)}"' if isinstance(plain, bool | int | float) else ""
        raise ConfigurationError(f"{what} is {value!r}: give a text{example}")


def _check_texts(**given: Any) -> None:
    for what, value in given.items():
        if value is not None:
            _check_text(what, value)


def _check_no_column(event: str | None, exposure: str | None) -> None:
    """Raise ConfigurationError for a second column of the label, which a schema names."""
    if event is not None:
        raise ConfigurationError("the schema names the column of the event: leave event or the schema out")
    if exposure is not None:
        raise ConfigurationError("the schema says what is counted over what: leave exposure or the schema out")


def _check_label(schema: Schema, label: str | None, positive: Sequence[str] | None, target: str | None) -> None:
    if target is not None and target != schema.label.type:
        raise ConfigurationError(
            f"the target is {target} and the schema's label is of {schema.label.words}: leave target or schema out"
        )
    if label is not None and label != schema.label.column:
        raise ConfigurationError(
            f"the label is {label!r} and the schema's is {schema.label.column!r}: leave the label or the schema out"
        )
    if not positive:
        return
    known_positive = two_classes(schema.label, "a positive value").positive
    if tuple(sorted(map(stored_form(schema.texts), positive))) != known_positive:
        known = ", ".join(known_positive)
        raise ConfigurationError(f"the schema's positive values are {known}: leave them out, or give the same")


def _groups(source: TableSource, column: str, codes: dict[str, int] | None = None) -> NDArray[np.int64]:
    """A code for each row (m,), equal for equal texts of `column`; missing cells form one group.

    codes: of texts of other tables, to which those of this one are added.
    """
    wanted = WantedColumn(column, "texts")
    codes = {} if codes is None else codes
    parts = []
    for block in read_blocks(open_table(source), [wanted]):
        cells = block.cells[wanted]
        assert isinstance(cells, Texts)
        table = np.array([*(codes.setdefault(text, len(codes)) for text in cells.texts), -1], dtype=np.int64)
        parts.append(table[cells.codes])
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TablePersons:
    """Whose the rows of a table are, and at how many parties a person may be."""

    codes: NDArray[np.int64]
    """(m,), of each row's person, from 0."""
    parties: int = 1

    @property
    def count(self) -> int:
        """The number of persons."""
        return int(self.codes.max()) + 1

    @property
    def terms(self) -> dict[str, Any]:
        """The options of every request."""
        return {"unit": "person", "persons_may_repeat": self.parties}

    @property
    def divided(self) -> NDArray[np.int64]:
        """(m,), equal for rows that stay at one party: a person's rows are dealt in turn to as many as it may be at."""
        return self.codes * self.parties + earlier(self.codes) % self.parties


def ids_of(source: TableSource, column: str, codes: dict[str, int] | None = None) -> NDArray[np.int64]:
    """Whose the rows are, by a column of ids: a code for each (m,). codes: see `_groups`.

    Raises DataError for a row without an id.
    """
    found = _groups(source, column, codes)
    if (missing := np.flatnonzero(found < 0)).size:
        sentence = f"{amount(missing.size, 'row')} without an id, so without a person: fill in ids, or leave these out"
        raise open_table(source).error(sentence, row=int(missing[0]), column=column)
    return found


# Partitions: how rows are divided among parties.

Indices = NDArray[np.int64]
Kind = Literal["iid", "size-skew", "label-skew", "by-column"]

# Shift of positive rows in the order of label-skew, in units of the range of the uniform positions.
LABEL_SHIFT = 0.5


@dataclass(frozen=True)
class Partition:
    """How rows are divided among parties.

    - iid: at random, equally.
    - size-skew: at random, the p-th party's share proportional to 1/p.
    - label-skew: equally, in the order of u + [row is positive]/2 for uniform u: the first parties have only the
      negative class, the last only the positive one. Of k classes the c-th, from 0, counts c / (k - 1), of numbers and
      counts the place between the bounds.
    - by-column: rows with the same text in `column` stay together; if there are more texts than parties, the
      next-largest group goes to the party with the fewest rows so far.

    Raises ConfigurationError if kind and column do not match.
    """

    kind: Kind
    column: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            known = (*get_args(Kind)[:-1], "by-column:NAME")
            raise ConfigurationError(f"no partition is called {self.kind!r}; {nearest(self.kind, known)}")
        if (self.kind == "by-column") != bool(self.column):
            raise ConfigurationError("a partition by column names its column: write by-column:NAME")

    @classmethod
    def parse(cls, text: str) -> "Partition":
        """Parse `iid`, `size-skew`, `label-skew` or `by-column:NAME`."""
        _check_text("partition", text)
        kind, mark, column = text.partition(":")
        if mark and kind != "by-column":
            raise ConfigurationError(f"partition {text!r}: only by-column takes a name; leave the name out")
        return cls(kind, column or None)  # type: ignore[arg-type]  # __post_init__ refuses any other word

    def __str__(self) -> str:
        return self.kind if self.column is None else f"{self.kind}:{self.column}"

    def divide(
        self,
        parties: int,
        positive: NDArray[np.bool_] | NDArray[np.float64],
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> tuple[Indices, ...]:
        """The ascending row indices of each party, out of m rows; every party has at least one.

        positive: (m,), whether the row is of the positive class, as of `label_order`. groups: (m,), the row's group by
        column, None for
        other kinds. Raises ConfigurationError if there are more parties than rows, or than groups.
        """
        rows = len(positive)
        if parties > rows:
            raise ConfigurationError(f"{parties} parties and {rows} training rows: choose at most {rows} parties")
        if self.kind == "by-column":
            assert groups is not None, "a partition by column has groups"
            return _by_group(parties, groups, str(self.column))
        if self.kind == "label-skew":
            order = np.argsort(generator.random(rows) + LABEL_SHIFT * positive, kind="stable")
        else:
            order = generator.permutation(rows)
        sizes = _skewed_sizes(rows, parties) if self.kind == "size-skew" else _equal_sizes(rows, parties)
        return tuple(np.sort(part).astype(np.int64) for part in np.split(order, np.cumsum(sizes)[:-1]))


def label_order(records: Records) -> NDArray[np.float64]:
    """The place of each row's label in the order of label-skew, from 0 to 1: (m,)."""
    coding = records.coding
    if coding.has_value:
        return np.ldexp(coding.scaled(records.labels, STORED_FRACTION_BITS) / 2.0, -STORED_FRACTION_BITS) + 0.5
    if coding.classes:
        return records.labels / (coding.classes - 1.0)
    return (records.labels > 0).astype(np.float64)


def divided_rows(
    table: SimulationTable,
    chosen: Indices,
    partition: Partition,
    parties: int,
    generator: np.random.Generator,
) -> tuple[Indices, ...]:
    """The rows of each party among the chosen ones, as indices into the table; of persons, as the first row of each is.

    Raises ConfigurationError as `Partition.divide`.
    """
    groups = None if table.groups is None else table.groups[chosen]
    order = label_order(table.records)[chosen]
    if table.persons is None:
        return tuple(chosen[part] for part in partition.divide(parties, order, groups, generator))
    _, first, whose = np.unique(table.persons.divided[chosen], return_index=True, return_inverse=True)
    if len(first) < parties:
        raise ConfigurationError(f"{parties} parties and {amount(len(first), 'person')}: choose fewer parties")
    groups = None if groups is None else groups[first]
    divided = partition.divide(parties, order[first], groups, generator)
    return tuple(chosen[np.isin(whose, part)] for part in divided)


def _equal_sizes(rows: int, parties: int) -> Indices:
    return np.full(parties, rows // parties) + (np.arange(parties) < rows % parties)


def _skewed_sizes(rows: int, parties: int) -> Indices:
    """Sizes (parties,): one row each, the rest proportional to 1, 1/2, 1/3, ..., largest remainders rounded up."""
    shares = 1.0 / np.arange(1, parties + 1)
    exact = (rows - parties) * shares / shares.sum()
    sizes = np.floor(exact).astype(np.int64)
    left = rows - parties - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:left]] += 1
    return np.asarray(sizes + 1)


def _by_group(parties: int, groups: NDArray[np.int64], column: str) -> tuple[Indices, ...]:
    codes, sizes = np.unique(groups, return_counts=True)
    if len(codes) < parties:
        raise ConfigurationError(
            f"column {column!r} has {len(codes)} different texts in the training rows of a fold: choose at most "
            f"{len(codes)} parties"
        )
    loads = [(0, party) for party in range(parties)]
    held: list[list[int]] = [[] for _ in range(parties)]
    for place in np.argsort(-sizes, kind="stable"):
        load, party = heapq.heappop(loads)
        held[party].append(int(codes[place]))
        heapq.heappush(loads, (load + int(sizes[place]), party))
    return tuple(np.flatnonzero(np.isin(groups, mine)).astype(np.int64) for mine in held)


def party_names(parties: int) -> tuple[str, ...]:
    """The names of simulated parties, in the roster's order."""
    return tuple(f"party-{number:04d}" for number in range(1, parties + 1))
