"""Exact integer sums of predicates' values over records. They do not depend on how the rows are divided."""

import json
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.numbers.progress import Progress
from dpcore.predicates.bits import WORD_ROWS
from dpcore.predicates.block import Block
from dpcore.predicates.expressions import (
    MOST_DEPTH,
    Above,
    AtLeast,
    Clipped,
    CountGain,
    CountShare,
    Equals,
    Flag,
    FormCoordinates,
    LabelAbove,
    LabelAtLeast,
    LabelClass,
    LabelError,
    LabelExposure,
    LabelIs,
    LabelShare,
    LabelTest,
    NonNegative,
    Predicate,
    PredicateError,
)
from dpcore.predicates.program import Program, compiled
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Classes, Comparison, EventTime, Label, Target, nearest, value_text
from dpcore.records.records import Records
from dpcore.records.schema import Schema

# Checks of a batch of predicates before evaluation: its size, its depth, and its types under the schema.


__all__ = ["MOST_DEPTH", "MOST_NODES", "MOST_PREDICATES", "check"]

MOST_NODES = 1 << 17
"""The most distinct nodes of a batch, and of one predicate with shared nodes counted each time, which bounds work and
text. n parts count as max(1, n - 1), n weights as max(1, n)."""

MOST_PREDICATES = 1 << 16


def check(predicates: Sequence[Predicate], schema: Schema, feature_map: FeatureMap | None = None) -> None:
    """Check, before any evaluation, that `predicates` can be evaluated on records of the schema.

    feature_map: what records are mapped by, so that forms are of its coordinates (dpcore.predicates.expressions).

    Raises PredicateError if

    - there are none, more than MOST_PREDICATES, or two that are the same;
    - the batch has more than MOST_NODES nodes, or one predicate has, with shared nodes counted at each occurrence;
    - the schema lacks a feature, coordinate or value, or a feature or the label has another type.

    No predicate is deeper than MOST_DEPTH: construction ensures that. Time: linear in the distinct nodes.
    """
    if not predicates:
        raise PredicateError("there are no predicates: give at least one")
    if len(predicates) > MOST_PREDICATES:
        raise PredicateError(f"there are {len(predicates)} predicates: give at most {MOST_PREDICATES} in a batch")
    nodes = _Nodes()
    places: dict[int, int] = {}
    for number, predicate in enumerate(predicates, start=1):
        first = places.setdefault(nodes.place(predicate), number)
        if first != number:
            raise PredicateError(f"predicates {first} and {number} are the same: remove one of them")
    types = _Types(schema, feature_map)
    for atom in (*nodes.atoms, *nodes.written.values()):
        types.check(atom)


class _Nodes:
    """The distinct nodes of a batch. Visits each shared node once."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._places: dict[object, int] = {}
        self._trees: list[int] = []
        self._size = 0
        self.atoms: list[Predicate] = []
        self.written: dict[str, Predicate] = {}
        """Atoms by what they ask of the label in words that only some labels have: they may equal others without."""

    def place(self, predicate: Predicate) -> int:
        """The number of a predicate's structure, the same for equal predicates. Raises PredicateError if too large."""
        if id(predicate) in self._known:
            return self._known[id(predicate)]
        if not isinstance(predicate, Predicate):
            raise PredicateError(f"{type(predicate).__name__} is not a predicate: compare it, or join it using & and |")
        if written := getattr(predicate, "written", ""):
            self.written.setdefault(written, predicate)
        parts = tuple(self.place(part) for part in predicate.children())
        # Parts by number: comparing two trees node by node takes exponential time if they share many parts.
        key = (type(predicate), parts) if parts else predicate
        if key not in self._places:
            self._places[key] = len(self._places)
            self._size += _size(predicate)
            self._trees.append(1 + sum(self._trees[part] for part in parts))
            if self._size > MOST_NODES:
                raise PredicateError(f"the predicates have more than {MOST_NODES} nodes and weights: give fewer")
            if self._trees[-1] > MOST_NODES:
                raise PredicateError(
                    f"a predicate has more than {MOST_NODES} nodes when shared ones count each time: make it smaller"
                )
            if not parts:
                self.atoms.append(predicate)
        place = self._known[id(predicate)] = self._places[key]
        return place


def _size(predicate: Predicate) -> int:
    if isinstance(predicate, NonNegative | Clipped | CountGain | LabelError):
        return max(1, len(predicate.form.weights))
    return max(1, len(predicate.children()) - 1)


class _Types:
    """Checks the atoms of a batch against a schema and a map."""

    def __init__(self, schema: Schema, feature_map: FeatureMap | None) -> None:
        self._schema = schema
        self._coordinates = FormCoordinates(schema, feature_map)
        self._features = {group.name: group for group in schema.groups}
        # Sets make the lookups fast: a category may have many values, and many predicates may each name one.
        self._numbers = {group.name: group for group in schema.numbers}
        self._values = {feature.name: frozenset(feature.values) for feature in schema.categories}

    def check(self, atom: Predicate) -> None:
        """Raise PredicateError if the schema lacks what the atom names or gives it another type."""
        match atom:
            case Flag(name):
                self._check_comparison(name, "flag")
            case Equals(name, value):
                self._check_comparison(name, "value")
                if value not in self._values[name]:
                    raise PredicateError(
                        f"feature {name!r} lists no value {value!r}; {nearest(value, self._values[name])}"
                    )
            case AtLeast(name, bound) | Above(name, bound):
                self._check_comparison(name, "number")
                try:
                    self._numbers[name].number(bound)
                except TypeError:
                    raise PredicateError(f"{name!r} is {self._numbers[name].comparison_words}") from None
            case LabelIs() | LabelClass() | LabelAtLeast() | LabelAbove() | LabelShare():
                self._check_label(atom)
                for name, _ in atom.form.weights if isinstance(atom, CountGain | LabelError) else ():
                    self._coordinates.place(name)
            case NonNegative(form) | Clipped(form):
                for name, _ in form.weights:
                    self._coordinates.place(name)
            case _:
                pass

    def _check_label(self, atom: LabelTest) -> None:
        label = self._schema.label
        if isinstance(label, EventTime):
            self._check_event_time(label, atom)
            return
        asked = {LabelIs: "signs", LabelClass: "classes"}.get(type(atom), "measured")
        written = atom.written if isinstance(atom, LabelIs | LabelAtLeast | LabelAbove) else ""
        if written or asked != ("measured" if label.coding.is_measured else label.coding.kind):
            verb = "is" if label.coding.is_measured else "has"
            sentence = f"the label {label.column!r} {verb} {label.words}{_way(label)}"
            raise PredicateError(f"{written} is of a time to an event, and {sentence}" if written else sentence)
        if isinstance(atom, CountShare | LabelExposure) and label.coding.kind != "count":
            raise PredicateError(
                f"the label {label.column!r} is {label.words}: only a count has a rate and an exposure"
            )
        if isinstance(atom, CountShare) and atom.most > label.coding.size:
            raise PredicateError(f"{label.column!r} is at most {label.coding.size}: give a bound up to that")
        if isinstance(atom, LabelExposure) and not label.coding.has_exposure:
            raise PredicateError(f"the count {label.column!r} has no exposure: leave y.exposure out")
        if isinstance(atom, LabelClass) and isinstance(label, Classes) and atom.value not in label.places:
            raise PredicateError(f"the label lists no class {atom.value!r}; {nearest(atom.value, label.values)}")

    def _check_event_time(self, label: EventTime, atom: LabelTest) -> None:
        if isinstance(atom, LabelIs) or (isinstance(atom, LabelAbove) and atom.bound in map(Fraction, label.borders)):
            return
        ends = ", ".join(map(value_text, label.borders))
        raise PredicateError(
            f"the label {label.column!r} is {label.words}: write y.event, or compare y.time by > or <= with the end "
            f"of an interval: {ends}"
        )

    def _check_comparison(self, name: str, comparison: Comparison) -> None:
        if name not in self._features:
            if name in self._schema.label.columns:
                raise PredicateError(f"{name!r} is a column of the label, which predicates call y, and no feature")
            known = nearest(name, self._features)
            raise PredicateError(f"schema {self._schema.name!r} has no feature {name!r}; {known}")
        feature = self._features[name]
        if feature.comparison != comparison:
            raise PredicateError(f"{name!r} is {feature.comparison_words}")


def _way(label: Target) -> str:
    """How predicates compare a label that is no time to an event."""
    match label:
        case Label():
            return f": compare y with 1 or -1, where 1 is {label.names[1]!r}"
        case Classes(values=(first, *_)):
            return f", and no sign or number: write y == and one text, such as y == {json.dumps(first)}"
        case _:
            return ": compare y with a number using >=, >, < or <="


#: Rows of a block: many enough that NumPy's work outweighs the interpreter's, few enough that results stay in cache.
MOST_ROWS = 1 << 17
_LEAST_ROWS = WORD_ROWS
#: Bits of a stored coordinate.
_COLUMN_BITS = 32
#: The most bits for the coordinates and results of one block, if that leaves blocks of _LEAST_ROWS.
_BLOCK_BITS = 1 << 29


def sums(
    predicates: Sequence[Predicate],
    schema: Schema,
    records: Records,
    fraction_bits: int,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """For each predicate, the sum of floor(value 2^f) over the records: exact int64 (M,), in units of 2^-fraction_bits.

    A row that is not usable gives 0. Forms are of the coordinates of the records' feature map. progress: callback (rows
    done, rows). Raises PredicateError as `check`, before anything is evaluated; ShapeError; PlanError if fraction_bits
    is not in 0..30.
    """
    program = _program(predicates, schema, records, fraction_bits)
    size = block_rows(program)
    totals = [0] * len(predicates)
    for first in range(0, records.rows, size):
        block = Block(records, first, size, program.coordinates, fraction_bits)
        for numbers, result in program.run(block):
            total = block.total(result)
            for number in numbers:
                totals[number] += total
        if progress is not None:
            progress(min(first + size, records.rows), records.rows)
    return np.array(totals, dtype=np.int64)


def values(predicates: Sequence[Predicate], schema: Schema, records: Records, fraction_bits: int) -> NDArray[np.int64]:
    """floor(value 2^f) of every predicate for every record: int64 (m, M), 8 m M bytes. Raises as `sums`."""
    program = _program(predicates, schema, records, fraction_bits, by_row=True)
    found = np.zeros((records.rows, len(predicates)), dtype=np.int64)
    size = block_rows(program)
    for first in range(0, records.rows, size):
        block = Block(records, first, size, program.coordinates, fraction_bits)
        for numbers, result in program.run(block):
            assert not isinstance(result, int), "each row's results are asked for"
            found[block.part, numbers] = block.each(result)[:, np.newaxis]
    return found


def block_rows(program: Program) -> int:
    """Rows of a block: fewer if many results or coordinates of forms are kept, to bound memory."""
    bits = _COLUMN_BITS * len(program.coordinates) + program.row_bits
    fitting = _BLOCK_BITS // max(1, bits) // WORD_ROWS * WORD_ROWS
    return max(_LEAST_ROWS, min(MOST_ROWS, fitting))


def _program(
    predicates: Sequence[Predicate], schema: Schema, records: Records, fraction_bits: int, *, by_row: bool = False
) -> Program:
    check(predicates, schema, records.feature_map)
    width = records.features.shape[1]
    if width != schema.d:
        raise ShapeError(f"records have {width} coordinates and the schema {schema.d}: encode them by this schema")
    if not 0 <= fraction_bits <= STORED_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: choose 0 to {STORED_FRACTION_BITS}")
    return compiled(predicates, schema, records.feature_map, by_row=by_row)
