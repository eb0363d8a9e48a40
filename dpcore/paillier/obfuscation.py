"""Obfuscators: the random n-th powers mod n^2 that hide plaintexts, computed fast.

Damgard, Jurik and Nielsen (International Journal of Information Security 9, 2010, section 4.2): let n be a Blum modulus
(p = q = 3 mod 4, gcd(p-1, q-1) = 2) and h = -x^2 mod n for a random x.

Then H = h^n mod n^2 is fixed, and an obfuscator is H^a for a fresh short random exponent a, in place of r^n.

Assumptions: decisional composite residuosity, and that h^a for a uniform a of half of n's bits is indistinguishable
from h^a for a uniform over the whole group.

For a Blum modulus h generates the whole cyclic group of elements of Jacobi symbol 1, except for a negligible fraction
of the x. Exponents of 512 bits need the same assumption for a shorter a.

Every encryptor derives its own h: one from another source could have a small order and expose plaintexts. A learner
that makes a malformed key weakens only what its own key protects.

Powers are not constant time. Each exponent is used once, and outside a party only the total time of hundreds of powers
is visible; the party's machine is trusted to run no process that watches its caches.
"""

import threading

import gmpy2
from gmpy2 import mpz

from dpcore.errors import PlanError
from dpcore.paillier.comb import TABLES, Comb
from dpcore.paillier.public import Ciphertext, PublicKey
from dpcore.paillier.threads import lock_released
from dpcore.randomness.sources import RandomSource

SHORT_EXPONENT_BITS = 512
# Choices of teeth. 12 teeth take 29 MB at 3072 bits; 13 would take 58 MB and save 6% of a power's time.
TEETH = (4, 6, 8, 10, 12)
# Exponents that are drawn and converted to digits at a time: a few MB.
_BATCH = 1024
# The cost of a table entry, and of a squaring, in multiplications of a power.
_ENTRY_COST, _SQUARING_COST = 1.5, 1.6


class Obfuscator:
    """Fresh obfuscators H^a mod n^2 for one key; the module's docstring has the construction and its assumptions.

    The base comes from a fresh x, which is never stored. The table grows with the number of draws. Exponents are
    uniform, of ceil(bits(n) / 2) bits, or of `short_exponent_bits` if given (at least 512). Draws depend on `random`
    only. Use each obfuscator once: let `PublicKey.encrypt_many` draw them.

    teeth, tables: the table's dimensions, fixed if teeth is given. Several threads may draw at once if `random` allows
    it. Raises PlanError if short_exponent_bits is not in 512..bits(n) or the dimensions are invalid.
    """

    def __init__(
        self,
        public_key: PublicKey,
        random: RandomSource,
        *,
        short_exponent_bits: int | None = None,
        teeth: int | None = None,
        tables: int = TABLES,
    ) -> None:
        if short_exponent_bits is not None and not SHORT_EXPONENT_BITS <= short_exponent_bits <= public_key.bits:
            raise PlanError(
                f"short_exponent_bits is {short_exponent_bits}: choose {SHORT_EXPONENT_BITS} to {public_key.bits}"
            )
        self._public_key, self._random = public_key, random
        self._exponent_bits = short_exponent_bits if short_exponent_bits is not None else -(-public_key.bits // 2)
        self._is_fixed, self._table_count = teeth is not None, tables
        n = mpz(public_key.n)
        self._base = gmpy2.powmod(_negated_square(n, random), n, n * n)
        # One object, replaced as a whole: a thread that draws uses the old table or the new one, and both are correct.
        self._comb = self._build(TEETH[0] if teeth is None else teeth)
        self._building = threading.Lock()
        self._drawn = 0

    @property
    def public_key(self) -> PublicKey:
        """The key whose ciphertexts these obfuscate."""
        return self._public_key

    @property
    def exponent_bits(self) -> int:
        """The length of the random exponents in bits."""
        return self._exponent_bits

    @property
    def teeth(self) -> int:
        """The teeth of the current table."""
        return self._comb.teeth

    def prepare(self, count: int) -> None:
        """Build the table that is cheapest overall if `count` obfuscators are about to be drawn."""
        # The forecast is at least as many draws as so far: a caller that draws one at a time gets a large table too,
        # and waits for tables at most twice as long as with the best choice.
        expected = max(count, self._drawn)
        best = min(TEETH, key=lambda teeth: self._cost(teeth, expected))
        stays = self._cost(self.teeth, expected) - self._table_cost(self.teeth)
        if self._is_fixed or self._cost(best, expected) >= stays:
            return
        # If another thread builds, this one continues with the current table. A child that was forked during a build
        # always does.
        if self._building.acquire(blocking=False):
            try:
                self._comb = self._build(best)
            finally:
                self._building.release()

    def draw(self) -> Ciphertext:
        """One fresh obfuscator."""
        return self.draw_many(1)[0]

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` fresh, independent obfuscators. Raises ValueError if count is negative."""
        if count < 0:
            raise ValueError(f"{count} obfuscators: ask for 0 or more")
        self.prepare(count)
        width = -(-self._exponent_bits // 8)
        drawn: list[Ciphertext] = []
        for start in range(0, count, _BATCH):
            size = min(_BATCH, count - start)
            comb = self._comb
            digits = comb.digits(self._random.uint8(size * width).reshape(size, width))
            with lock_released():
                drawn += comb.power_digits(digits)
        self._drawn += count
        return drawn

    def _build(self, teeth: int) -> Comb:
        return Comb(self._base, self._public_key.n, self._exponent_bits, teeth=teeth, tables=self._table_count)

    def _table_cost(self, teeth: int) -> float:
        return _ENTRY_COST * self._table_count * (1 << teeth)

    def _cost(self, teeth: int, count: int) -> float:
        """The cost of `count` powers including their table, in multiplications of a power."""
        columns = -(-self._exponent_bits // (teeth * self._table_count))
        return self._table_cost(teeth) + count * (columns * self._table_count + _SQUARING_COST * (columns - 1))


def _negated_square(n: mpz, random: RandomSource) -> mpz:
    """-x^2 mod n for x uniform among the invertible residues."""
    while True:
        x = mpz(random.below(int(n)))
        if gmpy2.gcd(x, n) == 1:
            return -x * x % n
