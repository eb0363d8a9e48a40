"""Entries for the registry of differential privacy deployments, as a party or a learner knows their fields.

Names and nesting are those of the highest tier of the registry that OpenDP keeps (opendp/deployments-registry-data,
deployments/*.yaml, 2025), after Dwork, Kohli and Mulligan, "Differential privacy in practice: expose your epsilons!"
(Journal of Privacy and Confidentiality 9, 2019).

None: only the organisation can say. Where trust is distributed the registry has one text for all actors; here each
actor has an entry.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from radobase.presentation.words import Sentence

TRUST: Mapping[str, str] = {
    "party": "Holds its own rows and adds its share of the noise. Trusted with its own rows only.",
    "coordinator": (
        "Adds ciphertexts. Not trusted with data: it sees who takes part, when and with how many rows, and what is "
        "asked."
    ),
    "learner": "Opens totals over whole cohorts. Not trusted with a row or with one party's sum.",
}
"""What each role is trusted with, by the role's name in the roster."""

_MECHANISMS = (
    "Discrete Gaussian noise, sampled exactly in shares by each party, and discrete Laplace noise from differences of "
    "Polya variables; for dp-feat the random choice of rows itself. Sums and noise are integers, and sensitivities are "
    "proved for the integers that are sent, so that no floating point weakens the noise. The operating system's "
    "randomness is used. The time that sampling takes is not constant, and no figure counts it."
)
_DEPLOYMENT: Mapping[str, Mapping[str, Any]] = {
    "product": {
        "name": None,
        "data_curators": None,
        "intended_use": None,
        "data_product_type": "Statistics and linear models over the rows of several organisations",
        "data_product_region": None,
        "data_product_sector": None,
        "description": None,
        "publication_date": None,
    },
    "dp_flavor": {
        "name": None,
        "input_metric": "Change of one record, the number of records being fixed",
        "bound_on_input_distance": 1,
        "output_measure": "Approximate max divergence",
        "bound_on_output_distance": None,
        "data_domain": "Tables of the federation's schema, with its bounds and categories",
        "unprotected_quantities": None,
    },
    "privacy_loss": {
        "privacy_unit": "Record-level",
        "privacy_unit_description": None,
        "privacy_parameters": None,
        "privacy_parameters_description": None,
    },
    "model": {
        "model_name": "Distributed",
        "model_name_description": (
            "Each party adds noise to masked, encrypted sums: no trusted curator. Trust is stated per actor."
        ),
        "actors": None,
        "collusion": None,
        "analysts_collusion": None,
        "release_type": "Many releases",
        "release_type_description": None,
        "data_source_type": "Static",
        "data_source_type_description": "Each party reads its table at start, and when its people tell it to.",
        "access_type": "Interactive",
        "access_type_description": "Learners may choose each query after the answers to earlier ones.",
    },
    "accounting": {
        "composition": None,
        "post_processing": "Models are computed from the released totals and cost nothing further.",
        "budget_refresh": None,
    },
    "implementation": {
        "pre_processing_eda_hyperparameter_tuning": (
            "The schema's bounds and categories are fixed before the first query and public to the federation. If they "
            "were drafted from the rows, that is not counted. Tuning by queries is charged like every other query."
        ),
        "mechanisms": _MECHANISMS,
        "justification": None,
        "software": None,
        "assumptions": None,
    },
    "resources": {"sources": ["docs/threat-model.md"], "registry_authors": None},
}
"""The fields, with what is the same in every entry."""


def entry(**own: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in JSON types, with a role's own fields by group; they stand for the shared ones of their names."""
    deployment = {group: {**fields, **own.get(group, {})} for group, fields in _DEPLOYMENT.items()}
    return {"tier": 3, "status": "Draft", "deployment": deployment}


def parameters(epsilon: float | None, delta: float | None) -> dict[str, float | None]:
    """Privacy parameters by name; None if nothing is bounded."""
    return {"epsilon": epsilon, "delta": delta}


def unit(words: str) -> str:
    """The unit of privacy, and what it leaves out."""
    return f"The unit is {words}. A person with several rows is not covered as one."


def texts(sentences: Iterable[Sentence]) -> list[str]:
    """The sentences without their sources."""
    return [sentence.text for sentence in sentences]
