"""Designs for a schema: the coordinates a design protects, and errors if the schema does not allow it."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dpcore.errors import PlanError
from dpcore.rados.designs import DpFeatDesign, JointDesign, PlainDesign, SensitiveFeature, Split
from dpcore.records.schema import Schema

_MOST_NAMED = 12


def plain_design(schema: Schema) -> PlainDesign:
    """Plain rados over this schema's coordinates.

    A boolean counts as protected only if no other coordinate derives from the same column.
    """
    alone = (name for name in schema.boolean_coordinates if len(schema.derived_from(str(schema.sources(name)))) == 1)
    return PlainDesign(tuple(schema.coordinate(name) for name in alone))


def dp_feat_design(
    schema: Schema,
    sensitive: Sequence[str],
    epsilon_per_rado: Fraction | None = None,
    *,
    rounded: Iterable[str] = (),
    split: Split = "local",
) -> DpFeatDesign:
    """DP-FEAT for the named features, in the order of their coordinates.

    rounded: those of them that are real-valued and are rounded to a sign. Raises SchemaError if there is no such
    coordinate, PlanError if one cannot be protected or another coordinate would reveal it.
    """
    rounding = frozenset(rounded)
    if stray := sorted(rounding - set(sensitive)):
        raise PlanError(f"{', '.join(stray)} is rounded but not named as sensitive: name it, or do not round it")
    # Build the sets once: a query may name thousands of features.
    real = frozenset(feature.name for feature in schema.numbers)
    boolean = frozenset(schema.boolean_coordinates)
    features = (_sensitive(schema, name, real, boolean, rounded=name in rounding) for name in sensitive)
    ordered = tuple(sorted(features, key=lambda feature: feature.coordinate))
    return DpFeatDesign(ordered, epsilon_per_rado, split)


def _sensitive(
    schema: Schema, name: str, real: frozenset[str], boolean: frozenset[str], *, rounded: bool
) -> SensitiveFeature:
    coordinate, column = schema.coordinate(name), schema.sources(name)
    if rounded and name not in real:
        raise PlanError(f"{name!r} is not real-valued and cannot be rounded: leave it out of the rounded features")
    if not rounded and name in real:
        raise PlanError(
            f"{name!r} is a number, which dp-feat protects only if every value is rounded to a sign: name it as "
            f"rounded too (--rounded {name}), or protect its column with joint (--joint)"
        )
    if not rounded and name not in boolean:
        known = _some(schema.boolean_coordinates) or "none; declare a boolean or threshold feature"
        raise PlanError(f"{name!r} is not coded -1/+1 and dp-feat cannot protect it: choose one of {known}")
    # The other coordinate would reveal the protected marginal (docs/threat-model-details.md, 4.4).
    if others := [other for other in schema.derived_from(str(column)) if other != name]:
        raise PlanError(f"{_some(others)} derives from {column!r} too and would reveal {name!r}: drop it")
    return SensitiveFeature(coordinate, name, rounded)


def joint_design(schema: Schema, column: str, share_sigma: int) -> JointDesign:
    """DP-FEAT with joint = true for a source column: noise on every coordinate that derives from it.

    Raises PlanError if no coordinate derives from it, or share_sigma is out of range.
    """
    names = schema.derived_from(column)
    if not names:
        columns = _some(list(dict.fromkeys(feature.column for feature in schema.features)))
        raise PlanError(f"no feature derives from a column {column!r}: choose one of {columns}")
    coordinates = tuple(schema.coordinate(name) for name in names)
    return JointDesign(column, coordinates, squared_range(schema, column), share_sigma)


def squared_range(schema: Schema, column: str) -> int:
    """The largest squared distance of two codings of a column's cell: 4 for -1 and +1, 2 for two one-hot codings."""
    return sum(feature.squared_range for feature in schema.features if feature.column == column)


def _some(names: Sequence[str]) -> str:
    """Names for an error message, at most _MOST_NAMED: a peer may choose the schema, and the message may be logged."""
    return f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}"
