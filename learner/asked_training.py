"""Training by queries within one budget, from what people give: of `rado learner train`, and of the console."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.numbers.processors import one_blas_thread
from dpcore.records.schema import Schema
from learner.design_options import given_purpose
from learner.estimators import make_estimator
from learner.federation import AnswerSource, BudgetedOracle, Federation
from learner.model import Model
from learner.training import model_of_answers
from radobase.options import exact, named_options, training_part

_TERMS = {
    "cohort_min": "cohort_min",
    "colluders": "colluders",
    "max_rows": "max_rows",
    "quorum_wait": "quorum_wait_s",
    "purpose": "purpose",
}
"""Options that hold for each query, with their names in `learner.requests.Terms`."""


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
    def of(cls, name: str, given: Mapping[str, Any], schema: Schema) -> "AskedTraining":
        """The training with the estimator `name`, a key of learner.estimators.BY_QUERIES.

        given: the parameters of `rado learner train`, as parsed. Raises ConfigurationError or PlanError.
        """
        options = named_options(given["option"] or ())
        if given["rounds"] is not None:
            options["rounds"] = given["rounds"]
        terms = {**terms_of(given), **times_of(given), "held_back": training_part(given["hold_back"])}
        estimator = make_estimator(name, **options)
        return cls(name, estimator, schema, *budget_of(name, given["epsilon"], given["delta"]), terms)

    def run(self, source: AnswerSource) -> Trained:
        """Ask everything, and make the model. Once only. Raises what the estimator and the source raise."""
        oracle = Federation(source, self.schema, **self.terms).within(self.epsilon, self.delta)
        # Estimators compute with matrices so small that the threads of BLAS, which spin, take far longer than one.
        with one_blas_thread():
            self.estimator.fit_queries(oracle)
        return Trained(model_of_answers(self.estimator, oracle, self.name), self.estimator, oracle)


def terms_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `learner.requests.Terms` that are given. given: by the names of a command's parameters.

    Raises ConfigurationError if the purpose can be none, before anything is asked.
    """
    given_purpose(given["purpose"])
    return {to: given[name] for name, to in _TERMS.items() if given[name] is not None}


def times_of(given: Mapping[str, Any]) -> dict[str, int]:
    """How long parties, and the people who decide there, have for each query, as far as it is given."""
    return {name: given[name] for name in ("answer_within_s", "expires_after_s") if given.get(name) is not None}


def budget_of(what: str, epsilon: str | None, delta: str) -> tuple[Fraction, Fraction]:
    """The budget of all answers, from its texts. what: who asks. Raises ConfigurationError without an epsilon."""
    if epsilon is None:
        raise ConfigurationError(
            f"{what} queries the parties, and answers have noise: give the --epsilon of all answers in total"
        )
    return exact(epsilon, "epsilon"), exact(delta, "delta")
