"""Multinomial logistic regression of several classes in a few rounds, from noisy moments and then noisy gradients.

The moments of a release define Gaussian classes (dpcore.estimators.class_discriminant). Rows drawn from these are
public: their loss is a surrogate for that of the records.

With g the gradient of the records' loss and h that of the surrogate, each further release at phi_t measures the
difference g(phi_t) - h(phi_t), which changes slowly. The next phi is the root of h(phi) + the average of the
differences so far + a penalty.

This is the surrogate likelihood of Jordan, Lee and Yang (Journal of the American Statistical Association 114, 2019),
with drawn rows in place of one machine's. It needs fewer rounds than a bound on the curvature, because drawn rows show
where classes meet. Everything after a release is post-processing, the drawn rows included.

Coordinates are whitened, z = P x, as in dpcore.estimators.private_newton; phi = theta P^-1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import OracleRefusedError, PlanError
from dpcore.estimators.class_discriminant import GaussianClasses
from dpcore.estimators.oracle import GradientEstimate
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.rados.distribution import ClassMoments

MOST_WEIGHTS = 2000
"""k d: the surrogate's curvature is a matrix of so many rows."""

_ROWS, _LEAST_ROWS, _SEED = 2000, 20, 2019
"""Drawn rows, the fewest of a class, and their seed: they protect nothing, and a training can be repeated."""

_PENALTY = 1.0
"""Half of it times |theta|^2, without the bias, is added to the loss over all m records, as in scikit-learn."""

_STEPS, _LONGEST_STEP, _CONVERGED = 4, 3.0, 1e-4
"""Newton steps on the surrogate in a round, the longest in whitened units, and the length of one that ends them."""

_LEAST_PULL, _PULL_FOR_SIZE, _PULL_FOR_NOISE = 1e-3, 0.07, 2.0
"""The pull towards the last phi: the least, that per weight and record, and that per deviation of the average."""

_BENDING = 2.5e-3
"""Squared error of an earlier difference, for each coordinate, per squared distance from the current phi."""

_LEAST_VARIANCE = 1e-8
"""That is assumed for a difference without noise."""


@dataclass(frozen=True)
class Learned:
    """What the rounds end with."""

    phi: Matrix
    """(k, d)."""
    rounds: int
    """The number of gradients that were used."""
    refusal: str | None
    """Why there were fewer than planned."""
    answers: tuple[tuple[Matrix, Matrix, float], ...]
    """Of each gradient: phi (k, d), where; the mean (k, d); and the deviation of its noise."""


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Drawn rows of the Gaussian classes of a release, and their clipped multinomial logistic loss."""

    rows: Matrix
    """(n, d), z."""
    codes: NDArray[np.int64]
    """(n,), their classes."""
    weights: Vector
    """(n,), of sum 1."""
    clip: float
    """C."""
    penalty: Matrix
    """(d, d), of phi, per record."""

    @classmethod
    def of(cls, moments: ClassMoments, classes: GaussianClasses, basis: Matrix, clip: float) -> "Surrogate":
        """basis: P, (d, d)."""
        generator = np.random.default_rng(_SEED)
        values, vectors = np.linalg.eigh(classes.within)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        rows, codes, weights = [], [], []
        for code, (size, mean) in enumerate(zip(classes.sizes, classes.means, strict=True)):
            half = max(_LEAST_ROWS, round(_ROWS * size / classes.rows)) // 2
            away = generator.standard_normal((half, len(mean))) @ root.T
            rows.append(mean + np.vstack([away, -away]))
            codes.append(np.full(2 * half, code))
            weights.append(np.full(2 * half, size / classes.rows / (2 * half)))
        features = np.vstack(rows)
        kept = np.append(np.ones(len(classes.within)), 0.0)
        return cls(
            rows=np.column_stack([features, np.ones(len(features))]) @ basis.T,
            codes=np.concatenate(codes),
            weights=np.concatenate(weights),
            clip=clip,
            penalty=_PENALTY / moments.rows * (basis * kept) @ basis.T,
        )

    def gradient(self, phi: Matrix) -> tuple[Matrix, Matrix, Vector]:
        """The gradient (k, d), the softmax (n, k), and the rows' weights after clipping (n,)."""
        softmax = _softmax(self.rows @ phi.T)
        apart = softmax.copy()
        apart[np.arange(len(apart)), self.codes] -= 1.0
        lengths = np.linalg.norm(apart, axis=1) * np.linalg.norm(self.rows, axis=1)
        clipped = self.weights * np.minimum(1.0, self.clip / np.maximum(lengths, np.finfo(np.float64).tiny))
        return (apart * clipped[:, np.newaxis]).T @ self.rows, softmax, clipped

    def curvature(self, softmax: Matrix, clipped: Vector) -> Matrix:
        """The Hessian (k d, k d) with the clipped weights held, and the penalty."""
        k, d = softmax.shape[1], self.rows.shape[1]
        found = np.zeros((k, d, k, d))
        for first in range(k):
            for second in range(first, k):
                weights = clipped * softmax[:, first] * ((first == second) - softmax[:, second])
                block = (self.rows * weights[:, np.newaxis]).T @ self.rows
                found[first, :, second, :] = found[second, :, first, :] = block
            found[first, :, first, :] += self.penalty
        return found.reshape(k * d, k * d)

    def root(self, phi: Matrix, difference: Matrix, pull: float) -> Matrix:
        """From phi (k, d), the root of gradient + penalty + difference + pull (its distance from phi)."""
        start = phi
        for _ in range(_STEPS):
            gradient, softmax, clipped = self.gradient(phi)
            wanted = gradient + phi @ self.penalty + difference + pull * (phi - start)
            matrix = self.curvature(softmax, clipped) + pull * np.eye(phi.size)
            step = np.linalg.solve(matrix, wanted.ravel()).reshape(phi.shape)
            length = float(np.linalg.norm(step))
            phi = phi - step * min(1.0, _LONGEST_STEP / max(length, _CONVERGED))
            if length < _CONVERGED:
                break
        return phi


def learn(
    ask: Callable[[Matrix], GradientEstimate],
    moments: ClassMoments,
    basis: Matrix,
    clip: float,
    rounds: int,
    shrinkage: float,
) -> Learned:
    """Ask for `rounds` gradients at most. ask: that of the records at phi (k, d), whose refusal ends the rounds."""
    classes = GaussianClasses.of(moments, shrinkage)
    surrogate = Surrogate.of(moments, classes, basis, clip)
    phi = centred(np.asarray(np.linalg.solve(basis.T, classes.scores(_PENALTY).T).T, dtype=np.float64))
    least = max(_LEAST_PULL, _PULL_FOR_SIZE * phi.size / moments.rows)
    asked: list[Matrix] = []
    differences: list[Matrix] = []
    variances: list[float] = []
    answers: list[tuple[Matrix, Matrix, float]] = []
    for _ in range(rounds):
        try:
            answer = ask(phi)
        except (OracleRefusedError, PlanError) as error:
            return Learned(phi, len(asked), str(error), tuple(answers))
        asked.append(phi)
        answers.append((phi, centred(answer.mean.reshape(phi.shape)), answer.deviation))
        differences.append(centred(answer.mean.reshape(phi.shape)) - surrogate.gradient(phi)[0])
        variances.append(answer.deviation**2 + _LEAST_VARIANCE)
        average, variance = _averaged(asked, differences, variances)
        phi = surrogate.root(phi, average, max(least, _PULL_FOR_NOISE * float(np.sqrt(variance))))
    return Learned(phi, len(asked), None, tuple(answers))


def _averaged(
    asked: Sequence[Matrix], differences: Sequence[Matrix], variances: Sequence[float]
) -> tuple[Matrix, float]:
    """The differences' average (k, d), each counted by one over its variance, and the average's variance."""
    here = asked[-1]
    errors = [
        variance + _BENDING * float(np.square(phi - here).mean())
        for phi, variance in zip(asked, variances, strict=True)
    ]
    shares = 1.0 / np.array(errors)
    average: Matrix = np.tensordot(shares / shares.sum(), np.array(differences), axes=1)
    return average, 1.0 / float(shares.sum())


def centred(weights: Matrix) -> Matrix:
    """With rows that add up to zero, which changes no softmax."""
    moved: Matrix = weights - weights.mean(axis=0)
    return moved


def _softmax(scores: Matrix) -> Matrix:
    parts = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Matrix = parts / parts.sum(axis=1, keepdims=True)
    return shares
