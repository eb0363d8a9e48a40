"""Survival curves, and the log-rank test, from noisy numbers of people by interval and by how their time ended.

Every person is in one cell: the group, the interval in which the time ended, and whether by the event or censored; or
"beyond", if the person was still followed at the horizon. So one person changes one cell, or two if replaced, however
many intervals the person was followed through.

    n_j = beyond + sum over k >= j of (events_k + censored_k) - censored_j / 2     at risk in interval j
    S_j = product over k <= j of (1 - events_k / n_k)                              survival at its end

The estimate is the life table's (Cutler and Ederer, Journal of Chronic Diseases 8, 1958): people censored in an
interval count half. Deviations are of first order in the cells, whose variances are the cell (sampling, as in
Greenwood's formula: S does not change if all cells are scaled) plus the noise's.

No theorem says that intervals hold: tests/dpcore/evaluation/test_life_table.py measures how often they do, those of
ratios of hazards too, and how often the test rejects.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.numbers.distributions import quantile

Floats = NDArray[np.float64]

LEAST_AT_RISK = 4.0
"""A curve ends where fewer people are at risk than this many deviations of the noise on their number."""

LEAST_EVENTS = 3.0
"""A ratio of hazards is given if the weighted events of both groups are above this many of their deviations."""


@dataclass(frozen=True, eq=False)
class EventTable:
    """Numbers of people of each group, with independent noise on each number. Raises ShapeError, ConfigurationError."""

    borders: Floats
    """(J + 1,), of the intervals; from 0 to the horizon. An interval includes its end, not its start."""
    events: Floats
    """(groups, J), the people whose event was in the interval."""
    censored: Floats
    """(groups, J), the people who were last seen in it, without the event."""
    beyond: Floats
    """(groups,), the people who were followed up to the horizon without the event."""
    groups: tuple[str, ...]
    """Their names."""
    deviation: float
    """Standard deviation of the noise on each number, in people; 0 without noise."""

    def __post_init__(self) -> None:
        intervals, groups = len(self.borders) - 1, len(self.groups)
        expected = {"events": (groups, intervals), "censored": (groups, intervals), "beyond": (groups,)}
        for name, shape in expected.items():
            if (found := getattr(self, name).shape) != shape:
                raise ShapeError(
                    f"{name} has the shape {found}: {groups} groups and {intervals} intervals need {shape}"
                )
        if intervals < 1 or self.borders[0] != 0.0 or not bool((np.diff(self.borders) > 0.0).all()):
            raise ConfigurationError("borders must begin with 0 and increase: give the ends of one interval or more")
        if not (math.isfinite(self.deviation) and self.deviation >= 0.0):
            raise ConfigurationError(f"the noise has standard deviation {self.deviation}: give a number from 0 up")

    @property
    def intervals(self) -> int:
        """J."""
        return len(self.borders) - 1

    @property
    def at_risk(self) -> Floats:
        """(groups, J), n_j of each interval."""
        at_risk: Floats = self.cells @ _at_risk(self.intervals).T
        return at_risk

    @property
    def at_risk_deviation(self) -> Floats:
        """(J,), of the noise on one group's n_j."""
        deviations: Floats = self.deviation * np.sqrt((_at_risk(self.intervals) ** 2).sum(axis=1))
        return deviations

    @property
    def cells(self) -> Floats:
        """(groups, 2 J + 1): events, censored, beyond."""
        return np.concatenate([self.events, self.censored, self.beyond[:, np.newaxis]], axis=1)

    def group(self, name: str) -> int:
        """Its place. Raises ConfigurationError if there is none of this name."""
        if name not in self.groups:
            raise ConfigurationError(f"there is no group {name!r}: name one of {', '.join(self.groups)}")
        return self.groups.index(name)


@dataclass(frozen=True)
class Estimated:
    """A value with its interval; `upper` is infinite if no value above is excluded."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """The survival of one group at the ends of intervals, up to the last that is measurable.

    It does not rise, and is within [0, 1]; the intervals are about the estimate before it was made so.
    """

    times: Floats
    """(J,), the ends of intervals; J may be 0."""
    survival: Floats
    """(J,)."""
    lower: Floats
    """(J,), of the interval at each time by itself."""
    upper: Floats
    band_lower: Floats
    """(J,), of the intervals that hold together at all times."""
    band_upper: Floats
    at_risk: Floats
    """(J,), people at risk in the interval that ends here, of which those censored in it count half."""
    at_risk_half_width: Floats
    """(J,), how far noise may have moved `at_risk`."""
    failure: float
    """The chance that an interval, or the band, does not hold."""
    horizon: float
    """The last time that was asked for; the curve ends earlier if the noise is too large."""
    covariance: Floats
    """(J, J), of the estimates before they were made not to rise."""

    @property
    def ends_early(self) -> bool:
        """Whether the noise is too large, or nobody is at risk, before the horizon."""
        return not len(self.times) or bool(self.times[-1] < self.horizon)

    def quantile(self, level: float = 0.5) -> Estimated:
        """The time at which survival falls to `level`, between borders on a line; infinite if it stays above.

        Its interval holds the times whose survival's intervals contain the level (Brookmeyer and Crowley, Biometrics
        38, 1982). Raises ConfigurationError unless 0 < level < 1.
        """
        if not 0.0 < level < 1.0:
            raise ConfigurationError(f"the level is {level}: give a share between 0 and 1")
        lowest = np.minimum.accumulate(self.lower) if len(self.lower) else self.lower
        highest = np.minimum.accumulate(self.upper) if len(self.upper) else self.upper
        return Estimated(*(self._crossing(values, level) for values in (self.survival, lowest, highest)))

    def restricted_mean(self, horizon: float | None = None) -> Estimated:
        """The mean time up to `horizon`, one of `times`: the area under the curve, between borders on a line.

        horizon: None for the last time. Raises DataError if the curve ends before it, ConfigurationError for a time
        that is no end of an interval.
        """
        if not len(self.times):
            raise DataError("there is no interval whose survival is measurable: ask for fewer groups, or more epsilon")
        last = float(self.times[-1]) if horizon is None else horizon
        if last > self.times[-1]:
            raise DataError(f"the curve ends at {self.times[-1]:g}: choose a horizon up to it, or a larger epsilon")
        if last not in self.times:
            raise ConfigurationError(f"{last:g} is no end of an interval: choose one of {self.times.tolist()}")
        stop = int(np.flatnonzero(self.times == last)[0]) + 1
        widths = np.diff(np.concatenate([[0.0], self.times[:stop]]))
        # Trapezoids: each border has half of the widths beside it; the first, at time 0, has survival 1.
        weights = (widths + np.concatenate([widths[1:], [0.0]])) / 2.0
        mean = float(widths[0] / 2.0 + weights @ self.survival[:stop])
        reach = -quantile(self.failure / 2.0) * math.sqrt(float(weights @ self.covariance[:stop, :stop] @ weights))
        return Estimated(mean, max(mean - reach, 0.0), min(mean + reach, last))

    def _crossing(self, values: Floats, level: float) -> float:
        below = np.flatnonzero(values <= level)
        if not below.size:
            return math.inf
        place = int(below[0])
        start, before = (0.0, 1.0) if place == 0 else (float(self.times[place - 1]), float(values[place - 1]))
        return start + (before - level) / (before - float(values[place])) * (float(self.times[place]) - start)


@dataclass(frozen=True)
class LogRank:
    """The test that all groups have the same hazards, up to the last interval with enough people at risk."""

    statistic: float
    """Chi-square."""
    degrees: int
    """Of freedom."""
    p_value: float
    """The chance of a statistic of this size, over sampling and noise, if hazards are equal."""
    observed: tuple[float, ...]
    """Events of each group, with noise."""
    expected: tuple[float, ...]
    """Events of each group if hazards were equal."""
    hazard_ratio: Estimated | None
    """For two groups: of the second to the first, Mantel and Haenszel's ratio of rates; None for more groups, or if the
    events say too little. It is slightly too close to 1: see `_hazard_ratio`."""
    intervals: int
    """How many were used."""


def survival_curve(table: EventTable, group: str, failure: float = 0.05) -> SurvivalCurve:
    """The curve of one group. Raises ConfigurationError if there is no such group, or failure is not in (0, 1)."""
    if not 0.0 < failure < 1.0:
        raise ConfigurationError(f"failure is {failure}: it must be between 0 and 1")
    place = table.group(group)
    cells, at_risk = table.cells[place], table.at_risk[place]
    stop = _measurable(at_risk, table.at_risk_deviation)
    at_risk, events = at_risk[:stop], table.events[place, :stop]
    left = 1.0 - events / at_risk
    survival = np.cumprod(left)
    # The derivative of S_j in the cells: minus the sum over k <= j of d(events_k / n_k) times the other factors of S_j.
    rates = np.eye(stop, cells.size) / at_risk[:, np.newaxis]
    rates -= (events / at_risk**2)[:, np.newaxis] * _at_risk(table.intervals)[:stop]
    others = np.zeros((stop, stop))
    for j, k in zip(*np.tril_indices(stop), strict=True):
        others[j, k] = np.prod(np.delete(left[: j + 1], k))
    slopes = -others @ rates
    covariance = (slopes * (np.maximum(cells, 0.0) + table.deviation**2)) @ slopes.T
    deviations = np.sqrt(np.diagonal(covariance))
    fitted = np.clip(_not_rising(survival, deviations), 0.0, 1.0)

    def ends(chance: float) -> tuple[Floats, Floats]:
        reach = -quantile(chance / 2.0) * deviations
        # Never without the fitted value, which may be outside where noise made the curve rise.
        lower, upper = np.clip(survival - reach, 0.0, 1.0), np.clip(survival + reach, 0.0, 1.0)
        return np.minimum(lower, fitted), np.maximum(upper, fitted)

    reach = -quantile(failure / 2.0) * table.at_risk_deviation[:stop]
    return SurvivalCurve(
        table.borders[1 : stop + 1],
        fitted,
        *ends(failure),
        *ends(failure / max(stop, 1)),
        at_risk,
        reach,
        failure,
        float(table.borders[-1]),
        covariance,
    )


def log_rank(table: EventTable, failure: float = 0.05) -> LogRank:
    """Compares the hazards of all groups of a table (Mantel 1966; Peto and Peto 1972).

    The statistic counts the noise in its variance, and the second-order bias that noise gives the expected numbers is
    taken off. No noisy number is set to zero in it: that would make expected numbers too large. Raises DataError if
    there are fewer than two groups, or no interval has enough people at risk.
    """
    if len(table.groups) < 2:
        raise DataError("a comparison needs two groups or more: name a column to group by")
    # Of all groups together: each group may be small where the sum is not.
    total_deviation = math.sqrt(len(table.groups)) * table.at_risk_deviation
    stop = _measurable(table.at_risk.sum(axis=0), total_deviation)
    if not stop:
        raise DataError("too few people are at risk for the noise: ask with more epsilon, or for fewer intervals")
    at_risk, events = table.at_risk[:, :stop], table.events[:, :stop]
    risk, happened = at_risk.sum(axis=0), events.sum(axis=0)
    expected = at_risk * happened / risk - _noise_bias(table, at_risk, risk, happened)
    difference = (events - expected).sum(axis=1)[1:]
    shares = np.clip(at_risk / risk, 0.0, 1.0)
    by_chance = np.maximum(happened, 0.0) * np.clip((risk - happened) / np.maximum(risk - 1.0, 1.0), 0.0, 1.0)
    sampling = np.diag(shares @ by_chance) - (shares * by_chance) @ shares.T
    sampling = sampling[1:, 1:]
    covariance = sampling + _noise_covariance(table, at_risk, risk, happened)
    if not bool((np.linalg.eigvalsh(covariance) > 0.0).all()):
        raise DataError("a group has nobody at risk, or there is no event: leave the group out, or join intervals")
    statistic = float(difference @ np.linalg.solve(covariance, difference))
    return LogRank(
        statistic,
        len(difference),
        float(special.chdtrc(len(difference), statistic)),
        tuple(events.sum(axis=1).tolist()),
        tuple(expected.sum(axis=1).tolist()),
        _hazard_ratio(table, stop, failure) if len(difference) == 1 else None,
        stop,
    )


def _hazard_ratio(table: EventTable, stop: int, failure: float) -> Estimated | None:
    """Of the second group to the first, by the first `stop` intervals: Mantel and Haenszel's ratio of rates.

        T_gj = n_gj - (events_gj + censored_gj) / 2        n_gj: at risk at the start; T_gj: time, in widths of j
        ratio = sum_j events_2j T_1j / T_j  /  sum_j events_1j T_2j / T_j          T_j = T_1j + T_2j

    Widths cancel. One who leaves in an interval counts through half of it: of a constant hazard h per interval the
    rate is then 2 tanh(h / 2), about h - h^3 / 12.

    So the ratio is too close to 1: by 3 % if half of one group's people at risk have the event in each interval, and
    the other group has half of the hazard.

    None if a sum is not above LEAST_EVENTS of its deviations, or the time is too small for the noise. Where that is
    near, a larger share of the intervals that are given may not hold.
    """
    of_cells = _at_risk(table.intervals) - np.eye(table.intervals, 2 * table.intervals + 1) / 2.0
    noise = table.deviation * np.sqrt(2.0 * (of_cells**2).sum(axis=1))
    used = _measurable((table.cells @ of_cells.T).sum(axis=0)[:stop], noise[:stop])
    variances = np.maximum(table.cells, 0.0) + table.deviation**2
    first, second = (_events_by_time(table.cells, of_cells[:used], group) for group in (0, 1))
    for value, slopes in (first, second):
        if value <= LEAST_EVENTS * math.sqrt(float((slopes**2 * variances).sum())):
            return None
    log_ratio = math.log(second[0] / first[0])
    slopes = second[1] / second[0] - first[1] / first[0]
    reach = -quantile(failure / 2.0) * math.sqrt(float((slopes**2 * variances).sum()))
    return Estimated(math.exp(log_ratio), math.exp(log_ratio - reach), math.exp(log_ratio + reach))


def _events_by_time(cells: Floats, of_cells: Floats, group: int) -> tuple[float, Floats]:
    """The sum over intervals of a group's events times the other's share of time, and its derivative in all cells.

    of_cells: how much each cell counts in the time in each interval.
    """
    events = cells[group, : len(of_cells)]
    times = cells @ of_cells.T
    own, other, total = times[group], times[1 - group], times.sum(axis=0)
    slopes = np.empty_like(cells)
    slopes[group] = -(events * other / total**2) @ of_cells
    slopes[group, : len(of_cells)] += other / total
    slopes[1 - group] = (events * own / total**2) @ of_cells
    return float(events @ (other / total)), slopes


def _noise_bias(table: EventTable, at_risk: Floats, risk: Floats, happened: Floats) -> Floats:
    """(groups, J), what noise adds to n_g E / N on average, to second order.

    With variance s^2 in each cell and a = |coefficients of n_g|^2: Cov(n_g, E) = s^2, Cov(E, N) = G s^2,
    Cov(n_g, N) = a s^2, Var(N) = G a s^2.
    """
    groups, variance = len(table.groups), table.deviation**2
    lengths = (_at_risk(table.intervals)[: len(risk)] ** 2).sum(axis=1)
    bias: Floats = variance * (
        1.0 / risk
        - at_risk * groups / risk**2
        - happened * lengths / risk**2
        + at_risk * happened * groups * lengths / risk**3
    )
    return bias


def _noise_covariance(table: EventTable, at_risk: Floats, risk: Floats, happened: Floats) -> Floats:
    """(groups - 1, groups - 1), of observed less expected events of all groups but the first, to first order."""
    if table.deviation == 0.0:
        return np.zeros((len(table.groups) - 1,) * 2)
    at_risk_of_cells = _at_risk(table.intervals)[: len(risk)]
    event_of_cells = np.eye(len(risk), at_risk_of_cells.shape[1])
    hazard = happened / risk
    # slopes[g, h]: of U_g in the cells of group h.
    own = (event_of_cells - hazard[:, np.newaxis] * at_risk_of_cells).sum(axis=0)
    shares = at_risk / risk
    common = -shares @ event_of_cells + (shares * hazard) @ at_risk_of_cells
    slopes = np.repeat(common[:, np.newaxis], len(table.groups), axis=1)
    for group in range(len(table.groups)):
        slopes[group, group] += own
    flat = slopes[1:].reshape(len(table.groups) - 1, -1)
    covariance: Floats = table.deviation**2 * (flat @ flat.T)
    return covariance


def _at_risk(intervals: int) -> Floats:
    """(J, 2 J + 1): how much each cell counts in n_j."""
    later = np.triu(np.ones((intervals, intervals)))
    half = np.eye(intervals) / 2.0
    return np.concatenate([later, later - half, np.ones((intervals, 1))], axis=1)


def _measurable(at_risk: Floats, deviations: Floats) -> int:
    """How many intervals come before the first with too few people at risk for the noise."""
    too_few = np.flatnonzero((at_risk <= 0.0) | (at_risk < LEAST_AT_RISK * deviations))
    return int(too_few[0]) if too_few.size else len(at_risk)


def _not_rising(values: Floats, deviations: Floats) -> Floats:
    """The closest sequence that does not rise, each value weighted by its precision (pool adjacent violators)."""
    weights = 1.0 / np.maximum(deviations, 1e-12) ** 2
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] < pool[0]:
            mean, heavy, size = pools.pop()
            both = heavy + pool[1]
            pool = ((mean * heavy + pool[0] * pool[1]) / both, both, size + pool[2])
        pools.append(pool)
    return np.array([mean for mean, _, size in pools for _ in range(size)])


def event_table(borders: Sequence[float], cells: Mapping[str, Sequence[float]], deviation: float) -> EventTable:
    """The table of released cells: for each group events by interval, then censored by interval, then beyond.

    Raises ShapeError if a group has another number of cells than 2 intervals + 1, ConfigurationError as `EventTable`.
    """
    intervals = len(borders) - 1
    for name, found in cells.items():
        if len(found) != 2 * intervals + 1:
            raise ShapeError(f"group {name!r} has {len(found)} cells: {intervals} intervals need {2 * intervals + 1}")
    values = np.array([list(found) for found in cells.values()], dtype=np.float64).reshape(-1, 2 * intervals + 1)
    return EventTable(
        np.array(borders, dtype=np.float64),
        values[:, :intervals],
        values[:, intervals:-1],
        values[:, -1],
        tuple(cells),
        deviation,
    )
