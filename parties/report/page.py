"""The report as a page: its sentences, and the plots of budgets over time."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpcore.accounting.odds import EXCEPTIONS
from dpcore.accounting.words import limit as limit_words
from dpcore.numbers.rationals import upper_digits
from parties.ledger.budgets import Period, ScopeBudget, scope_words
from parties.policy import Policy, ScopeLimit
from parties.report.gathering import MOST_LISTED, Report
from radobase.presentation import words as shared
from radobase.presentation.page import Document
from radobase.presentation.svg import Plot, Scale, Tick
from radobase.presentation.words import (
    GUARANTEE,
    NO_PURPOSE,
    OF_STUDIES,
    Sentence,
    actor,
    day,
    entry,
    explained,
    parameters,
    texts,
    unit,
)
from radobase.printing import amount, json_text

# What a report says in words: the policy, what is assumed, what is not protected, who could learn what.
#
# Each sentence about protection names the part of docs/threat-model.md that it repeats, and claims no more than that.


RECORD = "one row of this party's table, replaced by any other row that the schema takes"
SIGN_OFF = (
    "Purpose and justification stated by",
    "Measures approved by",
    "Residual risk accepted by",
    "Advice of the data protection officer given by",
    "Advice accepted or overruled by",
    "Kept under review by",
)
"""What people of the organisation sign for."""
_DESIGNS = {
    "plain": "sums over random halves of the rows, without noise",
    "dp-feat": "sums over random halves of the rows, by which one column's own values are covered",
    "dp-feat-joint": "sums over random halves of the rows, with noise on one column",
    "fixed-support": "sums over fixed sets of rows, from a table with or without noise",
    "gaussian": "sums over random halves of the rows, with noise on every number",
    "moments": "means and products of columns, with noise",
    "statistic": "counts and averages of what the learner names, with noise",
    "local-statistic": "counts of what the learner names, of rows whose answers are flipped at random here",
    "gradient": "steps of a model's training, with noise",
}


_UNPROTECTED = ("plain", "dp-feat")
"""Kinds of query that always leave whole records unprotected."""


@dataclass(frozen=True)
class Consequence:
    """What a member could learn of this party's rows. who: who misbehaves, and with whom."""

    who: str
    learns: str
    source: str


def policy_words(policy: Policy) -> Iterator[str]:
    """The policy, one sentence for each rule."""
    limits = policy.limits
    if not policy.learners or not policy.designs:
        yield "Every query is refused: the policy lists no learner or no kind of query."
    names = ", ".join(learner.name for learner in policy.learners)
    yield f"May ask, with the key that the policy pins: {names or 'no one'}."
    refused = () if policy.allow_unprotected else tuple(name for name in policy.designs if name in _UNPROTECTED)
    kinds = "; ".join(f"{name} ({_DESIGNS[name]})" for name in policy.designs if name not in refused)
    yield f"May be asked: {kinds or 'nothing'}."
    if policy.allow_unprotected:
        yield (
            "Queries that leave whole records unprotected are allowed, "
            f"at most {amount(limits.unbounded_queries, 'attempt')} over the lifetime of the data."
        )
    else:
        yield "Queries that leave whole records unprotected are refused" + (
            f"; the policy lists such a kind in vain: {', '.join(refused)}." if refused else "."
        )
    if policy.purpose_required:
        yield "Queries that state no purpose, neither their own nor that of a study, are refused."
    yield from _study_words(policy)
    yield (
        f"This party answers only together with others: at least {policy.members_needed(1)} parties, itself included, "
        f"whose keys it has accepted. {_collusion(policy)}"
    )
    whole = limit_words(limits.epsilon, limits.delta)
    yield f"Budget over the lifetime of the data and all learners, in each scope: {whole}."
    for scope, limit in _own_limits(policy):
        yield f"Budget {scope}: {limit_words(limit.epsilon, limit.delta)}."
    yield (
        f"One query: delta at most {float(limits.delta_per_query):g}, {limits.rados_per_query} rados, "
        f"{limits.predicates_per_query} predicates, {limits.map_terms_per_query} terms of a feature map, "
        f"{amount(limits.attempts_per_query, 'attempt')}, and {_duration(limits.lifetime_per_query_s)} until it "
        "expires."
    )
    yield from _approval_words(policy)
    yield (
        f"What was asked is kept for {amount(policy.history.days, 'day')}, its predicates for "
        f"{amount(policy.history.predicates_days, 'day')}. Charges are kept for ever."
    )


def _study_words(policy: Policy) -> Iterator[str]:
    if policy.study_required:
        yield "Queries that name no study are refused."
    if policy.studies:
        numbers = "; ".join(json_text(each.protocol_number) for each in policy.studies)
        yield f"Of studies, these are allowed, by protocol number: {numbers}."
    for each in policy.studies:
        if each.learners:
            yield f"Within study {json_text(each.protocol_number)} may ask: {', '.join(each.learners)}."


def limit_changes(report: Report) -> Iterator[str]:
    """What is known of changes of the limits and of other rules, in sentences."""
    read = report.policies
    if not read.policies:
        yield "Not known: no decision that is kept names the limits that it followed."
    elif report.limits_changed:
        within = {True: "also within the period", None: "perhaps within the period", False: "outside of the period"}
        yield f"Yes, {within[report.limits_changed_in_period]}. The table lists the limits that decisions followed."
    else:
        yield f"No change is known. Decisions that name the limits of now: {sum(e.decisions for e in read.policies)}."
    if len({each.digest for each in read.policies} | {report.policy.digest}) > 1 and read.policies:
        changes = len(read.policies) - 1 + (read.policies[-1].digest != report.policy.digest)
        yield f"Changes of the policy that are known, of limits or other rules: {changes}."
    if read.unknown:
        yield f"Decisions of earlier versions of the program, which noted no limits: {read.unknown}."
    yield (
        f"Decisions are kept for {amount(report.policy.history.days, 'day')}. A change that was taken back before "
        "the next "
        "decision is not noticed."
    )


def _approval_words(policy: Policy) -> Iterator[str]:
    rules = policy.approval
    if not rules.asks:
        yield "No query waits for a person: what the rules above allow is answered at once."
        return
    which = [
        *(["every query"] if rules.everything else []),
        *([f"queries of the kinds {', '.join(rules.designs)}"] if rules.designs else []),
        *([f"queries of {', '.join(rules.learners)}"] if rules.learners else []),
        *(
            [
                (
                    f"queries with which the learner would spend epsilon {float(rules.epsilon_at_least):g} or more "
                    "since its last approval, all allowed attempts counted, or that have no bound"
                )
            ]
            if rules.epsilon_at_least is not None
            else []
        ),
        *(
            ["statistics that are not on the list of admitted predicates"]
            if rules.admitted_predicates is not None
            else []
        ),
    ]
    people = "one person" if rules.approvers == 1 else f"{rules.approvers} people"
    yield f"Wait for the approval of {people}: {'; '.join(which)}. One refusal refuses a query."
    # The program proves no one's identity, so a report must not say that different people decided.
    who = (
        f"These decide: {', '.join(rules.users)}, or delegates whom they name for a time."
        if rules.users
        else ("Who may write this party's state directory, or the directory for decisions, may decide.")
    )
    yield f"People are distinguished by the user of the operating system, or by who signed on. {who}"
    excluded = [learner.name for learner in policy.learners if learner.requesters]
    if excluded:
        yield f"People whom the policy lists as asking do not decide on the queries of {', '.join(excluded)}."
    else:
        yield "The policy lists no one as asking with a learner's key, so no one is excluded from deciding for that."


def _own_limits(policy: Policy) -> Iterator[tuple[str, ScopeLimit]]:
    limits = policy.limits
    if limits.record is not None:
        yield "for whole records, instead", limits.record
    yield from ((f"for column {name}, instead", limit) for name, limit in limits.columns.items())
    yield from ((f"for feature {name}, instead", limit) for name, limit in limits.features.items())
    if limits.per_learner is not None:
        yield "for each learner, in addition", limits.per_learner
    if limits.per_day is not None:
        yield "for any 24 hours, in addition", limits.per_day
    yield from ((f"for study {json_text(number)}, in addition", limit) for number, limit in limits.studies.items())
    if limits.per_study is not None:
        yield f"for each {'other ' * bool(limits.studies)}study, in addition", limits.per_study


def _collusion(policy: Policy) -> str:
    return (
        f"At most {policy.assumed_colluders} of the parties that this party accepted are assumed to collude with the "
        "learner and the coordinator."
    )


def _duration(seconds: int) -> str:
    return f"{seconds / 86_400:g} days" if seconds >= 86_400 else f"{seconds} seconds"


def consequences(report: Report) -> list[Consequence]:
    """Who could learn what about this party's rows, from the best case to the worst."""
    c, h = report.policy.assumed_colluders, honest_parties(report)
    budget = "No budget bounds" if report.unbounded else "The budget bounds"
    return [
        Consequence(
            "No one: all follow the protocol",
            "The coordinator learns who takes part, when, from where, with how many rows, why a party refuses, and "
            "what is asked. It reads no row, no sum and no total. The learner reads the totals over all parties of an "
            "attempt, with noise where the kind of query has it, and the numbers of rows.",
            "1, 4.6",
        ),
        Consequence(
            "The coordinator alone",
            "Still no row, no sum and no total, except for what the learner's behaviour reveals, such as its next "
            "question. It decides who was in time, and can keep back or spoil a total: this party is then charged "
            "and no one gets a result.",
            "P1, 4.1, 4.13",
        ),
        Consequence(
            "The learner alone",
            "Totals over all parties of an attempt, never this party's part. It may aim its questions at one person. "
            f"{budget} what the composition of all answers says about one row. It may let others open the totals too.",
            "P2, 4.8, 4.13",
        ),
        Consequence(
            "The coordinator together with parties, without the learner",
            "What the coordinator alone learns, and their own sums.",
            "P1",
        ),
        Consequence(
            f"The learner together with up to {c} of the parties that this party accepted, and any that it did not "
            "accept, whether the coordinator works with them or not",
            "Of one attempt: a sum over at least two parties that do not work with them, this party included, or "
            "nothing. Such a sum may say much about one of the two, and sums of several attempts can be compared. "
            f"{budget} what the composition of all answers says about one row.",
            "P3, P4",
        ),
        Consequence(
            f"The learner together with more than {c} of the accepted parties, or with a person who has copies of the "
            "signing keys of parties, whether the coordinator works with them or not",
            "This party's own sum in an attempt. The noise in it is then that of the parties that do not work with "
            f"them: the figures hold only while at least {h} parties, this one among them, keep their noise to "
            "themselves, and if a query's noise follows the cohort, all but as many as it allows for.",
            "P3, P4, 4.2",
        ),
        Consequence(
            "Another party alone",
            "Nothing about this party's rows but their number. It can send wrong numbers and so spoil a result, and "
            "this party is charged all the same.",
            "4.7",
        ),
        Consequence(
            "A person who controls this party's computer, or reads its files",
            "Everything that is there, the rows included.",
            "4.10, 5",
        ),
    ]


def honest_parties(report: Report) -> str:
    """Of how many parties the noise is counted, in words."""
    found = report.honest_parties
    if not found:
        return "as many as a query states"
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]} (each query states the number)"


def assumptions(report: Report) -> list[Sentence]:
    """What the figures and the table of consequences take for granted."""
    policy = report.policy
    found = [
        shared.NOISE_KEPT,
        Sentence(
            f"{_collusion(policy)} Parties that it did not accept may all do so.",
            "P3",
        ),
        Sentence("Fingerprints were compared truthfully, and signing keys were only ever with their owners.", "4.2"),
        Sentence("The ledger is the only one for these rows, and is not replaced by an older copy.", "P5, P7"),
        shared.GOOD_COMPUTERS,
        shared.CRYPTOGRAPHY,
    ]
    if len(report.budgets) > 1:
        found.append(
            Sentence(
                "A feature's own budget holds only if the questions depend on nothing but that feature's own released "
                "values. After an attempt without a bound this is required in every scope that it did not bound.",
                "P5",
            )
        )
    if policy.required_witnesses == 0:
        found.append(
            Sentence(
                "The policy asks no other member whether this ledger is an older copy (required_witnesses is 0): "
                "that it is not is assumed.",
                "P7, 4.3",
            )
        )
    return found


def not_protected(report: Report) -> list[Sentence]:
    """What no figure of the report covers."""
    unprotected = (
        f"The policy allows them. Attempts at them that were charged until the end of the period: {report.unbounded}."
        if report.policy.allow_unprotected
        else "The policy refuses them."
    )
    return [
        shared.SEVERAL_ROWS,
        shared.GROUPS,
        Sentence(
            "Queries without noise on whole rows (plain, dp-feat, fixed-support without noise) can reveal rows. "
            f"{unprotected}",
            "4.4, 4.5",
        ),
        Sentence(
            "Who takes part, when, from where, with how many rows, why a party refuses, and what is asked. "
            "Questions and the schema (columns, bounds, category texts) are seen by every party and the coordinator.",
            "4.6, 4.13",
        ),
        Sentence("The same rows under another name, at another party or in another federation: counted apart.", "4.3"),
        Sentence(
            "This party's sum is not protected against a person who made or copied the members' signing keys and works "
            "with the learner.",
            "4.2",
        ),
        Sentence(
            "An older copy of the ledger is noticed only if a member that saw the lost attempts answers truthfully: "
            "never restore one without `rado ledger acknowledge`.",
            "4.3",
        ),
        Sentence("Keys and rows on this party's disk: files are not encrypted by this program.", "4.10"),
        Sentence("The time that computing takes, for a person who runs programs on the same computer.", "4.12"),
        shared.WRONG_RESULTS,
    ]


# The report in the fields of the registry of deployments, as far as a party knows them.


def registry_entry(report: Report) -> dict[str, Any]:
    """The fields of a registry entry, in JSON types."""
    policy, record = report.policy, report.record
    bound = parameters(record.limit_epsilon, record.limit_delta)
    daily = "" if policy.limits.per_day is None else " A further limit holds for any 24 hours."
    return entry(
        product={
            "name": f"{report.federation}, data of {report.party}",
            "data_curators": [member.name for member in report.parties] or [report.party],
            "description": (
                f"{amount(report.count, 'query')} {'was' if report.count == 1 else 'were'} shown to {report.party} "
                f"in the period, {amount(report.charged, 'attempt')} {'was' if report.charged == 1 else 'were'} charged"
            ),
        },
        dp_flavor={
            "name": "Approximate DP, enforced by filters over (epsilon, delta) and over Renyi divergences",
            "bound_on_output_distance": bound,
            "unprotected_quantities": texts(not_protected(report)),
        },
        privacy_loss={
            "privacy_unit_description": unit(RECORD),
            "privacy_parameters": bound,
            "privacy_parameters_description": (
                "The limit for whole records over the lifetime of the data and all learners. What is spent is a bound "
                "only if the costs were not chosen by the answers."
            ),
            "scopes": list(map(_scope, report.budgets)),
        },
        model={
            "actors": [actor(member, policy_of_this_party=member.trust) for member in report.members],
            "collusion": _collusion(policy),
            "analysts_collusion": (
                "Covered: the limits hold for the composition of all learners' queries. Several learners that are one "
                "person get several times a limit for each learner, and never more than the lifetime's."
            ),
            "release_type_description": "Each charged attempt at a query counts as a release.",
            "data_source_type_description": (
                "The party reads its table at start, and when its people tell it to. One ledger counts one data "
                f"source, under the name {report.data_source}, also if its rows change."
            ),
        },
        accounting={
            "composition": (
                "Basic composition and Renyi divergences with adaptively chosen parameters, each as a filter: "
                "Rogers and others 2016; Feldman and Zrnic 2021; Whitehouse and others 2023."
            ),
            "budget_refresh": f"None: the limits hold over the lifetime of the data.{daily}",
            "attempts_charged_in_the_period": report.charged,
            "studies": [each.to_dict() for each in report.studies],
        },
        implementation={"software": f"radofed {report.version}", "assumptions": texts(assumptions(report))},
    )


def _scope(budget: ScopeBudget) -> dict[str, Any]:
    return {
        "scope": budget.scope,
        "limit": parameters(budget.limit_epsilon, budget.limit_delta),
        "spent_epsilon": budget.spent,
        "remaining_epsilon": budget.remaining,
        "remaining_pure_epsilon": budget.remaining_pure,
        "remaining_gaussian_epsilon": budget.remaining_gaussian,
        "releases_without_a_bound": budget.unbounded,
    }


_MOST_PLOTS = 4
_SHORT_S = 4 * 86_400


def document(report: Report) -> Document:
    """The page of a report."""
    period = report.period
    policy = list(policy_words(report.policy))
    values = {
        "report": report,
        "record": report.record,
        "record_words": RECORD,
        "plots": budget_plots(report.budgets, period, report.as_of_unix_s),
        "explained": explained((*(query.read.words for query in report.queries), *policy, "epsilon")),
        "policy": policy,
        "changes": list(limit_changes(report)),
        "limits_now": str(report.policy.limits.of_ledger),
        "chance_rows": [(each.before, each.after_spent, each.after_limit) for each in report.chances],
        "guarantee": GUARANTEE,
        "no_purpose": OF_STUDIES if report.studies_named else NO_PURPOSE,
        "as_of": report.as_of_unix_s,
        "scope_words": scope_words,
        "assumptions": assumptions(report),
        "not_protected": not_protected(report),
        "consequences": consequences(report),
        "registry": registry_entry(report),
        "most_listed": MOST_LISTED,
        "exceptions_of": EXCEPTIONS,
        "honest": honest_parties(report),
        "to_sign": SIGN_OFF,
        "who_opens": shared.who_opens_a_part(report.policy.assumed_colluders),
    }
    title = f"Privacy report of {report.party}, {day(period.since_unix_s)} to {day(period.until_unix_s)}"
    return Document("parties.report", "party_report.html", title, values)


def budget_plots(budgets: Sequence[ScopeBudget], period: Period, as_of_unix_s: float) -> list[tuple[Plot, str]]:
    """Plots over a period, with their words: of whole records, and of the first scopes of which something was spent.

    budgets: whole records first. A budget with an infinite figure has no plot: no line of it is true.
    """
    record, *others = budgets
    moved = [budget for budget in others if budget.spent > budget.before]
    shown = [
        budget
        for budget in (record, *moved[: _MOST_PLOTS - 1])
        if all(map(math.isfinite, (budget.before, *(value for _, value in budget.steps))))
    ]
    return [_budget_plot(budget, period, as_of_unix_s, f"plot-{place}") for place, budget in enumerate(shown, 1)]


def _budget_plot(budget: ScopeBudget, period: Period, as_of_unix_s: float, id_: str) -> tuple[Plot, str]:
    since, until = period.since_unix_s, period.until_unix_s
    values = [budget.before, *(value for _, value in budget.steps)]
    words = (
        f"Epsilon spent for {budget.scope}: {upper_digits(values[0], 4)} on {_date(since, period)}, "
        f"{upper_digits(values[-1], 4)} on {_date(as_of_unix_s, period)}. The limit is {budget.limit_epsilon:.4g}."
    )
    plot = Plot(
        id_,
        f"Budget over time: {budget.scope}",
        words,
        Scale(since, until),
        Scale(0.0, max(budget.limit_epsilon, *values) * 1.05 or 1.0),
        heading="epsilon spent (solid line), limit (dashed line)",
        label="date",
        ticks=[Tick(at, _date(at, period)) for at in (since, since + (until - since) / 2, until)],
    )
    plot.level(budget.limit_epsilon)
    points = [(since, values[0])]
    for (at, _), before, after in zip(budget.steps, values[:-1], values[1:], strict=True):
        points += [(at, before), (at, after)]
    plot.line([*points, (as_of_unix_s, values[-1])])
    plot.point(as_of_unix_s, values[-1])
    return plot, words


def _date(unix_s: float, period: Period) -> str:
    """A local date; in a short period with the time."""
    if period.until_unix_s - period.since_unix_s > _SHORT_S:
        return day(unix_s)
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC).astimezone():%m-%d %H:%M}"
