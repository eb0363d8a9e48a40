"""How many rows suffice for a choice among finitely many concepts by noisy numbers of errors.

A concept h is bad if its number of errors e(h) is at least alpha of the rows (agnostic: above that of the best concept
h*). All algorithms of this package satisfy, for some s > 0 and numbers K_h(s) that do not depend on the data,

    P[h is chosen | rows] <= K_h(s) exp(-s (e(h) - e(h*))).                                                    (1)

With rate(s) = -log(1 - alpha (1 - exp(-s))), or -log(cosh(s) - alpha sinh(s)) in the agnostic case, a bad concept is
chosen with probability at most beta from n = (log K(s) + log(1 / beta)) / rate(s) rows on, for every s.

Proof: docs/explanation/proofs.md, "Rows for a choice among concepts".
"""

import math
from collections.abc import Callable

import numpy as np

from dpcore.errors import PlanError
from dpcore.pac.guarantee import check_accuracy

_GRID = np.geomspace(1e-7, 1.0, 2001)
# Neither bound improves for larger s: exp(-60) is negligible compared with 1.
_LARGEST = 60.0
# Bound on the relative rounding error of the few operations that give a number of rows.
_ROUNDING = 1e-9


def least_rows(
    log_competitors: Callable[[float], float], alpha: float, beta: float, reach: float, *, agnostic: bool
) -> int:
    """The number of rows from which a bad concept is chosen with probability at most beta; see the module's docstring.

    log_competitors: log K(s), in nats, for s in (0, reach]; infinite if it is not known. Raises PlanError if no s gives
    a finite number, ConfigurationError if alpha or beta is out of range.
    """
    check_accuracy(alpha, beta)
    # cosh(s) - alpha sinh(s) is least at tanh(s) = alpha, and K(s) grows with s.
    largest = min(reach, math.atanh(alpha) if agnostic else _LARGEST)
    best = math.inf
    for s in (largest * _GRID).tolist():
        rate = row_rate(s, alpha, agnostic=agnostic)
        if rate > 0:
            best = min(best, (log_competitors(s) - math.log(beta)) / rate)
    if not best < 1 << 62:
        raise PlanError("no number of rows below 2^62 suffices: raise alpha, beta or epsilon, or take a smaller domain")
    return math.ceil(best * (1 + _ROUNDING)) if best > 1 else 1


def row_rate(s: float, alpha: float, *, agnostic: bool) -> float:
    """The rate(s) of the module's docstring, in nats a row; not positive where agnostic and s is too large."""
    if agnostic:
        return -math.log1p(2 * math.sinh(s / 2) ** 2 - alpha * math.sinh(s))
    return -math.log1p(alpha * math.expm1(-s))
