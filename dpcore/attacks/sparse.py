"""Sparse recovery: who learned the signatures finds rows from fewer rados than rows, if most cells are zero.

With known signatures S (n, m) and n < m, the rados leave the rows open (Nock, Patrini, Friedman, ICML 2015, Lemma 9b).

If rows are sparse, the sparsest solution is often the true one, and the one with the least sum of absolute values finds
it (Donoho and Tanner, PNAS 102, 2005). With unknown signatures the problem is the paper's Sparse-Approximation, which
is NP-hard (Lemma 11).

Signatures are secrets of the party. The attack shows what they protect: a weak random source gives them away. One-hot
categories are sparse; numbers and -1/+1 columns are not, and are left out.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.attacks.components import AGREES
from dpcore.attacks.outcome import Outcome, not_played, recovered
from dpcore.attacks.release import Floats, Integers, RadosRelease, Release, Table, generator_of
from dpcore.randomness.sources import RandomSource

NAME = "sparse"
_DENSEST = 0.34
_STEPS, _SHRINKING, _LEAST_PENALTY = 60, 8, 1e-4


def sparse(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Share of the non-zero cells of sparse coordinates that are recovered, over at most two rows a rado."""
    if not isinstance(release, RadosRelease):
        return []
    nonzero = (table.records.features != 0).mean(axis=0)
    columns = np.flatnonzero((nonzero > 0) & (nonzero <= _DENSEST)).tolist()
    rows = min(table.rows - max(1, table.rows // 5), 2 * release.rados)
    if not columns:
        note = f"no coordinate is zero in {1 - _DENSEST:.0%} of the rows or more: nothing is sparse"
        return [not_played(NAME, release.name, release.rados, table.rows, note)]
    if release.rados >= rows:
        note = f"{release.rados} rados of {rows} rows with known signatures give every row by least squares (Lemma 9)"
        return [not_played(NAME, release.name, release.rados, rows, note)]
    shares = [_run(release, table, rows, columns, random) for _ in range(runs)]
    note = f"the signatures are known, and there are fewer rados than rows; {len(columns)} sparse coordinates"
    outside = table.rows - rows
    return [recovered(NAME, release.name, release.rados, rows, shares, outside, release.promise, note, measure="cells")]


def _run(
    release: RadosRelease, table: Table, rows: int, columns: list[int], random: RandomSource
) -> tuple[float, float]:
    inside, outside = table.split(rows, generator_of(random))
    selection, rados = release.drawn_with_signatures(inside, random)
    guesses = sparsest(selection.astype(np.float64), _real(rados[:, columns], release))
    within, without = (_real(release.edges(each)[:, columns], release) for each in (inside, outside))
    return _hits(within, guesses), _hits(without, guesses)


def _real(values: Integers, release: Release) -> Floats:
    return np.asarray(values * 2.0**-release.fraction_bits, dtype=np.float64)


def _hits(edges: Floats, guesses: Floats) -> float:
    """The share of the non-zero cells that guesses, row by row, agree with."""
    shared = min(len(edges), len(guesses))
    cells = edges[:shared] != 0
    if not cells.any():
        return 0.0
    return float((np.abs(edges[:shared] - guesses[:shared]) <= AGREES)[cells].mean())


def sparsest(selection: Floats, rados: Floats) -> Floats:
    """Rows (m, k) with S rows = rados, about, and the least sum of absolute values. selection: S, (n, m).

    Accelerated proximal steps with a penalty that shrinks (Beck and Teboulle, SIAM Journal on Imaging Sciences 2,
    2009), then least squares on the cells that are left.
    """
    centred, wanted = selection - selection.mean(axis=0), rados - rados.mean(axis=0)
    step = 1 / max(float(np.linalg.norm(centred, 2)) ** 2, 1e-300)
    largest = float(np.abs(centred.T @ wanted).max())
    found: Floats = np.zeros((selection.shape[1], rados.shape[1]))
    for penalty in largest * np.geomspace(0.5, _LEAST_PENALTY, _SHRINKING):
        ahead, inertia = found, 1.0
        for _ in range(_STEPS):
            last = found
            moved = ahead - step * (centred.T @ (centred @ ahead - wanted))
            found = np.sign(moved) * np.maximum(np.abs(moved) - step * penalty, 0.0)
            following = (1 + np.sqrt(1 + 4 * inertia**2)) / 2
            ahead = found + (inertia - 1) / following * (found - last)
            inertia = following
    return np.column_stack([_refitted(selection, rados[:, at], found[:, at]) for at in range(rados.shape[1])])


def _refitted(selection: Floats, rados: Floats, found: Floats) -> Floats:
    """The cells of one column that are not about zero, fitted again without the penalty."""
    kept: NDArray[np.intp] = np.flatnonzero(np.abs(found) > AGREES)
    fitted = found.copy()
    if 0 < len(kept) < len(rados):
        fitted[:] = 0.0
        fitted[kept] = np.linalg.lstsq(selection[:, kept], rados, rcond=None)[0]
    return fitted
