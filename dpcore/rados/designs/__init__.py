"""Designs: which signatures a party may draw, over which edges, and with what noise; one file for each."""

from dpcore.rados.designs.base import PlainDesign, RadoDesign, Split, check_fraction, plain_design
from dpcore.rados.designs.dp_feat import (
    DpFeatDesign,
    JointDesign,
    SensitiveFeature,
    dp_feat_design,
    joint_design,
    squared_range,
)
from dpcore.rados.designs.fixed_support import FixedSupportDesign
from dpcore.rados.designs.gaussian import GaussianDesign, RareInclusionError

Design = PlainDesign | DpFeatDesign | JointDesign | FixedSupportDesign | GaussianDesign

__all__ = [
    "Design",
    "DpFeatDesign",
    "FixedSupportDesign",
    "GaussianDesign",
    "JointDesign",
    "PlainDesign",
    "RadoDesign",
    "RareInclusionError",
    "SensitiveFeature",
    "Split",
    "check_fraction",
    "dp_feat_design",
    "joint_design",
    "plain_design",
    "squared_range",
]
