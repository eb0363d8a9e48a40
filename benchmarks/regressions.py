"""Claim: at epsilon 1 and 0.3 a federated regression explains within 0.005 of what one without privacy does.

Unit of privacy: one record, replaced, delta = 1e-6, the learner alone. Ours: `PrivateNewton` (8 rounds) and
`LeastSquares` (one release), federated over four parties, all releases counted. Compared with methods of a curator who
is trusted with every row: AdaSSP, noisy gradient descent with the best of six settings by test error, diffprivlib's
LinearRegression (pure epsilon), and least squares or Poisson regression without privacy. Of numbers R^2 is measured, on
the scale that is learned; of counts the explained share of the Poisson deviance. The rows of a person stay together.

Settings of `newton` were chosen on these tables.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.datasets import SHARED
from benchmarks.environments import UnavailableError
from benchmarks.measured_tables import RULES, MeasuredSplit, read_measured
from benchmarks.measuring import Measure, Report, Table, Target, require
from benchmarks.private_erm import GRADIENT_BITS, PartiesOracle
from benchmarks.private_peers import PINS, Vector, diffprivlib_python
from benchmarks.record_level import DELTA, FRACTION_BITS
from benchmarks.regression_peers import adassp, best_descent, diffprivlib, pooled
from dpcore.accounting.noise_shares import gradient_squared, number_moments_squared
from dpcore.estimators.least_squares import LeastSquares
from dpcore.estimators.oracle import WHOLE, GradientEstimate
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.evaluation.measured_evaluation import deviance_explained, r_squared
from dpcore.numbers.processors import one_blas_thread
from dpcore.queries.gradient import THETA_BITS, fitting_fraction_bits
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import label_multiplier, usual_norm
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.rados.distribution import NumberMoments
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Basis, Clip
from dpcore.records.computation import Computation
from dpcore.records.losses import WEIGHT_BITS, LossName

EPSILONS, STATED_EPSILON = (1.0, 0.3), 1.0
PARTIES, DRAWS, QUICK_DRAWS = 4, 5, 2
FOLDS, QUICK_FOLDS = 5, 3
QUICK_SETS = ("cps1988", "wine_white")
TUNING_FOLDS = 1
# Of R^2 below no privacy, in every draw: with this many training rows or more, and with 5,000 at epsilon 1.
WITHIN, ROWS_FOR_WITHIN = 0.005, 15_000
WITHIN_FEW, FEW_ROWS = 0.02, 5_000
# Tables with this many rows, on which ours is to be ahead of private peers.
ROWS_FOR_PEERS = 4_000
LEAST_SHARE_OF_COUNTS = 0.90

OURS, ONE_RELEASE = "newton, federated", "linear, federated"
ADASSP, DESCENT, DIFFPRIVLIB = "AdaSSP", "noisy descent, best setting", "diffprivlib"
NO_PRIVACY = "no privacy"
PEERS = (ADASSP, DESCENT, DIFFPRIVLIB)
WAYS = (OURS, ONE_RELEASE, *PEERS, NO_PRIVACY)

Explained = NDArray[np.float64]
"""(draws, folds); of what has no draws, one row."""


class NumberParties(PartiesOracle):
    """Parties in one process that answer moments and gradients of a number or a count: a `NumberOracle`."""

    def number_moments(self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None) -> NumberMoments:
        """See dpcore.estimators.oracle.NumberOracle."""
        bound = norm_bound or usual_norm(self.schema)
        clip, multiplier = Clip(bound, bias=True), label_multiplier(bound)
        d = self.parties[0].d
        squared = number_moments_squared(clip, FRACTION_BITS, multiplier)
        share = self.share(squared, part, d * (d + 3) // 2 + 1)
        query = NumberMomentsQuery(clip, multiplier, share, self.schema.label.coding)
        total = sum(query.contribution(party, FRACTION_BITS, Computation(self.random)) for party in self.parties)
        return query.moments(np.asarray(total), FRACTION_BITS, rows=self.rows, parties=len(self.parties))

    def number_gradient(
        self,
        theta: Vector,
        *,
        loss: LossName,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
    ) -> GradientEstimate:
        """See dpcore.estimators.oracle.NumberOracle."""
        bits = fitting_fraction_bits(clip, GRADIENT_BITS)
        share = self.share(gradient_squared(clip, bits), part, len(theta))
        point = tuple(round(float(value) * 2**THETA_BITS) for value in theta)
        query = NumberGradientQuery(loss, point, clip, share, basis, labels=self.schema.label.coding)
        total = sum(query.contribution(party, bits, Computation(self.random)) for party in self.parties)
        sigma = share * np.sqrt(len(self.parties))
        return GradientEstimate(
            mean=query.decode(np.asarray(total), bits) / self.rows,
            deviation=float(np.ldexp(sigma, -(bits + WEIGHT_BITS))) / self.rows,
            rows=self.rows,
        )


def explained(split: MeasuredSplit, theta: Vector) -> float:
    """Of the test rows, by weights (d,) for t, or for the logarithm of a count."""
    scores, values = split.test @ theta, split.values(split.test_labels)
    if split.is_count:
        return deviance_explained(values, np.exp(np.minimum(scores, 50.0)), np.ones(len(values)))
    return r_squared(values, scores)


def federated(way: str, split: MeasuredSplit, epsilon: float, seed: str) -> float:
    """What one draw of noise explains."""
    oracle: Any = NumberParties(split.parties(PARTIES), split.schema, epsilon, SeededRandom(seed.encode()))
    if way == OURS:
        theta = PrivateNewton().fit_queries(oracle).theta_
    else:
        theta = LeastSquares().fit_moments(oracle.number_moments()).theta_
    counted = oracle.counted()
    require(0.98 * epsilon < counted <= epsilon, f"the releases cost epsilon {counted}, and {epsilon} was planned")
    return explained(split, theta)


@dataclass(frozen=True, eq=False)
class Found:
    """The results on one table. explained: by epsilon and way."""

    name: str
    table_rows: int
    training_rows: int
    d: int
    is_count: bool
    explained: Mapping[float, Mapping[str, Explained]]

    def mean(self, epsilon: float, way: str) -> float:
        """Over folds and draws."""
        return float(self.explained[epsilon][way].mean())

    def worst(self, epsilon: float, way: str) -> float:
        """Of the draws, each the mean over folds."""
        return float(self.explained[epsilon][way].mean(axis=1).min())

    def below(self, epsilon: float, way: str = OURS) -> float:
        """How much less than without privacy the worst draw explains."""
        return self.mean(epsilon, NO_PRIVACY) - self.worst(epsilon, way)

    def best_peer(self, epsilon: float) -> str:
        """The private method of a curator that explains most."""
        return max((way for way in PEERS if way in self.explained[epsilon]), key=lambda way: self.mean(epsilon, way))

    def ahead(self, epsilon: float) -> float:
        """How much more ours explains than the best peer."""
        return self.mean(epsilon, OURS) - self.mean(epsilon, self.best_peer(epsilon))

    def targets(self) -> list[Target]:
        """Those of this table."""
        found, unit = [], "explained deviance" if self.is_count else "R^2"
        for epsilon in EPSILONS:
            what = f"{self.name}, epsilon {epsilon:g}: newton"
            if self.is_count:
                share = self.worst(epsilon, OURS) / self.mean(epsilon, NO_PRIVACY)
                words = f"{what} over no privacy, worst draw"
                found.append(Target(words, "times", LEAST_SHARE_OF_COUNTS, share, at_least=True))
            elif self.training_rows >= ROWS_FOR_WITHIN:
                words = f"{what} below no privacy, worst draw"
                found.append(Target(words, unit, WITHIN, self.below(epsilon), at_least=False))
            elif self.training_rows == FEW_ROWS and epsilon == STATED_EPSILON:
                words = f"{what} below no privacy, worst draw"
                found.append(Target(words, unit, WITHIN_FEW, self.below(epsilon), at_least=False))
            if self.table_rows >= ROWS_FOR_PEERS:
                words = f"{what} above {self.best_peer(epsilon)}"
                found.append(Target(words, unit, 0.0, self.ahead(epsilon), at_least=True))
        return found

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table of results, one for each epsilon."""
        of = f"{self.name} ({self.training_rows} x {self.d})"
        return [
            (
                of,
                f"{epsilon:g}",
                *(f"{self.mean(epsilon, way):.4f}" if way in self.explained[epsilon] else "-" for way in WAYS),
                f"{self.worst(epsilon, OURS):.4f}",
            )
            for epsilon in EPSILONS
        ]

    def as_setting(self) -> dict[str, Any]:
        """The entry in the JSON file."""
        return {
            "name": self.name,
            "training_rows": self.training_rows,
            "d": self.d,
            "measure": "explained deviance" if self.is_count else "R^2",
            "mean": {
                f"{epsilon:g}": {way: round(self.mean(epsilon, way), 4) for way in self.explained[epsilon]}
                for epsilon in EPSILONS
            },
            "worst_draw": {
                f"{epsilon:g}": {way: round(self.worst(epsilon, way), 4) for way in self.explained[epsilon]}
                for epsilon in EPSILONS
            },
        }


def measured(name: str, folds: int, draws: int, *, with_diffprivlib: bool) -> Found:
    """All ways on one table."""
    table = read_measured(name)
    splits = table.folds(folds)
    free = np.array([[explained(split, pooled(split)) for split in splits]])
    found: dict[float, dict[str, Explained]] = {}
    theirs = diffprivlib(splits, EPSILONS, draws) if with_diffprivlib and not splits[0].is_count else None
    for place, epsilon in enumerate(EPSILONS):
        ways = (OURS,) if splits[0].is_count else (OURS, ONE_RELEASE)
        of = found[epsilon] = {way: _drawn(way, splits, epsilon, draws) for way in ways}
        if not splits[0].is_count:
            drawn = [adassp(split, epsilon, DELTA, draws, fold) for fold, split in enumerate(splits)]
            of[ADASSP] = _of_draws(splits, drawn)
            if theirs is not None:
                of[DIFFPRIVLIB] = _of_draws(splits, theirs[place])
        of[DESCENT] = best_descent(splits, epsilon, DELTA, explained, TUNING_FOLDS, draws)
        of[NO_PRIVACY] = free
    rows, d = splits[0].train.shape
    return Found(name, len(table.labels), rows, d, splits[0].is_count, found)


def _drawn(way: str, splits: list[MeasuredSplit], epsilon: float, draws: int) -> Explained:
    return np.array(
        [
            [federated(way, split, epsilon, f"{way} {epsilon} {fold} {draw}") for fold, split in enumerate(splits)]
            for draw in range(draws)
        ]
    )


def _of_draws(splits: list[MeasuredSplit], thetas: Iterable[Iterable[Vector]]) -> Explained:
    """thetas: for each fold those of the draws."""
    return np.array([[explained(split, theta) for theta in of] for split, of in zip(splits, thetas, strict=True)]).T


def run(*, everything: bool = False) -> Report:
    """Measure."""
    names, folds, draws = (list(RULES), FOLDS, DRAWS) if everything else (QUICK_SETS, QUICK_FOLDS, QUICK_DRAWS)
    notes = [
        f"A draw is the mean over {folds} folds; there are {draws} of each private way.",
        "Bounds of features are the training rows' quantiles, uncounted, for all ways; those of labels are round.",
        "AdaSSP has the noise of an added or removed record, which is less than that of a replaced one.",
    ]
    with_diffprivlib = True
    try:
        diffprivlib_python()
    except UnavailableError as error:
        with_diffprivlib = False
        notes.append(f"Without diffprivlib: {error}.")
    if not SHARED.is_dir():
        names = []
        notes.append("Skipped the tables of shared/data, which is not next to this checkout.")
    found = []
    with one_blas_thread():
        for name in names:
            start = time.perf_counter()
            found.append(measured(name, folds, draws, with_diffprivlib=with_diffprivlib))
            print(f"  {name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return reported(found, folds, draws, notes)


def reported(found: list[Found], folds: int, draws: int, notes: list[str]) -> Report:
    """The results of these tables."""
    return Report(
        "regressions",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilons": EPSILONS,
            "delta": DELTA,
            "parties": PARTIES,
            "folds": folds,
            "draws": draws,
            "diffprivlib": PINS,
            "sets": [one.as_setting() for one in found],
        },
        [
            Measure.of(
                f"{one.name}, epsilon {epsilon:g}: {way}",
                "explained deviance" if one.is_count else "R^2",
                values.mean(axis=1).tolist(),
            )
            for one in found
            for epsilon, of in one.explained.items()
            for way, values in of.items()
        ],
        [],
        [_table(found, "R^2", counts=False), _table(found, "explained deviance", counts=True)],
        notes,
        [target for one in found for target in one.targets()],
    )


def _table(found: list[Found], measure: str, *, counts: bool) -> Table:
    return Table(
        f"Mean {measure} of test rows, delta = {DELTA:g}, {PARTIES} parties",
        ("table (training rows x d)", "epsilon", *WAYS, "newton, worst draw"),
        [row for one in found if one.is_count is counts for row in one.rows()],
    )


def draw(report: Report, figure: Figure) -> None:
    """How much less than without privacy each way explains, a panel for each epsilon."""
    sets = report.setting["sets"]
    panels = figure.subplots(1, len(EPSILONS), sharey=True)
    least = 1e-4
    for axes, epsilon in zip(panels, EPSILONS, strict=True):
        for way, marker in zip(WAYS[:-1], "o^sxD", strict=True):
            places, below = [], []
            for place, one in enumerate(sets):
                means = one["mean"][f"{epsilon:g}"]
                if way in means:
                    places.append(place)
                    below.append(max(means[NO_PRIVACY] - means[way], least))
            axes.plot(below, places, marker, label=way, markersize=6, fillstyle="none")
        axes.axvline(WITHIN, color="black", linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlabel(f"below no privacy, epsilon {epsilon:g}", fontsize=8)
    panels[0].set_yticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
