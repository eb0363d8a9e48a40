"""Lemmas 5 and 10: from weights of rados to weights of examples, and other examples with the same rados.

Nock, Patrini, Friedman (ICML 2015), sections 3 and 7.1. The proofs are ours: the paper's are in its companion.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import Mask, Matrix, Vector


@dataclass(frozen=True, eq=False)
class ExampleWeights:
    """Lemma 5's weights of the examples (m,), and what its two normalised edges differ by."""

    weights: Vector
    ratio: float
    """r_t / r_t^ex for the feature: the rados' mean support times x_* / pi_*; 0 if r_t is 0 for any edges."""

    def gamma(self, gamma: float) -> float:
        """gamma^ex, with |r_t| >= gamma if and only if |r_t^ex| >= gamma^ex; inf, which no edge reaches, at ratio 0."""
        return gamma / self.ratio if self.ratio else math.inf


def example_weights(selection: Mask, weights: Vector, edges: Vector) -> ExampleWeights:
    """Lemma 5, for one feature. selection: (n, m), which edges are in each rado. weights: (n,), w_t, summing to 1.

    edges: (m,), the feature's coordinate of each edge y_i x_i (equation 14 prints x_i without its label).

    sum_j w_j pi_j = sum_i (sum_j w_j s_ji) e_i, so the examples' weights are in proportion to the share of rados that
    select them. They do not depend on the feature; gamma^ex does. Outliers raise x_* more than pi_*, the largest of
    sums, and so make the examples' edges the smaller ones.

    Raises ShapeError, ConfigurationError if weights are no distribution or no edge or rado has a value.
    """
    if selection.ndim != 2 or weights.shape != selection.shape[:1] or edges.shape != selection.shape[1:]:
        raise ShapeError(
            f"selection has shape {selection.shape}, weights {weights.shape}, edges {edges.shape}: give (n, m), (n,) "
            "and (m,)"
        )
    if not (bool((weights >= 0).all()) and math.isclose(float(weights.sum()), 1.0, rel_tol=1e-9)):
        raise ConfigurationError("the weights are no distribution: give weights of at least 0 that sum to 1")
    largest_rado = float(np.abs(selection @ edges).max())
    if not largest_rado:
        raise ConfigurationError("the feature is 0 in every rado, where r_t is not defined: give another feature")
    shares = weights @ selection
    support = float(shares.sum())
    if not support:
        return ExampleWeights(np.full(len(edges), 1.0 / len(edges)), 0.0)
    return ExampleWeights(shares / support, support * float(np.abs(edges).max()) / largest_rado)


@dataclass(frozen=True, eq=False)
class OtherExamples:
    """Lemma 10's E' (m + 1, d), one edge a row, and its selections (n, m + 1)."""

    edges: Matrix
    selection: Mask
    distance: float
    """D_H(E, E')."""
    floor: float
    """R (2 m)^(-1/d), which the distance is never below."""
    stated: float
    """The lemma's expression with constant 1: R log d / (sqrt(d) log m) if m >= 2^d, else R / sqrt(d)."""

    @property
    def constant(self) -> float:
        """The constant with which the lemma's expression holds here; inf where the expression is 0 (d = 1)."""
        return self.distance / self.stated if self.stated else math.inf


def other_examples(edges: Matrix, selection: Mask, radius: float, generator: np.random.Generator) -> OtherExamples:
    """M + 1 edges with the same rados, far from these m. edges: (m, d), of norm below radius. selection: (n, m).

    E' is E and a further edge that no rado selects. A uniform point of the ball is within t of some edge with
    probability at most m (t / R)^d, so half of the points are R (2 m)^(-1/d) or farther from all. The farthest of some
    is taken; D_H is its distance.

    For m < 2^d this proves the lemma with constant 1/4. For fixed d and large m, R (2 m)^(-1/d) falls below any
    multiple of R log d / (sqrt(d) log m): edges may then cover the ball, and no added edge is that far.

    Raises ShapeError, ConfigurationError if an edge is not in the open ball.
    """
    if edges.ndim != 2 or 0 in edges.shape or selection.ndim != 2 or selection.shape[1] != len(edges):
        raise ShapeError(f"edges have shape {edges.shape}, selection {selection.shape}: give (m, d) and (n, m)")
    if not float(np.linalg.norm(edges, axis=1).max()) < radius < math.inf:
        raise ConfigurationError(f"an edge is not in the open ball of radius {radius}: give a larger radius")
    m, d = edges.shape
    floor = radius * (2 * m) ** (-1 / d)
    added, distance = np.zeros(d), -1.0
    while distance < floor:
        for _ in range(_TRIED):
            direction = generator.normal(size=d)
            point = radius * float(generator.random()) ** (1 / d) * direction / np.linalg.norm(direction)
            nearest = float(np.linalg.norm(edges - point, axis=1).min())
            if nearest > distance:
                added, distance = point, nearest
    return OtherExamples(
        edges=np.vstack([edges, added]),
        selection=np.column_stack([selection, np.zeros(len(selection), dtype=np.bool_)]),
        distance=distance,
        floor=floor,
        stated=radius * math.log(d) / (math.sqrt(d) * math.log(m)) if m >= 2**d else radius / math.sqrt(d),
    )


_TRIED = 200
