"""The report in the fields of the registry of deployments (radobase.presentation.registry), as far as a party knows."""

from typing import Any

from parties.report.gathering import Report
from parties.report.sentences import RECORD, assumptions, not_protected
from radobase.presentation import registry as shared
from radobase.presentation.registry import parameters
from radobase.printing import amount


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
                "data_product_type": shared.PRODUCT,
                "data_product_region": None,
                "data_product_sector": None,
                "description": (
                    f"{amount(report.count, 'query')} {'was' if report.count == 1 else 'were'} shown to {report.party} "
                    f"in the period, {amount(report.charged, 'attempt')} "
                    f"{'was' if report.charged == 1 else 'were'} charged"
                ),
                "publication_date": None,
            },
            "dp_flavor": {
                "name": "Approximate DP, enforced by filters over (epsilon, delta) and over Renyi divergences",
                "input_metric": shared.NEIGHBOURS,
                "bound_on_input_distance": 1,
                "output_measure": "Approximate max divergence",
                "bound_on_output_distance": parameters(record.limit_epsilon, record.limit_delta),
                "data_domain": shared.DOMAIN,
                "unprotected_quantities": [sentence.text for sentence in not_protected(report)],
            },
            "privacy_loss": {
                "privacy_unit": "Record-level",
                "privacy_unit_description": f"The unit is {RECORD}. A person with several rows is not covered as one.",
                "privacy_parameters": parameters(record.limit_epsilon, record.limit_delta),
                "privacy_parameters_description": (
                    "The limit for whole records over the lifetime of the data and all learners. What is spent is a "
                    "bound only if the costs were not chosen by the answers."
                ),
                "scopes": [
                    {
                        "scope": budget.scope,
                        "limit": parameters(budget.limit_epsilon, budget.limit_delta),
                        "spent_epsilon": budget.spent,
                        "remaining_epsilon": budget.remaining,
                        "remaining_pure_epsilon": budget.remaining_pure,
                        "remaining_gaussian_epsilon": budget.remaining_gaussian,
                        "releases_without_a_bound": budget.unbounded,
                    }
                    for budget in report.budgets
                ],
            },
            "model": {
                "model_name": shared.MODEL,
                "model_name_description": shared.MODEL_WORDS,
                "actors": [
                    {
                        "name": member.name,
                        "role": member.role,
                        "trust": shared.TRUST[member.role],
                        "policy_of_this_party": member.trust,
                        "fingerprint": member.fingerprint or None,
                        "left_after_roster": member.left_after,
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
                    "The party reads its table at start, and when its people tell it to. One ledger counts one data "
                    f"source, under the name {report.data_source}, also if its rows change."
                ),
                "access_type": "Interactive",
                "access_type_description": "Learners may choose each query after the answers to earlier ones.",
            },
            "accounting": {
                "composition": (
                    "Basic composition and Renyi divergences with adaptively chosen parameters, each as a filter: "
                    "Rogers and others 2016; Feldman and Zrnic 2021; Whitehouse and others 2023."
                ),
                "post_processing": shared.POST_PROCESSING,
                "budget_refresh": refresh,
                "attempts_charged_in_the_period": report.charged,
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": shared.TUNING,
                "mechanisms": shared.MECHANISMS,
                "justification": None,
                "software": f"radofed {report.version}",
                "assumptions": [sentence.text for sentence in assumptions(report)],
            },
            "resources": shared.RESOURCES,
        },
    }
