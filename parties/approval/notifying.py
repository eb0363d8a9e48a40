"""Tells people that a query waits for their decision, or a proposal for one more, by a command of the operator's.

The node runs the command without a shell, with one JSON object on its standard input, whose key `text` has the same for
people. It runs in a thread of its own, one run at a time, and answers never wait for it.

What comes while it runs, or within a pause after it, is told by the next run together. A run that fails or takes too
long is repeated a few times, with growing pauses, and then given up until the next query waits.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

from pydantic import Field

from dpcore.errors import RadofedError
from radobase.configuration import Configuration
from radobase.logs import Log
from radobase.printing import amount, in_lines, json_text, local_time

MOST_TOLD: Final = 20
"""Queries that one message names; of more it says the number."""
MOST_KEPT: Final = 1000
"""Queries that are kept to be told."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 3600.0
_STOPS_WITHIN_S = 5.0
# Not the node's own environment: it may have passwords.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")


class NotifySettings(Configuration):
    """A command of the operator's that tells people that a query waits for their decision."""

    command: tuple[str, ...] = Field(min_length=1)
    """The program, with its whole path, and its arguments. It is run without a shell, as the node's user, and reads one
    JSON object from standard input; `text` in it is for people."""
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    """Longest time that a run may take, in seconds; then it is ended."""
    attempts: int = Field(default=5, ge=1, le=20)
    """How often a message is tried."""
    pause_s: float = Field(default=60.0, ge=0, le=86_400)
    """Shortest time between two messages, in seconds."""


@dataclass(frozen=True)
class Notice:
    """A query that waits for a decision, as people are told."""

    query_id: str
    """Hexadecimal."""
    learner: str
    asked: str
    """In words."""
    purpose: str
    training: str
    """The training that it is a round of, in words; empty without one."""
    reasons: tuple[str, ...]
    """Why it waits."""
    cost: str
    """Of one attempt, in words."""
    answers_due_unix_s: float
    approvals: int = 0
    """Those that count already."""
    needed: int = 1
    """Approvals in all."""
    may_decide: tuple[str, ...] = ()
    """The users who can give what is missing; none if the policy lists no users."""

    @property
    def key(self) -> str:
        """A later notice with the same one takes the place of an earlier one."""
        return self.query_id

    def lines(self) -> list[str]:
        """For people."""
        digits = self.query_id[:12]
        return [
            f"query {digits} of learner {self.learner}: {self.asked}",
            f"  purpose: {json_text(self.purpose) if self.purpose else 'none is stated'}",
            *([f"  one query of a {self.training}"] if self.training else []),
            f"  an attempt costs {self.cost}; waits because {'; '.join(self.reasons)}",
            *missing_words(self.approvals, self.needed, self.may_decide),
            f"  answers are due {local_time(self.answers_due_unix_s)}; look: rado party explain {digits}",
        ]


@dataclass(frozen=True)
class ProposalNotice:
    """An approval of several queries that somebody gave, and that needs one more person."""

    approval_id: str
    """Hexadecimal."""
    learner: str
    terms: tuple[str, ...]
    """What it lets through, in words."""
    approved_by: tuple[str, ...]
    approvals: int
    needed: int
    may_decide: tuple[str, ...]
    """As of `Notice`."""
    until_unix_s: float
    """When it expires."""

    @property
    def key(self) -> str:
        """As of `Notice`."""
        return self.approval_id

    def lines(self) -> list[str]:
        """For people."""
        digits = self.approval_id[:12]
        return [
            f"approval {digits} for learner {self.learner}, approved by {', '.join(self.approved_by)}",
            *(f"  {line}" for line in self.terms),
            *missing_words(self.approvals, self.needed, self.may_decide),
            f"  look: rado party approvals; then: rado party approve {digits}, or rado party refuse {digits}",
        ]


def missing_words(approvals: int, needed: int, may_decide: Sequence[str]) -> list[str]:
    """Who can give the approvals that are missing; nothing where one person decides."""
    if needed == 1:
        return []
    who = ", ".join(may_decide) if may_decide else "any other user who may decide at this party"
    return [f"  has {approvals} of {needed} approvals; who can approve now: {who}"]


def message(party: str, federation: str, notices: Sequence[Notice | ProposalNotice]) -> dict[str, Any]:
    """What the command reads."""
    told, more = notices[:MOST_TOLD], len(notices) - MOST_TOLD
    proposals = [notice for notice in notices if isinstance(notice, ProposalNotice)]
    queries = [notice for notice in notices if isinstance(notice, Notice)]
    waiting = [amount(len(queries), "query")] if queries else []
    waiting += [f"{amount(len(proposals), 'proposal')} for one more approval"] if proposals else []
    waits = "waits" if len(notices) == 1 else "wait"
    said = f"{waiting[0]} {waits} for a decision" if queries else waiting[-1].replace(" for", f" {waits} for", 1)
    more_said = f", and {waiting[-1]}" if queries and proposals else ""
    title = f"{said}{more_said} at {party} of {federation}"
    rest = [f"and {more} more: rado party pending"] if more > 0 else []
    text = in_lines([title, "", *(line for notice in told for line in notice.lines()), *rest])
    return {
        "format": 1,
        "party": party,
        "federation": federation,
        "title": title,
        "queries": [asdict(notice) for notice in told if isinstance(notice, Notice)],
        "proposals": [asdict(notice) for notice in told if isinstance(notice, ProposalNotice)],
        "count": len(notices),
        "text": f"{text}\n",
    }


TEST = "TEST, nothing waits: "


def test_message(party: str, federation: str, why: str) -> dict[str, Any]:
    """A message about nothing, marked as a test in its title, its text and by the key `test`. why: who asked for it."""
    made_up = Notice(
        query_id="0" * 64,
        learner="nobody",
        asked="nothing: this is a test",
        purpose="a test of the notification",
        training="",
        reasons=(why,),
        cost="nothing",
        answers_due_unix_s=time.time() + 3600,
    )
    found = message(party, federation, [made_up])
    return {**found, "test": True, "title": f"{TEST}{found['title']}", "text": f"{TEST}{found['text']}"}


def why_not_executable(settings: NotifySettings) -> str:
    """Why the command cannot be run as it is; empty if it can. Runs nothing."""
    program = settings.command[0]
    path = os.environ.get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return ""
    if os.sep not in program:
        return f"there is no program {program} in the directories of PATH"
    if not (file := Path(program)).exists():
        return f"{program} does not exist"
    return f"{program} is a directory" if file.is_dir() else f"this user may not execute {program}"


class NotificationError(RadofedError):
    """A run of the command did not end well."""


def run_command(settings: NotifySettings, content: bytes, stopping: Callable[[], bool] = lambda: False) -> None:
    """Run the command once. Raises NotificationError if it cannot be run, fails, takes too long, or is stopped."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        with _nameless() as message_file:
            message_file.write(content)
            message_file.seek(0)
            # Its output is nobody's: it could fill a disk or a pipe.
            process = subprocess.Popen(
                settings.command,
                stdin=message_file,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise NotificationError(f"{settings.command[0]} cannot be run: {error}") from error
    end = time.monotonic() + settings.timeout_s
    try:
        while True:
            try:
                code = process.wait(min(0.2, max(0.0, end - time.monotonic())) or 0.01)
                break
            except subprocess.TimeoutExpired:
                if stopping():
                    raise NotificationError("the node stops") from None
                if time.monotonic() >= end:
                    raise NotificationError(f"it took longer than {settings.timeout_s:g} s, and was ended") from None
    finally:
        _end(process)
    if code != 0:
        raise NotificationError(f"it ended with the code {code}")


def _nameless() -> IO[bytes]:
    """An empty file without a name, in memory where the system has such: predicates may name people.

    A command that reads nothing, or leaves its session, keeps no thread and no pipe of the node with it.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("notice"), "w+b")
    return tempfile.TemporaryFile()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the command with all that it started in its session."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOPS_WITHIN_S)


class Notifier:
    """Tells people of queries that wait. A context manager; `add` never waits, and never raises.

    on_outcome: called with "sent", "failed" for each run that fails, and "given_up" for a message that is not tried
    any more.
    """

    def __init__(
        self,
        settings: NotifySettings,
        party: str,
        federation: str,
        log: Log,
        on_outcome: Callable[[str], None] = lambda _: None,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._settings, self._party, self._federation, self._log = settings, party, federation, log
        self._on_outcome, self._first_pause_s = on_outcome, first_pause_s
        self._notices: dict[str, Notice | ProposalNotice] = {}
        self._wake, self._stopping = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(_STOPS_WITHIN_S)

    def add(self, notice: Notice | ProposalNotice) -> None:
        """Tell people of a query or a proposal, soon."""
        with self._wake:
            if len(self._notices) < MOST_KEPT or notice.key in self._notices:
                self._notices[notice.key] = notice
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._notices)
                if self._stopping:
                    return
            try:
                self._tell()
            except Exception as error:  # noqa: BLE001 - telling people must not end with one message
                self._log.exception("not notified", error=type(error).__name__)
            if self._pause(self._settings.pause_s):
                return

    def _tell(self) -> None:
        """Tell people what there is now, in as many attempts as the settings allow."""
        pause_s = self._first_pause_s
        for attempt in range(1, self._settings.attempts + 1):
            with self._wake:
                notices = dict(self._notices)
            content = json.dumps(message(self._party, self._federation, list(notices.values()))).encode()
            try:
                run_command(self._settings, content, lambda: self._stopping)
            except NotificationError as error:
                self._on_outcome("failed")
                self._log.warning("not notified", attempt=attempt, queries=len(notices), reason=str(error))
                is_last = attempt == self._settings.attempts
                if is_last or self._pause(pause_s):
                    break
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._on_outcome("sent")
                self._log.info("notified", queries=len(notices))
                self._forget(notices)
                return
        if not self._stopping:
            self._on_outcome("given_up")
            self._log.error("not notified", attempts=self._settings.attempts, reason="given up; see the other lines")
            with self._wake:
                self._notices.clear()

    def _forget(self, told: dict[str, Notice | ProposalNotice]) -> None:
        with self._wake:
            for key, notice in told.items():
                # What came meanwhile about the same is told next.
                if self._notices.get(key) is notice:
                    del self._notices[key]

    def _pause(self, pause_s: float) -> bool:
        """Wait. Returns whether the node stops."""
        with self._wake:
            return self._wake.wait_for(lambda: self._stopping, pause_s)
