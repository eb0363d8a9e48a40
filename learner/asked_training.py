"""Training by queries within one budget, from what people give: of `rado learner train`, and of the console."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.declared import values_of
from dpcore.numbers.processors import one_blas_thread
from dpcore.records.schema import Schema
from learner.estimators import make_estimator
from learner.federation import AnswerSource, BudgetedOracle, Federation
from learner.model import Model
from learner.request_fields import AskedTerms, TrainOptions
from learner.training import model_of_answers
from radobase.options import named_options, training_part


@dataclass(frozen=True)
class Trained:
    """What a training ends with."""

    model: Model
    estimator: Any
    """Fitted."""
    oracle: BudgetedOracle
    """With the answers, and what they cost together."""


@dataclass(frozen=True)
class AskedTraining:
    """A training that asks parties."""

    name: str
    estimator: Any
    schema: Schema
    epsilon: Fraction
    delta: Fraction
    """Of all its queries."""
    terms: Mapping[str, Any]
    """Options of each of them."""

    @classmethod
    def of(cls, name: str, options: TrainOptions, schema: Schema) -> "AskedTraining":
        """The training with the estimator `name`, a key of learner.estimators.BY_QUERIES.

        Raises ConfigurationError or PlanError.
        """
        chosen = named_options(options.option) | ({} if options.rounds is None else {"rounds": options.rounds})
        terms = {**values_of(options, AskedTerms), "held_back": training_part(options.hold_back)}
        return cls(name, make_estimator(name, **chosen), schema, *options.budget(name), terms)

    def run(self, source: AnswerSource) -> Trained:
        """Ask everything, and make the model. Once only. Raises what the estimator and the source raise."""
        oracle = Federation(source, self.schema, **self.terms).within(self.epsilon, self.delta)
        # Estimators compute with matrices so small that the threads of BLAS, which spin, take far longer than one.
        with one_blas_thread():
            self.estimator.fit_queries(oracle)
        return Trained(model_of_answers(self.estimator, oracle, self.name), self.estimator, oracle)
