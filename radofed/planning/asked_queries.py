"""Plans of what estimators ask, and of statistics: the learner's own code, run against parties that hold no rows.

Queries are planned for a made-up roster, so noise, sizes and costs are those of real ones. Answers are of made-up rows.

No figure of privacy depends on answers: an oracle calibrates noise to a part of the budget and to the sensitivity, and
an estimator that stops early counts its whole budget. The clipping norm of a gradient after moments may, and so may the
number of queries before an early stop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.errors import ConfigurationError, PlanError
from dpcore.records.features import nearest
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.adaptive import Adaptive, Way
from learner.composition import Unanswered
from learner.estimators import BY_QUERIES, FROM_RELEASES, class_of
from learner.federation import Federation
from learner.planned_questions import MadeUpAnswer, made_up_records
from learner.planning import Plan
from learner.progress import WouldAccept
from learner.requests import BudgetRequest, NoisyTerms, Request
from learner.session import Session
from learner.training import AskedTraining
from radobase.printing import listed
from radofed.planning.design_cost import MOST_PLANNED_ROWS
from radofed.planning.made_up import MadeUpFederation, cohort_terms, made_up_schema
from radofed.planning.remedies import first_in, larger_delta, larger_epsilon, more_rows
from radofed.planning.signal import Signal
from wire.request_fields import (
    ADAPTIVE,
    CONFIDENCE,
    DELTA_OR_ZERO,
    KEY_BITS,
    KEY_SIZE,
    LOCAL,
    MAY_VANISH,
    NOISE_RATE,
    USUAL_DELTA,
    TrainOptions,
    UnitFields,
)


@dataclass(frozen=True, kw_only=True)
class AskRequest(UnitFields):
    """What is to be asked within one budget: what an estimator asks, or a batch of statistics.

    Raises ConfigurationError if an argument makes no sense for any plan.
    """

    party_rows: tuple[int, ...]
    """Rows, or persons."""
    schema: Schema
    epsilon: Fraction
    """Of the whole budget, under collusion."""
    delta: Annotated[Fraction, DELTA_OR_ZERO] = USUAL_DELTA
    """0: Laplace noise only."""
    estimator: str | None = None
    """A key of learner.estimators.BY_QUERIES; None if `predicates` are asked."""
    options: Mapping[str, Any] = field(default_factory=dict)
    predicates: tuple[str, ...] = ()
    """As texts; they, and the next three, are as of dpcore.estimators.oracle.Oracle."""
    tolerance: float | None = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    noise_rate: Annotated[float, NOISE_RATE] = 0.0
    adaptive: Annotated[int | None, ADAPTIVE] = None
    way: Way | None = None
    """Of an adaptive series; None for the one that promises the smallest tolerance."""
    local: Annotated[bool, LOCAL] = False
    honest: int | None = None
    may_vanish: Annotated[int | None, MAY_VANISH] = None
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
    def series(self) -> Adaptive | None:
        """The series of questions that it begins; None if no answer chooses questions."""
        return None if self.adaptive is None else Adaptive(self.adaptive, self.way)

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
        """The options of each query that follow from `honest`, and the unit of privacy."""
        unit = {"unit": self.unit, "persons_may_repeat": self.persons_may_repeat}
        return {**cohort_terms(len(self.party_rows), self.honest, self.may_vanish), **unit}


class PlannedParties:
    """Parties without rows: a `learner.answer_source.AnswerSource` that plans each query and makes its answer up.

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
    def persons(self) -> int:
        """The same, of a plan for persons."""
        return self._request.rows

    @property
    def earlier(self) -> tuple[MadeUpAnswer, ...]:
        """None: nothing is asked before a plan."""
        return ()

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """None: a plan is of one attempt for each query."""
        return ()

    def plan(self, request: Request) -> Plan:
        """The plan of a request, with the features of this version's nodes; see `AnswerSource`."""
        planned = self._federation.plan(request)
        assert isinstance(request, NoisyTerms), "a budget has three kinds of queries"
        self._part_of[planned.query_id] = request.part
        return planned

    def answer(self, plan: Plan) -> MadeUpAnswer:
        """The total of the made-up rows, repeated as often as parties have rows, without noise."""
        self.plans.append(plan)
        self.parts.append(self._part_of[plan.query_id])
        return MadeUpAnswer.of(plan, self._records, self._federation.party_rows)


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


# All kinds of queries that a training asks, each at the whole budget, to ask parties about them before the first.
#
# Whatever its answers are, an estimator asks these kinds of queries, and their parts add up to one: a query that takes
# the whole budget costs a party as much as all of them.


class _Recording(PlannedParties):
    """Parties without rows that keep the longest request of each kind."""

    def __init__(self, request: AskRequest) -> None:
        super().__init__(request)
        self.longest: dict[str, tuple[int, BudgetRequest]] = {}

    def plan(self, request: Request) -> Plan:
        """See `PlannedParties`."""
        plan = super().plan(request)
        name, length = plan.query.kind.name, plan.query.length
        if isinstance(request, BudgetRequest):
            self.longest[name] = max(self.longest.get(name, (0, request)), (length, request), key=lambda each: each[0])
        return plan


def whole_training(
    name: str, options: TrainOptions, schema: Schema, party_rows: Sequence[int]
) -> tuple[list[BudgetRequest], str]:
    """The requests of a training, the longest of each kind at the whole budget, and the estimator's warning.

    party_rows: of the accepted parties. Raises what the estimator raises
    before it asks, such as PlanError.
    """
    training = AskedTraining.of(name, options, schema)
    parties = _Recording(
        AskRequest(
            party_rows=tuple(party_rows), schema=schema, epsilon=training.epsilon, delta=training.delta, estimator=name
        )
    )
    trained = training.run(Federation(parties, training.schema, **training.terms))
    requests = [request.whole for _, request in parties.longest.values()]
    return requests, getattr(trained.estimator, "warning_", None) or ""


def ask_whole(
    session: Session, name: str, options: TrainOptions, schema: Schema, timeout_s: float | None = None
) -> tuple[list[WouldAccept], str]:
    """What parties say to each kind of query of a training, and the estimator's warning. Nothing is charged.

    What parties say of their rows may change what the estimator asks: then it is looked at again. Raises PlanError if
    the rows of a party are not known, and what `whole_training` and `Session.would_accept` raise.
    """
    found: dict[type, WouldAccept] = {}
    while True:
        roster = session.fetch_roster()
        asked = session.selection(roster).asked
        rows = session.rows_of(asked, roster)
        if unknown := [party for party, count in rows.items() if count is None]:
            raise PlanError(
                f"the rows of {listed(unknown)} are not known: ask about a statistic first, which tells them"
            )
        requests, warning = whole_training(name, options, schema, [count or 0 for count in rows.values()])
        new = [request for request in requests if type(request) not in found]
        for request in new:
            found[type(request)] = session.would_accept(request, timeout_s)
        if not new or session.rows_of(asked, roster) == rows:
            return list(found.values()), warning


# What makes a plan of an estimator, or of statistics, possible that is not; each change was planned first.

AskWorks = Callable[[AskRequest], bool]
Change = tuple[str, AskRequest]


def what_can_be_asked(request: AskRequest, works: AskWorks, tolerance: str | None) -> str | None:
    """The changes that make the request possible, in words, joined by ", or "; None if none was found.

    works: plans a request, and says whether it is possible. tolerance: one that the rows keep, for statistics.
    """
    ways = [words for changes in _changes(request, tolerance) for words in first_in(changes, works)]
    # Below the least that an option takes, nothing works, so these are tried in order.
    smaller = (_smaller_option(request, name) for name in request.options)
    for changes in smaller:
        ways += next(([words] for words, changed in changes if works(changed)), [])
    return ", or ".join(ways) or None


def _changes(request: AskRequest, tolerance: str | None) -> Iterator[Iterator[Change]]:
    """Several ways, each as changes in the order in which they should be tried; what works, works from there on."""
    yield _other_tolerance(request, tolerance)
    yield _without_guarantee(request)
    yield _other_epsilon(request)
    yield ((f"choose {words}", changed) for words, changed in larger_delta(request))
    yield ((f"have {words}", changed) for words, changed in more_rows(request, MOST_PLANNED_ROWS))
    yield _fewer_coordinates(request)


def _other_tolerance(request: AskRequest, tolerance: str | None) -> Iterator[Change]:
    if tolerance is not None:
        yield f"accept a tolerance of {tolerance}", replace(request, tolerance=float(tolerance))


def _without_guarantee(request: AskRequest) -> Iterator[Change]:
    if request.estimator is not None and "require_rows" in class_of(request.estimator)._get_param_names():  # noqa: SLF001
        options = {**request.options, "require_rows": False}
        yield "give --option require_rows=false, which goes without the guarantee", replace(request, options=options)


def _smaller_option(request: AskRequest, name: str) -> Iterator[Change]:
    value: Any = request.options[name]
    while isinstance(value, int) and not isinstance(value, bool) and value > 1:
        value //= 2
        yield f"give --option {name}={value}", replace(request, options={**request.options, name: value})


def _other_epsilon(request: AskRequest) -> Iterator[Change]:
    if request.epsilon > LARGEST_EPSILON:
        yield f"allow an epsilon of {LARGEST_EPSILON:g}", replace(request, epsilon=Fraction(LARGEST_EPSILON))
    for words, changed in larger_epsilon(request):
        yield f"allow {words}", changed


def _fewer_coordinates(request: AskRequest) -> Iterator[Change]:
    schema = request.schema
    fewer = schema.d // 2
    while request.is_made_up and fewer >= 2:
        yield f"use at most {fewer} coordinates", replace(request, schema=made_up_schema(fewer, bias=schema.bias))
        fewer //= 2
