"""`rado learner histogram|quantiles`: where the values of columns lie, with intervals."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from dpcore.declared import Option, first_changed
from dpcore.numbers.rationals import lower_digits, lower_percent, upper, upper_digits, upper_percent
from radobase.options import named_edges
from radobase.printing import columns as table
from radobase.printing import in_lines
from radofed.cli.learner.sessions import ASKING, asked_federation, question_result, split_of
from radofed.cli.output import Output, Result
from wire.request_fields import CONFIDENCE, LABEL, SPLIT_ADAPTIVE, AskOptions

if TYPE_CHECKING:
    from dpcore.evaluation.histograms import Histograms, Range
    from dpcore.predicates.expressions import Predicate
    from dpcore.records.features import Limit, RealFeature
    from learner.planning import Plan
    from learner.release import Release

_LEVELS = "0.05,0.25,0.5,0.75,0.95"


@dataclass(frozen=True, kw_only=True)
class HistogramOptions(AskOptions):
    """The options of `rado learner histogram`."""

    columns: Annotated[tuple[str, ...], Option("Real features of the schema.", argument=True)] = ()
    schema: Annotated[Path | None, Option("The schema that the parties share.")] = None
    label: Annotated[str | None, LABEL] = None
    cells: Annotated[int | None, Option("Cells of each column without --edges, of one length.", default="32")] = None
    edges: Annotated[
        tuple[str, ...],
        Option(
            "Public edges of a column's cells, in its units: NAME=E1,E2,... or NAME=FROM:TO:CELLS. They must not come "
            "from the parties' rows, except from earlier answers; repeatable."
        ),
    ] = ()
    confidence: Annotated[float, CONFIDENCE] = 0.95
    adaptive: Annotated[int | None, SPLIT_ADAPTIVE] = None
    plan: Annotated[bool, Option("Print the query's cost and its noise; ask nothing.")] = False
    release: Annotated[
        Path | None,
        Option("Print from this directory of an earlier answer; nothing is asked, and only --confidence fits."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class QuantileOptions(HistogramOptions):
    """The options of `rado learner quantiles`."""

    levels: Annotated[str, Option("Levels of the quantiles, between 0 and 1.")] = _LEVELS


def histogram(output: Output, options: HistogramOptions) -> Result:
    """Show how the values of columns are distributed over the parties' rows.

    Asks one batch of statistics: for each column, how many rows are in each cell between the schema's bounds, and at
    both bounds and zero. Prints shares of the usable rows with intervals. More cells cost nothing; each column adds
    noise to all. The answer is saved, and quantiles --release prints its quantiles.
    """
    found = _found(output, options)
    if isinstance(found, Result):
        return found
    histograms, where = found
    lines = []
    for column in histograms.columns:
        rows = [
            (
                column.feature.written(part.lower, 9),
                "" if part.is_point else column.feature.written(part.upper, 9),
                _percent(part.share.estimate),
                _percents(part.share.on_rows.lower, part.share.on_rows.upper),
                "" if (drawn := part.share.on_distribution) is None else _percents(drawn.lower, drawn.upper),
            )
            for part in column.parts
        ]
        header = ("from", "below", "share", "on these rows", "for new rows")
        lines += [column.name, *table(header, rows, right=(0, 1, 2, 3, 4)), ""]
    return _result(histograms, histograms.to_dict(), lines, "shares", where)


def quantiles(output: Output, options: QuantileOptions) -> Result:
    """Estimate quantiles of columns over the parties' rows.

    Asks what histogram asks, and bounds quantiles by the shares of rows up to each edge: an interval is never shorter
    than a cell, unless it is a value that is repeated at a bound or zero. More levels cost nothing. The answer is
    saved, and histogram --release prints its shares.
    """
    wanted = _levels(options.levels)
    found = _found(output, options)
    if isinstance(found, Result):
        return found
    histograms, where = found
    lines = []
    for column in histograms.columns:
        each = [column.quantile(level) for level in wanted]
        feature = column.feature
        rows = [
            (
                f"{q.level:g}",
                feature.written(q.estimate, 6),
                _between(q.on_rows, feature),
                _between(q.on_distribution, feature),
            )
            for q in each
        ]
        header = ("level", "quantile", "on these rows", "for new rows")
        lines += [column.name, *table(header, rows, right=(0, 1, 2, 3)), ""]
    return _result(histograms, histograms.quantiles_to_dict(wanted), lines, "quantiles", where)


def _found(output: Output, options: HistogramOptions) -> "tuple[Histograms, tuple[Release, Path]] | Result":
    """The histograms and their release with its directory, or the result of --plan."""
    from dpcore.errors import ConfigurationError
    from learner.release import Release

    if options.release is None:
        return _asked(output, options)
    if odd := first_changed(options, ("columns", *ASKING, "schema", "label", "cells", "edges", "adaptive", "plan")):
        raise ConfigurationError(f"a saved answer is printed as it was asked: leave {odd} out, or --release")
    release = Release.load(options.release)
    return _histograms(release, options.confidence), (release, options.release)


def _asked(output: Output, options: HistogramOptions) -> "tuple[Histograms, tuple[Release, Path]] | Result":
    from dpcore.errors import ConfigurationError
    from dpcore.evaluation.histograms import USUAL_CELLS, column_histograms, histogram_predicates
    from learner.journal import SessionSource
    from learner.questions import QuestionAnsweredError
    from learner.release import Release
    from radobase.schema_files import load_schema

    if options.schema is None:
        raise ConfigurationError("give the --schema that the parties share, or the --release of an earlier answer")
    shared, confidence, names = load_schema(options.schema, options.label), options.confidence, options.columns
    cells, edges = USUAL_CELLS if options.cells is None else options.cells, _edges(options.edges)
    # Check before connecting.
    predicates = histogram_predicates(shared, names, cells=cells, edges=edges)
    with asked_federation(output, options, shared) as federation:
        oracle = federation.within(*options.budget("a histogram"), split_of(options.adaptive))
        if options.plan:
            return planned_counts(oracle.planned(predicates), predicates, confidence)
        try:
            found = column_histograms(names, oracle, cells=cells, edges=edges, confidence=confidence)
        except QuestionAnsweredError as answered:
            return question_result([answered.found])
        source, (answer,) = federation.source, oracle.answers
        assert isinstance(source, SessionSource), "the federation is one of organisations"
        assert isinstance(answer, Release), "a session saves its answers"
        return found, (answer, source.release_directory(answer))


def _histograms(release: "Release", confidence: float) -> "Histograms":
    from dpcore.evaluation.histograms import histograms_of
    from learner.estimates import estimates_of

    estimates, kind = estimates_of(release, confidence=confidence), release.query.kind
    return histograms_of(release.schema, kind.batch, estimates, part=release.query.held_back)


def planned_counts(plan: "Plan", predicates: "tuple[Predicate, ...]", confidence: float) -> Result:
    """What a query would cost, and what its noise would do to a share."""
    from dpcore.accounting.local_response import LocalResponse
    from dpcore.queries.statistic import StatisticQuery
    from dpcore.statistics.accuracy import SharedNoise

    query = plan.query
    kind = cast("StatisticQuery", query.kind)
    data: dict[str, Any] = {
        "ciphertexts": plan.ciphertexts,
        "upload_bytes_per_party": plan.upload_bytes_per_party,
        "predicates": len(predicates),
        "noise_rows": None,
        "noise_share": None,
    }
    lines = plan.sentences()
    parties = len(plan.party_rows or ()) or query.cohort_min
    assert not isinstance(kind.noise, LocalResponse), "it was planned with shares of noise"
    noise = SharedNoise(kind.noise, parties, kind.unit_bits(query.encoding.fraction_bits))
    data["noise_rows"] = noise.half_width(len(predicates), 1.0 - confidence)
    words = f"the noise on all {len(predicates)} counts is at most {upper(data['noise_rows'], 1)} rows"
    if plan.party_rows:
        data["noise_share"] = data["noise_rows"] / sum(plan.party_rows)
        words += f", {upper_percent(data['noise_share'], 2)} % of the rows that parties state"
    lines.append(f"With probability {confidence:g} {words}. Nothing was asked.")
    return Result({"plan": data}, in_lines(lines))


def _result(
    found: "Histograms", data: dict[str, Any], lines: list[str], what: str, where: "tuple[Release, Path]"
) -> Result:
    release, directory = where
    advice = [words for column in found.columns if (words := column.advice()) is not None]
    kept = f"The answer is in {directory}; --release prints it again, and asks nothing."
    text = [
        *lines,
        *(f"{words}." for words in advice),
        *found.meaning(what),
        *release.statement.short_sentences(),
        kept,
    ]
    return Result({**data, "release": directory, "privacy": release.statement.to_dict()}, in_lines(text))


def _edges(texts: tuple[str, ...]) -> dict[str, "list[Limit]"]:
    from dpcore.errors import ConfigurationError

    edges: dict[str, list[Limit]] = {}
    for name, given in map(named_edges, texts):
        if name in edges:
            raise ConfigurationError(f"--edges of {name!r} are given twice: give them once")
        edges[name] = given
    return edges


def _levels(text: str) -> list[float]:
    from dpcore.errors import ConfigurationError
    from radobase.options import decimal_number

    try:
        levels = [decimal_number(level.strip()) for level in text.split(",")]
    except ConfigurationError as error:
        raise ConfigurationError(f"--levels {text!r}: write numbers such as {_LEVELS}") from error
    for level in levels:
        if not 0.0 < level < 1.0:
            raise ConfigurationError(f"--levels {text!r}: {level:g} is not between 0 and 1")
    return levels


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _percents(low: float, high: float) -> str:
    """An interval, rounded outwards."""
    return f"{lower_percent(low, 2)} to {upper_percent(high, 2)} %"


def _between(ends: "Range", feature: "RealFeature") -> str:
    """An interval, rounded outwards; dates are exact."""
    if feature.is_named:
        return " to ".join(map(feature.written, ends))
    return f"{lower_digits(ends[0], 6)} to {upper_digits(ends[1], 6)}"
