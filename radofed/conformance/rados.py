"""Rados as a party uploads them: sums of rows that it drew in secret, so that only their distribution can be judged.

With e the edge vectors of m rows, and rado signatures as docs/protocol.md says, a rado has a known mean and
covariance:

- If every row is in with probability 1/2, they are sum(e) / 2 and sum(e e^T) / 4.
- If round(f m) = p m rows are in, they are p sum(e), and p (1 - p) m / (m - 1) times the scatter of e about its mean.

Sums of many rows are close to normal, and their tails are lighter. Whitened by the covariance they are judged as noise
of standard deviation 1.
"""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpcore.queries.rados import RadosQuery
from dpcore.records.records import Records, edges
from radofed.conformance.contribution import of_deviation
from wire.query import Query

_LEAST_SHARE = 1e-9
"""Of the largest variance: directions with less have none, but for rounding."""


def wrong_rados(query: Query, records: Records, values: NDArray[np.int64]) -> str | None:
    """What is wrong with one party's rados, (n d,) as they are sent; None if nothing."""
    rados, (mean, variances, directions) = _rados(query, values), _expected(query, records)
    design = _kind(query).design
    centre = mean
    if design.edge_noise:
        # The noise of a table is the same in all of its rados: it moves their mean.
        centre = rados.mean(0)
        support = _share(query, records)
        moved = support**2 * records.rows * float(design.edge_noise) ** 2
        of_mean = (centre - mean) @ directions / np.sqrt(moved + variances / len(rados))
        if (wrong := of_deviation(of_mean)) is not None:
            return f"the mean of the rados: {wrong}"
    apart = (rados - centre) @ directions
    flat = variances <= _LEAST_SHARE * variances.max()
    if flat.any() and float(np.abs(apart[:, flat]).max()) > 1:
        return "coordinates that depend on one another in every row do not in the rados"
    freedom = len(rados) - 1 if design.edge_noise else len(rados)
    whitened = apart[:, ~flat] / np.sqrt(variances[~flat] * freedom / len(rados))
    wrong = of_deviation(whitened.reshape(-1))
    return None if wrong is None else f"the rados are not those of the rows: {wrong}"


def wrong_repeated_table(
    query: Query, records: Records, first: NDArray[np.int64], second: NDArray[np.int64]
) -> str | None:
    """What is wrong with two uploads of rados over one table with noise; None if the noise is the same in both."""
    _, variances, directions = _expected(query, records)
    one, other = _rados(query, first), _rados(query, second)
    apart = (one.mean(0) - other.mean(0)) @ directions / np.sqrt(variances * (1 / len(one) + 1 / len(other)))
    wrong = of_deviation(apart)
    return None if wrong is None else f"the same table asked again has other noise, which could be averaged: {wrong}"


def _kind(query: Query) -> RadosQuery:
    return cast("RadosQuery", query.kind)


def _rados(query: Query, values: NDArray[np.int64]) -> NDArray[np.float64]:
    return values.reshape(_kind(query).rados, -1).astype(np.float64)


def _share(query: Query, records: Records) -> float:
    """p, the share of the rows that a rado selects."""
    support = _kind(query).design.support
    return 0.5 if support is None else round(support * records.rows) / records.rows


def _expected(query: Query, records: Records) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The mean of a rado (d,), its variances (d,) along the columns of an orthogonal matrix (d, d), and this one."""
    from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

    design, bits = _kind(query).design, query.encoding.fraction_bits
    blocks = [block for _, block in edges(records, bits, design.coded)]
    if design.clipping is not None:
        for block in blocks:
            clip_in_place(design.clipping, block, bits)
    rows = np.concatenate(blocks).astype(np.float64)
    count, share = len(rows), _share(query, records)
    if design.support is None:
        covariance = rows.T @ rows / 4
    else:
        apart = rows - rows.mean(0)
        scatter = apart.T @ apart + np.eye(rows.shape[1]) * count * float(design.edge_noise) ** 2
        covariance = share * (1 - share) * count / (count - 1) * scatter
    variances, directions = np.linalg.eigh(covariance)
    return share * rows.sum(0), np.maximum(variances, 0), directions
