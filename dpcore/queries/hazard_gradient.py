"""The gradient query over a label that is a time to an event: of proportional hazards in discrete time.

With J intervals and a record z followed into interval k, let eta_j = alpha_j + theta . z and mu_j = exp(eta_j), the
hazard's integral over interval j. If the event did not happen before, it happens there with probability 1 -
exp(-mu_j) (complementary log-log; Prentice and Gloeckler, Biometrics 34, 1978). The negative log likelihood's
derivative in eta_j is

    r_j = mu_j             for j < k, which the record survived
    r_k = -mu_k / (exp(mu_k) - 1)     if the event happened in k
    r_k = mu_k / 2         if the record was censored in k, halfway

Clipping that depends on how a record's time ends moves the root of the sums: events are the longest vectors, so that
they would count less than survival.

Here each r_j has a weight that is chosen before interval j, from z, theta and the
intervals before, and that is right for both ways in which the interval may end.

Under the model r_j has the mean zero
given all that, whatever the weight: the weighted sum is a martingale, and the root of its expectation is the model's
theta. Proof: docs/explanation/proofs.md, "Weights of hazards".
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpcore.errors import PlanError, ShapeError
from dpcore.queries.gradient import THETA_BITS, AddRows, LabelGradientQuery
from dpcore.records.features import Target, event_time
from dpcore.records.losses import HAZARD_BITS, STEP_BITS, clip_squared, hazard_tables
from dpcore.records.records import Records

MOST_WEIGHT = 64
"""Of an interval."""

_LARGEST_SQUARE = 1 << 61
"""Squared lengths are compared exactly in 64 bits, a little above the largest."""


@dataclass(frozen=True)
class HazardGradientQuery(LabelGradientQuery):
    """Sums of clipped gradients of the negative log likelihood, with noise on every coordinate.

    theta: (J + d,). Its first J entries are alpha_j / u, with u the intervals' weight, so that a record's vector is

        v = (u w_1 r_1, ..., u w_J r_J, R z),      R = sum of w_j r_j,

    in units of 2^-(f + HAZARD_BITS), z = x or P x. w_j is the largest weight up to 1 at which v, summed up to interval
    j, is no longer than C both with the event in j and without.

    What rounding leaves is shortened until |v|^2 <= C^2 4^(f + HAZARD_BITS), exactly. A record that is not usable adds
    zero.

    Sensitivity: 2 C in L2, as of `GradientQuery`: a record has one vector, however many intervals it was followed
    through, and none is longer than C.

    Of persons each row's v_i has weights for C itself. So the sum of w_i v_i over a person's rows is no longer than W C
    by the triangle inequality, and nothing is shortened as a whole, which would depend on how times ended.

    Raises PlanError and ConfigurationError as it does, and for an interval weight that is not from 1 to MOST_WEIGHT.
    """

    losses: ClassVar[tuple[str, ...]] = ("hazards",)
    weighs_classes: ClassVar[bool] = False
    row_room: ClassVar[int] = 1
    intervals: int = 1
    """J, that of the schema's label."""
    interval_weight: int = 1
    """u."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.interval_weight <= MOST_WEIGHT:
            raise PlanError(f"interval_weight is {self.interval_weight}: choose 1 to {MOST_WEIGHT}")

    @property
    def weight_bits(self) -> int:
        """See `GradientQuery`."""
        return HAZARD_BITS

    @property
    def coordinates(self) -> int:
        """See `GradientQuery`."""
        return len(self.theta) - self.intervals

    def length(self, d: int) -> int:
        """J + d. Raises PlanError if theta has another length."""
        if self.intervals + d != len(self.theta):
            raise PlanError(
                f"theta has {len(self.theta)} entries, and {self.intervals} intervals and {d} coordinates need "
                f"{self.intervals + d}: give one for each"
            )
        return len(self.theta)

    def _check_records(self, records: Records) -> None:
        """See `GradientQuery`."""
        if records.coding.intervals != self.intervals or records.d + self.intervals != len(self.theta):
            raise ShapeError(
                f"theta has {len(self.theta)} entries for {self.intervals} intervals, and the records {records.d} "
                f"coordinates and {records.coding.intervals} intervals: use one schema"
            )

    def _adder(self, fraction_bits: int, most: int) -> AddRows:
        """See `LabelGradientQuery`. Totals are (n, J + d)."""
        from dpcore.records.compiled import add_hazard_gradients  # noqa: PLC0415 - imports Numba

        theta, shift = np.array(self.theta, dtype=np.int64), fraction_bits + THETA_BITS - STEP_BITS
        unit, tables = self.interval_weight << fraction_bits, hazard_tables()
        return lambda vectors, codes, into, times, totals: add_hazard_gradients(
            vectors, codes.astype(np.int64), theta, unit, *tables, shift, most, into, times, totals
        )

    def _check_room(self, fraction_bits: int) -> None:
        super()._check_room(fraction_bits)
        if clip_squared(self.clip, fraction_bits, HAZARD_BITS) >= _LARGEST_SQUARE:
            raise PlanError(
                f"a clip of {float(self.clip):g} with {fraction_bits} fraction bits leaves no room: lower either"
            )
        if sum(map(abs, self.theta[: self.intervals])) * (self.interval_weight << fraction_bits) >= _LARGEST_SQUARE:
            raise PlanError("the baseline is too long for exact margins: lower interval_weight, or fraction_bits")

    def words(self) -> str:
        """See `QueryKind`."""
        return f"{super().words()}, over {self.intervals} intervals of time"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        return {**super().facts(d, fraction_bits), "intervals": self.intervals}

    def check_target(self, target: Target) -> None:
        """See `QueryKind`."""
        found = event_time(target, "a gradient of proportional hazards").coding.intervals
        if found != self.intervals:
            raise PlanError(f"the query has {self.intervals} intervals and the schema {found}: make them equal")
