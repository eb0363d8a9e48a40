"""Weights of a person's rows: integers that add up to W, whatever the table beside."""

import numpy as np
import pytest

from dpcore.errors import PlanError, ShapeError
from dpcore.records.persons import MOST_PARTIES, PERSON_WEIGHT, PersonRows, Persons, bits_of, factor_of


def numbered(ids) -> np.ndarray:
    """Distinct numbers of 64 bits for these ids."""
    random = np.random.default_rng(5)
    known = {one: random.integers(0, 1 << 63, dtype=np.uint64) for one in dict.fromkeys(ids)}
    return np.array([known[one] for one in ids], dtype=np.uint64)


def some_ids(rows: int, seed: int = 1) -> list[str]:
    return [f"p{one}" for one in np.random.default_rng(seed).integers(0, max(1, rows // 3), rows)]


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_the_weights_of_each_person_add_up_to_the_same_whole(share):
    ids = [*some_ids(500), *["many"] * 700]
    usable = np.random.default_rng(2).random(len(ids)) <= share
    persons = PersonRows(numbered(ids))
    found = persons.weights(usable)
    assert not found[~usable].any()
    for code in range(persons.count):
        own = found[(persons.codes == code) & usable]
        assert own.sum() == (PERSON_WEIGHT if len(own) else 0)
        assert not len(own) or own.max() - own.min() <= 1
    assert persons.count == len(set(ids))


def test_what_a_person_s_rows_count_does_not_depend_on_other_rows():
    """Otherwise one person who is replaced would change what the rows of others add."""
    ids = some_ids(60)
    numbers = numbered(ids)
    kept = np.flatnonzero(np.array(ids) != "p3")
    alone = PersonRows(numbers[kept]).weights(np.ones(len(kept), dtype=bool))
    usable = np.ones(len(ids), dtype=bool)
    assert np.array_equal(PersonRows(numbers).weights(usable)[kept], alone)
    # Rows of others before, between and after them.
    order = np.argsort(np.random.default_rng(3).random(len(ids)) + 10 * (np.array(ids) == "p5"), kind="stable")
    moved = PersonRows(numbers[order]).weights(usable)
    own = np.array(ids)[order] == "p5"
    assert sorted(moved[own]) == sorted(PersonRows(numbers).weights(usable)[np.array(ids) == "p5"])


def test_rows_of_persons_with_too_many_are_left_out_alike():
    persons = PersonRows(numbered(["a"] * 4 * PERSON_WEIGHT))
    found = persons.weights(np.ones(4 * PERSON_WEIGHT, dtype=bool))
    counted = np.flatnonzero(found)
    assert len(counted) == PERSON_WEIGHT
    # Neither the first rows nor the last ones.
    assert abs(counted.mean() / len(found) - 0.5) < 0.1


def test_runs_have_whole_persons_each_once():
    ids = [*some_ids(300), *["many"] * 50]
    persons = PersonRows(numbered(ids))
    seen = []
    for places, own in persons.runs(40):
        assert np.array_equal(places, np.sort(places))
        assert set(own) == set(range(own.max() + 1))
        whose = {ids[place] for place in places}
        assert len(whose) == own.max() + 1
        assert len(places) == sum(one in whose for one in ids)
        seen += places.tolist()
    assert sorted(seen) == list(range(len(ids)))


def test_persons_are_at_a_sensible_number_of_parties():
    assert factor_of(None) == 1
    assert bits_of(None) == 0
    assert factor_of(Persons(3)) == 3 * PERSON_WEIGHT == 3 << bits_of(Persons(3))
    for parties in (0, MOST_PARTIES + 1):
        with pytest.raises(PlanError, match="a person may be at"):
            Persons(parties)
    with pytest.raises(ShapeError, match="number the same rows"):
        PersonRows(numbered(["a", "b"])).weights(np.ones(3, dtype=bool))
