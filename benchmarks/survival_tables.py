"""Claim: survival curves of a federation at epsilon 1 are on average within 0.02 of the pooled ones at 5,000 people.

Unit of privacy: one person's row, replaced, delta = 1e-6; epsilon counts one colluding party of four, so that against
the learner alone it is less. Ours: `Federation.survival` by group and `ProportionalHazards`, asked of parties in one
process. Compared with what sees all rows without privacy: the Kaplan-Meier estimator at the same times, and Cox's
regression; lifelines, in its own environment, must agree with both. The log-rank test is compared with itself without
noise, on made-up people: how often it rejects if hazards are equal, and if they are not.
"""

import csv
import gzip
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.datasets import SHARED
from benchmarks.environments import UnavailableError, environment, work
from benchmarks.measuring import Measure, Report, Table, Target, require
from dpcore.errors import DataError
from dpcore.estimators.hazard_scores import concordance
from dpcore.estimators.hazards import ProportionalHazards
from dpcore.evaluation.life_table import EventTable, log_rank
from dpcore.records.features import BooleanFeature, CategoryFeature, EventTime, RealFeature
from dpcore.records.schema import Schema
from radofed.simulation.cox import cox_regression
from radofed.simulation.oracles import simulated_federation

Floats = NDArray[np.float64]
EPSILON, DELTA, PARTIES = Fraction(1), Fraction(1, 10**6), 4
FOLDS, QUICK_FOLDS = 5, 3
CURVE_DRAWS, MODEL_DRAWS, QUICK_DRAWS = 10, 5, 2
PEOPLE = (3_000, 5_000)
WITHIN = {3_000: 0.03, 5_000: 0.02}
"""Mean absolute error of curves, by the number of people."""
CONCORDANCE_WITHIN = {"rotterdam": 0.01, "flchain": 0.01, "prostate_survival": 0.015}
TESTED_PEOPLE, RATIOS, TESTS, QUICK_TESTS = (1_000, 3_000, 10_000), (1.0, 1.2, 1.5), 2000, 200
SIGNIFICANT, MOST_LEVEL = 0.05, 0.06
PINS = ("lifelines==0.30.0",)
AGREE_CURVES, AGREE_CONCORDANCE = 1e-6, 0.002


@dataclass(frozen=True)
class EventRule:
    """The column of the time, the event's texts, the ends of intervals, the groups' column, and the features."""

    time: str
    event: str
    borders: tuple[float, ...]
    by: str
    features: tuple[RealFeature | CategoryFeature | BooleanFeature, ...]

    @property
    def schema(self) -> Schema:
        """Of the table, with bounds of the domain."""
        label = EventTime(column=self.time, event=self.event, happened=("1",), borders=self.borders)
        return Schema(name="benchmark", label=label, features=self.features)


def _number(name: str, lower: float, upper: float, impute: float | None = None) -> RealFeature:
    feature = RealFeature(name=name, lower=lower, upper=upper, out_of_bounds="clip")
    return feature if impute is None else replace(feature, missing="impute", impute=impute)


def _category(name: str, *values: str) -> CategoryFeature:
    return CategoryFeature(name=name, values=values)


def _flag(name: str) -> BooleanFeature:
    return BooleanFeature(name=name, true=("1",), false=("0",))


RULES = {
    "flchain": EventRule(
        "time_days",
        "death",
        tuple(500.0 * k for k in range(1, 10)),
        "sex",
        (
            _number("age", 50, 100),
            _number("kappa", 0, 10),
            _number("lambda", 0, 10),
            _number("creatinine", 0, 5, impute=1),
            _category("sex", "F", "M"),
            _flag("mgus"),
        ),
    ),
    "rotterdam": EventRule(
        "time_days",
        "death",
        tuple(400.0 * k for k in range(1, 11)),
        "grade",
        (
            _number("age", 20, 90),
            _number("nodes", 0, 20),
            _number("pgr", 0, 1000),
            _number("er", 0, 1000),
            _category("size", "<=20", "20-50", ">50"),
            _category("grade", "2", "3"),
            _flag("meno"),
            _flag("hormon"),
            _flag("chemo"),
        ),
    ),
    "prostate_survival": EventRule(
        "time_months",
        "died",
        tuple(12.0 * k for k in range(1, 9)),
        "grade",
        (
            _category("grade", "mode", "poor"),
            _category("stage", "T1ab", "T1c", "T2"),
            _category("age_group", "66-69", "70-74", "75-79", "80+"),
        ),
    ),
}


@dataclass(frozen=True, eq=False)
class People:
    """A table whose times are positive."""

    rule: EventRule
    table: pa.Table
    times: Floats
    happened: NDArray[np.bool_]
    groups: NDArray[np.str_]

    @classmethod
    def read(cls, name: str, folder: Path = SHARED) -> "People":
        """One next to the repository."""
        rule = RULES[name]
        with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
            records = [record for record in csv.DictReader(stream) if float(record[rule.time]) > 0]
        table = pa.table({column: [record[column] or None for record in records] for column in records[0]})
        numbers = {feature.name for feature in rule.features if isinstance(feature, RealFeature)} | {rule.time}
        for column in numbers:
            place = table.column_names.index(column)
            table = table.set_column(place, column, table[column].cast(pa.float64()))
        times = np.array([float(record[rule.time]) for record in records])
        happened = np.array([record[rule.event] == "1" for record in records])
        return cls(rule, table, times, happened, np.array([record[rule.by] for record in records]))

    def some(self, places: NDArray[np.intp]) -> "People":
        """The people at these places."""
        table = self.table.take(pa.array(places))
        return People(self.rule, table, self.times[places], self.happened[places], self.groups[places])

    def curves(self) -> dict[str, Floats]:
        """The Kaplan-Meier estimate at the borders, by group."""
        return {
            str(group): kaplan_meier(self.times[self.groups == group], self.happened[self.groups == group], self.rule)
            for group in np.unique(self.groups)
        }

    def encoded(self) -> Floats:
        """Records, the bias last."""
        return np.asarray(self.rule.schema.encode(self.table).x, dtype=np.float64)


def kaplan_meier(times: Floats, happened: NDArray[np.bool_], rule: EventRule) -> Floats:
    """The product-limit estimate just after each border, (J,)."""
    ends, place = np.unique(times, return_inverse=True)
    events = np.bincount(place[happened], minlength=len(ends))
    at_risk = len(times) - np.concatenate([[0], np.cumsum(np.bincount(place))[:-1]])
    survival = np.concatenate([[1.0], np.cumprod(1.0 - events / at_risk)])
    found: Floats = survival[np.searchsorted(ends, rule.borders, side="right")]
    return found


@dataclass(frozen=True, eq=False)
class Curves:
    """Of one table with so many people: errors and untold points of each draw, and the deviation of a cell's noise."""

    name: str
    people: int
    errors: list[float]
    untold: list[float]
    deviation: float


def curves_of(people: People, name: str, count: int | None, draws: int, python: Path | None) -> Curves:
    """Mean absolute errors over borders and groups; points that a curve ends before are counted, and left out."""
    errors, untold, deviation, chosen = [], [], 0.0, []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(people.times))
        some = people.some(np.sort(order[:count]))
        chosen.append(some)
        federation = simulated_federation(some.table, schema=people.rule.schema, parties=PARTIES, seed=draw)
        found = federation.survival(by=people.rule.by, epsilon=EPSILON, delta=DELTA)
        apart, missing = [], 0
        for group, curve in some.curves().items():
            for border, pooled in zip(people.rule.borders, curve.tolist(), strict=True):
                ours = found.one("survival", people.rule.time, group=group, level=f"{border:g}").estimate
                missing += ours is None
                if ours is not None:
                    apart.append(abs(ours - pooled))
        errors.append(float(np.mean(apart)))
        untold.append(missing / (len(apart) + missing))
        deviation = found.deviation
    if python is not None:
        _check_curves(chosen[0], python)
    return Curves(name, len(people.times) if count is None else count, errors, untold, deviation)


def _check_curves(people: People, python: Path) -> None:
    for group, ours in people.curves().items():
        chosen = people.groups == group
        job = {
            "kind": "curve",
            "times": people.times[chosen],
            "happened": people.happened[chosen],
            "borders": np.array(people.rule.borders),
        }
        theirs = np.array(work(python, "lifelines_worker.py", job))
        require(bool(np.abs(ours - theirs).max() < AGREE_CURVES), "lifelines estimates another curve")


@dataclass(frozen=True, eq=False)
class Models:
    """Concordance of test rows: ours (draws, folds), and Cox's regression on the pooled rows (folds,)."""

    name: str
    rows: int
    ours: Floats
    pooled: Floats

    @property
    def below(self) -> float:
        """How much less than pooled."""
        return float(self.pooled.mean() - self.ours.mean())


def models_of(people: People, name: str, folds: int, draws: int, python: Path | None) -> Models:
    """Train in each fold."""
    order = np.random.default_rng(0).permutation(len(people.times))
    ours, pooled = np.empty((draws, folds)), np.empty(folds)
    horizon = people.rule.borders[-1]
    for fold, places in enumerate(np.array_split(order, folds)):
        train, test = people.some(np.setdiff1d(order, places)), people.some(np.sort(places))
        x, rows = train.encoded(), test.encoded()
        known = test.happened & (test.times <= horizon)
        times = np.where(test.times > horizon, np.inf, test.times)
        ends, happened = np.minimum(train.times, horizon), train.happened & (train.times <= horizon)
        theta = cox_regression(x[:, :-1], ends, happened)
        pooled[fold] = concordance(rows[:, :-1] @ theta, times, known)
        if python is not None and fold == 0:
            job = {"kind": "cox", "x": x[:, :-1], "times": ends, "happened": happened}
            theirs = rows[:, :-1] @ np.array(work(python, "lifelines_worker.py", job))
            apart = abs(concordance(theirs, times, known) - pooled[fold])
            require(apart < AGREE_CONCORDANCE, "lifelines fits another regression")
        for draw in range(draws):
            federation = simulated_federation(
                train.table, schema=people.rule.schema, parties=PARTIES, seed=100 * fold + draw
            )
            model = ProportionalHazards().fit_queries(federation.within(EPSILON, DELTA))
            ours[draw, fold] = concordance(model.decision_function(rows), times, known)
    return Models(name, len(people.times), ours, pooled)


def rejections(people: int, ratio: float, deviation: float, tests: int) -> float:
    """The share of log-rank tests with a p-value below `SIGNIFICANT`: two groups of made-up people, eight intervals.

    Half of the first group have the event within the horizon, if nobody is censored; censoring is uniform over
    one and a half times the horizon.
    """
    random = np.random.default_rng([people, round(100 * ratio), round(1e6 * deviation)])
    borders = np.linspace(0.0, 8.0, 9)
    rejected = 0
    for _ in range(tests):
        events, censored, beyond = np.empty((2, 8)), np.empty((2, 8)), np.empty(2)
        for group, hazard in enumerate((np.log(2.0) / 8.0, ratio * np.log(2.0) / 8.0)):
            size = people // 2
            times, last = random.exponential(1.0 / hazard, size), random.uniform(0.0, 12.0, size)
            ends, happened = np.minimum(times, last), times <= last
            events[group] = np.histogram(ends[happened], borders)[0]
            censored[group] = np.histogram(ends[~happened], borders)[0]
            beyond[group] = (ends > 8.0).sum()
        noisy = [cells + deviation * random.standard_normal(cells.shape) for cells in (events, censored, beyond)]
        table = EventTable(borders, noisy[0], noisy[1], noisy[2], ("first", "second"), deviation)
        try:
            rejected += log_rank(table).p_value < SIGNIFICANT
        except DataError:
            continue
    return rejected / tests


Tested = Mapping[tuple[int, float], tuple[float, float]]
"""By people and ratio of hazards: the share of tests that reject, with noise and without."""


def run(*, everything: bool = False) -> Report:
    """Measure."""
    names, folds = (list(RULES), FOLDS) if everything else (["rotterdam"], QUICK_FOLDS)
    curve_draws, model_draws = (CURVE_DRAWS, MODEL_DRAWS) if everything else (QUICK_DRAWS, QUICK_DRAWS)
    notes = ["A draw of curves is of other people where a table has more, with noise of its own."]
    python = None
    try:
        python = environment("lifelines", PINS, "lifelines")
        notes.append(f"{PINS[0]} agrees with the pooled curves and regressions.")
    except UnavailableError as error:
        notes.append(f"Without lifelines: {error}.")
    if not SHARED.is_dir():
        names = []
        notes.append("Skipped the tables of shared/data, which is not next to this checkout.")
    curves, models = [], []
    for name in names:
        start, people = time.perf_counter(), People.read(name)
        counts: list[int | None] = [count for count in PEOPLE if count < len(people.times)]
        curves += [curves_of(people, name, count, curve_draws, python) for count in [*counts, None]]
        models.append(models_of(people, name, folds, model_draws, python))
        print(f"  {name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    deviation = curves[0].deviation if curves else 10.0
    tests = TESTS if everything else QUICK_TESTS
    tested = {
        (people, ratio): (rejections(people, ratio, deviation, tests), rejections(people, ratio, 0.0, tests))
        for people in TESTED_PEOPLE
        for ratio in RATIOS
    }
    return _report(curves, models, tested, deviation, notes, folds)


def _report(
    curves: list[Curves], models: list[Models], tested: Tested, deviation: float, notes: list[str], folds: int
) -> Report:
    tables = [
        Table(
            f"Survival by group at epsilon {float(EPSILON):g}: mean absolute error beside Kaplan-Meier",
            ("table", "people", "mean", "largest draw", "points not told"),
            [
                (
                    one.name,
                    f"{one.people:,}",
                    f"{np.mean(one.errors):.4f}",
                    f"{np.max(one.errors):.4f}",
                    f"{100 * np.mean(one.untold):.1f} %",
                )
                for one in curves
            ],
        ),
        Table(
            "Concordance of test rows",
            ("table", "hazards", "worst draw", "Cox, no privacy", "below"),
            [
                (
                    f"{one.name} ({one.rows:,})",
                    f"{one.ours.mean():.4f}",
                    f"{one.ours.mean(axis=1).min():.4f}",
                    f"{one.pooled.mean():.4f}",
                    f"{one.below:.4f}",
                )
                for one in models
            ],
        ),
        Table(
            f"Log-rank tests that reject at {SIGNIFICANT:g}, noise of {deviation:.1f} people on each cell",
            ("people", "ratio of hazards", "with noise", "without"),
            [(f"{people:,}", f"{ratio:g}", f"{a:.3f}", f"{b:.3f}") for (people, ratio), (a, b) in tested.items()],
        ),
    ]
    setting: dict[str, Any] = {
        "epsilon": float(EPSILON),
        "delta": float(DELTA),
        "parties": PARTIES,
        "folds": folds,
        "noise_deviation": round(deviation, 2),
        "curves": [
            {"name": one.name, "people": one.people, "errors": [round(error, 5) for error in one.errors]}
            for one in curves
        ],
        "models": [
            {
                "name": one.name,
                "rows": one.rows,
                "hazards": round(float(one.ours.mean()), 4),
                "worst_draw": round(float(one.ours.mean(axis=1).min()), 4),
                "cox": round(float(one.pooled.mean()), 4),
            }
            for one in models
        ],
        "log_rank": [
            {"people": people, "ratio": ratio, "with_noise": a, "without": b}
            for (people, ratio), (a, b) in tested.items()
        ],
    }
    measures = [
        Measure.of(f"{one.name}, {one.people:,} people: curves", "mean absolute error", one.errors) for one in curves
    ]
    for one in models:
        measures.append(Measure.of(f"{one.name}: hazards", "concordance", one.ours.mean(axis=1).tolist()))
        measures.append(Measure.of(f"{one.name}: Cox, no privacy", "concordance", [float(one.pooled.mean())]))
    claim = (__doc__ or "").partition("\n")[0]
    return Report("survival_tables", claim, setting, measures, [], tables, notes, _targets(curves, models, tested))


def _targets(curves: list[Curves], models: list[Models], tested: Tested) -> list[Target]:
    found = []
    for one in curves:
        within = WITHIN[max([count for count in PEOPLE if count <= one.people] or [min(PEOPLE)])]
        words = f"{one.name}, {one.people:,} people: curves, mean absolute error"
        found.append(Target(words, "", within, float(np.mean(one.errors)), at_least=False))
    for each in models:
        words = f"{each.name}: concordance of hazards below Cox"
        found.append(Target(words, "", CONCORDANCE_WITHIN[each.name], each.below, at_least=False))
    for (people, ratio), (with_noise, _) in tested.items():
        if ratio == 1.0:
            words = f"log-rank, {people:,} people of equal hazards: share that rejects"
            found.append(Target(words, "", MOST_LEVEL, with_noise, at_least=False))
    return found


def draw(report: Report, figure: Figure) -> None:
    """Left: errors of curves. Middle: concordance. Right: how often the log-rank test rejects."""
    left, middle, right = figure.subplots(1, 3)
    curves = report.setting["curves"]
    left.boxplot([one["errors"] for one in curves], orientation="horizontal")
    left.set_yticks(range(1, len(curves) + 1), [f"{one['name']}, {one['people']:,}" for one in curves], fontsize=7)
    left.set_xlabel("mean absolute error of curves", fontsize=8)
    models = report.setting["models"]
    places = np.arange(len(models))
    for shift, key in ((-0.2, "hazards"), (0.2, "cox")):
        middle.bar(places + shift, [one[key] for one in models], 0.4, label=key)
    middle.set_xticks(places, [one["name"] for one in models], fontsize=7)
    middle.set_ylim(0.5, 0.9)
    middle.set_ylabel("concordance", fontsize=8)
    middle.legend(fontsize=7)
    for ratio in RATIOS:
        of = [one for one in report.setting["log_rank"] if one["ratio"] == ratio]
        for key, style in (("with_noise", "-"), ("without", "--")):
            right.plot(
                [one["people"] for one in of], [one[key] for one in of], style, marker="o", label=f"{ratio:g}, {key}"
            )
    right.set_xscale("log")
    right.set_xlabel("people", fontsize=8)
    right.set_ylabel("share of tests that reject", fontsize=8)
    right.legend(fontsize=6)
