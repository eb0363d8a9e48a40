"""`rado learner report`: a release or a model as a page to sign."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpcore.numbers.rationals import lower_percent, upper_percent
from radobase.options import named_options
from radobase.printing import amount, in_lines
from radofed.cli.framework import CrateFile, PageFile, RegistryFile, check_directory, check_new
from radofed.cli.output import Output, Result, json_ready
from radofed.cli.party import Files, check_files, result_of

if TYPE_CHECKING:
    from learner.report.gathering import Report
    from learner.report.measured import Measured
    from learner.report.pictures import Drawn
    from learner.shapes import Shapes
    from radobase.presentation.five_safes import Evidence


# Changes of cells of own rows that the summary shows.
_MOST_CHANGES = 5


def report(
    _output: Output,
    subject: Annotated[
        Path, typer.Argument(help="A model that train wrote, or a release's directory.", show_default=False)
    ],
    page: PageFile = None,
    registry: RegistryFile = None,
    crate: CrateFile = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The learner's configuration: to find releases, and verify signatures."),
    ] = None,
    release: Annotated[
        list[Path] | None,
        typer.Option(help="A release that the model was trained on; repeatable, in the order of asking."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the estimator, NAME=VALUE, as in the training; repeatable.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="The model's evaluation: what `evaluate --format json` printed.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Labelled rows of your own, CSV or Parquet, to measure the model on.")
    ] = None,
) -> Result:
    """Report who took part in a release or a model, what was asked, what it reveals and how good the model is.

    The page is for those who sign for its use. It is one file without scripts and loads nothing from elsewhere. Asks
    nothing and charges nothing.
    """
    from learner.config import LearnerConfig
    from learner.report.gathering import Sources, gather
    from learner.report.sentences import registry_entry, sign_off
    from radofed import __version__

    check_files(page, registry, crate)
    sources = Sources(
        subject=subject,
        releases=tuple(release or ()),
        config=None if config is None else LearnerConfig.load(config),
        options=named_options(option or ()),
        evaluation=evaluation,
        test=test,
    )
    now = time.time()
    found = gather(sources, now, __version__)
    entry = registry_entry(found)

    def page_text() -> str:
        from learner.report.page import document

        return document(found).saved()

    def evidence(text: str) -> "Evidence":
        from learner.report.evidence import outputs
        from radobase.presentation.five_safes import Evidence

        made, what = outputs(sources, found), "release" if found.model is None else "model"
        return Evidence(
            role="learner",
            member=", ".join(found.learners),
            federation=found.federation or "",
            title=f"The {what} {found.subject_file}",
            description=f"{amount(len(made), 'output')}, each with its record.",
            version=__version__,
            made_at_unix_s=now,
            outputs=made,
            page=text,
            report=json_ready(found.to_dict()),
            registry=json_ready(entry),
            sign_off=sign_off(found),
        )

    return result_of(found, entry, Files(page, registry, crate, page_text, evidence), _summary(found))


def _headline(found: "Report", measured: "Measured") -> str:
    """What an evaluation of a label without classes says first."""
    from learner.report.value_quality import quality_of

    assert found.model is not None, "a model was measured"
    rows = "own rows" if measured.own else "the parties' rows"
    return f"{quality_of(found.model, measured).headline}, on {rows}"


def _summary(found: "Report") -> list[str]:
    if found.answers:
        count, parties = len(found.answers), ", ".join(member.name for member in found.parties)
        lines = [
            (
                f"{amount(count, 'answer')} of {parties}, {amount(found.rows or 0, 'row')}, asked by "
                f"{', '.join(found.learners)}"
            )
        ]
    else:
        lines = [f"who took part is not known: {found.without_releases}"]
    lines += found.statement.sentences()[:2]
    if found.coefficients and found.coefficients[0].without:
        lines.append(f"coefficients: {found.coefficients[0].without}")
    for shapes in found.shapes:
        largest = ", ".join(f"{shape.title} ({shape.size:.2f})" for shape in shapes.ranked[:3])
        which = f" of {shapes.label!r}" if len(found.shapes) > 1 else ""
        lines.append(f"largest shapes{which}: {largest}")
    for each in found.measured:
        if each.of_classes is None:
            lines.append(_headline(found, each))
            continue
        error = each.of_classes.error
        rows = "own rows" if each.own else "the parties' rows"
        lines.append(
            f"wrong on {100 * error.estimate:.1f} % of {rows} ({lower_percent(error.strongest.lower, 1)} to "
            f"{upper_percent(error.strongest.upper, 1)} %)"
        )
        lines += [change.sentence for change in each.changes[:_MOST_CHANGES]]
        if (further := len(each.changes) - _MOST_CHANGES) > 0:
            lines.append(f"{amount(further, 'more change')} of cells: the page and --format json list them")
    return lines


# `rado learner picture`: what a model adds to the score for each value of each column.

MOST_LINES = 20
ENDINGS = (".html", ".svg")


def picture(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            "-o",
            help="Write a page (.html) or a picture (.svg) to this new file. Default: print the ranking.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="A column to show, with its pairs; repeatable. Default: all.")
    ] = None,
    top: Annotated[int | None, typer.Option(help="Show the largest shapes only, so many of them.")] = None,
    of: Annotated[
        str | None,
        typer.Option(
            help="The class whose score they add to, if the label has several. Default: all.", show_default=False
        ),
    ] = None,
) -> Result:
    """Show the shapes of a model: what each value of each column adds to the score, in the column's units.

    Also ranks columns and pairs by what they add. Of several classes it shows what is added to the score of each,
    beside their average. The page is one file without scripts and loads nothing from elsewhere. Asks nothing and
    charges nothing.
    """
    from learner.model import Model
    from learner.report.page import picture_page
    from learner.report.pictures import draw, usual
    from learner.scoring import by_score
    from learner.shapes import every_shapes, shapes_of
    from radobase.writing import create_durably
    from radofed import __version__

    if to is not None:
        _check(to)
    loaded = Model.load(model)
    every = every_shapes(loaded) if of is None else (shapes_of(loaded, of),)
    scores: Drawn = [(shapes, shapes.chosen(column or (), top)) for shapes in every]
    if not column and top is None and to is not None:
        scores = usual(every)
    if to is not None and to.suffix == ".svg":
        draw(scores, to)
    elif to is not None:
        create_durably(to, picture_page(loaded, model.name, scores, __version__).saved().encode())
    found = by_score({shapes.label: shapes.to_dict(chosen) for shapes, chosen in scores})
    data = {"model": model, "model_digest": loaded.digest, **found, "file": to}
    is_one = loaded.theta.ndim == 1
    lines = [line for shapes in every for line in _ranking(shapes, "" if is_one else f" of {shapes.label!r}")]
    return Result(data, in_lines([*lines, *([] if to is None else [f"wrote {to}"])]))


def _check(to: Path) -> None:
    """Raise ConfigurationError if nothing can be drawn to this file, before anything is computed."""
    from dpcore.errors import ConfigurationError

    if to.suffix not in ENDINGS:
        raise ConfigurationError(f"{to}: shapes are a page or a picture: give a name that ends in .html or .svg")
    check_directory(to)
    check_new(to)


def _ranking(shapes: "Shapes", of: str) -> list[str]:
    lines = [f"{shape.size:8.3f}  {shape.title}" for shape in shapes.ranked[:MOST_LINES]]
    if len(shapes.ranked) > MOST_LINES:
        lines.append(f"and {len(shapes.ranked) - MOST_LINES} smaller ones")
    return [f"standard deviation of what each adds to {shapes.adds_to}{of}:", *lines]
