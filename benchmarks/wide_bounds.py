"""Claim: additive finds its knots within bounds that are ten times too wide, where values crowd near zero.

Unit of privacy: one record, replaced, delta = 1e-6, the learner alone, as in benchmarks.additive. There the bounds of a
number are quantiles of the training rows. Bounds of a domain are wider: here a number that is never negative has bounds
from 0 to ten times its 99.5 % quantile, and any other is bounded by ten times the larger of both quantiles on either
side. Compared with: `PrivateNewton` within the same bounds, and both within the quantiles.
"""

import sys
import time

import numpy as np
from matplotlib.figure import Figure

from benchmarks.additive import DRAWS, NEWTON, OURS, STATED_EPSILON, federated
from benchmarks.datasets import RULES, SHARED, Bounds, DataSet, quantiles, read
from benchmarks.measuring import Measure, Report, Table
from benchmarks.private_erm import made, schema_of
from benchmarks.record_level import DELTA, splits_of

SETS = ("abalone", "wine_white", "magic", "banknote")
QUICK_SETS = ("abalone",)
FOLDS, QUICK_FOLDS = 5, 3
TIMES = 10.0
USUAL, WIDE = "quantiles", "ten times as wide"


def bounds_of(data: DataSet) -> Bounds:
    """Of each number, as a domain would have them."""
    low, high = quantiles(data.numeric)
    far = TIMES * np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-9)
    return np.where(np.nanmin(data.numeric, axis=0) >= 0.0, 0.0, -far), far


def run(*, everything: bool = False) -> Report:
    """Measure."""
    names, folds = (SETS, FOLDS) if everything else (QUICK_SETS, QUICK_FOLDS)
    tables = [read(name, RULES[name]) for name in names] if SHARED.is_dir() else []
    tables += made()[-2:] if everything else []
    ways = tuple(f"{way}, {bounds}" for bounds in (USUAL, WIDE) for way in (OURS, NEWTON))
    measures, rows, sets = [], [], []
    for data in tables:
        start = time.perf_counter()
        both = {
            where: (splits_of(data, folds, bounds), schema_of(data, bounds))
            for where, bounds in ((USUAL, None), (WIDE, bounds_of(data)))
        }
        errors = {
            f"{way}, {bounds}": federated(way, splits, schema, (STATED_EPSILON,))[0][0]
            for bounds, (splits, schema) in both.items()
            for way in (OURS, NEWTON)
        }
        measures += [Measure.of(f"{data.name}: {what}", "% test error", list(found)) for what, found in errors.items()]
        sets.append(
            {"name": data.name, "mean_error_percent": {w: round(float(f.mean()), 2) for w, f in errors.items()}}
        )
        rows.append((data.name, *(f"{found.mean():.1f}" for found in errors.values())))
        print(f"  {rows[-1]} ({time.perf_counter() - start:.1f} s)", file=sys.stderr)
    return Report(
        "wide_bounds",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilon": STATED_EPSILON,
            "delta": DELTA,
            "folds": folds,
            "draws": DRAWS,
            "times": TIMES,
            "ways": ways,
            "sets": sets,
        },
        measures,
        [],
        [Table(f"Bounds of numbers, epsilon {STATED_EPSILON:g}, {folds} folds", ("mean test error, %", *ways), rows)],
        [f"One repeat is a fold, the mean of {DRAWS} draws of noise."]
        + ([] if SHARED.is_dir() else ["Skipped the tables of shared/data, which is not next to this checkout."]),
    )


def draw(report: Report, figure: Figure) -> None:
    """Test error within both bounds, a group of bars for each set."""
    axes = figure.subplots()
    sets, ways = report.setting["sets"], report.setting["ways"]
    width = 0.8 / len(ways)
    for n, way in enumerate(ways):
        places = np.arange(len(sets)) + (n - (len(ways) - 1) / 2) * width
        axes.bar(places, [one["mean_error_percent"][way] for one in sets], width, label=way)
    axes.set_xticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    axes.set_ylabel("test error in %")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
