"""The covariance of a model's weights: kept exactly, covered by the digest, and refused if it is none."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpcore.errors import ModelError, ShapeError
from learner.model import Model
from learner.model_file import digest_of, to_json
from learner.training import _covariances
from learner.uncertainty import MOST_COORDINATES, checked_covariance, covariance_from_text, covariance_text
from tests.learner.shapes.mapped import MAP, model


@pytest.fixture
def known():
    return model(covariance=True)


def test_it_is_saved_exactly_and_the_digest_covers_it(known, tmp_path):
    file = tmp_path / "model.json"
    known.save(file)
    loaded = Model.load(file)
    assert loaded.covariance.tobytes() == known.covariance.tobytes()
    assert not loaded.covariance.flags.writeable
    assert loaded.digest == known.digest
    assert known.digest != replace(known, covariance=None).digest
    assert known.digest != replace(known, covariance=known.covariance * 2).digest
    content = json.loads(file.read_text())
    content["covariance"] = covariance_text(known.covariance * 2)
    file.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="was changed"):
        Model.load(file)


def test_files_without_one_still_open(tmp_path):
    file = tmp_path / "model.json"
    model().save(file)
    assert "covariance" not in json.loads(file.read_text())
    assert Model.load(file).covariance is None


def test_the_file_is_compact():
    d = 256
    text = covariance_text(checked_covariance(np.eye(d), d))
    assert len(text) < 360_000
    np.testing.assert_array_equal(covariance_from_text(text, d), np.eye(d))


@pytest.mark.parametrize(
    ("text", "says"), [("AAAA", "no base64 of doubles"), ("*", "no base64"), ("", "has 0 numbers"), (3, "malformed")]
)
def test_a_file_with_another_text_is_refused(known, tmp_path, text, says):
    content = to_json(known)
    content["covariance"] = text
    content["digest"] = digest_of(content)
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=says):
        Model.load(tmp_path / "model.json")


def test_what_is_no_covariance_is_refused(known):
    covariance = known.covariance
    with pytest.raises(ShapeError, match="train again"):
        replace(known, covariance=covariance[:-1, :-1])
    lopsided = covariance.copy()
    lopsided[0, 1] += 0.1
    not_finite = covariance.copy()
    not_finite[2, 2] = np.nan
    for wrong in (lopsided, not_finite):
        with pytest.raises(ModelError, match="finite and symmetric"):
            replace(known, covariance=wrong)
    with pytest.raises(ModelError, match="negative variance"):
        replace(known, covariance=covariance - 0.5 * np.eye(MAP.d))
    # Rounding, and directions without any variance, are no fault.
    for fine in (np.zeros((MAP.d, MAP.d)), np.ones((MAP.d, MAP.d)), covariance * (1 + 1e-12 * np.tri(MAP.d))):
        kept = replace(known, covariance=fine).covariance
        np.testing.assert_array_equal(kept, kept.T)


def test_training_keeps_what_the_estimator_knows():
    class Estimator:
        pass

    estimator = Estimator()
    assert _covariances(estimator) == {}
    estimator.covariance_ = np.eye(3)
    np.testing.assert_array_equal(_covariances(estimator)["covariance"], np.eye(3))
    estimator.covariance_ = np.eye(MOST_COORDINATES + 1)
    assert _covariances(estimator) == {}
    with pytest.raises(ModelError, match="leave it out"):
        checked_covariance(estimator.covariance_, MOST_COORDINATES + 1)
