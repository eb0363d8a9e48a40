"""What (epsilon, delta) means for a person who wonders about one record: chances before and after, in the worst case.

H is a guess about one record, such as "its value is yes". The observer may know every other record.

- Except with a probability of at most k delta, the odds of H grow by at most e^epsilon / (1 - 1/k), for any k > 1; by
  e^epsilon if delta is 0 (after Kasiviswanathan and Smith, Journal of Privacy and Confidentiality 6, 2014).
- If H and its opposite are equally likely before, a guess after is right with a probability of at most (e^epsilon +
  delta) / (e^epsilon + 1), which is reached (Kairouz, Oh and Viswanath, ICML 2015).

Nothing here says that an epsilon holds. A ledger's limit holds whatever is asked; what is spent holds only if costs
were not chosen by the answers (dpcore.accounting.filters). Proof: docs/explanation/proofs.md, "Odds".
"""

import math
from dataclasses import dataclass

from dpcore.errors import PlanError

EXCEPTIONS = 100
"""k: the chances after are exceeded with a probability of at most k delta."""
# More than the rounding of the few operations below; what is left of a doubt is rounded down.
_ROUNDING = 1e-12
_LEAST_SHOWN = 1e-9


@dataclass(frozen=True)
class Chance:
    """A probability, as what is missing to 1, so that a chance close to 1 is exact."""

    doubt: float
    """In [0, 1]."""

    @property
    def probability(self) -> float:
        """The probability."""
        return 1 - self.doubt

    def of_100(self) -> str:
        """The chance in words such as "73.2 of 100", rounded up."""
        missing = 100 * self.doubt
        if missing < _LEAST_SHOWN:
            return "100 of 100"
        if missing >= 1:
            # Rounding may make 73.1 from a number a little above it: a bound is never printed below its value.
            tenths = math.ceil(round(10 * (100 - missing), 9))
            return f"{tenths / 10:g} of 100"
        digits = -math.floor(math.log10(missing))
        kept = math.floor(round(missing * 10**digits, 9))
        return f"{100 - kept / 10**digits:.{digits}f} of 100"


def exceptions(delta: float) -> float:
    """The probability, at most 1, with which `chance_after` is exceeded. Raises PlanError if delta is not in [0, 1)."""
    if not 0 <= delta < 1:
        raise PlanError(f"delta is {delta}: give a number from 0 to below 1")
    return min(1.0, EXCEPTIONS * delta)


def chance_after(before: float, epsilon: float, delta: float) -> Chance:
    """The largest chance of a guess after a release (2 above), from `before` in (0, 1). Raises PlanError."""
    if not 0 < before < 1:
        raise PlanError(f"a chance before of {before}: give a number between 0 and 1")
    if not epsilon >= 0:
        raise PlanError(f"epsilon is {epsilon}: give 0 or more")
    if exceptions(delta) >= 1:
        return Chance(0.0)
    kept = math.exp(-epsilon) * (1 - 1 / EXCEPTIONS if delta else 1)
    against = (1 - before) * kept
    return Chance(against / (before + against) * (1 - _ROUNDING))


def right_guesses(epsilon: float, delta: float) -> Chance:
    """The largest probability to guess right which of two equally likely values a record has (3 above)."""
    if not epsilon >= 0:
        raise PlanError(f"epsilon is {epsilon}: give 0 or more")
    exceptions(delta)
    kept = math.exp(-epsilon)
    return Chance(max(0.0, kept * (1 - delta) / (1 + kept)) * (1 - _ROUNDING))
