"""What a page says about shapes: what they are averages over, and what their bands cover."""

from learner.shapes.shapes import Shapes

NO_BANDS = (
    "Bands are not known for this model: its file has no covariance of the weights. So nothing here says how much of a "
    "shape is noise."
)
BANDS = (
    (
        "A band is the value plus and minus 1.96 standard deviations. They are computed from the covariance of the "
        "weights that the estimator keeps in the model's file, for the noise, for the choice of the rows, and for what "
        "is left to go after the last round. For additive, it also covers that weights were shrunk and left out, as "
        "far as this is known."
    ),
    (
        "A band holds for one value, or one cell, at a time. It is meant to contain, 95 times of 100 on average over "
        "columns and values, what the same functions would add if the same loss were fitted to very many rows without "
        "noise. For newton and additive, 96 to 99 of 100 did on made tables, with columns that bend, that rise and "
        "that do nothing. Where weights are hard to reach, fewer did, 84 to 99 of 100: if one class is 2 rows of 100, "
        "if one column decides nearly every row, or if no column says much. If the score was held to rise or fall with "
        "a column, its band is right only as far as the truth does. A band does not say that a whole curve is within."
    ),
    (
        "All cells of a pair are within their bands or none, as a pair has one weight. At least 93 of 100 pairs were, "
        "on average over the pairs of a model, also if a single one has a weak effect."
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
    "The listed values of a category, and the two values of a flag, count equally, and columns as independent. Real "
    "rows differ, so their average would move shapes up or down and may change the order. It changes no score. Any "
    "other value of a category may be in no row: then what it adds is noise."
)


def spread(shapes: Shapes) -> str:
    """What shapes are centred and ranked under."""
    return f"{_STATED if shapes.is_stated else _UNIFORM} {_OTHERS}"


def all_of(shapes: Shapes) -> list[str]:
    """What a page says beside shapes."""
    return [SIZES, spread(shapes), *(BANDS if shapes.has_bands else [NO_BANDS])]
