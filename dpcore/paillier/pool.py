"""Obfuscators made ahead: encryption then takes microseconds a ciphertext, and the long work is done while others wait.

Two ciphertexts under one obfuscator give away the difference of their plaintexts. That none is used twice is a matter
of how the pool is built, not of how it is used:

- an entry leaves the pool under its lock before the caller sees it, and there is no way back in: what an encryption
  that failed half way had drawn is lost;
- entries belong to the process that made them. A forked child looks under its own identity, process id and number of
  forks, finds nothing, and makes its own from the operating system's randomness, under a lock of its own: that of its
  parent may have been held at the fork by a thread that the child does not have;
- a pool can be neither copied nor pickled, and is never written to a file: a new process begins with none.

What no program can see is a snapshot of a whole machine that is resumed twice (dpcore.randomness.sources): do not
resume one.
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
"""The most entries that a pool is asked to keep: about 64 MB at 3072 bits, 60 to 70 s of one processor."""

# Made at a time, about 15 ms at 3072 bits: between two of these the thread hears that it is to end.
_BATCH = 16

_Process = tuple[int, int]


class _Stock:
    """One process's entries, under a lock. `needed` of them are about to be drawn, `kept` are to lie ready."""

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.changed = threading.Condition()
        self.is_closed = False
        self.entries: list[Ciphertext] = []
        self.needed = self.kept = 0
        self.filler: threading.Thread | None = None

    @property
    def missing(self) -> int:
        """How many are still to be made."""
        return min(max(self.needed, self.kept), MOST_READY) - len(self.entries)

    def take(self, most: int) -> list[Ciphertext]:
        """Up to `most` entries, which are no longer here."""
        taken: list[Ciphertext] = []
        with self.changed, suppress(IndexError):
            while len(taken) < most:
                # One step, so that also a signal's handler in this very thread gets others.
                taken.append(self.entries.pop())
        self.expect_less(len(taken))
        return taken

    def expect_less(self, count: int) -> None:
        """So many of those that are needed are drawn."""
        with self.changed:
            self.needed = max(0, self.needed - count)

    def fill(self, source: Obfuscator) -> None:
        """Make what is missing, until it is closed."""
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
        """Forget all; the thread ends soon. Does nothing in another process, where the lock may be held for ever."""
        if self.process == this_process():
            with self.changed:
                self.is_closed = True
                self.entries.clear()
                self.changed.notify_all()


class ObfuscatorPool:
    """Single-use obfuscators of one key, made by a background thread while there is need; an ObfuscatorSource.

    An entry takes about 1 KB of memory at 3072 bits. The thread is a daemon: it sleeps unless `prepare` or `keep` asks
    for entries that are not there yet, ends with the pool, and keeps no process alive. Where the pool is empty,
    `draw_many` computes the rest itself, beside the thread; it never waits.

    random: the operating system's; it is drawn from by several threads at once. Raises SeededRandomRefusedError for any
    other source, PlanError where short_exponent_bits is not in 512..bits(n).
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
        """Say that `count` are about to be drawn: what of them is not ready is made from now on, up to MOST_READY.

        What `keep` asked for ends: what is drawn is not replaced meanwhile. Raises ValueError where count is negative.
        """
        stock = self._stock()
        with stock.changed:
            stock.needed, stock.kept = max(stock.needed, _checked(count)), 0
            self._begin(stock)

    def keep(self, count: int) -> None:
        """Say that nothing is about to be drawn: `count` are made ready for later, up to MOST_READY.

        Raises ValueError where count is negative.
        """
        stock = self._stock()
        with stock.changed:
            stock.needed, stock.kept = 0, _checked(count)
            self._begin(stock)

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` obfuscators that were never handed out before. Raises ValueError where count is negative."""
        while True:
            process = this_process()
            drawn = self._drawn(_checked(count))
            # A signal's handler may fork in the middle: what came before that, the parent has as well.
            if process == this_process():
                return drawn

    def close(self) -> None:
        """Forget all entries and end the thread. What is drawn afterwards is computed when it is drawn."""
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
        # copy, deepcopy and pickle all come this way.
        raise ConfigurationError("obfuscators are used once: a pool is neither copied nor pickled, make another")

    def _stock(self) -> _Stock:
        """This process's entries. No lock is taken: after a fork it could be held for ever."""
        process = this_process()
        stock = self._stocks.get(process)
        if stock is None:
            # One step: of several threads, one's stock is everybody's. An ancestor's is of no use here.
            stock = self._stocks.setdefault(process, _Stock(process))
            for other in [known for known in list(self._stocks) if known != process]:
                self._stocks.pop(other, None)
        return stock

    def _begin(self, stock: _Stock) -> None:
        """The stock's lock is held."""
        if self._is_closed or stock.missing <= 0:
            return
        if stock.filler is None or not stock.filler.is_alive():
            # The thread knows the stock, not the pool, so that it ends with a pool that nobody closed.
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
