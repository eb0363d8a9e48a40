"""The subsampled Gaussian mechanism with one record of n per step: an epsilon for many steps, with its proof.

One step. An index is drawn uniformly from n >= 2 records; the output is that record's vector plus N(0, sigma^2 I). No
two vectors are further apart than Delta; mu = Delta / sigma.

Neighbours: one record is replaced. With gamma = 1/n and r the likelihood ratio of N(mu, 1) to N(0, 1), t = 1 + gamma (r
- 1)_+,

    E_M'[(M / M')^k] <= 1 + E[F(t)],  F(t) = t^k + t^(1-k) - 1 - t = (t^k - t)(1 - t^-k).

Many steps: divergences of one order add up (Mironov, CSF 2017, Proposition 1); to epsilon by Canonne, Kamath and
Steinke (NeurIPS 2020), Proposition 12. Proof: docs/explanation/proofs.md, "The subsampled Gaussian mechanism".
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
