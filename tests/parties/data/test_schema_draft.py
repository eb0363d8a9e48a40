"""Drafted schemas: what each kind of column becomes, what is left out, and that the draft fits its own file."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, DataError, RadofedError
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema
from parties.data.dataset import check
from parties.data.draft_features import outward
from parties.data.row_guard import advice, refusing_fields
from parties.data.schema_draft import infer
from radofed.simulation.table import inferred_schema


@pytest.fixture
def table(tmp_path):
    def write(**columns):
        path = tmp_path / "data.csv"
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def drafted(path, **options):
    schema, notes = infer(path, name="draft", **options)
    return {feature.column: feature for feature in schema.features}, notes, schema


def real(name, lower, upper, **changes) -> RealFeature:
    """A drafted number: clipped, and its row marked where the cell is missing."""
    fields = {"missing": "zero-vector", "out_of_bounds": "clip", "unreadable": "zero-vector", **changes}
    return RealFeature(name=name, lower=lower, upper=upper, **fields)


#: Rows whose cell in a column of numbers is no finite number.
UNREADABLE = tuple(f"{cell},yes,u,1" for cell in ("abc", "inf", "-inf", "1e400", "NaN", "1_0", "0x10", "n/a", "1;5"))


def test_a_draft_takes_a_record_that_differs_from_all_it_saw(table, tmp_path):
    """Neighbouring tables: a party with either starts, so that no member learns the record from its absence."""
    path = table(x=[1.5, 2.5, 4.0, 9.5] * 5, b=["yes", "no"] * 10, c=["u", "v", "w", "u"] * 5, y=[0, 1, 1, 0] * 5)
    _, _, schema = drafted(path)
    rows = path.read_text().splitlines()
    for replaced in (
        "1e9,yes,u,1",
        ",no,v,0",
        "2,perhaps,u,1",
        "2,yes,other,1",
        "2,yes,,1",
        "2,yes,u,",
        "2,yes,u,7",
        *UNREADABLE,
    ):
        other = tmp_path / "neighbour.csv"
        other.write_text("\n".join([*rows[:-1], replaced]) + "\n", encoding="utf-8")
        assert check(schema, other).rows == 20


def test_a_far_value_does_not_move_the_bounds(table):
    values = [*range(999), 10**9]
    features, _, _ = drafted(table(x=values, y=[0, 1] * 500))
    assert features["x"].upper < 1000
    assert features["x"].out_of_bounds == "clip"


def test_quantiles_of_a_long_column_are_those_of_the_whole(table, monkeypatch):
    monkeypatch.setattr("parties.data.draft_columns._MOST_VALUES", 512)
    # Sorted: the first values alone would bound it far too low.
    features, _, _ = drafted(table(x=sorted(place % 4001 + 0.5 for place in range(12_000)), y=[0, 1] * 6000))
    assert features["x"].lower == pytest.approx(20, abs=12)
    assert features["x"].upper == pytest.approx(3980, abs=12)


@pytest.mark.parametrize(
    ("bounded", "says"),
    [((), "its bounds (0.5 %"), (("age",), "the bounds of 'dose' (0.5 %"), (("age", "dose"), "data: its values and")],
)
def test_the_note_asks_for_bounds_of_the_columns_that_have_none(table, bounded, says):
    path = table(age=[*range(20, 60)], dose=[n / 7 for n in range(40)], y=[0, 1] * 20)
    _, notes = infer(path, bounded=bounded)
    assert says in notes[0]
    assert ("Replace the bounds" in notes[0]) == (len(bounded) < 2)


def test_simulations_use_the_same_draft(table):
    path = table(x=[1.5, 2.5, 4.0, ""] * 5, b=["yes", "no"] * 10, y=[0, 1, 1, 0] * 5)
    _, _, schema = drafted(path, label_column="y", positive=["1"])
    simulated, notes = inferred_schema(path, "y", ["1"])
    assert (simulated.label, simulated.features) == (schema.label, schema.features)
    assert "not private" in notes[0]
    without, _ = inferred_schema(path, "y", ["1"], left_out={"b": "sites"})
    assert [feature.column for feature in without.features] == ["x"]


def test_policies_that_refuse_are_named():
    label = Label(column="y", positive=("1",))
    schema = Schema(
        name="s",
        label=label,
        features=(RealFeature(name="age", lower=0, upper=1), BooleanFeature(name="b", true=("1",), false=("0",))),
    )
    fields = ("label.missing", "features.age.missing", "features.age.out_of_bounds")
    assert refusing_fields(schema) == (*fields, "features.b.missing", "features.b.unknown")
    assert "and 1 more" in advice(schema)


def test_each_kind_of_column(table):
    path = table(
        id=[f"id{place * 7 % 40}" for place in range(40)],
        row=range(40),
        year=[1987 + place % 17 for place in range(40)],
        weight=[50.25 + place / 7 for place in range(40)],
        smoker=["no", "YES"] * 20,
        sex=["f", "m"] * 20,
        flag=[0, 1] * 20,
        job=["clerk", "nurse", "cook", "clerk"] * 10,
        same=["x"] * 40,
        nothing=[""] * 40,
        ill=["0", "1", "1", "0"] * 10,
    )
    features, notes, schema = drafted(path)
    marked = {"missing": "zero-vector", "unknown": "zero-vector"}
    assert features["year"] == real("year", 1987, 2003)
    weight = np.quantile([50.25 + place / 7 for place in range(40)], [0.005, 0.995])
    assert features["weight"] == real("weight", *weight)
    assert features["smoker"] == BooleanFeature(name="smoker", true=("YES",), false=("no",), **marked)
    assert features["sex"] == BooleanFeature(name="sex", true=("m",), false=("f",), **marked)
    assert features["flag"] == BooleanFeature(name="flag", true=("1",), false=("0",), **marked)
    assert features["job"] == CategoryFeature(
        name="job", values=("clerk", "cook", "nurse"), missing="zero-vector", unknown="zero"
    )
    assert refusing_fields(schema) == ()
    assert set(features) == {"year", "weight", "smoker", "sex", "flag", "job"}
    assert (schema.label.column, schema.label.positive, schema.label.negative) == ("ill", ("1",), ("0",))
    said = "\n".join(notes)
    assert "not private" in notes[0]
    assert "Replace the bounds" in notes[0]
    assert "last column, 'ill'" in said
    assert "'sex' has the values 'f' and 'm': 'm' is taken as true" in said
    assert "'flag'" not in said
    for column, reason in {
        "id": "every row has a different text",
        "row": "it counts the rows",
        "same": "it is constant",
        "nothing": "it is empty",
    }.items():
        assert f"{column!r} is left out: {reason}" in said
    assert check(schema, path).zero_vectors == 0
    assert Schema.from_toml(schema.to_toml(notes)) == schema


def test_missing_cells_are_imputed_and_noted(table):
    path = table(
        x=["", 1.5, 2.5, 9.5],
        b=["yes", "yes", "no", ""],
        c=["u", "v", "", "v"],
        d=["p", "q", "r", "p"],
        y=[0, 1, 1, ""],
    )
    features, notes, schema = drafted(path)
    assert (features["x"].missing, features["x"].impute) == ("impute", 2.5)
    assert (features["b"].missing, features["b"].impute) == ("impute", True)
    assert (features["c"].missing, features["c"].impute) == ("impute", True)  # of two texts the greater is the true one
    assert features["d"].missing == "zero-vector"
    assert schema.label.missing == "zero-vector"
    said = "\n".join(notes)
    for column in "xbc":
        assert f"{column!r} has missing cells (1)" in said
    assert "1 row has no label" in said
    report = check(schema, path)
    assert [(change.column, change.choice, change.cells) for change in report.changes] == [
        ("y", "zero-vector", 1),
        ("x", "impute", 1),
        ("b", "impute", 1),
        ("c", "impute", 1),
        ("x", "clip", 2),
    ]
    assert report.zero_vectors == 1


def test_marks_for_missing_numbers_are_noted(table):
    path = table(x=[1, 2, "?", 8], y=[0, 1, 1, 0])
    features, notes, schema = drafted(path)
    low, high = np.quantile([1, 2, 8], [0.005, 0.995])
    assert features["x"] == real("x", low, high, missing="impute", impute=2.0, unreadable="impute")
    assert any("'x' has 3 numbers and '?' (1)" in note for note in notes)
    assert [(change.choice, change.cells) for change in check(schema, path).changes if change.column == "x"][:1] == [
        ("impute", 1)
    ]


def test_the_label_may_be_chosen(table):
    path = table(digit=[0, 1, 2, 3], x=[1, 5, 2, 7], bias=[1, 4, 2, 9])
    features, notes, schema = drafted(path, label_column="digit", positive=["0", "2"])
    assert schema.label.negative == ("1", "3")
    assert set(features) == {"x", "bias"}
    assert schema.coordinates == ("x", "bias_column", "bias")
    assert not any("last column" in note for note in notes)


def test_labels_that_cannot_be_drafted(table):
    path = table(x=[1, 5, 2, 7], digit=[0, 1, 2, 3])
    with pytest.raises(ConfigurationError, match="has 4 different values, not two"):
        drafted(path)
    with pytest.raises(ConfigurationError, match="never has the positive value '7'"):
        drafted(path, positive=["7"])
    with pytest.raises(DataError, match="column 'digits': there is no such column, but there is 'digit'"):
        drafted(path, label_column="digits")


def test_nothing_to_learn_from(table, tmp_path):
    with pytest.raises(ConfigurationError, match="no column besides the label"):
        drafted(table(x=[1, 1], y=[0, 1]))
    (tmp_path / "head.csv").write_text("x,y\n", encoding="utf-8")
    with pytest.raises(DataError, match="a header but no rows"):
        drafted(tmp_path / "head.csv")


def test_free_text_and_unnamed_columns_are_left_out(tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"{place},words {place % 35},{place * place % 11},{place % 2}" for place in range(3000)]
    path.write_text(",text,x,y\n" + "\n".join(rows), encoding="utf-8")
    features, notes, _ = drafted(path)
    assert set(features) == {"x"}
    said = "\n".join(notes)
    assert "'text' is left out: it has over 30 different texts" in said
    assert "Left out, for want of a header: 1 column." in said


def test_a_column_with_infinite_numbers_says_so(table):
    path = table(x=["inf", *(n / 7 for n in range(39))], z=[*range(20, 58), 3, 3], y=[0, 1] * 20)
    features, said, _ = drafted(path)
    assert (
        "'x' is left out: it has 1 infinite number among 40; make them finite, or empty if the value is not known."
        in said
    )
    assert list(features) == ["z"]


def test_many_distinct_texts_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 4096)
    path = tmp_path / "data.csv"
    path.write_text(
        "id,x,y\n" + "".join(f"p{place},{place % 7 / 2},{place % 2}\n" for place in range(3000)), encoding="utf-8"
    )
    features, notes, schema = drafted(path)
    assert features == {"x": real("x", 0.0, 3.0)}
    assert any(note.startswith("'id' is left out") for note in notes)
    assert check(schema, path).rows == 3000


def test_parquet_columns_without_texts_are_left_out(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"list": [[1], [2], [3]], "x": [1.5, 2.5, 4.5], "y": [True, False, True]}), path)
    features, notes, schema = drafted(path)
    assert set(features) == {"x"}
    assert schema.label.positive == ("true",)
    assert any("'list' is left out: the column is of type list" in note for note in notes)
    assert check(schema, path).positive == 2


@given(
    st.tuples(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12)).filter(lambda pair: pair[0] < pair[1]),
)
def test_bounds_are_rounded_outwards_and_not_far(pair):
    lower, upper = outward(*pair)
    assert lower <= pair[0] < pair[1] <= upper
    # One step of two significant digits is at most a tenth of the distance, on either side.
    distance = pair[1] - pair[0]
    assert upper - lower <= 1.2 * distance + 4 * math.ulp(max(map(abs, pair)))


HELD = {"visit": "the ids of rows", "month": "the epochs of rows"}


def test_columns_that_hold_no_feature_are_left_out_with_a_note_and_are_not_the_last(table):
    path = table(visit=[*"abcd"], age=[20, 30, 40, 50], y=[0, 1, 1, 0], month=["2026-10"] * 2 + ["2026-11"] * 2)
    schema, notes = infer(path, left_out=HELD)
    assert ([feature.column for feature in schema.features], schema.label.column) == (["age"], "y")
    said = [f"{column!r} is left out: it holds {what}, and no feature." for column, what in HELD.items()]
    assert [note for note in notes if "left out" in note] == said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"left_out": {"monht": "the epochs of rows"}}, "there is no such column, but there is 'month'"),
        ({"left_out": HELD, "label_column": "month"}, "'month' holds the epochs of rows, so it cannot be the label"),
        ({"left_out": {**HELD, "y": "sites"}}, "every column is left out"),
    ],
)
def test_what_cannot_be_left_out_is_refused(table, options, reason):
    path = table(visit=[*"abcd"], y=[0, 1, 1, 0], month=["2026-10"] * 2 + ["2026-11"] * 2)
    with pytest.raises(RadofedError, match=reason):
        infer(path, **options)
