"""Coefficients in the units of columns: they add up to the model's score, and intervals are only where measured."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from dpcore.estimators.mean_variance import MeanVariance
from dpcore.records.features import CategoryFeature, Label, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema
from learner.model import Model
from learner.predictions import predict
from learner.release import Release
from learner.report.coefficients import coefficients, effects, known_null
from learner.training import model_of
from tests.learner.report.report_world import HTML, SCHEMA, stays, table


def made(reported, path, places, **options):
    releases = tuple(Release.load(place) for place in places)
    (found,) = coefficients(Model.load(path), releases, options, np.random.default_rng(1))
    return found


def test_what_columns_add_is_the_score(reported, tmp_path):
    model = reported.loaded()
    added = {(row.column, row.change): row.value for row in made(reported, reported.model, []).rows}
    file = tmp_path / "rows.csv"
    file.write_text(table(40, 3))
    for row, score in zip(csv.DictReader(io.StringIO(table(40, 3))), predict(model, file).scores, strict=True):
        expected = next(value for (column, _), value in added.items() if column == "intercept")
        expected += float(row["age"]) * added["age", "for each unit more"]
        expected += added["smoker", "yes instead of no"] * (row["smoker"] == "yes")
        expected += added.get(("ward", f"{row['ward']} instead of east"), 0.0)
        assert score == pytest.approx(expected, abs=1e-6)


def test_a_threshold_and_a_schema_without_a_bias():
    schema = Schema(
        name="s",
        label=Label(column="y", positive=("1",)),
        features=(
            ThresholdFeature(name="old", column="age", threshold=65),
            RealFeature(name="dose", lower=1.0, upper=5.0),
            CategoryFeature(name="ward", values=("a", "b")),
        ),
        bias=False,
    )
    found = {(column, change): weights.tolist() for column, change, weights in effects(schema)}
    assert found == {
        ("old", "at least 65"): [2.0, 0, 0, 0],
        ("dose", "for each unit more"): [0, 0.5, 0, 0],
        ("ward", "b instead of a"): [0, 0, -1.0, 1.0],
    }
    assert known_null(schema).shape == (0, 4)


def test_no_combination_depends_on_what_a_category_leaves_open():
    combinations = np.array([weights for _, _, weights in effects(SCHEMA)])
    assert np.allclose(combinations @ known_null(SCHEMA).T, 0.0)
    x = stays(50, 1).features * 2.0**-30
    assert np.allclose(x @ known_null(SCHEMA).T, 0.0, atol=1e-9)


@pytest.mark.more
def test_a_release_of_moments_gives_both_intervals(reported):
    found = made(reported, reported.model, reported.releases)
    assert (found.has_noise, found.has_both, found.without) == (True, True, "")
    assert len(found.rows) == 5
    for row in found.rows:
        assert row.noise[0] < row.value < row.noise[1]
        assert row.both[0] < row.noise[0]
        assert row.noise[1] < row.both[1]
    (ward,) = [row for row in found.rows if HTML in row.change]
    assert ward.both[0] < 0 < ward.both[1]


def test_a_model_that_states_its_errors_has_intervals_of_them(reported):
    found = made(reported, reported.newton, [])
    assert (found.is_stated, found.is_computed, found.has_both, found.without) == (True, False, True, "")
    model = Model.load(reported.newton)
    for (_, _, weights), row in zip(effects(model.schema), found.rows, strict=True):
        width = 1.96 * np.sqrt(weights @ model.covariance @ weights)
        assert row.both == pytest.approx((row.value - width, row.value + width))
        assert row.noise is None


def test_a_coefficient_that_the_answers_leave_open_is_not_measurable(reported, tmp_path):
    model = Model.load(reported.newton)
    found = effects(model.schema)
    place = next(place for place, (column, _, _) in enumerate(found) if column == "ward")
    (level,) = np.flatnonzero(found[place][2] > 0)
    errors = model.covariance.copy()
    errors[level, level] += 25.0
    file = tmp_path / "model.json"
    replace(model, covariance=errors).save(file)
    made_of = made(reported, file, [])
    row = made_of.rows[place]
    assert (row.both, row.measurable) == (None, False)
    assert [each.measurable for at, each in enumerate(made_of.rows) if at != place] == [True] * (len(found) - 1)
    stated = made_of.to_dict()["rows"][place]
    assert (stated["both"], stated["measurable"]) == (None, False)


@pytest.mark.more
def test_the_same_seed_gives_the_same_intervals(reported):
    assert made(reported, reported.model, reported.releases) == made(reported, reported.model, reported.releases)


@pytest.mark.more
def test_without_what_is_needed_no_interval_is_stated(reported, tmp_path, monkeypatch):
    from learner.report import coefficients as module

    assert "give --release or --config" in made(reported, reported.model, []).without
    bare = tmp_path / "newton.json"
    replace(Model.load(reported.newton), covariance=None).save(bare)
    assert "on 3 answers there is no interval" in made(reported, bare, reported.answers).without
    other = made(reported, reported.model, reported.releases, shrinkage=3.0)
    assert "gives another model" in other.without
    assert "cannot be repeated: moments-discriminant has no option" in (
        made(reported, reported.model, reported.releases, rounds=3).without
    )
    release = Release.load(reported.releases[0])
    mean_variance = tmp_path / "model.json"
    model_of(MeanVariance().fit_moments(release.moments), release, "mean-variance").save(mean_variance)
    assert "For mean-variance on moments" in made(reported, mean_variance, reported.releases).without
    monkeypatch.setattr(module, "MOST_COORDINATES", 5)
    assert "more than 5 coordinates" in made(reported, reported.model, reported.releases).without
    monkeypatch.undo()
    monkeypatch.setattr("dpcore.evaluation.uncertainty.CLEAR", 1e4)
    lost = made(reported, reported.model, reported.releases)
    assert all(row.measurable is False for row in lost.rows)
    for found in (other, lost):
        assert not found.has_noise
        assert not found.has_both
        assert [row.value for row in found.rows] == [row.value for row in made(reported, reported.model, []).rows]
