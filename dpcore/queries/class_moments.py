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
from dpcore.queries.label_moments import LabelMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.rados.distribution import ClassMoments
from dpcore.records.coding import Coding, class_codes
from dpcore.records.features import Target, several_classes
from dpcore.records.held_back import HeldBack


@dataclass(frozen=True)
class ClassMomentsQuery(LabelMomentsQuery):
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

    @property
    def coding(self) -> Coding:
        """See `LabelMomentsQuery`."""
        return class_codes(self.classes)

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
