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

A key with short opening (dpcore.paillier.subgroup) carries the h of all encryptors, a generator of its subgroup. It is
the learner's, who could as well tell the factors of n. Exponents are then so long that powers are uniform over the
subgroup, and no assumption about short exponents is needed, but one about the subgroup.

Powers are not constant time. Each exponent is used once, and outside a party only the total time of hundreds of powers
is visible; the party's machine is trusted to run no process that watches its caches.
"""

import threading
import weakref
from contextlib import suppress
from typing import NoReturn, Self, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError
from dpcore.paillier.public import Ciphertext, PublicKey, lock_released, times_one_plus
from dpcore.randomness.sources import RandomSource, require_system, this_process

# Fixed-base powers modulo n^2 from tables of products, without a factor of n.
#
# x is a (1 + n t) mod n^2 with a = x mod n and one t in [0, n). An entry is (a, t): a power multiplies the half-length
# a's, adds the t's and combines once, for little more than half of a multiplication modulo n^2.


TABLES = 8
MAXIMUM_TEETH = 16

Digits: TypeAlias = NDArray[np.uint16]
Table: TypeAlias = tuple[list[mpz], list[mpz]]


class Comb:
    """Powers of one base modulo n^2 by the fixed-base comb of Lim and Lee (CRYPTO 1994).

    `teeth` rows of `tables * depth` bits: table j holds the products of all subsets of the base's powers 2^(row *
    tables * depth + j * depth). A power takes depth - 1 squarings and tables * depth multiplications. Memory: tables *
    2^teeth entries of 2 * bits(n) bits, 29 MB for 12 teeth, 8 tables and 3072 bits.

    Raises PlanError unless teeth is in 1..16 and tables, exponent_bits above 0; ValueError if the base shares a factor
    with n.
    """

    def __init__(self, base: int, n: int, exponent_bits: int, *, teeth: int, tables: int = TABLES) -> None:
        if not 1 <= teeth <= MAXIMUM_TEETH or tables < 1 or exponent_bits < 1:
            raise PlanError(
                f"a comb of {teeth} teeth and {tables} tables for {exponent_bits} bits: choose 1 to {MAXIMUM_TEETH} "
                "teeth, at least one table and one bit"
            )
        if gmpy2.gcd(base, n) != 1:
            raise ValueError("the base of a comb shares a factor with n")
        self.exponent_bits, self.teeth = exponent_bits, teeth
        self._table_count = tables
        self._depth = -(-exponent_bits // (teeth * tables))
        self._n, self._n_squared = mpz(n), mpz(n) * n
        powers = self._powers(mpz(base) % self._n_squared)
        with lock_released():
            self._tables = [self._table(powers[table::tables]) for table in range(tables)]

    def _powers(self, base: mpz) -> list[mpz]:
        """base^(2^(k * depth)) for each k; tooth i of table j is number i * tables + j."""
        powers = [base]
        for _ in range(self.teeth * self._table_count - 1):
            powers.append(gmpy2.powmod(powers[-1], 1 << self._depth, self._n_squared))
        return powers

    def _table(self, factors: list[mpz]) -> Table:
        """The products of all subsets of `factors`, as pairs. Entry k includes factor i if bit i of k is set.

        a_1 a_2 = r + q n = r (1 + n q / r), so t is the sum of both t's and q / r mod n; one inversion per factor.
        """
        n = self._n
        residues, summands, inverses = [mpz(1)], [mpz(0)], [mpz(1)]
        for factor in factors:
            upper, residue = divmod(factor, n)
            inverse = gmpy2.invert(residue, n)
            summand = upper * inverse % n
            for index in range(len(residues)):
                quotient, product = divmod(residues[index] * residue, n)
                product_inverse = inverses[index] * inverse % n
                residues.append(product)
                inverses.append(product_inverse)
                summands.append((quotient * product_inverse + summands[index] + summand) % n)
        return residues, summands

    def power(self, exponent: int) -> mpz:
        """base^exponent mod n^2. Raises ValueError if the exponent is not in [0, 2^exponent_bits)."""
        if exponent < 0 or exponent.bit_length() > self.exponent_bits:
            raise ValueError(f"an exponent of {exponent.bit_length()} bits for a comb of {self.exponent_bits}")
        octets = np.frombuffer(exponent.to_bytes(-(-self.exponent_bits // 8), "little"), dtype=np.uint8)
        return self.power_digits(self.digits(octets[np.newaxis]))[0]

    def digits(self, exponents: NDArray[np.uint8]) -> Digits:
        """Indices into the tables, most significant column first: (count, depth, tables), of little-endian bytes."""
        count, width = len(exponents), self.teeth * self._table_count * self._depth
        bits = np.zeros((count, width), dtype=np.uint16)
        bits[:, : self.exponent_bits] = np.unpackbits(exponents, axis=1, count=self.exponent_bits, bitorder="little")
        by_tooth = bits.reshape(count, self.teeth, self._table_count, self._depth)
        weights = (1 << np.arange(self.teeth, dtype=np.uint16)).astype(np.uint16)
        indices = np.einsum("ctjk,t->ckj", by_tooth, weights)
        return np.ascontiguousarray(indices[:, ::-1], dtype=np.uint16)

    def power_digits(self, digits: Digits) -> list[mpz]:
        """One power for each row of the result of `digits`, in order."""
        n, n_squared, tables = self._n, self._n_squared, self._tables
        powers = []
        for columns in digits.tolist():
            power, summand = mpz(1), mpz(0)
            for depth, column in enumerate(columns):
                if depth:
                    power, summand = power * power % n_squared, summand << 1
                for (residues, summands), index in zip(tables, column, strict=True):
                    if index:
                        power = power * residues[index] % n_squared
                        summand += summands[index]
            powers.append(times_one_plus(power, summand, n, n_squared))
        return powers


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

    Of a key with a subgroup, the base comes from its generator and exponents are as long as the subgroup says.

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
        n, subgroup = mpz(public_key.n), public_key.subgroup
        if subgroup is None:
            root = _negated_square(n, random)
            self._exponent_bits = short_exponent_bits if short_exponent_bits is not None else -(-public_key.bits // 2)
        else:
            root, self._exponent_bits = mpz(subgroup.generator), subgroup.exponent_bits
        self._is_fixed, self._table_count = teeth is not None, tables
        self._base = gmpy2.powmod(root, n, n * n)
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


# Obfuscators computed ahead of time. Two ciphertexts under one reveal the difference of their plaintexts; none is used
# twice:
#
# - An entry leaves the pool under its lock before the caller sees it, and never returns.
# - Entries belong to the process that made them: a forked child (by process id and number of forks) makes its own,
#   under its own lock.
# - A pool can be neither copied nor pickled, and is never written to a file.
#
# No program can detect a snapshot of a whole machine that is resumed twice: do not resume one.


MOST_READY = 1 << 16
"""The most entries that a pool keeps: about 64 MB at 3072 bits, 60 to 70 s of one processor."""

# Entries made at a time, about 15 ms at 3072 bits. Between two batches the thread checks whether it must end.
_POOL_BATCH = 16

_Process = tuple[int, int]


class _Stock:
    """One process's entries, under a lock. `needed` of them will be drawn soon, `kept` must stay ready for later."""

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.changed = threading.Condition()
        self.is_closed = False
        self.entries: list[Ciphertext] = []
        self.needed = self.kept = 0
        self.filler: threading.Thread | None = None

    @property
    def missing(self) -> int:
        """How many entries must still be made."""
        return min(max(self.needed, self.kept), MOST_READY) - len(self.entries)

    def take(self, most: int) -> list[Ciphertext]:
        """Remove and return up to `most` entries."""
        taken: list[Ciphertext] = []
        with self.changed, suppress(IndexError):
            while len(taken) < most:
                # An atomic step, so that a signal handler in this thread gets other entries too.
                taken.append(self.entries.pop())
        self.expect_less(len(taken))
        return taken

    def expect_less(self, count: int) -> None:
        """Record that `count` of the needed entries are drawn."""
        with self.changed:
            self.needed = max(0, self.needed - count)

    def fill(self, source: Obfuscator) -> None:
        """Make missing entries until the stock is closed."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.is_closed or self.missing > 0)
                if self.is_closed:
                    return
                missing = self.missing
            source.prepare(missing)
            made = source.draw_many(min(_POOL_BATCH, missing))
            with self.changed:
                if self.is_closed:
                    return
                self.entries += made

    def close(self) -> None:
        """Discard all entries; the thread ends soon. Does nothing in another process: the lock may be held forever."""
        if self.process == this_process():
            with self.changed:
                self.is_closed = True
                self.entries.clear()
                self.changed.notify_all()


class ObfuscatorPool:
    """Single-use obfuscators of one key, made on demand by a background thread. An ObfuscatorSource.

    The daemon thread sleeps unless entries are requested, and ends with the pool; an empty pool computes the rest
    itself. Raises SeededRandomRefusedError unless random is the system's, PlanError if short_exponent_bits is not in
    512..bits(n).
    """

    def __init__(self, public_key: PublicKey, random: RandomSource, *, short_exponent_bits: int | None = None) -> None:
        require_system(random)
        self._source = Obfuscator(public_key, random, short_exponent_bits=short_exponent_bits)
        self._stocks: dict[_Process, _Stock] = {}
        self._is_closed = False

    @property
    def public_key(self) -> PublicKey:
        """The key whose ciphertexts these obfuscate."""
        return self._source.public_key

    @property
    def ready(self) -> int:
        """How many entries this process has ready."""
        return len(self._stock().entries)

    def prepare(self, count: int) -> None:
        """Announce that `count` will be drawn soon. The thread starts to make missing entries, up to MOST_READY.

        Ends the request of `keep`: drawn entries are not replaced meanwhile. Raises ValueError if count is negative.
        """
        stock = self._stock()
        with stock.changed:
            stock.needed, stock.kept = max(stock.needed, _checked(count)), 0
            self._begin(stock)

    def keep(self, count: int) -> None:
        """Announce that none will be drawn soon: `count` entries are made, up to MOST_READY. Raises ValueError."""
        stock = self._stock()
        with stock.changed:
            stock.needed, stock.kept = 0, _checked(count)
            self._begin(stock)

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` obfuscators that were never returned before. Raises ValueError if count is negative."""
        while True:
            process = this_process()
            drawn = self._drawn(_checked(count))
            # A signal handler may fork in the middle: the parent then also has what was drawn before.
            if process == this_process():
                return drawn

    def close(self) -> None:
        """Discard all entries and end the thread. Later draws compute their obfuscators themselves."""
        self._is_closed = True
        stock = self._stock()
        stock.close()
        if stock.filler is not None:
            stock.filler.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ObfuscatorPool({self.public_key!r}, ready={self.ready})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        # copy, deepcopy and pickle all call this.
        raise ConfigurationError("obfuscators are single-use: a pool cannot be copied or pickled, make another one")

    def _stock(self) -> _Stock:
        """This process's entries. Takes no lock: after a fork it could be held forever."""
        process = this_process()
        stock = self._stocks.get(process)
        if stock is None:
            # Atomic: all threads get the same stock. An ancestor's stock is of no use here.
            stock = self._stocks.setdefault(process, _Stock(process))
            for other in [known for known in list(self._stocks) if known != process]:
                self._stocks.pop(other, None)
        return stock

    def _begin(self, stock: _Stock) -> None:
        """Start or wake the thread if entries are missing. The caller holds the stock's lock."""
        if self._is_closed or stock.missing <= 0:
            return
        if stock.filler is None or not stock.filler.is_alive():
            # The thread refers to the stock, not to the pool, so that it ends with a pool that was never closed.
            weakref.finalize(self, stock.close).atexit = False
            stock.filler = threading.Thread(target=stock.fill, args=[self._source], name="obfuscators", daemon=True)
            stock.filler.start()
        stock.changed.notify_all()

    def _drawn(self, count: int) -> list[Ciphertext]:
        stock = self._stock()
        drawn = stock.take(count)
        if len(drawn) < count:
            self._source.prepare(count - len(drawn))
        while len(drawn) < count:
            made = self._source.draw_many(min(_POOL_BATCH, count - len(drawn)))
            stock.expect_less(len(made))
            drawn += made
            drawn += stock.take(count - len(drawn))
        return drawn


def _checked(count: int) -> int:
    if count < 0:
        raise ValueError(f"{count} obfuscators: ask for 0 or more")
    return count
