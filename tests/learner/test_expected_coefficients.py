"""What a plan expects of coefficients: how many the budget can measure, and what would help."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.coefficient_coverage import Noisy
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.numbers.fixed_point import ONE
from dpcore.records.encoding import store
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.estimators import make_estimator
from learner.expected_coefficients import ExpectedCoefficients, few_coefficients
from learner.report.coefficients import effects
from learner.uncertainty import MOST_HALF_WIDTH, Limits, half_widths, measurable

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
    words = few.warning()
    assert few.least_share <= few.share < 0.5
    assert all(each in words for case in (few, few.unfavourable) for each in case.enough())
    usual, worst = (
        int(case._rows_that_do()[0].removeprefix("about ").removesuffix(" rows").replace(",", ""))
        for case in (few, few.unfavourable)
    )
    assert expected(schema, rows=usual).share >= 0.5 > expected(schema, rows=round(0.9 * usual)).share
    assert expected(schema, rows=worst).warning() is None
    between = expected(schema, rows=round(0.9 * worst)).warning()
    assert "between" in between
    assert "To measure half" not in between
    assert "At worst half of them take" in between


def made(kind, rows):
    """A schema of eight columns and made-up people, whose wage they explain in part."""
    random = np.random.default_rng(2)
    x = random.uniform(-0.9, 0.9, size=(rows, 8))
    if kind == "determined":
        # As the weights of one animal: half of the columns are nearly the mean of the others.
        x[:, 4:] = x[:, :4].mean(axis=1)[:, np.newaxis] + 0.05 * random.normal(size=(rows, 4))
        x[:, :4] = x[:, :1] + 0.1 * random.normal(size=(rows, 4))
    if kind == "narrow":
        x *= 0.1
    x = np.clip(x, -1.0, 1.0)
    t = np.clip(0.3 * x[:, 0] - 0.2 * x[:, 5] + 0.15 * random.normal(size=rows), -1.0, 1.0)
    reals = tuple(RealFeature(name=f"x{place}", lower=-1.0, upper=1.0) for place in range(8))
    schema = Schema(name="m", label=Number(column="wage", lower=-1.0, upper=1.0), features=reals)
    labels = np.rint(t * ONE).astype(schema.label.coding.dtype)
    usable = np.ones(rows, dtype=np.bool_)
    return schema, Records(store(np.column_stack([x, np.ones(rows)])), labels, usable, coding=schema.label.coding)


@pytest.mark.more
@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", ["independent", "determined", "narrow"])
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_no_fewer_are_measured_than_is_said(kind, epsilon):
    """Trainings with the noise of four parties, on columns that vary alike, determine one another, or hardly vary."""
    schema, records = made(kind, 5000)
    combinations = np.array([weights for name, _, weights in effects(schema) if name != "intercept"])
    limits = Limits.of(schema.label, is_rate=False)
    shares = []
    for seed in range(6):
        oracle = Noisy(records, schema, epsilon, np.random.default_rng(seed))
        covariance = PrivateNewton().fit_queries(oracle).covariance_
        widths = half_widths(combinations, covariance)
        shares.append(np.mean(measurable(combinations, covariance, limits) & (widths <= MOST_HALF_WIDTH)))
    said = expected(schema, rows=5000, epsilon=epsilon)
    assert np.mean(shares) >= said.least_share - 0.1
    # What most tables have is too much here, which is why both are said.
    if kind == "determined":
        assert np.mean(shares) < said.share - 0.1
        assert said.warning() is not None


def test_many_rows_say_nothing():
    assert expected(rows=100_000_000).warning() is None
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
