"""All pages and actions of a party's console."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from parties.config import PartyConfig
from radofed.console.pages import Action, Answer, Page, Views, Visit
from radofed.console.party.budget import budget, report
from radofed.console.party.deciding import decide, pending, query
from radofed.console.party.history import history, history_csv
from radofed.console.party.node import checks, logs, members, run_checks
from radofed.console.party.status import pause, resume, status, status_now

_PAGES: dict[str, Callable[[PartyConfig, Visit], Answer]] = {
    "status": status,
    "status/now": status_now,
    "pending": pending,
    "queries/{query}": query,
    "history": history,
    "history.csv": history_csv,
    "budget": budget,
    "report": report,
    "members": members,
    "checks": checks,
    "logs": logs,
}
_ACTIONS: dict[str, Callable[[PartyConfig, Visit], Answer]] = {
    "pause": pause,
    "resume": resume,
    "queries/{query}": decide,
    "checks": run_checks,
}


def party_views(config: Path) -> Views:
    """The views of the party with this configuration file. Raises ConfigurationError."""
    loaded = PartyConfig.load(config)
    return Views(
        role="party",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(
            ("status", "Status"),
            ("pending", "Pending"),
            ("history", "History"),
            ("budget", "Budget"),
            ("members", "Members"),
            ("checks", "Checks"),
            ("logs", "Logs"),
        ),
        pages=tuple(Page(path, partial(show, loaded)) for path, show in _PAGES.items()),
        actions=tuple(Action(path, partial(act, loaded)) for path, act in _ACTIONS.items()),
    )
