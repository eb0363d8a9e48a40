"""Models of times to an event: hazard ratios in the units of the columns, and how good predictions are on a table."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpcore.errors import DataError
from dpcore.estimators.hazard_scores import brier_score, concordance
from dpcore.numbers.fixed_point import Mask, Vector
from dpcore.records.encoding import Change, changes, summed
from dpcore.records.features import event_time
from learner.coefficient_table import CoefficientRow
from learner.measured_models import Ratio, from_one
from radobase.printing import amount
from radobase.tables.tables import as_source, encoded_blocks, numbers_of, open_table

if TYPE_CHECKING:
    from learner.model import Model


@dataclass(frozen=True)
class HazardRatio(Ratio):
    """How many times as large the hazard is after a change of a column."""

    comparable: bool | None = None
    """Whether it is within three standard errors of Cox's on the same rows (learner.coefficient_table)."""

    @classmethod
    def of(cls, row: CoefficientRow) -> Self:
        """See `Ratio`."""
        return replace(super().of(row), comparable=row.comparable)

    def sentence(self) -> str:
        """For people."""
        said = f"{self.column}, {self.change}: hazard ratio {self.ratio:.4g}{self.interval_in_words}"
        return said + ", not comparable to Cox's" * (self.comparable is False)


def ranked_ratios(model: "Model") -> tuple[HazardRatio, ...]:
    """Those of each change of a column, the furthest from 1 first; none of a model of curves (learner.shapes).

    Raises SchemaError for a label of another type.
    """
    event_time(model.schema.label, "a hazard ratio")
    if model.feature_map is not None:
        return ()
    found = [HazardRatio.of(row) for table in model.coefficients() for row in table.rows]
    return tuple(sorted(found, key=from_one))


@dataclass(frozen=True)
class HazardErrors:
    """How well a model predicts the times of a table."""

    rows: int
    compared: int
    """Rows with a prediction, a time and an event's text."""
    events: int
    """Of them, those whose event happened within the horizon."""
    horizon: float
    concordance: float
    """Harrell's index up to the horizon, from the exact times; NaN if no two rows can be compared."""
    brier: float
    """The Brier score of survival up to the horizon; NaN if no row was followed beyond it."""
    brier_of_equal: float
    """That of the best chance that is the same for all rows; NaN as `brier`."""
    changes: tuple[Change, ...]
    """What the schema's policies changed in the table, what lost most first."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON: null for what could not be computed."""
        figures = {"concordance": self.concordance, "brier": self.brier, "brier_of_equal": self.brier_of_equal}
        known = {name: None if math.isnan(value) else value for name, value in figures.items()}
        return {**known, "horizon": self.horizon, "labelled": self.compared, "events": self.events}

    def sentences(self) -> list[str]:
        """For people, with the rows that it is over."""
        events = f"{self.events} with the event by {self.horizon:g}"
        over = f"{amount(self.compared, 'row')} with a time, {events}, of {self.rows}"
        if math.isnan(self.concordance):
            first = f"no concordance on {over}: no row had the event before another's time"
        else:
            first = f"concordance {self.concordance:.4f} on {over}; equal scores would have 0.5"
        if math.isnan(self.brier):
            return [first, f"no Brier score: no row was followed beyond the horizon, {self.horizon:g}"]
        second = f"Brier score {self.brier:.4f} of survival to {self.horizon:g}"
        return [first, f"{second}; the best equal chance for all rows has {self.brier_of_equal:.4f}"]

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def hazard_errors(model: "Model", path: Any) -> HazardErrors:
    """Compare a table's times with the predictions. A row whose time or event the schema does not know is left out.

    Raises DataError as radobase.tables.tables does, also if a column of the label is absent, or nothing to compare.
    """
    label = event_time(model.schema.label, "an error of times")
    lenient, source = replace(model.schema, label=label.lenient), as_source(path)
    intervals, horizon = len(label.borders), label.borders[-1]
    tallies, parts = [], []
    found: list[tuple[Vector, Vector]] = []
    for block in encoded_blocks(source, lenient, label=True):
        assert block.labels is not None, "labels were asked for"
        tallies.append(block.tallies)
        parts.append(block.usable)
        found.append((block.labels[block.usable], model.scores(block.x[block.usable])))
    usable = np.concatenate(parts)
    codes, scores = (np.concatenate(part) for part in zip(*found, strict=True))
    if not len(codes):
        raise DataError("no row has both a prediction and a time that the schema knows", file=open_table(source).path)
    times, happened = numbers_of(source, label.column)[usable], codes < intervals
    # Those who were followed beyond the horizon are later than an event at the horizon.
    times = np.where(codes == 2 * intervals, math.inf, times)
    chances = model.survival(scores)[:, -1]
    return HazardErrors(
        len(usable),
        len(codes),
        int(happened.sum()),
        horizon,
        concordance(scores, times, happened),
        brier_score(chances, times, happened, horizon),
        _best_of_equal(times, happened, horizon),
        changes(lenient, summed(tallies), len(usable)),
    )


def _best_of_equal(times: Vector, happened: Mask, horizon: float) -> float:
    """The least Brier score of chances that are the same for all rows: c^2 E + (1 - c)^2 B, at c = B / (E + B)."""
    of_events, of_beyond = (brier_score(np.full(len(times), chance), times, happened, horizon) for chance in (1.0, 0.0))
    return of_events * of_beyond / (of_events + of_beyond)
