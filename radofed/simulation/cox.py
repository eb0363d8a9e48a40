"""Cox's proportional hazards on rows, without privacy: what a simulation of times to an event compares with.

Newton's method on Breslow's partial likelihood (Breslow 1974): tied events share the set of those at risk.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.fixed_point import Matrix, Vector

_ROWS = 4096
_MOST_STEPS, _CONVERGED, _LONGEST_STEP = 60, 1e-9, 2.0
_RIDGE = 1e-3
"""Half of it times |theta|^2 is added: columns of one category add up to a constant, which no likelihood decides."""


def cox_regression(x: Matrix, times: Vector, happened: NDArray[np.bool_]) -> Vector:
    """The log hazard ratios (d,). x: (rows, d), without a bias. Raises DataError if there is no event."""
    if not happened.any():
        raise DataError("no row has the event: Cox's regression needs one")
    # The latest first, so that those at risk are the rows so far, up to the last of the same time.
    order = np.argsort(-times, kind="stable")
    x, times, happened = (x - x.mean(axis=0))[order], times[order], happened[order]
    last_of_time = np.searchsorted(-times, -times, side="right") - 1
    theta = np.zeros(x.shape[1])
    for _ in range(_MOST_STEPS):
        gradient, curvature = _derivatives(theta, x, last_of_time, happened)
        step = np.linalg.solve(curvature + _RIDGE * np.eye(len(theta)), gradient - _RIDGE * theta)
        longest = float(np.abs(step).max())
        theta = theta + step * min(1.0, _LONGEST_STEP / max(longest, _CONVERGED))
        if longest < _CONVERGED:
            break
    return theta


def _derivatives(
    theta: Vector, x: Matrix, last_of_time: NDArray[np.intp], happened: NDArray[np.bool_]
) -> tuple[Vector, Matrix]:
    """The log partial likelihood's gradient (d,), and minus its Hessian (d, d)."""
    d = x.shape[1]
    weights = np.exp(x @ theta)
    # How many events have their set of those at risk end at each row.
    events = np.bincount(last_of_time[happened], minlength=len(x))
    gradient, curvature = x[happened].sum(axis=0), np.zeros((d, d))
    total, firsts, seconds = 0.0, np.zeros(d), np.zeros((d, d))
    for start in range(0, len(x), _ROWS):
        rows, w = x[start : start + _ROWS], weights[start : start + _ROWS]
        places = np.flatnonzero(events[start : start + _ROWS])
        totals = total + np.cumsum(w)
        of_first = firsts + np.cumsum(w[:, np.newaxis] * rows, axis=0)
        means = of_first[places] / totals[places, np.newaxis]
        counts = events[start + places]
        gradient -= counts @ means
        # The sum over events of seconds / total, where seconds grows row by row: each row counts for all later events.
        inverse = np.zeros(len(rows))
        inverse[places] = counts / totals[places]
        later = np.cumsum(inverse[::-1])[::-1]
        curvature += (rows * (w * later)[:, np.newaxis]).T @ rows + later[0] * seconds
        curvature -= (means * counts[:, np.newaxis]).T @ means
        total, firsts = float(totals[-1]), of_first[-1]
        seconds = seconds + (rows * w[:, np.newaxis]).T @ rows
    return gradient, curvature
