"""Claim: computed exactly, DP-FEAT's epsilon is tens to hundreds of times below the n epsilon of Theorem 6.

Compared with: Theorem 6 (Nock, Patrini, Friedman, ICML 2015), and the optimal composition of n mechanisms of which only
the epsilon per rado is known (Kairouz, Oh, Viswanath, ICML 2015; with the per-rado delta for free), as a careful user
would compute it from the theorem.

For rados with noise that a record enters by a coin: epsilon without the coin, by concentrated differential privacy (Bun
and Steinke, TCC 2016), and by dp_accounting's loss distributions of the same mixture.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from dp_accounting.pld import common, privacy_loss_distribution
from matplotlib.figure import Figure

from benchmarks.measuring import Measure, Report, Table, number, require, take_turns
from dpcore.accounting.composition import Bracket, InfiniteEpsilonError
from dpcore.accounting.dp_feat import epsilon_for, largest_rados, own_epsilon, theorem_epsilon
from dpcore.accounting.gaussian import subsampled_epsilon, subsampled_mu

DELTA = Fraction(1, 10**6)
PLANNED_EPSILON = 1.0
# The grid of the generic composition: a finer or coarser one changes its epsilon here by less than 0.1 %.
GENERIC_GRID = 1e-4


@dataclass(frozen=True)
class Case:
    """One row of the table: m rows split evenly over parties, n rados, Algorithm 2's epsilon per rado."""

    rows: int
    parties: int
    rados: int
    epsilon_per_rado: Fraction

    @property
    def party_rows(self) -> list[int]:
        """Row counts that differ by at most one."""
        share, left = divmod(self.rows, self.parties)
        return [share + 1] * left + [share] * (self.parties - left)

    def __str__(self) -> str:
        split = "" if self.parties == 1 else f" over {self.parties} parties"
        return f"m={self.rows:,}{split}, n={self.rados:,}, eps per rado {float(self.epsilon_per_rado):g}"


CASES = (
    Case(4_177, 1, 100, Fraction(1, 2)),
    Case(4_177, 10, 100, Fraction(1, 2)),
    Case(4_177, 20, 100, Fraction(1, 2)),
    Case(20_000, 1, 1_000, Fraction(3, 10)),
    Case(100_000, 1, 1_000, Fraction(1, 10)),
    Case(1_000_000, 1, 1_000, Fraction(1, 10)),
)


def exact(case: Case) -> Bracket:
    return epsilon_for(case.party_rows, case.rados, case.epsilon_per_rado, DELTA)


def generic(case: Case) -> float:
    """Optimal composition from the epsilon per rado alone, delta per rado 0."""
    parameters = common.DifferentialPrivacyParameters(float(case.epsilon_per_rado), 0.0)
    one = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=GENERIC_GRID)
    return float(one.self_compose(case.rados).get_epsilon_for_delta(float(DELTA)))


def if_others_collude(case: Case) -> float:
    """The worst party's own epsilon; inf if it has none."""
    try:
        return max(own_epsilon(rows, case.rados, case.epsilon_per_rado, DELTA) for rows in sorted(set(case.party_rows)))
    except InfiniteEpsilonError:
        return float("inf")


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    measures, ratios, rows = [], [], []
    for case in CASES:
        bracket, theorem, composed = exact(case), theorem_epsilon(case.rados, case.epsilon_per_rado), generic(case)
        require(0 < bracket.lower <= bracket.upper <= min(theorem, composed), f"{case}: the bounds are out of order")
        seconds = take_turns({"exact": partial(exact, case)})["exact"]
        stated = {
            "exact epsilon, upper end": bracket.upper,
            "exact epsilon, lower end": bracket.lower,
            "Theorem 6": theorem,
            "optimal composition": composed,
            "exact epsilon if all others collude": if_others_collude(case),
        }
        # JSON has no infinity; the notes explain it.
        finite = {what: value for what, value in stated.items() if np.isfinite(value)}
        measures += [Measure(f"{case}: {what}", "epsilon", value, value, value, 1) for what, value in finite.items()]
        measures.append(Measure.of(f"{case}: counting exactly", "s", seconds))
        for what in ("Theorem 6", "optimal composition"):
            times = stated[what] / bracket.upper
            ratios.append(Measure(f"{case}: {what} / exact", "times", times, times, times, 1))
        figures = [theorem, composed, bracket.upper, stated["exact epsilon if all others collude"]]
        figures += [theorem / bracket.upper, composed / bracket.upper, statistics.median(seconds)]
        rows.append((str(case), *map(number, figures)))
    coins = _coins()
    plans = _plans()
    header = ("", "Theorem 6", "opt. comp.", "exact", "if collude", "Thm 6/exact", "opt./exact", "seconds")
    tables = [
        Table("Epsilon of a whole release at delta = 1e-6", header, rows),
        Table(
            f"Planning: the most rados for epsilon {PLANNED_EPSILON:g}, delta 1e-6, without truncation",
            ("", "median", "min", "max", "unit"),
            [plan.cells() for plan in plans],
        ),
        Table("Epsilon of n noised rados at delta = 1e-6, a record in each with probability p", COIN_HEADER, coins),
    ]
    setting = {"delta": float(DELTA), "planned_epsilon": PLANNED_EPSILON, "generic_grid": GENERIC_GRID}
    notes = [
        "An epsilon is computed, not sampled: it has no spread, and its true value is inside the stated bracket.",
        "Ratios are for the learner alone.",
        "Where 'if collude' is inf, one party's own rows have no finite epsilon at this truncation: it would refuse.",
        "Theorem 6 is about one truncation over one pool: for rows split over parties it is for orientation only.",
    ]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("accounting", claim, setting, measures + plans, ratios, tables, notes)


COIN_HEADER = ("", "concentrated", "without the coin", "dp_accounting", "exact", "dp_accounting s", "exact s")


def _coins() -> list[tuple[str, ...]]:
    """Rows of the table of coins: noise calibrated to epsilon 1 for several n and p."""
    rows = []
    for n, p in ((100, 0.5), (1_000, 0.5), (10_000, 0.5), (1_000, 0.1)):
        mu = subsampled_mu(n, p, PLANNED_EPSILON, DELTA)
        exact_upper = subsampled_epsilon(mu, n, p, DELTA).upper
        ways: dict[str, Callable[[], object]] = {
            "exact": partial(subsampled_epsilon, mu, n, p, DELTA),
            "dp_accounting": partial(_mixture, mu, n, p),
        }
        seconds = {way: statistics.median(times) for way, times in take_turns(ways).items()}
        mixture, sure = _mixture(mu, n, p), subsampled_epsilon(mu, n, 1, DELTA).upper
        rho = n * mu * mu / 2
        concentrated = rho + 2 * math.sqrt(rho * math.log(1 / DELTA))
        require(0.999 * exact_upper < mixture < 1.01 * exact_upper, f"n={n}, p={p}: dp_accounting says {mixture}")
        figures = (concentrated, sure, mixture, exact_upper, seconds["dp_accounting"], seconds["exact"])
        rows.append((f"n={n:,}, p={p:g}, mu={mu:.3g}", *map(number, figures)))
    return rows


def _mixture(mu: float, n: int, p: float) -> float:
    """The same by dp_accounting: no loss with probability 1 - p, else a Gaussian's; the grid is as fine as n needs."""
    step = 2e-3 / math.sqrt(n)
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)
    nothing = privacy_loss_distribution.identity(value_discretization_interval=step)
    return float(gaussian.compute_mixture(nothing, p).self_compose(n).get_epsilon_for_delta(float(DELTA)))


def _plans() -> list[Measure]:
    plans = []
    for rows in (20_000, 1_000_000):
        rados = largest_rados([rows], None, PLANNED_EPSILON, DELTA)
        work = {"plan": partial(largest_rados, [rows], None, PLANNED_EPSILON, DELTA)}
        plans.append(Measure.of(f"m={rows:,}: finds n={rados:,}", "s", take_turns(work)["plan"]))
    return plans


def draw(report: Report, figure: Figure) -> None:
    """The three epsilons of each case on a logarithmic axis."""
    axes = figure.subplots()
    places = np.arange(len(CASES))[::-1]
    by_name = {measure.what: measure.median for measure in report.measures}
    ways = ("Theorem 6", "optimal composition", "exact epsilon, upper end")
    for offset, way in zip((0.27, 0.0, -0.27), ways, strict=True):
        axes.barh(places + offset, [by_name[f"{case}: {way}"] for case in CASES], height=0.25, label=way)
    axes.set_yticks(places, [str(case) for case in CASES])
    axes.set_xscale("log")
    axes.set_xlabel("epsilon at delta = 1e-6")
    figure.legend(loc="outside lower center", ncols=len(axes.get_legend_handles_labels()[1]))
