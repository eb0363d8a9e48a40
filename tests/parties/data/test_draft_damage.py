"""Drafts of damaged tables: no label changes, and no column changes its type without a note that counts the cells."""

import re
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.features import DateFeature
from dpcore.records.schema import Schema
from parties.data.dataset import load
from parties.data.schema_draft import infer
from tests.parties.data.damage import ADDED, DAMAGES, Rows, days_first, decomposed, some_months_first

ACCENTED = "é"


def made(words: bool) -> Rows:
    """A small table with numbers, words and missing cells."""
    random = np.random.default_rng(8)
    rows = 400
    ill = random.random(rows) < 0.4
    columns = {
        "age": [str(age) for age in random.integers(20, 90, rows)],
        "dose": [f"{dose:.2f}" if place % 9 else "" for place, dose in enumerate(random.gamma(2, 3, rows))],
        "visits": [str(count) for count in random.poisson(2, rows)],
        "admitted": [f"{2019 + day % 6}-{day % 12 + 1:02}-{day % 28 + 1:02}" for day in random.integers(0, 999, rows)],
        "smoker": [("no", "yes")[place] for place in random.integers(0, 2, rows)],
        "stage": [("early", "late", "middle")[place] for place in random.integers(0, 3, rows)],
        "ill": [("no", "yes")[one] if words else "01"[one] for one in ill.astype(int)],
    }
    return Rows(columns, "ill", ("yes",) if words else ("1",))


def accented(table: Rows) -> Rows:
    """The table with an accent in each word, and in the label."""
    for column in dict.fromkeys([*table.texts(), table.label]):
        table.columns[column] = [cell and f"{cell}{ACCENTED}" for cell in table.columns[column]]
    table.positive = tuple(f"{text}{ACCENTED}" for text in table.positive)
    return table


def drafted(table: Rows, path: Path) -> tuple[Schema, list[str], Path]:
    """The draft of a table, and its file."""
    file = table.write(path)
    schema, notes = infer(file, table.label, table.positive)
    return schema, notes, file


def counts(notes: list[str], column: str) -> bool:
    """Whether a note names the column and has a count."""
    return any(repr(column) in note and re.search(r"\d", note.replace(repr(column), "")) for note in notes)


def check_damage(table: Rows, damage, directory: Path) -> list[str]:
    """The columns that changed, each with a note. Asserts that none does without one, and that no label changes."""
    whole = accented(table.copy()) if damage is decomposed else table.copy()
    schema, _, file = drafted(whole, directory / "whole.csv")
    right = load(file, schema).records
    broken = whole.copy()
    touched = damage(broken)
    found, notes, file = drafted(broken, directory / "broken.csv")
    records = load(file, found).records
    is_known = records.usable & right.usable
    assert (records.labels[is_known] == right.labels[is_known]).all()
    before, after = ({feature.column: feature for feature in each.features} for each in (schema, found))
    changed = [
        column
        for column in {**before, **after}
        if column not in before or column not in after or type(before[column]) is not type(after[column])
    ]
    lost = set(found.label.positive + (found.label.negative or ())) < set(broken.columns[broken.label]) - {""}
    changed += [column for column in [broken.label] if lost]
    assert [column for column in changed if not counts(notes, column)] == []
    if damage in ADDED:
        assert not set(after) & set(touched)
        assert all(counts(notes, column) for column in touched)
    elif changed:
        assert set(changed) <= set(touched)
    return changed


@pytest.mark.variants(3)
@pytest.mark.parametrize("words", [True, False], ids=["words", "numbers"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_damage_of_a_made_table_is_silent(tmp_path, damage, words):
    check_damage(made(words), damage, tmp_path)


@pytest.mark.parametrize(("damage", "kind"), [(days_first, None), (some_months_first, DateFeature)])
def test_dates_that_are_written_otherwise_are_counted(tmp_path, damage, kind):
    table = made(words=True)
    assert damage(table) == ["admitted"]
    schema, notes, file = drafted(table, tmp_path / "broken.csv")
    assert {each.column: type(each) for each in schema.features}.get("admitted") is kind
    assert counts(notes, "admitted")
    # A row whose date is not understood is left out, and its date is never guessed.
    assert load(file, schema).report.zero_vectors == (0 if kind is None else 8)
