"""radofed: organisations that may not share a row learn one model together.

This module is the public API, `import radofed`. Each name is imported on first use, so that is fast. Exact numbers of
privacy are given as people write them: 1, 0.5, "1e-6" or "1/3". A float counts as its shortest decimal.

    connect             the Federation of a learner's configuration file: organisations answer
    simulate_federation a Federation of parties in this process, each with a table
    simulated_federation    the same, of one table that is divided among parties
    Federation          statistics, inquiries, trainings and evaluations, within budgets
    Model               predict, predict_proba, summary, plot, explain, evaluate, save, to_sklearn
    x, y, z, clip       predicates: (x["age"] >= 65) & (y == 1)
    Schema              how columns become coordinates, with the digest that all parties share
    RadofedError        the root of all errors, with ConfigurationError, DataError, ModelError, OracleRefusedError,
                        PlanError, SchemaError, and of the network WireError, ConnectionLostError and TimedOutError
    LearnerConfig       a learner's configuration file
    Session             the learner's client: ask a query, watch it, fetch its release
    RadosRequest, MomentsRequest    what a learner asks for; a session plans it
    SessionSource       the answers of a session, for a Federation that is put together by hand
    column_histograms   shares and quantiles of columns, with intervals
    select              which candidate has the best score on the parties' rows, and how sure that is
    evaluate            the quality of a model on the parties' rows, with intervals
    Release             the result of a query, with its privacy statement
    composed_privacy    the exact privacy cost of the composition of several releases
    train, predict      from a release to a model, and to scores on a table
    shapes_of           what a model adds to the score for each value of a column, with bands where they are known
    RadoBoost, MeanVariance   scikit-learn estimators; `fit` takes rows, and is not private
    simulate            measures designs and estimators on a table, over a simulated federation
    provision           the module that makes a federation's keys, certificates, roster and configurations
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.errors import (
        ConfigurationError,
        DataError,
        ModelError,
        OracleRefusedError,
        PlanError,
        RadofedError,
        SchemaError,
    )
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
    from learner.connecting import connect
    from learner.federation import Federation
    from learner.journal import SessionSource
    from learner.model import Model
    from learner.planning import Plan
    from learner.predictions import predict
    from learner.release import Release
    from learner.requests import MomentsRequest, RadosRequest
    from learner.session import Session
    from learner.shapes import shapes_of
    from learner.training import train
    from radofed import provision
    from radofed.simulation.entry import simulate
    from radofed.simulation.oracles import simulate_federation, simulated_federation
    from wire.errors import ConnectionLostError, TimedOutError, WireError

    __version__: str

_HOMES = {
    "ConfigurationError": "dpcore.errors",
    "ConnectionLostError": "wire.errors",
    "DataError": "dpcore.errors",
    "EvaluationOptions": "dpcore.evaluation.options",
    "Federation": "learner.federation",
    "LearnerConfig": "learner.config",
    "MeanVariance": "dpcore.estimators.mean_variance",
    "Model": "learner.model",
    "ModelError": "dpcore.errors",
    "MomentsRequest": "learner.requests",
    "OracleRefusedError": "dpcore.errors",
    "Plan": "learner.planning",
    "PlanError": "dpcore.errors",
    "PrivacyStatement": "dpcore.queries.statement",
    "RadoBoost": "dpcore.estimators.radoboost",
    "RadofedError": "dpcore.errors",
    "RadosRequest": "learner.requests",
    "Release": "learner.release",
    "Schema": "dpcore.records.schema",
    "SchemaError": "dpcore.errors",
    "Session": "learner.session",
    "SessionSource": "learner.journal",
    "TimedOutError": "wire.errors",
    "WireError": "wire.errors",
    "clip": "dpcore.predicates.frontend",
    "column_histograms": "dpcore.evaluation.histograms",
    "composed_privacy": "learner.composition",
    "connect": "learner.connecting",
    "evaluate": "dpcore.evaluation.evaluation",
    "predict": "learner.predictions",
    "select": "dpcore.evaluation.selection",
    "shapes_of": "learner.shapes",
    "simulate": "radofed.simulation.entry",
    "simulate_federation": "radofed.simulation.oracles",
    "simulated_federation": "radofed.simulation.oracles",
    "train": "learner.training",
    "x": "dpcore.predicates.frontend",
    "y": "dpcore.predicates.frontend",
    "z": "dpcore.predicates.frontend",
}

__all__ = [
    "ConfigurationError",
    "ConnectionLostError",
    "DataError",
    "EvaluationOptions",
    "Federation",
    "LearnerConfig",
    "MeanVariance",
    "Model",
    "ModelError",
    "MomentsRequest",
    "OracleRefusedError",
    "Plan",
    "PlanError",
    "PrivacyStatement",
    "RadoBoost",
    "RadofedError",
    "RadosRequest",
    "Release",
    "Schema",
    "SchemaError",
    "Session",
    "SessionSource",
    "TimedOutError",
    "WireError",
    "__version__",
    "clip",
    "column_histograms",
    "composed_privacy",
    "connect",
    "evaluate",
    "predict",
    "provision",
    "select",
    "shapes_of",
    "simulate",
    "simulate_federation",
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
