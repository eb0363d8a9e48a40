"""Intervals for new rows over eighty tables: right where rows are held back, wrong on the rows of the training."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from tests.dpcore.estimators.oracle_world import TableOracle, real, records, schema_of

RUNS, CONFIDENCE = 80, 0.9
ROWS, FEATURES = 600, 30
SCHEMA = schema_of(*(real(f"r{place}") for place in range(FEATURES)))
SHARE = Fraction(1, 3)
SLOPE = 2.0


def drawn(generator: np.random.Generator, rows: int) -> np.ndarray:
    return np.column_stack([generator.uniform(-1, 1, (rows, FEATURES)), np.ones(rows)])


def positive(x: np.ndarray) -> np.ndarray:
    """The probability of the label +1: one feature of thirty matters."""
    return 1 / (1 + np.exp(-SLOPE * x[:, 0]))


@pytest.mark.slow
def test_an_interval_for_new_rows_holds_on_rows_that_are_held_back_and_on_no_others():
    """Without noise, and with so many coordinates that the learner follows its rows."""
    generator = np.random.default_rng(9)
    fresh = drawn(generator, 30_000)
    chance = positive(fresh)
    missed = dict.fromkeys(Part, 0)
    for run in range(RUNS):
        x = drawn(generator, ROWS)
        labels = np.where(generator.random(ROWS) < positive(x), 1, -1)
        numbers = RowNumbers(RowKey(run.to_bytes(32, "big"), "f", "p", "d"))
        parts = {part: numbers.part_of(records(x, labels), HeldBack(SHARE, part)) for part in Part}
        seen = parts[Part.TRAINING].usable
        theta = np.linalg.lstsq(x[seen], labels[seen].astype(float), rcond=None)[0]
        truth = np.mean(np.where(fresh @ theta > 0, 1 - chance, chance))
        for part, rows in parts.items():
            oracle = TableOracle(SCHEMA, [rows])
            oracle.held_back = HeldBack(SHARE, part)
            # On the training part the claim would not be made: `unseen` makes it, to see that it is false.
            found = evaluate(theta, oracle, EvaluationOptions(bins=6, confidence=CONFIDENCE), unseen=True)
            missed[part] += truth not in found.error.on_distribution
    # With intervals right as often as they say, more is seen once in ten thousand times.
    most = stats.binom.isf(1e-4, RUNS, 1 - CONFIDENCE)
    assert 0 < missed[Part.HELD_BACK] <= most
    assert missed[Part.TRAINING] > 2 * most
