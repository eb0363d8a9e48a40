"""What a plan expects of coefficients: how many the budget can measure, and what would help."""

from fractions import Fraction

import pytest

from dpcore.records.features import BooleanFeature, CategoryFeature, Label, Number, RealFeature
from dpcore.records.schema import Schema
from learner.estimators import make_estimator
from learner.expected_coefficients import ExpectedCoefficients, few_coefficients

DELTA = Fraction(1, 10**6)
REALS = tuple(RealFeature(name=name, lower=0.0, upper=10.0) for name in "abcd")
CODES = CategoryFeature(name="code", column="code", values=tuple(f"c{place}" for place in range(40)))
WAGE = Schema(name="w", label=Number(column="wage", lower=1.0, upper=100.0, log=True), features=REALS)
ILL = Schema(name="i", label=Label(column="ill", positive=("1",)), features=(*REALS, CODES))


def expected(schema=ILL, rows=5000, epsilon=1, name="newton", **options):
    estimator = make_estimator(name, **options)
    return ExpectedCoefficients.of(name, estimator, schema, rows, Fraction(epsilon), DELTA)


def test_more_rows_and_a_larger_epsilon_measure_more():
    shares = [expected(rows=rows, epsilon=epsilon).share for rows, epsilon in ((2000, 1), (50_000, 1), (50_000, 8))]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < shares[-1]


@pytest.mark.parametrize("schema", [ILL, WAGE])
def test_what_is_named_to_help_is_enough_for_half(schema):
    few = expected(schema, rows=200)
    rows, epsilon = few._rows_that_do(), few._epsilon_that_does()
    words = few.warning()
    assert few.share < 0.5
    assert all(each in words for each in (*rows, *epsilon))
    (said,) = rows
    needed = int(said.removeprefix("about ").removesuffix(" rows").replace(",", ""))
    assert expected(schema, rows=needed).warning() is None
    assert expected(schema, rows=round(0.9 * needed)).warning() is not None


def test_many_rows_say_nothing():
    assert expected(rows=10_000_000).warning() is None
    assert expected(WAGE, rows=100_000).warning() is None


def test_an_epsilon_that_is_not_large_enough_below_ten_is_not_named():
    assert expected(rows=100)._epsilon_that_does() == []
    assert "epsilon of" not in expected(rows=100).warning()


def test_only_estimators_that_state_coefficients_are_warned_of():
    flags = Schema(name="n", label=Label(column="y", positive=("1",)), features=REALS, bias=False)
    wage, ill = make_estimator("additive"), make_estimator("newton")
    assert few_coefficients("additive", wage, WAGE, 50, Fraction(1), DELTA) is None
    assert few_coefficients("newton", ill, flags, 50, Fraction(1), DELTA) is None
    assert few_coefficients("newton", ill, ILL, 0, Fraction(1), DELTA) is None
    assert few_coefficients("linear", None, ILL, 50, Fraction(1), DELTA) is None
    assert few_coefficients("linear", None, WAGE, 50, Fraction(1), DELTA) is not None


def test_flags_are_measured_before_rare_levels():
    flags = tuple(BooleanFeature(name=f"f{place}", column=f"f{place}", true=("1",), false=("0",)) for place in range(8))
    few = Schema(name="f", label=ILL.label, features=flags)
    assert expected(few, rows=20_000).share > expected(ILL, rows=20_000).share


def test_honest_parties_alone_bear_noise_that_counts():
    ill = make_estimator("newton")
    all_, half = (
        ExpectedCoefficients.of("newton", ill, ILL, 60_000, Fraction(1), DELTA, honest=honest).share
        for honest in (1.0, 0.5)
    )
    assert half < all_
