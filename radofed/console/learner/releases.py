"""Releases, training on them, and models."""

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, RadofedError
from learner.clipped_weights import what_clipping_does
from learner.config import LearnerConfig
from learner.estimates import estimates_of
from learner.estimators import FROM_RELEASES, class_of, make_estimator
from learner.hazard_models import ranked_ratios
from learner.history import RELEASE_NAME_DIGITS
from learner.inquiries import inquiry_file, read_again
from learner.inquiry_pictures import survival_plot
from learner.model import Model, content_of
from learner.release import Release
from learner.report import page
from learner.report.coefficients import effects
from learner.report.gathering import Sources, gather
from learner.report.page import document
from learner.report.pictures import usual
from learner.report.sentences import BESIDE_AVERAGE
from learner.shapes import every_shapes
from learner.training import fitted, learns, model_of, warning_of
from radobase.options import named_options
from radobase.presentation.page import Document
from radobase.presentation.svg import Drawing, bars
from radobase.printing import amount
from radofed import __version__
from radofed.console.learner.queries import AT_ONCE, page_of
from radofed.console.learner.trainings import Trainings
from radofed.console.pages import Answer, File, Goto, Shown, Visit
from wire.query_summary import QuerySummary

MOST_BARS = 60
MOST_BARS_OF_CLASS = 12
MOST_ESTIMATES = 500
_RELEASE = re.compile(rf"[0-9a-f]{{{RELEASE_NAME_DIGITS}}}")
_MODEL = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
_SIZES = "The standard deviation of what each column, and each pair of columns, adds to {}."
_COEFFICIENTS = (
    "What each coordinate adds to the score at most: a number at its upper bound, a boolean if true, a category if it "
    "is this value. Bars to the right raise the score, bars to the left lower it."
)
_METHODS = {"rados": "fit_release", "moments": "fit_moments"}


class Releases:
    """The pages of releases and models. Models are files in a directory beside that of the releases."""

    def __init__(self, file: Path, config: LearnerConfig, trainings: Trainings) -> None:
        self._file, self._config, self._trainings = file, config, trainings
        self._releases = config.releases_directory
        self._models = config.releases_directory.with_name("models")
        self._warnings: dict[str, str] = {}

    def all(self, visit: Visit) -> Answer:
        """The releases, newest first."""
        found = _newest(path for path in self._releases.glob("*") if _RELEASE.fullmatch(path.name) and path.is_dir())
        skip, newer, older = page_of(visit, len(found))
        releases = [(path.name, *_loaded(Release, path)) for path in found[skip : skip + AT_ONCE]]
        values = {"releases": releases, "count": len(found), "newer": newer, "older": older}
        return Shown("learner/releases.html", "Releases", values)

    def one(self, visit: Visit) -> Answer:
        """What a release holds, its privacy statement, and the form to train on it."""
        return self._shown(visit.path["release"], {})

    def train(self, visit: Visit) -> Answer:
        """As `rado learner train RELEASE`. form: estimator, option (one a line)."""
        name, form = visit.path["release"], visit.form
        try:
            return Goto(f"models/{self._trained(name, form.get('estimator', ''), form.get('option', ''))}")
        except RadofedError as error:
            return self._shown(name, dict(form), str(error))

    def models(self, visit: Visit) -> Answer:
        """The models that were trained here, newest first."""
        found = _newest(path for path in self._models.glob("*.json") if _MODEL.fullmatch(path.stem))
        skip, newer, older = page_of(visit, len(found))
        models = [(path.stem, *_loaded(Model, path)) for path in found[skip : skip + AT_ONCE]]
        values = {"models": models, "count": len(found), "newer": newer, "older": older, "directory": self._models}
        return Shown("learner/models.html", "Models", values | {"unfinished": self._trainings.unfinished()})

    def model(self, visit: Visit) -> Answer:
        """The coefficients of a model in units of the columns, hazard ratios or sizes of shapes, and its privacy."""
        name = visit.path["model"]
        path = self._model_file(name)
        model = Model.load(path)
        common = {
            "name": name,
            "file": path,
            "model": model,
            "sentences": model.statement.sentences(),
            "warning": self._warnings.get(name) or self._trainings.warning(name),
        }
        mapped, commands = model.feature_map is not None, _commands_of(model, path, self._file)
        if model.log_hazards is not None and not mapped:
            own = {"ratios": ranked_ratios(model), "commands": commands}
            return Shown("learner/hazard_model.html", "Model", common | own)
        scores = model.linear_scores
        values = {
            "rows": []
            if mapped
            else [
                (column, words, [float(row @ score.theta) for score in scores])
                for column, words, row in effects(model.schema)
            ],
            "names": model.scoring.names,
            "tables": [] if mapped or len(scores) > 1 else [(each, each.cells()) for each in model.coefficients()],
            "clipping": what_clipping_does(model) if len(scores) > 1 else (),
            "mapped": mapped,
            "bars": _bars_of(model),
            "beside_average": BESIDE_AVERAGE,
            "commands": commands,
        }
        return Shown("learner/model.html", "Model", common | values)

    def download(self, visit: Visit) -> Answer:
        """The model's file."""
        path = self._model_file(visit.path["model"])
        return File(path.name, content_of(path), "application/json")

    def release_report(self, visit: Visit) -> Answer:
        """As `rado learner report RELEASE`."""
        name = visit.path["release"]
        return self._report(visit, self._release_directory(name), f"releases/{name}/report")

    def model_report(self, visit: Visit) -> Answer:
        """As `rado learner report MODEL`."""
        name = visit.path["model"]
        return self._report(visit, self._model_file(name), f"models/{name}/report")

    def model_shapes(self, visit: Visit) -> Answer:
        """As `rado learner picture MODEL`."""
        path = self._model_file(visit.path["model"])
        model = Model.load(path)
        made = page.picture_page(model, path.name, usual(every_shapes(model)), __version__)
        return kept(visit, made, f"models/{path.stem}/shapes", f"shapes-{path.stem}.html")

    def _report(self, visit: Visit, subject: Path, address: str) -> Answer:
        made = document(gather(Sources(subject, config=self._config), time.time(), __version__))
        return kept(visit, made, address, f"report-{subject.stem}.html")

    def _shown(self, name: str, entered: dict[str, str], fault: str = "") -> Answer:
        directory = self._release_directory(name)
        release = Release.load(directory)
        learned_as = release.query.kind.learned_as
        method = "" if learned_as is None else _METHODS[learned_as]
        known = [name for name in FROM_RELEASES if method and learns(name, release.schema)]
        values = {
            "name": name,
            "directory": directory,
            "release": release,
            "sentences": release.statement.sentences(),
            "estimators": [each for each in known if hasattr(class_of(each), method)],
            "entered": entered,
            "fault": fault,
            **_estimates(release),
            **_figures(directory),
        }
        return Shown("learner/release.html", f"Release {name}", values)

    def _trained(self, name: str, estimator_name: str, option_lines: str) -> str:
        """Train and save a model, and return its name."""
        if estimator_name not in FROM_RELEASES:
            raise ConfigurationError("choose an estimator that learns from a release")
        options = named_options(line.strip() for line in option_lines.splitlines() if line.strip())
        # Check the options before a release is loaded, which may be slow.
        make_estimator(estimator_name, **{key: value for key, value in options.items() if key != "synthetic_rados"})
        release = Release.load(self._release_directory(name))
        estimator = fitted(release, estimator_name, **options)
        model = model_of(estimator, release, estimator_name)
        self._models.mkdir(parents=True, exist_ok=True)
        stem, number = f"{name}-{estimator_name}", 1
        while (file := self._models / f"{stem}-{number}.json").exists():
            number += 1
        model.save(file)
        self._warnings[file.stem] = warning_of(estimator, release) or ""
        return file.stem

    def _release_directory(self, name: str) -> Path:
        if not _RELEASE.fullmatch(name):
            raise ConfigurationError("there is no such release: open it from the page of releases")
        return self._releases / name

    def _model_file(self, name: str) -> Path:
        path = self._models / f"{name}.json"
        if not _MODEL.fullmatch(name) or not path.is_file():
            raise ConfigurationError("there is no such model: open it from the page of models")
        return path


def kept(visit: Visit, made: Document, address: str, name: str) -> Answer:
    """A page of the console that can be saved; query: `saved` for it as a file."""
    if visit.query.get("saved"):
        return File(name, made.saved().encode(), "text/html")
    return Shown.of(made, f"{address}?saved=yes")


def _bars_of(model: Model) -> list[tuple[str, Drawing, str]]:
    """For each score what it speaks for, its largest coefficients or the sizes of its shapes, and what they are."""
    found, weighted = [], _weights_of(model)
    most = MOST_BARS if len(weighted) == 1 else MOST_BARS_OF_CLASS
    title = "Coefficients" if model.feature_map is None else "Sizes of shapes"
    for place, (name, said, weights) in enumerate(weighted):
        largest = sorted(weights, key=lambda each: -abs(each[1]))[:most]
        shown = [(each, f"{value:.3g}", value, None) for each, value in largest]
        words = f"{said}{_left_out(len(weights) - len(largest))}"
        of, id_ = (f", for {name}", f"weights-{place + 1}") if len(weighted) > 1 else ("", "weights")
        found.append((name, bars(id_, f"{title}{of}", words, shown), words))
    return found


def _weights_of(model: Model) -> list[tuple[str, str, list[tuple[str, float]]]]:
    """For each score what it speaks for, what its bars are, and these: coefficients, or sizes of shapes."""
    if model.feature_map is not None:
        return [
            (shapes.label, _SIZES.format(shapes.adds_to), [(shape.title, shape.size) for shape in shapes.ranked])
            for shapes in every_shapes(model)
        ]
    return [
        (score.name, _COEFFICIENTS, list(zip(model.names, score.theta.tolist(), strict=True)))
        for score in model.linear_scores
    ]


def _commands_of(model: Model, path: Path, config: Path) -> str:
    """The commands that use a model and measure it."""
    found = (
        ["predict", str(path), "new.csv", "--output", "scores.csv" if model.scoring.has_classes else "predicted.csv"],
        ["evaluate", str(path), "--config", str(config), "--epsilon", "1"],
    )
    return "\n".join(shlex.join(["rado", "learner", *words]) for words in found)


def _left_out(count: int) -> str:
    return f" Left out: {amount(count, 'smaller one')}." if count else ""


def _estimates(release: Release) -> dict[str, Any]:
    """What a release of statistics says, as `rado learner statistic` prints it; empty for any other."""
    if not release.query.kind.batch:
        return {"estimates": None}
    found, asked = estimates_of(release), QuerySummary.of(release.query)
    values = zip(asked.predicates[:MOST_ESTIMATES], found.values.tolist(), strict=False)
    return {"estimates": found, "values": list(values), "more_values": max(0, len(found.values) - MOST_ESTIMATES)}


def _figures(directory: Path) -> dict[str, Any]:
    """What a release says as the inquiry that asked for it prints it; empty if no inquiry did."""
    if not inquiry_file(directory).exists():
        return {"figures": None, "figures_fault": ""}
    try:
        found, _ = read_again(directory)
    except RadofedError as error:
        return {"figures": None, "figures_fault": str(error)}
    pieces = [piece for name in ("schema", "next") if (piece := found.facts.get(name))]
    lines = {line for piece in pieces for line in piece.splitlines()}
    said = [each for each in found.sentences if each not in lines]
    return {"figures": found, "curves": survival_plot(found), "said": said, "pieces": pieces}


def _newest(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)


def _loaded(kind: Any, path: Path) -> tuple[Any, str]:
    """A file's content, or why it cannot be read."""
    try:
        return kind.load(path), ""
    except RadofedError as error:
        return None, str(error)
