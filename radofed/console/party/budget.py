"""What was spent, what remains, and the report on a period."""

import time

from parties.config import PartyConfig
from parties.history.reading import HistoryReader
from parties.ledger.ledger import Steps
from parties.ledger.limits import room
from parties.ledger.state import state_of
from parties.report.budgets import Period, budgets, scope_words
from parties.report.gathering import gather
from parties.report.page import budget_plots, document
from radobase.presentation.words import day
from radofed import __version__
from radofed.console.pages import Answer, File, Shown, Visit
from radofed.console.party.fields import PeriodFields, address

MOST_STEPS = 40
"""Steps of a plot: few, because each takes time that a visitor waits for."""
_SHORTEST_S = 3600.0


def budget(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger show`, with the figures of `rado party report` on the budget over time.

    query: since, until of the plot. Default: from the first charge until now.
    """
    now, fields = time.time(), PeriodFields.of(visit)
    until = min(now, fields.until_unix_s or now)
    with HistoryReader(config) as reader:
        limits, first_unix_s = reader.policy.limits.of_ledger, reader.ledger.first_charge_unix_s()
        since = fields.since_unix_s
        if since is None:
            since = min(first_unix_s or until, until - _SHORTEST_S) - 1.0
        events = reader.ledger.merged_events(now, Steps(since, until, MOST_STEPS))
        last = reader.ledger.last_charge()
    counted = [event for event in events if event.recorded_at_unix_s < until]
    state = state_of(limits, events, now_unix_s=now)
    # Of a period until now, it is that of the plot, too.
    at_end = state if len(counted) == len(events) else state_of(limits, counted, now_unix_s=None)
    over_time = budgets(at_end, counted, since, MOST_STEPS)
    values = {
        "state": state,
        "scope_words": scope_words,
        "budgets": over_time,
        "left_out": len(state.scopes) - len(over_time),
        "room": room(limits, events, last, now),
        "plots": budget_plots(over_time, Period(since, until), until),
        "fields": fields,
        "first_day": day(first_unix_s or now),
        "now": now,
    }
    return Shown("party/budget.html", "Budget", values)


def report(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party report`. query: since, until; `saved` for the page as a file."""
    now, fields = time.time(), PeriodFields.of(visit)
    since, until = fields.since_unix_s or 0.0, fields.until_unix_s or now
    made = document(gather(config, since, until, now, __version__))
    if visit.query.get("saved"):
        return File(f"report-{config.name}-{day(since)}-to-{day(until)}.html", made.saved().encode(), "text/html")
    return Shown.of(made, address("report", since=fields.since, until=fields.until, saved="yes"))
