"""Every table of coefficients says what clipping makes of them: commands, Python, reports, exports and the console."""

import json
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from dpcore.records.features import Label
from learner.clipped_weights import what_clipping_does
from learner.model import Model
from learner.report.gathering import Sources, gather
from learner.report.page import document
from radofed.cli.entry_point import run
from tests.learner.class_models import class_model
from tests.learner.shapes.mapped import SCHEMA
from tests.learner.test_value_exports import model

ILL = replace(SCHEMA, label=Label(column="ill", positive=("1",)))


def two_classes(*, clipped: bool, estimator: str = "newton") -> Model:
    given = class_model(mapped=False)
    d = len(given.theta[0])
    covariance = 1e-3 * np.eye(d)
    sampling = None if clipped else 1e-4 * np.eye(d)
    return replace(
        given, theta=given.theta[0], schema=ILL, estimator=estimator, covariance=covariance, sampling=sampling
    )


def with_errors(made: Model) -> Model:
    d = made.theta.size
    return replace(made, covariance=1e-3 * np.eye(d), sampling=1e-4 * np.eye(d))


MADE = {
    "these are no log odds": two_classes(clipped=True),
    "the log odds of a logistic regression": two_classes(clipped=False),
    "no logarithms of relative": class_model(mapped=False, estimator="newton"),
    "linear clips no residual": with_errors(model("number")),
    "than in a Poisson regression": with_errors(replace(model("count"), estimator="newton")),
    "that of the bulk of the rows": with_errors(model("time")),
}


# A family is one sentence, and all are said by the same lines.
@pytest.mark.variants(1)
@pytest.mark.parametrize("said", MADE)
def test_every_place_says_it(said, tmp_path, capsys):
    made = MADE[said]
    (sentence,) = what_clipping_does(made)
    assert said in sentence
    assert sentence in made.summary()
    assert sentence in unescape(made._repr_html_())
    assert all(sentence in table.notes for table in made.coefficients())
    assert made.to_original_units()["clipping_in_words"] == [sentence]
    made.save(tmp_path / "model.json")
    run(["learner", "coefficients", str(tmp_path / "model.json")])
    assert sentence in capsys.readouterr().out
    report = gather(Sources(tmp_path / "model.json"), 0.0, "1.0")
    assert json.loads(json.dumps(report.to_dict()))["clipping"] == [sentence]
    assert sentence in unescape(document(report).saved())


def test_a_report_says_of_which_regression_intervals_are(tmp_path):
    def page(made: Model) -> str:
        made.save(tmp_path / "model.json")
        return document(gather(Sources(tmp_path / "model.json"), 0.0, "1.0")).saved()

    clipped, hardly = page(two_classes(clipped=True)), page(two_classes(clipped=False))
    number = page(with_errors(model("number")))
    assert "It is not about a logistic regression" in clipped
    assert "It is not about a logistic regression" not in hardly + number
    assert "what the same regression would give" in hardly
    assert "what the same regression would give" in number


def test_a_straight_model_of_curves_says_it_too_and_others_say_nothing():
    assert "these are no log odds" in two_classes(clipped=True, estimator="additive").summary()
    assert what_clipping_does(model("number")) == what_clipping_does(with_errors(model("number")))
    assert what_clipping_does(replace(model("number"), estimator="linear")) == ()
    assert what_clipping_does(class_model(mapped=False)) == ()
    assert what_clipping_does(class_model(mapped=True, estimator="additive")) == ()
