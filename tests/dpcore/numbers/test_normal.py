"""The normal distribution's functions beside mpmath's 40 digits, over all that their errors are stated for."""

import mpmath
import numpy as np
import pytest
from scipy import special

from dpcore.numbers import distributions

STATED = 2.0**-47
# In exact arithmetic: what the rational functions themselves leave.
APPROXIMATION = 2.0**-53
INTERVALS = {
    "near": np.linspace(0, 15 / 32, 301),
    "middle": np.linspace(15 / 32, 4, 301)[1:],
    "far": np.append(np.linspace(4, 30, 301)[1:], np.geomspace(30, 1e15, 100)),
}


def exact_erfcx(x):
    with mpmath.workdps(40):
        x = mpmath.mpf(float(x))
        if x < 1000:
            return mpmath.exp(x * x) * mpmath.erfc(x)
        # Digital Library of Mathematical Functions, 7.12.1: the first term that is left out is below 1e-40.
        terms = (mpmath.fac2(2 * n - 1) / (-2 * x * x) ** n for n in range(1, 9))
        return (1 + mpmath.fsum(terms)) / (x * mpmath.sqrt(mpmath.pi))


def errors(found, expected):
    with mpmath.workdps(40):
        return [float(abs(mpmath.mpf(float(one)) / other - 1)) for one, other in zip(found, expected, strict=True)]


@pytest.mark.parametrize("interval", INTERVALS)
def test_the_scaled_complement_is_right(interval):
    """Both ways: number by number, and in arrays."""
    x = INTERVALS[interval]
    expected = [exact_erfcx(one) for one in x]
    assert max(errors(distributions.erfcx(x), expected)) < STATED
    assert max(errors([distributions.erfcx(np.array([one]))[0] for one in x], expected)) < STATED


@pytest.mark.parametrize("interval", INTERVALS)
def test_the_rational_functions_are_closer_than_rounding(interval):
    with mpmath.workdps(40):
        for one in INTERVALS[interval][::3]:
            x = mpmath.mpf(float(one))
            if interval == "near":
                found = (1 - x * ratio(distributions._NEAR_N, distributions._NEAR_D, x * x)) * mpmath.exp(x * x)
            elif interval == "middle":
                found = ratio(distributions._MIDDLE_N, distributions._MIDDLE_D, x)
            else:
                found = (
                    1 / mpmath.sqrt(mpmath.pi) - ratio(distributions._FAR_N, distributions._FAR_D, x**-2) / x**2
                ) / x
            assert abs(found / exact_erfcx(x) - 1) < APPROXIMATION


def ratio(above, below, x):
    return polynomial(above, x) / polynomial(below, x)


def polynomial(coefficients, x):
    return mpmath.fsum(mpmath.mpf(one) * x**power for power, one in enumerate(reversed(coefficients)))


@pytest.mark.parametrize(
    "size", [1, distributions._SHORT - 1, distributions._SHORT, distributions._PIECE + 1, 3 * distributions._PIECE]
)
def test_every_length_and_order_gives_the_same(size):
    x = np.random.default_rng(size).permutation(np.linspace(0, 9, size))
    np.testing.assert_allclose(distributions.erfcx(x), special.erfcx(x), rtol=STATED)


def test_both_tails_are_right_down_to_underflow():
    z = np.concatenate([np.linspace(-37.5, 37.5, 451), [-1e-300, 1e-300, -1e-9, 0.0, -0.0]])
    below, above = distributions.tails(z)
    with mpmath.workdps(40):
        assert max(errors(below, [mpmath.ncdf(float(one)) for one in z])) < STATED
        assert max(errors(above, [mpmath.ncdf(-float(one)) for one in z])) < STATED


def test_what_underflows_is_nothing_or_everything():
    z = np.array([-np.inf, -1e300, -60.0, 60.0, 1e300, np.inf])
    below, above = distributions.tails(z)
    assert below.tolist() == [0, 0, 0, 1, 1, 1]
    assert above.tolist() == [1, 1, 1, 0, 0, 0]
    assert distributions.erfcx(np.array([np.inf])).tolist() == [0]


def test_the_quantile_is_right_to_a_few_digits_less_than_all():
    with mpmath.workdps(40):
        for probability in (*np.geomspace(1e-290, 0.4, 60).tolist(), 0.6, 0.999, 1 - 1e-12):
            z = mpmath.mpf(distributions.quantile(probability))
            step = (mpmath.ncdf(z) - mpmath.mpf(probability)) / mpmath.npdf(z)
            assert abs(step / z) < 1e-14
    assert distributions.quantile(0.5) == 0
    # The share of a failure that underflows.
    assert distributions.quantile(0.0) == -np.inf
