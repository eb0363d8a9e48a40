"""The options of inquiries, declared once for commands and the console. Imports nothing that computes."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from dpcore.declared import Option
from dpcore.errors import ConfigurationError
from radobase.options import decimal_number, named_edges
from wire.request_fields import LABEL, AskOptions

if TYPE_CHECKING:
    from dpcore.evaluation.descriptive.inquiry import Inquiry
    from dpcore.records.features import Limit

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)

EDGES = Option(
    "Public edges of a number's ranges, in its units: NAME=E1,E2,... or NAME=FROM:TO:CELLS. They must not come from "
    "the parties' rows, except from earlier answers; repeatable."
)
GROUPS = Option("Divide the rows into groups: a column, or a predicate such as 'x[\"age\"] >= 65'.", default="all rows")


@dataclass(frozen=True, kw_only=True)
class InquiryOptions(AskOptions):
    """The options of every inquiry."""

    inquiry: ClassVar[str]
    schema: Annotated[Path | None, Option("The schema that the parties share.")] = None
    label: Annotated[str | None, LABEL] = None
    confidence: Annotated[float, Option("Confidence of each interval by itself.", above=0, below=1)] = 0.95
    together: Annotated[bool, Option("All intervals hold together with that confidence, and are longer.")] = False
    plan: Annotated[bool, Option("Print the cost and the expected intervals; ask nothing.")] = False
    release: Annotated[
        Path | None,
        Option("Print this directory of an earlier answer again; nothing is asked, and only --picture fits beside it."),
    ] = None
    picture: Annotated[
        Path | None, Option("Draw the estimates with their intervals, survival as curves, into this new SVG file.")
    ] = None

    @abstractmethod
    def asked(self) -> "Inquiry":
        """The inquiry. Raises ConfigurationError."""


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(InquiryOptions):
    """The options of `rado learner describe`."""

    inquiry: ClassVar[str] = "describe"
    columns: Annotated[
        tuple[str, ...], Option("Features of the schema, or the label. Default: all.", argument=True)
    ] = ()
    by: Annotated[str | None, GROUPS] = None
    edges: Annotated[tuple[str, ...], EDGES] = ()
    cells: Annotated[
        int, Option("Cells of each number without --edges; a quantile is as exact as its cell.", at_least=1)
    ] = 32
    levels: Annotated[str, Option("Levels of the quantiles, between 0 and 1.")] = "0.05,0.25,0.5,0.75,0.95"

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.description import Describe

        try:
            levels = tuple(map(decimal_number, self.levels.split(",")))
        except ConfigurationError as error:
            raise ConfigurationError(f"--levels {self.levels!r}: write numbers such as 0.25,0.5") from error
        return Describe(
            columns=self.columns,
            by=self.by,
            edges=edges_of(self.edges),
            cells=self.cells,
            levels=levels,
            confidence=self.confidence,
            together=self.together,
        )


@dataclass(frozen=True, kw_only=True)
class CrosstabOptions(InquiryOptions):
    """The options of `rado learner crosstab`."""

    inquiry: ClassVar[str] = "crosstab"
    columns: Annotated[
        tuple[str, ...],
        Option("Two columns, or predicates: the first goes down the table, the second across.", argument=True),
    ] = ()
    edges: Annotated[tuple[str, ...], EDGES] = ()

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.crosstab import Crosstab

        if len(self.columns) != 2:
            raise ConfigurationError(f"{len(self.columns)} columns: give two, or predicates, of which to make a table")
        down, across = self.columns
        edges = edges_of(self.edges)
        return Crosstab(down=down, across=across, edges=edges, confidence=self.confidence, together=self.together)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(InquiryOptions):
    """The options of `rado learner compare`."""

    inquiry: ClassVar[str] = "compare"
    columns: Annotated[tuple[str, ...], Option("The column whose means or shares are compared.", argument=True)] = ()
    by: Annotated[str | None, Option("The groups: a column, or a predicate such as 'x[\"age\"] >= 65'.")] = None
    reference: Annotated[str | None, Option("The group that the others are compared with.", default="the last one")] = (
        None
    )
    edges: Annotated[tuple[str, ...], EDGES] = ()

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.comparison import Compare

        if len(self.columns) != 1 or self.by is None:
            raise ConfigurationError("give one column to compare, and the groups by --by")
        return Compare(
            column=self.columns[0],
            by=self.by,
            reference=self.reference,
            edges=edges_of(self.edges),
            confidence=self.confidence,
            together=self.together,
        )


@dataclass(frozen=True, kw_only=True)
class SurvivalOptions(InquiryOptions):
    """The options of `rado learner survival`."""

    inquiry: ClassVar[str] = "survival"
    by: Annotated[str | None, GROUPS] = None
    edges: Annotated[tuple[str, ...], EDGES] = ()

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.survival import Survival

        return Survival(by=self.by, edges=edges_of(self.edges), confidence=self.confidence, together=self.together)


@dataclass(frozen=True, kw_only=True)
class LevelsOptions(InquiryOptions):
    """The options of `rado learner levels`."""

    inquiry: ClassVar[str] = "levels"
    columns: Annotated[
        tuple[str, ...], Option("The label's column or a category. Default: the label.", argument=True)
    ] = ()
    at_least: Annotated[
        int, Option("List levels of so many rows.", default="what the noise on no count exceeds", at_least=0)
    ] = 0
    extend: Annotated[
        tuple[str, ...],
        Option("What may follow a level: prints the label of a next question, with longer candidates; repeatable."),
    ] = ()
    output: Annotated[Path | None, Option("Write the piece of a schema to this file.")] = None

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.levels import Levels

        if len(self.columns) > 1:
            raise ConfigurationError(f"{len(self.columns)} columns: give one, or none for the label")
        column = self.columns[0] if self.columns else None
        return Levels(column=column, at_least=self.at_least, extend=self.extend, confidence=self.confidence)


@dataclass(frozen=True, kw_only=True)
class CorrelateOptions(InquiryOptions):
    """The options of `rado learner correlate`."""

    inquiry: ClassVar[str] = "correlate"
    columns: Annotated[
        tuple[str, ...], Option("Numbers, booleans and the label. Default: all of them.", argument=True)
    ] = ()
    components: Annotated[int, Option("The most principal components.", at_least=1)] = 2

    def asked(self) -> "Inquiry":
        """See `InquiryOptions`."""
        from dpcore.evaluation.descriptive.correlation import Correlate

        return Correlate(
            columns=self.columns, components=self.components, confidence=self.confidence, together=self.together
        )


def edges_of(texts: tuple[str, ...]) -> dict[str, "list[Limit]"]:
    """Edges by column. Raises ConfigurationError if a column has them twice."""
    edges: dict[str, list[Limit]] = {}
    for name, given in map(named_edges, texts):
        if name in edges:
            raise ConfigurationError(f"--edges of {name!r} are given twice: give them once")
        edges[name] = given
    return edges
