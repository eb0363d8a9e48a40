import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from dpcore.accounting.dp_feat import account
from dpcore.accounting.gaussian import gaussian_epsilon
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError, PlanError
from dpcore.predicates.expressions import Affine, AtLeast, Clipped, Flag, LabelIs, PredicateError
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.statement import CountedRelease, composed_cost
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.support import SupportError
from learner.requests import GradientRequest, MomentsRequest, RadosRequest, StatisticRequest
from radofed.simulation.designs import DesignOptions
from tests.federation.learner import SCHEMA, World
from wire.query import setting_of

EPSILON = Fraction(1)
REQUESTS = {
    "joint": RadosRequest(SCHEMA, 40, design="dp-feat", sensitive="smoker", joint=True, epsilon=EPSILON),
    "fixed-support": RadosRequest(SCHEMA, 40, design="fixed-support", epsilon=EPSILON),
    "gaussian": RadosRequest(SCHEMA, 40, design="gaussian", epsilon=EPSILON),
    "gaussian, support": RadosRequest(SCHEMA, 40, design="gaussian", epsilon=EPSILON, support=Fraction(1, 10)),
    "moments": MomentsRequest(SCHEMA, epsilon=EPSILON),
    "statistic": StatisticRequest(SCHEMA, (Flag("smoker"), LabelIs(True)), epsilon=EPSILON, part=Fraction(999, 1000)),
    "gradient": GradientRequest(SCHEMA, (0.5, -1.0, 0.0), epsilon=EPSILON, clip=Fraction(1, 2)),
}
SCOPES = {"joint": "joint"}


@pytest.mark.parametrize("name", REQUESTS)
def test_noise_is_calibrated_to_what_was_asked_under_collusion(learner_key, name):
    plan = World(learner_key, {"a": 1000, "b": 2000, "c": 3000, "d": 1500}).plan(REQUESTS[name])
    assert plan.query.honest_parties == 2
    assert plan.cost.scope == SCOPES.get(name, "record")
    # The smallest integer noise is barely below the requested epsilon.
    assert 0.995 < plan.cost.epsilon_if_others_collude <= 1
    if name != "fixed-support":
        # Of four parties that answer three are counted; of joint noise, for the smallest cohort, two.
        part = 0.75 if name == "joint" else 0.9
        assert plan.cost.epsilon < part * plan.cost.epsilon_if_others_collude
    assert any("under collusion" in line for line in plan.sentences())


def test_a_tables_noise_does_not_depend_on_the_number_of_rados(learner_key):
    world = World(learner_key, {"a": 1000, "b": 2000, "c": 3000})
    few, many = (world.plan(replace(REQUESTS["fixed-support"], rados=n)).query.kind.design for n in (2, 500))
    assert few.edge_sigma == many.edge_sigma
    few, many = (world.plan(replace(REQUESTS["gaussian"], rados=n)).query.kind.design for n in (2, 500))
    assert many.share_sigma > 5 * few.share_sigma


def test_the_noise_of_moments_is_the_analytic_gaussians(learner_key):
    """Compared with the sensitivity sqrt(2) (R^2 + a^2 / 2), computed here in real numbers."""
    request = MomentsRequest(SCHEMA, epsilon=EPSILON, norm_bound=Fraction(2), edge_weight=Fraction(3, 2))
    query = World(learner_key, {"a": 1000, "b": 2000, "c": 3000}).plan(request).query
    kind = query.kind
    assert isinstance(kind, MomentsQuery)
    one = 5 * 4**query.encoding.fraction_bits
    sensitivity = math.sqrt(2) * (4 + 1.5**2 / 2) * one
    mu = sensitivity / (kind.share_sigma * math.sqrt(query.honest_parties))
    assert abs(gaussian_epsilon(mu, 1e-6).upper - 1) < 1e-3


def test_slots_hold_the_noise(learner_key):
    for request in REQUESTS.values():
        query = World(learner_key, {"a": 1000, "b": 2000, "c": 3000}).plan(request).query
        design = getattr(query.kind, "design", query.kind)
        if isinstance(design, StatisticQuery):
            noise = 9 * design.noise.deviation(query.max_parties)
        elif hasattr(design, "share_sigma"):
            noise = 9 * design.share_sigma * math.sqrt(query.max_parties)
        else:
            noise = 9 * design.edge_sigma * math.sqrt(query.max_rows)
        assert query.encoding.largest_sum > noise


def test_records_are_clipped_to_what_most_stay_below(learner_key):
    world = World(learner_key, {"a": 1000, "b": 2000, "c": 3000})
    # One real feature, one boolean feature and the bias: 1/3 + 1 + 1.
    assert 1.52 < world.plan(REQUESTS["gaussian"]).query.kind.design.clip.norm_bound < 1.54
    given = replace(REQUESTS["gaussian"], norm_bound=Fraction(3, 2))
    assert world.plan(given).query.kind.design.clip.norm_bound == Fraction(3, 2)


def test_a_features_name_may_mean_its_column(learner_key):
    world = World(learner_key, {"a": 1000, "b": 2000, "c": 3000})
    assert world.plan(REQUESTS["joint"]).query.kind.design.column == "smoker"
    with pytest.raises(PlanError, match="derives from no column"):
        world.plan(replace(REQUESTS["joint"], sensitive="bias"))


def test_a_sensitive_number_must_be_rounded_in_queries_as_in_simulations(learner_key):
    world = World(learner_key, {"a": 1000, "b": 2000, "c": 3000})
    request = RadosRequest(SCHEMA, 40, design="dp-feat", sensitive="age")
    with pytest.raises(PlanError, match="--rounded age") as asked:
        world.plan(request)
    options = DesignOptions(design="dp-feat", rados=40, sensitive=("age",))
    with pytest.raises(PlanError) as simulated:
        world.plan(options.request(SCHEMA, [[1000, 2000, 3000]]))
    assert str(simulated.value) == str(asked.value)
    # What the error says works.
    followed = world.plan(replace(options, rounded=("age",)).request(SCHEMA, [[1000, 2000, 3000]]))
    assert followed.query.kind == world.plan(replace(request, rounded=("age",))).query.kind
    joint = replace(REQUESTS["joint"], sensitive="age")
    assert world.plan(joint).query.kind.design.column == "age"


def test_a_party_too_small_for_its_support_is_reported(learner_key):
    world = World(learner_key, {"a": 1000, "b": 4, "c": 3000})
    for design in ("fixed-support", "gaussian"):
        with pytest.raises(SupportError, match="of 4 rows"):
            world.plan(replace(REQUESTS[design], support=Fraction(1, 10)))


def test_fixed_support_without_noise_claims_nothing(learner_key):
    plan = World(learner_key, {"a": 10, "b": 40, "c": 30}).plan(replace(REQUESTS["fixed-support"], epsilon=None))
    assert plan.query.kind.design.edge_sigma == 0
    assert plan.cost is None
    assert any("has no privacy bound" in line for line in plan.sentences())


@pytest.mark.parametrize("epsilon", [Fraction(-1), Fraction(0), -0.5])
def test_an_invalid_epsilon_is_refused(epsilon):
    for request in REQUESTS.values():
        with pytest.raises(ConfigurationError, match="epsilon"):
            replace(request, epsilon=epsilon)


def test_an_epsilon_that_bounds_nothing(learner_key):
    for request in REQUESTS.values():
        with pytest.raises(PlanError, match="epsilon"):
            World(learner_key, {"a": 1000, "b": 2000, "c": 3000}).plan(replace(request, epsilon=Fraction(1000)))


@pytest.mark.parametrize("support", [Fraction(1), Fraction(3, 2)])
def test_a_support_of_all_records_is_refused(learner_key, support):
    with pytest.raises(PlanError, match="below 1"):
        World(learner_key, {"a": 10, "b": 40, "c": 30}).plan(replace(REQUESTS["gaussian"], support=support))


def test_dp_feat_takes_as_many_rados_as_epsilon_allows(learner_key):
    world = World(learner_key, {"a": 1000, "b": 2000, "c": 3000})
    request = RadosRequest(SCHEMA, design="dp-feat", sensitive="smoker", epsilon=Fraction(2))
    plan = world.plan(request)
    n = plan.query.kind.rados
    assert 10 < n < 1000
    assert plan.cost.epsilon <= 2
    assert account((1000, 2000, 3000), n + 1, None, Fraction(1, 10**6)).epsilon > 2
    assert world.plan(replace(request, rados=n)).query.kind.rados == n
    with pytest.raises(PlanError, match=f"ask for at most {n}"):
        world.plan(replace(request, rados=n + 1))
    assert world.plan(replace(request, epsilon=Fraction(100))).query.kind.rados == 1000


def test_an_epsilon_for_parties_that_state_no_rows(learner_key):
    request = RadosRequest(SCHEMA, design="dp-feat", sensitive="smoker", epsilon=Fraction(2))
    with pytest.raises(PlanError, match="no party's rows are known"):
        World(learner_key, {"a": None, "b": None, "c": None}).plan(request)
    # A party that states no rows only adds to the pool.
    some = World(learner_key, {"a": 1000, "b": 2000, "c": None}).plan(request).query.kind.rados
    all_three = World(learner_key, {"a": 1000, "b": 2000, "c": 3000}).plan(request).query.kind.rados
    assert 1 < some < all_three


def test_an_epsilon_that_not_even_one_rado_meets(learner_key):
    request = RadosRequest(SCHEMA, design="dp-feat", sensitive="smoker", epsilon=Fraction(1, 1000))
    with pytest.raises(PlanError, match="raise epsilon, or have more rows"):
        World(learner_key, {"a": 100, "b": 200, "c": 300}).plan(request)


FOUR = {"a": 1000, "b": 2000, "c": 3000, "d": 1500}


def test_the_noise_of_a_batch_is_the_smaller_of_two(learner_key):
    """Laplace noise grows with M, Gaussian noise with its root; a histogram changes in two of any number of bins."""
    world = World(learner_key, FOUR)

    def noise(predicates, **options):
        request = StatisticRequest(SCHEMA, predicates, epsilon=EPSILON, cohort_noise="smallest", **options)
        return world.plan(request).query.kind.noise

    cuts = [AtLeast("age", Fraction(low)) for low in range(0, 100, 2)]
    histogram = tuple(low & ~high for low, high in pairwise(cuts))
    assert noise((Flag("smoker"),)) == LaplaceShares(Fraction(64), 2)
    assert noise(histogram) == LaplaceShares(Fraction(2 * 64), 2)
    assert isinstance(noise(tuple(cuts)), GaussianShares)
    assert noise(tuple(cuts), pure=True) == LaplaceShares(Fraction(50), 2)
    # A part of a budget of squared mu is not a part of epsilon.
    assert isinstance(noise((Flag("smoker"),), part=Fraction(1, 2)), GaussianShares)
    assert noise((Flag("smoker"),), part=Fraction(1, 2), pure=True).scale == pytest.approx(2)


def test_the_composition_of_all_parts_is_the_whole_budget(learner_key):
    """Four gradients and a batch, each a fifth: the exact cost of their composition is barely below the budget."""
    world, fifth = World(learner_key, FOUR), Fraction(1, 5)
    requests = [GradientRequest(SCHEMA, (0.5, -1.0, 0.0), epsilon=EPSILON, clip=Fraction(1, 2), part=fifth)] * 4
    plans = [world.plan(request) for request in (*requests, replace(REQUESTS["statistic"], part=fifth))]
    counted = [CountedRelease(plan.query.kind, FOUR, SCHEMA, setting_of(plan.query)) for plan in plans]
    composed = composed_cost(counted, EPSILON / 10**6)
    assert 0.999 < composed.epsilon_if_others_collude <= 1
    # One of them alone costs far less than a fifth of the epsilon's square would suggest, and less than the whole.
    assert plans[0].cost.epsilon_if_others_collude < 0.5


def test_counts_take_few_bits_and_fractions_more(learner_key):
    world, pure = World(learner_key, FOUR), replace(REQUESTS["statistic"], pure=True)
    fractions = replace(REQUESTS["statistic"], predicates=(Clipped(Affine((("age", 1),)), 2),))
    found = [world.plan(request).query.encoding for request in (pure, REQUESTS["statistic"], fractions)]
    assert [encoding.fraction_bits for encoding in found] == [0, 6, 10]
    # Room for a million rows of each party: what the roster states are lower bounds.
    assert found[0].slot_bits == 32


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: StatisticRequest(SCHEMA, (Flag("tall"),), epsilon=EPSILON), PredicateError, "no feature 'tall'"),
        (lambda: StatisticRequest(SCHEMA, (Flag("age"),), epsilon=EPSILON), PredicateError, "a real feature"),
        (lambda: StatisticRequest(SCHEMA, (), epsilon=EPSILON), PredicateError, "at least one"),
        (lambda: GradientRequest(SCHEMA, (0.0,) * 3, epsilon=EPSILON), ConfigurationError, "without a clip"),
        (lambda: GradientRequest(SCHEMA, (0.0,) * 2, epsilon=EPSILON, clip=EPSILON), ConfigurationError, "finite"),
        (
            lambda: GradientRequest(SCHEMA, (0.0, math.nan, 0.0), epsilon=EPSILON, clip=EPSILON),
            ConfigurationError,
            "finite",
        ),
        (
            lambda: GradientRequest(SCHEMA, (0.0,) * 3, epsilon=EPSILON, clip=EPSILON, part=Fraction(3, 2)),
            ConfigurationError,
            "at most the whole budget",
        ),
        (lambda: GradientRequest(SCHEMA, (1e9, 0.0, 0.0), epsilon=EPSILON, clip=EPSILON), PlanError, "scaled down"),
        (
            lambda: GradientRequest(SCHEMA, (0.0,) * 3, epsilon=EPSILON, clip=EPSILON, fraction_bits=17),
            PlanError,
            "0 to 16",
        ),
    ],
)
def test_invalid_queries_are_refused(learner_key, make, error, words):
    with pytest.raises(error, match=words):
        World(learner_key, FOUR).plan(make())
