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
    largest_sampling_of,
    left_to_go,
    noise_of,
    root,
    root_covariance,
    sampling_of,
)
from dpcore.statistics.moments import Moments

CURVATURES = 1.4
"""By how much curvatures other than `CURVATURE` raise the variance of weights. Fitted on made tables: bands cover 96
to 98 of 100 values on average, and 84 to 92 where lines hardly matter, decide nearly all, or a class is rare
(tests/statistical/test_curve_bands.py)."""


class GradientRounds:
    """The gradients of one fit. phi: (d,), the weights so far in whitened coordinates.

    asked: how many directions each gradient was about. groups: the variance of each group of terms. _expected: the
    prior covariance of phi in the directions that are kept. _left_out: what the answers said of phi, (d,), in those
    that are not, unshrunk, with this variance, (d, d). _left_to_go: by the last answer, (d, d).
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
        self._rows, self._sampling = moments.rows, sampling_of(clip, moments.rows)
        self._prior = Prior.of(terms.groups, whitening.basis.matrix)
        self._ordered = conditions(directions, terms.feature_map, moments.d) @ whitening.basis.matrix.T
        self._seen: list[Seen] = []
        self._kept = KeptDirections.every(moments.d)
        self._expected = np.zeros((moments.d, moments.d))
        self._left_to_go = np.zeros((moments.d, moments.d))
        self._left_out, self._left_out_variance = np.zeros(moments.d), np.zeros((moments.d, moments.d))
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
        unshrunk = root(self._seen)
        found = prior.shrunk(unshrunk, noise + self._sampling)
        self._expected = found.prior
        self._left_to_go = axes @ left_to_go(found.mean, self._seen) @ axes.T
        step = nearest(bounded_step(axes.T @ self.phi, found.mean), self._ordered @ axes)
        self.phi = axes @ step
        self.groups = {group.name: float(size) for group, size in zip(self._terms.groups, found.sizes, strict=True)}
        if left:
            later = (answer.deviation / CURVATURE) ** 2 / self._kept.count / left
            kept = worth_keeping(found.prior, prior.columns, Outlook(noise, later, self._sampling))
            if kept.shape[1] < self._kept.count:
                others = axes - axes @ kept @ kept.T
                self._left_out += others @ unshrunk
                self._left_out_variance += others @ self._root_variance() @ others.T
                self._kept = self._kept.narrowed(kept, found.prior)
                self._expected = kept.T @ found.prior @ kept
                self._seen = narrowed_answers(self._seen, kept)
                self.phi = self._kept.axes @ nearest(kept.T @ step, self._ordered @ self._kept.axes)

    def covariance(self) -> Matrix | None:
        """Of the errors of the weights, (d, d); None without an answer. `PrivateAdditive` says what it is."""
        if not self._seen:
            return None
        variance = self._root_variance()
        errors = self._kept.covariance(posterior(self._expected, CURVATURES * variance))
        errors += self._left_to_go
        found = covariance_of(errors, self._whitening)
        pairs = [place for group in self._terms.groups if group.kind == PAIRS for place in group.places]
        found[pairs, pairs] = np.maximum(found[pairs, pairs], self._squared_errors(pairs, variance))
        return found

    def _root_variance(self) -> Matrix:
        """Of the root of the answers so far, (k, k), for noise, sampling and unknown curvature on the way to it."""
        sampling = largest_sampling_of(self._clip, self._rows, self.phi)
        return root_covariance(self._seen) + sampling * np.eye(self._kept.count)

    def _squared_errors(self, places: list[int], variance: Matrix) -> Vector:
        """Of these weights, (places,), from what each would be if it was not shrunk: its variance, and how far off.

        variance: `_root_variance`.
        Pairs share one variance, so one that matters beside many that do not is shrunk as they are, however far. Let
        the weight be w, and w + e without shrinking, with e normal of variance v. Shrunk, it is off by a + e, and
        (a + e)^2 is beyond c (v + a^2) for some shift a only if e^2 > (c - 1) v. So two standard deviations hold w in
        at least 90 of 100 runs even with the worst shift, and in 95 if the shift does not depend on e.
        """
        basis, axes = self._whitening.basis.matrix[:, places], self._kept.axes
        unshrunk = axes @ root(self._seen) + self._left_out
        everywhere = axes @ variance @ axes.T + self._left_out_variance
        shift = basis.T @ (unshrunk - self.phi)
        found: Vector = CURVATURES * np.einsum("ij,ik,kj->j", basis, everywhere, basis) + np.square(shift)
        return found


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
