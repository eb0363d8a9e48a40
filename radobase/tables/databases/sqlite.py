"""SQLite, through ADBC.

A cell of SQLite has a type of its own, whatever its column declares (SQLite documentation, "Datatypes In SQLite"), but
an Arrow column has one, which the driver takes from the first rows. So each cell comes as a text, a missing one as "".
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from dpcore.errors import ConfigurationError
from radobase.tables.databases.sessions import BATCH_ROWS, WRITES, AdbcSession, Column, Selection, first_line
from radobase.tables.databases.source import DatabaseSource

_PREPARE = re.compile(r"Failed to prepare query: (.*)")
_LOCKED = re.compile(r"database( table)? is locked")
# dpcore.records.features.value_text in SQL: integers below 2^53 as such, other doubles in the fewest digits that read
# back. SQLite prints at most 16 digits without "!".
_TEXT = """CASE typeof({0}) WHEN 'null' THEN '' WHEN 'real' THEN CASE
 WHEN abs({0}) < 9007199254740992 AND {0} = CAST({0} AS INTEGER) THEN CAST(CAST({0} AS INTEGER) AS TEXT)
 WHEN CAST(printf('%.15g', {0}) AS REAL) = {0} THEN printf('%.15g', {0})
 WHEN CAST(printf('%.16g', {0}) AS REAL) = {0} THEN printf('%.16g', {0})
 ELSE printf('%!.17g', {0}) END ELSE CAST({0} AS TEXT) END"""


class Sqlite:
    """A Database. One statement sees one snapshot (SQLite documentation, "Isolation In SQLite")."""

    failures: tuple[type[Exception], ...]

    def __init__(self, source: DatabaseSource) -> None:
        """Raises ConfigurationError if the driver is not installed."""
        self._source = source
        try:
            from adbc_driver_manager import Error  # noqa: PLC0415  (an extra)
            from adbc_driver_sqlite import dbapi  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise ConfigurationError(f"{missing.name} is not installed: install radofed[sqlite]") from missing
        self._connect = dbapi.connect
        self.failures = (Error, OSError, UnicodeDecodeError, pa.ArrowException)

    @contextmanager
    def session(self) -> Iterator[AdbcSession]:
        """See Database."""
        address = f"file:{quote(str(Path(self._source.place).absolute()))}?mode=ro"
        with self._connect(address, autocommit=True) as connection:
            yield AdbcSession(connection, {"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})

    def selection(self, columns: Sequence[Column]) -> Selection:
        """See Database."""
        return Selection([_TEXT.format(column.sql) for column in columns])

    def cause(self, error: Exception) -> str:
        """See Database."""
        if isinstance(error, UnicodeDecodeError):
            return "a text is not UTF-8; correct the table, or leave the column out of the schema"
        text = str(error)
        if "readonly database" in text:
            return WRITES
        if self.may_pass(error):
            return "another process has locked the database; read it again once that process is done"
        if prepare := _PREPARE.search(text):
            return f"the database refuses the query ({first_line(prepare[1])}); correct source and query"
        if "failed to open" in text:
            return "cannot be opened; check the file, its permissions and those of its directory"
        return "cannot be read to the end (damaged, locked or removed, or the query fails); check file and query"

    def may_pass(self, error: Exception) -> bool:
        """See Database: another process holds a lock."""
        return _LOCKED.search(str(error)) is not None
