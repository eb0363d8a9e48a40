"""Training: a release and a learner's name in, a model out. Free post-processing of what was released."""

import importlib
import inspect
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.features import nearest
from dpcore.queries.moments import MomentsQuery
from learner.model import Model
from learner.release import Release

LEARNERS: dict[str, tuple[str, str]] = {
    "radoboost": ("dpcore.estimators.radoboost", "RadoBoost"),
    "radoboost-l1": ("dpcore.estimators.regularised", "RadoBoostL1"),
    "radoboost-l2": ("dpcore.estimators.regularised", "RadoBoostL2"),
    "radoboost-linf": ("dpcore.estimators.regularised", "RadoBoostLinf"),
    "radoboost-slope": ("dpcore.estimators.regularised", "RadoBoostSlope"),
    "moments-discriminant": ("dpcore.estimators.moments_discriminant", "MomentsDiscriminant"),
    "mean-variance": ("dpcore.estimators.mean_variance", "MeanVariance"),
}
"""Module and class of each estimator by the name that people use. Imported on use: scikit-learn takes a second."""

# They govern `fit` on rows; a release has its rados already.
_ROWS_ONLY = ("n_rados", "random_state")


def make_learner(name: str, **options: Any) -> Any:
    """The estimator of this name with these parameters.

    Raises ConfigurationError where the name or an option is unknown, or scikit-learn is not installed.
    """
    if name not in LEARNERS:
        raise ConfigurationError(f"no learner is called {name!r}; {nearest(name, LEARNERS)}")
    estimator = _class_of(name)
    known = [option for option in inspect.signature(estimator).parameters if option not in _ROWS_ONLY]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"{name} has no option {option!r}; {nearest(option, known)}")
    return estimator(**options)


def _class_of(name: str) -> Any:
    module, class_name = LEARNERS[name]
    try:
        return getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing


def _fit(estimator: Any, method: str, what: str, learner_name: str) -> Any:
    found = getattr(estimator, method, None)
    if found is None:
        others = ", ".join(name for name in LEARNERS if hasattr(_class_of(name), method))
        raise ConfigurationError(f"{learner_name} does not learn from {what}; choose one of {others}")
    return found


def train(release: Release, learner_name: str, **options: Any) -> Model:
    """The model that a learner makes of a release.

    learner_name: a key of LEARNERS. options: parameters of its estimator. Raises ConfigurationError where one is
    unknown or out of range or the learner does not learn from such a release, ShapeError where the release has fewer
    than two rados.
    """
    estimator = make_learner(learner_name, **options)
    if isinstance(release.query.kind, MomentsQuery):
        _fit(estimator, "fit_moments", "moments", learner_name)(release.moments)
    else:
        _fit(estimator, "fit_release", "rados", learner_name)(release)
    return Model(estimator.theta_, release.schema, learner_name, release.digest, release.statement)
