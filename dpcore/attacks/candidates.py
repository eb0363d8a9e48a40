"""Can these rados be made from my customers? Probe-Sample-Subsumption, by relaxation and rounding.

The paper's problem (Nock, Patrini, Friedman, ICML 2015, section 7.2): does a part of a list of candidates, with some
signatures, make the rados that were published? It is NP-hard (Lemma 12), so no attack is both fast and always right. A
relaxation is often right where numbers are small.

Every candidate i has an unknown z_i in {0, 1}, whether it is in the table. The rados' mean and covariance estimate the
table's sums sum_i z_i e_i and sum_i z_i e_i e_i^T, as moments do directly: d + d (d + 1) / 2 equations, linear in z,
each weighed by its noise.

With z in [0, 1] they are a least squares problem in a box (Beck and Teboulle, SIAM Journal
on Imaging Sciences 2, 2009). The m largest z_i are called members.
"""

import numpy as np

from dpcore.attacks.outcome import Outcome, guessed
from dpcore.attacks.release import Floats, Release, Sums, Table, chosen, generator_of
from dpcore.randomness.sources import RandomSource

NAME = "subsumption"
_STEPS = 300
# Twice as many rows as coordinates are soon played.
_SMALL, _MORE_OF_SMALL = 2, 5


def subsumption(release: Release, table: Table, runs: int, random: RandomSource) -> list[Outcome]:
    """Which candidates are in the table, of as many that are and that are not: the advantage of one call.

    Over half of the rows, and over a table with twice as many rows as coordinates. Nothing for a model, which has fewer
    numbers than that.
    """
    half = table.rows // 2
    found = []
    for rows in dict.fromkeys((min(half, _SMALL * table.records.d), half)):
        played = runs if rows == half else runs * _MORE_OF_SMALL
        right = [_run(release, table, rows, random) for _ in range(played)]
        if None in right:
            return []
        note = f"{2 * rows} candidates, of whom half are in the table"
        mean = sum(each for each in right if each is not None) / played
        found.append(guessed(NAME, release.name, release.rados, rows, mean, played, release.promise, note))
    return found


def _run(release: Release, table: Table, rows: int, random: RandomSource) -> float | None:
    generator = generator_of(random)
    order = generator.permutation(table.rows)[: 2 * rows]
    inside = chosen(table.records, order[:rows])
    sums = release.sums(release.drawn(inside, random), rows)
    if sums is None:
        return None
    edges = np.asarray(release.edges(chosen(table.records, order)) * 2.0**-release.fraction_bits, dtype=np.float64)
    called = np.argsort(-relaxed(edges, sums) + 1e-9 * generator.random(2 * rows))[:rows]
    return float((called < rows).mean())


def relaxed(edges: Floats, sums: Sums) -> Floats:
    """Each candidate's z in [0, 1]: (N,). edges: (N, d) in real units."""
    places = np.triu_indices(edges.shape[1])
    equations = np.concatenate([edges, edges[:, places[0]] * edges[:, places[1]]], axis=1)
    values = np.concatenate([sums.edges, sums.products[places]])
    deviations = np.concatenate([sums.edge_deviations, sums.product_deviations[places]])
    # An equation that is exact would hide the others.
    weights = 1 / np.maximum(deviations, 1e-3 * max(float(deviations.max()), 1e-12))
    matrix, wanted = (equations * weights).T, values * weights
    step = 1 / max(float(np.linalg.norm(matrix, 2)) ** 2, 1e-300)
    z = ahead = np.full(len(edges), 0.5)
    inertia = 1.0
    for _ in range(_STEPS):
        last = z
        z = np.clip(ahead - step * (matrix.T @ (matrix @ ahead - wanted)), 0.0, 1.0)
        following = (1 + np.sqrt(1 + 4 * inertia**2)) / 2
        ahead = z + (inertia - 1) / following * (z - last)
        inertia = following
    return np.asarray(z, dtype=np.float64)
