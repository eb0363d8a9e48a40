"""The gradient query over a label of several classes: of the multinomial logistic loss, at a row of weights for each.

With scores s_c = theta_c . z a record of class y has the gradient (p - onehot(y)) z^T, p the softmax of its scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.queries.gradient import THETA_BITS, AddRows, LabelGradientQuery
from dpcore.records.features import Target, several_classes
from dpcore.records.losses import STEP_BITS, exponential_table
from dpcore.records.records import Records


@dataclass(frozen=True)
class ClassGradientQuery(LabelGradientQuery):
    """Sums of clipped gradients of the multinomial logistic loss, with noise on every coordinate, class by class.

    A contribution is the sum of w_c z over the records, in units of 2^-(f + WEIGHT_BITS), z = x or P x. Integer weights
    w_c = p_c - [c = y] come from tables (dpcore.records.losses), add up to zero, and are shortened until |w|^2 |z|^2 <=
    C^2 4^(f + WEIGHT_BITS). A record that is not usable adds zero.

    Sensitivity: 2 C in L2, for every theta, P and feature map. A record's k d integers w_c z_j, z of the mapped record,
    are one vector of squared length |w|^2 |z|^2. It is clipped as a whole, so it is at most C long, whatever k is.

    A record that is replaced moves the sum by at most two such lengths: the proof is that of
    dpcore.accounting.noise_shares.gradient_squared, with w z in place of -w e. Class weights multiply what was clipped,
    as in `GradientQuery`.

    Raises PlanError and ConfigurationError as it does, and if the loss is not "logistic".
    """

    classes: int = 2
    """Their number; theta has a row for each, class by class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss != "logistic":
            raise PlanError(f"the {self.loss} loss is of two classes: of several there is the logistic loss")

    @property
    def vectors(self) -> int:
        """See `GradientQuery`."""
        return self.classes

    def _check_records(self, records: Records) -> None:
        """See `GradientQuery`."""
        if records.coding.classes != self.classes or records.d * self.classes != len(self.theta):
            raise ShapeError(
                f"theta has {len(self.theta)} weights of {self.classes} classes, and the records {records.d} "
                f"coordinates and {records.coding.classes} classes: use one schema"
            )

    def _adder(self, fraction_bits: int, most: int) -> AddRows:
        """See `LabelGradientQuery`. Totals are (n, classes d), class by class."""
        from dpcore.records.compiled import add_class_gradients  # noqa: PLC0415 - imports Numba

        theta = np.array(self.theta, dtype=np.int64).reshape(self.classes, -1)
        table, shift = exponential_table(), fraction_bits + THETA_BITS - STEP_BITS
        return lambda vectors, codes, into, times, totals: add_class_gradients(
            vectors, codes.astype(np.int64), theta, table, shift, most, into, times, totals
        )

    @property
    def class_codes(self) -> Sequence[int]:
        """See `GradientQuery`."""
        return range(self.classes)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The sum of clipped gradients in real units: (classes, d)."""
        return self._in_real_units(total.reshape(self.classes, -1), fraction_bits)

    def words(self) -> str:
        """See `QueryKind`."""
        return f"{super().words()}, over {self.classes} classes"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        return {**super().facts(d, fraction_bits), "classes": self.classes}

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        found = several_classes(target, "a gradient for each class").classes
        if found != self.classes:
            raise PlanError(f"the query has {self.classes} classes and the schema {found}: make them equal")
