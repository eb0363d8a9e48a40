"""Drafts of labels that are times to an event: which texts mean what, what is left out, and what is said of it."""

from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from parties.data.schema_draft import infer

DIED = ["yes", "no", "Yes", "?", "no", "alive", "", "yes", "no", "yes", "no", "yes"]
MONTHS = ["3", "4.5", "9", "1", "0", "2", "5", "", "7", "n/a", "8", "x"]


def drafted(path: Path, died: list[str], months: list[str] | None = None, **options):
    """Named values of the label, and the notes."""
    months = months or [str(place + 1) for place in range(len(died))]
    rows = zip(months, died, strict=True)
    lines = [f"{place * 7 % 5};{time};{text}" for place, (time, text) in enumerate(rows)]
    (path / "table.csv").write_text("a;months;died\n" + "\n".join(lines) + "\n")
    schema, notes = infer(path / "table.csv", "months", target="event", event="died", **options)
    return schema.label, "\n".join(notes)


def test_marks_for_a_missing_value_are_neither_the_event_nor_censored(tmp_path):
    label, notes = drafted(tmp_path, DIED, positive=["yes"])
    assert (label.happened, label.censored) == (("Yes", "yes"), ("alive", "no"))
    assert (label.missing, label.unlisted, label.unreadable) == ("zero-vector",) * 3
    assert (
        "happened where 'died' is 'yes' (4 rows), 'Yes' (1); censored where it is 'no' (4 rows), 'alive' (1)" in notes
    )
    assert "'died' has spellings of these texts too, 'Yes' (1 row): the draft takes them for the event" in notes
    assert "'died' is '?' (1 row): a mark for a missing value. These rows become zero vectors." in notes
    assert "1 cell of 'died' is empty: such rows become zero vectors." in notes


def test_times_that_are_none_are_counted(tmp_path):
    _, notes = drafted(tmp_path, DIED, MONTHS, positive=["yes"])
    assert "Rows without a positive 'months' become zero vectors (1 of those that were looked at)" in notes
    assert "2 cells of 'months' are no number: such rows become zero vectors" in notes
    assert "1 cell of 'months' is empty" in notes


@pytest.mark.parametrize(
    ("died", "happened"),
    [
        (["1", "0", "NA"], ("1",)),
        (["1.0", "0.0", ""], ("1.0",)),
        (["True", "False"], ("True",)),
        (["YES", "no", "yes"], ("YES", "yes")),
    ],
)
def test_texts_that_need_no_explanation(tmp_path, died, happened):
    assert drafted(tmp_path, died * 3)[0].happened == happened


@pytest.mark.parametrize("died", [["dead", "alive"], ["1", "2"], ["yes", "no", "lost"]])
def test_others_are_asked_for(tmp_path, died):
    with pytest.raises(ConfigurationError, match=r"mean that the event happened\? It has .*: name them \(--positive\)"):
        drafted(tmp_path, died * 3)


def test_a_label_without_censored_rows_lists_none(tmp_path):
    label, notes = drafted(tmp_path, ["dead"] * 5, positive=["dead"])
    assert label.censored is None
    assert "no row is censored" in notes


def test_many_texts_are_not_listed(tmp_path):
    label, notes = drafted(
        tmp_path, [*("dead" for _ in range(5)), *(f"w{place}" for place in range(31))], positive=["dead"]
    )
    assert label.censored is None
    assert "all other texts count as censored, also marks for missing values" in notes


def test_a_decimal_comma_is_named_as_the_cause(tmp_path):
    with pytest.raises(ConfigurationError, match="'months' has no times: it has 3 numbers of 3 with a comma; write"):
        drafted(tmp_path, ["1", "0", "1"], ["1,5", "2,5", "3,0"])
    with pytest.raises(ConfigurationError, match="'months' has no times: no cell is a positive number"):
        drafted(tmp_path, ["1", "0", "1"], ["-1", "0", "x"])
