"""Obfuscators computed ahead of time, so that encryption takes only microseconds a ciphertext.

Two ciphertexts under one obfuscator reveal the difference of their plaintexts. None is used twice:

- An entry leaves the pool under its lock before the caller sees it, and cannot return, also if an encryption fails.
- Entries belong to the process that made them. A forked child looks under its own identity (process id and number of
  forks), finds none, and makes its own. It uses its own lock: a thread that the child lacks may have held its parent's.
- A pool can be neither copied nor pickled, and is never written to a file.

No program can detect a snapshot of a whole machine that is resumed twice: do not resume one.
"""

import threading
import weakref
from contextlib import suppress
from typing import NoReturn, Self

from dpcore.errors import ConfigurationError
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.public import Ciphertext, PublicKey
from dpcore.randomness.sources import RandomSource, require_system, this_process

MOST_READY = 1 << 16
"""The most entries that a pool keeps: about 64 MB at 3072 bits, 60 to 70 s of one processor."""

# Entries made at a time, about 15 ms at 3072 bits. Between two batches the thread checks whether it must end.
_BATCH = 16

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
            made = source.draw_many(min(_BATCH, missing))
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

    The thread is a daemon: it sleeps unless `prepare` or `keep` requests missing entries, ends with the pool, and keeps
    no process alive. If the pool runs empty, `draw_many` computes the rest itself.

    random: the operating system's source. Raises SeededRandomRefusedError for any other, PlanError if
    short_exponent_bits is not in 512..bits(n).
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
        """Announce that none will be drawn soon. The thread makes `count` entries for later, up to MOST_READY.

        Raises ValueError if count is negative.
        """
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
            made = self._source.draw_many(min(_BATCH, count - len(drawn)))
            stock.expect_less(len(made))
            drawn += made
            drawn += stock.take(count - len(drawn))
        return drawn


def _checked(count: int) -> int:
    if count < 0:
        raise ValueError(f"{count} obfuscators: ask for 0 or more")
    return count
