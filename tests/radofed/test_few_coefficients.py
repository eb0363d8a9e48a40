"""Coefficients that the budget cannot measure: plans, commands and Python warn before anything is asked."""

import json
import warnings

import numpy as np
import pytest

from dpcore.records.features import Number, RealFeature
from dpcore.records.schema import Schema
from radofed import simulated_federation
from radofed.cli.entry_point import run
from tests.federation.learner import SCHEMA
from tests.federation.setting import Setting

FEW = "coefficients can be measured"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("few") / "people.csv"
    ages = np.random.default_rng(3).integers(20, 95, 900)
    lines = [f"{years},{place % 30},{'yes' if years > 60 else 'no'}" for place, years in enumerate(ages)]
    path.write_text("\n".join(["age,ward,ill", *(line.replace(",", ",w", 1) for line in lines)]) + "\n")
    return path


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    yield made
    made.stub.stop()


def plan(capsys, *options):
    run(["plan", *options, "--parties", "4", "--format", "json"])
    printed = json.loads(capsys.readouterr().out)
    assert "data" in printed, printed
    return printed["data"]


@pytest.mark.parametrize("target", ["newton", "moments"])
def test_a_plan_says_so_and_what_would_do(tmp_path, capsys, target):
    reals = tuple(RealFeature(name=name, lower=0.0, upper=10.0) for name in "abcd")
    wage = Schema(name="w", label=Number(column="wage", lower=1.0, upper=100.0, log=True), features=reals)
    file = tmp_path / "wage.toml"
    file.write_text(wage.to_toml())
    what = ("--estimator", "newton") if target == "newton" else ("--design", "moments")
    asked = (*what, "--schema", str(file), "--epsilon", "1")
    few = plan(capsys, *asked, "--rows", "150")["coefficients_warning"]
    assert FEW in few
    rows = few.partition("At worst half of them take about ")[2].partition(" rows")[0].replace(",", "")
    found = plan(capsys, *asked, "--rows", rows)
    assert found["coefficients_warning"] is None
    assert found["feasible"]


@pytest.mark.more
def test_a_training_in_python_warns_before_it_asks(table):
    federation = simulated_federation(table, label="ill", positive="yes", parties=4, seed=1)
    with pytest.warns(UserWarning, match=FEW):
        federation.train("newton", epsilon=1, rounds=2)
    with warnings.catch_warnings(record=True) as said:
        federation.train("additive", epsilon=1, rounds=3, pairs=False)
    assert not any(FEW in str(each.message) for each in said)


@pytest.mark.more
def test_the_command_warns_before_it_sends(setting, tmp_path, capsys):
    setting.rows = {"ada": 100, "bo": 200}
    run(
        [
            *("learner", "train", "--estimator", "newton", "--epsilon", "1", "--schema", str(tmp_path / "schema.toml")),
            *("--config", str(setting.config_file), "--output", str(tmp_path / "m.json"), "--timeout-s", "1"),
        ]
    )
    said = capsys.readouterr().err
    assert FEW in said
    assert said.index(FEW) < said.index("timed out") if "timed out" in said else True
