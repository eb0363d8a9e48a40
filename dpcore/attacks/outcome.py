"""What an attack achieved: its success with an interval, the success without the release, and what epsilon allows.

**The interval.** Runs are independent and each has a result in [0, 1]. For their mean q over n runs, P(mean >= q') and
P(mean <= q') are at most exp(-n KL(q', q)) on either side of the expectation (Hoeffding, Journal of the American
Statistical Association 58, 1963, Theorem 1).

The interval holds every p with n KL(q, p) <= log(2 / DOUBT), so it misses
the expectation with probability at most DOUBT, for any distribution of results.

**The bounds** hold for replacing one row under (epsilon, delta); proof: docs/explanation/proofs.md, "Attacks".

- Advantage, 2 P(right) - 1 for two equally likely tables: (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
- Share of rows recovered: e^epsilon times the share of rows outside of the table that the same guesses hit, plus delta.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from dpcore.accounting.odds import right_guesses
from dpcore.errors import ConfigurationError

DOUBT = 0.05
"""The probability at which an interval misses."""

Measure = Literal["advantage", "rows", "cells"]
MEASURES: dict[Measure, str] = {
    "advantage": "advantage of a guess",
    "rows": "share of the rows recovered",
    "cells": "share of the non-zero cells recovered",
}


@dataclass(frozen=True)
class Promise:
    """What a release promises for one replaced row. None: no bound for whole rows."""

    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)

    @property
    def advantage(self) -> float | None:
        """The largest advantage of a guess between two equally likely tables; None without a promise."""
        if self.epsilon is None:
            return None
        return 2 * right_guesses(float(self.epsilon), float(self.delta)).probability - 1

    def recovered(self, outside: float) -> float | None:
        """The largest expected share of rows recovered, if the same guesses hit a share `outside` of other rows."""
        if self.epsilon is None:
            return None
        return min(1.0, math.exp(min(float(self.epsilon), 700.0)) * outside + float(self.delta))


NO_PROMISE = Promise()


@dataclass(frozen=True)
class Outcome:
    """One attack on one release."""

    attack: str
    release: str
    rados: int | None
    """n; None if the release has no rados."""
    rows: int
    """Rows of the table that was attacked."""
    measure: Measure
    success: float | None
    """Mean over the runs; None if the attack was not played, and the note says why."""
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    """The success of the same guesses without the release."""
    bound: float | None = None
    """What epsilon and delta allow at most; None without a bound for whole rows."""
    runs: int = 0
    note: str = ""

    @property
    def exceeds(self) -> bool:
        """Whether the attack achieves more than is allowed, except with probability DOUBT: then the noise is wrong."""
        return self.bound is not None and self.low is not None and self.low > self.bound

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, and `exceeds`."""
        return {**asdict(self), "exceeds": self.exceeds}


def interval(mean: float, runs: int, doubt: float = DOUBT) -> tuple[float, float]:
    """The interval for an expectation, from the mean of independent results in [0, 1]. Raises ConfigurationError."""
    if not 0 <= mean <= 1 or runs < 1 or not 0 < doubt < 1:
        raise ConfigurationError(f"a mean of {mean} over {runs} runs at doubt {doubt}: give a mean in [0, 1]")
    most = math.log(2 / doubt) / runs
    return _end(mean, 0.0, most), _end(mean, 1.0, most)


def _end(mean: float, far: float, most: float) -> float:
    """The end toward `far`, 0 or 1, where the divergence reaches `most`, rounded outward by bisection."""
    near = mean
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if _divergence(mean, middle) <= most else (near, middle)
    return far


def _divergence(q: float, p: float) -> float:
    """KL(q, p) of two coins, in nats."""
    terms = ((q, p), (1 - q, 1 - p))
    if any(a > 0 and b <= 0 for a, b in terms):
        return math.inf
    return sum(a * math.log(a / b) for a, b in terms if a > 0)


def guessed(
    attack: str,
    release: str,
    rados: int | None,
    rows: int,
    right: float,
    runs: int,
    promise: Promise,
    note: str = "",
) -> Outcome:
    """The outcome of `runs` guesses between two equally likely tables, of which a share `right` was right."""
    low, high = interval(right, runs)
    return Outcome(
        attack,
        release,
        rados,
        rows,
        "advantage",
        2 * right - 1,
        2 * low - 1,
        2 * high - 1,
        0.0,
        promise.advantage,
        runs,
        note,
    )


def recovered(
    attack: str,
    release: str,
    rados: int | None,
    rows: int,
    shares: Sequence[tuple[float, float]],
    outside_rows: int,
    promise: Promise,
    note: str = "",
    *,
    measure: Measure = "rows",
) -> Outcome:
    """The outcome of runs, each with the shares of rows hit inside of the table, and of `outside_rows` other rows.

    Guesses do not depend on the rows outside, so these are independent given the guesses. The bound is that of the
    upper end of their share.
    """
    inside = sum(share for share, _ in shares) / len(shares)
    outside = sum(share for _, share in shares) / len(shares)
    low, high = interval(inside, len(shares))
    bound = promise.recovered(interval(outside, outside_rows)[1])
    return Outcome(attack, release, rados, rows, measure, inside, low, high, outside, bound, len(shares), note)


def not_played(attack: str, release: str, rados: int | None, rows: int, note: str) -> Outcome:
    """An attack that is not feasible, with the reason."""
    return Outcome(attack, release, rados, rows, "rows", None, note=note)
