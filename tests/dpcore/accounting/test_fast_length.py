"""Lengths of Fourier transforms: the least without large prime factors."""

from scipy.fft import next_fast_len

from dpcore.accounting.composition import _fast_length


def test_lengths_are_those_that_scipy_takes():
    lengths = [*range(1, 3000), *range(10**6, 10**6 + 300), 2**31 - 1]
    assert [_fast_length(least) for least in lengths] == [next_fast_len(least, real=True) for least in lengths]
