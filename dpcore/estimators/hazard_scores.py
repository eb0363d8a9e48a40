"""What the scores of proportional hazards say of rows, and how good that is on rows whose times are known.

A score is the logarithm of the ratio of a row's hazard to that of a record of zeros (dpcore.estimators.hazards).
"""

from collections.abc import Sequence

import numpy as np

from dpcore.numbers.fixed_point import Mask, Matrix, Vector

_LARGEST_LOG = 700.0
"""Of a hazard: the exponential of more is no double, and the chance to survive is 0 long before."""


def survival(log_hazards: Vector, scores: Vector) -> Matrix:
    """The chance that each row is without the event at each border, (rows, J).

    log_hazards: (J,), of a record of zeros. scores: (rows,).
    """
    logs = log_hazards + scores[:, np.newaxis]
    found: Matrix = np.exp(-np.cumsum(np.exp(np.minimum(logs, _LARGEST_LOG)), axis=1))
    return found


def restricted_means(chances: Matrix, borders: Sequence[float]) -> Vector:
    """The mean time up to the last border, (rows,): the area under each row of `survival`, between borders on a line.

    chances: (rows, J). borders: (J,).
    """
    widths = np.diff(np.concatenate([[0.0], np.asarray(borders, dtype=np.float64)]))
    earlier = np.concatenate([np.ones((len(chances), 1)), chances[:, :-1]], axis=1)
    found: Vector = (earlier + chances) / 2.0 @ widths
    return found


def concordance(scores: Vector, times: Vector, happened: Mask) -> float:
    """Harrell's index: of all pairs of which one had the event before the other's time, the share that scores order so.

    Equal scores count half. scores, times, happened: (rows,); a higher score means an earlier event. NaN without pairs.
    """
    ordered, pairs = 0.0, 0
    for place in np.flatnonzero(happened):
        later = scores[times > times[place]]
        ordered += float((later < scores[place]).sum()) + float((later == scores[place]).sum()) / 2.0
        pairs += len(later)
    return ordered / pairs if pairs else float("nan")


def brier_score(chances: Vector, times: Vector, happened: Mask, horizon: float) -> float:
    """The mean squared difference between the chance to be without the event at the horizon, and whether a row was.

    Rows that were censored before it count through others: each known row is divided by the chance not to be censored
    before its time (Graf, Schmoor, Sauerbrei and Schumacher, Statistics in Medicine 18, 1999), which assumes that
    censoring does not depend on the row. NaN if no row was followed beyond the horizon, or none is given.

    chances, times, happened: (rows,).
    """
    beyond = times > horizon
    if not beyond.any():
        return float("nan")
    happened = happened & ~beyond
    ends, kept = _uncensored(times, happened)
    # Just before its own time for an event, up to the horizon for those beyond it.
    at_event = kept[np.searchsorted(ends, times[happened], side="left")]
    at_horizon = kept[np.searchsorted(ends, horizon, side="right")]
    squares = float((chances[happened] ** 2 / at_event).sum()) + float(
        ((1.0 - chances[beyond]) ** 2 / at_horizon).sum()
    )
    return squares / len(times)


def _uncensored(times: Vector, happened: Mask) -> tuple[Vector, Vector]:
    """Distinct times (n,), and the chance not to be censored (n + 1,): before the first, then after each.

    The product over times; an event comes before a censoring of the same time.
    """
    ends, place = np.unique(times, return_inverse=True)
    events = np.bincount(place[happened], minlength=len(ends))
    every = np.bincount(place, minlength=len(ends))
    at_risk = np.cumsum(every[::-1])[::-1] - events
    censored = every - events
    factors = np.where(at_risk > 0, 1.0 - censored / np.maximum(at_risk, 1), 1.0)
    return ends, np.concatenate([[1.0], np.cumprod(factors)])
