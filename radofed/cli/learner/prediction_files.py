"""The file of predictions that `rado learner predict` writes: a line for each row of the table."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpcore.records.features import EventTime
    from dpcore.records.schema import Schema
    from learner.predictions import Predictions
    from learner.scoring_base import Scoring


def scores_csv(scoring: "Scoring", found: "Predictions", file: Path, id_column: str | None) -> str:
    """A line for each row: its number from 1, and what `Scoring.columns` names.

    Cells are empty if the row has no prediction, or the model no probabilities. id_column: copied from the file, after
    the number. Raises DataError if the file lacks it.
    """
    ids = None if id_column is None else _texts_of(file, id_column)
    rows = len(found.labels)
    chances = [None] * rows if found.probabilities is None else found.probabilities.tolist()
    buffer = io.StringIO()
    written = csv.writer(buffer, lineterminator="\n")
    written.writerow(["row", *([] if id_column is None else [id_column]), *scoring.columns])
    each = zip(found.scores.tolist(), found.labels.tolist(), chances, strict=True)
    for place, (scores, code, chance) in enumerate(each):
        is_known = code != scoring.undecided
        cells = scoring.cells(scores, code, chance) if is_known else ("",) * len(scoring.columns)
        written.writerow([place + 1, *([] if ids is None else [ids[place]]), *cells])
    return buffer.getvalue()


def _texts_of(file: Path, column: str) -> list[str]:
    """The cells of a column, "" if missing."""
    from dpcore.records.encoding import Texts, WantedColumn
    from radobase.tables.tables import open_table, read_blocks

    wanted = WantedColumn(column, "texts")
    texts = []
    for block in read_blocks(open_table(file), [wanted]):
        cells = block.cells[wanted]
        assert isinstance(cells, Texts), "the column is wanted as texts"
        texts += ["" if code < 0 else cells.texts[code] for code in cells.codes.tolist()]
    return texts


def values_csv(schema: "Schema", found: "Predictions", file: Path, id_column: str | None) -> str:
    """A line for each row: its number from 1, the score, and the prediction in the label's units.

    id_column: copied from the file, after the number. Raises DataError if the file lacks it.
    """
    assert found.values is not None, "a number has values"
    names = ("score", f"predicted {schema.label.column}")
    figures = list(zip(found.scores.tolist(), found.values.tolist(), strict=True))
    return figures_csv(names, figures, found, file, id_column)


def survival_csv(label: "EventTime", found: "Predictions", file: Path, id_column: str | None) -> str:
    """A line for each row: its number from 1, the score, survival at each border, and the mean time up to the horizon.

    id_column: copied from the file, after the number. Raises DataError if the file lacks it.
    """
    assert found.values is not None, "a time has a mean"
    assert found.survival is not None, "a time has survival"
    ends = [f"{border:.17g}" for border in label.borders]
    names = ("score", *(f"survival {end}" for end in ends), f"mean {label.column} to {ends[-1]}")
    parts = found.scores.tolist(), found.survival.tolist(), found.values.tolist()
    figures = [(score, *chances, mean) for score, chances, mean in zip(*parts, strict=True)]
    return figures_csv(names, figures, found, file, id_column)


def figures_csv(
    names: Sequence[str], figures: Sequence[Sequence[float]], found: "Predictions", file: Path, id_column: str | None
) -> str:
    """A line for each row: its number from 1, and its figures, which are empty if the row has no prediction.

    id_column: copied from the file, after the number. Raises DataError if the file lacks it.
    """
    ids = None if id_column is None else _texts_of(file, id_column)
    buffer = io.StringIO()
    written = csv.writer(buffer, lineterminator="\n")
    written.writerow(["row", *([] if id_column is None else [id_column]), *names])
    for place, row in enumerate(figures):
        cells = [f"{value:.17g}" for value in row] if found.labels[place] else [""] * len(names)
        written.writerow([place + 1, *([] if ids is None else [ids[place]]), *cells])
    return buffer.getvalue()
