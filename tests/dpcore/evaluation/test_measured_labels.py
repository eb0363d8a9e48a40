"""Inquiries about a label that is a number or a count: against numpy on the rows, and how noise is counted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.estimators.least_squares import exact_moments
from dpcore.evaluation.descriptive.comparison import Compare
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab
from dpcore.evaluation.descriptive.description import Describe
from dpcore.evaluation.descriptive.measured_columns import _growing
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.records.encoding import store
from dpcore.records.features import Count, EventTime, Number
from dpcore.records.features.described import Numbers
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, RealFeature, Schema
from dpcore.statistics.accuracy import Estimates

ROWS = 3000
DAYS = Number(column="stay", lower=0.0, upper=60.0, out_of_bounds="clip")
LOG_DAYS = replace(DAYS, lower=0.1, log=True)
VISITS = Count(column="visits", upper=40, out_of_bounds="clip")
FEATURES = (
    RealFeature(name="age", lower=0.0, upper=100.0),
    BooleanFeature(name="emergency", true=("yes",), false=("no",)),
)


@pytest.fixture(scope="module")
def patients():
    """Emergencies stay longer."""
    random = np.random.default_rng(7)
    emergency = random.random(ROWS) < 0.4
    stay = (random.lognormal(1.2 + 0.5 * emergency, 0.7)).clip(0.1, 60)
    return {"age": random.uniform(0, 100, ROWS), "emergency": emergency, "stay": stay,
            "visits": random.poisson(2.0 + 3.0 * emergency).clip(0, 40)}  # fmt: skip


@pytest.fixture(scope="module")
def answered(patients):
    """Reads an inquiry about a label, without noise or as if there were noise of this deviation, in rows."""
    z = np.column_stack([patients["age"] / 50 - 1, 2.0 * patients["emergency"] - 1, np.ones(ROWS)])

    def answer(label, inquiry, deviation=0.0):
        schema = Schema(name="patients", label=label, features=FEATURES)
        cells = Numbers(patients[label.column].astype(float), np.zeros(ROWS, dtype=np.bool_))
        stored = label.encode([cells], ()).labels
        records = Records(store(z), stored, np.ones(ROWS, dtype=np.bool_), coding=label.coding)
        batch = inquiry.layout(schema).batch
        check(batch, schema)
        means = np.ldexp(sums(batch, schema, records, 20).astype(float), -20) / ROWS
        return inquiry.read(schema, Estimates(means, ROWS, 0.95, 0.0, 2.0**-20, 0.0, deviation / ROWS))

    return answer


def test_cells_of_a_count_are_single_numbers_first():
    for values, cells in ((2, 1), (2, 8), (41, 32), (1001, 32), (1_000_001, 3)):
        edges = _growing(values, cells)
        assert edges == sorted(set(edges))
        assert len(edges) == min(values, cells) - 1
        assert all(0 < edge < values for edge in edges)
    assert _growing(33, 64) == list(range(1, 33))


@pytest.mark.parametrize("label", [DAYS, VISITS], ids=["number", "count"])
def test_a_description_of_a_label_is_that_of_the_rows(answered, patients, label):
    values, column = patients[label.column], label.column
    found = answered(label, Describe(columns=(column,)))
    mean, deviation = found.one("mean", column), found.one("standard deviation", column)
    assert mean.estimate == pytest.approx(values.mean(), abs=1e-3)
    assert deviation.estimate == pytest.approx(values.std(), rel=1e-3)
    assert mean.half_width == pytest.approx(1.96 * values.std() / math.sqrt(ROWS), rel=0.01)
    assert deviation.lower < values.std() < deviation.upper
    for level, name in ((0.25, "quantile 0.25"), (0.5, "median"), (0.95, "quantile 0.95")):
        quantile = found.one(name, column)
        assert quantile.lower <= np.quantile(values, level, method="inverted_cdf") <= quantile.upper
    assert found.one("missing cells", column).upper == 0.0


def test_a_logarithm_has_a_geometric_mean_and_deviation(answered, patients):
    logs = np.log(patients["stay"])
    found = answered(LOG_DAYS, Describe(columns=("stay",), by="emergency", edges={"stay": (1, 2, 4, 8, 16)}))
    for group, rows in (("yes", patients["emergency"]), ("no", ~patients["emergency"])):
        mean = found.one("geometric mean", "stay", group=group)
        assert mean.estimate == pytest.approx(math.exp(logs[rows].mean()), rel=1e-4)
        half = 1.96 * logs[rows].std() / math.sqrt(rows.sum())
        assert math.log(mean.upper / mean.lower) / 2 == pytest.approx(half, rel=0.01)
        factor = found.one("geometric standard deviation", "stay", group=group)
        assert factor.estimate == pytest.approx(math.exp(logs[rows].std()), rel=1e-3)
        median = found.one("median", "stay", group=group)
        assert (median.lower, median.upper) in {(2, 4), (4, 8)}
        assert median.lower <= np.median(patients["stay"][rows]) <= median.upper
    assert "geometric one" in found.text
    compared = answered(LOG_DAYS, Compare(column="stay", by="emergency", reference="no"))
    ratio = compared.one("ratio of geometric means", "stay", group="yes, less no")
    truth = math.exp(logs[patients["emergency"]].mean() - logs[~patients["emergency"]].mean())
    assert ratio.estimate == pytest.approx(truth, rel=1e-4)
    assert 1 < ratio.lower < truth < ratio.upper
    assert ratio.p_value == 1e-6


def test_a_comparison_is_the_difference_of_means_with_welch_s_interval(answered, patients):
    stay, rows = patients["stay"], patients["emergency"]
    found = answered(DAYS, Compare(column="stay", by="emergency", reference="no"))
    longer = found.one("difference", "stay", group="yes, less no")
    assert longer.estimate == pytest.approx(stay[rows].mean() - stay[~rows].mean(), abs=1e-3)
    welch = 1.96 * math.hypot(*(stay[part].std() / math.sqrt(part.sum()) for part in (rows, ~rows)))
    assert longer.half_width == pytest.approx(welch, rel=0.01)
    assert longer.p_value == 1e-6
    halves = answered(DAYS, Compare(column="stay", by='x["age"] >= 50'))
    assert halves.figures[-1].p_value > 0.001


def test_intervals_of_a_label_count_the_noise(answered):
    """The mean is a quotient of two noisy sums: near m, the deviation of its noise is D sqrt(1 + m^2) / n.

    The interval is a little longer, as the variance of the sample is known through noise too.
    """
    exact, noisy = (answered(DAYS, Describe(columns=("stay",)), deviation) for deviation in (0.0, 60.0))
    mean = noisy.one("mean", "stay")
    place = mean.estimate / 60
    variance = exact.one("mean", "stay").half_width ** 2 + (1.96 * 60 * 60 / ROWS) ** 2 * (1 + place**2)
    assert 1 <= mean.half_width / math.sqrt(variance) < 1.15
    assert noisy.one("standard deviation").half_width > 3 * exact.one("standard deviation").half_width
    silent = answered(DAYS, Describe(columns=("stay",)), deviation=2000.0)
    assert {each.estimate for each in silent.figures if each.column and each.quantity != "missing cells"} == {None}


def test_a_label_costs_what_a_number_does():
    schema = Schema(name="patients", label=DAYS, features=FEATURES)
    of_label, of_feature = (Describe(columns=(name,)).layout(schema).batch for name in ("stay", "age"))
    assert batch_sensitivity(of_label).l1 == batch_sensitivity(of_feature).l1 == 5
    compared = [Compare(column=name, by="emergency").layout(schema).batch for name in ("stay", "age")]
    assert len({batch_sensitivity(each).l1 for each in compared}) == 1


def test_a_count_has_a_cell_for_each_value_where_the_cells_are_enough(answered, patients):
    few = answered(VISITS, Describe(columns=("visits",), cells=64))
    assert few.one("median").estimate == np.median(patients["visits"])
    at_half = answered(VISITS, Describe(columns=("visits",), edges={"visits": (0.5, 1, 4.5, 39.5)}))
    assert (at_half.one("quantile 0.95").lower, at_half.one("quantile 0.95").upper) == (5, 39)
    with pytest.raises(ConfigurationError, match="must ascend"):
        answered(VISITS, Describe(columns=("visits",), edges={"visits": (4, 4)}))
    whole = answered(VISITS, Describe(columns=("visits",), cells=1)).one("median")
    assert (whole.lower, whole.upper) == (0, 40)


def test_edges_of_a_label_divide_groups(answered, patients):
    by = answered(DAYS, Compare(column="age", by="stay", edges={"stay": (3, 9)}))
    assert by.one("rows", group="3 to below 9").estimate == pytest.approx(
        ((patients["stay"] >= 3) & (patients["stay"] < 9)).sum(), abs=1e-6
    )
    crossed = answered(DAYS, Crosstab(down="emergency", across="stay", edges={"stay": (3, 9)}))
    between = crossed.one("rows", "stay", group="yes", level="3 to below 9")
    members = patients["emergency"] & (patients["stay"] >= 3) & (patients["stay"] < 9)
    assert between.estimate == pytest.approx(members.sum(), abs=1e-6)


def test_edges_of_a_label_that_are_no_numbers_are_refused():
    schema = Schema(name="patients", label=DAYS, features=FEATURES)
    with pytest.raises(ConfigurationError, match="edges of 'stay' are numbers"):
        Describe(columns=("stay",), edges={"stay": ("2024-01-01",)}).check(schema)


@pytest.mark.more
def test_what_the_label_s_figures_mean_is_said(answered):
    over = replace(VISITS, exposure="years", exposure_lower=0.1, exposure_upper=5.0)
    schema = Schema(name="patients", label=over, features=FEATURES)
    inquiry = Describe(columns=("visits",))
    size = len(inquiry.layout(schema).batch)
    estimates = Estimates(np.full(size, 0.5), ROWS, 0.95, 0.0, 0.0, 0.0, 1e-6)
    assert "not divided by its exposure, 'years'" in inquiry.read(schema, estimates).text
    times = replace(schema, label=EventTime(column="months", event="died", happened=("1",), borders=(6.0, 12.0)))
    shares = Compare(column="months", by="emergency")
    estimates = replace(estimates, values=np.full(len(shares.layout(times).batch), 0.25))
    assert "`rado learner survival`" in shares.read(times, estimates).text


def test_a_label_correlates_as_a_column_does(patients):
    """Its square has noise of its own, which lengthens intervals, and silences what cannot be told from a constant."""
    schema, columns = Schema(name="patients", label=DAYS, features=FEATURES), ("age", "emergency", "stay")
    z = np.column_stack([patients["age"] / 50 - 1, 2.0 * patients["emergency"] - 1, np.ones(ROWS)])
    moments = exact_moments(z, patients["stay"] / 30 - 1)
    truth = np.corrcoef([patients[name] for name in columns])
    found = Correlate().read_moments(schema, moments)
    for first, second in ((2, 0), (2, 1), (1, 0)):
        pair = found.one("correlation", columns[first], level=columns[second])
        assert pair.estimate == pytest.approx(truth[first, second])
    noisy = Correlate().read_moments(schema, replace(moments, square_noise=8.0))
    assert (
        noisy.one("correlation", "stay", level="age").half_width
        > found.one("correlation", "stay", level="age").half_width
    )
    silent = Correlate().read_moments(schema, replace(moments, square_noise=ROWS / 10))
    assert silent.one("correlation", "stay", level="age").estimate is None
    logs = Correlate().read_moments(replace(schema, label=LOG_DAYS), moments)
    assert "with its logarithm" in logs.text


def test_a_time_to_an_event_does_not_correlate():
    label = EventTime(column="months", event="died", happened=("1",), borders=(6.0, 12.0))
    with pytest.raises(SchemaError, match="two classes, a number or a count, and 'months'"):
        Correlate().check(Schema(name="patients", label=label, features=FEATURES))
