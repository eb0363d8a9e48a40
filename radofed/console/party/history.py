"""What the party was asked, newest first."""

import time

from parties.config import PartyConfig
from parties.history.history import HistoryPage
from parties.history.reading import HistoryReader, csv_of
from radofed.console.pages import Answer, File, Shown, Visit
from radofed.console.party.fields import PeriodFields, address, whole

AT_ONCE, MOST_AT_ONCE = 50, 100


def _page(visit: Visit) -> tuple[HistoryPage, PeriodFields]:
    """Which queries a visit asks for. query: learner, since, until, limit, skip."""
    period = PeriodFields.of(visit)
    page = HistoryPage(
        limit=whole(visit.query.get("limit"), "limit", default=AT_ONCE, least=1, most=MOST_AT_ONCE),
        offset=whole(visit.query.get("skip"), "skip", default=0),
        learner=visit.query.get("learner", "").strip() or None,
        since_unix_s=period.since_unix_s or 0.0,
        until_unix_s=float("inf") if period.until_unix_s is None else period.until_unix_s,
    )
    return page, period


def history(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger history`, with its filters."""
    page, period = _page(visit)
    with HistoryReader(config) as reader:
        queries, count = reader.page(page), reader.history.count(page)
        learners = [learner.name for learner in reader.policy.learners]
    end = page.offset + len(queries)
    chosen = {"learner": page.learner or "", "since": period.since, "until": period.until}
    size = page.limit if page.limit != AT_ONCE else 0

    def at(skip: int) -> str:
        return address("history", **chosen, limit=size, skip=skip)

    values = {
        "queries": queries,
        "count": count,
        "first": page.offset + 1,
        "last": end,
        "newer": at(max(0, page.offset - page.limit)) if page.offset else "",
        "older": at(end) if queries and end < count else "",
        "csv": address("history.csv", **chosen),
        "chosen": chosen,
        "learners": learners,
    }
    return Shown("party/history.html", "History", values)


def history_csv(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger history --csv`: every query that the filters select."""
    page, _ = _page(visit)
    # Without those that come meanwhile, so that no line is twice in the file.
    until = min(page.until_unix_s, time.time())
    with HistoryReader(config) as reader:
        selected = HistoryPage(learner=page.learner, since_unix_s=page.since_unix_s, until_unix_s=until)
        text = csv_of(reader.every(selected))
    return File(f"history-{config.name}.csv", text.encode(), "text/csv")
