"""Choices among candidates by noisy scores: what is chosen, how far it may be from the best, and what is refused."""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.evaluation.selection import MOST_CANDIDATES, is_right, select
from dpcore.predicates.frontend import x
from dpcore.predicates.notation import parse
from dpcore.research.mechanisms import ExponentialMechanism
from tests.dpcore.estimators.oracle_world import divided, flag, flag_rows, flags_schema, real, schema_of

EPSILON = Fraction(1, 2)


def flags(shares, rows=2000, seed=1):
    """Rows whose flag i is true with probability shares[i], and their exact shares."""
    truths = np.random.default_rng(seed).random((rows, len(shares))) < np.array(shares)
    return flags_schema(len(shares)), truths


def asked(shares, rows=2000, **options):
    schema, truths = flags(shares, rows)
    return divided(schema, flag_rows(truths), np.ones(rows), **options), truths.mean(axis=0)


NAMES = [f"f{i:03d}" for i in range(8)]


def test_without_noise_the_best_of_the_rows_is_chosen_and_is_certain():
    oracle, true = asked([0.2, 0.5, 0.9, 0.6])
    found = select(NAMES[:4], oracle, lambda name: parse(f'x["{name}"]'))
    assert found.chosen == int(np.argmax(true)) == 2
    assert found.scores == pytest.approx(true)
    assert (found.regret_on_rows, found.contenders) == (0.0, (2,))
    assert found.regret_on_distribution == 0.0
    assert found.central_epsilon is None


@pytest.mark.more
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
def test_the_best_is_no_further_than_the_bound_and_the_bound_is_no_wider_than_the_noise(delta):
    shares = [0.5, 0.52, 0.54, 0.56, 0.58, 0.6]
    wrong, missed, regrets = 0, 0, []
    for seed in range(40):
        oracle, true = asked(shares, rows=1000, epsilon=EPSILON, delta=delta, seed=seed)
        found = select(NAMES[:6], oracle, lambda name: f'x["{name}"]', confidence=0.9)
        assert found.regret_on_rows <= found.most_regret_on_rows < found.regret_on_distribution + 1
        wrong += true.max() - true[found.chosen] > found.regret_on_rows
        missed += int(np.argmax(true)) not in found.contenders
        regrets.append(true.max() - true[found.chosen])
    # Each may fail in one of ten.
    assert max(wrong, missed) <= 8
    assert max(regrets) > 0


def test_candidates_that_exclude_one_another_are_cheaper():
    schema = schema_of(real("age", 0.0, 100.0), flag("new"))
    ages = np.random.default_rng(2).uniform(-1, 1, 1000)
    rows = np.column_stack([ages, np.ones(1000), np.ones(1000)])
    parts = [f'(x["age"] >= {low}) & (x["age"] < {low + 10})' for low in range(0, 100, 10)]
    ladder = [f'x["age"] >= {low}' for low in range(0, 100, 10)]

    def deviation(candidates):
        oracle = divided(schema, rows, np.ones(1000), epsilon=EPSILON)
        return select(candidates, oracle).estimates.deviation

    assert deviation(ladder) == pytest.approx(5 * deviation(parts), rel=0.01)


def test_a_price_is_chosen_by_what_it_earns():
    """Scores of unequal ranges: the price times the share of bids that reach it."""
    schema = schema_of(real("bid", 0.0, 10.0))
    bids = np.random.default_rng(4).beta(2, 3, 4000) * 10
    rows = np.column_stack([bids / 5 - 1, np.ones(4000)])
    prices = [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    earned = [price * np.mean(bids >= price) for price in prices]
    oracle = divided(schema, rows, np.ones(4000), epsilon=Fraction(4))
    found = select(prices, oracle, lambda price: x["bid"] >= price, weights=prices)
    assert found.chosen == int(np.argmax(earned))
    assert found.scores == pytest.approx(earned, abs=9 * found.estimates.noise)
    # Half-widths grow with the weights: two equal ones would be too narrow for the last two.
    assert found.most_regret_on_rows == pytest.approx(15 * found.estimates.noise)


def test_equal_candidates_are_asked_once_and_have_no_regret_to_one_another():
    oracle, _ = asked([0.3, 0.9], epsilon=Fraction(2))
    first, second = (parse(f'x["{name}"]') for name in NAMES[:2])
    found = select([second, first, second, parse('x["f001"]')], oracle)
    assert (found.chosen, found.distinct, found.contenders) == (0, 2, (0,))
    assert found.scores[0] == found.scores[2] == found.scores[3]
    assert found.regret_on_rows == 0.0
    assert len(oracle.releases[0][0]) == 4


def test_models_are_compared_by_the_rows_that_they_get_right():
    schema = schema_of(real("a"), real("b"))
    generator = np.random.default_rng(7)
    points = generator.uniform(-1, 1, (3000, 2))
    labels = np.where(points @ [1.0, 0.2] + 0.1 > 0, 1, -1)
    rows = np.column_stack([points, np.ones(3000)])
    thetas = [np.array(theta) for theta in ([1.0, 0.2, 0.1], [0.2, 1.0, 0.1], [1.0, 0.2, -0.5])]
    oracle = divided(schema, rows, labels)
    found = select(thetas, oracle, lambda theta: is_right(theta, schema))
    right = [np.mean(np.where(rows @ theta > 0, 1, -1) == labels) for theta in thetas]
    assert found.chosen == 0
    assert found.scores == pytest.approx(right, abs=1e-3)


def test_a_curator_who_shows_the_choice_alone_needs_less_and_has_the_same_bound():
    """`central_epsilon` is that of a mechanism which exists: its choices are this close to the best this often."""
    oracle, true = asked([0.5 + 0.02 * i for i in range(8)], rows=1000, epsilon=EPSILON)
    found = select(NAMES, oracle, lambda name: f'x["{name}"]')
    assert found.central_epsilon is not None
    assert 0.02 * float(EPSILON) < found.central_epsilon < float(EPSILON) / 3
    counts = [int(count) for count in np.rint(true * 1000)]
    mechanism = ExponentialMechanism(Fraction(found.central_epsilon), Fraction(1))
    far = max(counts) - np.array(counts) > found.most_regret_on_rows * 1000
    assert mechanism.probabilities(counts)[far].sum() <= 0.025
    # The bound is of a mechanism's worst scores: all but one candidate just beyond it.
    worst = [0] + [-int(found.most_regret_on_rows * 1000) - 1] * 7
    assert 0.001 < mechanism.probabilities(worst)[1:].sum() <= 0.025


@pytest.mark.parametrize(
    ("candidates", "options", "words"),
    [
        ([], {}, "there is no candidate"),
        (["true"], {}, "there is one candidate"),
        (['x["f000"]', 'x["f000"]'], {}, "all are the same"),
        ("true", {}, "candidates are a list"),
        (['x["f000"]', 'x["f001"]'], {"weights": [1.0]}, "1 weights of 2 candidates"),
        (['x["f000"]', 'x["f001"]'], {"weights": [1.0, 0.0]}, "not a finite number above 0"),
        (['x["f000"]', 'x["f001"]'], {"weights": [1.0, float("nan")]}, "not a finite number above 0"),
        (['x["f000"]', 'x["f001"]'], {"tolerance": -1.0}, "tolerance is -1"),
        (['x["f000"]'] * (MOST_CANDIDATES + 1), {}, "at most 4096"),
    ],
)
def test_nothing_is_asked_for_what_is_no_choice(candidates, options, words):
    oracle, _ = asked([0.3, 0.4], rows=50)
    with pytest.raises(ConfigurationError, match=words):
        select(candidates, oracle, **options)
    assert oracle.releases == []


def test_words_name_the_choice_its_certainty_and_what_was_paid_for():
    oracle, _ = asked([0.3, 0.9], epsilon=Fraction(2))
    sure = select(NAMES[:2], oracle, lambda name: f'x["{name}"]')
    text = " ".join(sure.sentences(NAMES[:2]))
    assert "chosen: f001" in text
    assert "on these rows no other has a better score, with probability at least 0.95" in text
    assert "a curator" in text
    oracle, _ = asked([0.5, 0.5], rows=100, epsilon=Fraction(1, 10))
    unsure = select(NAMES[:2], oracle, lambda name: f'x["{name}"]')
    assert "the noise leaves 2 candidates" in " ".join(unsure.sentences(NAMES[:2]))
    assert "nothing is claimed for new rows" in " ".join(unsure.sentences(NAMES[:2], unseen=False))
    assert json.loads(json.dumps(unsure.to_dict(NAMES[:2], unseen=False)))["regret_on_distribution"] is None
