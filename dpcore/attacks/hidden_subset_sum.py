"""The hidden subset sum attack: signatures and edges from the rados alone, exactly.

The n rados are S E with an unknown 0/1 matrix S (n, m), the signatures, and unknown edges E: d hidden subset sum
problems with the same subsets. The attack is that of Coron and Gini (CRYPTO 2020), after Nguyen and Stern (CRYPTO
1999):

1. Find the space of S's columns. With m independent edges it is that of the rados' columns. With more rows than
   coordinates it is orthogonal to the short vectors that are orthogonal to the rados modulo a prime, which LLL finds.

2. In this space, of basis W, every column v = W c of S has v_j^2 = v_j. The n equations are linear in c c^T and c.
   The m columns span their solutions if n is m (m + 3) / 2 or more. Two random ones, A and B, have the c as
   eigenvectors of A B^-1.

3. With S known, least squares return E (Nock, Patrini, Friedman, ICML 2015, Lemma 9), to the last integer.

Feasible for few rows: step 2 takes m (m + 3) / 2 rados and their cube in time, and step 1's LLL takes longer with every
row. Lemma 11 of the paper says that no attack is fast for every table.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks.components import but_for, exact_coordinates, from_signatures, hits
from dpcore.attacks.outcome import Outcome, not_played, recovered
from dpcore.attacks.release import Floats, Integers, RadosRelease, Release, Table, generator_of
from dpcore.randomness.sources import RandomSource

NAME = "subset-sum"
MOST_ROWS = 40
_PRIME = 1_048_573
"""Below 2^20, so that LLL's inner products are exact."""
_QUALITY, _MOST_SWAPS = 0.99, 400_000
_MOST_OUTSIDE = 400
_BINARY = 1e-3


def hidden_subset_sum(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Share of rows recovered, over a table that is small enough: with linear algebra, and with lattice reduction."""
    if not isinstance(release, RadosRelease):
        return []
    if release.is_of_fixed_size:
        note = "sets of one size: complements solve the same equations, and the attack does not separate them"
        return [not_played(NAME, release.name, release.rados, table.rows, note)]
    most = most_rows(release.rados)
    if most < 2:
        note = f"{release.rados} rados are too few for two rows: it takes m (m + 3) / 2 for m rows"
        return [not_played(NAME, release.name, release.rados, table.rows, note)]
    found = []
    kept = exact_coordinates(release, table)
    rank = table.rank - (table.records.d - len(kept))
    # One coordinate less than all, in case one depends on the others in a small table; then twice as many.
    plain = max(2, min(most, rank - 1, table.rows - 1))
    hard = min(most, 2 * rank, table.rows - 1)
    for rows in dict.fromkeys((plain, hard) if hard > rank else (plain,)):
        shares = [_run(release, table, rows, kept, random) for _ in range(runs)]
        way = "linear algebra" if rows < rank else "lattice reduction: more rows than coordinates"
        note = f"{way}; {release.rados} rados allow at most {most} rows, and a larger table is out of reach"
        note += but_for(len(kept), table)
        outside = min(table.rows - rows, _MOST_OUTSIDE)
        found.append(recovered(NAME, release.name, release.rados, rows, shares, outside, release.promise, note))
    return found


def most_rows(rados: int) -> int:
    """The most rows m with m (m + 3) / 2 + 20 <= n, at most MOST_ROWS."""
    return max((m for m in range(MOST_ROWS + 1) if m * (m + 3) // 2 + 20 <= rados), default=0)


def _run(release: RadosRelease, table: Table, rows: int, kept: list[int], random: RandomSource) -> tuple[float, float]:
    generator = generator_of(random)
    inside, outside = table.split(rows, generator)
    rados = np.ascontiguousarray(release.drawn(inside, random)[:, kept])
    guesses = edges_from(rados, rows, generator) * 2.0**-release.fraction_bits
    sides = (release.edges(inside)[:, kept], release.edges(outside)[:_MOST_OUTSIDE, kept])
    within, without = (hits(each, guesses, release.fraction_bits) for each in sides)
    return within, without


def edges_from(rados: Integers, rows: int, generator: np.random.Generator) -> Floats:
    """Edges that explain rados (n, d), in their unit: (m, d), or (0, d) if the attack fails."""
    none = np.zeros((0, rados.shape[1]))
    space = signature_space(rados, rows)
    if space is None:
        return none
    signatures = binary_vectors(space, generator)
    if signatures is None:
        return none
    return from_signatures(rados.astype(np.float64), signatures)


def signature_space(rados: Integers, rows: int) -> Floats | None:
    """An orthonormal basis (n, m) of the space of S's columns; None if it is not found."""
    scaled = rados.astype(np.float64)
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    rank = int((values > values[0] * 1e-9).sum())
    if rank >= rows:
        # With noise the rank is full, and these directions are those of the largest rows.
        return np.asarray(left[:, :rows], dtype=np.float64)
    lattice = OrthogonalLattice.of(rados, rank, 2 * rows)
    if lattice is None:
        return None
    short = lattice.basis[: 2 * rows - rows]
    if bool((short @ rados[: 2 * rows]).any()):
        return None
    first = np.linalg.svd(short.astype(np.float64))[2][rows:].T
    extended = np.concatenate([first, -lattice.combinations(rados[2 * rows :]) @ first])
    return np.asarray(np.linalg.qr(extended)[0], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class OrthogonalLattice:
    """The integer vectors that are orthogonal to the columns of some rados modulo a prime, by a reduced basis."""

    basis: Integers
    """(count, count), short vectors first."""
    columns: list[int]
    """Coordinates of rados that determine the others."""
    pivots: list[int]
    inverse: Integers
    """(r, r), modulo the prime, of the pivots' rows and these columns."""

    @classmethod
    def of(cls, rados: Integers, rank: int, count: int) -> "OrthogonalLattice | None":
        """Of the first `count` rados; None if these are not of full rank modulo the prime."""
        from dpcore.attacks.compiled import reduce_lattice  # noqa: PLC0415 - imports Numba

        if count > len(rados) or rank >= count:
            return None
        columns = _independent(rados, rank)
        head = rados[:count, columns] % _PRIME
        pivots = _pivots(head)
        if len(pivots) < rank:
            return None
        inverse = _inverse(head[pivots])
        free = [row for row in range(count) if row not in pivots]
        basis = np.zeros((count, count), dtype=np.int64)
        basis[np.arange(len(free)), free] = 1
        basis[np.ix_(range(len(free)), pivots)] = -(head[free] @ inverse % _PRIME)
        basis[np.arange(len(free), count), pivots] = _PRIME
        # The long vectors first: reduction begins with an orthogonal part.
        basis = np.ascontiguousarray(basis[::-1])
        if reduce_lattice(basis, _QUALITY, _MOST_SWAPS) >= _MOST_SWAPS:
            return None
        return cls(basis, columns, pivots, inverse)

    def combinations(self, rados: Integers) -> Integers:
        """For each rado (k, d), a short u with rado + u A = 0, A the first rados: (k, count), by Babai's planes."""
        count = len(self.basis)
        found = np.zeros((len(rados), count), dtype=np.int64)
        found[:, self.pivots] = -(rados[:, self.columns] % _PRIME @ self.inverse % _PRIME)
        upright, triangle = np.linalg.qr(self.basis.astype(np.float64).T)
        for row in range(count - 1, -1, -1):
            times = np.rint(found @ upright[:, row] / triangle[row, row]).astype(np.int64)
            found -= times[:, np.newaxis] * self.basis[row]
        return found


def _independent(rados: Integers, rank: int) -> list[int]:
    """Columns of rados that are independent, by largest remainders."""
    left = rados.astype(np.float64)
    chosen: list[int] = []
    for _ in range(rank):
        norms = (left**2).sum(axis=0)
        norms[chosen] = -1.0
        column = int(norms.argmax())
        chosen.append(column)
        unit = left[:, column] / max(float(np.sqrt(norms[column])), 1e-300)
        left = left - np.outer(unit, unit @ left)
    return chosen


def _pivots(matrix: Integers) -> list[int]:
    """Rows of a matrix (count, r) modulo the prime that are independent, the first ones."""
    left, found, used = matrix.copy(), [], 0
    for row in range(len(left)):
        nonzero = np.flatnonzero(left[row, used:])
        if not len(nonzero):
            continue
        column = used + int(nonzero[0])
        left[:, [used, column]] = left[:, [column, used]]
        left[:, used] = left[:, used] * pow(int(left[row, used]), -1, _PRIME) % _PRIME
        factors = left[row].copy()
        factors[used] = 0
        left = (left - np.outer(left[:, used], factors)) % _PRIME
        found.append(row)
        used += 1
        if used == left.shape[1]:
            break
    return found


def _inverse(matrix: Integers) -> Integers:
    """The inverse of an invertible matrix (r, r) modulo the prime."""
    size = len(matrix)
    joined = np.concatenate([matrix, np.eye(size, dtype=np.int64)], axis=1)
    for column in range(size):
        row = column + int(np.flatnonzero(joined[column:, column])[0])
        joined[[column, row]] = joined[[row, column]]
        joined[column] = joined[column] * pow(int(joined[column, column]), -1, _PRIME) % _PRIME
        factors = joined[:, column].copy()
        factors[column] = 0
        joined = (joined - np.outer(factors, joined[column])) % _PRIME
    return np.ascontiguousarray(joined[:, size:])


def binary_vectors(space: Floats, generator: np.random.Generator) -> NDArray[np.bool_] | None:
    """The m vectors of zeros and ones that span a space with basis W (n, m): bool (n, m); None if not found."""
    n, m = space.shape
    basis = space * np.sqrt(n)
    places = np.triu_indices(m)
    squares = basis[:, places[0]] * basis[:, places[1]] * np.where(places[0] == places[1], 1.0, 2.0)
    equations = np.concatenate([squares, -basis], axis=1)
    if n < equations.shape[1] - m:
        return None
    # The m solutions are where the equations vanish: eigenvectors of the smallest eigenvalues.
    solutions = np.linalg.eigh(equations.T @ equations)[1][: len(places[0]), :m].T
    pair = []
    for _ in range(2):
        matrix = np.zeros((m, m))
        matrix[places] = generator.standard_normal(m) @ solutions
        pair.append(matrix + np.triu(matrix, 1).T)
    try:
        _, vectors = np.linalg.eig(np.linalg.solve(pair[1].T, pair[0].T).T)
    except np.linalg.LinAlgError:
        return None
    found = np.real(basis @ vectors)
    found /= (found**2).sum(axis=0) / found.sum(axis=0)
    binary = found > 0.5
    if not bool((np.abs(found - binary) < _BINARY).all()):
        return None
    return np.asarray(binary, dtype=np.bool_)
