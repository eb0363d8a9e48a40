"""Claim: while DP-FEAT's exact epsilon is finite, truncation hardly moves the error; the number of rados moves both.

Test error against Algorithm 2's epsilon per rado, the first experiment of section 6 of Nock, Patrini and Friedman (ICML
2015), with the cost of the whole release: n epsilon by Theorem 6, and the exact epsilon, both for the marginal of one
sensitive coordinate. The benchmark fails if a truncation lowers the exact epsilon.

Compared with: no truncation, with the number of rados as the only parameter; as many rados as Theorem 6 allows for the
same epsilon; `joint`, noise on the sensitive coordinate, which protects it within the whole release; and leaving the
coordinate out.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from benchmarks.datasets import LARGE, RULES, SHARED, DataSet, packaged, read
from benchmarks.dp_feat_protocol import (
    COUNTED,
    DELTA,
    DROPPED,
    FOLDS,
    JOINT,
    LEARNERS,
    MEAN_VARIANCE,
    PACKAGED,
    PARTIES,
    PER_RADO,
    QUICK_SETS,
    ROUNDS,
    SETS,
    SMALLEST_PER_RADO,
    THEOREM,
    TRUNCATED,
    Ask,
    Point,
    Sensitive,
    counted_point,
    dp_feat,
    first,
    folds_of,
    joint_ask,
    per_rado_word,
    theorem_point,
    truncated_points,
)
from benchmarks.measuring import Measure, Report, Table, number, require
from dpcore.accounting.composition import RELATIVE_WIDTH
from dpcore.accounting.dp_feat import delta_per_rado
from dpcore.estimators.base import MOST_RADOS_FROM_ROWS

# Each repeat draws new folds and rados; a large set has one.
REPEATS = 3
# Epsilons of a whole release. Theorem 6 divides them by an epsilon per rado: the least one tried gives the most rados.
JOINT_EPSILONS = tuple(Fraction(text) for text in ("0.5", "1", "3"))
QUICK_EPSILONS = (*JOINT_EPSILONS, Fraction(5))
EPSILONS = tuple(sorted({*QUICK_EPSILONS, Fraction(1, 4), Fraction(2), Fraction(8)}))


@dataclass(frozen=True, eq=False)
class Compared:
    """The results on one data set. logistic: scikit-learn's on the rows, mean test error in %."""

    name: str
    sensitive: Sensitive
    rows: int
    d: int
    logistic: float
    points: tuple[Point, ...]

    @property
    def truncated(self) -> list[Point]:
        """The points at each epsilon per rado, one party first."""
        return [point for point in self.points if point.way == TRUNCATED]

    @property
    def untruncated(self) -> list[Point]:
        """One for each number of parties: draws of the same distribution, which does not depend on that number."""
        return [point for point in self.truncated if point.per_rado is None]

    def moved(self, learner: str, *, finite: bool) -> list[float]:
        """Points of mean error by which truncations differ from none; for finite exact epsilon, or for infinite."""
        none = {point.parties: point.mean(learner) for point in self.untruncated}
        return [
            point.mean(learner) - none[point.parties]
            for point in self.truncated
            if point.per_rado is not None and (point.epsilon is not None) == finite
        ]

    def redrawn(self, learner: str) -> float:
        """The same between two draws without truncation: the part due to chance."""
        one, other = (point.mean(learner) for point in self.untruncated)
        return other - one

    def raised(self) -> list[float]:
        """Exact epsilon of each truncation over that without one, if it is finite."""
        (none, *_) = (point.epsilon for point in self.untruncated)
        assert none is not None, "binomials without truncation have a finite epsilon here"
        found = [p.epsilon / none for p in self.truncated if p.per_rado is not None and p.epsilon is not None]
        require(all(ratio > 1 - RELATIVE_WIDTH for ratio in found), f"{self.name}: a truncation lowers exact epsilon")
        return found

    def at(self, way: str, target: float) -> Point | None:
        """The point of this method for this epsilon, if there is one."""
        return next((point for point in self.points if point.way == way and point.target == target), None)

    def ratios(self) -> list[Measure]:
        """The epsilon of Theorem 6 over the exact one, if that is finite."""
        return [
            Measure(f"{self.name}: {point}: Theorem 6 / exact", "times", times, times, times, 1)
            for point in self.points
            if point.theorem is not None and point.epsilon is not None
            for times in [point.theorem / point.epsilon]
        ]

    def as_setting(self) -> dict[str, Any]:
        """The entry of the set in the JSON file."""
        return {
            "name": self.name,
            "sensitive": self.sensitive.words,
            "rows": self.rows,
            "d": self.d,
            "logistic_error_percent": round(self.logistic, 2),
            "points": [point.as_setting() for point in self.points],
        }


def compare(data: DataSet, sensitive: Sensitive, epsilons: Sequence[Fraction]) -> Compared:
    """Every method on one data set."""
    repeats = 1 if data.name in LARGE else REPEATS
    folds = folds_of(data, sensitive, repeats)
    rows, d = folds[0].train.shape
    usual = max(2, min(MOST_RADOS_FROM_ROWS, rows // 2))
    truncated = truncated_points(rows, usual)
    counted = [point for target in epsilons if (point := counted_point(rows, usual, target))]
    theorem = [point for target in epsilons if (point := theorem_point(rows, usual, target))]
    asks = [joint_ask(usual, PARTIES[-1], epsilon) for epsilon in JOINT_EPSILONS]
    joints = [
        Point(JOINT, ask.parties, usual, None, epsilon, None, float(target))
        for (ask, epsilon), target in zip(asks, JOINT_EPSILONS, strict=True)
    ]
    dropped = Point(DROPPED, 1, usual, None, None, None)
    logistic = []
    for fold in folds:
        for point in truncated:
            release = Ask(point.parties, usual, dp_feat(point.per_rado)).release(fold)
            point.learn(fold, release)
            if point.parties == 1 and point.per_rado is None:
                dropped.learn(fold, replace(release, rados=release.rados[:, 1:]))
                for fewer in counted:
                    fewer.learn(fold, first(release, fewer.rados))
            if point.parties == 1 and point.per_rado == SMALLEST_PER_RADO:
                for fewer in theorem:
                    fewer.learn(fold, first(release, fewer.rados))
        for point, (ask, _) in zip(joints, asks, strict=True):
            point.learn(fold, ask.release(fold))
        fitted = LogisticRegression(max_iter=5000).fit(fold.train[:, :-1], fold.train_labels)
        logistic.append(100 * float(np.mean(fitted.predict(fold.test[:, :-1]) != fold.test_labels)))
    points = (*truncated, *counted, *theorem, *joints, dropped)
    return Compared(data.name, sensitive, rows, d, statistics.fmean(logistic), points)


def run(*, everything: bool = False) -> Report:
    chosen, epsilons = (SETS, EPSILONS) if everything else (QUICK_SETS, QUICK_EPSILONS)
    tables = [(data, PACKAGED[data.name]) for data in packaged() if data.name in PACKAGED]
    if SHARED.is_dir():
        tables += [(read(name, RULES[name]), sensitive) for name, sensitive in chosen.items()]
    compared = []
    for data, sensitive in tables:
        start = time.perf_counter()
        compared.append(compare(data, sensitive, epsilons))
        print(f"  {data.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    setting = {
        "folds": FOLDS,
        "repeats": REPEATS,
        "rounds": ROUNDS,
        "delta": float(DELTA),
        "parties": PARTIES,
        "sets": [one.as_setting() for one in compared],
    }
    return Report(
        "dp_feat_error",
        (__doc__ or "").partition("\n")[0],
        setting,
        [
            Measure.of(f"{one.name}: {point}: {learner}", "% test error", errors)
            for one in compared
            for point in one.points
            for learner, errors in point.errors.items()
        ],
        [ratio for one in compared for ratio in one.ratios()],
        [_by_truncation(compared), _by_epsilon(compared, epsilons), _marks(compared)],
        [*_findings(compared), *_notes(everything=everything, present=SHARED.is_dir())],
    )


def _shown(epsilon: float | None) -> str:
    return "inf" if epsilon is None else number(epsilon)


def _by_truncation(compared: Sequence[Compared]) -> Table:
    rows = []
    for one in compared:
        for per_rado in PER_RADO:
            points = [point for point in one.truncated if point.per_rado == per_rado]
            single = points[0]
            rows.append(
                (
                    f"{one.name}: {per_rado_word(per_rado)}",
                    str(single.rados),
                    number(delta_per_rado(one.rows, per_rado)),
                    "-" if single.theorem is None else number(single.theorem),
                    *(_shown(point.epsilon) for point in points),
                    *(f"{point.mean(learner):.1f}" for learner in LEARNERS for point in points),
                )
            )
    over = tuple(f"{what}, {count}" for what in ("exact", *LEARNERS) for count in PARTIES)
    header = ("set: eps per rado", "n", "delta per rado", "Theorem 6", *over)
    return Table(
        f"Epsilon at delta = 1e-6 and test error in %, over {PARTIES[0]} and {PARTIES[1]} parties", header, rows
    )


def _by_epsilon(compared: Sequence[Compared], epsilons: Sequence[Fraction]) -> Table:
    rows = []
    for one in compared:
        for target in map(float, epsilons):
            cells: list[str] = []
            for way in (COUNTED, THEOREM, JOINT):
                point = one.at(way, target)
                if point is None:
                    cells += ["-"] * (4 if way == THEOREM else 3)
                    continue
                counted = [_shown(point.epsilon)] if way == THEOREM else []
                cells += [str(point.rados), *counted, *(f"{point.mean(learner):.1f}" for learner in LEARNERS)]
            rows.append((f"{one.name}: {target:g}", *cells))
    short = ("m.-v.", "boost")
    header = ("set: epsilon", "n, exact", *short, "n, Thm 6", "exact", *short, "n, joint", *short)
    return Table("Test error in % at the same epsilon for the whole release", header, rows)


def _marks(compared: Sequence[Compared]) -> Table:
    rows = []
    for one in compared:
        (dropped,) = (point for point in one.points if point.way == DROPPED)
        kept = one.untruncated[0]
        errors = [f"{point.mean(learner):.1f}" for learner in LEARNERS for point in (kept, dropped)]
        rows.append((one.name, f"{one.rows} x {one.d}", one.sensitive.words, *errors, f"{one.logistic:.1f}"))
    ways = tuple(f"{learner}{without}" for learner in LEARNERS for without in ("", ", without"))
    header = ("", "m x d", "sensitive", *ways, "log. regr., rows")
    return Table("Test error in % with no truncation, and without the sensitive column", header, rows)


def _findings(compared: Sequence[Compared]) -> list[str]:
    found = []
    for learner in LEARNERS:
        chance = max((abs(one.redrawn(learner)) for one in compared), default=0.0)
        said = []
        for finite, word in ((True, "finite"), (False, "infinite")):
            moved = [points for one in compared for points in one.moved(learner, finite=finite)]
            if moved:
                said.append(
                    f"where exact epsilon is {word}, {statistics.fmean(moved):+.2f} points in the mean, "
                    f"{min(moved):+.2f} to {max(moved):+.2f}"
                )
        found.append(f"Truncation moves {learner}: {'; '.join(said)}. Another draw moves it by up to {chance:.2f}.")
    raised = [ratio for one in compared for ratio in one.raised()]
    none = sum(point.epsilon is None for one in compared for point in one.truncated)
    tried = sum(point.per_rado is not None for one in compared for point in one.truncated)
    if raised:
        found.append(
            f"Of {tried} truncations {none} make exact epsilon infinite; the others raise it, by up to "
            f"{100 * (max(raised) - 1):.0f} %, and none lowers it."
        )
    return [*found, *_fewer_rados(compared)]


def _fewer_rados(compared: Sequence[Compared]) -> list[str]:
    """The points of error lost by taking only as many rados as epsilon 1 allows."""
    said = []
    for one in compared:
        few, usual = one.at(COUNTED, 1.0), one.untruncated[0]
        if few is not None and few.epsilon is not None and usual.epsilon is not None:
            points = few.mean(MEAN_VARIANCE) - usual.mean(MEAN_VARIANCE)
            fall = f"epsilon {number(usual.epsilon)} to {number(few.epsilon)}"
            said.append(f"{one.name} {usual.rados} to {few.rados}: {fall}, {points:+.1f} points")
    return [f"Fewer rados, without truncation, mean-variance: {'; '.join(said)}."] if said else []


def _notes(*, everything: bool, present: bool) -> list[str]:
    notes = [
        f"{FOLDS} stratified folds, {REPEATS} times (large sets once); one repeat is a fold, and has its own rados.",
        "Epsilon is for the first fold's rows, against the learner alone.",
        "1 and 4 parties: the rows in their order, cut in equal parts, each truncated separately (split = local).",
        "'n, exact' is without truncation; 'n, Thm 6' is epsilon / 0.1, truncated at 0.1 per rado, followed by its",
        "exact cost.",
        f"'joint' is over {PARTIES[-1]} parties and n = min(1000, m/2); the rest is for one coordinate's marginal.",
        "Exact epsilon is infinite (inf) if n times one rado's delta exceeds 1e-6.",
        "Mean-variance corrects for the effect of a truncation on the covariance; RadoBoost does not.",
        "'-': that epsilon allows fewer than two rados or more than min(1000, m/2), or was not tried.",
    ]
    if not present:
        return [*notes, "Skipped all but one set: there is no shared/data directory next to this checkout."]
    left_out = ", ".join(name for name in SETS if name not in QUICK_SETS)
    return notes if everything else [*notes, f"Skipped {left_out}: run with --all for all."]


def draw(report: Report, figure: Figure) -> None:
    """Error and epsilon against epsilon per rado, and error against exact epsilon."""
    figure.set_size_inches(14, 6)
    errors, epsilons, budget = figure.subplots(1, 3)
    for colour, one in enumerate(report.setting["sets"]):
        _draw_truncated(errors, epsilons, one, f"C{colour}")
        _draw_budget(budget, one, f"C{colour}")
    places = range(len(PER_RADO))
    for axes in (errors, epsilons):
        axes.set_xticks(places, [per_rado_word(per_rado) for per_rado in PER_RADO])
        axes.set_xlabel("Algorithm 2's epsilon per rado")
    errors.set_ylabel("test error in %, n = min(1000, m/2)")
    errors.set_title("- mean-variance, : RadoBoost; hollow: exact epsilon is infinite", fontsize=9)
    epsilons.set_yscale("log")
    epsilons.set_ylabel("epsilon of the whole release at delta = 1e-6")
    epsilons.set_title(": Theorem 6; - exact, up to where it becomes infinite; one party", fontsize=9)
    budget.set_xscale("log")
    budget.set_xlabel("exact epsilon of the whole release at delta = 1e-6")
    budget.set_xticks(ticks := [float(epsilon) for epsilon in EPSILONS], [f"{tick:g}" for tick in ticks])
    budget.minorticks_off()
    budget.set_ylabel("test error of mean-variance in %")
    budget.set_title("o fewer rados (n beside it); x joint; -. no column", fontsize=9)
    if report.setting["sets"]:
        handles, labels = errors.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)


def _draw_truncated(errors: Axes, epsilons: Axes, one: dict[str, Any], colour: str) -> None:
    points = [point for point in one["points"] if point["way"] == TRUNCATED and point["parties"] == 1]
    places = np.arange(len(points))
    finite = np.array([point["exact_epsilon"] is not None for point in points])
    for learner, line in zip(LEARNERS, ("-", ":"), strict=True):
        values = np.array([point["mean_error_percent"][learner] for point in points])
        label = f"{one['name']} ({one['rows']} x {one['d']}), {one['sensitive']}" if learner == MEAN_VARIANCE else None
        errors.plot(places, values, line, color=colour, label=label)
        errors.plot(places[finite], values[finite], "o", color=colour, markersize=4)
        errors.plot(places[~finite], values[~finite], "o", color=colour, markersize=4, markerfacecolor="white")
    epsilons.plot(places[1:], [point["theorem_epsilon"] for point in points[1:]], "s:", color=colour, markersize=3)
    exact = [np.nan if point["exact_epsilon"] is None else point["exact_epsilon"] for point in points]
    epsilons.plot(places, exact, "o-", color=colour, markersize=4)


def _draw_budget(axes: Axes, one: dict[str, Any], colour: str) -> None:
    none = [p for p in one["points"] if p["way"] == TRUNCATED and p["parties"] == 1 and p["epsilon_per_rado"] is None]
    for way, style in ((COUNTED, "o-"), (JOINT, "x")):
        points = [point for point in one["points"] if point["way"] == way] + (none if way == COUNTED else [])
        spent = [point["exact_epsilon"] for point in points]
        values = [point["mean_error_percent"][MEAN_VARIANCE] for point in points]
        axes.plot(spent, values, style, color=colour, markersize=4 if way == COUNTED else 7)
        if way == COUNTED:
            for point, epsilon, value in zip(points, spent, values, strict=True):
                # Just below the usual number the labels would overlap.
                if point is points[-1] or point["rados"] < 0.8 * points[-1]["rados"]:
                    axes.annotate(str(point["rados"]), (epsilon, value), (3, 3), textcoords="offset points", fontsize=7)
    (dropped,) = (point for point in one["points"] if point["way"] == DROPPED)
    axes.axhline(dropped["mean_error_percent"][MEAN_VARIANCE], color=colour, linestyle="-.", linewidth=0.7)
