"""The history as a file for spreadsheets."""

import csv
import datetime as dt
import io
import re
from collections.abc import Iterable
from typing import Any

from parties.history.reading import QueryRead
from radobase.printing import printable

_HEADER = ("time", "query_id", "learner", "kind", "asked", "decision", "cohort", "rows", "bytes_out", "cost", "purpose")
# A spreadsheet computes what begins like this; a learner chooses the text of predicates.
_FORMULA = re.compile(r"^[=+\-@\t\r]")


def _cell(text: str) -> str:
    return printable(f"'{text}" if _FORMULA.match(text) else text)


def csv_of(queries: Iterable[QueryRead]) -> str:
    """CSV with one line for each query, with times in UTC."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for each in queries:
        cohort = next((attempt.cohort for attempt in reversed(each.attempts) if attempt.cohort), {})
        row: tuple[Any, ...] = (
            f"{dt.datetime.fromtimestamp(each.shown.shown_at_unix_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
            each.shown.query_id.hex(),
            each.shown.learner,
            each.shown.kind,
            each.words,
            each.decision,
            " ".join(cohort),
            "" if each.shown.rows is None else each.shown.rows,
            each.bytes_out,
            each.cost,
            each.shown.purpose,
        )
        writer.writerow(_cell(content) if isinstance(content, str) else content for content in row)
    return text.getvalue()
