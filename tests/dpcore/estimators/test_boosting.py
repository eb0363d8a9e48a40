import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpcore.errors import ConfigurationError
from dpcore.estimators.boosting import (
    LARGEST_EDGE,
    ORACLES,
    Boosting,
    BoostingRules,
    boost,
    make_oracle,
    median_oracle,
    prudential_oracle,
    strong_oracle,
)

ROWS = arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(1, 6)), elements=st.integers(-40, 40))


def rules(**changes):
    return BoostingRules(**({"n_rounds": 40, "oracle": strong_oracle} | changes))


def rounds_of(rows, the_rules):
    """The state after each round, with the weights before it, until boosting refuses, separates or ends."""
    state = Boosting(rows, the_rules)
    for _ in range(the_rules.n_rounds):
        before = state.weights.copy()
        if state.refusal() is not None:
            return
        state.step()
        yield before, state
        if state.separated:
            return


def log_loss(theta, rows):
    """Equation 2 from its definition, in nats."""
    return float(np.log(np.mean(np.exp(-(rows @ theta)))))


@pytest.fixture(scope="module")
def ordinary_rows():
    return np.random.default_rng(2).normal(loc=3.0, scale=10.0, size=(60, 7))


@given(
    rows=ROWS,
    kappa=st.sampled_from([1.0, 1.5, 4.0]),
    clip=st.sampled_from([None, 0.8, 0.05]),
    update=st.sampled_from(["linear", "exponential"]),
    oracle=st.sampled_from(["strong", "median"]),
)
def test_lemma_4_and_equation_17_hold_at_every_round(rows, kappa, clip, update, oracle):
    the_rules = rules(kappa=kappa, clip=clip, update=update, oracle=make_oracle(oracle, 0.5))
    squares = 0.0
    for _before, state in rounds_of(rows, the_rules):
        trace = state.trace()
        squares += float(trace.r[-1] ** 2)
        assert state.log_loss <= -squares / (2 * kappa) + 1e-9
        # If an edge reaches 1, its rounding error is magnified by 1 / (1 - r^2).
        assert state.log_loss <= trace.log_bound[-1] + (1e-3 if state.separated else 1e-9)
        assert abs(state.log_loss - log_loss(state.theta, rows)) < 1e-8


@given(rows=ROWS, floor=st.sampled_from([0.1, 0.5]), update=st.sampled_from(["linear", "exponential"]))
def test_with_a_floor_the_loss_stays_within_the_product_bound(rows, floor, update):
    for _before, state in rounds_of(rows, rules(floor=floor, update=update)):
        trace = state.trace()
        assert abs(trace.r[-1]) >= floor
        assert state.log_loss <= trace.log_bound[-1] + (1e-3 if state.separated else 1e-9)


def test_a_floor_may_break_lemma_4_and_the_bound_shows_it():
    """One row in 101 decides: the edge is 1/101, the step is taken for 1/2, and the loss rises above its start."""
    rows = np.array([[1.0]] * 51 + [[-1.0]] * 50)
    trace = boost(rows, rules(n_rounds=1, floor=0.5), "last").rounds
    assert trace.log_loss[0] > 0.1
    assert trace.log_loss[0] <= trace.log_bound[0] + 1e-12
    assert trace.log_bound[0] > 0 > -(trace.r[0] ** 2) / 2


@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_the_linear_update_is_equation_11_at_every_round(ordinary_rows, kappa):
    scaled = ordinary_rows / np.abs(ordinary_rows).max(axis=0)
    seen = 0
    for before, state in rounds_of(ordinary_rows, rules(n_rounds=300, kappa=kappa)):
        column = scaled[:, state.feature]
        r = float(before @ column)
        wanted = before * (1.0 - r * column) / (1.0 - r * r)
        assert np.allclose(state.weights, wanted, rtol=1e-11, atol=1e-15)
        assert abs(state.trace().edge[-1] - r) < 1e-13
        assert abs(r) >= np.abs(before @ scaled).max() - 1e-13
        seen += 1
    assert seen == 300


def test_the_exponential_update_weighs_rows_by_their_loss(ordinary_rows):
    for _before, state in rounds_of(ordinary_rows, rules(n_rounds=50, update="exponential", kappa=2.0)):
        wanted = np.exp(-(ordinary_rows @ state.theta))
        assert np.allclose(state.weights, wanted / wanted.sum(), rtol=1e-9)
    linear = boost(ordinary_rows, rules(n_rounds=50, kappa=2.0), "last")
    assert not np.allclose(linear.weights, wanted / wanted.sum(), rtol=1e-3)


def test_clip_and_floor_bound_the_edge_that_a_step_uses(ordinary_rows):
    bounded = boost(ordinary_rows, rules(n_rounds=100, clip=0.12, floor=0.1), "last").rounds
    assert np.all((np.abs(bounded.r) >= 0.1) & (np.abs(bounded.r) <= 0.12))
    assert np.abs(bounded.edge).max() > 0.12
    assert np.abs(bounded.edge).min() < 0.1
    assert np.array_equal(np.sign(bounded.r), np.sign(bounded.edge))


def test_a_clip_comes_before_the_oracle_so_that_clipped_edges_are_equals():
    rows = np.column_stack([np.array([1.0, 1.0, 1.0, -0.1]), np.array([1.0, 1.0, 1.0, 0.9])])
    assert boost(rows, rules(n_rounds=1), "last").rounds.feature[0] == 1
    assert boost(rows, rules(n_rounds=1, clip=0.5), "last").rounds.feature[0] == 0


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("clip", [None, 0.8])
def test_a_constant_coordinate_separates_and_stops_boosting(oracle, clip):
    rows = np.column_stack([np.zeros(4), -np.full(4, 20.0)])
    boosted = boost(rows, rules(n_rounds=500, clip=clip, oracle=make_oracle(oracle, 1.0)), "lowest-loss")
    assert len(boosted.rounds.r) == 1
    assert boosted.rounds.r[0] == -(clip or LARGEST_EDGE)
    assert "feature 1" in boosted.stopped_because
    assert "no minimum" in boosted.warning
    assert np.isfinite(boosted.theta).all()


def test_the_warning_is_set_if_and_only_if_theta_separates(ordinary_rows):
    one_sign = np.random.default_rng(1).uniform(5.0, 9.0, size=(30, 3))
    assert "positive on all rows" in boost(one_sign, rules(), "lowest-loss").warning
    ordinary = boost(ordinary_rows, rules(), "lowest-loss")
    assert ordinary.warning is None
    assert (ordinary_rows @ ordinary.theta).min() < 0
    assert boost(np.array([[1.0], [-1.0]]), rules(), "last").warning is None


def test_no_step_is_taken_along_a_coordinate_too_small_to_scale():
    rows = np.array([[5e-324, 1.0], [5e-324, -0.5], [5e-324, 0.25]])
    boosted = boost(rows, rules(), "last")
    assert boosted.theta[0] == 0.0
    assert np.isfinite(boosted.theta).all()
    assert set(boosted.rounds.feature) == {1}


def test_selections_keep_the_iterates_that_they_name(ordinary_rows):
    trace = boost(ordinary_rows, rules(n_rounds=150), "last").rounds
    steps = np.zeros((150, 7))
    steps[np.arange(150), trace.feature] = trace.alpha
    iterates = np.cumsum(steps, axis=0)
    last = boost(ordinary_rows, rules(n_rounds=150), "last")
    assert last.best_round == 150
    assert np.allclose(last.theta, iterates[-1], rtol=1e-12)
    # The third coordinate changes rarely, so that its least value is held by several iterates: the last is kept.
    score = [0.0, *np.round(iterates[:, 2], 3)]
    scored = boost(ordinary_rows, rules(n_rounds=150), lambda theta: float(np.round(theta[2], 3)))
    wanted = max(number for number, value in enumerate(score) if value == min(score))
    assert score.count(min(score)) > 1
    assert scored.best_round == wanted
    assert np.allclose(scored.theta, iterates[wanted - 1], rtol=1e-12)
    assert abs(scored.log_loss - log_loss(scored.theta, ordinary_rows)) < 1e-12


def test_a_score_that_never_improves_keeps_the_start_or_its_last_equal(ordinary_rows):
    assert boost(ordinary_rows, rules(), lambda theta: float(np.abs(theta).sum())).best_round == 0
    assert boost(ordinary_rows, rules(), lambda _theta: 1.0).best_round == 40


def test_patience_stops_boosting_after_rounds_without_improvement():
    # Few rows that no theta separates: late rounds fluctuate.
    rows = np.random.default_rng(2).integers(-9, 10, size=(6, 3)).astype(np.float64)
    whole = boost(rows, rules(n_rounds=400), "lowest-loss")
    short = boost(rows, rules(n_rounds=400, patience=5), "lowest-loss")
    assert len(short.rounds.r) == short.best_round + 5 < len(whole.rounds.r)
    assert "the last 5 (patience)" in short.stopped_because
    running = np.minimum.accumulate(np.concatenate([[0.0], whole.rounds.log_loss]))
    stalls = np.flatnonzero(running[5:] == running[:-5])
    assert short.best_round == stalls[0]


def test_the_strong_oracle_takes_the_first_of_equals():
    assert strong_oracle(np.array([0.1, -0.5, 0.5, 0.2])) == 1


def test_the_prudential_oracle_takes_the_largest_edge_that_it_admits():
    edges = np.array([0.1, -0.5, 0.4, 0.0, -0.4])
    assert prudential_oracle(edges, 0.5) == 1
    assert prudential_oracle(edges, 0.45) == 2
    assert prudential_oracle(edges, 0.1) == 0
    assert prudential_oracle(edges, 0.05) is None


def test_the_median_oracle_takes_the_upper_median_of_edges_that_are_not_zero():
    assert median_oracle(np.array([0.9, -0.2, 0.3])) == 2
    assert median_oracle(np.array([0.9, 0.0, -0.2, 0.3, 0.0, -0.5])) == 5
    assert median_oracle(np.array([0.1, 0.2, -0.2, 0.2])) == 2
    assert median_oracle(np.array([0.0, 0.7])) == 1


def test_the_prudential_oracle_never_lets_an_edge_above_lambda_p_be_used(ordinary_rows):
    strong = boost(ordinary_rows, rules(), "last").rounds
    assert np.abs(strong.edge).max() > 0.1
    prudent = boost(ordinary_rows, rules(oracle=make_oracle("prudential", 0.1)), "last").rounds
    assert len(prudent.r) == 40
    assert np.abs(prudent.edge).max() <= 0.1


def test_a_lambda_p_that_admits_nothing_is_refused_at_the_start_and_ends_boosting_later():
    rows = np.array([[1.0], [1.0], [1.0], [-1.0]])
    with pytest.raises(ConfigurationError, match=r"smallest edge is 0\.5; raise lambda_p"):
        boost(rows, rules(oracle=make_oracle("prudential", 0.49)), "last")

    calls = []

    def once(edges):
        calls.append(edges)
        return strong_oracle(edges) if len(calls) == 1 else None

    boosted = boost(np.array([[3.0, 1.0], [2.0, -1.0], [-1.0, 2.0]]), rules(oracle=once), "last")
    assert len(boosted.rounds.r) == 1
    assert boosted.stopped_because.startswith("after 1 rounds the oracle admits no feature")


def test_a_step_without_a_feature_is_refused():
    with pytest.raises(ConfigurationError, match="call refusal first"):
        Boosting(np.eye(3), rules()).step()


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rounds": 0},
        {"n_rounds": 2.5},
        {"kappa": 0.99},
        {"kappa": float("nan")},
        {"clip": 0.0},
        {"clip": 1.01},
        {"floor": -0.1},
        {"floor": 1.0},
        {"floor": 0.5, "clip": 0.4},
        {"smallest_edge": 1.0},
        {"update": "quadratic"},
        {"patience": 0},
    ],
)
def test_rules_out_of_range_are_refused(changes):
    with pytest.raises(ConfigurationError, match=next(iter(changes))):
        rules(**changes)


def test_unknown_names_are_refused(ordinary_rows):
    with pytest.raises(ConfigurationError, match="strong, prudential, median"):
        make_oracle("weak", 0.5)
    with pytest.raises(ConfigurationError, match="lowest-loss, last"):
        boost(ordinary_rows, rules(), "best")


@pytest.mark.parametrize("lambda_p", [0.0, 1.1, float("nan")])
def test_a_lambda_p_out_of_range_is_refused(lambda_p):
    with pytest.raises(ConfigurationError, match="lambda_p"):
        make_oracle("prudential", lambda_p)
