"""Corrected answers on flipped labels are answers on true labels; each error grows by exactly the stated factor."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.predicates.expressions import And, Flag, LabelIs, Not, Or, swap_label
from dpcore.statistics.accuracy import Correction, GaussianNoise, corrected_batch

YES, NO, A, B = LabelIs(positive=True), LabelIs(positive=False), Flag("a"), Flag("b")
BATCH = [And((Not(A), YES)), A, Or((And((A, NO)), And((B, YES)))), YES, NO]


def value(predicate, a, b, positive):
    """By hand, so that no code is shared with the evaluation of predicates."""
    match predicate:
        case Flag(name):
            return a if name == "a" else b
        case LabelIs(wanted):
            return wanted == positive
        case Not(part):
            return not value(part, a, b, positive)
        case And(parts):
            return all(value(part, a, b, positive) for part in parts)
        case Or(parts):
            return any(value(part, a, b, positive) for part in parts)


def expectation(predicates, masses):
    """E[phi] for each, masses (2, 2, 2) over a, b and the label."""
    cells = list(itertools.product((False, True), repeat=3))
    return np.array([sum(masses[tuple(map(int, c))] * value(p, *c) for c in cells) for p in predicates])


def flipped(masses, eta):
    return (1 - eta) * masses + eta * masses[:, :, ::-1]


@given(st.lists(st.floats(0.01, 1), min_size=8, max_size=8), st.floats(0, 0.49))
def test_corrected_answers_are_those_on_true_labels(weights, eta):
    masses = np.array(weights).reshape(2, 2, 2)
    masses /= masses.sum()
    asked, correction = corrected_batch(BATCH, eta)
    answers = correction.apply(expectation(asked, flipped(masses, eta)))
    assert np.allclose(answers, expectation(BATCH, masses), atol=1e-12)


def test_only_label_dependent_predicates_are_queried_twice_and_none_is_repeated():
    asked, correction = corrected_batch(BATCH, 0.2)
    assert asked == (*BATCH, swap_label(BATCH[0]), swap_label(BATCH[2]))
    assert correction.own == (0, 1, 2, 3, 4)
    assert correction.swapped == (5, 1, 6, 4, 3)
    assert corrected_batch(BATCH, 0.0)[0] == tuple(BATCH)
    untouched = corrected_batch([A, B], 0.4)[1]
    assert untouched.amplification.sampling == 1.0
    assert np.array_equal(untouched.apply(np.array([0.3, 0.7])), [0.3, 0.7])


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.3, 0.45])
def test_the_factors_are_reached_and_not_exceeded(eta):
    """Sampling: a row's share of a corrected answer has exactly that range. Noise and quantisation: at the corners."""
    asked, correction = corrected_batch([YES], eta)
    factor = correction.amplification
    rows = [correction.apply(expectation(asked, np.eye(2)[i] * np.ones((2, 2, 1)) / 4))[0] for i in (0, 1)]
    assert rows[1] - rows[0] == pytest.approx(factor.sampling)
    corners = [correction.apply(np.array(c, dtype=float))[0] for c in itertools.product((-1, 1), repeat=len(asked))]
    assert max(np.abs(corners)) == pytest.approx(factor.noise)
    cut = [correction.apply(np.array(c, dtype=float))[0] for c in itertools.product((-1, 0), repeat=len(asked))]
    assert max(np.abs(cut)) == pytest.approx(factor.quantisation)
    noise = np.random.default_rng(3).normal(size=(len(asked), 40_000))
    spread = np.std([correction.apply(column)[0] for column in noise.T[:4000]])
    assert spread == pytest.approx(factor.deviation, rel=0.05)


def test_widths_count_answers_for_sampling_and_queries_for_noise():
    _, correction = corrected_batch([And((A, YES)), And((B, YES))], 0.3)
    widths = correction.batch(GaussianNoise(10.0), 2.0**-10).half_widths(1000, 0.1)
    assert widths.sampling == pytest.approx(np.sqrt(np.log(2 * 2 / 0.05) / 2000) / 0.4)
    assert widths.noise == pytest.approx(GaussianNoise(10.0).half_width(4, 0.05) / 400)
    assert widths.quantisation == pytest.approx(0.7 / 0.4 / 1024)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_sampled_answers_stay_within_the_widths_and_use_them(eta):
    """3,000 trials of flipped coins: failures at most as stated, but plenty at 0.6 of the width."""
    random, rows, trials, failure = np.random.default_rng(8), 800, 3000, 0.1
    asked, correction = corrected_batch([YES], eta)
    positive = random.binomial(rows, eta + 0.5 * (1 - 2 * eta), size=trials) / rows
    answers = np.array([correction.apply(np.array([p, 1 - p])[: len(asked)])[0] for p in positive])
    width = correction.batch().half_widths(rows, failure).sampling
    assert (np.abs(answers - 0.5) > width).mean() <= failure
    assert (np.abs(answers - 0.5) > 0.6 * width).mean() > failure / 2


@pytest.mark.parametrize("eta", [0.5, 0.7, -0.1, float("nan")])
def test_a_noise_rate_without_information_is_refused(eta):
    with pytest.raises(ConfigurationError, match="noise_rate"):
        corrected_batch(BATCH, eta)


def test_a_correction_that_does_not_fit_is_refused():
    _, correction = corrected_batch(BATCH, 0.2)
    with pytest.raises(ShapeError):
        correction.apply(np.zeros(3))
    with pytest.raises(ShapeError):
        dataclasses.replace(correction, own=(0,))
    with pytest.raises(ShapeError):
        Correction(0.1, (0,), (2,), 2)
    with pytest.raises(ConfigurationError):
        corrected_batch([], 0.2)
