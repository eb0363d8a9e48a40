"""Epochs of rows in the ledger: why charges about different epochs count in parallel, and what is kept for it.

A query about an epoch is answered from the rows of that epoch alone. Charges about one epoch add up. A row is in one
epoch, so no row is charged by two epochs, and the ledger counts the largest of their sums, beside the sum of the
charges about all rows (`parties.ledger.limits.Scopes.total`).

It rests on this: whatever tables a party loads, the rows with one id are answered about in one epoch only. The ledger
keeps the numbers of the rows of every epoch that an attempt was accepted about, for good. An attempt about rows of
which one was in another epoch is refused before anything is reserved.

Rows may be corrected, deleted, and added to an epoch. Proof: docs/explanation/proofs.md, "Epochs of rows".
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from radobase.printing import amount
from wire.errors import Code, WireError

_STORED = "<u8"
_OTHER_NUMBERS = (
    "The party's secret, or id_column, is another one than when epochs were answered about, so rows cannot be "
    "compared: put the old one back."
)


@dataclass(frozen=True, eq=False)
class EpochRows:
    """The rows of one epoch. Raises ValueError if it has no name."""

    name: str
    key_check: bytes
    """Tells apart the keys and the columns of ids that row numbers are made with."""
    numbers: NDArray[np.uint64] = field(repr=False)
    """(m,), by id, in any order: equal ids have equal numbers."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an epoch without a name")


def check(connection: sqlite3.Connection, rows: EpochRows) -> None:
    """Refuse rows of which one was answered about in another epoch. Raises WireError(EPOCH_CHANGED)."""
    own = np.unique(rows.numbers)
    # One at a time: together they may be larger than the table.
    for name, key_check, stored in connection.execute("SELECT name, key_check, numbers FROM row_epochs"):
        if key_check != rows.key_check:
            raise WireError(Code.EPOCH_CHANGED, _OTHER_NUMBERS)
        if name == rows.name:
            continue
        if ids := len(np.intersect1d(own, _numbers(stored), assume_unique=True)):
            raise WireError(Code.EPOCH_CHANGED, _moved(ids, rows.name, name))


def moved(connection: sqlite3.Connection, epochs: Iterable[EpochRows]) -> list[str]:
    """What `check` would refuse of a table's epochs, a sentence for each pair of them; in one pass over the ledger."""
    table = list(epochs)
    numbers = np.concatenate([np.empty(0, dtype=np.uint64), *(each.numbers for each in table)])
    places = np.repeat(np.arange(len(table)), [len(each.numbers) for each in table])
    order = np.argsort(numbers, kind="stable")
    numbers, places = numbers[order], places[order]
    found = []
    for name, key_check, stored in connection.execute("SELECT name, key_check, numbers FROM row_epochs ORDER BY name"):
        if any(each.key_check != key_check for each in table):
            return [_OTHER_NUMBERS]
        # The first of the table's rows with each number: all rows of one id are in one epoch.
        kept = _numbers(stored)
        at = np.searchsorted(numbers, kept)
        there = at < len(numbers)
        hits = at[there][numbers[at[there]] == kept[there]]
        for place, count in zip(*np.unique(places[hits], return_counts=True), strict=True):
            if (now := table[place].name) != name:
                found.append(_moved(int(count), now, name))
    return found


def _moved(ids: int, now: str, before: str) -> str:
    was = "was" if ids == 1 else "were"
    return f"{amount(ids, 'id')} with rows in epoch {now} {was} answered about in epoch {before}."


def keep(connection: sqlite3.Connection, rows: EpochRows) -> None:
    """Remember, within the caller's transaction, that these rows are in this epoch. Raises as `check` does."""
    check(connection, rows)
    row = connection.execute("SELECT numbers FROM row_epochs WHERE name = ?", (rows.name,)).fetchone()
    before = np.empty(0, dtype=np.uint64) if row is None else _numbers(row[0])
    known = np.union1d(before, rows.numbers)
    if row is None or len(known) > len(before):
        connection.execute(
            "INSERT OR REPLACE INTO row_epochs VALUES (?, ?, ?)",
            (rows.name, rows.key_check, known.astype(_STORED).tobytes()),
        )


def _numbers(stored: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(stored, dtype=_STORED).astype(np.uint64, copy=False)
