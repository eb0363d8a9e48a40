"""PARITY_d: concepts c_r over {0,1}^d with c_r(x) = <r, x> mod 2; learned privately by Gaussian elimination.

Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith (SIAM J. Comput. 2011, section 4). A run fails with probability 1
- c, independently of the rows. Otherwise it keeps each row with probability p. It fails if the equations <r, x> = y mod
2 of the kept rows are inconsistent, and else answers a uniformly random solution. There are R runs; the first answer is
published, or that all failed. It is (epsilon, 0)-differentially private with

    exp(epsilon) = max{ (1 + p) / (1 - p)^2 (1 - (1 - c + c p)^R) / (1 - (1 - c)^R),  (1 + c p / (1 - c))^R }.

With beta_0 = (1 - c)^R, n >= log((2^d - 1) / (2 (beta - beta_0))) / -log(1 - p alpha) rows suffice for alpha and beta.

The learner needs the rows themselves, at one party or a curator (Kearns, JACM 1998; Blum et al., STOC 1994). It does
not tolerate label noise. Proof: docs/explanation/proofs.md, "Parities".
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import gmpy2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.rationals import check_rational
from dpcore.pac.examples import bit_rows_of
from dpcore.pac.guarantee import PacGuarantee, check_accuracy
from dpcore.randomness.sources import RandomSource
from dpcore.research.pac.gf2 import solve

COIN_BITS = 32
"""Probabilities are multiples of 2^-32, so that a coin is one comparison of a random word, exactly."""

# (1 - c)^R is kept at beta_0; with c = 1/64 the failure ratio is within 1 % of its limit for large R.
_GO = Fraction(1, 64)
# For larger epsilon, p changes by less than 2^-32.
_LARGEST_EPSILON = 64
_SPLITS = 16


@dataclass(frozen=True)
class ParityCoins:
    """The learner's probabilities: `keep` p, that a run keeps a row; `go` c, that it runs at all; and `runs` R.

    Raises PlanError if keep or go is not in (0, 1) and a multiple of 2^-32, or runs is not from 1 to 2^16.
    """

    keep: Fraction
    go: Fraction
    runs: int

    def __post_init__(self) -> None:
        for name, chance in (("keep", self.keep), ("go", self.go)):
            if not (0 < chance < 1 and (1 << COIN_BITS) % chance.denominator == 0):
                raise PlanError(f"{name} is {chance}: give a multiple of 2^-{COIN_BITS} strictly between 0 and 1")
        if not 1 <= self.runs <= 1 << 16:
            raise PlanError(f"{self.runs} runs: give a number from 1 to 2^16")

    @property
    def failure(self) -> Fraction:
        """beta_0: the probability that every run fails by its own coin."""
        return (1 - self.go) ** self.runs

    @property
    def largest_ratio(self) -> Fraction:
        """exp(epsilon) of the module's docstring, exactly."""
        largest = self._largest_ratio()
        return Fraction(int(largest.numerator), int(largest.denominator))

    @property
    def epsilon(self) -> float:
        """The learner's epsilon, rounded up."""
        with gmpy2.context(precision=128, round=gmpy2.RoundUp):
            above = gmpy2.log(gmpy2.mpfr(self._largest_ratio()))
        return math.nextafter(float(above), math.inf)

    def within(self, epsilon: Fraction) -> bool:
        """Whether the learner is (epsilon, 0)-differentially private; rounding never favours True."""
        with gmpy2.context(precision=256, round=gmpy2.RoundDown):
            below = gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(min(epsilon, _LARGEST_EPSILON))))
        return bool(self._largest_ratio() <= gmpy2.mpq(below))

    def _largest_ratio(self) -> gmpy2.mpq:
        p, c = gmpy2.mpq(self.keep), gmpy2.mpq(self.go)
        answers = (1 + p) / (1 - p) ** 2 * (1 - (1 - c + c * p) ** self.runs) / (1 - (1 - c) ** self.runs)
        failure = (1 + c * p / (1 - c)) ** self.runs
        return max(answers, failure)


def parity_coins(epsilon: Fraction, failure: float) -> ParityCoins:
    """The coins that keep the most rows, among those within epsilon whose failure probability is at most `failure`.

    The most for c = 1/64, up to a step of 2^-32. Raises PlanError if epsilon is not positive or too small to keep any
    row, ConfigurationError if failure is not in (0, 1).
    """
    check_rational("epsilon", epsilon)
    if not 0 < failure < 1:
        raise ConfigurationError(f"failure is {failure}: give a probability strictly between 0 and 1")
    runs = math.ceil(math.log(failure) / math.log1p(-float(_GO)))
    runs += (1 - _GO) ** runs > failure
    one = 1 << COIN_BITS
    kept, beyond = 0, one
    while beyond - kept > 1:
        middle = (kept + beyond) // 2
        if ParityCoins(Fraction(middle, one), _GO, runs).within(epsilon):
            kept = middle
        else:
            beyond = middle
    if kept == 0:
        raise PlanError(f"epsilon is {float(epsilon):.3g}: too small for a coin of {COIN_BITS} bits; raise it")
    return ParityCoins(Fraction(kept, one), _GO, runs)


def parity_guarantee(d: int, alpha: float, beta: float, epsilon: Fraction) -> tuple[ParityCoins, PacGuarantee]:
    """Coins for `learn_parity` over {0,1}^d, and its guarantee, for the fewest rows that the proof allows.

    beta is shared between the coins' failure and a wrong answer, in sixteenths. Raises ConfigurationError or PlanError
    if an argument is out of range.
    """
    check_accuracy(alpha, beta)
    if isinstance(d, bool) or not isinstance(d, int) or d < 1:
        raise ConfigurationError(f"points of {d} bits: give an integer of at least 1")
    log_wrong = d * math.log(2) + math.log1p(-(2.0**-d))
    options = []
    for part in range(1, _SPLITS):
        coins = parity_coins(epsilon, beta * part / _SPLITS)
        left = beta - float(coins.failure)
        rows = (log_wrong - math.log(2 * left)) / -math.log1p(-float(coins.keep) * alpha)
        # A margin for the rounding of these few operations.
        options.append((max(1, math.ceil(rows * (1 + 1e-9))), -part, coins))
    rows, _, coins = min(options, key=lambda option: option[:2])
    return coins, PacGuarantee(alpha, beta, epsilon, Fraction(0), rows, "at one party or a curator")


def learn_parity(
    points: ArrayLike, labels: ArrayLike, coins: ParityCoins, random: RandomSource
) -> NDArray[np.bool_] | None:
    """The r (d,) of a parity c_r, or None if the learner fails; (coins.epsilon, 0)-differentially private.

    points: (n, d) bits. labels: (n,), {0, 1} or {-1, +1}. Failure reveals something about the rows too, which the
    privacy proof includes; which run answered, and how long it took, must not be disclosed. Runs at one party or a
    curator that sees all rows. Raises ShapeError or ConfigurationError if points or labels are not bits.
    """
    rows, right = bit_rows_of(points, labels)
    # Runs that fail by their own coin read no row.
    for _ in range(int(flips(coins.go, coins.runs, random).sum())):
        kept = flips(coins.keep, len(rows), random)
        solutions = solve(rows[kept], right[kept])
        if solutions is not None:
            return solutions.draw(random)
    return None


def flips(chance: Fraction, count: int, random: RandomSource) -> NDArray[np.bool_]:
    """Independent Booleans (count,), each True with probability `chance`, a multiple of 2^-32."""
    words = np.frombuffer(random.bytes(count * COIN_BITS // 8), dtype="<u4").astype(np.uint64)
    return words < np.uint64(int(chance * (1 << COIN_BITS)))
