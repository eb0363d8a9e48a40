"""Models of several classes, made without training: linear ones, and over a map with every sort of function."""

from dataclasses import replace

import numpy as np

from dpcore.records.features import Classes
from learner.model import Model
from tests.learner.shapes.mapped import MAP, SCHEMA, STATEMENT

HTML = "<b>bee</b>"
NAMES = ("ant", HTML, "cow")


def class_model(
    seed: int = 1, *, mapped: bool = True, names: tuple[str, ...] = NAMES, estimator: str = "mean-variance"
) -> Model:
    """A model with random weights, which are not beside their average."""
    schema = replace(SCHEMA, label=Classes(column="kind", values=names))
    d = MAP.d if mapped else SCHEMA.d
    theta = np.random.default_rng(seed).normal(size=(len(names), d))
    return Model(theta, schema, estimator, bytes(32), STATEMENT, None, MAP if mapped else None)
