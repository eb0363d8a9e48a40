"""How much spread a symmetric matrix has along the eigenvectors of a noisy copy of it.

If M = S + W, with noise of standard deviation s in each entry of W, noise alone spreads the eigenvalues of M over 4 s
sqrt(d), and an eigenvector v_i of M is not one of S. For large d the spread v_i^T S v_i is

    lambda_i - 2 s^2 sum over j of 1 / (lambda_i - lambda_j)

up to a vanishing error, whatever S is: Bun, Allez, Bouchaud and Potters, "Rotational invariant estimator for general
noisy matrices", IEEE Transactions on Information Theory 62 (2016). For a finite d each 1 / x is x / (x^2 + width^2)
here, and the estimates are made ascending.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_WIDTH = 2.0
"""The width of the Hilbert transform's kernel over s. On six measured sets at epsilon 0.5 and 1 models of curves err
0.16 points more on average with 1, and 0.06 with 4."""


def cleaned_eigenvalues(values: Vector, noise: float) -> Vector:
    """Estimates of v_i^T S v_i, (d,), ascending; some may be negative. Without noise they are `values`.

    values: (d,), ascending eigenvalues of M. noise: s >= 0, the standard deviation of an entry of M.
    """
    if noise == 0.0:
        return values
    # In units of the noise: squares of very small or large differences would vanish or overflow.
    apart = np.subtract.outer(values, values) / noise
    repulsion = (apart / (np.square(apart) + _WIDTH**2)).sum(axis=1)
    found: Vector = np.maximum.accumulate(values - 2.0 * noise * repulsion)
    return found
