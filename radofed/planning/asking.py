"""Plans of what estimators ask, and of statistics: the learner's own code, run against parties that hold no rows.

The estimator's `fit_queries` runs with a `learner.federation.BudgetedOracle`, as in training. Its queries are planned
by `learner.planning` for a made-up roster, so that noise, sizes and costs are those of real queries. The answers are
those of made-up rows. No figure of privacy depends on them: the oracle calibrates the noise of each query to its part
of the budget, relative to its sensitivity, and never to an answer (dpcore.estimators.oracle.Asked). An estimator that
stops early counts its whole budget in any case (BudgetedOracle.cost). What may depend on answers is the clipping norm
of a gradient after moments, and how many queries an estimator asks that may stop early.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpcore.declared import Declared
from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.records.features import nearest
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.composition import Unanswered
from learner.estimators import BY_QUERIES, FROM_RELEASES
from learner.planning import Plan
from learner.requests import NoisyTerms, Request
from radofed.planning.made_up import MadeUpFederation, cohort_terms, made_up_schema
from radofed.planning.request import MOST_PLANNED_ROWS
from radofed.planning.signal import Signal
from wire.query import Query, setting_of
from wire.request_fields import CONFIDENCE, DELTA_OR_ZERO, KEY_BITS, KEY_SIZE, NOISE_RATE, USUAL_DELTA

# Made-up rows: enough that every feature varies, few enough to be summed at once.
_MADE_UP_ROWS, _SEED = 512, 2015


@dataclass(frozen=True, kw_only=True)
class AskRequest(Declared):
    """What is to be asked within one budget: what an estimator asks, or a batch of statistics.

    party_rows: m_p. schema: of the rows. epsilon, delta: of the whole budget, under collusion; a delta of 0 allows
    Laplace noise only. estimator: a key of learner.estimators.BY_QUERIES, with its options; None if `predicates` are
    asked, as texts, with the tolerance, confidence and noise_rate of dpcore.estimators.oracle.Oracle. honest: h, as in
    `radofed.planning.PlanRequest`. Raises ConfigurationError if an argument makes no sense for any plan.
    """

    party_rows: tuple[int, ...]
    schema: Schema
    epsilon: Fraction
    delta: Annotated[Fraction, DELTA_OR_ZERO] = USUAL_DELTA
    estimator: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    predicates: tuple[str, ...] = ()
    tolerance: float | None = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    noise_rate: Annotated[float, NOISE_RATE] = 0.0
    honest: int | None = None
    key_bits: Annotated[int, KEY_SIZE] = KEY_BITS

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.estimator is None) != bool(self.predicates):
            raise ConfigurationError("plan either an estimator or statistics: give one of the two")
        if self.estimator in FROM_RELEASES:
            raise ConfigurationError(
                f"{self.estimator} learns from a release and asks nothing itself: plan the design of its release, such "
                "as moments"
            )
        if self.estimator is not None and self.estimator not in BY_QUERIES:
            known = nearest(self.estimator, BY_QUERIES)
            raise ConfigurationError(f"no estimator that asks is called {self.estimator!r}; {known}")
        if min(self.party_rows, default=0) < 1 or sum(self.party_rows) > MOST_PLANNED_ROWS:
            raise ConfigurationError(
                f"parties have {list(self.party_rows)} rows: give each at least one, and {MOST_PLANNED_ROWS} in total"
            )
        if self.honest is not None and not 1 <= self.honest <= len(self.party_rows):
            raise ConfigurationError(f"{self.honest} honest parties of {len(self.party_rows)}: give 1 to all of them")

    @property
    def what(self) -> str:
        """What is asked, in words."""
        if self.estimator is not None:
            return f"what {self.estimator} asks"
        return "1 statistic" if len(self.predicates) == 1 else f"{len(self.predicates)} statistics in one batch"

    @property
    def is_made_up(self) -> bool:
        """Whether the schema is `made_up_schema`, and may have fewer coordinates."""
        return self.schema == made_up_schema(max(2, self.schema.d), bias=self.schema.bias)

    @cached_property
    def rows(self) -> int:
        """The number of all parties' rows."""
        return sum(self.party_rows)

    @property
    def terms(self) -> dict[str, Any]:
        """The options of each query that follow from `honest`."""
        return cohort_terms(len(self.party_rows), self.honest)


class _Summed(Protocol):
    """The kinds of queries that a budget has: sums over records, and noise."""

    def sums(self, records: Records, fraction_bits: int) -> NDArray[np.int64]: ...


@dataclass(frozen=True, eq=False)
class _Answer:
    """A made-up total: a `learner.federation.Answer`."""

    query: Query
    integers: NDArray[np.int64]
    party_rows: Mapping[str, int]
    digest: bytes
    statement: PrivacyStatement
    attempts: int = 1


class PlannedParties:
    """Parties without rows: a `learner.federation.AnswerSource` that plans each query and makes its answer up.

    plans: those of the queries so far, in order. parts: what each takes of the budget.
    """

    def __init__(self, request: AskRequest) -> None:
        self._request, self.plans, self.parts = request, list[Plan](), list[Fraction]()
        self._part_of: dict[bytes, Fraction] = {}
        self._federation = MadeUpFederation(request.party_rows, request.key_bits)

    @cached_property
    def _records(self) -> Records:
        return made_up_records(self._request.schema)

    @property
    def rows(self) -> int:
        """The rows of all parties."""
        return self._request.rows

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """None: a plan is of one attempt for each query."""
        return ()

    def plan(self, request: Request) -> Plan:
        """The plan of a request, with the features of this version's nodes; see `learner.federation.AnswerSource`."""
        planned = self._federation.plan(request)
        assert isinstance(request, NoisyTerms), "a budget has three kinds of queries"
        self._part_of[planned.query_id] = request.part
        return planned

    def answer(self, plan: Plan) -> _Answer:
        """The total of the made-up rows, repeated as often as parties have rows, without noise."""
        self.plans.append(plan)
        self.parts.append(self._part_of[plan.query_id])
        query = plan.query
        kind = query.kind
        total = cast("_Summed", kind).sums(query.seen(self._records), query.encoding.fraction_bits)
        scaled = np.rint(total * (self.rows / self._records.rows)).astype(np.int64)
        return _Answer(
            query,
            scaled.reshape(kind.shape(query.d)),
            self._federation.party_rows,
            plan.query_id,
            statement_for(kind, self._request.party_rows, query.delta, schema=query.schema, setting=setting_of(query)),
        )


def made_up_records(schema: Schema) -> Records:
    """Rows of independent features, spread evenly, with labels that a linear classifier can learn."""
    rng = np.random.default_rng(_SEED)
    x = np.hstack([group.draw(rng, _MADE_UP_ROWS) for group in schema.groups])
    scores = x @ rng.normal(size=x.shape[1])
    labels = np.where(scores > np.median(scores), 1, -1).astype(np.int8)
    if schema.bias:
        x = np.hstack([x, np.ones((_MADE_UP_ROWS, 1))])
    return Records(np.rint(x * ONE).astype(np.int32), labels, np.ones(_MADE_UP_ROWS, dtype=np.bool_))


@dataclass(frozen=True)
class PlannedAnswer:
    """One query of a plan. noise_sd: of all parties' noise on a value, in its own units; the least of all values."""

    kind: str
    words: str
    values: int
    noise_sd: float
    noise_over_sampling: float
    ciphertexts: int
    upload_bytes_per_party: int
    slot_bits: int
    fraction_bits: int

    @classmethod
    def of(cls, plan: Plan, signal: Signal, noise_sd: float) -> "PlannedAnswer":
        """From the query's plan."""
        query = plan.query
        return cls(
            query.kind.name,
            query.kind.words(),
            query.length,
            noise_sd,
            signal.noise_over_sampling,
            plan.ciphertexts,
            plan.upload_bytes_per_party,
            query.encoding.slot_bits,
            query.encoding.fraction_bits,
        )
