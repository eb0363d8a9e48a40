"""The options of a simulation: what they mean together, and which are refused."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError
from dpcore.records.held_back import HeldBack
from radofed.simulation.designs import DesignOptions
from radofed.simulation.evaluation import HoldBack, asks, from_release
from radofed.simulation.fields import RunFields, SimulationFields
from radofed.simulation.source import Budget
from radofed.simulation.table import Partition
from wire.request_fields import ReleaseFields


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(RunFields):
    """The checked options of a simulation. Raises ConfigurationError if one is out of range."""

    partition: Partition
    design: DesignOptions | None
    """Of the releases; None if no estimator learns from one."""
    budget: Budget | None = None
    """Of each estimator that queries; None if none does."""
    hold_back: HoldBack | None = None
    """What parties hold back; None if nothing."""

    def __post_init__(self) -> None:
        if self.design is None and self.budget is None:
            raise ConfigurationError(
                "the simulation has no query: give a design, or a budget for estimators that query"
            )
        super().__post_init__()

    @property
    def actors(self) -> int:
        """The number of Ray actors."""
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    @property
    def training_part(self) -> HeldBack | None:
        """The part of the rows that estimators are trained on; None for all."""
        return None if self.hold_back is None else self.hold_back.training


def usual_estimator(asked: SimulationFields, *, mapped: bool) -> tuple[str, Fraction | None]:
    """The estimator to try if none is named, and its epsilon: one that asks, unless a release is described.

    mapped: whether a feature map is given, which is of a release, too.
    """
    if mapped or asked.described:
        return "mean-variance", asked.epsilon
    return "newton", Fraction(1) if asked.epsilon is None else asked.epsilon


def asked_of_a_federation(
    learners: Mapping[str, Any], asked: SimulationFields
) -> tuple[DesignOptions | None, Budget | None]:
    """The design, if an estimator learns from a release, and the budget, if an estimator queries.

    Raises ConfigurationError.
    """
    asking = [name for name, learner in learners.items() if asks(learner)]
    budget = None
    if asking:
        if asked.epsilon is None:
            raise ConfigurationError(f"{', '.join(asking)}: queries need a budget, so give epsilon")
        budget = Budget(asked.epsilon, asked.delta)
    # Estimators of rows, such as adaboost, need no design, but on their own they have always had one.
    if not asking or any(map(from_release, learners.values())):
        return DesignOptions(**values_of(asked, ReleaseFields), split=asked.split, delta=asked.delta), budget
    if unused := asked.described:
        raise ConfigurationError(
            f"{', '.join(asking)}: trained by queries, not on a design's release, so leave out {', '.join(unused)}, or "
            "name an estimator of releases too, such as mean-variance"
        )
    return None, budget
