"""A party's rows whose label is a number or a count: what is reported, and sums that a cluster's workers make."""

import math
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import DataError
from dpcore.queries.label_moments import LabelMomentsPart
from dpcore.records.clipping import Clip
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.computation import sum_on_threads
from dpcore.records.features import Count, Number, RealFeature
from dpcore.records.schema import Schema
from parties.data.cluster_row_sums import sum_of_run
from parties.data.dataset import check, load

FEATURES = (RealFeature(name="a", lower=0.0, upper=10.0),)
NUMBER = Schema(name="n", label=Number(column="y", lower=0.0, upper=10.0, missing="zero-vector"), features=FEATURES)
OVER = Count(column="y", upper=9, exposure="t", exposure_lower=0.5, exposure_upper=4.0, unreadable="zero-vector")
COUNT = Schema(name="c", label=OVER, features=FEATURES)


def table(path: Path, *lines: str) -> Path:
    file = path / "rows.csv"
    file.write_text("a,y,t\n" + "\n".join(lines) + "\n")
    return file


def test_a_number_is_loaded_and_its_range_reported(tmp_path):
    held = load(table(tmp_path, "1,2.5,1", "2,7.5,1", "3,,1"), NUMBER)
    assert held.records.coding == NUMBER.label.coding
    assert held.records.labels.dtype == np.int32
    assert held.report.measured == pytest.approx((2.5, 7.5))
    assert (held.report.positive, held.report.negative, held.report.zero_vectors) == (0, 0, 1)
    assert any("labels from 2.5 to 7.5" in line for line in held.report.sentences())
    assert check(NUMBER, table(tmp_path, "1,2.5,1", "2,7.5,1", "3,,1")).digest == held.report.digest


def test_one_label_for_all_rows_is_warned_of(tmp_path):
    report = load(table(tmp_path, "1,5,1", "2,5,1"), NUMBER).report
    assert report.warnings == ("the label of all 2 usable rows is 5: this party cannot learn alone",)


@pytest.mark.parametrize(
    ("line", "says"), [("1,-1,1", "not a whole number"), ("1,2.5,1", "whole number"), ("1,2,0", "has no rate")]
)
def test_a_row_that_is_no_count_is_refused_at_its_place(tmp_path, line, says):
    strict = Schema(name="c", label=Count(**{**vars(OVER), "unreadable": "refuse"}), features=FEATURES)
    with pytest.raises(DataError, match=says) as refused:
        load(table(tmp_path, "1,2,1", line), strict)
    assert "line 3" in str(refused.value)
    assert load(table(tmp_path, "1,2,1", line), COUNT).report.zero_vectors == 1


def test_a_count_keeps_its_exposure(tmp_path):
    held = load(table(tmp_path, "1,2,1", "2,3,2", "3,9,4"), COUNT)
    assert held.records.labels[:, 0].tolist() == [2, 3, 9]
    offsets = np.ldexp(held.records.labels[:, 1].astype(float), -OFFSET_BITS)
    assert offsets == pytest.approx([0.0, math.log(2), math.log(4)], abs=1e-6)
    assert held.report.measured == (2.0, 9.0)


@pytest.mark.parametrize("schema", [NUMBER, COUNT], ids=["number", "count"])
def test_a_worker_of_a_cluster_sums_the_same(tmp_path, schema):
    held = load(table(tmp_path, "1,2,1", "2,3,2", "3,9,4", "9,0,1"), schema).records
    part = LabelMomentsPart(held.d, 8, Clip(Fraction(2), bias=True), held.coding)
    payload = (0, held.features, held.labels, held.usable, held.feature_map, held.coding)
    sent_part, sent = pickle.loads(pickle.dumps((part, payload)))
    assert np.array_equal(sum_of_run(sent_part, sent), sum_on_threads(part, held))
