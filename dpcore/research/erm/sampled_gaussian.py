"""The subsampled Gaussian mechanism with one record of n per step: an epsilon for many steps, with its proof.

One step. An index is drawn uniformly from n >= 2 records; the output is that record's vector plus N(0, sigma^2 I). No
two vectors are further apart than Delta; mu = Delta / sigma. Neighbours: one record is replaced.

Write gamma = 1/n, A for the mean of the output distributions over the other records, B and B' for those of the replaced
one: M = (1 - gamma) A + gamma B and M' = (1 - gamma) A + gamma B'. H_b(P | Q) = integral of (P - b Q)_+.

Amplification. For b >= 1 let a = 1 + (b - 1) / gamma. Then M - b M' = gamma (B - a C) with C = ((a - 1)(1 - gamma) A +
b B') / a, a mixture, whose weights add up to 1 since (a - 1)(1 - gamma) + b = a.

H_a(B | .) is convex, and each component of C is a Gaussian within Delta of B, so (Balle, Barthe and Gaboardi, NeurIPS
2018, Theorems 2 and 11)

    H_b(M | M') = gamma H_a(B | C) <= gamma H_a(N(mu, 1) | N(0, 1)) = E[(t - b)_+],  t = 1 + gamma (r - 1)_+,

r = exp(mu x - mu^2 / 2) the likelihood ratio at x ~ N(0, 1). The same holds with M and M' exchanged.

Renyi divergence. For an order k > 1 and f(t) = t^k - 1 - k (t - 1), E_M'[(M / M')^k] - 1 is the integral of f''(b)
H_b(M | M') over b > 1 plus that of f''(b) b H_{1/b}(M' | M) over b < 1 (Liese and Vajda, IEEE Trans.

Inf. Theory 2006; (P - b Q)_+ - (P - b Q) = b (Q - P / b)_+). Substitute b for 1/b in the second: their sum is the
integral of k (k - 1) (b^(k-2) + b^(-k-1)) H_b over b > 1, and with the bound on H_b

    E_M'[(M / M')^k] <= 1 + E[F(t)],  F(t) = t^k + t^(1-k) - 1 - t = (t^k - t)(1 - t^-k),

since F'' is that weight and F(1) = F'(1) = 0.

Many steps. Divergences of one order add up, even if a step depends on earlier outputs (Mironov, CSF 2017, Proposition
1). To epsilon: Canonne, Kamath and Steinke (NeurIPS 2020), Proposition 12.

Integer noise is within a factor e^(+-lambda) of post-processed continuous noise (dpcore.accounting.integer_noise),
given the index, so for mixtures too, and moves a divergence by at most (2 + 1/(k - 1)) lambda.

Computation. F(t) does not fall in x, and is 0 below mu / 2.

Cells of width h from there, with F at the upper end and the density at the lower, bound the expectation from above;
beyond the last cell F(t) <= r^k, whose expectation above X is exp(k (k - 1) mu^2 / 2) times the normal tail at X - k
mu.
"""

import math
from fractions import Fraction

import numpy as np
from scipy.special import log_ndtr

from dpcore.accounting.gaussian import check_delta
from dpcore.errors import PlanError

_CELLS = 4096
_BEYOND = 13.0
_ORDERS = 1.0 + np.geomspace(0.01, 1e6, 161)
# For about ten operations on numbers with errors of a few units in the last place; exponents stay below 700.
_ROUNDING = 1e-11
_LARGEST_EXPONENT = 600.0


def sampled_epsilon(mu: float, n: int, steps: int, delta: Fraction | float, slack: float = 0.0) -> float:
    """An epsilon at which the composition of `steps` such steps over n records is (epsilon, delta)-private, rounded up.

    mu: Delta / sigma, rounded up by the caller. slack: lambda of one step's noise. Returns inf if no order gives a
    bound. Raises PlanError if an argument is out of range.
    """
    budget = check_delta(delta)
    if not (math.isfinite(mu) and mu > 0) or n < 2 or steps < 1 or not slack >= 0:
        raise PlanError(f"mu {mu}, {n} records, {steps} steps: give mu > 0, at least two records and one step")
    least = math.inf
    for order in _ORDERS:
        k = float(order)
        spent = steps * (renyi_divergence(mu, n, k) + (2 + 1 / (k - 1)) * slack)
        terms = (spent, math.log1p(-1 / k), -math.log(budget) / (k - 1), -math.log(k) / (k - 1))
        least = min(least, math.fsum(terms) + _ROUNDING * (1 + sum(map(abs, terms))))
    return max(0.0, least)


def renyi_divergence(mu: float, n: int, order: float) -> float:
    """An upper bound on the Renyi divergence of one step, in nats; inf if double precision cannot represent it."""
    last = order * mu + _BEYOND
    edges = np.linspace(mu / 2, last, _CELLS + 1)
    # log t at the upper end of each cell.
    ratio_logs = mu * edges[1:] - mu * mu / 2
    tail_log = order * (order - 1) * mu * mu / 2 + float(log_ndtr(-_BEYOND))
    if order * ratio_logs[-1] > _LARGEST_EXPONENT or tail_log > _LARGEST_EXPONENT:
        return math.inf
    log_t = np.log1p(np.expm1(ratio_logs) / n)
    values = np.exp(log_t) * np.expm1((order - 1) * log_t) * -np.expm1(-order * log_t)
    density = np.exp(-np.square(edges[:-1]) / 2) / math.sqrt(2 * math.pi)
    excess = float(values @ density) * (edges[1] - edges[0]) + math.exp(tail_log)
    return math.log1p(excess * (1 + _ROUNDING * (1 + order))) / (order - 1) * (1 + _ROUNDING)
