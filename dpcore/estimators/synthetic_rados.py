"""Synthetic rados: draws from a normal distribution with the mean and covariance of a moments release.

The sum of many independent terms is nearly normal, so such rados resemble the parties' plain rados, and a rado
estimator can be trained on them. They cost no privacy for any number of draws.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.statistics.moments import Moments

Matrix = NDArray[np.float64]


def synthetic_rados(moments: Moments, count: int, random: np.random.Generator) -> Matrix:
    """Rados (count, d) from N((1/2) sum_i e_i, (1/4) sum_i e_i e_i^T), the moments of the population of all 2^m rados.

    The released matrix is first projected onto the nearest positive semi-definite one. random: any generator; the draws
    need no protection. Raises ConfigurationError if count < 1.
    """
    if count < 1:
        raise ConfigurationError(f"{count} synthetic rados: ask for at least one")
    values, vectors = np.linalg.eigh(moments.product_sum)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rados: Matrix = 0.5 * (moments.edge_sum + random.standard_normal((count, moments.d)) @ root.T)
    return rados
