"""Answers to questions that earlier answers chose: how far they are from the truth of new rows.

S is m independent rows, T the answers so far, phi in [0, 1] a predicate that T chose. Half-widths of a sample say
nothing then: T may have been used to find the phi that fits S. There are three ways to a bound (`Way`):

- split: each question is about rows of its own, a piece of `dpcore.records.held_back` (Theorems 6 and 7 of Balcan's
  lecture notes, 2015).

- information: the density of T given S is at most e^I times one that does not depend on S, so what has probability q
  for a fixed phi has at most e^I q: max-information (Dwork et al., NIPS 2015). I adds up over answers: `nats`.

- privacy: T is differentially private, so E[mean of phi over S | T] is close to E[phi] (`Leak.bias`), and the answer is
  as close to that posterior mean as the noise's posterior mean is to 0. This is the transfer theorem (Jung et al., ITCS
  2020; before it Dwork et al., STOC 2015, and Bassily et al., STOC 2016).

The constants of the last two are computed, and smaller than those published. Proof: docs/explanation/proofs.md,
"Adaptive questions".
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.mixed import PureLoss
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import ConfigurationError
from dpcore.numbers.distributions import quantile
from dpcore.statistics.accuracy import SharedNoise
from dpcore.statistics.pac import GaussianCounts, count_noise

_CLOSE = 1 + 1e-9
"""Far above the rounding errors here, and above the slack of integer noise counted as continuous noise."""
_ORDERS = 1 / (1 + np.exp(-np.linspace(-20, 20, 801)))
MOST_QUESTIONS = 1 << 16


class Way(StrEnum):
    """Why an answer holds for new rows, if an earlier one chose its question."""

    SPLIT = "split"
    INFORMATION = "information"
    PRIVACY = "privacy"

    @property
    def words(self) -> str:
        """As a clause."""
        return _WORDS[self]


_WORDS = {
    Way.SPLIT: "each question is about rows of its own",
    Way.INFORMATION: "answers with noise tell little about the rows",
    Way.PRIVACY: "the answers are differentially private",
}


@dataclass(frozen=True)
class Adaptive:
    """A series of questions of which each may depend on the answers before it. Raises ConfigurationError."""

    questions: int
    """k, the most of them; the failure probability is divided by it."""
    way: Way | None = None
    """None for the one that promises the smaller tolerance to the last question, if all are like the first."""

    def __post_init__(self) -> None:
        if isinstance(self.questions, bool) or not 2 <= self.questions <= MOST_QUESTIONS:
            raise ConfigurationError(
                f"{self.questions} adaptive questions: give the most that will be asked, from 2 to {MOST_QUESTIONS}"
            )


@dataclass(frozen=True)
class Leak:
    """What answers tell about one record, which is replaced: they are mu-GDP and, if epsilon is finite, epsilon-DP."""

    epsilon: float = 0.0
    mu_squared: float = 0.0

    @classmethod
    def of(cls, distribution: ShiftDistribution | PureLoss) -> "Leak":
        """Of one release. Pure noise of epsilon is mu-GDP with Phi(mu / 2) = 1 / (1 + exp(-epsilon))."""
        if isinstance(distribution, ShiftDistribution):
            # A cut tail has no bound on the shift.
            return cls(math.inf, math.inf if distribution.trimmed else float(distribution.upper.max()))
        epsilon = float(distribution.epsilon(0).upper)
        return cls(epsilon, (2.0 * quantile(1.0 / (1.0 + math.exp(epsilon)))) ** 2 if epsilon < 600 else math.inf)

    def __add__(self, other: "Leak") -> "Leak":
        """Of both, if either may depend on the other's answers."""
        return Leak(self.epsilon + other.epsilon, self.mu_squared + other.mu_squared)

    def times(self, count: float) -> "Leak":
        """Of `count` such releases."""
        return Leak(self.epsilon * count, self.mu_squared * count)

    def bias(self, failure: float) -> float:
        """With probability >= 1 - failure, |E[mean of phi over S | T] - E[phi]| is at most this, for all phi at once.

        tanh(epsilon / 4) with certainty; and for any c, with chance W = Phi(c - mu/2) + Phi(c + mu/2) + 2
        exp(-mu^2 / 8) Phi(c), it is at most (Phi(c + mu/2) - Phi(c - mu/2)) / W.
        """
        certain = math.tanh(self.epsilon / 4.0)
        if not self.mu_squared < 1e4:
            return min(1.0, certain * _CLOSE)
        mu = math.sqrt(self.mu_squared)
        low, high = -40.0, 0.0
        for _ in range(100):
            middle = (low + high) / 2.0
            low, high = (middle, high) if _chance(middle, mu) <= failure else (low, middle)
        gap = _normal(low + mu / 2.0) - _normal(low - mu / 2.0)
        return min(certain * _CLOSE, gap / _chance(low, mu) * _CLOSE, 1.0)


def _chance(c: float, mu: float) -> float:
    return _normal(c - mu / 2.0) + _normal(c + mu / 2.0) + 2.0 * math.exp(-mu * mu / 8.0) * _normal(c)


def _normal(z: float) -> float:
    """Phi(z)."""
    return math.erfc(-z / math.sqrt(2.0)) / 2.0


def generalisation_gap(epsilon: Fraction | float, rows: int, failure: float) -> float:
    """How much more a concept that an epsilon-private learner chose errs on new rows than on its sample, at most.

    tanh(epsilon / 4) + root(ln(1 / failure) / (2 rows)), with probability >= 1 - failure: given the concept, the mean
    error is a sum of terms whose expectations, given the rows before, are within tanh(epsilon / 4) of the true error
    (Azuma). Nissim's slide "over sample vs. over distribution" (2017) has epsilon and O(ln(1 / failure) / epsilon^2).
    """
    if rows < 1 or not 0.0 < failure < 1.0:
        raise ConfigurationError(f"{rows} rows and failure {failure}: give at least 1, and a probability")
    return math.tanh(float(epsilon) / 4.0) + math.sqrt(-math.log(failure) / (2.0 * rows))


def nats(noise: SharedNoise, width: float) -> float:
    """The most that one answer adds to I, in nats: log(1 + 2 w p) for a sum in an interval of w on both sides.

    width: w, in units of 1. p: the largest probability of a value of the noise, which is in units of 2^-fraction_bits
    and unimodal. The reference density is p on the interval, and falls as the noise does outside.
    """
    return math.log1p(math.ldexp(2.0 * width, noise.fraction_bits) * _peak(noise)) * _CLOSE


def _peak(noise: SharedNoise) -> float:
    """The largest probability of a value: of a sum of shares, at most that of a part of them."""
    shares = noise.shares
    if isinstance(shares, GaussianShares):
        log_error = shares.log_ratio(noise.parties)
        sigma = shares.deviation(noise.parties)
        return min(1.0, math.exp(log_error) / (sigma * math.sqrt(2.0 * math.pi)))
    # tanh(1 / (2 t)) is P(X = 0) for discrete Laplace noise of scale t, which `shares` shares add up to.
    return math.tanh(1.0 / (2.0 * float(shares.scale))) if noise.parties >= shares.needed(noise.parties) else 1.0


@dataclass(frozen=True)
class PosteriorNoise:
    """The mean of the noise on each sum, given all answers: a `dpcore.statistics.accuracy.SumNoise`.

    Jensen's inequality: its moment generating function is at most the noise's, so Chernoff's bound holds for it.
    """

    noise: SharedNoise

    def half_width(self, values: int, failure: float) -> float:
        """With probability >= 1 - failure it is at most this for each of `values` sums."""
        least = math.log(2.0 * values / failure)
        counts = count_noise(self.noise.shares, self.noise.parties, self.noise.fraction_bits)
        if isinstance(counts, GaussianCounts):
            return counts.sigma * math.sqrt(2.0 * least) * _CLOSE
        orders: list[float] = (counts.reach * _ORDERS).tolist()
        return min((counts.log_mgf(s) + least) / s for s in orders) * _CLOSE

    @property
    def deviation(self) -> float:
        """At most the noise's."""
        return self.noise.deviation
