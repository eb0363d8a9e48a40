"""Queries about a label that is a time to an event: what travels, and what a receiver refuses."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.queries.gradient import GradientQuery
from dpcore.queries.hazard_gradient import HazardGradientQuery
from rado.v1 import query_pb2
from tests.federation.party import World
from tests.wire.every_query import OF_TIMES, SCHEMA, D, every_query
from wire.errors import Code, WireError
from wire.features import Feature, check_known, features_of
from wire.query import Query
from wire.query_kinds import read_kind, write_kind

NAMES = [f"{kind} of a time" for kind in ("moments", "statistic", "gradient")]


@pytest.fixture(scope="module")
def queries(secret_key) -> dict[str, Query]:
    return every_query(World(secret_key))


@pytest.mark.parametrize("name", NAMES)
def test_a_query_about_times_is_read_as_it_was_written(queries, name):
    asked = queries[name]
    found = Query.from_bytes(asked.to_bytes())
    assert found == asked
    assert type(found.kind) is type(asked.kind)
    assert Feature.EVENT_TIMES.value in found.features


def test_a_query_about_times_names_the_feature(queries):
    with pytest.raises(WireError, match="names the feature event-times") as refused:
        replace(queries["moments of a time"], features=(Feature.BASE.value,))
    assert refused.value.code is Code.QUERY_INVALID


def test_a_node_that_does_not_know_times_refuses_with_one_sentence(queries, monkeypatch):
    assert features_of(OF_TIMES) == (Feature.BASE.value, Feature.EVENT_TIMES.value)
    monkeypatch.setattr("wire.features.OWN_FEATURES", (Feature.BASE.value, Feature.QUESTION.value))
    with pytest.raises(WireError, match=r"Missing here: event-times\.") as refused:
        check_known(queries["gradient of a time"].features)
    assert refused.value.code is Code.FEATURE_MISSING


def test_only_a_gradient_of_hazards_has_a_weight_for_intervals(queries):
    message = query_pb2.Query()
    write_kind(GradientQuery("logistic", tuple(range(D)), Fraction(1, 2), 1 << 20), message)
    assert isinstance(read_kind(message, SCHEMA), GradientQuery)
    message.gradient.interval_weight = 2
    with pytest.raises(WireError, match="weight for intervals") as refused:
        read_kind(message, SCHEMA)
    assert refused.value.code is Code.QUERY_INVALID
    message = query_pb2.Query()
    write_kind(queries["gradient of a time"].kind, message)
    assert isinstance(read_kind(message, OF_TIMES), HazardGradientQuery)
