"""The report in the fields of the registry of deployments, as far as a party knows them."""

from typing import Any

from parties.report.gathering import Report
from parties.report.sentences import RECORD, assumptions, not_protected
from radobase.presentation.registry import TRUST, entry, parameters, texts, unit
from radobase.printing import amount


def registry_entry(report: Report) -> dict[str, Any]:
    """The fields of a registry entry, in JSON types."""
    policy, record = report.policy, report.record
    bound = parameters(record.limit_epsilon, record.limit_delta)
    daily = "" if policy.limits.per_day is None else " A further limit holds for any 24 hours."
    return entry(
        product={
            "name": f"{report.federation}, data of {report.party}",
            "data_curators": [member.name for member in report.parties] or [report.party],
            "description": (
                f"{amount(report.count, 'query')} {'was' if report.count == 1 else 'were'} shown to {report.party} "
                f"in the period, {amount(report.charged, 'attempt')} {'was' if report.charged == 1 else 'were'} charged"
            ),
        },
        dp_flavor={
            "name": "Approximate DP, enforced by filters over (epsilon, delta) and over Renyi divergences",
            "bound_on_output_distance": bound,
            "unprotected_quantities": texts(not_protected(report)),
        },
        privacy_loss={
            "privacy_unit_description": unit(RECORD),
            "privacy_parameters": bound,
            "privacy_parameters_description": (
                "The limit for whole records over the lifetime of the data and all learners. What is spent is a bound "
                "only if the costs were not chosen by the answers."
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
        model={
            "actors": [
                {
                    "name": member.name,
                    "role": member.role,
                    "trust": TRUST[member.role],
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
                "Covered: the limits hold for all learners together. Several learners that are one person get several "
                "times a limit for each learner, and never more than the lifetime's."
            ),
            "release_type_description": "Each charged attempt at a query counts as a release.",
            "data_source_type_description": (
                "The party reads its table at start, and when its people tell it to. One ledger counts one data "
                f"source, under the name {report.data_source}, also if its rows change."
            ),
        },
        accounting={
            "composition": (
                "Basic composition and Renyi divergences with adaptively chosen parameters, each as a filter: "
                "Rogers and others 2016; Feldman and Zrnic 2021; Whitehouse and others 2023."
            ),
            "budget_refresh": f"None: the limits hold over the lifetime of the data.{daily}",
            "attempts_charged_in_the_period": report.charged,
        },
        implementation={"software": f"radofed {report.version}", "assumptions": texts(assumptions(report))},
    )
