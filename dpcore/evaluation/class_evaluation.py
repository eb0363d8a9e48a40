"""Evaluation of a model of several classes on the parties' rows: the confusion matrix by one release of counts.

The k^2 cells, by class and predicted class, exclude one another: a sensitivity of 2 in L1 and L2^2. Intervals are those
of dpcore.evaluation.evaluation, and hold with probability at least `confidence` for each family:

    the error;    the classes' recalls;    the classes' precisions;    costs (dpcore.evaluation.class_costs).

With costs the matrix is asked for with each of several shifts of the scores: a sensitivity of 2 for each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_left, check_pieces, failure_of
from dpcore.evaluation.class_costs import ClassCosts, LeastClassCost, Shifted, raised, tried_shifts
from dpcore.evaluation.intervals import CellNoise, Judge, Proportion, count_of
from dpcore.numbers.fixed_point import Matrix
from dpcore.numbers.rationals import lower_percent, upper_percent
from dpcore.predicates.expressions import (
    MOST_FORM,
    Affine,
    And,
    FormCoordinates,
    LabelClass,
    NonNegative,
    Not,
    Or,
    Predicate,
)
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import several_classes
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import BIAS, Schema

MOST_CLASSES = 25
"""With more the cells are no longer proved to exclude one another within the bounds of dpcore.predicates.disjoint."""


@dataclass(frozen=True, eq=False)
class ClassEvaluation:
    """The results of one release; the module's docstring says which intervals hold jointly."""

    classes: tuple[str, ...]
    rows: int
    """What parties state, usable or not."""
    confidence: float
    confusion: NDArray[np.float64]
    """(k, k), rows by class and predicted class, with noise, each within `cell_half_width`."""
    cell_half_width: float
    error: Proportion
    recalls: tuple[Proportion, ...]
    """Of each class, the share of its rows that are predicted to be of it."""
    precisions: tuple[Proportion, ...]
    """Of each class, the share that is of it among the rows that are predicted to be."""
    deviation: float
    """The noise's standard deviation on a cell, in rows."""
    part: HeldBack | None = None
    """The part of the rows that it is about; None for all."""
    unseen: bool = False
    """Whether the model was not trained on the rows; intervals on the distribution are only then stated."""
    least_cost: LeastClassCost | None = None
    """What costs least, if costs were given."""
    shifted: Shifted | None = field(default=None, repr=False)
    """The counts behind it, for other costs; None of an evaluation that was read from a file."""

    def cheapest(self, costs: ClassCosts | str) -> LeastClassCost:
        """What costs least among the shifts that were asked about, which costs no privacy.

        Raises ConfigurationError for malformed costs, and for an evaluation that was read from a file.
        """
        if self.shifted is None:
            raise ConfigurationError(
                "an evaluation from a file has no counts: evaluate with --cost; with --reuse that asks nothing again"
            )
        return self.shifted.least_cost(ClassCosts.parse(costs, self.classes) if isinstance(costs, str) else costs)

    @property
    def usable(self) -> float:
        """The usable rows, with noise."""
        return float(np.clip(self.confusion.sum(), 0.0, self.rows))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all numbers are finite."""
        each = zip(self.classes, self.recalls, self.precisions, strict=True)
        return {
            "rows": self.rows,
            "part": None if self.part is None else self.part.to_dict(),
            "unseen": self.unseen,
            "confidence": self.confidence,
            "cell_half_width": self.cell_half_width,
            "deviation": self.deviation,
            "error": self.error.to_dict(),
            "confusion": {
                name: dict(zip(self.classes, row, strict=True))
                for name, row in zip(self.classes, self.confusion.tolist(), strict=True)
            },
            "classes": {
                name: {"recall": recall.to_dict(), "precision": precision.to_dict()} for name, recall, precision in each
            },
            "least_cost": None if self.least_cost is None else self.least_cost.to_dict(),
        }

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """The results in words."""
        held_back = self.part is not None and self.part.part is Part.HELD_BACK
        which = "the usable rows that the parties hold back" if held_back else "the parties' usable rows"
        if self.part is not None and self.part.pieces:
            which = f"the usable rows of {self.part.words()}"
        new = self.error.on_distribution
        claim = "" if new is None else f"; on new rows of the same kind on {_range(new.lower, new.upper)}"
        on_rows = self.error.on_rows
        lines = [f"The model is wrong on {_range(on_rows.lower, on_rows.upper)} of {which}{claim}."]
        for name, recall, precision in zip(self.classes, self.recalls, self.precisions, strict=True):
            found, right = recall.strongest, precision.strongest
            lines.append(
                f"{name!r}: {_range(found.lower, found.upper)} of its rows are found, and "
                f"{_range(right.lower, right.upper)} of the rows predicted to be of it are."
            )
        lines += () if self.least_cost is None else self.least_cost.sentences()
        lines.append(
            f"Each family of statements holds with probability at least {lower_percent(self.confidence, 1)} %. A cell "
            f"of the confusion matrix is within {self.cell_half_width:.0f} rows."
        )
        return tuple(lines)


def class_cells(theta: Matrix, schema: Schema, feature_map: FeatureMap | None = None) -> tuple[Predicate, ...]:
    """Class and predicted class, class by class: the classifier of the largest score, the first of equal ones.

    theta: (k, d), rounded to integers times a power of two. Raises ShapeError, ConfigurationError, SchemaError.
    """
    label = several_classes(schema.label, "a confusion matrix of classes")
    names, weights = FormCoordinates(schema, feature_map).names, np.asarray(theta, dtype=np.float64)
    k = label.classes
    if weights.shape != (k, len(names)):
        raise ShapeError(f"theta has shape {weights.shape}: give {(k, len(names))}, a row of weights for each class")
    if k > MOST_CLASSES:
        raise ConfigurationError(f"the label has {k} classes, and an evaluation takes at most {MOST_CLASSES}")
    apart = np.abs(weights[:, np.newaxis] - weights).sum(axis=2).max()
    if not (math.isfinite(apart) and apart > 0.0):
        raise ConfigurationError("theta is not finite, or the same for all classes: train again")
    exponent = math.frexp((MOST_FORM - 2 * len(names)) / float(apart))[1] - 1
    integers = np.rint(np.ldexp(weights, exponent)).astype(np.int64)
    higher = {(b, c): NonNegative(_form(names, integers[b] - integers[c])) for b in range(k) for c in range(b + 1, k)}
    predicted: list[tuple[Predicate, ...]] = [
        (*(Not(higher[c, b]) for c in range(b)), *(higher[b, c] for c in range(b + 1, k))) for b in range(k)
    ]
    return tuple(And((LabelClass(value), *parts)) for value in label.values for parts in predicted)


def shifted_cells(
    theta: Matrix, schema: Schema, shifts: Matrix, feature_map: FeatureMap | None = None
) -> tuple[Predicate, ...]:
    """`class_cells` with each of these shifts (n, k) of the scores, the first of which are 0. Raises as it does."""
    plain = class_cells(theta, schema, feature_map)
    has_bias = schema.bias if feature_map is None else feature_map.bias
    others = (class_cells(raised(theta, each, bias=has_bias), schema, feature_map) for each in shifts[1:])
    return (*plain, *(cell for cells in others for cell in cells))


def is_right_class(theta: Matrix, schema: Schema, feature_map: FeatureMap | None = None) -> Predicate:
    """A model's score as of dpcore.evaluation.selection: the class of its largest score is the label's.

    A row that is not usable counts as wrong. Raises what `class_cells` raises.
    """
    cells = class_cells(theta, schema, feature_map)
    return Or(cells[:: math.isqrt(len(cells)) + 1])


def _form(names: Sequence[str], weights: NDArray[np.int64]) -> Affine:
    named = dict(zip(names, weights.tolist(), strict=True))
    constant = named.pop(BIAS, 0)
    return Affine(tuple(named.items()), constant)


def evaluate_classes(
    theta: Matrix,
    oracle: StatisticOracle,
    confidence: float = 0.95,
    *,
    part: Fraction = WHOLE,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
    costs: ClassCosts | None = None,
) -> ClassEvaluation:
    """Evaluate the classifier of the largest score on the federation's rows, by one release.

    theta: (k, d). unseen: as for dpcore.evaluation.evaluation.evaluate. costs: for which shifts are tried. Raises what
    `class_cells`, `tried_shifts` and the oracle raise.
    """
    check_pieces(oracle)
    check_left(oracle, part)
    strengths, shifts = ((0.0,), np.zeros((1, len(theta)))) if costs is None else tried_shifts(costs)
    cells = shifted_cells(theta, oracle.schema, shifts, feature_map)
    k = math.isqrt(len(cells) // len(shifts))
    estimates = oracle.statistic(cells, part=part, confidence=confidence, feature_map=feature_map)
    matrices, every = (estimates.values * estimates.rows).reshape(-1, k, k), estimates.most_rows or estimates.rows
    about = asked_part(oracle)
    if unseen is None:
        unseen = about is not None and about.part is Part.HELD_BACK
    noise = CellNoise.of(estimates)
    if noise.deviation == 0.0:
        matrices = np.rint(matrices)
    counts = matrices[0]
    judge = Judge(noise, failure_of(confidence, about), every, unseen=unseen)
    right = np.diag(counts)
    off = counts - np.diag(right)

    def share(code: int, others: NDArray[np.float64]) -> Proportion:
        return judge.proportion(count_of(right[code]), count_of(*np.delete(others, code)), k)

    shifted = Shifted(shifts, strengths, matrices, judge)
    return ClassEvaluation(
        classes=several_classes(oracle.schema.label, "a confusion matrix of classes").values,
        rows=every,
        confidence=confidence,
        confusion=counts,
        cell_half_width=noise.half_width(1, judge.failure / k**2),
        error=judge.proportion(count_of(*off[~np.eye(k, dtype=bool)]), count_of(*right)),
        recalls=tuple(share(code, counts[code]) for code in range(k)),
        precisions=tuple(share(code, counts[:, code]) for code in range(k)),
        deviation=noise.deviation,
        part=about,
        unseen=unseen,
        least_cost=None if costs is None else shifted.least_cost(costs),
        shifted=shifted,
    )


def _range(lower: float, upper: float) -> str:
    return f"{lower_percent(lower, 1)} % to {upper_percent(upper, 1)} %"
