"""Edges where the scores are: rare labels, noise that hides everything, and what is said of it."""

import json
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpcore.errors import ConfigurationError
from dpcore.evaluation.evaluation import evaluate, planned_batches
from dpcore.evaluation.options import USUAL_BINS, EvaluationOptions
from dpcore.evaluation.scores import find_edges, located
from dpcore.predicates.disjoint import batch_sensitivity
from tests.dpcore.estimators import oracle_world as world

SCHEMA = world.schema_of(*(world.real(f"r{i}") for i in range(3)))
HALF = Fraction(1, 2)


@cache
def rare_rows(rows: int, slope: float, rate: float, seed: int = 0):
    """Coordinates, labels and the true theta of a logistic model whose labels are positive at this rate."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([generator.uniform(-1, 1, (rows, 3)), np.ones(rows)])
    theta = np.array([slope, -0.7 * slope, 0.4 * slope, 0.0])
    low, high = -40.0, 40.0
    for _ in range(60):
        theta[3] = (low + high) / 2
        low, high = (low, theta[3]) if (1 / (1 + np.exp(-x @ theta))).mean() > rate else (theta[3], high)
    labels = np.where(generator.random(rows) < 1 / (1 + np.exp(-x @ theta)), 1, -1)
    return x, labels, theta


def oracle_of(x, labels, *, epsilon=1, seed=0, delta=Fraction(0)):
    return world.divided(SCHEMA, x, labels, parties=3, epsilon=Fraction(epsilon), delta=delta, seed=seed, honest=2)


@pytest.mark.more
@pytest.mark.parametrize("slope", [1.2, 6.0])
def test_the_area_of_a_rare_label_is_measured(slope):
    """400 of 40,000 rows are positive, at epsilon 1 with a third of the noise's shares lost to collusion."""
    errors, inside, widths = [], 0, []
    for seed in range(10):
        x, labels, theta = rare_rows(40_000, slope, 0.01, seed)
        found = evaluate(theta, oracle_of(x, labels, seed=seed))
        area = roc_auc_score(labels, x @ theta)
        errors.append(abs(found.auc.estimate - area))
        inside += area in found.auc.on_rows
        widths.append(found.auc_half_width)
        assert found.auc_is_measured
        assert found.edges_found
        assert found.largest_bin < 0.55
    assert np.mean(np.array(errors) <= 0.02) >= 0.9
    assert max(errors) < 0.035
    assert inside == 10
    assert max(widths) < 0.03


@pytest.mark.more
def test_fixed_edges_say_that_they_cannot_tell():
    """All scores in one bin, as with even steps of probability."""
    x, labels, theta = rare_rows(40_000, 1.2, 0.01)
    found = evaluate(theta, oracle_of(x, labels), EvaluationOptions(edges_part=Fraction(0)))
    assert found.edges_found is None
    assert found.largest_bin > 0.9
    assert found.auc.on_rows.width > 0.6
    said = " ".join(found.sentences())
    assert "of the rows, whose scores are not distinguished; a first release would find where the scores are" in said
    assert "of the bins have too few rows to tell" in said


@pytest.mark.more
def test_too_little_budget_is_said_to_be_too_little():
    x, labels, theta = rare_rows(40_000, 1.2, 0.01)
    found = evaluate(theta, oracle_of(x, labels, epsilon=Fraction(1, 20)))
    assert not found.auc_is_measured
    assert any("cannot be measured at this epsilon" in sentence for sentence in found.sentences())
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["auc_is_measured"] is False
    assert roc_auc_score(labels, x @ theta) in found.auc.on_rows


@pytest.mark.more
def test_noise_that_hides_all_rows_leaves_even_steps():
    x, labels, theta = rare_rows(60, 1.2, 0.3)
    edges = find_edges(theta, oracle_of(x, labels, epsilon=Fraction(1, 100)), 7, part=HALF)
    assert not edges.found
    assert len(edges.values) == 7
    assert 0.0 in edges.values
    found = evaluate(theta, oracle_of(x, labels, epsilon=Fraction(1, 100)))
    assert found.edges_found is False
    assert any("The noise of the first release hides where the scores are" in said for said in found.sentences())


@pytest.mark.more
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_two_releases_of_disjoint_cells_within_the_part(delta):
    x, labels, theta = rare_rows(2000, 2.0, 0.3)
    oracle = oracle_of(x, labels, delta=delta)
    found = evaluate(theta, oracle, part=HALF)
    (first, first_part), (second, second_part) = oracle.releases
    assert first_part + second_part == HALF
    assert len(second) == 2 * (len(found.roc) + 1)
    for batch in (first, second):
        sensitivity = batch_sensitivity(batch)
        assert (sensitivity.l1, sensitivity.l2_squared) == (2, 2)
    # But for a cell that the noise made negative, which counts as 0.
    assert found.confusion.sum() == pytest.approx(found.usable, rel=1e-3)


@pytest.mark.more
def test_edges_follow_the_rare_label():
    """Bins are narrow at the end where rows of the rare label are, and even where none is rare."""
    for rate, sign in ((0.01, 1), (0.99, -1)):
        x, labels, theta = rare_rows(40_000, 2.0, rate)
        found = evaluate(theta, oracle_of(x, labels))
        rows = [part.rows for part in found.calibration if part.rows > 100][::sign]
        assert rows[0] > 5 * rows[-1]
    x, labels, theta = rare_rows(40_000, 2.0, 0.5)
    rows = [part.rows for part in evaluate(theta, oracle_of(x, labels)).calibration]
    assert max(rows) < 0.25 * 40_000


@pytest.mark.more
def test_nothing_is_claimed_about_new_rows_where_the_edges_depend_on_these():
    x, labels, theta = rare_rows(5000, 2.0, 0.3)
    found = evaluate(theta, oracle_of(x, labels), unseen=True)
    assert all(part.observed.on_distribution is None for part in found.calibration)
    assert all(point.true_positive_rate.on_distribution is None for point in found.roc)
    assert None not in (found.error.on_distribution, found.auc.on_distribution)


@pytest.mark.more
def test_exact_counts_of_any_bins_bound_the_area():
    x, labels, theta = rare_rows(3000, 1.2, 0.3)
    area = roc_auc_score(labels, x @ theta)
    for bins in (4, USUAL_BINS, 40):
        found = evaluate(theta, world.divided(SCHEMA, x, labels), EvaluationOptions(bins=bins))
        assert area in found.auc.on_rows
        assert abs(found.auc.estimate - area) < 0.02
        assert found.auc_half_width == 0.0
    assert found.auc.on_rows.width < 0.05


@pytest.mark.more
@pytest.mark.parametrize("noise", [{}, {"epsilon": Fraction(1), "delta": Fraction(0), "seed": 1}])
def test_without_rows_of_one_label_the_area_is_not_measured(noise):
    x, _, theta = rare_rows(3000, 1.2, 0.3)
    found = evaluate(theta, world.divided(SCHEMA, x, -np.ones(3000, dtype=int), **noise))
    assert not found.auc_is_measured
    assert (found.auc.on_rows.lower, found.auc.on_rows.upper) == (0.0, 1.0)
    if not noise:
        assert found.auc.estimate == 0.5


@pytest.mark.more
def test_scores_that_are_all_equal_tell_nothing():
    x, labels, _ = rare_rows(3000, 1.2, 0.3)
    for theta in (np.zeros(4), np.array([0.0, 0.0, 0.0, 1.5])):
        found = evaluate(theta, world.divided(SCHEMA, x, labels))
        assert found.auc.estimate == pytest.approx(0.5, abs=1e-9)
        assert (found.auc.on_rows.lower, found.auc.on_rows.upper) == (0.0, 1.0)
        assert any("One bin has 100.0 % of the rows" in said for said in found.sentences())


def test_ranges_of_empty_cells_are_left_out_and_a_hidden_range_is_even():
    generator = np.random.default_rng(1)
    counts = np.zeros(64)
    counts[8:12] = (100, 300, 200, 50)
    found = located(counts + generator.laplace(0, 5, 64), 5 * 2**0.5)
    assert found[:8].sum() == found[12:].sum() == 0
    assert found[8:12] == pytest.approx(counts[8:12], abs=30)
    # None of the cells is above the noise, and all of them are together.
    assert located(np.full(64, 1.0), 1.0) == pytest.approx(np.full(64, 1.0))
    assert not located(np.full(64, 0.1), 1.0).any()


@pytest.mark.parametrize("wrong", [{"edges_part": Fraction(1)}, {"edges_part": Fraction(-1, 8)}, {"bins": 3}])
def test_arguments_out_of_range_are_refused_before_anything_is_asked(wrong):
    x, labels, theta = rare_rows(60, 1.2, 0.3)
    oracle = oracle_of(x, labels)
    with pytest.raises(ConfigurationError):
        evaluate(theta, oracle, EvaluationOptions(**wrong))
    assert oracle.releases == []


@pytest.mark.parametrize(("bins", "part"), [(None, "0"), (6, "0"), (20, "0"), (None, "1/8"), (4, "1/8"), (7, "1/2")])
def test_planned_batches_are_what_is_asked(bins, part):
    edges_part = Fraction(part)
    x, labels, theta = rare_rows(2000, 2.0, 0.3)
    oracle = oracle_of(x, labels)
    planned = planned_batches(theta, SCHEMA, EvaluationOptions(bins=bins, edges_part=edges_part))
    evaluate(theta, oracle, EvaluationOptions(bins=bins, edges_part=edges_part))
    assert [part for _, part in oracle.releases] == [batch.part for batch in planned]
    for batch, (asked, _) in zip(planned, oracle.releases, strict=True):
        if batch.is_exact:
            assert batch.predicates == tuple(asked)
        assert len(batch.predicates) >= len(asked)
        assert batch_sensitivity(batch.predicates) == batch_sensitivity(asked)
