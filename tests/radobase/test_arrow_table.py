"""Tables in memory: Arrow tables, and data frames through Arrow's protocols."""

import csv
import datetime as dt
import decimal
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import radofed
from dpcore.errors import ConfigurationError, DataError
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.features import BooleanFeature, CategoryFeature, Label
from dpcore.records.schema import Schema
from learner.model import Model
from learner.predictions import error_rate, predict
from parties.data.dataset import load
from parties.data.schema_draft import infer
from radobase.tables.arrow_table import ArrowTable
from radobase.tables.tables import open_table
from tests.federation.material import STAYS
from tests.radofed.simulation_world import made_up, simulate

COLUMNS = {"age": [41.0, 20.5, None], "smoker": ["yes", "no", "no"], "stayed": ["no", "yes", "no"]}
TABLE = pa.table(COLUMNS)


class StreamedFrame:
    """A data frame of a library that has the Arrow PyCapsule interface only."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class InterchangedFrame:
    """A data frame of a library that has the interchange protocol only."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self._table.__dataframe__(nan_as_null, allow_copy)


class OddFrame:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise pa.ArrowInvalid("could not convert 'the patient' to double")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("frames") / "rows.csv")


@pytest.fixture(scope="module")
def frame(file):
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    numbers = ("x0", "x1", "x2", "same")
    return pa.table({name: [float(r[name]) if name in numbers else r[name] for r in rows] for name in rows[0]})


KINDS = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "stream": StreamedFrame,
    "interchange": InterchangedFrame,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_of_a_frame_gives_the_figures_of_its_file(file, frame, kind):
    options = {"label": "y", "positive": "in", "design": "moments", "epsilon": 5, "folds": 2, "parties": 3}
    found = simulate(KINDS[kind](frame), **options)
    wanted = simulate(file, **options)
    assert [row.test_error for row in found.rows] == [row.test_error for row in wanted.rows]


def test_a_federation_takes_frames(frame):
    federation = radofed.simulated_federation(StreamedFrame(frame), label="y", positive="in", parties=3)
    found = federation.statistic([radofed.x["member"]], epsilon=Fraction(5))
    members = np.mean([cell == "yes" for cell in frame["member"].to_pylist()])
    assert abs(found.values[0] - members) <= found.noise
    assert federation.schema.name == "records"
    by_column = radofed.simulated_federation(frame, label="y", positive="in", parties=3, partition="by-column:site")
    assert by_column.source.rows == frame.num_rows


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_predicts_and_is_measured_on_a_frame_as_on_its_file(file, frame, kind):
    schema = radofed.simulated_federation(file, label="y", positive="in", parties=3).schema
    statement = PrivacyStatement("one record", "none", None, None, None, None, (), ())
    theta = np.linspace(-1.0, 1.0, schema.d)
    model = Model(theta, schema, "newton", bytes(32), statement)
    found, wanted = predict(model, KINDS[kind](frame)), predict(model, file)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    assert error_rate(model, KINDS[kind](frame)) == error_rate(model, file)
    # Predictions need no labels; a measurement says which column is missing.
    unlabelled = KINDS[kind](frame.drop_columns("y"))
    np.testing.assert_array_equal(predict(model, unlabelled).labels, wanted.labels)
    with pytest.raises(DataError, match=r"column 'y'.*no such column"):
        error_rate(model, KINDS[kind](frame.drop_columns("y")))


# What libraries of data frames hand over: texts of polars are views, and categories are codes of them.
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    *(pa.dictionary(codes, texts) for codes in (pa.int8(), pa.uint32()) for texts in (pa.string(), pa.string_view())),
]


def cells(values, kind):
    """An Arrow column of texts; casts to codes of views do not exist."""
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    known = sorted({value for value in values if value is not None})
    codes = pa.array([None if value is None else known.index(value) for value in values], kind.index_type)
    return pa.DictionaryArray.from_arrays(codes, pa.array(known, kind.value_type))


@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_texts_of_every_kind_are_the_same_rows(kind):
    wanted = load(ArrowTable.of(TABLE), STAYS).records
    texts = {name: [None if value is None else str(value) for value in values] for name, values in COLUMNS.items()}
    table = pa.table({name: cells(values, kind) for name, values in texts.items()})
    found = load(ArrowTable.of(StreamedFrame(table)), STAYS).records
    np.testing.assert_array_equal(found.features, wanted.features)
    np.testing.assert_array_equal(found.labels, wanted.labels)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)], ids=str)
def test_bytes_are_no_texts(kind):
    table = TABLE.set_column(1, "smoker", pa.array([b"no"] * 3).cast(kind))
    with pytest.raises(DataError, match="has no texts; convert it"):
        load(ArrowTable.of(StreamedFrame(table)), STAYS)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(9, 2)], ids=str)
def test_numbers_of_every_kind_are_the_same_rows(kind):
    ages = pa.array([41, 20, None]).cast(pa.decimal128(38, 2) if pa.types.is_decimal(kind) else kind).cast(kind)
    wanted = load(ArrowTable.of(TABLE.set_column(0, "age", pa.array([41.0, 20.0, None]))), STAYS).records
    found = load(ArrowTable.of(StreamedFrame(TABLE.set_column(0, "age", ages))), STAYS).records
    np.testing.assert_array_equal(found.features, wanted.features)


def extended(kind, values):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def test_extension_types_that_store_texts_numbers_or_booleans_are_read_as_these():
    wanted = load(ArrowTable.of(TABLE), STAYS).records
    ages = extended(pa.opaque(pa.float64(), "age", "hospital"), COLUMNS["age"])
    smokers = extended(pa.json_(pa.string()), COLUMNS["smoker"])
    table = pa.table({"age": ages, "smoker": smokers, "stayed": COLUMNS["stayed"]})
    np.testing.assert_array_equal(load(ArrowTable.of(table), STAYS).records.features, wanted.features)
    flags = pa.table(dict.fromkeys(FLAGS.column_names, extended(pa.bool8(), [1, 0, 7])))
    schema = flagged(("True",), ("False",), ("True", "False"))
    assert load(ArrowTable.of(flags), schema).records.labels.tolist() == [1, -1, 1]


def test_extension_types_that_store_something_else_are_refused_if_they_are_needed():
    ids = extended(pa.uuid(), [bytes([row]) * 16 for row in range(3)])
    said = "is of type extension<arrow.uuid>, which is neither text nor number; convert it"
    for place, column in enumerate(("age", "smoker")):
        with pytest.raises(DataError, match=f"the table, column '{column}': the column {said}"):
            load(ArrowTable.of(TABLE.set_column(place, column, ids)), STAYS)
    _, notes = infer(ArrowTable.of(TABLE.append_column("id", ids)), "stayed", ["yes"])
    assert f"'id' is left out: the column {said}." in notes


def test_periods_and_intervals_of_pandas_end_nothing():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    frame["month"] = pandas.PeriodIndex(["2026-01", "2026-03", "2026-09"], freq="M")
    frame["group"] = pandas.cut([1, 2, 3], 2)
    schema, notes = infer(ArrowTable.of(frame), "stayed", ["yes"])
    assert [feature.column for feature in schema.features] == ["age", "smoker"]
    assert [note for note in notes if "'group' is left out" in note and note.endswith("convert it.")]
    # Its cells are months to people, and a column of whole numbers to whoever reads what is stored.
    assert [note for note in notes if "'month' is left out" in note and "of periods; make them dates" in note]


def test_small_decimals_have_texts():
    small = TABLE.append_column("share", pa.array([decimal.Decimal("1.5"), None, None]).cast(pa.decimal32(3, 1)))
    assert infer(ArrowTable.of(small), "stayed", ["yes"])[0].features


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_nan_is_missing(kind):
    wanted = load(ArrowTable.of(TABLE), STAYS).records
    nan = TABLE.set_column(0, "age", pa.array(np.array([41.0, 20.5, np.nan], kind.to_pandas_dtype())))
    for table in (nan, StreamedFrame(nan)):
        np.testing.assert_array_equal(load(ArrowTable.of(table), STAYS).records.features, wanted.features)
    numbers = pa.table({name: pa.array([1.0, 0.0, math.nan], kind) for name in FLAGS.column_names})
    coded = Schema(
        name="coded",
        label=Label(column="ill", positive=("1",), negative=("0",), missing="zero-vector"),
        features=(BooleanFeature(name="flag", true=("1",), false=("0",), missing="zero-vector"),),
    )
    assert load(ArrowTable.of(numbers), coded).records.usable.tolist() == [True, True, False]


def test_nulls_are_missing_and_columns_keep_their_types():
    found = load(ArrowTable.of(TABLE), STAYS)
    assert found.report.rows == 3
    assert load(ArrowTable.of(TABLE.slice(0, 2)), STAYS).report.zero_vectors == 0


def flagged(true, false, values):
    """A schema with a flag, a category of `values` and a label, of which the first two drop rows that do not fit."""
    drops = {"missing": "zero-vector", "unknown": "zero-vector"}
    return Schema(
        name="flags",
        label=Label(column="ill", positive=("True",), negative=("False",)),
        features=(
            BooleanFeature(name="flag", true=true, false=false, **drops),
            CategoryFeature(name="kind", values=values, **drops),
        ),
    )


FLAGS = pa.table(dict.fromkeys(("flag", "kind", "ill"), pa.array([True, False, True])))


@pytest.mark.parametrize("coded", [False, True])
def test_booleans_match_texts_in_any_case(tmp_path, coded):
    schema = flagged(("True",), ("FALSE", "no"), ("False", "True", "yes"))
    columns = [FLAGS["flag"].combine_chunks()] * 3
    if coded:
        codes = pa.array([1, 0, 1])
        columns = [pa.DictionaryArray.from_arrays(codes, pa.array([False, True]))] * 2 + columns[:1]
    table = pa.table(columns, names=FLAGS.column_names)
    found = load(ArrowTable.of(table), schema)
    assert (found.records.features / 2.0**30).tolist() == [[1, 0, 1, 0, 1], [-1, 1, 0, 0, 1], [1, 0, 1, 0, 1]]
    assert found.records.labels.tolist() == [1, -1, 1]
    parquet = tmp_path / "flags.parquet"
    pq.write_table(FLAGS, parquet)
    np.testing.assert_array_equal(load(parquet, schema).records.features, found.records.features)


def test_booleans_match_their_own_text_first_and_no_text_in_doubt():
    wanted = flagged(("True", "true"), ("TRUE", "false"), ("true", "TRUE", "False"))
    assert load(ArrowTable.of(FLAGS), wanted).records.features[:, 1:3].any(axis=1).tolist() == [True, False, True]
    doubtful = flagged(("True",), ("TRUE",), ("True", "TRUE"))
    assert not load(ArrowTable.of(FLAGS), doubtful).records.usable.any()


def test_texts_match_in_their_own_case():
    texts = FLAGS.set_column(0, "flag", pa.array(["true", "True", "TRUE"]))
    assert load(ArrowTable.of(texts), flagged(("True",), ("no",), ("True", "False"))).records.usable.tolist() == [
        False,
        True,
        False,
    ]


def test_an_index_of_pandas_is_no_column():
    names = {"index_columns": ["patient", {"kind": "range", "name": None}], "columns": []}
    indexed = TABLE.append_column("patient", pa.array([7, 8, 9])).append_column(
        "__index_level_0__", pa.array([2, 0, 1])
    )
    indexed = indexed.replace_schema_metadata({"pandas": json.dumps(names)})
    assert ArrowTable.of(indexed).columns == ("age", "smoker", "stayed")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS).sample(frac=1, random_state=1)
    assert ArrowTable.of(frame).columns == ("age", "smoker", "stayed")


def test_a_frame_of_polars_is_a_table():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(COLUMNS)
    assert load(ArrowTable.of(frame), STAYS).report.rows == 3
    coded = frame.with_columns(polars.col("smoker").cast(polars.Categorical))
    assert load(ArrowTable.of(coded), STAYS).report.rows == 3


def test_a_frame_of_pandas_is_a_table():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    assert load(ArrowTable.of(frame), STAYS).report.rows == 3
    assert load(ArrowTable.of(frame.astype({"smoker": "category"})), STAYS).report.rows == 3


@pytest.mark.parametrize("data", [None, 7, {"age": [1]}, [[1, 2]], np.zeros((2, 2))])
def test_what_is_no_table_says_what_is(data):
    with pytest.raises(ConfigurationError, match=r"give a file's path, an Arrow table, or a data frame"):
        simulate(data)


def test_a_frame_that_cannot_be_converted_quotes_no_cell():
    with pytest.raises(ConfigurationError, match="cannot be converted") as refused:
        ArrowTable.of(OddFrame())
    assert "the patient" not in str(refused.value)


def test_a_frame_that_cannot_be_converted_says_which_column_is_at_fault():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    for name, cells in {
        "mixed": ["the patient", 2, 3.5],
        "complex": [1j, 2j, 3j],
    }.items():
        with pytest.raises(ConfigurationError, match=f"column '{name}' of a DataFrame .*give all its cells") as refused:
            ArrowTable.of(frame.assign(**{name: cells, "other": cells}))
        assert "the patient" not in str(refused.value)
    sparse = frame.assign(sparse=pandas.arrays.SparseArray([1.0, 0.0, 0.0]))
    with pytest.raises(ConfigurationError, match="column 'sparse' of a DataFrame is sparse: make it dense"):
        ArrowTable.of(sparse)
    twice = pandas.concat([frame, frame[["smoker"]]], axis=1)
    with pytest.raises(ConfigurationError, match="columns 2 and 4 have the same header; rename one"):
        ArrowTable.of(twice)


@pytest.mark.parametrize("columns", [["age", "smoker"], {"age": 1}.keys, None])
def test_an_object_from_which_no_column_can_be_selected_blames_none(columns):
    odd = OddFrame()
    odd.columns = columns
    with pytest.raises(ConfigurationError, match="give each column a single type") as refused:
        ArrowTable.of(odd)
    assert "smoker" not in str(refused.value)


def test_errors_name_the_row_of_the_table():
    older = TABLE.set_column(0, "age", pa.array([41.0, 20.5, 7e9]))
    with pytest.raises(DataError, match=r"the table, row 3, column 'age'"):
        load(ArrowTable.of(older), STAYS)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match="columns 1 and 2 have the same header"):
        open_table(ArrowTable.of(twice))
    with pytest.raises(DataError, match="at least one row"):
        load(ArrowTable.of(TABLE.slice(0, 0)), STAYS)
    with pytest.raises(
        DataError, match=r"column 'age': there is no such column; check the names of the table's columns"
    ):
        load(ArrowTable.of(TABLE.drop_columns("age")), STAYS)
    nested = TABLE.set_column(0, "age", pa.array([[1.0]] * 3))
    with pytest.raises(DataError, match="convert it"):
        load(ArrowTable.of(nested), STAYS)
    days = TABLE.set_column(0, "age", pa.array([dt.date(2026, 1, 1)] * 3))
    with pytest.raises(DataError, match="not a number; convert it"):
        load(ArrowTable.of(days), STAYS)
    broken = pa.array([b"\x9f"] * 3).view(pa.string())
    with pytest.raises(DataError, match="holds a text that is not UTF-8"):
        load(ArrowTable.of(TABLE.set_column(1, "smoker", broken)), STAYS)
