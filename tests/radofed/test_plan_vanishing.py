"""What plans and simulations say of parties that may vanish, and the noise that a simulation draws then."""

import json
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, PlanError
from dpcore.paillier.survivors import MOST_SHARERS, is_enough
from learner.vanishing import most_that_may_vanish
from radofed.cli.entry_point import run
from radofed.simulation.oracles import simulated_federation
from tests.radofed.simulation_world import made_up, simulate

MOMENTS = ("--design", "moments", "--coordinates", "6", "--epsilon", "1", "--rows", "8000")
NEWTON = ("--estimator", "newton", "--coordinates", "6", "--epsilon", "1", "--rows", "8000")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("vanish") / "made_up.csv")


def planned(capsys, *arguments, expected=0):
    assert run(["plan", *arguments, "--format", "json"]) == expected
    return json.loads(capsys.readouterr().out)["data"]


def test_a_plan_of_a_design_states_what_it_costs(capsys):
    without, found = (planned(capsys, *MOMENTS, "--parties", "4", *more) for more in ((), ("--may-vanish", "1")))
    assert without["vanishing"] is None
    cost = found["vanishing"]
    assert (cost["may_vanish"], cost["most_may_vanish"], cost["threshold"], cost["cohort_min"]) == (1, 1, 3, 3)
    assert cost["noise_factor"] == pytest.approx(sqrt(3 / 2))
    # The noise of the plan is that much larger, and the promise under collusion the same.
    assert found["noise_sd"] / without["noise_sd"] == pytest.approx(cost["noise_factor"], rel=1e-3)
    assert 0.999 < found["epsilon_if_others_collude"] <= 1
    assert cost["further_calls_per_party"] == 2
    assert cost["further_bytes_received_by_learner"] > 4 * cost["further_bytes_sent_per_party"]


def test_a_plan_of_what_is_asked_states_it_too(capsys):
    found = planned(capsys, *NEWTON, "--parties", "10", "--may-vanish", "2")
    cost = found["vanishing"]
    assert (cost["most_may_vanish"], cost["threshold"], found["honest_parties"]) == (2, 8, 7)
    assert run(["plan", *NEWTON, "--parties", "10", "--may-vanish", "2"]) == 0
    said = capsys.readouterr().out
    assert "If up to 2 of the parties that accept vanish before they have uploaded" in said
    assert "the smallest cohort, 8 parties: if all answer, its standard deviation is 1.13 times" in said
    assert f"sends up to {cost['further_bytes_sent_per_party']:,} bytes more" in said


@pytest.mark.parametrize(
    ("parties", "count", "reason", "suggestion"),
    [
        ("10", "3", "of 10 beside 1 colluder at most 2 may", "lower may_vanish to 2"),
        ("3", "1", "of 3 beside 1 colluder at most 0 may", "leave may_vanish out"),
        ("101", "1", "of at most 100 parties some may vanish", "leave may_vanish out"),
    ],
)
def test_too_many_are_refused_with_the_reason(capsys, parties, count, reason, suggestion):
    found = planned(capsys, *MOMENTS, "--parties", parties, "--may-vanish", count, expected=1)
    assert reason in found["reason"]
    assert suggestion in found["suggestion"]


def test_honest_parties_are_those_of_the_smallest_cohort(capsys):
    found = planned(capsys, *MOMENTS, "--parties", "8", "--may-vanish", "1", "--honest", "7")
    assert (found["honest_parties"], found["vanishing"]["cohort_min"]) == (7, 7)
    for arguments in (("--parties", "8", "--honest", "8"), ("--parties", "1")):
        assert run(["plan", *MOMENTS, *arguments, "--may-vanish", "1"]) == ConfigurationError.exit_code
        assert "may_vanish" in (said := capsys.readouterr().err) or "fewer honest ones" in said


def test_as_many_may_vanish_as_the_proof_allows():
    for parties in range(2, MOST_SHARERS + 2):
        for colluders in (0, 1, 3):
            most = most_that_may_vanish(parties, colluders)
            safe = [
                gone
                for gone in range(1, parties - 1)
                if parties <= MOST_SHARERS and is_enough(parties, parties - gone, colluders=colluders)
            ]
            assert most == max(safe, default=0)


@pytest.mark.more
def test_a_plan_in_python_states_it(table):
    federation = simulated_federation(table, label="y", positive="in", parties=4, may_vanish=1)
    found = federation.plan("train", "newton", epsilon=1)
    assert found.to_dict()["vanishing"]["noise_factor"] == pytest.approx(sqrt(3 / 2))
    assert any("if all answer, its standard deviation is 1.22 times" in sentence for sentence in found.sentences())


def noise(table, **terms):
    """The standard deviation of the noise of 70 answers, in rows."""
    federation = simulated_federation(table, label="y", positive="in", parties=4, seed=1, **terms)
    queries = [f'x["x0"] >= {place / 40}' for place in range(-35, 35)]
    exact = federation.statistic(queries, epsilon=Fraction(150))
    found = federation.statistic(queries, epsilon=Fraction(1))
    return np.std((found.values - exact.values) * found.rows), found.deviation * found.rows


@pytest.mark.more
def test_a_simulation_draws_the_noise_of_the_smallest_cohort(table):
    (without, stated), (drawn, larger) = noise(table), noise(table, may_vanish=1)
    assert larger / stated == pytest.approx(sqrt(3 / 2), rel=0.01)
    # Of 70 draws a deviation is off by a twelfth or so.
    assert 0.8 < without / stated < 1.2
    assert 0.8 < drawn / larger < 1.2


@pytest.mark.more
def test_a_simulation_says_so(table):
    result = simulate(table, estimators="mean-variance", design="moments", epsilon=1, parties=4, may_vanish=1, folds=2)
    assert result.to_dict()["federation"]["vanishing"]["threshold"] == 3
    assert any("The noise is always that of the smallest cohort, 3 parties" in line for line in result.sentences())


def test_a_simulation_takes_no_masks_off(table):
    with pytest.raises(ConfigurationError, match="leave encrypt out, which changes no figure"):
        simulate(table, estimators="newton", epsilon=1, parties=4, may_vanish=1, encrypt=True)
    terms = {"parties": 4, "encrypt": True, "key_bits": 2048, "may_vanish": 1}
    federation = simulated_federation(table, label="y", positive="in", **terms)
    with pytest.raises(PlanError, match="leave encrypt out, which changes no figure"):
        federation.statistic(["y == 1"], epsilon=Fraction(1))
