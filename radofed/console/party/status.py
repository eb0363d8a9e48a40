"""The start page: whether the party's node runs, what it does, and whether people paused it."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from dpcore.errors import RadofedError
from parties.approval.decisions import Pause, Pauses, Person
from parties.config import PartyConfig
from parties.history.reading import open_history
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.watching.readiness import Reason, reason_lines
from radofed.console.pages import Answer, Goto, Shown, Visit

T = TypeVar("T")


def status(config: PartyConfig, _: Visit) -> Answer:
    """The whole page. Its upper part is fetched again every few seconds (`status_now`)."""
    return Shown("party/status.html", "Status", _values(config))


def status_now(config: PartyConfig, visit: Visit) -> Answer:
    """What changes of the page. query: `paused`, whether the rest of the page shows a pause."""
    values = _values(config)
    changed = visit.query.get("paused") != values["paused_word"]
    return Shown("party/status_now.html", values=values | {"changed": changed})


def pause(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party pause`. form: name, reason."""
    person = Person.present(visit.form.get("name", ""))
    _with_pauses(config, lambda pauses: pauses.pause(person, visit.form.get("reason", ""), time.time()))
    return Goto("status")


def resume(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party resume`. form: name."""
    person = Person.present(visit.form.get("name", ""))
    _with_pauses(config, lambda pauses: pauses.resume(person, time.time()))
    return Goto("status")


def _values(config: PartyConfig) -> dict[str, Any]:
    running: dict[str, Any] | None
    codes: list[str] = []
    try:
        running, fault = read_status(config.state_directory), ""
        codes = running["not_ready"]
    except UnreadableStateError as error:
        running, fault, codes = None, str(error), [Reason.STATE_UNREADABLE.value]
    except NotRunningError as error:
        running, fault = None, str(error)
    # The history may be damaged, or not be there before the first start: the rest is shown all the same.
    pause: Pause | None
    try:
        (pause, unanswered), history_fault = _with_pauses(config, _paused), ""
    except RadofedError as error:
        pause, unanswered, history_fault = None, 0, str(error)
    return {
        "now": time.time(),
        "status": running,
        "fault": fault,
        "not_ready": reason_lines(codes),
        "pause": pause,
        "unanswered": unanswered,
        "paused_word": "yes" if pause else "no",
        "history_fault": history_fault,
        "changed": False,
    }


def _paused(pauses: Pauses) -> tuple[Pause | None, int]:
    """The pause that lasts, and how many queries came meanwhile."""
    pause = pauses.present()
    return pause, 0 if pause is None else pauses.unanswered(pause)


def _with_pauses(config: PartyConfig, function: Callable[[Pauses], T]) -> T:
    database = open_history(config)
    try:
        return function(Pauses(database))
    finally:
        database.close()
