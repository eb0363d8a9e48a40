"""The report as a page, and the plots of budgets over time."""

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

from dpcore.accounting.odds import EXCEPTIONS
from dpcore.numbers.rationals import upper_digits
from parties.report.budgets import Period, ScopeBudget
from parties.report.gathering import MOST_LISTED, Report
from parties.report.sentences import (
    RECORD,
    assumptions,
    consequences,
    honest_parties,
    limit_changes,
    not_protected,
    policy_words,
)
from radobase.presentation.page import Document
from radobase.presentation.registry import TRUST, entry, parameters, texts, unit
from radobase.presentation.svg import Plot, Scale, Tick
from radobase.presentation.words import GUARANTEE, NO_PURPOSE, day, explained
from radobase.printing import amount

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
            "scopes": [
                {
                    "scope": budget.scope,
                    "limit": parameters(budget.limit_epsilon, budget.limit_delta),
                    "spent_epsilon": budget.spent,
                    "remaining_epsilon": budget.remaining,
                    "remaining_pure_epsilon": budget.remaining_pure,
                    "remaining_gaussian_epsilon": budget.remaining_gaussian,
                    "releases_without_a_bound": budget.unbounded,
                }
                for budget in report.budgets
            ],
        },
        model={
            "actors": [
                {
                    "name": member.name,
                    "role": member.role,
                    "trust": TRUST[member.role],
                    "policy_of_this_party": member.trust,
                    "fingerprint": member.fingerprint or None,
                    "left_after_roster": member.left_after,
                }
                for member in report.members
            ],
            "collusion": (
                f"Assumed: up to {policy.assumed_colluders} of the parties that this party accepted work with "
                "coordinator and learner."
            ),
            "analysts_collusion": (
                "Covered: the limits hold for all learners together. Several learners that are one person get several "
                "times a limit for each learner, and never more than the lifetime's."
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
        },
        implementation={"software": f"radofed {report.version}", "assumptions": texts(assumptions(report))},
    )


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
        "no_purpose": NO_PURPOSE,
        "assumptions": assumptions(report),
        "not_protected": not_protected(report),
        "consequences": consequences(report),
        "registry": registry_entry(report),
        "most_listed": MOST_LISTED,
        "exceptions_of": EXCEPTIONS,
        "honest": honest_parties(report),
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
