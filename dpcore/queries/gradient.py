"""The gradient query: each record contributes its gradient of a loss at theta, clipped to a norm."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares, gradient_squared
from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.progress import Progress
from dpcore.numbers.rationals import check_rational
from dpcore.queries.kind import QueryKind, QueryLimits
from dpcore.records.clipping import Basis
from dpcore.records.computation import Computation
from dpcore.records.losses import LOSSES, STEP_BITS, WEIGHT_BITS, LossName, check_loss, clip_squared, weight_table
from dpcore.records.records import BLOCK_ROWS, Records, edges, weighted_sums
from dpcore.records.weight import weighted_squared

MOST_FRACTION_BITS = 16
THETA_BITS = 20
LARGEST_THETA = 1 << 31
"""In units of 2^-THETA_BITS."""

QUESTION_SEEN = (
    "The query contains the classifier at which the gradient is taken, and its basis: the coordinator and the parties "
    "see them, and through them what the learner made of earlier answers, within the same bound."
)


@dataclass(frozen=True)
class GradientQuery(QueryKind):
    """Sums of clipped gradients, with noise on every coordinate.

    A contribution is the sum of -w z over the records, in units of 2^-(f + WEIGHT_BITS): z with f fraction bits, w the
    integer weight of its margin theta . z (dpcore.records.losses), lowered to the largest integer at which w
    |z| <= C 2^(f + WEIGHT_BITS). A record that is not usable adds zero.

    Sensitivity: 2 C in L2, for every theta and P. Proof: dpcore.accounting.noise_shares.gradient_squared. With weights:
    dpcore.records.weight.weighted_squared.

    Raises PlanError if a field is out of range or theta does not fit the basis, ConfigurationError if the loss is
    unknown.
    """

    array: ClassVar[str] = "gradient"
    losses: ClassVar[tuple[str, ...]] = LOSSES
    """Those that it may be of."""
    shorter: ClassVar[str] = "leave the basis out, or shorten the schema"

    loss: LossName
    """The loss whose gradient is taken."""
    theta: tuple[int, ...] = field(repr=False)
    """(d,), the classifier at which it is taken, in units of 2^-THETA_BITS."""
    clip: Fraction
    """C, the clipping norm of each record's gradient."""
    share_sigma: int
    """The standard deviation of each party's discrete Gaussian share of the noise on each coordinate."""
    basis: Basis | None = field(default=None, repr=False)
    """P. With a basis, records are z = P e instead of edges e, as are theta and the gradient."""
    among: Cohorts | None = field(default=None, kw_only=True)
    """See `QueryKind.cohorts`; share_sigma is that of the smallest one."""
    weighted: bool = field(default=False, kw_only=True)
    """Whether each record counts by its weight; weights are not clipped with the gradients."""

    def __post_init__(self) -> None:
        check_loss(self.loss, self.losses)
        check_rational("clip", self.clip)
        if not self.theta or max(map(abs, self.theta)) > LARGEST_THETA:
            raise PlanError(
                "theta is empty or has an entry beyond 2^11: give one entry for each coordinate, scaled down"
            )
        if self.basis is not None and self.basis.d != self.coordinates:
            raise PlanError(f"theta has {len(self.theta)} coordinates and the basis {self.basis.d}: make them equal")
        _ = self.shares

    @property
    def shares(self) -> GaussianShares:
        """See `QueryKind`. Raises PlanError if they are not counted."""
        return GaussianShares(self.share_sigma, self.among)

    def following(self, cohorts: Cohorts) -> Self:
        """See `QueryKind`."""
        return replace(self, among=cohorts)

    @property
    def weight_bits(self) -> int:
        """Fraction bits of a record's weight."""
        return WEIGHT_BITS

    @property
    def coordinates(self) -> int:
        """Those of a record at which theta is taken: d."""
        return len(self.theta) // self.vectors

    @property
    def vectors(self) -> int:
        """The number of theta's rows, each with a weight for every coordinate."""
        return 1

    @property
    def is_weighted(self) -> bool:
        """See `QueryKind`."""
        return self.weighted

    def length(self, d: int) -> int:
        """Theta's. Raises PlanError if it has another one than `vectors` d."""
        if self.vectors * d != len(self.theta):
            raise PlanError(
                f"theta has {len(self.theta)} coordinates and the schema {self.vectors} times {d}: give one for each"
            )
        return len(self.theta)

    def shape(self, d: int) -> tuple[int, ...]:
        """(d,)."""
        return (self.length(d),)

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on every coordinate, with the noise's 2^-64 tail. Raises PlanError if int64 might not hold it."""
        self._check_room(fraction_bits)
        longest = isqrt(clip_squared(self.clip, fraction_bits, self.weight_bits))
        return limits.rows * longest + self.shares.tail_bound(limits.parties, self.length(limits.d))

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sum and its share of the noise: int64 (length,)."""

        # One thread suffices: the work is one product per row.
        def of(rows: Records) -> NDArray[np.int64]:
            return self.sums(rows, fraction_bits, computation.progress)

        sums = weighted_sums(records, of, len(self.theta), is_weighted=self.weighted)
        return sums + self.shares.draw(len(sums), computation.random)

    def sums(self, records: Records, fraction_bits: int, progress: Progress | None = None) -> NDArray[np.int64]:
        """The contribution without noise. Raises ShapeError if theta has another length, PlanError as `largest_sum`."""
        if records.d != len(self.theta):
            raise ShapeError(f"theta has {len(self.theta)} coordinates and the records {records.d}: use one schema")
        self._check_room(fraction_bits)
        from dpcore.records.compiled import subtract_gradients  # noqa: PLC0415 - imports Numba

        most, theta = clip_squared(self.clip, fraction_bits), np.array(self.theta, dtype=np.int64)
        table, shift = weight_table(self.loss), fraction_bits + THETA_BITS - STEP_BITS
        total = np.zeros(records.d, dtype=np.int64)
        for first, block in edges(records, fraction_bits):
            vectors = block if self.basis is None else self.basis.products(block)
            subtract_gradients(vectors, theta, table, shift, most, total)
            if progress is not None:
                progress(min(first + BLOCK_ROWS, records.rows), records.rows)
        return total

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The sum of clipped gradients in real units: (d,)."""
        return np.ldexp(total.astype(np.float64), -(fraction_bits + self.weight_bits))

    @property
    def name(self) -> str:
        """See `QueryKind`."""
        return "gradient"

    def words(self) -> str:
        """See `QueryKind`."""
        where = "" if self.basis is None else " in the learner's basis"
        counted = " and counted by its weight" if self.weighted else ""
        clipped = f"each record's clipped to {float(self.clip):.3g}{counted}"
        return f"the gradient of the {self.loss} loss{where}, {clipped}"

    @property
    def contents(self) -> str:
        """See `QueryKind`."""
        return "a gradient"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        return {"d": d, "unit": f"2^-{fraction_bits + self.weight_bits}", "loss": self.loss}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `QueryKind`."""
        return (QUESTION_SEEN,)

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
        return "record"

    def protection(self, setting: Setting) -> GaussianProtection:
        """See `QueryKind`."""
        squared = gradient_squared(self.clip, setting.fraction_bits, self.weight_bits)
        values, honest = self.length(setting.d), setting.honest_parties
        # One vector of length C where the record leaves, the distance of two where it is replaced.
        alone: Fraction | int = squared // 4
        moved: Fraction | int = squared
        if self.weighted:
            moved, alone = weighted_squared(moved, values), weighted_squared(alone, values)
        return GaussianProtection(
            self.scope, honest, self.share_sigma, moved, values, squared_alone=alone, cohorts=self.among
        )

    def with_noise(self, share_sigma: int) -> Self:
        """See `QueryKind`."""
        return replace(self, share_sigma=share_sigma)

    @cached_property
    def _theta_length(self) -> int:
        return sum(map(abs, self.theta))

    def _check_room(self, fraction_bits: int) -> None:
        if not 0 <= fraction_bits <= MOST_FRACTION_BITS:
            raise PlanError(f"fraction_bits is {fraction_bits}: gradients take 0 to {MOST_FRACTION_BITS}")
        if self.basis is not None:
            self.basis.check_room(fraction_bits)
        # No coordinate of z exceeds `largest`, so these bound the margins and the squared lengths.
        largest = (1 if self.basis is None else self.basis.largest) << fraction_bits
        if self._theta_length * largest >= 1 << 62 or len(self.theta) * largest**2 >= 1 << 62:
            raise PlanError("theta or the basis is too long for exact margins: scale them down, or lower fraction_bits")
