"""Learners on one fold: trained on the release, or for comparison on the pooled rows, and tested on held-out rows."""

import copy
import importlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, RadofedError
from dpcore.estimators.base import RadoSample
from dpcore.features import nearest
from dpcore.rados.moments import Moments
from learner.training import LEARNERS, make_learner
from radofed.simulation.errors import SimulationError
from radofed.simulation.results import FoldRow, Sees

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]

ROW_LEARNERS: dict[str, tuple[str, str]] = {"adaboost": ("dpcore.estimators.adaboost", "AdaBoost")}
"""Learners that need rows: in a simulation they see the pooled rows, for comparison."""

LOGISTIC, MAJORITY = "logistic", "majority"
# The solver's default of 100 steps does not always converge; with more the solution is the default's.
_MOST_STEPS = 5000


@runtime_checkable
class Learner(Protocol):
    """What a learner offers beside one of `fit_release(release)`, `fit_moments(moments)` and `fit(X, y)`.

    X has a column for each coordinate, the bias last where the schema has one; `fit` and a learner that was fitted by
    it get no bias column. Positive margins mean +1.
    """

    def decision_function(self, X: Floats) -> Floats:
        """Margins, one for each row of X."""
        ...


@dataclass(frozen=True, eq=False)
class Fold:
    """Everything that learners of one fold are given.

    number: from 1. training, labels: the pooled usable training rows, bias included where there is one, and -1/+1;
    test, test_labels: the held-out ones. release: rados or moments.
    """

    number: int
    training: Floats
    labels: Signs
    test: Floats
    test_labels: Signs
    bias: bool
    release: RadoSample | Moments


def named_learners(chosen: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Learners by name: known names stand for their estimators, and a mapping may give any object.

    Raises ConfigurationError where a name is unknown, taken, or given twice, or an object is no learner.
    """
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",")]
    if not chosen or "" in chosen:
        raise ConfigurationError(f"no learner: choose among {', '.join((*LEARNERS, *ROW_LEARNERS))}")
    if not isinstance(chosen, Mapping):
        if len(set(chosen)) < len(chosen):
            raise ConfigurationError("a learner is named twice: name each once")
        chosen = {name: _known(name) for name in chosen}
    for name, learner in chosen.items():
        if name in (LOGISTIC, MAJORITY):
            raise ConfigurationError(f"{name!r} is always measured: leave it out, or call your learner something else")
        fits = any(callable(getattr(learner, way, None)) for way in ("fit_release", "fit_moments", "fit"))
        if not (fits and isinstance(learner, Learner)):
            raise ConfigurationError(
                f"{name!r} is no learner: it needs fit_release, fit_moments or fit, and decision_function"
            )
    return dict(chosen)


def _known(name: str) -> Any:
    if name in (LOGISTIC, MAJORITY):
        raise ConfigurationError(f"{name!r} is always measured: leave it out")
    if name in ROW_LEARNERS:
        module, class_name = ROW_LEARNERS[name]
        return getattr(importlib.import_module(module), class_name)()
    if name not in LEARNERS:
        raise ConfigurationError(f"no learner is called {name!r}; {nearest(name, (*LEARNERS, *ROW_LEARNERS))}")
    return make_learner(name)


def check_learners(learners: Mapping[str, Any], *, moments: bool) -> None:
    """Raise ConfigurationError where a learner of releases cannot use what the design gives."""
    for name, learner in learners.items():
        if not any(callable(getattr(learner, way, None)) for way in ("fit_release", "fit_moments")):
            continue
        if not callable(getattr(learner, "fit_moments" if moments else "fit_release", None)):
            given = "moments" if moments else "rados"
            raise ConfigurationError(f"{name!r} cannot learn from {given}, which the design gives: choose another")


def measure(learners: Mapping[str, Any], fold: Fold, seed: int) -> list[FoldRow]:
    """A row for each learner, then for logistic regression on the pooled rows and for the larger class.

    Raises SimulationError, naming learner and fold, where one fails.
    """
    rows = [_measured(name, _fresh(learner, seed), fold) for name, learner in learners.items()]
    return [*rows, _measured(LOGISTIC, _logistic(), fold), _majority(fold)]


def _measured(name: str, learner: Any, fold: Fold) -> FoldRow:
    try:
        begin = time.perf_counter()
        sees = _train(learner, fold)
        seconds = time.perf_counter() - begin
        test = _without_bias(fold.test, fold) if sees == "rows" else fold.test
        margins = np.asarray(learner.decision_function(test), dtype=np.float64)
    except Exception as error:  # a learner may be anybody's
        code = error.exit_code if isinstance(error, RadofedError) else RadofedError.exit_code
        raise SimulationError(f"learner {name!r} failed on fold {fold.number}: {error}", exit_code=code) from error
    if margins.shape != fold.test_labels.shape or not np.isfinite(margins).all():
        raise SimulationError(
            f"learner {name!r} gave margins that are no {len(fold.test_labels)} finite numbers on fold {fold.number}"
        )
    predicted = np.where(margins > 0, 1, -1)
    wrong, area = float(np.mean(predicted != fold.test_labels)), auc(margins, fold.test_labels)
    return replace(_row(name, sees, wrong, area, seconds, fold), warning=getattr(learner, "warning_", None))


def _train(learner: Any, fold: Fold) -> Sees:
    if isinstance(fold.release, Moments) and callable(getattr(learner, "fit_moments", None)):
        learner.fit_moments(fold.release)
        return "moments"
    if isinstance(fold.release, RadoSample) and callable(getattr(learner, "fit_release", None)):
        learner.fit_release(fold.release)
        return "rados"
    learner.fit(_without_bias(fold.training, fold), fold.labels)
    return "rows"


def _without_bias(rows: Floats, fold: Fold) -> Floats:
    return rows[:, :-1] if fold.bias else rows


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (a second that a refusal need not wait)

    return LogisticRegression(max_iter=_MOST_STEPS)


def _majority(fold: Fold) -> FoldRow:
    larger = 1 if 2 * int((fold.labels > 0).sum()) >= len(fold.labels) else -1
    return _row(MAJORITY, "labels", float(np.mean(fold.test_labels != larger)), 0.5, 0.0, fold)


def _row(name: str, sees: Sees, error: float, area: float, seconds: float, fold: Fold) -> FoldRow:
    return FoldRow(fold.number, name, sees, error, area, seconds, len(fold.labels), len(fold.test_labels))


def _fresh(learner: Any, seed: int) -> Any:
    """An unfitted copy; where it takes a random_state and has none, the simulation's seed."""
    if not hasattr(learner, "get_params"):
        return copy.deepcopy(learner)
    from sklearn.base import clone  # noqa: PLC0415  (as above)

    fresh = clone(learner)
    if fresh.get_params().get("random_state", 0) is None:
        fresh.set_params(random_state=seed)
    return fresh


def auc(margins: Floats, labels: Signs) -> float:
    """Area under the ROC curve: the chance that a positive row's margin is above a negative one's, a tie counting half.

    margins: (rows,). labels: (rows,), -1 or +1. NaN where a class is absent.
    """
    positive = labels > 0
    p, n = int(positive.sum()), int((~positive).sum())
    if not p or not n:
        return math.nan
    _, places, counts = np.unique(margins, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[places]
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * n))
