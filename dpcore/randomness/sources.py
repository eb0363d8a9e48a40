"""Sources of randomness. The secure one is AES-256 in counter mode, keyed by the operating system.

Its output is indistinguishable from uniform bits as long as AES-256 is a pseudorandom permutation. Randomness is always
an argument: there is no default source.
"""

import builtins
import hashlib
import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError

KEY_BYTES = 32
REKEY_AFTER_BYTES = 1 << 20
STREAMS = 1 << 64
"""The number of streams of one key, each of up to 2^68 bytes."""

# The plaintext that is encrypted to fill an array part by part, so that both stay in a core's cache.
_ZEROS = bytes(1 << 18)


class SeededRandomRefusedError(ConfigurationError):
    """A seeded source was given where security needs the operating system's randomness."""

    def __init__(self) -> None:
        super().__init__(
            "a seed is for tests and simulation only: give a node dpcore.randomness.sources.SystemRandom()"
        )


class RandomSource(Protocol):
    """A source of uniformly random bits. `is_system`: the operating system's, not repeatable by seed or key."""

    @property
    def is_system(self) -> bool:
        """Whether the operating system keys this source."""
        ...

    def bytes(self, count: int) -> builtins.bytes:
        """`count` random bytes. Raises ValueError if count is negative."""
        ...

    def uint8(self, count: int) -> NDArray[np.uint8]:
        """`count` random bytes as a read-only array (count,), without a copy."""
        ...

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite a C-contiguous array of any type with random bytes. Raises ValueError for another array."""
        ...

    def bits(self, count: int) -> int:
        """A uniform integer in [0, 2^count)."""
        ...

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), by rejection. Raises ValueError if bound < 1."""
        ...


def require_system(random: RandomSource) -> None:
    """Refuse every source except the operating system's, in a node. Raises SeededRandomRefusedError."""
    if not random.is_system:
        raise SeededRandomRefusedError


class _DerivedDraws(ABC):
    """The draws that are derived from `bytes`."""

    @abstractmethod
    def bytes(self, count: int) -> builtins.bytes:
        """`count` random bytes. Raises ValueError if count is negative."""

    def uint8(self, count: int) -> NDArray[np.uint8]:
        """`count` random bytes as a read-only array (count,), without a copy."""
        return np.frombuffer(self.bytes(count), dtype=np.uint8)

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite a C-contiguous array of any type with random bytes. Raises ValueError for another array."""
        _as_bytes(out)[:] = self.uint8(out.nbytes)

    def bits(self, count: int) -> int:
        """A uniform integer in [0, 2^count). Raises ValueError if count is negative."""
        whole = -(-count // 8)
        return int.from_bytes(self.bytes(whole), "little") >> (8 * whole - count)

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), of any size, by rejection. Raises ValueError if bound < 1."""
        if bound < 1:
            raise ValueError(f"there is no integer in [0, {bound}): give a bound of at least 1")
        width = (bound - 1).bit_length()
        while True:
            candidate = self.bits(width)
            if candidate < bound:
                return candidate


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A view of a contiguous array's bytes: uint8 (bytes,). Raises ValueError."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous: give a C-contiguous one")
    return array.reshape(-1).view(np.uint8)


def _keystream(key: builtins.bytes, stream: int = 0) -> CipherContext:
    first_counter = stream.to_bytes(8, "big") + bytes(8)
    return Cipher(algorithms.AES256(key), modes.CTR(first_counter)).encryptor()


class _ForkCount:
    """The number of forks that lead to this process."""

    value = 0


def _count_fork() -> None:
    _ForkCount.value += 1


# A process id can repeat: a grandchild may get the number of a grandparent that has ended.
os.register_at_fork(after_in_child=_count_fork)


def this_process() -> tuple[int, int]:
    """Identifies this process among those that it was forked from: its id and the number of forks that lead to it."""
    return os.getpid(), _ForkCount.value


class _ThreadState(threading.local):
    """One thread's cipher; `owner` is the process that keyed it, None before first use."""

    def __init__(self) -> None:
        self.owner: tuple[int, int] | None = None
        self.cipher: CipherContext | None = None
        self.bytes_left = 0


class SystemRandom(_DerivedDraws):
    """AES-256-CTR keyed with `os.urandom`: the only source that a node accepts.

    Every thread has its own cipher, so no lock can be held across a fork. A key is replaced after a fork, and after
    2^20 bytes, so that a stolen memory image reveals little about earlier draws. A restored snapshot of a running
    machine may repeat up to that many bytes: do not resume one.
    """

    is_system = True

    def __init__(self) -> None:
        self._state = _ThreadState()

    def bytes(self, count: int) -> builtins.bytes:
        """`count` random bytes. Raises ValueError if count is negative."""
        zeros = bytes(count)
        state, owner = self._state, this_process()
        if state.cipher is None or state.owner != owner or state.bytes_left < count:
            state.cipher = _keystream(os.urandom(KEY_BYTES))
            state.owner, state.bytes_left = owner, REKEY_AFTER_BYTES
        state.bytes_left -= count
        return state.cipher.update(zeros)


class KeyedRandom(_DerivedDraws):
    """AES-256-CTR under a secret key of 32 bytes, for draws that must be reproducible, such as a table's noise.

    stream: which of the key's 2^64 streams. Its counter starts at `stream` (8 bytes, big-endian) and 8 zero bytes, so
    no two streams share a cipher block below 2^68 bytes each. The holder of the key can draw the streams in any order.

    Secure as long as the key is secret and used for one purpose. Raises ValueError for another length or stream.
    """

    is_system = False

    def __init__(self, key: builtins.bytes, stream: int = 0) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes: give {KEY_BYTES} bytes")
        if not 0 <= stream < STREAMS:
            raise ValueError(f"there is no stream {stream}: give 0 to 2^64 - 1")
        self._cipher = _keystream(key, stream)

    def bytes(self, count: int) -> builtins.bytes:
        """The stream's next `count` bytes. Raises ValueError if count is negative."""
        return self._cipher.update(bytes(count))

    def fill(self, out: NDArray[Any]) -> None:
        """As `RandomSource` says, with the stream's next bytes and without a copy."""
        whole, zeros = _as_bytes(out), memoryview(_ZEROS)
        for first in range(0, len(whole), len(_ZEROS)):
            part = whole[first : first + len(_ZEROS)]
            self._cipher.update_into(zeros[: len(part)], part.data)


class SeededRandom(_DerivedDraws):
    """AES-256-CTR keyed by SHA-256 of a seed, for tests and simulation only. A node refuses it (`require_system`).

    seed: bytes, or an integer, which stands for its decimal digits. The stream does not depend on how it is divided. A
    fork, like a second object with the same seed, repeats the stream.
    """

    is_system = False

    def __init__(self, seed: builtins.bytes | int) -> None:
        material = str(seed).encode() if isinstance(seed, int) else seed
        self._cipher = _keystream(hashlib.sha256(material).digest())
        self._lock = threading.Lock()

    def bytes(self, count: int) -> builtins.bytes:
        """The stream's next `count` bytes. Raises ValueError if count is negative."""
        zeros = bytes(count)
        with self._lock:
            return self._cipher.update(zeros)
