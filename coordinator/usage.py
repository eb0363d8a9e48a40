"""What each learner used of its limits, for `rado coordinator status`."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from coordinator.config import CoordinatorConfig
from coordinator.store import DAY_S, Asked
from wire.roster import Role, Roster

_ENDED = frozenset({"complete", "failed"})


def usage(
    config: CoordinatorConfig, roster: Roster | None, queries: Sequence[dict[str, Any]], asked: Iterable[Asked]
) -> list[dict[str, Any]]:
    """One entry for each learner of the roster. queries: as `coordinator.status` has them."""
    since = time.time() - DAY_S
    open_queries = Counter(query["learner"] for query in queries if query["phase"] not in _ENDED)
    number, upload_bytes = Counter[str](), Counter[str]()
    for each in asked:
        if each.at_unix_s > since:
            number[each.learner] += 1
            upload_bytes[each.learner] += each.upload_bytes
    found = []
    for name in _learners(roster):
        quota = config.limits.of_learner(name)
        found.append(
            {
                "learner": name,
                "open_queries": open_queries[name],
                "open_queries_limit": quota.open_queries,
                "queries_last_day": number[name],
                "queries_per_day": quota.queries_per_day,
                "upload_bytes_last_day": upload_bytes[name],
                "upload_bytes_per_day": quota.upload_bytes_per_day,
            }
        )
    return found


def unknown_learners(config: CoordinatorConfig, roster: Roster | None) -> list[str]:
    """Learners with limits of their own that the roster does not list; none before a roster was served."""
    return [] if roster is None else sorted(set(config.limits.learners) - set(_learners(roster)))


def _learners(roster: Roster | None) -> list[str]:
    return [] if roster is None else [member.name for member in roster.members if member.role is Role.LEARNER]
