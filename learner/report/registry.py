"""The report in the fields of the registry of deployments (radobase.presentation.registry), as a learner knows them."""

from typing import Any

from dpcore.numbers.decimals import rounded_up
from learner.report.gathering import Report
from learner.report.sentences import assumptions, not_protected
from radobase.presentation import registry as shared
from radobase.presentation.registry import parameters
from radobase.printing import amount

_OUTPUT_MEASURE = {True: "Max divergence", False: "Approximate max divergence"}


def registry_entry(report: Report) -> dict[str, Any]:
    """The fields of a registry entry, in JSON types."""
    statement, model = report.statement, report.model
    bound = parameters(statement.epsilon_if_others_collude, statement.delta)
    count = len(report.answers)
    return {
        "tier": 3,
        "status": "Draft",
        "deployment": {
            "product": {
                "name": report.subject_file,
                "data_curators": [member.name for member in report.parties],
                "intended_use": None,
                "data_product_type": "A linear model" if model is not None else "Statistics",
                "data_product_region": None,
                "data_product_sector": None,
                "description": (f"Trained with {model.learner}" if model is not None else "One release")
                + (f" on {count} answers" if count > 1 else ""),
                "publication_date": None,
            },
            "dp_flavor": {
                "name": "None"
                if statement.epsilon is None
                else "Pure DP"
                if statement.delta == 0
                else "Approximate DP",
                "input_metric": shared.NEIGHBOURS,
                "bound_on_input_distance": 1,
                "output_measure": None if statement.epsilon is None else _OUTPUT_MEASURE[statement.delta == 0],
                "bound_on_output_distance": bound,
                "data_domain": shared.DOMAIN,
                "unprotected_quantities": [*(sentence.text for sentence in not_protected(report)), *statement.warnings],
            },
            "privacy_loss": {
                "privacy_unit": "Record-level" if statement.scope == "record" else "Attribute-level",
                "privacy_unit_description": (
                    f"The unit is {statement.unit}. A person with several rows is not covered as one."
                ),
                "privacy_parameters": bound,
                "privacy_parameters_description": (
                    "Nothing is bounded."
                    if statement.epsilon is None
                    else "If as many members collude as the queries assume. Against the learner alone epsilon is "
                    f"{rounded_up(statement.epsilon)}. Other answers about the same rows are not counted."
                ),
                "scope": statement.scope,
                "epsilon_against_the_learner_alone": statement.epsilon,
            },
            "model": {
                "model_name": shared.MODEL,
                "model_name_description": shared.MODEL_WORDS,
                "actors": [
                    {
                        "name": member.name,
                        "role": member.role,
                        "trust": shared.TRUST[member.role],
                        "answers": member.answered,
                        "fingerprint": member.fingerprint or None,
                        "left_after_roster": member.left_after,
                    }
                    for member in report.members
                ],
                "collusion": _collusion(report),
                "analysts_collusion": (
                    "Not covered here: the figures are those of these answers. Each party's ledger limits all learners "
                    "together."
                ),
                "release_type": "Single release" if count == 1 else "Many releases",
                "release_type_description": (
                    "The answers are not known here."
                    if not count
                    else f"{amount(count, 'opened total')} of whole cohorts."
                ),
                "data_source_type": "Static",
                "data_source_type_description": "Each party reads its table at start, and when its people tell it to.",
                "access_type": "Interactive",
                "access_type_description": "Learners may choose each query after the answers to earlier ones.",
            },
            "accounting": {
                "composition": (
                    "One release: nothing is composed."
                    if count == 1
                    else "Gaussian mechanisms composed exactly, adaptively chosen queries with noise that was fixed "
                    "beforehand: Dong, Roth and Su 2022, Corollary 2."
                ),
                "post_processing": shared.POST_PROCESSING,
                "budget_refresh": "None that the learner knows of: each party's policy sets its limits.",
                "attempts_that_may_have_a_total": sum(answer.attempts for answer in report.answers),
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": shared.TUNING,
                "mechanisms": shared.MECHANISMS,
                "justification": None,
                "software": f"radofed {report.version}",
                "assumptions": [*statement.assumptions, *(sentence.text for sentence in assumptions(report))],
            },
            "resources": shared.RESOURCES,
        },
    }


def _collusion(report: Report) -> str:
    if not report.honest_parties:
        return "As the privacy statement says."
    least, most = report.honest_parties[0], report.honest_parties[-1]
    number = str(least) if least == most else f"{least} to {most}"
    return f"Assumed: at least {number} of the parties keep their noise to themselves. All others may collude."
