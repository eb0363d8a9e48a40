"""Training: a release and a learner's name in, a model out. Free post-processing of what was released."""

import importlib
import inspect
import re
from collections.abc import Mapping
from fractions import Fraction
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.synthetic_rados import synthetic_rados as draw_synthetic
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.records.features import nearest
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

_WORDS = {
    int: "an integer",
    float: "a number",
    Fraction: "an exact number such as 1/3",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}
# No division by zero, and no exponent.
_EXACT = re.compile(r"\d{1,15}(\.\d{1,15})?|\d{1,15}/0*[1-9]\d{0,14}")

# They govern `fit` on rows; a release has its rados already.
_ROWS_ONLY = ("n_rados", "random_state")


def make_learner(name: str, /, **options: Any) -> Any:
    """The estimator of this name with these parameters.

    Raises ConfigurationError where the name or an option is unknown, or scikit-learn is not installed.
    """
    if name not in LEARNERS:
        raise ConfigurationError(f"no learner is called {name!r}; {nearest(name, LEARNERS)}")
    return make_estimator(name, _class_of(name), options)


def make_estimator(name: str, estimator: Any, options: Mapping[str, Any]) -> Any:
    """An instance of the class with these parameters. Raises ConfigurationError where one is unknown or absent."""
    known = [option for option in inspect.signature(estimator).parameters if option not in _ROWS_ONLY]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"{name} has no option {option!r}; {nearest(option, known)}")
    parameters = inspect.signature(estimator, eval_str=True).parameters
    for option, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ConfigurationError(f"{name} needs the option {option}: give it, such as {option}=...")
    return estimator(**{option: _typed(name, option, value, parameters[option]) for option, value in options.items()})


def _typed(name: str, option: str, value: Any, parameter: inspect.Parameter) -> Any:
    """The value as the parameter's annotation has it: an integer is a float too, a number is an exact fraction too.

    Raises ConfigurationError where it is of another type.
    """
    allowed = [kind for kind in get_args(parameter.annotation) or (parameter.annotation,) if kind is not Any]
    if not allowed or get_origin(parameter.annotation) is Literal:
        allowed = [type(part) for part in allowed] or [object]
    for kind in allowed:
        plain = isinstance(kind, type) and (kind is bool or not isinstance(value, bool))
        if plain and isinstance(value, kind):
            return value
        if plain and isinstance(value, int | float) and kind in (float, Fraction):
            # A double stands for its shortest decimal.
            return float(value) if kind is float else Fraction(str(value))
        if plain and kind is Fraction and isinstance(value, str) and _EXACT.fullmatch(value):
            return Fraction(value)
        if not isinstance(kind, type) and callable(value):
            return value
    names = " or ".join(
        _WORDS.get(kind, getattr(kind, "__name__", str(kind))) for kind in allowed if kind is not object
    )
    raise ConfigurationError(f"{name}'s option {option} is {value!r}: give {names}")


def _class_of(name: str) -> Any:
    return import_class(*LEARNERS[name])


def import_class(module: str, class_name: str) -> Any:
    """A class of an estimator's module. Raises ConfigurationError where scikit-learn is not installed."""
    try:
        return getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing


def _fit(estimator: Any, method: str, what: str, learner_name: str) -> Any:
    found = getattr(estimator, method, None)
    if found is None:
        others = ", ".join(name for name in LEARNERS if hasattr(_class_of(name), method))
        drawn = ", or have rados drawn from them: synthetic_rados=1000" if what == "moments" else ""
        raise ConfigurationError(f"{learner_name} does not learn from {what}; choose one of {others}{drawn}")
    return found


def _synthetic(release: Release, count: int) -> Any:
    from dpcore.estimators.base import RadoSample  # noqa: PLC0415  (scikit-learn takes a second)

    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        raise ConfigurationError(f"synthetic_rados is {count!r}; give a number of at least 2")
    drawn = draw_synthetic(release.moments, count, np.random.default_rng())
    return RadoSample(drawn, release.rows, bias=release.bias)


def train(release: Release, learner_name: str, *, synthetic_rados: int | None = None, **options: Any) -> Model:
    """The model that a learner makes of a release: `fitted`, then `model_of`; arguments and errors as there."""
    return model_of(fitted(release, learner_name, synthetic_rados=synthetic_rados, **options), release, learner_name)


def model_of(estimator: Any, release: Release, learner_name: str) -> Model:
    """The model of an estimator that was fitted on the release."""
    return Model(estimator.theta_, release.schema, learner_name, release.digest, release.statement)


def fitted(release: Release, learner_name: str, *, synthetic_rados: int | None = None, **options: Any) -> Any:
    """A learner's estimator, fitted on a release, with what it tells of its training.

    learner_name: a key of LEARNERS. synthetic_rados: from a release of moments, how many rados to draw with those
    moments for a learner that takes rados; drawn anew each time. options: parameters of its estimator. Raises
    ConfigurationError where one is unknown or out of range or the learner does not learn from such a release,
    ShapeError where the release has fewer than two rados.
    """
    estimator = make_learner(learner_name, **options)
    if not isinstance(release.query.kind, MomentsQuery | RadosQuery):
        raise ConfigurationError(
            f"a release of {release.contents} is one answer of those that a learner asks for; train on rados or moments"
        )
    if not isinstance(release.query.kind, MomentsQuery):
        if synthetic_rados is not None:
            raise ConfigurationError("this release has rados of its own; leave synthetic_rados out")
        _fit(estimator, "fit_release", "rados", learner_name)(release)
    elif synthetic_rados is None:
        _fit(estimator, "fit_moments", "moments", learner_name)(release.moments)
    else:
        _fit(estimator, "fit_release", "rados", learner_name)(_synthetic(release, synthetic_rados))
    return estimator
