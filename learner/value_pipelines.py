"""The last steps of scikit-learn pipelines of models of numbers, counts and times. Importing this needs scikit-learn.

    number    LinearRegression, whose prediction is in the label's units; of a logarithm in a TransformedTargetRegressor
    count     PoissonRegressor, whose prediction is the mean count for an exposure of 1
    time      HazardRegressor, whose prediction is the score, a risk; `survival` has the chances

The first two are scikit-learn's own: they are fitted to two made-up rows, so that they have all that fitting makes, and
then get the model's weights. Fitted again, they learn from the rows that they are given; for counts with an exposure
give counts divided by it, and the exposures as `sample_weight`.
"""

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, PoissonRegressor

from dpcore.errors import ConfigurationError
from dpcore.estimators.hazard_scores import restricted_means, survival
from dpcore.records.features import Count, EventTime, Number
from learner.pipelines import steps_of

if TYPE_CHECKING:
    from learner.export import ExportedModel

Weights = NDArray[np.float64]


class HazardRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped base
    """Proportional hazards with weights that a federation learned; scikit-learn has no such estimator of its own.

    log_hazards: (J,), of each interval, of a row whose score is 0. borders: (J,), the ends of intervals.
    """

    def __init__(self, log_hazards: Weights, borders: tuple[float, ...]) -> None:
        self.log_hazards = log_hazards
        self.borders = borders

    coef_: Weights
    intercept_: float

    def fit(self, X: Any, y: Any = None) -> Self:
        """Raises ConfigurationError: no row can teach it."""
        del X, y
        raise ConfigurationError("proportional hazards are not fitted again here: train by `rado learner train`")

    def predict(self, X: Any) -> Weights:
        """Scores (rows,): logarithms of hazard ratios; a larger one is a larger risk."""
        found: Weights = np.asarray(X, dtype=np.float64) @ self.coef_ + self.intercept_
        return found

    def survival(self, X: Any) -> Weights:
        """The chance to be without the event at each border, (rows, J). X: as `predict` takes it."""
        return survival(np.asarray(self.log_hazards), self.predict(X))

    def restricted_mean(self, X: Any) -> Weights:
        """The mean time up to the last border, (rows,)."""
        return restricted_means(self.survival(X), self.borders)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


def steps_of_values(model: "ExportedModel", width: int) -> list[tuple[str, Any]]:
    """The steps after `encode`, by name. width: coordinates of an encoded row without the bias."""
    theta, weighted = model.theta[np.newaxis], _Weighted()
    steps: list[tuple[str, Any]] = []
    if model.feature_map is not None:
        steps = steps_of(model.feature_map, theta, width, weighted)
    else:
        weighted.coef_ = theta[:, :width].copy()
        weighted.intercept_ = theta[:, width].copy() if model.schema.bias else np.zeros(1)
    coefficients, intercept = weighted.coef_[0], float(weighted.intercept_[0])
    return [*steps, ("regressor", _regressor(model, coefficients, intercept))]


class _Weighted:
    """What `steps_of` gives coefficients to."""

    coef_: Weights
    intercept_: Weights
    n_features_in_: int


def _regressor(model: "ExportedModel", coefficients: Weights, intercept: float) -> Any:
    label = model.schema.label
    if isinstance(label, EventTime):
        assert model.log_hazards is not None, "a model of a time to an event has them"
        hazards = HazardRegressor(model.log_hazards.copy(), label.borders)
        hazards.coef_, hazards.intercept_ = coefficients, intercept
        return hazards
    rows, made_up = np.zeros((2, len(coefficients))), np.ones(2)
    said = model.scoring.prediction(model)
    if said["kind"] == "rate":
        return _with_weights(PoissonRegressor().fit(rows, made_up), coefficients, intercept)
    assert isinstance(label, Number | Count), "a number or a count"
    # The score -1 is at the lower bound, 1 at the upper one.
    is_log = said["kind"] == "logarithm"
    start, end = (math.log(said[at]) if is_log else said[at] for at in ("at_minus_one", "at_one"))
    half = (end - start) / 2.0
    weights = coefficients * half, intercept * half + (start + end) / 2.0
    if not is_log:
        return _with_weights(LinearRegression().fit(rows, made_up), *weights)
    found = TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp).fit(rows, made_up)
    _with_weights(found.regressor_, *weights)
    return found


def _with_weights(regressor: Any, coefficients: Weights, intercept: float) -> Any:
    regressor.coef_, regressor.intercept_ = coefficients, intercept
    return regressor
