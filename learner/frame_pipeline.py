"""Models as fitted scikit-learn pipelines of raw frames. Importing this needs scikit-learn.

The steps are `encode` (SchemaEncoder), those of a feature map (learner.pipelines), and `classifier`, a logistic
regression with the model's weights; of labels without classes `regressor` (learner.value_pipelines).
"""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.encoding import changes, main_cause
from dpcore.records.schema import Schema
from learner.uncertainty import Calibration, ClassCalibration

Unusable = Literal["refuse", "zeros"]


class SchemaEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped base
    """Encodes a frame's columns by a schema, without the bias: (rows, coordinates). Other columns are ignored.

    unusable: "refuse" raises DataError if the schema makes a row a zero vector, "zeros" passes zeros on. `fit` learns
    nothing: the schema says everything.
    """

    def __init__(self, schema: Schema, *, unusable: Unusable = "refuse") -> None:
        self.schema = schema
        self.unusable = unusable

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters; returns self."""
        del X, y
        if self.unusable not in ("refuse", "zeros"):
            raise ConfigurationError(f"unusable is {self.unusable!r}: choose 'refuse' or 'zeros'")
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Encode a data frame or an Arrow table. Raises as `Schema.encode`, and DataError for rows not usable."""
        if isinstance(X, np.ndarray):
            raise ConfigurationError(
                "an array has no names of columns: give a data frame or an Arrow table with the columns of the schema, "
                "or give encoded rows to the steps after the first, pipeline[1:]"
            )
        rows = self.schema.encode(X)
        missing = int((~rows.usable).sum())
        if missing and self.unusable == "refuse":
            cause = main_cause(changes(self.schema, rows.tallies, len(rows.usable)))
            raise DataError(
                f"{missing} of {len(rows.usable)} rows have no prediction: {cause}; "
                "leave out rows that are not usable by schema.encode(frame), or decide them as zeros: unusable='zeros'"
            )
        return rows.x[:, : self.n_coordinates]

    @property
    def n_coordinates(self) -> int:
        """Coordinates without the bias."""
        return self.schema.d - int(self.schema.bias)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The columns that are read, in the schema's order."""
        return np.array(list(dict.fromkeys(feature.column for feature in self.schema.features)), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """How many columns are read."""
        return len(self.feature_names_in_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the coordinates."""
        del input_features
        return np.array(self.schema.coordinates[: self.n_coordinates], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True


class CalibratedRegression(LogisticRegression):  # type: ignore[misc]  # untyped base
    """A logistic regression with the probabilities of a calibration, which fitting it again discards."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """See LogisticRegression."""
        self.calibration_: Calibration | ClassCalibration | None = None
        super().fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, (rows, classes)."""
        calibration: Calibration | ClassCalibration | None = getattr(self, "calibration_", None)
        if calibration is None:
            usual: NDArray[np.float64] = super().predict_proba(X)
            return usual
        return calibration.of_margins(self.decision_function(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))


class ScoreRegression(LogisticRegression):  # type: ignore[misc]  # untyped base
    """A logistic regression whose scores are no log odds: without probabilities until it is fitted again."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """See LogisticRegression."""
        self.no_probability_: str | None = None
        super().fit(X, y, sample_weight)
        return self

    @property
    def predict_proba(self) -> Any:
        """Raises AttributeError with the reason, so that tools that look for probabilities use the scores instead."""
        if (why := getattr(self, "no_probability_", None)) is not None:
            raise AttributeError(why)
        return super().predict_proba

    @property
    def predict_log_proba(self) -> Any:
        """As `predict_proba`."""
        if (why := getattr(self, "no_probability_", None)) is not None:
            raise AttributeError(why)
        return super().predict_log_proba


class ModelPipeline(Pipeline):  # type: ignore[misc]  # untyped base
    """A pipeline that says why there are no probabilities, where scikit-learn's only says that there are none."""

    @property
    def predict_proba(self) -> Any:
        """See Pipeline."""
        self._say_why()
        return super().predict_proba

    @property
    def predict_log_proba(self) -> Any:
        """See Pipeline."""
        self._say_why()
        return super().predict_log_proba

    def _say_why(self) -> None:
        if (why := getattr(self.steps[-1][1], "no_probability_", None)) is not None:
            raise AttributeError(why)


def classifier_of(calibration: Calibration | ClassCalibration | None, no_probability: str | None) -> LogisticRegression:
    """The last step, which still lacks its coefficients: scikit-learn's own if probabilities are those of the link."""
    classifier: LogisticRegression = LogisticRegression()
    if no_probability is not None:
        classifier = ScoreRegression()
        classifier.no_probability_ = no_probability
    elif calibration is not None:
        classifier = CalibratedRegression()
        classifier.calibration_ = calibration
    return classifier
