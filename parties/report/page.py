"""The report as one page of HTML."""

from dpcore.accounting.odds import EXCEPTIONS
from parties.report.budgets import ScopeBudget
from parties.report.gathering import MOST_LISTED, Report
from parties.report.plots import Plot, budget_plot
from parties.report.registry import registry_entry
from parties.report.sentences import RECORD, assumptions, consequences, not_protected, policy_words
from radofed.common.pages import environment
from radofed.common.report.sentences import explained

_MOST_PLOTS = 4


def render(report: Report) -> str:
    """The page. Raises ModuleNotFoundError without the extra `report`."""
    return (
        environment("parties.report")
        .get_template("report.html")
        .render(
            report=report,
            record=report.record,
            record_words=RECORD,
            plots=_plots(report),
            explained=explained(
                (*(query.read.words for query in report.queries), *policy_words(report.policy), "epsilon")
            ),
            policy=list(policy_words(report.policy)),
            assumptions=assumptions(report),
            not_protected=not_protected(report),
            consequences=consequences(report),
            registry=registry_entry(report),
            most_listed=MOST_LISTED,
            exceptions_of=EXCEPTIONS,
        )
    )


def _plots(report: Report) -> list[tuple[ScopeBudget, Plot]]:
    """Whole records, and the scopes of which something was spent in the period; the first few."""
    moved = [budget for budget in report.budgets[1:] if budget.spent > budget.before]
    drawn = [
        (budget, budget_plot(budget, report.period, report.as_of_unix_s))
        for budget in (report.record, *moved[: _MOST_PLOTS - 1])
    ]
    return [(budget, plot) for budget, plot in drawn if plot is not None]
