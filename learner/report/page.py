"""The report as one page of HTML."""

import importlib.metadata
import platform
import shlex
from typing import Any

from dpcore.accounting.odds import EXCEPTIONS
from learner.estimators import FROM_RELEASES
from learner.report import shape_sentences
from learner.report.gathering import MOST_PREDICATES, Report
from learner.report.picture import MOST_RANKED
from learner.report.plots import calibration_plot, epsilon_plot, roc_plot
from learner.report.registry import registry_entry
from learner.report.sentences import assumptions, not_protected
from learner.report.shape_plots import plot_of
from radobase.pages import environment
from radobase.report.sentences import GUARANTEE, NO_PURPOSE, explained

MOST_DRAWN = 6
"""Shapes that a report draws; `rado learner picture` draws more."""

_LIBRARIES = ("numpy", "scipy", "scikit-learn")


def render(report: Report) -> str:
    """The page. Raises ModuleNotFoundError without the extra `report`."""
    return (
        environment("learner.report")
        .get_template("learner.html")
        .render(
            report=report,
            statement=report.statement,
            plots=[epsilon_plot(curve) for curve in report.curves],
            measured=[(each, calibration_plot(each.figures), roc_plot(each.figures)) for each in report.measured],
            **_shapes(report),
            sections=_sections(report),
            explained=explained((*(answer.asked.words for answer in report.answers), *report.statement.sentences())),
            assumptions=assumptions(report),
            not_protected=not_protected(report),
            registry=registry_entry(report),
            intervals=shape_sentences,
            guarantee=GUARANTEE,
            no_purpose=NO_PURPOSE,
            exceptions_of=EXCEPTIONS,
            most_predicates=MOST_PREDICATES,
            versions=_versions(report),
            commands=_commands(report),
        )
    )


def _shapes(report: Report) -> dict[str, Any]:
    """The ranking of shapes and the largest of them; nothing for a model with coefficients."""
    shapes = report.shapes
    return {
        "shapes": shapes,
        "most_shapes": MOST_RANKED,
        "shape_plots": [] if shapes is None else [plot_of(shape) for shape in shapes.ranked[:MOST_DRAWN]],
        "shape_sentences": [] if shapes is None else shape_sentences.all_of(shapes),
    }


def _sections(report: Report) -> list[tuple[str, str]]:
    """The page's sections after the first: id and title."""
    shown = ("coefficients", "The model's coefficients") if report.shapes is None else ("shapes", "The model's shapes")
    about_model = [shown, ("evaluation", "How good the model is")]
    return [
        ("asked", "Who took part, and what was asked"),
        ("privacy", "What it reveals"),
        *(about_model if report.model is not None else []),
        ("not-protected", "What is not protected"),
        ("assumed", "What is assumed"),
        ("reproduce", "How to reproduce it"),
        ("counted", "How it was counted"),
        ("sign", "Sign-off"),
    ]


def _versions(report: Report) -> list[tuple[str, str]]:
    """What made this report, by name."""
    found = [("radofed", report.version), ("Python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commands(report: Report) -> list[str]:
    """The commands that make the model again from what was released; empty if what is needed is not here."""
    if report.model is None or not report.answers:
        return []
    options = " ".join(f"--option {shlex.quote(f'{name}={value}')}" for name, value in report.options.items())
    start = f"rado learner train{' RELEASE' if _is_from_release(report) else ''} --estimator {report.model.learner}"
    if _is_from_release(report):
        return [f"{start} {options} --output again.json".replace("  ", " ")]
    return [
        f"{start} {options} --config learner.toml --schema schema.toml --epsilon EPSILON --delta DELTA "
        f"--journal {shlex.quote(f'{report.subject_file}.journal')} --output again.json".replace("  ", " ")
    ]


def _is_from_release(report: Report) -> bool:
    return report.model is not None and report.model.learner in FROM_RELEASES
