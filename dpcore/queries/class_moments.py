"""The moments query over a label of several classes: a sum of records for each class, and the products of all records.

The products do not depend on the class, so one query serves all classes.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import class_moments_squared
from dpcore.accounting.protection import GaussianProtection, Setting
from dpcore.errors import PlanError
from dpcore.numbers.progress import Progress
from dpcore.queries.moments import MomentsQuery, checked_fraction_bits
from dpcore.rados.distribution import ClassMoments
from dpcore.records.clipping import Clip
from dpcore.records.computation import RowSums, sum_on_threads
from dpcore.records.features import Target, several_classes
from dpcore.records.held_back import HeldBack
from dpcore.records.records import Records, rows_of_classes


@dataclass(frozen=True)
class ClassMomentsQuery(MomentsQuery):
    """For each class the sum of its clipped records x, and the products of all, with noise on every number.

    A contribution consists of integers: k x_j 2^f class by class, which is 0 for the classes of other records; then the
    products as in `MomentsQuery`.

    Sensitivity: that of `MomentsQuery`. Proof: dpcore.accounting.noise_shares.class_moments_squared.
    """

    classes: int = 2
    """Their number; that of the schema's label."""

    @classmethod
    def of(cls, query: MomentsQuery, target: Target) -> Self:
        """The query with the same clip, weight and noise for this label. Raises SchemaError for two classes."""
        classes = several_classes(target, "a sum for each class").classes
        return cls(query.clip, query.edge_multiplier, query.share_sigma, classes, among=query.among)

    def length(self, d: int) -> int:
        """Number of values: classes d + d(d + 1)/2, one fewer with a bias."""
        return super().length(d) + (self.classes - 1) * d

    def sums(
        self,
        records: Records,
        fraction_bits: int,
        progress: Progress | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """The contribution without noise. An unusable row adds zero. Raises PlanError as `largest_sum`, SchemaError."""
        part = ClassMomentsPart(records.d, checked_fraction_bits(fraction_bits), self.clip, self.classes)
        total = row_sums(part, records, progress)
        first, products = total[: self.classes] * self.edge_multiplier, total[self.classes :]
        return np.concatenate([first.ravel(), self._weighted(products)])

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sums of each class (classes, d) and of products (d, d), in real units, the bias's square zero."""
        d = self.coordinates(total.size)
        first = total[: self.classes * d].reshape(self.classes, d)
        class_sums = np.ldexp(first.astype(np.float64), -fraction_bits) / self.edge_multiplier
        return class_sums, self._products(total[self.classes * d :], d, fraction_bits)

    def moments(  # type: ignore[override]  # the moments of another label
        self,
        total: NDArray[np.int64],
        fraction_bits: int,
        *,
        rows: int,
        parties: int,
        held_back: HeldBack | None = None,
    ) -> ClassMoments:
        """The moments of a total, as `MomentsQuery.moments`."""
        class_sums, products = self.decode(total, fraction_bits)
        about, noise = self._noise(products, fraction_bits, rows=rows, parties=parties, held_back=held_back)
        sigma = self.shares.deviation(parties)
        return ClassMoments(
            class_sums=class_sums,
            product_sum=products,
            rows=about,
            bias=self.clip.bias,
            norm_bound=float(self.clip.norm_bound),
            sum_noise=float(np.ldexp(sigma, -fraction_bits)) / self.edge_multiplier,
            product_noise=noise,
        )

    def words(self) -> str:
        """See `QueryKind`."""
        return f"{super().words()}, with a sum for each of {self.classes} classes"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        return {**super().facts(d, fraction_bits), "classes": self.classes}

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        found = several_classes(target, "a query with a sum for each class").classes
        if found != self.classes:
            raise PlanError(f"the query has {self.classes} classes and the schema {found}: make them equal")

    def protection(self, setting: Setting) -> GaussianProtection:
        """See `QueryKind`."""
        squared = class_moments_squared(self.clip, setting.fraction_bits, self.edge_multiplier)
        values, honest = self.length(setting.d), setting.honest_parties
        return GaussianProtection(self.scope, honest, self.share_sigma, squared, values, cohorts=self.among)


@dataclass(frozen=True)
class ClassMomentsPart:
    """What a run of rows adds (dpcore.records.computation.RowPart): sums of each class, then products of all rows."""

    d: int
    fraction_bits: int
    clip: Clip
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(classes + d, d)."""
        return (self.classes + self.d, self.d)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:  # noqa: ARG002  (any rows add up)
        """See `RowPart`."""
        from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

        if records.classes != self.classes:
            raise PlanError(f"the query has {self.classes} classes and the records {records.classes}: use one schema")
        for _, block, codes in rows_of_classes(records, self.fraction_bits):
            clip_in_place(self.clip, block, self.fraction_bits)
            factor = block.astype(np.float64)
            # Rows that are not usable are zero, whatever their codes. Integers below 2^53: exact in any order.
            member = (codes == np.arange(self.classes)[:, np.newaxis]).astype(np.float64)
            total[: self.classes] += (member @ factor).astype(np.int64)
            total[self.classes :] += (factor.T @ factor).astype(np.int64)
