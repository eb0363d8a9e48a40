"""Which epoch each row of a table is in: a party answers a query about an epoch from the rows of that epoch alone.

A column that the schema does not use names each row's epoch, such as the month in which it arrived, and an id column
shows that rows keep their epoch. All rows of one id are in one epoch. Rows without an epoch, or without an id, are in
none: only queries about all rows are answered from them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.records.held_back import RowKey
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.ledger.row_epochs import EpochRows
from radobase.tables.recoding import Recode, columns_of
from radobase.tables.tables import Table
from wire.texts import EPOCH_RULE, is_epoch

_NONE = -1


@dataclass(frozen=True, eq=False)
class Epochs:
    """The epochs of a party's rows."""

    names: tuple[str, ...]
    codes: NDArray[np.int32] = field(repr=False)
    """(m,): the place of each row's epoch in `names`; -1 for none."""
    numbers: NDArray[np.uint64] = field(repr=False)
    """(m,): of the rows, by id."""
    key_check: bytes

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each epoch, in the order of their names."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        return dict(sorted(zip(self.names, found.tolist(), strict=True)))

    @property
    def without(self) -> int:
        """The number of rows in no epoch."""
        return int(np.count_nonzero(self.codes < 0))

    def places(self, name: str) -> NDArray[np.intp]:
        """The places of the rows of an epoch, ascending; none if there are none."""
        return np.flatnonzero(self.codes == (self.names.index(name) if name in self.names else len(self.names)))

    def rows(self, name: str) -> EpochRows:
        """The rows of an epoch, for the ledger."""
        return EpochRows(name, self.key_check, self.numbers[self.places(name)])


def check_epoch_column(
    schema: Schema | SharedSchema, id_column: str | None, epoch_column: str | None, recode: Recode | None = None
) -> None:
    """Raise ConfigurationError if rows could change their epoch unnoticed, or a query chose rows by what is learned."""
    if epoch_column is None:
        return
    if id_column is None:
        raise ConfigurationError(
            "epoch_column needs an id_column: only ids show that rows keep their epoch; name one, or leave "
            "epoch_column out"
        )
    if epoch_column == id_column or epoch_column in columns_of(schema, recode):
        raise ConfigurationError(
            f"epoch_column {epoch_column!r} is a column of the schema, or the ids: a row's epoch is public; name "
            "another column, or leave epoch_column out"
        )


class EpochsRead:
    """Collects the epochs of a table's rows, block by block."""

    def __init__(self, table: Table, key: RowKey, id_column: str, epoch_column: str) -> None:
        self._table, self._key, self._columns = table, key, (id_column, epoch_column)
        self._places: dict[str, int] = {}
        self._codes: list[NDArray[np.int32]] = []
        self._numbers: list[NDArray[np.uint64]] = []
        self._rows = 0

    def add(self, ids: Sequence[str], epochs: Sequence[str], numbers: NDArray[np.uint64]) -> None:
        """Add a block. Raises DataError if a name cannot be an epoch's."""
        codes = np.full(len(ids), _NONE, dtype=np.int32)
        for row, (own, name) in enumerate(zip(ids, epochs, strict=True)):
            if name and not is_epoch(name):
                raise self._table.error(EPOCH_RULE, row=self._rows + row, column=self._columns[1])
            if own and name:
                codes[row] = self._places.setdefault(name, len(self._places))
        self._codes.append(codes)
        self._numbers.append(numbers)
        self._rows += len(ids)

    def epochs(self) -> Epochs:
        """All of them. Raises DataError if the rows of one id are in two epochs."""
        codes, numbers = np.concatenate(self._codes), np.concatenate(self._numbers)
        within = np.flatnonzero(codes >= 0)
        order = within[np.lexsort((codes[within], numbers[within]))]
        same = numbers[order[1:]] == numbers[order[:-1]]
        names = tuple(self._places)
        if len(wrong := np.flatnonzero(same & (codes[order[1:]] != codes[order[:-1]]))):
            first, second = order[wrong[0]], order[wrong[0] + 1]
            raise self._table.error(
                f"the row's id is in epoch {names[codes[first]]} and in epoch {names[codes[second]]}, and "
                f"{len(wrong)} such in all: each row has one epoch, for good; correct the column, or name ids of rows",
                row=int(max(first, second)),
                column=self._columns[0],
            )
        # Other ids of the same rows would hide that a row moves.
        key_check = hashlib.sha256(self._key.check + self._columns[0].encode()).digest()[:16]
        return Epochs(names, codes, numbers, key_check)
