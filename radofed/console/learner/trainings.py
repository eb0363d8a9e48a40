"""Trainings that ask parties, each in a thread: as `rado learner train --estimator`, with the same journal.

A training is on disk before its first query: its options, the schema, and then the journal of its queries. If the
console ends, the training stops before its next query. It goes on only when a person says so: queries that were
answered are read from disk, and only those that are still missing are asked and charged.
"""

import json
import re
import secrets
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeGuard

from dpcore.declared import number_text
from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.composition import Unanswered
from learner.config import LearnerConfig
from learner.federation import Federation, RoundEndedError, RoundLostError
from learner.history import AskedBeforeError
from learner.journal import SessionSource, query_ids_of
from learner.planning import Plan
from learner.progress import advice, party_words, progress_sentence
from learner.release import Release
from learner.requests import Request
from learner.session import Session
from learner.training import AskedTraining, warning_of
from radobase.failure import Failure
from radobase.reading import FileKind, parse_json, read_text, with_remedy
from radobase.schema_files import load_schema
from radobase.writing import create_durably, write_durably
from radofed.console.learner.queries import TRAIN, Following
from radofed.console.pages import Answer, Goto, Shown, Visit
from radofed.planning.asked_queries import ask_whole
from wire.request_fields import USUAL_DELTA, TrainOptions
from wire.roster import Member
from wire.status import QueryStatus

# The file of a training: what it was started with, so that a later console can go on with it.

FORMAT = "radofed-training"
FORMAT_VERSION = 2
_REMEDY = "train again, or by the command"
_FILE = FileKind(with_remedy(_REMEDY), limit_bytes=1 << 20)


@dataclass(frozen=True)
class TrainingFile:
    """What a training was started with."""

    estimator: str
    given: Mapping[str, str]
    """Texts of the options of `rado learner train`, by name."""
    warning: str = ""
    """Of the estimator, once it has a model."""

    def to_bytes(self) -> bytes:
        """JSON in UTF-8."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "estimator": self.estimator}
        return (json.dumps({**content, "given": dict(self.given), "warning": self.warning}, indent=2) + "\n").encode()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises ConfigurationError if it is no such file."""
        content = parse_json(read_text(path, _FILE), path, _FILE)
        estimator, given, warning = (content.get(key) for key in ("estimator", "given", "warning"))
        is_known = (content.get("format"), content.get("format_version")) == (FORMAT, FORMAT_VERSION)
        if is_known and isinstance(estimator, str) and isinstance(warning, str) and _are_texts(given):
            return cls(estimator, given, warning)
        raise ConfigurationError(f"{path}: no training of this version of radofed; {_REMEDY}")


def _are_texts(given: object) -> TypeGuard[dict[str, str]]:
    return isinstance(given, dict) and all(isinstance(text, str) for text in given.values())


MOST_KEPT = 32
"""Trainings that wait for a confirmation; the oldest is dropped."""
_SUFFIX = ".training"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")


class _StoppedError(Exception):
    """A person stopped a training before its next query."""


@dataclass
class PreparedTraining:
    """A training that may be started."""

    estimator: str
    given: Mapping[str, str]
    """Texts of the options of `rado learner train`."""
    schema: Schema
    said: Sequence[str]
    warning: str
    parties: Sequence[Member]
    notes: Sequence[str]
    started: str = ""
    """Its name, if it was started."""
    answers: Sequence[str] = ()
    """Of parties that were asked whether they would accept all of it."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Run:
    """What is known of a training that runs, or ran, in this console."""

    answers: int = 0
    status: QueryStatus | None = None
    note: str = ""
    fault: str = ""
    """Why it ended without a model."""
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


class _Stoppable:
    """A `learner.federation.AnswerSource` that counts answers, and asks nothing more once the run stops."""

    def __init__(self, source: SessionSource, run: Run) -> None:
        self._source, self._run = source, run

    @property
    def rows(self) -> int:
        return self._source.rows

    @property
    def persons(self) -> int:
        return self._source.persons

    @property
    def earlier(self) -> Sequence[Release]:
        return self._source.earlier

    @property
    def unanswered(self) -> Sequence[Unanswered]:
        return self._source.unanswered

    def plan(self, request: Request) -> Plan:
        return self._source.plan(request)

    def answer(self, plan: Plan) -> Release:
        if self._run.stops:
            raise _StoppedError
        answer = self._source.answer(plan)
        self._run.answers += 1
        return answer


class Trainings:
    """The trainings of one learner. Their files are in the directory of its models."""

    def __init__(self, file: Path, config: LearnerConfig, following: Following) -> None:
        self._file, self._config, self._following = file, config, following
        self._models = config.releases_directory.with_name("models")
        self._prepared: dict[str, PreparedTraining] = {}
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def options(self, estimator: str, values: Mapping[str, str]) -> tuple[dict[str, str], TrainOptions]:
        """The options of the command among a form's values: their texts, and as the command reads them.

        Raises ConfigurationError with the command's own sentence.
        """
        own = {each.name for each in TRAIN.fields} - {
            "to",
            "config",
            "schema",
            # The file that is kept is of the one label.
            "label",
            "estimator",
            "ask_again",
            "reuse",
            "would_accept",
        }
        texts = {name: text for name, text in values.items() if name in own and text.strip()}
        return texts, TRAIN.parse(texts, to=str(self._models / "model.json"), estimator=estimator)

    def prepare(self, prepared: PreparedTraining) -> str:
        """Keep a training for its confirmation; returns its name until then. Raises as AskedTraining.of does."""
        _, given = self.options(prepared.estimator, prepared.given)
        AskedTraining.of(prepared.estimator, given, prepared.schema)
        name = secrets.token_urlsafe(16)
        with self._lock:
            self._prepared[name] = prepared
            while len(self._prepared) > MOST_KEPT:
                self._prepared.pop(next(iter(self._prepared)))
        return name

    def confirmation(self, visit: Visit) -> Answer:
        """What is asked, of whom, and what it costs at most."""
        values = {"name": visit.path["plan"], "prepared": self._waiting(visit)}
        return Shown("learner/train.html", "Train?", values)

    def start(self, visit: Visit) -> Answer:
        """As `rado learner train --estimator`. A second time does nothing."""
        prepared = self._waiting(visit)
        with prepared.lock:
            if not prepared.started:
                prepared.started = self._created(prepared)
                self._begin(prepared.started)
        return Goto(f"trainings/{prepared.started}")

    def would_accept(self, visit: Visit) -> Answer:
        """As `rado learner train --would-accept`: ask the parties, and show what they say on the page."""
        prepared = self._waiting(visit)
        _, given = self.options(prepared.estimator, prepared.given)
        with prepared.lock, self._following.session() as session:
            found, warning = ask_whole(session, prepared.estimator, given, prepared.schema)
        said = [sentence for each in found for sentence in each.sentences()]
        prepared.answers = [*said, *filter(None, [warning])]
        return Goto(f"training/{visit.path['plan']}")

    def training(self, visit: Visit, template: str = "learner/training.html") -> Answer:
        """A training while it runs, and afterwards. query: seen, the state that the page shows."""
        name = visit.path["training"]
        kept = self._read(name)
        run = self._runs.get(name)
        runs, status = self._is_running(name), None if run is None else run.status
        done = self._model(name).exists()
        asked = [query_id.hex() for query_id in query_ids_of(self._journal(name))]
        state = "done" if done else "runs" if runs else "stopped"
        values = {
            "name": name,
            "estimator": kept.estimator,
            "run": run,
            "state": state,
            "asked": asked,
            "budget": (kept.given.get("epsilon"), kept.given.get("delta", number_text(USUAL_DELTA))),
            "status": status,
            "sentence": "" if status is None else progress_sentence(status),
            "advice": "" if status is None else advice(status),
            "parties": [] if status is None else [(each.party, party_words(each, status)) for each in status.parties],
            "command": self._command(name, kept),
            # When this changes, a screen reader hears it.
            "phase": f"{state} {len(asked)} {'' if status is None else status.phase.word}",
            "seen": visit.query.get("seen"),
        }
        return Shown(template, f"Training {name}", values)

    def now(self, visit: Visit) -> Answer:
        """What changes of the page of a training."""
        return self.training(visit, "learner/training_now.html")

    def stop(self, visit: Visit) -> Answer:
        """Ask nothing more. The query that runs goes on, and its answer is kept."""
        name = visit.path["training"]
        if (run := self._runs.get(name)) is not None:
            run.stops = True
        return Goto(f"trainings/{name}")

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
        name = visit.path["training"]
        self._read(name)
        if not self._model(name).exists():
            self._begin(name, asks_again=asks_again, reuses=reuses)
        return Goto(f"trainings/{name}")

    def unfinished(self) -> list[tuple[str, bool]]:
        """The names of trainings without a model, newest first, and whether this console runs them."""
        found = [path for path in self._models.glob(f"*{_SUFFIX}") if _NAME.fullmatch(path.stem)]
        names = [path.stem for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]
        return [
            (name, name in self._runs and self._runs[name].runs) for name in names if not self._model(name).exists()
        ]

    def warning(self, name: str) -> str:
        """What the estimator of a model that was trained here warned of; empty if nothing is known."""
        return self._read(name).warning if self._path(name).exists() else ""

    def _is_running(self, name: str) -> bool:
        run = self._runs.get(name)
        return run is not None and run.runs

    def _waiting(self, visit: Visit) -> PreparedTraining:
        found = self._prepared.get(visit.path["plan"])
        if found is None:
            raise ConfigurationError("this plan is not kept any more, and nothing was asked: plan again")
        return found

    def _created(self, prepared: PreparedTraining) -> str:
        """Write a training to disk under a new name, and return it."""
        self._models.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            name = f"{prepared.estimator}-{number}"
            try:
                create_durably(self._schema(name), prepared.schema.to_toml().encode())
            except FileExistsError:
                number += 1
                continue
            create_durably(self._path(name), TrainingFile(prepared.estimator, prepared.given).to_bytes())
            return name

    def _begin(self, name: str, *, asks_again: bool = False, reuses: bool = False) -> None:
        """Run a training in a thread, unless it runs."""
        with self._lock:
            if self._is_running(name):
                return
            run = self._runs[name] = Run()
        # The thread ends with the console: what was asked and answered is on disk.
        threading.Thread(target=self._work, args=(name, run, asks_again, reuses), daemon=True).start()

    def _work(self, name: str, run: Run, asks_again: bool, reuses: bool) -> None:
        try:
            kept = self._read(name)
            _, options = self.options(kept.estimator, kept.given)
            training = AskedTraining.of(kept.estimator, options, load_schema(self._schema(name)))
            with Session(self._config, note=run.take, progress=False) as session:
                source = SessionSource(
                    session, self._journal(name), asks_again=asks_again, reuses=reuses, on_status=run.see, note=run.take
                )
                trained = training.run(Federation(_Stoppable(source, run), training.schema, **training.terms))
            if warning := warning_of(trained.estimator, trained.oracle.answers):
                write_durably(self._path(name), replace(kept, warning=warning).to_bytes())
            trained.model.save(self._model(name))
        except _StoppedError:
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

    def _read(self, name: str) -> TrainingFile:
        """Raises ConfigurationError if there is no such training, or its file is damaged."""
        path = self._path(name)
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConfigurationError("there is no such training: open it from the page of models")
        return TrainingFile.load(path)

    def _command(self, name: str, kept: TrainingFile) -> str:
        """The command that does the same, and that goes on with it."""
        words = ["rado", "learner", "train", "--estimator", kept.estimator, "--config", str(self._file)]
        words += ["--schema", str(self._schema(name)), *TRAIN.arguments(kept.given), "--output", str(self._model(name))]
        return shlex.join(words)

    def _path(self, name: str) -> Path:
        return self._models / f"{name}{_SUFFIX}"

    def _schema(self, name: str) -> Path:
        return self._models / f"{name}.schema.toml"

    def _model(self, name: str) -> Path:
        return self._models / f"{name}.json"

    def _journal(self, name: str) -> Path:
        # That of the command, by default.
        return self._models / f"{name}.json.journal"
