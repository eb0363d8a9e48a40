"""Obfuscators that lie ready before a contribution is encrypted: made while its rados are summed, and while it is idle.

They are kept for the last two Paillier keys that were asked under, in memory only; what that takes and how an
obfuscator is never used twice stands in dpcore.paillier.pool.
"""

import threading

from dpcore.paillier.pool import ObfuscatorPool
from dpcore.paillier.public import ObfuscatorSource, PublicKey
from dpcore.randomness.sources import RandomSource

# Queries of one learner come in a row; two learners may take turns.
MOST_KEYS = 2
# Spare ones are made once a party has been idle for so long: right after a query others on its machine may be at work
# on that query, and the next may come at once.
IDLE_S = 30.0


class Obfuscators:
    """One pool a key. `spare`: how many lie ready for the key that was used last, made after `idle_s` seconds of rest.

    Any thread may call. Raises SeededRandomRefusedError at the first use of any source but the system's.
    """

    def __init__(self, random: RandomSource, spare: int, *, idle_s: float = IDLE_S) -> None:
        self._random, self._spare, self._idle_s = random, spare, idle_s
        self._until_spare: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        # In the order of their last use.
        self._pools: dict[PublicKey, ObfuscatorPool] = {}

    def expect(self, key: PublicKey, count: int) -> None:
        """A query under this key was accepted: its `count` obfuscators are made from now on."""
        self._stop_waiting()
        self._pool(key).prepare(count)

    def source(self, key: PublicKey) -> ObfuscatorSource:
        """Where the obfuscators of a query under this key come from, those that lie ready first."""
        return self._pool(key)

    def rest(self, key: PublicKey) -> None:
        """A contribution under this key is encrypted: after a while, make spare ones for the next."""
        self._pool(key).keep(0)
        with self._lock:
            self._stop_waiting_locked()
            if self._spare and not self._is_closed:
                timer = threading.Timer(self._idle_s, lambda: self._make_spare(key, timer))
                self._until_spare = timer
                timer.daemon = True
                timer.start()

    def close(self) -> None:
        """Forget all and end the threads."""
        with self._lock:
            self._is_closed = True
            self._stop_waiting_locked()
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def _make_spare(self, key: PublicKey, timer: threading.Timer) -> None:
        with self._lock:
            # One that was already firing when a query came, or this was closed, comes too late.
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
            # A contribution that is being encrypted from it goes on without what lay ready.
            forgotten.close()
        return pool
