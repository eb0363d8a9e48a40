"""Claim: at epsilon 1 one federated moments release errs at most half a point more than a curator's best one-shot peer.

Unit of privacy: one record, replaced. Ours: the rows are split over ten parties, each of which sends clipped integer
sums and its share of the noise; `MomentsDiscriminant` fits their total. Compared with methods of a curator who is
trusted with every row: AdaSSP and diffprivlib's LogisticRegression (one shot each), noisy gradient descent (hundreds of
rounds, each of which needs all parties), logistic regression without privacy, and the larger class.
"""

import sys
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import RULES, SHARED, Bounds, DataSet, read
from benchmarks.environments import UnavailableError
from benchmarks.measuring import Measure, Report, Table, ratio, require
from benchmarks.private_peers import (
    DESCENT_GRID,
    PINS,
    AdaSSP,
    Comparison,
    DescentSetting,
    Errors,
    Split,
    diffprivlib_errors,
    diffprivlib_python,
    noisy_descent,
)
from dpcore.accounting.noise_shares import IntegerNoise, moments_squared, smallest_share
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.queries.moments import MomentsQuery, edge_multiplier, norm_bound_of
from dpcore.randomness.noise import SMALLEST_SHARE_SIGMA, discrete_gaussian
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.encoding import store
from dpcore.records.records import Records

Vector = NDArray[np.float64]

EPSILONS, DELTA, STATED_EPSILON = (0.1, 0.5, 1.0, 3.0, 10.0), 1e-6, 1.0
PARTIES, FRACTION_BITS = 10, 10
SETS, QUICK_SETS = ("abalone", "wine_white", "eeg_eye_state", "magic", "adult"), ("abalone", "wine_white")
FOLDS, QUICK_FOLDS = 5, 3
# Draws of noise for each fold and epsilon: more for small sets, whose errors vary more and whose draws cost less.
MOST_DRAWS, LEAST_DRAWS, DRAWN_ROWS = 10, 2, 80_000
# Peers' settings are chosen by test error, descent's on its first folds, which favours them.
TUNING_FOLDS = 2
PENALTIES = (0.03, 0.1, 0.3, 1.0, 10.0)
DEFAULT_PENALTY = 1.0
# Points of error by which the peers, and no privacy, may be better.
WITHIN_PEER, WITHIN_NO_PRIVACY, NEAR_NO_PRIVACY = 0.5, 2.0, ("adult", "magic")

OURS, ADASSP, DESCENT = "moments, federated", "AdaSSP", "noisy descent, best setting"
DIFFPRIVLIB, DIFFPRIVLIB_ONE, DIFFPRIVLIB_BEST = "diffprivlib, C = 1", "diffprivlib, one C", "diffprivlib, a C a set"
NO_PRIVACY, MAJORITY = "no privacy", "larger class"
WAYS = (OURS, ADASSP, DIFFPRIVLIB, DIFFPRIVLIB_ONE, DIFFPRIVLIB_BEST, DESCENT, NO_PRIVACY, MAJORITY)
# Peers with one setting for all sets, as ours has: choosing by the set would cost privacy, or need public rows.
ONE_SHOT_PEERS = (ADASSP, DIFFPRIVLIB, DIFFPRIVLIB_ONE)


@dataclass(frozen=True)
class Release:
    """The query at one epsilon. epsilon: the exact one, against the learner alone."""

    query: MomentsQuery
    epsilon: float

    @classmethod
    def planned(cls, norm_bound: Fraction, d: int, epsilon: float) -> "Release":
        """The query with the least integer noise within (epsilon, DELTA)."""
        clip, multiplier = Clip(norm_bound, bias=True), edge_multiplier(norm_bound, FRACTION_BITS)
        length = MomentsQuery(clip, multiplier, SMALLEST_SHARE_SIGMA).length(d)
        squared = moments_squared(clip, FRACTION_BITS, multiplier)
        share = smallest_share(squared, PARTIES, length, epsilon, DELTA)
        counted = IntegerNoise(share, PARTIES, length).distribution(squared).epsilon(DELTA).upper
        require(0.98 * epsilon < counted <= epsilon, f"the release costs epsilon {counted}, and {epsilon} was planned")
        return cls(MomentsQuery(clip, multiplier, share), counted)

    def theta(self, sums: NDArray[np.int64], rows: int, random: SeededRandom) -> Vector:
        """The model from the parties' sums and each party's share of the noise, drawn by the product's own sampler."""
        total = sums.copy()
        for _ in range(PARTIES):
            total += discrete_gaussian(self.query.share_sigma, len(sums), random)
        moments = self.query.moments(total, FRACTION_BITS, rows=rows, parties=PARTIES)
        theta: Vector = MomentsDiscriminant().fit_moments(moments).theta_
        return theta


def party_sums(split: Split, query: MomentsQuery) -> NDArray[np.int64]:
    """The sum of the contributions of ten parties, each with a tenth of the training rows, before noise."""
    total = np.zeros(query.length(split.train.shape[1]), dtype=np.int64)
    for part in np.array_split(np.arange(len(split.train)), PARTIES):
        labels = split.train_labels[part].astype(np.int8)
        total += query.sums(
            Records(store(split.train[part]), labels, np.ones(len(part), dtype=np.bool_)), FRACTION_BITS
        )
    return total


def splits_of(data: DataSet, folds: int, bounds: Bounds | None = None) -> list[Split]:
    """Stratified folds, encoded as `DataSet.encode` does, with the norm bound that the schema's rule gives."""
    signs = np.where(data.positive, 1.0, -1.0)
    norm = float(norm_bound(data))
    found = []
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(data.numeric, data.positive):
        rows = data.encode(train, bounds)
        found.append(Split(rows[train], signs[train], rows[test], signs[test], norm))
    return found


def norm_bound(data: DataSet) -> Fraction:
    """R, from the kinds of columns only."""
    return norm_bound_of(real_features=data.numeric.shape[1], unit_features=data.categories.shape[1], bias=True)


def draws(split: Split) -> int:
    """Draws of noise on one fold."""
    return max(LEAST_DRAWS, min(MOST_DRAWS, DRAWN_ROWS // len(split.train)))


def our_errors(splits: list[Split], bound: Fraction) -> NDArray[np.float64]:
    releases = [Release.planned(bound, splits[0].train.shape[1], epsilon) for epsilon in EPSILONS]
    errors = np.empty((len(EPSILONS), len(splits)))
    for fold, split in enumerate(splits):
        sums, random = party_sums(split, releases[0].query), SeededRandom(fold)
        for i, release in enumerate(releases):
            thetas = [release.theta(sums, len(split.train), random) for _ in range(draws(split))]
            errors[i, fold] = np.mean([split.error(theta) for theta in thetas])
    return errors


def adassp_errors(splits: list[Split]) -> NDArray[np.float64]:
    errors = np.empty((len(EPSILONS), len(splits)))
    for fold, split in enumerate(splits):
        learner, random = AdaSSP(split, DELTA), np.random.default_rng(fold)
        for i, epsilon in enumerate(EPSILONS):
            errors[i, fold] = np.mean([split.error(learner.theta(epsilon, random)) for _ in range(draws(split))])
    return errors


def descent_errors(splits: list[Split]) -> NDArray[np.float64]:
    """With the setting of least test error on the first folds."""
    random = np.random.default_rng(1)

    def error(split: Split, epsilon: float, setting: DescentSetting) -> float:
        return split.error(noisy_descent(split, epsilon, DELTA, setting, random))

    errors = np.empty((len(EPSILONS), len(splits)))
    for i, epsilon in enumerate(EPSILONS):
        tried = [np.mean([error(split, epsilon, one) for split in splits[:TUNING_FOLDS]]) for one in DESCENT_GRID]
        best = DESCENT_GRID[int(np.argmin(tried))]
        errors[i] = [error(split, epsilon, best) for split in splits]
    return errors


def diffprivlib_tried(splits: list[Split]) -> NDArray[np.float64]:
    """Test error in % with each C, (epsilons, penalties, folds). Raises UnavailableError."""
    tried = np.array([diffprivlib_errors(split, EPSILONS, PENALTIES, draws(split)) for split in splits])
    require(not bool(np.isnan(tried).any()), "a fit of diffprivlib failed")
    by_fold: NDArray[np.float64] = tried.mean(axis=3).transpose(1, 2, 0)
    return by_fold


def without_privacy(split: Split) -> tuple[float, float]:
    """Errors of logistic regression and of the larger class."""
    larger = np.zeros(split.train.shape[1])
    larger[-1] = split.train_labels.sum()
    return split.error(pooled_logistic(split)), split.error(larger)


def pooled_logistic(split: Split) -> Vector:
    """Weights of logistic regression on all training rows, hardly regularised, (d,)."""
    fitted = LogisticRegression(C=1000, max_iter=5000).fit(split.train[:, :-1], split.train_labels)
    return np.append(fitted.coef_[0], fitted.intercept_)


@dataclass(frozen=True, eq=False)
class Compared(Comparison):
    """The results on one data set."""

    norm_bound: float
    tried: NDArray[np.float64] | None
    epsilons, ways = EPSILONS, WAYS

    @classmethod
    def on(cls, data: DataSet, folds: int, *, with_diffprivlib: bool) -> "Compared":
        """Run all methods on `data`, except the one chosen over all sets."""
        splits = splits_of(data, folds)
        errors: Errors = {OURS: our_errors(splits, norm_bound(data)), ADASSP: adassp_errors(splits)}
        errors[DESCENT] = descent_errors(splits)
        free = np.array([without_privacy(split) for split in splits])
        for column, way in enumerate((NO_PRIVACY, MAJORITY)):
            errors[way] = np.tile(free[:, column], (len(EPSILONS), 1))
        rows, d = splits[0].train.shape
        tried = diffprivlib_tried(splits) if with_diffprivlib else None
        return cls(data.name, rows, d, errors, float(norm_bound(data)), tried)

    def with_penalties(self, chosen: NDArray[np.intp]) -> "Compared":
        """With diffprivlib's errors; chosen: (epsilons,) the penalty's index that is best over all sets."""
        assert self.tried is not None
        every = np.arange(len(EPSILONS))
        own = self.tried.mean(axis=2).argmin(axis=1)
        default = self.tried[:, PENALTIES.index(DEFAULT_PENALTY)]
        found = {DIFFPRIVLIB: default, DIFFPRIVLIB_ONE: self.tried[every, chosen]}
        return replace(self, errors=self.errors | found | {DIFFPRIVLIB_BEST: self.tried[every, own]})

    def best_peer(self, epsilon: float) -> str:
        """The one-shot peer of least mean error."""
        return min((way for way in ONE_SHOT_PEERS if way in self.errors), key=lambda way: self.mean(way, epsilon))

    def ratios(self) -> list[Measure]:
        """Our error over the best one-shot peer's, fold by fold."""
        found = []
        for i, epsilon in enumerate(EPSILONS):
            peer = self.best_peer(epsilon)
            what = f"{self.name}, epsilon {epsilon:g}: {OURS} / {peer}"
            found.append(ratio(what, list(self.errors[OURS][i]), list(self.errors[peer][i])))
        return found

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table, one per epsilon."""
        of = f"{self.name} ({self.training_rows} x {self.d}, R = {self.norm_bound:g})"
        over = {epsilon: self.above(self.best_peer(epsilon), epsilon) for epsilon in EPSILONS}
        return [(of, f"{epsilon:g}", *self.cells(epsilon), f"{points:+.1f}") for epsilon, points in over.items()]

    def as_setting(self) -> dict[str, Any]:
        """The entry of the set in the JSON file."""
        return super().as_setting() | {"norm_bound": self.norm_bound}


def run(*, everything: bool = False) -> Report:
    names, folds = (SETS, FOLDS) if everything else (QUICK_SETS, QUICK_FOLDS)
    tables = [read(name, RULES[name]) for name in names] if SHARED.is_dir() else []
    notes = _notes(everything=everything, present=bool(tables))
    available = True
    try:
        diffprivlib_python()
    except UnavailableError as error:
        available = False
        notes.append(f"Skipped diffprivlib: {error}.")
    compared = []
    for data in tables:
        start = time.perf_counter()
        compared.append(Compared.on(data, folds, with_diffprivlib=available))
        print(f"  {data.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    if available and compared:
        tried = [one.tried.mean(axis=2) for one in compared if one.tried is not None]
        chosen = np.mean(tried, axis=0).argmin(axis=1)
        compared = [one.with_penalties(chosen) for one in compared]
    header = ("mean test error, %", "epsilon", *WAYS, f"{OURS} - best one-shot")
    title = f"Record-level privacy, delta = {DELTA:g}, {folds} folds, {LEAST_DRAWS} to {MOST_DRAWS} draws of noise each"
    return Report(
        "record_level",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilons": EPSILONS,
            "delta": DELTA,
            "parties": PARTIES,
            "folds": folds,
            "draws": (LEAST_DRAWS, MOST_DRAWS),
            "diffprivlib": PINS if available else None,
            "sets": [one.as_setting() for one in compared],
        },
        [measure for one in compared for measure in one.measures()],
        [times for one in compared for times in one.ratios()],
        [Table(title, header, [row for one in compared for row in one.rows()])],
        _findings(compared) + notes,
    )


def _findings(compared: list[Compared]) -> list[str]:
    """The claim at the stated epsilon, set by set if it does not hold."""
    if not compared:
        return []
    points = {way: {one.name: one.above(way, STATED_EPSILON) for one in compared} for way in (DESCENT, NO_PRIVACY)}
    peers = {one.name: one.above(one.best_peer(STATED_EPSILON), STATED_EPSILON) for one in compared}
    near = {name: value for name, value in points[NO_PRIVACY].items() if name in NEAR_NO_PRIVACY}
    found = [_within(f"the best one-shot peer's plus {WITHIN_PEER} points", peers, WITHIN_PEER)]
    if all(DIFFPRIVLIB_BEST in one.errors for one in compared):
        oracle = {one.name: one.above(DIFFPRIVLIB_BEST, STATED_EPSILON) for one in compared}
        found.append(_within(f"that of {DIFFPRIVLIB_BEST} plus {WITHIN_PEER} points", oracle, WITHIN_PEER))
    if near:
        found.append(_within(f"that of no privacy plus {WITHIN_NO_PRIVACY:g} points", near, WITHIN_NO_PRIVACY))
    rounds = max(setting.steps for setting in DESCENT_GRID)
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in points[DESCENT].items())
    return [*found, f"Against noisy descent, which takes up to {rounds} rounds, our error is: {shown}."]


def _within(what: str, points: dict[str, float], allowed: float) -> str:
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in points.items())
    kept = sum(value <= allowed for value in points.values())
    return f"At epsilon {STATED_EPSILON:g} our error is at most {what} on {kept} of {len(points)} sets ({shown})."


def _notes(*, everything: bool, present: bool) -> list[str]:
    notes = [
        "One repeat is a fold; our epsilon is for a replaced record, against the learner alone.",
        "AdaSSP's noise is as published, for a record added or removed; diffprivlib's is for one replaced, at delta 0.",
        "diffprivlib's C (for all sets, or per set) and descent's setting are chosen by test error at no charge.",
        "Bounds of features are the training rows' quantiles, uncounted, for all ways alike; a schema declares some.",
    ]
    if not present:
        return [*notes, "Skipped: there is no shared/data directory next to this checkout."]
    left_out = [name for name in SETS if name not in QUICK_SETS]
    return notes if everything else [*notes, f"Skipped {', '.join(left_out)}: run with --all for all five."]


def draw(report: Report, figure: Figure) -> None:
    """Mean test error against epsilon, one panel per set."""
    sets = report.setting["sets"]
    panels = figure.subplots(1, max(1, len(sets)), squeeze=False)[0]
    for axes, one in zip(panels, sets, strict=False):
        for way, style in zip(WAYS, ("o-", "s--", "v:", "^--", "d:", "x--", "k-", "k:"), strict=True):
            if way in one["mean_error_percent"]:
                axes.plot(EPSILONS, one["mean_error_percent"][way], style, label=way, markersize=4)
        axes.set_xscale("log")
        axes.set_title(one["name"], fontsize=9)
        axes.set_xlabel("epsilon")
    panels[0].set_ylabel("test error in %")
    if sets:
        labels = panels[0].get_legend_handles_labels()
        figure.legend(*labels, loc="outside lower center", ncols=4, fontsize=8)
