"""A party's rows from a real PostgreSQL server: types, one snapshot, read-only, and what may go wrong."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.queries.gradient import GradientQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from parties.data.cluster_row_sums import ClusterRowSums
from parties.data.dataset import check, load
from radobase.logs import Log
from radobase.tables.database_source import DatabaseSource
from radobase.tables.tables import open_table
from tests.parties.data.test_databases import CLINIC, KEY, REFUSING, ROWS, as_parquet
from tests.parties.data.test_rows_elsewhere import SETTINGS, on_cluster
from tests.postgresql import PASSWORD, needs_postgresql
from tests.waiting import wait_until

pytestmark = [needs_postgresql, pytest.mark.more]
QUERY = "SELECT * FROM patients ORDER BY id;"
MANY = 150_000
OTHERS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def server(postgresql):
    cells = [", ".join("NULL" if cell is None else repr(cell) for cell in (*row, "Ada")) for row in ROWS]
    values = ", ".join(f"({row})" for row in cells)
    postgresql.execute(
        "CREATE TABLE patients (id text, age float8, dose float8, ill int2, full_name text)",
        f"INSERT INTO patients VALUES {values}",
        "CREATE TYPE mood AS ENUM ('well', 'ill')",
        "CREATE TABLE many AS SELECT i::text AS id, i % 90 AS age, 2 AS dose, i % 2 AS ill, repeat('x', 90) AS note "
        f"FROM generate_series(1, {MANY}) AS i",
        f"CREATE USER ada PASSWORD '{PASSWORD}'",
        "CREATE FUNCTION deleting() RETURNS SETOF patients LANGUAGE sql AS 'DELETE FROM patients RETURNING *'",
    )
    return postgresql


@pytest.fixture
def source(server):
    def made(query=QUERY, **options):
        return DatabaseSource.of(server.address(**options), query)

    return made


def test_a_server_gives_the_records_and_ids_of_a_file(tmp_path, source):
    expected = load(as_parquet(tmp_path / "rows.parquet", ROWS), CLINIC, row_key=KEY, id_column="id")
    found = load(source(), CLINIC, row_key=KEY, id_column="id")
    assert found.records.digest == expected.records.digest
    assert found.numbers.by_id.tolist() == expected.numbers.by_id.tolist()
    assert check(CLINIC, source(), id_column="id").rows == 4


@pytest.mark.variants(4)
@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        ("12.50::numeric", 12.5, "12.50"),
        ("NULL::numeric", None, None),
        ("3.40::money", 3.4, "3.40"),
        ("true", True, True),
        ("7::int2", 7, 7),
        ("0.1::float8", 0.1, 0.1),
        ("'well'::mood", "well", "well"),
        ("'w'::char(3)", "w  ", "w  "),
        ("'{}'::json", "{}", "{}"),
        ("'1 day'::interval", "1 day", "1 day"),
        ("'10.0.0.1'::inet", "10.0.0.1/32", "10.0.0.1/32"),
        ("'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid", *["6ba7b810-9dad-11d1-80b4-00c04fd430c8"] * 2),
    ],
)
def test_each_type_comes_as_a_number_or_a_text(source, value, number, text):
    """Money is a count of cents in PostgreSQL's own binary form, and numeric a text."""
    table = open_table(source(f"SELECT {value} AS \"a 'b'\""))
    for expected, numbers in ((number, table.columns), (text, ())):
        [batch] = table.batches(table.columns, numbers=numbers)
        assert batch.column(0).to_pylist() == [expected]


@pytest.mark.parametrize("value", ["ARRAY[1]", "'a'::bytea"])
def test_a_type_that_is_no_number_is_refused(source, value):
    with pytest.raises(DataError, match=r"column 'age': the column is of type .*; convert it"):
        load(source(f"SELECT id, {value} AS age, dose, ill FROM patients"), CLINIC)


def test_rows_and_ids_are_of_one_snapshot(server, source):
    """Another transaction commits between two of the batches."""
    server.execute("CREATE TABLE moving AS SELECT * FROM many")
    batches = open_table(source("SELECT * FROM moving")).batches(["id", "ill", "note"])
    rows = next(batches).num_rows
    assert rows < MANY // 2
    server.execute("DELETE FROM moving WHERE id::int % 2 = 0", "INSERT INTO moving SELECT * FROM many")
    assert rows + sum(batch.num_rows for batch in batches) == MANY
    assert server.value("SELECT count(*) FROM moving") == MANY + MANY // 2


def test_the_transaction_is_read_only_and_repeatable(source):
    settings = ("transaction_isolation", "transaction_read_only", "synchronize_seqscans")
    table = open_table(source("SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in settings)))
    [batch] = table.batches(settings)
    assert batch.to_pylist() == [dict(zip(settings, ("repeatable read", "on", "off"), strict=True))]


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM deleting()", "the query writes, and the session is read-only"),
        ("DELETE FROM patients RETURNING *", "refuses the query"),
        ("WITH gone AS (DELETE FROM patients RETURNING *) SELECT * FROM gone", "refuses the query"),
        ("SELECT 1) AS q; DELETE FROM patients; SELECT * FROM (SELECT 1", "refuses the query"),
    ],
)
def test_a_query_that_writes_is_refused(server, source, query, says):
    with pytest.raises(DataError, match=says):
        load(source(query), CLINIC)
    assert server.value("SELECT count(*) FROM patients") == len(ROWS)


def test_only_the_wanted_columns_leave_the_database(server, source):
    """A column that is not wanted is not even computed."""
    query = "SELECT *, 1 / (ill - ill) AS broken FROM patients ORDER BY id"
    assert load(source(query), CLINIC).records.rows == 4
    with pytest.raises(DataError, match="SQLSTATE 22012"):
        list(open_table(source(query)).batches(["broken"]))


@pytest.mark.variants(3)
@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM patients WHERE age > 1000", "the query returns no row"),
        ("SELECT * FROM patient", 'relation "patient" does not exist'),
        ("SELECT id, age AS aged, dose, ill FROM patients", "no such column, but there is 'aged'"),
        ("SELECT *, age FROM patients", "columns 2 and 6 have the same header"),
        ("SELECT id, 'secret' AS age, dose, ill FROM patients", "row 1, column 'age': is not a finite number"),
        ("SELECT id, full_name::int AS age, dose, ill FROM patients", "SQLSTATE 22P02"),
    ],
)
def test_errors_name_what_to_correct_and_quote_no_cell(source, query, says):
    with pytest.raises(DataError, match=says) as caught:
        load(source(query), REFUSING, row_key=KEY, id_column="id")
    assert str(caught.value).startswith("postgresql://127.0.0.1:")
    assert "Ada" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_rows_that_are_not_read_to_the_end_leave_no_connection(server, source):
    load(source("SELECT id, age, dose, CASE id WHEN '5' THEN 9 ELSE ill END AS ill FROM many LIMIT 4"), CLINIC)
    with pytest.raises(DataError, match="row 5, column 'ill'"):
        load(source("SELECT id, age, dose, CASE id WHEN '5' THEN 9 ELSE ill END AS ill FROM many"), CLINIC)
    wait_until(lambda: server.value(f"SELECT count(*) {OTHERS} AND state <> 'idle'") == 0, what="the server")


def test_who_stops_reading_does_not_wait_for_the_next_rows(server, source, monkeypatch):
    """They are fetched ahead. The query would take hours more."""
    rows = f"FROM generate_series(1, {2 * MANY}) AS i WHERE i < {2 * MANY} OR pg_sleep(10000) IS NOT NULL"
    table = open_table(source(f"SELECT i::float8 AS age, 2 AS dose {rows}"))
    batches = table.batches(table.columns, numbers=table.columns)
    next(batches)
    batches.close()

    def refuse(_):
        raise table.error("is refused")

    monkeypatch.setattr(table, "_check", refuse)
    with pytest.raises(DataError, match="is refused"):
        next(table.batches(table.columns, numbers=table.columns))
    wait_until(lambda: server.value(f"SELECT count(*) {OTHERS} AND wait_event = 'PgSleep'") == 0, what="the server")


def test_a_server_that_goes_away_is_an_error(server, source):
    batches = open_table(source("SELECT *, pg_sleep(0) FROM many AS a, generate_series(1, 9)")).batches(["id", "note"])
    next(batches)
    assert server.value(f"SELECT pg_terminate_backend(pid) {OTHERS} AND query LIKE 'COPY%'")
    with pytest.raises(DataError, match="the connection was lost while rows were read; check the database"):
        for _ in batches:
            pass


def test_a_cancelled_query_is_an_error(server, source):
    """An administrator does what the server does when a user's statement_timeout is over."""
    batches = open_table(source("SELECT id FROM many, generate_series(1, 100)")).batches(["id"])
    next(batches)
    assert server.value(f"SELECT pg_cancel_backend(pid) {OTHERS} AND query LIKE 'COPY%'")
    with pytest.raises(DataError, match=r"the server cancelled the query .*57014.*; raise that limit"):
        list(batches)


@pytest.mark.parametrize("way", ["environment", "file"])
def test_a_password_comes_from_the_environment_or_a_private_file(server, source, monkeypatch, tmp_path, way):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    server.execute("GRANT SELECT ON patients TO ada")
    file = tmp_path / "p&ss"
    right, wrong = (
        "*:*:*:ada:" + password.replace("\\", "\\\\").replace(":", "\\:") for password in (PASSWORD, "wrong")
    )

    def use(line):
        if way == "environment":
            monkeypatch.setenv("PGPASSWORD", line.removeprefix("*:*:*:ada:").replace("\\:", ":"))
            return DatabaseSource.of(server.address("ada"), QUERY)
        file.write_text(line + "\n")
        file.chmod(0o600)
        return DatabaseSource.of(server.address("ada"), QUERY, password_file=file)

    assert check(CLINIC, use(right)).rows == 4
    with pytest.raises(DataError, match=r'cannot connect .*password authentication failed for user "ada"') as caught:
        check(CLINIC, use(wrong))
    assert "wrong" not in str(caught.value)


def test_a_password_file_that_others_can_read_is_refused(server, tmp_path):
    file = tmp_path / "passwords"
    file.write_text(f"*:*:*:ada:{PASSWORD}\n")
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match=r"can read or change the password .* chmod 600") as caught:
        check(CLINIC, DatabaseSource.of(server.address("ada"), QUERY, password_file=file))
    assert PASSWORD not in str(caught.value)
    with pytest.raises(ConfigurationError, match="give a password_file"):
        check(CLINIC, DatabaseSource.of(server.address("ada"), QUERY, password_file=tmp_path / "absent"))


@pytest.mark.parametrize(("database", "says"), [("absent", 'database "absent" does not exist')])
def test_what_cannot_be_connected_is_named(source, database, says):
    with pytest.raises(DataError, match=f"cannot connect .*{says}"):
        check(CLINIC, source(database=database))
    with pytest.raises(DataError, match=r"cannot connect .*refused"):
        check(CLINIC, DatabaseSource.of("postgresql://127.0.0.1:1/x", QUERY))


def test_rows_from_another_machine_are_not_read_without_encryption(server):
    """0.0.0.0 is this machine too, but no loopback address. The server has no certificate."""
    address = server.address().replace("127.0.0.1", "0.0.0.0")
    with pytest.raises(DataError, match=r"SSL|root certificate"):
        check(CLINIC, DatabaseSource.of(address, QUERY))
    assert check(CLINIC, DatabaseSource.of(address + "?sslmode=disable", QUERY)).rows == 4


def test_a_batch_is_small(source):
    sizes = [batch.nbytes for batch in open_table(source("TABLE many")).batches(["id", "note"])]
    assert len(sizes) > 3
    assert max(sizes) < 8 << 20


def test_workers_read_ranges_of_a_key(source):
    """In two parts, each in a session of its own; in the key's order, also on one machine."""
    query = "SELECT id::int8 AS number, id, age, dose, ill FROM many ORDER BY age"
    by_key = replace(source(query), key="number")
    alone = load(by_key, CLINIC, row_key=KEY, id_column="id")
    found = load(by_key, CLINIC, row_key=KEY, id_column="id", place=on_cluster())
    assert found.report == alone.report
    assert [each.rows for each in found.records.features.table.ranges] == [1 << 17, MANY - (1 << 17)]
    assert alone.report.digest != load(source(query), CLINIC, row_key=KEY, id_column="id").report.digest
    query = GradientQuery("logistic", (1 << 20,) * CLINIC.d, Fraction(1), 3)
    sums = ClusterRowSums(SETTINGS, Log("party"))
    summed = query.contribution(found.records, 10, Computation(SeededRandom(3), row_sums=sums))
    np.testing.assert_array_equal(summed, query.contribution(alone.records, 10, Computation(SeededRandom(3))))
