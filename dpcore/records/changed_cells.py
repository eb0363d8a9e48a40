"""What a schema's policies changed in a table, by column and policy, in one form of words: what lost most comes first.

The counts are for whoever holds the table. No cell is quoted, and nothing of them goes on the wire.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpcore.records.encoding import Tally
from dpcore.records.features import Feature, Label
from dpcore.records.schema import Schema

MANY = 0.1
"""The share of a column's cells from which on a change is warned of."""

NO_ID = "no id"
"""The choice of the one policy that no schema states: rows have ids, and one without is left out."""

# What each choice does to one cell, and to several.
_EFFECTS = {
    "zero-vector": ("leaves its row out", "leaves their rows out"),
    NO_ID: ("its row is left out", "their rows are left out"),
    "zero": ("sets all its indicators to 0", "sets all their indicators to 0"),
    "impute": ("replaces it by {impute}", "replaces them by {impute}"),
    "clip": ("moves it to the nearest bound", "moves them to the nearest bound"),
}
# A row that is left out loses every cell, a clipped cell only its distance from the bound.
_LOSSES = {"zero-vector": 0, NO_ID: 0, "zero": 1, "impute": 1, "clip": 2}


@dataclass(frozen=True)
class Change:
    """Cells of one column that one policy changed.

    found: what they are. policy: the policy's key in the schema. choice: its value. impute: the value that the schema
    imputes, as text. alike: how many of them differ from a listed text only in case, blanks or Unicode form. rows: of
    the table.
    """

    column: str
    cells: int
    rows: int
    found: str
    policy: str
    choice: str
    impute: str = ""
    alike: int = 0

    @property
    def leaves_out(self) -> bool:
        """Whether the rows of these cells are not usable."""
        return self.choice in ("zero-vector", NO_ID)

    @property
    def is_many(self) -> bool:
        """Whether so many cells are changed that people should know."""
        return self.cells >= MANY * self.rows

    @property
    def clause(self) -> str:
        """The change in words, to follow a colon."""
        one, several = _EFFECTS[self.choice]
        effect = (one if self.cells == 1 else several).format(impute=self.impute)
        counted = "the cell" if self.rows == 1 else f"{self.cells} of {self.rows} cells"
        words = f"{counted} {'is' if self.cells == 1 else 'are'} {self.found}"
        alike = "" if not self.alike else f"; {self.alike} of them would match without case, blanks and Unicode form"
        rule = "" if self.choice == NO_ID else f'{self.policy} = "{self.choice}" '
        return f"in column {self.column!r} {words}, and {rule}{effect}{alike}"

    @property
    def sentence(self) -> str:
        """The change in words, to stand alone, without a full stop."""
        return f"{self.clause[:1].upper()}{self.clause[1:]}"

    def to_dict(self) -> dict[str, Any]:
        """In JSON types."""
        named = {"column": self.column, "policy": self.policy, "choice": self.choice}
        counts = {"cells": self.cells, "rows": self.rows, "alike": self.alike, "many": self.is_many}
        return {**named, **counts, "sentence": self.sentence}


def summed(blocks: Iterable[Sequence[Tally]]) -> tuple[Tally, ...]:
    """The tallies of a table from those of its blocks, at least one, in the same order."""
    return tuple(sum(of_one[1:], of_one[0]) for of_one in zip(*blocks, strict=True))


def changes(
    schema: Schema, tallies: Sequence[Tally], rows: int, *, id_column: str = "", without_id: int = 0
) -> tuple[Change, ...]:
    """All that the schema's policies changed in a table of this many rows, what lost most first.

    Rows that are left out come before cells whose value is lost, and these before clipped ones; the most cells first.
    tallies: one per feature, in the schema's order, then that of the label if there is one. without_id: the number of
    rows without an id in `id_column`.
    """
    parts: list[Feature | Label] = [*schema.features, schema.label]
    found = [each for part, tally in zip(parts, tallies, strict=False) for each in _changes(part, tally, rows)]
    if without_id:
        found.append(Change(id_column, without_id, rows, "empty", "id_column", NO_ID))
    return tuple(sorted(found, key=lambda change: (_LOSSES[change.choice], -change.cells)))


def changed_cells(schema: Schema, tallies: Sequence[Tally]) -> dict[str, int]:
    """For each feature, how many of its cells have a value that is not theirs: replaced, set to 0 or clipped.

    Cells that leave their row out are not among them. tallies: as for `changes`.
    """
    return {
        feature.name: sum(change.cells for change in _changes(feature, tally, 0) if not change.leaves_out)
        for feature, tally in zip(schema.features, tallies, strict=False)
    }


def main_cause(found: Sequence[Change]) -> str:
    """What left most rows out, as a clause; "" if no row is left out."""
    return found[0].clause if found and found[0].leaves_out else ""


def why_unusable(found: Sequence[Change], *, rows: int, usable: int) -> str | None:
    """A clause that says how many rows are not usable, with the main cause; None if all are usable."""
    if usable == rows:
        return None
    counted = f"{rows - usable} of {rows} rows {'is' if rows - usable == 1 else 'are'} not usable"
    return f"{counted if usable else 'no row is usable'}: {main_cause(found)}"


def _changes(part: Feature | Label, tally: Tally, rows: int) -> Iterator[Change]:
    """The changes of one column, where there are any."""
    prefix, impute = ("label.", "") if isinstance(part, Label) else ("", part.imputed_text)
    for policy in part.policies:
        if cells := tally.count(policy.cells):
            alike = tally.alike if policy.cells == "unlisted" else 0
            yield Change(part.column, cells, rows, policy.words, f"{prefix}{policy.key}", policy.choice, impute, alike)
