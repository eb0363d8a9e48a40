"""The report as a page, and the plots of budgets over time."""

import datetime as dt
import math
from collections.abc import Sequence

from dpcore.accounting.odds import EXCEPTIONS
from dpcore.numbers.rationals import upper_digits
from parties.report.budgets import Period, ScopeBudget
from parties.report.gathering import MOST_LISTED, Report
from parties.report.registry import registry_entry
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
from radobase.presentation.svg import Plot, Scale, Tick
from radobase.presentation.words import GUARANTEE, NO_PURPOSE, day, explained

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
