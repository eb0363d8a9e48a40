"""The composition of several releases: exact privacy figures, in words."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import ConfigurationError
from dpcore.queries.several_releases import CountedRelease, composed_cost
from dpcore.queries.statement import PrivacyStatement, rounded_up
from learner.release import Release
from wire.query import setting_of

if TYPE_CHECKING:
    from learner.federation import Answer

ASSUMED = (
    "Assumed: the releases are all that the learner saw of these records, each of one attempt; later queries did not "
    "depend on earlier answers (a party's ledger does not assume that, and charges more); and what each release's own "
    "statement assumes."
)


FIXED_NOISE = (
    "The figures are those of the composition of {count}, all that this learner saw of these records. The ratio of "
    "each release's noise to its sensitivity was fixed beforehand; queries may depend on earlier answers (adaptive "
    "composition of Gaussian, and of pure, mechanisms)."
)

WHOLE_BUDGET = (
    "The estimator stopped before it used its whole budget, and may have done so because of what it saw: the figures "
    "are those of the whole budget."
)


def composed_privacy(
    releases: Sequence[Release], delta: Fraction, *, feature: str | None = None, column: str | None = None
) -> ReleaseCost:
    """The cost of the composition of these releases, for records, or a source column, or the marginal of one feature.

    Parties are distinguished by name. Raises ConfigurationError if a release is given twice or is not of the first
    attempt, PlanError as `composed_cost` does.
    """
    if len({release.query_id for release in releases}) < len(releases):
        raise ConfigurationError("a release is given twice; give each release once")
    if late := [release for release in releases if release.cohort.attempt > 1]:
        raise ConfigurationError(
            f"the release of query {late[0].query_id.hex()[:16]} is of attempt {late[0].cohort.attempt}, and the "
            "release does not say what the learner saw of earlier attempts; see the parties' ledgers"
        )
    return composed_cost([_counted(release) for release in releases], delta, feature=feature, column=column)


def cost_of(answers: Sequence["Answer"], delta: Fraction, unspent: CountedRelease | None = None) -> ReleaseCost:
    """The cost for records of all answers within one budget; `unspent` counts as if it had been answered.

    Raises PlanError.
    """
    return composed_cost([*map(_counted, answers), *([] if unspent is None else [unspent])], delta)


def composed_statement(
    answers: Sequence["Answer"], delta: Fraction, unspent: CountedRelease | None = None
) -> PrivacyStatement:
    """The statement of all answers within one budget, for records; see `cost_of`.

    A single answer keeps its own statement. Raises ConfigurationError if there is no answer, PlanError.
    """
    if not answers:
        raise ConfigurationError("nothing was answered, so there is nothing to state")
    if len(answers) == 1 and unspent is None:
        return answers[0].statement
    cost = cost_of(answers, delta, unspent)
    return replace(
        answers[-1].statement,
        epsilon=cost.epsilon,
        delta=cost.delta,
        epsilon_if_others_collude=cost.epsilon_if_others_collude,
        assumptions=(
            FIXED_NOISE.format(count=f"{len(answers)} release{'s' * (len(answers) > 1)}"),
            *([] if unspent is None else [WHOLE_BUDGET]),
            *dict.fromkeys(text for answer in answers for text in answer.statement.assumptions),
        ),
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.statement.warnings)),
    )


def _counted(answer: "Answer") -> CountedRelease:
    return CountedRelease(answer.query.kind, answer.party_rows, answer.query.schema, setting_of(answer.query))


def sentences(cost: ReleaseCost, releases: int, what: str) -> list[str]:
    """The figures in words. what: the unit of privacy, such as "one record"."""
    who = f"The composition of the {releases} releases is" if releases > 1 else "The release is"
    figures = f"({rounded_up(cost.epsilon)}, {cost.delta!r})"
    alone = f"{who} {figures}-differentially private for {what} against the learner alone."
    collusion = (
        "Under the collusion that their statements assume, epsilon is at most "
        f"{rounded_up(cost.epsilon_if_others_collude)} at the same delta."
    )
    return [alone, collusion, ASSUMED]
