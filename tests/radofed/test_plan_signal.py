"""The alarm of a plan whose noise exceeds its signal, and what it says would help."""

import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from dpcore.records.schema import Schema
from radofed import simulate
from radofed.cli.entry_point import run
from radofed.demo.tables import schema, table
from radofed.planning.asked_cost import ask_cost
from radofed.planning.asked_queries import AskRequest
from radofed.planning.design_cost import PlanRequest
from radofed.planning.designs import plan_cost
from radofed.planning.signal import Signal, combined

TWENTY = ("--rows", "4000", "--parties", "4", "--coordinates", "20")
LOST = {
    "moments": ("--design", "moments", *TWENTY, "--epsilon", "0.01"),
    "gaussian": ("--design", "gaussian", *TWENTY, "--rados", "1000", "--epsilon", "1"),
    "fixed-support": ("--design", "fixed-support", *TWENTY, "--rados", "1000", "--epsilon", "1"),
    "joint": ("--design", "dp-feat", "--joint", *TWENTY, "--rados", "1000", "--epsilon", "0.01"),
    "newton": ("--estimator", "newton", *TWENTY, "--epsilon", "0.05"),
    "logistic-gd": ("--estimator", "logistic-gd", "--rounds", "5", *TWENTY, "--epsilon", "0.02"),
    "linear-regression": ("--estimator", "linear-regression", *TWENTY, "--epsilon", "0.01"),
    "statistic": ("--statistic", "y == 1", "--schema", "patients.toml", *TWENTY[:4], "--epsilon", "0.0001"),
}


@pytest.fixture(autouse=True)
def patients_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.toml").write_text(schema().to_toml())


def planned(capsys, arguments):
    assert run(["plan", *arguments, "--format", "json"]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out)["data"], captured.err


def test_what_an_answer_is_worth_has_its_error():
    """Sums of 400 coin flips with noise twice their deviation are as exact as means of 80 flips."""
    rng = np.random.default_rng(3)
    signal = Signal(2.0, 400, 1)
    assert signal.worth == 80
    flips = 2.0 * rng.binomial(400, 0.5, 200_000) - 400
    noisy = (flips + 2.0 * math.sqrt(400) * rng.normal(size=200_000)) / 400
    bare = (2.0 * rng.binomial(80, 0.5, 200_000) - 80) / 80
    # The standard error of a ratio of such variances is 0.0045.
    assert noisy.var() / bare.var() == pytest.approx(1, abs=0.025)
    assert noisy.var() / bare.var() != pytest.approx(1.1, abs=0.025)


def test_what_an_answer_is_worth_is_an_upper_bound():
    """Values that vary little, as products of columns do: the same noise weighs far more."""
    rng = np.random.default_rng(4)
    rows, deviation = 4000, 0.5
    signal = Signal(deviation, rows, 1)
    # 0.9 or 1 in each row, within [-1, 1].
    values = rng.choice([0.9, 1.0], p=[0.9, 0.1], size=rows)
    spread = values.std() * math.sqrt(rows)
    truly = rows / (1.0 + (deviation * math.sqrt(rows) / spread) ** 2)
    assert truly < signal.worth / 100
    assert "such a number is at most as exact as one without noise over 3,200 of the 4,000 rows" in signal.sentence()
    assert "worth at most" in signal.warning(())
    assert signal.to_dict()["worth_is_at_most"] is True


def test_answers_to_one_question_combine():
    four = combined([Signal(2.0, 100, 3)] * 4)
    assert four.noise_over_sampling == pytest.approx(1.0)
    assert combined([Signal(1.0, 100, 3), Signal(math.inf, 100, 3)]).noise_over_sampling == pytest.approx(1.0)


def test_the_alarm_is_at_cover_s_capacity():
    for k in (1, 2, 7, 20):
        # Of the labellings of 2 k points half are separable, of one point more fewer (Cover 1965, theorem 1).
        def separable(n, k=k):
            return 2 * sum(math.comb(n - 1, i) for i in range(k)) / 2**n

        assert separable(2 * k) == 0.5
        assert separable(2 * k + 1) < 0.5
        draws = 1_000_000
        at = math.sqrt(draws / (2 * k) - 1)
        assert Signal(at * 1.000001, draws, k).is_lost
        assert not Signal(at * 0.999, draws, k).is_lost
    # Too few draws without noise are not the noise's fault.
    assert not Signal(0.3, 10, 20).is_lost


@pytest.mark.parametrize("design", ["moments", "gaussian"])
def test_bounds_of_the_sampling_error_are_upper_bounds(design):
    """So that no alarm is raised for noise that rows would drown."""
    rng = np.random.default_rng(5)
    rows, n = 3000, 200
    request = PlanRequest(
        design=design, party_rows=(rows,), rados=None if design == "moments" else n, epsilon=Fraction(1), coordinates=4
    )
    cost = plan_cost(request)
    edges = rng.choice([-1.0, 1.0], (n, rows, 3)) if design == "moments" else rng.choice([-1.0, 1.0], (rows, 3))
    sums = edges.sum(axis=1) if design == "moments" else rng.integers(0, 2, (n, rows)) @ edges
    found = sums.std(axis=0).max()
    # Coin flips reach the bound; 200 sums estimate a deviation to within 5 %.
    assert 0.85 * cost.noise.spread < found < 1.2 * cost.noise.spread
    # Products of two coordinates have 5/7 of the noise of squares.
    least = min(cost.noise.noise_sd, (cost.noise.product_noise_sd or math.inf) * 5 / 7)
    assert cost.signal.noise_over_sampling == pytest.approx(least / cost.noise.spread)


@pytest.mark.more
def test_a_noised_table_s_noise_is_of_each_row_and_a_rado_s_of_its_draw(capsys):
    table_of_rows, _ = planned(capsys, LOST["fixed-support"])
    # A coordinate of a row is in [-1, 1], so it varies by at most 1.
    assert table_of_rows["noise_over_sampling"] == table_of_rows["share_sd"] / 2 ** table_of_rows["fraction_bits"]
    assert table_of_rows["worth_of"] == "rows"
    for name in ("gaussian", "joint"):
        found, _ = planned(capsys, LOST[name])
        assert found["noise_over_sampling"] == found["noise_sd"] / found["spread"]
        assert found["worth"] == pytest.approx(1000 / (1 + found["noise_over_sampling"] ** 2))
        assert found["worth_of"] == "rados"


@pytest.mark.parametrize("name", LOST)
def test_noise_that_exceeds_the_signal_raises_an_alarm_whose_advice_works(capsys, name):
    arguments = [*LOST[name]]
    found, _ = planned(capsys, arguments)
    assert found["feasible"]
    assert found["noise_over_sampling_together"] > 1
    said = re.search(
        r"It is at least ([\d.e+]+) times the sampling error: the answer is worth at most (\S+) ", found["warning"]
    )
    assert said
    assert float(said[1]) == pytest.approx(found["noise_over_sampling_together"], rel=0.01)
    assert float(said[1]) <= found["noise_over_sampling_together"]
    assert run(["plan", *arguments]) == 0
    assert f"Warning: {found['warning']}" in capsys.readouterr().out
    helps = re.search(r"What would help: (.*)\.$", found["warning"])
    assert helps
    ways = helps[1].split(", or ")
    assert len(ways) >= 2
    for way in ways:
        changed = followed(arguments, way)
        assert planned(capsys, changed)[0]["warning"] is None, way


def followed(arguments, way):
    patterns = {
        r"[\d,]+ times the rows \(([\d,]+)\)": "--rows",
        r"an epsilon of (\S+)": "--epsilon",
        r"(\d+) coordinates": "--coordinates",
    }
    for pattern, option in patterns.items():
        if (found := re.fullmatch(pattern, way)) is not None:
            changed = list(arguments)
            changed[changed.index(option) + 1] = found[1].replace(",", "")
            return changed
    assert way == "moments in place of rados"
    changed = list(arguments)
    place = changed.index("--rados")
    del changed[place : place + 2]
    changed[changed.index("--design") + 1] = "moments"
    return changed


def test_no_alarm_where_a_federation_learns(capsys):
    """The README's setting, and that of U14: noise hundreds of times the sampling error."""
    found, _ = planned(capsys, ("--estimator", "newton", "--rows", "8000", "--parties", "5", "--coordinates", "3",
                                "--epsilon", "1"))  # fmt: skip
    assert found["warning"] is None
    assert found["noise_over_sampling"] < 1
    found, _ = planned(capsys, ("--design", "moments", "--rows", "8000", "--parties", "3", "--coordinates", "30",
                                "--epsilon", "0.001"))  # fmt: skip
    assert found["noise_over_sampling"] > 100
    assert found["warning"]
    # Without noise there is nothing to warn of.
    found, _ = planned(capsys, ("--design", "dp-feat", "--rows", "8000", "--parties", "3", "--rados", "10"))
    assert found["warning"] is None
    assert "noise_over_sampling" not in found


@pytest.mark.slow
def test_the_alarm_is_that_of_measured_errors(tmp_path):
    """Where there is an alarm, newton errs as the larger class does; where there is none, it learns."""
    file = tmp_path / "patients.csv"
    table().write(np.arange(4000), file)
    shared: Schema = schema()
    for epsilon, lost in (("0.01", True), ("3", False)):
        found = simulate(
            file, schema=shared, parties=4, estimators="newton", epsilon=epsilon, folds=3, workers=0, seed=2
        ).to_dict()["results"]
        plan = ask_cost(AskRequest(party_rows=(667,) * 4, schema=shared, epsilon=Fraction(epsilon), estimator="newton"))
        assert (plan.warning is not None) is lost
        error, majority = (found[name]["test_error_mean"] for name in ("newton", "majority"))
        assert (error > majority - 0.02) is lost
