"""The epochs of a party's rows: read from a column, and one for all rows of an id."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.held_back import RowKey
from parties.data.dataset import check, load
from tests.parties.data.test_dataset import STRICT

KEY = RowKey(bytes(range(32)), "clinics", "north", "data.csv")
COLUMNS = {"id_column": "visit", "epoch_column": "month"}
ROWS = [
    ("v1", "2026-11", "25,yes,clerk,7.9,yes"),
    ("v2", "2026-12", "50,no,nurse,8,no"),
    ("v3", "2026-11", "75,no,nurse,1,no"),
]


def text(rows) -> str:
    head = "visit,month,age,smoker,job,pixel,ill"
    return "\n".join([head, *(",".join(row) for row in rows)]) + "\n"


def epochs(path):
    return load(path, STRICT, row_key=KEY, **COLUMNS).epochs


def test_each_row_has_the_epoch_of_its_cell(csv_file):
    found = epochs(csv_file(text(ROWS)))
    assert found.counts == {"2026-11": 2, "2026-12": 1}
    assert [found.places(name).tolist() for name in ("2026-11", "2026-12", "2027-01")] == [[0, 2], [1], []]
    assert sorted(found.rows("2026-11").numbers) == sorted(KEY.of_ids(["v1", "v3"]))
    assert len(found.rows("2026-11").key_check) == 16


def test_numbers_of_another_secret_or_of_another_column_of_ids_are_told_apart(csv_file):
    other, renamed = RowKey(b"x" * 32, "clinics", "north", "data.csv"), text(ROWS).replace("visit,", "patient,", 1)
    found = [
        epochs(csv_file(text(ROWS))),
        load(csv_file(text(ROWS)), STRICT, row_key=other, **COLUMNS).epochs,
        load(csv_file(renamed), STRICT, row_key=KEY, id_column="patient", epoch_column="month").epochs,
    ]
    assert len({each.key_check for each in found}) == 3
    assert epochs(csv_file(text(ROWS[:1]))).key_check == found[0].key_check


def test_epochs_of_other_files_are_their_texts(tmp_path):
    path = tmp_path / "rows.parquet"
    rest = {"age": [1.0] * 3, "smoker": ["yes"] * 3, "job": ["clerk"] * 3, "pixel": [1.0] * 3, "ill": ["no"] * 3}
    pq.write_table(pa.table({"visit": [1, 2, 3], "month": [1, 2, 1], **rest}), path)
    assert epochs(path).counts == {"1": 2, "2": 1}


def test_epochs_change_no_record_and_are_part_of_the_digest_of_the_data(csv_file):
    plain = load(csv_file(text(ROWS)), STRICT, row_key=KEY, id_column="visit")
    found = load(csv_file(text(ROWS)), STRICT, row_key=KEY, **COLUMNS)
    moved = load(csv_file(text([("v1", "2026-12", ROWS[0][2]), *ROWS[1:]])), STRICT, row_key=KEY, **COLUMNS)
    assert plain.records.digest == found.records.digest == moved.records.digest
    assert len({plain.report.digest, found.report.digest, moved.report.digest}) == 3
    assert found.report == check(STRICT, csv_file(text(ROWS)), **COLUMNS)


def test_a_row_in_two_epochs_is_refused_by_the_node_and_by_the_check(csv_file):
    path = csv_file(text([*ROWS, ("v1", "2026-12", "26,no,clerk,2,no")]))
    for read in (lambda: epochs(path), lambda: check(STRICT, path, **COLUMNS)):
        with pytest.raises(DataError, match="in epoch 2026-11 and in epoch 2026-12, and 1 such in all") as caught:
            read()
        assert (caught.value.line, caught.value.column) == (5, "visit")
    # All rows of one id may be in one epoch.
    assert epochs(csv_file(text([*ROWS, ("v1", "2026-11", "26,no,clerk,2,no")]))).counts["2026-11"] == 3


@pytest.mark.parametrize("row", [("v4", "", "26,no,clerk,2,no"), ("", "2026-11", "26,no,clerk,2,no")])
def test_a_row_without_an_epoch_or_an_id_is_in_no_epoch(csv_file, row):
    found = epochs(csv_file(text([*ROWS, row])))
    assert (found.counts, found.without) == ({"2026-11": 2, "2026-12": 1}, 1)
    warnings = check(STRICT, csv_file(text([*ROWS, ("v4", "", "26,no,clerk,2,no")])), **COLUMNS).warnings
    assert "1 of 4 rows are in no epoch: only queries about all rows are answered from them" in warnings


@pytest.mark.parametrize("name", ["2026-11-03 10:00", "x" * 41, "november?"])
def test_a_name_that_no_query_can_have_is_refused_with_its_line(csv_file, name):
    with pytest.raises(DataError, match="an epoch's name has 1 to 40 letters") as caught:
        epochs(csv_file(text([*ROWS, ("v4", name, "26,no,clerk,2,no")])))
    assert (caught.value.line, caught.value.column) == (5, "month")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"epoch_column": "month"}, "needs an id_column"),
        ({"id_column": "visit", "epoch_column": "age"}, "is a column of the schema"),
        ({"id_column": "visit", "epoch_column": "ill"}, "is a column of the schema"),
        ({"id_column": "visit", "epoch_column": "visit"}, "or the ids"),
    ],
)
def test_epochs_without_ids_or_from_values_are_refused(csv_file, columns, reason):
    for read in (lambda path: load(path, STRICT, row_key=KEY, **columns), lambda path: check(STRICT, path, **columns)):
        with pytest.raises(ConfigurationError, match=reason):
            read(csv_file(text(ROWS)))
