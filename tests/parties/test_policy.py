from fractions import Fraction
from typing import get_args

import pytest

from dpcore.accounting.filters import NO_LOSS, PrivacyLimit
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE, plan_encoding
from dpcore.predicates.expressions import Constant, Flag
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.records.clipping import Clip
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from parties.ledger.charges import RECORD, joint, marginal
from parties.ledger.limits import LedgerLimits
from parties.policy import DesignName, Policy, check_cohort, check_query
from tests.federation.party import SCHEMA
from wire.envelopes import SigningKey, fingerprint
from wire.errors import Code, WireError
from wire.query_kinds import AnyKind


def load(tmp_path, text: str) -> Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return Policy.load(path)


def check(world, policy, query=None, key=None):
    envelope = world.ask(query, key)
    check_query(policy, world.open(envelope), world.roster, "ada")


def test_an_empty_file_denies_everything(world, tmp_path):
    policy = load(tmp_path, "")
    assert (policy.learners, policy.designs, policy.accepted_members) == ((), (), ())
    assert not policy.allow_unprotected
    assert policy.limits.of_ledger == LedgerLimits(PrivacyLimit(Fraction(0), Fraction(0)), 0)
    with pytest.raises(WireError) as caught:
        check(world, policy)
    assert caught.value.code is Code.POLICY_LEARNER


def test_a_policy_can_admit_every_kind_by_its_name(world):
    clip = Clip(Fraction(2), bias=True)
    designs = [
        PlainDesign(),
        DpFeatDesign((SensitiveFeature(0, "smoker"),)),
        JointDesign("ward", (0,), 2, 9),
        FixedSupportDesign(Fraction(1, 2), clip, 0),
        GaussianDesign(clip, 9),
    ]
    kinds = [
        *(RadosQuery(1, design) for design in designs),
        MomentsQuery(clip, 1, 9),
        StatisticQuery((Constant(value=True),), world.query().schema, GaussianShares(9)),
        StatisticQuery((Constant(value=True),), world.query().schema, LocalResponse(Fraction(1))),
        GradientQuery("hinge", (0,), Fraction(1), 9),
    ]
    assert {type(kind) for kind in kinds} == set(get_args(AnyKind))
    assert {type(design) for design in designs} == set(get_args(Design))
    assert {kind.name for kind in kinds} == set(get_args(DesignName))


def test_a_policy_chooses_how_attempts_add_up_for_all_of_its_limits(tmp_path):
    text = '[limits]\nepsilon = "10"\ndelta = "1e-5"\ncomposition = "gaussian"\n'
    text += '[limits.per_day]\nepsilon = "1"\ndelta = "1e-5"\n[limits.record]\nepsilon = "2"\ndelta = "1e-5"'
    chosen = load(tmp_path, text).limits.of_ledger
    assert [limit.is_gaussian for limit in (chosen.lifetime, chosen.per_day, chosen.record)] == [True] * 3
    assert not load(tmp_path, text.replace("gaussian", "renyi")).limits.of_ledger.lifetime.is_gaussian
    with pytest.raises(ConfigurationError, match="composition"):
        load(tmp_path, text.replace("gaussian", "basic"))


def test_limits_are_exact(tmp_path):
    limits = load(tmp_path, '[limits]\nepsilon = "0.1"\ndelta = "1e-5"\nunbounded_queries = 2').limits
    assert limits.of_ledger == LedgerLimits(PrivacyLimit(Fraction(1, 10), Fraction(1, 100_000)), 2)


@pytest.mark.parametrize("epsilon", ["1e400", "1e-400", "1e100", "-1", "inf", "nan", " 1", "1/3"])
def test_limits_beyond_double_precision_are_refused(tmp_path, epsilon):
    with pytest.raises(ConfigurationError, match="exact decimal"):
        load(tmp_path, f'[limits]\nepsilon = "{epsilon}"\ndelta = "1e-5"')


@pytest.mark.parametrize("epsilon", ["9" * 30 + "e99", "1e-99", "0"])
def test_a_limit_of_any_size_that_is_read_can_be_counted_with(tmp_path, epsilon):
    limit = load(tmp_path, f'[limits]\nepsilon = "{epsilon}"\ndelta = "1e-5"').limits.of_ledger.lifetime
    assert limit.admits(NO_LOSS)
    assert limit.spent(NO_LOSS) == 0
    assert min(limit.left(NO_LOSS).pure, limit.left(NO_LOSS).gaussian) >= 0
    assert "at delta 1e-05" in str(limit)


SCOPES = """
[limits]
epsilon = "10"
delta = "1e-5"
[limits.record]
epsilon = "3"
delta = "1e-6"
[limits.columns.age]
epsilon = "2"
delta = "0"
[limits.features.smoker]
epsilon = "1"
delta = "1e-7"
[limits.per_learner]
epsilon = "5"
delta = "1e-5"
[limits.per_day]
epsilon = "0.5"
delta = "1e-5"
"""


def test_scopes_may_have_limits_of_their_own(tmp_path):
    limits = load(tmp_path, SCOPES).limits.of_ledger
    lifetime = PrivacyLimit(Fraction(10), Fraction(1, 10**5))
    assert limits.of(RECORD) == PrivacyLimit(Fraction(3), Fraction(1, 10**6))
    assert limits.of(joint("age")) == PrivacyLimit(Fraction(2), Fraction(0))
    assert limits.of(marginal("smoker", "smokes")) == PrivacyLimit(Fraction(1), Fraction(1, 10**7))
    assert limits.of(joint("smoker")) == limits.of(marginal("age")) == lifetime
    assert (limits.per_learner, limits.per_day) == (
        PrivacyLimit(Fraction(5), Fraction(1, 10**5)),
        PrivacyLimit(Fraction(1, 2), Fraction(1, 10**5)),
    )
    assert "marginal:smoker epsilon 1 at delta 1e-07" in str(limits)


@pytest.mark.parametrize(
    "faulty", ['[limits]\ndelta = "1"', '[limits.record]\nepsilon = "1"', '[limits.columns]\nage = "1"']
)
def test_a_limit_that_bounds_nothing_or_is_half_given_is_refused(tmp_path, faulty):
    with pytest.raises(ConfigurationError, match="limits"):
        load(tmp_path, faulty)


@pytest.mark.parametrize("value", ["0.1", "10", '"-1"', '"nan"', '"1/3"', '"1e9999"', '""', "true"])
def test_a_limit_that_is_not_an_exact_decimal_is_refused(tmp_path, value):
    with pytest.raises(ConfigurationError, match="epsilon"):
        load(tmp_path, f"[limits]\nepsilon = {value}")


def test_unknown_keys_and_bad_fingerprints_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="did you mean 'designs'"):
        load(tmp_path, 'design = ["plain"]')
    with pytest.raises(ConfigurationError, match="64 hexadecimal"):
        load(tmp_path, 'accepted_members = ["abcd"]')
    with pytest.raises(ConfigurationError, match="designs"):
        load(tmp_path, 'designs = ["laplace"]')


def test_a_fingerprint_may_be_written_with_or_without_colons(tmp_path):
    printed = fingerprint(SigningKey.generate("clinics").public_bytes)
    for form in (printed, printed.replace(":", ""), printed.upper()):
        policy = load(tmp_path, f'accepted_members = ["{form}"]')
        assert policy.accepted_members == (printed.replace(":", ""),)


def test_what_is_allowed_passes(world):
    check(world, world.policy())


def test_a_pinned_name_under_another_key_is_refused(world):
    other = fingerprint(SigningKey.generate("clinics").public_bytes)
    policy = world.policy(learners=[{"name": "lea", "signing_key": other}])
    with pytest.raises(WireError) as caught:
        check(world, policy)
    assert caught.value.code is Code.POLICY_LEARNER


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"learners": []}, Code.POLICY_LEARNER),
        ({"designs": ["plain"]}, Code.POLICY_DESIGN),
        ({"allow_unprotected": False}, Code.POLICY_UNPROTECTED),
        ({"purpose_required": True}, Code.POLICY_PURPOSE),
        ({"limits": {"rados_per_query": 19}}, Code.POLICY_LIMITS),
        ({"limits": {"delta_per_query": "1e-7"}}, Code.POLICY_LIMITS),
        ({"limits": {"attempts_per_query": 2}}, Code.POLICY_LIMITS),
        ({"limits": {"lifetime_per_query_s": 3599}}, Code.POLICY_LIMITS),
        ({"smallest_cohort": 4}, Code.POLICY_COHORT),
        ({"assumed_colluders": 2}, Code.POLICY_COHORT),
        ({"accepted_members": []}, Code.POLICY_COHORT),
    ],
)
def test_each_rule_refuses_with_its_code(world, changes, code):
    with pytest.raises(WireError) as caught:
        check(world, world.policy(**changes))
    assert caught.value.code is code


def test_a_required_purpose_is_any_purpose(world):
    """What it says is for people."""
    check(world, world.policy(purpose_required=True), world.query(purpose="x"))


def test_limits_admit_their_own_value(world):
    check(
        world,
        world.policy(
            limits={
                "rados_per_query": 20,
                "delta_per_query": "1e-6",
                "attempts_per_query": 3,
                "lifetime_per_query_s": 3600,
            }
        ),
    )


def test_plain_rados_also_need_allow_unprotected(world):
    plain = RadosQuery(5, PlainDesign())
    with pytest.raises(WireError) as caught:
        check(world, world.policy(allow_unprotected=False), world.query(kind=plain))
    assert caught.value.code is Code.POLICY_UNPROTECTED


@pytest.mark.parametrize(("cohort_min", "honest", "ok"), [(3, 2, True), (2, 1, False), (3, 3, False)])
def test_the_query_must_meet_the_partys_cohort_rule(world, cohort_min, honest, ok):
    """c = 1: at least max(3, h + 1, 3)."""
    query = world.query(cohort_min=cohort_min, honest_parties=honest)
    if ok:
        check(world, world.policy(), query)
    else:
        with pytest.raises(WireError) as caught:
            check(world, world.policy(), query)
        assert caught.value.code is Code.POLICY_COHORT


def test_only_accepted_members_count(world):
    policy = world.policy()
    check_cohort(policy, world.roster, "ada", ["ada", "bo", "cy"], world.query())
    one_stranger = world.policy(accepted_members=[fingerprint(world.party_keys["bo"].public_bytes)])
    with pytest.raises(WireError) as caught:
        check_cohort(one_stranger, world.roster, "ada", ["ada", "bo", "cy"], world.query())
    assert caught.value.code is Code.POLICY_COHORT
    with pytest.raises(WireError):
        check_cohort(policy, world.roster, "ada", ["ada", "bo", "bo"], world.query())


def test_a_member_whose_key_changed_is_no_longer_accepted(world):
    policy = world.policy()
    world.party_keys["cy"] = SigningKey.generate("clinics")
    with pytest.raises(WireError):
        check_cohort(policy, world.roster, "ada", ["ada", "bo", "cy"], world.query())


def test_a_single_party_cohort_is_possible_if_the_policy_allows_it(world):
    policy = world.policy(smallest_cohort=2, assumed_colluders=0)
    encoding = plan_encoding(largest_sum=1000 << 16, max_parties=2, fraction_bits=16)
    check(world, policy, world.query(cohort_min=2, honest_parties=2, max_parties=2, encoding=encoding))


def test_noise_without_a_delta_keeps_to_any_limit_on_delta(world):
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=0)
    policy = world.policy(designs=["statistic"], limits={"delta_per_query": "0"})
    laplace, gaussian = (
        world.query(kind=StatisticQuery((Flag("smoker"),), SCHEMA, noise), encoding=encoding)
        for noise in (LaplaceShares(Fraction(10), 2), GaussianShares(1 << 20))
    )
    assert laplace.delta > 0
    check(world, policy, laplace)
    with pytest.raises(WireError, match="delta is 1e-06 and the limit is 0") as caught:
        check(world, policy, gaussian)
    assert caught.value.code is Code.POLICY_LIMITS


def test_a_query_has_no_more_predicates_than_the_policy_allows(world):
    predicates = (Flag("smoker"), ~Flag("smoker"))
    kind = StatisticQuery(predicates, SCHEMA, GaussianShares(1 << 20))
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=0)
    query = world.query(kind=kind, encoding=encoding)
    check(world, world.policy(designs=["statistic"], limits={"predicates_per_query": 2}), query)
    with pytest.raises(WireError, match="predicates is 2 and the limit is 1") as caught:
        check(world, world.policy(designs=["statistic"], limits={"predicates_per_query": 1}), query)
    assert caught.value.code is Code.POLICY_LIMITS


def test_a_feature_map_has_no_more_terms_than_the_policy_allows(world):
    feature_map = FeatureMap((Term(Column(0)), Term(Hat(0, None, 0, ONE))), SCHEMA.bias)
    kind = MomentsQuery(Clip(Fraction(2), SCHEMA.bias), 1, 1 << 20)
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=10)
    query = world.query(kind=kind, encoding=encoding, feature_map=feature_map)
    for limits in ({}, {"map_terms_per_query": 2}):
        check(world, world.policy(designs=["moments"], limits=limits), query)
    with pytest.raises(WireError, match="terms of the feature map is 2 and the limit is 1") as caught:
        check(world, world.policy(designs=["moments"], limits={"map_terms_per_query": 1}), query)
    assert caught.value.code is Code.POLICY_LIMITS
    plain = world.query(kind=kind, encoding=encoding)
    check(world, world.policy(designs=["moments"], limits={"map_terms_per_query": 0}), plain)


@pytest.mark.parametrize(
    ("colluders", "honest", "smallest", "needed"), [(0, 1, 1, 2), (0, 3, 1, 3), (2, 1, 1, 4), (1, 1, 9, 9)]
)
def test_a_cohort_has_as_many_members_as_the_largest_rule_asks(world, colluders, honest, smallest, needed):
    policy = world.policy(assumed_colluders=colluders, smallest_cohort=smallest)
    assert policy.members_needed(honest) == needed


def test_a_limit_that_is_exceeded_is_named(world):
    with pytest.raises(WireError, match="rados is 20 and the limit is 19"):
        check(world, world.policy(limits={"epsilon": "1000", "delta": "1e-3", "rados_per_query": 19}))


def test_requesters_are_those_of_the_learner(world):
    policy = world.policy(
        learners=[{"name": name, "signing_key": "ab" * 32, "requesters": [f"{name}-1", f"{name}-2"]} for name in "ab"]
    )
    assert policy.requesters("b") == ("b-1", "b-2")
    assert policy.requesters("c") == ()


def test_a_predicate_that_is_not_understood_is_quoted_with_its_fault(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, '[approval]\nadmitted_predicates = ["x >"]\n')
    assert "x >" in str(caught.value)
