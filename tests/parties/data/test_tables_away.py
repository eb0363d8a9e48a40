"""A table that is not there yet ends a start with exit code 2, so that the service manager starts the node again."""

import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE

import pytest

from radofed.cli.entry_point import run as rado
from tests.parties.check_world import replace_in
from tests.postgresql import PASSWORD, PostgreSqlServer, needs_postgresql

QUERY = "SELECT * FROM visits"
WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(offline, capsys):
    """Starts a node that cannot start. Returns its exit code and the error."""

    def started():
        capsys.readouterr()
        code = rado(["party", "start", "--config", str(offline.member("ada").config), "--format", "json"])
        return code, json.loads(capsys.readouterr().out)["error"]

    return started


@pytest.fixture
def ada(offline):
    return offline.directory("ada")


@pytest.fixture
def own_server():
    with tempfile.TemporaryDirectory(prefix="rado-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgreSqlServer(Path(directory))
        server.execute(f"CREATE USER ada PASSWORD '{PASSWORD}'")
        try:
            yield server
        finally:
            server.end()


@pytest.mark.more
@needs_postgresql
def test_a_database_that_is_down_or_starts_up(start, ada, own_server, monkeypatch):
    def asks(user, database="postgres"):
        text = (ada / "party.toml").read_text()
        old = next(line for line in text.splitlines() if line.startswith(("data = ", "source = ")))
        query = "" if f'query = "{QUERY}"' in text else f'\nquery = "{QUERY}"'
        replace_in(ada / "party.toml", old, f'source = "{own_server.address(user, database)}"{query}')

    # A person has to correct these: no such table, database, password.
    asks("postgres")
    assert start()[0] == 4
    asks("postgres", "nowhere")
    assert start()[0] == 4
    asks("ada")
    monkeypatch.setenv("PGPASSWORD", "wrong")
    assert start()[0] == 4
    monkeypatch.delenv("PGPASSWORD")
    asks("postgres")
    own_server.configure("ALTER SYSTEM SET hot_standby = off")
    own_server.end()
    code, error = start()
    assert (code, error["code"]) == (2, "DATA_AWAY")
    assert "cannot connect (Connection refused" in error["message"]
    # A standby without a primary stays where a server is that replays its log.
    own_server.write("standby.signal", b"")
    own_server.begin(wait=False)
    for _ in range(3):
        code, error = start()
        assert (code, error["code"]) == (2, "DATA_AWAY")


def test_a_mount_that_is_late(start, ada):
    (ada / "data.csv").rename(ada / "later.csv")
    code, error = start()
    assert (code, error["code"]) == (2, "DATA_AWAY")
    assert "data.csv: cannot be read (no such file or directory)" in error["message"]
    # The directory below a mount, for a table of Parquet files.
    (ada / "rows").mkdir()
    replace_in(ada / "party.toml", 'data = "data.csv"', 'data = "rows"')
    assert start()[0] == 2
    (ada / "rows" / "notes.txt").write_text("not a table")
    assert start()[0] == 4


def test_a_database_file_that_is_away_or_locked(start, ada):
    replace_in(ada / "party.toml", 'data = "data.csv"', f'source = "sqlite:rows.db"\nquery = "{QUERY}"')
    assert start()[0] == 2
    with sqlite3.connect(ada / "rows.db") as made:
        made.execute("CREATE TABLE visits (age INTEGER)")
    # Of another process: a process's own locks do not keep it out.
    with subprocess.Popen([sys.executable, "-c", WRITER, ada / "rows.db"], stdin=PIPE, stdout=PIPE) as writer:
        assert writer.stdout.readline() == b"locked\n"
        assert start()[0] == 2
        writer.stdin.close()
    assert start()[0] == 4


@pytest.mark.parametrize("content", ["", "age,smoker,stayed\n", "years,smoker,stayed\n50,yes,yes\n"])
def test_a_table_that_a_person_must_correct(start, ada, content):
    (ada / "data.csv").write_text(content)
    assert start()[0] == 4
