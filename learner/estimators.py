"""Estimators by name: those that learn from one release, and those that send queries within a budget."""

import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from dpcore.errors import ConfigurationError
from dpcore.records.features import Target, nearest

FROM_RELEASES: dict[str, tuple[str, str]] = {
    "radoboost": ("dpcore.estimators.radoboost", "RadoBoost"),
    "radoboost-l1": ("dpcore.estimators.regularised", "RadoBoostL1"),
    "radoboost-l2": ("dpcore.estimators.regularised", "RadoBoostL2"),
    "radoboost-linf": ("dpcore.estimators.regularised", "RadoBoostLinf"),
    "radoboost-slope": ("dpcore.estimators.regularised", "RadoBoostSlope"),
    "moments-discriminant": ("dpcore.estimators.moments_discriminant", "MomentsDiscriminant"),
    "mean-variance": ("dpcore.estimators.mean_variance", "MeanVariance"),
    "linear": ("dpcore.estimators.least_squares", "LeastSquares"),
}
"""Estimators that learn from one release: module and class by name. Imported on use, since scikit-learn is slow."""

BY_QUERIES: dict[str, tuple[str, str]] = {
    "conjunction": ("dpcore.estimators.conjunction", "MonotoneConjunction"),
    "decision-stump": ("dpcore.estimators.statistical_queries", "DecisionStump"),
    "decision-list": ("dpcore.estimators.statistical_queries", "DecisionList"),
    "kearns-list": ("dpcore.estimators.kearns_list", "KearnsList"),
    "naive-bayes": ("dpcore.estimators.statistical_queries", "NaiveBayes"),
    "point": ("dpcore.estimators.conjunction", "PrivatePoint"),
    "threshold": ("dpcore.estimators.conjunction", "PrivateThreshold"),
    "linear-regression": ("dpcore.estimators.federated_descent", "SummationLinear"),
    "logistic-regression": ("dpcore.estimators.federated_descent", "SummationLogistic"),
    "logistic-gd": ("dpcore.estimators.federated_descent", "LogisticDescent"),
    "hinge-gd": ("dpcore.estimators.federated_descent", "HingeDescent"),
    "newton": ("dpcore.estimators.private_newton", "PrivateNewton"),
    "additive": ("dpcore.estimators.additive", "PrivateAdditive"),
    "hazards": ("dpcore.estimators.hazards", "ProportionalHazards"),
}
"""Estimators that send queries within a budget: module and class by name. Each has `fit_queries(oracle)`."""

LOG_ODDS = {
    "mean-variance": "it minimises the logistic loss of two Gaussian classes",
    "moments-discriminant": "its scores are the log odds of two Gaussian classes",
    "logistic-gd": "it minimises the logistic loss",
    "logistic-regression": "it minimises the logistic loss",
    "naive-bayes": "its scores are the log odds of features that are independent within a class",
}
"""Estimators whose scores are log odds under these assumptions."""

LOG_ODDS_OF_CLASSES = {"mean-variance": "it minimises the multinomial logistic loss of Gaussian classes"}
"""The same of a label of several classes: the softmax of the scores has the classes' probabilities."""

SEVERAL_CLASSES = ("newton", "additive", "mean-variance")
"""Estimators that learn a label of several classes too."""

COUNT_WEIGHTS = ("newton", *FROM_RELEASES)
"""Estimators that count rows by the schema's weight, of releases those of moments; others ask statistics too."""

MEASURED_LABELS = ("newton", "additive", "linear")
"""Estimators that learn a label that is a number or a count; `ONLY_MEASURED` learn no other."""
ONLY_MEASURED = ("linear",)
EVENT_TIMES = ("hazards", "additive")
"""Estimators that learn a label that is a time to an event; `ONLY_EVENT_TIMES` learn no other."""
ONLY_EVENT_TIMES = ("hazards",)

_RADOS = "its loss of rados is a logistic loss only over all 2^rows rados"
_VOTES = "its scores say which rule holds, not how likely a label is"
OTHER_SCORES = {
    **dict.fromkeys(("radoboost", "radoboost-l1", "radoboost-l2", "radoboost-linf", "radoboost-slope"), _RADOS),
    **dict.fromkeys(("newton", "additive"), "rows' weights are clipped, so scores are usually larger than log odds"),
    **dict.fromkeys(("conjunction", "decision-stump", "decision-list", "kearns-list", "point", "threshold"), _VOTES),
    "hazards": "its scores are logarithms of hazard ratios",
    "hinge-gd": "the hinge loss gives no log odds",
    **dict.fromkeys(("linear-regression", "linear"), "least squares fits the label itself, not its log odds"),
}
"""Estimators whose scores are no log odds, with the reason."""

_WORDS = {
    int: "an integer",
    float: "a number",
    Fraction: "an exact number such as 1/3",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "numbers by name",
    NoneType: "null",
}
# No division by zero, and no exponent.
_EXACT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?|[0-9]{1,15}/0*[1-9][0-9]{0,14}")

# Parameters of `fit` on rows. A release contains its rados already.
_ROWS_ONLY = ("n_rados", "random_state")


def make_estimator(name: str, /, **options: Any) -> Any:
    """The estimator of this name with these parameters.

    Raises ConfigurationError if the name or an option is unknown, or scikit-learn is not installed.
    """
    return instance_of(name, class_of(name), options)


def guarantee_of(estimator: Any) -> str | None:
    """What a fitted estimator guarantees of its error, in words; None if it guarantees nothing."""
    found = getattr(estimator, "guarantee_", None)
    return None if found is None else str(found)


def refused(name: str, target: Target, learns: Callable[[str], bool]) -> str | None:
    """The sentence that refuses to train this estimator on a label of this type; None if it learns it.

    learns: whether it has an attribute of this name that is not false (dpcore.estimators.base).
    """
    if target.coding.intervals or (learns("event_times") and not learns("class_labels")):
        return _refused_of_times(name, target, learns("event_times"))
    if target.coding.is_measured:
        return _refused_of_measured(name, target, learns)
    if not learns("class_labels"):
        return f"{name} learns a number or a count, and {target.column!r} is a label of {target.words}: choose newton"
    if target.coding.classes and not learns("several_classes"):
        known = f"{', '.join(SEVERAL_CLASSES[:-1])} or {SEVERAL_CLASSES[-1]}"
        return (
            f"{name} learns a label of two classes, and {target.column!r} is one of {target.words}: choose {known}, or "
            "make it a label of two classes"
        )
    return None


def _refused_of_measured(name: str, target: Target, learns: Callable[[str], bool]) -> str | None:
    """As `refused`, of a label that is a number or a count."""
    if not learns("measured_labels"):
        known, made = f"{', '.join(MEASURED_LABELS[:-1])} or {MEASURED_LABELS[-1]}", "make it a label of two classes"
        return f"{name} learns classes, and {target.column!r} is {target.words}: choose {known}, or {made}"
    if target.coding.has_exposure and not learns("exposures"):
        return f"{name} takes no exposure, and {target.column!r} is {target.words}: choose newton"
    return None


def _refused_of_times(name: str, target: Target, learns_times: bool) -> str | None:
    """As `refused`, if the label or the estimator is about times to an event."""
    if target.coding.intervals and learns_times:
        return None
    if learns_times:
        return f"{name} learns a time to an event, and {target.column!r} is a label of {target.words}: choose newton"
    return f"{name} does not learn {target.words}, as {target.column!r} is: choose {' or '.join(EVENT_TIMES)}"


def refused_by_name(name: str, target: Target) -> str | None:
    """As `refused`, of a known estimator, without importing it."""
    learned = {
        "measured_labels": name in MEASURED_LABELS,
        "exposures": name not in ONLY_MEASURED,
        "several_classes": name in SEVERAL_CLASSES,
        "class_labels": name not in (*ONLY_MEASURED, *ONLY_EVENT_TIMES),
        "event_times": name in EVENT_TIMES,
    }
    return refused(name, target, learned.__getitem__)


def class_of(name: str) -> Any:
    """The class of the estimator of this name. Raises ConfigurationError as `make_estimator` does."""
    known = {**FROM_RELEASES, **BY_QUERIES}
    if name not in known:
        raise ConfigurationError(f"no estimator is called {name!r}; {nearest(name, known)}")
    return import_class(*known[name])


def instance_of(name: str, estimator: Any, options: Mapping[str, Any]) -> Any:
    """An instance of the class with these parameters. Raises ConfigurationError if one is unknown or missing."""
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
    """The value in the type of the parameter's annotation. Numbers become exact fractions, or texts.

    Integers become floats, and floats without a fraction integers.

    Raises ConfigurationError if the value has another type.
    """
    kinds = get_args(parameter.annotation) or (parameter.annotation,)
    allowed = [get_origin(kind) if get_origin(kind) in (list, dict) else kind for kind in kinds if kind is not Any]
    if not allowed or get_origin(parameter.annotation) is Literal:
        allowed = [type(part) for part in allowed] or [object]
    for kind in allowed:
        plain = isinstance(kind, type) and (kind is bool or not isinstance(value, bool))
        if plain and isinstance(value, kind):
            return value
        if plain and kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if plain and kind in (float, Fraction) and isinstance(value, int | float) and _is_finite(value):
            # A double means its shortest decimal.
            return float(value) if kind is float else Fraction(str(value))
        if plain and kind is Fraction and isinstance(value, str) and _EXACT.fullmatch(value):
            return Fraction(value)
        if not isinstance(kind, type) and callable(value):
            return value
    if str in kinds and isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value):
        # On the command line a name such as 1 is read as a number.
        return str(value)
    names = " or ".join(
        _WORDS.get(kind, getattr(kind, "__name__", str(kind))) for kind in allowed if kind is not object
    )
    raise ConfigurationError(f"{name}'s option {option} is {value!r}: give {names}")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond doubles
        return False


def import_class(module: str, class_name: str) -> Any:
    """A class of an estimator's module. Raises ConfigurationError if scikit-learn is not installed."""
    try:
        return getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing
