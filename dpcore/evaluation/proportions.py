"""Proportions from noisy counts, with intervals for their values on the rows and on their distribution."""

from dataclasses import dataclass
from typing import Any

from dpcore.evaluation.intervals import CellNoise, Count, Interval, interval_on_distribution, interval_on_rows


@dataclass(frozen=True)
class Proportion:
    """An estimated proportion, with intervals for its value on the rows and on their distribution."""

    estimate: float
    on_rows: Interval
    on_distribution: Interval | None
    """None if the model may have been trained on the rows."""

    @property
    def strongest(self) -> Interval:
        """The interval of the strongest claim that is stated: for the distribution, else on the rows."""
        return self.on_distribution or self.on_rows

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "estimate": self.estimate,
            "on_rows": [self.on_rows.lower, self.on_rows.upper],
            "on_distribution": None
            if self.on_distribution is None
            else [self.on_distribution.lower, self.on_distribution.upper],
        }


@dataclass(frozen=True)
class Judge:
    """Turns counts into proportions."""

    noise: CellNoise
    failure: float
    """Of one family of intervals."""
    rows: int
    """No count is larger."""
    unseen: bool
    """Whether the model is independent of the rows, so that there are intervals on the distribution."""

    def proportion(self, a: Count, b: Count, statements: int = 1) -> Proportion:
        """A / (A + B), with intervals for `statements` of them that hold jointly."""
        failure = self.failure / statements
        return Proportion(
            estimate=share_of(a, b),
            on_rows=interval_on_rows(a, b, self.noise, failure),
            on_distribution=interval_on_distribution(a, b, self.noise, failure, self.rows) if self.unseen else None,
        )


def count_of(*cells: float) -> Count:
    """The sum of noisy cells."""
    return Count(float(sum(cells)), len(cells))


def share_of(a: Count, b: Count) -> float:
    """A / (A + B), within [0, 1]; a half if nothing is there."""
    total = a.value + b.value
    return min(max(a.value / total, 0.0), 1.0) if total > 0.0 else 0.5
