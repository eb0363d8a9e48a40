"""Which of two tables was it: the best linear statistic of a release, about a whole row or about one cell.

The adversary knows every other row, and the two tables that it has to choose between.

- Moments are a vector with Gaussian noise of one variance. The statistic <T1 - T0, release - (T0 + T1) / 2>, with the
  two tables' exact values T0 and T1, is the likelihood ratio: no test is better (Neyman and Pearson, 1933).
- The mean of n rados has the mean p sum_i e_i, and a covariance that the rows and the noise give. The statistic is
  Fisher's, (mu1 - mu0)^T C^-1 (mean - (mu0 + mu1) / 2): the best of all that are linear in the mean. A rado's signature
  is unknown here.
- Rados with noise on all coordinates are played against who has the signatures too: the accounting allows for that.
  Less the other rows' edges, rados with the row are its edge and Gaussian noise: their mean's statistic is the
  likelihood ratio. Of a noised table it is that of the row's noised edge.
- A model: the two models that the tables give without noise take the place of T0 and T1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks.outcome import Outcome, guessed
from dpcore.attacks.release import Floats, Integers, RadosRelease, Release, Table, chosen, generator_of, with_cell
from dpcore.randomness.sources import RandomSource
from dpcore.records.records import Records

# Rows among which the most different pair is looked for.
_CANDIDATES = 300
# Rows of a noised table.
_MOST_NOISED = 60


@dataclass(frozen=True, eq=False)
class LinearTest:
    """A statistic of a release: positive for the second table."""

    release: Release
    weights: Floats
    middle: Floats

    @classmethod
    def of(cls, release: Release, first: Records, second: Records) -> "LinearTest":
        """The best one between two tables of the same size."""
        means = [release.expected(each) for each in (first, second)]
        shift, covariance = means[1] - means[0], release.covariance(first)
        if covariance is not None:
            other = release.covariance(second)
            assert other is not None
            shift = np.asarray(np.linalg.solve((covariance + other) / 2, shift), dtype=np.float64)
        return cls(release, shift, (means[0] + means[1]) / 2)

    def statistic(self, total: Integers) -> float:
        """Its value, 0 if it does not decide."""
        return float(self.weights @ (self.release.summary(total) - self.middle))


@dataclass(frozen=True, eq=False)
class SignatureTest:
    """The statistic of who has the signatures, too: positive for the second table. The last rows of both differ."""

    release: RadosRelease
    others: Floats
    """Edges of all rows but the last: (m - 1, d)."""
    ends: tuple[Floats, Floats]
    """The last row's two edges."""

    @classmethod
    def of(cls, release: RadosRelease, first: Records, second: Records) -> "SignatureTest":
        """The one between two tables that differ in the last row only."""
        edges = [release.edges(each).astype(np.float64) for each in (first, second)]
        return cls(release, edges[0][:-1], (edges[0][-1], edges[1][-1]))

    def statistic(self, selection: NDArray[np.bool_], total: Integers) -> float:
        """Its value for signatures (n, m) and rados (n, d), 0 if the row is in no rado."""
        bits = selection.astype(np.float64)
        left, inside = total - bits[:, :-1] @ self.others, bits[:, -1]
        if not inside.any():
            return 0.0
        weights: Floats = inside
        if self.release.is_of_noised_rows:
            # Every rado has the noise of the rows that it takes: of all combinations, that with the least noise.
            weights = _least_noise(bits)
        middle = (self.ends[0] + self.ends[1]) / 2
        return float((weights @ left / (weights @ inside) - middle) @ (self.ends[1] - self.ends[0]))


def _least_noise(bits: Floats) -> Floats:
    """Weights of rados (n,) that give the last row's noised edge with the least noise of other rows: S is (n, m)."""
    n, m = bits.shape
    if n < m:
        return np.asarray(np.linalg.lstsq(bits @ bits.T, bits[:, -1], rcond=1e-9)[0], dtype=np.float64)
    # With enough rados S^T w is zero for all other rows: their noise is gone.
    only_last = np.eye(m)[-1]
    return np.asarray(bits @ np.linalg.lstsq(bits.T @ bits, only_last, rcond=1e-9)[0], dtype=np.float64)


def _right(release: Release, first: Records, second: Records, runs: int, random: RandomSource) -> float:
    """The share of right guesses over releases of the two tables in turn; undecided ones count half.

    The last rows of the tables differ.
    """
    statistic: Callable[[Records], float]
    if knows_signatures(release, first):
        assert isinstance(release, RadosRelease)
        with_signatures, rados = SignatureTest.of(release, first, second), release

        def statistic(table: Records) -> float:
            return with_signatures.statistic(*rados.drawn_with_signatures(table, random))
    else:
        test = LinearTest.of(release, first, second)

        def statistic(table: Records) -> float:
            return test.statistic(release.drawn(table, random))

    right = 0.0
    for run in range(runs):
        value = (1 if run % 2 else -1) * statistic(second if run % 2 else first)
        right += 1.0 if value > 0 else 0.5 if value == 0 else 0.0
    return right / runs


def knows_signatures(release: Release, records: Records) -> bool:
    """Whether the adversary is given the signatures: if all coordinates of the rados have noise."""
    return isinstance(release, RadosRelease) and len(release.noised(records)) == records.d


def _others(release: Release, table: Table, left_out: list[int]) -> NDArray[np.intp]:
    """All other rows; of a noised table, whose rows are solved for, some."""
    others = np.setdiff1d(np.arange(table.rows), left_out)
    return others[:_MOST_NOISED] if isinstance(release, RadosRelease) and release.is_of_noised_rows else others


def membership(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Whether this row or another one is in the table, for the two rows that differ most. runs: releases, even."""
    generator = generator_of(random)
    one, other = _most_different(release, table, generator)
    rest = _others(release, table, [one, other])
    first, second = (chosen(table.records, np.append(rest, row)) for row in (other, one))
    right = _right(release, first, second, runs, random)
    note = "one of two rows, those that differ most" + _given(release, first)
    return [guessed("membership", release.name, release.rados, first.rows, right, runs, release.promise, note)]


def _given(release: Release, records: Records) -> str:
    return "; the adversary has the signatures, too" if knows_signatures(release, records) else ""


def _most_different(release: Release, table: Table, generator: np.random.Generator) -> tuple[int, int]:
    """The two rows whose exchange shifts the release most, among some."""
    rows = generator.permutation(table.rows)[:_CANDIDATES]
    squares = release.by_row(chosen(table.records, rows))
    if (covariance := release.covariance(table.records)) is not None:
        squares = np.linalg.solve(np.linalg.cholesky(covariance), squares.T).T
    norms = (squares**2).sum(axis=1)
    distances = norms[:, np.newaxis] + norms - 2 * squares @ squares.T
    one, other = divmod(int(distances.argmax()), len(distances))
    if one == other:
        # All rows are alike.
        one, other = 0, 1
    return int(rows[one]), int(rows[other])


def one_cell(release: Release, table: Table, runs: int, random: RandomSource) -> Outcome:
    """Which end of its range a cell is at, for the row in which that shifts the release most. runs: releases, even."""
    rows = generator_of(random).permutation(table.rows)[:_CANDIDATES]
    edges = release.edges(table.records).astype(np.float64)
    # The row with the shortest rest is clipped least, so its cell moves most.
    rest = (np.delete(edges[rows], table.cell, axis=1) ** 2).sum(axis=1)
    row = int(rows[int(rest.argmin())])
    inside = chosen(table.records, np.append(_others(release, table, [row]), row))
    first, second = (with_cell(inside, inside.rows - 1, table.cell, sign) for sign in (-1, 1))
    right = _right(release, first, second, runs, random)
    note = f"the cell {table.cell_name} of one row; linear in the released values{_given(release, first)}"
    return guessed(
        "all-but-one-cell", release.name, release.rados, inside.rows, right, runs, release.cell_promise, note
    )
