"""A party whose table is in a database: the preflight, the node and the draft of a schema read it."""

import sqlite3

import pytest

from parties.config import PartyConfig
from parties.data.dataset import load
from parties.node import PartyNode
from radofed.cli.entry_point import run as rado
from tests.parties.check_world import replace_in, run

QUERY = "SELECT * FROM rows"


@pytest.fixture
def with_database(offline):
    """The directory of a party whose rows are in SQLite, under ids."""
    directory = offline.directory("ada")
    header, *rows = [line.split(",") for line in (directory / "data.csv").read_text().splitlines()]
    database = sqlite3.connect(directory / "rows.db")
    database.execute(f"CREATE TABLE rows (own INTEGER, {', '.join(header)})")
    marks = ", ".join("?" * (1 + len(header)))
    database.executemany(f"INSERT INTO rows VALUES ({marks})", [(n, *row) for n, row in enumerate(rows)])
    database.commit()
    database.close()
    replace_in(directory / "party.toml", 'data = "data.csv"', f'source = "sqlite:rows.db"\nquery = "{QUERY}"')
    return directory


def add_ids(directory):
    replace_in(directory / "party.toml", 'source = "sqlite', 'id_column = "own"\nsource = "sqlite')


def test_the_preflight_reads_the_database_and_asks_for_ids(offline, with_database):
    found = run(offline)["data"]
    assert found.status == "advice"
    assert "rows.db: 3 rows" in found.detail
    assert "name an id_column" in found.fix
    ordered = "end the query with ORDER BY"
    assert ordered in found.fix
    replace_in(with_database / "party.toml", QUERY, f"{QUERY} order by own")
    assert run(offline)["data"].status == "ok"
    replace_in(with_database / "party.toml", " order by own", "")
    add_ids(with_database)
    assert run(offline)["data"].status == "ok"


def test_a_node_has_the_same_records_and_another_name_for_its_data(offline, with_database):
    config = PartyConfig.load(with_database / "party.toml")
    with PartyNode(config) as node:
        found = node._lifecycle._party
    expected = load(with_database / "data.csv", found.schema)
    assert found.records.digest == expected.records.digest
    assert found.numbers.key.source == "rows.db"


def test_a_schema_is_drafted_from_the_configuration_s_table(with_database, capsys):
    add_ids(with_database)
    to = with_database / "drafted.toml"
    assert rado(["schema", "infer", "--config", str(with_database / "party.toml"), "--output", str(to)]) == 0
    drafted = to.read_text()
    assert 'name = "records"' in drafted
    assert '"own"' not in drafted
    capsys.readouterr()
    for arguments in ([], ["data.csv", "--config", "party.toml"]):
        assert rado(["schema", "infer", *arguments]) == 4
        assert "name either a file, or a party's configuration by --config" in capsys.readouterr().err
