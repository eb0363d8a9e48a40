"""Draws: uniform and normal numbers, two-sided."""

import numpy as np
from scipy import stats

from dpcore.randomness.sources import SeededRandom
from dpcore.research.erm import normals, uniforms


def test_numbers_have_their_distributions_and_no_other():
    uniform, normal = uniforms(20_000, SeededRandom(1)), normals(20_000, SeededRandom(2))
    assert 0 < uniform.min() < uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    assert stats.kstest(normal, "norm").pvalue > 1e-4
    for scale in (0.7, 1.3):
        assert stats.kstest(normal * scale, "norm").pvalue < 1e-6


def test_extreme_bits_stay_inside():
    class Ones:
        def bytes(self, count):
            return b"\xff" * count

    class Zeros:
        def bytes(self, count):
            return bytes(count)

    assert uniforms(1, Ones())[0] < 1
    assert uniforms(1, Zeros())[0] > 0
    assert np.isfinite(normals(1, Ones())[0])
