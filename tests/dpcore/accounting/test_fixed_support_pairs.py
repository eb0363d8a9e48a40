"""Fixed support over two rows, one in each rado: what their noised table tells in truth, beside what is counted.

The rados show both rows with their noise, and not which is which. The accounting supposes that the record's own is
known. In the plane, by quadrature: with v the noise's deviation, rows z, z' have density N(e)(z) N(c)(z') and the same
with z and z' exchanged, half each; e or e' is the record's edge and c that of the other one.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from dpcore.accounting.gaussian import gaussian_epsilon, gaussian_mu

DELTA = 0.1
SIGMA = 2 / gaussian_mu(1, DELTA)
"""The least noise that is counted as epsilon 1, for edges of length 1."""
OLD, NEW = (1.0, 0.0), (-1.0, 0.0)
"""The record's two edges: the farthest."""
OTHERS = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.6, 0.8), (-0.6, 0.8), (-0.5, 0.0)]
"""Of the other record: none, the old one, across it, and between. The new one tells most."""


def epsilon_on_a_line(other, sigma, delta=DELTA):
    """The epsilon at delta by the midpoint rule, for edges on one line."""
    step = 0.05 * sigma
    z = np.arange(-9 * sigma - 2, 9 * sigma + 2, step)
    one, two = np.meshgrid(z, z)

    def density(edge):
        def normal(at, mean):
            return np.exp(-np.square((at - mean) / sigma) / 2) / (sigma * math.sqrt(2 * math.pi))

        return (normal(one, edge) * normal(two, other) + normal(two, edge) * normal(one, other)) / 2

    p, q = density(OLD[0]), density(NEW[0])
    return brentq(lambda epsilon: np.maximum(p - math.exp(epsilon) * q, 0).sum() * step**2 - delta, 0, 20)


def epsilon_by_draws(first, second, other, draws=100_000):
    """The same in the plane, either way round, from draws of the loss: the mean of max(0, 1 - e^(epsilon - loss))."""
    generator = np.random.default_rng(5)
    rows = [np.array(edge) + SIGMA * generator.standard_normal((draws, 2)) for edge in (first, other)]

    def log_density(edge):
        either = [
            -(np.square(rows[k] - edge) + np.square(rows[1 - k] - other)).sum(axis=1) / (2 * SIGMA**2) for k in (0, 1)
        ]
        return np.logaddexp(*either)

    losses = log_density(np.array(first)) - log_density(np.array(second))
    return brentq(lambda epsilon: np.maximum(0, 1 - np.exp(epsilon - losses)).mean() - DELTA, 0, 20)


def test_two_rows_hide_one_another_and_a_fifth_of_the_noise_is_more_than_they_need():
    """docs/explanation/proofs.md, "Fixed support over few rows": 0.61 of 1, and 1 at 0.8 times the noise."""
    assert gaussian_epsilon(2 / SIGMA, DELTA).upper == pytest.approx(1, abs=1e-6)
    assert epsilon_on_a_line(NEW[0], SIGMA) == pytest.approx(0.609, abs=0.002)
    assert epsilon_on_a_line(NEW[0], 0.79 * SIGMA) > 1
    assert epsilon_on_a_line(NEW[0], 0.72 * 2 / gaussian_mu(1, 1e-6), 1e-6) > 1
    # With little noise the rows are told apart, and nearly all of what is counted is told.
    assert epsilon_on_a_line(NEW[0], 2 / gaussian_mu(16, DELTA)) > 15


@pytest.mark.parametrize("other", OTHERS)
def test_no_other_edge_that_was_tried_hides_the_record_less(other):
    assert epsilon_by_draws(OLD, NEW, NEW) == pytest.approx(0.609, abs=0.02)
    for pair in ((OLD, NEW), (NEW, OLD)):
        assert epsilon_by_draws(*pair, other) < 0.609 + 0.02
