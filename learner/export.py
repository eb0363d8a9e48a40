"""Export of models: as a fitted scikit-learn estimator, and in the units of the original columns."""

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ModelError
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import BooleanFeature, CategoryFeature, Feature, RealFeature, plain
from dpcore.records.schema import Label, Schema
from learner.exported_terms import RULES, exported_terms
from learner.pipelines import pipeline_of

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

FORMAT = "radofed-original-units"
FORMAT_VERSION = 1
TERMS_FORMAT_VERSION = 2
"""With `terms`, of a model over a feature map, in place of a weight for each feature."""

# How cells are compared and what each policy does, so that the file can be used without this program.
_LINEAR_RULES = (
    "margin = intercept + the sum of what each feature adds; positive if margin > 0, else negative",
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
    """The model to export: sign(theta . x) over encoded rows, mapped if there is a map (learner.model.Model)."""

    @property
    def theta(self) -> NDArray[np.float64]:
        """(d,) float64, finite."""
        ...

    @property
    def schema(self) -> Schema:
        """How columns become coordinates."""
        ...

    @property
    def learner(self) -> str:
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


def to_sklearn(
    model: ExportedModel, *, classes: Literal["signs", "label"] = "signs"
) -> "LogisticRegression | Pipeline":
    """The model as a fitted `sklearn.linear_model.LogisticRegression`, or a fitted pipeline that ends with one.

    It takes rows encoded by the schema, without the bias: (rows, d - 1), or (rows, d) if the schema has no bias.
    `feature_names_in_` are the coordinates' names, `coef_` their weights, and `intercept_` the weight of the bias, or
    0. `radofed.common.tables.tables.read_observations` encodes a file (its last column is the bias).

    A model with a feature map becomes a `sklearn.pipeline.Pipeline` of scikit-learn's own transformers, with the
    `LogisticRegression` as its last step (learner.pipelines). It takes the same rows. A refitted `clone` keeps the
    knots, point masses and pairs, and learns the rest from the rows that it is given.

    classes: "signs" sets `classes_` to [-1, 1], the labels of `learner.model.predict`; "label" sets it to the schema's
    texts, [negative, positive], and needs exactly one of each.

    Margins equal `Model.scores` up to rounding, so predictions are the same; both classify a margin of 0 as negative.
    There is one difference: a row that the schema makes a zero vector has no prediction in radofed, while the exported
    estimator decides it as a row of zeros. `predict_proba` is the logistic function of the margin. It is
    calibrated only if theta is on that scale, which is not guaranteed. `fit` discards the model.

    To keep a model, save it with `Model.save` and convert it after loading. Loading a pickle or joblib file runs any
    code that its author put into it: do not accept one from others.

    Raises ConfigurationError if scikit-learn is not installed or the label does not have one text per side.
    """
    try:
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (an extra, and slow to import)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"{missing.name} is not installed: install radofed[learner]") from missing
    if classes not in ("signs", "label"):
        raise ConfigurationError(f"classes is {classes!r}: choose 'signs' or 'label'")
    width = model.schema.d - int(model.schema.bias)
    estimator = LogisticRegression()
    estimator.classes_ = np.array([-1, 1] if classes == "signs" else _texts(model.schema.label))
    estimator.n_iter_ = np.zeros(1, dtype=np.int32)
    names = np.array(model.schema.coordinates[:width], dtype=object)
    if model.feature_map is not None:
        pipeline = pipeline_of(model.feature_map, model.theta, width, estimator)
        pipeline[0].feature_names_in_ = names
        return pipeline
    estimator.coef_ = model.theta[np.newaxis, :width].copy()
    estimator.intercept_ = model.theta[width:].copy() if model.schema.bias else np.zeros(1)
    estimator.n_features_in_ = width
    estimator.feature_names_in_ = names
    return estimator


def to_original_units(model: ExportedModel) -> dict[str, Any]:
    """The model in the units of the original columns, as JSON values. Using it does not require the encoding.

    A real feature's coordinate is 2 (v - lower) / (upper - lower) - 1, so its weight per unit is 2 theta /
    (upper - lower), and -theta (upper + lower) / (upper - lower) is added to the intercept. Both are rounded once,
    from exact rationals. If all cells of a row are present, known and within their bounds, `intercept` plus what
    the features add is the margin of `Model.scores`, up to rounding of terms of the size weight * value. `rules` says
    what each kind of feature adds and how every other cell is handled.

    A model with a feature map has `terms`: its functions with knots in the units of the columns, and a weight for each
    (learner.exported_terms). The format version is then 2.

    Raises ModelError if a weight per unit exceeds the range of a double, or knots coincide in the units of a column.
    """
    schema = model.schema
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION if model.feature_map is None else TERMS_FORMAT_VERSION,
        "learner": model.learner,
        "schema": schema.name,
        "schema_digest": schema.digest.hex(),
        "release_digest": model.release_digest.hex(),
        "label": plain(schema.label),
        "texts": list(schema.texts),
        **(_linear(model) if model.feature_map is None else _mapped(model, model.feature_map)),
        "privacy": model.statement.to_dict(),
        "privacy_in_words": model.statement.sentences(),
    }


def _linear(model: ExportedModel) -> dict[str, Any]:
    """The intercept and what each feature adds."""
    schema, theta = model.schema, [float(value) for value in model.theta]
    weights = dict(zip(schema.coordinates, theta, strict=True))
    intercept = Fraction(theta[-1]) if schema.bias else Fraction(0)
    features = []
    for feature in schema.features:
        features.append({**plain(feature), **_effects(feature, weights)})
        if isinstance(feature, RealFeature):
            lower, upper = Fraction(feature.lower), Fraction(feature.upper)
            intercept -= Fraction(weights[feature.name]) * (upper + lower) / (upper - lower)
    found = _double(intercept, "the intercept")
    return {"intercept": found, "features": features, "rules": [*_LINEAR_RULES, *_CELL_RULES]}


def _mapped(model: ExportedModel, feature_map: FeatureMap) -> dict[str, Any]:
    """The intercept, the features' rules for cells, and the terms."""
    theta = [float(value) for value in model.theta]
    terms = exported_terms(feature_map, theta[: len(feature_map.terms)], model.schema)
    return {
        "intercept": theta[-1] if feature_map.bias else 0.0,
        "features": [plain(feature) for feature in model.schema.features],
        "terms": terms,
        "rules": [*RULES, *_CELL_RULES],
    }


def _effects(feature: Feature, weights: dict[str, float]) -> dict[str, Any]:
    """What the feature's cells add to the margin."""
    if isinstance(feature, RealFeature):
        per_unit = 2 * Fraction(weights[feature.name]) / (Fraction(feature.upper) - Fraction(feature.lower))
        return {"weight": _double(per_unit, f"the weight of {feature.name!r}")}
    if isinstance(feature, CategoryFeature):
        return {"weights": [[value, weights[name]] for value, name in _values(feature)]}
    weight = weights[feature.name]
    if isinstance(feature, BooleanFeature):
        return {"if_true": weight, "if_false": -weight}
    return {"if_at_least": weight, "if_below": -weight}


def _values(feature: CategoryFeature) -> list[tuple[str, str]]:
    return list(zip(feature.values, feature.coordinates, strict=True))


def _double(number: Fraction, what: str) -> float:
    try:
        return float(number)
    except OverflowError as error:
        raise ModelError(
            f"{what} per unit exceeds the range of a double; widen the schema's bounds and train again"
        ) from error


def _texts(label: Label) -> list[str]:
    """The label's texts, negative first."""
    if len(label.positive) != 1 or len(label.negative or ()) != 1:
        raise ConfigurationError(
            f"the label {label.column!r} does not have exactly one positive and one negative text; use classes='signs'"
        )
    return [*(label.negative or ()), *label.positive]
