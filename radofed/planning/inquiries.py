"""The plan of an inquiry for parties of given sizes: it contacts no one."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from dpcore.evaluation.descriptive.inquiry import Inquiry
from dpcore.records.schema import Schema
from learner.federation import Federation
from learner.inquiring import PlannedInquiry
from learner.planning import Plan
from learner.requests import Request
from radofed.planning.made_up import MadeUpFederation
from wire.request_fields import KEY_BITS


@dataclass(frozen=True)
class _PlansOnly:
    """A `learner.answer_source.AnswerSource` that is never asked."""

    made_up: MadeUpFederation
    earlier: tuple[()] = ()
    unanswered: tuple[()] = ()

    @property
    def rows(self) -> int:
        return sum(self.made_up.party_rows.values())

    @property
    def persons(self) -> int:
        return self.rows

    def plan(self, request: Request) -> Plan:
        return self.made_up.plan(request)

    def answer(self, plan: Plan) -> NoReturn:
        raise AssertionError(plan)


def plan_inquiry(
    inquiry: Inquiry,
    schema: Schema,
    party_rows: Sequence[int],
    *,
    epsilon: Fraction,
    delta: Fraction,
    key_bits: int = KEY_BITS,
    **terms: Any,
) -> PlannedInquiry:
    """The cost and the expected intervals. terms: options of `learner.requests.Terms`.

    Raises PlanError if the budget cannot measure it, and ConfigurationError.
    """
    federation = Federation(_PlansOnly(MadeUpFederation(party_rows, key_bits)), schema, **terms)
    return federation.planned_inquiry(inquiry, epsilon=epsilon, delta=delta)
