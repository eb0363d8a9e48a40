"""The model of a query whose members may vanish: all rules together show no sum over few, and each is needed."""

import pytest

from dpcore.paillier.survivors import is_enough
from dpcore.research.who_learns_what.vanishing import ALL, LIES, Rules, Vanishing, seen, worst


@pytest.mark.parametrize("name", LIES)
@pytest.mark.variants(5)
def test_each_rule_that_is_left_out_shows_a_sum_over_few(name):
    lie = LIES[name]
    assert seen(lie.setting, lie.choice, lie.rules).is_too_much
    assert not seen(lie.setting, lie.choice).is_too_much


ABC, ABCZ = frozenset("abc"), frozenset("abcz")


@pytest.mark.parametrize("dishonest", [frozenset(), frozenset("z")])
def test_no_choice_of_cohorts_and_survivors_shows_a_sum_over_few(dishonest):
    setting = Vanishing(ABC, dishonest, 1)
    found = worst(setting, [ABC | dishonest])
    assert (found.fewest, found.counted, found.is_too_much) == (2, 2, False)
    loose = worst(setting, [ABC | dishonest], Rules(has_self_masks=False))
    assert (loose.fewest, loose.is_too_much) == (1, True)


@pytest.mark.more
def test_no_choice_of_two_sharings_shows_a_sum_over_few():
    setting = Vanishing(ABC, frozenset("yz"), 1)
    sharings = [frozenset("abcy"), frozenset("abcz")]
    assert not worst(setting, sharings).is_too_much


def test_with_one_honest_party_left_beside_one_that_may_vanish_it_is_opened():
    """t - d = 1 is not above 1: each of two is said to have vanished to the other."""
    setting = Vanishing(frozenset("ab"), frozenset("z"), 1)
    assert not is_enough(3, 2, colluders=1)
    assert worst(setting, [frozenset("abz")]).fewest == 0, "no honest party deals for it"
    assert worst(setting, [frozenset("abz")], Rules(is_strict=False)).fewest == 1


def test_an_honest_choice_shows_the_total_of_the_survivors():
    lie = LIES["no self-masks"]
    assert lie.rules != ALL
    assert seen(lie.setting, lie.choice).fewest == 2
