"""The public distribution of a release's rados and their noise, which an estimator may use at no privacy cost."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class CentralCount:
    """The effect of a truncation of k (`dpcore.accounting.truncation`) on the rados' covariance.

    Raises ConfigurationError if a field is out of range.
    """

    coordinate: int
    """j, the sensitive one, |e_ij| = 1."""
    correlation: float
    """Rho, of two records' coins [sigma_i = y_i e_ij] in one party, averaged over the parties by their rows; in [-1,
    0], 0 for one row."""

    def __post_init__(self) -> None:
        if self.coordinate < 0 or not -1 <= self.correlation <= 0:
            raise ConfigurationError(f"{self}: give a coordinate of at least 0 and a correlation from -1 to 0")


@dataclass(frozen=True, eq=False)
class RadoDistribution:
    """The public distribution of a release's rados: an estimator may correct for it at no privacy cost.

    Raises ConfigurationError if inclusion is not strictly between 0 and 1, a variance is negative, or a truncation is
    combined with signatures that are not uniform or with noise.
    """

    inclusion: float = 0.5
    """The probability that a record enters a rado; 1/2 for uniform signatures."""
    fixed_support: bool = False
    """Whether every party draws exactly inclusion m_p of its records for each rado, so that inclusions are not
    independent."""
    rado_noise: Vector | None = None
    """(d,) variance of the noise added to each coordinate of every rado."""
    edge_noise: Vector | None = None
    """(d,) variance of the noise added once to each coordinate of every record's edge."""
    rounding: NDArray[np.bool_] | None = None
    """(d,) whether a coordinate is a random sign with the feature's value as its mean, so that its square is 1 for any
    value."""
    central: CentralCount | None = None
    """The truncation of uniform signatures. None means without noise, rounding or truncation."""

    def __post_init__(self) -> None:
        if not 0 < self.inclusion < 1:
            raise ConfigurationError(f"inclusion is {self.inclusion}: give a probability strictly between 0 and 1")
        for name in ("rado_noise", "edge_noise"):
            variance = getattr(self, name)
            if variance is not None and not bool((np.isfinite(variance) & (variance >= 0)).all()):
                raise ConfigurationError(f"{name} must be finite and not negative: give variances")
        noised = self.rado_noise is not None or self.edge_noise is not None
        if self.central is not None and (self.inclusion != 0.5 or self.fixed_support or noised):
            raise ConfigurationError(
                "central is the truncation of uniform signatures without noise: leave out either of them"
            )


PLAIN_DISTRIBUTION = RadoDistribution()
"""Uniform signatures, no noise."""
