"""What is said of a coordinator's members and queries, of the data that `coordinator.status` reads."""

import time
from typing import Any

from radobase.printing import duration, listed, local_time
from wire.errors import Code

_UNHEARD = ("silent", "pending")
_AWAITED = {
    "answering": (("silent", "waiting for"), ("pending", "waiting for a decision at")),
    "preparing": (("accepted", "waiting for"),),
    "uploading": (("uploading", "waiting for"),),
}


def seen_words(unix_s: int | None) -> str:
    """When a member was last seen."""
    if unix_s is None:
        return "never"
    return f"{local_time(unix_s)}, {duration(max(0.0, time.time() - unix_s))} ago"


def quota_words(quota: dict[str, Any]) -> list[str]:
    """A learner's open queries, queries within a day and bytes of uploads within a day, each with its limit."""

    def words(used: str, most: str) -> str:
        limit = quota[most]
        return f"{quota[used]:,}" if limit is None else f"{quota[used]:,} of {limit:,}"

    return [
        words("open_queries", "open_queries_limit"),
        words("queries_last_day", "queries_per_day"),
        words("upload_bytes_last_day", "upload_bytes_per_day"),
    ]


def newest_first(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queries by the time at which they were submitted."""
    return sorted(queries, key=lambda query: query["submitted_at_unix_s"], reverse=True)


def answer_words(query: dict[str, Any]) -> str:
    """How many parties answered, who is waited for, and why the query failed."""
    states = {each["party"]: each["state"] for each in query["parties"]}
    answered = sum(state not in _UNHEARD for state in states.values())
    parts = [f"{answered} of {len(states)} answered"]
    if refused := [f"{each['party']} ({each['code']})" for each in query["parties"] if each["code"]]:
        parts.append(f"refused: {listed(refused)}")
    for state, words in _AWAITED.get(query["phase"], ()):
        if names := [party for party, at in states.items() if at == state]:
            parts.append(f"{words} {listed(names)}")
    if query["phase"] != "answering" and (unheard := [party for party, at in states.items() if at in _UNHEARD]):
        words = "not waited for" if query["answering_ended_early"] else "without an answer"
        parts.append(f"{words}: {listed(unheard)}")
    ended = "asked only" if query["code"] == Code.ONLY_ASKED else query["code"]
    return "; ".join([*parts, *([ended] if ended else [])])
