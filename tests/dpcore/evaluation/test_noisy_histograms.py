"""Figures of an evaluation are finite and in range whatever noisy histograms its releases return."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import FEWEST_FOUND, EvaluationOptions
from dpcore.evaluation.scores import CELLS
from dpcore.statistics.accuracy import Estimates
from tests.dpcore.estimators import oracle_world as world

SCHEMA = world.schema_of(*(world.real(f"r{i}") for i in range(3)))
THETA = [1.0, -0.7, 0.4, 0.1]
EIGHTH = Fraction(1, 8)


class Histograms:
    """An oracle whose releases are given: `first` is of the cells that find edges, `second` of bins."""

    schema, epsilon, delta = SCHEMA, Fraction(1), Fraction(0)

    def __init__(self, second, rows, deviation, first=None):
        self._second, self.rows, self._deviation, self._first = second, rows, deviation, first

    def statistic(self, predicates, *, part=WHOLE, confidence=0.95, **_):
        del part
        counts = self._first if len(predicates) == 2 * CELLS else np.resize(self._second, len(predicates))
        # As of a release: integers divided by the rows, and multiplied again later.
        deviation = self._deviation / self.rows
        return Estimates(np.asarray(counts) / self.rows, self.rows, confidence, 0.0, 0.0, 0.0, deviation)


def check(found):
    """Every number is finite, every proportion within its range, and the curve monotone."""
    written = json.dumps(found.to_dict(), allow_nan=False)
    for name in ("error", "true_positive_rate", "false_positive_rate", "precision", "balanced_accuracy", "auc"):
        assert 0.0 <= getattr(found, name).estimate <= 1.0
    for side in ("false_positive_rate", "true_positive_rate"):
        rates = [getattr(point, side).estimate for point in found.roc]
        assert all(0.0 <= rate <= 1.0 for rate in rates)
        assert rates == sorted(rates)
    assert 0.0 <= found.auc_half_width <= 0.5
    assert 0.0 <= found.largest_bin <= 1.0
    assert not any(word in " ".join(found.sentences()).split() for word in ("nan", "inf"))
    assert "NaN" not in written
    assert math.isfinite(found.usable)


counts = st.one_of(st.integers(-30, 30), st.integers(-3000, 40_000), st.integers(-(10**9), 10**9))
rows = st.one_of(st.integers(1, 300), st.integers(1, 10**9))
deviations = st.one_of(st.just(0.0), st.floats(0.01, 1e4), st.floats(1e-12, 1e9))


@given(
    st.integers(3, 10).flatmap(
        lambda half: st.tuples(st.just(2 * half), st.lists(counts, min_size=1, max_size=4 + 4 * half))
    ),
    rows,
    deviations,
    st.booleans(),
)
# Two points of the curve are one rounding error apart.
@example((8, [35, -6, 31, -11, 43, -7, 27, -12, 12, 4, -8, 9, -1, 19, 34, 2, -2, 27, 56, 7]), 734, 10.0, False)
@example((8, [37, 28, 25, 6, 25, -1, 0, 50, 0, 0, 0, 5, 38, 0, 32, 0, 0, -1, 41, 0]), 270, 10.0, False)
def test_of_fixed_edges(histogram, rows, deviation, unseen):
    bins, second = histogram
    oracle = Histograms(second, rows, deviation)
    check(evaluate(THETA, oracle, EvaluationOptions(bins=bins, edges_part=Fraction(0)), unseen=unseen))


@pytest.mark.more
@given(
    st.integers(FEWEST_FOUND, 20),
    st.lists(counts, min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 2 * CELLS - 1), counts), max_size=20),
    rows,
    deviations,
    st.booleans(),
)
def test_of_edges_that_a_first_release_found(bins, second, spots, rows, deviation, unseen):
    first = np.rint(np.random.default_rng(len(spots)).laplace(0.0, deviation or 1.0, 2 * CELLS))
    for place, count in spots:
        first[place] += count
    oracle = Histograms(second, rows, deviation, first)
    check(evaluate(THETA, oracle, EvaluationOptions(bins=bins, edges_part=EIGHTH), unseen=unseen))
