"""Additive models of numbers, counts and times: from exact sums they are the best over the same functions.

scikit-learn's least squares and Poisson regression, and a minimiser of the complementary log-log likelihood that is
written out here, are fitted to the mapped rows.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression, PoissonRegressor

from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.oracle import GradientEstimate
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import sums
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.records.clipping import Clip
from dpcore.records.encoding import store
from dpcore.records.feature_map import Hat
from dpcore.records.features import BooleanFeature, Count, EventTime, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

ROWS, BITS = 6_000, 10
FEATURES = (
    RealFeature(name="age", lower=-1.0, upper=1.0),
    RealFeature(name="dose", lower=-1.0, upper=1.0),
    BooleanFeature(name="smoker", true=("1",), false=("0",)),
)
BORDERS = tuple(np.linspace(0.0, 4.0, 7)[1:].tolist())
NUMBER = Number(column="wage", lower=-3.0, upper=3.0)
COUNT = Count(column="visits", upper=30)
RATE = Count(column="visits", upper=60, exposure="years", exposure_lower=0.25, exposure_upper=4.0)
TIME = EventTime(column="t", event="e", happened=("1",), borders=BORDERS)


class ExactOracle:
    """Answers from records by the real queries, without noise."""

    epsilon, delta, rows = Fraction(100), Fraction(1, 10**6), ROWS

    def __init__(self, label, labels, x, answers=1_000, **schema):
        self.schema = Schema(name="s", label=label, features=FEATURES, **schema)
        self._records = Records(store(x), labels, np.ones(ROWS, bool), coding=label.coding)
        self._left = answers

    def _asked(self, feature_map):
        if not self._left:
            raise OracleRefusedError("nothing is left")
        self._left -= 1
        return self._records if feature_map is None else self._records.mapped(feature_map)

    def statistic(self, predicates, *, part=Fraction(1), feature_map=None):
        values = sums(predicates, self.schema, self._asked(feature_map), 0) / ROWS
        return Estimates(values, ROWS, 0.95, 0.0, 0.0, 0.0, 0.0)

    def number_moments(self, *, part=Fraction(1), norm_bound=None, edge_weight=None, feature_map=None):
        query = NumberMomentsQuery(Clip(norm_bound, bias=True), 40, 3, self.schema.label.coding)
        return query.moments(query.sums(self._asked(feature_map), BITS), BITS, rows=ROWS, parties=1)

    def number_gradient(self, theta, *, loss, clip, part=Fraction(1), basis=None, feature_map=None):
        point = tuple(np.rint(np.ldexp(theta, 20)).astype(int).tolist())
        return self._gradient(NumberGradientQuery(loss, point, clip, 3, basis, self.schema.label.coding), feature_map)

    def hazard_gradient(self, theta, *, clip, interval_weight, part=Fraction(1), basis=None, feature_map=None):
        point = tuple(np.rint(np.ldexp(theta, 20)).astype(int).tolist())
        query = HazardGradientQuery("hazards", point, clip, 3, basis, len(BORDERS), interval_weight)
        return self._gradient(query, feature_map, 6)

    def _gradient(self, query, feature_map, bits=BITS):
        mean = query.decode(query.sums(self._asked(feature_map), bits), bits) / ROWS
        return GradientEstimate(mean, 0.0, ROWS)


def drawn(seed=1):
    """Encoded rows, and a score that is no line in the first column."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (ROWS, 2)), random.choice([-1.0, 1.0], ROWS), np.ones(ROWS)])
    return random, x, np.abs(2.0 * x[:, 0]) - 1.0 + 0.4 * x[:, 1] + 0.3 * x[:, 2]


def numbers():
    random, x, score = drawn()
    t = np.clip(score + 0.3 * random.normal(size=ROWS), -3.0, 3.0) / 3.0
    return ExactOracle(NUMBER, np.rint(t * ONE).astype(np.int32), x), x, t


def counts():
    random, x, score = drawn()
    found = np.minimum(random.poisson(np.exp(0.6 * score + 0.5)), 30).astype(np.int32)
    return ExactOracle(COUNT, found, x), x, found


def rates(answers=1_000):
    random, x, score = drawn()
    years = random.choice([0.5, 1.0, 2.0], ROWS)
    found = np.minimum(random.poisson(years * np.exp(0.6 * score + 0.8)), 60)
    labels = np.column_stack([found, np.rint(np.log(years) * (1 << 20))]).astype(np.int32)
    return ExactOracle(RATE, labels, x, answers), x, found, years


def times(answers=1_000):
    random, x, score = drawn()
    until = random.exponential(1.0 / (0.35 * np.exp(0.8 * score)))
    last = random.uniform(0.0, 8.0, ROWS)
    happened, places = until <= last, np.searchsorted(BORDERS, np.minimum(until, last))
    codes = np.where(places >= 6, 12, np.where(happened, places, 6 + places)).astype(np.int8)
    return ExactOracle(TIME, codes, x, answers), x, codes


def grouped_fit(z, codes):
    """The scores of the maximum likelihood of proportional hazards in discrete time. z: mapped rows without a bias."""
    intervals = len(BORDERS)
    last = np.where(codes == 2 * intervals, intervals, codes % intervals)
    survived = np.arange(intervals) < last[:, np.newaxis]
    happened = (codes < intervals)[:, np.newaxis] & (np.arange(intervals) == last[:, np.newaxis])
    halfway = ((codes >= intervals) & (codes < 2 * intervals))[:, np.newaxis]
    halfway = halfway & (np.arange(intervals) == last[:, np.newaxis])

    def loss(point):
        mu = np.exp(point[:intervals] + (z @ point[intervals:])[:, np.newaxis])
        value = (mu * (survived + halfway / 2.0) - np.where(happened, np.log(-np.expm1(-mu)), 0.0)).sum()
        slopes = mu * (survived + halfway / 2.0) - np.where(happened, mu / np.expm1(mu), 0.0)
        gradient = np.concatenate([slopes.sum(axis=0), z.T @ slopes.sum(axis=1)])
        ridge = 1e-3 * point[intervals:]
        return value + ridge @ point[intervals:] / 2.0, gradient + np.concatenate([np.zeros(intervals), ridge])

    found = minimize(loss, np.full(intervals + z.shape[1], -0.5), jac=True, options={"maxiter": 500})
    return z @ found.x[intervals:], found.x[:intervals]


def test_a_number_has_the_least_squares_of_the_mapped_rows():
    oracle, x, t = numbers()
    found = PrivateAdditive(clip=30.0).fit_queries(oracle)
    mapped = found.feature_map_.of(x)
    assert any(isinstance(term.function, Hat) for term in found.feature_map_.terms)
    exact = LinearRegression(fit_intercept=False).fit(mapped, t).predict(mapped)
    assert found.decision_function(x) == pytest.approx(exact, abs=0.02)
    assert 1.0 - np.square(found.decision_function(x) - t).mean() / t.var() > 0.8
    straight = LinearRegression().fit(x[:, :3], t)
    assert straight.score(x[:, :3], t) < 0.3
    assert found.covariance_.shape == (mapped.shape[1], mapped.shape[1])
    assert (found.warning_, found.rounds_done_) == (None, 10)


@pytest.mark.more
def test_a_count_has_the_poisson_regression_of_the_mapped_rows():
    oracle, x, found = counts()
    learned = PrivateAdditive(clip=20.0).fit_queries(oracle)
    mapped = learned.feature_map_.of(x)
    exact = np.log(PoissonRegressor(alpha=0.0, fit_intercept=False, max_iter=1000).fit(mapped, found).predict(mapped))
    own = learned.decision_function(x)
    assert own - own.mean() == pytest.approx(exact - exact.mean(), abs=0.06)
    # The intercept is corrected as if scores were normal.
    assert own.mean() == pytest.approx(exact.mean(), abs=0.05)
    assert learned.pairs_ == []


@pytest.mark.more
def test_a_rate_over_an_exposure_is_corrected_by_a_wide_gradient():
    oracle, x, found, years = rates()
    learned = PrivateAdditive(clip=20.0).fit_queries(oracle)
    assert np.exp(learned.decision_function(x)) @ years == pytest.approx(found.sum(), rel=0.01)
    clipped = PrivateAdditive().fit_queries(rates()[0])
    assert np.exp(clipped.decision_function(x)) @ years == pytest.approx(found.sum(), rel=0.03)


@pytest.mark.more
def test_a_time_has_the_proportional_hazards_of_the_mapped_rows():
    oracle, x, codes = times()
    learned = PrivateAdditive(clip=12.0, rounds=14).fit_queries(oracle)
    own = learned.decision_function(x)
    exact, baseline = grouped_fit(learned.feature_map_.of(x)[:, :-1], codes)
    assert own - own.mean() == pytest.approx(exact - exact.mean(), abs=0.12)
    assert np.corrcoef(own, exact)[0, 1] > 0.998
    assert learned.log_hazards_ + own.mean() == pytest.approx(baseline + exact.mean(), abs=0.08)
    assert learned.theta_[-1] == 0.0


@pytest.mark.more
def test_a_hazard_can_be_held_to_rise():
    oracle, _, _ = times()
    learned = PrivateAdditive(increasing="age").fit_queries(oracle)
    line = np.column_stack([np.linspace(-1, 1, 101), np.zeros((101, 2)), np.ones(101)])
    assert (np.diff(learned.decision_function(line)) > -1e-9).all()
    assert (np.diff(PrivateAdditive().fit_queries(times()[0]).decision_function(line)) < -1e-3).any()


@pytest.mark.more
def test_named_pairs_have_products():
    oracle, _, _ = times()
    assert PrivateAdditive(pairs="age*smoker").fit_queries(oracle).pairs_ == ["age*smoker"]


def test_a_refused_gradient_ends_the_rounds_with_a_warning():
    learned = PrivateAdditive().fit_queries(times(answers=5)[0])
    assert learned.warning_ == "received 5 of 10 releases: nothing is left"
    assert learned.log_hazards_.shape == (6,)


def test_what_cannot_be_had_is_refused_before_anything_is_asked():
    oracle = times(answers=0)[0]
    with pytest.raises(ConfigurationError, match=r"rounds is 3: .* give at least 4"):
        PrivateAdditive(rounds=3).fit_queries(oracle)
    with pytest.raises(ConfigurationError, match=r"rounds is 3: .* give at least 4"):
        PrivateAdditive(rounds=3).fit_queries(rates(answers=0)[0])
    _, x, _ = drawn()
    bare = ExactOracle(NUMBER, np.zeros(ROWS, np.int32), x[:, :3], answers=0, bias=False)
    with pytest.raises(ConfigurationError, match="needs an intercept"):
        PrivateAdditive().fit_queries(bare)
    oracle.epsilon = Fraction(1, 1_000)
    with pytest.raises(PlanError, match="the model is straight"):
        PrivateAdditive(stop_if_straight=True).fit_queries(oracle)


def test_with_too_little_information_the_model_is_that_of_hazards():
    oracle, x, _ = times()
    oracle.epsilon = Fraction(1, 1_000)
    learned = PrivateAdditive().fit_queries(oracle)
    assert learned.feature_map_ is None
    assert learned.log_hazards_.shape == (6,)
    assert "the model is straight" in learned.warning_
    assert np.isfinite(learned.decision_function(x)).all()
