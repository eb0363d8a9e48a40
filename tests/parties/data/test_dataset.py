"""A party's table as records: every policy does what it declares. test_table_errors.py tests refusals."""

import gzip
import math
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import DataError
from dpcore.records.encoding import CellError, Numbers, Tally, Texts, WantedColumn, encode, encode_stored, store
from dpcore.records.schema import RealFeature, Schema
from parties.data.dataset import check, load
from radobase.tables.tables import open_table, read_rows

TOML = """
schema_version = 1
name = "clinic"
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
missing = "{label}"
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
out_of_bounds = "{bounds}"
{real}
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
{boolean}
[[features]]
name = "job"
type = "category"
values = ["clerk", "nurse"]
{category}
[[features]]
name = "dark"
type = "threshold"
column = "pixel"
threshold = 8.0
{threshold}
"""

HEADER = "age,smoker,job,pixel,ill\n"
GOOD = HEADER + "25,yes,clerk,7.9,yes\n50,no,nurse,8,no\n"
REFUSE = 'missing = "refuse"'
ZERO = 'missing = "zero-vector"'


def schema_with(label="refuse", bounds="refuse", real=REFUSE, boolean=REFUSE, category=REFUSE, threshold=REFUSE):
    text = TOML.format(label=label, bounds=bounds, real=real, boolean=boolean, category=category, threshold=threshold)
    return Schema.from_toml(text)


STRICT = schema_with()


def coordinates(dataset):
    return dataset.records.features / 2.0**30


def test_a_good_file(csv_file):
    dataset = load(csv_file(GOOD), STRICT)
    assert STRICT.coordinates == ("age", "smoker", "job=clerk", "job=nurse", "dark", "bias")
    assert coordinates(dataset).tolist() == [[-0.5, 1, 1, 0, -1, 1], [0, -1, 0, 1, 1, 1]]
    assert dataset.records.labels.tolist() == [1, -1]
    assert dataset.records.usable.all()
    assert dataset.records.features.dtype == np.int32
    assert dataset.records.features.flags.c_contiguous
    report = dataset.report
    assert (report.rows, report.zero_vectors, report.positive, report.negative) == (2, 0, 1, 1)
    assert report.warnings == ()
    assert check(STRICT, csv_file(GOOD)) == report


def test_policies_that_make_zero_vectors(csv_file):
    schema = schema_with("zero-vector", "zero-vector", ZERO, ZERO + '\nunknown = "zero-vector"', ZERO, ZERO)
    rows = [
        "1,yes,clerk,1,yes",
        ",yes,clerk,1,no",
        "500,yes,clerk,1,no",
        "1,,clerk,1,no",
        "1,maybe,clerk,1,no",
        "1,no,,1,no",
        "1,no,nurse,,no",
        "1,no,nurse,1,",
        "1,no,nurse,1,perhaps",
    ]
    dataset = load(csv_file(HEADER + "\n".join(rows)), schema)
    records = dataset.records
    assert records.usable.tolist() == [True] + [False] * 8
    assert not records.features[1:].any()
    assert (records.labels[1:] == 1).all()
    counts = Counter[str]()
    for change in dataset.report.changes:
        assert change.leaves_out
        counts[change.column] += change.cells
    assert counts == {"age": 2, "smoker": 2, "job": 1, "pixel": 1, "ill": 2}
    assert (dataset.report.rows, dataset.report.zero_vectors) == (9, 8)
    assert any("8 of 9 rows (88.9 %)" in warning for warning in dataset.report.warnings)


def test_policies_that_impute_and_clip(csv_file):
    schema = schema_with(
        "refuse",
        "clip",
        'missing = "impute"\nimpute = 75.0',
        'missing = "impute"\nunknown = "impute"\nimpute = true',
        'missing = "impute"\nunknown = "impute"\nimpute = "nurse"',
        'missing = "impute"\nimpute = true',
    )
    dataset = load(csv_file(HEADER + ",,,,yes\n1e6,maybe,cook,1,no\n-7,no,clerk,9,no\n"), schema)
    assert coordinates(dataset).tolist() == [[0.5, 1, 0, 1, 1, 1], [1, 1, 0, 1, -1, 1], [-1, -1, 1, 0, 1, 1]]
    assert dataset.records.usable.all()
    assert dataset.report.tallies == (
        Tally("age", missing=1, beyond=2),
        Tally("smoker", missing=1, unlisted=1),
        Tally("job", missing=1, unlisted=1),
        Tally("dark", missing=1),
        Tally("ill"),
    )
    # What is lost comes before what is clipped, whatever the number.
    unlisted = ("in neither true nor false of the schema", "not among the schema's values")
    assert [sentence.removeprefix("warning: ") for sentence in dataset.report.sentences()[1:]] == [
        f"in column {column!r} {cells} of 3 cells {what}"
        for column, cells, what in (
            ("age", 1, 'is empty, and missing = "impute" replaces it by 75'),
            ("smoker", 1, "is empty, and missing = \"impute\" replaces it by 'yes'"),
            ("smoker", 1, f"is {unlisted[0]}, and unknown = \"impute\" replaces it by 'yes'"),
            ("job", 1, "is empty, and missing = \"impute\" replaces it by 'nurse'"),
            ("job", 1, f"is {unlisted[1]}, and unknown = \"impute\" replaces it by 'nurse'"),
            ("pixel", 1, 'is empty, and missing = "impute" replaces it by a value at the threshold or above'),
            ("age", 2, 'are beyond the schema\'s bounds, and out_of_bounds = "clip" moves them to the nearest bound'),
        )
    ]


def test_an_unknown_category_may_be_all_zero(csv_file):
    schema = schema_with(category='unknown = "zero"')
    dataset = load(csv_file(HEADER + "0,yes,cook,1,yes\n"), schema)
    assert coordinates(dataset).tolist() == [[-1, 1, 0, 0, -1, 1]]
    assert dataset.records.usable.all()


@pytest.mark.parametrize("policy", ["yes", "no"])
def test_a_one_class_party_takes_part_with_a_warning(csv_file, policy):
    dataset = load(csv_file(HEADER + f"1,yes,clerk,1,{policy}\n" * 3), STRICT)
    (warning,) = dataset.report.warnings
    assert f"all 3 usable rows are {'positive' if policy == 'yes' else 'negative'}" in warning


def test_a_party_without_a_usable_row_is_warned(csv_file):
    dataset = load(csv_file(HEADER + ",yes,clerk,1,yes\n"), schema_with(real=ZERO))
    (warning,) = dataset.report.warnings
    assert warning == (
        "no row is usable, every row becomes a zero vector and contributes nothing: in column 'age' the cell is empty, "
        'and missing = "zero-vector" leaves its row out'
    )


@pytest.mark.parametrize(
    ("row", "column", "what", "policy"),
    [
        (",yes,clerk,1,yes", "age", "empty", "missing"),
        ("1;5,yes,clerk,1,yes", "age", "unreadable (no finite number)", "unreadable"),
        ("1,yes,clerk,1e400,yes", "pixel", "unreadable (no finite number)", "unreadable"),
        ("101,yes,clerk,1,yes", "age", "beyond the schema's bounds", "out_of_bounds"),
        ("1,maybe,clerk,1,yes", "smoker", "in neither true nor false of the schema", "unknown"),
        ("1,yes,cook,1,yes", "job", "not among the schema's values", "unknown"),
        ("1,yes,clerk,,yes", "pixel", "empty", "missing"),
        ("1,yes,clerk,1,", "ill", "empty", "label.missing"),
        ("1,yes,clerk,1,so", "ill", "in neither positive nor negative of the schema's label", "label.missing"),
    ],
)
def test_the_column_that_makes_most_zero_vectors_is_named(csv_file, row, column, what, policy):
    unknown = ZERO + '\nunknown = "zero-vector"'
    schema = schema_with("zero-vector", "zero-vector", ZERO, unknown, unknown, ZERO)
    rows = ["1,no,nurse,1,no", row, "1,yes,,1,no", row, row]
    report = load(csv_file(HEADER + "\n".join(rows)), schema).report
    said = f'in column {column!r} 3 of 5 cells are {what}, and {policy} = "zero-vector" leaves their rows out'
    assert report.warnings[1] == f"4 of 5 rows (80.0 %) become zero vectors: {said}"


def test_blanks_byte_order_marks_line_ends_and_compression_change_nothing(csv_file):
    expected = load(csv_file(GOOD), STRICT).records.features
    spaced = GOOD.replace(",", " , ")
    variants = {
        "data.csv": b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode(),
        "data.CSV": spaced,
        "data.csv.gz": gzip.compress(GOOD.encode()),
        "data.tsv": GOOD.replace(",", "\t"),
        "d.csv": HEADER.replace("age", '"age"') + "+25,yes,clerk,+7.9,yes\n50.0,no,nurse,8e0,no\n",
        "e.csv": "\n" + GOOD.replace(",ill", ",ill,").replace(",yes\n", ',yes,"a ""b"", c"\n').replace("no\n", "no,\n"),
    }
    for name, text in variants.items():
        assert np.array_equal(load(csv_file(text, name), STRICT).records.features, expected), name


def test_typed_parquet_columns_encode_as_their_texts(tmp_path):
    schema = Schema.from_toml(
        """schema_version = 1
name = "typed"
[label]
column = "y"
positive = [1]
[[features]]
name = "flag"
type = "boolean"
true = [true]
false = [false]
[[features]]
name = "code"
type = "category"
values = [1, 2.5]
missing = "zero-vector"
[[features]]
name = "x"
type = "real"
lower = -1
upper = 1
missing = "impute"
impute = 0.5
"""
    )
    path = tmp_path / "typed.parquet"
    table = pa.table(
        {
            "unused": [[1], [2], [3]],
            "x": pa.array([1, None, -1], pa.int64()),
            "code": pa.array([1.0, 2.5, None]),
            "flag": [True, False, True],
            "y": pa.array(["1", "0", "1"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    dataset = load(path, schema)
    assert coordinates(dataset).tolist() == [[1, 1, 0, 1, 1], [-1, 0, 1, 0.5, 1], [0, 0, 0, 0, 0]]
    assert dataset.records.labels.tolist() == [1, -1, 1]


def test_one_column_of_features_keeps_its_empty_lines(csv_file):
    schema = Schema.from_toml(
        'schema_version=1\nname="s"\n[label]\ncolumn="y"\npositive=[1]\n[[features]]\nname="x"\ntype="real"\n'
        'lower=0\nupper=2\nmissing="zero-vector"'
    )
    rows = read_rows(csv_file("x\n2\n\n1\n"), schema)
    x, usable = rows.x, rows.usable
    assert x.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert usable.tolist() == [True, False, True]


def test_prediction_encodes_as_a_party_does_and_needs_no_label(csv_file):
    dataset = load(csv_file(GOOD), STRICT)
    unlabelled = "\n".join(line.rsplit(",", 1)[0] for line in GOOD.splitlines())
    rows = read_rows(csv_file(unlabelled), STRICT)
    x, usable = rows.x, rows.usable
    assert np.array_equal(x, coordinates(dataset))
    assert usable.all()


def test_many_blocks_keep_their_order_and_report_progress(csv_file, monkeypatch):
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 256)
    ages = [place % 101 for place in range(500)]
    seen = []
    text = HEADER + "".join(f"{age},yes,clerk,1,{'yes' if age % 2 else 'no'}\n" for age in ages)
    dataset = load(csv_file(text), STRICT, seen.append)
    expected = np.trunc((2.0 * (np.array(ages) / 100.0) - 1.0) * 2.0**30)
    assert np.array_equal(dataset.records.features[:, 0], expected)
    assert np.array_equal(dataset.records.labels, [1 if age % 2 else -1 for age in ages])
    assert len(seen) > 10
    assert seen == sorted(seen)
    assert seen[-1] == 500


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
@pytest.mark.parametrize("slab_rows", [1, 7, 500, 1000])
def test_slabs_do_not_change_the_records_and_need_no_further_memory(csv_file, monkeypatch, name, slab_rows):
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 256)
    monkeypatch.setattr("radobase.tables.parquet_table._BATCH_ROWS", 64)
    monkeypatch.setattr("parties.data.dataset._SLAB_BYTES", slab_rows * 4 * STRICT.d)
    ages = np.arange(500) % 101
    jobs, labels = np.where(ages % 3, "clerk", "nurse"), np.where(ages % 2, "yes", "no")
    if name == "data.csv":
        rows = zip(ages, jobs, labels, strict=True)
        path = csv_file(HEADER + "".join(f"{age},yes,{job},1,{label}\n" for age, job, label in rows), name)
    else:
        path = csv_file(b"", name)
        table = {"age": ages, "smoker": ["yes"] * 500, "job": jobs, "pixel": np.ones(500), "ill": labels}
        pq.write_table(pa.table(table), path, row_group_size=150)
    records = load(path, STRICT).records
    expected = np.trunc((2.0 * (ages / 100.0) - 1.0) * 2.0**30)
    assert np.array_equal(records.features[:, 0], expected)
    assert np.array_equal(records.features[:, 2] != 0, jobs == "clerk")
    assert np.array_equal(records.labels, np.where(ages % 2, 1, -1))
    assert records.usable.all()
    for array, width in ((records.features, 4 * STRICT.d), (records.labels, 1), (records.usable, 1)):
        held = array if array.base is None else array.base
        assert held.nbytes == 500 * width


@pytest.mark.variants(2)
@pytest.mark.parametrize("claimed", [-(1 << 63), -1, 0, 1, 2, 3, 1000])
def test_how_many_rows_a_file_says_it_has_is_not_relied_on(tmp_path, monkeypatch, claimed):
    path = tmp_path / "data.parquet"
    table = {"age": [25.0, 50.0], "smoker": ["yes", "no"], "job": ["clerk"] * 2, "pixel": [1, 9], "ill": ["yes", "no"]}
    pq.write_table(pa.table(table), path)
    true = load(path, STRICT).records
    opened = open_table(path)
    assert opened.rows == 2
    opened.rows = claimed
    monkeypatch.setattr("parties.data.dataset.open_table", lambda _: opened)
    assert load(path, STRICT).records.digest == true.digest


@pytest.mark.parametrize("claimed", [1 << 50, (1 << 63) - 1])
def test_more_rows_than_memory_is_an_error_that_says_so(tmp_path, monkeypatch, claimed):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({name: ["1"] for name in HEADER.strip().split(",")}), path)
    opened = open_table(path)
    opened.rows = claimed
    monkeypatch.setattr("parties.data.dataset.open_table", lambda _: opened)
    with pytest.raises(DataError, match="more rows than fit into memory"):
        load(path, STRICT)


@st.composite
def policies_and_cells(draw):
    """A schema with any policies, and cells that meet all of them."""

    odd, lenient = draw(st.booleans()), draw(st.booleans())  # whether anything is out of the way, and whether it may be

    def policy(*others):
        return draw(st.sampled_from(others if lenient else ("refuse", *others)))

    parts = {}
    for name, impute in (("real", "75.0"), ("boolean", "true"), ("category", '"nurse"'), ("threshold", "true")):
        policies = {"missing": policy("impute", "zero-vector")}
        if name in ("boolean", "category"):
            policies["unknown"] = policy("impute", "zero-vector", *(["zero"] if name == "category" else []))
        lines = [f'{key} = "{value}"' for key, value in policies.items()]
        parts[name] = "\n".join([*lines, *([f"impute = {impute}"] if "impute" in policies.values() else [])])
    schema = schema_with(policy("zero-vector"), policy("clip", "zero-vector"), **parts)
    m = draw(st.integers(1, 12))
    number = st.floats(-500, 500) | st.just(500.0 if lenient else math.nan) if odd else st.floats(0, 100)

    def numbers():
        missing = draw(st.lists(st.booleans() if odd else st.just(value=False), min_size=m, max_size=m))
        return Numbers(np.array(draw(st.lists(number, min_size=m, max_size=m))), np.array(missing))

    def texts(*known):
        codes = st.lists(st.integers(-1, 2) if odd else st.integers(0, 1), min_size=m, max_size=m)
        return Texts(np.array(draw(codes)), (*known, "cook"))

    return (
        schema,
        m,
        {
            WantedColumn("age", "numbers"): numbers(),
            WantedColumn("smoker", "texts"): texts("yes", "no"),
            WantedColumn("job", "texts"): texts("clerk", "nurse"),
            WantedColumn("pixel", "numbers"): numbers(),
            WantedColumn("ill", "texts"): texts("yes", "no"),
        },
    )


@given(policies_and_cells())
def test_rows_are_stored_as_they_are_encoded(case):
    schema, m, cells = case
    try:
        rows = encode(schema, cells, m, label=True)
    except CellError as error:
        with pytest.raises(CellError, match=re.escape(str(error))):
            encode_stored(schema, cells, m)
        return
    stored = encode_stored(schema, cells, m)
    assert stored.features.dtype == np.int32
    assert np.array_equal(stored.features, store(rows.x))
    assert np.array_equal(stored.labels, rows.labels)
    assert np.array_equal(stored.usable, rows.usable)
    assert stored.tallies == rows.tallies
    assert not stored.features[~stored.usable].any()


@given(
    st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda pair: pair[0] < pair[1]),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
)
def test_encoded_reals_are_within_one_and_monotone(bounds, values):
    feature = RealFeature(name="x", lower=bounds[0], upper=bounds[1], out_of_bounds="clip")
    schema = Schema(name="s", label=STRICT.label, features=(feature,))
    ordered = np.sort(np.array([*values, *bounds]))
    cells = Numbers(ordered, np.zeros(len(ordered), dtype=np.bool_))
    x = encode(schema, {WantedColumn("x", "numbers"): cells}, len(ordered), label=False).x[:, 0]
    assert (np.abs(x) <= 1).all()
    assert (np.diff(x) >= 0).all()
    assert x[np.searchsorted(ordered, bounds[0])] == -1
    assert x[np.searchsorted(ordered, bounds[1])] == 1


@given(st.lists(st.sampled_from([-1, 0, 1, 2]), min_size=1, max_size=20))
def test_one_hot_rows_have_at_most_one_indicator(codes):
    schema = schema_with(category='missing = "zero-vector"\nunknown = "zero"')
    m = len(codes)
    numbers = Numbers(np.ones(m), np.zeros(m, dtype=np.bool_))
    yes = Texts(np.zeros(m, dtype=np.int64), ("yes",))
    jobs = Texts(np.array(codes), ("clerk", "nurse", "cook"))
    cells = {
        WantedColumn("age", "numbers"): numbers,
        WantedColumn("pixel", "numbers"): numbers,
        WantedColumn("smoker", "texts"): yes,
        WantedColumn("job", "texts"): jobs,
    }
    rows = encode(schema, cells, m, label=False)
    assert rows.x[:, 2:4].sum(axis=1).tolist() == [1.0 if code in (0, 1) else 0.0 for code in codes]
    assert rows.usable.tolist() == [code >= 0 for code in codes]
    assert rows.labels is None
