"""Drafts of labels that are numbers and counts: their bounds, what is said, and what is no such label."""

from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.features import Count, Number
from dpcore.records.schema import SchemaFieldError
from parties.data.schema_draft import bounded, infer


def drafted(path: Path, cells: list[object], target: str, exposure: str | None = None, given: dict | None = None):
    years = [1, 2, 0.5]
    lines = [f"{place * 7 % 5},{cell},{years[place % 3]}" for place, cell in enumerate(cells)]
    (path / "table.csv").write_text("a,y,years\n" + "\n".join(lines) + "\n")
    schema, notes = infer(path / "table.csv", "y", target=target, exposure=exposure, bounded=given or {})
    return bounded(schema, given or {}), notes


def test_a_number_has_the_table_s_extremes_and_refuses_no_row(tmp_path):
    schema, notes = drafted(tmp_path, [3, 4.5, 9, "", "x", 5, 6], "number")
    assert schema.label == Number(
        column="y", lower=3.0, upper=9.0, missing="zero-vector", unreadable="zero-vector", out_of_bounds="clip"
    )
    assert any("is a number from 3 to 9" in note for note in notes)
    assert any("2 rows have no finite number in 'y', of 7 rows" in note for note in notes)


def test_a_skewed_number_is_drafted_by_its_logarithm(tmp_path):
    schema, notes = drafted(tmp_path, [1, 2, 3, 4, 100], "number")
    assert schema.label.log
    assert any("predictions are medians" in note for note in notes)
    assert not drafted(tmp_path, [-1, 2, 3, 4, 100], "number")[0].label.log


def test_bounds_that_are_given_replace_those_of_the_data(tmp_path):
    schema, _ = drafted(tmp_path, [1, 2, 3, 4, 100], "number", given={"y": (0.0, 50.0)})
    assert (schema.label.lower, schema.label.upper, schema.label.log) == (0.0, 50.0, False)
    with pytest.raises(ConfigurationError, match="give two numbers"):
        drafted(tmp_path, [1, 2, 3, 4], "number", given={"y": ("2024-01-01", "2024-12-31")})


def test_a_count_has_an_upper_bound_and_perhaps_an_exposure(tmp_path):
    schema, notes = drafted(tmp_path, [3, 0, 9, 1, 2, 5], "count", "years")
    label = schema.label
    assert isinstance(label, Count)
    assert (label.upper, label.exposure, label.exposure_lower, label.exposure_upper) == (9, "years", 0.5, 2.0)
    assert [feature.name for feature in schema.features] == ["a"]
    assert any("counted over 'years', from 0.5 to 2" in note for note in notes)
    given = {"y": (0.0, 20.0), "years": (0.25, 4.0)}
    label = drafted(tmp_path, [3, 0, 9, 1, 2, 5], "count", "years", given)[0].label
    assert (label.upper, label.exposure_lower, label.exposure_upper) == (20, 0.25, 4.0)


@pytest.mark.parametrize(
    ("cells", "target", "says"),
    [
        (["a", "b", "c"], "number", "no cell is a finite number"),
        (['"1,5"', '"2,5"', '"3,0"'], "number", "it has 3 numbers of 3 with a comma; write them with a decimal point"),
        (["1 mg", "2 mg", "3 mg"], "count", "with the unit 'mg'; write the numbers alone"),
        ([5, 5, 5, ""], "number", "has one value, 5"),
        ([1, 2, -3], "count", "has the number -3, and a count is a whole number"),
        ([1, 2, 2.5], "count", "has numbers with fractions"),
        ([4, 4, 4], "count", "has one value, 4"),
    ],
)
def test_what_is_no_such_label_is_refused(tmp_path, cells, target, says):
    with pytest.raises(ConfigurationError, match=says):
        drafted(tmp_path, cells, target)


def test_an_exposure_of_zero_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "t.csv").write_text("a,y,t\n1,2,0\n3,1,1\n2,4,2\n1,1,3\n")
    with pytest.raises(ConfigurationError, match=r"an exposure is positive: correct the table, or give its bounds"):
        infer(tmp_path / "t.csv", "y", target="count", exposure="t")
    schema, _ = infer(tmp_path / "t.csv", "y", target="count", exposure="t", bounded=("t",))
    assert bounded(schema, {"t": (0.5, 5.0)}).label.exposure_upper == 5.0
    with pytest.raises(SchemaFieldError, match="the lower one first"):
        bounded(schema, {"t": (0.0, 5.0)})


def test_an_exposure_is_of_a_count_alone(tmp_path):
    with pytest.raises(ConfigurationError, match="an exposure is of a count"):
        drafted(tmp_path, [1, 2, 3], "number", "years")
    with pytest.raises(Exception, match="no such column"):
        drafted(tmp_path, [1, 2, 3], "count", "yers")
    with pytest.raises(ConfigurationError, match="has no positive values"):
        infer(tmp_path / "table.csv", "y", ["1"], target="number")
