"""What a model says to people: predictions in the label's own values, its summary, and its picture."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError
from learner.coefficient_table import Adjustment, coefficient_tables
from learner.report.pictures import drawn_sheet, usual
from learner.shapes import Shapes, every_shapes
from learner.uncertainty import why_no_probability
from radobase.presentation.notebook import Picture, Shown, fragment
from radobase.printing import columns

if TYPE_CHECKING:
    from learner.model import Model
    from learner.predictions import Predictions


def labels_of(model: "Model", found: "Predictions") -> NDArray[Any]:
    """Predictions (rows,) in the label's own values, None without one; of a number or a count in its units, or NaN."""
    if found.values is not None:
        return found.values
    scoring = model.scoring
    return np.array(
        [scoring.text_of(code) if code in scoring.codes else None for code in found.labels.tolist()], object
    )


def probabilities_of(model: "Model", found: "Predictions") -> NDArray[np.float64]:
    """Probabilities (rows, classes) of predictions. Raises ModelError if the model has none."""
    if found.probabilities is None:
        coding = model.schema.label.coding
        can_be = not (coding.is_measured or coding.intervals)
        how = ". In Python: model.calibrated(model.evaluate(federation, epsilon=1))" if can_be else ""
        raise ModelError(f"{why_no_probability(model)}{how}")
    return model.scoring.of_each(found.probabilities)


def picture_of(model: "Model") -> Picture:
    """The shapes of a model."""
    return Picture(drawn_sheet(usual(every_shapes(model))))


def title_of(model: "Model") -> str:
    """What it is, in a line."""
    return f"{model.estimator}, for the label {model.schema.label.column!r} of schema {model.schema.name!r}"


def summary_of(model: "Model", adjustment: Adjustment) -> str:
    """What a model is and says, and the privacy statement, as text."""
    lines = [title_of(model)]
    if model.feature_map is None:
        for table in coefficient_tables(model, adjustment=adjustment):
            lines += ["", *table.lines()]
    for title, header, rows in _sizes(model):
        lines += ["", title, *columns(header, rows, right=range(len(header) - len(header[2:]), len(header)))]
    return "\n".join([*lines, *model.decision_sentences, "", *model.statement.sentences()])


def html_of(model: "Model") -> str:
    """The summary, for a notebook."""
    tables = () if model.feature_map is not None else coefficient_tables(model)
    notes = dict.fromkeys(note for each in tables for note in each.notes)
    said = [*notes, *model.decision_sentences, *model.statement.short_sentences()]
    return fragment(title_of(model), said, [*(each.shown() for each in tables), *_sizes(model)])


def _sizes(model: "Model") -> list[Shown]:
    """How much columns move each score, of a model with curves."""
    if model.feature_map is None:
        return []
    return [
        (f"How much columns move {_of(shapes)}", ("columns", "size"), [
            (shape.title, f"{shape.size:.3g}") for shape in shapes.ranked
        ])
        for shapes in every_shapes(model)
    ]  # fmt: skip


def _of(shapes: Shapes) -> str:
    return f"the score of {shapes.label!r}" if shapes.units is None else shapes.adds_to
