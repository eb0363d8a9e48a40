"""Predictions of a model on the rows of a table, and how many of them are wrong."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.estimators.hazard_scores import restricted_means
from dpcore.records.encoding import Change, changes, summed, why_unusable
from dpcore.records.features import EventTime
from learner.uncertainty import why_no_probability
from radobase.printing import amount
from radobase.tables.tables import as_source, encoded_blocks, open_table

if TYPE_CHECKING:
    from learner.model import Model


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of rows."""

    scores: NDArray[np.float64]
    """(rows,) float64, theta . x, of several classes (rows, k), NaN without a prediction."""
    labels: NDArray[np.int8]
    """(rows,) int8: +1, -1, or 0 without a prediction; of several classes the code, or -1 without one; of a number, a
    count or a time 1, or 0 without one."""
    values: NDArray[np.float64] | None = None
    """(rows,), of a label that is a number or a count, in its units, of a time to an event the mean up to the horizon;
    NaN without a prediction; None of classes."""
    probabilities: NDArray[np.float64] | None = None
    """(rows,), of the positive class, of several (rows, k), NaN without a prediction; None if the model has none."""
    survival: NDArray[np.float64] | None = None
    """(rows, J), of a time to an event, as of `Model.survival`, NaN without a prediction; None of other labels."""
    changes: tuple[Change, ...] = ()
    """What the schema's policies changed in the table, by column and policy, what lost most first."""


def predict(model: "Model", path: Any) -> Predictions:
    """Scores and labels of the rows of a table. The label column is not read.

    path: a CSV or Parquet file's path, an Arrow table or a data frame (radobase.tables.arrow_table). A row that the
    schema's policies make a zero vector has no prediction; a UserWarning says how many, and which policy made most of
    them. Another names each policy that changed many cells. A score of exactly zero has label -1, as in the estimators.

    Raises DataError as radobase.tables.tables does.
    """
    rows = model.schema.encode(path)
    usable = rows.usable
    found = changes(model.schema, rows.tallies, len(usable))
    warn_of(found, rows=len(usable), usable=int(usable.sum()), then="these rows have no prediction")
    scores = model.scores(rows.x)
    if model.schema.label.coding.is_measured:
        scores[~usable] = math.nan
        return Predictions(scores, usable.astype(np.int8), model.values(scores), changes=found)
    if isinstance(label := model.schema.label, EventTime):
        scores[~usable] = math.nan
        surviving = model.survival(scores)
        means = restricted_means(surviving, label.borders)
        return Predictions(scores, usable.astype(np.int8), means, changes=found, survival=surviving)
    labels = model.predicted(scores)
    scores[~usable] = math.nan
    labels[~usable] = model.scoring.undecided
    chances = model.probabilities(scores) if why_no_probability(model) is None else None
    return Predictions(scores, labels, probabilities=chances, changes=found)


@dataclass(frozen=True)
class Errors:
    """How many of a table's rows a model classifies wrongly."""

    rows: int
    compared: int
    """Rows with a prediction and a label."""
    wrong: int
    changes: tuple[Change, ...]
    """What the schema's policies changed in the table, what lost most first."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """Of several classes, the rows of each class, in turn, by the class that is predicted."""

    @property
    def rate(self) -> float | None:
        """The share of them, wrong / compared; None if nothing could be compared."""
        return self.wrong / self.compared if self.compared else None

    def sentence(self) -> str:
        """The rate with its denominator, and how many rows it leaves out."""
        if self.rate is None:
            return f"no row of {self.rows} has both a prediction and a label that the schema knows: no errors counted"
        left = self.rows - self.compared
        found = f"wrong on {100 * self.rate:.2f} % of {amount(self.compared, 'row')} with a label, {self.wrong} of them"
        return f"{found}; {left} others have no label that the schema knows, or no prediction" if left else found

    def __str__(self) -> str:
        return self.sentence()


def count_errors(model: "Model", path: Any) -> Errors:
    """Compare a table's labels with the predictions. A row whose label the schema does not know is not compared.

    Raises DataError as radobase.tables.tables does, also if there is no label column.
    """
    label = model.schema.label
    lenient = replace(model.schema, label=label.lenient)
    wrong = compared = rows = 0
    confusion = np.zeros((label.classes, label.classes), dtype=np.int64)
    tallies = []
    for block in encoded_blocks(as_source(path), lenient, label=True):
        assert block.labels is not None, "labels were asked for"
        predicted = model.predicted(model.scores(block.x))
        if label.classes:
            np.add.at(confusion, (block.labels[block.usable], predicted[block.usable]), 1)
        wrong += int(np.count_nonzero((predicted != block.labels) & block.usable))
        compared += int(np.count_nonzero(block.usable))
        rows += len(block.usable)
        tallies.append(block.tallies)
    by_class = tuple(map(tuple, confusion.tolist()))
    return Errors(rows, compared, wrong, changes(lenient, summed(tallies), rows), by_class)


def error_rate(model: "Model", path: Any) -> float:
    """The fraction of a table's rows with a label and a prediction that the model classifies wrongly.

    Warns as `predict` does. Raises DataError as `count_errors` does, and if no row has both.
    """
    found = count_errors(model, path)
    if (rate := found.rate) is None:
        why = why_unusable(found.changes, rows=found.rows, usable=found.compared)
        raise DataError(f"{why}; correct the table", file=open_table(as_source(path)).path)
    warn_of(found.changes, rows=found.rows, usable=found.compared, then="the error rate is over the usable rows")
    return rate


def warn_of(found: Sequence[Change], *, rows: int, usable: int, then: str, stacklevel: int = 3) -> None:
    """Warn of rows that are not usable, and of each policy that changed many cells and kept their rows.

    then: what follows for the rows that are not usable.
    """
    why = why_unusable(found, rows=rows, usable=usable)
    if why is not None:
        warnings.warn(f"{why}; {then}: correct the table", stacklevel=stacklevel)
    for change in found:
        if change.is_many and not change.leaves_out:
            warnings.warn(f"{change.sentence}: check the table against the schema", stacklevel=stacklevel)
