"""Exact integer sums of predicates' values over records. They do not depend on how the rows are divided."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.blocks import WORD_ROWS, Block
from dpcore.predicates.checking import check
from dpcore.predicates.expressions import Predicate
from dpcore.predicates.program import Program, compiled
from dpcore.progress import Progress
from dpcore.records.records import Records
from dpcore.records.schema import Schema

#: Rows of a block: many enough that NumPy's work outweighs the interpreter's, few enough that a column stays in cache.
MOST_ROWS = 1 << 16
_LEAST_ROWS = WORD_ROWS
#: Bits of a stored coordinate.
_COLUMN_BITS = 32
#: The most bits for the columns and results of one block, if that leaves blocks of _LEAST_ROWS.
_BLOCK_BITS = 1 << 29


def sums(
    predicates: Sequence[Predicate],
    schema: Schema,
    records: Records,
    fraction_bits: int,
    progress: Progress | None = None,
) -> NDArray[np.int64]:
    """For each predicate, the sum of floor(value 2^f) over the records: exact int64 (M,), in units of 2^-fraction_bits.

    Boolean values are 0 or 2^f, and a row that is not usable gives 0. If the records have a feature map, forms are of
    its coordinates (dpcore.predicates.forms). progress: callback (rows done, rows). Uses one thread.

    Raises PredicateError as `check` does, before anything is evaluated; ShapeError if the records do not have the
    schema's coordinates; PlanError if fraction_bits is not in 0..30.
    """
    program = _program(predicates, schema, records, fraction_bits)
    size = block_rows(program, _mapped(records))
    total = np.zeros(len(predicates), dtype=np.int64)
    for first in range(0, records.rows, size):
        block = Block(records, first, size, program.columns, fraction_bits)
        for numbers, result in program.run(block):
            total[numbers] += block.total(result)
        if progress is not None:
            progress(min(first + size, records.rows), records.rows)
    return total


def values(predicates: Sequence[Predicate], schema: Schema, records: Records, fraction_bits: int) -> NDArray[np.int64]:
    """floor(value 2^f) of every predicate for every record, 0 if the record is not usable: int64 (m, M).

    For tests and small tables: it takes 8 m M bytes. Raises the same errors as `sums`.
    """
    program = _program(predicates, schema, records, fraction_bits)
    found = np.zeros((records.rows, len(predicates)), dtype=np.int64)
    size = block_rows(program, _mapped(records))
    for first in range(0, records.rows, size):
        block = Block(records, first, size, program.columns, fraction_bits)
        for numbers, result in program.run(block):
            found[block.part, numbers] = block.each(result)[:, np.newaxis]
    return found


def block_rows(program: Program, mapped: int = 0) -> int:
    """Rows of a block: fewer if many results or columns are kept at once, so that memory stays bounded.

    mapped: the coordinates of a feature map, all of which are computed.
    """
    columns = _COLUMN_BITS * (len(program.columns) + mapped)
    # While the columns are transposed there are two copies of them, and no results yet.
    bits = columns + max(columns, program.row_bits)
    fitting = _BLOCK_BITS // bits // WORD_ROWS * WORD_ROWS
    return max(_LEAST_ROWS, min(MOST_ROWS, fitting))


def _program(predicates: Sequence[Predicate], schema: Schema, records: Records, fraction_bits: int) -> Program:
    check(predicates, schema, records.feature_map)
    width = records.features.shape[1]
    if width != schema.d:
        raise ShapeError(f"records have {width} coordinates and the schema {schema.d}: encode them by this schema")
    if not 0 <= fraction_bits <= STORED_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: choose 0 to {STORED_FRACTION_BITS}")
    return compiled(predicates, schema, records.feature_map)


def _mapped(records: Records) -> int:
    return 0 if records.feature_map is None else records.feature_map.d
