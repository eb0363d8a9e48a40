"""The tables on which estimators are compared: scikit-learn's own, and twelve more if present."""

import csv
import gzip
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
# Without --all the largest are left out.
LARGE = ("magic", "eeg_eye_state", "adult")

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The least and the largest value of each column that holds numbers, (p,) each."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """numeric: (m, p), NaN where missing. categories: (m, c) text, empty where missing. positive: (m,) bool."""

    name: str
    numeric: NDArray[np.float64]
    categories: NDArray[np.str_]
    positive: NDArray[np.bool_]

    def encode(self, training: NDArray[np.intp], bounds: Bounds | None = None) -> NDArray[np.float64]:
        """All rows as features in [-1, 1], (m, d): numbers, one-hot categories, bias.

        Numbers are scaled by bounds, by default the 0.5 % and 99.5 % quantiles of the training rows, and clipped;
        missing ones are set to those rows' median. A missing category is all zeros. The last column is the bias.
        """
        seen = self.numeric[training]
        low, high = bounds or quantiles(seen)
        filled = np.where(np.isnan(self.numeric), np.nanmedian(seen, axis=0), self.numeric)
        width = np.where(high > low, high - low, 1.0)
        scaled = np.where(high > low, np.clip(2 * (filled - low) / width - 1, -1, 1), 0.0)
        # The levels are the schema's, so they come from all rows.
        columns = [
            (column[:, np.newaxis] == np.unique(column[column != ""])).astype(np.float64)
            for column in self.categories.T
        ]
        return np.hstack([scaled, *columns, np.ones((len(scaled), 1))])


def quantiles(numeric: NDArray[np.float64]) -> Bounds:
    """The 0.5 % and 99.5 % quantiles of each column that holds numbers. numeric: (m, columns)."""
    # NumPy has no quantiles of no columns.
    low, high = np.nanquantile(numeric, [0.005, 0.995], axis=0) if numeric.size else np.empty((2, 0))
    return low, high


def packaged() -> list[DataSet]:
    """The sets that come with scikit-learn."""
    rules: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
        "digits, even": (load_digits, lambda target: target % 2 == 0),
        "breast_cancer, benign": (load_breast_cancer, lambda target: target == 1),
        "wine, class 1": (load_wine, lambda target: target == 1),
    }
    sets = []
    for name, (load, rule) in rules.items():
        rows, target = load(return_X_y=True)
        sets.append(DataSet(name, rows, np.empty((len(rows), 0), dtype=np.str_), rule(target)))
    return sets


Rule = tuple[tuple[str, ...], Callable[[str], bool], tuple[str, ...]]
"""Files, which labels are positive, columns left out."""

RULES: dict[str, Rule] = {
    "banknote": (("banknote",), lambda label: label == "1", ()),
    "abalone": (("abalone",), lambda label: int(label) >= 10, ()),
    "wine_white": (("wine_white",), lambda label: int(label) >= 6, ()),
    "magic": (("magic",), lambda label: label == "h", ()),
    "eeg_eye_state": (("eeg_eye_state",), lambda label: label == "1", ()),
    "heart_four_hospitals": (("heart_four_hospitals",), lambda label: int(label) > 0, ("hospital",)),
    "ionosphere": (("ionosphere",), lambda label: label == "b", ()),
    "transfusion": (("transfusion",), lambda label: label == "1", ()),
    "breast_wisconsin_original": (("breast_wisconsin_original",), lambda label: label == "4", ()),
    "sonar": (("sonar",), lambda label: label == "R", ()),
    "haberman": (("haberman",), lambda label: label == "2", ()),
    "adult": (("adult_train", "adult_test"), lambda label: label == ">50K", ()),
}


def shared(*, everything: bool) -> list[DataSet]:
    """The sets next to the repository; none if they are absent."""
    if not SHARED.is_dir():
        return []
    return [read(name, RULES[name]) for name in RULES if everything or name not in LARGE]


def read(name: str, rules: Rule, folder: Path = SHARED) -> DataSet:
    """A set of the folder, by default one next to the repository."""
    files, rule, left_out = rules
    records: list[dict[str, str]] = []
    for file in files:
        with gzip.open(folder / f"{file}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
            records += csv.DictReader(stream)
    return data_set(name, records, ("label", *left_out), [rule(record["label"]) for record in records])


def data_set(name: str, records: list[dict[str, str]], left_out: Collection[str], positive: list[bool]) -> DataSet:
    """Columns of numbers, in which an empty cell is NaN, and of texts. left_out: columns that are none of either."""
    columns = [column for column in records[0] if column not in left_out]
    numbers, categories = [], []
    for column in columns:
        cells = [record[column] for record in records]
        try:
            numbers.append([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            categories.append(cells)
    return DataSet(
        name,
        np.array(numbers, dtype=np.float64).T.reshape(len(records), len(numbers)),
        np.array(categories, dtype=np.str_).T.reshape(len(records), len(categories)),
        np.array(positive),
    )
