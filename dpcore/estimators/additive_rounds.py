"""The gradients of a private additive model: queries in whitened coordinates, shrinking, and errors of the weights."""

from fractions import Fraction

import numpy as np

from dpcore.estimators.additive_terms import AdditiveTerms
from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.empirical_bayes import Prior
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights
from dpcore.estimators.kept_directions import KeptDirections, Outlook, narrowed_answers, worth_keeping
from dpcore.estimators.monotone import Directions, conditions, nearest
from dpcore.estimators.oracle import Oracle
from dpcore.estimators.private_newton import (
    CURVATURE,
    Seen,
    Whitening,
    bounded_step,
    clip_of,
    noise_of,
    root,
    sampling_of,
)
from dpcore.statistics.moments import Moments


class GradientRounds:
    """The gradients of one fit. phi: (d,), the weights so far in whitened coordinates.

    asked: how many directions each gradient was about. groups: the variance of each group of terms. _answers: all of
    them, also in directions that were left out later; _seen: in those that are kept.
    """

    def __init__(
        self,
        clip: float,
        oracle: Oracle,
        terms: AdditiveTerms,
        moments: Moments,
        whitening: Whitening,
        directions: Directions,
    ) -> None:
        self._clip, self._oracle, self._terms, self._whitening = clip, oracle, terms, whitening
        self._moments, self._sampling = moments, sampling_of(clip, moments.rows)
        self._prior = Prior.of(terms.groups, whitening.basis.matrix)
        self._ordered = conditions(directions, terms.feature_map, moments.d) @ whitening.basis.matrix.T
        self._seen: list[Seen] = []
        self._kept = KeptDirections.every(moments.d)
        self._answers: list[Answer] = []
        self.phi = nearest(_first(self._prior, moments, whitening), self._ordered)
        self.asked: list[int] = []
        self.groups: dict[str, float] = {}

    def ask(self, part: Fraction, left: int) -> None:
        """Ask for one more gradient, move phi, and leave out the directions that `left` more answers do not need."""
        axes = self._kept.axes
        answer = self._oracle.gradient(
            self.phi,
            clip=clip_of(self._clip, self._whitening.size_along(axes)),
            part=part,
            basis=self._kept.basis(self._whitening),
            feature_map=self._terms.feature_map,
        )
        target = axes.T @ (self.phi - answer.mean / CURVATURE)
        self._seen.append(Seen(axes.T @ self.phi, target, answer.deviation / CURVATURE))
        there = self._whitening.basis.matrix.T @ self.phi
        self._answers.append(Answer(there, answer.mean, answer.deviation, axes))
        self.asked.append(self._kept.count)
        noise = noise_of(self._seen)
        prior = self._prior.moved(axes.T)
        found = prior.shrunk(root(self._seen), noise + self._sampling)
        step = nearest(bounded_step(axes.T @ self.phi, found.mean), self._ordered @ axes)
        self.phi = axes @ step
        self.groups = {group.name: float(size) for group, size in zip(self._terms.groups, found.sizes, strict=True)}
        if left:
            later = (answer.deviation / CURVATURE) ** 2 / self._kept.count / left
            kept = worth_keeping(found.prior, prior.columns, Outlook(noise, later, self._sampling))
            if kept.shape[1] < self._kept.count:
                self._kept = self._kept.narrowed(kept)
                self._seen = narrowed_answers(self._seen, kept)
                self.phi = self._kept.axes @ nearest(kept.T @ step, self._ordered @ self._kept.axes)

    def covariance(self) -> Matrix | None:
        """Of the errors of the weights, (d, d); None without an answer. `PrivateAdditive` says what it is."""
        if not self._answers:
            return None
        basis = self._whitening.basis.matrix
        clip = float(clip_of(self._clip, self._whitening.size))
        released = Released(self._oracle.schema, self._moments, basis, clip, self._terms.feature_map)
        return errors_of_weights(basis.T @ self.phi, self._answers, released)


def _first(prior: Prior, moments: Moments, whitening: Whitening) -> Vector:
    """Weights from the moments alone, in whitened coordinates: shrunk, as P makes their noise large where P is.

    They minimise the logistic loss's second-order expansion at zero, where z has covariance I.
    """
    basis = whitening.basis.matrix
    phi = 2.0 * (basis @ moments.edge_sum) / moments.rows
    noise = (2.0 * moments.edge_noise / moments.rows) ** 2 * (basis @ basis.T) + 4.0 / moments.rows * np.eye(moments.d)
    factor = np.linalg.cholesky(noise)
    # In these coordinates the noise has variance 1 in every direction.
    shrunk = prior.moved(np.linalg.inv(factor)).shrunk(np.linalg.solve(factor, phi), 1.0)
    return np.asarray(factor @ shrunk.mean)
