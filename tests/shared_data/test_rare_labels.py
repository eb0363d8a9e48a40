"""What class weights and a threshold for a cost give on a public table with a rare label: docs/how-to/rare-labels.md.

The page's table has the means of `measured` over seeds 0 to 4.
"""

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from benchmarks.datasets import SHARED
from learner.model import Model
from learner.predictions import predict
from radofed import simulated_federation

FILE = SHARED / "surveys.csv.gz"
SPECIES, COST = "PE", "false-negative=10:false-positive=1"


def divided() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three quarters to train on, and the rest to test on."""
    table = pd.read_csv(FILE)
    table["label"] = np.where(table["species"] == SPECIES, "yes", "no")
    table["plot_id"] = "p" + table["plot_id"].astype(str)
    order = np.random.default_rng(5).permutation(len(table))
    parts = np.split(order, [int(0.75 * len(table))])
    train, test = (table.drop(columns="species").iloc[part] for part in parts)
    return train, test


def rates(model: Model, test: pd.DataFrame) -> tuple[float, float, float]:
    """Recall, precision, and the cost of 1,000 rows."""
    positive = (test["label"] == "yes").to_numpy()
    called = predict(model, test.drop(columns="label")).scores > 0
    found = np.sum(called & positive)
    cost = 1000 * np.mean(10.0 * (positive & ~called) + (called & ~positive))
    return float(found / positive.sum()), float(found / max(called.sum(), 1)), float(cost)


def measured(estimator: str, seed: int, **options) -> dict[str, tuple[float, float, float]]:
    """Of a training at epsilon 1, and of the threshold of an evaluation at epsilon 1."""
    train, test = divided()
    federation = simulated_federation(train, label="label", positive="yes", parties=4, seed=seed)
    model = federation.train(estimator, epsilon=1, **options)
    found = federation.evaluate(model, epsilon=1, cost=COST, bins=12)
    return {"trained": rates(model, test), "at the threshold": rates(model.at_threshold(found.least_cost), test)}


@pytest.mark.skipif(not FILE.is_file(), reason="the shared data sets are not beside this checkout")
@pytest.mark.more
@pytest.mark.parametrize(
    ("estimator", "options", "of_training", "of_threshold"),
    [
        ("newton", {}, (380, 410), (270, 310)),
        ("additive", {}, (330, 385), (135, 185)),
        ("additive", {"class_weight": "positive=10"}, (140, 195), (140, 195)),
    ],
    ids=["newton", "additive", "weighted"],
)
@pytest.mark.filterwarnings("ignore")
def test_costs_are_near_those_of_the_page(estimator, options, of_training, of_threshold):
    found = measured(estimator, 0, **options)
    for name, (low, high) in (("trained", of_training), ("at the threshold", of_threshold)):
        assert low <= found[name][2] <= high
