"""Claim: at epsilon 1 federated curves err less than a curator's private boosting, and about as its noisy descent.

Unit of privacy: one record, replaced, delta = 1e-6. Ours: `PrivateAdditive`, federated over ten parties, all releases
counted. Compared with methods of a curator who is trusted with every row: interpret's private boosting with its
defaults, and with the larger rate that is better on these sets, under the same public bounds; noisy gradient descent on
the functions that ours chose, which it gets for free, with the best of four settings; and `PrivateNewton`, federated.

interpret counts an added or removed record. Replacing one is both, so its mu is doubled: the peers named "replaced" run
at the epsilon whose mu is half, which makes the guarantees equal; those named "added" have the weaker one.
"""

import sys
import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.additive import NEWTON, OURS
from benchmarks.datasets import RULES, SHARED, DataSet, read
from benchmarks.environments import UnavailableError, environment, work
from benchmarks.measuring import Measure, Report, Table, require
from benchmarks.private_erm import DESCENTS, TUNING_FOLDS, PartiesOracle, made, parties_of, schema_of
from benchmarks.private_peers import Split, noisy_descent
from benchmarks.record_level import DELTA, splits_of
from dpcore.accounting.gaussian import gaussian_mu, shift_distribution
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.randomness.sources import SeededRandom
from dpcore.records.schema import CategoryFeature, Schema

EPSILON = 1.0
SETS = ("abalone", "wine_white", "eeg_eye_state", "magic", "adult", "banknote")
QUICK_SETS = ("abalone",)
FOLDS, QUICK_FOLDS = 5, 3
PINS = ("interpret-core==0.7.8",)
# Learning rate and rounds: the defaults, and a larger rate.
SETTINGS = {"boosting": (0.01, 300), "boosting, rate 0.1": (0.1, 300)}
DESCENT = "descent on our functions, best setting, replaced"


def budgets() -> dict[str, float]:
    """The peer's epsilon by the relation of neighbours."""
    half = gaussian_mu(EPSILON, DELTA) / 2.0
    replaced = shift_distribution(half, 1, 1).epsilon(DELTA).lower
    require(abs(2 * gaussian_mu(replaced, DELTA) / gaussian_mu(EPSILON, DELTA) - 1) < 1e-3, "mu is not half")
    return {"replaced": replaced, "added": EPSILON}


def peers_of(python: Any, split: Split, schema: Schema, seed: int) -> dict[str, float]:
    """Test errors in % of interpret's boosting."""
    train, train_categories = _columns(split.train, schema)
    test, test_categories = _columns(split.test, schema)
    job = {
        "train": train,
        "test": test,
        "train_categories": train_categories,
        "test_categories": test_categories,
        "train_labels": split.train_labels,
        "test_labels": split.test_labels,
        "settings": list(SETTINGS.values()),
        "budgets": list(budgets().values()),
        "delta": DELTA,
        "seed": seed,
    }
    found = work(python, "interpret_worker.py", job)
    return {
        f"{name}, {relation}": error
        for name, errors in zip(SETTINGS, found, strict=True)
        for relation, error in zip(budgets(), errors, strict=True)
    }


def _columns(rows: NDArray[np.float64], schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The numbers of encoded rows, and the values of categories by their number, -1 where missing."""
    categories = [feature for feature in schema.features if isinstance(feature, CategoryFeature)]
    numbers = len(schema.features) - len(categories)
    found = np.empty((len(rows), len(categories)), dtype=np.int64)
    at = numbers
    for j, feature in enumerate(categories):
        one_hot = rows[:, at : at + len(feature.coordinates)]
        found[:, j] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
        at += len(feature.coordinates)
    return rows[:, :numbers], found


def ours(split: Split, schema: Schema, fold: int) -> tuple[dict[str, float], Split]:
    """Test errors in % of both federated estimators, and the split with the functions that the first chose."""
    oracles: list[Any] = [
        PartiesOracle(parties_of(split), schema, EPSILON, SeededRandom(f"{way} {EPSILON} {fold} 0".encode()))
        for way in (OURS, NEWTON)
    ]
    additive = PrivateAdditive().fit_queries(oracles[0])
    errors = {
        OURS: 100 * float(np.mean((additive.decision_function(split.test) > 0) != (split.test_labels > 0))),
        NEWTON: split.error(PrivateNewton().fit_queries(oracles[1]).theta_),
    }
    require(all(oracle.counted() <= EPSILON for oracle in oracles), "the releases cost more than was planned")
    functions = additive.feature_map_
    if functions is None:
        return errors, split
    rows = [functions.of(part) for part in (split.train, split.test)]
    return errors, Split(rows[0], split.train_labels, rows[1], split.test_labels, split.norm)


def compared(data: DataSet, folds: int, python: Any) -> dict[str, list[float]]:
    """Test errors in % on one set, by method, one for each fold."""
    splits, schema = splits_of(data, folds), schema_of(data)
    errors: dict[str, list[float]] = {}
    mapped = []
    for fold, split in enumerate(splits):
        found, functions = ours(split, schema, fold)
        mapped.append(functions)
        for way, error in {**found, **({} if python is None else peers_of(python, split, schema, fold))}.items():
            errors.setdefault(way, []).append(error)
    random = np.random.default_rng(0)
    tried = [
        np.mean([one.error(noisy_descent(one, EPSILON, DELTA, setting, random)) for one in mapped[:TUNING_FOLDS]])
        for setting in DESCENTS
    ]
    best = DESCENTS[int(np.argmin(tried))]
    errors[DESCENT] = [one.error(noisy_descent(one, EPSILON, DELTA, best, random)) for one in mapped]
    return errors


def finding(name: str, rows: int, errors: dict[str, list[float]]) -> str:
    """Ours against the best peer of equal privacy, paired over folds."""
    equal = [way for way in errors if way != OURS and not way.endswith("added")]
    best = min(equal, key=lambda way: np.mean(errors[way]))
    apart = np.array(errors[OURS]) - np.array(errors[best])
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    verdict = "better" if apart.mean() < 0 else "not better"
    return f"{name} ({rows} training rows): {apart.mean():+.2f} +- {error:.2f} points from the best, {best}: {verdict}."


def run(*, everything: bool = False) -> Report:
    """Measure."""
    names, folds = (SETS, FOLDS) if everything else (QUICK_SETS, QUICK_FOLDS)
    tables = [read(name, RULES[name]) for name in names] if SHARED.is_dir() else []
    tables += made() if everything or not tables else []
    notes = []
    python = None
    try:
        python = environment("interpret", PINS, "interpret.privacy")
    except UnavailableError as error:
        notes.append(f"Without interpret: {error}.")
    results: dict[str, dict[str, list[float]]] = {}
    for data in tables:
        start = time.perf_counter()
        results[data.name] = compared(data, folds, python)
        rows = len(data.positive) * (folds - 1) // folds
        notes.append(finding(data.name, rows, results[data.name]))
        print(f"  {data.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    ways = list(next(iter(results.values())))
    if not SHARED.is_dir():
        notes.append("Skipped the tables of shared/data, which is not next to this checkout.")
    return Report(
        "private_curves",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilon": EPSILON,
            "delta": DELTA,
            "folds": folds,
            "epsilon of interpret": budgets(),
            "mean_error_percent": {
                name: {way: round(float(np.mean(values)), 2) for way, values in errors.items()}
                for name, errors in results.items()
            },
        },
        [
            Measure.of(f"{name}: {way}", "% test error", values)
            for name, errors in results.items()
            for way, values in errors.items()
        ],
        [],
        [
            Table(
                f"Private classifiers at epsilon {EPSILON:g}, delta = {DELTA:g}, {folds} folds",
                ("mean test error, %", *ways),
                [(name, *(f"{np.mean(errors[way]):.1f}" for way in ways)) for name, errors in results.items()],
            )
        ],
        notes,
    )


def draw(report: Report, figure: Figure) -> None:
    """Test error of each method, a group of bars for each set."""
    means: dict[str, dict[str, float]] = report.setting["mean_error_percent"]
    axes = figure.subplots()
    ways = list(next(iter(means.values())))
    width = 0.8 / len(ways)
    for n, way in enumerate(ways):
        places = np.arange(len(means)) + (n - (len(ways) - 1) / 2) * width
        axes.bar(places, [errors[way] for errors in means.values()], width, label=way)
    axes.set_xticks(range(len(means)), list(means), rotation=20, fontsize=8)
    axes.set_ylabel("test error in %")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
