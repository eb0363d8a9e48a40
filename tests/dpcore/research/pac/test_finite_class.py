"""Any finite class: scores have sensitivity 1, so the exact choice is private; alpha and beta hold at enough rows."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.randomness.sources import SeededRandom
from dpcore.research import pac_classes
from dpcore.research.pac_classes import finite_class_guarantee, learn_finite_class, predictions_of
from tests.dpcore.statistics.pac_world import (
    all_choices,
    exponential_distribution,
    failed_more_than,
    failed_too_often,
    log_ratio,
    neighbours,
)

EPSILON = Fraction(3, 2)
POINTS = 3
CONCEPTS = np.array(list(itertools.product([0, 1], repeat=POINTS)))
TABLES = list(itertools.product(itertools.product(range(POINTS), [0, 1]), repeat=2))


def distribution(table, monkeypatch):
    """The exact distribution of the choice, from the scores that the learner computes."""
    points, labels = np.array(table).T
    predictions = CONCEPTS[:, points]
    scores = all_choices(
        lambda: learn_finite_class(predictions, labels, EPSILON, SeededRandom(0)), monkeypatch, pac_classes
    )
    assert scores == {h: int((predictions[h] == labels).sum()) for h in range(len(CONCEPTS))}
    return exponential_distribution([scores[h] for h in range(len(CONCEPTS))], float(EPSILON))


def test_the_exact_distribution_is_private(monkeypatch):
    distributions = {table: distribution(table, monkeypatch) for table in TABLES}
    worst = max(log_ratio(distributions[first], distributions[second]) for first, second in neighbours(TABLES))
    assert 0.5 * EPSILON < worst <= EPSILON


def test_a_class_that_comes_close_to_epsilon(monkeypatch):
    """Only one of many concepts changes its prediction: its probability falls by nearly exp(epsilon)."""
    predictions = np.zeros((2000, 1), int)
    predictions[0] = 1
    first, second = (
        exponential_distribution((predictions[:, 0] == label).astype(int), float(EPSILON)) for label in (1, 0)
    )
    assert 0.99 * EPSILON < log_ratio(first, second) <= EPSILON


# A wrong concept errs with probability alpha exactly, independently of the others, so the union bound is nearly tight.
SIZE, ALPHA, BETA = 200, 0.1, 0.05


def failures(rows, trials, epsilon, seed, *, agnostic=False):
    generator, random = np.random.default_rng(seed), SeededRandom(seed)
    failed = 0
    # Agnostic: the best concept is right with probability (1 + ALPHA) / 2 and others with 1/2, so alpha is ALPHA / 2.
    wrong = 0.5 if agnostic else ALPHA
    best = (1 - ALPHA) / 2 if agnostic else 0.0
    for _ in range(trials):
        labels = generator.random(rows) < 0.5
        errs = generator.random((SIZE, rows)) < wrong
        errs[0] = generator.random(rows) < best
        failed += learn_finite_class(labels ^ errs, labels, epsilon, random) != 0
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(5)])
def test_wrong_concepts_are_chosen_at_most_with_beta(epsilon):
    rows = finite_class_guarantee(SIZE, ALPHA, BETA, epsilon).rows
    assert not failed_too_often(failures(rows, 400, epsilon, 1), 400, BETA)
    assert failed_more_than(failures(rows // 2, 400, epsilon, 2), 400, BETA)


@pytest.mark.slow
def test_agnostic_learning():
    guarantee = finite_class_guarantee(SIZE, ALPHA / 2, BETA, Fraction(1), agnostic=True)
    assert guarantee.agnostic
    assert not failed_too_often(failures(guarantee.rows, 60, Fraction(1), 3, agnostic=True), 60, BETA)
    assert failed_more_than(failures(guarantee.rows // 5, 150, Fraction(1), 4, agnostic=True), 150, BETA)


@given(st.integers(1, 10**9), st.sampled_from([Fraction(1, 10), Fraction(1), Fraction(10)]), st.booleans())
def test_more_of_anything_never_needs_more_rows(size, epsilon, agnostic):
    def rows(concepts=size, alpha=0.1, beta=0.05, epsilon=epsilon):
        return finite_class_guarantee(concepts, alpha, beta, epsilon, agnostic=agnostic).rows

    assert rows(alpha=0.2) <= rows()
    assert rows(beta=0.1) <= rows()
    assert rows(epsilon=2 * epsilon) <= rows()
    assert rows(concepts=2 * size) >= rows()


def test_concepts_as_callables():
    points = np.array([0.0, 1.0, 2.0])
    predicted = predictions_of(
        [lambda x: x > 0.5, lambda x: np.where(x > 1.5, 1, -1), lambda x: np.zeros(len(x))], points
    )
    assert predicted.tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    labels = np.array([-1, -1, 1])
    chosen = learn_finite_class(np.tile(predicted, 50), np.tile(labels, 50), Fraction(2), SeededRandom(1))
    assert chosen == 1


@pytest.mark.parametrize(
    ("predictions", "labels", "error"),
    [
        (np.zeros((0, 2)), [0, 1], ConfigurationError),
        ([[0, 2]], [0, 1], ConfigurationError),
        ([[0, 1]], [0, 1, 1], ShapeError),
        ([0, 1], [0, 1], ShapeError),
        ([[0, 1]], [0, 3], ConfigurationError),
    ],
)
def test_what_is_refused(predictions, labels, error):
    with pytest.raises(error):
        learn_finite_class(predictions, labels, EPSILON, SeededRandom(1))


def test_more_refusals():
    with pytest.raises(ConfigurationError, match="empty"):
        predictions_of([], np.arange(3))
    with pytest.raises(ShapeError, match="concept 0"):
        predictions_of([lambda x: x[:-1] > 0], np.arange(3))
    with pytest.raises(PlanError, match="epsilon"):
        learn_finite_class([[0]], [0], Fraction(-1), SeededRandom(1))
    with pytest.raises(ConfigurationError, match="at least one"):
        finite_class_guarantee(0, 0.1, 0.1, EPSILON)
    with pytest.raises(PlanError, match="epsilon"):
        finite_class_guarantee(3, 0.1, 0.1, 0.5)
