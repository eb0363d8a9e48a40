"""Whether the noise of a plan leaves a signal: the noise against the sampling error, and what an answer is worth.

An answer is the sum of `draws` independent draws (rows; of rados, signatures) and noise. Per coordinate, v bounds the
sum's standard deviation over the draws and s is the noise's.

r = s / v is a lower bound, so the noise is never overstated. v = sqrt(draws) for values in [-1, 1] (moments,
gradients), half of that for [0, 1] (predicates); of rados v^2 = p (1 - p) rows.

- Worth: a mean over draws / (1 + r^2) draws without noise has the same error. No number is worth more. All answers of a
  plan count as answers to one question, which is never too little.
- The alarm: r > 1 in the root mean square over an answer's k coordinates, and the answer is worth at most 2 k draws.
  Even labels by coin flips would then be fitted with probability 1/2 or more (Cover, IEEE Transactions on Electronic
  Computers 14, 1965, theorem 1).

Proof: docs/explanation/proofs.md, "Worth of a plan".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import PRODUCT_WEIGHT, SQUARE_WEIGHT
from dpcore.accounting.protection import GaussianProtection
from dpcore.numbers.rationals import least_decimal, lower_digits, upper_digits
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from learner.planning import Plan
from learner.requests import HALF
from wire.query import setting_of

_WEAK = Fraction(1, 3)
"""The r of a caution, by a measurement: Poisson regressions of 5,912 persons with 20 coordinates explain 0.91 of what a
pooled one does at r = 0.28, 0.7 at 0.4 and 0.75, and nothing at 2.3 (docs/how-to/persons.md)."""
_SEPARABLE_HALF = 2
"""Points for each coordinate of which half of the labellings are linearly separable."""


@dataclass(frozen=True)
class Signal:
    """A plan's noise against its signal."""

    noise_over_sampling: float
    """r, the least of all released numbers."""
    draws: int
    """Rows, or rados."""
    coordinates: int
    """k."""
    what: str = "rows"
    """"rows", "persons" or "rados"."""
    together: float | None = None
    """r of root mean squares over all numbers of an answer, for the alarm; None if it is the same."""
    numbers: str = "every released number"
    """What the noise is on, in words."""

    @property
    def worth(self) -> float:
        """The number of draws whose sum, without noise, is as exact; at most, for every number."""
        return _worth(self.draws, self.noise_over_sampling)

    @property
    def alarming(self) -> float:
        """The r that the alarm compares."""
        return self.noise_over_sampling if self.together is None else self.together

    @property
    def is_lost(self) -> bool:
        """Whether the noise exceeds the signal: the alarm."""
        return self.alarming > 1.0 and self._worth_together <= _SEPARABLE_HALF * self.coordinates

    @property
    def is_weak(self) -> bool:
        """Whether the noise, though it does not exceed the signal, is more than a third of the sampling error."""
        return self.alarming > _WEAK

    @property
    def worth_of_a_coordinate(self) -> float:
        """What an answer is worth by the alarm's r, over its coordinates."""
        return self._worth_together / self.coordinates

    @property
    def _worth_together(self) -> float:
        return _worth(self.draws, self.alarming)

    def sentence(self) -> str:
        """The comparison, in words; for people, not a warning."""
        return (
            f"The noise is at least {lower_digits(self.noise_over_sampling, 3)} times the sampling error of "
            f"{self.numbers}: such a number is at most as exact as one without noise over {_count(self.worth)} of "
            f"the {self.draws:,} {self.what}, and less exact where values vary less than they could, as products of "
            "columns do."
        )

    def caution(self, helps: Sequence[str]) -> str:
        """That the budget is too small to learn well, in words. helps: as of `warning`."""
        advice = f" What would help: {', or '.join(helps)}." if helps else ""
        return (
            f"the budget is too small to learn nearly as well as without privacy: over all numbers of an answer the "
            f"noise is {lower_digits(self.alarming, 3)} times the sampling error, and above a third an estimator may "
            f"lose a quarter of what it could explain, or more.{advice}"
        )

    def warning(self, helps: Sequence[str]) -> str:
        """The alarm, in words. helps: what would help, in words."""
        about = f"{self.coordinates:,} coordinates" if self.coordinates > 1 else "even one number"
        advice = f" What would help: {', or '.join(helps)}." if helps else ""
        return (
            f"the noise exceeds the signal. It is at least {lower_digits(self.alarming, 3)} times the sampling error: "
            f"the answer is worth at most {_count(self._worth_together)} {self.what} without noise, too few for "
            f"{about}.{advice}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Figures by name, in JSON's types."""
        return {
            "noise_over_sampling": self.noise_over_sampling,
            "noise_over_sampling_together": self.alarming,
            "worth": self.worth,
            "worth_of": self.what,
            "worth_is_at_most": True,
        }


@dataclass(frozen=True)
class AskedSignal:
    """An answer's signal, its kind, and the part of the budget that it takes."""

    signal: Signal
    kind: str
    part: float


def signal_of_all(answers: Sequence[AskedSignal], *, left: float, is_pure: bool) -> Signal:
    """That of a plan of several answers: r for any number that they give together, and the alarm of the best kind.

    The alarm is about the kind that tells most; others may tell less without harm. left: the part of the budget that is
    left for more answers. It counts as answers of the kind that is the most exact for its part.

    The noise of an answer with a part p has a variance in proportion to 1 / p, and to 1 / p^2 if it is Laplace noise
    (is_pure).
    """
    by_kind: dict[str, list[Signal]] = {}
    for each in answers:
        by_kind.setdefault(each.kind, []).append(each.signal)
    best = max(map(combined, by_kind.values()), key=lambda signal: signal.worth_of_a_coordinate)
    precisions = [1.0 / each.signal.noise_over_sampling**2 for each in answers]
    if left:
        rates = (1.0 / (each.signal.noise_over_sampling**2 * each.part ** (1 + is_pure)) for each in answers)
        precisions.append(max(rates) * left ** (1 + is_pure))
    return replace(best, noise_over_sampling=1.0 / math.sqrt(math.fsum(precisions)), together=best.alarming)


def combined(answers: Sequence[Signal]) -> Signal:
    """That of several answers to one question, over the same draws."""
    apart, together = (
        1.0 / math.sqrt(math.fsum(1.0 / r**2 for r in ratios))
        for ratios in ([each.noise_over_sampling for each in answers], [each.alarming for each in answers])
    )
    return replace(answers[0], noise_over_sampling=apart, together=together)


@dataclass(frozen=True)
class Noise:
    """The noise of a design's plan."""

    share_sd: int
    """The standard deviation of a party's share (for a noised table, of a record's noise), in units of
    2^-fraction_bits, for moments in the units of the sum it is added to."""
    honest_parties: int
    """Those that are counted if every party answers."""
    fraction_bits: int
    noise_sd: float
    """The standard deviation of all parties' noise on one coordinate of a rado, or of the sum of edges, in real units.
    """
    product_noise_sd: float | None
    """On a sum of products, the larger of the two; only for moments."""
    spread: float
    """The largest standard deviation of a rado's coordinate over the draw of signatures; for moments that of a sum over
    sampling, sqrt(rows)."""


def noise_of(plan: Plan) -> Noise:
    """The noise of a design that has Gaussian noise."""
    query, bits, protection = plan.query, plan.query.encoding.fraction_bits, gaussian_of(plan)
    rows, shares = _rows(plan), query.kind.shares
    units = float(protection.share_sigma) * (math.sqrt(query.max_parties) if protection.is_shared else 1.0)
    if shares is not None:
        units = shares.deviation(query.max_parties)
    products = None
    if isinstance(query.kind, MomentsQuery):
        noise_sd = units * query.kind.sum_unit(bits)
        products = units * query.kind.product_unit(bits) / SQUARE_WEIGHT
        spread = math.sqrt(rows)
    else:
        assert isinstance(query.kind, RadosQuery), "designs are of rados and moments"
        inclusion = float(query.kind.design.support or HALF)
        spread = math.sqrt(rows * inclusion * (1 - inclusion))
        # A rado has the noise of each party, or of each record in it.
        noise_sd = math.ldexp(units, -bits) * (1.0 if protection.is_shared else math.sqrt(rows * inclusion))
    honest = protection.shares(query.honest_of(query.max_parties))
    return Noise(protection.share_sigma, honest, bits, noise_sd, products, spread)


def signal_of(plan: Plan, noise: Noise) -> Signal:
    """The noise of a design against its signal."""
    protection, rows, d = gaussian_of(plan), _rows(plan), plan.query.d
    if noise.product_noise_sd is not None:
        return measured(plan, rows, plan.query.max_parties)[0]
    if not protection.is_shared:
        # All rados are of one table, whose noise of every row they share: more rados do not reduce it.
        return Signal(math.ldexp(noise.share_sd, -noise.fraction_bits), rows, d)
    signal = Signal(noise.noise_sd / noise.spread, protection.rados, protection.values // protection.rados, "rados")
    # Of a protected column, the other coordinates of a rado have no noise.
    return replace(signal, numbers="every value of the sensitive column") if protection.scope == "joint" else signal


def gaussian_of(plan: Plan) -> GaussianProtection:
    """The protection of a design that has Gaussian noise."""
    protection = plan.query.kind.protection(setting_of(plan.query))
    assert isinstance(protection, GaussianProtection), "a plan of these designs has Gaussian noise"
    return protection


def _rows(plan: Plan) -> int:
    assert plan.party_rows is not None, "made-up parties state their rows"
    return sum(plan.party_rows)


def measured(plan: Plan, rows: int, parties: int) -> tuple[Signal, float]:
    """The noise of a query against its signal (radofed.planning.signal), and its standard deviation.

    Of all values the least: those of moments have noise of several sizes.
    """
    query, kind, bits = plan.query, plan.query.kind, plan.query.encoding.fraction_bits
    d, what = query.d, "rows" if kind.persons is None else "persons"
    if isinstance(kind, StatisticQuery):
        local = isinstance(kind.noise, LocalResponse)
        noise_sd = math.ldexp(kind.noise.deviation(rows if local else parties), -kind.unit_bits(bits))
        return Signal(2.0 * noise_sd / math.sqrt(rows), rows, 1, what), noise_sd
    if isinstance(kind, MomentsQuery):
        return moments_signal(kind, d, bits, rows=rows, parties=parties)
    assert isinstance(kind, GradientQuery), "a budget has three kinds of queries"
    noise_sd = kind.shares.deviation(parties) * kind.unit(bits)
    clip = float(kind.clip)
    largest = min(1.0, clip) if kind.basis is None else clip
    spread = math.sqrt(rows)
    together = noise_sd * math.sqrt(d) / (clip * spread)
    return Signal(noise_sd / (largest * spread), rows, d, what, together=together), noise_sd


def moments_signal(kind: MomentsQuery, d: int, fraction_bits: int, *, rows: int, parties: int) -> tuple[Signal, float]:
    """That of moments, and the least standard deviation of all parties' noise on a released number.

    See `dpcore.queries.moments.MomentsQuery.decode` for the weights. The square of the bias is not released. A vector
    is no longer than R, so a coordinate is at most R, a square at most R^2 and a product at most R^2 / 2.
    """
    sigma, longest = kind.shares.deviation(parties), float(kind.clip.norm_bound)
    edge, product = sigma * kind.sum_unit(fraction_bits), sigma * kind.product_unit(fraction_bits)
    found = [(edge, min(1.0, longest))]
    if d > 1:
        found.append((product / PRODUCT_WEIGHT, min(1.0, longest**2 / 2.0)))
    if d > int(kind.clip.bias):
        found.append((product / SQUARE_WEIGHT, min(1.0, longest**2) / 2.0))
    least = min(noise / spread for noise, spread in found) / math.sqrt(rows)
    return Signal(least, rows, d, "rows" if kind.persons is None else "persons"), min(noise for noise, _ in found)


def _worth(draws: int, noise_over_sampling: float) -> float:
    return draws / (1.0 + noise_over_sampling**2)


def _count(worth: float) -> str:
    """An upper bound: whole draws, and below ten two digits."""
    return f"{int(least_decimal(worth, 0)):,}" if worth >= 10 else upper_digits(worth, 2)
