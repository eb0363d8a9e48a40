"""Who is in the table, from a list of candidates; and sparse rows, from fewer rados than rows."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.attacks.candidates import subsumption
from dpcore.attacks.release import Table
from dpcore.attacks.sparse import sparse, sparsest
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, PlainDesign
from dpcore.randomness.sources import SeededRandom
from dpcore.records.records import Records
from tests.dpcore.attacks.test_guesses import CLIP
from tests.dpcore.attacks.world import PROMISE, moments, rados, records, table


@pytest.mark.parametrize("design", [PlainDesign(), FixedSupportDesign(Fraction(1, 2), CLIP, 0)])
def test_members_of_a_small_table_are_told_from_plain_rados(design):
    over = table(120, 8)
    small, large = subsumption(rados(design, 600, over), over, 2, SeededRandom(1))
    assert (small.rows, large.rows) == (16, 60)
    assert small.success > 0.7
    assert large.success < small.success


@pytest.mark.more
def test_noise_hides_who_is_in_the_table_and_a_model_says_too_little():
    over = table(120, 8)
    for release in (moments(over), rados(GaussianDesign(CLIP, 4), 100, over, PROMISE)):
        for outcome in subsumption(release, over, 6, SeededRandom(1)):
            assert -0.3 < outcome.success < 0.3
            assert not outcome.exceeds
    assert subsumption(moments(over, as_model=True), over, 2, SeededRandom(1)) == []


@pytest.mark.more
def test_a_thousandth_of_the_noise_does_not_hide_it():
    over = table(120, 8)
    small, _ = subsumption(moments(over, Fraction(1, 1000)), over, 40, SeededRandom(1))
    assert small.low > 0


def sparse_table(rows: int) -> Table:
    """Three coordinates of which one row in twelve is not zero."""
    held = records(rows, 5)
    generator = np.random.default_rng(1)
    features = held.features.copy()
    features[:, 1:4] = np.where(generator.random((rows, 3)) < 1 / 12, features[:, 1:4] | 1 << 28, 0)
    return Table.of(Records(features, held.labels, held.usable), 0, "smoker")


def test_with_known_signatures_sparse_cells_need_fewer_rados_than_rows():
    over = sparse_table(150)
    (found,) = sparse(rados(PlainDesign(), 70, over), over, 2, SeededRandom(1))
    assert (found.rows, found.measure) == (120, "cells")
    assert found.success > 0.9
    assert found.baseline < 0.2
    (hidden,) = sparse(rados(GaussianDesign(CLIP, 4), 70, over, PROMISE), over, 2, SeededRandom(1))
    assert hidden.success < 0.2
    assert not hidden.exceeds


def test_dense_tables_are_not_sparse_and_too_few_rados_are_too_few():
    over = table(60, 5)
    (found,) = sparse(rados(PlainDesign(), 40, over), over, 1, SeededRandom(1))
    assert (found.success, "nothing is sparse" in found.note) == (None, True)
    assert sparse(moments(over), over, 1, SeededRandom(1)) == []
    (many,) = sparse(rados(PlainDesign(), 130, sparse_table(60)), sparse_table(60), 1, SeededRandom(1))
    assert (many.success, "least squares" in many.note) == (None, True)
    generator = np.random.default_rng(2)
    rows = np.where(generator.random((60, 2)) < 0.3, 1.0, 0.0)
    selection = (generator.random((12, 60)) < 0.5).astype(float)
    assert (np.abs(sparsest(selection, selection @ rows) - rows) < 0.05)[rows != 0].mean() < 0.6
