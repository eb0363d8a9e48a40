"""Trainings that ask parties, each in a thread: as `rado learner train --estimator`, with the same journal.

A training is on disk before its first query: its options, the schema, and then the journal of its queries. If the
console ends, the training stops before its next query. It goes on only when a person says so: queries that were
answered are read from disk, and only those that are still missing are asked and charged.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard

from dpcore.declared import number_text
from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.federation import Federation
from learner.journal import SessionSource
from learner.progress import answers_in_words
from learner.session import Session
from learner.training import AskedTraining, warning_of
from radobase.reading import FileKind, parse_json, read_text, with_remedy
from radobase.schema_files import load_schema
from radobase.writing import create_durably, write_durably
from radofed.console.learner.queries import TRAIN, Following
from radofed.console.learner.runs import PreparedRun, Run, Runs, Stoppable
from radofed.planning.asked_queries import ask_whole
from wire.request_fields import USUAL_DELTA, TrainOptions

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


_SUFFIX = ".training"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")


@dataclass(kw_only=True)
class PreparedTraining(PreparedRun):
    """A training that may be started."""

    estimator: str
    schema: Schema
    warning: str = ""


class Trainings(Runs[PreparedTraining]):
    """The trainings of one learner. Their files are in the directory of its models."""

    place: ClassVar[str] = "trainings"
    noun: ClassVar[str] = "training"
    doing: ClassVar[str] = "training"
    verb: ClassVar[str] = "train"
    remedy: ClassVar[str] = "plan again"

    def __init__(self, file: Path, config: LearnerConfig, following: Following) -> None:
        super().__init__(config, following)
        self._file = file
        self._models = config.releases_directory.with_name("models")

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
        return self.waiting.keep(prepared)

    def _questions(self, prepared: PreparedTraining) -> Sequence[str]:
        _, given = self.options(prepared.estimator, prepared.given)
        with self._following.session() as session:
            found, warning = ask_whole(session, prepared.estimator, given, prepared.schema)
        return [*answers_in_words(found), *filter(None, [warning])]

    def unfinished(self) -> list[tuple[str, bool]]:
        """The names of trainings without a model, newest first, and whether this console runs them."""
        found = [path for path in self._models.glob(f"*{_SUFFIX}") if _NAME.fullmatch(path.stem)]
        names = [path.stem for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]
        return [
            (name, name in self._runs and self._runs[name].runs) for name in names if not self._result(name).exists()
        ]

    def warning(self, name: str) -> str:
        """What the estimator of a model that was trained here warned of; empty if nothing is known."""
        return self._read(name).warning if self._path(name).exists() else ""

    def _created(self, prepared: PreparedTraining) -> str:
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

    def _ask(self, name: str, run: Run, source: Callable[[Session], SessionSource]) -> None:
        kept = self._read(name)
        _, options = self.options(kept.estimator, kept.given)
        training = AskedTraining.of(kept.estimator, options, load_schema(self._schema(name)))
        with self._session(run) as session:
            trained = training.run(Federation(Stoppable(source(session), run), training.schema, **training.terms))
        if warning := warning_of(trained.estimator, trained.oracle.answers):
            write_durably(self._path(name), replace(kept, warning=warning).to_bytes())
        trained.model.save(self._result(name))

    def _said(self, name: str) -> Mapping[str, Any]:
        kept = self._read(name)
        return {
            "subject": ("Estimator", kept.estimator),
            "budget": (kept.given.get("epsilon"), kept.given.get("delta", number_text(USUAL_DELTA))),
            "command": self._command(name, kept),
            "done": (f"models/{name}", "Open the model", "its coefficients, its privacy statement, its report"),
        }

    def _read(self, name: str) -> TrainingFile:
        """Raises ConfigurationError if there is no such training, or its file is damaged."""
        path = self._path(name)
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConfigurationError("there is no such training: open it from the page of models")
        return TrainingFile.load(path)

    def _command(self, name: str, kept: TrainingFile) -> str:
        """The command that does the same, and that goes on with it."""
        words = ["rado", "learner", "train", "--estimator", kept.estimator, "--config", str(self._file)]
        words += ["--schema", str(self._schema(name)), *TRAIN.arguments(kept.given)]
        words += ["--output", str(self._result(name))]
        return shlex.join(words)

    def _path(self, name: str) -> Path:
        return self._models / f"{name}{_SUFFIX}"

    def _schema(self, name: str) -> Path:
        return self._models / f"{name}.schema.toml"

    def _result(self, name: str) -> Path:
        return self._models / f"{name}.json"

    def _journal(self, name: str) -> Path:
        # That of the command, by default.
        return self._models / f"{name}.json.journal"
