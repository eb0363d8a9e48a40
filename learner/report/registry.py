"""The report in the fields of the registry of deployments, as a learner knows them."""

from typing import Any

from dpcore.numbers.rationals import rounded_up
from learner.report.gathering import Report
from learner.report.sentences import assumptions, not_protected
from radobase.presentation.registry import TRUST, entry, parameters, texts, unit
from radobase.printing import amount


def registry_entry(report: Report) -> dict[str, Any]:
    """The fields of a registry entry, in JSON types."""
    statement, model = report.statement, report.model
    bound = parameters(statement.epsilon_if_others_collude, statement.delta)
    count, is_pure = len(report.answers), statement.delta == 0
    nothing = statement.epsilon is None
    return entry(
        product={
            "name": report.subject_file,
            "data_curators": [member.name for member in report.parties],
            "data_product_type": "A linear model" if model is not None else "Statistics",
            "description": (f"Trained with {model.learner}" if model is not None else "One release")
            + (f" on {count} answers" if count > 1 else ""),
        },
        dp_flavor={
            "name": "None" if nothing else "Pure DP" if is_pure else "Approximate DP",
            "output_measure": None if nothing else "Max divergence" if is_pure else "Approximate max divergence",
            "bound_on_output_distance": bound,
            "unprotected_quantities": [*texts(not_protected(report)), *statement.warnings],
        },
        privacy_loss={
            "privacy_unit": "Record-level" if statement.scope == "record" else "Attribute-level",
            "privacy_unit_description": unit(statement.unit),
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
        model={
            "actors": [
                {
                    "name": member.name,
                    "role": member.role,
                    "trust": TRUST[member.role],
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
                f"{amount(count, 'opened total')} of whole cohorts." if count else "The answers are not known here."
            ),
        },
        accounting={
            "composition": (
                "One release: nothing is composed."
                if count == 1
                else "Gaussian mechanisms composed exactly, adaptively chosen queries with noise that was fixed "
                "beforehand: Dong, Roth and Su 2022, Corollary 2."
            ),
            "budget_refresh": "None that the learner knows of: each party's policy sets its limits.",
            "attempts_that_may_have_a_total": sum(answer.attempts for answer in report.answers),
        },
        implementation={
            "software": f"radofed {report.version}",
            "assumptions": [*statement.assumptions, *texts(assumptions(report))],
        },
    )


def _collusion(report: Report) -> str:
    if not report.honest_parties:
        return "As the privacy statement says."
    least, most = report.honest_parties[0], report.honest_parties[-1]
    number = str(least) if least == most else f"{least} to {most}"
    return f"Assumed: at least {number} of the parties keep their noise to themselves. All others may collude."
