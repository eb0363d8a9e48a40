"""Models of labels that are numbers or counts, on a table: predictions in the label's units, and how good they are."""

import math
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from dpcore.errors import DataError, SchemaError
from dpcore.evaluation.measured_evaluation import deviance_explained, r_squared
from dpcore.numbers.fixed_point import ONE, Vector
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.encoding import Change, changes, summed
from dpcore.records.features import Classes, Label, Number, measured
from learner.coefficient_table import CoefficientRow, p_in_words
from radobase.printing import amount
from radobase.tables.tables import as_source, encoded_blocks, open_table

if TYPE_CHECKING:
    from learner.model import Model

_WORDS = {"r2": "R^2", "deviance_explained": "explained deviance"}


@dataclass(frozen=True)
class Ratio:
    """How many times as large a prediction is after a change of a column."""

    column: str
    change: str
    """In words, of the column's units."""
    ratio: float
    lower: float | None = None
    upper: float | None = None
    """An interval of 95 % for noise, choice of rows, clipping and shrinkage."""
    p_value: float | None = None
    """That of a ratio of 1."""
    measurable: bool | None = None
    """False if there is no interval, because the answers say too little; None if none was computed."""

    @classmethod
    def of(cls, row: CoefficientRow) -> Self:
        """That of a row of a table of ratios."""
        assert row.ratio is not None, "the table is of ratios"
        return cls(row.column, row.change, row.ratio, row.ratio_lower, row.ratio_upper, row.p_value, row.measurable)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def sentence(self) -> str:
        """For people."""
        return f"{self.column}, {self.change}: {self.ratio:.4g} times{self.interval_in_words}"

    @property
    def interval_in_words(self) -> str:
        """The interval and the p-value, in brackets; or that there is none."""
        if self.lower is not None and self.p_value is not None:
            return f" ({self.lower:.4g} to {self.upper:.4g}), p {p_in_words(self.p_value)}"
        return ", not measurable" if self.measurable is False else ""


class OddsRatio(Ratio):
    """How many times as large the odds of the positive class are after a change of a column."""

    def sentence(self) -> str:
        """For people."""
        return f"{self.column}, {self.change}: odds ratio {self.ratio:.4g}{self.interval_in_words}"


def ratios_of(model: "Model") -> tuple[Ratio, ...]:
    """Those of each change of a column, the furthest from 1 first; none of a model of curves (learner.shapes).

    Raises SchemaError if effects add up instead, or if the label has several classes.
    """
    label = model.schema.label
    if isinstance(label, Classes):
        raise SchemaError(
            f"{label.column!r} has {label.classes} classes, and a ratio is of one against another: read "
            "coefficients(reference=...)"
        )
    if model.feature_map is not None:
        return ()
    (table,) = model.coefficients()
    if not table.ratio and isinstance(label, Label):
        raise SchemaError(
            f"what columns add to the score of {label.column!r} is no logarithm of odds: for odds ratios train newton "
            "with a clip of at least 1, or read summary()"
        )
    if not table.ratio:
        raise SchemaError(f"what columns add to {label.column!r} is no ratio: read summary(), or learn its logarithm")
    kind = OddsRatio if isinstance(label, Label) else Ratio
    return tuple(sorted((kind.of(row) for row in table.rows if row.ratio is not None), key=from_one))


def from_one(ratio: Ratio) -> float:
    """For sorting: less for what is further from 1."""
    return -abs(math.log(max(ratio.ratio, sys.float_info.min)))


@dataclass(frozen=True)
class MeasuredErrors:
    """How well a model predicts the labels of a table."""

    rows: int
    compared: int
    """Rows with a prediction and a label."""
    measure: Literal["r2", "deviance_explained"]
    explained: float | None
    """R^2 on the scale that is learned, or of counts the share of the Poisson deviance; None if all rows have the same
    label, or rate, so that there is nothing to explain."""
    absolute_error: float
    """The mean, in the label's units."""
    root_squared_error: float
    """The root of the mean of squares, in these units."""
    bias: float
    """The mean of what is predicted less the label."""
    changes: tuple[Change, ...]
    """What the schema's policies changed in the table, what lost most first."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        figures = {name: getattr(self, name) for name in ("absolute_error", "root_squared_error", "bias")}
        return {self.measure: self.explained, **figures, "labelled": self.compared}

    def sentence(self) -> str:
        """For people, with the rows that it is over."""
        found = f"{_WORDS[self.measure]} {'is not defined' if self.explained is None else f'{self.explained:.4f}'}"
        why = "; all have the same label, so there is nothing to explain" if self.explained is None else ""
        return (
            f"{found} and a mean absolute error of {self.absolute_error:.6g} on {amount(self.compared, 'row')} with a "
            f"label, of {self.rows}{why}"
        )

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True, eq=False)
class _Compared:
    """The rows of a table that have both a prediction and a label."""

    rows: int
    stored: Vector
    """(compared,), labels as stored."""
    exposures: Vector
    scores: Vector
    changes: tuple[Change, ...]


def _compared(model: "Model", path: Any) -> _Compared:
    """Raises DataError as radobase.tables.tables does, also if there is no label column, or nothing to compare."""
    label = measured(model.schema.label, "an error of numbers")
    lenient = replace(model.schema, label=label.lenient)
    coding, rows, tallies, source = label.coding, 0, [], as_source(path)
    found: list[tuple[Vector, Vector, Vector]] = []
    for block in encoded_blocks(source, lenient, label=True):
        assert block.labels is not None, "labels were asked for"
        rows += len(block.usable)
        tallies.append(block.tallies)
        labels = block.labels[block.usable]
        exposures = np.exp(np.ldexp(coding.offsets(labels).astype(np.float64), -OFFSET_BITS))
        found.append((coding.values(labels).astype(np.float64), exposures, model.scores(block.x[block.usable])))
    stored, exposures, scores = (np.concatenate(part) for part in zip(*found, strict=True))
    if not len(stored):
        raise DataError("no row has both a prediction and a label that the schema knows", file=open_table(source).path)
    return _Compared(rows, stored, exposures, scores, changes(lenient, summed(tallies), rows))


def measured_errors(model: "Model", path: Any) -> MeasuredErrors:
    """Compare a table's labels with the predictions. A row whose label the schema does not know is not compared.

    Raises DataError as radobase.tables.tables does, also if there is no label column, or nothing to compare.
    """
    return _errors(model, _compared(model, path))


def _errors(model: "Model", found: _Compared) -> MeasuredErrors:
    label = measured(model.schema.label, "an error of numbers")
    stored, scores, size = found.stored, found.scores, len(found.stored)
    predicted = model.values(scores)
    if label.coding.kind == "count":
        means = np.maximum(predicted * found.exposures if model.link == "log" else predicted, 1e-6)
        off, is_constant = means - stored, _is_constant(stored / found.exposures)
        explained = None if is_constant else deviance_explained(stored, means, found.exposures)
        return MeasuredErrors(found.rows, size, "deviance_explained", explained, *_sizes(off), found.changes)
    off = predicted - label.in_units(stored / ONE)
    explained = None if _is_constant(stored) else r_squared(stored / ONE, scores)
    return MeasuredErrors(found.rows, size, "r2", explained, *_sizes(off), found.changes)


def _is_constant(values: Vector) -> bool:
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def _sizes(off: Vector) -> tuple[float, float, float]:
    """The mean size of errors, the root of their mean square, and their mean."""
    return float(np.abs(off).mean()), float(np.sqrt(np.square(off).mean())), float(off.mean())


OWN_BINS = 10


@dataclass(frozen=True)
class ValueBin:
    """Rows whose predictions are near one another."""

    lower: float
    """The least prediction."""
    upper: float
    rows: int
    predicted: float
    """The mean; of counts over their exposures, and of numbers on a scale of logarithms the geometric mean."""
    observed: float
    """The same of labels."""


@dataclass(frozen=True)
class MeasuredValues:
    """How well a model predicts the labels of a table, as a whole and from low predictions to high ones."""

    errors: MeasuredErrors
    bins: tuple[ValueBin, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.errors.to_dict(), "bins": [asdict(each) for each in self.bins]}


def measured_values(model: "Model", path: Any) -> MeasuredValues:
    """`measured_errors` with the rows in bins of predictions. Raises as it does."""
    found = _compared(model, path)
    label = measured(model.schema.label, "an error of numbers")
    is_rate, is_log = model.link == "log", isinstance(label, Number) and label.log
    labels = found.stored if label.coding.kind == "count" else label.in_units(found.stored / ONE)
    predicted, over = model.values(found.scores), found.exposures if is_rate else np.ones(len(labels))
    bins = []
    for part in np.array_split(np.argsort(predicted, kind="stable"), OWN_BINS):
        if not len(part):
            continue
        own, weights = predicted[part], over[part]
        if is_log:
            means = float(np.exp(np.log(own).mean())), float(np.exp(np.log(labels[part]).mean()))
        else:
            means = float(own @ weights / weights.sum()), float(labels[part].sum() / weights.sum())
        bins.append(ValueBin(float(own[0]), float(own[-1]), len(part), *means))
    return MeasuredValues(_errors(model, found), tuple(bins))
