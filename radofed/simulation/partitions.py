"""Partitions: how rows are divided among parties."""

import heapq
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.records.features import nearest

Indices = NDArray[np.int64]
Kind = Literal["iid", "size-skew", "label-skew", "by-column"]

# Shift of positive rows in the order of label-skew, in units of the range of the uniform positions.
LABEL_SHIFT = 0.5


@dataclass(frozen=True)
class Partition:
    """How rows are divided among parties.

    - iid: at random, equally.
    - size-skew: at random, the p-th party's share proportional to 1/p.
    - label-skew: equally, in the order of u + [row is positive]/2 for uniform u: the first parties have only the
      negative class, the last only the positive one.
    - by-column: rows with the same text in `column` stay together; if there are more texts than parties, the
      next-largest group goes to the party with the fewest rows so far.

    Raises ConfigurationError if kind and column do not match.
    """

    kind: Kind
    column: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            known = (*get_args(Kind)[:-1], "by-column:NAME")
            raise ConfigurationError(f"no partition is called {self.kind!r}; {nearest(self.kind, known)}")
        if (self.kind == "by-column") != bool(self.column):
            raise ConfigurationError("a partition by column names its column: write by-column:NAME")

    @classmethod
    def parse(cls, text: str) -> "Partition":
        """Parse `iid`, `size-skew`, `label-skew` or `by-column:NAME`."""
        kind, mark, column = text.partition(":")
        if mark and kind != "by-column":
            raise ConfigurationError(f"partition {text!r}: only by-column takes a name; leave the name out")
        return cls(kind, column or None)  # type: ignore[arg-type]  # __post_init__ refuses any other word

    def __str__(self) -> str:
        return self.kind if self.column is None else f"{self.kind}:{self.column}"

    def divide(
        self,
        parties: int,
        positive: NDArray[np.bool_],
        groups: NDArray[np.int64] | None,
        generator: np.random.Generator,
    ) -> tuple[Indices, ...]:
        """The ascending row indices of each party, out of m rows; every party has at least one.

        positive: (m,), whether the row is of the positive class. groups: (m,), the row's group by column, None for
        other kinds. Raises ConfigurationError if there are more parties than rows, or than groups.
        """
        rows = len(positive)
        if parties > rows:
            raise ConfigurationError(f"{parties} parties and {rows} training rows: choose at most {rows} parties")
        if self.kind == "by-column":
            assert groups is not None, "a partition by column has groups"
            return _by_group(parties, groups, str(self.column))
        if self.kind == "label-skew":
            order = np.argsort(generator.random(rows) + LABEL_SHIFT * positive, kind="stable")
        else:
            order = generator.permutation(rows)
        sizes = _skewed_sizes(rows, parties) if self.kind == "size-skew" else _equal_sizes(rows, parties)
        return tuple(np.sort(part).astype(np.int64) for part in np.split(order, np.cumsum(sizes)[:-1]))


def _equal_sizes(rows: int, parties: int) -> Indices:
    return np.full(parties, rows // parties) + (np.arange(parties) < rows % parties)


def _skewed_sizes(rows: int, parties: int) -> Indices:
    """Sizes (parties,): one row each, the rest proportional to 1, 1/2, 1/3, ..., largest remainders rounded up."""
    shares = 1.0 / np.arange(1, parties + 1)
    exact = (rows - parties) * shares / shares.sum()
    sizes = np.floor(exact).astype(np.int64)
    left = rows - parties - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:left]] += 1
    return np.asarray(sizes + 1)


def _by_group(parties: int, groups: NDArray[np.int64], column: str) -> tuple[Indices, ...]:
    codes, sizes = np.unique(groups, return_counts=True)
    if len(codes) < parties:
        raise ConfigurationError(
            f"column {column!r} has {len(codes)} different texts in the training rows of a fold: choose at most "
            f"{len(codes)} parties"
        )
    loads = [(0, party) for party in range(parties)]
    held: list[list[int]] = [[] for _ in range(parties)]
    for place in np.argsort(-sizes, kind="stable"):
        load, party = heapq.heappop(loads)
        held[party].append(int(codes[place]))
        heapq.heappush(loads, (load + int(sizes[place]), party))
    return tuple(np.flatnonzero(np.isin(groups, mine)).astype(np.int64) for mine in held)
