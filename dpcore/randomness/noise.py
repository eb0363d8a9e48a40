"""Exact samples of the discrete Gaussian N_Z(0, sigma^2): P(x) proportional to exp(-x^2 / (2 sigma^2)), x an integer.

The distribution is that of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS
2020). It is drawn by rejection below a step function, vectorised, for an integer sigma; every coin is decided exactly.

The same bytes give the same samples on every machine. Other processes on the same machine may observe the time of a
sample, and with it the sample.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.randomness.sources import RandomSource

# Coins of any computable probability, decided exactly, the same for the same bytes on every machine: double precision
# decides on a 64-bit word, and once in about 2^39 coins further bits and bounds do. The time is not hidden.


TOLERANCE = 2.0**-40
"""The most by which a probability in double precision may be off, including the 2^-53 of a word's conversion."""


def words(count: int, random: RandomSource) -> NDArray[np.uint64]:
    """`count` uniform 64-bit words: uint64 (count,)."""
    return np.frombuffer(random.bytes(8 * count), dtype="<u8").astype(np.uint64)


def indices(bound: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """`count` independent integers, uniform on [0, bound), by rejection: int64 (count,). bound: from 1 to 2^63."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    accepted = [np.empty(0, dtype=np.uint64)]
    missing = count
    while missing > 0:
        drawn = words(2 * missing + 8, random) & mask
        accepted.append(drawn[drawn < np.uint64(bound)][:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted).astype(np.int64)


def bernoulli(
    chances: NDArray[np.float64], bounds: Callable[[int, int], tuple[int, int]], random: RandomSource
) -> NDArray[np.bool_]:
    """One coin for each of `chances` (n,), each within TOLERANCE / 2 of its true p: bool (n,).

    bounds(i, precision): integers below and above p_i 2^precision, whose distance stays bounded as the precision grows.
    """
    return _heads(words(len(chances), random), chances, bounds, random)


def _heads(
    drawn: NDArray[np.uint64],
    chances: NDArray[np.float64],
    bounds: Callable[[int, int], tuple[int, int]],
    random: RandomSource,
) -> NDArray[np.bool_]:
    """As `bernoulli`, from the words that the uniform numbers start with."""
    uniform = drawn.astype(np.float64) * 2.0**-64
    heads = uniform < chances
    for index in np.flatnonzero(np.abs(uniform - chances) <= TOLERANCE):
        heads[index] = decide(int(drawn[index]), partial(bounds, int(index)), random)
    return heads


def bernoulli_exp(
    gammas: NDArray[np.float64], exact: Callable[[int], Fraction], random: RandomSource
) -> NDArray[np.bool_]:
    """One coin of exp(-gamma) for each of `gammas` (n,) >= 0, within 2^-48 (1 + gamma) of exact(i), a rational."""
    return bernoulli(np.exp(-gammas), lambda i, precision: exp_bounds(exact(i), precision), random)


def decide(word: int, bounds: Callable[[int], tuple[int, int]], random: RandomSource) -> bool:
    """Whether the uniform number that starts with `word` is below p; bounds(precision): around p 2^precision."""
    bits, precision = word, 64
    while True:
        low, high = bounds(precision)
        if bits + 1 <= low:
            return True
        if bits >= high:
            return False
        bits, precision = (bits << 64) | random.bits(64), precision + 64


def exp_bounds(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Integers below and above exp(-gamma) 2^precision, at most 2 apart, by MPFR's directed rounding. gamma >= 0."""
    low, high = exp_interval(-gamma, -gamma, precision + 16)
    return around(low, high, precision)


def exp_interval(lower: Fraction, upper: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """Rationals below exp(lower) and above exp(upper), each within a relative 2^(2 - precision)."""
    ends = []
    # The argument is rounded too, and its relative error is multiplied by the argument's size in the exponential.
    guard = max(0, int(max(abs(lower), abs(upper))).bit_length())
    for exponent, rounding in ((lower, gmpy2.RoundDown), (upper, gmpy2.RoundUp)):
        with gmpy2.context(precision=precision + guard, round=rounding):
            ends.append(rational(gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(exponent)))))
    return ends[0], ends[1]


def rational(number: object) -> Fraction:
    """An MPFR number as an exact rational."""
    exact = gmpy2.mpq(number)
    return Fraction(int(exact.numerator), int(exact.denominator))


def around(low: Fraction, high: Fraction, precision: int) -> tuple[int, int]:
    """floor(low 2^precision) and ceil(high 2^precision)."""
    return (
        (low.numerator << precision) // low.denominator,
        -((-high.numerator << precision) // high.denominator),
    )


LARGEST_SIGMA = 1 << 48
"""Up to this sigma, samples stay far below 2^63, and magnitudes up to 30 sigma below 2^53."""

SMALLEST_SHARE_SIGMA = 3
"""The theorem on sums of shares (dpcore.accounting.gaussian) needs a variance of at least 9."""

_GAUSSIAN_BATCH = 1 << 16


def discrete_gaussian(sigma: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """`count` independent samples of N_Z(0, sigma^2): int64 (count,). Raises PlanError."""
    samples = np.zeros(count, dtype=np.int64)
    add_discrete_gaussian(samples, sigma, random)
    return samples


def add_discrete_gaussian(values: NDArray[np.int64], sigma: int, random: RandomSource) -> None:
    """Add the samples that `discrete_gaussian` would return to int64 (count,), in place. Raises PlanError."""
    if isinstance(sigma, bool) or not isinstance(sigma, int) or not 1 <= sigma <= LARGEST_SIGMA:
        raise PlanError(f"the noise's standard deviation is {sigma}: give an integer from 1 to 2^48")
    steps = _steps(sigma)
    filled = 0
    while filled < len(values):
        # More than nine of ten candidates become samples, fewer if sigma is small.
        candidates = min(_GAUSSIAN_BATCH, (len(values) - filled) * 9 // 8 + 16)
        filled += steps.add(values[filled:], candidates, random)


def check_share(sigma: int) -> None:
    """Raise PlanError if `sigma` is not a standard deviation that a noise share may have."""
    if isinstance(sigma, bool) or not isinstance(sigma, int) or not SMALLEST_SHARE_SIGMA <= sigma <= LARGEST_SIGMA:
        raise PlanError(
            f"noise with a standard deviation of {sigma} units: shares are counted from {SMALLEST_SHARE_SIGMA} to "
            f"2^48 units; raise or lower fraction_bits"
        )


_ENTRY_BITS = 14
_ENTRIES = 1 << _ENTRY_BITS
_PLACE_BIT = _ENTRY_BITS + 1
"""The first bit of a word that says where in its step a magnitude is."""


@dataclass(frozen=True)
class _Steps:
    """A step function above exp(-x^2 / (2 sigma^2)), x >= 0, which one of 2^14 equally likely entries chooses from.

    Step b holds the magnitudes from b 2^width on, 2^width of them, and has `entries[b]` entries. The tail, all
    magnitudes from len(entries) 2^width on, has `tail_entries`. Proof: docs/explanation/proofs.md, "Discrete Gaussian".
    """

    sigma: int
    width: int
    """Logarithm of a step's magnitudes, to base 2."""
    unit: Fraction
    """Height of one entry; a double-precision number."""
    entries: NDArray[np.int64]
    tail_entries: int
    step: NDArray[np.int16]
    """The step of each entry, (2^14,): len(entries) for the tail, one more for entries that are rejected."""
    heights: NDArray[np.float64]
    """The height of each step in double precision."""
    least: NDArray[np.float64]
    """The least acceptance within each step in double precision; 0 for the tail and what is rejected: (steps + 2,)."""

    @cached_property
    def _sure(self) -> NDArray[np.uint64]:
        """The beginnings of numbers below it are accepted by every magnitude of the step: (steps + 2,)."""
        least = np.maximum(self.least - TOLERANCE, 0)
        return np.floor(np.ldexp(least, 64 - _PLACE_BIT - self.width)).astype(np.uint64)

    def add(self, values: NDArray[np.int64], count: int, random: RandomSource) -> int:
        """Draw `count` candidates, and add the accepted ones, in order, to as many values; returns how many.

        A word has an entry, a sign, a place in the step, and the first bits of the number that accepts.
        """
        from dpcore.randomness.compiled import add_others, propose  # noqa: PLC0415  (numba takes half a second)

        raw = np.empty(count, dtype="<u8")
        random.fill(raw)
        drawn = raw.astype(np.uint64, copy=False)
        # Samples take the place of the words that they come from.
        samples, open_ = drawn.view(np.int64), np.empty((count, 3), dtype=np.int64)
        table = (self.step, self._sure, self.heights, float(self.sigma), TOLERANCE, _ENTRY_BITS, self.width)
        written, unsure, unknown = propose(drawn, *table, samples, open_)
        rejected = self._rejected(samples, unsure, open_[:unknown], random)
        return int(add_others(values, samples[:written], rejected))

    def _rejected(
        self, samples: NDArray[np.int64], unsure: int, open_: NDArray[np.int64], random: RandomSource
    ) -> NDArray[np.int64]:
        """The places of the open samples that are rejected; draws the magnitudes of those in the tail.

        open_: as `propose` writes it. Each of the `unsure` candidates has 64 bits more of its number, also if it is not
        open: the same bytes give the same samples, whatever the word and double precision decide.
        """
        places, before, coins = open_.T
        found, chosen = np.abs(samples[places]), np.abs(samples[places]) >> self.width
        share = self.entries[np.minimum(chosen, len(self.entries) - 1)].astype(np.float64)
        for index in np.flatnonzero(chosen == len(self.entries)):
            block, found[index] = self._in_tail(random)
            share[index] = self._tail_share(block)
        rest = words(unsure, random)[before]
        samples[places] = np.where(samples[places] < 0, -found, found)

        def bounds(index: int, precision: int) -> tuple[int, int]:
            return self._acceptance(int(found[index]), Fraction(float(share[index])), precision)

        chances = np.exp(-np.square(found / self.sigma) / 2) / (float(self.unit) * share)
        known = 64 - _PLACE_BIT - self.width
        number = coins.astype(np.uint64) << np.uint64(64 - known) | rest >> np.uint64(known)
        rejected: NDArray[np.int64] = places[~_heads(number, chances, bounds, random)]
        return rejected

    def _in_tail(self, random: RandomSource) -> tuple[int, int]:
        """A block of the tail, g with probability 2^-(g+1), and a magnitude in it, of the power of two up to sigma."""
        block = 0
        while random.bytes(8)[0] & 1:
            block += 1
        size = self.sigma.bit_length() - 1
        low = int.from_bytes(random.bytes(8), "little") & ((1 << size) - 1)
        return block, (len(self.entries) << self.width) + (block << size) + low

    def _tail_share(self, block: int) -> float:
        """The entries that a step with the chances of this block's magnitudes would have."""
        return math.ldexp(self.tail_entries, self.width - (self.sigma.bit_length() - 1) - block - 1)

    def _acceptance(self, magnitude: int, share: Fraction, precision: int) -> tuple[int, int]:
        """Integers below and above exp(-x^2 / (2 sigma^2)) / (unit share) 2^precision."""
        height = self.unit * share
        gamma = Fraction(magnitude * magnitude, 2 * self.sigma * self.sigma)
        # The quotient's distance is that of the exponential, divided by the height.
        guard = max(0, (height.denominator // height.numerator).bit_length())
        low, high = exp_interval(-gamma, -gamma, precision + guard + 16)
        return around(low / height, high / height, precision)


@functools.lru_cache(maxsize=64)
def _steps(sigma: int) -> _Steps:
    """The steps for one sigma: as many as reach 5 sigma, each of at most sigma / 32 magnitudes, or of one."""
    width = max(0, sigma.bit_length() - 6)
    count = -(-5 * sigma >> width)
    # MPFR rounds correctly, so that all machines have the same entries.
    with gmpy2.context(precision=53):
        heights = [
            float(gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(-((b << width) ** 2), 2 * sigma * sigma)))) for b in range(count + 1)
        ]
    unit = math.fsum(heights) / _ENTRIES
    block = 2.0 ** (sigma.bit_length() - 1 - width)
    while True:
        # More than the heights by more than they were rounded, so no acceptance is above 1.
        entries = [math.ceil(height * (1 + 2.0**-40) / unit) for height in heights[:-1]]
        tail = math.ceil(2 * block * heights[-1] * (1 + 2.0**-40) / unit)
        if sum(entries) + tail <= _ENTRIES:
            break
        unit *= 1.005
    step = np.full(_ENTRIES, count + 1, dtype=np.int16)
    step[: sum(entries) + tail] = np.repeat(np.arange(count + 1), [*entries, tail])
    held = np.array(entries, dtype=np.int64)
    last = (np.arange(1, count + 1, dtype=np.int64) << width) - 1
    above = held.astype(np.float64) * unit
    least = np.append(np.exp(-np.square(last / sigma) / 2) / above, [0.0, 0.0])
    return _Steps(sigma, width, Fraction(unit), held, tail, step, above, least)


def tail_bound(sigma: int, summands: int, values: int) -> int:
    """A magnitude that `values` sums of `summands` samples exceed with a total probability of at most 2^-64.

    N_Z(0, sigma^2) is sub-Gaussian with variance proxy sigma^2 (Canonne, Kamath and Steinke 2020); proxies add: P(|sum|
    > t) <= 2 exp(-t^2 / (2 summands sigma^2)).
    """
    return math.ceil(sigma * math.sqrt(2 * summands * (math.log(2 * values) + 64 * math.log(2)))) + 1


def tail_of_variance(variance: int, values: int) -> int:
    """The same for sums of unequal samples whose squared standard deviations add up to `variance`."""
    return math.ceil(math.sqrt(variance) * math.sqrt(2 * (math.log(2 * values) + 64 * math.log(2)))) + 1


# Exact samples of Polya variables NB(r, q), r = 1/h and q = exp(-1/t), whose differences are shares of discrete Laplace
# noise:
#
#     P(k) = (1 - q)^r w(k) q^k,    w(k) = C(k + r - 1, k) = Gamma(k + r) / (Gamma(r) k!),    k = 0, 1, 2, ...
#
# The sum of h parties' differences is discrete Laplace of scale t (Goryczka and Xiong, IEEE Transactions on Dependable
# and Secure Computing 14(5), 2017). By rejection on pieces [2^i, 2^(i+1)) and a geometric tail, with exact coins.
# Proof: docs/explanation/proofs.md, "Polya variables".


SMALLEST_SCALE, LARGEST_SCALE = Fraction(1, 64), 1 << 40
"""With these scales, samples reach 2^48 with a probability below 2^-150, and logarithms of w are within 2^-44."""

MOST_SHARES = 1 << 16

_POLYA_BATCH = 1 << 16
# Below this k, w(k) is a product of rationals. From here on, Stirling's series has the accuracy of double precision.
_SMALL = 32


def negative_binomial(scale: Fraction, shares: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """`count` independent samples of NB(1/shares, exp(-1/scale)): int64 (count,). Raises PlanError (`check_scale`)."""
    check_scale(scale, shares)
    pieces = _Pieces(scale, shares)
    samples = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        kept = _accepted_polya(pieces, min(_POLYA_BATCH, 2 * (count - filled) + 16), random)[: count - filled]
        samples[filled : filled + len(kept)] = kept
        filled += len(kept)
    return samples


def laplace_share(scale: Fraction, shares: int, count: int, random: RandomSource) -> NDArray[np.int64]:
    """Differences of two NB(1/shares, exp(-1/scale)): int64 (count,). Raises PlanError."""
    drawn = negative_binomial(scale, shares, 2 * count, random)
    return drawn[:count] - drawn[count:]


def check_scale(scale: Fraction, shares: int) -> None:
    """Raise PlanError unless scale is a rational from 1/64 to 2^40 of 63-bit integers and shares is 1 to 2^16."""
    if not isinstance(scale, Fraction) or not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise PlanError(f"the Laplace noise's scale is {scale}: give a Fraction from 1/64 to 2^40 integer units")
    if max(scale.numerator, scale.denominator) >= 1 << 63:
        raise PlanError("the Laplace noise's scale has a numerator or denominator of more than 63 bits: round it up")
    if isinstance(shares, bool) or not isinstance(shares, int) or not 1 <= shares <= MOST_SHARES:
        raise PlanError(f"{shares} shares of Laplace noise: give an integer from 1 to 2^16")


@dataclass(frozen=True)
class _Pieces:
    """The pieces of one distribution: piece 0 is {0}, piece i + 1 starts at 2^i, the last is the tail."""

    scale: Fraction
    shares: int

    @functools.cached_property
    def depth(self) -> int:
        """J, where n = 2^J."""
        return (-(-self.scale.numerator // self.scale.denominator) - 1).bit_length()

    @functools.cached_property
    def run(self) -> Fraction:
        """The ratio n / t."""
        return (1 << self.depth) / self.scale

    @functools.cached_property
    def log_weights(self) -> NDArray[np.float64]:
        """The log w(k) for each k < _SMALL, rounded from 64 bits."""
        return np.array([float(_log_weight(k, self.shares, 64)[0]) for k in range(_SMALL)])

    @functools.cached_property
    def first_log_weights(self) -> NDArray[np.float64]:
        """The log w(2^i) for each i <= J."""
        return np.array([float(_log_weight(1 << i, self.shares, 64)[0]) for i in range(self.depth + 1)])

    @functools.cached_property
    def thresholds(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """`bounds` at 64 bits. Each upper end is one less, because it may be 2^64."""
        lows, highs = zip(*self.bounds(64), strict=True)
        return np.array(lows, dtype=np.uint64), np.array([high - 1 for high in highs], dtype=np.uint64)

    def bounds(self, precision: int) -> list[tuple[int, int]]:
        """Integers below and above P(piece <= j) 2^precision, for every j except the last."""
        lows, highs = zip(*self._totals(precision + 32), strict=True)
        below, above = list(accumulate(lows)), list(accumulate(highs))
        return [
            around(
                below[j] / (below[j] + above[-1] - above[j]),
                above[j] / (above[j] + below[-1] - below[j]),
                precision,
            )
            for j in range(self.depth + 1)
        ]

    def _totals(self, precision: int) -> list[tuple[Fraction, Fraction]]:
        """The bounding mass of each piece, divided by (1 - q)^r, within a relative 2^-precision."""
        totals = [(Fraction(1), Fraction(1))]
        for i in range(self.depth + 1):
            first = 1 << i
            low, high = _log_weight(first, self.shares, precision + 8)
            down, up = exp_interval(low - first / self.scale, high - first / self.scale, precision + 8)
            totals.append((first * down, first * up))
        fall_down, fall_up = exp_interval(-self.run, -self.run, precision + 8)
        down, up = totals[-1]
        totals[-1] = (down / (1 - fall_down), up / (1 - fall_up))
        return totals

    def choose(self, count: int, random: RandomSource) -> NDArray[np.intp]:
        """`count` independent pieces, by inversion."""
        drawn = words(count, random)
        lows, highs = self.thresholds
        # A number that starts with a word is above all bounds below the word and below all bounds above it.
        passed, reached = np.searchsorted(highs, drawn, side="left"), np.searchsorted(lows, drawn, side="right")
        for index in np.flatnonzero(passed != reached):
            passed[index] = self._locate(int(drawn[index]), random)
        return passed

    def _locate(self, word: int, random: RandomSource) -> int:
        """The piece of the uniform number that starts with `word`. Draws more bits as needed."""
        bits, precision = word, 64
        while True:
            bounds = self.bounds(precision)
            passed, reached = (sum(bits >= high for _, high in bounds), sum(bits + 1 > low for low, _ in bounds))
            if passed == reached:
                return passed
            bits, precision = (bits << 64) | random.bits(64), precision + 64

    def log_weight(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logarithms of w(k) in double precision, within 2^-45.

        With x = k + r and y = k + 1, Stirling's series S (its remainder is below the first omitted term, 2^-55) gives
        log Gamma(x) - log Gamma(y) = (x - 1/2) log(x/y) + (r - 1)(log y - 1) + S(x) - S(y).

        The first term is about 1, (r - 1) log y at most 34, each with a relative error of a few round-offs.
        """
        r = 1 / self.shares
        y = np.maximum(k, _SMALL).astype(np.float64) + 1
        x = y + (r - 1)
        large = (x - 0.5) * np.log1p((r - 1) / y) + (r - 1) * (np.log(y) - 1) + _stirling(x) - _stirling(y)
        return np.where(k < _SMALL, self.log_weights[np.minimum(k, _SMALL - 1)], large - self._log_gamma_r)

    @functools.cached_property
    def _log_gamma_r(self) -> float:
        with gmpy2.context(precision=64):
            return float(gmpy2.lngamma(gmpy2.mpfr(1) / self.shares))


def _accepted_polya(pieces: _Pieces, count: int, random: RandomSource) -> NDArray[np.int64]:
    """Draw `count` candidates and return the accepted ones, in order."""
    piece = pieces.choose(count, random)
    moved = np.flatnonzero(piece)
    exponent = piece[moved] - 1
    low = (words(len(moved), random) >> np.uint64(1) >> (63 - exponent).astype(np.uint64)).astype(np.int64)
    run = np.zeros(len(moved), dtype=np.int64)
    going = np.flatnonzero(exponent == pieces.depth)
    while len(going):
        going = going[bernoulli_exp(np.full(len(going), float(pieces.run)), lambda _: pieces.run, random)]
        run[going] += 1
    k = (np.int64(1) << exponent.astype(np.int64)) + low + (run << pieces.depth)

    def bounds(index: int, precision: int) -> tuple[int, int]:
        return _acceptance(pieces, int(k[index]), 1 << int(exponent[index]), int(low[index]), precision)

    gain = pieces.log_weight(k) - pieces.first_log_weights[exponent]
    kept = np.ones(count, dtype=np.bool_)
    kept[moved] = bernoulli(np.exp(gain - low * float(1 / pieces.scale)), bounds, random)
    samples = np.zeros(count, dtype=np.int64)
    samples[moved] = k
    return samples[kept]


def _acceptance(pieces: _Pieces, k: int, first: int, low: int, precision: int) -> tuple[int, int]:
    """Integers below and above w(k)/w(first) exp(-low/t) 2^precision."""
    below, above = _log_weight(k, pieces.shares, precision + 8)
    first_below, first_above = _log_weight(first, pieces.shares, precision + 8)
    fall = low / pieces.scale
    return around(*exp_interval(below - first_above - fall, above - first_below - fall, precision + 8), precision)


def _log_weight(k: int, shares: int, precision: int) -> tuple[Fraction, Fraction]:
    """Rationals below and above log w(k), within 2^-precision: up to 64 factors, then by the gamma function."""
    start = min(k, 64)
    weight = gmpy2.mpq(1)
    for j in range(start):
        weight *= gmpy2.mpq(j * shares + 1, (j + 1) * shares)
    ends: list[Fraction] = []
    # lngamma is below 2^54 here, and correctly rounded.
    for down in (True, False):
        with gmpy2.context(precision=precision + 64, round=gmpy2.RoundDown if down else gmpy2.RoundUp):
            ends.append(rational(gmpy2.log(weight)))
    if k == start:
        return ends[0], ends[1]
    r = Fraction(1, shares)
    more = [_log_gamma(x, precision + 64) for x in (k + r, Fraction(start + 1))]
    less = [_log_gamma(x, precision + 64) for x in (start + r, Fraction(k + 1))]
    return (
        ends[0] + sum(low for low, _ in more) - sum(high for _, high in less),
        ends[1] + sum(high for _, high in more) - sum(low for low, _ in less),
    )


def _log_gamma(x: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """Rationals below and above log Gamma(x), x >= 2."""
    ends = []
    for rounding in (gmpy2.RoundDown, gmpy2.RoundUp):
        with gmpy2.context(precision=precision, round=rounding):
            ends.append(rational(gmpy2.lngamma(gmpy2.mpfr(gmpy2.mpq(x)))))
    return ends[0], ends[1]


def _stirling(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The value log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2, with an error of less than 1/(1188 x^9)."""
    inverse = 1 / x
    square = inverse * inverse
    series: NDArray[np.float64] = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    return series
