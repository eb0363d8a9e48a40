"""A test of independence in a table of noisy counts, which holds its level: the noise is part of what it expects.

The statistic is sum (X - E)^2 / (E + D^2) over cells, X the noisy counts, D the noise's standard deviation and E the
expected counts of the noisy margins, at least 0. A term stays bounded where noise is larger than the expected count.

Its distribution is that of tables that are made up: rows drawn independently by those margins, with the same noise,
measured as the real one. It is the Monte Carlo test of Gaboardi, Lim, Rogers and Vadhan (ICML 2016, MCIndep), with
another statistic. A chi-square test that takes noisy counts for exact rejects too often.

`tests/statistical/test_descriptive.py` measures its level under independence.
"""

from dataclasses import dataclass

import numpy as np

from dpcore.evaluation.intervals import CellNoise
from dpcore.numbers.fixed_point import Matrix

TABLES = 9_999
"""That are made up; a p-value is a multiple of 1 / (TABLES + 1)."""
_SEED = 0
"""The same answer has the same p-value each time that it is shown."""
_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Independence:
    """What the test found."""

    statistic: float
    p_value: float
    degrees: int
    """(R - 1) (C - 1)."""


def independence(counts: Matrix, noise: CellNoise, tables: int = TABLES) -> Independence | None:
    """The test on noisy counts (R, C), R and C at least 2; None if the noise could make the total 0."""
    rows, columns = counts.shape
    total = float(counts.sum())
    if total <= max(noise.half_width(counts.size, 1e-3), 1.0):
        return None
    random = np.random.default_rng(_SEED)
    variance = noise.deviation**2
    observed = float(_statistic(counts[np.newaxis], variance)[0])
    cells = _margins(counts[np.newaxis])[0].ravel()
    as_high, left = 0, tables
    while left:
        many = min(left, max(1, _AT_ONCE // counts.size))
        drawn = random.multinomial(round(total), cells / cells.sum(), many).astype(np.float64)
        drawn += _noise(noise, drawn.shape, random)
        as_high += int((_statistic(drawn.reshape(many, rows, columns), variance) >= observed).sum())
        left -= many
    return Independence(observed, (1 + as_high) / (1 + tables), (rows - 1) * (columns - 1))


def _margins(tables: Matrix) -> Matrix:
    """For each table (n, R, C) the shares that are expected of its cells, of margins that are at least 0."""
    by_row, by_column = (np.maximum(tables.sum(axis=axis), 0.0) for axis in (2, 1))
    by_row /= np.maximum(by_row.sum(axis=1, keepdims=True), 1e-300)
    by_column /= np.maximum(by_column.sum(axis=1, keepdims=True), 1e-300)
    found: Matrix = by_row[:, :, np.newaxis] * by_column[:, np.newaxis, :]
    return found


def _statistic(tables: Matrix, variance: float) -> Matrix:
    expected = _margins(tables) * np.maximum(tables.sum(axis=(1, 2)), 0.0)[:, np.newaxis, np.newaxis]
    weights = expected + variance
    found: Matrix = ((tables - expected) ** 2 / np.where(weights > 0.0, weights, 1.0)).sum(axis=(1, 2))
    return found


def _noise(noise: CellNoise, shape: tuple[int, ...], random: np.random.Generator) -> Matrix:
    """Noise like that of the counts: normal, or a sum of `copies` Laplace variables, the difference of two gammas."""
    if np.isinf(noise.copies) or noise.deviation == 0.0:
        return random.normal(0.0, noise.deviation, shape)
    scale = noise.deviation / np.sqrt(2.0 * noise.copies)
    return random.gamma(noise.copies, scale, shape) - random.gamma(noise.copies, scale, shape)
