"""A model's coefficients in the units of its columns, with intervals where they can be computed.

A category's coordinates add up to the bias for every row, so only differences of its weights are determined: each value
is compared with the first. The same holds for the intercept, which is that of rows with the first value.

A model of several classes has coefficients for the score of each, beside the average of all (learner.scoring).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import RadofedError
from dpcore.evaluation.uncertainty import hidden, intervals
from dpcore.queries.moments import MomentsQuery
from dpcore.records.schema import Schema
from learner.decisions import Threshold, lowered
from learner.estimators import make_estimator
from learner.release import Release
from learner.score_parts import LinearScore
from learner.uncertainty import OF_CLASSES, Limits, half_widths, measurable

if TYPE_CHECKING:
    from learner.model import Model

CONFIDENCE = 0.95
KNOWN = ("moments-discriminant", "linear-regression")
"""Estimators whose intervals were measured (tests/dpcore/evaluation/test_uncertainty.py)."""
MOST_COORDINATES = 256
"""Two thousand decompositions of a matrix of this width take about a minute."""
_SAME = 1e-6
_NOT_BOTH = (
    "The choice of the rows is not covered: that needs a constant feature in the schema and, of either label, more "
    "rows than coordinates, and at least 30."
)


@dataclass(frozen=True)
class Coefficient:
    """What a column adds to the score."""

    column: str
    change: str
    """Of the column, in words."""
    value: float
    noise: tuple[float, float] | None = None
    both: tuple[float, float] | None = None
    """Intervals for the noise alone, and for the choice of the rows, too (dpcore.evaluation.uncertainty)."""
    measurable: bool | None = None
    """False if there is no interval because the answers say too little of what the coefficient depends on; None if none
    was computed, for other reasons."""


@dataclass(frozen=True)
class Coefficients:
    """All coefficients, the intercept first if there is a bias."""

    rows: tuple[Coefficient, ...]
    confidence: float
    without: str = ""
    """Why there are no intervals, or not both."""
    of: str = ""
    """What the score speaks for that they add to."""
    is_stated: bool = False
    """The intervals are of the covariance that the estimator states in the model's file."""

    @property
    def is_computed(self) -> bool:
        """Whether intervals were computed, also if the noise hides every coefficient."""
        return not self.is_stated and any(row.noise is not None or row.measurable is False for row in self.rows)

    @property
    def has_noise(self) -> bool:
        """Whether there are intervals for the noise."""
        return any(row.noise is not None for row in self.rows)

    @property
    def has_both(self) -> bool:
        """Whether there are intervals for noise and sampling."""
        return any(row.both is not None for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        found = asdict(self)
        del found["of"]
        return found


def coefficients(
    model: "Model", releases: tuple[Release, ...], options: Mapping[str, Any], random: np.random.Generator
) -> tuple[Coefficients, ...]:
    """The coefficients of each score of a model. releases: those it was trained on, empty if they are not here.

    options: of the estimator, as in the training. random: draws what the intervals are made of.
    """
    if model.feature_map is not None:
        why = "The model has curves and not one coefficient for each column: see its shapes."
        return tuple(Coefficients((), CONFIDENCE, why, of=score.name) for score in model.linear_scores)
    reason = _why_not(model, releases, options)
    return tuple(_of_score(model, score, reason, releases, options, random) for score in model.linear_scores)


def _of_score(
    model: "Model",
    score: LinearScore,
    reason: str,
    releases: tuple[Release, ...],
    options: Mapping[str, Any],
    random: np.random.Generator,
) -> Coefficients:
    """reason: why no interval is computed, if the model states none."""
    found = effects(model.schema)
    combinations = np.array([weights for _, _, weights in found])
    values = combinations @ score.theta
    bare = tuple(Coefficient(name, words, float(v)) for (name, words, _), v in zip(found, values, strict=True))
    if score.covariance is not None:
        rows = stated(bare, combinations, score.covariance, score.limits)
        return Coefficients(rows, CONFIDENCE, of=score.name, is_stated=True)
    if reason:
        return Coefficients(bare, CONFIDENCE, reason, of=score.name)
    moments = releases[0].moments
    lost = hidden(moments, combinations, known_null(model.schema))
    made = intervals(
        moments, lambda drawn: _fit(model.estimator, options, drawn), combinations, random, confidence=CONFIDENCE
    )
    rows = tuple(
        replace(row, measurable=False)
        if lost[place]
        else replace(
            row,
            noise=_ends(made.noise[place]),
            both=None if made.both is None else _ends(made.both[place]),
            measurable=True,
        )
        for place, row in enumerate(bare)
    )
    return Coefficients(rows, CONFIDENCE, "" if made.both is not None else _NOT_BOTH, of=score.name)


def stated(
    rows: tuple[Coefficient, ...],
    combinations: NDArray[np.float64],
    covariance: NDArray[np.float64],
    limits: Limits = OF_CLASSES,
) -> tuple[Coefficient, ...]:
    """With intervals for noise and sampling, as the estimator states them. prior: as for `measurable`."""
    widths = half_widths(combinations, covariance)
    known = measurable(combinations, covariance, limits)
    return tuple(
        replace(row, both=(row.value - width, row.value + width) if is_known else None, measurable=is_known)
        for row, width, is_known in zip(rows, widths.tolist(), known.tolist(), strict=True)
    )


def _ends(found: NDArray[np.float64]) -> tuple[float, float]:
    return float(found[0]), float(found[1])


def effects(schema: Schema) -> list[tuple[str, str, NDArray[np.float64]]]:
    """(column, change in words, weights of theta's coordinates (d,)) of the intercept and of each group's changes."""
    place = {name: number for number, name in enumerate(schema.coordinates)}
    intercept = np.zeros(schema.d)
    found: list[tuple[str, str, NDArray[np.float64]]] = []
    for group in schema.groups:
        for words, weights in group.changes:
            row = np.zeros(schema.d)
            for name, weight in weights:
                row[place[name]] = weight
            found.append((group.name, words, row))
        for name, weight in group.start:
            intercept[place[name]] += weight
    if schema.bias:
        intercept[-1] = 1.0
        found.insert(0, ("intercept", "numbers 0, false, below thresholds, first category", intercept))
    return found


def known_null(schema: Schema) -> NDArray[np.float64]:
    """Directions in which rows of the schema hardly vary: each category's coordinates less the bias; (n, d)."""
    place = {name: number for number, name in enumerate(schema.coordinates)}
    rows = []
    for feature in schema.categories if schema.bias else ():
        row = np.zeros(schema.d)
        row[[place[name] for name in feature.coordinates]] = 1.0
        row[-1] = -1.0
        rows.append(row)
    return np.array(rows).reshape(-1, schema.d)


def _why_not(model: "Model", releases: tuple[Release, ...], options: Mapping[str, Any]) -> str:
    """Why no interval is computed for this model; empty if intervals are, or if it states its own."""
    if model.covariance is not None and model.schema.label.classes:
        return "Intervals are of each class against another: rado learner coefficients prints them."
    if model.covariance is not None:
        return ""
    if not releases:
        where = "What the model was trained on is not here: give --release or --config."
        return where if model.estimator in KNOWN else "The model's file states no errors of its weights."
    if model.estimator not in KNOWN or len(releases) > 1 or not isinstance(releases[0].query.kind, MomentsQuery):
        asked = releases[0].contents if len(releases) == 1 else f"{len(releases)} answers"
        return (
            f"For {model.estimator} on {asked} there is no interval whose coverage was measured. There is one for "
            f"{' and '.join(KNOWN)} on one release of moments."
        )
    if model.schema.d > MOST_COORDINATES:
        return f"The schema has more than {MOST_COORDINATES} coordinates: computing them would take too long."
    return _not_repeated(model, releases[0], options)


def _not_repeated(model: "Model", release: Release, options: Mapping[str, Any]) -> str:
    """Whether the training gives the same model again: intervals are about what it does."""
    try:
        again = _fit(model.estimator, options, release.moments)
    except RadofedError as error:
        return f"The training cannot be repeated: {error}"
    if isinstance(model.threshold, Threshold):
        again = lowered(again, model.threshold.score, bias=model.schema.bias)
    if np.abs(again - model.theta).max() > _SAME * max(1.0, float(np.abs(model.theta).max())):
        return "The training with these options gives another model: give each --option as in the training."
    return ""


def _fit(estimator: str, options: Mapping[str, Any], moments: Any) -> NDArray[np.float64]:
    theta: NDArray[np.float64] = make_estimator(estimator, **options).fit_moments(moments).theta_
    return theta
