"""Whether the noise of a plan leaves a signal: the noise against the sampling error, and what an answer is worth.

An answer is the sum of `draws` independent draws (rows; of rados, signatures) and noise. Per coordinate, v bounds the
sum's standard deviation over the draws and s is the noise's.

Noise over sampling, r = s / v. A variable in an interval of length l has a variance of at most l^2 / 4 (Popoviciu,
1935), so v = sqrt(draws) for values in [-1, 1], and sqrt(draws) / 2 for those in [0, 1]:

    predicates                            in [0, 1]
    moments                               edges and products of two coordinates in [-1, 1], squares in [0, 1]
                                          (dpcore.records.encoding, dpcore.records.feature_map), and all in less if
                                          clipping makes vectors shorter (`moments_signal`)
    coordinates of a gradient             in [-C, C], and without a basis in [-1, 1], since a weight is in [0, 1]
                                          (dpcore.records.margin_weights)

A rado takes a row with probability p, so v^2 = p (1 - p) rows. As v is an upper bound, r is a lower bound: the noise is
never overstated. The numbers of one answer need not have the same r: of moments, products of two coordinates have 5/7
of the noise of squares. The least r of all released numbers counts.

Worth. The error has the variance s^2 + v^2 = (1 + r^2) v^2. A mean over draws / (1 + r^2) draws without noise has the
same variance: so many rows (or rados) are worth as much. As r is a lower bound for every number, no number is worth
more. How much less it is follows from the rows, which no plan knows: of products of columns that vary little, several
times less. T answers to one question with independent noise combine, with weights 1 / s_t^2, to a noise of 1 / s^2 =
sum 1 / s_t^2, the least of all unbiased combinations (Gauss and Markov). Answers of several kinds may be to one
question: the gradient of the logistic loss at 0 is half of the sum of edges. So all answers of a plan count as answers
to one question, which is never too little.

The alarm is about all numbers of an answer together, so it compares root mean squares over them. A vector of length at
most C has variances that sum to at most C^2, so over d coordinates their root mean square is at most C / sqrt(d).
The alarm: r > 1, and an answer about k coordinates is worth at most 2 k draws. Of the labellings of 2 k points in
general position in R^k, half can be realised by linear classifiers, and of fewer points more (Cover, IEEE Transactions
on Electronic Computers 14, 1965, theorem 1). So even labels by coin flips would be fitted with probability 1/2 or more:
such an answer cannot tell a signal from noise. For one statistic, k = 1, its error is at least that of two rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpcore.accounting.protection import GaussianProtection
from dpcore.accounting.sensitivity import PRODUCT_WEIGHT, SQUARE_WEIGHT
from dpcore.numbers.decimals import least_decimal, lower_digits, upper_digits
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.margin_weights import WEIGHT_BITS
from learner.planning import Plan
from learner.requests import HALF
from wire.query import setting_of

_SEPARABLE_HALF = 2
"""Points for each coordinate of which half of the labellings are linearly separable."""


@dataclass(frozen=True)
class Signal:
    """A plan's noise against its signal.

    noise_over_sampling: r, the least of all released numbers. draws: rows, or rados. coordinates: k. what: "rows" or
    "rados". together: r of root mean squares over all numbers of an answer, for the alarm; None if it is the same.
    numbers: what the noise is on, in words.
    """

    noise_over_sampling: float
    draws: int
    coordinates: int
    what: str = "rows"
    together: float | None = None
    numbers: str = "every released number"

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

    The alarm is about the kind that tells most; others may tell less without harm. left: the part of the budget that
    is left for more answers. It counts as answers of the kind that is the most exact for its part. The noise of an
    answer with a part p has a variance in proportion to 1 / p, and to 1 / p^2 if it is Laplace noise (is_pure).
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
    """The noise of a design's plan.

    share_sd: the standard deviation of a party's share (for a noised table, of a record's noise), in units of
    2^-fraction_bits, for moments in the units of the sum it is added to. honest_parties: h. noise_sd: the standard
    deviation of all parties' noise on one coordinate of a rado, or of the sum of edges, in real units.
    product_noise_sd: on a sum of products, the larger of the two; only for moments. spread: the largest standard
    deviation of a rado's coordinate over the draw of signatures; for moments that of a sum over sampling, sqrt(rows).
    """

    share_sd: int
    honest_parties: int
    fraction_bits: int
    noise_sd: float
    product_noise_sd: float | None
    spread: float


def noise_of(plan: Plan) -> Noise:
    """The noise of a design that has Gaussian noise."""
    query, bits, protection = plan.query, plan.query.encoding.fraction_bits, gaussian_of(plan)
    rows, units = _rows(plan), float(protection.share_sigma)
    if protection.is_shared:
        units *= math.sqrt(query.max_parties)
    products = None
    if isinstance(query.kind, MomentsQuery):
        noise_sd = math.ldexp(units, -bits) / query.kind.edge_multiplier
        products = math.ldexp(units, -2 * bits) / SQUARE_WEIGHT
        spread = math.sqrt(rows)
    else:
        assert isinstance(query.kind, RadosQuery), "designs are of rados and moments"
        inclusion = float(query.kind.design.support or HALF)
        spread = math.sqrt(rows * inclusion * (1 - inclusion))
        # A rado has the noise of each party, or of each record in it.
        noise_sd = math.ldexp(units, -bits) * (1.0 if protection.is_shared else math.sqrt(rows * inclusion))
    honest = protection.shares(query.honest_parties)
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
    d = query.d
    if isinstance(kind, StatisticQuery):
        noise_sd = math.ldexp(kind.noise.deviation(parties), -bits)
        return Signal(2.0 * noise_sd / math.sqrt(rows), rows, 1), noise_sd
    if isinstance(kind, MomentsQuery):
        return moments_signal(kind, d, bits, rows=rows, parties=parties)
    assert isinstance(kind, GradientQuery), "a budget has three kinds of queries"
    noise_sd = math.ldexp(kind.share_sigma * math.sqrt(parties), -(bits + WEIGHT_BITS))
    clip = float(kind.clip)
    largest = min(1.0, clip) if kind.basis is None else clip
    spread = math.sqrt(rows)
    return Signal(noise_sd / (largest * spread), rows, d, together=noise_sd * math.sqrt(d) / (clip * spread)), noise_sd


def moments_signal(kind: MomentsQuery, d: int, fraction_bits: int, *, rows: int, parties: int) -> tuple[Signal, float]:
    """That of moments, and the least standard deviation of all parties' noise on a released number.

    See `dpcore.queries.moments.MomentsQuery.decode` for the weights. The square of the bias is not released. A vector
    is no longer than R, so a coordinate is at most R, a square at most R^2 and a product at most R^2 / 2.
    """
    sigma, longest = kind.share_sigma * math.sqrt(parties), float(kind.clip.norm_bound)
    edge, product = math.ldexp(sigma, -fraction_bits) / kind.edge_multiplier, math.ldexp(sigma, -2 * fraction_bits)
    found = [(edge, min(1.0, longest))]
    if d > 1:
        found.append((product / PRODUCT_WEIGHT, min(1.0, longest**2 / 2.0)))
    if d > int(kind.clip.bias):
        found.append((product / SQUARE_WEIGHT, min(1.0, longest**2) / 2.0))
    least = min(noise / spread for noise, spread in found) / math.sqrt(rows)
    return Signal(least, rows, d), min(noise for noise, _ in found)


def _worth(draws: int, noise_over_sampling: float) -> float:
    return draws / (1.0 + noise_over_sampling**2)


def _count(worth: float) -> str:
    """An upper bound: whole draws, and below ten two digits."""
    return f"{int(least_decimal(worth, 0)):,}" if worth >= 10 else upper_digits(worth, 2)
