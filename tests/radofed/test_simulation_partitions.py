"""Which party of a simulation holds which rows."""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from radofed.simulation.table import Partition


def divide(text, parties, positive, groups=None, seed=3):
    return Partition.parse(text).divide(parties, np.asarray(positive), groups, np.random.default_rng(seed))


def check_division(parts, parties, rows):
    assert len(parts) == parties
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))


POSITIVE = np.random.RandomState(1).random(1000) < 0.3


@pytest.mark.parametrize("text", ["iid", "size-skew", "label-skew"])
@pytest.mark.parametrize("parties", [2, 7, 999, 1000])
def test_every_row_has_one_party_and_every_party_a_row(text, parties):
    parts = divide(text, parties, POSITIVE)
    check_division(parts, parties, 1000)
    again = divide(text, parties, POSITIVE)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = divide(text, parties, POSITIVE, seed=4)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_iid_is_equal_and_blind_to_labels():
    parts = divide("iid", 7, POSITIVE)
    assert {len(part) for part in parts} == {142, 143}
    shares = [POSITIVE[part].mean() for part in parts]
    assert max(abs(share - POSITIVE.mean()) for share in shares) < 4.5 * np.sqrt(0.3 * 0.7 / 142)


def test_sizes_are_skewed_as_said():
    sizes = np.array([len(part) for part in divide("size-skew", 10, POSITIVE)])
    harmonic = (1 / np.arange(1, 11)).sum()
    expected = 1 + 990 / np.arange(1, 11) / harmonic
    assert np.abs(sizes - expected).max() < 1
    assert (np.diff(sizes) <= 0).all()


def test_labels_are_skewed_to_single_classes_at_both_ends():
    parts = divide("label-skew", 10, POSITIVE)
    shares = [POSITIVE[part].mean() for part in parts]
    assert {len(part) for part in parts} == {100}
    assert shares[0] == 0
    assert shares[-1] == 1
    assert any(0 < share < 1 for share in shares)


def test_rows_of_one_text_stay_together():
    groups = np.repeat([5, 1, 2, 9], [50, 30, 25, 10])
    one_each = divide("by-column:site", 4, np.zeros(115, dtype=bool), groups)
    check_division(one_each, 4, 115)
    assert [len(part) for part in one_each] == [50, 30, 25, 10]
    merged = divide("by-column:site", 2, np.zeros(115, dtype=bool), groups)
    check_division(merged, 2, 115)
    assert sorted(len(part) for part in merged) == [55, 60]
    for part in merged:
        others = np.setdiff1d(np.arange(115), part)
        assert not set(groups[part]) & set(groups[others])
    with pytest.raises(ConfigurationError, match="at most 4 parties"):
        divide("by-column:site", 5, np.zeros(115, dtype=bool), groups)


def test_more_parties_than_rows_are_refused():
    with pytest.raises(ConfigurationError, match="at most 1000 parties"):
        divide("iid", 1001, POSITIVE)


@pytest.mark.parametrize("text", ["idd", "by-column", "by-column:", "iid:x", ""])
def test_what_is_no_partition_is_refused(text):
    with pytest.raises(ConfigurationError):
        Partition.parse(text)


def test_a_partition_prints_as_it_was_written():
    assert str(Partition.parse("by-column:a:b")) == "by-column:a:b"
    assert str(Partition.parse("iid")) == "iid"
