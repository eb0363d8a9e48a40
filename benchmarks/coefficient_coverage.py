"""Claim: of 100 intervals of coefficients on real tables 95 or more hold the pooled value, within the runs' error.

The table is the population, as in benchmarks.interval_coverage: each run draws as many rows from it, with replacement,
and trains on them with the noise of four parties, one of which may collude, in real numbers. A stated interval holds if
it contains the coefficient of a regression on all rows of the table, without noise and without clipping: least squares,
a Poisson regression, a logistic regression, Cox's regression up to the horizon. Of `additive` the values of shapes are
counted, each shape alike, and the regression is over the functions of the run. Schemas are drafted from the tables.
"""

import gzip
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.datasets import SHARED
from benchmarks.interval_coverage import Counted, NoisyTable, bands_of
from benchmarks.measuring import Measure, Report, Table
from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.noise_shares import (
    PRODUCT_WEIGHT,
    SQUARE_WEIGHT,
    class_moments_squared,
    number_moments_squared,
    square_weight,
)
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.errors_of_least_squares import errors_of_least_squares
from dpcore.estimators.hazards import ProportionalHazards
from dpcore.estimators.least_squares import LeastSquares
from dpcore.estimators.oracle import WHOLE, GradientEstimate
from dpcore.estimators.private_newton import CLIP_OF_LOG_ODDS, CLIP_OF_LOG_ODDS_OF_CLASSES, PrivateNewton, roomy_norm
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import THETA_BITS
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import edge_multiplier, label_multiplier, usual_norm
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.rados.distribution import ClassMoments, NumberMoments
from dpcore.records.clipping import Basis, Clip
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates
from learner.coefficient_table import best_known
from learner.estimators import make_estimator
from learner.expected_coefficients import ExpectedCoefficients
from learner.model import Model
from learner.report.coefficients import effects
from learner.uncertainty import MOST_HALF_WIDTH, OF_CLASSES, Limits, half_widths, measurable
from parties.data.schema_draft import infer
from radobase.tables.tables import as_source, encoded_blocks, numbers_of
from radofed.simulation.cox import cox_regression
from tests.learner.shapes.mapped import STATEMENT

EPSILON, DELTA, BITS, HAZARD_FRACTION_BITS = 1.0, 1e-6, 12, 8
PARTIES, COLLUDING = 4, 1
RIDGE, STEPS, CLOSE = 1e-3, 40, 1e-6

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """A table and its label. drafted: for `infer`."""

    label: str
    drafted: dict[str, Any]
    estimators: tuple[str, ...]
    file: str = ""
    """The table's name, if it is another."""


INCOME = ("person", "meddol", "site", "mdvis")

TABLES = {
    "cps1988": Source("wage", {"target": "number"}, ("newton", "linear", "additive")),
    "diamonds": Source("price", {"target": "number"}, ("newton", "linear", "additive")),
    "kappa": Source("kappa", {"target": "number", "excluded": ("time_days", "death")}, ("newton", "linear"), "flchain"),
    "income": Source("linc", {"target": "number", "excluded": INCOME}, ("newton", "linear"), "randhie"),
    "abalone": Source("label", {"target": "number"}, ("newton", "linear")),
    "wine_white": Source("label", {"target": "number"}, ("newton", "linear")),
    "randhie": Source("mdvis", {"target": "count", "excluded": ("person", "meddol", "site")}, ("newton", "additive")),
    "rotterdam": Source("time_days", {"target": "event", "event": "death"}, ("hazards", "additive")),
    "flchain": Source("time_days", {"target": "event", "event": "death"}, ("hazards", "additive")),
    "prostate_survival": Source("time_months", {"target": "event", "event": "died"}, ("hazards", "additive")),
    "surveys": Source("sex", {"positive": ("F",)}, ("newton",)),
    "diamonds_cut": Source("cut", {"target": "classes"}, ("newton",), "diamonds"),
    "wine_classes": Source("label", {"target": "classes"}, ("newton",), "wine_white"),
    "surveys_species": Source("species", {"target": "classes"}, ("newton",), "surveys"),
    "adult_train": Source("label", {"positive": (">50K",), "excluded": ("fnlwgt", "native_country")}, ("newton",)),
}


class Noisy:
    """An oracle over rows with the noise of a federation in real numbers; see dpcore.estimators.oracle."""

    def __init__(self, records: Records, schema: Schema, epsilon: float, random: np.random.Generator) -> None:
        self.records, self.schema, self.random, self.rows = records, schema, random, records.rows
        self.epsilon, self.delta = Fraction(epsilon), Fraction(DELTA)
        self._mu = gaussian_mu(self.epsilon, DELTA) / math.sqrt(PARTIES / (PARTIES - COLLUDING))

    def statistic(self, predicates: Any, *, part: Fraction = WHOLE) -> Estimates:
        """Means over the rows."""
        deviation = self._deviation(batch_sensitivity(predicates).l2_squared, part) / self.rows
        values = sums(predicates, self.schema, self.records, 0) / self.rows
        return Estimates(
            values + self.random.normal(scale=deviation, size=len(values)), self.rows, 0.95, 0.0, 0.0, 0.0, deviation
        )

    def number_moments(
        self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, feature_map: FeatureMap | None = None
    ) -> NumberMoments:
        """Sums of clipped rows."""
        bound = norm_bound or usual_norm(self.schema, feature_map)
        multiplier = label_multiplier(bound, None)
        query = NumberMomentsQuery(Clip(bound, bias=True), multiplier, 3, self.schema.label.coding)
        exact = query.moments(query.sums(self._mapped(feature_map), BITS), BITS, rows=self.rows, parties=1)
        deviation = self._deviation(number_moments_squared(query.clip, BITS, multiplier), part) / 4**BITS
        noise, drawn = self._of_products(deviation, exact.d)
        of_sums, of_squares = deviation / multiplier, deviation / square_weight(multiplier)
        return NumberMoments(
            exact.label_sum + self.random.normal(scale=of_sums, size=exact.d),
            exact.square_sum + self.random.normal(scale=of_squares),
            exact.product_sum + drawn,
            self.rows,
            True,
            float(bound),
            of_sums,
            of_squares,
            noise,
        )

    def number_gradient(
        self,
        theta: Vector,
        *,
        loss: Any,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The mean of clipped gradients."""
        query = NumberGradientQuery(loss, _fixed(theta), clip, 3, basis, self.schema.label.coding)
        return self._mean(query, BITS, part, feature_map)

    def class_moments(self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, **_: Any) -> ClassMoments:
        """Sums of clipped rows of each class."""
        clip = Clip(norm_bound or usual_norm(self.schema), bias=True)
        multiplier = edge_multiplier(clip.norm_bound, BITS, None)
        query = ClassMomentsQuery(clip, multiplier, 3, classes=self.schema.label.classes)
        exact = query.moments(query.sums(self.records, BITS), BITS, rows=self.rows, parties=1)
        deviation = self._deviation(class_moments_squared(clip, BITS, multiplier), part) / 4**BITS
        noise, drawn = self._of_products(deviation, exact.d)
        of_sums = deviation * 2**BITS / multiplier
        return ClassMoments(
            exact.class_sums + self.random.normal(scale=of_sums, size=exact.class_sums.shape),
            exact.product_sum + drawn,
            self.rows,
            True,
            float(clip.norm_bound),
            of_sums,
            noise,
        )

    def class_gradient(
        self, theta: Matrix, *, clip: Fraction, part: Fraction = WHOLE, basis: Basis | None = None, **_: Any
    ) -> GradientEstimate:
        """The mean of clipped gradients, class by class."""
        query = ClassGradientQuery("logistic", _fixed(theta.ravel()), clip, 3, basis, self.schema.label.classes)
        return self._mean(query, BITS, part)

    def _of_products(self, deviation: float, d: int) -> tuple[Matrix, Matrix]:
        """The deviations of the noise on products (d, d), and a draw of it."""
        noise = np.full((d, d), deviation / PRODUCT_WEIGHT)
        np.fill_diagonal(noise, deviation / SQUARE_WEIGHT)
        noise[-1, -1] = 0.0
        upper = np.triu(self.random.normal(size=noise.shape) * noise)
        return noise, upper + np.triu(upper, 1).T

    def hazard_gradient(
        self,
        theta: Vector,
        *,
        clip: Fraction,
        interval_weight: int,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The mean of weighted gradients."""
        intervals = self.schema.label.coding.intervals
        query = HazardGradientQuery("hazards", _fixed(theta), clip, 3, basis, intervals, interval_weight)
        return self._mean(query, HAZARD_FRACTION_BITS, part, feature_map)

    def _mean(self, query: Any, bits: int, part: Fraction, feature_map: FeatureMap | None = None) -> GradientEstimate:
        mean = query.decode(query.sums(self._mapped(feature_map), bits), bits) / self.rows
        deviation = self._deviation(Fraction(4) * query.clip**2, part) / self.rows
        return GradientEstimate(mean + self.random.normal(scale=deviation, size=mean.shape), deviation, self.rows)

    def _mapped(self, feature_map: FeatureMap | None) -> Records:
        return self.records if feature_map is None else self.records.mapped(feature_map)

    def _deviation(self, squared: Fraction | int, part: Fraction) -> float:
        return math.sqrt(float(squared) / float(part)) / self._mu


def _fixed(theta: Vector) -> tuple[int, ...]:
    return tuple(np.rint(np.ldexp(theta, THETA_BITS)).astype(int).tolist())


@dataclass(frozen=True, eq=False)
class Population:
    """A table as rows that a drafted schema encodes. times: of a time to an event. pooled: the coefficients of all."""

    schema: Schema
    x: Matrix
    labels: NDArray[Any]
    usable: NDArray[np.bool_]
    times: Vector
    pooled: Vector

    @classmethod
    def of(cls, name: str, folder: Path = SHARED) -> Self:
        """A table of the folder."""
        source = TABLES[name]
        with tempfile.TemporaryDirectory() as made:
            file = Path(made) / f"{name}.csv"
            with gzip.open(folder / f"{source.file or name}.csv.gz", "rb") as packed, file.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            schema = infer(as_source(file), source.label, **source.drafted)[0]
            blocks = list(encoded_blocks(as_source(file), schema, label=True))
            times = numbers_of(as_source(file), source.label) if schema.label.coding.intervals else np.zeros(0)
        x, usable = (np.concatenate([getattr(each, what) for each in blocks]) for what in ("x", "usable"))
        labels = np.concatenate([each.labels for each in blocks if each.labels is not None])
        x[~usable] = 0.0
        times = times[usable[: len(times)]]
        return cls(schema, x, labels, usable, times, _pooled(schema, x[usable], labels[usable], times))

    def records(self, rows: NDArray[np.intp]) -> Records:
        """Those of some rows."""
        coding = self.schema.label.coding
        return Records(store(self.x[rows]), self.labels[rows].astype(coding.dtype), self.usable[rows], coding=coding)

    def expected(self, estimator: str, epsilon: float) -> ExpectedCoefficients | None:
        """What a plan expects to be stated; None of curves and of several classes."""
        made = None if estimator == "linear" else make_estimator(estimator, **self._options)
        terms = self.schema, len(self.x), Fraction(str(epsilon)), Fraction(str(DELTA))
        return ExpectedCoefficients.of(estimator, made, *terms, honest=(PARTIES - COLLUDING) / PARTIES)

    @property
    def _options(self) -> dict[str, Any]:
        """As the runs have them."""
        return {"clip": CLIP_OF_LOG_ODDS} if self.schema.label.coding.kind == "signs" else {}

    def held(self, estimator: str, epsilon: float, seed: int) -> list[tuple[float, float]]:
        """Of a run, for each coefficient, or for each shape: the share that is stated, and that is stated and holds."""
        if estimator == "additive":
            made, true = self.shapes(epsilon, seed)
            return [(stated, np.nan_to_num(hold) * stated) for _, stated, hold in bands_of(made, true)]
        errors, widths, stated = self.errors(estimator, epsilon, seed)
        return list(zip(stated, stated & (np.abs(errors) <= widths), strict=True))

    def shapes(self, epsilon: float, seed: int) -> tuple[Model, Model]:
        """The model of curves of a run, and that of the same functions on all rows, with the same covariance."""
        random = np.random.default_rng(seed)
        drawn = random.integers(len(self.x), size=len(self.x))
        oracle: Any = Noisy(self.records(drawn), self.schema, epsilon, random)
        fitted = PrivateAdditive(pairs=False).fit_queries(oracle)
        x = self.x if fitted.feature_map_ is None else fitted.feature_map_.of(self.x)
        pooled = _pooled(self.schema, x[self.usable], self.labels[self.usable], self.times)
        made, true = (
            Model(
                theta,
                self.schema,
                "additive",
                bytes(32),
                STATEMENT,
                None,
                fitted.feature_map_,
                fitted.covariance_,
                log_hazards=getattr(fitted, "log_hazards_", None),
            )
            for theta in (fitted.theta_, pooled)
        )
        return made, true

    def errors(self, estimator: str, epsilon: float, seed: int) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Of a run: errors of the coefficients without the intercept, half-widths, and whether they are stated."""
        random = np.random.default_rng(seed)
        drawn = random.integers(len(self.x), size=len(self.x))
        theta, covariance = self._fitted(estimator, drawn, epsilon, random)
        combinations = np.array([weights for name, _, weights in effects(self.schema) if name != "intercept"])
        if classes := self.schema.label.classes:
            # Each class against the one that is known best.
            base = best_known(covariance, classes)
            contrasts = np.delete(np.eye(classes) - np.eye(classes)[base], base, axis=0)
            combinations = np.kron(contrasts, combinations)
        widths = half_widths(combinations, covariance)
        coding = self.schema.label.coding
        limits = Limits.of(self.schema.label, is_rate=coding.kind == "count") if coding.has_value else OF_CLASSES
        stated = measurable(combinations, covariance, limits) & (widths <= MOST_HALF_WIDTH)
        return combinations @ (theta - self.pooled), widths, stated

    def _fitted(
        self, estimator: str, drawn: NDArray[np.intp], epsilon: float, random: np.random.Generator
    ) -> tuple[Vector, Matrix]:
        if self.schema.label.coding.kind == "signs":
            kept = drawn[self.usable[drawn]]
            # One of four parties may collude: the noise is larger by the root of 4/3.
            signs: Any = NoisyTable(self.x[kept], self.labels[kept].astype(float), self.schema, epsilon, random)
            signs.epsilon = Fraction(epsilon * math.sqrt((PARTIES - COLLUDING) / PARTIES)).limit_denominator(10**6)
            fitted: Any = PrivateNewton(clip=CLIP_OF_LOG_ODDS).fit_queries(signs)
            return fitted.theta_, fitted.covariance_
        oracle: Any = Noisy(self.records(drawn), self.schema, epsilon, random)
        if estimator == "linear":
            moments = oracle.number_moments(norm_bound=roomy_norm(self.schema))
            least = LeastSquares().fit_moments(moments)
            errors = errors_of_least_squares(least.theta_, moments, least.residual_variance_, self.schema)
            return least.theta_, errors.covariance
        clip = CLIP_OF_LOG_ODDS_OF_CLASSES if self.schema.label.classes else None
        made: Any = ProportionalHazards() if estimator == "hazards" else PrivateNewton(clip=clip)
        made.fit_queries(oracle)
        return made.theta_.ravel(), made.covariance_


def _pooled(schema: Schema, x: Matrix, labels: NDArray[Any], times: Vector) -> Vector:
    """The regression on all usable rows, with a ridge of `RIDGE` for columns that determine one another."""
    coding = schema.label.coding
    values = coding.values(labels).astype(np.float64)
    if coding.intervals:
        horizon = schema.label.borders[-1]  # type: ignore[union-attr]  # a time to an event
        known = np.where(values == 2 * coding.intervals, horizon, times)
        return np.append(cox_regression(x[:, :-1], known, values < coding.intervals), 0.0)
    if coding.classes:
        return _multinomial(x, values.astype(np.intp), coding.classes)
    if coding.kind == "number":
        return _newton(x, lambda eta: (eta, np.ones_like(eta)), values / ONE, steps=1)
    if coding.kind == "count":
        offsets = np.ldexp(coding.offsets(labels).astype(np.float64), -OFFSET_BITS)
        return _newton(x, lambda eta: (np.exp(eta + offsets),) * 2, values)
    return _newton(x, _logistic, (values + 1.0) / 2.0)


def _logistic(eta: Vector) -> tuple[Vector, Vector]:
    mean = 1.0 / (1.0 + np.exp(-eta))
    return mean, mean * (1.0 - mean)


def _newton(x: Matrix, family: Callable[[Vector], tuple[Vector, Vector]], y: Vector, steps: int = STEPS) -> Vector:
    """The root of a generalised linear model. family: mean and variance of linear predictors."""
    theta, ridge = np.zeros(x.shape[1]), RIDGE * np.eye(x.shape[1])
    for _ in range(steps):
        mean, variance = family(x @ theta)
        step = np.linalg.solve((x * variance[:, np.newaxis]).T @ x + ridge, x.T @ (y - mean) - ridge @ theta)
        theta = theta + step * min(1.0, 2.0 / max(float(np.linalg.norm(step)), RIDGE))
    return theta


def _multinomial(x: Matrix, codes: NDArray[np.intp], classes: int) -> Vector:
    """The weights of a multinomial regression, class by class, beside their average."""
    d, members = x.shape[1], np.eye(classes)[codes]
    theta = np.zeros((classes, d))
    for _ in range(STEPS):
        parts = np.exp(x @ theta.T - (x @ theta.T).max(axis=1, keepdims=True))
        chances = parts / parts.sum(axis=1, keepdims=True)
        hessian = np.zeros((classes, d, classes, d))
        for first in range(classes):
            for second in range(first, classes):
                weights = chances[:, first] * ((first == second) - chances[:, second])
                block = (x * weights[:, np.newaxis]).T @ x
                hessian[first, :, second] = hessian[second, :, first] = block
        gradient = (members - chances).T @ x - RIDGE * theta
        step = np.linalg.solve(hessian.reshape(classes * d, -1) + RIDGE * np.eye(classes * d), gradient.ravel())
        theta += step.reshape(theta.shape) * min(1.0, 5.0 / max(float(np.linalg.norm(step)), RIDGE))
        if float(np.linalg.norm(step)) < CLOSE:
            break
    return np.asarray(theta - theta.mean(axis=0)).ravel()


def counted(population: Population, estimator: str, epsilon: float, seeds: Iterable[int]) -> Counted:
    """Which share of coefficients has an interval, or of shapes' values a band, and of these which holds."""
    return Counted.of([each for seed in seeds for each in population.held(estimator, epsilon, seed)])


RUNS, QUICK_RUNS = 500, 10
RUNS_OF_SHAPES, QUICK_RUNS_OF_SHAPES = 50, 2
STATED = 95.0


def run(*, everything: bool = False) -> Report:
    """Measure."""
    runs = RUNS if everything else QUICK_RUNS
    there = [name for name, source in TABLES.items() if (SHARED / f"{source.file or name}.csv.gz").is_file()]
    found: list[tuple[str, str, Counted]] = []
    for name in there:
        population = Population.of(name)
        for estimator in TABLES[name].estimators:
            start = time.perf_counter()
            here = (RUNS_OF_SHAPES if everything else QUICK_RUNS_OF_SHAPES) if estimator == "additive" else runs
            found.append((name, estimator, counted(population, estimator, EPSILON, range(here))))
            print(f"  {name}, {estimator}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return Report(
        "coefficient_coverage",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilon": EPSILON,
            "delta": DELTA,
            "runs": runs,
            "found": [
                {"table": name, "estimator": estimator, "stated": each.stated, "hold": each.hold}
                for name, estimator, each in found
                if each.stated
            ],
        },
        [
            Measure.of(f"{name}, {estimator}", "% of stated hold", [100 * e.hold])
            for name, estimator, e in found
            if e.stated
        ],
        [],
        [
            Table(
                "Intervals of 95 % of coefficients",
                ("table", "estimator", "% stated", "% of these hold"),
                [
                    (name, estimator, f"{100 * e.stated:.1f}", f"{100 * e.hold:.1f}" if e.stated else "none stated")
                    for name, estimator, e in found
                ],
            )
        ],
        [f"Runs on each table: {runs}, of shapes fewer. What is not stated is said to be not measurable."],
    )


def draw(report: Report, figure: Figure) -> None:
    """The shares that hold, beside the stated rate."""
    axes = figure.subplots()
    shown = report.measures[::-1]
    axes.barh([each.what for each in shown], [each.median for each in shown], color="tab:blue")
    axes.axvline(STATED, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlim(80, 100)
    axes.set_xlabel("% of the stated intervals that hold the pooled coefficient")
