"""A federation within a budget: estimators ask it, and the composition of all answers stays within."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.protection import ReleaseCost
from dpcore.accounting.words import figures
from dpcore.declared import number_text
from dpcore.errors import ConfigurationError, OracleRefusedError
from dpcore.estimators.oracle import WHOLE, GradientEstimate
from dpcore.numbers.rationals import Exact, exact
from dpcore.predicates.expressions import Constant, Predicate
from dpcore.predicates.frontend import as_predicate
from dpcore.predicates.notation import parse
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.statement import CountedRelease, PrivacyStatement
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import event_time, measured, several_classes, two_classes, with_value
from dpcore.records.held_back import HeldBack
from dpcore.records.losses import LossName
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import (
    Correction,
    Estimates,
    corrected_batch,
)
from dpcore.statistics.adaptive import Adaptive
from learner.adaptive import Series
from learner.answer_source import REFUSED, Answer, RoundLostError, rows_about
from learner.composition import Unanswered, composed_statement, cost_of, rows_of
from learner.estimates import Widths, batch_of, check_open_interval, estimates, kind_of, stated_parties
from learner.history import AskedBeforeError, NotAskedBeforeError
from learner.inquiring import Inquiring
from learner.named_estimates import Asked, NamedEstimates, unnamed
from learner.planning import Plan
from learner.release import moments_of
from learner.requests import BudgetRequest, GradientRequest, MomentsRequest, StatisticRequest
from radobase.presentation.notebook import fragment
from radobase.printing import amount
from wire.errors import WireError, exit_code_of
from wire.query import Query

if TYPE_CHECKING:
    from learner.federation import Federation

_ALIKE = "statistics count all rows alike: the schema's weight counts in moments and gradients"


class BudgetedOracle(Inquiring):
    """A federation within (epsilon, delta): a `dpcore.estimators.oracle.Oracle`."""

    def __init__(
        self, federation: "Federation", epsilon: Exact, delta: Exact, adaptive: Adaptive | int | None = None
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
    def federation(self) -> "Federation":
        """Whom it asks."""
        return self._federation

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
        batch = unnamed(predicates)
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
            return estimates(self._answer(plan, part), correction, confidence)
        series.ask()
        try:
            answer = self._answer(plan, part)
        except (AskedBeforeError, NotAskedBeforeError):
            series.take_back()
            raise
        widths = self._widths(answer.query, correction, list(answer.party_rows.values()), confidence)
        series.answered(answer, widths.batch, sum(answer.party_rows.values()), widths.failure)
        return replace(estimates(answer, correction, confidence, widths), premise=series.premise)

    def planned(
        self,
        predicates: Asked,
        *,
        part: Exact = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
    ) -> Plan:
        """The plan of `statistic`. Sends nothing, and takes nothing of the budget."""
        return self._statistic(unnamed(predicates), exact(part, "part"), tolerance, confidence, 0.0, None)[0]

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
        check_open_interval("confidence", confidence)
        if tolerance is not None:
            check_open_interval("tolerance", tolerance)
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
            batch, parties = batch_of(plan.query, correction, stated_parties(plan)), stated_parties(plan)
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

    def _widths(self, query: Query, correction: Correction, party_rows: Sequence[int], confidence: float) -> Widths:
        """The half-widths of an answer of these parties, which in a series hold for what it is asked after."""
        batch = batch_of(query, correction, len(party_rows))
        if self._series is None:
            return Widths(batch, 1 - confidence, query.held_back)
        failure = self._series.failure(confidence)
        return Widths(self._series.widths(query, batch, party_rows, failure), failure, query.held_back)

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
        kind_of(answer.query, expected)
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
        kind, bits = kind_of(answer.query, GradientQuery), answer.query.encoding.fraction_bits
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

    def _plan(self, request: BudgetRequest) -> Plan:
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
            if exit_code_of(error) != REFUSED:
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
