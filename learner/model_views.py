"""What a model says to people: predictions in the label's own values, its summary, and its picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError
from learner.measured_models import is_of_ratios
from learner.report.coefficients import APPROXIMATE, CONFIDENCE, coefficients, effects
from learner.report.pictures import drawn_sheet, usual
from learner.shapes import every_shapes
from learner.uncertainty import why_no_probability
from radobase.presentation.notebook import Shown, fragment
from radobase.presentation.svg import Drawing, check_picture, write_drawing
from radobase.printing import columns

if TYPE_CHECKING:
    from learner.model import Model, Predictions


class Picture:
    """A drawing that a notebook shows, and that is saved as an SVG file."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing

    def save(self, path: Path | str) -> None:
        """Write it as an SVG file. Raises ConfigurationError."""
        check_picture(Path(path))
        write_drawing(self.drawing, Path(path))

    def _repr_html_(self) -> str:
        return fragment("", drawings=[self.drawing])


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
        raise ModelError(
            f"{why_no_probability(model)}. In Python: model.calibrated(model.evaluate(federation, epsilon=1))"
        )
    return model.scoring.of_each(found.probabilities)


def picture_of(model: "Model") -> Picture:
    """The shapes of a model. Raises SchemaError if the label has no classes."""
    return Picture(drawn_sheet(usual(every_shapes(model))))


def title_of(model: "Model") -> str:
    """What it is, in a line."""
    return f"{model.estimator}, for the label {model.schema.label.column!r} of schema {model.schema.name!r}"


def summary_of(model: "Model") -> str:
    """What a model is and says, and the privacy statement, as text."""
    lines = [title_of(model)]
    for title, header, rows in _tables(model):
        lines += ["", title, *columns(header, rows, right=range(len(header) - len(header[2:]), len(header)))]
    return "\n".join([*lines, *model.decision_sentences, "", *model.statement.sentences()])


def html_of(model: "Model") -> str:
    """The summary, for a notebook."""
    said = [*model.decision_sentences, *model.statement.short_sentences()]
    return fragment(title_of(model), said, _tables(model))


def _tables(model: "Model") -> list[Shown]:
    """What each column adds, of each score."""
    if model.schema.label.coding.is_measured:
        return [_of_number(model)]
    if model.schema.label.coding.intervals:
        # The intercept, if there is one, is no ratio.
        changes = [each for each in effects(model.schema) if each[0] != "intercept"]
        ratios = [(name, change, f"{np.exp(weights @ model.theta):.4g}") for name, change, weights in changes]
        return [(APPROXIMATE, ("column", "change", "hazard ratio"), ratios)]
    if model.feature_map is not None:
        return [
            (f"How much columns move the score of {shapes.label!r}", ("columns", "size"), [
                (shape.title, f"{shape.size:.3g}") for shape in shapes.ranked
            ])
            for shapes in every_shapes(model)
        ]  # fmt: skip
    return [
        (
            f"What columns add to the score of {each.of!r}",
            ("column", "change", "adds", f"{100 * CONFIDENCE:g} % interval"),
            [
                (row.column, row.change, f"{row.value:+.4g}", _interval(row.both or row.noise, row.measurable))
                for row in each.rows
            ],
        )
        for each in coefficients(model, (), {}, np.random.default_rng(0))
    ]


def _interval(ends: tuple[float, float] | None, measurable: bool | None) -> str:
    if measurable is False:
        return "not measurable"
    return "" if ends is None else f"{ends[0]:+.4g} to {ends[1]:+.4g}"


def _of_number(model: "Model") -> Shown:
    """What columns add to a prediction, in units; by what they multiply it, where logarithms are learned."""
    multiplies, start = is_of_ratios(model), float(model.values(np.zeros(1))[0])
    rows = []
    for name, change, weights in effects(model.schema):
        value = float(model.values(np.array([weights @ model.theta]))[0])
        if name == "intercept":
            rows.append((name, change, f"{value:.4g}" if multiplies else f"{value:+.4g}"))
        else:
            rows.append((name, change, f"{value / start:.4g} times" if multiplies else f"{value - start:+.4g}"))
    if multiplies:
        return "By what columns multiply the prediction", ("column", "change", "prediction"), rows
    return "What columns add to the prediction", ("column", "change", "adds"), rows
