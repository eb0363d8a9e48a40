"""A model's table of coefficients: standard errors, p-values and intervals, and ratios, as statistical packages print.

A standard error is the root of the second moment of a coefficient's error: of the noise, the choice of the rows,
clipping and shrinkage, as the model's file states it (dpcore.estimators.errors_of_weights), or as intervals are
computed from a release (learner.report.coefficients).

An interval is the coefficient plus and minus 1.96 standard
errors, and a p-value is that of a normal distribution: the chance of a coefficient at least so far from 0, if it is 0.

A coefficient of which the answers say too little is "not measurable": it has no standard error, interval or p-value,
and counts as a p-value of 1 where p-values are adjusted for their number.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.data_frames import load_pandas
from dpcore.errors import ConfigurationError
from dpcore.records.features import Number
from dpcore.records.texts import nearest
from learner.clipped_weights import what_clipping_does
from learner.report.coefficients import (
    CONFIDENCE,
    Coefficient,
    Coefficients,
    coefficients,
    effects,
    stated,
)
from learner.uncertainty import FACTOR, MOST_HALF_WIDTH, Limits, half_widths
from radobase.presentation.notebook import Picture, Shown, fragment
from radobase.presentation.svg import intervals
from radobase.printing import columns

if TYPE_CHECKING:
    from learner.model import Model
    from learner.release import Release

Adjustment = Literal["none", "holm", "benjamini-hochberg"]
"""How p-values count that there are several: not, so that the chance of any false one is as stated (Holm 1979), or so
that the share of false ones among those found is (Benjamini and Hochberg 1995)."""

COMPARABLE = 3.0
"""A hazard ratio is comparable to Cox's on the same rows if its interval reaches at most so many of Cox's standard
errors to either side, so that all but 5 of 100 differ by less."""

_LARGEST_LOG = 700.0
_INTERCEPT = "intercept"
_TRUTHS = ("measurable", "comparable")


@dataclass(frozen=True)
class CoefficientRow:
    """One change of a column, or the intercept."""

    column: str
    change: str
    """In words, of the column's units."""
    estimate: float
    """What is added to the score; of a number that is learned as it is, to the prediction in the label's units."""
    standard_error: float | None
    """None, as all that follows from it, if it is not known or not measurable."""
    z: float | None
    p_value: float | None
    """Adjusted, if the table is."""
    lower: float | None
    upper: float | None
    ratio: float | None
    """By what odds, a rate, a hazard or a number is multiplied; None if the score is no logarithm."""
    ratio_lower: float | None
    ratio_upper: float | None
    measurable: bool | None
    """None if no interval was computed."""
    comparable: bool | None = None
    """Of a hazard ratio, `COMPARABLE`; None of others."""

    def cells(self) -> tuple[str, ...]:
        """For people."""
        if self.standard_error is None:
            said = "not measurable" if self.measurable is False else ""
            ratio = "" if self.ratio is None or said else f"{self.ratio:.4g}"
            return (self.column, self.change, f"{self.estimate:+.4g}", said, "", "", "", ratio)
        assert self.z is not None and self.p_value is not None, "they follow from the error"  # noqa: PT018
        between = f"{self.lower:+.4g} to {self.upper:+.4g}"
        ratio = "" if self.ratio is None else f"{self.ratio:.4g} ({self.ratio_lower:.4g} to {self.ratio_upper:.4g})"
        return (
            self.column,
            self.change,
            f"{self.estimate:+.4g}",
            f"{self.standard_error:.3g}",
            f"{self.z:.2f}",
            p_in_words(self.p_value),
            between,
            ratio + " *" * (self.comparable is False),
        )


@dataclass(frozen=True)
class CoefficientTable:
    """The coefficients of one score of a model."""

    of: str
    """What the score speaks for."""
    rows: tuple[CoefficientRow, ...]
    adds_to: str
    """What a coefficient is added to, in words."""
    ratio: str
    """What a ratio is of; empty if the score is no logarithm."""
    adjustment: Adjustment
    notes: tuple[str, ...]
    """What to know of them, in sentences."""
    confidence: float = CONFIDENCE

    @property
    def header(self) -> tuple[str, ...]:
        """Of `cells`."""
        p = "p" if self.adjustment == "none" else f"p ({self.adjustment})"
        level = f"{100 * self.confidence:g} % interval"
        return ("column", "change", "adds", "std. error", "z", p, level, self.ratio)

    @property
    def title(self) -> str:
        """Of the table."""
        return f"What columns add to {self.adds_to}"

    def cells(self) -> list[tuple[str, ...]]:
        """The rows, without columns that are empty in all of them; the header first."""
        found = [self.header, *(row.cells() for row in self.rows)]
        kept = [place for place in range(len(self.header)) if place < 3 or any(row[place] for row in found[1:])]
        return [tuple(row[place] for place in kept) for row in found]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def shown(self) -> Shown:
        """For notebooks, without the notes."""
        header, *rows = self.cells()
        return self.title, header, rows

    def _repr_html_(self) -> str:
        return fragment("", self.notes, [self.shown()])

    def lines(self) -> list[str]:
        """As text."""
        header, *rows = self.cells()
        return [self.title, *columns(header, rows, right=range(2, len(header))), *self.notes]

    def plot(self) -> Picture:
        """The coefficients with intervals, as a picture that notebooks show; of a logarithm as ratios.

        Raises ConfigurationError if none has an interval.
        """
        shown = []
        for row in self.rows:
            if row.column == _INTERCEPT or row.lower is None or row.upper is None:
                continue
            value, ends = row.estimate, (row.lower, row.upper)
            if row.ratio is not None and row.ratio_lower is not None and row.ratio_upper is not None:
                value, ends = row.ratio, (row.ratio_lower, row.ratio_upper)
            name = f"{row.column}, {row.change}" if row.change else row.column
            shown.append((name, f"{value:.4g} ({ends[0]:.4g} to {ends[1]:.4g})", value, ends))
        if not shown:
            raise ConfigurationError("no coefficient has an interval: there is nothing to draw")
        title = self.ratio or f"added to {self.adds_to}"
        words = "Each coefficient with its interval. The dashed line is no effect."
        is_log = bool(self.ratio)
        return Picture(intervals("coefficients", title, words, shown, line=float(is_log), is_log=is_log))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        found["rows"] = [asdict(row) for row in self.rows]
        return found

    def to_columns(self) -> dict[str, list[Any]]:
        """The fields of the rows, a list for each, for data frames and R's as.data.frame: NaN in place of no number.

        p_value is adjusted if the table is, and p_unadjusted never. measurable and comparable are None if not known.
        """
        found = {each.name: [getattr(row, each.name) for row in self.rows] for each in fields(CoefficientRow)}
        z = found["z"]
        found["p_unadjusted"] = [None if each is None else _p_value(each) for each in z]
        order = ("column", "change", "estimate", "standard_error", "z", "p_value", "p_unadjusted", "lower", "upper")
        columns = {name: found[name] for name in (*order, *(each for each in found if each not in order))}
        return {
            name: values if name in {"column", "change", *_TRUTHS} else [_number(each) for each in values]
            for name, values in columns.items()
        }

    def to_pandas(self) -> Any:
        """A data frame of `to_columns`, indexed by column. Raises ConfigurationError if pandas is not installed."""
        frame = load_pandas("to_columns()").DataFrame(self.to_columns()).astype(dict.fromkeys(_TRUTHS, "boolean"))
        return frame.set_index("column")


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _p_value(z: float) -> float:
    """Of the normal distribution, on both sides."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def p_in_words(p_value: float) -> str:
    """Never more exact than the normal distribution is."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def coefficient_tables(
    model: "Model",
    releases: "tuple[Release, ...]" = (),
    options: Mapping[str, Any] | None = None,
    *,
    adjustment: Adjustment = "none",
    reference: str | None = None,
) -> tuple[CoefficientTable, ...]:
    """The table of each score. releases, options: as of `learner.report.coefficients.coefficients`.

    Of several classes whose errors the model states there is one of each class against the reference, by default the
    one that is known best. Raises ConfigurationError for an adjustment or a class that there is not.
    """
    if adjustment not in get_args(Adjustment):
        raise ConfigurationError(f"no adjustment is called {adjustment!r}; {nearest(adjustment, get_args(Adjustment))}")
    if model.schema.label.coding.is_measured or model.schema.label.coding.intervals:
        if reference is not None:
            raise ConfigurationError(f"{model.schema.label.column!r} is no label of classes: leave the reference out")
        return (_table(model, _of_one_score(model), adjustment),)
    if model.schema.label.classes and model.covariance is not None and model.feature_map is None:
        return tuple(_table(model, each, adjustment) for each in _against(model, reference))
    if reference is not None:
        raise ConfigurationError(
            "only a model of several classes that states errors of its weights compares them with a reference: leave "
            "it out, or train newton with a clip of at least 1.5"
        )
    found = coefficients(model, releases, options or {}, np.random.default_rng(0))
    return tuple(_table(model, each, adjustment) for each in found)


def adjusted(p_values: Sequence[float], adjustment: Adjustment) -> list[float]:
    """P-values for all at once, each at most 1."""
    p = np.asarray(p_values, dtype=np.float64)
    if adjustment == "none" or not len(p):
        return list(p_values)
    order, n = np.argsort(p, kind="stable"), len(p)
    if adjustment == "holm":
        stepped = np.maximum.accumulate(p[order] * (n - np.arange(n)))
    else:
        stepped = np.minimum.accumulate((p[order] * n / (1.0 + np.arange(n)))[::-1])[::-1]
    found = np.empty(n)
    found[order] = np.minimum(stepped, 1.0)
    return [float(each) for each in found]


def _of_one_score(model: "Model") -> Coefficients:
    """Of a label without classes."""
    found = effects(model.schema)
    if model.feature_map is not None:
        return Coefficients((), CONFIDENCE, "The model has curves and not one coefficient for each column.")
    combinations = np.array([weights for _, _, weights in found])
    values = combinations @ model.theta
    bare = tuple(Coefficient(name, words, float(v)) for (name, words, _), v in zip(found, values, strict=True))
    if model.covariance is None:
        return Coefficients(bare, CONFIDENCE, "The model's file states no errors of its weights.")
    limits = Limits.of(model.schema.label, is_rate=model.link == "log")
    return Coefficients(stated(bare, combinations, model.covariance, limits), CONFIDENCE, is_stated=True)


def best_known(covariance: NDArray[np.float64], classes: int) -> int:
    """The place of the class whose weights have the least errors: usually the largest class."""
    return int(np.diag(covariance).reshape(classes, -1).sum(axis=1).argmin())


def _against(model: "Model", reference: str | None) -> list[Coefficients]:
    """Of each class but the reference: coefficients less those of the reference."""
    assert model.covariance is not None, "the caller looked"
    names = model.scoring.names
    base = best_known(model.covariance, len(names)) if reference is None else model.scoring.place_of(reference)
    found = effects(model.schema)
    combinations = np.array([weights for _, _, weights in found])
    tables = []
    for place, name in enumerate(names):
        if place == base:
            continue
        values = combinations @ (model.theta[place] - model.theta[base])
        bare = tuple(Coefficient(column, words, float(v)) for (column, words, _), v in zip(found, values, strict=True))
        apart = np.kron(np.eye(len(names))[place] - np.eye(len(names))[base], combinations)
        tables.append(
            Coefficients(
                stated(bare, apart, model.covariance), CONFIDENCE, of=f"{name} against {names[base]}", is_stated=True
            )
        )
    return tables


@dataclass(frozen=True)
class _Scale:
    """What scores are: their unit in that of `CoefficientRow.estimate`, and what the exponential is a ratio of."""

    unit: float
    start: float
    """What the intercept's estimate has beside its coefficient."""
    adds_to: str
    ratio: str


def _scale(model: "Model", of: str) -> _Scale:
    coding = model.schema.label.coding
    column = model.schema.label.column
    if coding.intervals:
        return _Scale(1.0, 0.0, "the logarithm of the hazard", "hazard ratio")
    if coding.is_measured and model.link == "log":
        return _Scale(1.0, 0.0, "the logarithm of the rate", "rate ratio")
    if coding.is_measured:
        ends = model.values(np.array([-1.0, 0.0, 1.0]))
        if math.isclose(ends[1] - ends[0], ends[2] - ends[1], rel_tol=1e-6):
            return _Scale(float(ends[2] - ends[1]), float(ends[1]), f"{column!r}, in its units", "")
        logs = np.log(ends)
        return _Scale(float(logs[2] - logs[1]), float(logs[1]), f"the logarithm of {column!r}", "ratio")
    if coding.classes:
        risk = model.sampling is not None
        words = f"the logarithm of the odds of {of!r}" if risk else f"the score of {of!r}"
        return _Scale(1.0, 0.0, words, "relative risk ratio" if risk else "")
    odds = model.estimator in model.scoring.log_odds or model.sampling is not None
    return _Scale(1.0, 0.0, f"the score of {of!r}", "odds ratio" if odds else "")


def _table(model: "Model", found: Coefficients, adjustment: Adjustment) -> CoefficientTable:
    scale = _scale(model, found.of)
    rows = [_row(row, scale) for row in found.rows]
    if model.schema.label.coding.intervals and rows:
        # The level of the hazard is in the baseline.
        rows = [row for row in rows if row.column != _INTERCEPT]
        rows = [replace(row, comparable=close) for row, close in zip(rows, _comparable(model), strict=True)]
    tested = [place for place, row in enumerate(rows) if row.column != _INTERCEPT and row.measurable is not None]
    p_values = adjusted([1.0 if (p := rows[place].p_value) is None else p for place in tested], adjustment)
    for place, p_value in zip(tested, p_values, strict=True):
        if rows[place].p_value is not None:
            rows[place] = replace(rows[place], p_value=p_value)
    return CoefficientTable(
        found.of,
        tuple(rows),
        scale.adds_to,
        scale.ratio,
        adjustment,
        (*_notes(model, found, rows), *what_clipping_does(model)),
    )


def _row(row: Coefficient, scale: _Scale) -> CoefficientRow:
    estimate = row.value * scale.unit + (scale.start if row.column == _INTERCEPT else 0.0)
    ratio = _ratio(estimate) if scale.ratio and row.column != _INTERCEPT else None
    ends, is_known = row.both or row.noise, row.measurable
    if ends is not None and ends[1] - ends[0] > 2.0 * MOST_HALF_WIDTH:
        ends, is_known = None, False
    if ends is None:
        return CoefficientRow(
            row.column, row.change, estimate, None, None, None, None, None, ratio, None, None, is_known
        )
    lower, upper = (end * scale.unit + (estimate - row.value * scale.unit) for end in ends)
    error = (upper - lower) / (2.0 * FACTOR)
    z = estimate / error if error else math.copysign(math.inf, estimate)
    return CoefficientRow(
        row.column,
        row.change,
        estimate,
        error,
        z,
        _p_value(z),
        lower,
        upper,
        ratio,
        None if ratio is None else _ratio(lower),
        None if ratio is None else _ratio(upper),
        row.measurable,
    )


def _ratio(log: float) -> float:
    return math.exp(min(log, _LARGEST_LOG))


def _comparable(model: "Model") -> list[bool | None]:
    """Of each hazard ratio: whether its interval is within `COMPARABLE` standard errors of the rows alone."""
    found = effects(model.schema)[int(model.schema.bias) :]
    if model.covariance is None or model.sampling is None:
        return [False] * len(found)
    combinations = np.array([weights for _, _, weights in found])
    both, of_rows = (half_widths(combinations, each) for each in (model.covariance, model.sampling))
    return [bool(each) for each in both <= COMPARABLE * of_rows / FACTOR]


def _widest(model: "Model") -> str:
    """The widest half of an interval in words: a label that is a number has its bounds at -1 and 1."""
    label = model.schema.label
    if not label.coding.is_measured or model.link == "log":
        return f"{MOST_HALF_WIDTH:g}"
    scale = "the logarithms of " if isinstance(label, Number) and label.log else ""
    return f"half of the range of {scale}{label.column!r}"


def _notes(model: "Model", found: Coefficients, rows: Sequence[CoefficientRow]) -> tuple[str, ...]:
    notes = [found.without] if found.without else []
    if any(row.standard_error is not None for row in rows):
        counted = ["noise"] + ["choice of rows"] * any(row.both is not None for row in found.rows)
        counted += ["clipping"] * (model.sampling is not None) + ["shrinkage"]
        listed = f"{', '.join(counted[:-1])} and {counted[-1]}"
        notes.append(f"Standard errors count {listed}; p-values are of the normal distribution.")
    if any(row.measurable is False for row in rows):
        notes.append(
            f"Not measurable: at this epsilon the interval would be wider than {_widest(model)} to either side, or the "
            "answers say too little of what it depends on."
        )
    if any(row.comparable is False for row in rows):
        starred = any(row.comparable is False and row.standard_error is not None for row in rows)
        notes.append(
            f"* not comparable to Cox's: noise and clipping may move it by more than {COMPARABLE:g} standard errors of "
            "Cox's regression on the same rows. The interval counts that."
            if starred
            else "Not comparable to Cox's ratios on the same rows."
        )
    return tuple(notes)
