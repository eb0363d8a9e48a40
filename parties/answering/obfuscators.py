"""Obfuscators prepared before a contribution is encrypted: while its rados are summed, and while the party is idle.

They are kept in memory only, for the last two Paillier keys in use. dpcore.paillier.obfuscation states their cost and
why no obfuscator is used twice.
"""

import threading

from dpcore.paillier.obfuscation import ObfuscatorPool
from dpcore.paillier.public import ObfuscatorSource, PublicKey
from dpcore.randomness.sources import RandomSource

# One learner often sends several queries in a row; two learners may alternate.
MOST_KEYS = 2
# A party makes spare ones after this idle time: right after a query, other processes on its machine may still work on
# that query, and the next query may arrive soon.
IDLE_S = 30.0


class Obfuscators:
    """One pool per key. spare: number to prepare for the key used last, after `idle_s` idle seconds.

    Thread-safe. Raises SeededRandomRefusedError at the first use of any source except the system's.
    """

    def __init__(self, random: RandomSource, spare: int, *, idle_s: float = IDLE_S) -> None:
        self._random, self._spare, self._idle_s = random, spare, idle_s
        self._until_spare: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        # In order of last use.
        self._pools: dict[PublicKey, ObfuscatorPool] = {}

    def expect(self, key: PublicKey, count: int) -> None:
        """Start making `count` obfuscators for an accepted query under this key."""
        self._stop_waiting()
        self._pool(key).prepare(count)

    def source(self, key: PublicKey) -> ObfuscatorSource:
        """Source of obfuscators for a query under this key; prepared ones come first."""
        return self._pool(key)

    def rest(self, key: PublicKey) -> None:
        """Call after encrypting under this key: makes spare obfuscators for the next query once the party is idle."""
        self._pool(key).keep(0)
        with self._lock:
            self._stop_waiting_locked()
            if self._spare and not self._is_closed:
                timer = threading.Timer(self._idle_s, lambda: self._make_spare(key, timer))
                self._until_spare = timer
                timer.daemon = True
                timer.start()

    def close(self) -> None:
        """Discard all obfuscators and stop the threads."""
        with self._lock:
            self._is_closed = True
            self._stop_waiting_locked()
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def _make_spare(self, key: PublicKey, timer: threading.Timer) -> None:
        with self._lock:
            # A timer that was already firing when a query arrived or this object closed is ignored.
            if self._until_spare is timer and key in self._pools:
                self._pools[key].keep(self._spare)

    def _stop_waiting(self) -> None:
        with self._lock:
            self._stop_waiting_locked()

    def _stop_waiting_locked(self) -> None:
        if self._until_spare is not None:
            self._until_spare.cancel()
            self._until_spare = None

    def _pool(self, key: PublicKey) -> ObfuscatorPool:
        with self._lock:
            pool = self._pools.pop(key, None) or ObfuscatorPool(key, self._random)
            self._pools[key] = pool
            oldest = next(iter(self._pools)) if len(self._pools) > MOST_KEYS else None
            forgotten = None if oldest is None else self._pools.pop(oldest)
        if forgotten is not None:
            # A contribution that is being encrypted from it continues without prepared obfuscators.
            forgotten.close()
        return pool
