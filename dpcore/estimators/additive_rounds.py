"""The gradients of a private additive model: queries in whitened coordinates, shrinking, and errors of the weights."""

from fractions import Fraction

import numpy as np

from dpcore.estimators.additive_terms import PAIRS, AdditiveTerms
from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.empirical_bayes import Prior, posterior
from dpcore.estimators.kept_directions import KeptDirections, Outlook, narrowed_answers, worth_keeping
from dpcore.estimators.monotone import Directions, conditions, nearest
from dpcore.estimators.oracle import Oracle
from dpcore.estimators.private_newton import (
    CURVATURE,
    Seen,
    Whitening,
    bounded_step,
    clip_of,
    covariance_of,
    noise_of,
    root,
    root_covariance,
    sampling_of,
)
from dpcore.statistics.moments import Moments

CURVATURES = 1.8
"""By how much curvatures other than `CURVATURE` raise the variance of weights. Fitted on made tables: bands cover at
least 95 of 100 values on average in every setting, and 96 to 98 are covered (tests/statistical/test_curve_bands.py)."""


class GradientRounds:
    """The gradients of one fit. phi: (d,), the weights so far in whitened coordinates.

    asked: how many directions each gradient was about. groups: the variance of each group of terms. _expected: the
    prior covariance of phi in the directions that are kept.
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
        self._sampling = sampling_of(clip, moments.rows)
        self._prior = Prior.of(terms.groups, whitening.basis.matrix)
        self._ordered = conditions(directions, terms.feature_map, moments.d) @ whitening.basis.matrix.T
        self._seen: list[Seen] = []
        self._kept = KeptDirections.every(moments.d)
        self._expected = np.zeros((moments.d, moments.d))
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
        self.asked.append(self._kept.count)
        noise = noise_of(self._seen)
        prior = self._prior.moved(axes.T)
        found = prior.shrunk(root(self._seen), noise + self._sampling)
        self._expected = found.prior
        step = nearest(bounded_step(axes.T @ self.phi, found.mean), self._ordered @ axes)
        self.phi = axes @ step
        self.groups = {group.name: float(size) for group, size in zip(self._terms.groups, found.sizes, strict=True)}
        if left:
            later = (answer.deviation / CURVATURE) ** 2 / self._kept.count / left
            kept = worth_keeping(found.prior, prior.columns, Outlook(noise, later, self._sampling))
            if kept.shape[1] < self._kept.count:
                self._kept = self._kept.narrowed(kept, found.prior)
                self._expected = kept.T @ found.prior @ kept
                self._seen = narrowed_answers(self._seen, kept)
                self.phi = self._kept.axes @ nearest(kept.T @ step, self._ordered @ self._kept.axes)

    def covariance(self) -> Matrix | None:
        """Of the errors of the weights, (d, d); None without an answer. `PrivateAdditive` says what it is."""
        if not self._seen:
            return None
        noise = CURVATURES * (root_covariance(self._seen) + self._sampling * np.eye(self._kept.count))
        errors = posterior(self._expected, noise)
        found = covariance_of(self._kept.covariance(errors), self._whitening)
        for group, root_of, size in zip(self._terms.groups, self._prior.groups, self.groups.values(), strict=True):
            if group.kind == PAIRS:
                places = list(group.places)
                widened = np.diag(found)[places] + self._of_one_pair(np.sqrt(size) * root_of, places, noise)
                found[places, places] = np.maximum(widened, self._unshrunk(places))
        return found

    def _unshrunk(self, places: list[int]) -> Vector:
        """The variance of these weights, (places,), if no direction was left out and nothing shrunk."""
        variance = CURVATURES * (noise_of(self._seen) + self._sampling)
        found: Vector = variance * np.square(self._whitening.basis.matrix[:, places]).sum(axis=0)
        return found

    def _of_one_pair(self, spread: Matrix, places: list[int], noise: Matrix) -> Vector:
        """What the variance of each pair's weight grows by if that pair has the variance of all, (pairs,).

        spread: the root of the pairs' prior covariance, (d, pairs); places: of their weights; noise: of phi's part.
        Pairs share one variance, so one pair that matters beside many that do not is shrunk as they are.
        """
        axes = self._kept.axes
        found = axes @ self._expected @ np.linalg.solve(self._expected + noise, axes.T @ spread)
        bias = self._whitening.basis.matrix.T @ (spread - found)
        return (len(places) - 1) * np.square(bias[places, range(len(places))])


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
