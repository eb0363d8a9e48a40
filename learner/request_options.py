"""Requests from what people give: options of `rado learner query`, and fields of the console, by the same names."""

from collections.abc import Mapping
from typing import Any

from dpcore.records.schema import Schema
from learner.design_options import given_purpose
from learner.requests import MomentsRequest, RadosRequest, release_request
from radobase.files.feature_maps import load_feature_map
from radobase.files.schemas import load_schema
from radobase.options import exact_or_none, training_part

_SAME = (
    "rados",
    "joint",
    "fraction_bits",
    "max_rows",
    "max_parties",
    "cohort_min",
    "colluders",
    "attempts",
    "answer_within_s",
    "prepare_within_s",
    "upload_within_s",
    "expires_after_s",
)
_FIGURES = ("epsilon", "epsilon_per_rado", "norm_bound", "support", "edge_weight", "delta")


def request_of(given: Mapping[str, Any]) -> RadosRequest | MomentsRequest:
    """The request of a release. given: the parameters of `rado learner query`, as parsed.

    Its schema is a file's path, or a schema. Raises ConfigurationError or SchemaError.
    """
    schema = given["schema"] if isinstance(given["schema"], Schema) else load_schema(given["schema"])
    options: dict[str, Any] = {
        **{name: given[name] for name in _SAME},
        **{name: exact_or_none(given[name], name.replace("_", "-")) for name in _FIGURES},
        "sensitive": tuple(given["sensitive"] or ()),
        "rounded": tuple(given["rounded"] or ()),
        "quorum_wait_s": given["quorum_wait"],
        "purpose": given_purpose(given["purpose"]),
        "held_back": training_part(given["hold_back"]),
        "feature_map": None if given["map_file"] is None else load_feature_map(given["map_file"], schema),
    }
    return release_request(schema, given["design"], options)
