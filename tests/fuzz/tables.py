"""Targets: tables of rows."""

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import DataError
from parties.data.dataset import load
from radobase.tables.tables import open_table, read_rows
from tests.federation.material import STAYS
from tests.fuzz.mutation import octets_near, texts_near
from tests.fuzz.target import InFile, Target

CSV = 'age,smoker,stayed,note\n41,yes,no,"a, b"\n,no,yes,\n99.5,no,yes,"two\nlines"\n'


def parquet(**columns) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


PARQUETS = (
    parquet(age=[41.0, None, 99.5], smoker=["yes", "no", "no"], stayed=["no", "yes", "yes"]),
    parquet(age=pa.array([1, 2], pa.int64()), smoker=pa.array(["yes", "no"]).dictionary_encode(), stayed=["no", "yes"]),
    parquet(age=pa.array(["1", "2"]), smoker=[True, False], stayed=pa.array([[1], [2]])),
    # A text that is not UTF-8.
    parquet(age=[1.0], smoker=pa.array([b"\x9f"]).view(pa.string()), stayed=["no"]),
)


def read_table(path: Path) -> None:
    """A party's load, a learner's prediction, and all columns as they are."""
    failures = []
    for use in (lambda: load(path, STAYS), lambda: read_rows(path, STAYS), lambda: every_column(path)):
        try:
            use()
        except DataError as error:
            failures.append(error)
    if len(failures) == 3:
        raise failures[0]


def every_column(path) -> int:
    table = open_table(path)
    wanted = [name for name in dict.fromkeys(table.columns) if name]
    return sum(batch.num_rows for batch in table.batches(wanted, coded=wanted[:1], numbers=wanted[1:2]))


def zipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def targets() -> list[Target]:
    words = ["yes", "no", "age", "1e999", "nan", "0x1", "\u0661", "\0", '""', ",,,", "\r"]
    rows = 1 << 24
    return [
        Target("csv", InFile("table-csv", "rows.csv", read_table),
               texts_near([CSV, "a\n1\n", "age,smoker,stayed\n1,yes,no\n"], words), rows,
               ("radobase.tables.tables._TABLE", "radobase.tables.tables.open_table"), allowed=(DataError,)),
        Target("csv-gz", InFile("table-csv.gz", "rows.csv.gz", read_table),
               octets_near([zipped(CSV.encode()), zipped(b"a\n")]) | texts_near([CSV], words).map(zipped), rows, (),
               allowed=(DataError,), examples=30),
        Target("parquet", InFile("table-parquet", "rows.parquet", read_table),
               octets_near(PARQUETS), rows, (), allowed=(DataError,), examples=40),
    ]  # fmt: skip
