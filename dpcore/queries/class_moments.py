"""The moments query over a label of several classes: a sum of records for each class, and products of records.

Products of all records do not depend on the class. Products of each class tell how each class varies, and are as many
times as many values.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import class_moments_alone, class_moments_squared
from dpcore.errors import PlanError
from dpcore.queries.label_moments import LabelMomentsQuery
from dpcore.queries.moments import MomentsQuery, Sensitivity
from dpcore.rados.distribution import ClassMoments
from dpcore.records.coding import Coding, class_codes
from dpcore.records.features import Target, several_classes
from dpcore.records.held_back import HeldBack


@dataclass(frozen=True)
class ClassMomentsQuery(LabelMomentsQuery):
    """For each class the sum of its clipped records x, and products of all or of each class, with noise on all numbers.

    A contribution consists of integers: k x_j 2^f class by class, which is 0 for the classes of other records; then the
    products as in `MomentsQuery`, of all records or likewise class by class.

    Sensitivity: that of `MomentsQuery`. Proof: dpcore.accounting.noise_shares.class_moments_squared.
    """

    sensitivities: ClassVar[tuple[Sensitivity, Sensitivity]] = (class_moments_squared, class_moments_alone)

    classes: int = 2
    """Their number; that of the schema's label."""
    products_of_each_class: bool = False
    """Whether each class has products of its own, instead of one set of products of all records."""

    @classmethod
    def of(cls, query: MomentsQuery, target: Target, *, products_of_each_class: bool = False) -> Self:
        """The query with the same clip, weight and noise for this label. Raises SchemaError for two classes."""
        classes = several_classes(target, "a sum for each class").classes
        clip, multiplier, share = query.clip, query.edge_multiplier, query.share_sigma
        found = cls(clip, multiplier, share, classes, products_of_each_class)
        return replace(found, persons=query.persons, among=query.among, weighted=query.weighted)

    @property
    def product_sums(self) -> int:
        """See `LabelMomentsQuery`."""
        return self.classes if self.products_of_each_class else 1

    def fewer(self, most: int, d: int) -> str:
        """See `QueryKind`."""
        if self.products_of_each_class and replace(self, products_of_each_class=False).length(d) <= most:
            return f"leave out products_of_each_class, which ask for {self.classes} sums of each product"
        return super().fewer(most, d)

    @property
    def coding(self) -> Coding:
        """See `LabelMomentsQuery`."""
        return class_codes(self.classes)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sums of each class (classes, d) and of products (d, d), in real units, the bias's square zero."""
        d = self.coordinates(total.size)
        first = total[: self.classes * d].reshape(self.classes, d)
        class_sums = np.ldexp(first.astype(np.float64), -self._edge_bits(fraction_bits)) / self.edge_multiplier
        return class_sums, self._each(total, d, fraction_bits).sum(axis=0)

    def _each(self, total: NDArray[np.int64], d: int, fraction_bits: int) -> NDArray[np.float64]:
        """The sums of products, (product_sums, d, d), the bias's squares zero."""
        sent = total[self.classes * d :].reshape(self.product_sums, -1)
        return np.array([self._products(each, d, fraction_bits) for each in sent])

    def _of_classes(self, total: NDArray[np.int64], sizes: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
        """The products of each class, (k, d, d); the square of the bias is the class's size."""
        found = self._each(total, self.coordinates(total.size), bits)
        if self.clip.bias:
            found[:, -1, -1] = sizes
        return found

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
        about, noise = self._noise(
            products, fraction_bits, rows=rows, parties=parties, held_back=held_back, sums=self.product_sums
        )
        sigma = self.shares.deviation(parties)
        return ClassMoments(
            class_sums=class_sums,
            product_sum=products,
            rows=about,
            bias=self.clip.bias,
            norm_bound=float(self.clip.norm_bound),
            sum_noise=float(np.ldexp(sigma, -self._edge_bits(fraction_bits))) / self.edge_multiplier,
            product_noise=noise,
            class_products=(
                self._of_classes(total, class_sums[:, -1], fraction_bits) if self.products_of_each_class else None
            ),
        )

    def words(self) -> str:
        """See `QueryKind`."""
        products = " and products" if self.products_of_each_class else ""
        return f"{super().words()}, with a sum{products} for each of {self.classes} classes"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        each = self.products_of_each_class
        return {**super().facts(d, fraction_bits), "classes": self.classes, "products_of_each_class": each}

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        found = several_classes(target, "a query with a sum for each class").classes
        if found != self.classes:
            raise PlanError(f"the query has {self.classes} classes and the schema {found}: make them equal")
