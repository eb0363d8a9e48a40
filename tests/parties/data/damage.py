"""Tables as people and programs damage them: one function for each kind of damage, on the rows of a CSV file.

Each takes a table, changes it in place, and returns the columns that it damaged.
"""

import csv
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass
class Rows:
    """The cells of a CSV file, by column. positive: the label's positive texts."""

    columns: dict[str, list[str]]
    label: str
    positive: tuple[str, ...]
    delimiter: str = ","

    @property
    def count(self) -> int:
        return len(self.columns[self.label])

    def copy(self) -> "Rows":
        columns = {name: list(cells) for name, cells in self.columns.items()}
        return Rows(columns, self.label, self.positive, self.delimiter)

    def write(self, path: Path) -> Path:
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, delimiter=self.delimiter)
            rows.writerow(self.columns)
            rows.writerows(zip(*self.columns.values(), strict=True))
        return path

    def texts(self) -> list[str]:
        """Columns of words, the label included."""
        return [name for name, cells in self.columns.items() if any(cell and not _is_number(cell) for cell in cells)]

    def dates(self) -> list[str]:
        """Columns of dates."""
        return [name for name, cells in self.columns.items() if all(_DATE.fullmatch(cell) for cell in cells)]

    def numbers(self) -> list[str]:
        """Columns of more than two numbers, those with the most different ones first."""
        found = [name for name in self.columns if name != self.label and name not in self.texts()]
        different = {name: len(set(self.columns[name]) - {""}) for name in found}
        return sorted((name for name in found if different[name] > 2), key=lambda name: -different[name])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _replaced(table: Rows, column: str, texts: list[str], share: float) -> list[str]:
    """Put one of the texts, in turn, into a share of the column's cells that are not empty."""
    cells = table.columns[column]
    places = [place for place, cell in enumerate(cells) if cell]
    chosen = np.random.default_rng(3).permutation(places)[: max(1, int(share * len(places)))]
    for turn, place in enumerate(chosen):
        cells[place] = texts[turn % len(texts)]
    return [column]


def _half(table: Rows, column: str, change) -> list[str]:
    """Change every other cell of a column that is not empty."""
    table.columns[column] = [
        change(cell) if cell and place % 2 else cell for place, cell in enumerate(table.columns[column])
    ]
    return [column]


def marks_in_label(table: Rows) -> list[str]:
    return _replaced(table, table.label, ["NA", "?", "n/a", "NULL"], 0.2)


def other_texts_in_label(table: Rows) -> list[str]:
    return _replaced(table, table.label, ["perhaps"] if _is_number(table.positive[0]) else ["9"], 0.02)


def spellings_of_label(table: Rows) -> list[str]:
    return _half(table, table.label, lambda cell: f"{cell}.0" if _is_number(cell) else cell.swapcase())


def blanks(table: Rows) -> list[str]:
    """No-break spaces, tabs and blanks around all texts and the label."""
    for column in dict.fromkeys([*table.texts(), table.label]):
        _half(table, column, lambda cell: f"\u00a0{cell} \t")
    return [*dict.fromkeys([*table.texts(), table.label])]


def decomposed(table: Rows) -> list[str]:
    """Accents as marks of their own, as macOS writes them. The table must have accents."""
    for column in table.texts():
        _half(table, column, lambda cell: unicodedata.normalize("NFD", cell))
    return table.texts()


def spellings_of_texts(table: Rows) -> list[str]:
    columns = [column for column in table.texts() if column != table.label]
    for column in columns:
        _half(table, column, str.swapcase)
    return columns


def marks_in_cells(table: Rows) -> list[str]:
    columns = [column for column in table.columns if column != table.label]
    for column in columns:
        _replaced(table, column, ["NA", "?"], 0.1)
    return columns


def odd_cell(table: Rows) -> list[str]:
    """One cell that is no number in each column of numbers."""
    for place, column in enumerate(table.numbers()):
        cells = table.columns[column]
        cells[next(place for place, cell in enumerate(cells) if cell)] = ("<0.5", "#N/A", "see letter")[place % 3]
    return table.numbers()


def decimal_commas(table: Rows) -> list[str]:
    table.delimiter = ";"
    column = table.numbers()[0]
    table.columns[column] = [
        f"{float(cell) / 3:.2f}".replace(".", ",") if cell else "" for cell in table.columns[column]
    ]
    return [column]


def days_first(table: Rows) -> list[str]:
    """All dates as Germans write them."""
    columns = table.dates()
    for column in columns:
        table.columns[column] = [".".join(reversed(cell.split("-"))) for cell in table.columns[column]]
    return columns


def some_months_first(table: Rows) -> list[str]:
    """A few dates as Americans write them."""
    columns = table.dates()
    for column in columns:
        cells = table.columns[column]
        for place in range(0, len(cells), 50):
            year, month, day = cells[place].split("-")
            cells[place] = f"{month}/{day}/{year}"
    return columns


def thousands(table: Rows) -> list[str]:
    """Numbers of some thousands, with and without separators."""
    table.delimiter = ";"
    column = table.numbers()[0]
    size = np.argsort(np.argsort([float(cell or 0) for cell in table.columns[column]]))
    amounts = [100 + 4000 * int(place) // table.count for place in size]
    table.columns[column] = [f"{value // 10 * 10:,}".replace(",", ".") for value in amounts]
    return [column]


def leading_zeros(table: Rows) -> list[str]:
    column = table.numbers()[0]
    codes = {text: f"{place:05d}" for place, text in enumerate(sorted(set(table.columns[column])))}
    table.columns[column] = [codes[text] if text else "" for text in table.columns[column]]
    return [column]


def ids(table: Rows) -> list[str]:
    """A number and a text for each row, in no order."""
    order = np.random.default_rng(5).permutation(table.count)
    table.columns = {
        "patient": [str(40000 + place) for place in order],
        "case": [f"{place:x}-{place}" for place in order],
        **table.columns,
    }
    return ["patient", "case"]


def index(table: Rows) -> list[str]:
    """The index of a frame of which some rows were taken, written twice by pandas."""
    order = 3 * np.random.default_rng(5).permutation(table.count)
    table.columns = {"Unnamed: 0": list(map(str, order)), "Unnamed: 0.1": list(map(str, order)), **table.columns}
    return ["Unnamed: 0", "Unnamed: 0.1"]


ADDED = (ids, index)
DAMAGES = (
    marks_in_label,
    other_texts_in_label,
    spellings_of_label,
    blanks,
    decomposed,
    spellings_of_texts,
    marks_in_cells,
    odd_cell,
    decimal_commas,
    thousands,
    days_first,
    some_months_first,
    leading_zeros,
    *ADDED,
)
