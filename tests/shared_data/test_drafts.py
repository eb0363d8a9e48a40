"""Drafts of real tables fit their files; where a table is damaged, no column changes its type without a note."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import SHARED
from dpcore.records.schema import Schema
from parties.data.dataset import check
from parties.data.schema_draft import infer
from tests.parties.data.damage import DAMAGES, Rows
from tests.parties.data.test_draft_damage import check_damage

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside this checkout")
MOST_ROWS = 1500


def shared(path: Path) -> Rows:
    """Some rows of a shared table; the label is its last column, positive above the median if it has many values."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    rows = rows[:: max(1, len(rows) // MOST_ROWS)]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    label = header[-1]
    values = sorted(set(columns[label]))
    if len(values) == 2:
        return Rows(columns, label, (values[1],))
    if label == "species":
        return Rows(columns, label, (max(values, key=columns[label].count),))
    numbers = [float(cell) for cell in columns[label]]
    middle = float(np.median(numbers))
    if len(values) > 10:  # a value of few rows may be damaged everywhere
        columns[label] = ["1" if number > middle else "0" for number in numbers]
        return Rows(columns, label, ("1",))
    return Rows(columns, label, tuple(value for value in values if float(value) > middle))


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.csv.gz")), ids=lambda path: path.name.partition(".")[0])
def test_no_damage_of_a_real_table_is_silent(tmp_path, path, damage):
    check_damage(shared(path), damage, tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("name", ["adult_test", "heart_hungarian", "breast_wisconsin_original", "ionosphere"])
def test_a_draft_fits_its_own_file(name):
    path = SHARED / f"{name}.csv.gz"
    schema, notes = infer(path, name=name)
    report = check(schema, path)
    assert report.rows > 0
    assert report.zero_vectors == 0
    assert Schema.from_canonical(schema.canonical_bytes()) == Schema.from_toml(schema.to_toml(notes)) == schema
