"""The moments query: each record contributes its edge vector and the products of its coordinates.

These d + d(d + 1)/2 numbers determine the mean and the covariance of the population of all 2^m rados.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import (
    PRODUCT_WEIGHT,
    SQUARE_WEIGHT,
    GaussianShares,
    moments_squared,
    moments_squared_alone,
)
from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.numbers.progress import Progress
from dpcore.queries.kind import QueryKind, QueryLimits, check_counted_once, scope_of
from dpcore.rados.distribution import Moments
from dpcore.randomness.noise import LARGEST_SIGMA
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, RowSums, sum_on_threads
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product
from dpcore.records.held_back import HeldBack
from dpcore.records.persons import Persons, bits_of, factor_of, sums_over_persons
from dpcore.records.records import Records, edges, weighted_sums
from dpcore.records.schema import Schema
from dpcore.records.weight import weighted_squared

MOST_FRACTION_BITS = 20
"""A block's sums of products are at most BLOCK_ROWS 4^20, so they are exact in double precision."""


Sensitivity = Callable[[Clip, int, int], Fraction | int]
"""By the clip, the fraction bits and the multiplier of edges."""


@dataclass(frozen=True)
class MomentsQuery(QueryKind):
    """First and second moments of clipped edges, with noise on every number.

    A contribution consists of integers: k e_j 2^f for every coordinate, then for j <= k row by row 5 x_j^2 4^f and 7
    x_j x_k 4^f. No product is rounded. The square of the bias is omitted, because its sum is the public row count.

    Sensitivity: with S = R^2 4^f, sqrt(k^2 (2 S - 2 c) + 50 (S^2 - c^2)) at its maximum over c. Proof:
    dpcore.accounting.noise_shares.moments_squared. With weights: dpcore.records.weight.weighted_squared.

    Of persons it is the sum of an average of each person's rows, in units finer by W: dpcore.records.persons, which
    proves the sensitivity, W times that of records.

    Raises PlanError if a field is out of range.
    """

    array: ClassVar[str] = "moments"
    sensitivities: ClassVar[tuple[Sensitivity, Sensitivity]] = (moments_squared, moments_squared_alone)
    """Of the integers that are sent, squared: for a replaced record, and for one that leaves."""
    learned_as: ClassVar[Literal["moments"]] = "moments"

    clip: Clip
    """The clipping norm R of a record."""
    edge_multiplier: int
    """k, the integer weight of an edge coordinate. All values have the same noise, so k sets the precision of edges
    relative to products, whose weight is 5 4^f."""
    share_sigma: int
    """The standard deviation of each party's discrete Gaussian share of the noise on each value."""
    persons: Persons | None = field(default=None, kw_only=True)
    """See `QueryKind`."""
    among: Cohorts | None = field(default=None, kw_only=True)
    """See `QueryKind.cohorts`; share_sigma is that of the smallest one."""
    weighted: bool = field(default=False, kw_only=True)
    """Whether each record counts by its weight. The square of the bias is then sent too: it is the sum of weights."""

    def __post_init__(self) -> None:
        if not 1 <= self.edge_multiplier <= LARGEST_SIGMA:
            raise PlanError(f"edge_multiplier is {self.edge_multiplier}: give an integer from 1 to 2^48")
        if self.weighted and not self.clip.bias:
            raise PlanError("weighted moments need a bias, whose square is the sum of weights: set bias in the schema")
        check_counted_once(self.persons, weighted=self.weighted)
        _ = self.shares

    @property
    def shares(self) -> GaussianShares:
        """See `QueryKind`. Raises PlanError if they are not counted."""
        return GaussianShares(self.share_sigma, self.among)

    def of_persons(self, persons: Persons | None) -> Self:
        """See `QueryKind`."""
        return replace(self, persons=persons)

    def following(self, cohorts: Cohorts) -> Self:
        """See `QueryKind`."""
        return replace(self, among=cohorts)

    def length(self, d: int) -> int:
        """Number of values: d + d(d + 1)/2, one fewer with a bias and without weights."""
        return d + d * (d + 1) // 2 - self._left_out

    @property
    def is_weighted(self) -> bool:
        """See `QueryKind`."""
        return self.weighted

    @property
    def _left_out(self) -> int:
        """How many products are not sent: the square of the bias, whose sum is public without weights."""
        return int(self.clip.bias and not self.weighted)

    def shape(self, d: int) -> tuple[int, ...]:
        """(length,): in the order of a contribution."""
        return (self.length(d),)

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on every value, with the noise's 2^-64 tail. Raises PlanError if d or fraction_bits is too large."""
        one = 1 << checked_fraction_bits(fraction_bits)
        self.clip.check_room(limits.d, fraction_bits)
        noise = self.shares.tail_bound(limits.parties, self.length(limits.d))
        return (limits.rows * self._largest_value(one) << bits_of(self.persons)) + noise

    def sum_unit(self, fraction_bits: int) -> float:
        """What one unit of a sent sum of edges is, in real units."""
        return math.ldexp(1.0, -self._edge_bits(fraction_bits)) / self.edge_multiplier

    def _edge_bits(self, fraction_bits: int) -> int:
        return fraction_bits + bits_of(self.persons)

    def product_unit(self, fraction_bits: int) -> float:
        """What one unit of a sum of products is, in real units, before its weight."""
        return math.ldexp(1.0, -2 * fraction_bits - bits_of(self.persons))

    def _largest_value(self, one: int) -> int:
        """The largest magnitude of a value that a record adds. one: 2^fraction_bits."""
        return max(self.edge_multiplier * one, PRODUCT_WEIGHT * one * one)

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sums and its share of the noise: int64 (length,)."""

        def of(rows: Records, progress: Progress | None = computation.progress) -> NDArray[np.int64]:
            return self.sums(rows, fraction_bits, progress, computation.row_sums)

        if self.persons is None:
            sums = weighted_sums(records, of, self.length(records.d), is_weighted=self.weighted)
        else:
            sums = sums_over_persons(computation.persons, records, of, computation.progress)
        return sums + self.shares.draw(len(sums), computation.random)

    def sums(
        self,
        records: Records,
        fraction_bits: int,
        progress: Progress | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """The contribution without noise. An unusable row adds zero. Raises PlanError as `largest_sum`."""
        d = records.d
        total = row_sums(MomentsPart(d, checked_fraction_bits(fraction_bits), self.clip), records, progress)
        edge_sum, products = total[0], total[1:]
        return np.concatenate([edge_sum * self.edge_multiplier, self._weighted(products)])

    def _weighted(self, products: NDArray[np.int64]) -> NDArray[np.int64]:
        """The products (d, d) as they are sent."""
        d = len(products)
        weighted = products * np.where(np.eye(d, dtype=bool), SQUARE_WEIGHT, PRODUCT_WEIGHT)
        sent: NDArray[np.int64] = weighted[self._triangle(d)]
        return sent

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sums of edges (d,) and of products (d, d), in real units, the bias's square zero. Raises ShapeError."""
        d = self.coordinates(total.size)
        edge_sum = np.ldexp(total[:d].astype(np.float64), -self._edge_bits(fraction_bits)) / self.edge_multiplier
        return edge_sum, self._products(total[d:], d, fraction_bits)

    def _products(self, sent: NDArray[np.int64], d: int, fraction_bits: int) -> NDArray[np.float64]:
        rows, columns = self._triangle(d)
        products = np.zeros((d, d))
        weights = np.where(rows == columns, SQUARE_WEIGHT, PRODUCT_WEIGHT)
        products[rows, columns] = sent.astype(np.float64) * self.product_unit(fraction_bits) / weights
        products[columns, rows] = products[rows, columns]
        return products

    def moments(
        self,
        total: NDArray[np.int64],
        fraction_bits: int,
        *,
        rows: int,
        parties: int,
        held_back: HeldBack | None = None,
    ) -> Moments:
        """The moments of a total over `rows` records of `parties`, with the size of their noise.

        held_back: the part of these records that the total is over; the bias's square is its average, with a deviation.
        """
        edge_sum, products = self.decode(total, fraction_bits)
        about, noise = self._noise(products, fraction_bits, rows=rows, parties=parties, held_back=held_back)
        sigma = self.shares.deviation(parties)
        return Moments(
            edge_sum=edge_sum,
            product_sum=products,
            rows=about,
            bias=self.clip.bias,
            norm_bound=float(self.clip.norm_bound),
            edge_noise=float(np.ldexp(sigma, -self._edge_bits(fraction_bits))) / self.edge_multiplier,
            product_noise=noise,
        )

    def _noise(
        self,
        products: NDArray[np.float64],
        fraction_bits: int,
        *,
        rows: int,
        parties: int,
        held_back: HeldBack | None,
        sums: int = 1,
    ) -> tuple[int, NDArray[np.float64]]:
        """The rows that the total is over, and the deviations of its products, (d, d); sets the square of the bias.

        sums: of how many noisy sums each product is the sum.
        """
        sigma = self.shares.deviation(parties) * math.sqrt(sums)
        unit = self.product_unit(fraction_bits)
        noise = np.full(products.shape, sigma * unit / PRODUCT_WEIGHT)
        np.fill_diagonal(noise, sigma * unit / SQUARE_WEIGHT)
        about = rows if held_back is None else held_back.rows(rows)
        if self.weighted:
            # As many rows as the weights add up to: the square of the bias is that sum, with its noise.
            return max(1, round(float(products[-1, -1]))), noise
        if self.clip.bias:
            products[-1, -1], noise[-1, -1] = about, 0.0 if held_back is None else held_back.rows_deviation(rows)
        return about, noise

    @property
    def name(self) -> str:
        """See `QueryKind`."""
        return "moments"

    def words(self) -> str:
        """See `QueryKind`."""
        averaged = "" if self.persons is None else ", averaged for each person"
        counted = ", each counted by its weight" if self.weighted else ""
        return f"moments with records clipped to {float(self.clip.norm_bound):.3g}{averaged}{counted}"

    @property
    def contents(self) -> str:
        """See `QueryKind`."""
        return "moments"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        unit = f"2^-{fraction_bits + bits_of(self.persons)}"
        return {"d": d, "unit": unit, "edge_multiplier": self.edge_multiplier}

    @property
    def takes_parts(self) -> bool:
        """See `QueryKind`."""
        return True

    @property
    def takes_maps(self) -> bool:
        """See `QueryKind`."""
        return True

    @property
    def scope(self) -> Scope:
        """See `QueryKind`."""
        return scope_of(self.persons)

    def protection(self, setting: Setting) -> GaussianProtection:
        """See `QueryKind`."""
        factor = factor_of(self.persons) ** 2
        squared, alone = (
            factor * bound(self.clip, setting.fraction_bits, self.edge_multiplier) for bound in self.sensitivities
        )
        values, honest = self.length(setting.d), setting.honest_parties
        if self.weighted:
            squared, alone = weighted_squared(squared, values), weighted_squared(alone, values)
        return GaussianProtection(
            self.scope, honest, self.share_sigma, squared, values, squared_alone=alone, cohorts=self.among
        )

    def with_noise(self, share_sigma: int) -> Self:
        """See `QueryKind`."""
        return replace(self, share_sigma=share_sigma)

    def coordinates(self, length: int) -> int:
        """The d of a contribution of this length. Raises ShapeError if there is none."""
        d = 1
        while self.length(d) < length:
            d += 1
        if self.length(d) != length:
            raise ShapeError(f"a total of {length} values is not a total of moments: send the query again")
        return d

    def _triangle(self, d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(d)
        kept = len(rows) - self._left_out
        return rows[:kept], columns[:kept]


@dataclass(frozen=True)
class MomentsPart:
    """What a run of rows adds (dpcore.records.computation.RowPart): sums of clipped edges, then of their products."""

    d: int
    fraction_bits: int
    clip: Clip

    @property
    def shape(self) -> tuple[int, ...]:
        """(d + 1, d)."""
        return (self.d + 1, self.d)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:  # noqa: ARG002  (any rows add up)
        """See `RowPart`."""
        from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

        for _, block in edges(records, self.fraction_bits):
            clip_in_place(self.clip, block, self.fraction_bits)
            factor = block.astype(np.float64)
            # Integers below 2^53: exact in any order of addition.
            total[0] += (np.ones(len(factor)) @ factor).astype(np.int64)
            # Labels cancel in products: (y x)(y x)^T = x x^T. With a feature map few coordinates differ from a row of
            # zeros, but adding their products one by one is slower: 2.0 microseconds a row for 60 of 200, here 1.1.
            total[1:] += (factor.T @ factor).astype(np.int64)


def checked_fraction_bits(fraction_bits: int) -> int:
    """The fraction bits, if products are exact with them. Raises PlanError."""
    if not 0 <= fraction_bits <= MOST_FRACTION_BITS:
        raise PlanError(
            f"fraction_bits is {fraction_bits}: moments take 0 to {MOST_FRACTION_BITS}, so that products are exact"
        )
    return fraction_bits


# Clipping norms from a schema, and the weight of edges relative to products: from the schema alone, so they cost no
# privacy. Chosen by the test error of dpcore.estimators.moments_discriminant over fourteen tasks at epsilon 0.3, 1 and
# 3, which varies little near the choice.


_HUNDREDTHS = 100
LITTLE_NOISE = Fraction(10)
"""The epsilon from which on noise is no reason to clip the records of several classes."""

_UNCLIPPED = 3
_ROOM = 2
"""More room for real features if the label has several classes: clipping moves the classes' means apart unequally. On
five sets without noise a discriminant errs 0.1 to 8 points less with it, at epsilon 1 up to 3 points less."""


def usual_norm(schema: Schema, feature_map: FeatureMap | None = None) -> Fraction:
    """R of `norm_bound_of` for a schema and its label.

    With a feature map it is for uniform, independent features within their bounds.
    """
    if feature_map is not None:
        return _mapped_norm(schema, feature_map)
    return norm_bound_of(
        real_features=(_ROOM if schema.label.classes else 1) * sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )


def longest_norm(schema: Schema) -> Fraction:
    """R that clips no record: every scaled coordinate may be 1."""
    return norm_bound_of(
        real_features=_UNCLIPPED * sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )


def norm_bound_of(*, real_features: int, unit_features: int, bias: bool) -> Fraction:
    """R with R^2 = (real features) / 3 + (unit features) + (bias), rounded up to hundredths.

    unit_features: those that add 1 to every squared norm: a column coded -1/+1, or a one-hot category. Raises
    PlanError.
    """
    if real_features < 0 or unit_features < 0 or real_features + unit_features == 0:
        raise PlanError(f"{real_features} real and {unit_features} unit features: give at least one")
    square = real_features / 3 + unit_features + int(bias)
    return Fraction(math.ceil(_HUNDREDTHS * math.sqrt(square)), _HUNDREDTHS)


def _mapped_norm(schema: Schema, feature_map: FeatureMap) -> Fraction:
    squares: list[float] = []
    for term in feature_map.terms:
        match term.function:
            case Column(coordinate):
                squares.append(_square(schema, schema.coordinates[coordinate]))
            case Hat() as hat:
                squares.append(_hat_square(hat, term.centre / ONE))
            case PointMass():
                centre = term.centre / ONE
                squares.append(centre * (1 - centre))
            case Product(first, second):
                squares.append(squares[first] * squares[second])
    halved = sum(square * 0.25**term.halvings for square, term in zip(squares, feature_map.terms, strict=True))
    return Fraction(max(math.ceil(_HUNDREDTHS * math.sqrt(halved + feature_map.bias)), _HUNDREDTHS + 1), _HUNDREDTHS)


def _square(schema: Schema, coordinate: str) -> float:
    """The mean square of a coordinate: 1/3 for a real feature, and 1 for all coordinates of another one together."""
    (group,) = (each for each in schema.groups if coordinate in each.coordinates)
    return group.mean_square


def _hat_square(hat: Hat, centre: float) -> float:
    """The mean of (hat - centre)^2 over a uniform coordinate in [-1, 1]."""
    left, right = (None if knot is None else knot / ONE for knot in (hat.left, hat.right))
    peak = hat.peak / ONE
    # A slope of length l has the integral l / 2, and that of its square is l / 3; a flat side of length l has l and l.
    below = (peak + 1, peak + 1) if left is None else ((peak - left) / 2, (peak - left) / 3)
    above = (1 - peak, 1 - peak) if right is None else ((right - peak) / 2, (right - peak) / 3)
    mean, square = ((low + high) / 2 for low, high in zip(below, above, strict=True))
    return square - 2 * centre * mean + centre**2


LEAST_LABEL_MULTIPLIER = 4
"""That of a query for moments of numbers, whose squares need a weight."""


def label_multiplier(norm_bound: Fraction, weight: Fraction | None = None) -> int:
    """The k of a query for moments of numbers, whose labels have the query's fraction bits: as `edge_multiplier`."""
    return max(LEAST_LABEL_MULTIPLIER, edge_multiplier(norm_bound, 0, weight))


def edge_multiplier(norm_bound: Fraction, fraction_bits: int, weight: Fraction | None = None) -> int:
    """The k of a `MomentsQuery` that weights edges by a = `weight`, in units of its products' weight.

    None: R / sqrt(2), for 5/4 of the sensitivity of products alone. From a^2 = R^2 / 4 to R^2 the error changes little.
    """
    a = float(norm_bound) / math.sqrt(2) if weight is None else float(weight)
    return max(1, round(SQUARE_WEIGHT * (1 << fraction_bits) * a))
