"""Moments queries over labels that are no signs: sums of label times record, and the products of all records.

Of several classes the label of a record is a row of the unit matrix, so that there is a sum of records for each class
(dpcore.queries.class_moments). Of a number or a count it is t in [-1, 1], and the sum of t^2 is released too. The
products do not depend on the label.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import number_moments_alone, number_moments_squared, square_weight
from dpcore.errors import PlanError
from dpcore.numbers.progress import Progress
from dpcore.queries.moments import MomentsQuery, Sensitivity, checked_fraction_bits
from dpcore.rados.distribution import NumberMoments
from dpcore.records.clipping import Clip
from dpcore.records.coding import NUMBER, Coding, Labels
from dpcore.records.computation import RowSums, sum_on_threads
from dpcore.records.features import Target, with_value
from dpcore.records.held_back import HeldBack
from dpcore.records.records import Records, labelled_rows


@dataclass(frozen=True)
class LabelMomentsQuery(MomentsQuery, ABC):
    """What moments of labels that are no signs have in common."""

    @property
    @abstractmethod
    def coding(self) -> Coding:
        """That of the records' labels."""

    @property
    def label_sums(self) -> int:
        """How many sums of records there are: one for each class, or one."""
        return max(1, self.coding.classes)

    @property
    def product_sums(self) -> int:
        """How many sums of each product there are: one, unless there is one for each class."""
        return 1

    def length(self, d: int) -> int:
        """Number of values: (label_sums) d + (product_sums) d(d + 1)/2, with a bias product_sums fewer."""
        return super().length(d) + (self.label_sums - 1) * d + (self.product_sums - 1) * self._products_length(d)

    def _products_length(self, d: int) -> int:
        return d * (d + 1) // 2 - self._left_out

    def sums(
        self,
        records: Records,
        fraction_bits: int,
        progress: Progress | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """The contribution without noise. An unusable row adds zero. Raises PlanError as `largest_sum`, SchemaError."""
        d, sums, each = records.d, self.label_sums, self.product_sums
        part = LabelMomentsPart(d, checked_fraction_bits(fraction_bits), self.clip, self.coding, each)
        total = row_sums(part, records, progress)
        first, products, squares = np.split(total, [sums, sums + each * d])
        return np.concatenate([self._weighted_sums(first, squares), *map(self._weighted, products.reshape(each, d, d))])

    def _weighted_sums(self, first: NDArray[np.int64], squares: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002  (for those that have squares)
        """What is sent before the products. first: (label_sums, d). squares: those of labels, in the first column."""
        return (first * self.edge_multiplier).ravel()


@dataclass(frozen=True)
class NumberMomentsQuery(LabelMomentsQuery):
    """The sum of t x over clipped records, that of t^2, and the products of all records, with noise on every number.

    A contribution consists of integers: k t x_j for every coordinate, t and x in units of 2^-f, then w t^2 with w =
    floor(k^2 / 10), then the products as in `MomentsQuery`.

    Sensitivity: that of `MomentsQuery` with the edge weight k 2^f; the squares add nothing to it. Proof:
    dpcore.accounting.noise_shares.number_moments_squared.
    """

    sensitivities: ClassVar[tuple[Sensitivity, Sensitivity]] = (number_moments_squared, number_moments_alone)

    labels: Coding = NUMBER
    """That of the schema's label."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels.has_value:
            raise PlanError(f"labels of {self.labels.kind} have no number: ask for other moments")
        if square_weight(self.edge_multiplier) < 1:
            raise PlanError(f"edge_multiplier is {self.edge_multiplier}: squares of labels need at least 4")

    @classmethod
    def of(cls, query: MomentsQuery, target: Target) -> Self:
        """The query with the same clip, weight and noise for this label. Raises SchemaError for labels of classes."""
        coding = with_value(target, "a sum of label times record").coding
        found = cls(query.clip, query.edge_multiplier, query.share_sigma, coding)
        return replace(found, persons=query.persons, among=query.among, weighted=query.weighted)

    @property
    def coding(self) -> Coding:
        """See `LabelMomentsQuery`."""
        return self.labels

    def length(self, d: int) -> int:
        """Number of values: d + 1 + d(d + 1)/2, one fewer with a bias."""
        return super().length(d) + 1

    def sum_unit(self, fraction_bits: int) -> float:
        """See `MomentsQuery`: labels have the same fraction bits as records."""
        return self.product_unit(fraction_bits) / self.edge_multiplier

    def _largest_value(self, one: int) -> int:
        """See `MomentsQuery`."""
        return max(super()._largest_value(one), self.edge_multiplier * one * one, self._square_weight * one * one)

    @property
    def _square_weight(self) -> int:
        return square_weight(self.edge_multiplier)

    def _weighted_sums(self, first: NDArray[np.int64], squares: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `LabelMomentsQuery`."""
        return np.append(super()._weighted_sums(first, squares), squares[0, :1] * self._square_weight)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `MomentsQuery`; the sums of t x in place of those of edges, without that of t^2."""
        d = self.coordinates(total.size)
        sums = total[:d].astype(np.float64) * self.sum_unit(fraction_bits)
        return sums, self._products(total[d + 1 :], d, fraction_bits)

    def moments(  # type: ignore[override]  # the moments of another label
        self,
        total: NDArray[np.int64],
        fraction_bits: int,
        *,
        rows: int,
        parties: int,
        held_back: HeldBack | None = None,
    ) -> NumberMoments:
        """The moments of a total, as `MomentsQuery.moments`."""
        d = self.coordinates(total.size)
        products = self._products(total[d + 1 :], d, fraction_bits)
        about, noise = self._noise(products, fraction_bits, rows=rows, parties=parties, held_back=held_back)
        in_units = total[: d + 1].astype(np.float64) * self.product_unit(fraction_bits)
        sigma = self.shares.deviation(parties) * self.product_unit(fraction_bits)
        return NumberMoments(
            label_sum=in_units[:d] / self.edge_multiplier,
            square_sum=float(in_units[d]) / self._square_weight,
            product_sum=products,
            rows=about,
            bias=self.clip.bias,
            norm_bound=float(self.clip.norm_bound),
            sum_noise=sigma / self.edge_multiplier,
            square_noise=sigma / self._square_weight,
            product_noise=noise,
        )

    def words(self) -> str:
        """See `QueryKind`."""
        return f"{super().words()}, with the sums of label times record and of the label's square"

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        if with_value(target, "a sum of label times record").coding != self.labels:
            raise PlanError("the query and the schema have different labels: make them equal")


@dataclass(frozen=True)
class LabelMomentsPart:
    """What a run of rows adds (dpcore.records.computation.RowPart): sums of label times record, then products.

    Of numbers and counts, one row more follows, whose first entry is the sum of t^2.
    """

    d: int
    fraction_bits: int
    clip: Clip
    coding: Coding
    product_sums: int = 1
    """The number of classes if each has products of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(sums + (product_sums) d, d), or one row more."""
        return (max(1, self.coding.classes) + self.product_sums * self.d + self.coding.has_value, self.d)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:  # noqa: ARG002  (any rows add up)
        """See `RowPart`."""
        from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

        if records.coding != self.coding:
            asked, held = self.coding.words, records.coding.words
            raise PlanError(f"the query is about {asked} and the records about {held}: use one schema")
        sums = max(1, self.coding.classes)
        for first, block, labels in labelled_rows(records, self.fraction_bits):
            clip_in_place(self.clip, block, self.fraction_bits)
            factor = block.astype(np.float64)
            weights = self._weights(labels, records.usable[first : first + len(block)])
            # Rows that are not usable are zero. Integers below 2^53: exact in any order.
            total[:sums] += (weights @ factor).astype(np.int64)
            for place in range(self.product_sums):
                chosen = factor if self.product_sums == 1 else factor[labels == place]
                start = sums + place * self.d
                total[start : start + self.d] += (chosen.T @ chosen).astype(np.int64)
            if self.coding.has_value:
                total[-1, 0] += int(np.square(weights.astype(np.int64)).sum())

    def _weights(self, labels: Labels, usable: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What each record is multiplied by in each sum: (sums, rows), integers."""
        if self.coding.classes:
            member: NDArray[np.bool_] = labels == np.arange(self.coding.classes)[:, np.newaxis]
            return member.astype(np.float64)
        scaled = np.where(usable, self.coding.scaled(labels, self.fraction_bits), 0)
        return scaled.astype(np.float64)[np.newaxis]
