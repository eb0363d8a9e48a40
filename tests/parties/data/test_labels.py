"""A party's rows under several labels: usable under one label or another, with the features in memory once."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.records import Records
from dpcore.records.shared_schema import SharedSchema
from parties.data.dataset import check, load
from parties.data.row_guard import Known, RowCounts, faults, refusing_fields
from parties.policy import DataLimits
from radobase.metrics import Reason
from radobase.tables.recoding import load_recode

SCHEMA = """
schema_version = 5
name = "stays"
texts = []
[[labels]]
column = "back"
positive = ["yes"]
negative = ["no"]
missing = "zero-vector"
[[labels]]
name = "stay"
type = "number"
column = "days"
lower = 0.0
upper = 10.0
missing = "zero-vector"
unreadable = "zero-vector"
[[labels]]
type = "classes"
column = "ward"
values = ["a", "b", "c"]
missing = "zero-vector"
[[features]]
name = "age"
type = "real"
unreadable = "zero-vector"
missing = "zero-vector"
lower = 0.0
upper = 100.0
"""
SHARED = SharedSchema.from_toml(SCHEMA)
ROWS = ("30,yes,2,a", "60,,5,b", "90,no,,c", ",yes,1,a", "50,no,x,", "10,yes,9,b")
USABLE = {"back": [1, 0, 1, 0, 1, 1], "stay": [1, 1, 0, 0, 0, 1], "ward": [1, 1, 1, 0, 0, 1]}


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("age,back,days,ward\n" + "\n".join(ROWS) + "\n")
    return file


def by_label(held) -> dict[str, Records]:
    schemas = {schema.digest: records for schema, records in ((held.schema, held.records), *held.others)}
    return {name: schemas[schema.digest] for name, schema in SHARED.by_label.items()}


def test_a_row_without_one_label_is_usable_for_the_others(table):
    found = by_label(load(table, SHARED))
    for name, records in found.items():
        assert records.usable.tolist() == [bool(each) for each in USABLE[name]]
        alone = load(table, SHARED.about(name)).records
        assert records.labels.tolist() == alone.labels.tolist()
        assert records.coding == alone.coding
        assert records.zeroed().digest == alone.digest


def test_the_features_are_in_memory_once(table):
    found = list(by_label(load(table, SHARED)).values())
    assert all(np.shares_memory(found[0].features, each.features) for each in found)
    assert not found[0].features.flags.writeable
    # The fourth row has no age: under no label is anything of it kept.
    assert not found[0].features[3].any()


def test_a_query_sums_what_a_party_with_one_label_sums(table):
    found = by_label(load(table, SHARED))
    clip = Clip(Fraction(2), bias=True)
    gradient = GradientQuery("logistic", (1 << 12, -(1 << 11)), Fraction(1), 100)
    for name, kind, bits in (("back", MomentsQuery(clip, 1, 100), 10), ("back", gradient, 16)):
        alone = load(table, SHARED.about(name)).records
        assert kind.sums(found[name], bits).tolist() == kind.sums(alone, bits).tolist()


def test_the_report_says_what_each_label_makes_of_the_rows(table):
    report = load(table, SHARED).report
    assert report.usable_by_label == {"back": 4, "stay": 3, "ward": 4}
    said = "\n".join(report.sentences())
    assert "label 'back': 2 positive, 2 negative" in said
    assert "label 'stay': labels from 2 to 9" in said
    assert "label 'ward': 1 'a', 2 'b', 1 'c'" in said
    # What is wrong with the features is said once.
    assert said.count("in column 'age'") == said.count("column 'age'")
    assert len(report.all_changes) == len(set(report.all_changes))
    assert check(SHARED, table).digest == report.digest
    assert load(table, SHARED.first).report.usable_by_label == {}


@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_digest_of_the_data_covers_each_label(table, place):
    before = check(SHARED, table).digest
    lines = table.read_text().splitlines()
    cells = lines[1].split(",")
    cells[place] = {1: "no", 2: "3", 3: "c"}[place]
    table.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    assert check(SHARED, table).digest != before


def test_ids_and_epochs_are_no_column_of_any_label(table):
    for column in ("days", "ward"):
        with pytest.raises(ConfigurationError, match="is a column of the schema"):
            load(table, SHARED, id_column=column)
        with pytest.raises(ConfigurationError, match="is a column of the schema"):
            check(SHARED, table, id_column="age2", epoch_column=column)


def test_a_row_without_an_id_is_usable_under_no_label(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("id,age,back,days,ward\n1,30,yes,2,a\n,60,no,5,b\n")
    held = load(file, SHARED, id_column="id", row_key=_key())
    assert [records.usable.tolist() for records in by_label(held).values()] == [[True, False]] * 3
    assert held.records.features[1].tolist() == [0, 0]
    assert held.records.features[0, -1] == ONE


def _key():
    from dpcore.records.held_back import RowKey

    return RowKey(b"k" * 32, "f", "p", "s")


def test_a_cell_that_any_label_refuses_is_named(table):
    strict = SharedSchema.from_toml(SCHEMA.replace('unreadable = "zero-vector"\n[[labels]]', "[[labels]]"))
    assert "labels.stay.unreadable" in refusing_fields(strict)
    with pytest.raises(DataError, match="days"):
        load(table, strict)


def test_a_recode_file_may_be_about_each_label(table, tmp_path):
    (tmp_path / "recode.toml").write_text('[columns.ward]\ncells = { "A" = "a" }\n[columns.days]\nfactor = 0.5\n')
    recode = load_recode(tmp_path / "recode.toml", SHARED)
    table.write_text(table.read_text().replace(",a\n", ",A\n"))
    found = by_label(load(table, SHARED, recode=recode))
    assert found["ward"].usable[0]
    assert SHARED.about("stay").label.read(int(found["stay"].labels[0])) == pytest.approx(1.0)


def test_rows_that_lost_one_label_hold_the_party(table):
    counts = RowCounts.of(load(table, SHARED).report)
    assert (counts.usable, counts.by_label) == (3, {"back": 4, "stay": 3, "ward": 4})
    assert RowCounts.from_dict(vars(counts) | {"by_label": dict(counts.by_label)}) == counts
    limits = DataLimits(most_unusable_rows="0.5", largest_drop_in_rows="0.2")
    assert faults(counts, Known(counts), limits) == {}
    lost = RowCounts(6, 3, counts.changed, {"back": 3, "stay": 3, "ward": 4})
    assert "row usable under label 'back'" in faults(lost, Known(counts), limits)[Reason.ROWS_DROPPED]
    few = RowCounts(6, 2, counts.changed, {"back": 4, "stay": 2, "ward": 4})
    assert "under label 'stay'" in faults(few, None, limits)[Reason.ROWS_UNUSABLE]
    with pytest.raises(ValueError, match="not the counts"):
        RowCounts.from_dict({"rows": 6, "usable": 3, "by_label": {"back": 7}})


def test_a_label_of_another_type_fits_no_rows(table):
    records = load(table, SHARED.first).records
    with pytest.raises(Exception, match="labels have shape"):
        records.labelled(records.labels[:2], records.usable, records.coding)


def test_errors_and_changes_name_the_label_as_the_file_does(table):
    """They named label.unreadable, which the file does not have."""
    refusing = SCHEMA.replace(
        'missing = "zero-vector"\nunreadable = "zero-vector"\n[[labels]]\ntype = "classes"',
        '[[labels]]\ntype = "classes"',
    )
    assert refusing != SCHEMA
    with pytest.raises(DataError, match=r"column 'days'.*set labels\.stay\.missing = .zero-vector."):
        load(table, SharedSchema.from_toml(refusing))
    first = SCHEMA.replace('negative = ["no"]\nmissing = "zero-vector"\n', "", 1)
    with pytest.raises(DataError, match=r"column 'back'.*set labels\.back\.missing = .zero-vector."):
        load(table, SharedSchema.from_toml(first))
    changes = load(table, SHARED).report.all_changes
    assert {"labels.back.missing", "labels.stay.unreadable", "labels.ward.missing"} <= {each.policy for each in changes}
    assert not [each for each in changes if each.policy.startswith("label.")]
    (alone,) = [each for each in load(table, SHARED.about("back")).report.all_changes if "label" in each.policy]
    assert alone.policy == "label.missing"
