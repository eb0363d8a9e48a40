"""The policies of a schema that refuse a record, and with it every query."""

from dpcore.records.schema import Schema

_POLICIES = ("missing", "out_of_bounds", "unreadable", "unknown")

ADVICE = (
    "A record with such a cell keeps the party from starting, and others see that it is absent: the privacy figures "
    "hold for replacements by records that the schema takes. Agree on clip, impute, zero or zero-vector instead."
)


def refusing_fields(schema: Schema) -> tuple[str, ...]:
    """The fields of a schema whose policy is "refuse", such as "features.age.missing"."""
    parts = [("label", schema.label), *((f"features.{feature.name}", feature) for feature in schema.features)]
    return tuple(
        f"{path}.{policy}" for path, part in parts for policy in _POLICIES if getattr(part, policy, None) == "refuse"
    )


def advice(schema: Schema) -> str:
    """A warning that names the refusing policies; empty if there is none."""
    fields = refusing_fields(schema)
    if not fields:
        return ""
    shown = ", ".join(fields[:4]) + (f" and {len(fields) - 4} more" if len(fields) > 4 else "")
    return f'{shown} = "refuse". {ADVICE}'
