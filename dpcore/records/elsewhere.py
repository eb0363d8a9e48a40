"""Features that other machines read: what stands for them in a party's records, and refuses to be read here."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError


class FeaturesElsewhere:
    """Rows `first` to `first + rows` of a table whose features, (rows, d) int32, are not on this machine.

    It has the shape of the array that it stands for, and none of its values. Sums over such records come from the
    machines that read them (`dpcore.records.computation.RowSums`); anything else raises PlanError.
    """

    dtype, ndim = np.dtype(np.int32), 2

    def __init__(self, rows: int, d: int, table: Any, first: int = 0, factors: NDArray[np.int64] | None = None) -> None:
        """table: what knows where the rows are. factors: (rows,), how often sums count each row; None for once."""
        self.shape, self.table, self.first, self.factors = (rows, d), table, first, factors

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "FeaturesElsewhere":
        if not isinstance(rows, slice):
            raise self._away()
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise self._away()
        factors = None if self.factors is None else self.factors[rows]
        return FeaturesElsewhere(max(0, stop - start), self.shape[1], self.table, self.first + start, factors)

    def counted(self, factors: NDArray[np.int64]) -> "FeaturesElsewhere":
        """The same, of which sums count each row so often: in one pass over the table, which others would be many."""
        return FeaturesElsewhere(*self.shape, self.table, self.first, factors)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._away()

    def __iter__(self) -> Iterator[Any]:
        raise self._away()

    @staticmethod
    def _away() -> PlanError:
        return PlanError(
            "this query needs the values of rows, and they are not on this machine: ask for sums over all rows, or "
            "have the party read its table itself"
        )
