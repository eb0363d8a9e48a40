"""A party's table as records: read once, checked against the schema's declared policies, and counted.

What is reported here is for the party's own eyes; nothing of it goes on the wire but the number of rows.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpcore.encoding import EncodedRows, Tally
from dpcore.fixed_point import store
from dpcore.rados.edges import Records
from dpcore.schema import Schema
from wire.tables import Progress, encoded_blocks


@dataclass(frozen=True)
class LoadReport:
    """What loading did: numbers of rows, and for each feature the numbers of cells that a policy changed.

    zero_vectors: rows that became zero vectors. positive, negative: usable rows of each class. tallies: one for each
    feature, in the schema's order, then the label's.
    """

    file: str
    rows: int
    zero_vectors: int
    positive: int
    negative: int
    tallies: tuple[Tally, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what does not stop the party but should be known to its data officer."""
        found = []
        usable = self.rows - self.zero_vectors
        if not usable:
            found.append("no row is usable: every row becomes a zero vector and contributes nothing")
        elif not (self.positive and self.negative):
            side = "positive" if self.positive else "negative"
            whole = f"all {usable} usable rows are" if usable > 1 else "the only usable row is"
            found.append(f"{whole} {side}: this party can take part but alone could learn nothing")
        if self.zero_vectors and usable:
            share = 100 * self.zero_vectors / self.rows
            found.append(f"{self.zero_vectors} of {self.rows} rows ({share:.1f} %) become zero vectors")
        return tuple(found)

    def sentences(self) -> list[str]:
        """The report for people, a sentence a line, warnings last."""
        lines = [f"{self.file}: {self.rows} rows, {self.positive} positive, {self.negative} negative"]
        for tally in self.tallies:
            counts = {"imputed": tally.imputed, "clipped": tally.clipped, "rows made zero vectors": tally.zero_vectors}
            changed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            if changed:
                lines.append(f"{tally.name}: {changed}")
        return [*lines, *(f"warning: {warning}" for warning in self.warnings)]


@dataclass(frozen=True)
class Dataset:
    """A party's records, ready for any query with this schema, and the report about them."""

    schema: Schema
    records: Records
    report: LoadReport


def load(path: str | Path, schema: Schema, progress: Progress | None = None) -> Dataset:
    """Read a CSV or Parquet file through a schema into records of 32-bit fixed point.

    progress: called with the number of rows read so far. Raises DataError, naming file, line (row for Parquet) and
    column, for a file that cannot be read, has no rows or lacks a column, and for every cell that is not a number,
    not finite, or refused by the schema's policy.
    """
    counted = _Counted(str(path), schema)
    blocks = []
    for rows in encoded_blocks(path, schema, label=True, progress=progress):
        counted.add(rows)
        assert rows.labels is not None, "labels were asked for"
        blocks.append((store(rows.x), rows.labels, rows.usable))
    report = counted.report()
    features = np.empty((report.rows, schema.d), dtype=np.int32)
    labels, usable = np.empty(report.rows, dtype=np.int8), np.empty(report.rows, dtype=np.bool_)
    end = report.rows
    while blocks:  # from the back, so that each block's memory goes as the table's comes
        part = blocks.pop()
        here = slice(end - len(part[2]), end)
        features[here], labels[here], usable[here] = part
        end = here.start
    return Dataset(schema, Records(features, labels, usable), report)


def check(schema: Schema, path: str | Path, progress: Progress | None = None) -> LoadReport:
    """Read a whole file as `load` does, keep nothing, and report; raises DataError as `load` does."""
    counted = _Counted(str(path), schema)
    for rows in encoded_blocks(path, schema, label=True, progress=progress):
        counted.add(rows)
    return counted.report()


class _Counted:
    """A report in the making, block by block."""

    def __init__(self, file: str, schema: Schema) -> None:
        self._file = file
        self._rows = self._usable = self._positive = 0
        self._tallies = tuple(Tally(name) for name in (*(f.name for f in schema.features), schema.label.column))

    def add(self, rows: EncodedRows) -> None:
        assert rows.labels is not None
        self._rows += len(rows.usable)
        self._usable += int(rows.usable.sum())
        self._positive += int((rows.usable & (rows.labels == 1)).sum())
        self._tallies = tuple(mine + more for mine, more in zip(self._tallies, rows.tallies, strict=True))

    def report(self) -> LoadReport:
        dropped, negative = self._rows - self._usable, self._usable - self._positive
        return LoadReport(self._file, self._rows, dropped, self._positive, negative, self._tallies)
