"""Arrays of uniform and normal numbers from a source of random bits.

Uniform numbers are multiples of 2^-53, and normal ones their quantiles. They suit random walks; no privacy proof holds
for distributions in double precision (Mironov, CCS 2012).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpcore.randomness.coins import words
from dpcore.randomness.sources import RandomSource


def uniforms(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` numbers strictly between 0 and 1: odd multiples of 2^-53."""
    return ((words(count, random) >> np.uint64(12)).astype(np.float64) * 2.0 + 1.0) * 2.0**-53


def normals(count: int, random: RandomSource) -> NDArray[np.float64]:
    """`count` standard normal numbers, by the quantile function."""
    quantiles: NDArray[np.float64] = ndtri(uniforms(count, random))
    return quantiles
