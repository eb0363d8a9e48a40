"""`rado simulate --picture`: what is drawn is what was simulated, and what is refused before anything runs."""

import json
from fractions import Fraction
from xml.etree import ElementTree as ET

import pytest

from dpcore.errors import PlanError
from radofed.cli.entry_point import run
from radofed.simulation.results import error_curves
from tests.radofed.simulation_world import made_up, simulate


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("pictures") / "rows.csv")


def simulated(capsys, table, *more):
    options = ("--label", "y", "--positive", "in", "--parties", "3", "--folds", "2", "--workers", "0", "--seed", "3")
    code = run(["simulate", "--data", str(table), *options, *more, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.more
def test_the_curves_are_those_of_simulations_at_each_epsilon(capsys, table, tmp_path):
    file, asked = tmp_path / "errors.SVG", ("--estimator", "naive-bayes,linear-regression", "--epsilon", "2")
    code, found = simulated(capsys, table, *asked, "--picture", str(file), "--epsilons", "8,1/2,2,8")
    assert code == 0
    curves = found["data"]["curves"]
    assert {name: [point["epsilon"] for point in points] for name, points in curves.items()} == {
        "naive-bayes": [0.5, 2.0, 8.0],
        "linear-regression": [0.5, 2.0, 8.0],
    }
    for epsilon, at in (("2", 1), ("8", 2)):
        alone = simulated(capsys, table, *asked[:2], "--epsilon", epsilon)[1]["data"]["results"]
        for estimator, points in curves.items():
            same = {key: value for key, value in points[at].items() if key != "epsilon"}
            assert same == {key: alone[estimator][key] for key in same}
        if epsilon == "2":
            printed = found["data"]["results"]
            assert printed["naive-bayes"]["test_error_mean"] == alone["naive-bayes"]["test_error_mean"]
    drawn = list(ET.parse(file).iter())
    lines = [len(part.get("points").split()) for part in drawn if part.tag.endswith("polyline")]
    assert lines == [3, 3]
    assert set(curves) <= {part.text for part in drawn}


@pytest.mark.more
def test_epsilons_at_which_the_model_is_straight_are_said(capsys, table, tmp_path):
    asked = (
        "--estimator",
        "additive",
        "--option",
        "rounds=3",
        "--option",
        "information=3",
        "--epsilon",
        "8",
        "--epsilons",
        "1/10,1/2,8",
    )
    code, found = simulated(capsys, table, *asked, "--picture", str(tmp_path / "errors.svg"))
    assert code == 0
    assert found["data"]["picture_notes"] == [
        f"epsilon {epsilon}: additive, in 2 of 2 folds: the model is straight" for epsilon in ("1/10", "1/2")
    ]
    assert not any("straight" in note for note in found["data"]["notes"])


@pytest.mark.more
def test_an_epsilon_that_is_not_possible_is_left_out_but_not_the_one_that_is_printed(table):
    result = simulate(table, folds=2)

    def at(epsilon):
        if epsilon < 1:
            raise PlanError("too small: raise epsilon")
        return result

    found = error_curves(at, [Fraction(1, 10), Fraction(1), Fraction(3)], first=Fraction(3))
    assert list(found.results) == [1, 3]
    assert found.to_dict()["left_out"] == {"1/10": "too small: raise epsilon"}
    with pytest.raises(PlanError):
        error_curves(at, [Fraction(1)], first=Fraction(1, 10))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--epsilon", "1", "--picture", "errors.jpg"), "ends in .svg"),
        (("--epsilon", "1", "--option", "clip=1", "--option", "clip=2"), "option clip is given twice"),
        (("--epsilon", "1", "--picture", "absent/errors.svg"), "not a directory"),
        (("--picture", "errors.svg"), "give the --epsilon"),
        (("--epsilon", "1", "--epsilons", "1,2"), "give its file"),
        (("--epsilon", "1", "--picture", "errors.svg", "--epsilons", "1,many"), "not a number"),
        (("--epsilon", "1", "--picture", "errors.svg", "--epsilons", "0,1"), "positive"),
        (("--epsilon", "1", "--picture", "errors.svg", "--epsilons", ""), "not a number"),
        (("--epsilon", "1", "--picture", "errors.svg", "--epsilons", ",".join(map(str, range(1, 40)))), "at most"),
    ],
)
def test_bad_input_is_refused_before_anything_is_simulated(capsys, table, tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("radofed.simulation.entry.run_simulation", None)
    code, found = simulated(capsys, table, "--estimator", "newton", *options)
    assert code == 4
    assert says in found["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_not_drawn_over_a_file(capsys, table, tmp_path):
    file = tmp_path / "errors.svg"
    file.write_bytes(b"mine")
    code, found = simulated(capsys, table, "--epsilon", "1", "--picture", str(file))
    assert code == 4
    assert "already exists" in found["error"]["message"]
    assert file.read_bytes() == b"mine"
