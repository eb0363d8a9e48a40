"""Evaluations of models on the parties' rows, each in a thread: as `rado learner evaluate`, with a journal.

An evaluation is two or three batches of statistics. What was answered is on disk, so one that was stopped goes on
without being charged again for it. Its file is what `rado learner report --evaluation` reads.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError, RadofedError
from dpcore.statistics.adaptive import Adaptive, Way
from learner.budgeted_oracle import BudgetedOracle
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.model import Model
from learner.planning import statements
from learner.progress import answers_in_words
from learner.questions import Questions, check_evaluation
from learner.report.measured import evaluation_content, read_evaluation
from learner.report.page import evaluation_page
from learner.session import Session
from radobase.reading import FileKind, parse_json, read_bytes, read_text, with_remedy
from radobase.writing import create_durably, write_durably
from radofed import __version__
from radofed.console.learner.queries import AT_ONCE, Following, asked_parties, page_of
from radofed.console.learner.releases import kept
from radofed.console.learner.runs import PreparedRun, Run, Runs, Stoppable
from radofed.console.pages import Answer, Field, File, Form, Goto, Shown, Visit
from radofed.evaluation_options import EvaluateOptions, check_evaluated, evaluation_questions, held_back_of
from wire.request_fields import AskedTerms

EVALUATE = Form(EvaluateOptions)
_FIRST = ("purpose", "study", "epsilon", "delta", "bins", "cost")
_NOT_SHOWN = {
    *("config", "model", "calibrated", "at_threshold", "wait", "timeout_s", "retries"),
    *("reuse", "ask_again", "would_accept"),
}
FORMAT = "radofed-evaluation"
FORMAT_VERSION = 1
_FILE = FileKind(with_remedy("evaluate again, or by the command"), limit_bytes=1 << 20)
_SUFFIX = ".evaluation"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,90}")


@dataclass(frozen=True)
class EvaluationFile:
    """What an evaluation was started with."""

    model: str
    """The name of a model of the console."""
    given: Mapping[str, str]
    """Texts of the options of `rado learner evaluate`, by name."""
    said: Sequence[str] = ()
    """The result in words."""

    def to_bytes(self) -> bytes:
        """JSON in UTF-8."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "model": self.model}
        return (json.dumps({**content, "given": dict(self.given), "said": list(self.said)}, indent=2) + "\n").encode()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises ConfigurationError if it is no such file."""
        content = parse_json(read_text(path, _FILE), path, _FILE)
        model, given, said = (content.get(key) for key in ("model", "given", "said"))
        is_known = (content.get("format"), content.get("format_version")) == (FORMAT, FORMAT_VERSION)
        texts = [model, *(given.values() if isinstance(given, dict) else [None])]
        texts += said if isinstance(said, list) else [None]
        if is_known and all(isinstance(text, str) for text in texts) and _NAME.fullmatch(str(model)):
            return cls(str(model), dict(given or {}), tuple(said or ()))
        raise ConfigurationError(f"{path}: no evaluation of this version of radofed; evaluate again, or by the command")


@dataclass(kw_only=True)
class PreparedEvaluation(PreparedRun):
    """An evaluation that may be started."""

    model: str


class Evaluations(Runs[PreparedEvaluation]):
    """The evaluations of one learner. Their files are in a directory beside that of its models."""

    place: ClassVar[str] = "evaluations"
    noun: ClassVar[str] = "evaluation"
    doing: ClassVar[str] = "evaluating"
    verb: ClassVar[str] = "evaluate"
    remedy: ClassVar[str] = "evaluate again"

    def __init__(self, file: Path, config: LearnerConfig, following: Following) -> None:
        super().__init__(config, following)
        self._file = file
        self._models = config.releases_directory.with_name("models")
        self._directory = config.releases_directory.with_name("evaluations")

    def all(self, visit: Visit) -> Answer:
        """The form, and the evaluations, newest first. query: model, the one that is chosen."""
        return self._listed(visit, {"model": visit.query.get("model", "")})

    def prepare(self, visit: Visit) -> Answer:
        """On to the confirmation. form: model, and the options."""
        values = {name: visit.form.get(name, "") for name in ("model", *(each.name for each in _shown_fields()))}
        try:
            return Goto(f"evaluating/{self._planned(values)}")
        except RadofedError as error:
            return self._listed(visit, values, str(error))

    def _questions(self, prepared: PreparedEvaluation) -> Sequence[str]:
        model, options = self._options(prepared.model, prepared.given)
        with self._following.session() as session:
            federation = _federation(Questions(session, only_asks=True), model, options)
            found, unknown = evaluation_questions(model, federation, _oracle(federation, options), options)
        return [*answers_in_words(found), *filter(None, [unknown])]

    def one(self, visit: Visit) -> Answer:
        """An evaluation while it runs, and its tables and pictures. query: `saved` for the page as a file."""
        name = self._name(visit)
        found = self._read(name)
        if not self._result(name).exists():
            return self.shown(visit)
        model = self._model(found.model)
        measured = read_evaluation(self._result(name), model)
        made = evaluation_page(model, found.model, measured, found.said, __version__)
        return kept(visit, made, f"evaluations/{name}", f"evaluation-{name}.html")

    def download(self, visit: Visit) -> Answer:
        """The file, which `rado learner report --evaluation` reads."""
        name = self._name(visit)
        self._read(name)
        path = self._result(name)
        if not path.exists():
            raise ConfigurationError("the evaluation has no result yet: open its page")
        return File(path.name, read_bytes(path, _FILE), "application/json")

    def _listed(self, visit: Visit, entered: Mapping[str, str], fault: str = "") -> Answer:
        found = sorted(self._directory.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        names = [path.stem for path in found if _NAME.fullmatch(path.stem)]
        skip, newer, older = page_of(visit, len(names))
        fields = _shown_fields()
        first = sorted((each for each in fields if each.name in _FIRST), key=lambda each: _FIRST.index(each.name))
        more = [each for each in fields if each.name not in _FIRST]
        models = [path for path in self._models.glob("*.json") if _NAME.fullmatch(path.stem)]
        values = {
            "models": [path.stem for path in sorted(models, key=lambda path: path.stat().st_mtime, reverse=True)],
            "entered": entered,
            "first": first,
            "more": more,
            "more_given": any(entered.get(each.name, each.default) != each.default for each in more),
            "fault": fault,
            "evaluations": [self._line(name) for name in names[skip : skip + AT_ONCE]],
            "count": len(names),
            "newer": newer,
            "older": older,
            "directory": self._directory,
        }
        return Shown("learner/evaluations.html", "Evaluations", values)

    def _line(self, name: str) -> tuple[str, EvaluationFile | None, str]:
        """An evaluation, and how far it is or why it cannot be read."""
        try:
            found = self._read(name)
        except RadofedError as error:
            return name, None, str(error)
        state = "done" if self._result(name).exists() else "runs" if self._is_running(name) else "does not run"
        return name, found, found.said[0] if found.said else state

    def _options(self, model: str, given: Mapping[str, str]) -> tuple[Model, EvaluateOptions]:
        """The model, and the options as the command reads them. Raises ConfigurationError, also for a wrong option."""
        loaded = self._model(model)
        options = EVALUATE.parse(given, model=str(self._model_file(model)))
        options.budget("an evaluation")
        check_evaluated(loaded, options)
        return loaded, options

    def _planned(self, values: Mapping[str, str]) -> str:
        """Plan what is asked of the accepted parties of the newest roster, and keep it to be confirmed."""
        given = {each.name: values[each.name] for each in _shown_fields() if values[each.name].strip()}
        model, options = self._options(values["model"], given)
        notes: list[str] = []
        with self._following.session(notes) as session:
            _, parties = asked_parties(session, notes)
            stated = statements(options, session.study)
        part = held_back_of(model)
        about = (
            "all rows, on which it may have been trained: nothing is claimed about new ones"
            if part is None
            else part.words()
        )
        batches = model.scoring.batches(model, options)
        said = [
            *stated,
            f"About {about}.",
            *(f"Batch {number}: {each.what}." for number, each in enumerate(batches, 1)),
        ]
        return self.waiting.keep(
            PreparedEvaluation(model=values["model"], given=given, said=said, parties=parties.asked, notes=notes)
        )

    def _created(self, prepared: PreparedEvaluation) -> str:
        self._directory.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            name = f"{prepared.model}-{number}"
            try:
                create_durably(self._path(name), EvaluationFile(prepared.model, prepared.given).to_bytes())
            except FileExistsError:
                number += 1
                continue
            return name

    def _ask(self, name: str, run: Run, source: Callable[[Session], SessionSource]) -> None:
        found = self._read(name)
        model, options = self._options(found.model, found.given)
        with self._session(run) as session:
            asked = source(session)
            oracle = _oracle(_federation(Stoppable(asked, run), model, options), options)
            for sentence in check_evaluation(model, oracle, options, asked):
                run.take(sentence)
            figures = model.scoring.evaluate(model, oracle, options)
        said = EvaluationFile(found.model, found.given, tuple(figures.sentences()))
        write_durably(self._path(name), said.to_bytes())
        content = evaluation_content(model, self._model_file(found.model), figures, oracle.statement())
        write_durably(self._result(name), (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def _said(self, name: str) -> Mapping[str, Any]:
        found = self._read(name)
        words = ["rado", "learner", "evaluate", str(self._model_file(found.model)), "--config", str(self._file)]
        return {
            "subject": ("Model", found.model),
            "budget": (found.given.get("epsilon"), found.given.get("delta", "0")),
            "command": shlex.join([*words, *EVALUATE.arguments(found.given), "--reuse"]),
            "done": (f"evaluations/{name}", "Open the evaluation", "its tables and pictures"),
        }

    def _read(self, name: str) -> EvaluationFile:
        """Raises ConfigurationError if there is no such evaluation, or its file is damaged."""
        path = self._path(name)
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConfigurationError("there is no such evaluation: open it from the page of evaluations")
        return EvaluationFile.load(path)

    def _model(self, name: str) -> Model:
        return Model.load(self._model_file(name))

    def _model_file(self, name: str) -> Path:
        path = self._models / f"{name}.json"
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConfigurationError("choose a model: there is none of this name in the console's directory of models")
        return path

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    def _result(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _journal(self, name: str) -> Path:
        return self._directory / f"{name}.journal"


def _shown_fields() -> Sequence[Field]:
    return [each for each in EVALUATE.fields if each.name not in _NOT_SHOWN]


def _federation(source: Any, model: Model, options: EvaluateOptions) -> Federation:
    return Federation(source, model.schema, **values_of(options, AskedTerms), held_back=held_back_of(model))


def _oracle(federation: Federation, options: EvaluateOptions) -> BudgetedOracle:
    series = None if options.adaptive is None else Adaptive(options.adaptive, Way.SPLIT)
    return federation.within(*options.budget("an evaluation"), series)
