"""A party's rows are numbered by an id column, or by their places."""

import dataclasses
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.held_back import HeldBack, Part, RowKey
from parties.config import PartyConfig
from parties.data.dataset import check, load
from parties.node import PartyNode
from tests.parties.data.test_dataset import STRICT

KEY = RowKey(bytes(range(32)), "clinics", "north", "data.csv")
ROWS = [
    ("p1", "25,yes,clerk,7.9,yes"),
    ("p2", "50,no,nurse,8,no"),
    ("p3", "75,no,nurse,1,no"),
    ("p1", "26,no,clerk,2,no"),
]


def text(rows, name: str = "patient") -> str:
    return "\n".join([f"{name},age,smoker,job,pixel,ill", *(f"{own},{rest}" for own, rest in rows)]) + "\n"


def numbered(path, id_column: str | None = "patient") -> np.ndarray:
    dataset = load(path, STRICT, row_key=KEY, id_column=id_column)
    by_id = dataset.numbers.by_id
    return KEY.of_places(dataset.records.rows) if by_id is None else by_id


def test_numbers_follow_ids_wherever_the_rows_stand(csv_file):
    expected = KEY.of_ids([own for own, _ in ROWS]).tolist()
    assert numbered(csv_file(text(ROWS))).tolist() == expected
    assert expected[0] == expected[3]
    assert numbered(csv_file(text(ROWS[::-1]))).tolist() == expected[::-1]
    changed = [(own, rest.replace("yes", "no")) for own, rest in ROWS]
    assert numbered(csv_file(text(changed))).tolist() == expected


def test_numbers_follow_places_without_ids(csv_file):
    assert numbered(csv_file(text(ROWS)), None).tolist() == KEY.of_places(4).tolist()
    assert numbered(csv_file(text(ROWS[::-1])), None).tolist() == KEY.of_places(4).tolist()


def test_ids_of_other_files_are_their_texts(tmp_path):
    table = {"patient": [7, 12, 7], "age": [1.0, 2.0, 3.0], "smoker": ["yes"] * 3, "job": ["clerk"] * 3}
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({**table, "pixel": [1.0] * 3, "ill": ["yes", "no", "no"]}), path)
    assert numbered(path).tolist() == KEY.of_ids(["7", "12", "7"]).tolist()


def test_ids_change_no_record(csv_file):
    plain, with_ids = (
        load(csv_file(text(ROWS)), STRICT),
        load(csv_file(text(ROWS)), STRICT, row_key=KEY, id_column="patient"),
    )
    assert plain.numbers is None
    assert plain.records.digest == with_ids.records.digest
    assert dataclasses.replace(plain.report, digest=with_ids.report.digest) == with_ids.report


def test_a_column_of_ids_that_is_absent_is_refused_by_the_node_and_by_the_check(csv_file):
    path = csv_file(text(ROWS, "patients"))
    for read in (
        lambda: load(path, STRICT, row_key=KEY, id_column="patient"),
        lambda: check(STRICT, path, id_column="patient"),
    ):
        with pytest.raises(DataError, match="no such column, but there is 'patients'") as caught:
            read()
        assert (caught.value.line, caught.value.column) == (None, "patient")


@pytest.mark.parametrize("blank", ["", " "])
def test_a_row_without_an_id_is_left_out_by_the_node_and_by_the_check(csv_file, blank):
    path = csv_file(text([*ROWS, (blank, "1,yes,clerk,1,no")]))
    found = load(path, STRICT, row_key=KEY, id_column="patient")
    assert found.records.usable.tolist() == [True] * len(ROWS) + [False]
    sentence = f"In column 'patient' 1 of {len(ROWS) + 1} cells is empty, and its row is left out"
    for report in (found.report, check(STRICT, path, id_column="patient")):
        assert [change.sentence for change in report.changes] == [sentence]
        assert (report.rows, report.zero_vectors) == (len(ROWS) + 1, 1)


@pytest.mark.parametrize("column", ["age", "pixel", "ill"])
def test_a_column_of_the_schema_is_no_id(csv_file, column):
    """Rows would be held back by what is learned, and new rows would not be like them."""
    path = csv_file(text(ROWS))
    with pytest.raises(ConfigurationError, match="must not depend on what is learned"):
        load(path, STRICT, row_key=KEY, id_column=column)
    with pytest.raises(ConfigurationError, match="must not depend on what is learned"):
        check(STRICT, path, id_column=column)


def test_a_file_that_changes_while_its_ids_are_read_is_refused(csv_file):
    path = csv_file(text(ROWS))

    class Slow(RowKey):
        def of_ids(self, ids):
            path.write_text(text(ROWS[::-1]))
            return super().of_ids(ids)

    slow = Slow(KEY.secret, KEY.federation, KEY.party, KEY.source)
    with pytest.raises(DataError, match="changed while it was being read"):
        load(path, STRICT, row_key=slow, id_column="patient")


def test_a_node_numbers_its_rows_by_its_own_key(offline):
    """The key is of the node's secret file, its federation, its name and its data source."""
    directory = offline.directory("ada")
    config = PartyConfig.load(directory / "party.toml")
    with PartyNode(config) as node:
        by_place = node._lifecycle._party.numbers
    secret = (config.state_directory / "secret").read_bytes()
    assert by_place.key == RowKey(secret, config.federation, "ada", "data.csv")
    assert by_place.by_id is None
    data = config.data.read_text().splitlines()
    config.data.write_text("\n".join([f"own,{data[0]}", *(f"{n},{row}" for n, row in enumerate(data[1:]))]) + "\n")
    with PartyNode(config.model_copy(update={"id_column": "own"})) as node:
        by_id = node._lifecycle._party.numbers
    assert by_id.key == by_place.key
    assert by_id.by_id.tolist() == by_id.key.of_ids(str(n) for n in range(len(data) - 1)).tolist()


SHARE = HeldBack(Fraction(1, 2), Part.TRAINING)


def part(rows, key, id_column=None):
    """The records of a part as a multiset: sums over rows depend on nothing else."""
    records = sorted(rows, key=lambda row: float(row[1].split(",")[0]))
    numbers = key.of_places(len(records)) if id_column is None else key.of_ids([own for own, _ in records])
    inside = SHARE.contains(numbers)
    return Counter(rest for (_, rest), is_in in zip(records, inside, strict=True) if is_in)


def moved(before, after):
    """How many records of one multiset are not in the other."""
    return max((before - after).total(), (after - before).total())


def test_a_sorted_table_needs_ids_or_a_secret_key():
    """One record moves others by their places: for a known key the part may change by many, by ids by one at most."""
    rows = [(f"p{n}", f"{n / 4},yes,clerk,1,{'yes' if n % 2 else 'no'}") for n in range(200)]
    other = [*rows[1:], ("p0", "99,yes,clerk,1,no")]
    assert moved(part(rows, KEY), part(other, KEY)) > 20
    assert moved(part(rows, KEY, "id"), part(other, KEY, "id")) <= 1


def test_with_numbers_that_nobody_knows_the_order_of_a_table_says_nothing():
    """All outcomes of six places: a part of a sorted table is distributed as if one record had only been replaced."""
    first, replaced = list("abcdef"), list("bcdefz")
    aligned = ["z", *"bcdef"]

    def parts(table):
        outcomes = product((False, True), repeat=len(table))
        return Counter(
            frozenset(row for row, inside in zip(table, outcome, strict=True) if inside) for outcome in outcomes
        )

    assert parts(replaced) == parts(aligned) != parts(first)
    for outcome in product((False, True), repeat=6):
        one, other = ({row for row, inside in zip(t, outcome, strict=True) if inside} for t in (first, aligned))
        assert len(one ^ other) <= 2
