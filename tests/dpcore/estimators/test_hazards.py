"""Proportional hazards recover the hazard ratios that rows were drawn with, and refuse what they cannot learn."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError

from dpcore.errors import ConfigurationError, DataError, OracleRefusedError
from dpcore.estimators.hazard_scores import concordance
from dpcore.estimators.hazards import ProportionalHazards
from dpcore.estimators.oracle import GradientEstimate
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import sums
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.coding import event_time_codes
from dpcore.records.features import BooleanFeature, EventTime, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

BORDERS = tuple(np.linspace(0.0, 4.0, 9)[1:].tolist())
SCHEMA = Schema(
    name="s",
    label=EventTime(column="t", event="e", happened=("1",), borders=BORDERS),
    features=(
        RealFeature(name="age", lower=-1.0, upper=1.0),
        RealFeature(name="dose", lower=-1.0, upper=1.0),
        BooleanFeature(name="smoker", true=("1",), false=("0",)),
    ),
)
THETA = np.array([0.9, -0.6, 0.3])


class RecordsOracle:
    """Answers from records by the real queries, without noise but for normal noise of `noise` on gradients."""

    epsilon, rows = Fraction(1), 6_000
    schema = SCHEMA

    def __init__(self, records, gradients=1_000, noise=0.0):
        self._records, self._left, self._noise = records, gradients, noise
        self._random = np.random.default_rng(7)

    def statistic(self, predicates, *, part=Fraction(1)):
        values = sums(predicates, SCHEMA, self._records, 0) / self.rows
        return Estimates(values, self.rows, 0.95, 0.0, 0.0, 0.0, 0.0)

    def number_moments(self, *, part=Fraction(1), norm_bound=None):
        query = NumberMomentsQuery(Clip(norm_bound, bias=True), 40, 3, SCHEMA.label.coding)
        return query.moments(query.sums(self._records, 8), 8, rows=self.rows, parties=1)

    def hazard_gradient(self, theta, *, clip, interval_weight, part=Fraction(1), basis=None):
        if not self._left:
            raise OracleRefusedError("nothing is left")
        self._left -= 1
        point = tuple(np.rint(np.ldexp(theta, 20)).astype(int).tolist())
        query = HazardGradientQuery("hazards", point, clip, 3, basis, len(BORDERS), interval_weight)
        mean = query.decode(query.sums(self._records, 8), 8) / self.rows
        return GradientEstimate(mean + self._random.normal(0.0, self._noise, len(mean)), self._noise, self.rows)


def drawn(seed=1, rate=0.4):
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (6_000, 2)), random.choice([-1.0, 1.0], 6_000), np.ones(6_000)])
    times = random.exponential(1.0 / (rate * np.exp(x[:, :3] @ THETA)))
    last = random.uniform(0.0, 8.0, 6_000)
    happened, ended = times <= last, np.minimum(times, last)
    places = np.searchsorted(BORDERS, ended)
    codes = np.where(places >= 8, 16, np.where(happened, places, 8 + places)).astype(np.int8)
    records = Records(
        np.rint(x * ONE).astype(np.int32), codes, np.ones(6_000, bool), coding=event_time_codes(len(BORDERS))
    )
    return records, x, ended, happened


@pytest.fixture(scope="module")
def patients():
    return drawn()


def test_hazard_ratios_and_the_baseline_are_those_of_the_draw(patients):
    records, x, _, _ = patients
    found = ProportionalHazards(clip=8.0, rounds=10).fit_queries(RecordsOracle(records))
    assert found.theta_[:3] == pytest.approx(THETA, abs=0.06)
    assert found.theta_[3] == 0.0
    assert np.exp(found.log_hazards_) == pytest.approx(np.full(8, 0.4 * 0.5), rel=0.2)
    survival = found.survival(x[:5])
    assert survival == pytest.approx(np.exp(-np.outer(0.4 * np.exp(x[:5, :3] @ THETA), BORDERS)), abs=0.05)
    assert (found.rounds_done_, found.warning_) == (12, None)


@pytest.mark.more
def test_clipping_and_noise_change_the_order_of_records_little(patients):
    records, x, ended, happened = patients
    exact = ProportionalHazards(clip=8.0, rounds=10).fit_queries(RecordsOracle(records))
    noisy = ProportionalHazards().fit_queries(RecordsOracle(records, noise=0.01))
    best, found = (concordance(each.decision_function(x), ended, happened) for each in (exact, noisy))
    assert best > 0.67
    assert found > best - 0.01


def test_a_refused_gradient_ends_the_rounds_with_a_warning(patients):
    found = ProportionalHazards().fit_queries(RecordsOracle(patients[0], gradients=2))
    assert found.rounds_done_ == 4
    assert "received 4 of 8 releases: nothing is left" in found.warning_


def test_concordance_is_kendalls_for_distinct_times():
    random = np.random.default_rng(2)
    scores, times = random.normal(size=200), random.exponential(size=200)
    tau = stats.kendalltau(scores, -times).statistic
    assert concordance(scores, times, np.ones(200, dtype=bool)) == pytest.approx((tau + 1.0) / 2.0)
    assert concordance(np.zeros(200), times, np.ones(200, dtype=bool)) == 0.5
    assert np.isnan(concordance(scores, times, np.zeros(200, dtype=bool)))


def test_no_events_are_told_from_noise_and_parameters_are_checked(patients):
    records = patients[0]
    none = Records(
        records.features, np.full(6_000, 16, np.int8), np.ones(6_000, bool), coding=event_time_codes(len(BORDERS))
    )
    with pytest.raises(DataError, match="cannot be told from the noise"):
        ProportionalHazards().fit_queries(RecordsOracle(none))
    for wrong in ({"rounds": 0}, {"cells_part": 0.0}, {"cells_part": 0.5, "moments_part": 0.5}, {"clip": -1.0}):
        with pytest.raises(ConfigurationError):
            ProportionalHazards(**wrong).fit_queries(RecordsOracle(records))
    with pytest.raises(NotFittedError):
        ProportionalHazards().decision_function(np.zeros((1, 4)))
