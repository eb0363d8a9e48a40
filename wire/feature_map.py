"""The feature map of a query, as a message."""

from dpcore.errors import PlanError, SchemaError
from dpcore.records.feature_map import Column, FeatureMap, Function, Hat, PointMass, Product, Term
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.errors import Code, WireError


def feature_map_to_proto(feature_map: FeatureMap) -> query_pb2.FeatureMap:
    """The message that travels in a query."""
    return query_pb2.FeatureMap(terms=map(_term_to_proto, feature_map.terms))


def feature_map_from_proto(message: query_pb2.FeatureMap, schema: Schema) -> FeatureMap:
    """Raises WireError(QUERY_INVALID) if a term is out of range or does not fit the schema."""
    try:
        found = FeatureMap(tuple(map(_term_from_proto, message.terms)), schema.bias)
        found.check(schema)
    except (PlanError, SchemaError) as error:
        raise WireError(Code.QUERY_INVALID, str(error)) from error
    return found


def _term_to_proto(term: Term) -> query_pb2.MapTerm:
    message = query_pb2.MapTerm(centre=term.centre, halvings=term.halvings)
    match term.function:
        case Column(coordinate):
            message.column = coordinate
        case Hat(coordinate, left, peak, right):
            hat = query_pb2.HatFunction(coordinate=coordinate, left=left, peak=peak, right=right)
            message.hat.CopyFrom(hat)
        case PointMass(coordinate, at):
            message.point_mass.CopyFrom(query_pb2.PointMass(coordinate=coordinate, at=at))
        case Product(first, second):
            message.product.CopyFrom(query_pb2.ProductFunction(first=first, second=second))
    return message


def _term_from_proto(message: query_pb2.MapTerm) -> Term:
    return Term(_function_from_proto(message), message.centre, message.halvings)


def _function_from_proto(message: query_pb2.MapTerm) -> Function:
    match message.WhichOneof("function"):
        case "column":
            return Column(message.column)
        case "hat":
            hat = message.hat
            left = hat.left if hat.HasField("left") else None
            return Hat(hat.coordinate, left, hat.peak, hat.right if hat.HasField("right") else None)
        case "point_mass":
            return PointMass(message.point_mass.coordinate, message.point_mass.at)
        case "product":
            return Product(message.product.first, message.product.second)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know a function of the feature map.")
