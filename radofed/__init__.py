"""radofed: organisations that may not share a row learn one linear classifier together.

The public API. Every name is imported when it is first used, so that `import radofed` costs nothing.

    Schema          how columns become coordinates, and the digest that all parties share
    LearnerConfig   a learner's configuration file
    Session         the learner's client: ask, watch, fetch
    RadosRequest, MomentsRequest    what a learner wants; a session plans it
    Federation, SessionSource       asking within a budget: statistics, learners of several rounds, evaluations
    evaluate        how good a model is on the parties' rows, with intervals
    x, y, z, clip   predicates: (x["age"] >= 65) & (y == 1)
    Release         what a query brought, with its privacy statement
    privacy_together   what several releases cost together, exactly
    train, Model, predict     from a release to a classifier, and to predictions on a table
    RadoBoost, MeanVariance   the learners as scikit-learn estimators
    simulate        learners and designs measured on a table, over a simulated federation
    simulated_federation    a Federation over a table, to ask by hand
    provision       the module that makes a federation's keys, certificates, roster and configurations
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpcore.estimators.mean_variance import MeanVariance
    from dpcore.estimators.radoboost import RadoBoost
    from dpcore.evaluation.evaluation import evaluate
    from dpcore.predicates.frontend import clip, x, y, z
    from dpcore.queries.statement import PrivacyStatement
    from dpcore.records.schema import Schema
    from learner.config import LearnerConfig
    from learner.federation import Federation
    from learner.journal import SessionSource
    from learner.model import Model, predict
    from learner.planning import Plan
    from learner.release import Release
    from learner.requests import MomentsRequest, RadosRequest
    from learner.session import Session
    from learner.together import privacy_together
    from learner.training import train
    from radofed import provision
    from radofed.simulation.asking import simulated_federation
    from radofed.simulation.run import simulate

    __version__: str

_HOMES = {
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
    "evaluate": "dpcore.evaluation.evaluation",
    "privacy_together": "learner.together",
    "predict": "learner.model",
    "simulate": "radofed.simulation.run",
    "simulated_federation": "radofed.simulation.asking",
    "train": "learner.training",
    "x": "dpcore.predicates.frontend",
    "y": "dpcore.predicates.frontend",
    "z": "dpcore.predicates.frontend",
}

__all__ = [
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
    "evaluate",
    "predict",
    "privacy_together",
    "provision",
    "simulate",
    "simulated_federation",
    "train",
    "x",
    "y",
    "z",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (only who asks for the version waits for it)

        return version("radofed")
    if name == "provision":
        return import_module("radofed.provision")
    if name not in _HOMES:
        raise AttributeError(f"module 'radofed' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
