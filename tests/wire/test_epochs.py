"""The epoch of rows that a query is about, on the wire and in plans."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.history import question_digest
from learner.requests import MomentsRequest, RadosRequest
from tests.federation.learner import SCHEMA, World
from wire.errors import Code, WireError
from wire.query import Query
from wire.query_summary import QuerySummary, signed_parts

ASKED = MomentsRequest(SCHEMA, epsilon=Fraction(1), epoch="2026-11")


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.fixture(scope="module")
def query(world):
    return world.plan(ASKED).query


def test_an_epoch_survives_a_round_trip_and_is_signed_and_shown(query):
    assert query.epoch == "2026-11"
    assert Query.from_bytes(query.to_bytes()) == query
    other, none = replace(query, epoch="2026-12"), replace(query, epoch=None)
    assert len({each.to_bytes() for each in (query, other, none)}) == 3
    assert len({question_digest(each) for each in (query, other, none)}) == 3
    assert "about the rows of epoch 2026-11 only" in QuerySummary.of(query).lines()[0]
    (line,) = (field for part in signed_parts(query.to_bytes()) for field in part.fields if field.name == "epoch")
    assert line.value == '"2026-11"'


@pytest.mark.parametrize("name", ["", " ", "2026 11", "x" * 41, "a/b", "a\n"])
def test_other_names_are_refused(query, name):
    message = query.to_proto()
    message.epoch = name
    with pytest.raises(WireError, match="an epoch's name has 1 to 40 letters") as caught:
        Query.from_proto(message)
    assert caught.value.code is Code.QUERY_INVALID
    with pytest.raises(ConfigurationError, match="an epoch's name has"):
        replace(ASKED, epoch=name)


def test_a_plan_knows_the_cost_of_kinds_that_cost_the_same_for_any_rows(world):
    plan = world.plan(ASKED)
    assert plan.cost == world.plan(replace(ASKED, epoch=None)).cost is not None
    assert plan.query.max_rows == world.plan(replace(ASKED, epoch=None)).query.max_rows
    assert any("as if they had no other rows" in sentence for sentence in plan.sentences())
    rados = RadosRequest(SCHEMA, 10, design="fixed-support", epsilon=Fraction(1))
    assert world.plan(rados).cost is not None
    assert world.plan(replace(rados, epoch="2026-11")).cost is None
