"""What a learner's pages say in words: about protection, with the place in docs/threat-model.md, and about shapes."""

from learner.report.gathering import Report
from learner.shapes.shapes import Shapes
from radobase.presentation import words as shared
from radobase.presentation.words import Sentence

NO_BANDS = (
    "Bands are not known for this model: its file has no covariance of the weights. So nothing here says how much of a "
    "shape is noise."
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
        *([shared.NOISE_KEPT] if report.statement.scope in ("record", "joint") else []),
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
        shared.SEVERAL_ROWS,
        shared.GROUPS,
        Sentence(
            "Who took part, when, with how many rows, and what was asked: the parties and the coordinator know it, and "
            "this page repeats it.",
            "4.6",
        ),
        shared.WRONG_RESULTS,
    ]


def spread(shapes: Shapes) -> str:
    """What shapes are centred and ranked under."""
    return f"{_STATED if shapes.is_stated else _UNIFORM} {_OTHERS}"


def about_shapes(shapes: Shapes) -> list[str]:
    """What a page says beside shapes."""
    return [SIZES, spread(shapes), *(BANDS if shapes.has_bands else [NO_BANDS])]
