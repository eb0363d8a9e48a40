"""Tables of coefficients against closed forms: standard errors, p-values, adjustments, ratios, and what is not said."""

import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import ConfigurationError, ModelError, SchemaError
from dpcore.estimators.errors_of_least_squares import errors_of_least_squares
from dpcore.estimators.least_squares import LeastSquares, exact_moments
from dpcore.records.features import BooleanFeature, Classes, Count, EventTime, Label, Number, RealFeature
from dpcore.records.schema import Schema
from learner.coefficient_table import adjusted, coefficient_tables
from learner.hazard_models import ranked_ratios
from learner.model import Model
from tests.learner.shapes.mapped import STATEMENT

FEATURES = (RealFeature(name="age", lower=20.0, upper=80.0), BooleanFeature(name="smoker", true=("1",), false=("0",)))
WAGE = Number(column="wage", lower=10.0, upper=1000.0, log=True)
SCHEMA = Schema(name="people", label=WAGE, features=FEATURES)
ROWS = 5_000


def rows(seed=1):
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, ROWS), random.choice([-1.0, 1.0], ROWS), np.ones(ROWS)])
    return x, np.clip(x @ [0.4, -0.1, 0.1] + random.normal(0, 0.2, ROWS), -1, 1)


def made(label, theta, errors, sampling=None, estimator="newton", **more):
    schema = replace(SCHEMA, label=label)
    return Model(theta, schema, estimator, bytes(32), STATEMENT, None, None, errors, sampling=sampling, **more)


def test_without_noise_least_squares_has_the_standard_errors_of_the_closed_form():
    x, t = rows()
    moments = exact_moments(x, t)
    fitted = LeastSquares().fit_moments(moments)
    errors = errors_of_least_squares(fitted.theta_, moments, fitted.residual_variance_, SCHEMA)
    variance = fitted.residual_variance_
    expected = variance * np.linalg.inv(x.T @ x)
    np.testing.assert_allclose(np.diag(errors.sampling), np.diag(expected), rtol=0.03)
    # Widened, because residuals of tables do not vary alike.
    np.testing.assert_allclose(np.diag(errors.covariance), 1.35 * np.diag(expected), rtol=0.05)
    model = made(WAGE, fitted.theta_, errors.covariance, errors.sampling, "linear")
    (table,) = coefficient_tables(model)
    age = next(row for row in table.rows if row.column == "age")
    # t is the logarithm of the wage between its bounds, and age is in years.
    unit = math.log(100.0) / 2.0 / 30.0
    assert age.estimate == pytest.approx(fitted.theta_[0] * unit)
    assert age.standard_error == pytest.approx(math.sqrt(1.35 * expected[0, 0]) * unit, rel=0.05)
    assert age.ratio == pytest.approx(math.exp(age.estimate))
    assert (age.ratio_lower, age.ratio_upper) == pytest.approx((math.exp(age.lower), math.exp(age.upper)))
    assert age.upper - age.lower == pytest.approx(2 * 1.96 * age.standard_error)
    assert table.ratio == "ratio"
    assert "noise, choice of rows, clipping and shrinkage" in table.notes[0]


def test_p_values_are_those_of_the_normal_distribution():
    (table,) = coefficient_tables(made(WAGE, np.array([0.03, -0.2, 0.1]), np.diag([4e-4, 1e-4, 1e-4])))
    for row in table.rows:
        if row.column != "intercept":
            assert row.p_value == pytest.approx(2 * stats.norm.sf(abs(row.estimate / row.standard_error)))


def test_adjustments_are_those_of_holm_and_of_benjamini_and_hochberg():
    p = [0.01, 0.04, 0.03, 0.5]
    assert adjusted(p, "none") == p
    assert adjusted(p, "holm") == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert adjusted(p, "benjamini-hochberg") == pytest.approx(stats.false_discovery_control(p))
    assert adjusted([], "holm") == []
    assert adjusted([0.9, 0.8], "holm") == [1.0, 1.0]
    with pytest.raises(ConfigurationError, match="did you mean 'holm'"):
        made(WAGE, np.zeros(3), np.eye(3)).coefficients(adjustment="hom")


def test_what_is_not_measurable_has_no_error_and_counts_as_one_of_many():
    """A smoker's coefficient could be anything: as where an event never happens to smokers."""
    label = Count(column="visits", upper=50)
    model = made(label, np.array([0.5, -4.0, 0.2]), np.diag([0.01, 20.0, 0.01]))
    (plain,), (holm,) = (model.coefficients(adjustment=each) for each in ("none", "holm"))
    by_name = {row.column: row for row in plain.rows}
    smoker = by_name["smoker"]
    assert (smoker.measurable, smoker.standard_error, smoker.p_value, smoker.lower, smoker.ratio_lower) == (
        False,
        None,
        None,
        None,
        None,
    )
    assert next(row.p_value for row in holm.rows if row.column == "age") == pytest.approx(2 * by_name["age"].p_value)
    assert "not measurable" in model.summary()
    assert "rate ratio" in model.summary()
    # Wider than 1 to either side, although it excludes 0.
    wide = made(label, np.array([0.5, 9.0, 0.2]), np.diag([0.01, 0.1, 0.01]))
    assert not next(row for row in wide.coefficients()[0].rows if row.column == "smoker").measurable


def test_a_data_frame_has_the_figures_of_the_rows():
    """Of a table with a coefficient that is not measurable, whose figures are not there."""
    model = made(Count(column="visits", upper=50), np.array([0.02, -4.0, 0.2]), np.diag([1e-4, 20.0, 0.01]))
    (plain,), (holm,) = (model.coefficients(adjustment=each) for each in ("none", "holm"))
    frame = holm.to_pandas()
    assert list(zip(frame.index, frame["change"], strict=True)) == [(row.column, row.change) for row in holm.rows]
    assert [frame.index.name, *frame.columns] == [
        "column",
        "change",
        "estimate",
        "standard_error",
        "z",
        "p_value",
        "p_unadjusted",
        "lower",
        "upper",
        "ratio",
        "ratio_lower",
        "ratio_upper",
        "measurable",
        "comparable",
    ]
    for (_, found), row, unadjusted in zip(frame.iterrows(), holm.rows, plain.rows, strict=True):
        for name in ("estimate", "standard_error", "z", "p_value", "lower", "upper", "ratio", "ratio_lower"):
            value = getattr(row, name)
            assert found[name] == pytest.approx(math.nan if value is None else value, nan_ok=True), name
        expected = math.nan if unadjusted.p_value is None else unadjusted.p_value
        assert found["p_unadjusted"] == pytest.approx(expected, nan_ok=True)
    age = frame.loc["age"]
    assert 0.01 < age["p_unadjusted"] < age["p_value"] == pytest.approx(2 * age["p_unadjusted"])
    # Columns are of numbers and of truths, so that a filter takes what is measurable.
    assert [str(frame.dtypes[name]) for name in ("estimate", "ratio", "measurable", "comparable")] == [
        "float64",
        "float64",
        "boolean",
        "boolean",
    ]
    assert list(frame[frame["measurable"]].index) == ["age"]
    assert frame["comparable"].isna().all()


def test_a_data_frame_without_errors_has_estimates_and_pandas_is_asked_for(monkeypatch):
    (table,) = made(WAGE, np.array([0.03, -0.2, 0.1]), None).coefficients()
    frame = table.to_pandas()
    assert frame["estimate"].notna().all()
    assert frame["p_value"].isna().all()
    assert frame["measurable"].isna().all()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match=r"install it, or use to_columns\(\)"):
        table.to_pandas()
    assert table.to_columns()["estimate"] == [row.estimate for row in table.rows]


def test_numbers_that_are_learned_as_they_are_have_coefficients_in_their_units_and_no_ratio():
    label = Number(column="wage", lower=0.0, upper=100.0)
    (table,) = coefficient_tables(made(label, np.array([0.3, 0.0, 0.2]), 1e-6 * np.eye(3)))
    by_name = {row.column: row for row in table.rows}
    assert by_name["age"].estimate == pytest.approx(0.3 / 30.0 * 50.0)
    assert by_name["age"].ratio is None
    assert by_name["intercept"].estimate == pytest.approx(50.0 + 50.0 * (0.2 - 0.3 * 50.0 / 30.0))
    unknown = made(label, np.array([0.3, 0.0, 0.2]), np.diag([1e-6, 0.5, 1e-6])).summary()
    assert "wider than half of the range of 'wage' to either side" in unknown
    assert "ratio" not in made(label, np.array([0.3, 0.0, 0.2]), 1e-6 * np.eye(3)).summary()


def test_two_classes_have_odds_ratios_where_scores_are_log_odds():
    label, theta, errors = Label(column="ill", positive=("1",)), np.array([0.5, 0.1, 0.0]), 1e-3 * np.eye(3)
    smoker, age = made(label, theta, errors, 1e-4 * np.eye(3)).ratios()
    assert (smoker.column, smoker.ratio) == ("smoker", pytest.approx(math.exp(0.2)))
    assert re.fullmatch(r"age, .*: odds ratio 1\.017 \(1\.0.* to 1\.0.*\), p < 0\.001", age.sentence())
    with pytest.raises(SchemaError, match="train newton with a clip of at least 1"):
        made(label, theta, errors).ratios()
    wards = Classes(column="ward", values=("a", "b", "c"))
    with pytest.raises(SchemaError, match=r"3 classes.*coefficients\(reference"):
        made(wards, np.zeros((3, 3)), None).ratios()


def test_a_picture_has_each_coefficient_that_has_an_interval_beside_no_effect(tmp_path):
    label = Label(column="ill", positive=("1",))
    hardly = made(label, np.array([0.5, 0.1, 0.0]), 1e-3 * np.eye(3), 1e-4 * np.eye(3))
    hardly.coefficients()[0].plot().save(tmp_path / "odds.svg")
    drawn = (tmp_path / "odds.svg").read_text()
    assert drawn.count("<circle") == 2
    assert "odds ratio" in drawn
    assert "intercept" not in drawn
    added = made(Number(column="wage", lower=0.0, upper=100.0), np.array([0.3, 0.0, 0.2]), 1e-6 * np.eye(3))
    assert "added to" in added.coefficients()[0].plot()._repr_html_()
    with pytest.raises(ConfigurationError, match="no coefficient has an interval"):
        made(WAGE, np.zeros(3), None).coefficients()[0].plot()


def test_weights_of_clipped_gradients_are_no_log_odds_and_say_so():
    label = Label(column="ill", positive=("1",))
    clipped = made(label, np.array([0.5, 0.1, 0.0]), 1e-3 * np.eye(3))
    assert "these are no log odds" in clipped.summary()
    assert "odds ratio" not in clipped.summary().split("\n")[3]
    hardly = made(label, np.array([0.5, 0.1, 0.0]), 1e-3 * np.eye(3), 1e-4 * np.eye(3))
    assert "no log odds" not in hardly.summary()
    assert hardly.coefficients()[0].ratio == "odds ratio"


def hazards(covariance, sampling):
    label = EventTime(column="months", event="died", happened=("1",), borders=(6.0, 12.0))
    theta = np.array([0.6, 0.1, 0.0])
    return made(label, theta, covariance, sampling, "hazards", log_hazards=np.array([-2.0, -2.0]))


def test_hazard_ratios_are_comparable_to_cox_s_if_the_interval_is_short():
    of_rows = np.diag([1e-3, 1e-3, 1e-3])
    close, far = hazards(1.2 * of_rows, of_rows), hazards(4.0 * of_rows, of_rows)
    assert all(each.comparable for each in ranked_ratios(close))
    assert not any(each.comparable for each in ranked_ratios(far))
    assert "not comparable to Cox's" in far.summary()
    assert "not comparable" not in close.summary()
    first = ranked_ratios(close)[0]
    width = 1.96 * math.sqrt(1.2e-3) * 2.0
    assert (first.column, first.lower) == ("smoker", pytest.approx(math.exp(0.2 - width)))
    # A model without errors says nothing of them.
    bare = hazards(None, None)
    assert all((each.lower, each.comparable) == (None, False) for each in ranked_ratios(bare))
    assert "Not comparable to Cox's ratios" in bare.summary()


def test_errors_are_kept_in_the_model_s_file(tmp_path):
    model = hazards(np.diag([2e-3, 1e-3, 1e-3]), np.diag([1e-3, 1e-3, 1e-3]))
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert np.array_equal(loaded.covariance, model.covariance)
    assert np.array_equal(loaded.sampling, model.sampling)
    assert loaded.summary() == model.summary()
    with pytest.raises(ModelError, match="none of sampling"):
        hazards(None, np.eye(3))


def test_a_column_that_never_varies_is_not_measurable():
    """Noise alone says what a constant column's coefficient is."""
    x, t = rows()
    x[:, 1] = -1.0
    moments = exact_moments(x, t)
    noisy = replace(moments, sum_noise=30.0, product_noise=np.full((3, 3), 30.0))
    fitted = LeastSquares().fit_moments(noisy)
    errors = errors_of_least_squares(fitted.theta_, noisy, fitted.residual_variance_, SCHEMA)
    (table,) = coefficient_tables(made(WAGE, fitted.theta_, errors.covariance, errors.sampling, "linear"))
    assert [row.measurable for row in table.rows if row.column == "smoker"] == [False]


def test_a_weight_of_which_only_the_prior_of_its_label_is_left_is_not_measurable():
    """The prior of numbers is narrower than that of log odds, by which such a weight was measurable."""
    (found,) = coefficient_tables(made(WAGE, np.array([0.03, -0.2, 0.1]), 2.0**2 * np.eye(3)))
    assert [row.measurable for row in found.rows] == [False, False, False]
    (known,) = coefficient_tables(made(WAGE, np.array([0.03, -0.2, 0.1]), 0.1**2 * np.eye(3)))
    assert [row.measurable for row in known.rows] == [True, True, True]
