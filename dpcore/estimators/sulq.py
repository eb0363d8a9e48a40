"""k-means and principal components by sums over records (Blum, Dwork, McSherry and Nissim, PODS 2005, SuLQ).

Both use the label in no way, and see a federation by an oracle: all answers are within its budget. Coordinates are the
schema's, scaled to [-1, 1], without the bias.

- k-means: a round asks, for each cell of the centres, for the share of rows in it and, for each coordinate z, for the
  mean of (z + 1) / 2 in it and 0 elsewhere. A record is in one cell, so the sensitivity is 2 d + 2. Nothing is
  clipped.

- components: eigenvectors of the covariance, from one release of moments, whose records are clipped to length R.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError, ShapeError
from dpcore.estimators.oracle import WHOLE, MomentsOracle, StatisticOracle, check_left
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.predicates.expressions import Affine, And, Clipped, NonNegative, Not, Predicate
from dpcore.rados.distribution import Moments
from dpcore.records.schema import Schema

_SCALE = 1 << 12
"""Centres are multiples of 1 / _SCALE in cells' borders."""

MOST_CLUSTERS = 31
"""A cell is a conjunction of comparisons with the other centres."""


class KMeans:
    """Centres of k clusters, by Lloyd's steps over noisy sums.

    - clusters: k, from 2 to 31. rounds: at least 1, each with an equal share of `part`.
    - centres: (k, d) in [-1, 1] to start from, public or from earlier answers; None for evenly scattered points.

    After `fit_queries`: `centres_` (k, d); `shares_` (k,), estimates of the rows in each cell of the last round;
    `warning_` if a cell was too empty to move its centre, or a round was refused, else None.
    """

    centres_: Matrix
    shares_: Vector
    warning_: str | None

    def __init__(
        self, *, clusters: int = 3, rounds: int = 5, centres: ArrayLike | None = None, part: Fraction | int = 1
    ) -> None:
        self.clusters = clusters
        self.rounds = rounds
        self.centres = centres
        self.part = part

    def fit_queries(self, oracle: StatisticOracle) -> Self:
        """Fit by querying; returns self. Raises ConfigurationError, ShapeError, SchemaError, and what oracles raise."""
        names = coordinates_of(oracle.schema)
        centres = self._start(len(names))
        check_left(oracle, Fraction(self.part), shrinks=True)
        self.warning_ = None
        for number in range(self.rounds):
            batch = [predicate for cell in cells_of(centres, names) for predicate in (cell, *_sums(cell, names))]
            try:
                estimates = oracle.statistic(batch, part=Fraction(self.part) / self.rounds)
            except OracleRefusedError as error:
                if not number:
                    raise
                self.warning_ = f"kept the centres of {number} of {self.rounds} rounds: {error}"
                break
            answers = estimates.values.reshape(len(centres), len(names) + 1)
            self.shares_ = answers[:, 0]
            # A smaller share says where its rows are to no better than chance.
            moved = self.shares_ > 4.0 * max(estimates.deviation, 1.0 / estimates.rows)
            means = 2.0 * answers[:, 1:] / np.where(moved, self.shares_, 1.0)[:, np.newaxis] - 1.0
            centres = np.where(moved[:, np.newaxis], np.clip(means, -1.0, 1.0), centres)
            if not moved.all():
                self.warning_ = f"{int((~moved).sum())} of {len(centres)} cells had too few rows to move their centre"
        self.centres_ = centres
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The cluster of each row (m, d) of coordinates, as the schema encodes them; a bias is left out."""
        rows = np.asarray(X, dtype=np.float64)[:, : self.centres_.shape[1]]
        distances = np.square(self.centres_).sum(axis=1) - 2.0 * rows @ self.centres_.T
        return np.asarray(distances.argmin(axis=1), dtype=np.int64)

    def _start(self, d: int) -> Matrix:
        if not 2 <= self.clusters <= MOST_CLUSTERS or self.rounds < 1:
            raise ConfigurationError(
                f"{self.clusters} clusters, {self.rounds} rounds: give 2 to {MOST_CLUSTERS} and at least 1"
            )
        if self.centres is None:
            return _scattered(self.clusters, d)
        centres = np.array(self.centres, dtype=np.float64)
        if centres.shape != (self.clusters, d) or not (np.abs(centres) <= 1.0).all():
            raise ShapeError(f"centres have shape {centres.shape}: give ({self.clusters}, {d}), in [-1, 1]")
        return centres


def coordinates_of(schema: Schema) -> tuple[str, ...]:
    """The names of the coordinates, without the bias. Raises SchemaError if there is none."""
    names = tuple(schema.coordinates)[: schema.d - schema.bias]
    if not names:
        raise SchemaError(f"schema {schema.name!r} has no feature: add one")
    return names


def cells_of(centres: Matrix, names: Sequence[str]) -> list[Predicate]:
    """A predicate for each centre: the rows nearest to it, of equal distances the first. They exclude one another."""
    cells: list[Predicate] = []
    for place, centre in enumerate(centres):
        parts: list[Predicate] = []
        for other, away in enumerate(centres):
            if other == place:
                continue
            first, second = (centre, away) if place < other else (away, centre)
            nearer = NonNegative(_border(first, second, names))
            parts.append(nearer if place < other else Not(nearer))
        cells.append(parts[0] if len(parts) == 1 else And(tuple(parts)))
    return cells


def _border(first: Vector, second: Vector, names: Sequence[str]) -> Affine:
    """At least 0 nearer to `first`: 2 (first - second) . z - |first|^2 + |second|^2, in units of 1 / _SCALE."""
    weights = np.rint(2.0 * _SCALE * (first - second)).astype(int).tolist()
    constant = round(_SCALE * float(second @ second - first @ first))
    return Affine(tuple(zip(names, weights, strict=True)), constant)


def _sums(cell: Predicate, names: Sequence[str]) -> list[Predicate]:
    """For each coordinate (z + 1) / 2 in the cell, and 0 elsewhere."""
    parts = cell.parts if isinstance(cell, And) else (cell,)
    return [And((*parts, Clipped(Affine(((name, 1),), 1), 2))) for name in names]


def _scattered(count: int, d: int) -> Matrix:
    """Points of the additive sequence of the generalised golden ratio, in [-1/2, 1/2]^d."""
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / (d + 1))
    steps = ratio ** -np.arange(1.0, d + 1)
    points: Matrix = (0.5 + np.outer(np.arange(1, count + 1), steps)) % 1.0 - 0.5
    return points


class PrincipalComponents:
    """Directions of largest variance, from noisy moments. components: how many, at least 1.

    After `fit_moments` or `fit_queries`: `components_` (k, d), of length 1, largest variance first; `variances_` (k,);
    `mean_` (d,); `noise_`, the largest variance that noise alone gives, about; `norm_bound_`, R, to which records were
    clipped, the bias included; `warning_` if a variance is below `noise_`, else None.
    """

    components_: Matrix
    variances_: Vector
    mean_: Vector
    noise_: float
    norm_bound_: float
    warning_: str | None

    def __init__(self, *, components: int = 2, norm_bound: Fraction | None = None, part: Fraction | int = 1) -> None:
        self.components = components
        self.norm_bound = norm_bound
        self.part = part

    def fit_queries(self, oracle: MomentsOracle) -> Self:
        """Fit to one release of moments; returns self. Raises as `fit_moments`, and what `oracle.moments` raises."""
        check_left(oracle, Fraction(self.part), shrinks=True)
        return self.fit_moments(oracle.moments(part=WHOLE * self.part, norm_bound=self.norm_bound))

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a release; returns self. Raises SchemaError without a bias, ConfigurationError."""
        d = moments.d - 1
        if not moments.bias:
            raise SchemaError("without a bias, moments do not have the coordinates' means: set bias = true")
        if not 1 <= self.components <= d:
            raise ConfigurationError(f"components is {self.components}: give 1 to {d}")
        products = moments.product_sum / moments.rows
        self.mean_ = products[:-1, -1]
        values, vectors = np.linalg.eigh(products[:-1, :-1] - np.outer(self.mean_, self.mean_))
        chosen = np.argsort(-values)[: self.components]
        self.components_, self.variances_ = vectors[:, chosen].T, values[chosen]
        # Wigner: the spectrum of symmetric noise ends at 2 tau.
        noise = np.square(moments.product_noise[:-1, :-1]).sum(axis=1).mean()
        self.noise_, self.norm_bound_ = 2.0 * float(np.sqrt(noise)) / moments.rows, moments.norm_bound
        lost = int((self.variances_ <= self.noise_).sum())
        self.warning_ = f"{lost} of {self.components} components may be noise: ask for fewer" if lost else None
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """Rows (m, d) of coordinates, as the schema encodes them, along the components: (m, k); a bias is left out."""
        rows = np.asarray(X, dtype=np.float64)[:, : len(self.mean_)]
        found: Matrix = (rows - self.mean_) @ self.components_.T
        return found
