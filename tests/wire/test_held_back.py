"""The part of the rows that a query is about, on the wire."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.predicates.notation import parse
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, dp_feat_design, joint_design, plain_design
from dpcore.records.clipping import Clip
from dpcore.records.held_back import HeldBack, Part
from learner.requests import GradientRequest, MomentsRequest, RadosRequest, StatisticRequest
from rado.v1 import query_pb2
from tests.federation.learner import SCHEMA, World
from wire.errors import Code, WireError
from wire.query import Query
from wire.query_summary import QuerySummary

PART = HeldBack(Fraction(1, 5), Part.HELD_BACK)
BUDGET = {"epsilon": Fraction(1), "held_back": PART}
REQUESTS = [
    MomentsRequest(SCHEMA, **BUDGET),
    GradientRequest(SCHEMA, (0.0,) * 3, clip=Fraction(1), **BUDGET),
    StatisticRequest(SCHEMA, (parse("y == 1"),), **BUDGET),
    RadosRequest(SCHEMA, 10, design="gaussian", **BUDGET),
]
CLIP = Clip(Fraction(2), SCHEMA.bias)


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_part_survives_a_round_trip_and_is_signed(world, request_, part):
    asked = replace(request_, held_back=HeldBack(Fraction(1, 5), part))
    query = world.plan(asked).query
    assert query.held_back == asked.held_back
    assert Query.from_bytes(query.to_bytes()) == query
    other = {HeldBack(Fraction(1, 5), one) for one in Part} - {asked.held_back}
    assert replace(query, held_back=other.pop()).to_bytes() != query.to_bytes()


@pytest.mark.parametrize("piece", [HeldBack.piece_of(whole, 7, 6) for whole in (None, PART)])
def test_a_piece_survives_a_round_trip_is_signed_and_named(world, piece):
    query = world.plan(replace(REQUESTS[2], held_back=piece)).query
    assert Query.from_bytes(query.to_bytes()) == query
    assert replace(query, held_back=replace(piece, piece=5)).to_bytes() != query.to_bytes()
    assert "about piece 7 of 7 of " in QuerySummary.of(query).words


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(3, plain_design(SCHEMA)),
        RadosQuery(3, dp_feat_design(SCHEMA, ["smoker"])),
        RadosQuery(3, joint_design(SCHEMA, "smoker", 3)),
        RadosQuery(3, FixedSupportDesign(Fraction(1, 2), CLIP, 0)),
        RadosQuery(3, FixedSupportDesign(Fraction(1, 2), CLIP, 5)),
        RadosQuery(3, GaussianDesign(CLIP, 5, Fraction(1, 2))),
    ],
    ids=lambda kind: kind.design.words(),
)
def test_a_kind_in_which_rows_outside_the_part_would_count_is_refused(world, kind):
    query = world.plan(REQUESTS[3]).query
    with pytest.raises(WireError, match="a part of the rows") as caught:
        replace(query, kind=kind)
    assert caught.value.code is Code.QUERY_INVALID


def rational(numerator: int, denominator: int) -> query_pb2.Rational:
    return query_pb2.Rational(numerator=numerator, denominator=denominator)


@pytest.mark.parametrize(
    "message",
    [
        query_pb2.HeldBack(share=rational(1, 5)),
        query_pb2.HeldBack(share=rational(1, 5), part=3),
        query_pb2.HeldBack(part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(0, 1), part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(1, 1), part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(-1, 5), part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(2, 10), part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(1, 0), part=query_pb2.PART_TRAINING),
        query_pb2.HeldBack(share=rational(0, 1), part=query_pb2.PART_TRAINING, pieces=1),
        query_pb2.HeldBack(share=rational(0, 1), part=query_pb2.PART_TRAINING, pieces=3, piece=3),
        query_pb2.HeldBack(share=rational(0, 1), part=query_pb2.PART_HELD_BACK, pieces=3),
        query_pb2.HeldBack(share=rational(1, 5), part=query_pb2.PART_TRAINING, pieces=1 << 17),
        query_pb2.HeldBack(share=rational(1, 5), part=query_pb2.PART_TRAINING, piece=1),
    ],
    ids=lambda message: str(message).replace("\n", " "),
)
def test_other_messages_are_refused(world, message):
    query = world.plan(replace(REQUESTS[0], held_back=PART)).query.to_proto()
    query.held_back.CopyFrom(message)
    with pytest.raises(WireError) as caught:
        Query.from_proto(query)
    assert caught.value.code is Code.QUERY_INVALID


def test_people_read_which_rows_a_query_is_about(world):
    """In the words that a party's history and an explanation before a decision show."""
    about_part, about_all = (world.plan(replace(REQUESTS[0], held_back=part)).query for part in (PART, None))
    said = QuerySummary.of(about_part).words
    assert said == f"{QuerySummary.of(about_all).words}, about {PART.words()}"
    assert "holds back, a share of 0.2" in said
    assert said in QuerySummary.of(about_part).lines()[0]
    other = replace(about_part, held_back=HeldBack(PART.share, Part.TRAINING))
    assert QuerySummary.of(other).words != said
