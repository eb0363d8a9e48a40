"""The table that the kit gives to the one under test, unless it is given another: every rule for cells occurs in it."""

import csv
import io
import random

from dpcore.records.schema import Schema

SCHEMA = """\
schema_version = 3
name = "conformance"
bias = true
texts = ["nfc", "trim"]

[label]
column = "outcome"
positive = ["yes", "oui"]
negative = ["no"]
missing = "zero-vector"

[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
missing = "impute"
impute = 50.0
out_of_bounds = "clip"
unreadable = "zero-vector"

[[features]]
name = "smoker"
type = "boolean"
true = ["ja", "1"]
false = ["nein", "0"]
missing = "impute"
impute = false
unknown = "zero-vector"

[[features]]
name = "high"
column = "pressure"
type = "threshold"
threshold = 140.0
missing = "impute"
impute = true
unreadable = "impute"

[[features]]
name = "ward"
type = "category"
values = ["Gen\u00e8ve", "north", "07"]
missing = "zero-vector"
unknown = "zero"

[[features]]
name = "seen"
type = "date"
first = "2024-01-01"
last = "2024-12-31"
parts = ["weekday"]
missing = "zero-vector"
out_of_bounds = "clip"
"""

HEADER = ("age", "smoker", "pressure", "ward", "seen", "outcome", "person", "month")
ID_COLUMN, EPOCH_COLUMN = "person", "month"
"""Beside the schema's columns: whose a row is, and its epoch."""
EPOCHS = ("2024-01", "2024-02", "2024-03")
_MOST_ROWS_OF_A_PERSON = 4
# Cells that a rule is about; the rest of their row is plain.
UNUSUAL = (
    {"age": ""},
    {"age": " 41 "},
    {"age": "1e2"},
    {"age": "+7."},
    {"age": ".5"},
    {"age": "-3"},
    {"age": "250"},
    {"age": "\u00a033\u00a0"},
    {"age": "4,5"},
    {"age": "n/a"},
    {"age": "inf"},
    {"age": "\u0664\u0661"},
    {"age": "1_0"},
    {"smoker": ""},
    {"smoker": "JA"},
    {"smoker": "1"},
    {"smoker": "01"},
    {"smoker": "ja\u00a0"},
    {"pressure": "140"},
    {"pressure": "139.99999"},
    {"pressure": ""},
    {"pressure": "high"},
    {"ward": "Gene\u0300ve"},
    {"ward": "gen\u00e8ve"},
    {"ward": "7"},
    {"ward": "07"},
    {"ward": "\u2003north\u200b"},
    {"ward": ""},
    {"ward": "\u00a0"},
    {"seen": "2024-02-29"},
    {"seen": "2023-02-29"},
    {"seen": "2024-06-01T23:59:59.123456789"},
    {"seen": "2024-06-02 00:00"},
    {"seen": "2024-06-01T10:00Z"},
    {"seen": "01.06.2024"},
    {"seen": "1999-01-01"},
    {"seen": "2031-01-01"},
    {"seen": ""},
    {"outcome": ""},
    {"outcome": "maybe"},
    {"outcome": "oui"},
    {"outcome": " yes "},
)
PLAIN_ROWS, TIMES = 60, 12
"""Rows without such a cell, and how often each occurs: so often that noise does not hide a rule that is not kept."""


def schema() -> Schema:
    """The kit's schema."""
    return Schema.from_toml(SCHEMA)


def rows_csv() -> str:
    """The kit's table, alike in every run."""
    draw = random.Random(40)  # noqa: S311  (made-up rows, alike in every run)
    rows = [_plain(draw) for _ in range(PLAIN_ROWS)]
    rows += [{**_plain(draw), **odd} for odd in UNUSUAL for _ in range(TIMES)]
    _add_persons(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(draw: random.Random) -> dict[str, str]:
    return {
        "age": str(draw.randint(18, 95)),
        "smoker": draw.choice(["ja", "nein"]),
        "pressure": f"{draw.uniform(90, 190):.1f}",
        "ward": draw.choice(["Gen\u00e8ve", "north", "07", "south"]),
        "seen": f"2024-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        "outcome": draw.choice(["yes", "no"]),
    }


def _add_persons(rows: list[dict[str, str]]) -> None:
    """Whose each row is, and its epoch: persons have one to four rows that do not stand together, all in one epoch."""
    draw = random.Random(41)  # noqa: S311  (likewise)
    owners: list[int] = []
    while len(owners) < len(rows):
        person = owners[-1] + 1 if owners else 1
        owners += [person] * draw.randint(1, _MOST_ROWS_OF_A_PERSON)
    owners = owners[: len(rows)]
    draw.shuffle(owners)
    for row, owner in zip(rows, owners, strict=True):
        row.update({ID_COLUMN: f"p{owner:03}", EPOCH_COLUMN: EPOCHS[owner % len(EPOCHS)]})
