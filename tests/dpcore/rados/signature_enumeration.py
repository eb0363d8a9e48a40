"""Small sets of signatures and all 2^10 selections, for tests by enumeration."""

import itertools
from fractions import Fraction

import numpy as np

from dpcore.research.signature_sets import (
    SignatureBlock,
    SignatureSet,
    all_signatures,
    dp_feat_signatures,
    fixed_support_signatures,
)

M = 10
EVERY = np.array(list(itertools.product((False, True), repeat=M)))
POSITIVE = np.array([1, 1, 0, 1, 0, 0, 1, 1, 0, 1], dtype=bool)
SETS = {
    "all": all_signatures(M),
    "dp-feat": dp_feat_signatures(POSITIVE, Fraction(1)),
    "dp-feat of two parties": dp_feat_signatures(POSITIVE, Fraction(2), [4, 6]),
    "support": fixed_support_signatures([M], [7]),
    "support of two parties": fixed_support_signatures([3, 7], [1, 4]),
    "lopsided": SignatureSet((SignatureBlock(POSITIVE, 0, 2),)),
    "one signature": SignatureSet((SignatureBlock(POSITIVE, M, M),)),
}


def data(seed: int, scale: float = 1.0, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Theta (d,) and edges (M, d)."""
    generator = np.random.default_rng(seed)
    return scale * generator.normal(size=d), generator.normal(size=(M, d)) + 0.3


def enumerated(signatures: SignatureSet) -> np.ndarray:
    return EVERY[signatures.admits(EVERY)]
