"""The cost of a release, compared with the accountants it uses, and how it depends on its setting."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.dp_feat import EmptyTruncationError, account, account_of_exact_split, delta_for, truncation
from dpcore.accounting.gaussian import WeakNoiseError, gaussian_delta, subsampled_epsilon
from dpcore.accounting.noise_shares import (
    ROUNDING_VARIANCE,
    LaplaceShares,
    edge_squared,
    joint_squared,
    moments_squared,
    root_up,
    smallest_share,
)
from dpcore.accounting.protection import (
    CountProtection,
    GaussianProtection,
    LaplaceProtection,
    NoiseProtection,
    Setting,
)
from dpcore.errors import PlanError
from dpcore.numbers.distributions import binomial_distribution, pooled_distribution
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    RareInclusionError,
    SensitiveFeature,
)
from dpcore.rados.support import SupportError
from dpcore.records.clipping import Clip

ROWS, DELTA = (400, 300, 200), 1e-6
CLIP = Clip(Fraction(3, 2), bias=True)
SETTING = Setting(d=6, fraction_bits=10, honest_parties=2)
SMOKER, MILD = SensitiveFeature(1, "smoker"), Fraction(4)

MOMENTS = MomentsQuery(CLIP, 1000, 40_000_000)
GAUSSIAN = RadosQuery(50, GaussianDesign(CLIP, 20_000))
SUBSAMPLED = RadosQuery(50, GaussianDesign(CLIP, 20_000, Fraction(1, 10)))
JOINT = RadosQuery(50, JointDesign("c", (1, 2), 2, 8_000))
FIXED = RadosQuery(50, FixedSupportDesign(Fraction(1, 4), CLIP, 4_000))
DP_FEAT = RadosQuery(20, DpFeatDesign((SMOKER,), MILD))
NOISED = {"moments": MOMENTS, "gaussian": GAUSSIAN, "subsampled": SUBSAMPLED, "joint": JOINT, "fixed": FIXED}


def release_cost(kind, rows, delta, setting):
    return kind.protection(setting).cost(rows, delta)


def release_delta(kind, rows, epsilon, setting):
    return kind.protection(setting).least_delta(rows, epsilon)


def mu(squared: Fraction | int, sigma: int, shares: int) -> float:
    """Delta over sigma of the continuous noise that stands for the sum of the shares."""
    return root_up(Fraction(squared) / (shares * sigma**2 - ROUNDING_VARIANCE))


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        (RadosQuery(9, PlainDesign()), "none"),
        (RadosQuery(9, PlainDesign((1,))), "marginal"),
        (DP_FEAT, "marginal"),
        (JOINT, "joint"),
        (GAUSSIAN, "record"),
        (MOMENTS, "record"),
        (FIXED, "record"),
        (RadosQuery(9, FixedSupportDesign(Fraction(1, 4), CLIP, 0)), "none"),
        (GradientQuery("hinge", (0,) * 6, Fraction(1), 10**8), "record"),
    ],
)
def test_the_scope_is_what_the_design_bounds(kind, scope):
    assert kind.scope == kind.protection(SETTING).scope == scope
    cost = release_cost(kind, ROWS, DELTA, SETTING)
    assert (cost is None) == (scope == "none")
    if cost is not None:
        assert cost.scope == scope
        assert 0 <= cost.epsilon <= cost.epsilon_if_others_collude
        # Only a count's lower end is that of what is released.
        assert (cost.epsilon_lower is not None) == (scope == "marginal")
        assert cost.epsilon_lower is None or 0 <= cost.epsilon_lower <= cost.epsilon


@pytest.mark.parametrize(
    ("kind", "squared", "sigma", "p"),
    [
        (MOMENTS, moments_squared(CLIP, 10, 1000), 40_000_000, 1),
        (GAUSSIAN, edge_squared(CLIP, 10) / 4, 20_000, 1),
        (SUBSAMPLED, edge_squared(CLIP, 10), 20_000, Fraction(1, 10)),
        (JOINT, joint_squared(2, 10), 8_000, Fraction(1, 2)),
    ],
)
def test_shared_noise_is_counted_by_its_shares(kind, squared, sigma, p):
    """All three shares against the learner alone, two of them under collusion."""
    n = kind.rados if isinstance(kind, RadosQuery) else 1
    cost = release_cost(kind, ROWS, DELTA, SETTING)
    assert cost is not None
    for shares, epsilon in ((3, cost.epsilon), (2, cost.epsilon_if_others_collude)):
        counted = subsampled_epsilon(mu(squared, sigma, shares), n, p, DELTA)
        assert epsilon == pytest.approx(counted.upper, rel=1e-6)
        assert 0.1 < epsilon < 10
    # The accounting gives a reader more than the release does, and assumes that the whole sensitivity is reached.
    assert cost.epsilon_lower is None
    assert cost.delta == DELTA
    assert cost.theorem_epsilon is None


def test_a_tables_noise_is_one_share_and_is_paid_once():
    cost = release_cost(FIXED, ROWS, DELTA, SETTING)
    assert cost is not None
    counted = subsampled_epsilon(mu(edge_squared(CLIP, 10), 4_000, 1), 1, 1, DELTA).upper
    assert cost.epsilon == cost.epsilon_if_others_collude == pytest.approx(counted, rel=1e-6)
    for more in (replace(FIXED, rados=1), replace(FIXED, rados=100_000)):
        assert release_cost(more, ROWS, DELTA, SETTING) == cost
    assert release_cost(FIXED, (400,), DELTA, SETTING) == cost


@pytest.mark.parametrize("rows", [ROWS, (150, 4000)])
def test_marginals_equal_the_exact_account(rows):
    kinds = {
        None: [RadosQuery(20, PlainDesign((1, 4))), RadosQuery(20, DpFeatDesign((SMOKER,)))],
        MILD: [DP_FEAT],
    }
    kinds[None].append(RadosQuery(20, DpFeatDesign((SMOKER, SensitiveFeature(2, "age", rounded=True)))))
    for epsilon_per_rado, several in kinds.items():
        counted = account(rows, 20, epsilon_per_rado, DELTA)
        for kind in several:
            cost = release_cost(kind, rows, Fraction(1, 10**6), SETTING)
            assert cost is not None
            assert (cost.epsilon, cost.epsilon_lower) == (counted.epsilon, counted.epsilon_lower)
            assert cost.epsilon_if_others_collude == counted.epsilon_if_others_collude
            assert cost.theorem_epsilon == counted.theorem_epsilon


def test_an_exact_split_is_counted_as_such():
    kind = RadosQuery(20, replace(DP_FEAT.design, split="exact"))
    counted, cost = account_of_exact_split(ROWS, 20, MILD, DELTA), release_cost(kind, ROWS, DELTA, SETTING)
    assert cost is not None
    assert (cost.epsilon, cost.epsilon_if_others_collude) == (counted.epsilon, counted.epsilon_if_others_collude)
    local = release_cost(DP_FEAT, ROWS, DELTA, SETTING)
    assert local is not None
    assert cost.epsilon != local.epsilon


@pytest.mark.parametrize("kind", [MOMENTS, GAUSSIAN, JOINT], ids=["moments", "gaussian", "joint"])
def test_more_shares_cost_less(kind):
    costs = [release_cost(kind, (100,) * parties, DELTA, replace(SETTING, honest_parties=2)) for parties in (2, 3, 9)]
    epsilons = [cost.epsilon for cost in costs if cost]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[0] > 1.1 * epsilons[1] > 1.2 * epsilons[2]
    # Under collusion two shares count, however many parties there are.
    assert len({cost.epsilon_if_others_collude for cost in costs if cost}) == 1
    honest = [release_cost(kind, (100,) * 9, DELTA, replace(SETTING, honest_parties=h)) for h in (1, 2, 9, 20)]
    others = [cost.epsilon_if_others_collude for cost in honest if cost]
    assert others[0] > 1.1 * others[1] > 1.2 * others[2]
    assert others[2] == others[3] == honest[0].epsilon


@pytest.mark.parametrize("kind", [GAUSSIAN, JOINT, SUBSAMPLED], ids=["gaussian", "joint", "subsampled"])
def test_more_rados_cost_more(kind):
    few, many = (release_cost(replace(kind, rados=n), ROWS, DELTA, SETTING) for n in (10, 1000))
    assert few.epsilon * 2 < many.epsilon


@pytest.mark.parametrize("kind", NOISED.values(), ids=NOISED.keys())
def test_a_smaller_delta_costs_more(kind):
    likely, rare = (release_cost(kind, ROWS, delta, SETTING).epsilon for delta in (1e-3, 1e-9))
    assert likely < rare


def test_a_party_whose_rows_are_included_more_often_is_the_one_counted():
    """round(f m_p) of m_p is more than f where rows are few: 2 of 12 for an eighth."""
    fraction = Fraction(1, 8)
    kind = RadosQuery(50, GaussianDesign(CLIP, 20_000, fraction))
    both, small = (release_cost(kind, rows, DELTA, SETTING) for rows in ((800, 12), (12, 12)))
    large = release_cost(kind, (800, 800), DELTA, SETTING)
    assert both.epsilon == small.epsilon > 1.05 * large.epsilon


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", NOISED)
def test_only_the_most_exposed_of_parties_of_all_sizes_is_counted(name, monkeypatch):
    kind, sizes = NOISED[name], (12, 14, 15, 100, 104, 250, 999)
    shares = {"alone": len(sizes), "others": 2}
    every = {
        whose: [kind.protection(SETTING).distribution(rows, shares=count).epsilon(DELTA).upper for rows in sizes]
        for whose, count in shares.items()
    }
    counted = []
    distribution = GaussianProtection.distribution

    def spied(protection, rows, *, shares):
        counted.append(rows)
        return distribution(protection, rows, shares=shares)

    monkeypatch.setattr(GaussianProtection, "distribution", spied)
    cost = release_cost(kind, sizes, DELTA, SETTING)
    assert cost.epsilon == pytest.approx(max(every["alone"]), rel=1e-9)
    assert cost.epsilon_if_others_collude == pytest.approx(max(every["others"]), rel=1e-9)
    # A thousand parties of a thousand sizes are counted as fast as one.
    assert len(counted) == 2


def test_the_stated_cost_is_that_of_the_shift_distribution():
    distribution = GAUSSIAN.protection(SETTING).distribution(400, shares=3)
    cost = release_cost(GAUSSIAN, ROWS, DELTA, SETTING)
    assert distribution.delta(cost.epsilon).upper <= DELTA
    assert distribution.delta(0.99 * cost.epsilon).lower > DELTA
    one = replace(GAUSSIAN, rados=1).protection(SETTING).distribution(400, shares=3)
    half = gaussian_delta(mu(edge_squared(CLIP, 10) / 4, 20_000, 3), 0.05)
    assert one.delta(0.05).upper == pytest.approx(half.upper, rel=1e-6)


def test_releases_that_cannot_be_met_are_refused():
    for kind, rows, error in (
        (FIXED, (400, 1), SupportError),
        (SUBSAMPLED, (400, 4), SupportError),
        (RadosQuery(20, DpFeatDesign((SMOKER,), Fraction(1, 1000))), (100, 100), EmptyTruncationError),
        (RadosQuery(50, GaussianDesign(CLIP, 3)), ROWS, WeakNoiseError),
        (GAUSSIAN, (), PlanError),
        (GAUSSIAN, (400, 0), PlanError),
        (DP_FEAT, (), PlanError),
    ):
        with pytest.raises(error):
            release_cost(kind, rows, DELTA, SETTING)
    for kind in (GAUSSIAN, DP_FEAT, MOMENTS):
        for delta in (0, 1, -0.5, Fraction(3, 2)):
            with pytest.raises(PlanError):
                release_cost(kind, ROWS, delta, SETTING)
    with pytest.raises(PlanError, match="shares"):
        release_cost(GAUSSIAN, ROWS, DELTA, replace(SETTING, honest_parties=0))
    for kind in (DP_FEAT, RadosQuery(5, FixedSupportDesign(Fraction(1, 4), CLIP, 0))):
        assert not isinstance(kind.protection(SETTING), NoiseProtection)
    unprotected = RadosQuery(5, FixedSupportDesign(Fraction(1, 4), CLIP, 0)).protection(SETTING)
    with pytest.raises(PlanError, match="bounds nothing"):
        unprotected.distribution_for(ROWS, 400, DELTA, colluding=True)


def test_a_record_that_hardly_ever_enters_is_not_paid_for_by_delta():
    one = RadosQuery(3, GaussianDesign(CLIP, 3, Fraction(1, 10**7)))
    assert one.protection(SETTING).distribution(10**7, shares=2).epsilon(DELTA).upper == 0
    with pytest.raises(RareInclusionError) as caught:
        release_cost(one, (10**7,), DELTA, SETTING)
    assert caught.value.chance == pytest.approx(3e-7, rel=1e-6)
    # Both sides of the border, which more rados move.
    for rados, refused in ((99, True), (101, False)):
        kind = RadosQuery(rados, GaussianDesign(CLIP, 20_000, Fraction(1, 10**5)))
        if refused:
            with pytest.raises(RareInclusionError):
                kind.protection(SETTING).check_inclusion(10**5, DELTA)
        else:
            kind.protection(SETTING).check_inclusion(10**5, DELTA)
    GAUSSIAN.protection(SETTING).check_inclusion(10**7, DELTA)


def test_an_exact_split_takes_a_party_of_any_size():
    """The pool's set is met, although a single party would contribute nothing or everything."""
    pooled = replace(FIXED.design, split="exact")
    cost = release_cost(RadosQuery(50, pooled), (400, 1), DELTA, SETTING)
    assert cost is not None
    assert cost.epsilon == release_cost(FIXED, (400,), DELTA, SETTING).epsilon


@pytest.mark.parametrize("name", [*NOISED, "dp-feat", "plain"])
def test_delta_for_the_stated_epsilon_is_the_delta_it_was_stated_for(name):
    kind = {**NOISED, "dp-feat": DP_FEAT, "plain": RadosQuery(9, PlainDesign((1,)))}[name]
    cost = release_cost(kind, ROWS, DELTA, SETTING)
    found = release_delta(kind, ROWS, cost.epsilon, SETTING)
    assert found.lower <= found.upper <= DELTA * (1 + 1e-9)
    # Within the bracket's 1 % of epsilon, which changes delta by a few per cent.
    assert found.upper > 0.85 * DELTA
    assert release_delta(kind, ROWS, cost.epsilon * 0.8, SETTING).upper > DELTA


def test_delta_where_there_is_none():
    assert release_delta(RadosQuery(9, PlainDesign()), ROWS, 1.0, SETTING) is None
    with pytest.raises(PlanError, match="split = exact"):
        release_delta(RadosQuery(20, DpFeatDesign((SMOKER,), MILD, "exact")), ROWS, 1.0, SETTING)
    with pytest.raises(PlanError, match="epsilon"):
        release_delta(MOMENTS, ROWS, -1.0, SETTING)


@pytest.mark.parametrize("each", [Fraction(3, 2), None])
def test_counts_compose_by_their_truncated_distributions(each):
    lows = {rows: truncation(rows, each)[0] for rows in (60, 50)}
    own, pool = (
        CountProtection(2, each).distribution_for([60, 50], 50, DELTA, colluding=colluding)
        for colluding in (True, False)
    )
    assert (own.n, pool.n) == (2, 2)
    assert np.array_equal(own.distribution.masses, binomial_distribution(50, lows[50]).masses)
    assert np.array_equal(pool.distribution.masses, pooled_distribution([*lows.items()]).masses)
    assert (lows[50] > 0) is (each is not None)


def test_pure_noise_has_no_delta():
    protection = LaplaceProtection("record", 2, LaplaceShares(Fraction(90), 2), 45, 45)
    cost = protection.cost(ROWS, DELTA)
    assert (cost.delta, cost.epsilon, cost.epsilon_if_others_collude) == (0, 0.5, 0.5)


def test_the_least_delta_of_counts_is_that_of_their_truncation():
    least, free = (CountProtection(2, each).least_delta([60, 50], 1.0) for each in (Fraction(3, 2), None))
    assert least == delta_for([60, 50], 2, Fraction(3, 2), 1.0) != free
    assert free == delta_for([60, 50], 2, None, 1.0)


def test_the_least_share_for_parties_that_are_not_known_takes_the_design_s_inclusion():
    protection = GAUSSIAN.protection(SETTING)
    assert protection.least_share([], 1.0, DELTA) == protection.least_share(ROWS, 1.0, DELTA)


def test_a_coin_allows_a_smaller_share():
    fair, rare = (kind.protection(SETTING).least_share(ROWS, 1.0, DELTA) for kind in (GAUSSIAN, SUBSAMPLED))
    assert rare < 0.8 * fair


@pytest.mark.parametrize("rados", [1, 1_000])
def test_secret_coins_allow_a_smaller_share_than_public_ones(rados):
    secret = replace(GAUSSIAN, rados=rados).protection(SETTING).least_share(ROWS, 1.0, DELTA)
    public = smallest_share(edge_squared(CLIP, 10), 2, rados * SETTING.d, 1.0, DELTA, rados, Fraction(1, 2))
    assert 0.7 < secret / public < 0.72 if rados > 1 else 0.51 < secret / public < 0.53


@pytest.mark.parametrize("releases", [1, 4, 9])
def test_releases_of_equal_parts_have_the_whole_epsilon_together(releases):
    """By the Gaussian mechanism's exact delta, with the squared mu of all of them."""
    protection = MOMENTS.protection(SETTING)
    least = protection.least_share(ROWS, 1.0, DELTA, Fraction(1, releases))

    def delta(share: float) -> float:
        squared_mu = releases * protection.squared / (SETTING.honest_parties * share**2)
        return gaussian_delta(math.sqrt(squared_mu), 1.0).upper

    assert delta(least) <= DELTA < delta(0.999 * least)
