"""Base of the linear classifiers: releases, answers or rows in, a classifier out, with scikit-learn's interface.

An estimator is trained by `fit_release`, `fit_moments(moments)`, `fit_queries(oracle)` or `fit`.

- `fit_release(release)` sees rados only. Its coordinates are those of the release, including the bias: `coef_` is (1,
  d), `intercept_` zero, `classes_` [-1, 1], and `predict` takes rows exactly as the schema encodes them.
- `fit(X, y)` sees rows, for comparison. It appends the bias, draws plain rados from the edge vectors and trains on
  those: `coef_` is (1, features), the bias is `intercept_`, and `predict` takes rows like X.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector, frozen
from dpcore.numbers.progress import Progress
from dpcore.rados.distribution import PLAIN_DISTRIBUTION, RadoDistribution

MOST_RADOS_FROM_ROWS = 1000
"""Nock, Patrini and Friedman (ICML 2015), section 4: n = min(1000, m / 2)."""

_SEVERAL = 3
LARGEST_VALUE = 1e50
"""Of a cell: estimators compute fourth powers of cells, and sums of many."""

ROWS_PER_BLOCK = 4096
"""Rows whose selection bits are held in memory at once: n x 4096 doubles."""


class RadoRelease(Protocol):
    """What an estimator needs from a release: rados in the units of the encoded features, and how they were drawn."""

    @property
    def rados(self) -> Matrix:
        """(n, d)."""
        ...

    @property
    def rows(self) -> int:
        """Rows behind the sums: m."""
        ...

    @property
    def bias(self) -> bool:
        """Whether the last coordinate is the constant feature."""
        ...

    @property
    def distribution(self) -> RadoDistribution:
        """How the rados were drawn, and which noise they contain."""
        ...


@dataclass(frozen=True, eq=False)
class RadoSample:
    """Rados with the facts that estimation needs; the simplest `RadoRelease`. Read-only float64 rados are not copied.

    Raises ShapeError, DataError if a rado is not finite, ConfigurationError if rows < 1.
    """

    rados: Matrix
    """(n, d) with n >= 2 and d >= 1, finite."""
    rows: int
    """m >= 1."""
    bias: bool = True
    """The last coordinate is the constant feature."""
    distribution: RadoDistribution = PLAIN_DISTRIBUTION
    """How they were drawn."""

    def __post_init__(self) -> None:
        rados = frozen(self.rados, np.float64)
        if rados.ndim != 2 or rados.shape[0] < 2 or rados.shape[1] < 1:
            raise ShapeError(f"rados have shape {rados.shape}: give (n, d) with at least two rados and one coordinate")
        # If any value is NaN, both minimum and maximum are NaN.
        if not np.isfinite([rados.min(), rados.max()]).all():
            raise DataError("a rado is not finite: decode the release again, or run its query again")
        if self.rows < 1:
            raise ConfigurationError(f"a release over {self.rows} rows: give the row count of its cohort, at least 1")
        object.__setattr__(self, "rados", rados)


def draw_plain_rados(edges: Matrix, count: int, random_state: np.random.RandomState) -> Matrix:
    """Rados (count, d) of signatures drawn uniformly from all 2^m (ICML 2015, Definition 1); edges: (m, d).

    This generator gives no privacy protection.
    """
    rados = np.zeros((count, edges.shape[1]))
    for start in range(0, len(edges), ROWS_PER_BLOCK):
        block = edges[start : start + ROWS_PER_BLOCK]
        rados += random_state.randint(0, 2, size=(count, len(block))).astype(np.float64) @ block
    return rados


class LinearClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # untyped bases
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A linear classifier sign(theta . x) with scikit-learn's interface; subclasses define how theta is estimated.

    It is a transformer too, as scikit-learn's LinearDiscriminantAnalysis is: `transform` gives its scores as columns,
    which `set_output` makes a data frame.

    After fitting: `theta_` (d,) the paper's vector, bias included and last; `coef_`, `intercept_`, `classes_` and
    `n_features_in_` as in scikit-learn. For a label of several classes: `theta_` = `coef_` (k, d), a row of weights for
    each class, whose largest score is predicted.
    """

    several_classes: ClassVar[bool] = False
    """Whether it also learns a label of several classes, from moments or by queries."""
    measured_labels: ClassVar[bool] = False
    """Whether it also learns labels that are numbers or counts."""
    event_times: ClassVar[bool] = False
    """Whether it learns labels that are times to an event."""

    def _edges(self, X: ArrayLike, y: ArrayLike, *, bias: bool = True) -> Matrix:
        """Edge vectors y_i x_i, (m, d), the bias last if requested; sets `classes_`. Raises as scikit-learn."""
        checked: tuple[Matrix, NDArray[Any]] = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        rows, labels = checked
        if (largest := float(np.abs(rows).max())) > LARGEST_VALUE:
            raise ValueError(
                f"Input X has values as large as {largest:.3g}, whose powers overflow: scale the columns, such as to "
                "[-1, 1]."
            )
        check_classification_targets(labels)
        if (kind := type_of_target(labels, input_name="y")) != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y holds one class: a classifier needs rows of two classes.")
        signs = np.where(codes == 1, 1.0, -1.0)
        features = rows.shape[1]
        edges: Matrix = np.empty((len(rows), features + int(bias)))
        np.multiply(rows, signs[:, np.newaxis], out=edges[:, :features])
        edges[:, features:] = signs[:, np.newaxis]
        return edges

    def _class_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, NDArray[np.int64]] | None:
        """Rows with the bias last, (m, d), and codes of more than two classes; sets `classes_`. None for two or fewer.

        Raises as scikit-learn.
        """
        given = np.asarray(y)
        is_column = given.ndim == 1 or (given.ndim == 2 and given.shape[1] == 1)
        if not self.several_classes or not is_column or len(np.unique(given)) < _SEVERAL:
            return None
        checked: tuple[Matrix, NDArray[Any]] = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        rows, labels = checked
        if (largest := float(np.abs(rows).max())) > LARGEST_VALUE:
            raise ValueError(f"Input X has values as large as {largest:.3g}: scale the columns, such as to [-1, 1].")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return np.column_stack([rows, np.ones(len(rows))]), codes.astype(np.int64)

    def _keep_class_rows(self, theta: Matrix) -> None:
        """Set the attributes that `fit` promises for several classes; theta (k, d), the bias last."""
        self.theta_ = theta - theta.mean(axis=0)
        self.coef_, self.intercept_ = self.theta_[:, :-1].copy(), self.theta_[:, -1].copy()

    def _keep(self, theta: Vector, *, bias: bool = True) -> None:
        """Set the attributes that `fit` promises; `bias`: theta's last coordinate is that of the constant feature."""
        self.theta_ = theta
        self.coef_ = (theta[:-1] if bias else theta)[np.newaxis, :].copy()
        self.intercept_ = theta[-1:].copy() if bias else np.zeros(1)

    def _keep_encoded(self, theta: Vector) -> None:
        """Set the attributes after fitting to a release or to answers: theta (d,) is over a schema's coordinates."""
        # Feature names belong to the rows of an earlier `fit`.
        self.__dict__.pop("feature_names_in_", None)
        self.classes_ = np.array([-1, 1])
        self.n_features_in_ = len(theta)
        self._keep(theta, bias=False)

    def _keep_classes(self, theta: Matrix) -> None:
        """Set the attributes after fitting to a label of several classes: theta (k, d) is over a schema's coordinates.

        Rows are moved so that they add up to zero, which changes no difference of scores.
        """
        self._keep_encoded(theta[0])
        self.classes_ = np.arange(len(theta))
        self.theta_ = theta - theta.mean(axis=0)
        self.coef_, self.intercept_ = self.theta_.copy(), np.zeros(len(theta))

    def decision_function(self, X: ArrayLike) -> Vector | Matrix:
        """Margins theta . x, (rows,): positive means classes_[1]; of several classes their scores, (rows, k).

        X: (rows, n_features_in_). Raises as scikit-learn.
        """
        # scikit-learn's check_is_fitted refuses estimators without `fit`, which those that learn from answers lack.
        if not hasattr(self, "theta_"):
            raise NotFittedError(
                f"this {type(self).__name__} has no theta_: fit it to rows, a release or answers first"
            )
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        if len(self.coef_) > 1:
            scores: Matrix = rows @ self.coef_.T + self.intercept_
            return scores
        margins: Vector = rows @ self.coef_[0] + self.intercept_[0]
        return margins

    def transform(self, X: ArrayLike) -> Matrix:
        """The scores of `decision_function` as columns: (rows, 1), of several classes (rows, k)."""
        scores = self.decision_function(X)
        return scores[:, np.newaxis] if scores.ndim == 1 else scores

    @property
    def _n_features_out(self) -> int:
        """How many columns `transform` has: scikit-learn names them after the class."""
        return 1 if self.theta_.ndim == 1 else len(self.theta_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classes, shape (rows,). A margin of exactly zero is classes_[0], as is a tie. X: (rows, n_features_in_)."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.several_classes
        return tags


class LogOdds:
    """Of a `LinearClassifier` whose scores are log odds under an assumption that its docstring states."""

    decision_function: Callable[[ArrayLike], Vector | Matrix]

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """The chance of each of `classes_`, (rows, k): right as far as the assumption is.

        Raises as `decision_function`.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        chances: Matrix = special.softmax(scores, axis=1)
        return chances

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """The logarithm of `predict_proba`; of a chance too small for a double it is minus infinity."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class RadoClassifier(LinearClassifier, metaclass=ABCMeta):
    """A linear classifier sign(theta . x) estimated from rados.

    n_rados: how many plain rados `fit` draws from rows; None is min(1000, m // 2), at least 2. random_state: for those.
    """

    def __init__(self, *, n_rados: int | None = None, random_state: Any = None) -> None:
        self.n_rados = n_rados
        self.random_state = random_state

    @abstractmethod
    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        """Theta (d,), finite, from a valid release."""

    def fit_release(self, release: RadoRelease, *, progress: Progress | None = None) -> Self:
        """Fit to a release; returns self. Raises as `RadoSample`, and ConfigurationError for a parameter."""
        sample = RadoSample(
            rados=release.rados, rows=release.rows, bias=release.bias, distribution=release.distribution
        )
        self._keep_encoded(self._learn(sample, progress))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Draw plain rados from rows and fit to those; returns self. Not private: the result may reveal rows.

        X: (m, features), best scaled to [-1, 1]; a bias coordinate is added. y: (m,), two classes with any labels; the
        second in sorted order is the positive one. Raises ValueError for anything else, as scikit-learn does.
        """
        edges = self._edges(X, y)
        count = max(2, min(MOST_RADOS_FROM_ROWS, len(edges) // 2)) if self.n_rados is None else self.n_rados
        if count < 2:
            raise ValueError(f"n_rados is {count}: ask for at least 2.")
        rados = draw_plain_rados(edges, count, check_random_state(self.random_state))
        rados.setflags(write=False)
        self._keep(self._learn(RadoSample(rados=rados, rows=len(edges)), None))
        return self
