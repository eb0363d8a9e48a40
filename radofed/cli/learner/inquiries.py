"""`rado learner describe|crosstab|compare|correlate|survival|levels`: statistics of rows, each by one release."""

from typing import TYPE_CHECKING

from dpcore.declared import declarations, first_changed
from radobase.printing import columns, in_lines
from radofed.cli.learner.sessions import asked_federation, question_result
from radofed.cli.output import Output, Result
from radofed.inquiry_options import (
    CompareOptions,
    CorrelateOptions,
    CrosstabOptions,
    DescribeOptions,
    InquiryOptions,
    LevelsOptions,
    SurvivalOptions,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dpcore.evaluation.descriptive.result import Result as Found
    from dpcore.evaluation.descriptive.result import Table
    from learner.inquiring import PlannedInquiry


def describe(output: Output, options: DescribeOptions) -> Result:
    """Describe columns over the parties' rows, also by group.

    Asks one batch: how many rows there are, and for each column the mean, standard deviation and quantiles of a number,
    or the shares of a category. What is known of missing cells is what the schema's policies and the counts say. Each
    figure has an interval that counts noise and sample. --plan prints the cost and the expected intervals.
    """
    return _answered(output, options)


def crosstab(output: Output, options: CrosstabOptions) -> Result:
    """Make a table of two columns over the parties' rows.

    Asks one batch, a count for each cell. Prints counts and shares with intervals, a chi-square test of independence
    whose p-value counts the noise, and of 2 x 2 cells the odds ratio. No cell is left out. A number is divided into
    ranges by --edges.
    """
    return _answered(output, options)


def compare(output: Output, options: CompareOptions) -> Result:
    """Compare groups of the parties' rows: the means of a number, or the shares of another column's levels.

    Asks one batch. Prints each group's figures, and the differences from one group, with intervals and p-values that
    count noise and sample.
    """
    return _answered(output, options)


def survival(output: Output, options: SurvivalOptions) -> Result:
    """Estimate survival over the parties' rows, whose label is a time to an event, also by group.

    Asks one batch: in which interval each row's time ends, and whether by the event. Prints the curve with numbers at
    risk and intervals, the median and the restricted mean, and of several groups a log-rank test whose p-value counts
    the noise.
    """
    return _answered(output, options)


def levels(output: Output, options: LevelsOptions) -> Result:
    """Find the frequent levels of a column of codes, among the candidates that the schema lists.

    Asks one histogram: how many rows have each candidate. Prints the levels whose counts are above the noise, with
    intervals, and the piece of a schema with these levels. A candidate costs nothing. --plan says from how many rows on
    a level is found.
    """
    found = _answered(output, options)
    if options.output is not None and (piece := found.data.get("schema")):
        options.output.write_text(f"{piece}\n", encoding="utf-8")
    return found


def correlate(output: Output, options: CorrelateOptions) -> Result:
    """Correlate numbers, booleans and the label over the parties' rows.

    Asks for one release of moments, without clipping. Prints the correlations with intervals, and the principal
    components.
    """
    return _answered(output, options)


def _answered(output: Output, options: InquiryOptions) -> Result:
    from dpcore.errors import ConfigurationError
    from learner.inquiries import read_again
    from radobase.presentation.svg import check_picture

    if options.picture is not None:
        if options.plan:
            raise ConfigurationError("--plan asks nothing, so there is nothing to draw: leave --picture out")
        check_picture(options.picture)
    if options.release is None:
        return _asked(output, options)
    others = [field.name for field in declarations(type(options)) if field.name not in ("release", "delta", "picture")]
    if odd := first_changed(options, others):
        raise ConfigurationError(f"a saved answer is printed as it was asked: leave {odd} out, or --release")
    found, _ = read_again(options.release)
    if found.inquiry != options.inquiry:
        raise ConfigurationError(f"this answers `rado learner {found.inquiry}`: print it by that command")
    return _printed(found, options.release, options.picture)


def _asked(output: Output, options: InquiryOptions) -> Result:
    from dpcore.errors import ConfigurationError
    from learner.inquiries import save_inquiry
    from learner.journal import SessionSource
    from learner.questions import QuestionAnsweredError
    from learner.release import Release
    from radobase.schema_files import load_schema

    if options.schema is None:
        raise ConfigurationError("give the --schema that the parties share, or the --release of an earlier answer")
    schema, inquiry = load_schema(options.schema, options.label), options.asked()
    budget = options.budget(f"`{options.inquiry}`")
    inquiry.check(schema)  # before connecting
    with asked_federation(output, options, schema) as federation:
        oracle = federation.within(*budget)
        if options.plan:
            return _planned(oracle.planned_inquiry(inquiry))
        try:
            found = oracle.inquire(inquiry)
        except QuestionAnsweredError as answered:
            return question_result([answered.found])
        source, (answer,) = federation.source, oracle.answers
        assert isinstance(source, SessionSource), "the federation is one of organisations"
        assert isinstance(answer, Release), "a session saves its answers"
        directory = source.release_directory(answer)
        save_inquiry(inquiry, directory)
        return _printed(found, directory, options.picture)


def _planned(planned: "PlannedInquiry") -> Result:
    tables = [] if planned.expected is None else _lines(planned.widths())
    return Result({"plan": planned.to_dict()}, in_lines([*tables, *planned.sentences()]))


def _printed(found: "Found", directory: "Path", picture: "Path | None") -> Result:
    from learner.inquiry_pictures import inquiry_picture
    from radobase.presentation.svg import write_drawing

    assert found.privacy is not None, "a release has a statement"
    drawn = None if picture is None else inquiry_picture(found)
    kept = (
        f"The answer is in {directory}; `rado learner {found.inquiry} --release {directory}` prints it again, and asks "
        "nothing."
    )
    lines = [line for table in found.tables for line in _lines(table)]
    text = [*lines, *found.sentences, *found.privacy.short_sentences(), kept]
    if picture is not None and drawn is None:
        text.append("Nothing was measured, so there is no picture.")
    if picture is not None and drawn is not None:
        write_drawing(drawn, picture)
        text.append(f"The picture is {picture}.")
    drawn_to = {} if drawn is None else {"picture": picture}
    return Result({**found.to_dict(), "release": directory, **drawn_to}, in_lines(text))


def _lines(table: "Table") -> list[str]:
    return [table.title, *columns(table.header, table.rows, right=table.numbers), ""]
