"""How much spread a symmetric matrix has along the eigenvectors of a noisy copy of it.

If M = S + W, with noise of standard deviation s in each entry of W, the eigenvalues of M are too far apart: noise
alone spreads them over 4 s sqrt(d). And an eigenvector v_i of M is not one of S, so the direction v_i has the spread
v_i^T S v_i, which is neither an eigenvalue of M nor one of S. For large d it is

    lambda_i - 2 s^2 sum over j of 1 / (lambda_i - lambda_j)

up to a vanishing error, whatever S is: Bun, Allez, Bouchaud and Potters, "Rotational invariant estimator for general
noisy matrices", IEEE Transactions on Information Theory 62 (2016), with the sum as the Hilbert transform of the
spectrum. For a finite d the terms of neighbours are without bounds, so each 1 / x is x / (x^2 + width^2) here, and the
estimates are made ascending, as the true values are on average.
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
