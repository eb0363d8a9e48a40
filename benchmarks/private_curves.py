"""Claim: at epsilon 1 federated curves err less than a curator's private boosting, and about as its noisy descent.

Unit of privacy: one record, replaced, delta = 1e-6. Ours: `PrivateAdditive`, federated over ten parties, all releases
counted. Compared with methods of a curator who is trusted with every row: interpret's private boosting with its
defaults, and with the larger rate that is better on these sets, under the same public bounds; noisy gradient descent on
the functions that ours chose, which it gets for free, with the best of four settings; and `PrivateNewton`, federated.
And with the private boosted trees of a federation (benchmarks.private_trees), with the best of six settings.

interpret counts an added or removed record. Replacing one is both, so its mu is doubled: the peers named "replaced" run
at the epsilon whose mu is half, which makes the guarantees equal; those named "added" have the weaker one.
"""

import sys
import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.additive import DRAWS, NEWTON, OURS
from benchmarks.datasets import RULES, SHARED, DataSet, read
from benchmarks.environments import UnavailableError, environment, work
from benchmarks.measuring import Measure, Report, Table, require
from benchmarks.private_erm import DESCENTS, TUNING_FOLDS, PartiesOracle, made, parties_of, schema_of
from benchmarks.private_peers import Paired, Split, noisy_descent
from benchmarks.private_trees import SETTINGS as SETTINGS_OF_TREES
from benchmarks.private_trees import TreesSetting, trees_margins
from benchmarks.record_level import DELTA, splits_of
from dpcore.accounting.gaussian import gaussian_mu, shift_distribution
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.randomness.sources import SeededRandom
from dpcore.records.schema import Schema

EPSILONS, STATED_EPSILON = (0.5, 1.0, 3.0), 1.0
SETS = ("abalone", "wine_white", "eeg_eye_state", "magic", "adult", "banknote")
QUICK_SETS = ("abalone",)
FOLDS, QUICK_FOLDS = 5, 3
PINS = ("interpret-core==0.7.8",)
# Learning rate and rounds: the defaults, and a larger rate.
SETTINGS = {"boosting": (0.01, 300), "boosting, rate 0.1": (0.1, 300)}
DESCENT = "descent on our functions, best setting, replaced"
TREES = "federated trees, best setting, replaced"


def budgets(epsilon: float) -> dict[str, float]:
    """The peer's epsilon by the relation of neighbours."""
    half = gaussian_mu(epsilon, DELTA) / 2.0
    replaced = shift_distribution(half, 1, 1).epsilon(DELTA).lower
    require(abs(2 * gaussian_mu(replaced, DELTA) / gaussian_mu(epsilon, DELTA) - 1) < 1e-3, "mu is not half")
    return {"replaced": replaced, "added": epsilon}


def peers_of(python: Any, split: Split, schema: Schema, epsilon: float, seed: int) -> dict[str, float]:
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
        "budgets": list(budgets(epsilon).values()),
        "delta": DELTA,
        "seed": seed,
    }
    found = work(python, "interpret_worker.py", job)
    return {
        f"{name}, {relation}": error
        for name, errors in zip(SETTINGS, found, strict=True)
        for relation, error in zip(budgets(epsilon), errors, strict=True)
    }


def _columns(rows: NDArray[np.float64], schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The numbers of encoded rows, and the values of categories by their number, -1 where missing."""
    categories = schema.categories
    numbers = len(schema.features) - len(categories)
    found = np.empty((len(rows), len(categories)), dtype=np.int64)
    at = numbers
    for j, feature in enumerate(categories):
        one_hot = rows[:, at : at + len(feature.coordinates)]
        found[:, j] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
        at += len(feature.coordinates)
    return rows[:, :numbers], found


def trees_errors(splits: list[Split], schema: Schema, epsilon: float) -> list[float]:
    """Test errors in % of the federation's trees, with the setting of the least mean test error."""

    def errors(setting: TreesSetting) -> list[float]:
        found = []
        for fold, split in enumerate(splits):
            train, test = (_numbers(part, schema) for part in (split.train, split.test))
            random = np.random.default_rng([fold, setting.trees, setting.one_feature])
            margins = trees_margins(train, split.train_labels > 0, test, epsilon, DELTA, setting, random)
            found.append(100 * float(np.mean((margins > 0) != (split.test_labels > 0))))
        return found

    return min((errors(setting) for setting in SETTINGS_OF_TREES), key=np.mean)


def _numbers(rows: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """A column for each feature, in [-1, 1]: categories by their number, missing ones as -1."""
    numbers, categories = _columns(rows, schema)
    sizes = [len(feature.coordinates) for feature in schema.categories]
    return np.hstack([numbers, 2 * (categories + 1) / np.array(sizes) - 1]) if sizes else numbers


def ours(split: Split, schema: Schema, epsilon: float, fold: int, draw: int) -> tuple[dict[str, float], Split]:
    """Test errors in % of both federated estimators, and the split with the functions that the first chose."""
    oracles: list[Any] = [
        PartiesOracle(parties_of(split), schema, epsilon, SeededRandom(f"{way} {epsilon} {fold} {draw}".encode()))
        for way in (OURS, NEWTON)
    ]
    additive = PrivateAdditive().fit_queries(oracles[0])
    errors = {
        OURS: 100 * float(np.mean((additive.decision_function(split.test) > 0) != (split.test_labels > 0))),
        NEWTON: split.error(PrivateNewton().fit_queries(oracles[1]).theta_),
    }
    require(all(oracle.counted() <= epsilon for oracle in oracles), "the releases cost more than was planned")
    functions = additive.feature_map_
    if functions is None:
        return errors, split
    rows = [functions.of(part) for part in (split.train, split.test)]
    return errors, Split(rows[0], split.train_labels, rows[1], split.test_labels, split.norm)


def compared(data: DataSet, folds: int, epsilon: float, python: Any) -> dict[str, list[float]]:
    """Test errors in % on one set, by method, one for each fold.

    Those of the federated estimators, and of descent on the functions of each of their draws, are means over DRAWS.
    """
    splits, schema = splits_of(data, folds), schema_of(data)
    errors: dict[str, list[float]] = {}
    mapped: list[list[Split]] = []
    for fold, split in enumerate(splits):
        drawn = [ours(split, schema, epsilon, fold, draw) for draw in range(DRAWS)]
        found = {way: float(np.mean([one[way] for one, _ in drawn])) for way in (OURS, NEWTON)}
        mapped.append([functions for _, functions in drawn])
        boosting = {} if python is None else peers_of(python, split, schema, epsilon, fold)
        for way, error in {**found, **boosting}.items():
            errors.setdefault(way, []).append(error)
    random = np.random.default_rng(0)
    tried = [
        np.mean([one.error(noisy_descent(one, epsilon, DELTA, setting, random)) for one, *_ in mapped[:TUNING_FOLDS]])
        for setting in DESCENTS
    ]
    best = DESCENTS[int(np.argmin(tried))]
    errors[DESCENT] = [
        float(np.mean([one.error(noisy_descent(one, epsilon, DELTA, best, random)) for one in drawn]))
        for drawn in mapped
    ]
    errors[TREES] = trees_errors(splits, schema, epsilon)
    return errors


def finding(name: str, rows: int, epsilon: float, errors: dict[str, list[float]]) -> str:
    """Ours against the best peer of equal privacy, paired over folds."""
    best = best_peer(errors)
    apart = Paired.of(errors[OURS], errors[best])
    verdict = "better" if apart.mean < 0 else "not better"
    where = f"{name} ({rows} training rows), epsilon {epsilon:g}"
    return f"{where}: {apart} points from the best, {best}: {verdict}."


def best_peer(errors: dict[str, list[float]]) -> str:
    """The method of least mean error with the same guarantee as ours."""
    equal = [way for way in errors if way != OURS and not way.endswith("added")]
    return min(equal, key=lambda way: float(np.mean(errors[way])))


def run(*, everything: bool = False) -> Report:
    """Measure."""
    names, folds = (SETS, FOLDS) if everything else (QUICK_SETS, QUICK_FOLDS)
    tables = [read(name, RULES[name]) for name in names] if SHARED.is_dir() else []
    tables += made() if everything or not tables else []
    notes = [f"One repeat is a fold, for the federated estimators and descent the mean of {DRAWS} draws of noise."]
    python = None
    try:
        python = environment("interpret", PINS, "interpret.privacy")
    except UnavailableError as error:
        notes.append(f"Without interpret: {error}.")
    results: dict[float, dict[str, dict[str, list[float]]]] = {epsilon: {} for epsilon in EPSILONS}
    for data in tables:
        rows = len(data.positive) * (folds - 1) // folds
        for epsilon in EPSILONS:
            start = time.perf_counter()
            results[epsilon][data.name] = compared(data, folds, epsilon, python)
            notes.append(finding(data.name, rows, epsilon, results[epsilon][data.name]))
            print(f"  {notes[-1]} ({time.perf_counter() - start:.1f} s)", file=sys.stderr)
    ways = list(next(iter(results[STATED_EPSILON].values())))
    if not SHARED.is_dir():
        notes.append("Skipped the tables of shared/data, which is not next to this checkout.")
    return Report(
        "private_curves",
        (__doc__ or "").partition("\n")[0],
        {
            "epsilons": EPSILONS,
            "delta": DELTA,
            "folds": folds,
            "epsilon of interpret": {f"{epsilon:g}": budgets(epsilon) for epsilon in EPSILONS},
            "mean_error_percent": {
                f"{epsilon:g}": {
                    name: {way: round(float(np.mean(values)), 2) for way, values in errors.items()}
                    for name, errors in of.items()
                }
                for epsilon, of in results.items()
            },
        },
        [
            Measure.of(f"{name}, epsilon {epsilon:g}: {way}", "% test error", values)
            for epsilon, of in results.items()
            for name, errors in of.items()
            for way, values in errors.items()
        ],
        [],
        [
            Table(
                f"Private classifiers at epsilon {epsilon:g}, delta = {DELTA:g}, {folds} folds",
                ("mean test error, %", *ways),
                [(name, *(f"{np.mean(errors[way]):.1f}" for way in ways)) for name, errors in of.items()],
            )
            for epsilon, of in results.items()
        ],
        notes,
    )


def draw(report: Report, figure: Figure) -> None:
    """Test error of each method at the stated epsilon, a group of bars for each set."""
    means: dict[str, dict[str, float]] = report.setting["mean_error_percent"][f"{STATED_EPSILON:g}"]
    axes = figure.subplots()
    ways = list(next(iter(means.values())))
    width = 0.8 / len(ways)
    for n, way in enumerate(ways):
        places = np.arange(len(means)) + (n - (len(ways) - 1) / 2) * width
        axes.bar(places, [errors[way] for errors in means.values()], width, label=way)
    axes.set_xticks(range(len(means)), list(means), rotation=20, fontsize=8)
    axes.set_ylabel("test error in %")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
