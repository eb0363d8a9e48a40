"""Naive Bayes from one release: the exact log odds without noise, near Bayes on its own model, worse with noise."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB

from dpcore.errors import ConfigurationError
from dpcore.estimators.statistical_queries import NaiveBayes, log_odds
from dpcore.predicates.disjoint import batch_sensitivity
from tests.dpcore.estimators.oracle_world import category, divided, flag, flag_rows, flags_schema, real, schema_of

SCHEMA = schema_of(flag("a"), flag("b"), category("job", "uvw"), real("age", 20.0, 90.0), real("dose", 0.0, 1.0))
FLAGS = np.array([[0.7, 0.3], [0.2, 0.25]])
JOBS = np.array([[0.5, 0.3, 0.1, 0.1], [0.2, 0.3, 0.4, 0.1]])
MEANS, SPREAD = np.array([[0.2, -0.1], [-0.1, 0.1]]), np.array([0.25, 0.3])


def rows_of(m, seed, positive=0.35):
    """Features independent within a class; rows as encoded, labels, and the true log odds. The last job is unlisted."""
    random = np.random.default_rng(seed)
    label = random.uniform(size=m) < positive
    row = np.where(label, 0, 1)
    truths = random.uniform(size=(m, 2)) < FLAGS[:, row].T
    job = (random.uniform(size=(m, 1)) > JOBS.cumsum(axis=1)[row]).sum(axis=1)
    z = random.normal(size=(m, 2)) * SPREAD + MEANS[:, row].T
    odds = np.full(m, np.log(positive / (1 - positive)))
    for j in range(2):
        chances = np.where(truths[:, j : j + 1], FLAGS[j], 1 - FLAGS[j])
        odds += np.log(chances[:, 0] / chances[:, 1])
        odds += (MEANS[j, 0] - MEANS[j, 1]) / SPREAD[j] ** 2 * (z[:, j] - MEANS[j].mean())
    odds += np.log(JOBS[0, job] / JOBS[1, job])
    indicator = np.column_stack([job == i for i in range(3)])
    x = np.column_stack([np.where(truths, 1, -1), indicator, z.clip(-1, 1), np.ones(m)])
    return x, np.where(label, 1, -1), odds


def test_without_noise_the_log_odds_are_those_of_the_model():
    x, labels, _ = rows_of(400_000, 1)
    learner = NaiveBayes(bins=32).fit_queries(divided(SCHEMA, x, labels))
    fresh, _, odds = rows_of(5000, 2)
    inside = (np.abs(fresh[:, 5:7]) < 1).all(axis=1)
    assert np.abs(learner.decision_function(fresh) - odds)[inside].max() < 0.12
    assert learner.class_shares_ == pytest.approx([0.35, 0.65], abs=0.005)


def test_wide_bins_do_not_widen_the_classes():
    """Of the width of a class's spread: without Sheppard's correction slopes would be 8 % too small."""
    x, labels, _ = rows_of(200_000, 8)
    theta = NaiveBayes(bins=8).fit_queries(divided(SCHEMA, x, labels)).theta_
    wanted = (MEANS[:, 0] - MEANS[:, 1]) / SPREAD**2
    assert theta[5:7] == pytest.approx(wanted, rel=0.04)


def test_booleans_alone_agree_with_scikit_learn():
    random = np.random.default_rng(3)
    labels = np.where(random.uniform(size=3000) < 0.3, 1, -1)
    truths = random.uniform(size=(3000, 4)) < np.where(labels[:, np.newaxis] > 0, [0.9, 0.4, 0.5, 0.2], 0.5)
    x = flag_rows(truths)
    learner = NaiveBayes(smoothing=1e-6).fit_queries(divided(flags_schema(4), x, labels))
    wanted = BernoulliNB(alpha=1e-6).fit(truths, labels).predict_joint_log_proba(truths)
    assert np.allclose(learner.decision_function(x), wanted[:, 1] - wanted[:, 0], atol=1e-5)


def test_a_feature_costs_two_however_many_cells_it_has():
    x, labels, _ = rows_of(200, 1)
    oracle = divided(SCHEMA, x, labels)
    NaiveBayes(bins=10, part=Fraction(1, 2)).fit_queries(oracle)
    ((asked, part),) = oracle.releases
    assert (len(asked), part) == (2 + 4 + 4 + 6 + 20 + 20, Fraction(1, 2))
    sensitivity = batch_sensitivity(asked)
    assert (sensitivity.l1, sensitivity.l2_squared) == (12, 12)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0, Fraction(1, 10**6)])
def test_it_errs_little_more_than_bayes_and_more_with_more_noise(delta):
    fresh, truth, odds = rows_of(20_000, 99)
    bayes = (np.where(odds > 0, 1, -1) != truth).mean()
    wrong = {}
    for epsilon in (None, 1, 0.01):
        found = []
        for seed in range(4):
            x, labels, _ = rows_of(5000, seed)
            oracle = divided(SCHEMA, x, labels, epsilon=epsilon, delta=delta, seed=seed)
            found.append((NaiveBayes().fit_queries(oracle).predict(fresh) != truth).mean())
        wrong[epsilon] = np.mean(found)
    assert bayes < 0.25
    assert wrong[None] < bayes + 0.01
    assert wrong[1] < bayes + 0.02
    assert wrong[None] < wrong[1]
    # At worst a constant prediction of the smaller class.
    assert bayes + 0.03 < wrong[0.01] < 0.66


def test_flipped_labels_are_corrected():
    x, labels, odds = rows_of(100_000, 5)
    flipped = np.where(np.random.default_rng(6).uniform(size=len(x)) < 0.3, -labels, labels)
    plain, corrected = (NaiveBayes(noise_rate=eta).fit_queries(divided(SCHEMA, x, flipped)) for eta in (0.0, 0.3))
    off = [np.abs(learner.decision_function(x) - odds).mean() for learner in (plain, corrected)]
    assert off[1] < 0.2 * off[0]


def test_a_feature_lost_in_the_noise_has_no_weight():
    """One real feature: its slope falls with the noise, to 0 where the means differ by no more than noise would."""
    schema, centres = schema_of(real("age")), np.linspace(-0.75, 0.75, 4)

    def slope(shift, noise):
        table = 250.0 + 250.0 * shift * np.outer(centres, [1, -1])
        return log_odds(schema, np.array([1000.0, 1000.0]), [table], noise, 1.0)[0]

    # 250 (1 + shift c): means +- 0.3125 shift; the noise of their difference at 20 rows is 0.032.
    assert slope(0.2, 20.0) < 0.98 * slope(0.2, 0.0)
    assert slope(0.04, 20.0) == 0.0
    assert slope(0.04, 5.0) == pytest.approx(slope(0.04, 0.0) * (1 - (0.0079 / 0.025) ** 2), rel=0.05)
    # Where the means are far apart the variance is widened, here from 0.194 by 20 sqrt(2.82) / 2000 = 0.017.
    assert slope(1.0, 20.0) / slope(1.0, 0.0) == pytest.approx(0.917, abs=0.005)


def test_a_cell_lost_in_the_noise_favours_neither_class():
    """3 rows to 0 are strong evidence if exact, and hardly any with noise of 30."""
    schema = schema_of(category("job", "ab"))
    table = np.array([[3.0, 0.0], [997.0, 1000.0]])
    exact, noised = (log_odds(schema, np.array([1000.0, 1000.0]), [table], noise, 1.0)[0] for noise in (0.0, 30.0))
    assert exact == pytest.approx(np.log(4))
    assert noised == pytest.approx(np.log(34 / 31))


def test_a_class_lost_in_the_noise_leaves_the_prior():
    x, labels, _ = rows_of(2000, 7, positive=0.02)
    learner = NaiveBayes().fit_queries(divided(SCHEMA, x, labels, epsilon=0.1))
    assert np.flatnonzero(learner.theta_).tolist() == [SCHEMA.d - 1]
    assert learner.theta_[-1] < 0


@pytest.mark.parametrize("bad", [{"bins": 1}, {"smoothing": 0.0}, {"smoothing": float("nan")}, {"noise_rate": 0.5}])
def test_parameters_out_of_range_are_refused(bad):
    x, labels, _ = rows_of(20, 1)
    with pytest.raises(ConfigurationError):
        NaiveBayes(**bad).fit_queries(divided(SCHEMA, x, labels))
