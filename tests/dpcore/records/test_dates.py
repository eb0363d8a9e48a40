"""Columns of dates: what a schema states, which cells are days, and what a day is encoded as."""

import calendar
import datetime as dt
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SchemaError
from dpcore.records.encoding import CellError, Texts, encode, encode_stored, source_of, store
from dpcore.records.features import DateFeature, Day, Label, RealFeature, SchemaFieldError
from dpcore.records.features.date import MONTHS, PARTS, WEEKDAYS, Days, day_of, written_form
from dpcore.records.schema import Schema

LABEL = Label(column="y", positive=("1",))
days = st.dates()


def stay(**options):
    return DateFeature(**{"name": "admitted", "first": "2019-01-01", "last": "2024-12-31", **options})


def schema_of(*features, **options):
    return Schema(name="s", label=LABEL, features=features, **options)


def encoded(feature, *texts):
    """The encoded rows of these cells; an empty text is a missing cell."""
    distinct = tuple(dict.fromkeys(text for text in texts if text))
    places = {text: place for place, text in enumerate(distinct)}
    codes = np.array([places.get(text, -1) for text in texts])
    return encode(schema_of(feature, bias=False), {source_of(feature): Texts(codes, distinct)}, len(texts), label=False)


TOML = """\
schema_version = 3
name = "s"
texts = []

[label]
column = "y"
positive = ["1"]

[[features]]
name = "admitted"
type = "date"
first = 2019-01-01
last = "2024-12-31"
parts = ["weekday", "year"]
missing = "impute"
impute = 2020-02-29
"""


def test_a_schema_of_dates_is_written_and_read_as_others_are():
    schema = Schema.from_toml(TOML)
    (feature,) = schema.features
    assert feature == stay(parts=("year", "weekday"), missing="impute", impute="2020-02-29", since="2019-01-01")
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_canonical(schema.canonical_bytes()) == schema
    assert schema.version == 3
    assert schema.coordinates == (
        "admitted",
        *(f"admitted.year={year}" for year in range(2019, 2025)),
        *(f"admitted.weekday={name}" for name in WEEKDAYS),
        "bias",
    )


def test_the_canonical_form_and_the_digest_of_dates():
    """As docs/reference/schema.md has them for other languages."""
    schema = Schema.from_toml(TOML)
    assert schema.canonical_bytes() == (
        b'{"bias":true,"features":[{"column":"admitted","first":"2019-01-01","impute":"2020-02-29",'
        b'"last":"2024-12-31","missing":"impute","name":"admitted","out_of_bounds":"refuse","parts":["year","weekday"],'
        b'"since":"2019-01-01","type":"date"}],"label":{"column":"y","missing":"refuse","negative":null,'
        b'"positive":["1"]},"name":"s","schema_version":3}'
    )
    assert schema.digest.hex() == "3c7a4b2eb884e5888d49d216a60e3e5964aba362e0a1d1fd1af66b84e4754c9f"
    # The order in which parts are listed is not theirs, and everything else counts.
    assert Schema.from_toml(TOML.replace('["weekday", "year"]', '["year", "weekday"]')).digest == schema.digest
    for old, new in (("2019-01-01", "2019-01-02"), ('"year"', '"month"'), ("2020-02-29", "2020-02-28")):
        assert Schema.from_toml(TOML.replace(old, new)).digest != schema.digest
    assert schema_of(stay(since="1970-01-01")).digest != schema_of(stay()).digest


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("schema_version = 3", "schema_version = 2", "features.admitted.type", "needs schema_version = 3"),
        ("first = 2019-01-01", "first = 2025-01-01", "features.admitted.first", "is not before last = 2024-12-31"),
        ("first = 2019-01-01", 'first = "1.1.2019"', "features.admitted.first", "'1.1.2019' is no date"),
        ("first = 2019-01-01", 'first = "2019-02-29"', "features.admitted.first", "'2019-02-29' is no date"),
        ("first = 2019-01-01", "first = 2019-01-01T00:00:00", "features.admitted.first", "is no date"),
        ("first = 2019-01-01", "first = 20190101", "features.admitted.first", "20190101 is no date"),
        ("first = 2019-01-01", "first = 1500-01-01", "features.admitted.parts", "at most 100; bring first and last"),
        ('"weekday"', '"week"', "features.admitted.parts", "did you mean 'weekday'?"),
        ('"weekday"', '"year"', "features.admitted.parts", "in the list twice"),
        ('["weekday", "year"]', '"year"', "features.admitted.parts", "is not a list"),
        ("2020-02-29", "2025-02-28", "features.admitted.impute", "outside the bounds"),
        ('missing = "impute"\n', "", "features.admitted.impute", "no policy"),
        ("impute = 2020-02-29", "sense = 1", "features.admitted.sense", "did you mean 'since'?"),
    ],
)
def test_a_schema_of_dates_that_contradicts_itself_is_refused(old, new, field, says):
    assert old in TOML
    with pytest.raises(SchemaFieldError, match=says) as refused:
        Schema.from_toml(TOML.replace(old, new))
    assert refused.value.field == field


def test_no_feature_is_called_as_a_part_is():
    other = RealFeature(name="admitted.month", lower=0, upper=1)
    with pytest.raises(SchemaError, match=r"admitted\.month\.name: is also what a part of feature 'admitted'"):
        schema_of(stay(parts=("month",)), other)
    schema_of(stay(), other)


@given(days)
def test_every_day_is_encoded_between_the_bounds_with_its_own_parts(day):
    feature = stay(first="0001-01-01", last="9999-12-31", parts=("month", "weekday"))
    (row,) = encoded(feature, day.isoformat()).x
    span = dt.date.max.toordinal() - 1
    assert row[0] == 2.0 * ((day.toordinal() - 1) / span) - 1.0
    assert row[1:13].tolist() == [float(name == calendar.month_name[day.month]) for name in MONTHS]
    assert row[13:].tolist() == [float(name == calendar.day_name[day.weekday()]) for name in WEEKDAYS]
    assert feature.days.written(feature.days.lower + (day.toordinal() - 1)) == day.isoformat()


@pytest.mark.more
def test_every_day_of_a_century_has_its_year_month_and_weekday_and_one_of_each():
    first, last = dt.date(1925, 1, 1), dt.date(2024, 12, 31)
    feature = stay(first=str(first), last=str(last), parts=PARTS)
    every = [dt.date.fromordinal(at) for at in range(first.toordinal(), last.toordinal() + 1)]
    x = encoded(feature, *map(str, every)).x
    years, months, weekdays = x[:, 1:101], x[:, 101:113], x[:, 113:]
    assert (x[0, 0], x[-1, 0]) == (-1.0, 1.0)
    assert (np.diff(x[:, 0]) > 0).all()
    assert years.argmax(axis=1).tolist() == [day.year - 1925 for day in every]
    assert months.argmax(axis=1).tolist() == [day.month - 1 for day in every]
    assert weekdays.argmax(axis=1).tolist() == [day.weekday() for day in every]
    for part in (years, months, weekdays):
        assert (part.sum(axis=1) == 1.0).all()
        assert set(np.unique(part)) == {0.0, 1.0}


def test_no_coordinate_depends_on_the_day_from_which_days_are_counted():
    texts = ("2019-01-01", "2020-02-29", "2024-12-31")
    found = [encoded(stay(parts=PARTS, since=since), *texts).x for since in ("2019-01-01", "1900-05-05", "2100-01-01")]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_parties_store_what_encoding_gives():
    feature, texts = stay(parts=PARTS), ("2019-01-01", "2021-11-05", "2024-12-31")
    schema, cells = schema_of(feature), Texts(np.arange(3), texts)
    label = Texts(np.zeros(3, dtype=np.int64), ("1",))
    kept = encode_stored(schema, {source_of(feature): cells, ("y", "texts"): label}, 3)
    assert (kept.features == store(encode(schema, {source_of(feature): cells}, 3, label=False).x)).all()


@pytest.mark.parametrize(
    "text",
    ["2024-02-29", "2024-02-29 00:00:00", "2024-02-29T23:59", "2024-02-29t07:08:09.123456789", "2024-02-29 13:00:00.5"],
)
def test_a_cell_is_a_day_or_a_time_of_it(text):
    assert str(day_of(text)) == "2024-02-29"


NO_DAYS = [
    "-024-02-29",
    *("29.02.2024", "02/29/2024", "29/02/24", "20240229", "2024-2-29", "24-02-29", "2024/02/29", "29 Feb 2024"),
    *("2024-02-30", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "0000-01-01", "2024-060", "2024-W09-4"),
    *(
        "2024-02-29Z",
        "2024-02-29T10:00Z",
        "2024-02-29 10:00:00+00:00",
        "2024-02-29 24:00",
        "2024-02-29 10",
        "-024-02-29",
    ),
    *(
        "2024-02-29 10:60",
        "2024-02-29  10:00",
        "+2024-02-29",
        "12024-02-29",
        "\uff12024-02-29",
        "2024-02",
        "2024",
        "NaT",
        "0",
    ),
]


@pytest.mark.parametrize("text", NO_DAYS)
def test_what_is_written_otherwise_is_no_day(text):
    assert day_of(text) is None


@given(st.text(max_size=40) | days.map(str) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", fullmatch=True))
def test_a_day_is_what_python_s_calendar_says(text):
    found = Day.of(text)
    try:
        expected = dt.date.fromisoformat(text) if len(text) == 10 and text[4] == "-" == text[7] else None
    except ValueError:
        expected = None
    if expected is not None and not (text.isascii() and text.replace("-", "").isdigit()):
        expected = None
    assert (found is None) == (expected is None)
    if found is not None:
        assert str(found) == text
        assert found.number == expected.toordinal() - dt.date(1970, 1, 1).toordinal()


def test_cells_that_are_no_dates_are_counted_and_named_by_form_but_never_quoted():
    with pytest.raises(CellError) as refused:
        encoded(stay(), "2020-01-01", "29.02.2024", "01.03.2024", "Müller", "2024-02-30", "1/2/24", "")
    # The empty cell comes first: its policy is another.
    assert "the cell is empty" in str(refused.value)
    with pytest.raises(CellError) as refused:
        encoded(stay(), "2020-01-01", "29.02.2024", "01.03.2024", "Müller", "2024-02-30", "1/2/24")
    assert refused.value.row == 1
    assert "by form: 99.99.9999 (2), aaaaaa (1), 9999-99-99 (1) and 1 other forms" in str(refused.value)
    for cell in ("29.02", "ller", "02-30"):
        assert cell not in str(refused.value)
    assert written_form("x" * 99) == "a" * 20 + "..."


def test_policies_of_dates():
    feature = stay(
        parts=("month",), missing="zero-vector", unreadable="impute", impute="2020-02-29", out_of_bounds="clip"
    )
    rows = encoded(feature, "", "1.2.2020", "2018-07-01", "2025-07-01", "2020-02-29")
    assert rows.usable.tolist() == [False, True, True, True, True]
    (tally,) = rows.tallies
    assert (tally.missing, tally.unreadable, tally.beyond) == (1, 1, 2)
    assert (rows.x[0] == 0).all()
    assert (rows.x[1] == rows.x[4]).all()
    # A date that is clipped counts as the bound, also in its month.
    assert (rows.x[2, 0], rows.x[2, 1 + MONTHS.index("January")]) == (-1.0, 1.0)
    assert (rows.x[3, 0], rows.x[3, 1 + MONTHS.index("December")]) == (1.0, 1.0)
    with pytest.raises(CellError, match="is above the schema's upper bound 2024-12-31"):
        encoded(stay(), "2025-01-01")
    with pytest.raises(CellError, match="is below the schema's lower bound 2019-01-01"):
        encoded(stay(), "2018-12-31")


def test_a_value_between_days_is_written_as_the_day_that_compares_alike():
    days = stay().days
    assert [days.written(value) for value in (0.0, 1.0, 1.25, 1.9999, 2.0000001)] == [
        "2019-01-01",
        "2019-01-02",
        "2019-01-03",
        "2019-01-03",
        "2019-01-03",
    ]
    assert days.in_json(1.5) == "2019-01-03"
    assert days.written(3e6) == "3000000 days after 2019-01-01"


@given(days, days, st.integers(1, 1 << 20))
def test_bounds_of_predicates_and_days_after_the_stated_one_are_the_same(since, day, parts):
    group = Days(name="d", lower=0, upper=1, since=Day.of(str(since)))
    bound = Day.of(str(day))
    assert group.bound(group.number(bound)) == bound
    fraction = group.number(bound) + Fraction(1, parts + 1)
    assert group.number(group.bound(fraction)) == fraction
    assert not isinstance(group.bound(fraction), Day)


def test_a_bound_that_is_no_day_is_refused():
    group = stay().days
    with pytest.raises(TypeError, match="compared with dates"):
        group.number(Fraction(3))
    for number in (Fraction(1 << 40), Fraction(10**7), Fraction(1, 1 << 40)):
        with pytest.raises(ValueError, match="no date"):
            group.bound(number)
    assert math.isfinite(group.value("2020-01-01"))
    for limit in (3.0, "1.1.2020"):
        with pytest.raises(TypeError, match="is no date"):
            group.value(limit)


def test_given_bounds_move_an_imputed_date_within_them():
    feature = stay(missing="impute", impute="2020-02-29")
    assert feature.with_bounds("2021-01-01", "2021-12-31").impute == "2021-01-01"
    assert feature.with_bounds("2019-01-01", "2019-12-31").impute == "2019-12-31"
    assert feature.with_bounds("2010-01-01", "2030-12-31") == stay(
        first="2010-01-01", last="2030-12-31", missing="impute", impute="2020-02-29"
    )
    with pytest.raises(TypeError, match="is no date"):
        feature.with_bounds(0.0, 1.0)
