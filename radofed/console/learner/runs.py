"""What asks several queries in a thread of the console: trainings and evaluations, with the pages while they run.

Each is on disk before its first query, with the journal of its queries. If the console ends, it stops before its next
query, and goes on only when a person says so: answers are read from disk, and only missing ones are asked and charged.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from learner.answer_source import RoundEndedError, RoundLostError
from learner.composition import Unanswered
from learner.config import LearnerConfig
from learner.history import AskedBeforeError
from learner.journal import SessionSource, query_ids_of
from learner.planning import Plan
from learner.progress import advice, party_words, progress_sentence
from learner.release import Release
from learner.requests import Request
from learner.session import Session
from radobase.failure import Failure
from radofed.console.learner.queries import Following, Waiting
from radofed.console.pages import Answer, Goto, Shown, Visit
from wire.roster import Member
from wire.status import QueryStatus
from wire.training import Training


class StoppedError(Exception):
    """A person stopped it before its next query."""


@dataclass(kw_only=True)
class PreparedRun:
    """What may be started."""

    given: Mapping[str, str]
    """Texts of the options of the command."""
    said: Sequence[str] = ()
    parties: Sequence[Member] = ()
    notes: Sequence[str] = ()
    started: str = ""
    """Its name, if it was started."""
    answers: Sequence[str] = ()
    """Of parties that were asked whether they would accept all of it."""
    lock: threading.Lock = field(default_factory=threading.Lock)


P = TypeVar("P", bound=PreparedRun)


@dataclass
class Run:
    """What is known of one that runs, or ran, in this console."""

    answers: int = 0
    status: QueryStatus | None = None
    note: str = ""
    fault: str = ""
    """Why it ended without a result."""
    may_ask_again: bool = False
    """Whether a round's query ended without a total."""
    may_reuse: bool = False
    """Whether a question was asked before and has an answer, or may get one."""
    stops: bool = False
    runs: bool = True

    def see(self, status: QueryStatus) -> None:
        """Take the status of the query in that is followed."""
        self.status = status

    def take(self, note: str) -> None:
        """Take a sentence about the progress in."""
        self.note = note


class Stoppable:
    """A `learner.answer_source.AnswerSource` that counts answers, and asks nothing more once the run stops."""

    def __init__(self, source: SessionSource, run: Run) -> None:
        self._source, self._run = source, run

    @property
    def rows(self) -> int:
        """The rows of the source."""
        return self._source.rows

    @property
    def persons(self) -> int:
        """The persons of the source."""
        return self._source.persons

    @property
    def earlier(self) -> Sequence[Release]:
        """The answers so far."""
        return self._source.earlier

    @property
    def training(self) -> Training | None:
        """The training that the source's journal announced."""
        return self._source.training

    @property
    def unanswered(self) -> Sequence[Unanswered]:
        """The queries without an answer."""
        return self._source.unanswered

    def plan(self, request: Request) -> Plan:
        """The plan of the source."""
        return self._source.plan(request)

    def answer(self, plan: Plan) -> Release:
        """The answer of the source, unless it was stopped."""
        if self._run.stops:
            raise StoppedError
        answer = self._source.answer(plan)
        self._run.answers += 1
        return answer


class Runs(ABC, Generic[P]):
    """Those of one sort."""

    place: ClassVar[str]
    """The path of their pages."""
    noun: ClassVar[str]
    doing: ClassVar[str]
    """The path of a confirmation."""
    verb: ClassVar[str]
    remedy: ClassVar[str]
    """What a person does whose plan is not kept any more."""

    def __init__(self, config: LearnerConfig, following: Following) -> None:
        self._config, self._following = config, following
        self.waiting = Waiting[P](self.remedy)
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def _created(self, prepared: P) -> str:
        """Write it to disk under a new name, and return it."""

    @abstractmethod
    def _questions(self, prepared: P) -> Sequence[str]:
        """What the parties say of all that would be asked. Raises RadofedError."""

    def confirmation(self, visit: Visit) -> Answer:
        """What is asked, of whom, and what it costs at most."""
        values = {"name": visit.path["plan"], "prepared": self.waiting.find(visit), "place": self.place}
        return Shown(f"learner/{self.verb}.html", f"{self.verb.capitalize()}?", {**values, "doing": self.doing})

    def start(self, visit: Visit) -> Answer:
        """As the command. A second time does nothing."""
        prepared = self.waiting.find(visit)
        with prepared.lock:
            if not prepared.started:
                prepared.started = self._created(prepared)
                self._begin(prepared.started)
        return Goto(f"{self.place}/{prepared.started}")

    def would_accept(self, visit: Visit) -> Answer:
        """As the command with `--would-accept`: ask the parties, and show what they say on the page."""
        prepared = self.waiting.find(visit)
        with prepared.lock:
            prepared.answers = self._questions(prepared)
        return Goto(f"{self.doing}/{visit.path['plan']}")

    @abstractmethod
    def _said(self, name: str) -> Mapping[str, Any]:
        """What their page says: subject, budget, command, and what is there when it is done.

        Raises ConfigurationError if there is none of this name, or its file is damaged.
        """

    @abstractmethod
    def _ask(self, name: str, run: Run, source: Callable[[Session], SessionSource]) -> None:
        """Ask what is missing, and save the result."""

    @abstractmethod
    def _result(self, name: str) -> Path:
        """The file that is there when it is done."""

    @abstractmethod
    def _journal(self, name: str) -> Path:
        """The file of its queries."""

    def _name(self, visit: Visit) -> str:
        return visit.path[self.noun]

    def shown(self, visit: Visit, template: str = "learner/running.html") -> Answer:
        """One while it runs, and afterwards. query: seen, the state that the page shows."""
        name = self._name(visit)
        said = self._said(name)
        run = self._runs.get(name)
        runs, status = self._is_running(name), None if run is None else run.status
        done = self._result(name).exists()
        asked = [query_id.hex() for query_id in query_ids_of(self._journal(name))]
        state = "done" if done else "runs" if runs else "stopped"
        values = {
            "name": name,
            **said,
            "place": self.place,
            "noun": self.noun,
            "run": run,
            "state": state,
            "asked": asked,
            "status": status,
            "sentence": "" if status is None else progress_sentence(status),
            "advice": "" if status is None else advice(status),
            "parties": [] if status is None else [(each.party, party_words(each, status)) for each in status.parties],
            # When this changes, a screen reader hears it.
            "phase": f"{state} {len(asked)} {'' if status is None else status.phase.word}",
            "seen": visit.query.get("seen"),
        }
        return Shown(template, f"{self.noun.capitalize()} {name}", values)

    def now(self, visit: Visit) -> Answer:
        """What changes of the page."""
        return self.shown(visit, "learner/running_now.html")

    def stop(self, visit: Visit) -> Answer:
        """Ask nothing more. The query that runs goes on, and its answer is kept."""
        name = self._name(visit)
        if (run := self._runs.get(name)) is not None:
            run.stops = True
        return Goto(f"{self.place}/{name}")

    def go_on(self, visit: Visit) -> Answer:
        """As the same command again, with its journal."""
        return self._again(visit, asks_again=False)

    def ask_again(self, visit: Visit) -> Answer:
        """As the same command with `--ask-again`."""
        return self._again(visit, asks_again=True)

    def reuse(self, visit: Visit) -> Answer:
        """As the same command with `--reuse`."""
        return self._again(visit, asks_again=False, reuses=True)

    def _again(self, visit: Visit, *, asks_again: bool, reuses: bool = False) -> Answer:
        name = self._name(visit)
        self._said(name)
        if not self._result(name).exists():
            self._begin(name, asks_again=asks_again, reuses=reuses)
        return Goto(f"{self.place}/{name}")

    def _is_running(self, name: str) -> bool:
        run = self._runs.get(name)
        return run is not None and run.runs

    def _begin(self, name: str, *, asks_again: bool = False, reuses: bool = False) -> None:
        """Run it in a thread, unless it runs."""
        with self._lock:
            if self._is_running(name):
                return
            run = self._runs[name] = Run()
        # The thread ends with the console: what was asked and answered is on disk.
        threading.Thread(target=self._work, args=(name, run, asks_again, reuses), daemon=True).start()

    def _session(self, run: Run) -> Session:
        return Session(self._config, note=run.take, progress=False)

    def _work(self, name: str, run: Run, asks_again: bool, reuses: bool) -> None:
        def source(session: Session) -> SessionSource:
            return SessionSource(
                session, self._journal(name), asks_again=asks_again, reuses=reuses, on_status=run.see, note=run.take
            )

        try:
            self._ask(name, run, source)
        except StoppedError:
            pass
        except AskedBeforeError as error:
            run.fault, run.may_reuse = str(error), True
        except RoundEndedError as error:
            run.fault, run.may_ask_again = str(error), True
        except RoundLostError as error:
            run.fault = str(error)
            if run.status is not None:
                # Its page offers another attempt.
                self._following.start(run.status.query_id)
        except Exception as error:  # noqa: BLE001 - the page says it, as a command would
            run.fault = Failure.of(error).message
        finally:
            run.runs = False
