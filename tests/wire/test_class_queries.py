"""Queries about a label of several classes: what travels, and what a receiver refuses."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import PlanError
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import GaussianDesign, plain_design
from rado.v1 import query_pb2
from tests.federation.party import World
from tests.wire.every_query import CLIP, OF_CLASSES, SCHEMA, D, every_query
from wire.errors import Code, WireError
from wire.query import Query
from wire.query_kinds import read_kind, write_kind


@pytest.fixture(scope="module")
def queries(secret_key) -> dict[str, Query]:
    return every_query(World(secret_key))


@pytest.mark.parametrize(
    "name",
    ["moments of classes", "statistic of classes", "gradient of classes", "moments with products of each class"],
)
def test_a_query_about_classes_is_read_as_it_was_written(queries, name):
    asked = queries[name]
    found = Query.from_bytes(asked.to_bytes())
    assert found == asked
    assert type(found.kind) is type(asked.kind)


def test_the_schema_decides_what_the_message_asks(queries):
    message = query_pb2.Query()
    write_kind(queries["moments of classes"].kind, message)
    assert isinstance(read_kind(message, OF_CLASSES), ClassMomentsQuery)
    assert type(read_kind(message, SCHEMA)) is MomentsQuery
    assert read_kind(message, OF_CLASSES).length(D) == MomentsQuery(CLIP, 77, 1 << 20).length(D) + 2 * D


@pytest.mark.parametrize(
    "kind",
    [
        RadosQuery(5, plain_design(SCHEMA)),
        RadosQuery(5, GaussianDesign(CLIP, 9000)),
        MomentsQuery(CLIP, 77, 1 << 20),
        ClassMomentsQuery(CLIP, 77, 1 << 20, 4),
        GradientQuery("logistic", tuple(range(D)), Fraction(1, 2), 1 << 20),
        ClassGradientQuery("logistic", tuple(range(4 * D)), Fraction(1, 2), 1 << 20, None, 4),
    ],
    ids=["rados", "gaussian", "moments", "moments of other classes", "gradient", "gradient of other classes"],
)
def test_a_query_that_is_not_about_the_label_is_refused(queries, kind):
    with pytest.raises(WireError, match=r"label|classes") as refused:
        replace(queries["moments of classes"], kind=kind)
    assert refused.value.code is Code.QUERY_INVALID


def test_products_of_each_class_are_those_of_a_label_of_several_classes_and_name_their_feature(queries):
    asked = queries["moments with products of each class"]
    message = query_pb2.Query()
    write_kind(asked.kind, message)
    assert message.moments.products_of_each_class
    with pytest.raises(WireError, match="Only a label of several classes has products") as refused:
        read_kind(message, SCHEMA)
    assert refused.value.code is Code.QUERY_INVALID
    for query, features in ((asked, queries["moments of classes"].features), (queries["moments"], asked.features)):
        with pytest.raises(WireError, match="products_of_each_class has its feature"):
            replace(query, features=features)


def test_class_weights_are_of_the_label_s_classes_and_name_their_feature(queries):
    asked = queries["gradient with weights of two classes"]
    message = query_pb2.Query()
    write_kind(asked.kind, message)
    assert message.gradient.class_weights == [2, 5]
    assert read_kind(message, SCHEMA) == asked.kind
    with pytest.raises(PlanError, match="2 class weights for 3 classes"):
        read_kind(message, OF_CLASSES)
    message.gradient.class_weights.append(7)
    with pytest.raises(PlanError, match="3 class weights for 2 classes"):
        read_kind(message, SCHEMA)
    for query, features in ((asked, queries["gradient"].features), (queries["gradient"], asked.features)):
        with pytest.raises(WireError, match="class_weights has its feature"):
            replace(query, features=features)


@pytest.mark.parametrize("name", ["moments", "gradient"])
def test_a_query_about_classes_is_refused_for_two(queries, name):
    with pytest.raises(WireError, match="needs a label of several classes") as refused:
        replace(queries[f"{name} of classes"], schema=SCHEMA)
    assert refused.value.code is Code.QUERY_INVALID


@pytest.mark.parametrize(("loss", "weights"), [("hinge", 3 * D), ("logistic", 3 * D - 1), ("logistic", D)])
def test_a_gradient_of_another_shape_or_loss_is_refused(loss, weights):
    message = query_pb2.Query()
    write_kind(GradientQuery(loss, tuple(range(weights)), Fraction(1, 2), 1 << 20), message)
    with pytest.raises(Exception, match=r"hinge loss is of two classes|give one for each"):
        read_kind(message, OF_CLASSES)
