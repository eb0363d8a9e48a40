"""The progress of a query in words, where they are shown, and what parties say before a query is sent.

What a status says of parties is the coordinator's claim. It is shown, and decides nothing.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import PlanError
from radobase.printing import amount, duration, listed, printable
from wire.errors import CATALOGUE, Code, TimedOutError, WireError
from wire.query import Query, setting_of
from wire.roster import Roster
from wire.statements import Acceptance, open_statement
from wire.status import PartyProgress, PartyState, Phase, QueryStatus

REFRESH_S = 5.0
"""How often what is shown live is brought up to date."""
REPEAT_AFTER_S = 60.0
CHANGE_AFTER_S = 15.0
"""In a log, changes before this are not worth a line: rounds of a training take seconds."""
"""Lines of a file repeat an unchanged state after this time."""

_IN_COHORT = (PartyState.UPLOADING, PartyState.UPLOADED, PartyState.UNMASKED, PartyState.VANISHED)
_PAST_READY = (PartyState.READY, PartyState.LEFT_OUT, *_IN_COHORT)
# Whom each phase waits for, and for what.
_AWAITED: dict[Phase, dict[PartyState, str]] = {
    Phase.ANSWERING: {PartyState.SILENT: "waiting for", PartyState.PENDING: "waiting for a decision at"},
    Phase.PREPARING: {PartyState.ACCEPTED: "waiting for the contribution of"},
    Phase.UPLOADING: {PartyState.UPLOADING: "waiting for uploads of", PartyState.VANISHED: "without"},
    Phase.UNMASKING: {PartyState.UPLOADED: "waiting for the unmasking of", PartyState.VANISHED: "without"},
    Phase.COMPLETE: {PartyState.VANISHED: "without"},
}


class Display(Protocol):
    """Shows the state of a query."""

    refresh_s: float | None
    """How often it is brought up to date; None: at changes only."""

    def show(self, state: str, times: str, *, last: bool) -> None:
        """Show a state, and how long it lasts. last: whether the query has ended."""
        ...

    def end(self) -> None:
        """No more of this query is shown."""
        ...


class Lines:
    """A line for the end of a query, such as in a log; while it lasts, one for a change now and then, and for none.

    A query that is no longer followed before its end leaves its last state, if that was not written.
    """

    refresh_s: float | None = None

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """stream: by default standard error. clock: monotonic seconds."""
        self._stream, self._clock = stream, clock
        self._state = self._unwritten = ""
        self._shown_at: float | None = None

    def show(self, state: str, times: str, *, last: bool) -> None:
        """See `Display`."""
        now = self._clock()
        if self._shown_at is None:
            self._shown_at = now
        quiet = REPEAT_AFTER_S if state == self._state else CHANGE_AFTER_S
        if last or now - self._shown_at >= quiet:
            self._state, self._shown_at = state, now
            self._write(f"{state}{times}")
        else:
            self._unwritten = "" if state == self._state else f"{state}{times}"

    def end(self) -> None:
        """See `Display`."""
        if self._unwritten:
            self._write(self._unwritten)
        self._state, self._shown_at = "", None

    def _write(self, line: str) -> None:
        stream = self._stream or sys.stderr
        stream.write(f"{line}\n")
        stream.flush()
        self._unwritten = ""


class TerminalLine:
    """One line of a terminal, which is rewritten."""

    refresh_s: float | None = REFRESH_S

    def __init__(self, stream: TextIO | None = None) -> None:
        """stream: a terminal, by default standard error."""
        self._stream, self._is_open = stream, False

    def show(self, state: str, times: str, *, last: bool) -> None:
        """See `Display`."""
        stream = self._stream or sys.stderr
        line, columns = f"{state}{times}", shutil.get_terminal_size().columns
        if len(line) >= columns and not last:
            # A line that wraps cannot be rewritten.
            line = f"{line[: columns - 2]}\u2026"
        # Return to the beginning of the line, write, and erase the rest of a longer line.
        stream.write(f"\r{line}\x1b[K" + ("\n" if last else ""))
        stream.flush()
        self._is_open = not last

    def end(self) -> None:
        """See `Display`."""
        if self._is_open:
            stream = self._stream or sys.stderr
            stream.write("\n")
            stream.flush()
            self._is_open = False


class NotebookText:
    """A text below the notebook's cell, which is replaced."""

    refresh_s: float | None = REFRESH_S

    def __init__(self, display: Callable[..., Any]) -> None:
        """display: IPython's."""
        self._display, self._handle = display, None

    def show(self, state: str, times: str, *, last: bool) -> None:  # noqa: ARG002 - the last text stays
        """See `Display`."""
        content = {"text/plain": f"{state}{times}"}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def end(self) -> None:
        """See `Display`."""
        self._handle = None


def usual_display() -> Display | None:
    """Where Python shows progress by itself: in a notebook or a terminal; None elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        from IPython.display import display  # noqa: PLC0415  (only a notebook has it)

        return NotebookText(display)
    return TerminalLine() if sys.stderr.isatty() else None


def command_display() -> Display:
    """Where a command shows progress: on standard error, a terminal or not."""
    return TerminalLine() if sys.stderr.isatty() else Lines()


class QueryProgress:
    """Shows each status of a query, with how long it has been waited for in its phase."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic, label: str = "") -> None:
        """clock: monotonic seconds. label: what begins each line, such as the round that the query answers."""
        self._display, self._clock, self._label = display, clock, f"{label}: " if label else ""
        self._phase: tuple[int, Phase] | None = None
        self._since = 0.0

    def __call__(self, status: QueryStatus) -> None:
        """Show a status."""
        now = self._clock()
        if (status.attempt, status.phase) != self._phase:
            self._phase, self._since = (status.attempt, status.phase), now
        state = printable(f"{self._label}{progress_sentence(status)}")
        self._display.show(state, _times(status, now - self._since), last=status.phase.is_terminal)


@contextmanager
def shown_on(display: Display | None, label: str = "") -> Iterator[Callable[[QueryStatus], None] | None]:
    """A callback that shows a query's statuses until the block ends; None without a display. label: begins a line."""
    if display is None:
        yield None
        return
    try:
        yield QueryProgress(display, label=label)
    finally:
        display.end()


def phase_words(status: QueryStatus) -> str:
    """Where a query stands, and why it ended. A question ends without a total, which is no failure."""
    if status.code == Code.ONLY_ASKED:
        return "was asked only"
    return f"{status.phase.word}: {status.code}" if status.code else status.phase.word


def progress_sentence(status: QueryStatus) -> str:
    """The state of a query: how many parties answered, refused and are ready, who is waited for, chunks received."""
    states = [party.state for party in status.parties]
    unanswered = sum(state.awaits_answer for state in states)
    refused = _refusals(status)
    parts = [
        f"attempt {status.attempt}, {status.phase.word}",
        f"{len(states) - unanswered} of {len(states)} answered",
        f"{len(refused)} refused" + (f": {listed(refused)}" if refused else ""),
        f"{sum(state in _PAST_READY for state in states)} ready",
    ]
    if status.chunks_expected:
        uploading = sum(state in _IN_COHORT for state in states)
        arrived = sum(party.chunks for party in status.parties)
        parts.append(f"{arrived} of {uploading * status.chunks_expected} chunks uploaded")
    return "; ".join([*parts, *_missing(status)])


def missing_words(status: QueryStatus) -> str:
    """How many parties answered, who refused and who is missing."""
    answered = sum(not party.state.awaits_answer for party in status.parties)
    refused = _refusals(status)
    parts = [f"{answered} of {len(status.parties)} answered", *([f"refused: {listed(refused)}"] if refused else [])]
    return "; ".join([*parts, *_missing(status)])


def _refusals(status: QueryStatus) -> list[str]:
    return [f"{party.party} ({party.code})" for party in status.parties if party.state is PartyState.REFUSED]


def _missing(status: QueryStatus) -> list[str]:
    parts = []
    for state, words in _AWAITED.get(status.phase, {}).items():
        if names := _names(status, state):
            parts.append(f"{words} {listed(names)}")
    if status.phase is not Phase.ANSWERING and (names := _names(status, PartyState.SILENT, PartyState.PENDING)):
        parts.append(f"{'not waited for' if status.answering_ended_early else 'without an answer'}: {listed(names)}")
    return parts


def party_words(party: PartyProgress, status: QueryStatus) -> str:
    """Where one party stands."""
    answering = status.phase is Phase.ANSWERING
    match party.state:
        case PartyState.SILENT if answering:
            words = "has not answered yet"
        case PartyState.SILENT | PartyState.PENDING if status.answering_ended_early:
            words = "not waited for"
        case PartyState.SILENT:
            words = "did not answer in time"
        case PartyState.PENDING if answering:
            words = "waiting for a decision there"
        case PartyState.PENDING:
            words = "not decided there in time"
        case PartyState.REFUSED:
            words = f"refused, {party.code}"
        case _:
            words = party.state.word.replace("_", " ")
    return f"{words}, {amount(party.rows, 'row')}" if party.rows else words


ASK_WHETHER_READY = "Ask whether the node runs and is ready: `rado party status` there says so."
"""About a silent party. A paused one, and one that waits for witnesses, is silent too."""


def advice(status: QueryStatus, query: Query | None = None) -> str:
    """What to do about a query that failed for want of parties, by what each said; empty if nothing else is known.

    query: the one that failed, if it is known: then the true cause of PLAN_INFEASIBLE may be, too.
    """
    if status.code not in (Code.COHORT_TOO_SMALL, Code.QUERY_EXPIRED):
        return ""
    refusals = {party.party: party.code for party in status.parties if party.state is PartyState.REFUSED}
    found = [words] if (words := advice_of_refusals(refusals, query)) else []
    if not status.answering_ended_early:
        undecided, silent = _names(status, PartyState.PENDING), _names(status, PartyState.SILENT)
        if undecided:
            found.append(f"{listed(undecided)}: Ask for the decision, or give parties more time to answer.")
        if silent:
            found.append(f"{listed(silent)}: {ASK_WHETHER_READY}")
    return printable(" ".join(found))


def advice_of_refusals(refusals: Mapping[str, str], query: Query | None = None) -> str:
    """What to do about refusals, by their codes. refusals: the code of each party."""
    by_code: dict[Code, list[str]] = {}
    for party, code in refusals.items():
        if code in set(Code):
            by_code.setdefault(Code(code), []).append(party)
    return printable(" ".join(f"{listed(names)} ({code}): {_hint(code, query)}" for code, names in by_code.items()))


def _hint(code: Code, query: Query | None) -> str:
    """What to do about a refusal. A design that is feasible for one row is so for more: then max_rows is too low."""
    if code is Code.PLAN_INFEASIBLE and query is not None:
        with suppress(PlanError):
            query.kind.protection(setting_of(query)).loss(1, query.delta)
            return (
                f"It has more rows than the query's max_rows of {query.max_rows} allows: ask with a larger --max-rows."
            )
    return CATALOGUE[code].hint


def _names(status: QueryStatus, *states: PartyState) -> list[str]:
    return [party.party for party in status.parties if party.state in states]


def _times(status: QueryStatus, waited_s: float) -> str:
    """How long the phase has been watched, and how long it may last; nothing once the query has ended."""
    if status.phase.is_terminal:
        return ""
    waited = f"for {duration(waited_s)}, " if waited_s >= 1 else ""
    return f" ({waited}{duration(status.remaining_s)} left)"


# What parties say when they are asked whether they would accept a query: nothing is charged or reserved.


@dataclass(frozen=True)
class WouldAccept:
    """The answers to a question."""

    what: str
    rows: dict[str, int]
    """Of each party that would accept, as it signed them."""
    refusals: dict[str, str]
    """The code of each other party that answered."""
    silent: tuple[str, ...]
    """Parties without an answer."""
    cohort_min: int
    max_rows: int
    """Of the query."""
    cost: ReleaseCost | None
    """If all who would accept take part; None if none would, or there is no bound."""
    people_have_s: int
    """How long people have to answer, once the query is sent."""

    @property
    def enough(self) -> bool:
        """Whether a cohort could form of those who would accept."""
        return len(self.rows) >= self.cohort_min

    @property
    def people_words(self) -> str:
        """What is known of people who decide: a party states nothing of them."""
        return (
            "whether people decide at a party is not known, as no party states it: where they do, they are asked once "
            f"the query is sent, and have {duration(self.people_have_s)} to answer, as --answer-within says"
        )

    def sentences(self) -> list[str]:
        """The answers in words."""
        total = sum(self.rows.values())
        asked = len(self.rows) + len(self.refusals) + len(self.silent)
        enough = f"{amount(total, 'row')}; {self.cohort_min} are needed"
        lines = [f"{self.what}: {len(self.rows)} of {amount(asked, 'party')} would accept, over {enough}"]
        lines += [f"{name}: would accept, {amount(rows, 'row')}" for name, rows in self.rows.items()]
        for name, code in self.refusals.items():
            hint = f": {CATALOGUE[Code(code)].hint}" if code in set(Code) else ""
            lines.append(f"{name}: would refuse, {code}{hint}")
        if self.silent:
            lines.append(f"no answer yet: {listed(sorted(self.silent))}")
        return lines

    def to_dict(self) -> dict[str, object]:
        """All fields by name, in JSON types."""
        cost = self.cost
        return {
            "what": self.what,
            "would_accept": self.rows,
            "would_refuse": self.refusals,
            "silent": list(self.silent),
            "cohort_min": self.cohort_min,
            "enough": self.enough,
            "epsilon": None if cost is None else cost.epsilon,
            "epsilon_if_others_collude": None if cost is None else cost.epsilon_if_others_collude,
            "people_decide": None,
            "people_have_s": self.people_have_s,
        }


def check_enough(found: WouldAccept, query: Query, about: str = "") -> None:
    """Raise WireError(COHORT_TOO_SMALL) if so many parties would refuse a query that no cohort could form.

    query: the question, whose parties are all that are asked. Those that were not waited for may accept. about: what
    was asked about, if it is more than the query that comes next.
    """
    asked = len(query.binding.parties)
    if asked - len(found.refusals) < found.cohort_min:
        first = f"Asked first about {about}" if about else "Asked first"
        would = f"{first}, {len(found.refusals)} of {asked} would refuse, and {found.cohort_min} have to accept"
        detail = f"{would}; nothing was sent."
        raise WireError(Code.COHORT_TOO_SMALL, detail, advice_of_refusals(found.refusals, query))


def refusals_before(what: str, ask: Callable[[], Sequence[WouldAccept]]) -> list[str]:
    """What parties say that would refuse, when `ask` asks before the first query about all that will be asked.

    what: that, in words. Parties that do not answer questions, or not in time, do not hinder it: a warning says so.
    Raises what asking raises otherwise, such as WireError(COHORT_TOO_SMALL).
    """
    unknown = f"Warning: it is not known whether parties would accept {what}"
    try:
        found = ask()
    except TimedOutError:
        return [f"{unknown}: they have not answered in time."]
    except WireError as error:
        if error.code is not Code.FEATURE_MISSING:
            raise
        return [f"{unknown}: too few answer questions."]
    return [f"Warning: {sentence}." for each in found if each.refusals for sentence in each.sentences()]


def answers_in_words(found: Sequence[WouldAccept]) -> list[str]:
    """The answers to questions, and once what is known of people who decide."""
    people = {each.people_words: None for each in found if each.rows}
    return [*(sentence for each in found for sentence in each.sentences()), *people]


def is_decided(parties: Sequence[PartyProgress], *, asked: int, needed: int) -> bool:
    """Whether those that have answered decide whether a cohort could form, as the coordinator says.

    asked: how many are asked. needed: how many a cohort needs.
    """
    refused = sum(party.state is PartyState.REFUSED for party in parties)
    return sum(party.acceptance is not None for party in parties) >= needed or asked - refused < needed


def answers_to(
    query: Query, query_id: bytes, parties: Sequence[PartyProgress], roster: Roster, *, people_have_s: int
) -> WouldAccept:
    """The answers to a question. Row counts are those that parties of the roster signed; a refusal is as claimed.

    people_have_s: as of `WouldAccept`, of the query that is asked about; the question's own time is shorter.
    Raises WireError if an acceptance is not signed by its party, or is of another query.
    """
    rows: dict[str, int] = {}
    for party in parties:
        if party.acceptance is None:
            continue
        said, _ = open_statement(Acceptance, party.acceptance, roster)
        if said.query_id != query_id or said.party != party.party:
            raise WireError(Code.SENDER_MISMATCH, "A party's answer is not to this question.")
        rows[said.party] = said.rows
    refusals = {party.party: party.code for party in parties if party.state is PartyState.REFUSED}
    silent = tuple(party.party for party in parties if party.party not in rows and party.party not in refusals)
    try:
        cost = query.kind.protection(setting_of(query)).cost(tuple(rows.values()), query.delta) if rows else None
    except PlanError:
        cost = None
    return WouldAccept(query.words, rows, refusals, silent, query.cohort_min, query.max_rows, cost, people_have_s)
