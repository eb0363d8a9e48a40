"""Learners that ask: statistics, moments and gradients, round after round, within one budget."""

import hashlib
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.records.features import nearest
from learner.federation import BudgetedOracle
from learner.model import Model
from learner.training import LEARNERS, import_class, make_estimator

ASKING: dict[str, tuple[str, str]] = {
    "conjunction": ("dpcore.estimators.conjunction", "MonotoneConjunction"),
    "decision-stump": ("dpcore.estimators.decision_stump", "DecisionStump"),
    "decision-list": ("dpcore.estimators.decision_list", "DecisionList"),
    "naive-bayes": ("dpcore.estimators.naive_bayes", "NaiveBayes"),
    "point": ("dpcore.estimators.point", "PrivatePoint"),
    "threshold": ("dpcore.estimators.threshold", "PrivateThreshold"),
    "linear-regression": ("dpcore.estimators.summation_regression", "SummationLinear"),
    "logistic-regression": ("dpcore.estimators.summation_regression", "SummationLogistic"),
    "logistic-gd": ("dpcore.estimators.federated_descent", "LogisticDescent"),
    "hinge-gd": ("dpcore.estimators.federated_descent", "HingeDescent"),
    "newton": ("dpcore.estimators.private_newton", "PrivateNewton"),
}
"""Module and class of each by the name that people use; each has `fit_queries(oracle)`. Imported on use."""

_DOMAIN = b"rado.v1/releases\0"


def make_asking(name: str, /, **options: Any) -> Any:
    """The learner of this name with these parameters.

    Raises ConfigurationError where the name or an option is unknown, or scikit-learn is not installed.
    """
    if name not in ASKING:
        known = f"; {name} learns from a release: ask a query first" if name in LEARNERS else ""
        raise ConfigurationError(f"no learner that asks is called {name!r}{known}; {nearest(name, ASKING)}")
    return make_estimator(name, import_class(*ASKING[name]), options)


def model_of_answers(estimator: Any, oracle: BudgetedOracle, learner_name: str) -> Model:
    """The model of a learner that was fitted by asking this oracle, with the statement of all answers together.

    Raises ConfigurationError where nothing was answered: then nothing was learned, and nothing released.
    """
    statement = oracle.statement()
    return Model(estimator.theta_, oracle.schema, learner_name, digest_of(oracle), statement)


def digest_of(oracle: BudgetedOracle) -> bytes:
    """32 bytes that name the answers: of one, its release's digest; of several, SHA-256 over theirs in order."""
    digests = [answer.digest for answer in oracle.answers]
    return digests[0] if len(digests) == 1 else hashlib.sha256(_DOMAIN + b"".join(digests)).digest()
