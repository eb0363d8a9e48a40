"""Costs of several classes: how they are written, what is chosen, and how often the intervals of costs hold."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.evaluation.class_costs import STRENGTHS, ClassCosts, Shifted, raised, tried_shifts
from dpcore.evaluation.class_evaluation import evaluate_classes, shifted_cells
from dpcore.evaluation.intervals import CellNoise, Judge, mean_of_bounded
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.disjoint import batch_sensitivity
from tests.dpcore.evaluation.noisy_rows import NoisyRows
from tests.dpcore.evaluation.test_class_evaluation import made, schema

NAMES = ("cold", "flu", "sound")
TEN = ClassCosts.parse("flu=10", NAMES)


def test_costs_are_of_a_class_or_of_a_pair():
    found = ClassCosts.parse("flu=10: flu>cold=2 :sound>flu=0.5", NAMES)
    assert found.matrix.tolist() == [[0, 1, 1], [2, 0, 10], [1, 0.5, 0]]
    assert found.costs[2][1] == Fraction(1, 2)
    assert "for a row of 'flu' 2 called 'cold', 10 called 'sound'" in found.words
    assert TEN.words == "1 for a row of 'cold'; 10 for a row of 'flu'; 1 for a row of 'sound'"
    assert TEN.to_dict()["flu"]["cold"] == 10
    # A class whose mistakes cost ten times as much needs a tenth of the odds.
    assert TEN.shifts[1] - TEN.shifts[0] == pytest.approx(np.log(10))
    assert TEN.shifts.sum() == pytest.approx(0)


def test_what_is_no_cost_of_these_classes_is_refused():
    for text, match in (
        ("grippe=3", "names 'grippe', which is no class"),
        ("flu>grippe=3", "names 'grippe', which is no class"),
        ("flu=0", "mistakes on a class cost nothing"),
        ("flu>flu=2", "a row that is called what it is costs something"),
        ("flu", "write CLASS=5, or CLASS>CALLED=5"),
        ("flu=1:flu=2", "each once"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            ClassCosts.parse(text, NAMES)
    with pytest.raises(ConfigurationError, match="costs of 3 classes are 3 rows of 3"):
        ClassCosts(NAMES, ((Fraction(0),),))
    with pytest.raises(ConfigurationError, match="each once"):
        EvaluationOptions(cost="flu=1:flu=2")
    many = ClassCosts.parse("0=2", tuple(map(str, range(11))))
    with pytest.raises(ConfigurationError, match="takes at most 10"):
        tried_shifts(many)
    with pytest.raises(ConfigurationError, match="no bias that scores could be raised by"):
        raised(np.ones((3, 2)), TEN.shifts, bias=False)


def test_a_row_is_in_one_cell_of_each_matrix():
    _, theta = made(3)
    strengths, shifts = tried_shifts(ClassCosts.parse("c1=10", ("c0", "c1", "c2")))
    cells = shifted_cells(theta, schema(3), shifts)
    assert strengths == STRENGTHS
    assert len(cells) == 9 * len(STRENGTHS)
    assert batch_sensitivity(cells).l1 == 2 * len(STRENGTHS)
    same = ClassCosts.parse("c1>c0=2:c0>c1=2:c2=1.5", ("c0", "c1", "c2"))
    assert tried_shifts(same)[0] == (0.0,)


def costs_on_rows(held, theta, costs: ClassCosts) -> list[float]:
    """The mean cost of a usable row, by strength."""
    labels, x = held.labels[held.usable], held.features[held.usable] * 2.0**-30
    return [
        float(costs.matrix[labels, (x @ raised(theta, strength * costs.shifts, bias=True).T).argmax(axis=1)].mean())
        for strength in STRENGTHS
    ]


def test_without_noise_the_least_cost_is_that_of_the_rows():
    held, theta = made(3, 2_000)
    names = ("c0", "c1", "c2")
    costs = ClassCosts.parse("c1=4", names)
    found = evaluate_classes(theta, NoisyRows(schema(3), held), unseen=True, costs=costs)
    true, least = costs_on_rows(held, theta, costs), found.least_cost
    assert least.at_zero.estimate == pytest.approx(true[0])
    labels = held.labels[held.usable]
    constant = [float(costs.matrix[labels, code].mean()) for code in range(3)]
    assert least.of_constant.estimate == pytest.approx(min(constant))
    assert least.cost.estimate == pytest.approx(min(*true, *constant))
    assert least.cost.on_rows == pytest.approx((least.cost.estimate,) * 2)
    assert least.cost.on_distribution[0] < least.cost.estimate < least.cost.on_distribution[1]
    assert found.to_dict()["least_cost"]["costs"]["c1"]["c0"] == 4
    assert "what costs least" in " ".join(found.sentences())
    # Other costs, of the same answers.
    other = found.cheapest("c2=9")
    assert other.costs == ClassCosts.parse("c2=9", names)
    assert evaluate_classes(theta, NoisyRows(schema(3), held)).least_cost is None


@pytest.mark.more
def test_intervals_of_costs_hold_and_a_choice_within_the_noise_is_said():
    held, theta = made(3, 2_000)
    costs = ClassCosts.parse("c1=4", ("c0", "c1", "c2"))
    true, kept, within = costs_on_rows(held, theta, costs), 0, 0
    for seed in range(40):
        found = evaluate_classes(theta, NoisyRows(schema(3), held, 1.0, seed), unseen=True, costs=costs).least_cost
        low, high = found.at_zero.on_rows
        new_low, new_high = found.at_zero.on_distribution
        kept += low <= true[0] <= high
        assert new_low <= low < high <= new_high
        within += found.warning() is not None
    assert kept >= 38
    assert within > 0
    assert high - low < 1.0


def test_hidden_classes_say_nothing_and_a_mean_of_bounded_numbers_is_bounded():
    judge = Judge(CellNoise(50.0), 0.05, 300, unseen=False)
    shifts = np.outer(STRENGTHS, TEN.shifts)
    hidden = Shifted(shifts, STRENGTHS, np.full((4, 3, 3), 8.0), judge).least_cost(TEN)
    assert not hidden.is_measurable
    assert "not measurable at this epsilon" in hidden.sentences()[0]
    found = mean_of_bounded(0.1, 0.1, 2_000, 0.05)
    random = np.random.default_rng(1)
    means = random.binomial(2_000, found.upper, 20_000) / 2_000
    assert np.mean(means <= 0.1) <= 0.025
    assert found.lower < 0.1 < found.upper < 0.14
    assert mean_of_bounded(0.0, 1.0, 0.5, 0.05).width == 1
