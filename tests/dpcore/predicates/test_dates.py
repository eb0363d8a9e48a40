"""Predicates of dates: written with dates, compared as stored, told apart, and sent as numbers of days."""

import datetime as dt
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.predicates.expressions import Above, Affine, AtLeast, Equals, NonNegative, Not, PredicateError
from dpcore.predicates.frontend import x
from dpcore.predicates.notation import parse, to_text
from dpcore.predicates.ranges import in_words, range_of, readable
from dpcore.records.encoding import Texts, encode_stored, source_of
from dpcore.records.features import DateFeature, Day, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

SCHEMA = Schema(
    name="s",
    label=Label(column="y", positive=("1",)),
    features=(
        DateFeature(name="day", first="2019-12-25", last="2021-01-10", since="2000-01-01", parts=("month", "weekday")),
        RealFeature(name="age", lower=0, upper=100),
    ),
)
DAYS = np.arange(np.datetime64("2019-12-25"), np.datetime64("2021-01-11")).astype(str).tolist()


def records():
    """A row for each day between the bounds."""
    (feature,) = SCHEMA.features[:1]
    schema = Schema(name="s", label=SCHEMA.label, features=(feature,))
    label = Texts(np.zeros(len(DAYS), dtype=np.int64), ("1",))
    cells = {source_of(feature): Texts(np.arange(len(DAYS)), tuple(DAYS)), ("y", "texts"): label}
    stored = encode_stored(schema, cells, len(DAYS))
    return schema, Records(stored.features, stored.labels, stored.usable)


def test_a_date_is_compared_with_a_date():
    assert (x["day"] >= "2020-02-29") == AtLeast("day", Day.of("2020-02-29"))
    assert (x["day"] >= dt.date(2020, 2, 29)) == AtLeast("day", Day.of("2020-02-29"))
    assert (x["day"] < "2020-02-29") == Not(AtLeast("day", Day.of("2020-02-29")))
    assert (x["day"] > "2020-02-29") == Above("day", Day.of("2020-02-29"))
    for text in ("29.02.2020", "2020-02-30", "2020-02-29 00:00", "soon"):
        with pytest.raises(PredicateError, match="a date with another"):
            x["day"] >= text  # noqa: B015  (the comparison raises)
    with pytest.raises(PredicateError, match="a date with another"):
        x["day"] >= dt.datetime(2020, 2, 29)  # noqa: B015, DTZ001  (the same; a time without a zone)


@pytest.mark.parametrize(
    "text",
    [
        'x["day"] >= "2020-02-29"',
        'x["day"] < "2020-02-29"',
        '(x["day"] > "2020-02-29") & (x["day.month"] == "March") & (x["day.weekday"] != "Monday")',
        'x["day"] >= 18321.5',
    ],
)
def test_notation(text):
    predicate = parse(text)
    assert to_text(predicate) == text
    check([predicate], SCHEMA)


def test_dates_and_numbers_are_not_mixed():
    for text, says in (
        ('x["age"] >= "2020-01-01"', "'age' is a real feature"),
        ('x["day"] >= 7305', "'day' is a date feature: compare it with a date"),
        ('x["day"] == "2020-01-01"', "'day' is a date feature: compare it with a date"),
        ('x["day"]', "'day' is a date feature: compare it with a date"),
        ('x["day.month"] >= "2020-01-01"', "'day.month' is a category feature"),
        ('x["day.month"] == "Marsh"', "did you mean 'March'"),
        ('x["day.year"] == "2020"', "no feature 'day.year'"),
    ):
        with pytest.raises(PredicateError, match=says):
            check([parse(text)], SCHEMA)


@pytest.mark.parametrize("bound", ["2019-12-24", "2019-12-25", "2020-02-29", "2020-03-01", "2021-01-10", "2021-01-11"])
def test_every_day_is_on_the_right_side_of_every_comparison(bound):
    schema, rows = records()
    predicates = [x["day"] >= bound, x["day"] > bound, x["day"] < bound, x["day"] <= bound]
    expected = [
        sum(day >= bound for day in DAYS),
        sum(day > bound for day in DAYS),
        sum(day < bound for day in DAYS),
        sum(day <= bound for day in DAYS),
    ]
    assert [value >> 12 for value in sums(predicates, schema, rows, 12)] == expected


def test_months_and_weekdays_are_counted():
    schema, rows = records()
    predicates = [Equals("day.month", "February"), Equals("day.weekday", "Saturday")]
    found = [value >> 12 for value in sums(predicates, schema, rows, 12)]
    assert found == [29, sum(dt.date.fromisoformat(day).weekday() == 5 for day in DAYS)]


def test_the_sensitivity_of_ranges_of_dates_is_that_of_one_histogram():
    edges = [x["day"] >= str(np.datetime64("2020-01-01") + 30 * at) for at in range(6)]
    cells = [~edges[0], *(low & ~high for low, high in itertools.pairwise(edges)), edges[-1]]
    assert batch_sensitivity(tuple(cells)) == batch_sensitivity((x["age"] < 3, x["age"] >= 3))
    months = tuple(Equals("day.month", name) for name in ("January", "May", "July"))
    assert batch_sensitivity(months) == batch_sensitivity((x["age"] < 3, x["age"] >= 3))
    # Days between dates keep their order among them, so that grids that divide days are told apart too.
    half = Fraction(2 * Day.of("2020-01-01").number + 1, 2)
    low, high = x["day"] < "2020-01-01", AtLeast("day", half)
    assert batch_sensitivity((low, high)) == batch_sensitivity((x["age"] < 3, x["age"] >= 3))
    # It is seen where they overlap.
    middle = (x["day"] >= "2020-01-01") & (x["day"] < "2020-03-01")
    overlapping = batch_sensitivity((x["day"] < "2020-01-02", middle, x["day"] >= "2020-02-29"))
    assert overlapping.l2_squared > 2
    apart = batch_sensitivity((x["day"] < "2020-01-01", middle, x["day"] >= "2020-03-01"))
    assert apart.l2_squared == 2


def test_ranges_of_stored_days_are_shown_as_dates():
    from dpcore.estimators.private_histograms import Cells

    (feature,) = (group for group in SCHEMA.numbers if group.name == "day")
    ranges = Cells.between(feature, ["2020-01-01", "2020-07-01"]).predicates()
    assert [readable(each, SCHEMA) for each in ranges] == [
        "day = 2019-12-25",
        "day = 2021-01-10",
        "2019-12-26 <= day < 2020-01-01",
        "2020-01-01 <= day < 2020-07-01",
        "2020-07-01 <= day < 2021-01-10",
    ]
    assert "day in each of 5 ranges (2 of them single values" in str(in_words(ranges, SCHEMA))
    single = range_of(Cells.between(feature, ["2020-02-29", "2020-03-01"]).predicates()[3], SCHEMA)
    assert single is not None
    # A range of one day holds one value, though records could tell apart many between.
    assert (single.is_value, str(single)) == (True, "day = 2020-02-29")
    assert math.isclose(float(single.width or 0), 1.0, rel_tol=1e-6)


def test_ranges_beyond_all_dates_are_shown():
    """As a query of anybody may name them."""
    feature = DateFeature(name="day", first="0001-01-01", last="9999-12-31")
    schema = Schema(name="s", label=SCHEMA.label, features=(feature,))
    for constant in (0, 1, ONE, -ONE, ONE + 1, -ONE - 1, 2**31, -(2**31)):
        low = NonNegative(Affine((("day", ONE),), -constant))
        for predicate in (low, ~low):
            assert "day" in readable(predicate, schema)
    above = NonNegative(Affine((("day", ONE),), -ONE - 1))
    assert readable(above, schema) == "3652059 days after 0001-01-01 <= day"


def test_bounds_between_days_are_shown_as_days_and_compare_alike():
    half = Fraction(2 * Day.of("2020-02-28").number + 1, 2)
    shown = {
        'x["day"] >= "2020-02-29"': AtLeast("day", half),
        '(x["day"] >= "2020-02-29") & (x["age"] >= 0.5)': AtLeast("day", half) & AtLeast("age", Fraction(1, 2)),
        '(x["day"] < "2020-02-29") | (x["day.month"] == "May")': Not(Above("day", half)) | Equals("day.month", "May"),
        'x["day"] >= "2020-02-28"': AtLeast("day", Day.of("2020-02-28")),
        # A number of days that no date has, as a query may name it.
        'x["day"] >= 10000000.5': AtLeast("day", Fraction(20_000_001, 2)),
        'x["day"] > -10000000.5': Above("day", Fraction(-20_000_001, 2)),
    }
    assert [readable(predicate, SCHEMA) for predicate in shown.values()] == list(shown)
    schema, rows = records()
    same = [AtLeast("day", half), AtLeast("day", Day.of("2020-02-29"))]
    first, second = sums(same, schema, rows, 12)
    assert first == second
