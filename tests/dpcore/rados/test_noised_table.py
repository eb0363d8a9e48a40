"""One table has one noise and any change gives new noise; otherwise the difference of two releases leaks."""

import hashlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados import sums
from dpcore.rados.designs import FixedSupportDesign
from dpcore.rados.sums import NoisedTable
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import BLOCK_ROWS, Records

BITS = 16
DESIGN = FixedSupportDesign(Fraction(1, 2), Clip(Fraction(3, 2), bias=True), 50)
SECRET, SCHEMA = bytes(range(32)), b"s" * 32


def records(rows: int = 400, seed: int = 1) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, 3), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    usable = np.ones(rows, dtype=np.bool_)
    features[7], labels[7], usable[7] = 0, 1, False
    return Records(features, labels, usable)


HELD = records()


def table(held=HELD, design=DESIGN, bits=BITS, schema=SCHEMA, secret=SECRET) -> NoisedTable:
    return NoisedTable.of(held, design, bits, PartySecret(secret, schema))


def edited(name: str, index, value) -> Records:
    fields = {part: getattr(HELD, part).copy() for part in ("features", "labels", "usable")}
    fields[name][index] = value
    return Records(**fields)


def one_less_usable() -> Records:
    features, labels, usable = HELD.features.copy(), HELD.labels.copy(), HELD.usable.copy()
    features[8], labels[8], usable[8] = 0, 1, False
    return Records(features, labels, usable)


def all_zero(usable: bool) -> Records:
    return Records(np.zeros((400, 3), np.int32), np.ones(400, np.int8), np.full(400, usable))


SWAPPED = np.r_[1, 0, 2:400]
OTHERS = {
    "a value, by one unit": table(edited("features", (0, 0), HELD.features[0, 0] ^ 1)),
    "a label": table(edited("labels", 0, -HELD.labels[0])),
    "a row that is not usable": table(one_less_usable()),
    "usable rows that are zero": table(all_zero(usable=True)),
    "rows of zeros, not usable": table(all_zero(usable=False)),
    "the order of rows": table(Records(HELD.features[SWAPPED], HELD.labels[SWAPPED], HELD.usable[SWAPPED])),
    "a row fewer": table(Records(HELD.features[:-1], HELD.labels[:-1], HELD.usable[:-1])),
    "a column": table(Records(HELD.features[:, 1:], HELD.labels, HELD.usable)),
    "fraction bits": table(bits=BITS + 1),
    "the clip's bound": table(design=replace(DESIGN, clip=Clip(Fraction(7, 4), bias=True))),
    "the clip's bias": table(design=replace(DESIGN, clip=Clip(Fraction(3, 2), bias=False))),
    "sigma": table(design=replace(DESIGN, edge_sigma=51)),
    "the schema": table(schema=b"t" * 32),
    "the secret": table(secret=bytes(32)),
}


def test_a_table_is_repeatable():
    assert table() == table()
    assert table(records()).epoch == table().epoch
    assert np.array_equal(table().noise(0, (400, 3)), table().noise(0, (400, 3)))


def test_the_epoch_does_not_depend_on_the_support():
    """Rados of another fraction over the same table are post-processing of it: they must not get fresh noise."""
    assert table(design=replace(DESIGN, fraction=Fraction(1, 3))) == table()


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_any_change_makes_another_epoch_with_independent_noise(other):
    assert other.key != table().key
    assert other.epoch != table().epoch
    mine, theirs = table().noise(0, (400, 3)).reshape(-1), other.noise(0, (400, 3)).reshape(-1)
    # 1200 pairs: the correlation of independent ones is within 4.5 standard deviations of zero.
    assert abs(np.corrcoef(mine, theirs)[0, 1]) < 0.13
    assert (mine == theirs).mean() < 0.03
    assert abs(np.corrcoef(mine, mine + theirs)[0, 1]) > 0.5


def test_another_blocking_of_rows_makes_another_epoch(monkeypatch):
    """The noise of a row depends on where its block begins: without this the same epoch would have other noise."""
    before = table()
    monkeypatch.setattr(sums, "BLOCK_ROWS", BLOCK_ROWS * 2)
    assert table().epoch != before.epoch


def test_epochs_differ_from_one_another():
    assert len({other.epoch for other in OTHERS.values()}) == len(OTHERS)


def test_an_epoch_identifies_the_key_without_revealing_it():
    held = table()
    assert len(held.epoch) == len(held.key) == 32
    assert held.epoch != held.key
    assert held.key.hex() not in repr(held)
    assert repr(held.key)[2:-1] not in repr(held)
    assert SECRET.hex() not in repr(PartySecret(SECRET, SCHEMA))


def test_blocks_of_rows_have_noise_of_their_own():
    first, second = table().noise(0, (400, 3)).reshape(-1), table().noise(BLOCK_ROWS, (400, 3)).reshape(-1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.13


def test_the_noise_does_not_depend_on_how_selections_are_blocked():
    held = records(BLOCK_ROWS + 900)
    prepared = RadosQuery(6, DESIGN).prepare(held, BITS, PartySecret(SECRET, SCHEMA))
    selection = np.random.default_rng(2).integers(0, 256, size=(6, -(-held.rows // 8))).astype(np.uint8)
    selection[:, -1] &= 0xFF >> (-held.rows % 8)
    whole = prepared.sums_of(selection)
    assert np.array_equal(np.concatenate([prepared.sums_of(selection[i : i + 1]) for i in range(6)]), whole)
    assert np.array_equal(np.concatenate([prepared.sums_of(selection[:4]), prepared.sums_of(selection[4:])]), whole)


def test_two_releases_over_one_table_subtract_to_what_both_leave_out():
    """Same noise on the same edge: a record's noise does not average away over releases."""
    prepared = [RadosQuery(n, DESIGN).prepare(HELD, BITS, PartySecret(SECRET, SCHEMA)) for n in (1, 5)]
    row = np.zeros((1, 50), dtype=np.uint8)
    row[0, 3] = 1 << 2
    (first,), (second,) = (held.sums_of(row) for held in prepared)
    assert np.array_equal(first, second)
    bare = RadosQuery(1, replace(DESIGN, edge_sigma=0)).prepare(HELD, BITS).sums_of(row)[0]
    assert np.array_equal(first - bare, table().noise(0, (400, 3))[26])
    assert (first != bare).any()


def test_contributions_of_one_table_repeat_their_noise_for_the_same_signatures():
    query = RadosQuery(8, DESIGN)
    repeated = [
        query.contribution(HELD, BITS, Computation(SeededRandom(3), PartySecret(SECRET, SCHEMA))) for _ in range(2)
    ]
    assert np.array_equal(*repeated)


def test_the_noise_of_an_epoch_is_pinned():
    """The noise of a released table must never change. If this fails, use another domain in the key."""
    held = Records(np.array([[ONE, -ONE]], np.int32), np.array([1], np.int8), np.array([True]))
    design = FixedSupportDesign(Fraction(1, 2), Clip(Fraction(3, 2), bias=False), 1000)
    pinned = NoisedTable.of(held, design, 16, PartySecret(bytes(32), bytes(32)))
    assert pinned.epoch.hex() == "43038e16314e35c67b1372a3b2bc735edcb05e49b158a45ef8ae06c54bfc529b"
    assert pinned.noise(0, (2, 3)).tolist() == [[-314, 1269, 590], [-14, 503, -1026]]
    # Long enough that the sampler draws in several batches.
    whole = pinned.noise(BLOCK_ROWS, (BLOCK_ROWS, 20)).astype("<i8").tobytes()
    assert hashlib.sha256(whole).hexdigest() == "4007346d8e87fbe486a56ee19e5e36983d686f965875ffa653648ae893a7473c"
