"""The benchmarks on tables: DP-FEAT, and tables that no choice has seen."""

import csv
import gzip
import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks import additive, dp_feat_error, dp_feat_protocol, private_curves, private_trees, unseen_tables
from benchmarks.datasets import RULES, DataSet
from benchmarks.dp_feat_protocol import Point, Sensitive
from benchmarks.environments import UnavailableError
from benchmarks.measuring import Report, WrongResultError
from benchmarks.private_peers import DescentSetting, Paired
from dpcore.accounting.noise_shares import IntegerNoise, joint_squared

pytestmark = pytest.mark.more

ROOT = Path(__file__).resolve().parents[2]


def table(rows=400, seed=0):
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=(rows, 3))
    categories = generator.choice(["a", "b"], size=(rows, 1)).astype(np.str_)
    return DataSet("made", numbers, categories, numbers[:, 1] + 0.5 * numbers[:, 0] > 0)


def test_a_table_without_numbers_is_encoded():
    data = replace(table(), numeric=np.empty((400, 0)))
    encoded = data.encode(np.arange(100))
    assert (encoded[:, 0] == (data.categories[:, 0] == "a")).all()
    assert encoded.shape == (400, 2 + 1)


def test_the_sensitive_column_becomes_one_coordinate_of_signs(monkeypatch):
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 2)
    data = table()
    number = dp_feat_protocol.folds_of(data, Sensitive("first >= median", 0, threshold=True), 1)[0]
    assert number.train.shape == (200, 1 + 2 + 2 + 1)  # signs, numbers left, one-hot, bias
    assert np.mean(number.train[:, 0] > 0) == pytest.approx(0.5)
    category = dp_feat_protocol.folds_of(data, Sensitive("letter", 0, category=True), 1)[0]
    assert category.train.shape == (200, 1 + 3 + 1)
    assert set(category.train[:, 0]) == {-1.0, 1.0}
    signs = dp_feat_protocol.sign_of(data.categories[:, 0], np.arange(400), Sensitive("letter", 0, category=True))
    assert ((signs > 0) == (data.categories[:, 0] == "b")).all()


def test_parties_share_out_every_row(monkeypatch):
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 3)
    fold = dp_feat_protocol.folds_of(table(), Sensitive("letter", 0, category=True), 1)[0]
    parts = fold.parties(4)
    assert sorted(part.rows for part in parts) == [66, 66, 67, 67]
    assert (np.concatenate([part.labels for part in parts]) == fold.train_labels).all()


def test_joint_is_asked_for_with_just_enough_noise():
    ask, counted = dp_feat_protocol.joint_ask(50, 4, Fraction(1))
    assert 0.999 < counted <= 1
    less = IntegerNoise(int(ask.design.share_sigma * 0.99), 4, 50)
    squared = joint_squared(dp_feat_protocol.SQUARED_RANGE, dp_feat_protocol.FRACTION_BITS)
    assert less.distribution(squared, 50, Fraction(1, 2)).epsilon(dp_feat_protocol.DELTA).upper > 1.001


def test_an_infinite_epsilon_is_none():
    assert dp_feat_protocol.exact_epsilon([4177], 100, Fraction(1, 2)) == pytest.approx(1.34, abs=0.01)
    assert dp_feat_protocol.exact_epsilon([4177], 100, Fraction(1, 10)) is None


def test_points_hold_as_many_rados_as_their_epsilon_pays_for():
    counted = dp_feat_protocol.counted_point(4177, 1000, Fraction(1))
    assert counted.epsilon <= 1 < dp_feat_protocol.exact_epsilon([4177], counted.rados + 1, None)
    theorem = dp_feat_protocol.theorem_point(4177, 1000, Fraction(1))
    assert (theorem.rados, theorem.theorem) == (10, pytest.approx(1))
    assert dp_feat_protocol.theorem_point(4177, 9, Fraction(1)) is None


@pytest.fixture
def small(monkeypatch):
    """The DP-FEAT benchmark on one small table, two folds once, five rounds."""
    monkeypatch.setattr(dp_feat_protocol, "FOLDS", 2)
    monkeypatch.setattr(dp_feat_protocol, "ROUNDS", 5)
    monkeypatch.setattr(dp_feat_error, "REPEATS", 1)
    monkeypatch.setattr(dp_feat_error, "SHARED", Path("/nowhere"))
    monkeypatch.setattr(dp_feat_error, "PACKAGED", {"made": Sensitive("first >= median", 0, threshold=True)})
    monkeypatch.setattr(dp_feat_error, "packaged", lambda: [table()])
    return dp_feat_error


@pytest.mark.more
def test_the_dp_feat_benchmark_reports_and_draws(small):
    report = small.run()
    written = json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
    assert "made" in written
    (one,) = report.setting["sets"]
    truncated = [point for point in one["points"] if point["way"] == "truncated"]
    assert [point["theorem_epsilon"] for point in truncated[:6]] == [None, 200, 100, 50, 30, 10]
    assert truncated[0]["exact_epsilon"] is not None
    assert truncated[5]["exact_epsilon"] is None
    assert any("there is no shared/data" in note for note in report.notes)
    figure = Figure()
    small.draw(report, figure)
    assert len(figure.axes) == 3
    empty = Report("dp_feat_error", "", report.setting | {"sets": []}, [], [], [])
    small.draw(empty, Figure())


def test_a_truncation_that_lowers_epsilon_ends_the_run():
    none = Point("truncated", 1, 10, None, 2.0, None)
    lower = replace(none, per_rado=Fraction(1), epsilon=1.0)
    sensitive = Sensitive("x", 0)
    honest = dp_feat_error.Compared("made", sensitive, 100, 2, 0.0, (none, replace(lower, epsilon=2.5)))
    assert honest.raised() == [1.25]
    with pytest.raises(WrongResultError, match="lowers"):
        dp_feat_error.Compared("made", sensitive, 100, 2, 0.0, (none, lower)).raised()


@pytest.mark.parametrize(("mean", "error", "within"), [(0.2, 0.0, True), (0.21, 0.0, False), (0.59, 0.2, True)])
def test_what_is_allowed_above_newton(mean, error, within):
    assert additive.within_newton(Paired(mean, error)) is within
    assert not additive.within_newton(Paired(0.61, 0.2))


def test_a_peer_is_of_equal_privacy_and_not_ours():
    """The one with the weaker guarantee is left out."""
    errors = {
        unseen_tables.OURS: [3.0, 5.0],
        unseen_tables.NEWTON: [6.0, 6.0],
        "boosting, added": [2.0, 2.0],
        "boosting, replaced": [3.5, 4.0],
        private_curves.TREES: [9.0, 9.0],
        private_curves.DESCENT: [3.0, 3.0],
    }
    found = unseen_tables.Found(5000, None, {1.0: errors})
    assert found.best(1.0) == (private_curves.DESCENT, Paired(1.0, pytest.approx(1.0)))
    assert found.best(1.0, with_our_functions=False) == ("boosting, replaced", Paired(0.25, pytest.approx(0.75)))


@pytest.fixture
def few_tables(monkeypatch, tmp_path):
    """The benchmark of unseen tables with a made one in its directory, none of scikit-learn's, and one epsilon."""
    data = table(rows=300)
    with gzip.open(tmp_path / "phoneme.csv.gz", "wt", encoding="utf-8", newline="") as file:
        written = csv.writer(file)
        written.writerow(["Aa", "Ao", "Dcl", "letter", "label"])
        rows = zip(data.numeric.tolist(), data.categories.tolist(), data.positive.astype(int), strict=True)
        written.writerows([*numbers, *letters, label] for numbers, letters, label in rows)
    monkeypatch.setattr(unseen_tables, "packaged", list)
    monkeypatch.setattr(additive, "DRAWS", 1)
    monkeypatch.setattr(private_curves, "DRAWS", 1)
    # Threads of the trees without privacy wait for each other on a busy machine.
    few = partial(additive.HistGradientBoostingClassifier, max_iter=2)
    monkeypatch.setattr(additive, "HistGradientBoostingClassifier", few)
    monkeypatch.setattr(unseen_tables, "QUICK_FOLDS", 2)
    monkeypatch.setattr(unseen_tables, "ROWS_FOR_PEERS", 300)
    monkeypatch.setattr(unseen_tables, "FOLDS", 2)
    monkeypatch.setattr(unseen_tables, "EPSILONS_BESIDE_PEERS", (1.0,))
    monkeypatch.setattr(private_curves, "DESCENTS", (DescentSetting(5, 8.0, 0.5),))
    monkeypatch.setattr(private_curves, "SETTINGS_OF_TREES", (private_trees.TreesSetting(5, one_feature=False),))
    monkeypatch.setenv(unseen_tables.VARIABLE, str(tmp_path))
    return unseen_tables


@pytest.mark.more
def test_the_benchmark_of_unseen_tables_reports_and_draws(few_tables, monkeypatch):
    def unavailable(*_):
        raise UnavailableError("no network")

    monkeypatch.setattr(few_tables, "environment", unavailable)
    quick, every = few_tables.run(), few_tables.run(everything=True)
    (one,) = every.setting["sets"]
    assert (one["name"], one["rows"], one["d"]) == ("phoneme", 300, 3 + 2 + 1)
    assert one["above_newton"].keys() == {"0.1", "0.5", "1", "3"}
    assert one["above_best_peer"]["1"]["peer"] in {private_curves.DESCENT, private_curves.TREES, additive.NEWTON}
    assert quick.setting["sets"][0]["above_best_peer"] == {}
    assert any("spambase" in note for note in every.notes)
    assert "Without interpret: no network." in every.notes
    for report in (quick, every):
        json.dumps(report.as_json({}, "2000-01-01"), allow_nan=False)
        figure = Figure()
        few_tables.draw(report, figure)
        assert len(figure.axes) == 2


def test_without_a_directory_the_unseen_tables_are_skipped(few_tables, monkeypatch):
    monkeypatch.delenv(few_tables.VARIABLE)
    report = few_tables.run()
    assert report.setting["sets"] == []
    assert any("names no directory" in note for note in report.notes)
    few_tables.draw(report, Figure())


def test_no_table_of_the_choice_is_unseen():
    assert not set(unseen_tables.SETS) & set(RULES)
    assert set(unseen_tables.QUICK_SETS) < set(unseen_tables.SETS)


def test_the_readme_has_the_rule_of_every_unseen_table():
    readme = (ROOT / "benchmarks/README.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", readme.partition("\n## unseen_tables\n")[2], re.MULTILINE)
    assert named == list(unseen_tables.SETS)
