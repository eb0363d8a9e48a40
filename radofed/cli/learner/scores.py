"""The file of scores that `rado learner predict` writes."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.records.schema import Schema

if TYPE_CHECKING:
    from learner.model import Predictions

COLUMNS = ("row", "score", "label", "label_text", "probability")


def scores_csv(schema: Schema, found: "Predictions", file: Path, id_column: str | None) -> str:
    """A line for each row: its number from 1, score, label as a sign and as text, and the positive label's probability.

    Cells are empty if the row has no prediction, or the model no probabilities. id_column: copied from the file, after
    the number. Raises DataError if the file lacks it.
    """
    ids = None if id_column is None else _texts_of(file, id_column)
    chances = found.probabilities
    buffer = io.StringIO()
    written = csv.writer(buffer, lineterminator="\n")
    written.writerow([COLUMNS[0], *([] if id_column is None else [id_column]), *COLUMNS[1:]])
    for place, (score, label) in enumerate(zip(found.scores.tolist(), found.labels.tolist(), strict=True)):
        chance = "" if chances is None else f"{chances[place]:.6g}"
        cells = [f"{score:.17g}", label, schema.label.names[label > 0], chance] if label else [""] * 4
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
