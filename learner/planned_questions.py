"""The plan of a training or an evaluation: what it would ask a federation, and what that costs. Nothing is sent.

The learner's own code asks, each query is planned as for the federation, and its answer is made up.

No figure of privacy depends on answers: an oracle calibrates noise to a part of the budget and to the sensitivity, and
an estimator that stops early counts its whole budget. The clipping norm of a gradient may depend on them, and so may
the number of queries before an early stop.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.records.persons import Persons, factor_of
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.composition import Unanswered
from learner.planning import Plan, megabytes
from learner.requests import Request
from radobase.presentation.notebook import fragment
from radobase.printing import amount
from wire.query import Query, setting_of

if TYPE_CHECKING:
    from learner.answer_source import AnswerSource
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation

_MADE_UP = (
    "What answers decide, such as the length that gradients are clipped to, is that of made-up rows. Nothing was asked."
)
# Made-up rows: enough that every feature varies, few enough to be summed at once.
_MADE_UP_ROWS, _SEED = 512, 2015


class _Summed(Protocol):
    """The kinds of queries that a budget has: sums over records, and noise."""

    def sums(self, records: Records, fraction_bits: int) -> NDArray[np.int64]: ...


@dataclass(frozen=True, eq=False)
class MadeUpAnswer:
    """A made-up total: a `learner.answer_source.Answer`."""

    query: Query
    integers: NDArray[np.int64]
    party_rows: Mapping[str, int]
    digest: bytes
    statement: PrivacyStatement
    attempts: int = 1

    @classmethod
    def of(cls, plan: Plan, records: Records, party_rows: Mapping[str, int]) -> "MadeUpAnswer":
        """The total of these records without noise, repeated as often as parties have rows, or persons."""
        query, rows = plan.query, sum(party_rows.values())
        total = cast("_Summed", query.kind).sums(query.seen(records), query.encoding.fraction_bits)
        each = factor_of(None if query.persons is None else Persons())
        scaled = np.rint(total * (each * rows / records.rows)).astype(np.int64)
        return cls(
            query,
            scaled.reshape(query.kind.shape(query.d)),
            party_rows,
            plan.query_id,
            statement_for(
                query.kind, tuple(party_rows.values()), query.delta, schema=query.schema, setting=setting_of(query)
            ),
        )


def made_up_records(schema: Schema) -> Records:
    """Rows of independent features, spread evenly, with labels that a linear classifier can learn."""
    rng = np.random.default_rng(_SEED)
    x = np.hstack([group.draw(rng, _MADE_UP_ROWS) for group in schema.groups])
    scores = x @ rng.normal(size=x.shape[1])
    labels = schema.label.coding.spread(np.argsort(np.argsort(scores)) / _MADE_UP_ROWS)
    if schema.bias:
        x = np.hstack([x, np.ones((_MADE_UP_ROWS, 1))])
    usable = np.ones(_MADE_UP_ROWS, dtype=np.bool_)
    return Records(np.rint(x * ONE).astype(np.int32), labels, usable, coding=schema.label.coding)


class _MadeUpSource:
    """Plans as a federation's source, and makes answers up: a `learner.answer_source.AnswerSource`."""

    def __init__(self, source: "AnswerSource", schema: Schema, units: int) -> None:
        """units: the rows, or persons, of all parties."""
        self._source, self._schema, self._units = source, schema, units
        self.plans: list[Plan] = []

    @cached_property
    def _records(self) -> Records:
        return made_up_records(self._schema)

    @property
    def rows(self) -> int:
        return self._units

    @property
    def persons(self) -> int:
        return self._units

    @property
    def earlier(self) -> tuple[MadeUpAnswer, ...]:
        return ()

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        return ()

    def plan(self, request: Request) -> Plan:
        return self._source.plan(request)

    def answer(self, plan: Plan) -> MadeUpAnswer:
        self.plans.append(plan)
        return MadeUpAnswer.of(plan, self._records, self._held(plan))

    def _held(self, plan: Plan) -> dict[str, int]:
        """Each party's rows, or persons: as stated, or as many for each."""
        stated = plan.party_rows or ()
        if sum(stated) != self._units:
            parties = len(stated) or plan.query.cohort_min
            stated = tuple(
                max(1, self._units * (n + 1) // parties - self._units * n // parties) for n in range(parties)
            )
        return {f"party-{number}": rows for number, rows in enumerate(stated, start=1)}


@dataclass(frozen=True, eq=False)
class PlannedQuestions:
    """What a training or an evaluation asks and costs. Nothing was asked."""

    what: str
    plans: tuple[Plan, ...]
    """Its queries, in order; of an estimator that may stop early, those over made-up rows."""
    statement: PrivacyStatement
    """Of all answers, and of the budget that is left."""
    left: Fraction
    """The part of the budget that these queries leave."""
    notes: tuple[str, ...] = ()
    """What the sizes and the budget make an estimator leave out, such as curves."""
    warning: str | None = None
    """That the budget will measure few coefficients."""

    @property
    def upload_bytes_per_party(self) -> int:
        """Of all queries, without envelopes."""
        return sum(plan.upload_bytes_per_party for plan in self.plans)

    def sentences(self) -> list[str]:
        """The plan, each a sentence."""
        schema, first = self.plans[0].query.schema, self.plans[0]
        head = (
            f"Over schema {schema.name!r}, {schema.d} coordinates: {self.what} asks {amount(len(self.plans), 'time')}."
        )
        said = [head, *(f"Note: {note}." for note in self.notes), *self._queries()]
        if self.left:
            said.append("It may ask more, within the budget: the whole budget counts.")
        said += self.statement.short_sentences()
        said += [] if first.vanishing is None else first.vanishing.sentences()
        said += [
            f"Each party uploads {megabytes(self.upload_bytes_per_party)} MB in all.",
            *(f"Warning: {sentence}." for sentence in first.warnings),
        ]
        said += [] if self.warning is None else [f"Warning: {self.warning}"]
        return [*said, _MADE_UP]

    def _queries(self) -> list[str]:
        """The queries, those in succession that are alike in one sentence."""
        kinds = [plan.query.words for plan in self.plans]
        starts = [place for place, words in enumerate(kinds) if place == 0 or kinds[place - 1] != words]
        ends = [*starts[1:], len(kinds)]
        many = [end - start for start, end in zip(starts, ends, strict=True)]
        return [
            f"It asks {'' if count == 1 else f'{count} times: '}{kinds[start]}."
            for start, count in zip(starts, many, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        said = self.statement
        return {
            "what": self.what,
            "queries": [plan.query.words for plan in self.plans],
            "epsilon": said.epsilon,
            "epsilon_if_others_collude": said.epsilon_if_others_collude,
            "delta": said.delta,
            "upload_bytes_per_party": self.upload_bytes_per_party,
            "notes": list(self.notes),
            "coefficients_warning": self.warning,
            "vanishing": None if (vanishing := self.plans[0].vanishing) is None else vanishing.to_dict(),
        }

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        return fragment("Plan", self.sentences())


def planned_questions(
    federation: "Federation",
    what: str,
    units: int,
    ask: "Callable[[Federation], tuple[BudgetedOracle, tuple[str, ...], str | None]]",
) -> PlannedQuestions:
    """What `ask` asks of a federation, which it gives an oracle, notes and a warning of.

    units: the rows of all parties, or their persons. Raises PlanError if these are not known, and what asking raises.
    """
    if not units:
        raise PlanError(
            f"no party states its rows, so what {what} asks is not known: ask a statistic first, which tells them, or "
            "plan with `rado plan --party-rows`"
        )
    source = _MadeUpSource(federation.source, federation.schema, units)
    oracle, notes, warning = ask(federation.over(source))
    return PlannedQuestions(what, tuple(source.plans), oracle.statement(), oracle.left, notes, warning)
