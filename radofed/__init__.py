"""radofed: organisations that may not share a row learn one model together.

This module is the public API. Each name is imported on first use, so `import radofed` is fast.

    Schema          how columns become coordinates, with the digest that all parties share
    LearnerConfig   a learner's configuration file
    Session         the learner's client: ask a query, watch it, fetch its release
    RadosRequest, MomentsRequest    what a learner asks for; a session plans it
    Federation, SessionSource       queries within a budget: statistics, estimators of several rounds, evaluations
    column_histograms   shares and quantiles of columns, with intervals
    select          which candidate has the best score on the parties' rows, and how sure that is
    evaluate        the quality of a model on the parties' rows, with intervals
    x, y, z, clip   predicates: (x["age"] >= 65) & (y == 1)
    Release         the result of a query, with its privacy statement
    composed_privacy   the exact privacy cost of the composition of several releases
    train, Model, predict     from a release to a classifier, and to predictions on a table
    shapes_of       what a model adds to the score for each value of a column, with bands where they are known
    RadoBoost, MeanVariance   scikit-learn estimators
    simulate        measures designs and estimators on a table, over a simulated federation
    simulated_federation    a Federation over a table, to query by hand
    provision       the module that makes a federation's keys, certificates, roster and configurations
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.estimators.mean_variance import MeanVariance
    from dpcore.estimators.radoboost import RadoBoost
    from dpcore.evaluation.evaluation import evaluate
    from dpcore.evaluation.histograms import column_histograms
    from dpcore.evaluation.options import EvaluationOptions
    from dpcore.evaluation.selection import select
    from dpcore.predicates.frontend import clip, x, y, z
    from dpcore.queries.statement import PrivacyStatement
    from dpcore.records.schema import Schema
    from learner.composition import composed_privacy
    from learner.config import LearnerConfig
    from learner.federation import Federation
    from learner.journal import SessionSource
    from learner.model import Model, predict
    from learner.planning import Plan
    from learner.release import Release
    from learner.requests import MomentsRequest, RadosRequest
    from learner.session import Session
    from learner.shapes import shapes_of
    from learner.training import train
    from radofed import provision
    from radofed.simulation.entry import simulate
    from radofed.simulation.oracles import simulated_federation

    __version__: str

_HOMES = {
    "EvaluationOptions": "dpcore.evaluation.options",
    "Federation": "learner.federation",
    "LearnerConfig": "learner.config",
    "MomentsRequest": "learner.requests",
    "MeanVariance": "dpcore.estimators.mean_variance",
    "Model": "learner.model",
    "Plan": "learner.planning",
    "PrivacyStatement": "dpcore.queries.statement",
    "RadoBoost": "dpcore.estimators.radoboost",
    "RadosRequest": "learner.requests",
    "Release": "learner.release",
    "Schema": "dpcore.records.schema",
    "Session": "learner.session",
    "SessionSource": "learner.journal",
    "clip": "dpcore.predicates.frontend",
    "column_histograms": "dpcore.evaluation.histograms",
    "evaluate": "dpcore.evaluation.evaluation",
    "composed_privacy": "learner.composition",
    "predict": "learner.model",
    "select": "dpcore.evaluation.selection",
    "shapes_of": "learner.shapes",
    "simulate": "radofed.simulation.entry",
    "simulated_federation": "radofed.simulation.oracles",
    "train": "learner.training",
    "x": "dpcore.predicates.frontend",
    "y": "dpcore.predicates.frontend",
    "z": "dpcore.predicates.frontend",
}

__all__ = [
    "EvaluationOptions",
    "Federation",
    "LearnerConfig",
    "MeanVariance",
    "Model",
    "MomentsRequest",
    "Plan",
    "PrivacyStatement",
    "RadoBoost",
    "RadosRequest",
    "Release",
    "Schema",
    "Session",
    "SessionSource",
    "__version__",
    "clip",
    "column_histograms",
    "composed_privacy",
    "evaluate",
    "predict",
    "provision",
    "select",
    "shapes_of",
    "simulate",
    "simulated_federation",
    "train",
    "x",
    "y",
    "z",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from radobase.version import program_version  # noqa: PLC0415  (slow; only needed for the version)

        return program_version()
    if name == "provision":
        return import_module("radofed.provision")
    if name not in _HOMES:
        raise AttributeError(f"module 'radofed' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
