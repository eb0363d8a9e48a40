"""Independent component analysis: the rows' edges from the rados alone, if there are no more rows than coordinates.

A rado is sum_i s_i e_i with independent coins s_i: a mixture of independent sources of two values, whose directions are
the edges.

FastICA finds them up to order and sign (Hyvarinen, IEEE Transactions on Neural Networks 10, 1999; symmetric,
with tanh). The larger value of a source is the one that includes the edge: relative to the mean, the empty sum is on
the side of the smaller values.

With all signatures, least squares give the edges (Nock, Patrini, Friedman, ICML 2015,
Lemma 9), exactly if there is no noise.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks.outcome import Outcome, recovered
from dpcore.attacks.release import Floats, RadosRelease, Release, Table, generator_of
from dpcore.randomness.sources import RandomSource

NAME = "ica"
AGREES = 0.05
"""A guess recovers a row if each coordinate is within this of it; coordinates span -1 to 1."""
_MOST_STEPS, _TOLERANCE = 100, 1e-7
_MOST_SMALL = 24
_LEAST_SHARE_OUTSIDE = 5
_MOST_OUTSIDE = 400


def ica(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Share of rows recovered: over most of the rows, and over a table with no more rows than coordinates.

    runs: fresh tables and releases. Nothing for a release that has no rados.
    """
    if not isinstance(release, RadosRelease):
        return []
    most = table.rows - max(1, table.rows // _LEAST_SHARE_OUTSIDE)
    kept = exact_coordinates(release, table)
    rank = table.rank - (table.records.d - len(kept))
    small = min(most, max(2, rank - 1), _MOST_SMALL)
    found = []
    for rows in dict.fromkeys((small, most)):
        shares = [_run(release, table, rows, kept, random) for _ in range(runs)]
        few = rows == small
        note = (
            f"as if the table had {rows} rows, no more than the rank {rank} of its coordinates"
            if few and rows < most
            else f"rank of the coordinates: {rank}"
        )
        note += but_for(len(kept), table)
        outside = min(table.rows - rows, _MOST_OUTSIDE)
        found.append(recovered(NAME, release.name, release.rados, rows, shares, outside, release.promise, note))
    return found


def exact_coordinates(release: Release, table: Table) -> list[int]:
    """The coordinates without noise, or all if all have some: an adversary leaves out those that only disturb it."""
    noised = release.noised(table.records)
    kept = [column for column in range(table.records.d) if column not in noised]
    return kept or list(range(table.records.d))


def but_for(kept: int, table: Table) -> str:
    """A note, if rows are recovered but for coordinates with noise."""
    return "" if kept == table.records.d else "; without the coordinates that have noise"


def _run(release: Release, table: Table, rows: int, kept: list[int], random: RandomSource) -> tuple[float, float]:
    generator = generator_of(random)
    inside, outside = table.split(rows, generator)
    rados = release.drawn(inside, random)[:, kept].astype(np.float64) * 2.0**-release.fraction_bits
    guesses = edges_from(rados, rows, generator)
    sides = (release.edges(inside)[:, kept], release.edges(outside)[:_MOST_OUTSIDE, kept])
    within, without = (hits(each, guesses, release.fraction_bits) for each in sides)
    return within, without


def edges_from(rados: Floats, rows: int, generator: np.random.Generator) -> Floats:
    """Guesses of edges, at most `rows` and at most the rank of the rados: (k, d), in the rados' unit."""
    mean = rados.mean(axis=0)
    centred = rados - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(rados))
    kept = np.flatnonzero(values > values.max() * 1e-10)[::-1][:rows]
    if not len(kept) or len(rados) < 2:
        return np.zeros((0, rados.shape[1]))
    white = (vectors[:, kept] / np.sqrt(values[kept])).T
    sources = centred @ white.T
    rotation = _rotation(sources, generator)
    turned = sources @ rotation.T
    empty = -(mean @ white.T) @ rotation.T
    return from_signatures(rados, turned * -np.sign(empty) > 0)


def _rotation(white: Floats, generator: np.random.Generator) -> Floats:
    """The rotation of whitened sources whose components are least Gaussian: (k, k), a component a row."""
    size = white.shape[1]
    rotation = _orthogonal(generator.standard_normal((size, size)))
    for _ in range(_MOST_STEPS):
        bent = np.tanh(white @ rotation.T)
        turned = _orthogonal(bent.T @ white / len(white) - (1 - bent**2).mean(axis=0)[:, np.newaxis] * rotation)
        moved = float(np.abs(np.abs(np.einsum("ij,ij->i", turned, rotation)) - 1).max())
        rotation = turned
        if moved < _TOLERANCE:
            break
    return rotation


def _orthogonal(matrix: Floats) -> Floats:
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right, dtype=np.float64)


def from_signatures(rados: Floats, selection: NDArray[np.bool_]) -> Floats:
    """The edges that explain rados (n, d) best for given signatures (n, k): (k, d), by least squares."""
    return np.asarray(np.linalg.lstsq(selection.astype(np.float64), rados, rcond=None)[0], dtype=np.float64)


def hits(edges: NDArray[np.int64], guesses: Floats, fraction_bits: int) -> float:
    """The share of edges (m, d), in integer units, that some guess (k, d), in real units, agrees with."""
    if not len(guesses):
        return 0.0
    real = edges * 2.0**-fraction_bits
    found = np.zeros(len(real), dtype=np.bool_)
    for guess in guesses:
        found |= (np.abs(real - guess) <= AGREES).all(axis=1)
    return float(found.mean())
