"""Estimators of numbers and counts on one fold of a simulation: how much of the label they explain on held-out rows.

Of a number that is R^2, on the scale that is learned (of logarithms, if the schema says so). Of a count it is the share
of the Poisson deviance that is explained, beside one rate for all test rows.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.evaluation.measured_evaluation import deviance_explained, r_squared
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.records.coding import OFFSET_BITS, Labels
from dpcore.records.features import Target, measured
from learner.model import link_of
from radofed.simulation.evaluation import MAJORITY, POOLED, Fold, failing, fresh, train, without_bias
from radofed.simulation.results import Sees
from radofed.simulation.workers import SimulationError

Floats = NDArray[np.float64]
Measure = Literal["r2", "deviance_explained"]

MEAN = MAJORITY
"""The name of what predicts one value for all rows, as for classes."""

_WORDS: dict[Measure, str] = {"r2": "R^2", "deviance_explained": "explained deviance"}
_LEAST_MEAN = 1e-6
"""Of a predicted count: a linear predictor may be negative."""
_PENALTY = 1e-6
"""Of the pooled Poisson regression, for each row: only so that it has a finite solution."""
_MOST_STEPS = 2000


@dataclass(frozen=True)
class MeasuredRow:
    """One estimator on one fold."""

    fold: int
    learner: str
    """Its name."""
    sees: Sees
    measure: Measure
    explained: float
    """Of the test rows: R^2, or the share of the deviance."""
    absolute_error: float
    """The mean absolute error in the label's units."""
    seconds: float
    """Of training alone."""
    training_rows: int
    test_rows: int
    warning: str | None = None
    evaluated_error: None = None
    """Always None: a simulation asks no evaluation of numbers."""

    @classmethod
    def summary(cls, rows: "Sequence[MeasuredRow]") -> "MeasuredSummary":
        """Of one estimator's rows."""
        explained = [row.explained for row in rows]
        return MeasuredSummary(
            rows[0].learner,
            rows[0].sees,
            rows[0].measure,
            statistics.fmean(explained),
            statistics.stdev(explained),
            statistics.fmean(row.absolute_error for row in rows),
            statistics.fmean(row.seconds for row in rows),
        )


@dataclass(frozen=True)
class MeasuredSummary:
    """One estimator over all folds: means, and the sample standard deviation of what is explained."""

    learner: str
    sees: Sees
    measure: Measure
    explained_mean: float
    explained_std: float
    absolute_error_mean: float
    seconds: float

    def figures(self) -> dict[str, Any]:
        """For JSON, the measure by its name."""
        found = asdict(self)
        return {
            "sees": found["sees"],
            f"{self.measure}_mean": self.explained_mean,
            f"{self.measure}_std": self.explained_std,
            "absolute_error_mean": self.absolute_error_mean,
            "seconds": self.seconds,
        }

    @staticmethod
    def table(summaries: "Sequence[MeasuredSummary]") -> list[str]:
        """Lines for people, with a heading."""
        width = max(len("estimator"), *(len(each.learner) for each in summaries))
        heading = _WORDS[summaries[0].measure]
        return [
            f"{'estimator':{width}}  sees     {heading:>18}          absolute error   seconds a fold",
            *(
                f"{each.learner:{width}}  {each.sees:7}  {each.explained_mean:18.4f} +- {each.explained_std:6.4f}   "
                f"{each.absolute_error_mean:12.6g}  {each.seconds:9.3f}"
                for each in summaries
            ),
        ]


def measure_numbers(estimators: Mapping[str, Any], fold: Fold, target: Target, seed: int) -> list[MeasuredRow]:
    """One row for each estimator, then one for the pooled rows' regression without privacy, and one for the mean.

    Raises SimulationError, which names estimator and fold, if one fails.
    """
    label = measured(target, "a simulation of numbers")
    rows = [_measured(name, fresh(estimator, seed), fold, label) for name, estimator in estimators.items()]
    return [*rows, _pooled(fold, label), _mean(fold, label)]


def _measured(name: str, estimator: Any, fold: Fold, label: Any) -> MeasuredRow:
    with failing(name, fold):
        begin = time.perf_counter()
        sees = train(name, estimator, fold, fold.coding.scaled(fold.labels, STORED_FRACTION_BITS) / 2.0**30)
        waited = fold.oracles.seconds(name) if sees == "answers" and fold.oracles is not None else 0.0
        seconds = time.perf_counter() - begin - waited
        rows = without_bias(fold.test, fold) if sees == "rows" else fold.test
        of_rows = getattr(estimator, "decision_function", None) or estimator.predict
        scores = np.asarray(of_rows(rows), dtype=np.float64)
    if scores.shape != (len(fold.test_labels),) or not np.isfinite(scores).all():
        raise SimulationError(f"estimator {name!r} gave no finite number for each row of fold {fold.number}")
    predicted = np.exp(np.minimum(scores, 100.0)) if link_of(name, label) == "log" else scores
    warning = getattr(estimator, "warning_", None)
    return _row(name, sees, predicted, fold, label, seconds, warning, is_rate=link_of(name, label) == "log")


def _pooled(fold: Fold, label: Any) -> MeasuredRow:
    from sklearn.linear_model import LinearRegression, PoissonRegressor  # noqa: PLC0415  (slow to import)

    begin = time.perf_counter()
    training, test = without_bias(fold.training, fold), without_bias(fold.test, fold)
    if fold.coding.kind == "count":
        exposures = _exposures(fold, fold.labels)
        model = PoissonRegressor(alpha=_PENALTY, max_iter=_MOST_STEPS)
        model.fit(training, fold.coding.values(fold.labels) / exposures, sample_weight=exposures)
        predicted = model.predict(test)
    else:
        labels = fold.coding.scaled(fold.labels, STORED_FRACTION_BITS) / 2.0**STORED_FRACTION_BITS
        predicted = LinearRegression().fit(training, labels).predict(test)
    return _row(
        POOLED, "rows", predicted, fold, label, time.perf_counter() - begin, is_rate=fold.coding.kind == "count"
    )


def _mean(fold: Fold, label: Any) -> MeasuredRow:
    values = fold.coding.values(fold.labels)
    mean = values.sum() / _exposures(fold, fold.labels).sum()
    if fold.coding.kind == "number":
        mean = float(np.mean(values)) / 2.0**STORED_FRACTION_BITS
    predicted = np.full(len(fold.test_labels), mean)
    return _row(MEAN, "labels", predicted, fold, label, 0.0, is_rate=fold.coding.kind == "count")


def _exposures(fold: Fold, labels: Labels) -> Floats:
    return np.exp(np.ldexp(fold.coding.offsets(labels).astype(np.float64), -OFFSET_BITS))


def _row(
    name: str,
    sees: Sees,
    predicted: Floats,
    fold: Fold,
    label: Any,
    seconds: float,
    warning: str | None = None,
    *,
    is_rate: bool,
) -> MeasuredRow:
    """predicted: t of each test row; of counts with `is_rate` the count for an exposure of 1."""
    measure: Measure = "r2"
    if fold.coding.kind == "count":
        measure, counts = "deviance_explained", fold.coding.values(fold.test_labels).astype(np.float64)
        exposures = _exposures(fold, fold.test_labels)
        means = np.maximum(predicted * exposures if is_rate else label.in_units(predicted), _LEAST_MEAN)
        explained = deviance_explained(counts, means, exposures)
        error = float(np.abs(means - counts).mean())
    else:
        t = np.ldexp(
            fold.coding.scaled(fold.test_labels, STORED_FRACTION_BITS).astype(np.float64), -STORED_FRACTION_BITS
        )
        explained = r_squared(t, predicted)
        error = float(np.abs(label.in_units(predicted) - label.in_units(t)).mean())
    sizes = len(fold.labels), len(fold.test_labels)
    return MeasuredRow(fold.number, name, sees, measure, explained, error, seconds, *sizes, warning)


def check_numbers(options: Any, estimators: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if a simulation of numbers has no such option. options: `SimulationOptions`."""
    if options.hold_back is not None:
        raise ConfigurationError(
            "rows that are held back are evaluated for labels of classes: leave hold_back out, or train a model and "
            "ask `rado learner evaluate`"
        )
    if options.exact:
        raise ConfigurationError(f"{', '.join(estimators)}: give epsilon, the budget of what is asked")
