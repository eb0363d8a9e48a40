"""The console of a coordinator: what `rado coordinator status` says, live."""

import time
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.config import CoordinatorConfig
from coordinator.status import answer_words, newest_first, quota_words, read, seen_words
from dpcore.errors import ConfigurationError
from radobase.logs import quiet_grpc
from radobase.metrics import reason_lines
from radofed.console.pages import Answer, Shown, Views, Visit

MOST_SHOWN = 50
"""Queries on the first page."""
_ENDED = frozenset({"complete", "failed"})


def status(config: CoordinatorConfig, template: str, _: Visit) -> Answer:
    """Health, members, disk, and the newest queries."""
    found = read(config)
    newest = newest_first(found["queries"])
    values = {
        "found": found,
        "queries": newest[:MOST_SHOWN],
        "hidden": max(0, len(newest) - MOST_SHOWN),
        "open": sum(query["phase"] not in _ENDED for query in newest),
        "seen_words": seen_words,
        "answer_words": answer_words,
        "quota_words": quota_words,
        "not_ready": reason_lines(found["not_ready"]),
        "now": time.time(),
    }
    return Shown(template, "Status", values)


def query(config: CoordinatorConfig, template: str, visit: Visit) -> Answer:
    """One query, party by party. Raises ConfigurationError if the coordinator has no such query."""
    wanted = visit.path["query"]
    one: dict[str, Any] | None = next((each for each in read(config)["queries"] if each["query_id"] == wanted), None)
    if one is None:
        raise ConfigurationError("this coordinator has no such query: it forgets queries some time after their end")
    values = {"query": one, "words": answer_words(one), "ended": one["phase"] in _ENDED, "now": time.time()}
    return Shown(template, f"Query {wanted[:16]}", values)


def coordinator_views(config: Path) -> Views:
    """The views of the coordinator with this configuration file. Raises ConfigurationError."""
    quiet_grpc()
    loaded = CoordinatorConfig.load(config)
    return Views(
        role="coordinator",
        member=loaded.name,
        federation=loaded.federation,
        navigation=(("status", "Status"),),
        pages={
            "status": partial(status, loaded, "coordinator/status.html"),
            "status/now": partial(status, loaded, "coordinator/status_now.html"),
            "queries/{query}": partial(query, loaded, "coordinator/query.html"),
            "queries/{query}/now": partial(query, loaded, "coordinator/query_now.html"),
        },
    )
