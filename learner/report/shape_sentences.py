"""What a page says about shapes: what they are averages over, and what their bands cover."""

from learner.shapes.shapes import Shapes

NO_BANDS = (
    "Bands are not known for this model: its file has no covariance of the weights. So nothing here says how much of a "
    "shape is noise."
)
BANDS = (
    (
        "A band is the value plus and minus 1.96 standard deviations. They are computed from the covariance of the "
        "weights that the estimator keeps in the model's file, for the noise and for the choice of the rows."
    ),
    (
        "A band holds for one value, or one cell, at a time: about 95 of 100 such bands contain what the same "
        "functions would add if the same loss were fitted to very many rows without noise. For newton and additive "
        "that was measured on made tables, with columns that bend, that rise and that do nothing. It does not say "
        "that a whole curve is within its bands."
    ),
    (
        "Bands do not cover: which knots, point masses and pairs the model has; that the true shape may bend between "
        "knots; parties that send wrong sums."
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
    "rows differ, so their average would move shapes up or down and may change the order. It changes no score."
)


def spread(shapes: Shapes) -> str:
    """What shapes are centred and ranked under."""
    return f"{_STATED if shapes.is_stated else _UNIFORM} {_OTHERS}"


def all_of(shapes: Shapes) -> list[str]:
    """What a page says beside shapes."""
    return [SIZES, spread(shapes), *(BANDS if shapes.has_bands else [NO_BANDS])]
