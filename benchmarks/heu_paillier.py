"""HEU's Paillier, a value a ciphertext, in its own environment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.environments import environment, work
from benchmarks.measuring import REPEATS

PINS = ("sf-heu==0.5.2b0", "numpy==2.4.6")
# An addition is short: each time is over this many of each pair.
PASSES = 50


@dataclass(frozen=True)
class Heu:
    """Seconds per value of each repeat."""

    encrypt: list[float]
    add: list[float]
    decrypt: list[float]
    version: str


def heu(mine: NDArray[np.int64], theirs: NDArray[np.int64], key_bits: int) -> Heu:
    """Encrypt `mine`, add `theirs`, decrypt the sums, by HEU's scheme ZPaillier. Raises UnavailableError."""
    python = environment("heu", PINS, "heu")
    job = {"mine": mine, "theirs": theirs, "key_bits": key_bits, "repeats": REPEATS, "passes": PASSES}
    found = work(python, "heu_worker.py", job)
    per_value = {step: [s / len(mine) for s in found[step]] for step in ("encrypt", "add", "decrypt")}
    return Heu(**per_value, version=found["version"])
