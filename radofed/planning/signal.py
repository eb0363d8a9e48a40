"""Whether the noise of a plan leaves a signal: the noise against the sampling error, and what an answer is worth.

An answer is the sum of `draws` independent draws (rows; of rados, signatures) and noise. Per coordinate, v bounds the
sum's standard deviation over the draws and s is the noise's.

Noise over sampling, r = s / v. A variable in an interval of length l has a variance of at most l^2 / 4 (Popoviciu,
1935), so v = sqrt(draws) for coordinates and products in [-1, 1], and sqrt(draws) / 2 for predicates in [0, 1]. A
vector of length at most C has variances that sum to at most C^2, so over d coordinates their root mean square is at
most C / sqrt(d): gradients. A rado takes a row with probability p, so v^2 = p (1 - p) rows. As v is an upper bound, r
is a lower bound: the noise is never overstated.

Worth. The error has the variance s^2 + v^2 = (1 + r^2) v^2. A mean over draws / (1 + r^2) draws without noise has the
same variance: so many rows (or rados) are worth as much. As r is a lower bound, an answer is worth at most that. How
much less it is follows from the rows, which no plan knows: of products of columns that vary little, several times less.
T answers to one question with independent noise combine, with
weights 1 / s_t^2, to a noise of 1 / s^2 = sum 1 / s_t^2, the least of all unbiased combinations (Gauss and Markov).

The alarm: r > 1, and an answer about k coordinates is worth at most 2 k draws. Of the labellings of 2 k points in
general position in R^k, half can be realised by linear classifiers, and of fewer points more (Cover, IEEE Transactions
on Electronic Computers 14, 1965, theorem 1). So even labels by coin flips would be fitted with probability 1/2 or more:
such an answer cannot tell a signal from noise. For one statistic, k = 1, its error is at least that of two rows.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

from dpcore.queries.statement import LARGE_EPSILON

_SEPARABLE_HALF = 2
"""Points for each coordinate of which half of the labellings are linearly separable."""


@dataclass(frozen=True)
class Signal:
    """A plan's noise against its signal. noise_over_sampling: r. draws: rows, or rados. coordinates: k.

    what: "rows" or "rados".
    """

    noise_over_sampling: float
    draws: int
    coordinates: int
    what: str = "rows"

    @property
    def worth(self) -> float:
        """The number of draws whose sum, without noise, is as exact; at most."""
        return self.draws / (1.0 + self.noise_over_sampling**2)

    @property
    def is_lost(self) -> bool:
        """Whether the noise exceeds the signal: the alarm."""
        return self.noise_over_sampling > 1.0 and self.worth <= _SEPARABLE_HALF * self.coordinates

    def sentence(self) -> str:
        """The comparison, in words; for people, not a warning."""
        return (
            f"The noise is at least {self.noise_over_sampling:,.3g} times the sampling error: an answer is at most as "
            f"exact as one without noise over {_count(self.worth)} of the {self.draws:,} {self.what}, and less exact "
            "where values vary less than they could, as products of columns do."
        )

    def warning(self, helps: Sequence[str]) -> str:
        """The alarm, in words. helps: what would help, in words."""
        about = f"{self.coordinates:,} coordinates" if self.coordinates > 1 else "even one number"
        advice = f" What would help: {', or '.join(helps)}." if helps else ""
        return (
            f"the noise exceeds the signal. It is at least {self.noise_over_sampling:,.3g} times the sampling error: "
            f"the answer is worth at most {_count(self.worth)} {self.what} without noise, too few for {about}.{advice}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Figures by name, in JSON's types."""
        return {
            "noise_over_sampling": self.noise_over_sampling,
            "worth": self.worth,
            "worth_of": self.what,
            "worth_is_at_most": True,
        }


def combined(answers: Sequence[Signal]) -> Signal:
    """That of several answers to one question, over the same draws."""
    precision = math.fsum(1.0 / answer.noise_over_sampling**2 for answer in answers)
    return replace(answers[0], noise_over_sampling=1.0 / math.sqrt(precision))


P = TypeVar("P", bound=Any)


def more_rows(request: P, most: int) -> Iterator[tuple[str, P]]:
    """The request with twice the rows, four times and so on, up to `most` in total, each in words."""
    factor = 2
    while factor * sum(request.party_rows) <= most:
        rows = tuple(factor * m for m in request.party_rows)
        yield f"{factor:,} times the rows ({sum(rows):,})", replace(request, party_rows=rows)
        factor *= 2


def larger_epsilon(request: P) -> Iterator[tuple[str, P]]:
    """The request with larger epsilons, from the next of 1, 2, 5, 10, ... up to `LARGE_EPSILON`, each in words."""
    if request.epsilon is None:
        return
    power = math.floor(math.log10(request.epsilon))
    for exponent in range(power, 2):
        for digit in (1, 2, 5):
            epsilon = digit * Fraction(10) ** exponent
            if request.epsilon < epsilon <= Fraction(LARGE_EPSILON):
                yield f"an epsilon of {float(epsilon):g}", replace(request, epsilon=epsilon)


def fewer_coordinates(request: P) -> Iterator[tuple[str, P]]:
    """The request with half of its coordinates, a quarter and so on, each in words; not if a schema has them."""
    fewer = (request.coordinates or 0) // 2
    while fewer >= 2 and request.schema is None:
        yield f"{fewer} coordinates", replace(request, coordinates=fewer)
        fewer //= 2


def first_that_helps(changes: Iterable[tuple[str, P]], signal_of: Callable[[P], Signal | None]) -> list[str]:
    """The words of the first change whose plan raises no alarm; empty if there is none.

    A change helps if the one before it does: of more rows, larger epsilons and fewer coordinates.
    """

    def helps(changed: P) -> bool:
        signal = signal_of(changed)
        return signal is not None and not signal.is_lost

    found = first_in(list(changes), helps)
    return [] if found is None else [found]


def first_in(changes: Sequence[tuple[str, P]], works: Callable[[P], bool]) -> str | None:
    """The words of the first change that works; None if none was found.

    If one works, so must those after it, except for far ones, such as more rows than a slot has room for.
    """
    below, above = -1, 0
    while above < len(changes) and not works(changes[above][1]):
        below, above = above, 2 * above + 1 if 2 * above + 1 < len(changes) else max(above + 1, len(changes) - 1)
    if above >= len(changes):
        return None
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if works(changes[middle][1]) else (middle, above)
    return changes[above][0]


def _count(worth: float) -> str:
    return f"{worth:,.0f}" if worth >= 10 else f"{worth:.2g}"
