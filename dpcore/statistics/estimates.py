"""The answer to a batch of statistical queries, and its distance from the truth."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.statistics.noise import SharedNoise


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of E[phi] for a batch of M predicates phi with values in [0, 1].

    With probability >= `confidence`, over rows drawn independently from one distribution and over the noise, all M
    values are within `tolerance` of the truth.

    Raises:
        ShapeError: for another shape.
        DataError: a value is not finite.
        ConfigurationError: a field is out of range.
    """

    values: NDArray[np.float64]
    """(M,) float64, finite, not clipped to [0, 1], which noise may leave."""
    rows: int
    """m >= 1, that sums were divided by."""
    confidence: float
    """In (0, 1)."""
    sampling: float
    """Half-width for sampling from the distribution, in units of the values, as the next two."""
    quantisation: float
    """For rounding values to fixed point."""
    noise: float
    """For the noise."""
    deviation: float
    """Standard deviation of the noise on each value; the greatest, if they differ."""
    distribution: SharedNoise | None = None
    """The distribution of the noise on rows times each value, independent of one another; None if it is not known or
    not of that kind."""
    most_rows: int | None = None
    """A number that the rows behind each mean do not exceed; None for `rows`. Of a part of the rows, `rows` is what the
    part has on average, and most_rows is all rows (dpcore.records.held_back)."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or values.size < 1:
            raise ShapeError(f"estimates have shape {values.shape}: give (M,), one value a predicate")
        if not np.isfinite(values).all():
            raise DataError("an estimate is not finite: decode the release again, or run its query again")
        if self.rows < 1:
            raise ConfigurationError(f"estimates over {self.rows} rows: give the row count of the cohort, at least 1")
        if self.most_rows is not None and self.most_rows < self.rows:
            raise ConfigurationError(f"at most {self.most_rows} rows and {self.rows} on average: give all rows")
        if not 0.0 < self.confidence < 1.0:
            raise ConfigurationError(f"confidence is {self.confidence}: it must be between 0 and 1")
        for name in ("sampling", "quantisation", "noise", "deviation"):
            width = getattr(self, name)
            if not (math.isfinite(width) and width >= 0.0):
                raise ConfigurationError(f"{name} is {width}: it must be finite and at least 0")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def tolerance(self) -> float:
        """The tau of the statistical-query model: sampling + quantisation + noise."""
        return self.sampling + self.quantisation + self.noise
