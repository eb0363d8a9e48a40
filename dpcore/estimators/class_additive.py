"""The gradients of an additive model of several classes: a surrogate that answers correct, and weights that shrink.

As in dpcore.estimators.class_newton, rows drawn from the Gaussian classes of the moments have a public loss of gradient
h, and each answer measures the difference g(phi_t) - h(phi_t). Hats and products are far from Gaussian, so here the
difference is an affine function of phi:

    difference_c(phi) = a_c + sum over c' of B_cc' (phi_c' - base_c'),

the entries of B_cc' with variance SPREAD^2 h_c h_c' / (k d), h_c the mean curvature of class c. a and B are estimated
by kriging (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2), with the answers'
noise. The next phi is the root of h(phi) + difference(phi) + penalties.

If an answer's gradient is longer than an earlier one's by more than its noise, the step was too long: then the next one
begins at the shortest gradient so far, and is pulled towards it (Marquardt, SIAM Journal on Applied Mathematics 11,
1963).

The penalties of each class shrink as in dpcore.estimators.additive_rounds: with noise of variance v_c on a coordinate
of phi_c and a prior covariance S_c, which the weights' own sizes choose group by group, v_c h_c S_c^-1 makes the root
the posterior mean. A rare class has a small h_c, and so shrinks more.

Everything after an answer is post-processing. What an answer costs is proved in dpcore.queries.class_gradient: the clip
bounds a record's gradient over all classes as one vector, under any feature map.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpcore.estimators.additive_rounds import Prior
from dpcore.estimators.additive_terms import AdditiveTerms, Directions, conditions, conditions_of_classes, nearest
from dpcore.estimators.class_discriminant import GaussianClasses
from dpcore.estimators.class_newton import Surrogate, centred
from dpcore.estimators.oracle import GradientEstimate
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread
from dpcore.rados.distribution import ClassMoments

# On diamonds (5 classes) and surveys (11) at epsilon 1 errors change by 0.7 points at most for a SPREAD of 0.05 or a
# pull for noise of 2. Without noise SPREAD and the damping keep the steps from growing: diamonds err 12 points more
# without either.
SPREAD = 0.3
_CURVATURE = 0.5
"""Of h_c, over the mean of p_c (1 - p_c) over drawn rows."""
_LEAST_CURVATURE = 1e-4

_BENDING = 2.5e-3
"""Squared error of an earlier difference, for each coordinate, per squared distance in units of the curvature."""

_LEAST_VARIANCE = 1e-8
"""That is assumed for an answer without noise."""

_WIDE = 1.0
"""The prior variance of a: gradients are far below 1."""

_LEAST_PULL, _PULL_FOR_NOISE = 1e-3, 1.0
"""The pull towards where a step begins: the least, and that per deviation of the average."""

_DAMPING, _MORE_DAMPING, _LESS_DAMPING = 0.02, 4.0, 0.5
"""The pull after the first step that was too long, and its factors after others and after steps that were not."""

_LONGER = 4.0
"""Standard deviations of a gradient's squared length by which it counts as longer."""

_STEPS, _FURTHER_STEPS, _LONGEST_STEP, _CONVERGED = 5, 2, 6.0, 1e-3
"""Newton steps for a root, those after the penalties changed, the longest way of a round, and what ends the steps."""

_LITTLE_NOISE = 0.1
"""Of the sampling variance of a coordinate: with less noise on every class the penalty stays scikit-learn's, 1 / m."""

_LEAST_SHARE = 1e-6
"""The least prior variance over that of the noise, so that penalties are finite."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """An answer."""

    phi: Matrix
    """(k, d), where."""
    gradient: Matrix
    """(k, d)."""
    difference: Matrix
    """(k, d), from the surrogate's."""
    variance: float
    """Of the noise on each coordinate."""

    @property
    def square(self) -> float:
        """The squared length of the gradient."""
        return float(np.square(self.gradient).sum())

    def is_longer_than(self, other: "_Seen") -> bool:
        """Whether its gradient is longer than another's by more than the noise."""
        return self.square > other.square + _LONGER * self.variance * float(np.sqrt(2.0 * self.phi.size))


@dataclass(frozen=True, eq=False)
class _Correction:
    """The difference of the gradients as a function of phi: constant + outputs^T inputs (phi - base)."""

    base: Matrix
    constant: Matrix
    """(k, d), each."""
    outputs: Matrix
    inputs: Matrix
    """(answers, k d), each."""

    @classmethod
    def of(cls, seen: Sequence[_Seen], base: Matrix, curvature: Vector) -> "_Correction":
        """From all answers, by kriging. curvature: h, (k,)."""
        apart = np.array([one.phi - base for one in seen])
        weighted = apart * curvature[:, np.newaxis]
        products = np.einsum("tcd,scd->ts", apart, weighted) / base.size
        noise = np.array([one.variance for one in seen])
        differences = np.array([one.difference for one in seen])
        constant, outputs = np.zeros_like(base), np.zeros_like(apart)
        for code, slope in enumerate(curvature):
            matrix = slope * SPREAD**2 * products + np.diag(noise + _BENDING * slope * np.diag(products)) + _WIDE
            solved = np.linalg.solve(matrix, differences[:, code])
            constant[code] = _WIDE * solved.sum(axis=0)
            outputs[:, code] = slope * SPREAD**2 / base.size * solved
        return cls(base, constant, outputs.reshape(len(seen), -1), weighted.reshape(len(seen), -1))

    def at(self, phi: Matrix) -> Matrix:
        """(k, d)."""
        moved = self.outputs.T @ (self.inputs @ (phi - self.base).ravel())
        return self.constant + moved.reshape(phi.shape)

    @property
    def slopes(self) -> Matrix:
        """(k d, k d)."""
        return np.asarray(self.outputs.T @ self.inputs)


class ClassRounds:
    """The gradients of one fit. phi: (k, d), the weights so far in whitened coordinates.

    asked: directions of each gradient, all of them.
    """

    def __init__(
        self,
        ask: Callable[[Matrix, Fraction], GradientEstimate],
        moments: ClassMoments,
        basis: Matrix,
        clip: float,
        terms: AdditiveTerms,
        shrinkage: float,
        directions: Directions,
    ) -> None:
        """ask: the gradient of the mapped records at phi, for a part of the budget. basis: P, (d, d)."""
        self._ask, self._terms, self._rows, self._basis = ask, terms, moments.rows, basis
        classes = GaussianClasses.of(moments, shrinkage)
        surrogate = Surrogate.of(moments, classes, basis, clip)
        self._surrogate = replace(surrogate, penalty=np.zeros_like(surrogate.penalty))
        self._penalties = np.repeat(surrogate.penalty[np.newaxis], moments.classes, axis=0)
        self._prior = Prior.of(terms.groups, basis)
        self._seen: list[_Seen] = []
        self._damping = 0.0
        rows = conditions(directions, terms.feature_map, basis.shape[1]) @ basis.T
        self._ordered = conditions_of_classes(rows, moments.classes)
        self.phi = self._in_order(_first(classes, moments, basis), np.ones(moments.classes))
        self.groups: dict[str, float] = {}

    @property
    def asked(self) -> list[int]:
        """See the class."""
        return [self.phi.shape[1]] * len(self._seen)

    @property
    def theta(self) -> Matrix:
        """The weights of the terms, (k, d)."""
        return np.asarray(self.phi @ self._basis)

    def covariance(self) -> None:
        """None: errors of weights are estimated of two classes only."""

    def ask(self, part: Fraction, left: int) -> None:  # noqa: ARG002  (no direction is left out)
        """Ask for one more gradient, and move phi. left: as of `GradientRounds`."""
        answer = self._ask(self.phi, part)
        gradient = centred(answer.mean.reshape(self.phi.shape))
        difference = gradient - self._surrogate.gradient(self.phi)[0]
        self._seen.append(_Seen(self.phi, gradient, difference, answer.deviation**2 + _LEAST_VARIANCE))
        # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
        with one_blas_thread():
            self._move(self._start())

    def _start(self) -> Matrix:
        """Where the next step begins; sets the damping."""
        last = self._seen[-1]
        shortest = min(self._seen, key=lambda one: one.square)
        if last.is_longer_than(shortest):
            self._damping = max(_MORE_DAMPING * self._damping, _DAMPING)
            return shortest.phi
        self._damping *= _LESS_DAMPING
        return last.phi

    def _move(self, start: Matrix) -> None:
        _, softmax, clipped = self._surrogate.gradient(start)
        curvature = _CURVATURE * clipped @ (softmax * (1.0 - softmax)) + _LEAST_CURVATURE
        correction = _Correction.of(self._seen, start, curvature)
        variance = 1.0 / sum(1.0 / one.variance for one in self._seen)
        pull = max(_LEAST_PULL, _PULL_FOR_NOISE * float(np.sqrt(variance))) + self._damping
        found = self._root(start, correction, pull, _STEPS)
        self._shrink(found, curvature, variance)
        self.phi = self._in_order(_bounded(start, self._root(found, correction, pull, _FURTHER_STEPS)), curvature)

    def _in_order(self, phi: Matrix, curvature: Vector) -> Matrix:
        """The nearest weights (k, d) with the directions that are given, where classes count as they curve the loss."""
        if not len(self._ordered):
            return phi
        scale = np.repeat(np.sqrt(curvature), phi.shape[1])
        found = nearest(phi.ravel() * scale, self._ordered / scale) / scale
        return centred(found.reshape(phi.shape))

    def _root(self, phi: Matrix, correction: _Correction, pull: float, steps: int) -> Matrix:
        """From phi, the root of gradient + penalties + correction + pull (its distance from the correction's base)."""
        d = phi.shape[1]
        added = pull * np.eye(phi.size) + correction.slopes
        for code, penalty in enumerate(self._penalties):
            added[code * d : (code + 1) * d, code * d : (code + 1) * d] += penalty
        for _ in range(steps):
            gradient, softmax, clipped = self._surrogate.gradient(phi)
            wanted = gradient + np.einsum("cij,cj->ci", self._penalties, phi) + correction.at(phi)
            wanted += pull * (phi - correction.base)
            matrix = self._surrogate.curvature(softmax, clipped) + added
            found = phi - np.linalg.solve(matrix, wanted.ravel()).reshape(phi.shape)
            length, phi = float(np.linalg.norm(found - phi)), _bounded(phi, found)
            if length < _CONVERGED:
                break
        return _bounded(correction.base, phi)

    def _shrink(self, phi: Matrix, curvature: Vector, noise: float) -> None:
        """Set the penalties that the sizes of phi's groups ask for, if there is noise to speak of."""
        if noise * self._rows < _LITTLE_NOISE * float(curvature.min()):
            return
        penalties, sizes = [], np.zeros(len(self._terms.groups))
        for weights, slope, penalty in zip(phi, curvature, self._penalties, strict=True):
            variance = noise / slope**2 + 1.0 / (self._rows * slope)
            # Without the penalty the root would be here.
            found = self._prior.shrunk(weights + penalty @ weights / slope, variance)
            values, vectors = np.linalg.eigh(found.prior)
            penalties.append((vectors * (variance * slope / np.maximum(values, _LEAST_SHARE * variance))) @ vectors.T)
            sizes += found.sizes / len(phi)
        self._penalties = np.array(penalties)
        self.groups = {group.name: float(size) for group, size in zip(self._terms.groups, sizes, strict=True)}


def _bounded(phi: Matrix, found: Matrix) -> Matrix:
    """`found`, or the point at `_LONGEST_STEP` towards it from phi."""
    step = found - phi
    return phi + step * min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(step)), _CONVERGED))


def _first(classes: GaussianClasses, moments: ClassMoments, basis: Matrix) -> Matrix:
    """Weights from the moments alone: the classes' means from the overall one, over the records' covariance.

    Over that within classes they would be far too long, as hats and products are not Gaussian.
    """
    overall = moments.product_sum[-1] / moments.rows
    apart = np.column_stack([classes.means, np.ones(moments.classes)]) - overall
    theta = apart @ basis.T @ basis
    theta[:, -1] += np.log(classes.sizes / classes.rows)
    return centred(np.asarray(np.linalg.solve(basis.T, theta.T).T, dtype=np.float64))
