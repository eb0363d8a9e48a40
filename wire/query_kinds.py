"""What a query asks for, as message and as dataclass. A kind that is read has been checked against the schema."""

from collections.abc import Sequence
from fractions import Fraction

from dpcore.errors import ConfigurationError
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.clipping import Clip
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
)
from dpcore.rados.protected import dp_feat_design, joint_design, plain_design
from dpcore.schema import Schema
from rado.v1 import query_pb2
from wire.errors import Code, WireError

Kind = RadosQuery | MomentsQuery


def rational_to_proto(value: Fraction) -> query_pb2.Rational:
    """Raises ConfigurationError where it has more than 63 bits above or below the line."""
    if max(abs(value.numerator), value.denominator) >= 1 << 63:
        raise ConfigurationError(f"{float(value)} needs more than 63 bits as a fraction; give fewer digits")
    return query_pb2.Rational(numerator=value.numerator, denominator=value.denominator)


def rational_from_proto(message: query_pb2.Rational) -> Fraction:
    """Raises WireError(QUERY_INVALID) where it is not in lowest terms."""
    if message.denominator < 1:
        raise WireError(Code.QUERY_INVALID, "A rational's denominator must be positive.")
    value = Fraction(message.numerator, message.denominator)
    if value.denominator != message.denominator:
        raise WireError(Code.QUERY_INVALID, "A rational must be in lowest terms.")
    return value


def write_kind(kind: Kind, message: query_pb2.Query) -> None:
    """Set the field of `message` that stands for the kind."""
    match kind:
        case MomentsQuery():
            message.moments.norm_bound.CopyFrom(rational_to_proto(kind.clip.norm_bound))
            message.moments.edge_multiplier = kind.edge_multiplier
            message.moments.share_sigma = kind.share_sigma
        case RadosQuery():
            message.rados.rados = kind.rados
            _write_design(kind.design, message.rados)


def read_kind(message: query_pb2.Query, schema: Schema) -> Kind:
    """Raises WireError(QUERY_INVALID), or a RadofedError that says what is out of range."""
    match message.WhichOneof("kind"):
        case "moments":
            moments = message.moments
            clip = Clip(rational_from_proto(moments.norm_bound), schema.bias)
            return MomentsQuery(clip, moments.edge_multiplier, moments.share_sigma)
        case "rados":
            return RadosQuery(message.rados.rados, _read_design(message.rados, schema))
        case _:
            raise WireError(Code.QUERY_INVALID, "It asks for a kind that this version does not know.")


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
            raise WireError(Code.QUERY_INVALID, "It asks for a design that this version does not know.")


def _read_dp_feat(message: query_pb2.DpFeatDesign, schema: Schema) -> DpFeatDesign:
    _check_split(message.split)
    names = (message.sensitive_feature, *message.further_features)
    design = dp_feat_design(
        schema,
        names,
        rational_from_proto(message.epsilon_per_rado) if message.HasField("epsilon_per_rado") else None,
        rounded=message.rounded_features,
    )
    # One design has one form on the wire.
    _check_order(names, design.names)
    _check_order(message.rounded_features, tuple(f.name for f in design.sensitive if f.rounded))
    return design


def _check_order(given: Sequence[str], canonical: tuple[str, ...]) -> None:
    if tuple(given) != canonical:
        raise WireError(Code.QUERY_INVALID, "Sensitive features stand in the order of their coordinates, each once.")


def _check_split(split: "query_pb2.Split.ValueType") -> None:
    if split != query_pb2.SPLIT_LOCAL:
        raise WireError(Code.QUERY_INVALID, "Only split = local is served.")


def _require_local(split: str) -> None:
    if split != "local":
        raise ConfigurationError(f"split is {split!r}, which is for simulation: a query asks parties to draw locally")
