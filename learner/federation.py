"""Queries to a federation within a privacy budget, for estimators of several rounds, statistics and evaluations.

    federation = Federation(SessionSource(session), schema)
    federation.statistic(['x["age"] >= 65'], epsilon=Fraction(1, 10), tolerance=0.01)
    LogisticDescent().fit_queries(federation.within(Fraction(1), Fraction(1, 10**6)))
    oracle = federation.within(Fraction(1), Fraction(1, 10**6), adaptive=10)  # questions may depend on answers

An `AnswerSource` provides the answers: a session over gRPC (learner.journal) or a simulation. Every query goes through
the same steps: it is planned, signed, accepted or refused by each party, charged, summed and opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import Exact, exact
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema
from dpcore.statistics.adaptive import Adaptive
from learner.answer_source import Answer, AnswerSource
from learner.budgeted_oracle import BudgetedOracle
from learner.composition import composed_statement
from learner.learning import LearningFederation
from learner.named_estimates import Asked, NamedEstimates
from learner.planning import Plan
from learner.requests import Terms
from radobase.keywords import check_keywords, keywords_of, knows_keywords
from radobase.printing import amount
from wire.training import Training

_NO_TERMS = ("schema", "delta", "feature_map", "training")
_TERMS = tuple(field.name for field in fields(Terms) if field.name not in _NO_TERMS)


def check_terms(terms: Mapping[str, Any], function: Callable[..., Any] | None = None) -> None:
    """Raise ConfigurationError if a name is no option of every request.

    function: what takes them beside its own options, so that an error knows the names of these too.
    """
    check_keywords("a federation", terms, [*_TERMS, *([] if function is None else keywords_of(function))])


class Federation(LearningFederation):
    """A source of answers and its schema.

    terms: options of `learner.requests.Terms` for all requests, such as cohort_min.
    """

    def __init__(self, source: AnswerSource, schema: Schema, **terms: Any) -> None:
        check_terms({name: value for name, value in terms.items() if not isinstance(value, Training)})
        self.source, self.schema, self._terms = source, schema, terms
        self.answers: list[Answer] = []
        self._known: list[Answer] = []
        self._budgets: list[BudgetedOracle] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; one of organisations closes its connection."""

    def __repr__(self) -> str:
        part = "" if self.held_back is None else f", about {self.held_back.words()}"
        return f"<federation over schema {self.schema.name!r}{part}: {amount(len(self.answers), 'answer')}>"

    @knows_keywords
    def statistic(
        self,
        queries: Asked,
        *,
        tolerance: float | None = None,
        confidence: float = 0.95,
        epsilon: Exact,
        delta: Exact = Fraction(1, 10**6),
        noise_rate: float = 0.0,
        local: bool = False,
    ) -> NamedEstimates:
        """Estimates of E[phi(x, y)] for a batch of predicates, as one release that costs (epsilon, delta) at most.

        queries: predicates, or their texts, by name or in a list. tolerance, confidence, noise_rate: see
        dpcore.estimators.oracle.Oracle.
        delta: 0 uses Laplace noise, any other delta the smaller of Laplace and Gaussian noise for this batch. The cost
        is that under collusion of all but the honest parties; against the learner alone it is smaller. Raises as an
        Oracle does.

        local: each record's answers are flipped at its party before they are summed, so that it need not trust the
        aggregation; the error grows with the root of the rows.
        """
        return self.within(epsilon, delta).statistic(
            queries, tolerance=tolerance, confidence=confidence, noise_rate=noise_rate, local=local
        )

    @knows_keywords
    def hold_back(self, share: Exact) -> tuple["Federation", "Federation"]:
        """Two federations: of the rows that parties do not hold back, for training, and of those that they do.

        share: of each party's rows, the same rows at every call with this share. Queries to either cost what queries
        about all rows do. Answers to one count in an adaptive series of the others (`learner.adaptive.Series`). Raises
        PlanError unless the share is an exact fraction between 0 and 1.
        """
        share = exact(share, "the share that is held back")
        training, held_back = (
            Federation(self.source, self.schema, **{**self._terms, "held_back": HeldBack(share, part)}) for part in Part
        )
        # One learner sees the answers to all of them.
        training._known = held_back._known = self._known  # noqa: SLF001
        training._budgets = held_back._budgets = self._budgets  # noqa: SLF001
        return training, held_back

    def with_journal(self, journal: Path) -> "Federation":
        """A federation that keeps its queries in this file, to continue from. Raises ConfigurationError."""
        made = getattr(self.source, "with_journal", None)
        if made is None:
            raise ConfigurationError("a simulated federation keeps no journal: leave journal out")
        found = Federation(made(journal), self.schema, **self._terms)
        found._known, found._budgets = self._known, self._budgets
        return found

    def announcing(self, training: Training) -> "Federation":
        """The same federation, whose queries name this training, so that people at a party may decide once."""
        found = Federation(self.source, self.schema, **{**self._terms, "training": training})
        found.answers, found._known, found._budgets = self.answers, self._known, self._budgets
        return found

    def over(self, source: AnswerSource) -> "Federation":
        """One of another source of answers, with the same schema and terms."""
        return Federation(source, self.schema, **self._terms)

    def privacy(self, delta: Exact = Fraction(1, 10**6)) -> PrivacyStatement:
        """The statement of the composition of all that this federation and its parts asked, for one record.

        It counts what the statements of its budgets count, also the rest of one that was not used up. Raises
        ConfigurationError before an answer, PlanError if the composition has no finite cost at this delta.
        """
        unanswered = [query for budget in self._budgets for query in budget.unanswered]
        unspent = [rest for budget in self._budgets for rest in budget.unspent()]
        return composed_statement(self.known, exact(delta, "delta"), unanswered=unanswered, unspent=unspent)

    @property
    def known(self) -> Sequence[Answer]:
        """All answers so far to this federation, to the one that it is a part of, and to other parts of that."""
        return self._known

    @property
    def held_back(self) -> HeldBack | None:
        """The part of the rows that queries are about; None for all."""
        found: HeldBack | None = self._terms.get("held_back")
        return found

    @knows_keywords
    def within(
        self, epsilon: Exact, delta: Exact = Fraction(1, 10**6), adaptive: Adaptive | int | None = None
    ) -> "BudgetedOracle":
        """An oracle for one estimator. The composition of its answers is (epsilon, delta)-private.

        adaptive: the most statistic questions, if earlier answers may choose them; their tolerances then hold all the
        same, together. The oracle answers only statistics then. Raises ConfigurationError if an argument is out of
        range.
        """
        self._budgets.append(oracle := BudgetedOracle(self, epsilon, delta, adaptive))
        return oracle

    def answer(self, plan: Plan) -> Answer:
        """Send a plan's query, store its answer and return it."""
        answer = self.source.answer(plan)
        self.answers.append(answer)
        self._known.append(answer)
        return answer

    @property
    def terms(self) -> Mapping[str, Any]:
        """Options of every request."""
        return self._terms
