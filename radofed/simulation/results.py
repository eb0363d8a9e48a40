"""The result of a simulation: a row for each estimator and fold, means, and privacy statements."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol

from dpcore.data_frames import load_pandas
from dpcore.errors import ConfigurationError, RadofedError
from dpcore.estimators.additive import STRAIGHT
from dpcore.numbers.rationals import exact
from dpcore.queries.statement import PrivacyStatement
from learner.vanishing import Vanishing
from radobase.presentation.svg import SORTS, Plot, Scale, check_picture, write_picture
from radobase.presentation.words import counted
from radobase.printing import amount

Sees = Literal["rados", "moments", "answers", "rows", "labels"]
"""The training data of an estimator: a release of the federation, answers to its queries, or, for comparison, the
pooled rows or their labels."""

_RARE = 0.15
"""Where the rarer label has a smaller share, recall and precision are printed too."""


@dataclass(frozen=True)
class FoldRow:
    """One estimator on one fold."""

    fold: int
    learner: str
    """Its name."""
    sees: Sees
    test_error: float
    """A fraction of the test rows."""
    auc: float
    seconds: float
    """Of training alone."""
    training_rows: int
    test_rows: int
    warning: str | None = None
    """The estimator's warning about its training, such as that it separates all rados, or None."""
    evaluated_error: float | None = None
    """On the rows that parties hold back, with noise."""
    evaluated_low: float | None = None
    evaluated_high: float | None = None
    """Its 95 % interval for new rows. All three are None if it was not evaluated."""
    guarantee: str | None = None
    """What the estimator guarantees of its error, in words, or None."""
    recall: float | None = None
    """Of a label of two classes, the share of positive test rows that are called positive."""
    precision: float | None = None
    """The share of test rows called positive that are; None if none is called so."""

    @classmethod
    def summary(cls, rows: "Sequence[FoldRow]") -> "Summary":
        """Of one estimator's rows."""
        errors = [row.test_error for row in rows]
        return Summary(
            rows[0].learner,
            rows[0].sees,
            statistics.fmean(errors),
            statistics.stdev(errors),
            statistics.fmean(row.auc for row in rows),
            statistics.fmean(row.seconds for row in rows),
            _mean_or_none([row.evaluated_error for row in rows]),
            _mean_or_none([row.evaluated_low for row in rows]),
            _mean_or_none([row.evaluated_high for row in rows]),
            _mean_or_none([row.recall for row in rows]),
            _mean_or_none([row.precision for row in rows]),
        )


@dataclass(frozen=True)
class Summary:
    """One estimator over all folds: means, and the sample standard deviation of the error.

    evaluated_...: see `FoldRow`; None if it was not evaluated.
    """

    learner: str
    sees: Sees
    test_error_mean: float
    test_error_std: float
    auc_mean: float
    seconds: float
    evaluated_error_mean: float | None = None
    evaluated_low_mean: float | None = None
    evaluated_high_mean: float | None = None
    recall_mean: float | None = None
    precision_mean: float | None = None
    """Over the folds in which a row is called positive."""

    def figures(self) -> dict[str, Any]:
        """For JSON, without the name."""
        found = asdict(self)
        del found["learner"]
        return found

    @staticmethod
    def table(summaries: "Sequence[Summary]") -> list[str]:
        """Lines for people, with a heading."""
        return [*_table(summaries), *_of_rare_rows(summaries), *_evaluated(summaries)]


class Row(Protocol):
    """One estimator on one fold: a `FoldRow`, or of numbers and counts a `radofed.simulation.measured.MeasuredRow`."""

    @property
    def learner(self) -> str:
        """Its name."""
        ...

    @property
    def sees(self) -> Sees:
        """What it was trained on."""
        ...

    @property
    def seconds(self) -> float:
        """Of training alone."""
        ...

    @property
    def warning(self) -> str | None:
        """Its warning about its training."""
        ...

    @property
    def evaluated_error(self) -> float | None:
        """On the rows that parties hold back."""
        ...

    @classmethod
    def summary(cls, rows: Sequence[Any]) -> Any:
        """Of one estimator's rows: an object with `learner`, `figures()` and `table(summaries)`."""
        ...


@dataclass(frozen=True)
class FederationFacts:
    """The settings of the federation."""

    parties: int
    colluders: int
    """c."""
    cohort_min: int
    honest_parties: int
    partition: str
    design: str | None
    rados: int | None
    party_rows: tuple[int, int]
    """The fewest and the most training rows of a party."""
    encrypted: bool
    upload_bytes_per_party: int | None
    """Of the design's query; None if no estimator learns from a release."""
    workers: int
    seconds: float
    unit: str = "record"
    """Of privacy: "record", or "person", and then `party_rows` are persons."""
    vanishing: Vanishing | None = None
    """What a federation's query of this kind costs in which parties may vanish, None if none may."""


@dataclass(frozen=True)
class SimulationResult:
    """The result: `rows` has one entry for each fold and estimator, `summaries` one for each estimator."""

    rows: tuple[Row, ...]
    privacy: PrivacyStatement | None
    """Of the design's release, in the fold that costs most; each fold makes one release, as a federation would. None if
    no estimator learns from a release."""
    asked: Mapping[str, PrivacyStatement]
    """By name of each estimator that queried, the composition of all its answers, in the fold that costs most."""
    federation: FederationFacts
    table_rows: int
    unusable_rows: int
    coordinates: int
    folds: int
    seed: int
    seconds: float
    notes: tuple[str, ...]
    """Sentences that explain the figures."""
    hold_back: Fraction | None = None
    """The share of its rows that each party holds back, None if none."""
    evaluated: Mapping[str, PrivacyStatement] = field(default_factory=dict)
    """By name, the statement of the evaluation on these rows, in the fold that costs most."""

    @property
    def summaries(self) -> tuple[Any, ...]:
        """One for each estimator, in the order given, then those for comparison."""
        return tuple(self._summary(name) for name in dict.fromkeys(row.learner for row in self.rows))

    def _summary(self, estimator: str) -> Any:
        mine = [row for row in self.rows if row.learner == estimator]
        return mine[0].summary(mine)

    @property
    def guarantees(self) -> dict[str, list[str | None]]:
        """What each estimator guarantees of its error, by name, in words for each fold; only those with a guarantee."""
        found: dict[str, list[str | None]] = {}
        for row in self.rows:
            found.setdefault(row.learner, []).append(getattr(row, "guarantee", None))
        return {name: folds for name, folds in found.items() if any(fold is not None for fold in folds)}

    def to_dict(self) -> dict[str, Any]:
        """Everything except the rows, in JSON's types; `results` by name of the estimator."""
        return {
            "results": {summary.learner: summary.figures() for summary in self.summaries},
            "privacy": None if self.privacy is None else self.privacy.to_dict(),
            "asked": {estimator: statement.to_dict() for estimator, statement in self.asked.items()},
            "federation": {**asdict(self.federation), "party_rows": list(self.federation.party_rows)},
            "table": {"rows": self.table_rows, "unusable_rows": self.unusable_rows, "coordinates": self.coordinates},
            "folds": self.folds,
            "seed": self.seed,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "guarantees": self.guarantees,
            "hold_back": None if self.hold_back is None else str(self.hold_back),
            "evaluated": {estimator: statement.to_dict() for estimator, statement in self.evaluated.items()},
        }

    def columns(self) -> dict[str, list[Any]]:
        """The rows, as lists by column name."""
        names = [each.name for each in fields(self.rows[0])]  # type: ignore[arg-type]  # rows are dataclasses
        return {name: [getattr(row, name) for row in self.rows] for name in names}

    def to_pandas(self) -> Any:
        """The rows as a data frame. Raises ConfigurationError if pandas is not installed."""
        return load_pandas(".rows or .columns()").DataFrame(self.columns())

    def write_rows(self, path: Path) -> None:
        """Write the rows to a Parquet file. Raises FileExistsError if it exists."""
        import pyarrow as pa  # noqa: PLC0415  (slow to import, and only needed here)
        import pyarrow.parquet as pq  # noqa: PLC0415  (as above)

        with path.open("xb") as file:
            pq.write_table(pa.table(self.columns()), file)

    def sentences(self) -> list[str]:
        """The printed report: the table, the settings, what is protected, and the notes."""
        return [
            *self.summaries[0].table(self.summaries),
            *self._guaranteed(),
            "",
            *self._setting(),
            "",
            *self._protection(),
            "Notes:",
            *(f"  - {sentence}" for sentence in self.notes),
        ]

    def _guaranteed(self) -> list[str]:
        """The guarantees, each once, with the number of folds; empty if there are none."""
        lines: list[str] = []
        for name, folds in self.guarantees.items():
            for text, count in Counter(folds).items():
                said = "no guarantee" if text is None else text
                lines.append(f"{name}, in {count} of {self.folds} folds: {said}.")
        return ["", "Guaranteed by the estimators:", *lines] if lines else []

    def _protection(self) -> list[str]:
        said = [
            (f"What the answers to {name!r} protect, and what they do not:", statement)
            for name, statement in self.asked.items()
        ]
        if self.privacy is not None:
            said.insert(0, ("What a federation's release of this kind protects, and what it does not:", self.privacy))
        said += [
            (f"What the evaluation of {name!r} protects, beside its training:", statement)
            for name, statement in self.evaluated.items()
        ]
        lines: list[str] = []
        known: set[str] = set()
        for heading, statement in said:
            # Print common assumptions once.
            assumed = {f"Assumed: {text}" for text in statement.assumptions}
            new = [sentence for sentence in statement.sentences() if sentence not in known]
            lines += [heading, *(f"  - {sentence}" for sentence in new)]
            if known & assumed:
                lines.append("  - Assumed: as above.")
            lines.append("")
            known |= assumed
        return lines

    def _setting(self) -> list[str]:
        facts = self.federation
        least, most = facts.party_rows
        asked = "estimators query" if self.asked else "nothing is asked"
        if facts.design is not None:
            asked = facts.design if facts.rados is None else f"{amount(facts.rados, 'rado')}, design {facts.design}"
        way = "encrypted and masked" if facts.encrypted else "as integers, without encryption"
        noun = "training person" if facts.unit == "person" else "training row"
        sizes = f"{amount(least, noun)} each" if least == most else f"{least} to {amount(most, noun)}"
        parties = (
            f"{amount(facts.parties, 'party')} of {sizes} ({facts.partition}), c = {facts.colluders} assumed to "
            f"collude; {asked}, summed {way}."
        )
        rows = f"{amount(self.table_rows, 'row')} with {amount(self.coordinates, 'coordinate')}"
        work = (
            f"{amount(self.folds, 'fold')} of {rows}, seed {self.seed}: {self.seconds:.1f} s, {facts.seconds:.1f} s of "
            "it in the federation."
        )
        return [parties, *([] if facts.vanishing is None else facts.vanishing.sentences()), work]


def _table(summaries: Sequence[Summary]) -> list[str]:
    width = max(len("estimator"), *(len(summary.learner) for summary in summaries))
    lines = [f"{'estimator':{width}}  sees     test error         AUC    seconds a fold"]
    for each in summaries:
        auc = "    -" if math.isnan(each.auc_mean) else f"{each.auc_mean:.3f}"
        lines.append(
            f"{each.learner:{width}}  {each.sees:7}  {100 * each.test_error_mean:5.2f} % "
            f"+- {100 * each.test_error_std:5.2f}   {auc}  {each.seconds:9.3f}"
        )
    return lines


def _of_rare_rows(summaries: Sequence[Summary]) -> list[str]:
    """Recall and precision where one label is rare, so that the error says little; else empty."""
    majority = [each.test_error_mean for each in summaries if each.sees == "labels"]
    if not majority or min(majority) >= _RARE or all(each.recall_mean is None for each in summaries):
        return []
    width = max(len("estimator"), *(len(summary.learner) for summary in summaries))

    def share(value: float | None) -> str:
        return "      -" if value is None else f"{100 * value:5.2f} %"

    lines = [
        f"{each.learner:{width}}  {share(each.recall_mean)}                  {share(each.precision_mean)}"
        for each in summaries
    ]
    return ["", f"{'estimator':{width}}  found of positive rows   right of rows called positive", *lines]


def _evaluated(summaries: Sequence[Summary]) -> list[str]:
    """The evaluations on rows that are held back; empty if there are none."""
    width = max(len("estimator"), *(len(summary.learner) for summary in summaries))
    lines = [
        f"{each.learner:{width}}  {100 * each.evaluated_error_mean:5.2f} %              "
        f"{100 * (each.evaluated_low_mean or 0.0):5.2f} % to {100 * (each.evaluated_high_mean or 0.0):5.2f} %"
        for each in summaries
        if each.evaluated_error_mean is not None
    ]
    if not lines:
        return []
    return ["", f"{'estimator':{width}}  error on rows held back  interval for new rows (95 %; means of folds)", *lines]


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    """The mean of figures that all folds have; None if one lacks it."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def worst(statements: Sequence[PrivacyStatement]) -> PrivacyStatement:
    """The statement of the fold that costs most under collusion, the first among equals."""
    return max(statements, key=lambda said: said.epsilon_if_others_collude or 0.0)


def learners_warnings(rows: Sequence[Row], folds: int) -> list[str]:
    """The estimators' warnings about their training, each once, with the number of folds."""
    counted = Counter((row.learner, row.warning) for row in rows if row.warning is not None)
    return [f"{estimator}, in {count} of {folds} folds: {warning}." for (estimator, warning), count in counted.items()]


def notes_if_several(folds: int, *, released: bool, asked: bool) -> list[str]:
    """Notes on figures over folds. released: whether a design was queried. asked: whether estimators queried."""
    release = (
        f"Each of the {folds} folds made its own release. Privacy is stated for one release, in the fold that costs "
        "most: a federation would make one."
    )
    answers = (
        f"Each estimator that queries had the whole epsilon and delta in each of the {folds} folds. Privacy is stated "
        "for its own answers alone, in the fold that costs most. A federation that answers several estimators charges "
        "each of them."
    )
    return [*([release] if released else []), *([answers] if asked else [])]


# Error against epsilon: a simulation repeated for several budgets, as curves and as a picture.

USUAL_EPSILONS = "0.1,0.3,1,3"
MOST_EPSILONS = 30

_FEDERATED = ("rados", "moments", "answers")
_PERCENT = 100


@dataclass(frozen=True)
class ErrorCurves:
    """Results for several epsilons, ascending, of one table, estimators, folds and seed.

    left_out: the epsilons that could not be simulated, each with the reason.
    """

    results: Mapping[Fraction, SimulationResult]
    left_out: Mapping[Fraction, str]

    @property
    def curves(self) -> dict[str, list[tuple[float, Summary]]]:
        """(epsilon, summary) for each estimator that learns from the federation's answers or releases."""
        found: dict[str, list[tuple[float, Summary]]] = {}
        for epsilon, result in self.results.items():
            for summary in result.summaries:
                if summary.sees in _FEDERATED:
                    found.setdefault(summary.learner, []).append((float(epsilon), summary))
        return found

    @property
    def compared(self) -> tuple[Summary, ...]:
        """Those that see the pooled rows or labels: the same for every epsilon."""
        (*_, last) = self.results.values()
        return tuple(each for each in last.summaries if each.sees not in _FEDERATED)

    @property
    def notes(self) -> list[str]:
        """At which epsilons, and in how many folds, an estimator of curves has a straight model."""
        return [
            f"epsilon {epsilon}: {name}, in {count} of {result.folds} folds: {STRAIGHT}"
            for epsilon, result in self.results.items()
            for name, count in Counter(
                row.learner for row in result.rows if (row.warning or "").startswith(STRAIGHT)
            ).items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        shown = ("test_error_mean", "test_error_std", "auc_mean")
        curves = {
            name: [{"epsilon": epsilon, **{key: getattr(each, key) for key in shown}} for epsilon, each in points]
            for name, points in self.curves.items()
        }
        return {
            "curves": curves,
            "left_out": {str(epsilon): reason for epsilon, reason in self.left_out.items()},
            "picture_notes": self.notes,
        }


def epsilons_of(text: str) -> list[Fraction]:
    """The exact epsilons of a text such as "0.1,1", ascending, each once. Raises ConfigurationError."""
    found = sorted({exact(each.strip(), "--epsilons") for each in text.split(",")})
    if found[0] <= 0:
        raise ConfigurationError(f"--epsilons {text!r}: give positive numbers")
    if len(found) > MOST_EPSILONS:
        raise ConfigurationError(f"there are {len(found)} epsilons: give at most {MOST_EPSILONS}")
    return found


def error_curves(
    simulated: Callable[[Fraction], SimulationResult], epsilons: Sequence[Fraction], *, first: Fraction
) -> ErrorCurves:
    """Simulate at every epsilon. simulated: the result at one; first: the epsilon that must be possible.

    Raises what `simulated` raises at `first`; another epsilon that raises an error of this project's is left out.
    """
    results, left_out = {first: simulated(first)}, dict[Fraction, str]()
    if not all(isinstance(each, Summary) for each in results[first].summaries):
        raise ConfigurationError("a picture is of the error of classes, and the label has none: leave the picture out")
    for epsilon in epsilons:
        if epsilon == first:
            continue
        try:
            results[epsilon] = simulated(epsilon)
        except RadofedError as error:
            left_out[epsilon] = str(error)
    return ErrorCurves(dict(sorted(results.items())), left_out)


def draw_curves(found: ErrorCurves, file: Path) -> None:
    """Write the picture, an SVG: the mean error of the folds, and one standard error to either side.

    Raises ConfigurationError as `check_picture` does.
    """
    check_picture(file)
    (*_, result) = found.results.values()
    curves = {
        name: [
            (epsilon, _PERCENT * each.test_error_mean, _PERCENT * each.test_error_std / math.sqrt(result.folds))
            for epsilon, each in points
        ]
        for name, points in found.curves.items()
    }
    levels = {f"{each.learner} (sees {each.sees})": _PERCENT * each.test_error_mean for each in found.compared}
    ends = [end for points in curves.values() for _, mean, error in points for end in (mean - error, mean + error)]
    plot = Plot(
        "",
        "Test error against epsilon",
        "",
        Scale.over((epsilon for points in curves.values() for epsilon, *_ in points), is_log=True),
        Scale.over([*ends, *levels.values()]),
        heading="test error, %",
        label="epsilon of each estimator",
        width=640,
        height=380,
    )
    for sort, points in enumerate(curves.values()):
        plot.line([(epsilon, mean) for epsilon, mean, _ in points], sort, marks=True)
        for epsilon, mean, error in points:
            plot.whisker(epsilon, mean - error, mean + error, sort)
    kinds = ("zero", "chosen", "grid")
    for place, level in enumerate(levels.values()):
        plot.level(level, kinds[place % len(kinds)])
    plot.legend(
        [
            *((f"line s{sort % SORTS}", name) for sort, name in enumerate(curves)),
            *((kinds[place % len(kinds)], name) for place, name in enumerate(levels)),
        ]
    )
    title = (
        f"{counted(result.table_rows, 'row')}, {amount(result.federation.parties, 'party')}, "
        f"{amount(result.folds, 'fold')}, seed {result.seed}; mean and one standard error"
    )
    write_picture(title, [plot], file)
