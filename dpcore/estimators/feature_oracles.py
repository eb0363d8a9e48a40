"""Weak feature index oracles (WFI): which feature a round of boosting takes (ICML 2015, Algorithm 1, step 2.1).

An oracle sees only the normalised edges (equation 9). An edge of zero marks a feature that cannot be boosted; at least
one edge is not zero.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError

Vector = NDArray[np.float64]

Oracle = Callable[[Vector], int | None]
"""Maps the normalised edges (d,) to the index of the feature to boost, or None if the oracle admits none."""

ORACLES = ("strong", "prudential", "median")
"""The names of the oracles."""


def make_oracle(name: str, lambda_p: float) -> Oracle:
    """The oracle of this name; lambda_p, in (0, 1], is the prudential one's and unused by the others.

    Raises ConfigurationError if the name is unknown or lambda_p is out of range.
    """
    if name not in ORACLES:
        raise ConfigurationError(f"oracle is {name!r}: choose one of {', '.join(ORACLES)}")
    if not 0 < lambda_p <= 1:
        raise ConfigurationError(f"lambda_p is {lambda_p}: it must be in (0, 1]")
    if name == "prudential":
        return lambda edges: prudential_oracle(edges, lambda_p)
    return strong_oracle if name == "strong" else median_oracle


def strong_oracle(edges: Vector) -> int:
    """The feature of largest |r|, the first among equals (section 4)."""
    return int(np.argmax(np.abs(edges)))


def prudential_oracle(edges: Vector, lambda_p: float) -> int | None:
    """The feature of largest |r| among those with |r| <= lambda_p, the first among equals; None if there is none.

    Section 5.2: an oracle is lambda_p-prudential if it always picks |r| <= lambda_p. Of these oracles, this one gives
    the largest decrease in Lemma 4.
    """
    sizes = np.abs(edges)
    admitted = np.where(sizes <= lambda_p, sizes, 0.0)
    feature = int(np.argmax(admitted))
    return feature if admitted[feature] > 0 else None


def median_oracle(edges: Vector) -> int:
    """The feature of median |r| among those whose edge is not zero; of two medians the larger, the first among equals.

    The prudential oracle of section 6, which does not say which median an even number of features has. lambda_p is then
    the median of the round, so it need not be chosen, and some feature is always admitted.
    """
    usable = np.flatnonzero(edges)
    order = np.argsort(np.abs(edges[usable]), kind="stable")
    return int(usable[order[len(usable) // 2]])
