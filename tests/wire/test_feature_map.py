"""The feature map of a query, on the wire."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import PlanError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Affine, LabelIs, NonNegative
from dpcore.predicates.notation import parse
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import FixedSupportDesign, dp_feat_design, joint_design, plain_design
from dpcore.records.clipping import Clip
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from learner.requests import GradientRequest, MomentsRequest, RadosRequest, StatisticRequest
from rado.v1 import query_pb2
from tests.federation.learner import SCHEMA, World
from wire.errors import Code, WireError
from wire.query import Query
from wire.query_kinds import feature_map_from_proto, feature_map_to_proto
from wire.query_summary import QuerySummary

MAP = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, None, -ONE, 0), ONE // 3, 1),
        Term(Hat(0, -ONE, 0, None)),
        Term(Hat(0, -5, 7, ONE), 0, 8),
        Term(PointMass(0, -ONE), 9),
        Term(Column(1)),
        Term(Product(1, 5), 0, 2),
    ),
    SCHEMA.bias,
)
MARGIN = NonNegative(Affine((("1: age~0", 5), ("6: age~0*smoker", -7), ("0: age", 2)), 3))
BUDGET = {"epsilon": Fraction(1), "feature_map": MAP}
REQUESTS = [
    MomentsRequest(SCHEMA, **BUDGET),
    GradientRequest(SCHEMA, (0.0,) * MAP.d, clip=Fraction(1), **BUDGET),
    RadosRequest(SCHEMA, 10, design="gaussian", **BUDGET),
    RadosRequest(SCHEMA, 10, design="fixed-support", **BUDGET),
    StatisticRequest(SCHEMA, (MARGIN & LabelIs(positive=True), ~MARGIN, parse('x["smoker"]')), **BUDGET),
]
CLIP = Clip(Fraction(2), SCHEMA.bias)


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_map_survives_a_round_trip_and_is_signed(world, request_):
    query = world.plan(request_).query
    assert query.feature_map == MAP
    assert (query.d, query.length) == (MAP.d, query.kind.length(MAP.d))
    assert Query.from_bytes(query.to_bytes()) == query
    other = FeatureMap((*MAP.terms[:-1], replace(MAP.terms[-1], halvings=3)), SCHEMA.bias)
    kind = replace(query.kind, feature_map=other) if isinstance(query.kind, StatisticQuery) else query.kind
    assert replace(query, feature_map=other, kind=kind).to_bytes() != query.to_bytes()
    assert "of records mapped to 2 coordinates, 3 hats, 1 point mass, 1 product (features age, smoker): " in query.words


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(5, plain_design(SCHEMA)),
        RadosQuery(5, dp_feat_design(SCHEMA, ["smoker"], Fraction(2))),
        RadosQuery(5, joint_design(SCHEMA, "age", 1000)),
        RadosQuery(5, FixedSupportDesign(Fraction(1, 2), CLIP, 0)),
    ],
    ids=lambda kind: kind.design.words(),
)
def test_kinds_that_do_not_protect_records_take_none(world, kind):
    query = world.plan(RadosRequest(SCHEMA, 5, design="plain")).query
    with pytest.raises(WireError, match="its kind takes a feature map") as caught:
        replace(query, kind=kind, feature_map=MAP)
    assert caught.value.code is Code.QUERY_INVALID


@pytest.mark.parametrize(
    "request_",
    [
        RadosRequest(SCHEMA, 10, design="plain", feature_map=MAP),
        RadosRequest(SCHEMA, 10, design="dp-feat", sensitive="smoker", feature_map=MAP),
        RadosRequest(SCHEMA, 10, design="fixed-support", feature_map=MAP),
    ],
    ids=["plain", "dp-feat", "no noise"],
)
def test_a_plan_says_which_kinds_take_one(world, request_):
    with pytest.raises(PlanError, match=r"takes no feature map.*ask moments, gaussian"):
        world.plan(request_)


def test_predicates_are_about_the_map_of_their_query(world):
    """Their forms name places, which mean something else under another map, and nothing without one."""
    query = world.plan(REQUESTS[-1]).query
    other = FeatureMap((*MAP.terms[:-1], replace(MAP.terms[-1], halvings=3)), SCHEMA.bias)
    plain = world.plan(StatisticRequest(SCHEMA, (parse("y == 1"),), epsilon=Fraction(1))).query
    for changed, fields in (
        (query, {"feature_map": other}),
        (query, {"feature_map": None}),
        (plain, {"feature_map": MAP}),
    ):
        with pytest.raises(WireError, match="its predicates are about its feature map") as caught:
            replace(changed, **fields)
        assert caught.value.code is Code.QUERY_INVALID


def test_a_form_of_a_coordinate_that_the_map_lacks(world):
    message = query_pb2.Query.FromString(world.plan(REQUESTS[-1]).query.to_bytes())
    del message.feature_map.terms[-2:]
    with pytest.raises(WireError, match="names coordinate 6, but there are 6"):
        Query.from_bytes(message.SerializeToString(deterministic=True))


def test_people_see_what_a_mapped_statistic_asks(world):
    asked = QuerySummary.of(world.plan(REQUESTS[-1]).query)
    assert asked.predicates[1] == '2 * z["0: age"] + 5 * z["1: age~0"] - 7 * z["6: age~0*smoker"] + 3 < 0'
    assert asked.columns == ("age", "smoker", SCHEMA.label.column)
    assert "of records mapped to 2 coordinates, 3 hats" in asked.words
    one = StatisticRequest(SCHEMA, (NonNegative(Affine((("2: age~50", 1),))),), **BUDGET)
    summary = QuerySummary.of(world.plan(one).query)
    assert summary.columns == ("age",)
    # Where numbers are clipped decides what they count: only of the columns that are asked about.
    (age,) = (each for each in world.plan(one).query.schema.features if each.name == "age")
    bounds = f"age {age.lower:.10g} to {age.upper:.10g}"
    assert QuerySummary.of(world.plan(one).query).bounds == (bounds,)
    assert (
        f"numbers beyond these bounds count as if at them: {bounds}" in QuerySummary.of(world.plan(one).query).lines()
    )


def test_a_request_for_another_schema_is_refused_before_a_plan():
    wrong = FeatureMap((Term(Hat(1, None, 0, ONE)),), SCHEMA.bias)
    with pytest.raises(SchemaError, match="'smoker', which is no real feature"):
        MomentsRequest(SCHEMA, epsilon=Fraction(1), feature_map=wrong)


def hat(**fields) -> query_pb2.MapTerm:
    return query_pb2.MapTerm(hat=query_pb2.HatFunction(**fields))


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ([], "1 to 4096 terms"),
        ([query_pb2.MapTerm()], "does not know a function"),
        ([hat(coordinate=0, peak=5)], "constant"),
        ([hat(coordinate=0, left=7, peak=5)], "not in ascending order"),
        ([hat(coordinate=0, left=-(1 << 62), peak=5)], "beyond the schema's bounds"),
        ([hat(coordinate=1, left=0, peak=5)], "no real feature"),
        ([query_pb2.MapTerm(column=2)], "has coordinates 0 to 1 besides the bias"),
        ([query_pb2.MapTerm(column=0, centre=1)], "centre"),
        ([query_pb2.MapTerm(column=0, halvings=9)], "halvings"),
        ([query_pb2.MapTerm(column=0)] * 2, "occurs twice"),
        ([query_pb2.MapTerm(product=query_pb2.ProductFunction(first=0, second=1))], "two different terms"),
    ],
)
def test_a_map_that_a_peer_makes_up(terms, sentence):
    with pytest.raises(WireError, match=sentence) as caught:
        feature_map_from_proto(query_pb2.FeatureMap(terms=terms), SCHEMA)
    assert caught.value.code is Code.QUERY_INVALID
    assert feature_map_from_proto(feature_map_to_proto(MAP), SCHEMA) == MAP
