"""Training: a release and a learner's name in, a model out. Free post-processing of what was released."""

import importlib
import inspect
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.features import nearest
from learner.model import Model
from learner.release import Release

LEARNERS: dict[str, tuple[str, str]] = {
    "radoboost": ("dpcore.estimators.radoboost", "RadoBoost"),
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
    module, class_name = LEARNERS[name]
    try:
        estimator = getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing
    known = [option for option in inspect.signature(estimator).parameters if option not in _ROWS_ONLY]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"{name} has no option {option!r}; {nearest(option, known)}")
    return estimator(**options)


def train(release: Release, learner_name: str, **options: Any) -> Model:
    """The model that a learner makes of a release.

    learner_name: a key of LEARNERS. options: parameters of its estimator. Raises ConfigurationError where one is
    unknown or out of range, ShapeError where the release has fewer than two rados.
    """
    estimator = make_learner(learner_name, **options)
    estimator.fit_release(release)
    return Model(estimator.theta_, release.schema, learner_name, release.digest, release.statement)
