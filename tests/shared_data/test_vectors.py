"""Published figures and those of other implementations: the shared vectors, where they are beside this checkout."""

import json
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.datasets import SHARED
from dpcore.accounting.dp_feat import admissible_range, delta_per_rado, epsilon_for, theorem_epsilon
from dpcore.errors import PlanError
from dpcore.estimators.boosting import logistic_loss, logistic_rado_loss
from tests.dpcore.estimators.test_rado_losses import all_rados
from tests.dpcore.estimators.test_radoboost import boost, iterates
from tests.radofed.test_plan_command import data

VECTORS = SHARED.parent / "vectors"
pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the shared vectors are not beside this checkout")
DP_FEAT, RADOBOOST = (
    json.loads((VECTORS / name).read_text()) if VECTORS.is_dir() else []
    for name in ("dp_feat_exact.json", "radoboost.json")
)


def test_the_vectors_of_dp_feat_are_there():
    assert len(DP_FEAT) >= 10


@pytest.mark.parametrize("vector", DP_FEAT, ids=lambda v: f"{v['m']}-{v['n']}-{v['epsilon_per_rado']}")
def test_the_accounting_of_dp_feat(vector):
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


@pytest.mark.variants(5)
@pytest.mark.parametrize("split", ["local", "exact"])
@pytest.mark.parametrize("vector", DP_FEAT, ids=lambda v: f"{v['m']}-{v['n']}-{v['epsilon_per_rado']}")
def test_the_plan_of_dp_feat(capsys, vector, split):
    found = data(
        capsys, "--design", "dp-feat", "--rows", str(vector["m"]), "--parties", "1", "--rados", str(vector["n"]),
        "--epsilon-per-rado", str(vector["epsilon_per_rado"]), "--delta", str(vector["delta"]), "--split", split,
    )  # fmt: skip
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


def test_truncation_agrees_with_the_vectors():
    for vector in DP_FEAT:
        epsilon = Fraction(str(vector["epsilon_per_rado"]))
        assert admissible_range(vector["m"], epsilon) == (vector["k_low"], vector["k_high"])


def test_lemma_2_vector():
    vector = RADOBOOST["lemma2"]
    edges, theta = np.array(vector["edges"]), np.array(vector["theta"])
    assert logistic_loss(theta, edges) == pytest.approx(vector["logistic_loss"], abs=1e-12)
    over_all = logistic_rado_loss(theta, all_rados(edges), len(edges))
    assert over_all == pytest.approx(vector["log2_plus_log_rado_loss_over_m"], abs=1e-12)


def test_the_published_vector_is_reproduced_round_by_round():
    rados = np.array(RADOBOOST["rados"], dtype=np.float64)
    for count, wanted in enumerate(RADOBOOST["rounds"], start=1):
        fitted = boost(rados, n_rounds=count)
        trace = fitted.rounds_
        assert trace.feature[-1] == wanted["feature"]
        assert abs(trace.r[-1] - wanted["r"]) < 1e-12
        assert abs(trace.alpha[-1] - wanted["alpha"]) < 1e-12
        assert np.abs(iterates(fitted, rados.shape[1])[-1] - wanted["theta"]).max() < 1e-12
        assert np.abs(fitted.weights_ - wanted["weights"]).max() < 1e-12
        assert abs(np.exp(trace.log_loss[-1]) - wanted["exp_rado_loss"]) < 1e-12
