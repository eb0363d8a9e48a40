"""Distribution of k, the count that determines DP-FEAT's sensitive coordinate.

With a uniform signature, k ~ Binomial(m, 1/2) for all data. Truncation conditions it on low <= k <= m - low. The k of
the pool is the sum of the parties'. All these distributions are symmetric about half the row count.

Tails are cut: `trimmed` bounds the total variation distance to the true distribution. Masses are products and sums of
positive numbers, whose number bounds their `relative_error`.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROUND_OFF = 2.0**-53
# Tails with a total mass below 2^-400 on both sides are cut. By Hoeffding they start 11.8 sqrt(m) either side of m/2.
TAIL_BITS = 400
# If the distribution is conditioned on the truncation, the cut tail has at most (m + 1) times more mass: the admitted
# range contains the mode, whose mass is at least 1/(m + 1). Rows are below 2^60.
TRIMMED = 2.0 ** (60 - TAIL_BITS)
MOST_ROWS = 1 << 60


@dataclass(frozen=True, eq=False)
class CountDistribution:
    """A distribution of k on the integers low, low + 1, ...: symmetric, all masses positive, sum 1."""

    low: int
    masses: NDArray[np.float64]
    """(width,)."""
    losses: NDArray[np.float64]
    """(width - 1,), log(p(k) / p(k - 1)) for k = low + 1, ..., nats, decreasing."""
    trimmed: float
    """Bounds the total variation distance to the true distribution."""
    relative_error: float
    """Bounds the relative error of each mass, up to one common factor."""
    loss_error: float
    """Bounds the absolute error of each loss."""


def _window(rows: int) -> int:
    """The least k of the window: P(|k - m/2| > m/2 - window) <= 2 exp(-2 (m/2 - window)^2 / m) <= 2^-TAIL_BITS."""
    half_width = math.ceil(math.sqrt((TAIL_BITS + 1) * math.log(2) * rows / 2)) + 1
    return max(0, rows // 2 - half_width)


def hardly_truncated(rows: int, low: int) -> bool:
    """Whether a truncation cuts no more than the window does: the distribution is the binomial, within `trimmed`."""
    return 0 < low < _window(rows)


def _halves(rows: int, low: int) -> NDArray[np.float64]:
    """Binomial(rows, 1/2) on low..rows-low, divided by the mass of its mode.

    From the mode outwards p(k-1) = p(k) k / (m-k+1). Each factor is rounded at most twice and each product once, so the
    relative error is at most 3 round-offs a step. The window keeps all masses above 2^-700, far from underflow.
    """
    mode = rows // 2
    k = np.arange(mode, low, -1, dtype=np.float64)
    left = np.concatenate([np.ones(1), np.cumprod(k / (rows - k + 1))])
    return np.concatenate([left[::-1], left[1:] if rows % 2 == 0 else left])


def binomial_mass(rows: int, low: int) -> float:
    """P(low <= Binomial(rows, 1/2) <= rows - low), with a relative error below 1e-9; 0 if the range is empty."""
    if 2 * low > rows:
        return 0.0
    window = _window(rows)
    whole = _halves(rows, window)
    cut = max(0, low - window)
    return float(whole[cut : len(whole) - cut].sum() / whole.sum())


def binomial_distribution(rows: int, low: int = 0) -> CountDistribution:
    """Binomial(rows, 1/2) conditioned on low <= k <= rows - low. Assumes 1 <= rows < 2^60 and a non-empty range."""
    assert 1 <= rows < MOST_ROWS
    assert 0 <= 2 * low <= rows
    first = max(low, _window(rows))
    masses = _halves(rows, first)
    k = np.arange(first + 1, rows - first + 1, dtype=np.float64)
    losses = np.log1p((rows + 1 - 2 * k) / k)
    return CountDistribution(
        low=first,
        masses=masses / masses.sum(),
        losses=losses,
        trimmed=TRIMMED if first > low else 0.0,
        relative_error=4 * ROUND_OFF * len(masses),
        loss_error=8 * ROUND_OFF * float(np.abs(losses).max(initial=0.0)),
    )


def convolution(a: CountDistribution, b: CountDistribution) -> CountDistribution:
    """The distribution of the sum of two independent counts."""
    masses = np.convolve(a.masses, b.masses)
    # A sum of w positive products is off by at most w + 1 round-offs.
    error = a.relative_error + b.relative_error + 2 * ROUND_OFF * (min(len(a.masses), len(b.masses)) + 2)
    # Rounding breaks the symmetry; this restores it. The mean of two values has at most the larger of their errors.
    masses = (masses + masses[::-1]) / 2
    cut = int(np.searchsorted(np.cumsum(masses), 2.0 ** -(TAIL_BITS + 1), side="right"))
    dropped = 4 * float(masses[:cut].sum())
    masses = masses[cut : len(masses) - cut]
    losses = np.diff(np.log(masses))
    return CountDistribution(
        low=a.low + b.low + cut,
        masses=masses / masses.sum(),
        losses=losses,
        trimmed=a.trimmed + b.trimmed + dropped,
        relative_error=error,
        # The logarithms themselves are off by a few round-offs of their size, at most TAIL_BITS log 2.
        loss_error=2 * error + 8 * ROUND_OFF * (TAIL_BITS + 100),
    )


def pooled_distribution(parties: Sequence[tuple[int, int]]) -> CountDistribution:
    """The distribution of the sum of k over independent parties, each given as (rows, low).

    Parties whose truncation is beyond their window are, within `trimmed`, not truncated, and a sum of untruncated
    binomials is the binomial of the summed rows. So only truncated distributions are convolved, equal ones by repeated
    doubling, and the narrowest first.
    """
    assert parties
    untruncated = [(rows, low) for rows, low in parties if low <= _window(rows)]
    truncated = Counter((rows, low) for rows, low in parties if low > _window(rows))
    counts: list[CountDistribution] = [
        _power(binomial_distribution(*party), count) for party, count in truncated.items()
    ]
    if untruncated:
        whole = binomial_distribution(sum(rows for rows, _ in untruncated))
        # For each untruncated party with low > 0 the binomial replaces the conditioned distribution.
        replaced = TRIMMED * sum(low > 0 for _, low in untruncated)
        counts.append(
            CountDistribution(
                whole.low, whole.masses, whole.losses, whole.trimmed + replaced, whole.relative_error, whole.loss_error
            )
        )
    # Ties are broken by arrival, since distributions do not compare.
    arrival = itertools.count()
    heap = [(len(count.masses), next(arrival), count) for count in counts]
    heapq.heapify(heap)
    while len(heap) > 1:
        *_, a = heapq.heappop(heap)
        *_, b = heapq.heappop(heap)
        both = convolution(a, b)
        heapq.heappush(heap, (len(both.masses), next(arrival), both))
    return heap[0][2]


def _power(base: CountDistribution, count: int) -> CountDistribution:
    """The distribution of the sum of `count` independent copies."""
    result: CountDistribution | None = None
    while True:
        if count % 2:
            result = base if result is None else convolution(result, base)
        count //= 2
        if count == 0:
            assert result is not None
            return result
        base = convolution(base, base)
