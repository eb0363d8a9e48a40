"""What `rado learner train` and `predict` print of a model of a time to an event."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from radobase.printing import amount, in_lines
from radofed.cli.learner.prediction_files import survival_csv
from radofed.cli.output import Result

if TYPE_CHECKING:
    from learner.model import Model
    from learner.predictions import Predictions

MOST_RATIOS = 20
RATIOS = "hazard ratios, with intervals of 95 % for noise, choice of rows and clipping where they are measurable"
"""What the ratios of a model are."""


def ratio_lines(model: "Model") -> list[str]:
    """The hazard ratio of each change of a column, or the sizes of curves, largest first; not all of many."""
    from learner.hazard_models import ranked_ratios
    from learner.shapes import shapes_of

    if model.feature_map is not None:
        shapes = shapes_of(model)
        sizes = [f"{shape.size:8.3f}  {shape.title}" for shape in shapes.ranked[:MOST_RATIOS]]
        return [f"standard deviation of what each adds to {shapes.adds_to}:", *sizes]
    found = ranked_ratios(model)
    lines = [f"{RATIOS}:", *(f"  {each.sentence()}" for each in found[:MOST_RATIOS])]
    return [*lines, f"  and {len(found) - MOST_RATIOS} nearer to 1"] if len(found) > MOST_RATIOS else lines


def predicted_times(model: "Model", found: "Predictions", file: Path, to: Path | None, id_column: str | None) -> Result:
    """What `predict` says of a label that is a time to an event."""
    from dpcore.records.features import event_time
    from learner.hazard_models import hazard_errors, ranked_ratios
    from radobase.tables.tables import open_table

    assert found.survival is not None, "a time has survival"
    assert found.values is not None, "a time has a mean"
    label, known = event_time(model.schema.label, "survival"), found.labels > 0
    rows, usable, horizon = len(known), int(known.sum()), f"{label.borders[-1]:g}"
    chances, means = found.survival[known, -1], found.values[known]
    lines = [f"{amount(rows, 'row')}, {rows - usable} of them not usable"]
    data: dict[str, Any] = {"rows": rows, "usable": usable, "horizon": label.borders[-1]}
    data["survival_mean"] = float(chances.mean()) if usable else None
    data["restricted_mean"] = float(means.mean()) if usable else None
    if usable:
        span = f"{chances.min():.4f} to {chances.max():.4f}, {chances.mean():.4f} on average"
        lines.append(f"survival to {horizon}: {span}")
        lines.append(f"mean {label.column} up to {horizon}: {means.mean():.6g} on average")
    data["hazard_ratios"] = [each.to_dict() for each in ranked_ratios(model)]
    lines += ratio_lines(model)
    lines += [change.sentence for change in found.changes]
    data["changes"] = [change.to_dict() for change in found.changes]
    if set(label.columns) <= set(open_table(file).columns):
        errors = hazard_errors(model, file)
        data |= errors.to_dict()
        lines += errors.sentences()
    if to is not None:
        to.write_text(survival_csv(label, found, file, id_column), encoding="utf-8")
        lines.append(f"{to}: a line for each row; without a prediction if the row is not usable")
    return Result({**data, "file": to}, in_lines(lines))
