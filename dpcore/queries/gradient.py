"""The gradient query: each record contributes its gradient of a loss at theta, clipped to a norm."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, gcd, isqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares, gradient_squared
from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.progress import Progress
from dpcore.numbers.rationals import check_rational
from dpcore.queries.kind import QueryKind, QueryLimits, check_counted_once, scope_of
from dpcore.records.clipping import Basis
from dpcore.records.coding import Labels
from dpcore.records.computation import Computation
from dpcore.records.losses import LOSSES, STEP_BITS, WEIGHT_BITS, LossName, check_loss, clip_squared, weight_table
from dpcore.records.persons import PERSON_WEIGHT, PersonRows, Persons, bits_of, factor_of
from dpcore.records.records import CACHED_ROWS, Records, edges_in_doubles, labelled_rows, weighted_sums
from dpcore.records.weight import weighted_squared

MOST_FRACTION_BITS = 16
THETA_BITS = 20
LARGEST_THETA = 1 << 31
"""In units of 2^-THETA_BITS."""
LARGEST_CLASS_WEIGHT = 1000

_CLIP_BITS = 30
"""C in a record's units has so many bits at most, so that its square is below `_LARGEST_SQUARE`."""
_LARGEST_SQUARE = (1 << 61) - 1
"""Of what compiled sums clip a row to: exact in 64 bits."""

QUESTION_SEEN = (
    "The query contains the classifier at which the gradient is taken, and its basis: the coordinator and the parties "
    "see them, and through them what the learner made of earlier answers, within the same bound."
)


@dataclass(frozen=True, eq=False)
class Rows:
    """What becomes of rows in a compiled sum: which total each is added to, and how often. (rows,)."""

    into: NDArray[np.int64] | None = None
    """None for the first."""
    times: NDArray[np.int64] | None = None
    """None for once."""

    def of(
        self, first: int, count: int, usable: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Those of a block, or of its usable rows."""
        into = np.zeros(count, dtype=np.int64) if self.into is None else self.into[first : first + count]
        times = np.ones(count, dtype=np.int64) if self.times is None else self.times[first : first + count]
        return (into, times) if usable is None else (into[usable], times[usable])


AddRows = Callable[[NDArray[np.int64], Labels, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], None]
"""Adds vectors with their labels to totals: (vectors, labels, into, times, totals), into and times as of `Rows`."""


def class_weights_in_words(weights: Sequence[float]) -> str:
    """Such as "class weights 1 : 5", the negative class first: each over the least of them."""
    least = min(weights)
    return f"class weights {' : '.join(f'{weight / least:.4g}' for weight in weights)}"


def fitting_fraction_bits(clip: Fraction, usual: int) -> int:
    """As many fraction bits as usual, or the most with which a clip of this length fits (dpcore.records.losses)."""
    return max(0, min(usual, _CLIP_BITS - WEIGHT_BITS - max(0, ceil(clip) - 1).bit_length()))


@dataclass(frozen=True)
class GradientQuery(QueryKind):
    """Sums of clipped gradients, with noise on every coordinate.

    A contribution is the sum of -w z over the records, in units of 2^-(f + WEIGHT_BITS): z with f fraction bits, w the
    integer weight of its margin theta . z (dpcore.records.losses), lowered to the largest integer at which w
    |z| <= C 2^(f + WEIGHT_BITS). A record that is not usable adds zero.

    Sensitivity: 2 C in L2, for every theta and P. Proof: dpcore.accounting.noise_shares.gradient_squared. With weights:
    dpcore.records.weight.weighted_squared.

    With class weights k a record of class c adds k_c / max k times that: its integers are k_c (w z), in units of 2^-(f
    + WEIGHT_BITS) / max k.

    As |w z| <= C 2^(f + WEIGHT_BITS) after clipping and k_c <= max k, no record is longer than C still, and the
    sensitivity is 2 C. In units it is that of the length max k C.

    Of persons (dpcore.records.persons) a contribution is the sum of one vector for each, in units finer by W: the sum
    of w_i v_i over the person's rows, v_i clipped to `row_room` times C, and this sum shortened to W C.

    So a person adds one integer vector no longer than W C, whatever the rows are, and moves the sum by at most 2 W C.
    With class weights the sum is of w_i k_c v_i, shortened to C times the sum of w_i k_c, which is at most W max k.

    Integers are shortened with room for rounding (dpcore.records.compiled.add_shortened).

    Raises PlanError if a field is out of range or theta does not fit the basis, ConfigurationError if the loss is
    unknown.
    """

    array: ClassVar[str] = "gradient"
    losses: ClassVar[tuple[str, ...]] = LOSSES
    """Those that it may be of."""
    weighs_classes: ClassVar[bool] = True
    """Whether its label has classes, which may be weighted."""
    row_room: ClassVar[int] = 8
    """How many times as long as C a row of a person may be before the person's average is clipped to C."""
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
    persons: Persons | None = field(default=None, kw_only=True)
    """See `QueryKind`."""
    among: Cohorts | None = field(default=None, kw_only=True)
    """See `QueryKind.cohorts`; share_sigma is that of the smallest one."""
    class_weights: tuple[int, ...] = field(default=(), kw_only=True)
    """k, for each class, of two the negative one first; without a common factor. None: all alike."""
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
        self._check_class_weights()
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

    @property
    def weight_bits(self) -> int:
        """Fraction bits of a record's weight."""
        return WEIGHT_BITS

    @property
    def largest_class_weight(self) -> int:
        """Max k, by which the unit is divided: 1 if classes are not weighted."""
        return max(self.class_weights, default=1)

    def unit(self, fraction_bits: int) -> float:
        """What an integer of a total is worth."""
        return 2.0 ** -self._unit_bits(fraction_bits) / self.largest_class_weight

    def _unit_bits(self, fraction_bits: int) -> int:
        """Fraction bits of a total, but for class weights."""
        return fraction_bits + self.weight_bits + bits_of(self.persons)

    def _squared(self, fraction_bits: int) -> int:
        """The largest squared length of what a record adds, in units of a sum over records."""
        return clip_squared(self.clip, fraction_bits, self.weight_bits) * self.largest_class_weight**2

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
        longest = isqrt(self._squared(fraction_bits) << 2 * bits_of(self.persons))
        return limits.rows * longest + self.shares.tail_bound(limits.parties, self.length(limits.d))

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sum and its share of the noise: int64 (length,)."""

        # One thread suffices: the work is one product per row.
        def of(rows: Records) -> NDArray[np.int64]:
            return computation.sums(self, rows, fraction_bits, len(self.theta))

        if self.persons is None:
            sums = weighted_sums(records, of, len(self.theta), is_weighted=self.weighted)
        else:
            sums = self.person_sums(records, fraction_bits, computation.persons, computation.progress)
        return sums + self.shares.draw(len(sums), computation.random)

    def sums(self, records: Records, fraction_bits: int, progress: Progress | None = None) -> NDArray[np.int64]:
        """The contribution without noise, of records. Raises ShapeError if theta does not fit, PlanError."""
        self._check_records(records)
        self._check_room(fraction_bits)
        most, totals = clip_squared(self.clip, fraction_bits, self.weight_bits), self._totals(1)
        rows = Rows(times=self._class_weights_of(records) if self.class_weights else None)
        self._add(records, fraction_bits, most, rows, totals, progress)
        total: NDArray[np.int64] = totals[0]
        return total

    def person_sums(
        self, records: Records, fraction_bits: int, persons: PersonRows, progress: Progress | None = None
    ) -> NDArray[np.int64]:
        """The contribution without noise, of persons, in units finer by W. Raises as `sums`."""
        self._check_records(records)
        self._check_room(fraction_bits)
        from dpcore.records.compiled import add_shortened  # noqa: PLC0415 - imports Numba

        squared = clip_squared(self.clip, fraction_bits, self.weight_bits)
        of_row = max(squared, min(self.row_room**2 * squared, _LARGEST_SQUARE))
        weights, done = persons.weights(records.usable) * self._class_weights_of(records), 0
        total = np.zeros(len(self.theta), dtype=np.int64)
        for places, own in persons.runs():
            vectors = self._totals(int(own.max()) + 1)
            self._add(records.at(places), fraction_bits, of_row, Rows(own, weights[places]), vectors)
            # W without class weights, and 0 without a usable row. The minimum is the bound, whatever the weights are.
            counted = np.bincount(own, weights=weights[places], minlength=len(vectors)).astype(np.float64)
            counted = np.minimum(counted, float(PERSON_WEIGHT * self.largest_class_weight))
            add_shortened(vectors, np.square(counted) * float(squared), total)
            done += len(places)
            if progress is not None:
                progress(done, records.rows)
        return total

    def _totals(self, count: int) -> NDArray[np.int64]:
        return np.zeros((count, len(self.theta)), dtype=np.int64)

    def _check_records(self, records: Records) -> None:
        """Raise ShapeError if the records do not fit theta."""
        if records.d != len(self.theta):
            raise ShapeError(f"theta has {len(self.theta)} coordinates and the records {records.d}: use one schema")

    def _add(
        self,
        records: Records,
        fraction_bits: int,
        most: int,
        rows: Rows,
        totals: NDArray[np.int64],
        progress: Progress | None = None,
    ) -> None:
        """Add each row's vector, clipped to a squared length of `most`, to its total, as often as `rows` says."""
        from dpcore.records.compiled import subtract_gradients  # noqa: PLC0415 - imports Numba

        theta, table = np.array(self.theta, dtype=np.int64), weight_table(self.loss)
        shift = fraction_bits + THETA_BITS - STEP_BITS
        for first, block in edges_in_doubles(records, fraction_bits):
            vectors = block if self.basis is None else self.basis.products(block)
            subtract_gradients(vectors, theta, table, shift, most, *rows.of(first, len(block)), totals)
            if progress is not None:
                progress(first + len(block), records.rows)

    def _class_weights_of(self, records: Records) -> NDArray[np.int64]:
        """How often each row counts for its class: int64 (rows,)."""
        found = np.ones(records.rows, dtype=np.int64)
        for code, weight in zip(self.class_codes, self.class_weights, strict=False):
            found[records.labels == code] = weight
        return found

    @property
    def class_codes(self) -> Sequence[int]:
        """The labels of the classes, in the order of `class_weights`."""
        return (-1, 1)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The sum of clipped gradients in real units: (d,)."""
        return self._in_real_units(total, fraction_bits)

    def _in_real_units(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        exact = np.ldexp(total.astype(np.float64), -self._unit_bits(fraction_bits))
        return np.asarray(exact / self.largest_class_weight)

    @property
    def name(self) -> str:
        """See `QueryKind`."""
        return "gradient"

    def words(self) -> str:
        """See `QueryKind`."""
        where = "" if self.basis is None else " in the learner's basis"
        unit = "record" if self.persons is None else "person"
        classes = f", {class_weights_in_words(self.class_weights)}" if self.class_weights else ""
        counted = " and counted by its weight" if self.weighted else ""
        clipped = f"each {unit}'s clipped to {float(self.clip):.3g}{counted}"
        return f"the gradient of the {self.loss} loss{where}, {clipped}{classes}"

    @property
    def contents(self) -> str:
        """See `QueryKind`."""
        return "a gradient"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        unit = f"2^-{self._unit_bits(fraction_bits)}"
        if not self.class_weights:
            return {"d": d, "unit": unit, "loss": self.loss}
        weights = list(self.class_weights)
        return {"d": d, "unit": f"{unit} / {max(weights)}", "loss": self.loss, "class_weights": weights}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `QueryKind`."""
        return (QUESTION_SEEN,)

    @property
    def takes_parts(self) -> bool:
        """See `QueryKind`."""
        return True

    @property
    def needs_rows(self) -> bool:
        """See `QueryKind`."""
        return self.persons is not None

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
        clipped = gradient_squared(self.clip, setting.fraction_bits, self.weight_bits)
        # No vector that is added is longer than max k times the clipped one of a record, or W times that of a person.
        squared = factor_of(self.persons) ** 2 * clipped * self.largest_class_weight**2
        values, honest = self.length(setting.d), setting.honest_parties
        # One vector of length C where the unit leaves, the distance of two where it is replaced.
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

    def _check_class_weights(self) -> None:
        weights = self.class_weights
        if not weights:
            return
        if not self.weighs_classes:
            raise PlanError("only a label of classes has class weights: leave them out")
        if len(weights) != len(self.class_codes):
            classes = len(self.class_codes)
            raise PlanError(f"there are {len(weights)} class weights for {classes} classes: give each class one")
        if min(weights) < 1 or max(weights) > LARGEST_CLASS_WEIGHT or gcd(*weights) != 1 or len(set(weights)) == 1:
            raise PlanError(
                f"class weights are {list(weights)}: give whole numbers from 1 to {LARGEST_CLASS_WEIGHT} without a "
                "common factor that are not all alike"
            )

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


@dataclass(frozen=True)
class LabelGradientQuery(GradientQuery, ABC):
    """A gradient query over a label of several classes, a number, a count or a time to an event.

    It reads each row with its label, where `GradientQuery` reads edges.
    """

    @abstractmethod
    def _adder(self, fraction_bits: int, most: int) -> AddRows:
        """What adds the gradients of usable rows, each clipped to a squared length of `most`."""

    def _add(
        self,
        records: Records,
        fraction_bits: int,
        most: int,
        rows: Rows,
        totals: NDArray[np.int64],
        progress: Progress | None = None,
    ) -> None:
        """See `GradientQuery`."""
        add = self._adder(fraction_bits, most)
        for first, block, labels in labelled_rows(records, fraction_bits, CACHED_ROWS):
            vectors = block if self.basis is None else self.basis.apply(block)
            usable = records.usable[first : first + len(block)]
            add(vectors[usable], labels[usable], *rows.of(first, len(block), usable), totals)
            if progress is not None:
                progress(first + len(block), records.rows)
