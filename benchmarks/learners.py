"""Claim: from the same rados mean-variance errs less than RadoBoost; how far both are from learning on the rows.

The other ways: scikit-learn's LogisticRegression on the rows themselves, with its default C, which is what a user who
could see the rows would pick; RadoBoost, the source's learner, on the same rados; least squares on the rows, which is
what mean-variance would find from all rados; and the larger class, which needs no learner.
"""

import math
import sys
import time
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import LARGE, DataSet, packaged, shared
from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, ratio, require, take_turns
from dpcore.estimators.base import MOST_RADOS_FROM_ROWS, RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost

FOLDS, ROUNDS = 10, 1000
WITHIN_POINTS = 1.0

LOGISTIC, BOOST, MEAN_VARIANCE = "logistic regression, rows", "RadoBoost, rados", "mean-variance, rados"
SQUARES, MAJORITY = "least squares, rows", "larger class"
WAYS = (LOGISTIC, BOOST, MEAN_VARIANCE, SQUARES, MAJORITY)
RADO_WAYS = (BOOST, MEAN_VARIANCE)

Errors = dict[str, list[float]]


def cross_validate(data: DataSet) -> tuple[Errors, tuple[int, int, int]]:
    """Test errors in % of each way, one a fold; and (m, d, n) of the first fold."""
    signs = np.where(data.positive, 1.0, -1.0)
    errors: Errors = {way: [] for way in WAYS}
    sizes = []
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.numeric, data.positive)
    for fold, (training, test) in enumerate(folds):
        features = data.encode(training)
        rows, labels = features[training], signs[training]
        n = max(2, min(MOST_RADOS_FROM_ROWS, len(rows) // 2))
        rados = draw_plain_rados(labels[:, np.newaxis] * rows, n, np.random.RandomState(fold))
        release = RadoSample(rados=rados, rows=len(rows), bias=True)
        sizes.append((*rows.shape, n))
        # LogisticRegression has an intercept of its own, so it is not given the bias column.
        logistic = LogisticRegression(max_iter=5000).fit(rows[:, :-1], labels)
        predictions = {
            LOGISTIC: logistic.predict(features[test, :-1]),
            BOOST: RadoBoost(ROUNDS).fit_release(release).predict(features[test]),
            MEAN_VARIANCE: MeanVariance().fit_release(release).predict(features[test]),
            SQUARES: _signs(features[test] @ np.linalg.lstsq(rows, labels, rcond=None)[0]),
            MAJORITY: np.full(len(test), 1.0 if labels.sum() > 0 else -1.0),
        }
        for way, predicted in predictions.items():
            errors[way].append(100 * float(np.mean(predicted != signs[test])))
    return errors, sizes[0]


def _signs(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(margins > 0, 1.0, -1.0)


def _speed() -> tuple[list[Measure], list[Measure]]:
    """RadoBoost on 1,000 rados of 100 coordinates, 1,000 rounds, beside learners of the same size."""
    random = np.random.default_rng(4)
    release = RadoSample(rados=random.normal(loc=2.0, scale=30.0, size=(1000, 100)), rows=2000)
    rows = random.uniform(-1, 1, size=(2000, 99))
    labels = np.where(rows @ random.normal(size=99) + random.normal(scale=2.0, size=2000) > 0, 1, -1)
    fitted = RadoBoost(1000).fit_release(release)
    require(len(fitted.rounds_.r) == 1000, "RadoBoost stopped early, so its time is not that of 1,000 rounds")
    work: dict[str, Callable[[], object]] = {
        "RadoBoost, n=1,000 d=100 T=1,000": lambda: RadoBoost(1000).fit_release(release),
        "mean-variance, n=1,000 d=100": lambda: MeanVariance().fit_release(release),
        "LogisticRegression, m=2,000 d=100": lambda: LogisticRegression(max_iter=5000).fit(rows, labels),
    }
    seconds = take_turns(work)
    boost, *others = seconds
    measures = [Measure.of(f"fit: {way}", "s", values) for way, values in seconds.items()]
    return measures, [ratio(f"fit: {boost} / {way}", seconds[boost], seconds[way]) for way in others]


def run(*, everything: bool = False) -> Report:
    more = shared(everything=everything)
    skipped = _skipped(everything=everything, present=bool(more))
    measures, ratios, rows, excesses, gains, seconds = [], [], [], [], [], {}
    for data in packaged() + more:
        start = time.perf_counter()
        errors, (m, d, n) = cross_validate(data)
        seconds[data.name] = round(time.perf_counter() - start, 1)
        print(f"  {data.name}: {seconds[data.name]} s", file=sys.stderr)
        means = {way: float(np.mean(errors[way])) for way in WAYS}
        measures += [Measure.of(f"{data.name}: {way}", "% test error", errors[way]) for way in WAYS]
        for way in RADO_WAYS:
            excess = np.subtract(errors[way], errors[LOGISTIC])
            measures.append(Measure.of(f"{data.name}: {way}, less {LOGISTIC}", "points", excess.tolist()))
            ratios.append(_mean_ratio(f"{data.name}: {way} / {LOGISTIC}, mean errors", means[way], means[LOGISTIC]))
        excesses.append([means[way] - means[LOGISTIC] for way in RADO_WAYS])
        gains.append(means[MAJORITY] - means[LOGISTIC])
        paired = np.subtract(errors[MEAN_VARIANCE], errors[LOGISTIC])
        error = f"{paired.mean():+.1f} ± {paired.std(ddof=1) / math.sqrt(FOLDS):.1f}"
        rows.append((data.name, f"{m} x {d}", str(n), *(f"{means[way]:.1f}" for way in WAYS), error))
    speed, speed_ratios = _speed()
    within = [sum(excess[at] <= WITHIN_POINTS for excess in excesses) for at in range(len(RADO_WAYS))]
    better = sum(by_mean_variance < by_boost for by_boost, by_mean_variance in excesses)
    hollow = [row[0] for row, gain in zip(rows, gains, strict=True) if gain < WITHIN_POINTS]
    header = ("mean test error, %", "m x d", "n", *(way.replace(", ", "/") for way in WAYS), "mean-var. - logistic")
    tables = [
        Table(f"Learners, {FOLDS} stratified folds, n = min(1000, m/2) plain rados", header, rows),
        Table("Time to fit", MEASURE_HEADER, [m.cells() for m in speed + speed_ratios]),
    ]
    notes = [
        f"Mean-variance errs less than RadoBoost, on the mean over folds, on {better} of {len(rows)} sets.",
        *(
            f"{way}: within {WITHIN_POINTS:g} point of logistic regression on {count} of {len(rows)} sets."
            for way, count in zip(RADO_WAYS, within, strict=True)
        ),
        f"Where logistic regression gains less than a point on the larger class, that says little: {_listed(hollow)}.",
        "Tables show means over the folds, the difference with its standard error over folds; JSON holds medians.",
        *skipped,
    ]
    sets = [{"name": row[0], "training_rows_x_d": row[1], "rados": int(row[2])} for row in rows]
    means_by_set = [dict(zip(WAYS, map(float, row[3 : 3 + len(WAYS)]), strict=True)) for row in rows]
    setting = {
        "folds": FOLDS,
        "rounds": ROUNDS,
        "sets": [a | {"mean_error_percent": b} for a, b in zip(sets, means_by_set, strict=True)],
        "seconds": seconds,
    }
    claim = (__doc__ or "").partition("\n")[0]
    return Report("learners", claim, setting, measures + speed, ratios + speed_ratios, tables, notes)


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "nowhere here"


def _mean_ratio(what: str, above: float, below: float) -> Measure:
    times = above / below if below else math.inf
    return Measure(what, "times", times, times, times, 1)


def _skipped(*, everything: bool, present: bool) -> list[str]:
    if not present:
        return ["Skipped the twelve shared data sets: there is no shared/data directory beside this checkout."]
    return [] if everything else [f"Skipped {', '.join(LARGE)}, which take long: run with --all for all twelve."]


def draw(report: Report, figure: Figure) -> None:
    """Mean test errors, one group of points a set."""
    axes = figure.subplots()
    sets = report.setting["sets"]
    places = np.arange(len(sets))[::-1]
    for way, marker in zip(WAYS, "os^x|", strict=True):
        axes.plot([row["mean_error_percent"][way] for row in sets], places, marker, label=way)
    axes.set_yticks(places, [f"{row['name']} ({row['training_rows_x_d']}, n={row['rados']})" for row in sets])
    axes.grid(axis="y", alpha=0.3)
    axes.set_xlabel("mean test error in %")
    axes.legend()
