"""The report as one page of HTML."""

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from dpcore.accounting.odds import EXCEPTIONS
from parties.report.budgets import Period, ScopeBudget
from parties.report.gathering import MOST_LISTED, Report
from parties.report.plots import budget_plot
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
from radobase.pages import environment
from radobase.report.sentences import GUARANTEE, NO_PURPOSE, explained

_MOST_PLOTS = 4


def render(report: Report) -> str:
    """The page. Raises ModuleNotFoundError without the extra `report`."""
    return (
        _templates()
        .get_template("report.html")
        .render(
            report=report,
            record=report.record,
            record_words=RECORD,
            figures=budget_figures(report.budgets, report.period, report.as_of_unix_s),
            explained=explained(
                (*(query.read.words for query in report.queries), *policy_words(report.policy), "epsilon")
            ),
            policy=list(policy_words(report.policy)),
            changes=list(limit_changes(report)),
            limits_now=str(report.policy.limits.of_ledger),
            guarantee=GUARANTEE,
            no_purpose=NO_PURPOSE,
            assumptions=assumptions(report),
            not_protected=not_protected(report),
            consequences=consequences(report),
            registry=registry_entry(report),
            most_listed=MOST_LISTED,
            exceptions_of=EXCEPTIONS,
            honest=honest_parties(report),
        )
    )


def budget_figures(budgets: Sequence[ScopeBudget], period: Period, as_of_unix_s: float) -> list[Markup]:
    """Plots over a period, as HTML: of whole records, and of the scopes of which something was spent; the first few.

    budgets: whole records first. A budget with an infinite figure has no plot.
    """
    record, *others = budgets
    moved = [budget for budget in others if budget.spent > budget.before]
    drawn = [(budget, budget_plot(budget, period, as_of_unix_s)) for budget in (record, *moved[: _MOST_PLOTS - 1])]
    template = _templates().get_template("budget_plot.html")
    return [
        # What the template inserts is escaped.
        Markup(template.render(budget=budget, plot=plot, number=number))  # noqa: S704
        for number, (budget, plot) in enumerate(drawn, 1)
        if plot is not None
    ]


@cache
def _templates() -> Environment:
    return environment("parties.report")
