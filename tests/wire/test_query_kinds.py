from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError, PlanError, RadofedError
from dpcore.predicates.expressions import AtLeast, Equals, Flag, LabelIs
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    SensitiveFeature,
    dp_feat_design,
    joint_design,
    plain_design,
)
from dpcore.records.clipping import Basis, Clip
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.errors import Code, WireError
from wire.query_kinds import kind_bytes, read_kind, write_kind

SCHEMA = Schema.from_toml("""
schema_version = 1
name = "kinds"
[label]
column = "y"
positive = ["1"]
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
[[features]]
name = "smoker"
type = "boolean"
true = ["1"]
false = ["0"]
[[features]]
name = "ward"
type = "category"
values = ["a", "b", "c"]
[[features]]
name = "tall"
type = "boolean"
true = ["1"]
false = ["0"]
""")
CLIP = Clip(Fraction(7, 3), bias=True)
KINDS = [
    RadosQuery(5, plain_design(SCHEMA)),
    RadosQuery(5, dp_feat_design(SCHEMA, ["smoker"])),
    RadosQuery(5, dp_feat_design(SCHEMA, ["tall"], Fraction(1, 3))),
    RadosQuery(5, dp_feat_design(SCHEMA, ["tall", "age", "smoker"], rounded=["age"])),
    RadosQuery(5, joint_design(SCHEMA, "ward", 700)),
    RadosQuery(5, FixedSupportDesign(Fraction(1, 4), CLIP, 0)),
    RadosQuery(5, FixedSupportDesign(Fraction(1, 4), CLIP, 3)),
    RadosQuery(5, GaussianDesign(CLIP, 1 << 40)),
    RadosQuery(5, GaussianDesign(CLIP, 9, Fraction(2, 3))),
    MomentsQuery(CLIP, 77, 1 << 48),
    StatisticQuery((AtLeast("age", Fraction(131, 2)) & LabelIs(True), ~Flag("smoker")), SCHEMA, GaussianShares(7)),
    StatisticQuery((Equals("ward", "b"),), SCHEMA, LaplaceShares(Fraction(20, 3), 2)),
    GradientQuery("logistic", (1 << 20, -3, 0, 0, 0, 5, 7), Fraction(1, 2), 99),
    GradientQuery("hinge", (0,) * 7, Fraction(3), 3),
    GradientQuery("hinge", (0,) * 7, Fraction(3), 3, Basis.of(np.diag([1.0, -0.5, 2, 1, 1, 1, 1]))),
    StatisticQuery((Equals("ward", "b"), Flag("smoker")), SCHEMA, LocalResponse(Fraction(5, 4))),
]


def written(kind) -> query_pb2.Query:
    message = query_pb2.Query(honest_parties=2)
    write_kind(kind, message)
    return query_pb2.Query.FromString(message.SerializeToString())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_kind_survives_a_round_trip(kind):
    assert read_kind(written(kind), SCHEMA) == kind


def test_kinds_have_different_messages():
    assert len({written(kind).SerializeToString() for kind in KINDS}) == len(KINDS)


def test_equal_kinds_have_equal_bytes_and_others_others():
    again = [read_kind(written(kind), SCHEMA) for kind in KINDS]
    assert [kind_bytes(kind) for kind in again] == [kind_bytes(kind) for kind in KINDS]
    assert len({kind_bytes(kind) for kind in KINDS}) == len(KINDS)
    assert query_pb2.Query.FromString(kind_bytes(KINDS[7])) == query_pb2.Query(rados=written(KINDS[7]).rados)


def test_the_schema_decides_what_is_protected():
    assert read_kind(written(KINDS[0]), SCHEMA).design.booleans == (1, 5)
    joint = read_kind(written(KINDS[4]), SCHEMA).design
    assert (joint.coordinates, joint.squared_range) == ((2, 3, 4), 2)
    rounded = read_kind(written(KINDS[3]), SCHEMA).design
    assert rounded.sensitive == (
        SensitiveFeature(0, "age", rounded=True), SensitiveFeature(1, "smoker"), SensitiveFeature(5, "tall"),
    )  # fmt: skip


def change(message, path, value):
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    if isinstance(value, list):
        message.ClearField(name)
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        (2, "rados.dp_feat.split", 0),
        (2, "rados.dp_feat.sensitive_feature", "age"),
        (2, "rados.dp_feat.sensitive_feature", "ward=a"),
        (2, "rados.dp_feat.sensitive_feature", "bias"),
        (2, "rados.dp_feat.sensitive_feature", ""),
        (2, "rados.dp_feat.further_features", ["smoker"]),
        (2, "rados.dp_feat.further_features", ["tall"]),
        (2, "rados.dp_feat.epsilon_per_rado.denominator", 0),
        (2, "rados.dp_feat.epsilon_per_rado.numerator", -1),
        (3, "rados.dp_feat.further_features", ["tall", "smoker"]),
        (3, "rados.dp_feat.rounded_features", ["smoker"]),
        (3, "rados.dp_feat.rounded_features", ["height"]),
        (3, "rados.dp_feat.rounded_features", []),
        (3, "rados.dp_feat.rounded_features", ["age", "age"]),
        (4, "rados.joint.sensitive_column", "bias"),
        (4, "rados.joint.share_sigma", 2),
        (4, "rados.joint.share_sigma", (1 << 48) + 1),
        (6, "rados.fixed_support.fraction.denominator", 1),
        (6, "rados.fixed_support.fraction.denominator", 2**63 - 1),
        (6, "rados.fixed_support.edge_sigma", 1),
        (6, "rados.fixed_support.norm_bound.numerator", 3),
        (6, "rados.fixed_support.split", 0),
        (7, "rados.gaussian.share_sigma", 0),
        (7, "rados.gaussian.norm_bound.numerator", -7),
        (8, "rados.gaussian.fraction.numerator", 3),
        (9, "moments.edge_multiplier", 0),
        (9, "moments.share_sigma", 0),
        (9, "moments.norm_bound.denominator", 0),
        (11, "statistic.laplace.shares", 3),
        (12, "gradient.loss", 0),
        (14, "gradient.basis", [1] * 48),
        (14, "gradient.basis", [entry for row in KINDS[14].basis.entries for entry in row] + [1]),
        (15, "statistic.local.epsilon.numerator", 0),
        (15, "statistic.local.epsilon.numerator", 129),
        (15, "statistic.local.epsilon.denominator", 0),
    ],
)
def test_values_out_of_range_are_refused(kind, path, value):
    message = written(KINDS[kind])
    change(message, path, value)
    if path == "rados.fixed_support.fraction.denominator" and value > 1:
        assert read_kind(message, SCHEMA).design.fraction < Fraction(1, 10**18)
        return
    with pytest.raises(RadofedError) as caught:
        read_kind(message, SCHEMA)
    if isinstance(caught.value, WireError):
        assert caught.value.code is Code.QUERY_INVALID


def test_an_unknown_kind_is_refused():
    for message in (query_pb2.Query(), query_pb2.Query(rados=query_pb2.RadosQuery(rados=3))):
        with pytest.raises(WireError) as caught:
            read_kind(message, SCHEMA)
        assert caught.value.code is Code.QUERY_INVALID


def test_designs_that_a_coordinator_would_draw_do_not_travel():
    sensitive = (SensitiveFeature(1, "smoker"),)
    for design in (
        DpFeatDesign(sensitive, Fraction(1), "exact"),
        FixedSupportDesign(Fraction(1, 2), CLIP, 3, "exact"),
    ):
        with pytest.raises(ConfigurationError, match="simulation"):
            written(RadosQuery(5, design))


def test_a_threshold_of_the_same_column_reveals_a_feature():
    text = SCHEMA.to_toml().replace(
        'name = "tall"\ntype = "boolean"', 'name = "tall"\ntype = "boolean"\ncolumn = "smoker"'
    )
    assert 'column = "smoker"' in text
    schema = Schema.from_toml(text)
    with pytest.raises(PlanError, match="would reveal 'smoker'"):
        read_kind(written(KINDS[1]), schema)
    joint = read_kind(written(RadosQuery(3, joint_design(schema, "smoker", 5))), schema)
    assert joint.design.coordinates == (1, 5)
