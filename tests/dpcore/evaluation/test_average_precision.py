"""Average precision from noisy histograms: against scikit-learn's, and how often its intervals hold."""

import math

import numpy as np
import pytest
from scipy import special
from sklearn.metrics import average_precision_score

from dpcore.evaluation.average_precision import average_precision
from dpcore.evaluation.intervals import ANYTHING, CellNoise, Judge

POSITIVE, APART = 0.05, 1.5
"""The share of positive rows, and by how much their normal scores are higher."""


def drawn(rows: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = random.random(rows) < POSITIVE
    return labels, random.normal(size=rows) + APART * labels


def counted(labels: np.ndarray, scores: np.ndarray, bins: int) -> np.ndarray:
    """In bins that are narrower where scores are high, whose edges depend on the rows."""
    edges = np.quantile(scores, 1 - np.geomspace(0.5, 0.005, bins - 1))
    place = np.searchsorted(edges, scores, side="left")
    return np.array([np.bincount(place[labels == label], minlength=bins) for label in (False, True)], dtype=float)


def of_distribution() -> float:
    """The mean over recalls of the precision at their threshold."""
    recalls = (np.arange(200_000) + 0.5) / 200_000
    fpr = special.ndtr(-(APART - special.ndtri(recalls)))
    return float((POSITIVE * recalls / (POSITIVE * recalls + (1 - POSITIVE) * fpr)).mean())


def judge(noise: float, rows: int, *, unseen: bool = True) -> Judge:
    return Judge(CellNoise(noise, math.inf), 0.05, rows, unseen=unseen)


def test_without_noise_it_is_that_of_the_rows():
    labels, scores = drawn(20_000, np.random.default_rng(1))
    true = average_precision_score(labels, scores)
    widths = []
    for bins in (8, 40):
        found = average_precision(counted(labels, scores, bins), judge(0.0, 20_000, unseen=False))
        assert found.estimate == pytest.approx(true, abs=0.02)
        assert found.on_rows.lower <= true <= found.on_rows.upper
        assert found.on_distribution is None
        widths.append(found.on_rows.width)
    assert widths[1] < widths[0] / 2


@pytest.mark.more
def test_the_order_within_a_bin_may_be_any():
    """All orders of a few rows in two bins are within the bounds, and the best is at one."""
    random, ones = np.random.default_rng(2), np.array([[2.0, 3.0], [2.0, 1.0]])
    found = average_precision(ones, judge(0.0, 8, unseen=False)).on_rows
    labels, place = np.array([0, 0, 1, 1, 0, 0, 0, 1]), np.repeat([0, 1], 4)
    values = [average_precision_score(labels, place + random.random(8) / 2) for _ in range(300)]
    assert found.lower <= min(values)
    assert found.upper == pytest.approx(max(values), abs=0.25)
    assert found.upper >= max(values)


def test_too_few_rows_say_nothing():
    found = average_precision(np.array([[900.0, 30.0], [4.0, 3.0]]), judge(20.0, 1_000))
    assert found.on_rows == ANYTHING
    assert found.on_distribution == ANYTHING
    assert average_precision(np.zeros((2, 3)), judge(0.0, 10)).estimate == 0


@pytest.mark.more
def test_intervals_hold_as_often_as_they_say():
    true, random = of_distribution(), np.random.default_rng(3)
    held, new, widths = 0, 0, []
    for _ in range(60):
        labels, scores = drawn(12_000, random)
        histogram = counted(labels, scores, 12)
        noisy = histogram + 4.0 * random.normal(size=histogram.shape)
        found = average_precision(noisy, judge(4.0, 12_000))
        held += average_precision_score(labels, scores) in found.on_rows
        new += true in found.on_distribution
        widths.append((found.on_rows.width, found.on_distribution.width))
    assert held >= 57
    assert new >= 57
    of_rows, of_new = np.mean(widths, axis=0)
    assert of_rows < 0.4
    assert of_new < 0.7
