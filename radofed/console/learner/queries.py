"""What the learner asked, and one query while it runs."""

import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dpcore.errors import ConfigurationError, RadofedError
from learner.accepted_parties import Selection
from learner.config import LearnerConfig
from learner.estimators import BY_QUERIES
from learner.history import LearnerHistory
from learner.progress import advice, party_words, progress_sentence
from learner.session import Session
from radobase.failure import Failure
from radobase.logs import Log
from radofed.console.pages import Answer, Field, Form, Goto, Shown, Visit
from radofed.inquiry_options import (
    CompareOptions,
    CorrelateOptions,
    CrosstabOptions,
    DescribeOptions,
    InquiryOptions,
    LevelsOptions,
    SurvivalOptions,
)
from radofed.planning.plan_options import PlanOptions
from wire.design_options import DESIGNS, OPTIONS, USUAL_DESIGN, taken_options
from wire.request_fields import AskOptions, QueryOptions, TrainOptions
from wire.roster import Roster
from wire.status import Phase, QueryStatus

# Queries that the console asks and follows, each in a thread, until their releases are saved.
#
# A query is on disk before it is sent, so that a console that ends, or is killed, loses nothing: the next one follows
# it.

MOST_WAITING = 32
PAGE_GIVES_UP_AFTER_S = 3.0
"""How long a page tries to reach the coordinator."""
_log = Log("console")
Prepared = TypeVar("Prepared")


class Waiting(Generic[Prepared]):
    """What waits for a confirmation, by name: at most MOST_WAITING; then the oldest is dropped."""

    def __init__(self, remedy: str) -> None:
        """remedy: what a person does whose plan was dropped."""
        self._remedy, self._lock = remedy, threading.Lock()
        self._prepared: dict[str, Prepared] = {}

    def keep(self, prepared: Prepared) -> str:
        """Keep it; returns its name."""
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._prepared[name] = prepared
            while len(self._prepared) > MOST_WAITING:
                self._prepared.pop(next(iter(self._prepared)))
        return name

    def find(self, visit: Visit) -> Prepared:
        """That of the visit's path. Raises ConfigurationError if it was dropped."""
        found = self._prepared.get(visit.path["plan"])
        if found is None:
            raise ConfigurationError(f"this plan is not kept any more, and nothing was asked: {self._remedy}")
        return found


def asked_parties(session: Session, notes: list[str]) -> tuple[Roster, Selection]:
    """The newest roster, and who of it would be asked; what a person should know is added to `notes`."""
    session.key  # noqa: B018 - without a key nothing can be asked
    roster = session.fetch_roster()
    roster.check_unexpired(time.time())
    parties = session.selection(roster)
    notes += filter(None, (parties.not_asked, *parties.warnings))
    return roster, parties


@dataclass
class Followed:
    """What is known of a query that is followed."""

    status: QueryStatus | None = None
    since_s: float = field(default_factory=time.monotonic)
    """Start of its phase, monotonic."""
    note: str = ""
    fault: str = ""
    """Why it stopped."""
    runs: bool = True

    @property
    def waited_s(self) -> float:
        """How long the phase has been watched."""
        return time.monotonic() - self.since_s

    def see(self, status: QueryStatus) -> None:
        """Take a new status in."""
        last = self.status
        if last is None or (last.attempt, last.phase) != (status.attempt, status.phase):
            self.since_s = time.monotonic()
        self.status = status


class Following:
    """The queries that one console follows."""

    def __init__(self, config: LearnerConfig) -> None:
        self._config = config
        self._followed: dict[bytes, Followed] = {}
        self._lock = threading.Lock()

    def session(self, note: list[str] | None = None) -> Session:
        """A session for one page, which gives up soon. note: receives what a command would note."""
        notes = [] if note is None else note
        return Session(self._config, give_up_after_s=PAGE_GIVES_UP_AFTER_S, note=notes.append, progress=False)

    def of(self, query_id: bytes) -> Followed | None:
        """What is known of a query; None if this console does not follow it."""
        return self._followed.get(query_id)

    def start(self, query_id: bytes) -> None:
        """Send a query that is on disk, unless it was sent, and follow it. Does nothing if it is followed."""
        with self._lock:
            known = self._followed.get(query_id)
            if known is not None and known.runs:
                return
            followed = self._followed[query_id] = Followed()
        # The thread ends with the console: what it has not done is on disk.
        threading.Thread(target=self._run, args=(query_id, followed), daemon=True).start()

    def resume(self) -> None:
        """Follow every query that was sent, and neither opened nor ended. For the start of a console."""
        if not self._config.state_directory.is_dir():
            return
        try:
            history = LearnerHistory(self._config)
            open_queries = [query_id for query_id in history.query_ids if history.is_open(query_id)]
        except RadofedError as error:
            _log.warning(f"queries of before are not followed: {error}")
            return
        for query_id in open_queries:
            self.start(query_id)

    def _run(self, query_id: bytes, followed: Followed) -> None:
        def note(sentence: str) -> None:
            followed.note = sentence

        try:
            with Session(self._config, note=note, progress=False) as session:
                session.send(query_id)
                if not session.release_directory(query_id).exists():
                    session.watch(query_id, followed.see)
                session.fetch(query_id)
        except Exception as error:  # noqa: BLE001 - the page says it, as a command would
            followed.fault = Failure.of(error).message
        finally:
            followed.runs = False


AT_ONCE = 20
_ID = re.compile(r"[0-9a-f]{64}")


def query_id_of(visit: Visit) -> bytes:
    """The query that a path names. Raises ConfigurationError."""
    if not _ID.fullmatch(visit.path["query"]):
        raise ConfigurationError("this is not the whole id of a query: open it from the page of queries")
    return bytes.fromhex(visit.path["query"])


def page_of(visit: Visit, count: int) -> tuple[int, int | None, int | None]:
    """The first entry to show, and those of the newer and the older page. query: skip."""
    text = visit.query.get("skip", "")
    skip = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return skip, (max(0, skip - AT_ONCE) if skip else None), (skip + AT_ONCE if skip + AT_ONCE < count else None)


class Queries:
    """The pages of queries, and what may be done with one."""

    def __init__(self, config: LearnerConfig, following: Following) -> None:
        self._config, self._following = config, following

    def history(self, visit: Visit) -> Answer:
        """As `rado learner history`."""
        # Before the first query there is no directory.
        reader = LearnerHistory(self._config) if self._config.state_directory.is_dir() else None
        ids = () if reader is None else reader.query_ids
        skip, newer, older = page_of(visit, len(ids))
        found = [] if reader is None else [reader.read(query_id) for query_id in ids[skip : skip + AT_ONCE]]
        values = {"queries": found, "count": len(ids), "newer": newer, "older": older, "following": self._following}
        return Shown("learner/queries.html", "Queries", values)

    def query(self, visit: Visit, template: str = "learner/query.html") -> Answer:
        """As `rado learner history QUERY` and `rado learner status`. query: seen, the phase that the page shows."""
        query_id = query_id_of(visit)
        reader = LearnerHistory(self._config)
        followed = self._following.of(query_id)
        status = None if followed is None else followed.status
        found = reader.read(query_id)
        runs = followed is not None and followed.runs
        values = {
            "found": found,
            "runs": runs,
            "ended": found.outcome.startswith("ended"),
            "sent": reader.is_sent(query_id),
            "followed": followed,
            "status": status,
            "sentence": "" if status is None else progress_sentence(status),
            "advice": "" if status is None else advice(status),
            "parties": [] if status is None else self._parties(query_id, status, reader),
            "lost": status is not None and status.phase is Phase.LOST,
            # When this changes, a screen reader hears it.
            "phase": f"{found.outcome} {runs} {'' if status is None else f'{status.attempt} {status.phase.word}'}",
            "seen": visit.query.get("seen"),
        }
        return Shown(template, f"Query {query_id.hex()[:16]}", values)

    @staticmethod
    def _parties(query_id: bytes, status: QueryStatus, reader: LearnerHistory) -> list[tuple[str, str]]:
        """Every party of the query's roster, and where it stands."""
        asked = [(each.party, party_words(each, status)) for each in status.parties]
        return asked + [(name, "not asked") for name in reader.not_asked(query_id)]

    def now(self, visit: Visit) -> Answer:
        """What changes of the page of a query."""
        return self.query(visit, "learner/query_now.html")

    def follow(self, visit: Visit) -> Answer:
        """As `rado learner send` and `rado learner fetch`."""
        query_id = query_id_of(visit)
        LearnerHistory(self._config).read(query_id)
        self._following.start(query_id)
        return Goto(f"queries/{query_id.hex()}")

    def cancel(self, visit: Visit) -> Answer:
        """As `rado learner cancel`."""
        query_id = query_id_of(visit)
        with self._following.session() as session:
            session.cancel(query_id)
        return Goto(f"queries/{query_id.hex()}")

    def retry(self, visit: Visit) -> Answer:
        """As `rado learner retry`. form: attempt, the one that was lost, so that a second click starts no other."""
        query_id = query_id_of(visit)
        with self._following.session() as session:
            if str(session.status(query_id).attempt) == visit.form.get("attempt"):
                session.retry(query_id)
        self._following.start(query_id)
        return Goto(f"queries/{query_id.hex()}")


# The fields of the page that plans: which options a design, an estimator or a batch of statistics takes.

PLAN, QUERY, BUDGET, TRAIN = Form(PlanOptions), Form(QueryOptions), Form(AskOptions), Form(TrainOptions)

INQUIRIES: Mapping[str, Form[InquiryOptions]] = {
    kind.inquiry: Form(kind)
    for kind in (DescribeOptions, CrosstabOptions, CompareOptions, CorrelateOptions, SurvivalOptions, LevelsOptions)
}

STATISTIC = "statistic"
CHOICES: Mapping[str, Sequence[str]] = {
    "One release": DESIGNS,
    "What an estimator asks": tuple(BY_QUERIES),
    "Counts and means": (STATISTIC,),
    "Descriptive statistics": tuple(INQUIRIES),
}
USUAL = USUAL_DESIGN

_ROWS = ("rows", "parties", "party_rows")
_OF_ASKING = (
    *("honest", "key_bits", "cohort_min", "colluders", "max_rows", "quorum_wait_s", "purpose", "study"),
    *("answer_within", "answer_within_s", "expires_after_s"),
)
# Not fields: where it runs, files of its machine, what is chosen above the form, and how a command waits and prints.
_NOT_SHOWN = {"config", "map_file", "design", "wait", "timeout_s", "retries", "ask_again", "would_accept"}
_NOT_OF_INQUIRIES = {"output", "picture", "plan", "release", "reuse"}
# In this order before the others, which are folded away.
_FIRST = (
    "schema",
    "label",
    "purpose",
    "study",
    "answer_within",
    *_ROWS,
    "statistic",
    "columns",
    "by",
    "reference",
    "edges",
    "at_least",
    "extend",
    "rados",
    "sensitive",
    "joint",
    "epsilon",
    "worth",
    "tolerance",
    "delta",
    "option",
    "rounds",
    "class_weight",
)


@dataclass(frozen=True)
class PlanFields:
    """The fields of one choice."""

    what: str
    first: tuple[Field, ...]
    """Shown at once."""
    more: tuple[Field, ...]
    """Folded away."""

    @property
    def is_design(self) -> bool:
        """Whether it is a release's design."""
        return self.what in DESIGNS

    @property
    def asks_by_itself(self) -> bool:
        """Whether it is an estimator, which asks several queries."""
        return not self.is_design and self.what != STATISTIC and not self.is_inquiry

    @property
    def is_inquiry(self) -> bool:
        """Whether it is an inquiry, such as a description or a cross table."""
        return self.what in INQUIRIES

    @property
    def chosen(self) -> dict[str, str]:
        """The option of `rado plan` that says what is planned."""
        if self.what == STATISTIC or self.is_inquiry:
            return {}
        return {"design" if self.is_design else "estimator": self.what}


def fields_of(what: str) -> PlanFields:
    """The fields for a design, an estimator or statistics: options of `rado plan` and `rado learner query`."""
    if what in INQUIRIES:
        return _fields_of_inquiry(what)
    of_plan, of_query = ({field.name: field for field in form.fields} for form in (PLAN, QUERY))
    if what in DESIGNS:
        taken = taken_options(what) | taken_options(what, joint=what == "dp-feat")
        names = {"schema", "label", *_ROWS, *(name for name in of_query if name in taken or name not in OPTIONS)}
        names |= {"worth"} if "epsilon" in taken else set()
    else:
        own = {"statistic", "tolerance", "confidence", "noise_rate", "adaptive"}
        own = own if what == STATISTIC else {"option", "rounds", "class_weight", "hold_back"}
        names = {"schema", "label", *_ROWS, *_OF_ASKING, "epsilon", "worth", "delta"} | own
    known = of_plan | of_query if what in DESIGNS else of_query | of_plan
    return _divided(what, [known[name] for name in known if name in names - _NOT_SHOWN])


def _fields_of_inquiry(what: str) -> PlanFields:
    rows = [each for each in PLAN.fields if each.name in _ROWS]
    own = [each for each in INQUIRIES[what].fields if each.name not in _NOT_SHOWN | _NOT_OF_INQUIRIES]
    return _divided(what, [*rows, *own])


def _divided(what: str, shown: Sequence[Field]) -> PlanFields:
    first = sorted((each for each in shown if each.name in _FIRST), key=lambda each: _FIRST.index(each.name))
    return PlanFields(what, tuple(first), tuple(each for each in shown if each.name not in _FIRST))
