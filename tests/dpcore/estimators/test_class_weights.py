"""Class weights of a training: against scikit-learn, how they are written, and where the noise hides a class."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpcore.errors import ConfigurationError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.class_weights import check_asked, checked_weights, weigh, whole_weights
from dpcore.estimators.oracle import ClassRowOracle, RowOracle
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.rados.distribution import Moments
from dpcore.records.features import Classes, Label
from dpcore.records.schema import RealFeature, Schema

TWO = Label(column="ill", positive=("yes",), negative=("no",))
THREE = Classes(column="kind", values=("a", "b", "c=d, e"))


def rare_rows(rows: int = 6000, seed: int = 1):
    """Two columns, the bias, and a label that one row in twelve or so has."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    chance = 1 / (1 + np.exp(-(2.0 * x[:, 0] - x[:, 1] - 3.0)))
    return x, np.where(random.random(rows) < chance, 1, -1)


def weighted_regression(x, labels, weights):
    found = LogisticRegression(C=1e6, max_iter=1000, tol=1e-10, class_weight=weights).fit(x[:, :-1], labels)
    return np.append(found.coef_[0], found.intercept_)


@pytest.mark.parametrize(("given", "weights"), [("positive=5", {-1: 1, 1: 5}), ("balanced", "balanced")])
def test_in_exact_sums_it_is_the_weighted_logistic_regression_of_scikit_learn(given, weights):
    """Nothing is clipped here, so that both have one minimiser. Without weights it is another one."""
    x, labels = rare_rows()
    oracle = RowOracle(x * labels[:, np.newaxis])
    fitted = PrivateNewton(rounds=40, clip=100.0, class_weight=given).fit_queries(oracle)
    found = oracle.in_given_units(fitted.theta_)
    assert found == pytest.approx(weighted_regression(x, labels, weights), abs=0.05)
    assert np.abs(found - weighted_regression(x, labels, None)).max() > 1.0
    assert fitted.class_weights_ == ((1, 5) if given == "positive=5" else fitted.class_weights_)
    assert fitted.warning_ is None


def test_several_classes_are_weighted_by_the_same_mechanism():
    random = np.random.default_rng(4)
    codes = random.choice(3, size=3000, p=(0.7, 0.2, 0.1))
    x = np.clip(np.array([[0.0, 0.0], [0.3, 0.1], [-0.2, 0.3]])[codes] + 0.3 * random.normal(size=(3000, 2)), -1, 1)
    rows = np.column_stack([x, np.ones(3000)])
    oracle = ClassRowOracle(rows, codes, 3)
    fitted = PrivateNewton(rounds=40, clip=100.0, class_weight={"1": 2, "2": 5.5}).fit_queries(oracle)
    free = LogisticRegression(C=1.0, max_iter=1000, class_weight={0: 1, 1: 2, 2: 5.5}).fit(x, codes)
    wanted = np.column_stack([free.coef_, free.intercept_])
    found = np.array([oracle.in_given_units(row) for row in fitted.theta_])
    assert fitted.class_weights_ == (2, 4, 11)
    assert found - found.mean(axis=0) == pytest.approx(wanted - wanted.mean(axis=0), abs=0.15)
    plain = PrivateNewton(rounds=40, clip=100.0).fit_queries(oracle).predict(oracle._rows)
    assert np.mean(fitted.predict(oracle._rows) == 2) > 2 * np.mean(plain == 2)


@pytest.mark.more
def test_curves_find_the_rare_rows_that_they_miss_without_weights():
    x, labels = rare_rows()
    oracle = RowOracle(x * labels[:, np.newaxis])
    encoded = oracle.edges * labels[:, np.newaxis]
    found = {}
    for given in (None, "balanced"):
        fitted = PrivateAdditive(knots=2, pairs=False, class_weight=given).fit_queries(oracle)
        found[given] = np.mean(fitted.predict(encoded)[labels > 0] == 1)
        assert bool(fitted.class_weights_) is (given is not None)
    assert found[None] < 0.1
    assert found["balanced"] > 0.7


@pytest.mark.parametrize(
    ("given", "label", "weights"),
    [
        (None, TWO, ()),
        ("balanced", TWO, None),
        ("positive=5", TWO, (1, 5)),
        ("yes=2.5, no=1", TWO, (2, 5)),
        ({"positive": 3, "negative": 3}, TWO, ()),
        ({"c=d, e": 4}, THREE, (1, 1, 4)),
        ({"positive": 2000, "negative": 3}, TWO, (1, 667)),
    ],
)
def test_weights_are_whole_numbers_of_the_classes_in_order(given, label, weights):
    assert checked_weights(given, label) == weights


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("positiv=5", "names 'positiv', which is no class; .*positive"),
        ("positive=0", "give a number above 0"),
        ("positive=-1", "give a number above 0"),
        ({"positive": float("inf")}, "give a number above 0"),
        ("positive=1000000000", "at most 9 before and 9 after the point"),
        ("positive=2,positive=3", "names one class twice, as 'positive' and 'positive'"),
        ("yes=2,positive=3", "names one class twice, as 'yes' and 'positive'"),
        ("5", 'give "balanced", or weights by class'),
        ({"positive": 5000}, "differ by a factor of 5000"),
    ],
)
def test_other_weights_are_refused_before_anything_is_asked(given, words):
    schema = Schema(name="s", label=TWO, features=(RealFeature(name="x", lower=0, upper=1),))
    with pytest.raises(ConfigurationError, match=words):
        check_asked(given, schema)


def test_weights_need_a_bias_and_classes():
    schema = Schema(name="s", label=TWO, features=(RealFeature(name="x", lower=0, upper=1),), bias=False)
    check_asked("positive=1", schema)
    with pytest.raises(ConfigurationError, match="need a schema with a bias"):
        check_asked("positive=2", schema)
    x, labels = rare_rows(100)
    unbiased = RowOracle(x * labels[:, np.newaxis])
    unbiased.schema = replace(unbiased.schema, bias=False)
    for estimator in (PrivateNewton(class_weight="balanced"), PrivateAdditive(class_weight="balanced")):
        with pytest.raises(ConfigurationError, match="need a schema with a bias"):
            estimator.fit_queries(unbiased)


def exact_moments(x, labels, noise=0.0):
    products = x.T @ x
    return Moments(
        edge_sum=x.T @ labels,
        product_sum=(products + products.T) / 2,
        rows=len(x),
        bias=True,
        norm_bound=2.0,
        edge_noise=noise,
        product_noise=np.zeros((3, 3)),
    )


def test_moments_of_the_weighted_population_are_those_of_repeated_rows():
    """Classes that vary alike: each positive row five times, over as many rows as tell as much."""
    random = np.random.default_rng(2)
    apart = random.uniform(-0.4, 0.4, (500, 2))
    apart -= apart.mean(axis=0)
    positive, negative = apart + np.array([0.3, -0.1]), np.tile(apart, (9, 1)) - np.array([0.2, 0.0])
    x = np.column_stack([np.vstack([negative, positive]), np.ones(5000)])
    labels = np.repeat([-1, 1], [4500, 500])
    repeated = np.vstack([x, *[x[labels > 0]] * 4])
    weighing, found = weigh("positive=5", TWO, exact_moments(x, labels))
    rows = 7000**2 / (4500 + 25 * 500)
    assert found.rows == round(rows)
    assert found.product_sum / found.rows == pytest.approx(repeated.T @ repeated / 7000, abs=1e-3)
    signs = np.append(labels, np.ones(2000))
    assert found.edge_sum / found.rows == pytest.approx(repeated.T @ signs / 7000, abs=1e-3)
    assert weighing.share == pytest.approx(7000 / 5 / 5000)
    assert weighing.note is None


def test_balanced_weights_follow_the_counts_of_the_release_alone():
    x, labels = rare_rows()
    positive = int((labels > 0).sum())
    weighing, _ = weigh("balanced", TWO, exact_moments(x, labels))
    negative_weight, positive_weight = weighing.weights
    assert positive_weight / negative_weight == pytest.approx((len(x) - positive) / positive, rel=0.01)
    even = np.where(np.arange(len(x)) % 2, 1, -1)
    assert "equal" in weigh("balanced", TWO, exact_moments(x, even))[0].note


def test_where_the_noise_hides_the_rare_class_it_is_said_and_nothing_is_guessed():
    """Of 500 positive rows, and noise of 400 on their number."""
    x, labels = rare_rows()
    noisy = exact_moments(x, labels, noise=800.0)
    weighing, found = weigh("balanced", TWO, noisy)
    assert (weighing.weights, found) == ((), noisy)
    assert "the noise hides how many rows the rarest class has" in weighing.note
    assert "the classes are not weighted" in weighing.note
    weighing, found = weigh("positive=5", TWO, noisy)
    assert (weighing.weights, found) == ((1, 5), noisy)
    assert "what weights do is not known well" in weighing.note


def test_weights_in_one_unit_keep_their_ratio():
    assert whole_weights([Fraction(1, 3), Fraction(1, 2), Fraction(1)]) == (2, 3, 6)
