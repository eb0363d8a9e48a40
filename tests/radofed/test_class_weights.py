"""Class weights in `rado plan` and `rado simulate`: the same cost, and what is found of a rare label."""

import json

import pytest

from radofed import simulate
from radofed.cli.entry_point import run
from tests.learner.test_decisions import frame

pytestmark = pytest.mark.more


def test_a_simulation_finds_more_of_a_rare_label_with_class_weights():
    options = {"label": "ill", "positive": "sick", "parties": 2, "folds": 2, "workers": 0, "epsilon": 10, "rounds": 4}
    plain, weighted = (
        simulate(frame(1, 6000), estimators="newton", class_weight=weight, **options) for weight in (None, "sick=10")
    )
    recalls = [result.to_dict()["results"]["newton"]["recall_mean"] for result in (plain, weighted)]
    assert recalls[1] > recalls[0] + 0.3
    assert 0 < weighted.to_dict()["results"]["newton"]["precision_mean"] < 1
    assert "found of positive rows" in "\n".join(weighted.sentences())
    majority = next(row for row in weighted.rows if row.learner == "majority")
    assert (majority.recall, majority.precision) == (0.0, None)
    with pytest.raises(Exception, match="has no class_weight to set"):
        simulate(frame(1, 600), estimators="logistic-gd", class_weight="sick=10", **{**options, "rounds": None})


def test_a_plan_with_class_weights_costs_the_same(capsys):
    sizes = ["--coordinates", "6", "--rows", "9000", "--parties", "3"]
    asked = ["plan", "--estimator", "newton", *sizes, "--epsilon", "1"]
    plans = []
    for weights in ([], ["--class-weight", "positive=5"]):
        assert run([*asked, *weights, "--format", "json"]) == 0
        plans.append(json.loads(capsys.readouterr().out)["data"])
    plain, weighted = plans
    assert weighted["epsilon"] == pytest.approx(plain["epsilon"], rel=1e-6)
    assert "class weights 1 : 5" in json.dumps(weighted)
    assert "class weights" not in json.dumps(plain)
    assert run([*asked, "--class-weight", "nobody=5"]) != 0
    assert "which is no class" in capsys.readouterr().err
    assert run([*asked, "--class-weight", "positive=5", "--option", "class_weight=balanced"]) != 0
    assert "given twice" in capsys.readouterr().err
