"""What the entries of party and learner in the registry of differential privacy deployments share.

Names and nesting are those of the highest tier of the registry that OpenDP keeps (opendp/deployments-registry-data,
deployments/*.yaml, 2025), after Dwork, Kohli and Mulligan, "Differential privacy in practice: expose your epsilons!"
(Journal of Privacy and Confidentiality 9, 2019).

None: only the organisation can say. Where trust is distributed the registry has one text for all actors; here each
actor has an entry.
"""

from collections.abc import Mapping

TRUST: Mapping[str, str] = {
    "party": "Holds its own rows and adds its share of the noise. Trusted with its own rows only.",
    "coordinator": (
        "Adds ciphertexts. Not trusted with data: it sees who takes part, when and with how many rows, and what is "
        "asked."
    ),
    "learner": "Opens totals over whole cohorts. Not trusted with a row or with one party's sum.",
}
"""What each role is trusted with, by the role's name in the roster."""

MECHANISMS = (
    "Discrete Gaussian noise, sampled exactly in shares by each party, and discrete Laplace noise from differences of "
    "Polya variables; for dp-feat the random choice of rows itself. Sums and noise are integers, and sensitivities are "
    "proved for the integers that are sent, so that no floating point weakens the noise. The operating system's "
    "randomness is used. The time that sampling takes is not constant, and no figure counts it."
)
MODEL = "Distributed"
MODEL_WORDS = "Each party adds noise to masked, encrypted sums: no trusted curator. Trust is stated per actor."
NEIGHBOURS = "Change of one record, the number of records being fixed"
DOMAIN = "Tables of the federation's schema, with its bounds and categories"
POST_PROCESSING = "Models are computed from the released totals and cost nothing further."
TUNING = (
    "The schema's bounds and categories are fixed before the first query and public to the federation. If they were "
    "drafted from the rows, that is not counted. Tuning by queries is charged like every other query."
)
PRODUCT = "Statistics and linear models over the rows of several organisations"
RESOURCES = {"sources": ["docs/threat-model.md"], "registry_authors": None}


def parameters(epsilon: float | None, delta: float | None) -> dict[str, float | None]:
    """Privacy parameters by name; None if nothing is bounded."""
    return {"epsilon": epsilon, "delta": delta}
