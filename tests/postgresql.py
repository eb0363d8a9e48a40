"""A PostgreSQL server of its own for tests: a fresh cluster of databases, in a temporary directory and on loopback."""

import contextlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.federation.processes import free_port
from tests.waiting import HANG_S, wait_until

PASSWORD = "pass word/of:ada@clinic"


def _programs() -> Path | None:
    """The folder of the newest server's programs. Debian keeps them off the path."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


PROGRAMS = _programs()
needs_postgresql = pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL's server is not installed")


class PostgreSqlServer:
    """A running server. The user "ada" needs PASSWORD; "postgres" needs none."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._data = directory, directory / "data"
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(directory, pwd.getpwnam(self._user).pw_uid, -1)
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale")
        self.port = free_port()
        rules = ("host all ada 127.0.0.1/32 scram-sha-256", "host all postgres 127.0.0.1/32 trust")
        (self._data / "pg_hba.conf").write_text("\n".join(rules) + "\n")
        self.begin()

    def begin(self, *, wait: bool = True) -> None:
        """Start the server. wait: until it takes connections."""
        settings = f"-F -p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        waits = ("-w", "-t", int(HANG_S)) if wait else ("-W",)
        self._run("pg_ctl", "-D", self._data, *waits, "-o", settings, "-l", self._directory / "log", "start")

    def _run(self, program: str, *arguments: object) -> None:
        assert PROGRAMS is not None
        subprocess.run(
            [PROGRAMS / program, *map(str, arguments)], user=self._user, cwd="/", check=True, stdout=subprocess.DEVNULL
        )

    def address(self, user: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def connection(self):
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.address(), autocommit=True) as connection, connection.cursor() as cursor:
            yield cursor

    def execute(self, *statements: str) -> None:
        with self.connection() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def value(self, query: str):
        with self.connection() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0]

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the server's own directory, which its user alone may read."""
        path, owner = self._data / name, self._data.stat()
        path.touch(mode=0o600)
        path.write_bytes(content)
        os.chown(path, owner.st_uid, owner.st_gid)

    def configure(self, statement: str) -> None:
        """Change the server's configuration, and wait until new connections follow it."""
        before = self.value("SELECT pg_conf_load_time()")
        self.execute(statement, "SELECT pg_reload_conf()")
        wait_until(lambda: self.value("SELECT pg_conf_load_time()") > before, what="the configuration")

    def end(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")
