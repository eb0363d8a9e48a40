"""The report in the fields of the registry of differential privacy deployments, as far as a party knows them.

Names and nesting are those of the highest tier of the registry that OpenDP keeps (opendp/deployments-registry-data,
deployments/*.yaml, 2025), after Dwork, Kohli and Mulligan, "Differential privacy in practice: expose your epsilons!"
(Journal of Privacy and Confidentiality 9, 2019). None: only the organisation can say. Where trust is distributed the
registry has one text for all actors; here each actor has an entry.
"""

from typing import Any

from parties.report.gathering import Report
from parties.report.sentences import RECORD, assumptions, not_protected
from wire.roster import Role

_TRUST = {
    Role.PARTY.value: "Holds its own rows and adds its share of the noise. Trusted with its own rows only.",
    Role.COORDINATOR.value: (
        "Adds ciphertexts. Not trusted with data: it sees who takes part, when and with how many rows, and what is "
        "asked."
    ),
    Role.LEARNER.value: "Opens totals over whole cohorts. Not trusted with a row or with one party's sum.",
}
_MECHANISMS = (
    "Discrete Gaussian noise, sampled exactly in shares by each party, and discrete Laplace noise from differences of "
    "Polya variables; for dp-feat the random choice of rows itself. Sums and noise are integers, and sensitivities are "
    "proved for the integers that are sent, so that no floating point weakens the noise. The operating system's "
    "randomness is used. The time that sampling takes is not constant, and no figure counts it."
)


def registry_entry(report: Report) -> dict[str, Any]:
    """The fields of a registry entry, in JSON types."""
    policy, record = report.policy, report.record
    limits = policy.limits
    refresh = (
        "None: the limits hold over the lifetime of the data."
        if limits.per_day is None
        else "None: the limits hold over the lifetime of the data. A further limit holds for any 24 hours."
    )
    return {
        "tier": 3,
        "status": "Draft",
        "deployment": {
            "product": {
                "name": f"{report.federation}, data of {report.party}",
                "data_curators": [member.name for member in report.parties] or [report.party],
                "intended_use": None,
                "data_product_type": "Statistics and linear models over the rows of several organisations",
                "data_product_region": None,
                "data_product_sector": None,
                "description": (
                    f"{report.count} queries were shown to {report.party} in the period, {report.charged} attempts "
                    "were charged"
                ),
                "publication_date": None,
            },
            "dp_flavor": {
                "name": "Approximate DP, enforced by filters over (epsilon, delta) and over zero-concentrated DP",
                "input_metric": "Change of one record, the number of records being fixed",
                "bound_on_input_distance": 1,
                "output_measure": "Approximate max divergence",
                "bound_on_output_distance": _parameters(record.limit_epsilon, record.limit_delta),
                "data_domain": "Tables of the federation's schema, with its bounds and categories",
                "unprotected_quantities": [sentence.text for sentence in not_protected(report)],
            },
            "privacy_loss": {
                "privacy_unit": "Record-level",
                "privacy_unit_description": f"The unit is {RECORD}. A person with several rows is not covered as one.",
                "privacy_parameters": _parameters(record.limit_epsilon, record.limit_delta),
                "privacy_parameters_description": (
                    "The limit for whole records over the lifetime of the data and all learners. What is spent is a "
                    "bound only if the costs were not chosen by the answers."
                ),
                "scopes": [
                    {
                        "scope": budget.scope,
                        "limit": _parameters(budget.limit_epsilon, budget.limit_delta),
                        "spent_epsilon": budget.spent,
                        "remaining_epsilon": budget.remaining,
                        "releases_without_a_bound": budget.unbounded,
                    }
                    for budget in report.budgets
                ],
            },
            "model": {
                "model_name": "Distributed",
                "model_name_description": (
                    "Each party adds noise to masked, encrypted sums: no trusted curator. Trust is stated per actor."
                ),
                "actors": [
                    {
                        "name": member.name,
                        "role": member.role,
                        "trust": _TRUST[member.role],
                        "policy_of_this_party": member.trust,
                        "fingerprint": member.fingerprint or None,
                    }
                    for member in report.members
                ],
                "collusion": (
                    f"Assumed: up to {policy.assumed_colluders} of the parties that this party accepted work with "
                    "coordinator and learner."
                ),
                "analysts_collusion": (
                    "Covered: the limits hold for all learners together. Several learners that are one person get "
                    "several times a limit for each learner, and never more than the lifetime's."
                ),
                "release_type": "Many releases",
                "release_type_description": "Each charged attempt at a query counts as a release.",
                "data_source_type": "Static",
                "data_source_type_description": (
                    "The party reads its table at start. One ledger counts one data source, under the name "
                    f"{report.data_source}."
                ),
                "access_type": "Interactive",
                "access_type_description": "Learners may choose each query after the answers to earlier ones.",
            },
            "accounting": {
                "composition": (
                    "Basic composition and zero-concentrated DP with adaptively chosen parameters, each as a filter: "
                    "Rogers and others 2016; Feldman and Zrnic 2021; Whitehouse and others 2023."
                ),
                "post_processing": "Models are computed from the released totals and cost nothing further.",
                "budget_refresh": refresh,
                "attempts_charged_in_the_period": report.charged,
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": (
                    "The schema's bounds and categories are fixed before the first query and public to the federation. "
                    "If they were drafted from the rows, that is not counted. Tuning by queries is charged like every "
                    "other query."
                ),
                "mechanisms": _MECHANISMS,
                "justification": None,
                "software": f"radofed {report.version}",
                "assumptions": [sentence.text for sentence in assumptions(report)],
            },
            "resources": {"sources": ["docs/threat-model.md"], "registry_authors": None},
        },
    }


def _parameters(epsilon: float, delta: float) -> dict[str, float]:
    return {"epsilon": epsilon, "delta": delta}
