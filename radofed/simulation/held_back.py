"""Rows that simulated parties hold back: estimators are trained on the others and evaluated on these.

Queries of designs and estimators name the training part. The evaluation is a query about the held-back part, as of
`rado learner evaluate`: each party decides by its own key which rows are in it (dpcore.records.held_back), adds noise,
and answers about all its rows of the fold. It has a budget of its own, because parties charge both parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.evaluation.evaluation import Evaluation, evaluate
from dpcore.progress import Progress
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema
from learner.federation import BudgetedOracle, Federation
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.source import Budget, SimulatedSource


@dataclass(frozen=True)
class HoldBack:
    """What a simulation holds back."""

    share: Fraction
    """Of each party's rows."""
    budget: Budget
    """Of each evaluation in a fold."""

    @classmethod
    def of(
        cls, share: Fraction | None, evaluation_epsilon: Fraction | None, epsilon: Fraction | None, delta: Fraction
    ) -> "HoldBack | None":
        """From the options; None without a share. epsilon: of an evaluation that names none of its own.

        Raises ConfigurationError if no epsilon is given, or `evaluation_epsilon` without a share, PlanError unless the
        share is between 0 and 1.
        """
        if share is None:
            if evaluation_epsilon is not None:
                raise ConfigurationError("an evaluation's epsilon is given, and no rows are held back: give hold_back")
            return None
        HeldBack(share, Part.TRAINING)
        wanted = evaluation_epsilon or epsilon
        if wanted is None:
            raise ConfigurationError(
                "the evaluation on rows that are held back is a query: give its epsilon (--evaluation-epsilon)"
            )
        return cls(share, Budget(wanted, delta))

    @property
    def training(self) -> HeldBack:
        """The part that estimators are trained on."""
        return HeldBack(self.share, Part.TRAINING)


class Evaluations:
    """The evaluations of one fold. parts: the training rows of each party, as indices into the table."""

    def __init__(
        self,
        federation: SimulatedFederation,
        schema: Schema,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        hold_back: HoldBack,
        progress: Progress | None = None,
    ) -> None:
        self._federation, self._schema, self._parts, self._fold = federation, schema, parts, fold
        self._hold_back, self._progress = hold_back, progress
        self._asked: dict[str, tuple[SimulatedSource, BudgetedOracle]] = {}

    def of(self, learner: str, theta: NDArray[np.float64], feature_map: FeatureMap | None = None) -> Evaluation:
        """Ask the parties for the evaluation of this estimator's weights, (d,). Raises what `evaluate` raises.

        feature_map: whose coordinates the weights are over; None for the schema's.
        """
        source = SimulatedSource(self._federation, self._parts, self._fold, learner, self._progress, "/evaluation")
        _, held_back = Federation(source, self._schema).hold_back(self._hold_back.share)
        # Pure: Laplace noise on so few moved counts is less than Gaussian noise at any usual delta.
        oracle = held_back.within(self._hold_back.budget.epsilon, Fraction(0))
        self._asked[learner] = source, oracle
        return evaluate(theta, oracle, feature_map=feature_map)

    def seconds(self) -> float:
        """Seconds that all answers took."""
        return sum(source.seconds for source, _ in self._asked.values())

    def statements(self) -> dict[str, PrivacyStatement]:
        """The statement of each evaluation, by name of the estimator."""
        return {name: oracle.statement() for name, (_, oracle) in self._asked.items()}


def notes_if_held_back(hold_back: HoldBack, folds: int, unmeasured: Sequence[str]) -> list[str]:
    """What to know beside the figures. unmeasured: the estimators without an evaluation."""
    share, epsilon = float(hold_back.share), float(hold_back.budget.epsilon)
    rows = (
        f"Each party held back a share of {share:g} of its training rows, by its own key. Estimators learned from the "
        "other rows; those that see rows or labels learned from all of them, for comparison."
    )
    cost = (
        f"The evaluation of each estimator was a query of its own in each of the {folds} folds, with epsilon "
        f"{epsilon:g}. Parties charge it beside the training. The composition of both costs at most the sum of both "
        "figures, at the sum of both deltas."
    )
    names = ", ".join(unmeasured)
    without = f"Not evaluated on rows that are held back, as they have no weight for each coordinate: {names}."
    return [rows, cost, *([without] if unmeasured else [])]
