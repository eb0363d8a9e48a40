"""Lemma 9: edge vectors from rados whose signatures are known (Nock, Patrini, Friedman, ICML 2015, section 7.1).

With S the (n, m) matrix of selections and E the (m, d) matrix of edges, the rados are S E. In the lemma's notation S^T
= G_m U, and its E = Pi U^T G_m^T (G_m U U^T G_m^T)^{-1}, edges as columns, is E = (S^T S)^{-1} S^T Pi here: least
squares.

It exists if and only if S has rank m, so never for n < m; for n >= m uniform signatures have this rank with probability
close to 1.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError, RadofedError, ShapeError

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]


class UnrecoverableError(RadofedError):
    """The signatures leave some edge undetermined. rank: of the selections. rows: m."""

    def __init__(self, *, rank: int, rows: int) -> None:
        self.rank, self.rows = rank, rows
        super().__init__(f"the signatures have rank {rank} for {rows} edges: give rados of more signatures")


def determined_rows(selection: Mask) -> Mask:
    """Which edges the rados determine, for any other edges: (m,). selection: (n, m) bool, n >= 1.

    Edge i is determined if the i-th unit vector is in the row space of S, that is, if no vector of the null space has
    an i-th coordinate.

    Lemma 9 (b) says that for n < m the set of all edges has no unique solution; a single edge may still be determined,
    for instance by a rado that selects only it. Raises ShapeError.
    """
    _check(selection)
    _, singular, directions = np.linalg.svd(selection.astype(np.float64), full_matrices=True)
    rank = _rank(singular, selection.shape)
    fixed: Mask = np.linalg.norm(directions[rank:], axis=0) < np.sqrt(np.finfo(np.float64).eps)
    return fixed


def reconstruct_edges(rados: Matrix | NDArray[np.int64], selection: Mask) -> Matrix | NDArray[np.int64]:
    """The edge vectors behind rados of known signatures (Lemma 9 (a)): (m, d), of the rados' dtype kind.

    rados: (n, d); integers, as in a release, give the exact integer edges, verified by summing them again; floats give
    the least squares solution. selection: (n, m) bool, row j the edges of rado j.

    Raises:
        ShapeError: shapes differ.
        UnrecoverableError: S does not have rank m.
        DataError: integer rados are not the sums of the selection.
    """
    _check(selection)
    if rados.ndim != 2 or len(rados) != len(selection):
        raise ShapeError(f"rados have shape {rados.shape}: give ({len(selection)}, d), one rado for each signature")
    matrix = selection.astype(np.float64)
    edges, _, rank, _ = np.linalg.lstsq(matrix, rados.astype(np.float64), rcond=None)
    if rank < selection.shape[1]:
        raise UnrecoverableError(rank=int(rank), rows=selection.shape[1])
    if not np.issubdtype(rados.dtype, np.integer):
        return np.asarray(edges, dtype=np.float64)
    integers: NDArray[np.int64] = np.rint(edges).astype(np.int64)
    if not np.array_equal(selection.astype(np.int64) @ integers, rados):
        raise DataError("the rados are not sums of integer edges over this selection: give their own signatures")
    return integers


def _rank(singular: Matrix, shape: tuple[int, ...]) -> int:
    return int((singular > singular.max() * max(shape) * np.finfo(np.float64).eps).sum())


def _check(selection: Mask) -> None:
    if selection.ndim != 2 or selection.dtype != np.bool_ or 0 in selection.shape:
        raise ShapeError(
            f"selection is {selection.dtype} of shape {selection.shape}: give bool (n, m), neither of them 0"
        )
