"""Lattice reduction, compiled. Imported where it is used: Numba takes half a second to import.

Lenstra, Lenstra and Lovasz (Mathematische Annalen 261, 1982), with exact inner products and orthogonalisation in double
precision that is computed again for each vector (Nguyen and Stehle, SIAM Journal on Computing 39, 2009).
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled

_PASSES = 20


@compiled("float64(int64[:, ::1], int64, int64)")
def _inner(basis: NDArray[np.int64], one: int, other: int) -> float:
    total = 0.0
    for column in range(basis.shape[1]):
        total += float(basis[one, column]) * float(basis[other, column])
    return total


@compiled("boolean(int64[:, ::1], float64[:, ::1], int64)")
def _shorten(basis: NDArray[np.int64], mu: NDArray[np.float64], k: int) -> bool:
    """Subtract multiples of earlier vectors from vector k; whether any was."""
    changed = False
    for j in range(k - 1, -1, -1):
        times = np.rint(mu[k, j])
        if times == 0.0:
            continue
        changed = True
        for column in range(basis.shape[1]):
            basis[k, column] -= np.int64(times) * basis[j, column]
        for other in range(j):
            mu[k, other] -= times * mu[j, other]
        mu[k, j] -= times
    return changed


@compiled("float64(int64[:, ::1], float64[:, ::1], float64[:, ::1], float64[::1], int64)")
def _orthogonal_square(
    basis: NDArray[np.int64],
    mu: NDArray[np.float64],
    products: NDArray[np.float64],
    squares: NDArray[np.float64],
    k: int,
) -> float:
    """Shorten vector k; the squared length of its part that is orthogonal to the earlier ones."""
    for _ in range(_PASSES):
        for j in range(k):
            product = _inner(basis, k, j)
            for other in range(j):
                product -= mu[j, other] * products[k, other]
            products[k, j] = product
            mu[k, j] = product / squares[j]
        if not _shorten(basis, mu, k):
            break
    square = _inner(basis, k, k)
    for j in range(k):
        square -= mu[k, j] * products[k, j]
    return max(square, 1e-9)


@compiled("int64(int64[:, ::1], float64, int64)")
def reduce_lattice(basis: NDArray[np.int64], quality: float, most_swaps: int) -> int:
    """Reduce a basis, one vector a row, in place; the number of swaps, `most_swaps` if it was stopped there.

    Entries below 2^20 and fewer than 2^12 columns keep inner products exact. quality: in (1/4, 1).
    """
    count = basis.shape[0]
    mu, products, squares = np.zeros((count, count)), np.zeros((count, count)), np.zeros(count)
    k, swaps = 1, 0
    while k < count and swaps < most_swaps:
        if k == 1:
            squares[0] = _inner(basis, 0, 0)
        squares[k] = _orthogonal_square(basis, mu, products, squares, k)
        if squares[k] >= (quality - mu[k, k - 1] ** 2) * squares[k - 1]:
            k += 1
            continue
        for column in range(basis.shape[1]):
            basis[k, column], basis[k - 1, column] = basis[k - 1, column], basis[k, column]
        swaps += 1
        k = max(k - 1, 1)
    return swaps
