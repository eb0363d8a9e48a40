"""Guesses: certain without noise, within what epsilon allows with it, and beyond that with a tenth of the noise."""

from fractions import Fraction

import pytest

from dpcore.attacks.all_but_one_cell import all_but_one_cell
from dpcore.attacks.membership import membership
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, JointDesign, PlainDesign
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from tests.dpcore.attacks.world import PROMISE, moments, rados, table

TENTH = Fraction(1, 10)
CLIP = Clip(Fraction(3, 2), bias=True)
RUNS = 200


def played(attack, release, over, runs=RUNS):
    (outcome,) = attack(release, over, runs, SeededRandom(3))
    assert outcome.low <= outcome.success <= outcome.high
    return outcome


@pytest.mark.parametrize("design", [PlainDesign(), FixedSupportDesign(Fraction(1, 2), CLIP, 0)])
def test_without_noise_a_cell_and_a_row_are_read(design):
    over = table(12, 5)
    for attack in (all_but_one_cell, membership):
        outcome = played(attack, rados(design, 60, over), over, 40)
        assert outcome.success > 0.9
        assert outcome.bound is None


@pytest.mark.parametrize("as_model", [False, True])
def test_moments_with_noise_and_models_of_them_stay_within_epsilon(as_model):
    over = table(40, 5, extreme=True)
    for attack in (all_but_one_cell, membership):
        outcome = played(attack, moments(over, as_model=as_model), over)
        assert outcome.high < 0.46 < outcome.bound < 0.47
        assert not outcome.exceeds


def test_moments_with_a_tenth_of_the_noise_raise_the_alarm():
    over = table(40, 5, extreme=True)
    assert played(membership, moments(over, TENTH), over).exceeds


@pytest.mark.more
@pytest.mark.parametrize("design", [GaussianDesign(CLIP, 4), FixedSupportDesign(Fraction(1, 2), CLIP, 4)])
@pytest.mark.parametrize("n", [6, 60])
def test_rados_with_noise_stay_within_epsilon_and_a_tenth_of_it_raises_the_alarm(design, n):
    over = table(20, 5, extreme=True)
    outcome = played(membership, rados(design, n, over, PROMISE), over)
    assert "signatures" in outcome.note
    assert -0.2 < outcome.success < PROMISE.advantage
    if n > over.rows or isinstance(design, GaussianDesign):
        assert played(membership, rados(design, n, over, PROMISE, TENTH), over).exceeds


@pytest.mark.more
def test_a_joint_column_stays_within_epsilon_and_a_tenth_of_its_noise_raises_the_alarm():
    over, design = table(12, 5), JointDesign("smoker", (0,), 4, 4)
    assert played(all_but_one_cell, rados(design, 20, over, cell=PROMISE), over).success < PROMISE.advantage
    assert played(all_but_one_cell, rados(design, 20, over, cell=PROMISE, noise=TENTH), over).exceeds


def test_rows_that_are_all_alike_give_nothing_away():
    over = table(6, 5)
    for column in range(5):
        over.records.features.base[:, column] = over.records.features[0, column]
    over.records.labels.base[:] = 1
    assert played(membership, rados(PlainDesign(), 10, over), over, 40).success == 0.0
