"""Convolutions by Fourier transforms: fast lengths, and rounding within its proved bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.fft import next_fast_len

from dpcore.numbers.distributions import convolved, fast_length, self_convolved, transform_error


def test_lengths_are_those_that_scipy_takes():
    lengths = [*range(1, 3000), *range(10**6, 10**6 + 300), 2**31 - 1]
    assert [fast_length(least) for least in lengths] == [next_fast_len(least, real=True) for least in lengths]


def exact_transform(values: np.ndarray, length: int) -> np.ndarray:
    """The transform in extended precision, (length // 2 + 1,): 11 bits more than doubles."""
    assert np.finfo(np.longdouble).eps < 2e-19
    pi = np.longdouble("3.14159265358979323846264338327950288")
    places = np.outer(np.arange(length // 2 + 1), np.arange(len(values))) % length
    angles = 2 * pi * places.astype(np.longdouble) / length
    return (np.cos(angles) * values).sum(1) - 1j * (np.sin(angles) * values).sum(1)


@pytest.mark.variants(9)
@pytest.mark.parametrize("length", [2, 3, 4, 5, 8, 15, 16, 27, 48, 60, 125, 128, 243, 375, 512, 600, 625, 1024])
@pytest.mark.parametrize("kind", ["mass", "one", "signs"])
def test_a_transform_is_within_its_bound(length, kind):
    """One point alone shows every product of twiddle factors; masses and signs show how errors add up."""
    generator = np.random.default_rng(length)
    values = {
        "mass": generator.dirichlet(np.full(length, 0.3)),
        "one": np.eye(1, length, length - 1)[0],
        "signs": generator.choice([-1.0, 1.0], length) / length,
    }[kind]
    off = np.abs(np.fft.rfft(values, length) - exact_transform(values, length)).max()
    assert off <= transform_error(length) * np.abs(values).sum()


@pytest.mark.more
def test_a_bound_is_not_vacuous():
    """The stated error is some hundred round-offs, within which no transform of single precision stays."""
    values = np.random.default_rng(1).dirichlet(np.full(1024, 0.3))
    rounded = values.astype(np.float32).astype(np.float64)
    off = np.abs(np.fft.rfft(rounded) - exact_transform(values, 1024)).max()
    assert off > transform_error(1024)
    assert transform_error(1 << 24) < 1e-13


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_powers_are_within_their_bound_of_exact_ones(n):
    pieces = np.random.default_rng(n).dirichlet(np.full(17, 0.4))
    exact = [Fraction(1)]
    for _ in range(n):
        exact = [
            sum((exact[i - j] * Fraction(float(pieces[j])) for j in range(17) if 0 <= i - j < len(exact)), Fraction(0))
            for i in range(len(exact) + 16)
        ]
    found, error = self_convolved(pieces, n, fast_length(len(exact)))
    off = max(abs(Fraction(float(value)) - true) for value, true in zip(found, exact, strict=False))
    assert off <= error
    assert error <= 2e-13 * n
    assert n == 1 or off > 0


def test_many_powers_are_within_their_bound():
    """Binomial(n, 1/2) by its own formula, n a million: the error grows with n, and so does its bound."""
    n = 1_000_000
    length = fast_length(20_000)
    found, error = self_convolved(np.array([0.5, 0.5]), n, length)
    counts = np.arange(n // 2 - 3000, n // 2 + 3001)
    logs = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2) for k in counts]
    # The logarithms are right to a few round-offs of their terms, of about 1e7.
    assert np.abs(found[counts % length] - np.exp(logs)).max() <= error + 1e-8 * max(np.exp(logs))
    assert error < 1e-9


@pytest.mark.parametrize("sizes", [(3, 5), (40, 7), (100, 300)])
def test_products_are_within_their_bound(sizes):
    a, b = (np.random.default_rng(size).dirichlet(np.full(size, 0.4)) for size in sizes)
    found, error = convolved(a, b)
    exact = np.zeros(len(found), dtype=np.longdouble)
    for place, mass in enumerate(a):
        exact[place : place + len(b)] += np.longdouble(mass) * b.astype(np.longdouble)
    assert len(found) == sum(sizes) - 1
    assert 0 < np.abs(found - exact).max() <= error < 1e-12
