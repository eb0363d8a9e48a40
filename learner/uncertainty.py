"""How sure a model is: probabilities from scores, and the covariance of its weights.

A probability is by the link of the label's scores (learner.scoring), or calibrated on an evaluation.

    logistic      1 / (1 + exp(-score)), if the training makes scores log odds under its assumptions. Whether they hold
                  on the parties' rows was not measured.
    softmax       the same of several classes.
    calibrated    what an evaluation counted: the share of positive rows by score (`Calibration`), or the share of each
                  class by the predicted class (`ClassCalibration`).
    none          scores of any other training are no log odds, and the link would be a wrong claim.

Calibration is post-processing of a release and costs no privacy.
"""

import base64
import binascii
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError, ShapeError
from dpcore.estimators.curvatures import PRIOR_DEVIATION, prior_deviation
from dpcore.estimators.errors_of_weights import MEASURABLE
from dpcore.records.features import Target
from dpcore.records.schema import Schema
from learner.decisions import Shifts, Threshold
from learner.estimators import OTHER_SCORES
from learner.scoring import OneScore, ScoreOfEachClass
from learner.scoring_base import Scoring

if TYPE_CHECKING:
    from dpcore.evaluation.class_evaluation import ClassEvaluation
    from dpcore.evaluation.evaluation import Evaluation


Floats = NDArray[np.float64]

_NO_LINK = "a margin is no log odds: there are no probabilities"
_ROUNDING = 1e-9
"""How far probabilities that add up to 1 may be from it."""

_CERTAIN = 4.0
"""A bin must have this many standard deviations of the noise on a cell, or its share is not used."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A monotone map from scores to probabilities: linear between knots, constant outside them. Raises ModelError."""

    rule: ClassVar[str] = (
        "probability of positive: linear in the margin between `margins` and their `probabilities`; outside them that "
        "of the nearest"
    )
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

    def check(self, scoring: Scoring) -> None:
        """Raise ModelError if it is not about such scores."""
        if not isinstance(scoring, OneScore):
            raise ModelError("the calibration is of one score, and the model has several; evaluate it again")

    def of_scores(self, scores: Floats) -> Floats:
        """The probability of each score; NaN stays NaN."""
        return np.asarray(np.interp(scores, self.scores, self.probabilities))

    def moved(self, by: float) -> Self:
        """The same map of scores that are larger by this."""
        return type(self)(self.scores + by, self.probabilities, self.words)

    def of_margins(self, margins: Floats) -> Floats:
        """The same for both classes, (rows, 2), from the margins of a scikit-learn classifier."""
        positive = self.of_scores(margins)
        return np.column_stack([1.0 - positive, positive])

    def exported(self) -> dict[str, Any]:
        """For JSON of an exported model."""
        return {"margins": self.scores.tolist(), "probabilities": self.probabilities.tolist()}

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


@dataclass(frozen=True, eq=False)
class ClassCalibration:
    """The probability of each class by the class that is predicted: columns of a confusion matrix. Raises ModelError.

    It says how often a prediction is right, and does not tell apart rows of which the same class is predicted.
    """

    rule: ClassVar[str] = (
        "probability of a class: at its place in that row of `shares` whose place is that of the largest score"
    )
    shares: Floats
    """(k, k): for each predicted class the probability of each class, above 0; a row adds up to 1."""
    words: str
    """What was measured, in a sentence."""

    def __post_init__(self) -> None:
        shares = np.array(self.shares, dtype=np.float64)
        if shares.ndim != 2 or shares.shape[0] != shares.shape[1] or len(shares) < 2:
            raise ModelError("a calibration of classes has a probability of each for each; evaluate again")
        if not ((shares > 0).all() and (np.abs(shares.sum(axis=1) - 1.0) < _ROUNDING).all()):
            raise ModelError("a calibration's probabilities must be above 0 and add up to 1; evaluate again")
        shares.setflags(write=False)
        object.__setattr__(self, "shares", shares)

    @classmethod
    def of(cls, evaluation: "ClassEvaluation") -> Self:
        """The shares of the classes among the rows of each predicted class, after a row of each class was added.

        Predicted classes whose rows are lost in the noise are taken together; if these are lost too, the shares of all
        rows stand for them. Raises ModelError if all are lost.
        """
        cells = np.maximum(evaluation.confusion.T, 0.0)
        k, least = len(cells), max(1.0, _CERTAIN * evaluation.deviation * np.sqrt(len(cells)))
        known = evaluation.confusion.sum(axis=0) >= least
        if not known.any():
            raise ModelError(
                "the noise hides how many rows are predicted to be of which class, so nothing can be calibrated on "
                "this evaluation: evaluate with a larger epsilon"
            )
        others = evaluation.confusion[:, ~known].sum(axis=1)
        instead = np.maximum(others if others.sum() >= least else evaluation.confusion.sum(axis=1), 0.0)
        counts = np.where(known[:, np.newaxis], cells, instead) + 1.0
        hidden = [name for name, is_known in zip(evaluation.classes, known, strict=True) if not is_known]
        whose = "rows that it was not trained on" if evaluation.unseen else "rows that it may have been trained on"
        words = (
            f"calibrated on an evaluation over about {evaluation.confusion.sum():.0f} {whose}: for each predicted "
            f"class the shares of all {k} classes; noise on a count: {evaluation.deviation:.3g} rows"
        )
        if hidden:
            used = "those of such predictions together" if others.sum() >= least else "those of all rows"
            where = " or ".join(map(repr, hidden))
            words += f"; the noise hides the shares where {where} is predicted, and {used} stand for them"
        return cls(counts / counts.sum(axis=1, keepdims=True), words)

    def check(self, scoring: Scoring) -> None:
        """Raise ModelError if it is not about such scores."""
        if not isinstance(scoring, ScoreOfEachClass) or len(scoring.names) != len(self.shares):
            raise ModelError("the calibration is not of the model's classes; evaluate it again")

    def of_scores(self, scores: Floats) -> Floats:
        """The probabilities (rows, k) of rows with these scores (rows, k); NaN stays NaN."""
        found: Floats = self.shares[np.nan_to_num(scores).argmax(axis=1)]
        return np.where(np.isnan(scores), np.nan, found)

    def of_margins(self, margins: Floats) -> Floats:
        """The same from the margins of a scikit-learn classifier, which has one for two classes."""
        return self.of_scores(margins if margins.ndim == 2 else np.column_stack([np.zeros(len(margins)), margins]))

    def exported(self) -> dict[str, Any]:
        """For JSON of an exported model."""
        return {"shares": self.shares.tolist()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"shares": self.shares.tolist(), "words": self.words}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The calibration with this `to_dict`."""
        return cls(np.array(content["shares"]), str(content["words"]))


def calibrated_on(evaluation: "Evaluation | ClassEvaluation") -> Calibration | ClassCalibration:
    """The calibration on an evaluation. Raises ModelError as `of` of both does, and for an evaluation of no classes."""
    from dpcore.evaluation.class_evaluation import ClassEvaluation  # noqa: PLC0415  (slow to import)
    from dpcore.evaluation.evaluation import Evaluation  # noqa: PLC0415  (slow to import)

    if isinstance(evaluation, Evaluation):
        return Calibration.of(evaluation)
    if isinstance(evaluation, ClassEvaluation):
        return ClassCalibration.of(evaluation)
    raise ModelError("only an evaluation of a label of classes calibrates probabilities: give what evaluate() returned")


def calibration_from(content: dict[str, Any]) -> Calibration | ClassCalibration:
    """The calibration with this `to_dict`."""
    return (ClassCalibration if "shares" in content else Calibration).from_dict(content)


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
    def calibration(self) -> Calibration | ClassCalibration | None:
        """What makes probabilities of scores, if it was measured."""
        ...

    @property
    def scoring(self) -> Scoring:
        """What the scores say."""
        ...

    @property
    def log_odds_offset(self) -> float:
        """What is added to scores before they can be log odds."""
        ...

    @property
    def threshold(self) -> Threshold | Shifts | None:
        """What was chosen for a cost."""
        ...


def why_no_probability(model: Scored) -> str | None:
    """Why the model has scores and no probabilities, and what to do; None if it has some."""
    if model.calibration is not None:
        return None
    if not model.scoring.has_classes:
        label = model.schema.label
        return f"{label.column!r} is {label.words}: a model of it has predictions and no probabilities of classes"
    log_odds = model.scoring.log_odds
    if (
        model.log_odds_offset == 0.0
        and not isinstance(model.threshold, Shifts)
        and model.estimator in log_odds
        and (model.schema.bias or model.estimator != "moments-discriminant")
    ):
        return None
    why = OTHER_SCORES.get(model.estimator, "nothing is known about its scores")
    if model.estimator in log_odds and model.log_odds_offset:
        why = "its score was lowered by a threshold"
    elif isinstance(model.threshold, Shifts):
        why = "its scores were raised by shifts for a cost"
    elif model.estimator in log_odds:
        why = "its schema has no bias, so its scores are those of least squares"
    return (
        f"a model of {model.estimator} has scores and no probabilities: {why}. To calibrate it on the parties' rows, "
        "evaluate it: rado learner evaluate MODEL --calibrated FILE"
    )


def probabilities(model: Scored, scores: Floats) -> Floats:
    """The probability of the positive class for each score, of several classes (rows, k).

    scores: NaN stays NaN. Raises ModelError if the model has no probabilities.
    """
    if (why := why_no_probability(model)) is not None:
        raise ModelError(why)
    if model.calibration is not None:
        return model.calibration.of_scores(scores)
    found = np.full(scores.shape, np.nan)
    known = ~np.isnan(scores) if scores.ndim == 1 else ~np.isnan(scores).any(axis=1)
    found[known] = model.scoring.by_link(scores[known])
    return found


def probability_in_words(model: Scored) -> str:
    """Where probabilities come from, or why there are none, in a sentence without a full stop."""
    if model.calibration is not None:
        return model.calibration.words
    if (why := why_no_probability(model)) is not None:
        return why
    return (
        f"by {model.scoring.link_in_words}, not measured: {model.scoring.log_odds[model.estimator]}, and how well that "
        "fits is not known before an evaluation"
    )


def probability_rule(model: Scored) -> str:
    """How to make probabilities of scores, as an exported model states it."""
    if model.calibration is not None:
        return model.calibration.rule
    return model.scoring.link_rule if why_no_probability(model) is None else _NO_LINK


def probability_of(model: Scored) -> dict[str, Any]:
    """For JSON: `kind`, `in_words`, and what a calibration says."""
    if model.calibration is not None:
        return {"kind": "calibrated", "in_words": probability_in_words(model), **model.calibration.exported()}
    kind = model.scoring.link if why_no_probability(model) is None else "none"
    return {"kind": kind, "in_words": probability_in_words(model)}


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


MOST_HALF_WIDTH = 1.0
"""Of a stated interval of a coefficient, or of a band of a label without classes, in units of the score: what is wider
is not measurable. In log odds, or logarithms of rates and hazards, the ends are then a factor of 7.4 apart."""


@dataclass(frozen=True)
class Limits:
    """From where on a combination of weights is not measurable."""

    prior: float = PRIOR_DEVIATION
    """The standard deviation of a weight before any answer (dpcore.estimators.curvatures)."""
    widest: float = math.inf
    """The largest half-width."""

    @classmethod
    def of(cls, label: Target, *, is_rate: bool, unit: float = 1.0) -> Self:
        """Of a label without classes. is_rate: whether scores are logarithms of rates. unit: of the weights."""
        if is_rate:
            return cls(PRIOR_DEVIATION, MOST_HALF_WIDTH)
        return cls(unit * prior_deviation(label.coding), unit * MOST_HALF_WIDTH)


OF_CLASSES = Limits()


def measurable(
    combinations: NDArray[np.float64], covariance: NDArray[np.float64], limits: Limits = OF_CLASSES
) -> NDArray[np.bool_]:
    """Which combinations of weights, (n, d), the answers determined: (n,). Of others no interval may be stated.

    A weight of which they say nothing keeps the deviation of its prior (dpcore.estimators.errors_of_weights), and the
    interval of a value near 0 would hold by chance.
    """
    return measurable_widths(half_widths(combinations, covariance), combinations, limits)


def measurable_widths(
    widths: NDArray[np.float64], combinations: NDArray[np.float64], limits: Limits
) -> NDArray[np.bool_]:
    """`measurable` of combinations with these half-widths, (n,)."""
    most = FACTOR * MEASURABLE * limits.prior * np.linalg.norm(combinations, axis=1)
    return np.asarray((widths <= most) & (widths <= limits.widest), dtype=np.bool_)


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
