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

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.sources import RandomSource
from dpcore.statistics.pac import PacGuarantee, bit_rows_of, check_accuracy

# Linear equations over GF(2) by Gaussian elimination on packed 64-bit words.


Bits = NDArray[np.bool_]
WORD = 64


@dataclass(frozen=True, eq=False)
class SolutionSpace:
    """All r in {0,1}^d that solve a consistent system: a particular solution plus every combination of a basis."""

    particular: Bits
    """(d,)."""
    basis: Bits
    """(dimension, d), linearly independent; there are 2^dimension solutions."""

    @property
    def dimension(self) -> int:
        """The number of free coordinates."""
        return len(self.basis)

    def draw(self, random: RandomSource) -> Bits:
        """A uniformly random solution (d,)."""
        whole = random.uint8(-(-self.dimension // 8))
        taken = np.unpackbits(whole, count=self.dimension, bitorder="little").astype(np.bool_)
        drawn: Bits = self.particular ^ np.logical_xor.reduce(self.basis[taken], axis=0)
        return drawn


def solve(rows: Bits, right: Bits) -> SolutionSpace | None:
    """The solutions r of <rows[i], r> = right[i] mod 2 for every i; None if there is none.

    Columns are eliminated eight at a time (Arlazarov, Dinic, Kronrod and Faradzev, 1970): d / 8 passes over m d / 64
    words. Raises ShapeError unless the rows are (m, d), d >= 1, and the right sides (m,).
    """
    if rows.ndim != 2 or right.shape != rows.shape[:1] or rows.shape[1] < 1:
        raise ShapeError(f"rows have shape {rows.shape} and right sides {right.shape}: give (m, d), d >= 1, and (m,)")
    d = rows.shape[1]
    words = pack(np.column_stack([rows, right]))
    pivots = _reduce(words, d)
    rank = len(pivots)
    if (words[rank:, d // WORD] >> np.uint64(d % WORD) & np.uint64(1)).any():
        return None
    reduced = unpack(words[:rank], d + 1)
    free = np.setdiff1d(np.arange(d), pivots, assume_unique=True)
    particular = np.zeros(d, dtype=np.bool_)
    particular[pivots] = reduced[:, d]
    basis = np.zeros((len(free), d), dtype=np.bool_)
    basis[np.arange(len(free)), free] = True
    basis[:, pivots] = reduced[:, free].T
    return SolutionSpace(particular, basis)


def _reduce(words: NDArray[np.uint64], columns: int) -> list[int]:
    """Bring the first `columns` columns of packed rows to reduced echelon form. Returns each leading one's column."""
    octets = words.view(np.uint8)
    pivots: list[int] = []
    for block in range(-(-columns // 8)):
        mask, rank = np.uint8((1 << min(8, columns - 8 * block)) - 1), len(pivots)
        chosen = _independent(octets[rank:, block] & mask)
        if not chosen:
            continue
        leading = words[[rank + index for index in chosen]]
        bits = _reduce_block(leading, block, mask)
        _move_up(words, leading, rank, chosen)
        # For each value of the eight bits, the combination of leading rows that clears them in their columns.
        table = np.zeros((256, words.shape[1]), dtype=words.dtype)
        for row, bit in zip(leading, bits, strict=True):
            table[np.arange(256) >> bit & 1 == 1] ^= row
        # Rows without a pivot yet, including those chosen, are zero in all earlier columns.
        word, end = block // (WORD // 8), rank + len(bits)
        for part in (slice(0, rank), slice(end, None)):
            words[part, word:] ^= table[octets[part, block] & mask, word:]
        pivots += [8 * block + bit for bit in bits]
    return pivots


def _independent(values: NDArray[np.uint8]) -> list[int]:
    """Places of a maximal set of linearly independent values, as vectors of eight bits."""
    first = np.full(256, -1)
    # The last assignment of a value stays: in reverse order, its first place.
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    leads: dict[int, int] = {}
    chosen: list[int] = []
    for place in sorted(place for place in first[1:].tolist() if place >= 0):
        value = int(values[place])
        while value and value.bit_length() in leads:
            value ^= leads[value.bit_length()]
        if value:
            leads[value.bit_length()] = value
            chosen.append(place)
            if len(chosen) == 8:
                break
    return chosen


def _reduce_block(leading: NDArray[np.uint64], block: int, mask: np.uint8) -> list[int]:
    """Make independent rows (at most 8, width) unit vectors in some bits of a block, in place; the bit of each row."""
    octets = leading.view(np.uint8)
    bits = []
    for index in range(len(leading)):
        bit = int(octets[index, block] & mask).bit_length() - 1
        others = octets[:, block] >> bit & 1 == 1
        others[index] = False
        leading[others] ^= leading[index]
        bits.append(bit)
    return bits


def _move_up(words: NDArray[np.uint64], leading: NDArray[np.uint64], rank: int, chosen: list[int]) -> None:
    """Put `leading` at `rank`, and the rows that were there in place of the chosen rows."""
    left = [rank + place for place in chosen if place >= len(chosen)]
    words[left] = words[[rank + place for place in range(len(chosen)) if place not in chosen]]
    words[rank : rank + len(chosen)] = leading


def pack(bits: Bits) -> NDArray[np.uint64]:
    """Rows of bits (m, d) as words (m, ceil(d / 64)), the first bit lowest."""
    m, d = bits.shape
    padded = np.zeros((m, -(-d // WORD) * WORD), dtype=np.bool_)
    padded[:, :d] = bits
    # Little-endian everywhere, so that byte k holds columns from 8 k on.
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")


def unpack(words: NDArray[np.uint64], d: int) -> Bits:
    """The first d bits of each row of words (m, width): (m, d)."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=d, bitorder="little").astype(np.bool_)


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
    """The coins, at c = 1/64, that keep the most rows within epsilon and this failure probability.

    Raises PlanError if epsilon is too small to keep any row, ConfigurationError if failure is not in (0, 1).
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
    """Coins for `learn_parity` over {0,1}^d and its guarantee, for the fewest rows.

    Raises ConfigurationError if d, alpha or beta is out of range, PlanError if epsilon is, or needs finer coins.
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

    points: (n, d) bits. labels: (n,), {0, 1} or {-1, +1}. Which run answered, and how long it took, must not be
    disclosed. Raises ShapeError if the arrays do not fit, ConfigurationError if a point or a label is no bit.
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
