"""Which of two tables was it: the best linear statistic of a release, about a whole row or about one cell.

The adversary knows every other row, and the two tables that it has to choose between.

- Moments are a vector with Gaussian noise of one variance. The statistic <T1 - T0, release - (T0 + T1) / 2>, with the
  two tables' exact values T0 and T1, is the likelihood ratio: no test is better (Neyman and Pearson, 1933).
- The mean of n rados has the mean p sum_i e_i, and a covariance that the rows and the noise give. The statistic is
  Fisher's, (mu1 - mu0)^T C^-1 (mean - (mu0 + mu1) / 2): the best of all that are linear in the mean. A rado's signature
  is unknown here.
- A model: the two models that the tables give without noise take the place of T0 and T1.
"""

from dataclasses import dataclass

import numpy as np

from dpcore.attacks.outcome import Outcome, guessed
from dpcore.attacks.release import Floats, Integers, Release, Table, chosen, generator_of, with_cell
from dpcore.randomness.sources import RandomSource
from dpcore.records.records import Records

# Rows among which the most different pair is looked for.
_CANDIDATES = 300


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


def _right(release: Release, first: Records, second: Records, runs: int, random: RandomSource) -> float:
    """The share of right guesses over releases of the two tables in turn; undecided ones count half."""
    test = LinearTest.of(release, first, second)
    right = 0.0
    for run in range(runs):
        sign = 1 if run % 2 else -1
        value = sign * test.statistic(release.drawn(second if run % 2 else first, random))
        right += 1.0 if value > 0 else 0.5 if value == 0 else 0.0
    return right / runs


def membership(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Whether this row or another one is in the table, for the two rows that differ most. runs: releases, even."""
    generator = generator_of(random)
    one, other = _most_different(release, table, generator)
    rest = np.setdiff1d(np.arange(table.rows), [one, other])
    first, second = (chosen(table.records, np.append(rest, row)) for row in (other, one))
    right = _right(release, first, second, runs, random)
    note = "one of two rows, those that differ most"
    return [guessed("membership", release.name, release.rados, first.rows, right, runs, release.promise, note)]


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
    first, second = (with_cell(table.records, row, table.cell, sign) for sign in (-1, 1))
    right = _right(release, first, second, runs, random)
    note = f"the cell {table.cell_name} of one row; linear in the released values"
    return guessed("all-but-one-cell", release.name, release.rados, table.rows, right, runs, release.cell_promise, note)
