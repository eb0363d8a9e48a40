"""Cells of one column, what encoding makes of them, and what policies do with unusual ones, for all types."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.records.texts import TEXT_STEPS, form_of

#: The form in which most texts are the same.
_LOOSEST = form_of(TEXT_STEPS)
#: The most distinct texts of a block that are compared in it: a column with more is no category.
_MOST_COMPARED = 1000

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

Unusual = Literal["missing", "unreadable", "unlisted", "beyond"]
"""Cells that a policy is for: empty; no finite number; in none of the schema's texts; outside of the bounds."""


@dataclass(frozen=True)
class Numbers:
    """Cells of a numeric column: values (m,) float64, missing (m,) bool. The values of missing cells are ignored.

    A cell that is neither missing nor a finite number is unreadable, and its value is NaN or infinite.
    """

    values: Floats
    missing: Mask


@dataclass(frozen=True)
class Texts:
    """Cells of a text column: codes (m,) index `texts`; -1 means that the cell is missing.

    booleans: the column was of type boolean. Its texts "true" and "false" match a schema's texts in any case: a library
    that reads "True" and "False" from a CSV makes booleans of them.
    """

    codes: NDArray[np.int64]
    texts: tuple[str, ...]
    booleans: bool = False


Cells = Numbers | Texts


class CellError(DataError):
    """A cell cannot be encoded. row: counted from 0 in the given arrays, None if the error concerns all rows.

    sentence: the broken rule, without the cell's value, because errors appear in logs.

    The caller that knows the file turns this error into a DataError with the cell's place in the file.
    """

    def __init__(self, row: int | None, column: str, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence, row=row, column=column)


@dataclass(frozen=True)
class Tally:
    """How many cells of one feature, or of the label, a policy changed, by what they are.

    missing: empty. unreadable: no finite number. unlisted: in none of the schema's texts, of which `alike` differ from
    one only in case, blanks or Unicode form. beyond: outside of the bounds. dpcore.records.changed_cells has the words.
    """

    name: str
    missing: int = 0
    unreadable: int = 0
    unlisted: int = 0
    alike: int = 0
    beyond: int = 0

    def count(self, cells: Unusual) -> int:
        """How many cells are of this kind."""
        return int(getattr(self, cells))

    def __add__(self, other: "Tally") -> "Tally":
        """The sum of both tallies, with the name of the first."""
        return Tally(
            self.name,
            self.missing + other.missing,
            self.unreadable + other.unreadable,
            self.unlisted + other.unlisted,
            self.alike + other.alike,
            self.beyond + other.beyond,
        )


@dataclass(frozen=True)
class EncodedColumn:
    """One encoded feature, and how many cells a policy changed.

    values: (m,) float64, or (m, k) bool for coordinates that are 0 or 1. dropped: (m,), the rows that become zero
    vectors; None if none does.
    """

    values: Floats | Mask
    tally: Tally
    dropped: Mask | None = None


def as_numbers(column: str, cells: Cells) -> Numbers:
    """The cells of a column that was read as numbers."""
    assert isinstance(cells, Numbers), f"column {column!r} must be read as numbers"
    return cells


def as_texts(column: str, cells: Cells) -> Texts:
    """The cells of a column that was read as texts."""
    assert isinstance(cells, Texts), f"column {column!r} must be read as texts"
    return cells


def look_up(cells: Texts, meaning: Mapping[str, int]) -> NDArray[np.int64]:
    """The meaning of each cell, -1 if it is missing or unknown; one Python step per distinct text."""
    of_text = _meaning_in_any_case if cells.booleans else _meaning
    table = np.array([*(of_text(text, meaning) for text in cells.texts), -1], dtype=np.int64)
    return table[cells.codes]


def _meaning(text: str, meaning: Mapping[str, int]) -> int:
    return meaning.get(text, -1)


def _meaning_in_any_case(text: str, meaning: Mapping[str, int]) -> int:
    """The meaning of the text itself; otherwise that of the only text that differs from it in case, if there is one."""
    if text in meaning:
        return meaning[text]
    found = [value for other, value in meaning.items() if other.casefold() == text.casefold()]
    return found[0] if len(found) == 1 else -1


class Changed:
    """Cells that one policy changes: a mask (m,), how many they are, and whether their rows become zero vectors."""

    def __init__(self, cells: Mask, *, drops: bool = False) -> None:
        self.cells, self.count = cells, int(np.count_nonzero(cells))
        self.dropped = cells if drops and self.count else None


NOTHING = Changed(np.zeros(0, dtype=np.bool_))


def missing_cells(column: str, policy: str, missing: Mask) -> Changed:
    """The missing cells. Raises CellError if the policy refuses them."""
    changed = Changed(missing, drops=policy == "zero-vector")
    if changed.count and policy == "refuse":
        sentence = 'the cell is empty; set missing = "impute" or "zero-vector" for the feature, or correct the file'
        raise CellError(int(missing.argmax()), column, sentence)
    return changed


_NO_NUMBER = (
    "is not a finite number; write it with a decimal point, leave the cell empty if the value is not known, or "
    'set unreadable = "impute" or "zero-vector" for the feature'
)


def unreadable_cells(column: str, policy: str, unreadable: Mask, sentence: str = _NO_NUMBER) -> Changed:
    """The cells that are neither missing nor what a column is of, numbers unless the sentence says something else.

    Raises CellError with this sentence if the policy refuses them.
    """
    changed = Changed(unreadable, drops=policy == "zero-vector")
    if changed.count and policy == "refuse":
        raise CellError(int(unreadable.argmax()), column, sentence)
    return changed


def absent_cells(
    column: str, policies: tuple[str, str], cells: Texts, codes: NDArray[np.int64], sentence: str
) -> tuple[Changed, Changed]:
    """The missing cells, and those with a text that the schema does not list.

    policies: for missing cells, and for the others. codes: the meaning of each cell, as of `look_up`. sentence: what an
    unlisted cell is, and what to do. Raises CellError if a policy refuses a cell.
    """
    nothing = codes < 0
    if not nothing.any():
        return NOTHING, NOTHING
    absent = cells.codes < 0
    missing = missing_cells(column, policies[0], absent)
    changed = Changed(nothing & ~absent, drops=policies[1] == "zero-vector")
    if changed.count and policies[1] == "refuse":
        raise CellError(int(changed.cells.argmax()), column, sentence)
    return missing, changed


def alike(cells: Texts, unlisted: Changed, listed: Collection[str]) -> int:
    """How many of the unlisted cells would be listed if texts were compared after every step of a schema's `texts`."""
    if not unlisted.count or len(cells.texts) > _MOST_COMPARED:
        return 0
    known = set(map(_LOOSEST, listed))
    same = np.array([*(_LOOSEST(text) in known for text in cells.texts), False])
    return int(np.count_nonzero(same[cells.codes] & unlisted.cells))


def any_of(*masks: Mask | None) -> Mask | None:
    """The rows in any of these masks; None if there is none."""
    given = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(given) if len(given) > 1 else given[0] if given else None
