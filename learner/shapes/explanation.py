"""The explanation of one row: what each column, and each pair of columns, adds to its score."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpcore.errors import ConfigurationError
from dpcore.records.changed_cells import Change, changes, main_cause
from learner.shapes.parts import intercept_of, parts_of
from radobase.tables.arrow_table import ArrowTable
from radobase.tables.tables import read_rows

if TYPE_CHECKING:
    from learner.model import Model


@dataclass(frozen=True)
class Contribution:
    """What one column, or a pair, adds to the score of a row."""

    columns: tuple[str, ...]
    adds: float


@dataclass(frozen=True)
class Explanation:
    """intercept and contributions, the largest first, add up to the score. label: +1, -1, or 0 without a prediction.

    Without a prediction, because the schema makes the row a zero vector, the score is NaN, nothing is contributed, and
    `reason` names the column and the policy. changes: what the schema's policies changed in the row.
    """

    score: float
    label: int
    intercept: float
    contributions: tuple[Contribution, ...]
    reason: str = ""
    changes: tuple[Change, ...] = ()


def explain(model: "Model", row: Mapping[str, Any]) -> Explanation:
    """What each column and pair adds to the score of a row, beside its mean (learner.shapes.spread).

    row: the value of each column, in the column's units, as a table for predictions has it; None for an empty cell.
    Columns that the schema does not name are ignored.

    Raises:
        DataError: a column is absent, or the schema refuses a value, as `learner.model.predict` says.
        ConfigurationError: the row is no mapping, or a value is of a type that no table has.
    """
    if not isinstance(row, Mapping):
        raise ConfigurationError(f"the row is {type(row).__name__}: give a mapping from columns to values")
    try:
        table = pa.table({str(column): pa.array([value]) for column, value in row.items()})
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"a value of the row cannot be read ({type(error).__name__}): give numbers, texts, True, False or None"
        ) from error
    rows = read_rows(ArrowTable(table, "the row"), model.schema)
    x = rows.x
    parts, found = parts_of(model), changes(model.schema, rows.tallies, 1)
    intercept = intercept_of(model, parts)[0]
    if not rows.usable[0]:
        return Explanation(math.nan, 0, intercept, (), main_cause(found), found)
    adds: dict[tuple[str, ...], float] = {}
    for part in parts:
        value = float(part.basis(x)[0] @ model.theta[list(part.places)])
        adds[part.columns] = adds.get(part.columns, 0.0) + value
    score = float(model.scores(x)[0])
    ranked = sorted(adds.items(), key=lambda each: -abs(each[1]))
    label = int(np.where(score > 0, 1, -1))
    return Explanation(score, label, intercept, tuple(Contribution(*each) for each in ranked), changes=found)
