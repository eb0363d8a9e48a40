"""TenSEAL's BFV: a lattice scheme that adds packed integers, in its own environment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.environments import environment, work
from benchmarks.measuring import REPEATS

PINS = ("tenseal==0.3.18", "numpy==2.4.6")
# 8192 values per ciphertext. SEAL then takes its default coefficient modulus of 218 bits, which gives 128 bits of
# security by the tables of the Homomorphic Encryption Standard (2018); it rejects a weaker one.
DEGREE = 8192
# The largest prime of 48 bits that is 1 mod 2 DEGREE, which packing needs: sums below 2^47 in absolute value are exact,
# like those of a slot of 48 bits. Primes of up to 60 bits work.
PLAIN_MODULUS = 281_474_976_694_273


@dataclass(frozen=True)
class Lattice:
    """Seconds per value of each repeat, and bytes per value as serialised."""

    encrypt: list[float]
    add: list[float]
    decrypt: list[float]
    bytes_per_value: float
    ciphertexts: int
    version: str


def lattice(mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> Lattice:
    """Encrypt `mine`, add `theirs`, decrypt the sums, all of them. Raises UnavailableError."""
    python = environment("tenseal", PINS, "tenseal")
    job = {"mine": mine, "theirs": theirs, "degree": DEGREE, "plain_modulus": PLAIN_MODULUS, "repeats": REPEATS}
    found = work(python, "tenseal_worker.py", job)
    per_value = {step: [s / len(mine) for s in found[step]] for step in ("encrypt", "add", "decrypt")}
    return Lattice(
        **per_value,
        bytes_per_value=found["bytes"] / len(mine),
        ciphertexts=found["ciphertexts"],
        version=found["version"],
    )
