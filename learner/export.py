"""Export of models: as a fitted scikit-learn estimator, and in the units of the original columns."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ModelError
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import (
    BooleanFeature,
    CategoryFeature,
    Feature,
    Group,
    RealFeature,
    ThresholdFeature,
    plain,
)
from dpcore.records.schema import Schema
from learner.clipped_weights import what_clipping_does
from learner.decisions import Shifts, Threshold
from learner.pipelines import RULES, exported_terms, steps_of
from learner.scoring_base import Scoring
from learner.uncertainty import (
    Calibration,
    ClassCalibration,
    probability_of,
    probability_rule,
    why_no_probability,
)

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from learner.frame_pipeline import Unusable

FORMAT = "radofed-original-units"
FORMAT_VERSION = 1
TERMS_FORMAT_VERSION = 2
"""With `terms`, of a model over a feature map, in place of a weight for each feature."""
SCORES_FORMAT_VERSION = 3
"""With `scores`, of a model that has several, in place of one intercept and one weight for each feature or term."""

VALUES_FORMAT_VERSION = 4
"""With `prediction`, of a label without classes, in place of `probability`; otherwise as version 1 or 2."""

_SIGNS = (-1, 1)

# How cells are compared and what each policy does, so that the file can be used without this program.
_LINEAR_RULES = (
    "a real feature adds weight * value, in the units of its column; the value must be within lower and upper",
    "a boolean feature adds if_true if the cell is one of `true`, if_false if it is one of `false`",
    "a category adds the weight listed with its value, and 0 for an unlisted value if unknown is 'zero'",
    "a threshold adds if_at_least if the value is >= threshold, else if_below",
)
_CELL_RULES = (
    "out_of_bounds 'clip': replace the value by the nearest bound",
    "missing is an empty cell, unknown a text that is in no list; 'impute': replace the cell by `impute`",
    "unreadable is a cell of a number that is neither empty nor a finite number",
    "a feature without `unreadable` has the policy 'refuse' for it if missing is 'refuse', else 'zero-vector'",
    "'zero-vector' in any policy: the row has no prediction; 'refuse': the row is an error and has no prediction",
    "cells are trimmed of spaces, tabs and line breaks and compared as texts: 01 is not 1",
    "then the steps of `texts` are applied to the cell and to the listed text, in order; an empty cell is missing",
    "nfc: Unicode's Normalization Form C; case: Unicode's full case folding, and nfc again if it is a step",
    "trim: remove Unicode's White_Space, U+200B, U+2060 and U+FEFF at both ends",
    "cells of typed columns are the texts true, false, decimal integers, and the shortest decimal of other numbers",
)


class ExportedModel(Protocol):
    """The model to export: theta . x over encoded rows, mapped if there is a map (learner.model.Model)."""

    @property
    def theta(self) -> NDArray[np.float64]:
        """(d,) float64, finite; of several scores (scores, d)."""
        ...

    @property
    def schema(self) -> Schema:
        """How columns become coordinates."""
        ...

    @property
    def estimator(self) -> str:
        """The estimator's name."""
        ...

    @property
    def release_digest(self) -> bytes:
        """32 bytes that identify the releases it was trained on."""
        ...

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement of those releases."""
        ...

    @property
    def feature_map(self) -> FeatureMap | None:
        """What rows are mapped by; theta is then over its coordinates."""
        ...

    @property
    def sampling(self) -> NDArray[np.float64] | None:
        """The part of the choice of the rows in the errors of theta, if it is known."""
        ...

    @property
    def calibration(self) -> Calibration | ClassCalibration | None:
        """What makes probabilities of scores, if it was measured."""
        ...

    @property
    def scoring(self) -> Scoring:
        """What the scores say."""
        ...

    @property
    def log_hazards(self) -> NDArray[np.float64] | None:
        """(J,) of a time to an event; None of every other label."""
        ...

    @property
    def log_odds_offset(self) -> float:
        """What is added to scores before they can be log odds."""
        ...

    @property
    def threshold(self) -> Threshold | Shifts | None:
        """What was chosen for a cost."""
        ...

    @property
    def decision_sentences(self) -> list[str]:
        """What to know of the scores."""
        ...


def to_sklearn(
    model: ExportedModel, *, classes: Literal["label", "signs"] = "label", unusable: "Unusable" = "refuse"
) -> "Pipeline":
    """The model as a fitted scikit-learn pipeline that takes raw frames: of pandas, polars or Arrow, as `predict` does.

    Its first step, `encode`, encodes the columns by the schema (learner.frame_pipeline.SchemaEncoder). The last,
    `classifier`, is a logistic regression with the model's weights. Between them are scikit-learn's own transformers if
    there is a feature map (learner.pipelines). `pipeline[1:]` takes rows that are encoded already, without the bias.

    - classes: "label" sets `classes_` to the label's texts, negative first (`Label.names`), or in the schema's order;
      "signs" to -1 and 1, of two classes only.
    - unusable: "refuse" raises DataError for rows that have no prediction, because the schema makes them zero vectors;
      "zeros" decides each as a row of zeros.

    Margins equal `Model.scores` up to rounding: positive if above 0. Of several classes there is one for each; if the
    label lists only two, the margin is the second score less the first.

    `predict_proba` gives the model's probabilities
    (learner.uncertainty). A model without probabilities raises AttributeError, which says why. `fit` discards the
    model; a `clone` keeps the schema, knots, point masses and pairs, and `fit` learns the rest.

    To keep a model, save it with `Model.save` and convert it after loading. Loading a pickle or joblib file runs any
    code that its author put into it: do not accept one from others.

    Of a label without classes the last step is `regressor`: see learner.value_pipelines.

    Raises ConfigurationError if scikit-learn is not installed or an option is unknown.
    """
    try:
        from learner.frame_pipeline import ModelPipeline, SchemaEncoder, classifier_of  # noqa: PLC0415  (scikit-learn is an extra, and slow to import)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing
    if classes not in ("signs", "label"):
        raise ConfigurationError(f"classes is {classes!r}: choose 'signs' or 'label'")
    encoder = SchemaEncoder(model.schema, unusable=unusable).fit(None)
    width = encoder.n_coordinates
    if not model.scoring.has_classes:
        from learner.value_pipelines import steps_of_values  # noqa: PLC0415  (scikit-learn is an extra)

        if classes == "signs":
            raise ConfigurationError("signs are of a label of two classes: leave classes='signs' out")
        return ModelPipeline([("encode", encoder), *steps_of_values(model, width)])
    classifier = classifier_of(model.calibration, why_no_probability(model))
    scoring, theta = model.scoring, model.scoring.coefficients(model.theta)
    if classes == "signs" and scoring.codes != _SIGNS:
        raise ConfigurationError("signs are of a label of two classes: leave classes='signs' out")
    classifier.classes_ = np.array(_SIGNS) if classes == "signs" else np.array(scoring.texts, dtype=object)
    classifier.n_iter_ = np.zeros(1, dtype=np.int32)
    steps: list[tuple[str, Any]] = []
    if model.feature_map is not None:
        steps = steps_of(model.feature_map, theta, width, classifier)
    else:
        classifier.coef_ = theta[:, :width].copy()
        classifier.intercept_ = theta[:, width].copy() if model.schema.bias else np.zeros(len(theta))
        classifier.n_features_in_ = width
    return ModelPipeline([("encode", encoder), *steps, ("classifier", classifier)])


def to_original_units(model: ExportedModel) -> dict[str, Any]:
    """The model in the units of the original columns, as JSON values. Using it does not require the encoding.

    A real feature's coordinate is 2 (v - lower) / (upper - lower) - 1, so its weight per unit is 2 theta / (upper -
    lower), and -theta (upper + lower) / (upper - lower) is added to the intercept, both rounded once.

    If all cells of a row are present, known and within their bounds, `intercept` plus what the features add is the
    margin of `Model.scores`, up to rounding. `rules` says what each kind of feature adds and how every other cell is
    handled.

    A model with a feature map has `terms` instead (learner.pipelines); the format version is then 2. One of several
    classes has `scores`, each with its intercept and what features or terms add to it; the version is then 3.

    One of a number, a count or a time has `prediction`, which says what the score says; the version is then 4.

    Raises ModelError if a weight per unit exceeds the range of a double, or knots coincide in the units of a column.
    """
    schema = model.schema
    return {
        "format": FORMAT,
        "format_version": _version(model),
        "learner": model.estimator,
        "schema": schema.name,
        "schema_digest": schema.digest.hex(),
        "release_digest": model.release_digest.hex(),
        **_said(model),
        "decision_in_words": model.decision_sentences,
        "clipping_in_words": list(what_clipping_does(model)),
        "texts": list(schema.texts),
        **(_linear(model) if model.feature_map is None else _mapped(model, model.feature_map)),
        "privacy": model.statement.to_dict(),
        "privacy_in_words": model.statement.sentences(),
    }


def _said(model: ExportedModel) -> dict[str, Any]:
    """The label, and what scores say of it."""
    label = plain(model.schema.label)
    if not model.scoring.has_classes:
        return {"label": label, "prediction": model.scoring.prediction(model)}
    return {"label": {**label, "names": list(model.scoring.texts)}, "probability": probability_of(model)}


def _version(model: ExportedModel) -> int:
    if not model.scoring.has_classes:
        return VALUES_FORMAT_VERSION
    if len(model.scoring.names) > 1:
        return SCORES_FORMAT_VERSION
    return FORMAT_VERSION if model.feature_map is None else TERMS_FORMAT_VERSION


def _linear(model: ExportedModel) -> dict[str, Any]:
    """The intercept and what each feature adds; of several scores these for each."""
    features = [plain(feature) for feature in model.schema.features]
    each = [_linear_score(model.schema, theta) for theta in np.atleast_2d(model.theta)]
    if len(each) == 1:
        ((intercept, adds),) = each
        merged = [{**feature, **effects} for feature, effects in zip(features, adds, strict=True)]
        rules = _rules(model, f"{_name(model)} = intercept + the sum of what each feature adds", _LINEAR_RULES)
        return {"intercept": intercept, "features": merged, "rules": rules}
    summed = "a score = its intercept + the sum of what each feature adds, by `adds` in the order of `features`"
    return {
        "features": features,
        "scores": [
            {"name": name, "intercept": intercept, "adds": adds}
            for name, (intercept, adds) in zip(model.scoring.names, each, strict=True)
        ],
        "rules": _rules(model, summed, _LINEAR_RULES),
    }


def _linear_score(schema: Schema, weights_of_score: NDArray[np.float64]) -> tuple[float, list[dict[str, Any]]]:
    """The intercept of one score, and what each feature adds to it."""
    theta = weights_of_score.tolist()
    weights = dict(zip(schema.coordinates, theta, strict=True))
    intercept = Fraction(theta[-1]) if schema.bias else Fraction(0)
    adds = [_effects_of(feature, weights) for feature in schema.features]
    for number in schema.numbers:
        lower, upper = Fraction(number.lower), Fraction(number.upper)
        intercept -= Fraction(weights[number.name]) * (upper + lower) / (upper - lower)
    return _double(intercept, "the intercept"), adds


def _mapped(model: ExportedModel, feature_map: FeatureMap) -> dict[str, Any]:
    """The features' rules for cells, the terms, and the intercept; of several scores an intercept and weights each."""
    terms = exported_terms(feature_map, model.schema)
    # Halving is by a power of two, so that the weights stay exact.
    factors = [0.5**term.halvings for term in feature_map.terms]
    each = [
        (theta[-1] if feature_map.bias else 0.0, [weight * factor for weight, factor in zip(theta, factors)])  # noqa: B905  (the bias is no term)
        for theta in np.atleast_2d(model.theta).tolist()
    ]
    features = [plain(feature) for feature in model.schema.features]
    if len(each) == 1:
        ((intercept, weights),) = each
        merged = [{**term, "weight": weight} for term, weight in zip(terms, weights, strict=True)]
        rules = _rules(model, f"{_name(model)} = intercept + the sum of weight * value over `terms`", RULES)
        return {"intercept": intercept, "features": features, "terms": merged, "rules": rules}
    summed = "a score = its intercept + the sum of weight * value over `terms`, by `weights` in their order"
    return {
        "features": features,
        "terms": terms,
        "scores": [
            {"name": name, "intercept": intercept, "weights": weights}
            for name, (intercept, weights) in zip(model.scoring.names, each, strict=True)
        ],
        "rules": _rules(model, summed, RULES),
    }


def _rules(model: ExportedModel, summed: str, rules: Sequence[str]) -> list[str]:
    own = dict.fromkeys(rule for feature in model.schema.features for rule in feature.cell_rules)
    said = probability_rule(model) if model.scoring.has_classes else model.scoring.prediction_rule
    return [f"{summed}; {model.scoring.decision}", *rules, *_CELL_RULES, *own, said]


def _name(model: ExportedModel) -> str:
    return "margin" if model.scoring.has_classes else "score"


def _effects_of(feature: Feature, weights: dict[str, float]) -> dict[str, Any]:
    """What the feature's cells add to the margin: of several groups each, by name."""
    if len(feature.groups) == 1:
        return _effects(feature.groups[0], weights)
    return {"groups": [{"name": group.name, **_effects(group, weights)} for group in feature.groups]}


def _effects(feature: Group, weights: dict[str, float]) -> dict[str, Any]:
    """What a group adds to the margin."""
    match feature:
        case RealFeature():
            per_unit = 2 * Fraction(weights[feature.name]) / (Fraction(feature.upper) - Fraction(feature.lower))
            return {"weight": _double(per_unit, f"the weight of {feature.name!r}")}
        case CategoryFeature():
            return {"weights": [[value, weights[name]] for value, name in _values(feature)]}
        case BooleanFeature():
            return {"if_true": weights[feature.name], "if_false": -weights[feature.name]}
        case ThresholdFeature():
            return {"if_at_least": weights[feature.name], "if_below": -weights[feature.name]}
        case _:
            assert_never(feature)


def _values(feature: CategoryFeature) -> list[tuple[str, str]]:
    return list(zip(feature.values, feature.coordinates, strict=True))


def _double(number: Fraction, what: str) -> float:
    try:
        return float(number)
    except OverflowError as error:
        raise ModelError(
            f"{what} per unit exceeds the range of a double; widen the schema's bounds and train again"
        ) from error
