"""Numbers that cross in one value, from a real PostgreSQL server: each bit of them as it is in the table."""

import re

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import DataError
from parties.data.dataset import load
from radobase.tables.database_source import DatabaseSource
from radobase.tables.databases import Column
from radobase.tables.postgresql import Packed, packed
from radobase.tables.tables import open_table
from tests.parties.data.test_databases import REFUSING
from tests.postgresql import needs_postgresql

pytestmark = [needs_postgresql, pytest.mark.more]
# Infinity - Infinity is the NaN whose sign bit is set, on x86.
NANS = ("'NaN'::float8", "-'NaN'::float8", "'Infinity'::float8 - 'Infinity'::float8")
HARD = {
    "float8": ["NULL", "0.1", "-0.0", "5e-324", "1.7976931348623157e308", "'-Infinity'", *NANS],
    "float4": ["NULL", "0.1", "-0.0", "1e-45", "3.4028235e38", "'Infinity'", "'NaN'", "-'NaN'::float4"],
    "int2": ["NULL", "0", "-32768", "32767"],
    "int4": ["NULL", "0", "-2147483648", "2147483647"],
    "int8": ["NULL", "0", "9007199254740993", "-9223372036854775808", "9223372036854775807"],
    "text": ["NULL", "'a'", "''"],
}
BITS = {"float": np.uint32, "double": np.uint64}


def columns_of(server, expressions, *, numbers):
    """The columns, read by the node; and by the driver alone, which packs nothing."""
    query = "SELECT " + ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(expressions))
    table = open_table(DatabaseSource.of(server.address(), query))
    [batch] = table.batches(table.columns, numbers=table.columns if numbers else ())
    with server.connection() as cursor:
        cursor.execute(query)
        return batch.columns, cursor.fetch_arrow_table().combine_chunks().columns


def same(found, expected):
    """Equal in every bit, except that NaNs are equal."""
    assert (found.type, found.is_null().to_pylist()) == (expected.type, expected.is_null().to_pylist())
    if (bits := BITS.get(str(found.type))) is None:
        assert found.to_pylist() == expected.combine_chunks().to_pylist()
        return
    mine, theirs = (array.drop_null().to_numpy(zero_copy_only=False) for array in (found, expected.combine_chunks()))
    assert np.isnan(mine).tolist() == np.isnan(theirs).tolist()
    assert mine[~np.isnan(mine)].view(bits).tolist() == theirs[~np.isnan(theirs)].view(bits).tolist()


@pytest.mark.variants(3)
@pytest.mark.parametrize("shift", range(9))
def test_every_bit_arrives(postgresql, shift):
    """Each hard value in each place of a group, beside others, and the columns in their order."""
    names = list(HARD)
    kinds = [names[place % 6] for place in range(11)]
    expressions = [f"({HARD[kind][(shift + place) % len(HARD[kind])]})::{kind}" for place, kind in enumerate(kinds)]
    for found, expected in zip(*columns_of(postgresql, expressions, numbers=False), strict=True):
        same(found, expected)
    for found, expected, kind in zip(*columns_of(postgresql, expressions, numbers=True), kinds, strict=True):
        if kind != "text":
            same(
                found.cast(pa.float64(), safe=False),
                pa.chunked_array([c.cast(pa.float64(), safe=False) for c in expected.chunks]),
            )


@pytest.mark.variants(3)
@pytest.mark.parametrize("count", range(1, 10))
def test_any_number_of_columns_arrives(postgresql, count):
    expressions = [f"CASE WHEN i % {place + 2} > 0 THEN i / {place + 1}::float8 END" for place in range(count)]
    rows = f"(SELECT {', '.join(f'{sql} AS c{place}' for place, sql in enumerate(expressions))} FROM "
    query = f"SELECT * FROM {rows} generate_series(1, 30) AS i) AS made"
    table = open_table(DatabaseSource.of(postgresql.address(), query))
    [batch] = table.batches(table.columns, numbers=table.columns)
    assert batch.to_pylist() == [
        {f"c{place}": i / (place + 1) if i % (place + 2) else None for place in range(count)} for i in range(1, 31)
    ]


@pytest.mark.variants(1)
@pytest.mark.parametrize("nan", NANS)
def test_a_nan_is_refused_and_not_taken_for_a_missing_cell(postgresql, nan):
    query = f"SELECT 0.1::float8 AS dose, {nan} AS age, 1 AS ill"
    with pytest.raises(DataError, match="row 1, column 'age': is not a finite number"):
        load(DatabaseSource.of(postgresql.address(), query), REFUSING)


def test_functions_of_the_same_name_change_nothing(postgresql):
    """An unqualified name would be looked up along the user's search path."""
    postgresql.execute(
        "CREATE SCHEMA shadow",
        "CREATE FUNCTION shadow.point(float8, float8) RETURNS pg_catalog.point LANGUAGE sql AS "
        "'SELECT pg_catalog.point(0, 0)'",
        "CREATE DOMAIN shadow.float8 AS int4",
        "ALTER ROLE postgres SET search_path = shadow, pg_catalog",
    )
    try:
        (first, second), _ = columns_of(postgresql, ["1.5::pg_catalog.float8", "2.5::pg_catalog.float8"], numbers=True)
    finally:
        postgresql.execute("ALTER ROLE postgres RESET search_path")
    assert (first.to_pylist(), second.to_pylist()) == ([1.5], [2.5])


def column(kind):
    return Column("q.x", pa.field("x", pa.int64(), metadata={"POSTGRESQL:type": kind}), is_number=True)


def test_only_numbers_are_packed_and_none_alone():
    group = packed([column("text"), column("int4"), column("bool"), column("numeric"), column("float4")])
    assert group.places == (1, 4)
    assert packed([column("text"), column("int4")]) is None


def test_a_wide_row_is_joined_in_pairs():
    """Joined one after another, the first of 1,000 columns would be copied 250 times."""
    expression = packed([column("float8")] * 1000).expression
    depth = deepest = 0
    for part in re.findall(r"byteacat\(|lseg_send\(|[()]", expression):
        depth += -1 if part == ")" else 1
        deepest = max(deepest, depth)
    assert expression.count("lseg_send") == 250
    assert deepest < 20


@pytest.mark.parametrize(
    "values", [pa.array([b"x" * 15]), pa.array([b"x" * 16, None]), pa.array([b"", b"x" * 32]), pa.array([1.5])]
)
def test_a_value_of_another_size_is_refused(values):
    with pytest.raises(pa.ArrowInvalid, match="not packed"):
        Packed((0, 1), (column("int4"),) * 2).unpack(values)


def test_a_slice_of_values_is_read_from_its_first():
    values = pa.array([np.array([row, row + 0.5], ">f8").tobytes() for row in range(5)], pa.binary())
    first, second = Packed((0, 1), (column("float8"),) * 2).unpack(values.slice(2, 2))
    assert (first.to_pylist(), second.to_pylist()) == ([2, 3], [2.5, 3.5])
