"""What a learner's pages say in words: about protection, with the place in docs/threat-model.md, and about shapes."""

from typing import Any

from dpcore.accounting.protection import WHOLE
from dpcore.numbers.rationals import rounded_up
from learner.report.gathering import Report
from learner.shapes import Shapes
from radobase.presentation import words as shared
from radobase.presentation.words import Sentence, actor, entry, parameters, texts, unit
from radobase.printing import amount

_UNITS = {"record": "Record-level", "person": "User-level"}
NO_BANDS = (
    "Bands are not known for this model: its file has no covariance of the weights. So nothing here says how much of a "
    "shape is noise."
)
BESIDE_AVERAGE = (
    "What a column adds to the score of a class is beside the average of all classes: the same number added to all "
    "scores would change no prediction."
)
MODEL = (
    "It is about the model of that loss, which clips the weights of records, over rows as the schema encodes them: "
    "numbers beyond the bounds of the schema count as the bounds. It is not about a logistic regression of the raw "
    "columns, whose weights are usually smaller."
)
NOT_MEASURABLE = (
    'Where it says "not measurable", the answers leave at least half of the deviation that a weight has before any '
    "answer, five units of the score. Then the value says nothing about the column, and a band or an interval would "
    "promise too much. Examples are a category of few rows, a column that others nearly determine, and tables in which "
    "the columns decide nearly every label. More rows, a larger epsilon or coarser categories would help."
)
COVERAGE = (
    "On four public tables with categories, at epsilon 1, 96 to 100 of 100 did for newton, and on three of them 99 to "
    "100 for additive."
)
COVERAGE_OF_REGRESSIONS = "On public tables, at epsilon 1, 95 to 100 of 100 did (docs/how-to/coefficients.md)."
BANDS = (
    (
        "A band is the value plus and minus 1.96 standard deviations. They are computed from the covariance of the "
        "weights that the estimator keeps in the model's file: given all answers, for their noise, for the choice of "
        "the rows, for what is left to go after the last round, and for weights that were shrunk or left out."
    ),
    (
        "A band holds for one value, or one cell, at a time. It is made to contain, 95 times of 100 on average over "
        f"columns and values, what the same loss would add if it was fitted to very many rows without noise. {COVERAGE}"
    ),
    MODEL,
    NOT_MEASURABLE,
    (
        "Levels of a category that are not measurable are left out of the average of 0, so that their noise moves no "
        "other level. If the score was held to rise or fall with a column, its band is right only as far as the truth "
        "does. A band does not say that a whole curve is within. All cells of a pair are within their bands or none, "
        "as a pair has one weight."
    ),
    (
        "The knots, point masses and pairs were chosen anew in every run of that measurement, so what their choice "
        "does to the curve is covered. Bands do not cover: how far what the chosen functions can say is from what "
        "other knots, point masses and pairs could say; that the true shape may bend between knots; parties that send "
        "wrong sums."
    ),
)
OF_UNITS = (
    "It is about a regression without clipping: least squares, a Poisson regression or proportional hazards, by the "
    "functions of the model. Bands are widened for what clipping of large residuals may move. Numbers beyond the "
    "bounds of the schema count as the bounds."
)
NOT_MEASURABLE_IN_UNITS = (
    'Where it says "not measurable", the band or interval would be wider to either side than 1 in logarithms, or than '
    "half of the label's range, or the answers leave at least half of the deviation that a weight has before any "
    "answer. Then the value says nothing about the column. Examples are values that few rows have, and columns that "
    "others nearly determine. More rows, a larger epsilon or fewer columns would help."
)
COVERAGE_IN_UNITS = (
    "On four public tables, at epsilon 1, 95 to 100 of 100 did that were measurable, 59 to 99 % of all values."
)
BANDS_IN_UNITS = (
    BANDS[0],
    (
        "A band holds for one value, or one cell, at a time. It is made to contain, 95 times of 100 on average over "
        "columns and values, what the same functions would add if they were fitted to very many rows without noise. "
        f"{COVERAGE_IN_UNITS} The model is shrunk, and the band is not of a shrunken fit: it counts how far shrinking "
        "moved the shape."
    ),
    OF_UNITS,
    NOT_MEASURABLE_IN_UNITS,
    *BANDS[4:],
)
SIZES = (
    "The size of a shape is the standard deviation of what it adds, from one value to another. A pair counts apart "
    "from its two columns: its shape is what the pair adds beside them."
)
_STATED = (
    "No row was looked at for it. Values of a number are taken to spread as the model's own terms state: shares of its "
    "point masses, and means of its functions, which come from answers with noise. Where the model states none, they "
    "are taken to be uniform within the bounds of the schema."
)
_UNIFORM = "No row was looked at for it. Values of a number are taken to be uniform within the bounds of the schema."
_OTHERS = (
    "The listed values of a category that are measurable, and the two values of a flag, count equally, and columns as "
    "independent. Real "
    "rows differ, so their average would move shapes up or down and may change the order. It changes no score. Any "
    "other value of a category may be in no row: then what it adds is noise."
)


def assumptions(report: Report) -> list[Sentence]:
    """What the figures take for granted, beside what the statement says itself."""
    return [
        *([shared.NOISE_KEPT] if report.statement.scope in (*WHOLE, "joint") else []),
        shared.GOOD_COMPUTERS,
        shared.CRYPTOGRAPHY,
    ]


def not_protected(report: Report) -> list[Sentence]:
    """What no figure of the report covers."""
    what = "this model" if report.model is not None else "this release"
    return [
        Sentence(
            f"What other answers say about the same rows: the figures are those of {what} alone. Each party's ledger "
            "counts all answers.",
            "P5",
        ),
        *([] if report.statement.scope == "person" else [shared.SEVERAL_ROWS]),
        shared.GROUPS,
        Sentence(
            "Who took part, when, with how many rows, and what was asked: the parties and the coordinator know it, and "
            "this page repeats it.",
            "4.6",
        ),
        shared.WRONG_RESULTS,
    ]


def sign_off(report: Report) -> tuple[str, ...]:
    """What people sign for."""
    what = "model" if report.model is not None else "release"
    return (
        "Purpose and justification stated by",
        f"Use of the {what} approved by",
        "Residual risk accepted by",
        "Advice of the data protection officer given by",
        "Kept under review by",
    )


def spread(shapes: Shapes) -> str:
    """What shapes are centred and ranked under."""
    return f"{_STATED if shapes.is_stated else _UNIFORM} {_OTHERS}"


def bands(shapes: Shapes) -> tuple[str, ...]:
    """What bands are, or that there are none."""
    if not shapes.has_bands:
        return (NO_BANDS,)
    return BANDS if shapes.units is None else BANDS_IN_UNITS


def about_shapes(shapes: Shapes) -> list[str]:
    """What a page says beside shapes."""
    return [SIZES, spread(shapes), *bands(shapes)]


# The report in the fields of the registry of deployments, as a learner knows them.


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
            "description": (f"Trained with {model.estimator}" if model is not None else "One release")
            + (f" on {count} answers" if count > 1 else ""),
            "studies": [study.to_dict() for study, _ in report.studies],
        },
        dp_flavor={
            "name": "None" if nothing else "Pure DP" if is_pure else "Approximate DP",
            "output_measure": None if nothing else "Max divergence" if is_pure else "Approximate max divergence",
            "bound_on_output_distance": bound,
            "unprotected_quantities": [*texts(not_protected(report)), *statement.warnings],
        },
        privacy_loss={
            "privacy_unit": _UNITS.get(statement.scope, "Attribute-level"),
            "privacy_unit_description": unit(statement.unit),
            "privacy_parameters": bound,
            "privacy_parameters_description": (
                "Nothing is bounded."
                if statement.epsilon is None
                else "If as many members collude as the queries assume. Against the learner alone epsilon is at most "
                f"{rounded_up(statement.epsilon)}. Other answers about the same rows are not counted."
            ),
            "scope": statement.scope,
            "epsilon_against_the_learner_alone": statement.epsilon,
        },
        model={
            "actors": [actor(member, answers=member.answered) for member in report.members],
            "collusion": _collusion(report),
            "analysts_collusion": (
                "Not covered here: the figures are those of these answers. Each party's ledger limits the "
                "composition of all learners' queries."
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
