"""Models: the result of training, and what their scores say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError, ShapeError
from dpcore.estimators.hazard_scores import restricted_means, survival
from dpcore.evaluation.class_costs import LeastClassCost, raised
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import EventTime, Target, event_time, measured
from dpcore.records.schema import Schema
from learner import export, model_file, model_views
from learner.coefficient_table import Adjustment, CoefficientTable, coefficient_tables
from learner.decisions import (
    Shifts,
    Threshold,
    decision_sentences,
    log_odds_offset,
    lowered,
    shifts_of,
    threshold_of,
)
from learner.hazard_models import HazardErrors, hazard_errors, ranked_ratios
from learner.measured_models import MeasuredErrors, Ratio, measured_errors, ratios_of
from learner.predictions import Errors, count_errors, predict
from learner.score_parts import Explanation, LinearScore, explain
from learner.scoring import scoring_of
from learner.scoring_base import Scoring
from learner.uncertainty import (
    OF_CLASSES,
    Calibration,
    ClassCalibration,
    Limits,
    calibrated_on,
    checked_covariance,
    probabilities,
)
from radobase.keywords import knows_keywords
from radobase.presentation.notebook import Picture
from radobase.reading import read_bytes

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from dpcore.evaluation.class_evaluation import ClassEvaluation
    from dpcore.evaluation.evaluation import Evaluation
    from dpcore.evaluation.thresholds import LeastCost
    from learner.federation import Federation
    from learner.frame_pipeline import Unusable

DIGEST_BYTES = 32

LOG_RATES = ("newton", "additive")
"""Estimators whose scores of counts are logarithms of rates."""
Link = Literal["identity", "log"]
_LARGEST_LOG = 100.0


def link_of(estimator: str, target: Target) -> Link:
    """What makes predictions of scores: of counts those of a log link are logarithms of rates, all others are t."""
    return "log" if target.coding.kind == "count" and estimator in LOG_RATES else "identity"


@dataclass(frozen=True, eq=False)
class Model:
    """A linear classifier over rows as `schema` encodes them, mapped first if there is a feature map.

    Of two classes it is sign(theta . x). Of several it has a row of weights for each, and predicts that of the largest
    score (learner.scoring). Of a label that is a number or a count it predicts `values(theta . x)`.

    Of a time to an event theta . x is the logarithm of a ratio of hazards, and `survival` has the chances
    (learner.hazard_models).

    Raises ShapeError if theta or the covariance does not fit the schema, ModelError if a value is out of range.
    """

    theta: NDArray[np.float64] = field(repr=False)
    """(d,) float64, of several classes (k, d), finite, read-only."""
    schema: Schema
    estimator: str
    """Its name in learner.estimators; the key "learner" in a model's file."""
    release_digest: bytes
    """32 bytes, of the release or releases it was trained on."""
    statement: PrivacyStatement
    """Of these releases; training is post-processing and costs nothing."""
    held_back: Fraction | None = None
    """The share of rows that every query of the training left out; None if there was none, or if they differ."""
    feature_map: FeatureMap | None = None
    """What rows are mapped by; d is then the map's."""
    covariance: NDArray[np.float64] | None = field(default=None, repr=False)
    """(d, d), of theta given what was released: noise, sampling and shrinkage; None if it is not known. Of several
    classes (k d, k d), class by class, of weights beside their average."""
    sampling: NDArray[np.float64] | None = field(default=None, repr=False, kw_only=True)
    """(d, d), the part of the choice of the rows in `covariance`, None if it is not known."""
    calibration: Calibration | ClassCalibration | None = field(default=None, repr=False)
    """What makes probabilities of scores, from an evaluation; None if there was none."""
    epochs: tuple[str, ...] = ()
    """The epochs of rows that its releases are about, with those of the model that it started from; none if one is
    about all rows."""
    started_from: bytes | None = None
    """The digest of the model that its training started from, 32 bytes; None if it started from nothing."""
    log_hazards: NDArray[np.float64] | None = field(default=None, repr=False)
    """(J,) of a time to an event, of each interval, of a record of zeros; None of every other label."""
    class_weights: tuple[int, ...] = ()
    """How much a record of each class counted in its training, beside the others, of two the negative one first; none
    if all counted alike."""
    threshold: Threshold | Shifts | None = None
    """By which its score was lowered, so that it decides at the least cost; None if it was not."""

    def __post_init__(self) -> None:
        theta = np.array(self.theta, dtype=np.float64)
        if self.feature_map is not None:
            self.feature_map.check(self.schema)
        classes = self.schema.label.classes
        if theta.shape != ((classes, len(self.names)) if classes else (len(self.names),)):
            raise ShapeError(f"theta has shape {theta.shape} and rows have {len(self.names)} coordinates; train again")
        if not np.isfinite(theta).all():
            raise ModelError("theta is not finite; train again with other options")
        if len(self.release_digest) != DIGEST_BYTES:
            raise ModelError(f"a release's digest has {DIGEST_BYTES} bytes; train again")
        if self.started_from is not None and len(self.started_from) != DIGEST_BYTES:
            raise ModelError(f"the digest of the model to start from has not {DIGEST_BYTES} bytes; train again")
        if self.held_back is not None and not 0 < self.held_back < 1:
            raise ModelError(
                f"the share of rows that was held back is {self.held_back}, not between 0 and 1; train again"
            )
        if self.class_weights and (
            len(self.class_weights) != (classes or 2)
            or min(self.class_weights) < 1
            or self.schema.label.coding.has_value
        ):
            raise ModelError(
                f"class weights are {list(self.class_weights)}: a model has one from 1 up for each class; train again"
            )
        theta.setflags(write=False)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "log_hazards", _checked_baseline(self.log_hazards, self.schema.label))
        if self.calibration is not None:
            self.calibration.check(self.scoring)
        self._check_covariances(theta.size)

    def _check_covariances(self, d: int) -> None:
        if self.sampling is not None and self.covariance is None:
            raise ModelError("a model without a covariance has none of sampling either; train again")
        for name in ("covariance", "sampling"):
            if (found := getattr(self, name)) is None:
                continue
            object.__setattr__(self, name, checked_covariance(found, d))

    @property
    def scoring(self) -> Scoring:
        """What the scores say of the label."""
        return scoring_of(self.schema.label, is_rate=self.link == "log")

    @property
    def limits(self) -> Limits:
        """From where on what its scores add is not measurable."""
        label = self.schema.label
        return Limits.of(label, is_rate=self.link == "log") if label.coding.has_value else OF_CLASSES

    @property
    def linear_scores(self) -> tuple[LinearScore, ...]:
        """Each score as a sum of weighted coordinates, beside the average of all: learner.scoring."""
        # Of several classes no band beside the average was measured; tables against a reference have intervals.
        covariance = None if self.schema.label.classes else self.covariance
        return tuple(
            LinearScore(name, weights, self.schema, self.feature_map, covariance, self.limits)
            for name, weights in zip(self.scoring.names, self.scoring.relative(self.theta), strict=True)
        )

    def scores(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Margins theta . x, (rows,); positive means the positive class; of several classes their scores, (rows, k).

        x: (rows, d), encoded by the schema.
        """
        if x.ndim != 2 or x.shape[1] != self.schema.d:
            raise ShapeError(
                f"rows have shape {x.shape} and the model takes (rows, {self.schema.d}); encode them with its schema"
            )
        margins: NDArray[np.float64] = (x if self.feature_map is None else self.feature_map.of(x)) @ self.theta.T
        return margins

    @property
    def link(self) -> Link:
        """What makes predictions of scores, of a label that is a number or a count."""
        return link_of(self.estimator, self.schema.label)

    def values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predictions (rows,) of scores in the units of a label that is a number or a count.

        Of counts with an exposure they are for an exposure of 1.
        """
        label = measured(self.schema.label, "a prediction in units")
        return np.exp(np.minimum(scores, _LARGEST_LOG)) if self.link == "log" else label.in_units(scores)

    def predictions(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """`values` (rows,), or of a time to an event the mean up to the horizon. Raises SchemaError for classes."""
        label = self.schema.label
        return (
            restricted_means(self.survival(scores), label.borders)
            if isinstance(label, EventTime)
            else self.values(scores)
        )

    def survival(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The chance to be without the event at each of the label's borders, (rows, J).

        Raises SchemaError for a label that is no time to an event.
        """
        event_time(self.schema.label, "survival")
        assert self.log_hazards is not None, "a model of a time to an event has them"
        return survival(self.log_hazards, scores)

    def predicted(self, scores: NDArray[np.float64]) -> NDArray[np.int8]:
        """Labels (rows,) of scores: 1 or -1, which a score of zero has; of several classes codes from 0.

        Raises SchemaError for a label that is a number or a count, which `values` predicts.
        """
        return self.scoring.predicted(scores)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of theta's coordinates: the schema's, or those of the map's terms."""
        return self.schema.coordinates if self.feature_map is None else self.feature_map.names(self.schema)

    def columns_of(self, place: int) -> tuple[str, ...]:
        """The source columns that a coordinate of theta is a function of: none for the bias, two for a product."""
        if self.feature_map is not None:
            return self.feature_map.columns(place, self.schema)
        column = self.schema.sources(self.schema.coordinates[place])
        return () if column is None else (column,)

    def contributions(self, x: NDArray[np.float64]) -> dict[tuple[str, ...], NDArray[np.float64]]:
        """What each column, and each pair of columns of a product, adds to the scores, by source columns.

        (rows,), of several classes (rows, k). x: (rows, d), encoded by the schema. The bias is of no column, (). All
        add up to `scores`, up to rounding.
        """
        coordinates = x if self.feature_map is None else self.feature_map.of(x)
        found: dict[tuple[str, ...], NDArray[np.float64]] = {}
        for place, weight in enumerate(self.theta.T):
            columns = self.columns_of(place)
            found[columns] = found.get(columns, 0.0) + np.multiply.outer(coordinates[:, place], weight)
        return found

    def explain(self, row: Mapping[str, Any], *, of: str | None = None) -> Explanation:
        """What each column and pair adds to the score of one row: `learner.score_parts.explain`.

        row: the value of each column, in the column's units; None for an empty cell. of: the class whose score it is,
        if the label has several; None for the class that is predicted.
        """
        return explain(self, row, of)

    @property
    def classes(self) -> tuple[str, ...]:
        """The label's values in the order of `predict_proba`: of two classes the negative one first."""
        return self.scoring.texts

    def predict(self, data: Any) -> NDArray[Any]:
        """The predicted label of each row (rows,), in the label's own texts; of a number or a count in its units.

        Of a time to an event it is the mean time up to the horizon.

        data: a file's path, an Arrow table or a data frame. A row without a prediction has None, or NaN. Warns and
        raises as `learner.predictions.predict` does.
        """
        return model_views.labels_of(self, predict(self, data))

    def predict_proba(self, data: Any) -> NDArray[np.float64]:
        """The probability of each of `classes` for each row, (rows, classes), NaN without a prediction.

        Raises ModelError if the model has none, and as `predict` does.
        """
        return model_views.probabilities_of(self, predict(self, data))

    @knows_keywords
    def coefficients(
        self, *, adjustment: Adjustment = "none", reference: str | None = None
    ) -> tuple[CoefficientTable, ...]:
        """The table of each score's coefficients, in the columns' units: `learner.coefficient_table`.

        Of models that state the errors of their weights it has standard errors, p-values and intervals. adjustment: of
        p-values for their number, "holm" or "benjamini-hochberg". reference: of several classes the one that the others
        are compared with, by default the one that is known best. Raises ConfigurationError for another of either.
        """
        return coefficient_tables(self, adjustment=adjustment, reference=reference)

    @knows_keywords
    def summary(self, *, adjustment: Adjustment = "none") -> str:
        """The tables of `coefficients`, and the privacy statement, as text."""
        return model_views.summary_of(self, adjustment)

    def __repr__(self) -> str:
        return f"<model of {model_views.title_of(self)}>"

    def _repr_html_(self) -> str:
        return model_views.html_of(self)

    def ratios(self) -> tuple[Ratio, ...]:
        """How many times as large a prediction is after each change of a column, the furthest from 1 first.

        Of a time to an event they are ratios of hazards, of a count of rates, of a number whose logarithm is learned of
        medians, of two classes of odds, if scores are log odds. A model of curves has none. Raises SchemaError where
        columns only add to the score, and for several classes.
        """
        return ranked_ratios(self) if self.schema.label.coding.intervals else ratios_of(self)

    def errors(self, data: Any) -> "Errors | MeasuredErrors | HazardErrors":
        """How well it predicts the labels of a table that is at hand; nothing is asked, and nothing is private.

        data: as of `predict`. Raises DataError if the label's column is absent, or nothing can be compared.
        """
        coding = self.schema.label.coding
        if coding.intervals:
            return hazard_errors(self, data)
        return measured_errors(self, data) if coding.is_measured else count_errors(self, data)

    def plot(self) -> Picture:
        """What each column adds to the score, as a picture that notebooks show."""
        return model_views.picture_of(self)

    def evaluate(self, federation: "Federation", **options: Any) -> Any:
        """The quality of the model on the rows of a federation: `Federation.evaluate`, which has the options."""
        return federation.evaluate(self, **options)

    @property
    def digest(self) -> bytes:
        """32 bytes over everything that is saved, as the file states them."""
        return bytes.fromhex(model_file.digest_of(model_file.to_json(self)))

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of the positive class for each score: `learner.uncertainty`, which says where it is from.

        Of several classes the probability of each, (rows, k). Raises ModelError if the model has scores only.
        """
        return probabilities(self, scores)

    def calibrated(self, evaluation: "Evaluation | ClassEvaluation") -> "Model":
        """This model with probabilities that are calibrated on an evaluation of it: `learner.uncertainty`."""
        return replace(self, calibration=calibrated_on(evaluation))

    def at_threshold(self, found: "LeastCost | LeastClassCost") -> "Model":
        """This model, which decides at the threshold of the least cost of an evaluation of it (learner.decisions).

        Of several classes its scores are raised by the shifts of the least cost. Raises ModelError if there is no such
        threshold, ConfigurationError for a schema without a bias.
        """
        if isinstance(found, LeastClassCost):
            shifts = shifts_of(found, self.threshold if isinstance(self.threshold, Shifts) else None)
            higher = raised(self.theta, found.shifts, bias=self.schema.bias)
            # A calibration was of what the model said before.
            return replace(self, theta=higher, threshold=shifts, calibration=None) if any(found.shifts) else self
        earlier = self.threshold if isinstance(self.threshold, Threshold) else None
        threshold = threshold_of(found, earlier)
        by = threshold.score - (0.0 if earlier is None else earlier.score)
        theta = lowered(self.theta, by, bias=self.schema.bias)
        calibration = self.calibration.moved(-by) if isinstance(self.calibration, Calibration) else None
        return replace(self, theta=theta, threshold=threshold, calibration=calibration)

    @property
    def log_odds_offset(self) -> float:
        """What is added to a score of two classes before it can be log odds: learner.decisions."""
        return log_odds_offset(self.class_weights, self.threshold)

    @property
    def decision_sentences(self) -> list[str]:
        """What to know of its scores: weights of rows and of classes, and a threshold for a stated cost."""
        names = self.classes if self.class_weights else ()
        return decision_sentences(self.class_weights, names, self.threshold, self.schema.weight)

    def to_sklearn(
        self, *, classes: Literal["label", "signs"] = "label", unusable: "Unusable" = "refuse"
    ) -> "Pipeline":
        """The model as a fitted scikit-learn pipeline that takes raw frames: `learner.export.to_sklearn`."""
        return export.to_sklearn(self, classes=classes, unusable=unusable)

    def to_original_units(self) -> dict[str, Any]:
        """The model in the units of the original columns, as JSON values: `learner.export.to_original_units`."""
        return export.to_original_units(self)

    def save(self, path: Path | str) -> None:
        """Write the model atomically; an existing file is replaced. Raises ModelError."""
        model_file.write(self, Path(path))

    @classmethod
    def load(cls, path: Path | str) -> "Model":
        """Read a model. Raises ModelError if the file is not a model, has an unknown format, or was changed."""
        return model_file.read(Path(path), cls)


def _checked_baseline(found: NDArray[np.float64] | None, label: Target) -> NDArray[np.float64] | None:
    """The logarithms of hazards, read-only. Raises ModelError or ShapeError if they do not fit the label."""
    intervals = label.coding.intervals
    if found is None or not intervals:
        if found is not None or intervals:
            raise ModelError(
                f"{label.column!r} is a label of {label.words}: a model has logarithms of hazards if, and only if, its "
                "label is a time to an event; train again"
            )
        return None
    log_hazards = np.array(found, dtype=np.float64)
    if log_hazards.shape != (intervals,):
        raise ShapeError(f"there are {log_hazards.shape} logarithms of hazards for {intervals} intervals; train again")
    if not np.isfinite(log_hazards).all():
        raise ModelError("a logarithm of a hazard is not finite; train again with other options")
    log_hazards.setflags(write=False)
    return log_hazards


def content_of(path: Path) -> bytes:
    """A model's file, to pass it on. Raises what Model.load raises."""
    Model.load(path)
    return read_bytes(path, model_file.MODEL)
