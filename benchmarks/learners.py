"""Claim: RadoBoost on recentred rados errs nearly as little as logistic regression on the rows, like mean-variance.

The limit that remains: where n is close to d, the rados' covariance has an error of sqrt(d / n), for both.

Compared with: scikit-learn's LogisticRegression on the rows themselves, with its default C, the choice of a user who
could see the rows; the paper's algorithm on the same rados as they are; mean-variance from the exact moments, its
result for all 2^m rados; least squares on the rows; and the larger class, which needs no training. With --all, also the
regularised boosters on the same rados, once; rados of hats and products of the columns, once; and sets that had no
influence on any design choice.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import LARGE, RULES, SHARED, DataSet, Rule, packaged, read, shared
from benchmarks.measuring import MEASURE_HEADER, REPEATS, Measure, Report, Table, ratio, require, take_turns
from dpcore.estimators.base import MOST_RADOS_FROM_ROWS, RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.estimators.regularised import RadoBoostL1, RadoBoostL2, RadoBoostLinf, RadoBoostSlope
from dpcore.rados.distribution import Moments

FOLDS, ROUNDS = 10, 1000
# Points that count as close to logistic regression.
WITHIN_POINTS, NEAR_POINTS = 1.0, 3.0

LOGISTIC, BOOST, MEAN_VARIANCE = "logistic regression, rows", "RadoBoost, rados", "mean-variance, rados"
AS_THEY_ARE = "RadoBoost, rados as they are"
EXACT, SQUARES, MAJORITY = "mean-variance, exact moments", "least squares, rows", "larger class"
WAYS = (LOGISTIC, BOOST, AS_THEY_ARE, MEAN_VARIANCE, EXACT, SQUARES, MAJORITY)
RADO_WAYS = (BOOST, AS_THEY_ARE, MEAN_VARIANCE)
REGULARISED = {
    "RadoBoost L1, rados": RadoBoostL1,
    "RadoBoost L2, rados": RadoBoostL2,
    "RadoBoost l-infinity, rados": RadoBoostLinf,
    "RadoBoost SLOPE, rados": RadoBoostSlope,
}

# Weak learners beyond one feature: boosting over functions of the columns.
HATS, PRODUCTS = "hats", "products"
KNOTS = (0.02, 0.25, 0.5, 0.75, 0.98)
MOST_MULTIPLIED = 20
BEYOND = tuple(f"{way}, {what}" for what in (HATS, PRODUCTS) for way in ("RadoBoost", "mean-variance", "logistic"))

# Sets that had no influence on any estimator's design: other labels of the tables, smaller tables, synthetic ones.
OTHER_RULES: dict[str, Rule] = {
    "heart_cleveland": (("heart_cleveland",), lambda label: int(label) > 0, ()),
    "heart_hungarian": (("heart_hungarian",), lambda label: int(label) > 0, ()),
    "heart_switzerland": (("heart_switzerland",), lambda label: int(label) > 0, ()),
    "heart_va": (("heart_va",), lambda label: int(label) > 0, ()),
    "fertility": (("fertility",), lambda label: label == "O", ()),
    "wine_white, quality >= 7": (("wine_white",), lambda label: int(label) >= 7, ()),
    "abalone, rings >= 8": (("abalone",), lambda label: int(label) >= 8, ()),
    "abalone, rings >= 12": (("abalone",), lambda label: int(label) >= 12, ()),
}
# Rows, features, informative ones, separation, labels flipped, share of the first class.
SYNTHETIC = (
    (400, 10, 5, 1.0, 0.01, 0.5),
    (800, 30, 10, 1.0, 0.05, 0.7),
    (2000, 60, 20, 1.5, 0.01, 0.5),
    (300, 40, 5, 0.8, 0.05, 0.5),
    (3000, 20, 15, 1.0, 0.1, 0.8),
    (600, 25, 20, 2.0, 0.0, 0.5),
)


def others() -> list[DataSet]:
    """The sets that had no influence on any design choice."""
    rules: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
        "digits, below 5": (load_digits, lambda target: target < 5),
        "digits, eight": (load_digits, lambda target: target == 8),
        "wine, class 0": (load_wine, lambda target: target == 0),
        "wine, class 2": (load_wine, lambda target: target == 2),
        "iris, versicolor": (load_iris, lambda target: target == 1),
        "iris, virginica": (load_iris, lambda target: target == 2),
        "diabetes, above 140": (load_diabetes, lambda target: target > 140),
    }
    tables = []
    for name, (load, rule) in rules.items():
        rows, target = load(return_X_y=True)
        tables.append((name, rows, rule(target)))
    for seed, (m, p, informative, separation, flipped, share) in enumerate(SYNTHETIC):
        rows, target = make_classification(
            m,
            p,
            n_informative=informative,
            n_redundant=min(5, p - informative),
            class_sep=separation,
            flip_y=flipped,
            weights=[share],
            random_state=seed,
        )
        tables.append((f"synthetic {seed}", rows, target == 1))
    sets = [DataSet(name, rows, np.empty((len(rows), 0), dtype=np.str_), positive) for name, rows, positive in tables]
    if SHARED.is_dir():
        sets += [read(name, rules) for name, rules in OTHER_RULES.items()]
        adult = read("adult", RULES["adult"])
        chosen = np.random.default_rng(0).choice(len(adult.positive), 3000, replace=False)
        few = (adult.numeric[chosen], adult.categories[chosen], adult.positive[chosen])
        sets.append(DataSet("adult, 3,000 rows", *few))
    return sets


def cross_validate(data: DataSet, seed: int, *, regularised: bool) -> dict[str, float]:
    """Mean test error in % of each candidate over ten folds; `seed` draws the folds and the rados."""
    signs = np.where(data.positive, 1.0, -1.0)
    errors: dict[str, list[float]] = {}
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(data.numeric, data.positive)
    random = np.random.RandomState(seed)
    for training, test in folds:
        features = data.encode(training)
        rows, labels = features[training], signs[training]
        rados = draw_plain_rados(labels[:, np.newaxis] * rows, rado_count(len(rows)), random)
        release = RadoSample(rados=rados, rows=len(rows), bias=True)
        # LogisticRegression has its own intercept, so it does not get the bias column.
        logistic = LogisticRegression(max_iter=5000).fit(rows[:, :-1], labels)
        predictions = {
            LOGISTIC: logistic.predict(features[test, :-1]),
            BOOST: RadoBoost(ROUNDS).fit_release(release).predict(features[test]),
            AS_THEY_ARE: RadoBoost(ROUNDS, recentre=None).fit_release(release).predict(features[test]),
            MEAN_VARIANCE: MeanVariance().fit_release(release).predict(features[test]),
            EXACT: MeanVariance().fit_moments(_exact_moments(rows, labels)).predict(features[test]),
            SQUARES: _signs(features[test] @ np.linalg.lstsq(rows, labels, rcond=None)[0]),
            MAJORITY: np.full(len(test), 1.0 if labels.sum() > 0 else -1.0),
        }
        if regularised:
            for way, booster in REGULARISED.items():
                predictions[way] = booster().fit_release(release).predict(features[test])
            predictions |= beyond_one_feature(features, data.numeric.shape[1], labels, (training, test), random)
        for way, predicted in predictions.items():
            errors.setdefault(way, []).append(100 * float(np.mean(predicted != signs[test])))
    return {way: float(np.mean(values)) for way, values in errors.items()}


def beyond_one_feature(
    features: NDArray[np.float64],
    numbers: int,
    labels: NDArray[np.float64],
    split: tuple[NDArray[np.int64], NDArray[np.int64]],
    random: np.random.RandomState,
) -> dict[str, NDArray[np.float64]]:
    """Predictions on the test rows from as many plain rados of hats, or of products of pairs, beside the columns.

    numbers: how many of the columns, the first, are numbers; hats have their knots at quantiles of the training rows.
    """
    (training, test), columns = split, features[:, :numbers]
    hats = []
    for column in columns.T:
        knots = np.unique(np.quantile(column[training], KNOTS))
        hats += [np.interp(column, knots, np.eye(len(knots))[peak]) for peak in range(1, len(knots))]
    functions = {HATS: hats}
    if numbers <= MOST_MULTIPLIED:
        pairs = combinations_with_replacement(range(numbers), 2)
        functions[PRODUCTS] = [columns[:, j] * columns[:, k] for j, k in pairs]
    predictions: dict[str, NDArray[np.float64]] = {}
    for what, more in functions.items():
        mapped = np.column_stack([*more, features])
        rows = mapped[training]
        rados = draw_plain_rados(labels[:, np.newaxis] * rows, rado_count(len(rows)), random)
        release = RadoSample(rados=rados, rows=len(rows), bias=True)
        logistic = LogisticRegression(max_iter=5000).fit(rows[:, :-1], labels)
        predictions |= {
            f"RadoBoost, {what}": RadoBoost(ROUNDS).fit_release(release).predict(mapped[test]),
            f"mean-variance, {what}": MeanVariance().fit_release(release).predict(mapped[test]),
            f"logistic, {what}": logistic.predict(mapped[test, :-1]),
        }
    return predictions


def _exact_moments(rows: NDArray[np.float64], labels: NDArray[np.float64]) -> Moments:
    """The moments that all 2^m rados would give."""
    d = rows.shape[1]
    products = rows.T @ rows
    return Moments(
        edge_sum=rows.T @ labels,
        product_sum=(products + products.T) / 2,
        rows=len(rows),
        bias=True,
        norm_bound=float(np.sqrt(d)),
        edge_noise=0.0,
        product_noise=np.zeros((d, d)),
    )


def rado_count(rows: int) -> int:
    """The number of rados: n = min(1000, m / 2), at least two."""
    return max(2, min(MOST_RADOS_FROM_ROWS, rows // 2))


@dataclass(frozen=True)
class Compared:
    """The results of the repeats on one data set: mean errors in %, one per repeat; d counts the bias."""

    name: str
    training_rows: int
    d: int
    errors: dict[str, list[float]]

    @classmethod
    def on(cls, data: DataSet, *, regularised: bool = False) -> "Compared":
        """Run all repeats on `data`, the first with the regularised boosters if requested."""
        repeats = [cross_validate(data, seed, regularised=regularised and seed == 0) for seed in range(REPEATS)]
        every_row = np.arange(len(data.positive))
        training_rows = len(every_row) * (FOLDS - 1) // FOLDS
        errors = {way: [repeat[way] for repeat in repeats if way in repeat] for way in repeats[0]}
        return cls(data.name, training_rows, data.encode(every_row).shape[1], errors)

    @property
    def medians(self) -> dict[str, float]:
        """The median of the repeats' errors, in %, by candidate."""
        return {way: statistics.median(values) for way, values in self.errors.items()}

    def excess(self, way: str) -> Measure:
        """Points above logistic regression on the same folds."""
        points = [a - b for a, b in zip(self.errors[way], self.errors[LOGISTIC], strict=False)]
        return Measure.of(f"{self.name}: {way}, less {LOGISTIC}", "points", points)

    def measures(self) -> list[Measure]:
        """Errors, and those of the rado estimators above logistic regression."""
        errors = [Measure.of(f"{self.name}: {way}", "% test error", values) for way, values in self.errors.items()]
        return errors + [self.excess(way) for way in self.errors if way in (*RADO_WAYS, EXACT, *REGULARISED)]

    def ratios(self) -> list[Measure]:
        """Errors of the rado estimators over those of logistic regression."""
        return [ratio(f"{self.name}: {way} / {LOGISTIC}", self.errors[way], self.errors[LOGISTIC]) for way in RADO_WAYS]

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        spread = self.excess(MEAN_VARIANCE)
        shown = f"{spread.median:+.1f} [{spread.minimum:+.1f}, {spread.maximum:+.1f}]"
        size = f"{self.training_rows} x {self.d}"
        return (
            self.name,
            size,
            str(rado_count(self.training_rows)),
            *(f"{self.medians[way]:.1f}" for way in WAYS),
            shown,
        )

    def as_setting(self) -> dict[str, Any]:
        """The entry of the set in the JSON file."""
        return {
            "name": self.name,
            "training_rows": self.training_rows,
            "d": self.d,
            "rados": rado_count(self.training_rows),
            "median_error_percent": {way: round(error, 2) for way, error in self.medians.items()},
        }


def _signs(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(margins > 0, 1.0, -1.0)


def _speed() -> tuple[list[Measure], list[Measure]]:
    """RadoBoost on 1,000 rados of 100 coordinates, 1,000 rounds, and estimators of the same size."""
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
    compared = _compare(packaged() + more, regularised=everything)
    fresh = _compare(others(), regularised=False) if everything else []
    speed, speed_ratios = _speed()
    header = ("median test error, %", "m x d", "n", *(way.replace(", ", "/") for way in WAYS), "mean-var. - logistic")
    title = f"Learners, {FOLDS} stratified folds {REPEATS} times, n = min(1000, m/2) plain rados"
    tables = [Table(title, header, [one.cells() for one in compared])]
    if everything:
        tables += [
            Table("The same on sets on which nothing was chosen", header, [one.cells() for one in fresh]),
            Table(
                f"Regularised boosting, test error in %, {FOLDS} folds once",
                ("", *(way.removesuffix(", rados") for way in REGULARISED)),
                [(one.name, *(f"{one.medians[way]:.1f}" for way in REGULARISED)) for one in compared],
            ),
            Table(
                f"Hats and products of the columns, on as many rados, test error in %, {FOLDS} folds once",
                ("", *BEYOND),
                [
                    (one.name, *(f"{one.medians[way]:.1f}" if way in one.medians else "-" for way in BEYOND))
                    for one in compared
                ],
            ),
        ]
    tables.append(Table("Time to fit", MEASURE_HEADER, [measure.cells() for measure in speed + speed_ratios]))
    return Report(
        "learners",
        (__doc__ or "").partition("\n")[0],
        {
            "folds": FOLDS,
            "repeats": REPEATS,
            "rounds": ROUNDS,
            "sets": [one.as_setting() for one in compared],
            "other_sets": [one.as_setting() for one in fresh],
        },
        [measure for one in compared + fresh for measure in one.measures()] + speed,
        [times for one in compared + fresh for times in one.ratios()] + speed_ratios,
        tables,
        [
            *_findings(compared),
            *([f"Sets on which nothing was chosen: {finding}" for finding in _findings(fresh)] if fresh else []),
            *_skipped(everything=everything, present=bool(more)),
        ],
    )


def _compare(sets: list[DataSet], *, regularised: bool) -> list[Compared]:
    compared = []
    for data in sets:
        start = time.perf_counter()
        compared.append(Compared.on(data, regularised=regularised))
        print(f"  {data.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return compared


def _findings(compared: list[Compared]) -> list[str]:
    """How often each estimator does well, and on which sets that says little."""
    sets = len(compared)
    better = sum(one.medians[MEAN_VARIANCE] < one.medians[BOOST] for one in compared)
    always = sum(max(one.errors[MEAN_VARIANCE]) < min(one.errors[BOOST]) for one in compared)
    within = {
        way: sum(one.excess(way).median <= WITHIN_POINTS for one in compared) for way in (*RADO_WAYS, EXACT, SQUARES)
    }
    near = sum(one.excess(BOOST).median <= NEAR_POINTS for one in compared)
    hollow = [one.name for one in compared if one.medians[MAJORITY] - one.medians[LOGISTIC] < WITHIN_POINTS]
    return [
        f"Mean-variance errs less than RadoBoost on {better} of {sets} sets (medians), on {always} in every repeat.",
        *(f"{way}: within a point of logistic regression on {count} of {sets} sets." for way, count in within.items()),
        f"{BOOST}: within {NEAR_POINTS:g} points of logistic regression on {near} of {sets} sets.",
        f"Logistic regression gains less than a point on the larger class on: {', '.join(hollow) or 'none'}.",
    ]


def _skipped(*, everything: bool, present: bool) -> list[str]:
    if not present:
        return ["Skipped the twelve shared data sets: there is no shared/data directory next to this checkout."]
    return [] if everything else [f"Skipped {', '.join(LARGE)}, which take long: run with --all for all twelve."]


def draw(report: Report, figure: Figure) -> None:
    """Median test errors, one group of points per set."""
    axes = figure.subplots()
    sets = report.setting["sets"]
    places = np.arange(len(sets))[::-1]
    for way, marker in zip(WAYS, "osv^dx|", strict=True):
        axes.plot([row["median_error_percent"][way] for row in sets], places, marker, label=way)
    names = [f"{row['name']} ({row['training_rows']} x {row['d']}, n={row['rados']})" for row in sets]
    axes.set_yticks(places, names)
    axes.grid(axis="y", alpha=0.3)
    axes.set_xlabel(f"test error in %, median of {REPEATS} repeats of {FOLDS} folds")
    figure.legend(loc="outside lower center", ncols=3)
