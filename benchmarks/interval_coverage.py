"""Claim: of the intervals and bands that models state on real tables, at least 95 of 100 hold.

The table is the population: each run draws as many rows from it, with replacement, and trains on them with the noise of
a federation, in real numbers. A stated interval holds if it contains what the same loss, with the basis and clipping of
the run, gives on the whole table without noise, and with the weak prior of the intervals where rows leave weights open
(a ridge of 1 / (25 rows), a 25th of scikit-learn's usual one). Bands are counted value by value, each shape of a model
alike. What is "not measurable" has no interval, and its share is stated. The tables are those of ../shared/data.
"""

import csv
import gzip
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.base import clone

from benchmarks.datasets import SHARED, DataSet, data_set
from benchmarks.measuring import Measure, Report, Table
from benchmarks.private_erm import schema_of
from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.noise_shares import PRODUCT_WEIGHT, SQUARE_WEIGHT, moments_squared
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.curvatures import PRIOR_DEVIATION
from dpcore.estimators.oracle import GradientEstimate
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.queries.moments import edge_multiplier, usual_norm
from dpcore.rados.distribution import Moments
from dpcore.records.clipping import Basis, Clip
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates
from learner.model import Model
from learner.report.coefficients import effects
from learner.shapes import At, Curve, Shape, Surface, Values, shapes_of
from learner.uncertainty import half_widths, measurable
from tests.learner.shapes.mapped import STATEMENT

EPSILON, DELTA, BITS = 1.0, 1e-6, 16
RARE = 0.01
STEPS, LONGEST, CLOSE = 60, 3.0, 1e-3

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def _median(cells: list[str]) -> Callable[[str], bool]:
    middle = float(np.median([float(cell) for cell in cells]))
    return lambda cell: float(cell) > middle


Estimator = PrivateNewton | PrivateAdditive


@dataclass(frozen=True)
class Source:
    """Where a table comes from. positive: of the labels' texts, which of them are; left_out: columns."""

    file: str
    label: str
    positive: Callable[[list[str]], Callable[[str], bool]]
    left_out: tuple[str, ...] = ()


TABLES = {
    "adult": Source("adult_train", "label", lambda _: lambda cell: cell == ">50K", ("fnlwgt", "native_country")),
    "cps1988": Source("cps1988", "wage", _median),
    "surveys": Source("surveys", "sex", lambda _: lambda cell: cell == "F"),
    "flchain": Source("flchain", "death", lambda _: lambda cell: cell == "1", ("time_days",)),
    "diamonds": Source("diamonds", "price", _median),
}


def table(name: str, folder: Path = SHARED) -> DataSet:
    """A table of the folder; rows without a label are left out."""
    source = TABLES[name]
    label = source.label
    with gzip.open(folder / f"{source.file}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        records = [record for record in csv.DictReader(stream) if record[label] != ""]
    positive = source.positive([record[label] for record in records])
    return data_set(name, records, (label, *source.left_out), [positive(record[label]) for record in records])


class NoisyTable:
    """An oracle over rows with a federation's noise in real numbers; see dpcore.estimators.oracle.Oracle.

    x: (m, d), encoded by the schema. y: (m,), 1 or -1. first_gradient: the basis and the clip of the first gradient,
    which is about all directions.
    """

    def __init__(self, x: Matrix, y: Vector, schema: Schema, epsilon: float, random: np.random.Generator) -> None:
        self.first_gradient: tuple[Matrix, float] | None = None
        self.x, self.y, self.schema, self.random = x, y, schema, random
        self.epsilon, self.delta = Fraction(epsilon), Fraction(DELTA)
        self.rows = len(y)

    def statistic(self, predicates: Any, *, part: Fraction, **_: Any) -> Estimates:
        """Means over the rows."""
        records = Records(store(self.x), self.y.astype(np.int8), np.ones(self.rows, dtype=np.bool_))
        deviation = self._deviation(batch_sensitivity(predicates).l2_squared, part) / self.rows
        values = sums(predicates, self.schema, records, 0).astype(np.float64) / self.rows
        values += self.random.normal(scale=deviation, size=len(values))
        return Estimates(values, self.rows, 0.95, 0.0, 0.0, 0.0, deviation)

    def moments(
        self,
        *,
        part: Fraction,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> Moments:
        """Sums of clipped rows."""
        bound = norm_bound or usual_norm(self.schema, feature_map)
        x = self._mapped(feature_map)
        longest = np.sqrt(float(bound) ** 2 - 1.0)
        x = x * np.minimum(1.0, longest / np.maximum(np.linalg.norm(x[:, :-1], axis=1), 1e-300))[:, np.newaxis]
        x[:, -1] = 1.0
        multiplier = edge_multiplier(bound, BITS, edge_weight)
        deviation = self._deviation(moments_squared(Clip(bound, bias=True), BITS, multiplier), part)
        d, edge_noise = x.shape[1], deviation / 2**BITS / multiplier
        noise = np.full((d, d), deviation / 4**BITS / PRODUCT_WEIGHT)
        np.fill_diagonal(noise, deviation / 4**BITS / SQUARE_WEIGHT)
        noise[-1, -1] = 0.0
        upper = np.triu(self.random.normal(size=(d, d)) * noise)
        products = x.T @ x
        return Moments(
            x.T @ self.y + self.random.normal(scale=edge_noise, size=d),
            (products + products.T) / 2 + upper + np.triu(upper, 1).T,
            self.rows,
            True,
            float(bound),
            edge_noise,
            noise,
        )

    def gradient(
        self,
        theta: Vector,
        *,
        clip: Fraction,
        part: Fraction,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        **_: Any,
    ) -> GradientEstimate:
        """The mean of clipped gradients."""
        z = self._mapped(feature_map)
        if self.first_gradient is None:
            self.first_gradient = (np.eye(z.shape[1]) if basis is None else basis.matrix), float(clip)
        z = z if basis is None else z @ basis.matrix.T
        weights = logistic_weights(self.y * (z @ theta), float(clip) / np.linalg.norm(z, axis=1))
        deviation = self._deviation(Fraction(4) * clip**2, part) / self.rows
        noise = self.random.normal(scale=deviation, size=z.shape[1])
        return GradientEstimate(-((weights * self.y) @ z) / self.rows + noise, deviation, self.rows)

    def _mapped(self, feature_map: FeatureMap | None) -> Matrix:
        return self.x if feature_map is None else feature_map.of(self.x)

    def _deviation(self, squared: Fraction | int, part: Fraction) -> float:
        return float(np.sqrt(float(squared) / float(part)) / gaussian_mu(self.epsilon, DELTA))


def logistic_weights(margins: Vector, most: Vector) -> Vector:
    """The weights 1 / (1 + exp(margin)), clipped."""
    return np.minimum(np.exp(-np.logaddexp(0.0, margins)), most)


@dataclass(frozen=True, eq=False)
class Population:
    """A table as rows that a schema encodes. x: (m, d). y: (m,), 1 or -1."""

    schema: Schema
    x: Matrix
    y: Vector

    @classmethod
    def of(cls, data: DataSet) -> Self:
        """With the bounds of its quantiles."""
        x = data.encode(np.arange(len(data.positive)))
        return cls(schema_of(data), x, np.where(data.positive, 1.0, -1.0))

    def trained(self, estimator: Estimator, epsilon: float, seed: int) -> tuple[Model, Model]:
        """The model of a run, and the best one of its class on all rows, with the same covariance."""
        random = np.random.default_rng(seed)
        drawn = random.integers(len(self.y), size=len(self.y))
        oracle: Any = NoisyTable(self.x[drawn], self.y[drawn], self.schema, epsilon, random)
        fitted = clone(estimator).fit_queries(oracle)
        feature_map = getattr(fitted, "feature_map_", None)
        basis, clip = oracle.first_gradient
        x = self.x if feature_map is None else feature_map.of(self.x)
        start, ridge = np.linalg.solve(basis.T, fitted.theta_), basis @ basis.T / (PRIOR_DEVIATION**2 * len(self.y))
        phi = best(x @ basis.T, self.y, clip, start, ridge)
        name = "newton" if isinstance(estimator, PrivateNewton) else "additive"
        made, true = (
            Model(theta, self.schema, name, bytes(32), STATEMENT, None, feature_map, fitted.covariance_)
            for theta in (fitted.theta_, basis.T @ phi)
        )
        return made, true


def best(z: Matrix, y: Vector, clip: float, phi: Vector, ridge: Matrix) -> Vector:
    """The minimiser of the loss whose gradient is -w y z, w = min(1 / (1 + exp(y phi . z)), clip / |z|).

    ridge: (d, d), symmetric; half of phi . ridge phi is added. It settles what rows leave open: columns that determine
    one another have no single best weights, and a level of one label has none at all.
    """
    most = clip / np.linalg.norm(z, axis=1)

    def slope(at: Vector, along: Vector) -> float:
        return float(-(logistic_weights(y * (z @ at), most) * y) @ (z @ along)) / len(y) + float(along @ ridge @ at)

    for _ in range(STEPS):
        weights = np.exp(-np.logaddexp(0.0, y * (z @ phi)))
        gradient = -(np.minimum(weights, most) * y) @ z / len(y) + ridge @ phi
        curved = np.where(weights < most, weights * (1.0 - weights), 0.0)
        hessian = (z * curved[:, np.newaxis]).T @ z / len(y) + ridge
        step = -np.linalg.solve(hessian, gradient)
        step *= min(1.0, LONGEST / float(np.linalg.norm(step)))
        # The loss is convex: halve the step until it is not far beyond the minimum along it.
        while slope(phi + step, step) > abs(float(gradient @ step)) / 2.0 and np.linalg.norm(step) > CLOSE:
            step = step / 2.0
        phi = phi + step
        if np.linalg.norm(step) <= CLOSE:
            break
    return phi


@dataclass(frozen=True)
class Counted:
    """The share of values that have an interval or a band, and the share of these that hold; nan if there is none."""

    stated: float
    hold: float

    @classmethod
    def of(cls, found: list[tuple[float, float]]) -> Self:
        """From pairs: the share that is stated, and that is stated and holds."""
        stated, held = np.mean(np.array(found, dtype=np.float64), axis=0).tolist()
        return cls(stated, held / stated if stated else float("nan"))


def coefficients_of(population: Population, made: Model, true: Model) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which coefficients have an interval, and which of all would be within theirs."""
    combinations = np.array([weights for _, _, weights in effects(population.schema)])
    assert made.covariance is not None, "the run has answers"
    errors = np.abs(combinations @ (made.theta - true.theta))
    return measurable(combinations, made.covariance), errors <= half_widths(combinations, made.covariance)


def bands_of(made: Model, true: Model) -> list[tuple[str, float, float]]:
    """For each shape its kind, the share of values with a band, and the share of these bands that hold (or nan)."""
    others = {shape.features: shape for shape in shapes_of(true).ranked}
    found = []
    for shape in shapes_of(made).ranked:
        pairs = list(zip(drawn_at(shape), drawn_at(others[shape.features]), strict=True))
        holds = [abs(one.adds - other.adds) <= one.band for one, other in pairs if one.band is not None]
        found.append((shape.kind, len(holds) / len(pairs), float(np.mean(holds)) if holds else float("nan")))
    return found


def drawn_at(shape: Shape) -> list[At]:
    """All values of a shape."""
    if isinstance(shape, Curve):
        return [*shape.line, *shape.points]
    if isinstance(shape, Values):
        return list(shape.values)
    assert isinstance(shape, Surface), "there are three sorts"
    return [at for row in shape.cells for at in row]


def counted(population: Population, estimator: Estimator, epsilon: float, seeds: Iterable[int]) -> dict[str, Counted]:
    """By sort: coefficients, coefficients of rare levels (fewer than `RARE` of the rows), and bands."""
    intervals: dict[str, list[tuple[float, float]]] = {}
    combinations = np.array([weights for _, _, weights in effects(population.schema)])
    rare = np.array([_is_rare(population.x, row) for row in combinations])
    for seed in seeds:
        made, true = population.trained(estimator, epsilon, seed)
        if made.feature_map is None:
            stated, holds = coefficients_of(population, made, true)
            for name, kept in (("coefficients", ~rare), ("coefficients of rare levels", rare)):
                intervals.setdefault(name, []).extend(zip(stated[kept], (holds & stated)[kept], strict=True))
        for kind, stated_share, hold in bands_of(made, true):
            intervals.setdefault(f"bands: {kind}", []).append((stated_share, np.nan_to_num(hold) * stated_share))
    return {name: Counted.of(found) for name, found in intervals.items() if found}


def _is_rare(x: Matrix, combination: Vector) -> bool:
    """Whether a coefficient is that of a level of a category that few rows have."""
    values = x[:, np.flatnonzero(combination)]
    return bool(((values == 0) | (values == 1)).all() and (values.mean(axis=0) < RARE).any())


RUNS, QUICK_RUNS = {"newton": 500, "additive": 100}, {"newton": 10, "additive": 2}
STATED = 95.0


def run(*, everything: bool = False) -> Report:
    """Measure."""
    runs = RUNS if everything else QUICK_RUNS
    estimators: dict[str, Estimator] = {"newton": PrivateNewton(), "additive": PrivateAdditive()}
    there = [name for name in TABLES if (SHARED / f"{TABLES[name].file}.csv.gz").is_file()]
    notes = [f"Skipped {name}, which the directory of tables does not hold." for name in TABLES if name not in there]
    found: list[tuple[str, str, str, Counted]] = []
    for name in there:
        population = Population.of(table(name))
        for estimator, made in estimators.items():
            start = time.perf_counter()
            counts = counted(population, made, EPSILON, range(runs[estimator]))
            found += [(name, estimator, sort, each) for sort, each in counts.items()]
            print(f"  {name}, {estimator}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    rows: list[tuple[str, ...]] = [
        (name, estimator, sort, f"{100 * each.stated:.1f}", f"{100 * each.hold:.1f}" if each.stated else "none stated")
        for name, estimator, sort, each in found
    ]
    return Report(
        "interval_coverage",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilon": EPSILON,
            "delta": DELTA,
            "runs": runs,
            "found": [
                {"table": name, "estimator": estimator, "sort": sort, "stated": each.stated, "hold": each.hold}
                for name, estimator, sort, each in found
                if each.stated
            ],
        },
        [
            Measure.of(f"{name}, {estimator}: {sort}", "% of stated hold", [100 * each.hold])
            for name, estimator, sort, each in found
            if each.stated
        ],
        [],
        [Table("Intervals and bands of 95 %", ("table", "estimator", "of", "% stated", "% of these hold"), rows)],
        [*notes, f"Runs on each table: {runs}. What is not stated is said to be not measurable."],
    )


def draw(report: Report, figure: Figure) -> None:
    """The shares that hold, beside the stated rate."""
    axes = figure.subplots()
    shown = report.measures[::-1]
    axes.barh([each.what for each in shown], [each.median for each in shown], color="tab:blue")
    axes.axvline(STATED, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlim(80, 100)
    axes.set_xlabel("% of the stated intervals and bands that hold")
    axes.tick_params(axis="y", labelsize=6)
