"""Estimators on one fold: trained on the release, by queries, or on the pooled rows, and tested on held-out rows.

Those on the pooled rows are for comparison.
"""

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.oracle import ClassRowOracle
from dpcore.evaluation.class_evaluation import ClassEvaluation, evaluate_classes
from dpcore.evaluation.evaluation import Evaluation, evaluate
from dpcore.evaluation.intervals import Proportion
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.coding import SIGNS, Coding, Labels
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Classes, Target, nearest
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema
from learner.estimators import (
    BY_QUERIES,
    COUNT_WEIGHTS,
    FROM_RELEASES,
    guarantee_of,
    import_class,
    instance_of,
    refused,
)
from learner.federation import Federation
from learner.requests import check_unweighted
from radofed.simulation.oracles import Budget, Oracles, SimulatedSource
from radofed.simulation.results import FoldRow, Sees
from radofed.simulation.table import SimulationTable
from radofed.simulation.workers import SimulationError, SimulationTimedOutError
from wire.errors import exit_code_of

# Rows that simulated parties hold back: estimators are trained on the others and evaluated on these.
#
# Queries of designs and estimators name the training part. The evaluation is a query about the held-back part, as of
# `rado learner evaluate`: each party decides by its own key which rows are in it (dpcore.records.held_back), adds
# noise, and answers about all its rows of the fold. It has a budget of its own, because parties charge both parts.


@dataclass(frozen=True)
class HoldBack:
    """What a simulation holds back."""

    share: Fraction
    """Of each party's rows."""
    budget: Budget
    """Of each evaluation in a fold."""

    @classmethod
    def of(
        cls, share: Fraction | None, evaluation_epsilon: Fraction | None, epsilon: Fraction | None, delta: Fraction
    ) -> "HoldBack | None":
        """From the options; None without a share. epsilon: of an evaluation that names none of its own.

        Raises ConfigurationError if no epsilon is given, or `evaluation_epsilon` without a share, PlanError unless the
        share is between 0 and 1.
        """
        if share is None:
            if evaluation_epsilon is not None:
                raise ConfigurationError("an evaluation's epsilon is given, and no rows are held back: give hold_back")
            return None
        HeldBack(share, Part.TRAINING)
        wanted = evaluation_epsilon or epsilon
        if wanted is None:
            raise ConfigurationError(
                "the evaluation on rows that are held back is a query: give its epsilon (--evaluation-epsilon)"
            )
        return cls(share, Budget(wanted, delta))

    @property
    def training(self) -> HeldBack:
        """The part that estimators are trained on."""
        return HeldBack(self.share, Part.TRAINING)


class Evaluations(Oracles):
    """The evaluations of one fold, each with an oracle for the rows that are held back."""

    def evaluate(
        self, estimator: str, theta: NDArray[np.float64], feature_map: FeatureMap | None = None
    ) -> Evaluation | ClassEvaluation:
        """Ask the parties for the evaluation of this estimator's weights, (d,) or (k, d). Raises as `evaluate`.

        feature_map: whose coordinates the weights are over; None for the schema's.
        """
        source = SimulatedSource(self._federation, self._parts, self._fold, estimator, self._progress, "/evaluation")
        assert self._held_back is not None, "an evaluation is on rows that are held back"
        whole = Federation(source, self._schema, **self._federation.terms)
        _, held_back = whole.hold_back(self._held_back.share)
        # Pure: Laplace noise on so few moved counts is less than Gaussian noise at any usual delta.
        oracle = held_back.within(self._budget.epsilon, Fraction(0))
        self._asked[estimator] = source, oracle
        if self._schema.label.classes:
            return evaluate_classes(theta, oracle, feature_map=feature_map)
        return evaluate(theta, oracle, feature_map=feature_map)


def notes_if_held_back(hold_back: HoldBack, folds: int, unmeasured: Sequence[str]) -> list[str]:
    """What to know beside the figures. unmeasured: the estimators without an evaluation."""
    share, epsilon = float(hold_back.share), float(hold_back.budget.epsilon)
    rows = (
        f"Each party held back a share of {share:g} of its training rows, by its own key. Estimators learned from the "
        "other rows; those that see rows or labels learned from all of them, for comparison."
    )
    cost = (
        f"The evaluation of each estimator was a query of its own in each of the {folds} folds, with epsilon "
        f"{epsilon:g}. Parties charge it beside the training. The composition of both costs at most the sum of both "
        "figures, at the sum of both deltas."
    )
    names = ", ".join(unmeasured)
    without = f"Not evaluated on rows that are held back, as they have no weight for each coordinate: {names}."
    return [rows, cost, *([without] if unmeasured else [])]


Floats = NDArray[np.float64]
Signs = NDArray[np.int8]
Released = RadoSample | Moments | ClassMoments | NumberMoments

FROM_ROWS: dict[str, tuple[str, str]] = {"adaboost": ("dpcore.estimators.radoboost", "AdaBoost")}
"""Estimators that need rows: a simulation gives them the pooled rows, for comparison."""

LOGISTIC, MAJORITY = "logistic", "majority"
POOLED = "pooled"
"""Multinomial logistic regression on the pooled rows, if the label has several classes."""
# The solver's default of 100 steps does not always converge; with more the solution is the default's.
_MOST_STEPS = 5000
_WAYS = ("fit_queries", "fit_release", "fit_moments", "fit")


@runtime_checkable
class Estimator(Protocol):
    """What an estimator needs in addition to a method to train it.

    That method is one of `fit_queries(oracle)`, `fit_release(release)`, `fit_moments(moments)` and `fit(X, y)`. An
    estimator that has `fit_queries` is trained by queries, even if it has others.

    X has a column for each coordinate, the bias last if the schema has one. `fit`, and an estimator that was trained
    with it, get no bias column. Positive margins mean +1.
    """

    def decision_function(self, X: Floats) -> Floats:
        """Margins (rows,), one for each row of X; of several classes their scores, (rows, k)."""
        ...


@dataclass(frozen=True, eq=False)
class Fold:
    """Everything that the estimators of one fold get."""

    number: int
    """From 1."""
    training: Floats
    labels: Labels
    """The pooled usable training rows, (rows, d), with the bias if there is one, and their labels."""
    test: Floats
    test_labels: Labels
    """The held-out ones."""
    bias: bool
    release: Released | None
    """Rados or moments, None if no estimator learns from a release."""
    coding: Coding = SIGNS
    """What the labels are."""
    times: Floats | None = None
    test_times: Floats | None = None
    """Of labels that are times to an event, the exact times, of which the labels keep the intervals."""
    oracles: Oracles | None = None
    """For estimators that query, None if none does."""
    evaluations: Evaluations | None = None
    """On the rows that parties hold back, None if they hold none back."""
    feature_map: FeatureMap | None = None
    """Of the release's records; None if they are as the schema encodes them."""
    schema: Schema | None = None
    """Of the rows, for estimators that query exact sums of them."""

    @property
    def classes(self) -> int:
        """Of a label of several classes, their number; else 0."""
        return self.coding.classes


def named_estimators(
    chosen: str | Sequence[str] | Mapping[str, Any],
    rounds: int | None = None,
    options: Mapping[str, Any] | None = None,
    class_weight: str | None = None,
) -> dict[str, Any]:
    """Estimators by name. chosen: names of known estimators, or a mapping from names to any objects.

    rounds, class_weight: the parameter of this name of each, None for their defaults. options: parameters of the only
    estimator.

    Raises ConfigurationError if a name is unknown, reserved or given twice, an object is not an estimator, `rounds` or
    `class_weight` is given and an estimator has no such parameter, or options are unknown, missing though required, or
    given for a mapping or for several estimators.
    """
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",")]
    if not chosen or "" in chosen:
        raise ConfigurationError(f"no estimator is named: choose among {', '.join(_known_names())}")
    given = {name: value for name, value in (("rounds", rounds), ("class_weight", class_weight)) if value is not None}
    if options:
        _check_options(chosen, given, options)
    if rounds is not None and rounds < 1:
        raise ConfigurationError(f"rounds is {rounds}: choose at least 1")
    if not isinstance(chosen, Mapping):
        if len(set(chosen)) < len(chosen):
            raise ConfigurationError("an estimator is named twice: name each once")
        chosen = {name: _known(name, options or {}) for name in chosen}
    for name, estimator in chosen.items():
        if name in (LOGISTIC, MAJORITY, POOLED):
            raise ConfigurationError(f"{name!r} is always measured: leave it out, or give your estimator another name")
        fits = any(callable(getattr(estimator, way, None)) for way in _WAYS)
        # A regression has no decisions, and scikit-learn wants none of it.
        scores = isinstance(estimator, Estimator) or not getattr(estimator, "class_labels", True)
        if not (fits and scores):
            raise ConfigurationError(
                f"{name!r} is not an estimator: give decision_function and fit_queries, fit_release, fit_moments or fit"
            )
    return {name: _with(name, each, given) for name, each in chosen.items()}


def _check_options(
    chosen: Sequence[str] | Mapping[str, Any], given: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Raise ConfigurationError if options are not for one named estimator, or repeat what is given beside them."""
    if isinstance(chosen, Mapping):
        raise ConfigurationError("options are for a named estimator: pass them to your objects instead")
    if len(chosen) > 1:
        raise ConfigurationError(f"options are for one estimator, and {len(chosen)} are named: measure each separately")
    for name in given:
        if name in options:
            raise ConfigurationError(f"{name} is given twice: leave it out of the options")


def _known_names() -> dict[str, tuple[str, str]]:
    """Module and class of each estimator, by name."""
    return {**FROM_RELEASES, **BY_QUERIES, **FROM_ROWS}


def _known(name: str, options: Mapping[str, Any]) -> Any:
    if name in (LOGISTIC, MAJORITY):
        raise ConfigurationError(f"{name!r} is always measured: leave it out")
    known = _known_names()
    if name not in known:
        raise ConfigurationError(f"no estimator is called {name!r}; {nearest(name, known)}")
    return instance_of(name, import_class(*known[name]), options)


def _with(name: str, estimator: Any, given: Mapping[str, Any]) -> Any:
    """A copy with these parameters, if there are any; the caller's object does not change."""
    if not given:
        return estimator
    for parameter in given:
        if not (hasattr(estimator, "get_params") and parameter in estimator.get_params()):
            raise ConfigurationError(
                f"{name!r} has no {parameter} to set: leave {parameter} out, or measure it separately"
            )
    return _unfitted(estimator).set_params(**given)


def asks(estimator: Any) -> bool:
    """Whether an estimator is trained by queries."""
    return callable(getattr(estimator, "fit_queries", None))


def from_release(estimator: Any) -> bool:
    """Whether an estimator is trained on a release of a design."""
    return not asks(estimator) and any(
        callable(getattr(estimator, way, None)) for way in ("fit_release", "fit_moments")
    )


def check_estimators(estimators: Mapping[str, Any], *, moments: bool) -> None:
    """Raise ConfigurationError if an estimator of releases cannot use the design's kind."""
    for name, estimator in estimators.items():
        if from_release(estimator) and not callable(
            getattr(estimator, "fit_moments" if moments else "fit_release", None)
        ):
            given = "moments" if moments else "rados"
            raise ConfigurationError(
                f"{name!r} cannot learn from {given}, which the design gives: choose another estimator or design"
            )


def check_weights_count(estimators: Mapping[str, Any], schema: Schema) -> None:
    """Raise ConfigurationError if an estimator cannot count rows by the schema's weight."""
    for name, estimator in estimators.items():
        if name not in COUNT_WEIGHTS and hasattr(estimator, "fit_queries"):
            check_unweighted(schema, f"{name}, which asks statistics,")


def check_target(estimators: Mapping[str, Any], target: Target) -> None:
    """Raise ConfigurationError if an estimator does not learn this label.

    An object of the caller's, which does not say what it learns, is taken as one that does, but for times to an event.
    """
    for name, estimator in estimators.items():

        def learns(attribute: str, of: Any = estimator) -> bool:
            return bool(getattr(of, attribute, attribute != "event_times"))

        if (sentence := refused(name, target, learns)) is not None:
            raise ConfigurationError(sentence)


def notes_if_classes(table: SimulationTable, folds: int) -> list[str]:
    """What to know of the classes that are not in every fold, and of the AUC."""
    if not isinstance(table.schema.label, Classes):
        return []
    sizes = np.bincount(table.records.labels[table.records.usable], minlength=table.records.coding.classes)
    few = [f"{name!r} ({size})" for name, size in zip(table.schema.label.values, sizes, strict=True) if size < folds]
    rare = f"Classes with fewer rows than folds are not tested in each: {', '.join(few)}."
    area = "The AUC is the mean over the classes of that of each against all others."
    return [*([rare] if few else []), area]


def measure(estimators: Mapping[str, Any], fold: Fold, seed: int) -> list[FoldRow]:
    """One row for each estimator, then one for logistic regression on the pooled rows and one for the majority class.

    Raises SimulationError, which names estimator and fold, if one fails.
    """
    rows = [_measured(name, fresh(estimator, seed), fold) for name, estimator in estimators.items()]
    return [*rows, _measured(POOLED if fold.classes else LOGISTIC, _logistic(), fold), _majority(fold)]


@contextmanager
def failing(name: str, fold: Fold) -> Iterator[None]:
    """Raise what an estimator raises as a SimulationError that names it and the fold."""
    try:
        yield
    except SimulationTimedOutError:
        raise
    except Exception as error:  # a caller's estimator may raise anything
        code = exit_code_of(error) if isinstance(error, RadofedError) else RadofedError.exit_code
        raise SimulationError(f"estimator {name!r} failed on fold {fold.number}: {error}", exit_code=code) from error


def _measured(name: str, estimator: Any, fold: Fold) -> FoldRow:
    with failing(name, fold):
        begin = time.perf_counter()
        sees = train(name, estimator, fold, fold.labels)
        seconds = time.perf_counter() - begin - _waited(name, sees, fold)
        # An estimator of a release sees no map: its weights are over the terms.
        feature_map = fold.feature_map if sees in ("moments", "rados") else getattr(estimator, "feature_map_", None)
        margins = np.asarray(estimator.decision_function(_test(sees, estimator, fold)), dtype=np.float64)
        evaluated = None if sees == "rows" else _on_held_back_rows(name, estimator, fold, feature_map)
    margins = _of_all_classes(margins, estimator, fold)
    if (
        margins.shape != (*fold.test_labels.shape, *((fold.classes,) if fold.classes else ()))
        or np.isnan(margins).any()
    ):
        raise SimulationError(
            f"estimator {name!r} gave margins that are not {len(fold.test_labels)} finite numbers"
            f"{' for each class' if fold.classes else ''} on fold {fold.number}"
        )
    predicted = margins.argmax(axis=1) if fold.classes else np.where(margins > 0, 1, -1)
    wrong, area = float(np.mean(predicted != fold.test_labels)), _area(margins, fold)
    row = _row(name, sees, wrong, area, seconds, fold)
    row = replace(row, warning=getattr(estimator, "warning_", None), guarantee=guarantee_of(estimator))
    row = row if fold.classes else _with_rates(row, predicted > 0, fold.test_labels > 0)
    if evaluated is None or evaluated.on_distribution is None:
        return row
    low, high = evaluated.on_distribution.lower, evaluated.on_distribution.upper
    return replace(row, evaluated_error=evaluated.estimate, evaluated_low=low, evaluated_high=high)


def _with_rates(row: FoldRow, called: NDArray[np.bool_], positive: NDArray[np.bool_]) -> FoldRow:
    """With recall and precision, where there are such rows."""
    found = int(np.count_nonzero(called & positive))
    recall, precision = (found / count if (count := int(rows.sum())) else None for rows in (positive, called))
    return replace(row, recall=recall, precision=precision)


def _of_all_classes(margins: Floats, estimator: Any, fold: Fold) -> Floats:
    """Scores with a column for each class: of one that has no training row it is -inf. NaN where not finite."""
    margins = np.where(np.isfinite(margins), margins, np.nan)
    seen = np.asarray(getattr(estimator, "classes_", ()))
    if not fold.classes or (margins.ndim == 2 and margins.shape[1] == fold.classes):
        return margins
    if margins.ndim == 1 and len(seen) == 2:
        # scikit-learn's form for two classes: one margin.
        margins = np.column_stack([-margins, margins])
    if margins.ndim != 2 or margins.shape[1] != len(seen):
        return margins
    scores = np.full((len(margins), fold.classes), -np.inf)
    scores[:, seen.astype(np.intp)] = margins
    return scores


def _area(margins: Floats, fold: Fold) -> float:
    """The AUC; of several classes the mean over those among the test rows, each against all others."""
    if not fold.classes:
        return auc(margins, fold.test_labels)
    signs = np.where(fold.test_labels[:, np.newaxis] == np.arange(fold.classes), 1, -1).astype(np.int8)
    areas = [auc(scores, sign) for scores, sign in zip(margins.T, signs.T, strict=True)]
    return float(np.nanmean(areas)) if not np.isnan(areas).all() else math.nan


def _test(sees: Sees, estimator: Any, fold: Fold) -> Floats:
    """The held-out rows, as an estimator that was trained on what it `sees` takes them."""
    if sees == "rows" and callable(getattr(estimator, "fit", None)):
        return without_bias(fold.test, fold)
    if fold.feature_map is not None and sees in ("moments", "rados"):
        return fold.feature_map.of(fold.test)
    return fold.test


def _on_held_back_rows(name: str, estimator: Any, fold: Fold, feature_map: FeatureMap | None) -> Proportion | None:
    """The error on rows that parties hold back; None if they hold none back, or there are no weights to measure."""
    theta = getattr(estimator, "theta_", None)
    if fold.evaluations is None or theta is None:
        return None
    return fold.evaluations.evaluate(name, theta, feature_map).error


def train(name: str, estimator: Any, fold: Fold, labels: NDArray[Any]) -> Sees:
    """Train it, and say on what. labels: of the pooled rows, for one that needs rows."""
    if asks(estimator) and (fold.oracles is not None or not fold.classes):
        assert fold.oracles is not None, "an estimator that queries has a budget"
        estimator.fit_queries(fold.oracles.of(name))
        return "answers"
    if isinstance(fold.release, Moments | ClassMoments | NumberMoments) and callable(
        getattr(estimator, "fit_moments", None)
    ):
        estimator.fit_moments(fold.release)
        return "moments"
    if isinstance(fold.release, RadoSample) and callable(getattr(estimator, "fit_release", None)):
        estimator.fit_release(fold.release)
        return "rados"
    if not callable(getattr(estimator, "fit", None)):
        assert fold.schema is not None, "without an epsilon the rows have their schema"
        estimator.fit_queries(ClassRowOracle.encoded(fold.schema, fold.training, fold.labels.astype(np.int64)))
        return "rows"
    estimator.fit(without_bias(fold.training, fold), labels)
    return "rows"


def _waited(name: str, sees: Sees, fold: Fold) -> float:
    """Seconds of an estimator's training that the federation took."""
    return fold.oracles.seconds(name) if sees == "answers" and fold.oracles is not None else 0.0


def without_bias(rows: Floats, fold: Fold) -> Floats:
    """The rows without the bias, if there is one."""
    return rows[:, :-1] if fold.bias else rows


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (slow to import, and not needed for a refusal)

    return LogisticRegression(max_iter=_MOST_STEPS)


def _majority(fold: Fold) -> FoldRow:
    if fold.classes:
        larger = int(np.bincount(fold.labels, minlength=fold.classes).argmax())
    else:
        larger = 1 if 2 * int((fold.labels > 0).sum()) >= len(fold.labels) else -1
    row = _row(MAJORITY, "labels", float(np.mean(fold.test_labels != larger)), 0.5, 0.0, fold)
    called = np.full(len(fold.test_labels), larger > 0)
    return row if fold.classes else _with_rates(row, called, fold.test_labels > 0)


def _row(name: str, sees: Sees, error: float, area: float, seconds: float, fold: Fold) -> FoldRow:
    return FoldRow(fold.number, name, sees, error, area, seconds, len(fold.labels), len(fold.test_labels))


def fresh(estimator: Any, seed: int) -> Any:
    """An unfitted copy. If its random_state is None, it gets the simulation's seed."""
    fresh = _unfitted(estimator)
    if hasattr(fresh, "get_params") and fresh.get_params().get("random_state", 0) is None:
        fresh.set_params(random_state=seed)
    return fresh


def _unfitted(estimator: Any) -> Any:
    if not hasattr(estimator, "get_params"):
        return copy.deepcopy(estimator)
    from sklearn.base import clone  # noqa: PLC0415  (as above)

    return clone(estimator)


def auc(margins: Floats, labels: Signs) -> float:
    """Area under the ROC curve: the probability that a positive row's margin exceeds a negative one's; ties count half.

    margins: (rows,). labels: (rows,), -1 or +1. NaN if a class is absent.
    """
    positive = labels > 0
    p, n = int(positive.sum()), int((~positive).sum())
    if not p or not n:
        return math.nan
    _, places, counts = np.unique(margins, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[places]
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * n))
