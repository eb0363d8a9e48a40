"""Queries about a label that is a number or a count: what travels, and what a receiver refuses."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.queries.gradient import GradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import GaussianDesign
from rado.v1 import query_pb2
from tests.federation.party import World
from tests.wire.every_query import CLIP, OF_CLASSES, OF_COUNTS, OF_NUMBERS, SCHEMA, D, every_query
from wire.errors import Code, WireError
from wire.features import BASE_VERSION, Feature, check_known, features_of
from wire.query import Query
from wire.query_kinds import read_kind, write_kind

NAMES = [f"{kind} of {label}" for label in ("a number", "a count") for kind in ("moments", "gradient")]


@pytest.fixture(scope="module")
def queries(secret_key) -> dict[str, Query]:
    return every_query(World(secret_key))


@pytest.mark.parametrize("name", [*NAMES, "statistic of a number"])
def test_a_query_about_numbers_is_read_as_it_was_written(queries, name):
    asked = queries[name]
    found = Query.from_bytes(asked.to_bytes())
    assert found == asked
    assert type(found.kind) is type(asked.kind)
    assert "numbers" in found.features


def test_the_schema_decides_what_the_message_asks(queries):
    message = query_pb2.Query()
    write_kind(queries["moments of a number"].kind, message)
    assert isinstance(read_kind(message, OF_NUMBERS), NumberMomentsQuery)
    assert type(read_kind(message, SCHEMA)) is MomentsQuery
    assert read_kind(message, OF_COUNTS).length(D) == MomentsQuery(CLIP, 77, 1 << 20).length(D) + 1


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(5, GaussianDesign(CLIP, 9000)),
        MomentsQuery(CLIP, 77, 1 << 20),
        NumberMomentsQuery(CLIP, 77, 1 << 20, OF_COUNTS.label.coding),
        GradientQuery("logistic", tuple(range(D)), Fraction(1, 2), 1 << 20),
        NumberGradientQuery("poisson", tuple(range(D)), Fraction(1, 2), 1 << 20, None, OF_COUNTS.label.coding),
    ],
    ids=["rados", "moments", "moments of counts", "gradient", "gradient of counts"],
)
def test_a_query_that_is_not_about_the_label_is_refused(queries, kind):
    with pytest.raises(WireError, match="label") as refused:
        replace(queries["moments of a number"], kind=kind)
    assert refused.value.code is Code.QUERY_INVALID


@pytest.mark.parametrize("schema", [SCHEMA, OF_CLASSES], ids=["two classes", "classes"])
def test_a_query_about_numbers_is_refused_for_classes(queries, schema):
    with pytest.raises(WireError, match="needs a label that is a number or a count") as refused:
        replace(queries["moments of a number"], schema=schema)
    assert refused.value.code is Code.QUERY_INVALID


@pytest.mark.parametrize(("loss", "schema"), [("logistic", OF_NUMBERS), ("squared", SCHEMA), ("poisson", OF_NUMBERS)])
def test_a_loss_of_another_label_is_refused(loss, schema):
    message = query_pb2.Query()
    write_kind(GradientQuery("logistic", tuple(range(D)), Fraction(1, 2), 1 << 20), message)
    message.gradient.loss = {"logistic": 1, "squared": 3, "poisson": 4}[loss]
    with pytest.raises(Exception, match=r"no loss of such a label|poisson loss is of counts"):
        read_kind(message, schema)


def test_a_node_that_does_not_know_numbers_refuses_with_one_sentence(queries, monkeypatch):
    assert features_of(OF_NUMBERS) == (Feature.BASE.value, Feature.NUMBERS.value)
    assert features_of(SCHEMA, Feature.QUESTION) == (Feature.BASE.value, Feature.QUESTION.value)
    monkeypatch.setattr("wire.features.OWN_FEATURES", (Feature.BASE.value, Feature.QUESTION.value))
    with pytest.raises(WireError, match=r"Missing here: numbers\.") as refused:
        check_known(queries["moments of a count"].features)
    assert refused.value.code is Code.FEATURE_MISSING
    assert BASE_VERSION


def test_a_query_about_numbers_names_the_feature(queries):
    with pytest.raises(WireError, match="names the feature numbers") as refused:
        replace(queries["moments of a number"], features=(Feature.BASE.value,))
    assert refused.value.code is Code.QUERY_INVALID
