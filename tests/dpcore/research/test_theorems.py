"""The paper's statements against enumeration and simulation, and false variants of them."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.dp_feat import truncation
from dpcore.errors import ConfigurationError, DataError, PlanError, ShapeError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.boosting import log_rado_loss, logistic_loss, logistic_rado_loss
from dpcore.estimators.radoboost import RadoBoost
from dpcore.rados.signatures import expected_draws
from dpcore.research.signature_sets import (
    dp_feat_signatures,
)
from dpcore.research.theorems import (
    UnrecoverableError,
    boosting_bound,
    determined_rows,
    draws,
    noise_allowance,
    noisy_rate,
    penalties,
    reconstruct_edges,
    theorem_bound,
)
from tests.dpcore.rados.signature_enumeration import SETS, M, data, enumerated

# Theorem 3.


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(8))
def test_theorem_3s_penalties_equal_the_enumeration(name, seed):
    signatures = SETS[name]
    theta, edges = data(seed, scale=0.6)
    members = enumerated(signatures)
    rados, n, radius = members @ edges, 50, 1.1 * np.linalg.norm(theta)
    found = penalties(theta, edges, signatures, n, radius=radius, eta=0.1)
    # Q is the difference of the loss over the set and the loss over examples.
    over_set = logistic_rado_loss(theta, rados, M)
    assert found.structural == pytest.approx(logistic_loss(theta, edges) - over_set, abs=1e-10)
    assert found.structural <= found.structural_bound + 1e-12
    steps = 1e-6 * np.eye(len(theta))
    gradient = [(logistic_loss(theta + h, edges) - logistic_loss(theta - h, edges)) / 2e-6 for h in steps]
    bound = radius * (np.linalg.norm(gradient) + np.linalg.norm(rados.mean(axis=0)) / M)
    assert found.structural_bound == pytest.approx(bound, rel=1e-6)
    log_rho = radius * np.linalg.norm(rados, axis=1).max() - log_rado_loss(theta, rados)
    assert found.log_rho_lower == pytest.approx(log_rho, abs=1e-9)
    assert found.log_rho == pytest.approx(log_rho, abs=1e-9)
    rho_theta = math.exp((-(rados @ theta)).max() - log_rado_loss(theta, rados))
    assert math.exp(found.log_q_of_theta) == pytest.approx(rho_theta * math.sqrt(math.log(10) / 2), rel=1e-9)
    if name == "all":
        assert found.structural == pytest.approx(0, abs=1e-12)


def test_equation_6_term_by_term():
    theta, edges = data(3)
    found = penalties(theta, edges, SETS["support"], 50, eta=0.1, constant=2.0)
    radius = np.linalg.norm(theta)
    longest = np.linalg.norm(enumerated(SETS["support"]) @ edges, axis=1).max()
    inside = radius * longest + 3 * math.log(2 * math.e * 50 / 3) + math.log(10)
    assert found.log_q == pytest.approx(math.log(2) + found.log_rho + math.log(math.sqrt(inside)), rel=1e-12)


@pytest.mark.parametrize("name", ["all", "dp-feat", "support"])
def test_inequality_5_for_one_theta_has_the_stated_failure_probability(name):
    theta, edges = data(5, scale=0.15)
    n, eta, runs = 300, 0.2, 2000
    found = penalties(theta, edges, SETS[name], n, eta=eta)
    assert 0 < found.statistical_of_theta < 0.02
    members = enumerated(SETS[name])
    chosen = np.random.default_rng(6).integers(0, len(members), size=(runs, n))
    exponents = -(members @ edges @ theta)
    of_runs = math.log(2) + np.log(np.exp(exponents)[chosen].mean(axis=1)) / M

    def failures(penalty: float) -> float:
        return float(np.mean(logistic_loss(theta, edges) > of_runs + penalty))

    assert failures(found.structural + found.statistical_of_theta) <= eta
    # Without the statistical penalty it fails about half of the time.
    assert 0.4 < failures(found.structural) < 0.6
    assert failures(found.structural + 0.05 * found.statistical_of_theta) > eta


def test_the_stated_penalty_is_infinite_if_the_bound_is_vacuous():
    theta, edges = data(5)
    assert math.isinf(penalties(theta, edges, SETS["all"], 50).statistical)
    tiny = penalties(1e-3 * theta, 1e-3 * edges, SETS["all"], 10_000)
    assert 0 < tiny.statistical < 0.1
    q = math.exp(tiny.log_q)
    assert tiny.statistical == pytest.approx(-math.log(1 - q / 100) / M, rel=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.49])
def test_equation_8_is_above_the_penalty_where_m_is_large_enough(beta):
    theta, edges = data(5)
    large = 0
    for scale in (1e-4, 1e-3, 1e-2, 3e-2, 0.1):
        for n in (10, 100, 10_000, 10**8):
            found = penalties(theta * scale, edges * scale, SETS["support"], n, eta=0.1)
            rados = enumerated(SETS["support"]) @ edges * scale
            reach = np.linalg.norm(theta) * scale
            rho = math.exp(reach * np.linalg.norm(rados, axis=1).max() - log_rado_loss(theta * scale, rados))
            inside = reach * np.linalg.norm(rados / M, axis=1).max() / n
            inside += 3 / (n * M) * math.log(2 * math.e * n / (3 * 0.1))
            assert found.rate(beta) == pytest.approx(rho / M**beta * math.sqrt(inside), rel=1e-9)
            if found.is_large_enough(beta):
                large += 1
                assert found.statistical <= found.rate(beta)
    assert large >= 2
    # Where q is close to sqrt(n) the rate is exceeded, and m is not large enough.
    close = [penalties(1e-3 * theta, 1e-3 * edges, SETS["all"], 10, constant=c) for c in np.linspace(0.5, 1.5, 400)]
    assert any(one.statistical > one.rate(0.49) and not one.is_large_enough(0.49) for one in close)
    assert math.isinf(penalties(1e3 * theta, edges, SETS["all"], 50).rate(beta))
    with pytest.raises(ConfigurationError, match="beta"):
        found.rate(0.5)


def test_equation_13_on_rados_drawn_from_all_signatures():
    """Boosting's loss on the rados is at most log 2 - T gamma^2 / 2m, on the examples with the penalty more."""
    for seed in range(5):
        generator = np.random.default_rng(seed)
        edges = generator.normal(size=(M, 3)) * 0.05 + 0.03
        drawn = enumerated(SETS["all"])[generator.integers(0, 2**M, size=4000)] @ edges
        fitted = RadoBoost(6).fit_release(RadoSample(drawn, M, bias=False))
        theta = np.bincount(fitted.rounds_.feature, weights=fitted.rounds_.alpha, minlength=3)
        on_rados = logistic_rado_loss(theta, drawn, M)
        rate = boosting_bound(fitted.rounds_.r, M, 0.0)
        gamma = min(abs(r) for r in fitted.rounds_.r)
        assert rate == pytest.approx(math.log(2) - 6 * gamma**2 / 20, abs=1e-12)
        assert on_rados <= rate
        # The exact penalty is the losses' difference. Equation 13 holds with it and all that is above it.
        exact = logistic_loss(theta, edges) - on_rados
        assert logistic_loss(theta, edges) <= boosting_bound(fitted.rounds_.r, M, exact) + 1e-12
        found = penalties(theta, edges, SETS["all"], 4000)
        assert found.structural == pytest.approx(0, abs=1e-12)
        assert exact <= found.statistical
        assert logistic_loss(theta, edges) <= boosting_bound(fitted.rounds_.r, M, found.statistical)
    with pytest.raises(ShapeError):
        boosting_bound(np.zeros(0), M, 0.0)


@pytest.mark.more
def test_penalties_of_a_table_of_thousands_of_rows():
    generator = np.random.default_rng(7)
    edges = np.column_stack([np.where(generator.random(4177) < 0.3, 1.0, -1.0), generator.uniform(-1, 1, (4177, 2))])
    theta = generator.normal(size=3)
    found = penalties(theta, edges, dp_feat_signatures(edges[:, 0] > 0, Fraction(1, 2)), 1000)
    assert -1e-12 <= found.structural < found.structural_bound
    assert 0 < found.log_rho_lower <= found.log_rho <= (1 + 1e-9) * found.log_rho_lower
    assert math.isinf(found.statistical)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"radius": 0.1}, "ball that contains theta"),
        ({"eta": 0.0}, "eta"),
        ({"eta": math.nan}, "eta"),
        ({"constant": 0.0}, "constant"),
        ({"n": 2}, "n >= d"),
    ],
)
def test_theorem_3_refuses(change, error):
    theta, edges = data(1)
    arguments = {"n": 50} | change
    with pytest.raises(ConfigurationError, match=error):
        penalties(theta, edges, SETS["all"], **arguments)


def test_theorem_3_refuses_shapes():
    theta, edges = data(1)
    with pytest.raises(ShapeError):
        penalties(theta, edges[:-1], SETS["all"], 50)


# Theorem 7.


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_the_count_of_draws_has_its_distribution(epsilon):
    rows, n, eta, runs = 60, 40, 0.1, 4000
    found = draws(rows, n, epsilon, eta)
    low, high = truncation(rows, epsilon)
    generator = np.random.default_rng(8)
    k = generator.binomial(rows, 0.5, size=(runs, int(4 * found.quantile)))
    counts = np.argmax(np.cumsum((k >= low) & (k <= high), axis=1) == n, axis=1) + 1
    assert found.expected == pytest.approx(n * expected_draws(rows, low), rel=1e-12)
    assert found.expected_rejections == pytest.approx(found.expected - n, rel=1e-9)
    standard_error = math.sqrt(n * (1 - found.acceptance)) / found.acceptance / math.sqrt(runs)
    assert abs(counts.mean() - found.expected) < 4 * standard_error
    spread = 4 * math.sqrt(eta * (1 - eta) / runs)
    assert np.mean(counts <= found.quantile) >= 1 - eta - spread
    assert np.mean(counts <= found.quantile - 1) < 1 - eta + spread
    assert found.theorem_probability == pytest.approx(np.mean(counts <= found.theorem), abs=spread)


@pytest.mark.parametrize("rows", [50, 1000, 4177])
@pytest.mark.parametrize("n", [1, 100, 1000])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(2)])
def test_theorem_7_holds_where_its_set_has_members(rows, n, epsilon):
    found = draws(rows, n, epsilon)
    if found.acceptance == 0:
        assert rows == 50
        assert math.isinf(found.expected)
        assert math.isinf(found.quantile)
        assert not found.theorem_holds
    else:
        assert found.theorem_holds
        assert n <= found.quantile <= found.theorem


def test_theorem_7_is_false_for_a_large_epsilon():
    found = draws(10, 1000, Fraction(20))
    assert found.theorem == 1000
    # All of 1,000 signatures avoid k = 0 and k = 10 with probability (1 - 2^-9)^1000.
    assert found.theorem_probability == pytest.approx((1 - 2**-9) ** 1000, rel=1e-9)
    assert not found.theorem_holds
    assert draws(10, 1000, Fraction(10**6)).theorem == 1000


def test_theorem_7s_count_by_hand():
    beta = 1 / (1 + math.exp(0.25))
    free = 0.05 * (1 - math.exp(2 * beta - 1)) / (4 * beta)
    divergence = (1 - beta) * math.log(2 * (1 - beta)) + beta * math.log(2 * beta)
    expected = 100 * math.ceil(math.log(100 / free) / (500 * divergence))
    assert theorem_bound(500, 100, Fraction(1, 2), 0.05) == expected
    assert expected > 100
    assert math.isinf(theorem_bound(500, 100, Fraction(1, 10**18), 0.05))


def test_theorem_7_refuses():
    with pytest.raises(PlanError):
        draws(10, 0, Fraction(1))
    with pytest.raises(PlanError):
        draws(10, 1, Fraction(0))
    for eta in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigurationError):
            draws(10, 1, Fraction(1), eta)


# Theorem 8.


def boosted(zeta: float, seed: int, support: int = 400, kappa: float = 1.0):
    """RadoBoost on fixed-support rados of noisy edges, and the rate on the rados without noise."""
    generator = np.random.default_rng(seed)
    m, n, d = 600, 80, 4
    x = generator.uniform(-1, 1, size=(m, d))
    edges = x * np.where(x @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.2 * generator.normal(size=m) > 0, 1, -1)[:, None]
    selection = np.argsort(generator.random((n, m)), axis=1) < support
    noisy = selection @ (edges + zeta * generator.normal(size=edges.shape))
    rounds = RadoBoost(15, recentre=None, kappa=kappa).fit_release(RadoSample(rados=noisy, rows=m, bias=False)).rounds_
    theta = np.bincount(rounds.feature, weights=rounds.alpha, minlength=d)
    return noisy_rate(theta, selection @ edges, rounds.r, m=m, support=support, zeta=zeta, kappa=kappa)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_theorem_8_on_the_rados_without_noise(seed, kappa):
    without = boosted(0.0, seed, kappa=kappa)
    assert without.allowance == 0
    assert without.loss <= without.noise_free
    assert without.proved
    little = boosted(0.01, seed, kappa=kappa)
    assert little.proved
    assert little.holds
    assert little.loss <= little.noise_free + little.allowance


def test_theorem_8_needs_its_condition():
    """With much noise on few edges the rate on the clean rados is lost, and `proved` is False."""
    found = [boosted(30.0, seed, support=4) for seed in range(6)]
    assert not any(one.proved for one in found)
    assert not any(one.holds for one in found)
    assert all(one.loss <= one.noise_free + one.allowance for one in found)


def test_rates_by_hand():
    theta, r = np.array([0.1, -0.2]), np.array([0.5, -0.3])
    clean = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]])
    found = noisy_rate(theta, clean, r, m=7, support=5, zeta=0.3, kappa=2.0, tau=0.1)
    assert found.loss == pytest.approx(logistic_rado_loss(theta, clean, 7), abs=1e-15)
    assert found.noise_free == pytest.approx(math.log(2) - 0.34 / 28, abs=1e-15)
    assert found.stated == pytest.approx(math.log(2) - 0.34 / 56, abs=1e-15)
    allowance = 0.3 * 0.3 * math.sqrt(2 * 5 * math.log(2 * 3 * 2 / 0.1)) / 7
    assert found.allowance == pytest.approx(allowance, rel=1e-12)
    assert found.prudence == 0.5


@pytest.mark.parametrize("kind", ["gaussian", "integers"])
def test_the_allowance_for_noise_has_the_stated_failure_probability(kind):
    generator = np.random.default_rng(9)
    n, support, d, m, zeta, tau, runs = 20, 6, 2, 12, 0.5, 0.2, 3000
    theta = np.array([1.0, 1.0])
    selection = np.argsort(generator.random((n, m)), axis=1) < support
    if kind == "gaussian":
        noise = zeta * generator.normal(size=(runs, m, d))
    else:
        support_of_noise = np.arange(-6, 7)
        masses = np.exp(-(support_of_noise**2) / (2 * zeta**2))
        noise = generator.choice(support_of_noise, p=masses / masses.sum(), size=(runs, m, d)).astype(float)
    # For this theta the worst learner's sum is reached where both coordinates of a rado are extreme together.
    worst = np.abs(np.einsum("nm,rmd->rnd", selection, noise)).max(axis=(1, 2)) * np.abs(theta).sum()
    allowed = noise_allowance(theta, n=n, support=support, zeta=zeta, tau=tau)
    assert np.mean(worst > allowed) <= tau
    assert np.mean(worst > 0.6 * allowed) > tau


def test_theorem_8_refuses():
    theta, clean, r = np.ones(2), np.ones((3, 2)), np.array([0.5])
    numbers = {"m": 5, "support": 3, "zeta": 1.0}
    for change in ({"kappa": 0.5}, {"zeta": -1.0}, {"zeta": math.nan}, {"support": 0}, {"tau": 1.0}):
        with pytest.raises(ConfigurationError):
            noisy_rate(theta, clean, r, **(numbers | change))
    with pytest.raises(ShapeError):
        noisy_rate(theta, clean, np.array([1.0]), **numbers)
    with pytest.raises(ShapeError):
        noisy_rate(np.ones(3), clean, r, **numbers)


# Lemma 9.


def selections(n: int, m: int, seed: int = 10) -> np.ndarray:
    return np.random.default_rng(seed).random((n, m)) < 0.5


@pytest.mark.parametrize("m", [1, 7, 60])
def test_lemma_9_gives_the_edges_back(m):
    generator, selection = np.random.default_rng(11), selections(3 * m + 5, m)
    integers = generator.integers(-(2**16), 2**16, size=(m, 5))
    found = reconstruct_edges(selection.astype(np.int64) @ integers, selection)
    assert found.dtype == np.int64
    assert np.array_equal(found, integers)
    real = integers / 2.0**16
    rados = selection.astype(float) @ real
    assert reconstruct_edges(rados, selection) == pytest.approx(real, abs=1e-10)
    assert determined_rows(selection).all()
    # The lemma's own formula, edges as columns.
    columns = rados.T @ selection @ np.linalg.inv(selection.T.astype(float) @ selection)
    assert reconstruct_edges(rados, selection) == pytest.approx(columns.T, abs=1e-9)


def test_fewer_rados_than_edges_have_no_single_solution():
    selection = selections(6, 7)
    edges = np.arange(14).reshape(7, 2)
    with pytest.raises(UnrecoverableError) as caught:
        reconstruct_edges(selection @ edges, selection)
    assert (caught.value.rank, caught.value.rows) == (6, 7)
    # Another table has the same rados.
    null = np.linalg.svd(selection.astype(float))[2][-1]
    other = edges + np.outer(null, [1.0, -2.0])
    assert selection @ other == pytest.approx(selection @ edges, abs=1e-12)
    assert np.abs(other - edges).max() > 0.1


def test_one_edge_may_be_determined_if_not_all_are():
    selection = np.array([[True, False, False, False], [True, True, True, False], [False, True, True, True]])
    assert determined_rows(selection).tolist() == [True, False, False, True]
    assert determined_rows(np.zeros((2, 3), dtype=bool)).tolist() == [False] * 3
    repeated = np.repeat(selections(3, 5), 4, axis=0)
    with pytest.raises(UnrecoverableError):
        reconstruct_edges(repeated @ np.ones((5, 1)), repeated)


def test_wrong_signatures_are_detected():
    selection = selections(30, 8)
    rados = selection.astype(np.int64) @ np.arange(16).reshape(8, 2)
    wrong = selection.copy()
    wrong[0, 0] ^= True
    with pytest.raises(DataError, match="not sums"):
        reconstruct_edges(rados, wrong)
    with pytest.raises(ShapeError):
        reconstruct_edges(rados[1:], selection)
    with pytest.raises(ShapeError):
        reconstruct_edges(rados, selection.astype(np.uint8))
