"""Published figures and tables, which are beside this checkout in `shared` or not there at all."""

import itertools
import json
import statistics
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.datasets import SHARED
from benchmarks.paper_protocol import WAYS, folds_of, paper_sets
from benchmarks.paper_tables import PROGRAM
from dpcore.accounting.dp_feat import delta_per_rado, epsilon_for, theorem_epsilon
from dpcore.accounting.truncation import admissible_range
from dpcore.errors import PlanError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.rado_losses import logistic_loss, logistic_rado_loss
from dpcore.estimators.radoboost import RadoBoost
from radofed.cli.entry_point import run

pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the shared vectors and tables are not beside this checkout"
)


def published(name):
    return json.loads((SHARED.parent / "vectors" / f"{name}.json").read_text())


DP_FEAT = published("dp_feat_exact") if SHARED.is_dir() else []


def test_the_vectors_are_complete():
    assert len(DP_FEAT) >= 10


@pytest.mark.parametrize("vector", DP_FEAT, ids=lambda v: f"{v['m']}-{v['n']}-{v['epsilon_per_rado']}")
def test_figures_of_dp_feat(vector):
    rows, n, epsilon = vector["m"], vector["n"], Fraction(str(vector["epsilon_per_rado"]))
    if "delta_per_rado" in vector:
        assert delta_per_rado(rows, epsilon) == pytest.approx(vector["delta_per_rado"], rel=1e-8)
    if not vector["feasible"]:
        with pytest.raises(PlanError):
            epsilon_for([rows], n, epsilon, vector["delta"])
        return
    found = epsilon_for([rows], n, epsilon, vector["delta"])
    assert found.lower <= vector["epsilon_upper"]
    assert found.upper >= vector["epsilon_lower"]
    assert found.upper - found.lower <= 0.01 * found.upper
    assert found.upper <= 1.01 * vector["epsilon_upper"]
    assert theorem_epsilon(n, epsilon) == vector["theorem_epsilon"]


def test_truncation_agrees_with_the_vectors():
    for vector in DP_FEAT:
        epsilon = Fraction(str(vector["epsilon_per_rado"]))
        assert admissible_range(vector["m"], epsilon) == (vector["k_low"], vector["k_high"])


@pytest.mark.variants(5)
@pytest.mark.parametrize("split", ["local", "exact"])
@pytest.mark.parametrize("vector", DP_FEAT, ids=lambda v: f"{v['m']}-{v['n']}-{v['epsilon_per_rado']}")
def test_figures_of_a_plan(capsys, vector, split):
    arguments = [
        "--design", "dp-feat", "--rows", vector["m"], "--parties", 1, "--rados", vector["n"], "--epsilon-per-rado",
        vector["epsilon_per_rado"], "--delta", vector["delta"], "--split", split, "--format", "json",
    ]  # fmt: skip
    assert run(["plan", *map(str, arguments)]) == (0 if vector["feasible"] else 1)
    found = json.loads(capsys.readouterr().out)["data"]
    assert found["feasible"] is vector["feasible"]
    assert found["theorem_epsilon"] == vector["theorem_epsilon"]
    assert found["delta"] == vector["delta"]
    if "delta_per_rado" in vector:
        assert found["delta_per_rado"] == pytest.approx(vector["delta_per_rado"], rel=1e-8, abs=0)
    if vector["feasible"]:
        assert vector["epsilon_lower"] * 0.99 <= found["epsilon"] <= vector["epsilon_upper"] * 1.01
        assert found["epsilon_if_others_collude"] == found["epsilon"]
        assert found["reason"] is found["suggestion"] is None
    else:
        assert found["epsilon"] is found["epsilon_if_others_collude"] is None
        assert found["reason"]
        assert found["suggestion"]


def test_lemma_2_vector():
    vector = published("radoboost")["lemma2"]
    edges, theta = np.array(vector["edges"]), np.array(vector["theta"])
    rados = np.array(list(itertools.product((0, 1), repeat=len(edges)))) @ edges
    assert logistic_loss(theta, edges) == pytest.approx(vector["logistic_loss"], abs=1e-12)
    over_all = logistic_rado_loss(theta, rados, len(edges))
    assert over_all == pytest.approx(vector["log2_plus_log_rado_loss_over_m"], abs=1e-12)


def test_the_published_vector_is_reproduced_round_by_round():
    vector = published("radoboost")
    rados = np.array(vector["rados"], dtype=np.float64)
    theta = np.zeros(rados.shape[1])
    for count, wanted in enumerate(vector["rounds"], start=1):
        fitted = RadoBoost(n_rounds=count).fit_release(RadoSample(rados=rados, rows=50))
        trace = fitted.rounds_
        assert trace.feature[-1] == wanted["feature"]
        assert abs(trace.r[-1] - wanted["r"]) < 1e-12
        assert abs(trace.alpha[-1] - wanted["alpha"]) < 1e-12
        theta += trace.alpha[-1] * (np.arange(len(theta)) == trace.feature[-1])
        assert np.abs(theta - wanted["theta"]).max() < 1e-12
        assert np.abs(fitted.weights_ - wanted["weights"]).max() < 1e-12
        assert abs(np.exp(trace.log_loss[-1]) - wanted["exp_rado_loss"]) < 1e-12


@pytest.mark.more
@pytest.mark.parametrize(
    "name",
    [
        "fertility",
        pytest.param("banknote", marks=pytest.mark.slow),
        pytest.param("ionosphere", marks=pytest.mark.slow),
        pytest.param("abalone", marks=pytest.mark.slow),
        pytest.param("wine_white", marks=pytest.mark.slow),
    ],
)
def test_errors_are_within_one_standard_deviation_of_the_authors(name):
    data = next(one for one in paper_sets(everything=False) if one.name == name)
    references = [one for one in PROGRAM if one.name == name]
    assert len(references) == 2
    folds = folds_of(data, 0)
    for reference in references:
        error = statistics.fmean(WAYS[reference.way](fold) for fold in folds)
        assert abs(error - reference.mean) <= reference.deviation
