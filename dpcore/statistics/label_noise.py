"""Statistical queries under random label noise: estimates of the answers on true labels.

Each label that parties hold is the true c*(x) flipped with probability eta < 1/2, independently of all else. With a =
E[phi(x, y)] and b = E[phi(x, -y)] over what they hold, the answer on true labels is (Theorem 8 of Balcan's lecture
notes, 2015, after Kearns 1998)

    E[phi(x, c*(x))] = ((1 - eta) a - eta b) / (1 - 2 eta).

So a predicate that depends on the label is queried with its swap.

Half-widths grow by the least factor that holds for every phi: sampling and noise by 1 / (1 - 2 eta), quantisation by (1
- eta) / (1 - 2 eta), the deviation by sqrt((1 - eta)^2 + eta^2) / (1 - 2 eta). Proof: docs/explanation/proofs.md,
"Label noise".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.predicates.expressions import Predicate, depends_on_label, swap_label
from dpcore.statistics.accuracy import PLAIN, Amplification, Batch, SumNoise


@dataclass(frozen=True)
class Correction:
    """Converts answers on flipped labels to answers on true labels, with the growth of each error.

    Raises ConfigurationError for another noise rate, ShapeError if positions do not fit.
    """

    noise_rate: float
    """Eta in [0, 1/2)."""
    own: tuple[int, ...]
    swapped: tuple[int, ...]
    """For each of the M predicates the position of its own answer and of its swap's among `asked`; the two are equal if
    the label does not matter."""
    asked: int

    def __post_init__(self) -> None:
        check_noise_rate(self.noise_rate)
        positions = (*self.own, *self.swapped)
        if not self.own or len(self.own) != len(self.swapped):
            raise ShapeError("a correction has no predicates, or not one swap for each: build it with corrected_batch")
        if min(positions) < 0 or max(positions) >= self.asked:
            raise ShapeError("a correction points outside the predicates asked: build it with corrected_batch")

    @property
    def queries(self) -> int:
        """M, the number of answers."""
        return len(self.own)

    @property
    def amplification(self) -> Amplification:
        """The factors of the module's docstring; all 1 if no predicate depends on the label or eta is 0."""
        if self.own == self.swapped or self.noise_rate == 0.0:
            return PLAIN
        eta, kept = self.noise_rate, 1.0 - 2.0 * self.noise_rate
        return Amplification(
            sampling=1.0 / kept,
            quantisation=(1.0 - eta) / kept,
            noise=1.0 / kept,
            deviation=math.hypot(1.0 - eta, eta) / kept,
        )

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Answers (M,) on true labels from the means (asked,). Raises ShapeError for another shape."""
        if values.shape != (self.asked,):
            raise ShapeError(f"answers have shape {values.shape} where {self.asked} were asked: give one for each")
        own, swapped = values[list(self.own)], values[list(self.swapped)]
        # If own and swapped are equal, this is exactly own.
        corrected: NDArray[np.float64] = own + (self.noise_rate / (1.0 - 2.0 * self.noise_rate)) * (own - swapped)
        return corrected

    def batch(self, noise: SumNoise | None = None, quantisation: float = 0.0) -> Batch:
        """Half-widths and rows of the corrected answers, with this noise on each sum of the query."""
        return Batch(self.queries, noise, quantisation, self.asked, self.amplification)


def corrected_batch(predicates: Sequence[Predicate], noise_rate: float) -> tuple[tuple[Predicate, ...], Correction]:
    """What to query to answer `predicates` on true labels, and how to correct the answers: (asked, correction).

    asked: the predicates, then the swaps that are not among them yet, each once. noise_rate: eta in [0, 1/2), known;
    with 0 nothing is added. Raises ConfigurationError if there are no predicates or for another noise rate.
    """
    check_noise_rate(noise_rate)
    if not predicates:
        raise ConfigurationError("there are no predicates: ask at least one")
    positions: dict[Predicate, int] = {}
    own = tuple(positions.setdefault(predicate, len(positions)) for predicate in predicates)
    if noise_rate == 0.0:
        return tuple(positions), Correction(0.0, own, own, len(positions))
    swaps = [swap_label(predicate) if depends_on_label(predicate) else predicate for predicate in predicates]
    swapped = tuple(positions.setdefault(swap, len(positions)) for swap in swaps)
    return tuple(positions), Correction(noise_rate, own, swapped, len(positions))


def check_noise_rate(noise_rate: float) -> float:
    """The rate itself. Raises ConfigurationError unless it is in [0, 1/2)."""
    if not 0.0 <= noise_rate < 0.5:
        raise ConfigurationError(
            f"noise_rate is {noise_rate}: give the probability in [0, 1/2) with which a label is flipped; at 1/2 "
            "labels carry no information"
        )
    return noise_rate
