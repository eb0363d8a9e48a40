"""Observed beside predicted values, by bins of the prediction, from noisy sums over the rows of each bin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpcore.evaluation.intervals import Bounded, CellNoise, ratio_on_rows
from dpcore.numbers.fixed_point import Vector
from dpcore.statistics.accuracy import Estimates


@dataclass(frozen=True)
class ObservedBin:
    """Rows whose predicted value is in (lower, upper]."""

    lower: float
    upper: float
    predicted: float
    """Their mean prediction, as far as a first release says where the scores are."""
    rows: float
    """Their number, with noise."""
    observed: Bounded | None
    """Their mean label, of counts over their exposures; None if the noise hides how many rows there are."""

    @property
    def is_off(self) -> bool:
        """Whether the interval is outside of the predicted range."""
        return self.observed is not None and (self.observed.lower > self.upper or self.observed.upper < self.lower)


@dataclass(frozen=True, eq=False)
class Sums:
    """Noisy sums over rows of predicates' values."""

    values: Vector
    noise: CellNoise
    rounded: float
    """The most that rounding down took from each."""

    @classmethod
    def of(cls, estimates: Estimates) -> "Sums":
        """From the means of a release."""
        return cls(estimates.values * estimates.rows, CellNoise.of(estimates), estimates.quantisation * estimates.rows)

    def reach(self, failure: float, cells: int = 1) -> float:
        """What noise and rounding may be on a weighted sum of so many cells, over the weights' norm."""
        return self.noise.reach(1, failure) + math.sqrt(cells) * self.rounded


def observed_bins(
    sums: Sums, ends: Vector, predicted: Vector, unit: float, over_unit: float | None, failure: float
) -> tuple[ObservedBin, ...]:
    """The bins between `ends`, whose intervals hold together. predicted: the mean prediction of each.

    sums: rows of each bin, then its labels in units of `unit`, then its exposures in units of `over_unit`; None for
    rows in their place.
    """
    rows, labels, *exposures = sums.values.reshape(2 if over_unit is None else 3, -1)
    over = exposures[0] if exposures else rows
    per = over_unit or 1.0
    reach = sums.reach(failure / len(rows), 2)
    return tuple(
        ObservedBin(
            float(ends[place]),
            float(ends[place + 1]),
            float(predicted[place]),
            float(rows[place]),
            ratio_on_rows(unit * float(labels[place]), unit, per * float(over[place]), per, reach, least=0.0),
        )
        for place in range(len(rows))
    )


def bins_in_words(bins: Sequence[ObservedBin], what: str) -> str:
    """In how many bins what is observed is what is predicted. what: is predicted, in the plural."""
    known = [each for each in bins if each.observed is not None]
    off = sum(each.is_off for each in known)
    told = f"{off} are outside of what is predicted" if off else "none is outside of what is predicted"
    return f"Of {len(bins)} bins of predicted {what} {len(known)} are measured, and of the observed {what} {told}."


def table(bins: Sequence[ObservedBin]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header, and a row of texts for each bin, from low predictions to high ones."""
    rows: list[tuple[str, ...]] = []
    for each in bins:
        seen, ends = each.observed, f"{each.lower:.4g} to {each.upper:.4g}"
        found = (
            ("not measured", "") if seen is None else (f"{seen.estimate:.4g}", f"{seen.lower:.4g} to {seen.upper:.4g}")
        )
        rows.append((ends, f"{each.predicted:.4g}", f"{max(each.rows, 0.0):.0f}", *found))
    return ("predicted", "about", "rows", "observed", "interval"), rows
