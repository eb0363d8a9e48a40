"""Persons as the unit of privacy, on the wire and in plans."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError, PlanError
from dpcore.predicates.expressions import LabelIs
from dpcore.records.persons import PERSON_WEIGHT, Persons
from dpcore.records.weight import Weight
from learner.history import question_digest
from learner.requests import ChosenRequest, GradientRequest, MomentsRequest, RadosRequest, StatisticRequest
from rado.v1 import query_pb2
from tests.federation.learner import SCHEMA, World
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import Query
from wire.query_summary import QuerySummary, signed_parts

ONE = Fraction(1)
ASKED = MomentsRequest(SCHEMA, epsilon=ONE, unit="person", persons_may_repeat=2)
REQUESTS = {
    "moments": ASKED,
    "statistic": StatisticRequest(SCHEMA, (LabelIs(True),), epsilon=ONE, unit="person"),
    "pure": StatisticRequest(SCHEMA, (LabelIs(True),), epsilon=ONE, pure=True, unit="person"),
    "gradient": GradientRequest(SCHEMA, (0.5, -1.0, 0.0), epsilon=ONE, clip=Fraction(1, 2), unit="person"),
    "auto": ChosenRequest(SCHEMA, epsilon=ONE, unit="person"),
}


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.fixture(scope="module")
def query(world):
    return world.plan(ASKED).query


def test_persons_survive_a_round_trip_and_are_signed_and_shown(query):
    assert (query.persons, query.kind.persons) == (Persons(2), Persons(2))
    assert Feature.PERSONS in query.features
    assert Query.from_bytes(query.to_bytes()) == query
    once = replace(query, persons=Persons(), kind=query.kind.of_persons(Persons()))
    assert len({each.to_bytes() for each in (query, once)}) == 2
    records = replace(query, persons=None, kind=query.kind.of_persons(None), features=(Feature.BASE.value,))
    assert len({question_digest(each) for each in (query, once, records)}) == 3
    first = QuerySummary.of(query).lines()[0]
    assert "averaged for each person, protecting one person, with all rows at up to 2 parties" in first
    lines = [
        field for part in signed_parts(query.to_bytes()) for field in part.fields if field.name == "persons.parties"
    ]
    names = {field.name for part in signed_parts(query.to_bytes()) for field in part.fields}
    assert [line.value for line in lines] == ["2"], names


def test_a_query_has_one_unit_in_all_its_parts(query):
    wrong = {
        "persons have their feature": {"features": (Feature.BASE.value,)},
        "its kind has its unit of privacy": {"kind": query.kind.of_persons(Persons(1))},
        "persons are at 1 to max_parties parties": {
            "persons": Persons(4),
            "kind": query.kind.of_persons(Persons(4)),
        },
        "persons who are at several parties are asked about in all epochs": {"epoch": "2026-11"},
    }
    for words, changes in wrong.items():
        with pytest.raises(WireError, match=words) as caught:
            replace(query, **changes)
        assert caught.value.code is Code.QUERY_INVALID
    once = replace(query, persons=Persons(), kind=query.kind.of_persons(Persons()))
    assert replace(once, epoch="2026-11").persons == Persons()


def test_a_query_of_persons_at_no_party_is_refused(query):
    message = query.to_proto()
    message.persons.parties = 0
    with pytest.raises(WireError, match="a person may be at 0 parties") as caught:
        Query.from_proto(message)
    assert caught.value.code is Code.QUERY_INVALID


@pytest.mark.parametrize("name", REQUESTS)
def test_a_plan_for_persons_costs_the_epsilon_and_says_for_whom(world, name):
    request = REQUESTS[name]
    plan = world.plan(request)
    of_records = world.plan(replace(request, unit="record", persons_may_repeat=None))
    assert plan.cost.epsilon_if_others_collude == pytest.approx(1, abs=0.03)
    assert plan.cost.epsilon_if_others_collude <= 1
    said = " ".join(plan.sentences())
    assert f"for one person, with all rows at {'up to 2 parties' if request is ASKED else 'one party'}" in said
    assert "average over persons of the average of each one's rows" in said
    assert "for one record" in " ".join(of_records.sentences())
    # The same noise in real units, but for twice as many parties.
    factor = (2 if request is ASKED else 1) * PERSON_WEIGHT
    noise = [each.query.kind.shares.deviation(3) for each in (plan, of_records)]
    assert noise[0] == pytest.approx(factor * noise[1], rel=0.05)


def test_what_protects_no_persons_is_not_planned(world):
    rados = RadosRequest(SCHEMA, 40, design="gaussian", epsilon=ONE, unit="person")
    with pytest.raises(PlanError, match="gaussian protects no persons, whose rows enter one by one"):
        world.plan(rados)
    with pytest.raises(PlanError, match="a person may be at 4 parties and the query takes 3"):
        world.plan(replace(ASKED, persons_may_repeat=4))
    with pytest.raises(ConfigurationError, match="give --unit person"):
        MomentsRequest(SCHEMA, epsilon=ONE, persons_may_repeat=2)
    with pytest.raises(ConfigurationError, match="a person may be in another epoch at each party"):
        replace(ASKED, epoch="2026-11")
    local = StatisticRequest(SCHEMA, (LabelIs(True),), epsilon=ONE, local=True, unit="person")
    with pytest.raises(PlanError, match="local answers protect each record"):
        world.plan(local)


@pytest.mark.parametrize("name", ["moments", "gradient"])
def test_of_weighted_rows_no_query_of_persons_is_planned_or_read(world, name):
    weighted = replace(SCHEMA, weight=Weight(column="w", upper=2.0))
    asked = replace(REQUESTS[name], schema=weighted)
    with pytest.raises(PlanError, match="by a weight or as rows of persons, not by both"):
        world.plan(asked)
    query = world.plan(replace(asked, unit="record", persons_may_repeat=None)).query
    message = query_pb2.Query.FromString(query.to_bytes())
    message.persons.parties = 1
    with pytest.raises(WireError, match="by a weight or as rows of persons, not by both"):
        Query.from_bytes(message.SerializeToString(deterministic=True))
    # A statistic is about the schema without its weight.
    plan = world.plan(replace(REQUESTS["statistic"], schema=weighted))
    assert (plan.query.persons, plan.query.schema.weight) == (Persons(), None)
