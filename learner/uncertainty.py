"""Probabilities of the positive class from scores: by the logistic link, or calibrated on an evaluation.

    logistic      1 / (1 + exp(-score)), if the training makes scores log odds under its assumptions. Whether they hold
                  on the parties' rows was not measured.
    calibrated    what an evaluation counted: the share of positive rows by score (`Calibration`).
    none          scores of any other training are no log odds, and the link would be a wrong claim.

Calibration is post-processing of a release and costs no privacy.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError, ShapeError
from dpcore.estimators.errors_of_weights import MEASURABLE, PRIOR_DEVIATION
from dpcore.records.schema import Schema
from learner.estimators import LOG_ODDS, OTHER_SCORES

if TYPE_CHECKING:
    from dpcore.evaluation.evaluation import Evaluation


Floats = NDArray[np.float64]

_CERTAIN = 4.0
"""A bin must have this many standard deviations of the noise on a cell, or its share is not used."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A monotone map from scores to probabilities: linear between knots, constant outside them. Raises ModelError."""

    scores: Floats
    probabilities: Floats
    """(k,), k >= 2, ascending, scores strictly, probabilities between 0 and 1."""
    words: str
    """What was measured, in a sentence."""

    def __post_init__(self) -> None:
        scores, chances = (np.array(values, dtype=np.float64) for values in (self.scores, self.probabilities))
        fits = scores.ndim == 1 and scores.shape == chances.shape and len(scores) >= 2
        if not (fits and np.isfinite(scores).all() and (np.diff(scores) > 0).all()):
            raise ModelError(
                "a calibration's scores must be finite and ascending, with a probability each; evaluate again"
            )
        if not ((np.diff(chances) >= 0).all() and chances[0] > 0 and chances[-1] < 1):
            raise ModelError("a calibration's probabilities must ascend and be between 0 and 1; evaluate again")
        for name, array in (("scores", scores), ("probabilities", chances)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def of(cls, evaluation: "Evaluation") -> Self:
        """The isotonic regression of the shares of positive rows in the evaluation's bins of scores.

        Each bin has a row of either label added, and stands for the scores in its middle. Bins whose rows are lost in
        the noise are left out. Raises ModelError if fewer than two are left.
        """
        from scipy.optimize import isotonic_regression  # noqa: PLC0415  (slow to import)

        edges = np.array([point.threshold for point in reversed(evaluation.roc)])
        rows = np.array([part.rows for part in evaluation.calibration])
        shares = np.array([part.observed.estimate for part in evaluation.calibration])
        known = rows >= max(1.0, _CERTAIN * evaluation.deviation)
        if known.sum() < 2:
            raise ModelError(
                "the noise hides how many rows have which score, so nothing can be calibrated on this evaluation: "
                "evaluate with a larger epsilon, with fewer bins, or with a scale such that scores fill the bins"
            )
        wider = np.concatenate([[edges[0] - (edges[1] - edges[0])], edges, [edges[-1] + (edges[-1] - edges[-2])]])
        middles = (wider[:-1] + wider[1:]) / 2.0
        smoothed = (shares * rows + 1.0)[known] / (rows[known] + 2.0)
        fitted = isotonic_regression(smoothed, weights=rows[known]).x
        whose = "rows that it was not trained on" if evaluation.unseen else "rows that it may have been trained on"
        words = (
            f"calibrated on an evaluation over about {evaluation.usable:.0f} {whose}: the shares of positive rows in "
            f"{int(known.sum())} bins of scores, made monotone; noise on a count: {evaluation.deviation:.3g} rows"
        )
        return cls(middles[known], fitted, words)

    def of_scores(self, scores: Floats) -> Floats:
        """The probability of each score; NaN stays NaN."""
        return np.asarray(np.interp(scores, self.scores, self.probabilities))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scores": self.scores.tolist(),
            "probabilities": self.probabilities.tolist(),
            "words": self.words,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The calibration with this `to_dict`."""
        return cls(np.array(content["scores"]), np.array(content["probabilities"]), str(content["words"]))


class Scored(Protocol):
    """What probabilities depend on (learner.model.Model)."""

    @property
    def estimator(self) -> str:
        """The estimator's name."""
        ...

    @property
    def schema(self) -> Schema:
        """How columns become coordinates."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """What makes probabilities of scores, if it was measured."""
        ...


def why_no_probability(model: Scored) -> str | None:
    """Why the model has scores and no probabilities, and what to do; None if it has some."""
    if model.calibration is not None:
        return None
    if model.estimator in LOG_ODDS and (model.schema.bias or model.estimator != "moments-discriminant"):
        return None
    why = OTHER_SCORES.get(model.estimator, "nothing is known about its scores")
    if model.estimator in LOG_ODDS:
        why = "its schema has no bias, so its scores are those of least squares"
    return (
        f"a model of {model.estimator} has scores and no probabilities: {why}. To calibrate it on the parties' rows, "
        "evaluate it: rado learner evaluate MODEL --calibrated FILE"
    )


def probabilities(model: Scored, scores: Floats) -> Floats:
    """The probability of the positive class for each score. Raises ModelError if the model has none."""
    if (why := why_no_probability(model)) is not None:
        raise ModelError(why)
    if model.calibration is not None:
        return model.calibration.of_scores(scores)
    found = np.full(scores.shape, np.nan)
    known = ~np.isnan(scores)
    found[known] = np.exp(-np.logaddexp(0.0, -scores[known]))
    return found


def probability_in_words(model: Scored) -> str:
    """Where probabilities come from, or why there are none, in a sentence without a full stop."""
    if model.calibration is not None:
        return model.calibration.words
    if (why := why_no_probability(model)) is not None:
        return why
    return (
        f"by the model's logistic link, 1 / (1 + exp(-margin)), not measured: {LOG_ODDS[model.estimator]}, and how "
        "well that fits is not known before an evaluation"
    )


def probability_of(model: Scored) -> dict[str, Any]:
    """For JSON: `kind`, `in_words`, and the knots of a calibration."""
    if model.calibration is not None:
        return {"kind": "calibrated", "in_words": probability_in_words(model), **_knots(model.calibration)}
    kind = "logistic" if why_no_probability(model) is None else "none"
    return {"kind": kind, "in_words": probability_in_words(model)}


def _knots(calibration: Calibration) -> dict[str, list[float]]:
    return {"margins": calibration.scores.tolist(), "probabilities": calibration.probabilities.tolist()}


# The covariance of a model's weights: how it is checked, and how a model's file states it.
#
# In the file it is one text: the lower triangle, row by row with the diagonal, as little-endian IEEE-754 doubles in
# base64. So the doubles are exact, and 256 coordinates take 350 kB.


MOST_COORDINATES = 1024
"""A model's file with the covariance of so many coordinates has 6 MB."""

FACTOR = 1.96
"""Of a normal distribution: 95 % are within so many standard deviations."""

_SYMMETRIC = 1e-9
_POSITIVE = 1e-9


def checked_covariance(covariance: NDArray[np.float64], d: int) -> NDArray[np.float64]:
    """A read-only copy, (d, d), exactly symmetric. Raises ShapeError, or ModelError if it is no covariance."""
    given = np.array(covariance, dtype=np.float64)
    if given.shape != (d, d):
        raise ShapeError(f"the covariance has shape {given.shape} and theta has {d} coordinates; train again")
    if d > MOST_COORDINATES:
        raise ModelError(
            f"the covariance is of {d} coordinates, and at most {MOST_COORDINATES} are kept; leave it out of the model"
        )
    largest = float(np.abs(given).max()) if np.isfinite(given).all() else np.nan
    if not (np.abs(given - given.T) <= _SYMMETRIC * largest).all():
        raise ModelError("the covariance is not finite and symmetric; train again")
    found = np.tril(given) + np.tril(given, -1).T
    try:
        np.linalg.cholesky(found + (_POSITIVE * largest + np.finfo(np.float64).tiny) * np.eye(d))
    except np.linalg.LinAlgError:
        raise ModelError("the covariance gives a combination of weights a negative variance; train again") from None
    found.setflags(write=False)
    return found


def half_widths(combinations: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """`FACTOR` standard deviations of combinations of weights: (n,). combinations: (n, d)."""
    variances = np.einsum("ij,jk,ik->i", combinations, covariance, combinations)
    return np.asarray(FACTOR * np.sqrt(np.maximum(variances, 0.0)))


def measurable(combinations: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which combinations of weights, (n, d), the answers determined: (n,). Of others no interval may be stated.

    A weight of which they say nothing keeps the deviation of its prior (dpcore.estimators.errors_of_weights), and the
    interval of a value near 0 would hold by chance.
    """
    most = FACTOR * MEASURABLE * PRIOR_DEVIATION * np.linalg.norm(combinations, axis=1)
    return np.asarray(half_widths(combinations, covariance) <= most, dtype=np.bool_)


def covariance_text(covariance: NDArray[np.float64]) -> str:
    """The text of the file, of a `checked_covariance`."""
    return base64.b64encode(covariance[np.tril_indices(len(covariance))].astype("<f8").tobytes()).decode()


def covariance_from_text(text: str, d: int) -> NDArray[np.float64]:
    """The covariance of `to_text`, (d, d). Raises ModelError if the text is not one of d coordinates."""
    try:
        triangle = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    except (binascii.Error, ValueError) as error:
        raise ModelError(f"the covariance is no base64 of doubles ({error}); train again") from error
    if len(triangle) != d * (d + 1) // 2:
        raise ModelError(f"the covariance has {len(triangle)} numbers, not those of {d} coordinates; train again")
    found = np.zeros((d, d))
    found[np.tril_indices(d)] = triangle
    return found + np.tril(found, -1).T
