"""The public distribution of a release's rados and their noise, which an estimator may use at no privacy cost."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector

_CERTAIN = 3.0
"""What is fewer standard deviations of its noise may be nothing."""
_LEAST_VARIANCE = 1e-12
"""Of t: what rounding leaves of a label that does not vary."""


@dataclass(frozen=True)
class CentralCount:
    """The effect of a truncation of k on the rados' covariance. Raises ConfigurationError."""

    coordinate: int
    """j, the sensitive one, |e_ij| = 1."""
    correlation: float
    """Rho, of two records' coins [sigma_i = y_i e_ij], averaged over parties by rows; in [-1, 0], 0 for one row."""

    def __post_init__(self) -> None:
        if self.coordinate < 0 or not -1 <= self.correlation <= 0:
            raise ConfigurationError(f"{self}: give a coordinate of at least 0 and a correlation from -1 to 0")


@dataclass(frozen=True, eq=False)
class RadoDistribution:
    """The public distribution of a release's rados: an estimator may correct for it at no privacy cost.

    Raises ConfigurationError, also if a truncation is combined with other signatures than uniform ones or with noise.
    """

    inclusion: float = 0.5
    """The probability that a record enters a rado; 1/2 for uniform signatures."""
    fixed_support: bool = False
    """Whether every party draws exactly inclusion m_p of its records for each rado: not independent."""
    rado_noise: Vector | None = None
    """(d,) variance of the noise added to each coordinate of every rado."""
    edge_noise: Vector | None = None
    """(d,) variance of the noise added once to each coordinate of every record's edge."""
    rounding: NDArray[np.bool_] | None = None
    """(d,) whether a coordinate is a random sign with the feature's value as its mean: its square is 1."""
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


# The first two moments of all 2^m plain rados, noisy: E[pi] = (1/2) sum_i e_i and Cov[pi] = (1/4) sum_i e_i e_i^T. They
# are all the information in any number of plain rados, in the limit.


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy sums over m records, in the units of the encoded features; valid from construction, arrays read-only.

    Raises ShapeError, DataError if a value is not finite, ConfigurationError if a figure is out of range.
    """

    edge_sum: Vector
    """(d,), sum_i e_i = sum_i y_i x_i."""
    product_sum: Matrix
    """(d, d), sum_i x_i x_i^T, symmetric; with noise it need not be positive semi-definite."""
    rows: int
    """m, public."""
    bias: bool
    """The last coordinate is the constant feature 1; its square, m, is public, not released, and is in product_sum
    without noise; of a part of the rows, m is what it has on average, and the noise of the square is its deviation
    (dpcore.records.held_back)."""
    norm_bound: float
    """The clipping norm R; no record's (d,) vector is longer, the bias included."""
    edge_noise: float
    """The standard deviation of the noise on each coordinate of edge_sum."""
    product_noise: Matrix
    """(d, d), that of each entry of product_sum; entries (j, k) and (k, j) are one number."""

    def __post_init__(self) -> None:
        d = np.shape(self.edge_sum)[0] if np.ndim(self.edge_sum) == 1 else 0
        shapes = {"edge_sum": (d,), "product_sum": (d, d), "product_noise": (d, d)}
        for name, shape in shapes.items():
            array = np.array(getattr(self, name), dtype=np.float64)
            if d == 0 or array.shape != shape:
                raise ShapeError(f"{name} has shape {array.shape}: give d edges and two d by d matrices")
            if not np.isfinite(array).all():
                raise DataError(f"{name} is not finite: decode the release again, or run its query again")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not np.array_equal(self.product_sum, self.product_sum.T):
            raise DataError("product_sum is not symmetric: entries (j, k) and (k, j) are one number")
        if self.rows < 1:
            raise ConfigurationError(f"moments over {self.rows} rows: give the row count of the cohort, at least 1")
        if not (self.norm_bound > 0 and self.edge_noise >= 0 and bool((self.product_noise >= 0).all())):
            raise ConfigurationError("norm_bound must be positive and the noise not negative: pass the planned values")

    @property
    def d(self) -> int:
        """Coordinates, the bias included."""
        return len(self.edge_sum)


@dataclass(frozen=True, eq=False)
class NumberMoments:
    """Noisy sums over m records whose label is a number t in [-1, 1], otherwise as `Moments`. Raises as it does."""

    label_sum: Vector
    """(d,), sum_i t_i x_i."""
    square_sum: float
    """sum_i t_i^2."""
    product_sum: Matrix
    """(d, d), sum_i x_i x_i^T."""
    rows: int
    """m, public."""
    bias: bool
    """The last coordinate is the constant feature 1; see `Moments`."""
    norm_bound: float
    """The clipping norm R."""
    sum_noise: float
    """The standard deviation of the noise on each entry of label_sum."""
    square_noise: float
    """That on square_sum."""
    product_noise: Matrix
    """(d, d), that of each entry of product_sum."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.square_sum) and self.square_noise >= 0):
            raise DataError("square_sum is not finite: decode the release again, or run its query again")
        # The other fields are those of moments of edges.
        shared = Moments(
            self.label_sum,
            self.product_sum,
            self.rows,
            self.bias,
            self.norm_bound,
            self.sum_noise,
            self.product_noise,
        )
        object.__setattr__(self, "label_sum", shared.edge_sum)
        for name in ("product_sum", "product_noise"):
            object.__setattr__(self, name, getattr(shared, name))

    @property
    def shows_variance(self) -> bool:
        """Whether the label's variance is above the noise on it, if there is a bias.

        A label that does not vary, or weights of rows that are all 0, give weights of a model that are noise.
        """
        counted = float(self.product_sum[-1, -1])
        if not counted > _CERTAIN * float(self.product_noise[-1, -1]):
            return False
        mean = float(self.label_sum[-1]) / counted
        noise = np.hypot(self.square_noise, 2.0 * mean * self.sum_noise)
        return bool(self.square_sum - mean**2 * counted > max(_CERTAIN * noise, _LEAST_VARIANCE * counted))

    @property
    def d(self) -> int:
        """Coordinates, the bias included."""
        return len(self.label_sum)


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Noisy sums over m records of several classes, otherwise as `Moments`. Raises as it does."""

    class_sums: Matrix
    """(k, d), the sum of x_i over the records of each class; the bias's sums are the classes' sizes."""
    product_sum: Matrix
    """(d, d), sum_i x_i x_i^T over all records."""
    rows: int
    """m, public."""
    bias: bool
    """The last coordinate is the constant feature 1; see `Moments`."""
    norm_bound: float
    """The clipping norm R."""
    sum_noise: float
    """The standard deviation of the noise on each entry of class_sums."""
    product_noise: Matrix
    """(d, d), that of each entry of product_sum."""
    class_products: NDArray[np.float64] | None = None
    """(k, d, d), the sum of x_i x_i^T over the records of each class, whose sum is product_sum but for the square of
    the bias; None if the release has products of all records alone."""

    def __post_init__(self) -> None:
        sums = np.array(self.class_sums, dtype=np.float64)
        if sums.ndim != 2 or len(sums) < 2:
            raise ShapeError(f"class_sums has shape {sums.shape}: give a row for each of two or more classes")
        if not np.isfinite(sums).all():
            raise DataError("class_sums is not finite: decode the release again, or run its query again")
        sums.setflags(write=False)
        # The other fields are those of the moments of all records.
        shared = Moments(
            sums.sum(axis=0),
            self.product_sum,
            self.rows,
            self.bias,
            self.norm_bound,
            self.sum_noise,
            self.product_noise,
        )
        object.__setattr__(self, "class_sums", sums)
        for name in ("product_sum", "product_noise"):
            object.__setattr__(self, name, getattr(shared, name))
        if self.class_products is not None:
            object.__setattr__(self, "class_products", self._checked(self.class_products))

    def _checked(self, given: NDArray[np.float64]) -> NDArray[np.float64]:
        products = np.array(given, dtype=np.float64)
        if products.shape != (self.classes, self.d, self.d):
            raise ShapeError(f"class_products has shape {products.shape}: give a d by d matrix for each class")
        if not np.isfinite(products).all():
            raise DataError("class_products is not finite: decode the release again, or run its query again")
        products.setflags(write=False)
        return products

    @property
    def class_noise(self) -> Matrix:
        """(d, d), the deviation of each entry of class_products but the square of the bias, without covariances."""
        noise: Matrix = self.product_noise / np.sqrt(self.classes)
        return noise

    @property
    def d(self) -> int:
        """Coordinates, the bias included."""
        return int(self.class_sums.shape[1])

    @property
    def classes(self) -> int:
        """K."""
        return len(self.class_sums)
