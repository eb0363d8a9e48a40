"""Evaluations over five hundred tables of four parties: each stated interval is right as often as it says."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from tests.dpcore.estimators.oracle_world import divided, real, schema_of

RUNS, CONFIDENCE = 500, 0.9
THETA = np.array([2.0, -1.0, 0.4])
SCHEMA = schema_of(real("a"), real("b"))


def table(generator, rows):
    x = np.column_stack([generator.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    return x, np.where(generator.random(rows) < 1 / (1 + np.exp(-x @ THETA)), 1, -1)


def truth():
    """Figures of the distribution itself, by quadrature over its square: error, the rates, precision, and the area."""
    grid = np.linspace(-1, 1, 1201)
    middle = (grid[:-1] + grid[1:]) / 2
    score = THETA[0] * middle[:, np.newaxis] + THETA[1] * middle + THETA[2]
    positive = 1 / (1 + np.exp(-score))
    called = score > 0
    tpr, fpr = (float(np.sum(mass * called) / mass.sum()) for mass in (positive, 1 - positive))
    order = np.argsort(score.ravel())
    below = np.cumsum((1 - positive).ravel()[order])
    area = float(positive.ravel()[order] @ below / (positive.sum() * (1 - positive).sum()))
    return {
        "error": float(np.mean(np.where(called, 1 - positive, positive))),
        "true_positive_rate": tpr,
        "false_positive_rate": fpr,
        "precision": float(positive[called].mean()),
        "balanced_accuracy": (tpr + 1 - fpr) / 2,
        "auc": area,
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("rows", "epsilon", "delta"),
    [(1000, Fraction(1), Fraction(0)), (1000, Fraction(1), Fraction(1, 10**6)), (4000, Fraction(1, 5), Fraction(0))],
)
def test_intervals_are_right_as_often_as_they_say(rows, epsilon, delta):
    generator = np.random.default_rng(20)
    true = truth()
    missed, missed_on_rows, ratios = dict.fromkeys(true, 0), 0, []
    for run in range(RUNS):
        x, labels = table(generator, rows)
        oracle = divided(SCHEMA, x, labels, epsilon=epsilon, delta=delta, seed=run)
        found = evaluate(THETA, oracle, EvaluationOptions(bins=6, confidence=CONFIDENCE), unseen=True)
        for name, value in true.items():
            missed[name] += value not in getattr(found, name).on_distribution
        error = float(np.mean(np.where(x @ THETA > 0, 1, -1) != labels))
        missed_on_rows += error not in found.error.on_rows
        noise = found.deviation * math.sqrt(2) * math.hypot(true["error"], 1 - true["error"]) / rows
        sample = math.sqrt(true["error"] * (1 - true["error"]) / rows)
        z = stats.norm.isf((1 - CONFIDENCE) / 2)
        ratios.append(
            (
                found.error.on_rows.width / (2 * z * noise),
                found.error.on_distribution.width / (2 * z * math.hypot(noise, sample)),
            )
        )
    # With intervals right as often as they say, more is seen once in ten thousand times.
    most = stats.binom.isf(1e-4, RUNS, 1 - CONFIDENCE)
    assert missed_on_rows <= most
    assert max(missed.values()) <= most
    # Intervals that are never wrong say too little: those of the error are near the ideal ones.
    on_rows, on_distribution = np.mean(ratios, axis=0)
    assert 0.9 < on_rows < 1.6
    assert 0.9 < on_distribution < 1.6
    assert missed_on_rows > 0
    assert missed["error"] > 0
