"""The benchmarks of numbers, counts and times: their tables, peers, targets and pictures."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LinearRegression, PoissonRegressor

from benchmarks import million_rows, regression_peers, regressions, survival_tables
from benchmarks.datasets import DataSet
from benchmarks.measured_tables import MeasuredRule, MeasuredTable
from benchmarks.regression_peers import DescentSetting, noisy_descent, pooled
from benchmarks.survival_tables import RULES, EventRule, People, kaplan_meier, rejections
from dpcore.numbers.fixed_point import ONE
from dpcore.records.features import Count, Number

pytestmark = pytest.mark.more

NUMBER = Number(column="wage", lower=0, upper=1, out_of_bounds="clip")
COUNT = Count(column="visits", upper=40, out_of_bounds="clip")


def table(label, rows=600, people=200):
    """Three columns, of which a line explains most; three rows a person."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(rows, 3))
    score = x @ [0.4, -0.2, 0.0]
    labels = score + 0.1 * generator.normal(size=rows)
    stored = np.rint(np.clip(labels, -1, 1) * ONE) if label is NUMBER else generator.poisson(np.exp(1 + 2 * score))
    data = DataSet("made", x, np.empty((rows, 0), dtype=np.str_), np.zeros(rows, dtype=np.bool_))
    who = np.arange(rows) % people
    return MeasuredTable("made", MeasuredRule("made", label), data, np.minimum(stored, ONE).astype(np.int32), who)


def test_folds_and_parties_keep_the_rows_of_a_person_together():
    made = table(NUMBER)
    splits = made.folds(4)
    assert sum(len(split.test) for split in splits) == 600
    for split in splits:
        assert len(np.unique(split.people)) * 3 == len(split.train)
        parties = split.parties(3)
        assert sum(party.rows for party in parties) == len(split.train)
        assert all(party.rows % 3 == 0 for party in parties)
    few = replace(made, rule=replace(made.rule, rows=100)).folds(4)
    assert {len(split.train) for split in few} == {100}


@pytest.mark.parametrize("label", [NUMBER, COUNT], ids=["number", "count"])
def test_descent_with_little_noise_reaches_the_pooled_regression(label, monkeypatch):
    monkeypatch.setattr(regression_peers, "gaussian_mu", lambda epsilon, delta: 1e9)
    split = table(label).folds(3)[0]
    theta = noisy_descent(split, 1.0, 1e-6, DescentSetting(2000, 100.0), np.random.default_rng(0))
    assert theta == pytest.approx(pooled(split), abs=0.02)
    assert regressions.explained(split, theta) == pytest.approx(regressions.explained(split, pooled(split)), abs=1e-3)


def test_the_pooled_regressions_are_those_of_scikit_learn():
    split = table(NUMBER).folds(3)[0]
    model = LinearRegression().fit(split.train[:, :-1], split.train_labels / ONE)
    assert regressions.explained(split, pooled(split)) == pytest.approx(
        model.score(split.test[:, :-1], split.test_labels / ONE)
    )
    split = table(COUNT).folds(3)[0]
    counted = PoissonRegressor(alpha=1e-6, max_iter=2000).fit(split.train[:, :-1], split.train_labels)
    assert regressions.explained(split, pooled(split)) == pytest.approx(
        counted.score(split.test[:, :-1], split.test_labels), abs=1e-6
    )


def found(name="cps1988", rows=20_000, *, below=0.004, peer=0.1, is_count=False):
    values = {
        regressions.OURS: np.array([[0.4, 0.4 + below], [0.4 + below, 0.4]]),
        regressions.DESCENT: np.array([[0.4 - peer, 0.4]]),
        regressions.NO_PRIVACY: np.full((1, 2), 0.4 + below),
    }
    return regressions.Found(name, rows, rows, 13, is_count, dict.fromkeys(regressions.EPSILONS, values))


def test_regressions_have_their_targets():
    met = found().targets()
    assert [(target.figure, target.met) for target in met] == [(0.005, True), (0.0, True)] * 2
    assert met[0].measured == pytest.approx(0.002)
    assert [target.met for target in found(below=0.02, peer=-0.1).targets()] == [False, False] * 2
    few = found(rows=5_000, below=0.03).targets()
    assert [(target.figure, target.met) for target in few] == [(0.02, True), (0.0, True), (0.0, True)]
    assert [target.at_least for target in found("randhie, visits", is_count=True).targets()] == [True] * 4


def test_the_regressions_report_and_draw():
    report = regressions.reported([found(), found("randhie, visits", is_count=True)], 2, 2, ["a note"])
    json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    figure = Figure()
    regressions.draw(report, figure)
    assert len(figure.axes) == len(regressions.EPSILONS)


def people(count=300):
    rule = EventRule("time", "event", (1.0, 2.0, 4.0), "sex", RULES["flchain"].features[4:5])
    generator = np.random.default_rng(0)
    times, last = generator.exponential(2.0, count), generator.uniform(0.5, 6.0, count)
    groups = generator.choice(["F", "M"], count)
    ends, happened = np.minimum(times, last), times <= last
    made = pa.table({"time": ends, "event": happened.astype(int).astype(str), "sex": groups})
    return People(rule, made, ends, happened, groups)


def test_kaplan_meier_is_the_product_over_times():
    made = people()
    expected = []
    for border in made.rule.borders:
        survival = 1.0
        for time in np.sort(made.times[made.happened & (made.times <= border)]):
            survival *= 1 - 1 / (made.times >= time).sum()
        expected.append(survival)
    assert kaplan_meier(made.times, made.happened, made.rule) == pytest.approx(expected)


def test_curves_of_a_federation_are_near_the_pooled_ones():
    curves = survival_tables.curves_of(people(3000), "made", 2000, 2, None)
    assert curves.people == 2000
    assert max(curves.errors) < 0.05
    assert curves.untold == [0.0, 0.0]
    assert 1 < curves.deviation < 50


def test_the_log_rank_test_rejects_what_it_should():
    assert rejections(2000, 1.0, 10.0, 100) < 0.15
    assert rejections(2000, 2.0, 10.0, 20) > 0.9


def test_survival_tables_report_and_draw():
    curves = [survival_tables.Curves("flchain", 5000, [0.01, 0.03], [0.0, 0.1], 9.0)]
    models = [survival_tables.Models("flchain", 7874, np.full((2, 2), 0.79), np.full(2, 0.81))]
    tested = {(1000, ratio): (0.05, 0.06) for ratio in survival_tables.RATIOS}
    report = survival_tables._report(curves, models, tested, 9.0, [], 2)
    json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    assert [target.met for target in report.targets] == [True, False, True]
    figure = Figure()
    survival_tables.draw(report, figure)
    assert len(figure.axes) == 3


def test_a_million_rows_report_and_draw(monkeypatch):
    for name, value in (("ROWS", 4000), ("PEOPLE", 4000), ("REPEATS", 1), ("KEY_BITS", 2048), ("WORSE_BY_AT_MOST", 1)):
        monkeypatch.setattr(million_rows, name, value)
    report = million_rows.run()
    json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    assert len(report.targets) == 2
    figure = Figure()
    million_rows.draw(report, figure)
    assert len(figure.axes) == 1
