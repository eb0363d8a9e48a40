"""Kinds of queries and feature maps as messages. Reading one checks it against the schema."""

from collections.abc import Sequence

from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, NoiseShares
from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.predicates.expressions import FormCoordinates
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
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.records.clipping import Basis, Clip
from dpcore.records.feature_map import FeatureMap, Term
from dpcore.records.losses import LossName
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.codec import Codec, Travels, rational_from_proto, rational_to_proto
from wire.errors import Code, WireError
from wire.predicates import read_predicates, write_predicates

_LOSSES: dict[LossName, query_pb2.Loss.ValueType] = {
    "logistic": query_pb2.LOSS_LOGISTIC,
    "hinge": query_pb2.LOSS_HINGE,
}


Kind = MomentsQuery | StatisticQuery | GradientQuery | RadosQuery
"""All kinds that travel."""
KIND_FIELDS = ("rados", "moments", "statistic", "gradient")
"""The fields of a query that hold its kind, one of them."""
_TERMS = Codec(
    Term,
    query_pb2.MapTerm,
    Travels(unknown="This version does not know a function of the feature map.", code=Code.QUERY_INVALID),
)


def feature_map_to_proto(feature_map: FeatureMap) -> query_pb2.FeatureMap:
    """The message that travels in a query."""
    return query_pb2.FeatureMap(terms=map(_TERMS.write, feature_map.terms))


def feature_map_from_proto(message: query_pb2.FeatureMap, schema: Schema) -> FeatureMap:
    """Raises WireError(QUERY_INVALID) if a term is out of range or does not fit the schema."""
    try:
        found = FeatureMap(tuple(map(_TERMS.read, message.terms)), schema.bias)
        found.check(schema)
    except (PlanError, SchemaError) as error:
        raise WireError(Code.QUERY_INVALID, str(error)) from error
    return found


def write_kind(kind: Kind, message: query_pb2.Query) -> None:
    """Set the field of `message` that represents the kind."""
    match kind:
        case MomentsQuery():
            message.moments.norm_bound.CopyFrom(rational_to_proto(kind.clip.norm_bound))
            message.moments.edge_multiplier = kind.edge_multiplier
            message.moments.share_sigma = kind.share_sigma
        case RadosQuery():
            message.rados.rados = kind.rados
            _write_design(kind.design, message.rados)
        case StatisticQuery():
            coordinates = FormCoordinates(kind.schema, kind.feature_map)
            write_predicates(kind.predicates, coordinates, message.statistic)
            _write_noise(kind.noise, message.statistic)
        case GradientQuery():
            message.gradient.loss = _LOSSES[kind.loss]
            message.gradient.theta.extend(kind.theta)
            message.gradient.clip.CopyFrom(rational_to_proto(kind.clip))
            message.gradient.share_sigma = kind.share_sigma
            if kind.basis is not None:
                message.gradient.basis.extend([entry for row in kind.basis.entries for entry in row])


def kind_bytes(kind: Kind) -> bytes:
    """The kind alone, as it travels in a query. Equal kinds have equal bytes."""
    message = query_pb2.Query()
    write_kind(kind, message)
    return message.SerializeToString(deterministic=True)


def read_kind(message: query_pb2.Query, schema: Schema, feature_map: FeatureMap | None = None) -> Kind:
    """feature_map: that of the query, which fits the schema.

    Raises WireError(QUERY_INVALID), or a RadofedError that names the value out of range.
    """
    match message.WhichOneof("kind"):
        case "moments":
            moments = message.moments
            clip = Clip(rational_from_proto(moments.norm_bound), schema.bias)
            return MomentsQuery(clip, moments.edge_multiplier, moments.share_sigma)
        case "rados":
            return RadosQuery(message.rados.rados, _read_design(message.rados, schema))
        case "statistic":
            predicates = read_predicates(message.statistic, FormCoordinates(schema, feature_map))
            noise = _read_noise(message.statistic, message.honest_parties)
            return StatisticQuery(predicates, schema, noise, feature_map)
        case "gradient":
            return _read_gradient(message.gradient, schema.d if feature_map is None else feature_map.d)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's kind.")


def _write_noise(noise: NoiseShares, message: query_pb2.StatisticQuery) -> None:
    match noise:
        case GaussianShares(share_sigma):
            message.share_sigma = share_sigma
        case LaplaceShares(scale, shares):
            message.laplace.scale.CopyFrom(rational_to_proto(scale))
            message.laplace.shares = shares


def _read_noise(message: query_pb2.StatisticQuery, honest_parties: int) -> NoiseShares:
    match message.WhichOneof("noise"):
        case "share_sigma":
            return GaussianShares(message.share_sigma)
        case "laplace":
            if message.laplace.shares != honest_parties:
                raise WireError(Code.QUERY_INVALID, "The number of Laplace shares must equal honest_parties.")
            return LaplaceShares(rational_from_proto(message.laplace.scale), message.laplace.shares)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's noise.")


def _read_gradient(message: query_pb2.GradientQuery, d: int) -> GradientQuery:
    losses = {value: name for name, value in _LOSSES.items()}
    if message.loss not in losses:
        raise WireError(Code.QUERY_INVALID, "This version does not know the query's loss.")
    kind = GradientQuery(
        losses[message.loss],
        tuple(message.theta),
        rational_from_proto(message.clip),
        message.share_sigma,
        _read_basis(list(message.basis), d),
    )
    kind.length(d)
    return kind


def _read_basis(entries: list[int], d: int) -> Basis | None:
    if not entries:
        return None
    if len(entries) != d * d:
        raise WireError(Code.QUERY_INVALID, f"A basis must have {d * d} entries for records of {d} coordinates.")
    return Basis(tuple(tuple(entries[start : start + d]) for start in range(0, d * d, d)))


def _write_design(design: Design, message: query_pb2.RadosQuery) -> None:
    match design:
        case PlainDesign():
            message.plain.SetInParent()
        case DpFeatDesign():
            _require_local(design.split)
            message.dp_feat.sensitive_feature = design.names[0]
            message.dp_feat.further_features.extend(design.names[1:])
            message.dp_feat.rounded_features.extend(f.name for f in design.sensitive if f.rounded)
            if design.epsilon_per_rado is not None:
                message.dp_feat.epsilon_per_rado.CopyFrom(rational_to_proto(design.epsilon_per_rado))
            message.dp_feat.split = query_pb2.SPLIT_LOCAL
        case JointDesign():
            message.joint.sensitive_column = design.column
            message.joint.share_sigma = design.share_sigma
        case FixedSupportDesign():
            _require_local(design.split)
            message.fixed_support.fraction.CopyFrom(rational_to_proto(design.fraction))
            message.fixed_support.norm_bound.CopyFrom(rational_to_proto(design.clip.norm_bound))
            message.fixed_support.edge_sigma = design.edge_sigma
            message.fixed_support.split = query_pb2.SPLIT_LOCAL
        case GaussianDesign():
            message.gaussian.norm_bound.CopyFrom(rational_to_proto(design.clip.norm_bound))
            message.gaussian.share_sigma = design.share_sigma
            if design.fraction is not None:
                message.gaussian.fraction.CopyFrom(rational_to_proto(design.fraction))


def _read_design(message: query_pb2.RadosQuery, schema: Schema) -> Design:
    match message.WhichOneof("design"):
        case "plain":
            return plain_design(schema)
        case "dp_feat":
            return _read_dp_feat(message.dp_feat, schema)
        case "joint":
            return joint_design(schema, message.joint.sensitive_column, message.joint.share_sigma)
        case "fixed_support":
            fixed = message.fixed_support
            _check_split(fixed.split)
            clip = Clip(rational_from_proto(fixed.norm_bound), schema.bias)
            return FixedSupportDesign(rational_from_proto(fixed.fraction), clip, fixed.edge_sigma)
        case "gaussian":
            gaussian = message.gaussian
            fraction = rational_from_proto(gaussian.fraction) if gaussian.HasField("fraction") else None
            clip = Clip(rational_from_proto(gaussian.norm_bound), schema.bias)
            return GaussianDesign(clip, gaussian.share_sigma, fraction)
        case _:
            raise WireError(Code.QUERY_INVALID, "This version does not know the query's design.")


def _read_dp_feat(message: query_pb2.DpFeatDesign, schema: Schema) -> DpFeatDesign:
    _check_split(message.split)
    names = (message.sensitive_feature, *message.further_features)
    design = dp_feat_design(
        schema,
        names,
        rational_from_proto(message.epsilon_per_rado) if message.HasField("epsilon_per_rado") else None,
        rounded=message.rounded_features,
    )
    # A design has exactly one form on the wire.
    _check_order(names, design.names)
    _check_order(message.rounded_features, tuple(f.name for f in design.sensitive if f.rounded))
    return design


def _check_order(given: Sequence[str], canonical: tuple[str, ...]) -> None:
    if tuple(given) != canonical:
        raise WireError(Code.QUERY_INVALID, "Sensitive features must be in the order of their coordinates, each once.")


def _check_split(split: "query_pb2.Split.ValueType") -> None:
    if split != query_pb2.SPLIT_LOCAL:
        raise WireError(Code.QUERY_INVALID, "Only split = local is supported.")


def _require_local(split: str) -> None:
    if split != "local":
        raise ConfigurationError(f"split is {split!r}, which only a simulation supports: use split = local in a query")
