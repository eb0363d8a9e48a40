"""Queries to a federation within a privacy budget, for estimators of several rounds, statistics and evaluations.

    federation = Federation(SessionSource(session), schema)
    federation.statistic(['x["age"] >= 65'], epsilon=Fraction(1, 10), tolerance=0.01)
    LogisticDescent().fit_queries(federation.within(Fraction(1), Fraction(1, 10**6)))
    oracle = federation.within(Fraction(1), Fraction(1, 10**6), adaptive=10)  # questions may depend on answers

An `AnswerSource` provides the answers: a session over gRPC (learner.journal) or a simulation. Every query goes through
the same steps: it is planned, signed, accepted or refused by each party, charged, summed and opened.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.protection import ReleaseCost
from dpcore.accounting.words import after_attempt, figures
from dpcore.declared import number_text
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError, RadofedError
from dpcore.estimators.oracle import WHOLE, GradientEstimate, failure_of
from dpcore.numbers.rationals import Exact, exact, rounded_up
from dpcore.predicates.expressions import Constant, Predicate
from dpcore.predicates.frontend import as_predicate
from dpcore.predicates.notation import parse
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.statement import CountedRelease, PrivacyStatement
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import event_time, measured, several_classes, two_classes, with_value
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.losses import LossName
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import (
    PLAIN,
    Batch,
    Correction,
    Estimates,
    HalfWidths,
    LocalNoise,
    SharedNoise,
    corrected_batch,
)
from dpcore.statistics.adaptive import Adaptive, Way
from learner.adaptive import Series, premise_of
from learner.composition import Unanswered, composed_statement, cost_of, rows_of
from learner.history import AskedBeforeError, NotAskedBeforeError
from learner.inquiring import Inquiring
from learner.learning import LearningFederation
from learner.named_estimates import Asked, NamedEstimates, batch_of
from learner.planning import Plan
from learner.release import OpenedTotal, moments_of
from learner.requests import GradientRequest, MomentsRequest, Request, StatisticRequest, Terms
from radobase.keywords import check_keywords, knows_keywords
from radobase.presentation.notebook import fragment
from radobase.printing import amount
from wire.errors import WireError, exit_code_of
from wire.query import Query
from wire.training import Training

# Exit code of a refusal because of privacy, a policy or the cohort.
_REFUSED = 6

Kind = TypeVar("Kind")


class Answer(OpenedTotal, Protocol):
    """An opened total, such as a learner.release.Release."""

    @property
    def digest(self) -> bytes:
        """32 bytes that identify the answer."""
        ...

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement of this answer alone."""
        ...

    @property
    def attempts(self) -> int:
        """How many attempts of the query may have a total that a coalition can complete, the opened one included."""
        ...


class AnswerSource(Protocol):
    """Plans requests and provides their answers."""

    @property
    def rows(self) -> int:
        """The total of the rows that parties state; 0 if none states any."""
        ...

    @property
    def persons(self) -> int:
        """The total of their persons; 0 if only answers about persons tell it."""
        ...

    def plan(self, request: Request) -> Plan:
        """The plan of a request; sends nothing. Raises what `learner.planning.plan_query` raises."""
        ...

    def answer(self, plan: Plan) -> Answer:
        """Send the query and wait for the answer.

        Raises WireError with exit code 6 if the federation refuses. Raises RoundLostError if an attempt was lost, or an
        earlier query of the round ended without a total, and another attempt needs the learner's decision.
        """
        ...

    @property
    def earlier(self) -> Sequence[Answer]:
        """Answers about these rows that the learner had before, of which this run's questions are no part."""
        ...

    @property
    def unanswered(self) -> Sequence[Unanswered]:
        """The queries of the last round, the one that `answer` was last called for, that have no opened total."""
        ...


class RoundLostError(RadofedError):
    """An attempt of a round's query was lost, and the query waits for the learner's decision.

    attempts: those that may have a total so far. cost: that of all queries within the budget if another attempt is
    made, None if no oracle counted it.
    """

    exit_code = _REFUSED

    def __init__(
        self, text: str, attempts: int, cost: ReleaseCost | None = None, epsilon: Fraction | None = None
    ) -> None:
        self.text, self.attempts, self.cost = text, attempts, cost
        super().__init__(text if cost is None else f"{text}. {_cost_of_retry(cost, epsilon)}")


class RoundEndedError(RoundLostError):
    """A round's query ended without a total, and asking the round again needs the learner's decision."""


def _cost_of_retry(cost: ReleaseCost, epsilon: Fraction | None) -> str:
    within = epsilon is None or cost.epsilon_if_others_collude <= epsilon
    budget = "" if epsilon is None else f", {'within' if within else 'above'} the budget of {float(epsilon):g}"
    figure = after_attempt(cost.epsilon_if_others_collude, cost.delta, "another attempt, and the rest of the budget")
    return f"{figure}{budget}"


_NO_TERMS = ("schema", "delta", "feature_map", "training")
_TERMS = tuple(field.name for field in fields(Terms) if field.name not in _NO_TERMS)


def check_terms(terms: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if a name is no option of every request."""
    check_keywords("a federation", terms, _TERMS)


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


_ALIKE = "statistics count all rows alike: the schema's weight counts in moments and gradients"


@dataclass(frozen=True)
class _Widths:
    """What determines the half-widths of a batch, for a number of parties."""

    batch: Batch
    failure: float
    part: HeldBack | None = None
    """Of the rows, None for all."""

    def of(self, rows: int) -> HalfWidths:
        """The half-widths over all of the parties' `rows` rows, of which the answers may be about a part.

        With n = `part.rows(rows)` the answers are the sum over rows of [in the part] phi, over m, times m / n. `batch`
        divides by p m; p m / n is within 1 / (2 n) of 1, and E[phi] in [0, 1].
        """
        found = self.batch.half_widths(rows, self.failure)
        if self.part is None:
            return found
        factor = float(self.part.chance * rows / self.part.rows(rows))
        rounded = abs(factor - 1)
        return HalfWidths(factor * found.sampling, factor * found.quantisation + rounded, factor * found.noise)

    def check(self, tolerance: float | None, rows: int) -> None:
        """Raise PlanError if `rows` rows cannot keep the tolerance; the error gives a number that can."""
        if tolerance is None:
            return
        if not rows:
            raise PlanError(
                "no party states its rows in the roster (rado provision init --party NAME=ROWS), so a tolerance cannot "
                "be checked in advance: leave it out, and read the half-widths of the estimates"
            )
        if self.of(rows).tolerance > tolerance:
            raise PlanError(
                f"{amount(rows, 'row')} cannot keep a tolerance of {tolerance:g} with probability "
                f"{1 - self.failure:g}: {self._remedy(tolerance)}a tolerance of {rounded_up(self.of(rows).tolerance)}"
            )

    def _remedy(self, tolerance: float) -> str:
        if self.batch.bias is not None and self.batch.bias >= tolerance * self.batch.share:
            return "no number of rows would at this noise, but "
        needed = self.batch.rows(tolerance, self.failure)
        while self.of(needed).tolerance > tolerance:  # by the rounding of the rows of a part
            needed += 1 + needed // 10_000
        return f"{needed} rows would, or "


class BudgetedOracle(Inquiring):
    """A federation within (epsilon, delta): a `dpcore.estimators.oracle.Oracle`."""

    def __init__(
        self, federation: Federation, epsilon: Exact, delta: Exact, adaptive: Adaptive | int | None = None
    ) -> None:
        epsilon, delta = exact(epsilon, "epsilon"), exact(delta, "delta")
        if epsilon <= 0 or not 0 <= delta < 1:
            raise ConfigurationError(
                f"epsilon is {epsilon} and delta {delta}: give a positive epsilon and a delta in [0, 1)"
            )
        self._federation, self._epsilon, self._delta = federation, epsilon, delta
        self._left, self._refused, self._refused_part = WHOLE, False, Fraction(0)
        # What the weights of all rows add up to, in rows; 0 before moments.
        self._weights = 0
        self.adaptive = Adaptive(adaptive) if isinstance(adaptive, int) else adaptive
        self._series: Series | None = None
        self._counted = 0
        if self.adaptive is not None:
            epoch, is_of_persons = federation.terms.get("epoch"), self._is_of_persons
            self._series = Series(self.adaptive, federation.held_back, epoch, is_of_persons=is_of_persons)
            for answer in federation.source.earlier:
                self._series.count(answer)
        self.answers: list[Answer] = []
        self.unanswered: list[Unanswered] = []

    @property
    def schema(self) -> Schema:
        """The federation's schema."""
        return self._federation.schema

    @property
    def rows(self) -> int:
        """The total of the rows that parties state; of a part of the rows, how many of them it has on average.

        Of an epoch, or of persons, what they stated in the last answer about these; 0 before that.
        """
        rows = self.stated_units
        return rows if self.held_back is None else self.held_back.rows(rows)

    @property
    def stated_units(self) -> int:
        """The same of all rows, or persons; 0 if parties have not stated them."""
        federation, epoch = self._federation, self._federation.terms.get("epoch")
        if epoch is None and not self._is_of_persons:
            return federation.source.rows
        if epoch is None and federation.source.persons:
            return federation.source.persons
        rows = _units_of(federation.known, epoch, is_of_persons=self._is_of_persons)
        return self._earlier_units if rows is None else rows

    @property
    def _is_of_persons(self) -> bool:
        """Whether persons are the unit of privacy; what parties state are then numbers of persons."""
        return self._federation.terms.get("unit") == "person"

    @cached_property
    def _earlier_units(self) -> int:
        """What parties stated of these before this federation asked; 0 if nothing. Read once, as it may be slow."""
        federation = self._federation
        epoch = federation.terms.get("epoch")
        return _units_of(federation.source.earlier, epoch, is_of_persons=self._is_of_persons) or 0

    @property
    def held_back(self) -> HeldBack | None:
        """The part of the rows that queries are about; None for all."""
        return self._federation.held_back

    @property
    def asked_part(self) -> HeldBack | None:
        """The part of the rows that the last answer is about, a piece in a split series; before the first `held_back`.

        None for all rows.
        """
        return self.answers[-1].query.held_back if self.answers else self.held_back

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        return self._epsilon

    @property
    def delta(self) -> Fraction:
        """Delta of the whole budget."""
        return self._delta

    def __repr__(self) -> str:
        return f"<{self._words}>"

    def _repr_html_(self) -> str:
        return fragment("Budget", [self._words])

    @property
    def _words(self) -> str:
        budget = f"epsilon {number_text(self._epsilon)} and delta {number_text(self._delta)}"
        return f"{budget}: {100 * float(self._left):.4g} % of it is left after {amount(len(self.answers), 'answer')}"

    @property
    def left(self) -> Fraction:
        """The part of the budget that no query has taken."""
        return self._left

    def statistic(
        self,
        predicates: Asked,
        *,
        part: Exact = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
        noise_rate: float = 0.0,
        feature_map: FeatureMap | None = None,
        local: bool = False,
    ) -> NamedEstimates:
        """See dpcore.estimators.oracle.Oracle; texts are parsed, and a mapping names the answers.

        local: as of `Federation.statistic`, at delta 0.
        """
        batch = batch_of(predicates)
        found = self._estimates_of(batch, exact(part, "part"), tolerance, confidence, noise_rate, feature_map, local)
        return NamedEstimates.of(found, predicates, self.answers[-1].statement)

    def _estimates_of(
        self,
        predicates: Sequence[Predicate | str],
        part: Fraction,
        tolerance: float | None,
        confidence: float,
        noise_rate: float,
        feature_map: FeatureMap | None,
        local: bool,
    ) -> Estimates:
        plan, correction = self._statistic(
            predicates, part, tolerance, confidence, noise_rate, feature_map, local=local
        )
        series = self._series
        if series is None:
            return _estimates(self._answer(plan, part), correction, confidence)
        series.ask()
        try:
            answer = self._answer(plan, part)
        except (AskedBeforeError, NotAskedBeforeError):
            series.take_back()
            raise
        widths = self._widths(answer.query, correction, list(answer.party_rows.values()), confidence)
        series.answered(answer, widths.batch, sum(answer.party_rows.values()), widths.failure)
        return replace(_estimates(answer, correction, confidence, widths), premise=series.premise)

    def planned(
        self,
        predicates: Asked,
        *,
        part: Exact = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
    ) -> Plan:
        """The plan of `statistic`. Sends nothing, and takes nothing of the budget."""
        return self._statistic(batch_of(predicates), exact(part, "part"), tolerance, confidence, 0.0, None)[0]

    def _statistic(
        self,
        predicates: Sequence[Predicate | str],
        part: Fraction,
        tolerance: float | None,
        confidence: float,
        noise_rate: float,
        feature_map: FeatureMap | None,
        *,
        local: bool = False,
    ) -> tuple[Plan, Correction]:
        """The plan of a batch, checked against its tolerance, and how its answer is corrected."""
        if isinstance(predicates, str) or not isinstance(predicates, Sequence):
            raise ConfigurationError("a batch of predicates is a list: write [predicate], even for a single one")
        if self.schema.weight is not None:
            warnings.warn(_ALIKE, stacklevel=4)
        _check_open_interval("confidence", confidence)
        if tolerance is not None:
            _check_open_interval("tolerance", tolerance)
        wanted = tuple(parse(text) if isinstance(text, str) else as_predicate(text) for text in predicates)
        asked, correction = corrected_batch(wanted, noise_rate)
        if local and self._delta and part != 1:
            raise ConfigurationError(
                "a part of a budget with a delta is no part of epsilon: ask locally at a delta of 0"
            )
        if local and self._series is not None:
            raise ConfigurationError(
                "adaptive tolerances are not proved for local answers: leave out adaptive, or ask without local"
            )
        options = {**self._options(part), "feature_map": feature_map, "local": local}
        request = StatisticRequest(self.schema, asked, pure=self._delta == 0, **options)
        series = self._series
        if series is not None:
            self._count_others(series)
        if series is not None and series.is_open:
            plan = self._plan(request)
            batch, parties = _batch(plan.query, correction, _stated(plan)), _stated(plan)
            series.decide(plan.query, batch, parties, self.stated_units, confidence)
        plan = self._plan(request if series is None else replace(request, held_back=series.part()))
        rows = self.stated_units
        stated = plan.party_rows or [max(1, rows)] * plan.query.honest_parties
        self._widths(plan.query, correction, stated, confidence).check(tolerance, rows)
        return plan, correction

    def _count_others(self, series: Series) -> None:
        """Count the federation's answers of the meantime that are not to questions of this series."""
        known = self._federation.known
        for answer in known[self._counted :]:
            if all(answer is not own for own in self.answers):
                series.count(answer)
        self._counted = len(known)

    def _widths(self, query: Query, correction: Correction, party_rows: Sequence[int], confidence: float) -> _Widths:
        """The half-widths of an answer of these parties, which in a series hold for what it is asked after."""
        batch = _batch(query, correction, len(party_rows))
        if self._series is None:
            return _Widths(batch, 1 - confidence, query.held_back)
        failure = self._series.failure(confidence)
        return _Widths(self._series.widths(query, batch, party_rows, failure), failure, query.held_back)

    def moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> Moments:
        """See dpcore.estimators.oracle.Oracle. norm_bound: R, by default `usual_norm` of the schema and the map."""
        two_classes(self.schema.label, "a sum of edges")
        options = {"feature_map": feature_map, "norm_bound": norm_bound, "edge_weight": edge_weight}
        found: Moments = self._moments(MomentsQuery, part, options)
        return found

    def planned_moments(
        self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, feature_map: FeatureMap | None = None
    ) -> Plan:
        """The plan of `moments`. Sends nothing, and takes nothing of the budget."""
        self._check_not_pure("moments")
        options = {"feature_map": feature_map, "norm_bound": norm_bound}
        return self._plan(MomentsRequest(self.schema, **{**self._options(part), **options}))

    def class_moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
        products_of_each_class: bool = False,
    ) -> ClassMoments:
        """See dpcore.estimators.oracle.ClassOracle."""
        several_classes(self.schema.label, "a sum for each class")
        options = {
            "feature_map": feature_map,
            "norm_bound": norm_bound,
            "edge_weight": edge_weight,
            "products_of_each_class": products_of_each_class,
        }
        found: ClassMoments = self._moments(ClassMomentsQuery, part, options)
        return found

    def number_moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> NumberMoments:
        """See dpcore.estimators.oracle.NumberOracle."""
        with_value(self.schema.label, "a sum of label times record")
        options = {"feature_map": feature_map, "norm_bound": norm_bound, "edge_weight": edge_weight}
        found: NumberMoments = self._moments(NumberMomentsQuery, part, options)
        return found

    def _moments(self, expected: type[MomentsQuery], part: Fraction, options: Mapping[str, Any]) -> Any:
        """The moments of a release, in the form of the kind that is expected."""
        self._check_not_pure("moments")
        request = MomentsRequest(self.schema, **{**self._options(part), **options})
        answer = self._answer(self._plan(request), part)
        _kind(answer.query, expected)
        found = moments_of(answer)
        self._weights = found.rows
        return found

    def gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        loss: LossName = "logistic",
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """See dpcore.estimators.oracle.Oracle."""
        two_classes(self.schema.label, "a gradient at one classifier")
        options = {"loss": loss, "clip": clip, "basis": basis, "feature_map": feature_map}
        return self._gradient(theta, part, {**options, "class_weights": class_weights})

    def class_gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """See dpcore.estimators.oracle.ClassOracle."""
        several_classes(self.schema.label, "a gradient for each class")
        options = {"clip": clip, "basis": basis, "feature_map": feature_map, "class_weights": class_weights}
        return self._gradient(theta.ravel(), part, options)

    def number_gradient(
        self,
        theta: NDArray[np.float64],
        *,
        loss: LossName,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """See dpcore.estimators.oracle.NumberOracle."""
        measured(self.schema.label, f"a gradient of the {loss} loss")
        return self._gradient(theta, part, {"loss": loss, "clip": clip, "basis": basis, "feature_map": feature_map})

    def hazard_gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        interval_weight: int,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """See dpcore.estimators.hazards.EventTimeOracle."""
        event_time(self.schema.label, "a gradient of proportional hazards")
        options = {"loss": "hazards", "clip": clip, "interval_weight": interval_weight}
        return self._gradient(theta, part, {**options, "basis": basis, "feature_map": feature_map})

    def _gradient(self, theta: NDArray[np.float64], part: Fraction, options: Mapping[str, Any]) -> GradientEstimate:
        self._check_not_pure("gradients")
        if self.schema.weight is not None and not self._weights:
            raise ConfigurationError("the mean of weighted gradients needs the sum of weights: ask for moments first")
        point = tuple(map(float, theta))
        request = GradientRequest(self.schema, point, **{**self._options(part), **options})
        answer = self._answer(self._plan(request), part)
        kind, bits = _kind(answer.query, GradientQuery), answer.query.encoding.fraction_bits
        rows, parties = rows_about(answer), len(answer.party_rows)
        if kind.weighted:
            # The mean over as many rows as the weights add up to, as the moments have it.
            rows = self._weights
        sigma = kind.shares.deviation(parties)
        return GradientEstimate(
            mean=kind.decode(answer.integers, bits) / rows,
            deviation=sigma * kind.unit(bits) / rows,
            rows=rows,
        )

    def cost(self) -> ReleaseCost | None:
        """The cost of the composition of all queries, at the budget's delta; None before the first.

        Against the learner alone it counts the answers. Under collusion it counts every attempt of every query that may
        have a total, also of queries that were refused or ended without one (`dpcore.queries.statement`).

        An estimator that stops before it uses its budget may do so because of what it saw. So the rest of the budget
        counts as spent: the figure must hold for every stopping time.

        A refusal or a lost attempt does not count the rest, unless answers may have decided what was refused: a policy
        limits the terms of a map and the predicates of a batch, which an estimator chooses.

        No party looks at a record when it refuses. Assumed: a refusal by budget, which may follow other learners'
        questions, and a loss are not chosen by what this learner saw.
        """
        if not self.answers and not self.unanswered:
            return None
        return cost_of(self.answers, self._counted_at(), unanswered=self.unanswered, unspent=self.unspent())

    def statement(self) -> PrivacyStatement:
        """The statement of the composition of all queries, see `cost`. Raises ConfigurationError before an answer."""
        return composed_statement(self.answers, self._counted_at(), unanswered=self.unanswered, unspent=self.unspent())

    def unspent(self) -> list[CountedRelease]:
        """A release that uses the rest of the budget; none if nothing is left or a refusal ended the run.

        One after a refusal that answers may have caused.
        """
        rest = self._left + self._refused_part
        if not rest or self._refused or not self.answers:
            return []
        last = self.answers[-1]
        return [self._part(rest, last.query, last.party_rows)]

    def _part(self, part: Fraction, like: Query, party_rows: Mapping[str, int]) -> CountedRelease:
        """A release that uses this part of the budget, for parties as in another query."""
        honest = like.honest_parties
        request = StatisticRequest(self.schema, (Constant(True),), pure=self._delta == 0, **self._options(part))
        kind = request.kind(honest, ())
        if like.kind.cohorts is not None:
            # Against the learner alone, noise of the cohort that answers costs more than that of the smallest one.
            kind = kind.following(like.kind.cohorts)
        return CountedRelease(kind, party_rows, self.schema, request.setting(honest))

    def _counted_at(self) -> Fraction:
        # With only Laplace noise, the figure does not depend on this delta.
        return self._delta or Fraction(1, 10**6)

    def _options(self, part: Fraction) -> dict[str, Any]:
        options = {**self._federation.terms, "epsilon": self._epsilon, "part": part}
        return options if self._delta == 0 else {**options, "delta": self._delta}

    def _check_not_pure(self, what: str) -> None:
        if self._series is not None:
            raise ConfigurationError(f"{what} have no tolerance that a series could keep: leave adaptive out")
        if self._delta == 0:
            raise ConfigurationError(f"{what} have Gaussian noise, which has no delta of 0: give a delta such as 1e-6")

    def _plan(self, request: StatisticRequest | MomentsRequest | GradientRequest) -> Plan:
        if request.part > self._left:
            raise ConfigurationError(
                f"the query takes {float(request.part):.4g} of the budget and {float(self._left):.4g} of it is left: "
                "give parts that add up to 1"
            )
        return self._federation.source.plan(request)

    def _answer(self, plan: Plan, part: Exact) -> Answer:
        part = exact(part, "part")
        # Deducted before the answer is known: parties may have charged a refused attempt.
        self._left -= part
        try:
            answer = self._federation.answer(plan)
        except (AskedBeforeError, NotAskedBeforeError):
            self._left += part
            raise
        except RoundLostError as error:
            raise self._cost_before_retry(error) from error
        except WireError as error:
            if exit_code_of(error) != _REFUSED:
                raise
            # Whether a party's limits allow these may depend on the answers by which they were chosen.
            self._refused = plan.query.feature_map is None and not plan.query.kind.batch
            if not self._refused and not self._federation.source.unanswered:
                self._refused_part = part
            raise OracleRefusedError(str(error).rstrip("."), spent=self._spent_words()) from error
        finally:
            self.unanswered += self._federation.source.unanswered
        self.answers.append(answer)
        return answer

    def _cost_before_retry(self, error: RoundLostError) -> RoundLostError:
        """The error with the cost of all queries, if the lost one gets another attempt and the whole budget is used."""
        *before, waiting = [*self.unanswered, *self._federation.source.unanswered]
        again = Unanswered(waiting.query, waiting.attempts + 1)
        rest = [self._part(self._left, waiting.query, rows_of(self.answers, [waiting]))] if self._left else []
        cost = cost_of(self.answers, self._counted_at(), unanswered=[*before, again], unspent=rest)
        return type(error)(error.text, waiting.attempts, cost, self._epsilon)

    def _spent_words(self) -> str:
        lost = [*self.unanswered, *self._federation.source.unanswered]
        if not (self.answers or lost):
            return "nothing was asked"
        cost = cost_of(self.answers, self._counted_at(), unanswered=lost, unspent=self.unspent())
        count, attempts = len(self.answers), sum(query.attempts for query in lost)
        words = (
            f"{count or 'no'} answer{' was' if count == 1 else 's were'} released: in total "
            f"{figures(cost.epsilon, cost.epsilon_if_others_collude, cost.delta)}"
        )
        if not attempts:
            return words
        words = f"{words}, which counts {amount(attempts, 'attempt')} without an answer"
        return words if count else f"{words}; --would-accept asks first, and counts nothing"


def _units_of(answers: Sequence[Answer], epoch: str | None, *, is_of_persons: bool) -> int | None:
    """The rows, or persons, of the parties in the last of the answers about these; None if there is none."""
    wanted = epoch, is_of_persons
    queries = ((answer, answer.query) for answer in reversed(answers))
    found = next((answer for answer, query in queries if (query.epoch, query.persons is not None) == wanted), None)
    return None if found is None else sum(found.party_rows.values())


def rows_about(answer: Answer) -> int:
    """The number of rows, or persons, by which an answer's sums are divided: of a part, how many it has on average.

    dpcore.records.held_back proves that the means are unbiased.
    """
    rows, part = sum(answer.party_rows.values()), answer.query.held_back
    return rows if part is None else part.rows(rows)


def estimates_of(answer: Answer, *, confidence: float = 0.95) -> Estimates:
    """The estimates of an answer to `BudgetedOracle.statistic`, such as a saved release; nothing is asked.

    Raises ConfigurationError if the answer is of another kind, or the confidence is out of range.
    """
    _check_open_interval("confidence", confidence)
    kind = answer.query.kind
    if not kind.batch:
        raise ConfigurationError(f"this is a release of {kind.contents}: give one of statistics")
    _, correction = corrected_batch(kind.batch, 0.0)
    about = answer.query.held_back
    if about is None or not about.pieces:
        return _estimates(answer, correction, confidence)
    # One question of a series, whose rows are its own: the piece says how many questions there are.
    batch = replace(_batch(answer.query, correction, len(answer.party_rows)), is_fresh=True)
    widths = _Widths(batch, failure_of(confidence, about), about)
    premise = premise_of(about.pieces, Way.SPLIT)
    return replace(_estimates(answer, correction, confidence, widths), premise=premise)


def _estimates(answer: Answer, correction: Correction, confidence: float, widths: _Widths | None = None) -> Estimates:
    kind = _kind(answer.query, StatisticQuery)
    every, bits = sum(answer.party_rows.values()), answer.query.encoding.fraction_bits
    if widths is None:
        batch = _batch(answer.query, correction, len(answer.party_rows))
        widths = _Widths(batch, 1 - confidence, answer.query.held_back)
    found = widths.of(every)
    noise, rows = _noise(kind, len(answer.party_rows), bits), rows_about(answer)
    sums = kind.decode(answer.integers, bits)
    if isinstance(noise, LocalNoise):
        # Rows outside a part answer too.
        noise, sums = noise.over(every), noise.response.unbiased(sums, every)
    return Estimates(
        values=correction.apply(sums / rows),
        rows=rows,
        confidence=confidence,
        sampling=found.sampling,
        quantisation=found.quantisation,
        noise=found.noise,
        deviation=correction.amplification.deviation * noise.deviation / rows,
        distribution=noise if correction.amplification == PLAIN else None,
        most_rows=every,
    )


def _stated(plan: Plan) -> int:
    """The number of parties that a plan counts on."""
    return len(plan.party_rows or ()) or plan.query.honest_parties


def _batch(query: Query, correction: Correction, parties: int) -> Batch:
    """The half-widths of an answer, as if nothing had been asked before."""
    kind = _kind(query, StatisticQuery)
    bits = query.encoding.fraction_bits
    quantisation = 0.0 if kind.is_boolean else 2.0**-bits
    batch = correction.batch(_noise(kind, parties, bits), quantisation)
    return batch if query.held_back is None else replace(batch, share=float(query.held_back.chance))


def _noise(kind: StatisticQuery, parties: int, fraction_bits: int) -> SharedNoise | LocalNoise:
    """On each sum, from so many parties; of local answers over one row."""
    if isinstance(kind.noise, LocalResponse):
        return LocalNoise(kind.noise)
    return SharedNoise(kind.noise, parties, kind.unit_bits(fraction_bits))


def _kind(query: Query, expected: type[Kind]) -> Kind:
    kind = query.kind
    assert isinstance(kind, expected), "an answer is of the kind that was asked"
    return kind


def _check_open_interval(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigurationError(f"{name} is {value}: choose a number between 0 and 1")
