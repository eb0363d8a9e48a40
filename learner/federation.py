"""Asking a federation within a budget: what learners of several rounds, statistics and evaluations ask through.

    federation = Federation(SessionSource(session), schema)
    federation.statistic(['x["age"] >= 65'], epsilon=Fraction(1, 10), tolerance=0.01)
    LogisticDescent().fit_queries(federation.within(Fraction(1), Fraction(1, 10**6)))

Where answers come from is an `AnswerSource`: a session over gRPC (learner.journal) or a simulation. Everything that is
asked goes the one way of every query: planned, signed, decided by each party, charged, summed, opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.oracle import WHOLE, GradientEstimate
from dpcore.predicates.expressions import Constant, Predicate
from dpcore.predicates.frontend import as_predicate
from dpcore.predicates.notation import parse
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.several_releases import CountedRelease
from dpcore.queries.statement import PrivacyStatement, rounded_up
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.basis import Basis
from dpcore.records.margin_weights import WEIGHT_BITS, Loss
from dpcore.records.schema import Schema
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.label_noise import Correction, corrected_batch
from dpcore.statistics.moments import Moments
from dpcore.statistics.noise import SharedNoise
from dpcore.statistics.sample_size import PLAIN, Batch
from learner.composition import composed_statement, cost_of
from learner.planning import Plan
from learner.requests import GradientRequest, MomentsRequest, Request, StatisticRequest
from wire.errors import WireError, exit_code_of
from wire.query import Query

# What a plan or a node ends with where privacy, a policy or the cohort says no.
_REFUSED = 6

Kind = TypeVar("Kind")


class Answer(Protocol):
    """An opened total; a learner.release.Release is one."""

    @property
    def query(self) -> Query:
        """What was asked."""
        ...

    @property
    def integers(self) -> NDArray[np.int64]:
        """The total, in the kind's shape and units."""
        ...

    @property
    def party_rows(self) -> Mapping[str, int]:
        """Rows of each party of the cohort."""
        ...

    @property
    def digest(self) -> bytes:
        """32 bytes that name it."""
        ...

    @property
    def statement(self) -> PrivacyStatement:
        """What it tells, by itself."""
        ...


class AnswerSource(Protocol):
    """Where answers come from."""

    @property
    def rows(self) -> int:
        """The rows that parties state, in all; 0 where none does."""
        ...

    def plan(self, request: Request) -> Plan:
        """The plan of a request; nobody is asked. Raises what `learner.planning.plan_query` raises."""
        ...

    def answer(self, plan: Plan) -> Answer:
        """Ask, and wait for the answer. Raises WireError with exit code 6 where the federation refuses."""
        ...


class Federation:
    """A source of answers and the schema that they are about.

    terms: options of `learner.requests.Terms` for all that is asked, such as cohort_min.
    """

    def __init__(self, source: AnswerSource, schema: Schema, **terms: Any) -> None:
        self.source, self.schema, self._terms = source, schema, terms
        self.answers: list[Answer] = []

    def statistic(
        self,
        queries: Sequence[Predicate | str],
        *,
        tolerance: float | None = None,
        confidence: float = 0.95,
        epsilon: Fraction,
        delta: Fraction = Fraction(1, 10**6),
        noise_rate: float = 0.0,
    ) -> Estimates:
        """Estimates of E[phi(x, y)] for a batch of predicates, as one release that costs (epsilon, delta) at most.

        queries: predicates, or their texts. tolerance, confidence, noise_rate: see dpcore.estimators.oracle.Oracle.
        delta: 0 takes Laplace noise alone, otherwise the smaller of Laplace's and Gaussian noise for this batch. The
        figure is against all but the honest parties; against the learner alone it is smaller. Raises as an Oracle does.
        """
        return self.within(epsilon, delta).statistic(
            queries, tolerance=tolerance, confidence=confidence, noise_rate=noise_rate
        )

    def within(self, epsilon: Fraction, delta: Fraction) -> "BudgetedOracle":
        """An oracle for one learner, whose answers together are (epsilon, delta)-private.

        Raises ConfigurationError where epsilon is not positive or delta not in [0, 1).
        """
        return BudgetedOracle(self, epsilon, delta)

    def answer(self, plan: Plan) -> Answer:
        """Ask a plan, remember and return the answer."""
        answer = self.source.answer(plan)
        self.answers.append(answer)
        return answer

    @property
    def terms(self) -> Mapping[str, Any]:
        """Options of every request."""
        return self._terms


@dataclass(frozen=True)
class _Widths:
    """What the half-widths of a batch follow from, at a number of parties."""

    batch: Batch
    failure: float

    def check(self, tolerance: float | None, rows: int) -> None:
        """Raise PlanError where so many rows cannot keep the tolerance, with the number that can."""
        if tolerance is None:
            return
        if not rows:
            raise PlanError(
                "no party states its rows in the roster (rado provision init --party NAME=ROWS), so nobody knows "
                "before they have answered whether a tolerance is kept: leave it out, and see what the estimates say"
            )
        needed = self.batch.rows(tolerance, self.failure)
        if rows < needed:
            raise PlanError(
                f"{rows} rows cannot keep a tolerance of {tolerance:g} with probability {1 - self.failure:g}: {needed} "
                f"rows would, or a tolerance of {self.batch.half_widths(rows, self.failure).tolerance:.3g}"
            )


class BudgetedOracle:
    """A federation within (epsilon, delta): a `dpcore.estimators.oracle.Oracle`."""

    def __init__(self, federation: Federation, epsilon: Fraction, delta: Fraction) -> None:
        if not (isinstance(epsilon, Fraction) and isinstance(delta, Fraction)):
            raise ConfigurationError("epsilon and delta must be exact fractions: write Fraction('1e-6'), not 1e-6")
        if epsilon <= 0 or not 0 <= delta < 1:
            raise ConfigurationError(f"epsilon {epsilon}, delta {delta}: the first is positive, the second in [0, 1)")
        self._federation, self._epsilon, self._delta = federation, epsilon, delta
        self._left, self._refused = WHOLE, False
        self.answers: list[Answer] = []

    @property
    def schema(self) -> Schema:
        """The federation's."""
        return self._federation.schema

    @property
    def rows(self) -> int:
        """What the parties state."""
        return self._federation.source.rows

    @property
    def epsilon(self) -> Fraction:
        """Of the whole budget."""
        return self._epsilon

    @property
    def delta(self) -> Fraction:
        """Of the whole budget."""
        return self._delta

    def statistic(
        self,
        predicates: Sequence[Predicate | str],
        *,
        part: Fraction = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
        noise_rate: float = 0.0,
    ) -> Estimates:
        """See dpcore.estimators.oracle.Oracle; texts are parsed."""
        if isinstance(predicates, str) or not isinstance(predicates, Sequence):
            raise ConfigurationError("a batch of predicates is a list: write [predicate], also for one")
        _check_open_interval("confidence", confidence)
        if tolerance is not None:
            _check_open_interval("tolerance", tolerance)
        wanted = tuple(parse(text) if isinstance(text, str) else as_predicate(text) for text in predicates)
        asked, correction = corrected_batch(wanted, noise_rate)
        pure = self._delta == 0
        request = StatisticRequest(self.schema, asked, pure=pure, **self._options(part))
        plan = self._plan(request)
        failure = 1 - confidence
        stated = len(plan.party_rows or ()) or plan.query.honest_parties
        _widths(plan.query, correction, stated, failure).check(tolerance, self.rows)
        answer = self._answer(plan, part)
        kind = _kind(answer.query, StatisticQuery)
        rows, bits = sum(answer.party_rows.values()), answer.query.encoding.fraction_bits
        batch = _widths(answer.query, correction, len(answer.party_rows), failure).batch
        found = batch.half_widths(rows, failure)
        noise = SharedNoise(kind.noise, len(answer.party_rows), bits)
        return Estimates(
            values=correction.apply(kind.decode(answer.integers, bits) / rows),
            rows=rows,
            confidence=confidence,
            sampling=found.sampling,
            quantisation=found.quantisation,
            noise=found.noise,
            deviation=correction.amplification.deviation * noise.deviation / rows,
            distribution=noise if correction.amplification == PLAIN else None,
        )

    def moments(self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None) -> Moments:
        """See dpcore.estimators.oracle.Oracle. norm_bound: R; by default what most records of the schema stay below."""
        self._check_not_pure("moments")
        request = MomentsRequest(self.schema, norm_bound=norm_bound, **self._options(part))
        answer = self._answer(self._plan(request), part)
        kind, bits = _kind(answer.query, MomentsQuery), answer.query.encoding.fraction_bits
        rows = sum(answer.party_rows.values())
        return kind.moments(answer.integers, bits, rows=rows, parties=len(answer.party_rows))

    def gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        loss: Loss = "logistic",
        basis: Basis | None = None,
    ) -> GradientEstimate:
        """See dpcore.estimators.oracle.Oracle."""
        self._check_not_pure("gradients")
        request = GradientRequest(
            self.schema, tuple(map(float, theta)), loss=loss, clip=clip, basis=basis, **self._options(part)
        )
        answer = self._answer(self._plan(request), part)
        kind, bits = _kind(answer.query, GradientQuery), answer.query.encoding.fraction_bits
        rows, parties = sum(answer.party_rows.values()), len(answer.party_rows)
        sigma = kind.share_sigma * float(np.sqrt(parties))
        return GradientEstimate(
            mean=kind.decode(answer.integers, bits) / rows,
            deviation=float(np.ldexp(sigma, -(bits + WEIGHT_BITS))) / rows,
            rows=rows,
        )

    def cost(self) -> ReleaseCost | None:
        """What all answers cost together, exactly, at the budget's delta; None before the first.

        A learner that ends before its budget may do so because of what it saw. When it ends then depends on the
        records, and what is left counts as asked: the figure must hold wherever it might have ended. A refusal is the
        parties' own and looks at no record.
        """
        if not self.answers:
            return None
        return cost_of(self.answers, self._counted_at(), self._unspent())

    def statement(self) -> PrivacyStatement:
        """The statement of all answers together, see `cost`. Raises ConfigurationError before the first."""
        return composed_statement(self.answers, self._counted_at(), self._unspent())

    def _unspent(self) -> CountedRelease | None:
        """A release that takes what is left, None where nothing is or a refusal ended the run."""
        if not self._left or self._refused or not self.answers:
            return None
        last = self.answers[-1]
        honest = last.query.honest_parties
        request = StatisticRequest(self.schema, (Constant(True),), pure=self._delta == 0, **self._options(self._left))
        return CountedRelease(request.kind(honest, ()), last.party_rows, self.schema, request.setting(honest))

    def _counted_at(self) -> Fraction:
        # With Laplace noise alone nothing is counted at a delta.
        return self._delta or Fraction(1, 10**6)

    def _options(self, part: Fraction) -> dict[str, Any]:
        options = {**self._federation.terms, "epsilon": self._epsilon, "part": part}
        return options if self._delta == 0 else {**options, "delta": self._delta}

    def _check_not_pure(self, what: str) -> None:
        if self._delta == 0:
            raise ConfigurationError(f"{what} have Gaussian noise, which has no delta of 0: give a delta such as 1e-6")

    def _plan(self, request: StatisticRequest | MomentsRequest | GradientRequest) -> Plan:
        if request.part > self._left:
            raise ConfigurationError(
                f"a part of {float(request.part):.4g} is asked for and {float(self._left):.4g} of the budget is left: "
                "parts add up to 1"
            )
        return self._federation.source.plan(request)

    def _answer(self, plan: Plan, part: Fraction) -> Answer:
        # Spent before it is known: a refused attempt may have been charged.
        self._left -= part
        try:
            answer = self._federation.answer(plan)
        except WireError as error:
            if exit_code_of(error) != _REFUSED:
                raise
            self._refused = True
            raise OracleRefusedError(str(error).rstrip("."), spent=self._spent_words()) from error
        self.answers.append(answer)
        return answer

    def _spent_words(self) -> str:
        cost = self.cost()
        if cost is None:
            return "nothing was released"
        count = len(self.answers)
        return (
            f"{count} answer{' was' if count == 1 else 's were'} released, which cost epsilon "
            f"{rounded_up(cost.epsilon)} at delta {cost.delta:g} against the learner alone and "
            f"{rounded_up(cost.epsilon_if_others_collude)} under collusion"
        )


def _widths(query: Query, correction: Correction, parties: int, failure: float) -> _Widths:
    kind = _kind(query, StatisticQuery)
    bits = query.encoding.fraction_bits
    quantisation = 0.0 if kind.is_boolean else 2.0**-bits
    return _Widths(correction.batch(SharedNoise(kind.noise, parties, bits), quantisation), failure)


def _kind(query: Query, expected: type[Kind]) -> Kind:
    kind = query.kind
    assert isinstance(kind, expected), "an answer is of the kind that was asked"
    return kind


def _check_open_interval(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigurationError(f"{name} is {value}: choose a number between 0 and 1")
