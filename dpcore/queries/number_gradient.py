"""The gradient query over a label that is a number or a count: of an exponential family with its canonical link.

A record with margin eta = theta . z has the gradient (mean(eta) - y) z of its negative log likelihood. For `squared`
the mean is eta and y is the label's t, for `poisson` it is exp(eta + log exposure) and y is the count.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.queries.gradient import THETA_BITS, AddRows, LabelGradientQuery
from dpcore.records.coding import NUMBER, OFFSET_BITS, Coding, Labels
from dpcore.records.features import Target, measured
from dpcore.records.losses import FAMILIES, STEP_BITS, WEIGHT_BITS, mean_table
from dpcore.records.records import Records


@dataclass(frozen=True)
class NumberGradientQuery(LabelGradientQuery):
    """Sums of clipped gradients of a family's negative log likelihood, with noise on every coordinate.

    A contribution is the sum of w z over the records, in units of 2^-(f + WEIGHT_BITS), z = x or P x. The integer w is
    mean(eta) - y, its magnitude lowered to the largest at which |w| |z| <= C 2^(f + WEIGHT_BITS). A record that is not
    usable adds zero.

    Sensitivity: 2 C in L2, as of `GradientQuery`: no record's vector is longer than C.

    Raises PlanError and ConfigurationError as it does, and PlanError if the family is not of such labels.
    """

    losses: ClassVar[tuple[str, ...]] = FAMILIES
    weighs_classes: ClassVar[bool] = False
    labels: Coding = NUMBER
    """That of the schema's label."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "poisson" and self.labels.kind != "count":
            raise PlanError(f"the poisson loss is of counts, and the label is a {self.labels.kind}: ask squared")

    def _check_records(self, records: Records) -> None:
        """See `GradientQuery`."""
        if records.coding != self.labels or records.d != len(self.theta):
            raise ShapeError(
                f"theta has {len(self.theta)} coordinates for a {self.labels.kind}, and the records {records.d} "
                f"for {records.coding.kind}: use one schema"
            )

    def _adder(self, fraction_bits: int, most: int) -> AddRows:
        """See `LabelGradientQuery`."""
        from dpcore.records.compiled import add_number_gradients  # noqa: PLC0415 - imports Numba

        theta, table = np.array(self.theta, dtype=np.int64), mean_table(self.loss)
        bits = fraction_bits + THETA_BITS - (STEP_BITS if len(table) else WEIGHT_BITS)
        return lambda vectors, labels, into, times, totals: add_number_gradients(
            vectors, *self._measured(labels, fraction_bits), theta, table, bits, most, into, times, totals
        )

    def _measured(self, labels: Labels, fraction_bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Labels y in units of 2^-WEIGHT_BITS, and what is added to the margins, in theirs."""
        if self.loss == "squared":
            return self.labels.scaled(labels, WEIGHT_BITS), np.zeros(len(labels), dtype=np.int64)
        counts = self.labels.values(labels).astype(np.int64) << WEIGHT_BITS
        return counts, self.labels.offsets(labels) << (fraction_bits + THETA_BITS - OFFSET_BITS)

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        if measured(target, f"a gradient of the {self.loss} loss").coding != self.labels:
            raise PlanError("the query and the schema have different labels: make them equal")
