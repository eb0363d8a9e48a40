"""The model of who learns what: it reports nothing for today's rules, and each rule that is left out."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.research.who_learns_what import protocol
from dpcore.research.who_learns_what.learning import (
    FAULTS,
    Change,
    Coalition,
    Excess,
    Findings,
    Setting,
    accepted,
    findings,
    gain,
    learned,
)
from dpcore.research.who_learns_what.protocol import (
    PRIME,
    TODAY,
    Form,
    Protocol,
    Shown,
    Unknown,
    combined,
    outside,
    revealed,
    solutions,
)

NUMBERS = frozenset({Change.NUMBERS})
EVERY_CHANGE = frozenset(Change)
OWN_VALUES = frozenset({Excess.OWN_VALUES})

# Parties, c, colluding members.
WITHIN_THE_RULE = [(2, 0, 0), (3, 0, 0), (3, 1, 0), (3, 1, 1), (4, 1, 1), (4, 2, 2), (5, 2, 2), (5, 3, 3), (5, 3, 2)]


@pytest.mark.variants(8)
@pytest.mark.parametrize("coordinator", [False, True])
@pytest.mark.parametrize("outsider", [False, True])
@pytest.mark.parametrize("sizes", WITHIN_THE_RULE)
def test_a_learner_s_coalition_learns_totals_of_two_or_more_honest_parties_and_nothing_else(
    sizes, outsider, coordinator
):
    found = findings(Setting.of(*sizes, learner=True, coordinator=coordinator, outsider=outsider))
    assert found.excess == frozenset()
    assert found.fewest >= 2


@pytest.mark.parametrize("roles", [{}, {"coordinator": True}, {"outsider": True}])
@pytest.mark.parametrize("sizes", WITHIN_THE_RULE)
def test_without_the_learner_a_coalition_learns_nothing(sizes, roles):
    found = findings(Setting.of(*sizes, **roles))
    assert (found.excess, found.fewest) == (frozenset(), 0)


@pytest.mark.variants(5)
@pytest.mark.parametrize("outsider", [False, True])
@pytest.mark.parametrize("sizes", WITHIN_THE_RULE)
def test_without_a_member_a_coordinator_changes_no_total_and_with_one_it_adds_numbers(sizes, outsider):
    found = findings(Setting.of(*sizes, coordinator=True, outsider=outsider))
    assert found.changes == (NUMBERS if sizes[2] else frozenset())


@pytest.mark.parametrize("sizes", [(3, 1, 2), (4, 1, 2), (4, 1, 3)])
def test_more_members_than_a_party_assumes_open_its_sum(sizes):
    found = findings(Setting.of(*sizes, learner=True, coordinator=True))
    assert found == Findings(frozenset(), 1, frozenset())


EXPECTED = {
    "unequal seeds": Findings(OWN_VALUES, 3, frozenset()),
    "no tag": Findings(frozenset(), 0, EVERY_CHANGE),
    "dropped mask": Findings(OWN_VALUES, 3, frozenset()),
    "pad used twice": Findings(frozenset(), 0, EVERY_CHANGE),
    "seed for outsiders": Findings(frozenset(), 0, NUMBERS),
    "masks used twice": Findings(OWN_VALUES | {Excess.OWN_CHANGE}, 3, frozenset()),
}
CLOSED = {"pad used twice": Findings(frozenset(), 0, NUMBERS)}


@pytest.mark.parametrize("name", FAULTS)
def test_each_rule_that_is_left_out_is_found_and_nothing_else(name):
    fault = FAULTS[name]
    today = findings(fault.by)
    assert findings(fault.by, fault.protocol) == EXPECTED[name]
    assert today == CLOSED.get(name, Findings(frozenset(), EXPECTED[name].fewest, frozenset()))


SMALLER = {
    "unequal seeds": {"coordinator": True},
    "no tag": {"outsider": True},
    "dropped mask": {"learner": True},
    "pad used twice": {"coordinator": True},
    "seed for outsiders": {"coordinator": True},
    "masks used twice": {"learner": True},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_smaller_coalition_gains_nothing_by_it(name):
    setting = Setting.of(3, 1, 0, **SMALLER[name])
    assert findings(setting, FAULTS[name].protocol) == findings(setting)


def shown(parties: str, attempt: int = 1, variant: int = 0, members: str = "ABC") -> dict[str, Shown]:
    return {party: Shown(attempt, frozenset(members), variant) for party in parties}


LEARNER, BOTH = Coalition(learner=True), Coalition(learner=True, coordinator=True)
HONEST = frozenset("ABC")


@pytest.mark.parametrize("colluders", ["", "C"])
def test_a_pair_without_a_mask_matters_once_the_other_peers_collude(colluders):
    protocol = replace(TODAY, unmasked=frozenset({("A", "B")}))
    coalition = replace(BOTH, members=frozenset(colluders))
    honest = HONEST - coalition.members
    found = gain(coalition, honest, [shown("".join(sorted(honest)))], protocol)
    assert found.excess == (OWN_VALUES if colluders else frozenset())


def test_masks_that_do_not_name_the_cohort_open_what_was_sent_for_two():
    choice = [{**shown("AB", members="AB"), **shown("B", variant=1, members="AB")}]
    assert gain(BOTH, frozenset("AB"), choice).excess == frozenset()
    protocol = replace(TODAY, masks_name_cohort=False)
    assert gain(BOTH, frozenset("AB"), choice, protocol).excess == {Excess.OTHER_SUM}


def test_two_seeds_for_two_and_two_parties_give_a_sum_that_is_no_total():
    choice = [{party: Shown(1, frozenset("ABCD"), seed=int(party in "CD")) for party in "ABCD"}]
    protocol = replace(TODAY, commits_seeds=False)
    assert gain(LEARNER, frozenset("ABCD"), choice, protocol).excess == {Excess.OTHER_SUM}
    assert gain(LEARNER, frozenset("ABCD"), choice).excess == frozenset()


def test_repeated_masks_without_a_tag_show_changes_alone():
    protocol = replace(TODAY, masks_name_attempt=False, has_tag=False)
    assert gain(BOTH, HONEST, [shown("ABC"), shown("ABC", 2)], protocol).excess == {Excess.OWN_CHANGE}


def test_of_two_whole_attempts_both_totals_are_learned():
    """The difference of two cohorts' totals contains one party's data: section 3, P3, "Several attempts"."""
    choice = [shown("ABC"), shown("AB", 2, members="AB")]
    found = gain(BOTH, HONEST, choice)
    assert (found.excess, found.fewest) == (frozenset(), 2)
    assert len(learned(BOTH, HONEST, choice)) == 2 * TODAY.values


@pytest.mark.parametrize("point", range(5))
def test_what_is_found_does_not_depend_on_the_numbers_that_were_drawn(point):
    seeds = [{party: Shown(1, HONEST, seed=int(party == "A")) for party in "ABC"}]
    assert gain(LEARNER, HONEST, seeds, Protocol(commits_seeds=False), point=point).excess == OWN_VALUES
    assert gain(LEARNER, HONEST, seeds, point=point).excess == frozenset()
    pair = [shown("ABC", members="ABCM"), shown("ABC", 2, members="ABCM")]
    coalition = Coalition(coordinator=True, members=frozenset("M"))
    assert accepted(coalition, HONEST, pair, point=point) == NUMBERS
    assert accepted(coalition, HONEST, pair, Protocol(pads_name_attempt=False), point=point) == EVERY_CHANGE


@pytest.mark.parametrize("coordinator", [False, True])
def test_a_party_that_was_asked_and_is_not_in_the_cohort_adds_numbers_with_the_coordinator_only(coordinator):
    coalition = Coalition(coordinator=coordinator, members=frozenset("M"))
    assert accepted(coalition, HONEST, [shown("ABC")]) == (NUMBERS if coordinator else frozenset())


def test_a_total_is_judged_for_one_cohort_by_a_learner_outside():
    split = [{**shown("AB"), **shown("C", variant=1)}]
    with pytest.raises(ValueError, match="show all honest parties the same"):
        accepted(Coalition(coordinator=True), HONEST, split)
    with pytest.raises(ValueError, match="honest learner"):
        accepted(BOTH, HONEST, [shown("ABC")])


X, Y, Z = (Form.of(Unknown(name)) for name in "xyz")


def test_a_hidden_unknown_covers_what_it_does_not_cancel_in():
    def is_z(monomial):
        return Unknown("z") in monomial

    assert revealed([X + Z, Y + Z], is_z) == [X + Form.number(PRIME - 1) * Y]
    assert revealed([X + Z, Y + Z + Z * Z], is_z) == []
    assert outside([X - Y], [X, X + Y, Y - X]) == [X, X + Y]


def test_solutions_are_all_combinations_that_cancel():
    moves = [[X + Y], [X - Y], [Y], [Form.number(0)]]
    basis = solutions(moves)
    assert len(basis) == 2
    for factors in basis:
        assert combined(factors, [move[0] for move in moves]) == protocol.ZERO
    assert len(solutions([[X], [Y]])) == 0


def test_elimination_against_every_combination_over_a_small_prime(monkeypatch):
    """Each function that is reported is learned, and no other is: by trying all factors modulo 3."""
    monkeypatch.setattr(protocol, "PRIME", 3)
    random = np.random.default_rng(1)
    unknowns = [(Unknown(name),) for name in "abz"]
    for _ in range(30):
        observed = [
            Form({u: int(c) for u, c in zip(unknowns, row, strict=True) if c}) for row in random.integers(0, 3, (3, 3))
        ]
        every = {
            tuple(
                sum(f * form.terms.get(u, 0) for f, form in zip(factors, observed, strict=True)) % 3 for u in unknowns
            )
            for factors in np.ndindex(3, 3, 3)
        }
        basis = revealed(observed, lambda monomial: monomial == unknowns[2])
        spanned = {
            tuple(sum(f * form.terms.get(u, 0) for f, form in zip(factors, basis, strict=True)) % 3 for u in unknowns)
            for factors in np.ndindex(*(3,) * len(basis))
        }
        assert spanned == {values for values in every if not values[2]}
