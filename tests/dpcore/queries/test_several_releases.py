import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.dp_feat import account
from dpcore.accounting.gaussian import gaussian_epsilon
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, IntegerNoise, LaplaceShares, edge_squared, moments_squared
from dpcore.accounting.protection import Setting
from dpcore.errors import PlanError
from dpcore.predicates.expressions import And, AtLeast, Flag, Not
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import CountedRelease, composed_cost
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    SensitiveFeature,
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.records.clipping import Clip
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import BooleanFeature, Label, RealFeature, Schema

SCHEMA = Schema(
    name="s",
    label=Label(column="y", positive=("1",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=1.0),
        BooleanFeature(name="smoker", true=("1",), false=("0",)),
        BooleanFeature(name="tall", true=("1",), false=("0",)),
    ),
)
SETTING = Setting(d=4, fraction_bits=10, honest_parties=2)
ROWS = {"a": 2000, "b": 3000, "c": 2500, "d": 2500}
DELTA = Fraction(1, 10**6)
CLIP = Clip(Fraction(2), bias=True)
MOMENTS = MomentsQuery(CLIP, 5 * 1024, 40_000_000)
GAUSSIAN = RadosQuery(30, GaussianDesign(CLIP, 30_000))
SMOKER = RadosQuery(40, dp_feat_design(SCHEMA, ["smoker"]))
PLAIN = RadosQuery(25, plain_design(SCHEMA))
JOINT = RadosQuery(30, joint_design(SCHEMA, "smoker", 9000))


GRADIENT = GradientQuery("logistic", (0, 0, 0, 0), Fraction(1, 2), 60_000_000)
COUNTS = (Flag("smoker"), Flag("tall"))
STATISTIC = StatisticQuery(COUNTS, SCHEMA, GaussianShares(20 << 10))
PURE = StatisticQuery(COUNTS, SCHEMA, LaplaceShares(Fraction(40 << 10), 2))


def released(kind, rows=ROWS) -> CountedRelease:
    return CountedRelease(kind, rows, SCHEMA, SETTING)


@pytest.mark.parametrize("kind", [MOMENTS, GAUSSIAN, GRADIENT, STATISTIC, PURE])
def test_one_release_costs_what_it_costs(kind):
    single = kind.protection(SETTING).cost(tuple(ROWS.values()), DELTA)
    composed = composed_cost([released(kind)], DELTA)
    assert composed.scope == "record"
    assert composed.epsilon == pytest.approx(single.epsilon, rel=1e-9)
    assert composed.epsilon_if_others_collude == pytest.approx(single.epsilon_if_others_collude, rel=1e-9)


def test_rounds_of_gaussian_noise_add_their_squared_mus():
    """A gradient's shift is 2 C in units of 2^-(f + 12), a batch's sqrt(M) in units of 2^-f, computed here as reals."""
    rounds = [GRADIENT] * 3 + [STATISTIC]
    found = composed_cost([released(kind) for kind in rounds], DELTA)
    gradient = 2 * 0.5 * 2**22 / (60_000_000 * math.sqrt(4))
    statistic = math.sqrt(2) / (20 * math.sqrt(4))
    alone = gaussian_epsilon(math.sqrt(3 * gradient**2 + statistic**2), DELTA).upper
    assert found.epsilon == pytest.approx(alone, rel=1e-6)
    others = gaussian_epsilon(math.sqrt(2 * (3 * gradient**2 + statistic**2)), DELTA).upper
    assert found.epsilon_if_others_collude == pytest.approx(others, rel=1e-6)


def test_pure_releases_add_their_epsilons_and_have_no_delta():
    found = composed_cost([released(PURE)] * 3, DELTA)
    # L1 of two predicates over the scale: 2 / 40 each.
    assert (found.epsilon, found.delta) == (pytest.approx(3 * 2 / 40), 0.0)
    assert found.epsilon == found.epsilon_if_others_collude
    mixed = composed_cost([released(PURE), released(STATISTIC)], DELTA)
    one = composed_cost([released(STATISTIC)], DELTA)
    assert mixed.delta == pytest.approx(1e-6)
    assert mixed.epsilon == pytest.approx(one.epsilon + 2 / 40)


def test_one_marginal_costs_what_it_costs():
    counted = account(tuple(ROWS.values()), 40, None, DELTA)
    composed = composed_cost([released(SMOKER)], DELTA, feature="smoker")
    assert composed.epsilon == pytest.approx(counted.epsilon, rel=0.01)
    assert composed.epsilon_if_others_collude == pytest.approx(counted.epsilon_if_others_collude, rel=0.01)


def test_gaussian_releases_add_their_squared_shifts():
    shares = len(ROWS)
    noise = IntegerNoise(MOMENTS.share_sigma, shares, MOMENTS.length(4))
    mu = noise.mu(moments_squared(CLIP, 10, MOMENTS.edge_multiplier))
    composed = composed_cost([released(MOMENTS)] * 4, DELTA)
    assert composed.epsilon == pytest.approx(gaussian_epsilon(2 * mu, DELTA).upper, rel=1e-6)


def test_marginals_of_two_designs_compose_like_one_of_all_rados():
    """Plain and untruncated dp-feat rados have the same distribution, so 25 and 40 of them cost as 65."""
    composed = composed_cost([released(SMOKER), released(PLAIN)], DELTA, feature="smoker")
    counted = account(tuple(ROWS.values()), 65, None, DELTA)
    assert composed.epsilon == pytest.approx(counted.epsilon, rel=0.01)
    assert composed.epsilon_if_others_collude == pytest.approx(counted.epsilon_if_others_collude, rel=0.01)
    apart = sum(account(tuple(ROWS.values()), n, None, DELTA).epsilon for n in (25, 40))
    assert composed.epsilon < 0.95 * apart


@pytest.mark.more
def test_the_composition_of_counts_and_noise_costs_more_than_either_and_less_than_both():
    single = [composed_cost([released(kind)], DELTA, feature="smoker").epsilon for kind in (SMOKER, JOINT)]
    both = composed_cost([released(SMOKER), released(JOINT)], DELTA, feature="smoker")
    assert both.epsilon_lower is None
    # Both are nearly Gaussian, so the composition is near the root of the sum of squares, far from the sum.
    assert math.hypot(*single) * 0.9 < both.epsilon < 0.95 * sum(single)


def test_a_release_without_a_party_costs_the_party_nothing():
    first, second = ({"a": 2000, "b": 3000, "c": 2500}, {"d": 2500, "e": 2500, "f": 2500})
    apart = composed_cost([released(MOMENTS, first), released(MOMENTS, second)], DELTA)
    assert apart.epsilon == pytest.approx(composed_cost([released(MOMENTS, first)], DELTA).epsilon)
    mixed = composed_cost([released(MOMENTS, first), released(MOMENTS, first)], DELTA)
    assert mixed.epsilon > 1.3 * apart.epsilon


def test_a_wider_bound_holds_for_what_is_within():
    for scope in ({}, {"column": "smoker"}, {"feature": "smoker"}):
        assert composed_cost([released(MOMENTS)], DELTA, **scope).epsilon == pytest.approx(
            composed_cost([released(MOMENTS)], DELTA).epsilon
        )
    assert composed_cost([released(JOINT)], DELTA, column="smoker").scope == "joint"
    assert composed_cost([released(JOINT)], DELTA, feature="smoker").scope == "marginal"


@pytest.mark.parametrize(
    ("kinds", "scope", "says"),
    [
        ([], {}, "at least one release"),
        ([MOMENTS], {"column": "smoker", "feature": "smoker"}, "at most one"),
        ([MOMENTS, SMOKER], {}, "release 2 bounds nothing about records"),
        ([JOINT], {"column": "tall"}, "release 1 bounds nothing about the column 'tall'"),
        ([SMOKER], {"feature": "tall"}, "release 1 bounds nothing about 'tall'"),
        ([PLAIN], {"feature": "age"}, "release 1 bounds nothing about 'age'"),
        ([RadosQuery(5, FixedSupportDesign(Fraction(1, 2), CLIP, 0))], {}, "release 1 bounds nothing"),
        (
            [RadosQuery(5, DpFeatDesign((SensitiveFeature(1, "smoker"),), Fraction(1), "exact"))],
            {"feature": "smoker"},
            "leave that release out",
        ),
    ],
)
def test_a_release_without_a_bound_is_named(kinds, scope, says):
    with pytest.raises(PlanError, match=says):
        composed_cost([released(kind) for kind in kinds], DELTA, **scope)


def test_a_noised_table_is_counted_each_time():
    """The learner cannot see whether a party's table was the same."""
    kind = RadosQuery(5, FixedSupportDesign(Fraction(1, 2), CLIP, 50_000))
    mu = IntegerNoise(50_000, 1, 4).mu(edge_squared(CLIP, 10))
    composed = composed_cost([released(kind)] * 2, DELTA)
    assert composed.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) * mu, DELTA).upper, rel=1e-6)


SHARE = Fraction(1, 5)
TRAINING, HELD_BACK = (HeldBack(SHARE, part) for part in Part)
BINS = StatisticQuery(
    tuple(And((AtLeast("age", Fraction(n, 4)), Not(AtLeast("age", Fraction(n + 1, 4))))) for n in range(4)),
    SCHEMA,
    GaussianShares(12 << 10),
)


def about(kind, part) -> CountedRelease:
    return replace(released(kind), part=part)


def epsilon_of(*shifts) -> float:
    return gaussian_epsilon(math.sqrt(sum(shift * shift for shift in shifts)), DELTA).upper


def test_both_parts_cost_the_larger_one_or_a_change_of_sides():
    """Squares of mu: a gradient of length C moves a sum by C if its record leaves, and by 2 C if it is replaced."""
    gradient, bins = 2 * 0.5 * 2**22 / (60_000_000 * 2), math.sqrt(2) / (12 * 2)
    rounds = [about(GRADIENT, TRAINING)] * 6
    evaluation = [about(BINS, HELD_BACK)] * 3
    plain, by_ids = (composed_cost([*rounds, *evaluation], DELTA, by_ids=chosen).epsilon for chosen in (False, True))
    assert plain == pytest.approx(epsilon_of(*[gradient] * 6, *[bins] * 3), rel=1e-6)
    cases = (
        epsilon_of(*[gradient] * 6),
        epsilon_of(*[bins] * 3),
        epsilon_of(*[gradient / 2] * 6, *[bins / math.sqrt(2)] * 3),
    )
    assert by_ids == pytest.approx(max(cases), rel=1e-6)
    assert by_ids < 0.85 * plain
    # What is about all rows, or another share, counts beside either part.
    for other in (released(BINS), about(BINS, HeldBack(Fraction(1, 4), Part.HELD_BACK))):
        beside = composed_cost([*rounds, *evaluation, other], DELTA, by_ids=True).epsilon
        assert beside == pytest.approx(
            max(
                epsilon_of(*[gradient] * 6, bins),
                epsilon_of(*[bins] * 4),
                epsilon_of(*[gradient / 2] * 6, *[bins / math.sqrt(2)] * 3, bins),
            ),
            rel=1e-6,
        )


def test_a_change_of_sides_costs_most_where_predicates_overlap():
    """Both flags may be true of the record in either part: the larger part alone would be too little."""
    asked = [about(STATISTIC, TRAINING), about(STATISTIC, HELD_BACK)]
    mu = math.sqrt(2) / (20 * 2)
    assert composed_cost(asked, DELTA, by_ids=True).epsilon == pytest.approx(epsilon_of(mu, mu), rel=1e-6)
    pure = [about(PURE, TRAINING), about(PURE, HELD_BACK)]
    assert composed_cost(pure, DELTA, by_ids=True) == composed_cost(pure, DELTA)
    halves = [about(replace(PURE, predicates=BINS.predicates), part) for part in (TRAINING, HELD_BACK)]
    assert composed_cost(halves, DELTA, by_ids=True).epsilon == composed_cost(halves, DELTA).epsilon / 2


def test_local_answers_are_of_all_rows_whichever_part_is_asked_for():
    local = StatisticQuery(BINS.predicates, SCHEMA, LocalResponse(Fraction(1, 2)))
    asked = [about(local, TRAINING), about(local, HELD_BACK)]
    assert composed_cost(asked, DELTA, by_ids=True) == composed_cost(asked, DELTA)


def test_rados_of_a_part_count_a_change_of_sides_as_a_replacement():
    asked = [about(GAUSSIAN, TRAINING), about(GAUSSIAN, HELD_BACK)]
    assert composed_cost(asked, DELTA, by_ids=True) == composed_cost(asked, DELTA)


def test_one_part_alone_costs_what_it_costs():
    asked = [about(MOMENTS, TRAINING), about(GRADIENT, TRAINING)]
    assert composed_cost(asked, DELTA, by_ids=True) == composed_cost(asked, DELTA)
