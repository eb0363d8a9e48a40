"""The charge of each design, compared with figures that are computed without the ledger."""

import math
from fractions import Fraction

import pytest

from dpcore.accounting.concentrated import concentrated_epsilon
from dpcore.accounting.dp_feat import delta_per_rado, own_epsilon
from dpcore.accounting.gaussian import shift_distribution
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.accounting.protection import loss_of
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.predicates.expressions import AtLeast, Flag
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, dp_feat_design, joint_design, plain_design
from dpcore.records.clipping import Clip
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema
from parties.ledger.charges import RECORD, Division, charge_for, column_scopes, joint, marginal
from wire.errors import Code, WireError
from wire.query import setting_of

DELTA = Fraction(1, 10**6)
SCHEMA = Schema(
    name="wards",
    label=Label(column="stayed", positive=("yes",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0),
        BooleanFeature(name="smoker", column="smokes", true=("yes",), false=("no",)),
        BooleanFeature(name="old", column="years", true=("yes",), false=("no",)),
        CategoryFeature(name="ward", values=("north", "south"), unknown="zero"),
    ),
)
CLIP = Clip(Fraction(2), bias=True)
PLENTY = plan_encoding(largest_sum=1 << 50, max_parties=3, fraction_bits=10)


def charge(world, kind, rows=200, epoch=None, **changes):
    query = world.query(kind=kind, schema=SCHEMA, encoding=PLENTY, **changes)
    return query, charge_for(query, rows, epoch)


def test_a_scope_has_no_column_unless_it_is_given():
    assert (marginal("age").column, joint("age").column, RECORD.column, RECORD.name) == ("", "", "", "")


def test_a_charge_of_several_scopes_names_each(world):
    _, found = charge(world, RadosQuery(20, dp_feat_design(SCHEMA, ["smoker", "old"])))
    (first, one), (second, other) = found.bounds
    assert str(found) == f"{one} for {first}; {other} for {second}"


def test_dp_feat_is_charged_the_marginal_of_its_feature_by_the_partys_own_distribution(world):
    _, found = charge(world, RadosQuery(20, dp_feat_design(SCHEMA, ["smoker"])))
    ((scope, loss),) = found.bounds
    assert (scope, found.learner, found.is_bounded) == (marginal("smoker", "smokes"), "lea", False)
    assert (loss.epsilon, loss.delta) == (Fraction(own_epsilon(200, 20, None, DELTA)), DELTA)
    # Twenty counts of 200 rows: nearly n mu^2 / 2, mu^2 = 4 / m.
    assert 1 < float(loss.rho) / (20 * 2 / 200) < 1.1
    assert 0 <= loss.failure <= DELTA / 1024


def test_several_sensitive_features_are_each_charged(world):
    _, found = charge(world, RadosQuery(20, dp_feat_design(SCHEMA, ["smoker", "old"])))
    assert [scope for scope, _ in found.bounds] == [marginal("old", "years"), marginal("smoker", "smokes")]
    assert len({loss for _, loss in found.bounds}) == 1


def test_a_truncated_count_fails_as_often_as_its_ends_are_met(world):
    _, found = charge(world, RadosQuery(2, dp_feat_design(SCHEMA, ["smoker"], Fraction(1))), rows=500)
    ((_, loss),) = found.bounds
    # More often than the share that is asked for, so it is charged as it is.
    assert loss.failure > DELTA / 1024
    assert float(loss.failure) == pytest.approx(2 * delta_per_rado(500, Fraction(1)), rel=1e-6)
    assert float(loss.epsilon) == own_epsilon(500, 2, Fraction(1), DELTA)


def test_plain_rados_are_charged_every_boolean_marginal(world):
    _, found = charge(world, RadosQuery(20, plain_design(SCHEMA)))
    assert [str(scope) for scope, _ in found.bounds] == ["marginal:old", "marginal:smoker"]
    (_, loss), _ = found.bounds
    exact = own_epsilon(200, 20, None, DELTA)
    assert exact < float(loss.epsilon) < 1.15 * exact


def test_plain_rados_are_charged_nothing_for_a_boolean_that_another_coordinate_shares_the_column_of(world):
    """Its rows that are not usable stay zero, so its count is of fewer rows than the party has."""
    twice = (*SCHEMA.features, BooleanFeature(name="heavy smoker", column="smokes", true=("much",), false=("no",)))
    schema = Schema(name="wards", label=SCHEMA.label, features=twice)
    design = plain_design(schema)
    assert [schema.coordinates[j] for j in design.booleans] == ["old"]
    query = world.query(kind=RadosQuery(20, design), schema=schema, encoding=PLENTY)
    assert [str(scope) for scope, _ in charge_for(query, 200).bounds] == ["marginal:old"]


@pytest.mark.parametrize(("rows", "refused"), [(2_000_000, True), (2_000, True), (1_000, False)])
def test_delta_does_not_pay_for_a_record_without_noise(world, rows, refused):
    """A rado of one record in two million, with almost no noise, is (0, 1e-6)-private."""
    kind = RadosQuery(1, GaussianDesign(CLIP, 50_000, Fraction(1, rows)))
    encoding = plan_encoding(largest_sum=1 << 50, max_parties=3, fraction_bits=10)
    query = world.query(kind=kind, schema=SCHEMA, encoding=encoding, max_rows=10_000_000)
    if not refused:
        assert charge_for(query, rows).is_bounded
        return
    with pytest.raises(WireError, match="larger support") as caught:
        charge_for(query, rows)
    assert caught.value.code is Code.PLAN_INFEASIBLE


def test_plain_rados_of_few_rows_have_no_bound_and_are_no_fault(world):
    _, found = charge(world, RadosQuery(1000, plain_design(SCHEMA)), rows=12)
    assert found.bounds == ()


def test_a_design_without_a_finite_bound_is_refused(world):
    with pytest.raises(WireError) as caught:
        charge(world, RadosQuery(1000, dp_feat_design(SCHEMA, ["smoker"])), rows=12)
    assert caught.value.code is Code.PLAN_INFEASIBLE


def test_joint_is_charged_its_column_and_the_columns_features(world):
    kind = RadosQuery(20, joint_design(SCHEMA, "smokes", 5000))
    query, found = charge(world, kind)
    assert [scope for scope, _ in found.bounds] == [joint("smokes"), marginal("smoker", "smokes")]
    counted = kind.protection(setting_of(query)).distribution(200, shares=query.honest_parties)
    (_, loss), (_, same) = found.bounds
    assert loss == same
    assert float(loss.epsilon) == counted.epsilon(DELTA).upper
    assert not found.is_bounded


def test_a_columns_categories_are_bounded_through_the_column(world):
    _, found = charge(world, RadosQuery(20, joint_design(SCHEMA, "ward", 5000)))
    assert [scope for scope, _ in found.bounds] == [joint("ward")]
    assert found.bound(marginal("ward=north", "ward")) == found.bound(joint("ward"))


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(20, GaussianDesign(CLIP, 50_000)),
        RadosQuery(20, GaussianDesign(CLIP, 50_000, Fraction(1, 4))),
        RadosQuery(20, FixedSupportDesign(Fraction(1, 2), CLIP, 8_000)),
        MomentsQuery(CLIP, 64, 30_000_000),
    ],
)
def test_noise_on_everything_is_charged_for_records_with_the_shares_of_the_honest(world, kind):
    query, found = charge(world, kind)
    ((scope, loss),) = found.bounds
    assert (scope, found.is_bounded) == (RECORD, True)
    counted = kind.protection(setting_of(query)).distribution(200, shares=2)
    assert float(loss.epsilon) == counted.epsilon(DELTA).upper
    # The two bounds are equal, except for what concentration loses.
    other = concentrated_epsilon(loss.rho, DELTA - loss.failure)
    assert float(loss.epsilon) < other < 2 * float(loss.epsilon)


def test_fixed_support_names_its_table_and_without_noise_bounds_nothing(world):
    _, found = charge(world, RadosQuery(20, FixedSupportDesign(Fraction(1, 2), CLIP, 8_000)), epoch=b"table")
    assert found.epoch == b"table"
    _, bare = charge(world, RadosQuery(20, FixedSupportDesign(Fraction(1, 2), CLIP, 0)))
    assert bare.bounds == ()


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(20, plain_design(SCHEMA)),
        RadosQuery(20, dp_feat_design(SCHEMA, ["smoker"])),
        RadosQuery(20, GaussianDesign(CLIP, 50_000)),
        RadosQuery(20, joint_design(SCHEMA, "smokes", 5000)),
    ],
)
def test_a_delta_that_is_no_decimal_is_rounded_up(world, kind):
    """Sums of arbitrary fractions of a learner would slow the ledger down with every query."""
    odd = Fraction(1_000_003, (1 << 61) - 1)
    _, found = charge(world, kind, delta=odd)
    for _, loss in found.bounds:
        assert odd < loss.delta < odd * (1 + Fraction(1, 10**11))
        for part in (loss.epsilon, loss.delta, loss.rho, loss.failure):
            assert 2**1100 * 10**30 % part.denominator == 0
    for exact in (DELTA, Fraction(1, 2**62), Fraction(3, 5**26)):
        _, found = charge(world, RadosQuery(20, joint_design(SCHEMA, "smokes", 5000)), delta=exact)
        assert {loss.delta for _, loss in found.bounds} == {exact}


def test_losses_of_noise_distributions():
    loss = loss_of(shift_distribution(0.5), DELTA)
    assert loss.failure == 0
    assert Fraction(1, 8) <= loss.rho <= Fraction(1, 8) * (1 + Fraction(1, 2**50))
    subsampled = loss_of(shift_distribution(0.1, 50, Fraction(1, 2)), DELTA)
    # Between the mean and all of the fifty.
    assert 25 * 0.01 / 2 < float(subsampled.rho) < 50 * 0.01 / 2
    assert 0 < subsampled.failure <= DELTA / 1024


def test_a_column_lists_its_features():
    assert [str(scope) for scope in column_scopes(SCHEMA, "smokes")] == ["joint:smokes", "marginal:smoker"]
    assert [str(scope) for scope in column_scopes(SCHEMA, "age")] == ["joint:age", "marginal:age"]
    assert [str(scope) for scope in column_scopes(SCHEMA, "ward")] == ["joint:ward"]


def test_a_gradient_and_statistics_are_charged_for_records(world):
    """Counted with honest_parties shares, by the sensitivity that this test computes itself."""
    gradient = GradientQuery("hinge", (0,) * 6, Fraction(3, 4), 10**8)
    query, found = charge(world, gradient)
    mu = 2 * 0.75 * 2 ** (10 + 12) / (10**8 * math.sqrt(query.honest_parties))
    ((scope, loss),) = found.bounds
    assert (scope, loss.delta) == (RECORD, DELTA)
    assert float(loss.epsilon) == pytest.approx(shift_distribution(mu).epsilon(DELTA).upper, rel=1e-6)
    statistic = StatisticQuery(
        (Flag("smoker"), Flag("old"), Flag("smoker") & Flag("old")), SCHEMA, GaussianShares(50 << 10)
    )
    query, found = charge(world, statistic)
    mu = math.sqrt(3) / (50 * math.sqrt(query.honest_parties))
    assert float(found.bounds[0][1].epsilon) == pytest.approx(shift_distribution(mu).epsilon(DELTA).upper, rel=1e-6)


def test_a_histogram_is_charged_as_one_group(world):
    bins = tuple(AtLeast("age", Fraction(low)) & ~AtLeast("age", Fraction(low + 10)) for low in range(0, 100, 10))
    query, found = charge(world, StatisticQuery(bins, SCHEMA, GaussianShares(50 << 10)))
    mu = math.sqrt(2) / (50 * math.sqrt(query.honest_parties))
    assert float(found.bounds[0][1].epsilon) == pytest.approx(shift_distribution(mu).epsilon(DELTA).upper, rel=1e-6)


def test_laplace_noise_is_charged_without_a_delta(world):
    kind = StatisticQuery((Flag("smoker"), Flag("old")), SCHEMA, LaplaceShares(Fraction(20 << 10), 2))
    _, found = charge(world, kind, honest_parties=2)
    ((scope, loss),) = found.bounds
    assert (scope, loss.delta, loss.failure) == (RECORD, 0, 0)
    assert loss.epsilon == pytest.approx(2 / 20)
    # Two values that a record moves by one unit each: half of what a pure release of this epsilon may cost.
    assert 0.98 * 0.1**2 / 4 < loss.rho <= 0.1**2 / 4


def test_local_answers_and_answers_about_an_epoch_are_of_no_part_of_a_table(world):
    """Rows outside a part answer locally too, and an epoch's charges count in full: neither may count as disjoint."""

    def side(kind, bits=10, **more):
        encoding = plan_encoding(largest_sum=1 << 50, max_parties=3, fraction_bits=bits)
        fields = {"held_back": HeldBack(Fraction(1, 5), Part.HELD_BACK), **more}
        query = world.query(kind=kind, schema=SCHEMA, encoding=encoding, **fields)
        return charge_for(query, 200, division=Division("load", "key")).side

    predicates = (Flag("smoker"),)
    shared = StatisticQuery(predicates, SCHEMA, GaussianShares(7000))
    assert side(shared) is not None
    assert side(shared, epoch="2026-11") is None
    assert side(StatisticQuery(predicates, SCHEMA, LocalResponse(Fraction(1))), bits=0) is None
