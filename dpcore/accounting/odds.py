"""What (epsilon, delta) means for a person who wonders about one record: chances before and after, in the worst case.

Setting. H is a guess about one record, such as "its value is yes". P and Q are the distributions of everything that is
released, if H is true and if it is not. The observer may know every other record. If not, its belief about them must
not depend on this record.

1. P(S) <= e^epsilon Q(S) + delta for every set S of outcomes, and the same with P and Q exchanged.

Proof: let a_v be the belief in the value v of the record given H, b_w that in w given the opposite, and P_v the
distribution of the release at value v, averaged over the belief in the other records.

Each pair P_v, P_w is an average of pairs of neighbours, so P_v(S) <= e^epsilon P_w(S) + delta. Sum with weights a_v
b_w.

2. Chances after. By Bayes' rule the odds of H after an outcome are those before, times p / q, the ratio of the
   densities. Let B be the outcomes with q < (1 - 1/k) e^-epsilon p, for a k > 1. Then

    P(B) <= e^epsilon Q(B) + delta <= (1 - 1/k) P(B) + delta,

so P(B) <= k delta; and Q(B) <= P(B), as q < p on B. So, except with a probability of at most k delta, whether H is true
or not, the odds of H grow by at most e^epsilon / (1 - 1/k). If delta is 0 they grow by at most e^epsilon (let k grow).

After Kasiviswanathan and Smith, "On the 'semantics' of differential privacy" (Journal of Privacy and Confidentiality 6,
2014), whose constants are larger.

3. Right guesses. If H and its opposite are equally likely before, a guess of one of them after an outcome is right with
   a probability of at most (e^epsilon + delta) / (e^epsilon + 1).

Proof: let S be the outcomes at which H is named, and T the others. Add P(S) <= e^epsilon Q(S) + delta and Q(T) <=
e^epsilon P(T) + delta.

With P(T) = 1 - P(S) and Q(S) = 1 - Q(T), (1 + e^epsilon)(P(S) + Q(T)) <= 2 e^epsilon + 2 delta. (P(S) + Q(T)) / 2 is
the probability to be right. The bound is reached (Kairouz, Oh and Viswanath, ICML 2015).

Nothing here says that an epsilon holds. A ledger's limit holds whatever is asked; what is spent holds only if costs
were not chosen by the answers (dpcore.accounting.filters).
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
    """The largest chance of a guess after a release, except with probability `exceptions(delta)` (2 above).

    before: its chance before, in (0, 1). Raises PlanError if an argument is out of range.
    """
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
    """The largest probability to guess right which of two equally likely values a record has (3 above).

    Raises PlanError if an argument is out of range.
    """
    if not epsilon >= 0:
        raise PlanError(f"epsilon is {epsilon}: give 0 or more")
    exceptions(delta)
    kept = math.exp(-epsilon)
    return Chance(max(0.0, kept * (1 - delta) / (1 + kept)) * (1 - _ROUNDING))
