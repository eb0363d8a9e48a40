"""Every kind whose noise follows the cohort says so in its cost, draws what it says, and plans slots for it."""

from dataclasses import replace

import pytest

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.protection import GaussianProtection, LaplaceProtection
from dpcore.errors import PlanError
from dpcore.queries.kind import QueryLimits
from dpcore.randomness.sources import SeededRandom
from tests.federation.party import World
from tests.wire.every_query import every_query
from wire.query import setting_of

ADMITTED = Cohorts(3, 2, 5)
NEVER = {"plain", "dp-feat", "dp-feat of several", "joint", "fixed-support", "statistic, local"}


def test_every_kind_that_follows_the_cohort_is_counted_drawn_and_planned_so(secret_key):
    followed = set()
    for name, query in every_query(World(secret_key)).items():
        kind = query.kind if query.kind.cohorts is None else replace(query.kind, among=None)
        try:
            follows = kind.following(ADMITTED)
        except PlanError:
            assert name in NEVER
            continue
        followed.add(name)
        assert follows.cohorts == follows.shares.cohorts == ADMITTED
        assert type(follows) is type(kind)
        protection = follows.protection(replace(setting_of(query), honest_parties=2))
        match protection:
            case GaussianProtection():
                assert protection.cohorts == protection.of_presence().cohorts == ADMITTED
                assert protection.share_sigma == follows.shares.share_sigma
            case LaplaceProtection():
                assert protection.noise.cohorts == ADMITTED
            case _:
                pytest.fail(f"the cost of {name} does not say for whom its noise is")
        limits, bits = QueryLimits(1000, 5, query.d), query.encoding.fraction_bits
        noise = follows.shares.tail_bound(5, follows.length(query.d))
        plain = kind.shares.tail_bound(5, kind.length(query.d))
        assert follows.largest_sum(limits, bits) - noise == kind.largest_sum(limits, bits) - plain
        for parties in (3, 4):
            assert follows.top_up(query.d, parties, SeededRandom(1)).shape == (follows.length(query.d),)
        assert follows.top_up(query.d, 5, SeededRandom(1)) is None
        assert kind.top_up(query.d, 3, SeededRandom(1)) is None
    assert not followed & NEVER
    assert len(followed) >= 12
