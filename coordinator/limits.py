"""The coordinator's limits on queries: how many, and how many bytes of uploads, at one time and within a day.

They are checked before a query is stored, so before any party sees it. A day is the last 24 hours: what a learner asked
counts for so long, whether it ended well or not, also over restarts. A retry is no new query and counts no second time.
"""

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from coordinator.config import CoordinatorConfig, CoordinatorLimits
from coordinator.open_queries import LiveQuery
from coordinator.store import DAY_S, CountedQuery
from radobase.metrics import Counts
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.roster import Role, Roster
from wire.status import Phase

REFUSED: Final = {
    name: f"queries refused by {name}"
    for name in (
        "query_life_s", "open_queries", "open_queries_per_learner", "queries_per_day_per_learner",
        "upload_bytes_per_day_per_learner", "spool_bytes",
    )
}  # fmt: skip
"""Names of counts: queries that a limit refused, by its key in `[limits]`.

The limit of a single learner counts under the key that it replaces.
"""


class Quotas:
    """Checks limits, and remembers what learners asked within a day. Use it from one event loop."""

    def __init__(self, limits: CoordinatorLimits, counts: Counts) -> None:
        self._limits, self._counts = limits, counts
        self._asked: dict[str, list[CountedQuery]] = {}

    def add(self, asked: CountedQuery) -> None:
        """Count a query that was stored. The older ones of its learner were added before it."""
        self._asked.setdefault(asked.learner, []).append(asked)

    def check(
        self, opened: OpenedQuery, needed_bytes: int, open_queries: Sequence[LiveQuery], now_unix_s: float
    ) -> None:
        """Refuse a new query that exceeds a limit. needed_bytes: of the uploads of its largest cohort.

        Raises WireError(QUERY_INVALID, QUERIES_TOO_MANY, QUERY_TOO_LARGE or SPOOL_FULL) that names the limit.
        """
        self._check_life(opened, now_unix_s)
        self._check_open(opened.query.learner, open_queries)
        self._check_day(opened.query.learner, needed_bytes, now_unix_s)
        self._check_spool(needed_bytes, open_queries)

    def _refusal(self, limit: str, code: Code, detail: str) -> WireError:
        self._counts.add(REFUSED[limit])
        return WireError(code, detail)

    def _check_life(self, opened: OpenedQuery, now_unix_s: float) -> None:
        life_s = self._limits.query_life_s
        if opened.query.not_after_unix_s > now_unix_s + life_s:
            sentence = f"This coordinator accepts queries that expire within {life_s} s."
            raise self._refusal("query_life_s", Code.QUERY_INVALID, sentence)

    def _check_open(self, learner: str, open_queries: Sequence[LiveQuery]) -> None:
        own = [live for live in open_queries if live.learner == learner]
        quota = self._limits.of_learner(learner)
        for limit, most, counted in (
            ("open_queries", self._limits.open_queries, open_queries),
            ("open_queries_per_learner", quota.open_queries, own),
        ):
            if len(counted) >= most:
                ends = [live.opened.query.not_after_unix_s for live in counted]
                room = f"There is room once one ends; the first expires at {utc(min(ends))}." if ends else ""
                sentence = f"{len(open_queries)} are open, {len(own)} of them from this learner, and {limit} is {most}."
                raise self._refusal(limit, Code.QUERIES_TOO_MANY, f"{sentence} {room}".strip())

    def _check_day(self, learner: str, needed_bytes: int, now_unix_s: float) -> None:
        quota, asked = self._limits.of_learner(learner), self._within_a_day(learner, now_unix_s)
        most = quota.queries_per_day
        if most is not None and len(asked) >= most:
            limit = "queries_per_day_per_learner"
            room = f"There is room at {utc(asked[-most].at_unix_s + DAY_S)}." if most else ""
            sentence = f"This learner asked {len(asked)} in the last 24 hours, and {limit} is {most} for it."
            raise self._refusal(limit, Code.QUERIES_TOO_MANY, f"{sentence} {room}".strip())
        most_bytes = quota.upload_bytes_per_day
        if most_bytes is None:
            return
        limit = "upload_bytes_per_day_per_learner"
        if needed_bytes > most_bytes:
            sentence = f"Its uploads may need {needed_bytes} bytes, and {limit} is {most_bytes} for this learner."
            raise self._refusal(limit, Code.QUERY_TOO_LARGE, sentence)
        if (at := _room_at(asked, most_bytes - needed_bytes)) is not None:
            used = sum(each.upload_bytes for each in asked)
            raise self._refusal(
                limit,
                Code.QUERIES_TOO_MANY,
                f"Its uploads may need {needed_bytes} bytes. Those of this learner's queries of the last 24 hours may "
                f"need {used}, and {limit} is {most_bytes} for it. There is room at {utc(at)}.",
            )

    def _check_spool(self, needed_bytes: int, open_queries: Sequence[LiveQuery]) -> None:
        # If several cohorts partly fill the spool, all of them wait until their charged attempts are lost.
        most = self._limits.spool_bytes
        promised = sum(live.most_upload_bytes for live in open_queries)
        if needed_bytes > most:
            sentence = f"It needs up to {needed_bytes} bytes; the spool has {most}."
            raise self._refusal("spool_bytes", Code.QUERY_TOO_LARGE, sentence)
        if promised + needed_bytes > most:
            raise self._refusal(
                "spool_bytes",
                Code.SPOOL_FULL,
                f"Uploads of this query may need {needed_bytes} bytes, and {most - promised} of {most} are not "
                "reserved for open queries.",
            )

    def _within_a_day(self, learner: str, now_unix_s: float) -> list[CountedQuery]:
        """Oldest first. Discards what is older."""
        recent = [each for each in self._asked.get(learner, ()) if each.at_unix_s + DAY_S > now_unix_s]
        if learner in self._asked:
            self._asked[learner] = recent
        return sorted(recent, key=lambda each: each.at_unix_s)


def _room_at(asked: Sequence[CountedQuery], most_bytes: int) -> int | None:
    """When so few bytes remain within a day, Unix seconds; None if it is so now. asked: oldest first."""
    used = sum(each.upload_bytes for each in asked)
    at = None
    for each in asked:
        if used <= most_bytes:
            break
        used -= each.upload_bytes
        at = each.at_unix_s + DAY_S
    return at


def utc(unix_s: float) -> str:
    """A time for a message that travels: minutes, rounded up."""
    minutes = -(-unix_s // 60)
    return f"{dt.datetime.fromtimestamp(minutes * 60, dt.UTC):%Y-%m-%d %H:%M} UTC"


# An administrator's drain: the coordinator takes no new query and no retry, and completes the attempts under way.
#
# It lasts until the administrator ends it, or the process ends. Parties and learners stay connected: uploads, totals
# and cancellations go on as usual. The coordinator does not end by itself, because a service manager would start it
# again.


_SENTENCE = "An administrator drains the coordinator: attempts that are under way continue, and none begins."


class Drain:
    """Whether the coordinator is drained. Use it from one event loop."""

    def __init__(self) -> None:
        self.since_unix_s: float | None = None
        """When the drain began, None without one."""
        self._is_complete = False

    @property
    def is_on(self) -> bool:
        """Whether nothing new is taken."""
        return self.since_unix_s is not None

    def begin(self, now_unix_s: float) -> bool:
        """Take nothing new from now on. Returns False if it was drained before."""
        if self.is_on:
            return False
        self.since_unix_s = now_unix_s
        return True

    def end(self) -> bool:
        """Take queries again. Returns False if it was not drained."""
        was_on, self.since_unix_s, self._is_complete = self.is_on, None, False
        return was_on

    def check(self) -> None:
        """Raise WireError(DRAINING) while the coordinator is drained."""
        if self.is_on:
            raise WireError(Code.DRAINING, _SENTENCE)

    def completes(self, queries: Iterable[LiveQuery]) -> bool:
        """Whether nothing is under way any more, for the first time in this drain."""
        if not self.is_on or self._is_complete or under_way(queries):
            return False
        self._is_complete = True
        return True


def under_way(queries: Iterable[LiveQuery]) -> list[LiveQuery]:
    """Queries with an attempt that runs. A lost attempt waits for its learner, on disk: it needs no coordinator."""
    return [live for live in queries if live.is_open and live.round.phase is not Phase.LOST]


# What each learner used of its limits, for `rado coordinator status`.


_ENDED = frozenset({"complete", "failed"})


def usage(
    config: CoordinatorConfig, roster: Roster | None, queries: Sequence[dict[str, Any]], asked: Iterable[CountedQuery]
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
