"""The largest Euclidean norm of a rado of a set of signatures, for Theorem 3 (NP-hard in general).

With h(u) = max over the set of u . pi, which `SignatureSet` computes exactly, the norm is the maximum of h over unit
vectors u, that is, over as many dimensions as the edges span.

- **Few rows.** All signatures are tried: exact.
- **Few dimensions.** Branch and bound over cones of directions. h is sublinear: in the cone of u_1 .. u_d it is at most
  c . u, with c . u_i = h(u_i). Where one signature is the best at all corners, c is its rado, so the bracket closes up
  to rounding unless the work runs out.
- **Otherwise** the semidefinite relaxation over signs, at most sqrt(pi / 2) = 1.253 times the norm for all 2^m
  signatures if it is solved (Nesterov 1998), and a climb from below.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.research.signature_sets import SignatureSet

MOST_ENUMERATED = 14
"""Rows up to which all signatures are tried."""
MOST_DIMENSIONS = 6
"""Dimensions up to which directions are divided."""
MOST_DIRECTIONS = 50_000
MOST_WORK = 10_000_000
"""Of rows times directions; no more of either are tried."""
ROUNDING = 1e-12
"""Relative: the bracket's ends are rounded outward by it, and a bracket of this width is closed."""
_AT_ONCE = 256
_RELAXATION_STEPS = 60


@dataclass(frozen=True)
class NormBracket:
    """The largest norm is in [lower, upper]; lower is attained, up to rounding."""

    lower: float
    upper: float

    @property
    def is_exact(self) -> bool:
        """Whether the ends differ by rounding only."""
        return self.upper <= self.lower * (1 + 4 * ROUNDING)


def largest_norm(edges: Matrix, signatures: SignatureSet, most_work: int = MOST_WORK) -> NormBracket:
    """Bracket of the largest norm of a rado of the set. edges: (m, d). Raises ShapeError for other rows."""
    if edges.ndim != 2 or len(edges) != signatures.rows:
        raise ShapeError(f"edges have shape {edges.shape}: give ({signatures.rows}, d)")
    if signatures.rows <= MOST_ENUMERATED:
        codes = np.arange(2**signatures.rows)[:, np.newaxis]
        selections = (codes >> np.arange(signatures.rows)) % 2 == 1
        rados = selections[signatures.admits(selections)] @ edges
        largest = float(np.sqrt(np.einsum("jk,jk->j", rados, rados).max()))
        return NormBracket(largest, largest * (1 + ROUNDING))
    # In as many coordinates as the edges span, norms and products are the same.
    _, singular, axes = np.linalg.svd(edges, full_matrices=False)
    spanned = singular > singular[0] * max(edges.shape) * np.finfo(np.float64).eps
    if not spanned.any():
        return NormBracket(0.0, 0.0)
    reduced = edges @ axes[spanned].T
    lower, upper = _simple_bounds(reduced, signatures)
    upper = min(upper, _relaxed(reduced, signatures))
    if reduced.shape[1] <= MOST_DIMENSIONS:
        divided = _Directions(reduced, signatures, lower).bracket(min(MOST_DIRECTIONS, most_work // len(edges)))
        lower, upper = divided.lower, min(upper, divided.upper)
    return NormBracket(lower, max(lower, upper) * (1 + ROUNDING))


def _simple_bounds(edges: Matrix, signatures: SignatureSet) -> tuple[float, float]:
    """By climbing from the axes and the sum, and by the largest sum of selected norms."""
    starts = [*np.eye(edges.shape[1]), edges.sum(axis=0)]
    lower = max(_climb(edges, signatures, sign * start) for start in starts for sign in (1.0, -1.0))
    norms = np.linalg.norm(edges, axis=1)
    return lower, float(norms[signatures.best_selection(-norms)].sum())


def _climb(edges: Matrix, signatures: SignatureSet, direction: Vector) -> float:
    """Alternating between a direction and the rado that extends farthest along it."""
    length = -1.0
    while True:
        rado = edges[signatures.best_selection(-(edges @ direction))].sum(axis=0)
        reached = float(np.linalg.norm(rado))
        if reached <= length * (1 + ROUNDING) or reached == 0:
            return max(reached, length)
        length, direction = reached, rado


def _relaxed(edges: Matrix, signatures: SignatureSet) -> float:
    """The bound of the semidefinite relaxation.

    2 pi = sum_i tau_i v_i with signs tau, tau_0 = 1 of the sum of the edges. For any D_i > 0 that sum to 1, Cauchy's
    inequality gives |2 pi|^2 <= lambda_max(sum_i v_i v_i^T / D_i). A count that the set fixes allows a shift.

    D_i is in proportion to sqrt(v_i . X v_i), and X approaches the best by X <- sqrt(X) G sqrt(X), G the gradient.
    """
    vectors = [edges.sum(axis=0)]
    for block, rows in signatures.slices():
        own = np.where(block.target[:, np.newaxis], edges[rows], -edges[rows])
        if block.low == block.high:
            shift = own.mean(axis=0)
            vectors[0] = vectors[0] + (2 * block.low - len(own)) * shift
            own = own - shift
        vectors.extend(own)
    v = np.array(vectors)
    v = v[np.einsum("ik,ik->i", v, v) > 0]
    found, root = math.inf, np.eye(v.shape[1]) / math.sqrt(v.shape[1])
    for _ in range(_RELAXATION_STEPS):
        lengths = np.maximum(np.linalg.norm(v @ root, axis=1), np.finfo(np.float64).tiny)
        lengths = np.maximum(lengths, lengths.max() * 1e-9)
        gradient = (v / lengths[:, np.newaxis]).T @ v
        found = min(found, float(np.linalg.eigvalsh(gradient)[-1] * lengths.sum()))
        values, axes = np.linalg.eigh(root @ gradient @ root)
        values = np.maximum(values, 0.0)
        root = (axes * np.sqrt(values / values.sum())) @ axes.T
    return math.sqrt(found) / 2


class _Directions:
    """Cones of directions, each with a bound on h over its unit vectors."""

    def __init__(self, edges: Matrix, signatures: SignatureSet, lower: float) -> None:
        self._edges, self._signatures, self._lower = edges, signatures, lower
        d = edges.shape[1]
        signs = 1.0 - 2.0 * ((np.arange(2**d)[:, np.newaxis] >> np.arange(d)) % 2)
        # corners: (cones, d corners, d). heights: h at each corner.
        self._corners = signs[:, :, np.newaxis] * np.eye(d)
        self._heights = self._height(self._corners.reshape(-1, d)).reshape(-1, d)
        self._bounds = _cone_bounds(self._corners, self._heights)

    def bracket(self, most_directions: int) -> NormBracket:
        """Divide the cones that may contain the maximum, those of the largest bounds first."""
        tried = 0
        while True:
            open_cones = self._bounds > self._lower * (1 + ROUNDING)
            if not open_cones.any() or tried > most_directions or self._edges.shape[1] == 1:
                return NormBracket(self._lower, max(self._lower, float(self._bounds.max())))
            # Closed ones cannot exceed the maximum found by more than rounding.
            self._keep(open_cones)
            first = np.argsort(-self._bounds)[:_AT_ONCE]
            self._divide(first)
            tried += len(first)

    def _keep(self, places: NDArray[np.bool_]) -> None:
        self._corners, self._heights, self._bounds = self._corners[places], self._heights[places], self._bounds[places]

    def _divide(self, places: NDArray[np.intp]) -> None:
        """Divide these cones in the middle of their longest edges."""
        corners, heights, bounds = self._corners[places], self._heights[places], self._bounds[places]
        count, d, _ = corners.shape
        cosines = corners @ corners.transpose(0, 2, 1)
        a, b = np.divmod(np.argmin(cosines.reshape(count, -1), axis=1), d)
        each = np.arange(count)
        middle = corners[each, a] + corners[each, b]
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        height = self._height(middle)
        best = int(np.argmax(height))
        if height[best] > self._lower * (1 - 1e-3):
            self._lower = max(self._lower, _climb(self._edges, self._signatures, middle[best]))
        kept = np.ones(len(self._bounds), dtype=np.bool_)
        kept[places] = False
        self._keep(kept)
        for replaced in (a, b):
            part, own = corners.copy(), heights.copy()
            part[each, replaced], own[each, replaced] = middle, height
            self._corners = np.concatenate([self._corners, part])
            self._heights = np.concatenate([self._heights, own])
            self._bounds = np.concatenate([self._bounds, np.minimum(bounds, _cone_bounds(part, own))])

    def _height(self, directions: Matrix) -> Vector:
        """H of each direction, (count,)."""
        return self._signatures.extents(self._edges @ directions.T)


def _cone_bounds(corners: NDArray[np.float64], heights: Matrix) -> Vector:
    """An upper bound on h over the unit vectors of each cone: of c . u within its angle about its middle."""
    planes = np.linalg.solve(corners, heights[:, :, np.newaxis])[:, :, 0]
    middle = corners.sum(axis=1)
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    width = np.arccos(np.clip(np.einsum("nik,nk->ni", corners, middle).min(axis=1), -1.0, 1.0))
    length = np.linalg.norm(planes, axis=1)
    cosine = np.einsum("nk,nk->n", planes, middle) / np.where(length > 0, length, 1.0)
    off = np.maximum(0.0, np.arccos(np.clip(cosine, -1.0, 1.0)) - width)
    return np.asarray(length * np.cos(off))
