"""Estimators of times to an event on one fold of a simulation: how well scores order the test rows, by concordance."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.hazard_scores import concordance
from dpcore.records.features import EventTime
from radofed.simulation.cox import cox_regression
from radofed.simulation.evaluation import MAJORITY, POOLED, Fold, failing, fresh, train, without_bias
from radofed.simulation.results import Sees
from radofed.simulation.workers import SimulationError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EventTimeRow:
    """One estimator on one fold."""

    fold: int
    learner: str
    """Its name."""
    sees: Sees
    concordance: float
    """Harrell's index on the test rows, up to the horizon, from their exact times."""
    seconds: float
    """Of training alone."""
    training_rows: int
    test_rows: int
    warning: str | None = None
    evaluated_error: None = None
    """Always None: a simulation asks no evaluation of times."""

    @classmethod
    def summary(cls, rows: "Sequence[EventTimeRow]") -> "EventTimeSummary":
        """Of one estimator's rows."""
        found = [row.concordance for row in rows]
        return EventTimeSummary(
            rows[0].learner,
            rows[0].sees,
            statistics.fmean(found),
            statistics.stdev(found),
            statistics.fmean(row.seconds for row in rows),
        )


@dataclass(frozen=True)
class EventTimeSummary:
    """One estimator over all folds: mean and sample standard deviation of the concordance."""

    learner: str
    sees: Sees
    concordance_mean: float
    concordance_std: float
    seconds: float

    def figures(self) -> dict[str, Any]:
        """For JSON, without the name."""
        found = asdict(self)
        del found["learner"]
        return found

    @staticmethod
    def table(summaries: "Sequence[EventTimeSummary]") -> list[str]:
        """Lines for people, with a heading."""
        width = max(len("estimator"), *(len(each.learner) for each in summaries))
        return [
            f"{'estimator':{width}}  sees     {'concordance':>18}   seconds a fold",
            *(
                f"{each.learner:{width}}  {each.sees:7}  {each.concordance_mean:9.4f} +- {each.concordance_std:6.4f}  "
                f"{each.seconds:9.3f}"
                for each in summaries
            ),
        ]


def measure_event_times(estimators: Mapping[str, Any], fold: Fold, label: EventTime, seed: int) -> list[EventTimeRow]:
    """One row for each estimator, then one for Cox's regression on the pooled rows, and one for equal scores.

    Raises SimulationError, which names estimator and fold, if one fails.
    """
    rows = [_measured(name, fresh(estimator, seed), fold, label) for name, estimator in estimators.items()]
    return [*rows, _pooled(fold, label), _row(MAJORITY, "labels", np.zeros(len(fold.test_labels)), fold, label, 0.0)]


def _measured(name: str, estimator: Any, fold: Fold, label: EventTime) -> EventTimeRow:
    with failing(name, fold):
        begin = time.perf_counter()
        sees = train(name, estimator, fold, fold.labels)
        waited = fold.oracles.seconds(name) if sees == "answers" and fold.oracles is not None else 0.0
        seconds = time.perf_counter() - begin - waited
        scores = np.asarray(estimator.decision_function(fold.test), dtype=np.float64)
    if scores.shape != (len(fold.test_labels),) or not np.isfinite(scores).all():
        raise SimulationError(f"estimator {name!r} gave no finite score for each row of fold {fold.number}")
    return _row(name, sees, scores, fold, label, seconds, getattr(estimator, "warning_", None))


def _pooled(fold: Fold, label: EventTime) -> EventTimeRow:
    begin = time.perf_counter()
    times, happened = _known(fold.times, fold.labels, label)
    with failing(POOLED, fold):
        theta = cox_regression(without_bias(fold.training, fold), times, happened)
    scores = without_bias(fold.test, fold) @ theta
    return _row(POOLED, "rows", scores, fold, label, time.perf_counter() - begin)


def _known(times: Floats | None, labels: NDArray[Any], label: EventTime) -> tuple[Floats, NDArray[np.bool_]]:
    """What is known up to the horizon: the times, and whether the event happened."""
    assert times is not None, "a table of times has them"
    return np.minimum(times, label.borders[-1]), labels < len(label.borders)


def _row(
    name: str,
    sees: Sees,
    scores: Floats,
    fold: Fold,
    label: EventTime,
    seconds: float,
    warning: str | None = None,
) -> EventTimeRow:
    times, happened = _known(fold.test_times, fold.test_labels, label)
    # Those who were followed beyond the horizon are later than an event at the horizon.
    beyond = fold.test_labels == 2 * len(label.borders)
    index = concordance(scores, np.where(beyond, np.inf, times), happened)
    return EventTimeRow(fold.number, name, sees, index, seconds, len(fold.labels), len(fold.test_labels), warning)
