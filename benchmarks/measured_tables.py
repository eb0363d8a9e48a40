"""The tables on which regressions are compared: numbers and counts, encoded by a schema with bounds of the domain."""

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import SHARED, DataSet, data_set
from benchmarks.private_erm import schema_of
from dpcore.numbers.fixed_point import ONE
from dpcore.records.encoding import store
from dpcore.records.features import Count, Number
from dpcore.records.records import Records
from dpcore.records.schema import Schema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredRule:
    """Which column is learned, within which bounds of the domain, and which columns are left out."""

    file: str
    label: Number | Count
    left_out: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    """Columns of codes that are no numbers."""
    people: str | None = None
    """The column that says which rows are of one person."""
    rows: int | None = None
    """So many rows to train on in each fold, drawn at random; None for all."""


WAGE = Number(column="wage", lower=25, upper=25_000, log=True, out_of_bounds="clip")
PRICE = Number(column="price", lower=200, upper=25_000, log=True, out_of_bounds="clip")
WEIGHT = Number(column="weight", lower=2, upper=500, log=True, out_of_bounds="clip")
KAPPA = Number(column="kappa", lower=0.05, upper=50, log=True, out_of_bounds="clip")
CODES = ("plot_id", "month")
NUMBERS: dict[str, MeasuredRule] = {
    "cps1988": MeasuredRule("cps1988", WAGE),
    "diamonds": MeasuredRule("diamonds", PRICE),
    "surveys": MeasuredRule("surveys", WEIGHT, categories=CODES),
    "wine_white": MeasuredRule("wine_white", Number(column="label", lower=0, upper=10, out_of_bounds="clip")),
    "abalone": MeasuredRule("abalone", Number(column="label", lower=1, upper=30, out_of_bounds="clip")),
    "cps1988, 5,000 rows": MeasuredRule("cps1988", WAGE, rows=5_000),
    "diamonds, 5,000 rows": MeasuredRule("diamonds", PRICE, rows=5_000),
    "surveys, 5,000 rows": MeasuredRule("surveys", WEIGHT, categories=CODES, rows=5_000),
    "adult, hours": MeasuredRule(
        "adult_train", Number(column="hours_per_week", lower=0, upper=100, out_of_bounds="clip"), ("fnlwgt",)
    ),
    "flchain, kappa": MeasuredRule("flchain", KAPPA, ("time_days", "death")),
    "randhie, income": MeasuredRule(
        "randhie",
        Number(column="linc", lower=0, upper=12, out_of_bounds="clip"),
        ("mdvis", "meddol"),
        people="person",
    ),
    "magic, size": MeasuredRule("magic", Number(column="fSize", lower=1, upper=6, out_of_bounds="clip")),
}
COUNTS = {
    "randhie, visits": MeasuredRule(
        "randhie", Count(column="mdvis", upper=100, out_of_bounds="clip"), ("meddol",), people="person"
    )
}
RULES = NUMBERS | COUNTS


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """A table, its label as stored, and which rows are of one person. values: of the label, in its units."""

    name: str
    rule: MeasuredRule
    data: DataSet
    labels: NDArray[np.int32]
    people: NDArray[np.int64]

    @property
    def schema(self) -> Schema:
        """The schema of encoded rows."""
        plain = schema_of(self.data)
        return Schema(name="benchmark", label=self.rule.label, features=plain.features)

    def folds(self, folds: int) -> list["MeasuredSplit"]:
        """Folds that keep the rows of a person together, encoded as `DataSet.encode` does.

        The rows of each fold's training are the first of a random order, if the rule wants fewer.
        """
        schema = self.schema
        order = np.random.default_rng(0).permutation(int(self.people.max()) + 1)
        fold_of = order[self.people] % folds
        found = []
        for fold in range(folds):
            train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            if self.rule.rows is not None:
                train = np.sort(np.random.default_rng(fold).permutation(train)[: self.rule.rows])
            rows = self.data.encode(train)
            found.append(
                MeasuredSplit(
                    schema,
                    rows[train],
                    self.labels[train],
                    rows[test],
                    self.labels[test],
                    self.people[train],
                )
            )
        return found


@dataclass(frozen=True, eq=False)
class MeasuredSplit:
    """Rows with their bias last, (rows, d), labels as stored, and the person of each training row."""

    schema: Schema
    train: Floats
    train_labels: NDArray[np.int32]
    test: Floats
    test_labels: NDArray[np.int32]
    people: NDArray[np.int64]

    @property
    def is_count(self) -> bool:
        """Whether the label is a count."""
        return isinstance(self.schema.label, Count)

    def values(self, labels: NDArray[np.int32]) -> Floats:
        """Numbers as t, on the scale that is learned; counts as they are."""
        return labels.astype(np.float64) / (1 if self.is_count else ONE)

    def scaled(self, labels: NDArray[np.int32]) -> Floats:
        """Either as t in [-1, 1]."""
        return self.schema.label.coding.scaled(labels, 30) / ONE

    def parties(self, count: int) -> list[Records]:
        """The training rows in parts, all rows of a person in one."""
        coding, part = self.schema.label.coding, np.unique(self.people, return_inverse=True)[1] % count
        found = []
        for rows in (np.flatnonzero(part == one) for one in range(count)):
            usable = np.ones(len(rows), dtype=np.bool_)
            found.append(Records(store(self.train[rows]), self.train_labels[rows], usable, coding=coding))
        return found


def read_measured(name: str, folder: Path = SHARED) -> MeasuredTable:
    """A table next to the repository; rows without a label are left out."""
    rule = RULES[name]
    with gzip.open(folder / f"{rule.file}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        records = [record for record in csv.DictReader(stream) if record[rule.label.column]]
    for column in rule.categories:
        for record in records:
            record[column] = f"code {record[column]}" if record[column] else ""
    names = [record[rule.people] for record in records] if rule.people else range(len(records))
    left_out = (rule.label.column, *rule.left_out, *([rule.people] if rule.people else []))
    return MeasuredTable(
        name,
        rule,
        data_set(name, records, left_out, [False] * len(records)),
        _stored(rule.label, [record[rule.label.column] for record in records]),
        np.unique(np.array(names), return_inverse=True)[1].astype(np.int64),
    )


def _stored(label: Number | Count, cells: Sequence[str]) -> NDArray[np.int32]:
    values: Floats = np.array([float(cell) for cell in cells])
    if isinstance(label, Count):
        values = np.clip(values, 0, label.upper)
    else:
        values = np.rint(label.scaled(np.clip(values, label.lower, label.upper)) * ONE)
    return values.astype(np.int32)
