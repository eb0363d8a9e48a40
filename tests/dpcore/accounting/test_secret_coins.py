"""Secret coins: no two edges are told apart better than is counted, and opposite ones in many rados nearly as well."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from dpcore.accounting.gaussian import gaussian_delta, gaussian_mu

STEP = 0.1
AXIS = np.arange(-9, 9 + STEP / 2, STEP)
EPSILONS = (0.0, 0.2, 1.0, 3.0)


def normal(x, mean):
    return np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi)


def told_apart(first, second, epsilon):
    """The divergence of one rado in the plane, by the midpoint rule; the edges in units of sigma."""
    x, y = np.meshgrid(AXIS, AXIS)
    p, q = (normal(x, 0) * normal(y, 0) / 2 + normal(x, edge[0]) * normal(y, edge[1]) / 2 for edge in (first, second))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * STEP**2)


@pytest.mark.parametrize("length", [pytest.param(0.7, marks=pytest.mark.more), 2.0])
def test_no_two_edges_of_a_rado_are_told_apart_better_than_opposite_ones_of_full_length(length):
    """In all directions and lengths, and in no case better than a shift by one length."""
    angles, lengths = (0, 0.6, 1.6, 2.6, math.pi), (0.0, 0.5, 1.0)
    for epsilon in EPSILONS:
        worst = told_apart((length, 0), (-length, 0), epsilon)
        counted = gaussian_delta(length, epsilon).upper
        assert worst < counted + 1e-4
        for angle, one, other in itertools.product(angles, lengths, lengths):
            edges = (one * length, 0), (other * length * math.cos(angle), other * length * math.sin(angle))
            assert told_apart(*edges, epsilon) <= worst + 1e-4
    # A shift that is a good deal shorter would be too little.
    assert told_apart((length, 0), (-length, 0), 0.0) > gaussian_delta(0.6 * length, 0.0).upper


def composed(shift, rados, epsilon):
    """The divergence of `rados` rados of opposite edges, whose loss distribution is composed by a transform."""
    x = np.linspace(-12, 12, 200_001)
    p, q = ((normal(x, 0) + normal(x, away)) / 2 for away in (shift, -shift))
    points, step = 1 << 17, 20 / (1 << 17)
    masses = p * (x[1] - x[0])
    masses /= masses.sum()
    # Each mass over two points of the grid, in proportion: the mean loss stays as it is.
    place = np.log(p / q) / step
    below = np.floor(place).astype(np.int64)
    grid = np.bincount(below % points, masses * (1 - place + below), minlength=points)
    grid += np.bincount((below + 1) % points, masses * (place - below), minlength=points)
    whole = np.maximum(np.fft.irfft(np.fft.rfft(grid) ** rados, points), 0)
    losses = np.fft.fftfreq(points, 1 / points) * step
    return float((whole * np.maximum(1 - np.exp(epsilon - losses), 0)).sum())


@pytest.mark.parametrize(("rados", "mu"), [(16, 1.5), (400, 0.6), (400, 1.5)])
def test_many_rados_are_told_apart_nearly_as_well_as_is_counted(rados, mu):
    """Never better; and better than a bound with a shift that is shorter by a tenth, or by a fiftieth for 400 rados."""
    for epsilon in EPSILONS[:3]:
        found = composed(mu / math.sqrt(rados), rados, epsilon)
        assert found <= gaussian_delta(mu, epsilon).upper + 1e-9
        assert found > gaussian_delta((0.98 if rados == 400 else 0.9) * mu, epsilon).upper


def reached(shift, epsilon):
    """The most of P(t, inf) - e^epsilon Q(t, inf), one rado of opposite edges. Each t is an event: no bound is less."""
    t = np.linspace(0, 12, 48_001)
    p, q = ((norm.sf(t) + norm.sf(t - away)) / 2 for away in (shift, -shift))
    return float((p - math.exp(epsilon) * q).max())


@pytest.mark.parametrize(("epsilon", "delta", "saved"), [(1, 1e-6, 0.0064), (4, 1e-6, 0.0254), (1, 0.1, 0.105)])
def test_no_proof_could_lower_the_noise_of_one_rado_by_more(epsilon, delta, saved):
    """docs/explanation/proofs.md, "Secret coins": what the shift gives away."""
    counted = gaussian_mu(epsilon, delta)
    assert reached(counted, epsilon) <= delta
    assert reached(counted / (1 - saved), epsilon) > delta


def test_a_third_of_the_noise_of_public_coins_would_be_far_too_little():
    """Public coins: half of the delta of a shift by two lengths."""
    public = gaussian_mu(1, 2e-6) / 2
    assert public / gaussian_mu(1, 1e-6) == pytest.approx(0.5177, abs=1e-4)
    assert reached(public / 0.35, 1) > 300e-6
