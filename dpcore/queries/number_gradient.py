"""The gradient query over a label that is a number or a count: of an exponential family with its canonical link.

A record with margin eta = theta . z has the gradient (mean(eta) - y) z of its negative log likelihood. For `squared`
the mean is eta and y is the label's t, for `poisson` it is exp(eta + log exposure) and y is the count.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.progress import Progress
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.records.coding import NUMBER, OFFSET_BITS, Coding, Labels
from dpcore.records.features import Target, measured
from dpcore.records.losses import FAMILIES, STEP_BITS, WEIGHT_BITS, clip_squared, mean_table
from dpcore.records.records import BLOCK_ROWS, Records, labelled_rows


@dataclass(frozen=True)
class NumberGradientQuery(GradientQuery):
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

    def sums(self, records: Records, fraction_bits: int, progress: Progress | None = None) -> NDArray[np.int64]:
        """The contribution without noise: (d,). Raises as `GradientQuery.sums`."""
        if records.coding != self.labels or records.d != len(self.theta):
            raise ShapeError(
                f"theta has {len(self.theta)} coordinates for a {self.labels.kind}, and the records {records.d} "
                f"for {records.coding.kind}: use one schema"
            )
        self._check_room(fraction_bits)
        from dpcore.records.compiled import add_number_gradients  # noqa: PLC0415 - imports Numba

        theta, total = np.array(self.theta, dtype=np.int64), np.zeros(records.d, dtype=np.int64)
        most, shift = clip_squared(self.clip, fraction_bits), fraction_bits + THETA_BITS
        table = mean_table(self.loss)
        for first, block, labels in labelled_rows(records, fraction_bits):
            rows = block if self.basis is None else np.trunc(self.basis.products(block)).astype(np.int64)
            usable = records.usable[first : first + len(block)]
            measured_labels = self._measured(labels[usable], fraction_bits)
            bits = shift - (STEP_BITS if len(table) else WEIGHT_BITS)
            add_number_gradients(rows[usable], *measured_labels, theta, table, bits, most, total)
            if progress is not None:
                progress(min(first + BLOCK_ROWS, records.rows), records.rows)
        return total

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
