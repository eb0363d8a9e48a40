"""Drafted labels: what is not understood is in neither class, and everything is said with counts."""

import pytest

from dpcore.errors import ConfigurationError
from parties.data.schema_draft import infer


def drafted(tmp_path, cells, positive=None):
    """The label of a draft, and all notes but the first."""
    path = tmp_path / "data.csv"
    rows = [f"{place * 7 % 13},{cell}" for place, cell in enumerate(cells)]
    path.write_text("\n".join(["x,ill", *rows, ""]), encoding="utf-8")
    schema, notes = infer(path, "ill", positive)
    return schema.label, "\n".join(notes[1:])


@pytest.mark.parametrize(
    ("cells", "positive", "both", "says"),
    [
        (["1", "0", "NA", "?"], ["1"], (("1",), ("0",)), "'?' (20 rows), 'NA' (20): a mark for a missing value"),
        (["1", "0", "NA", ""], None, (("1",), ("0",)), "'NA' (20 rows): a mark for a missing value"),
        (["True", "False", "None"], ["True"], (("True",), ("False",)), "'None' (20 rows): a mark"),
        (["yes", "Yes", "no", "NO"], ["yes"], (("Yes", "yes"), ("NO", "no")), "'Yes' (20 rows), 'yes' (20)"),
        (["1", "1.0", "0", "0.0"], ["1"], (("1", "1.0"), ("0", "0.0")), "'1' (20 rows), '1.0' (20)"),
        (["yes", "no", "perhaps"], ["yes"], (("yes",), ("no",)), "'perhaps' (20 rows): in neither class"),
        (["1", "0", "x"], ["1"], (("1",), ("0",)), "'x' (20 rows): in neither class"),
        (["1", "0", "01"], ["1"], (("1",), ("0",)), "'01' (20 rows): in neither class"),
        (["ill"] * 15 + ["well"] * 14 + ["9"], ["ill"], (("ill",), ("well",)), "'9' (20 rows): in neither class"),
        (["1"] * 25 + ["2"] * 24 + ["3"], ["1"], (("1",), ("2",)), "'3' (20 rows): in neither class"),
        (
            ["+", "-"],
            ["+"],
            (("+",), ("-",)),
            "positive where it is '+' (20 rows), and negative where it is '-' (20 rows)",
        ),
        (
            ["0", "1", "2", "3"],
            ["0"],
            (("0",), ("1", "2", "3")),
            "negative where it is '1' (20 rows), '2' (20), '3' (20)",
        ),
        (["none", "mild", "severe"], ["severe"], (("severe",), ("mild",)), "'none' (20 rows): a mark"),
        (["ja\u00a0", "ja", "nein"], ["ja"], (("ja",), ("nein",)), "'ja' (40 rows)"),
    ],
)
def test_what_each_text_of_a_label_becomes(tmp_path, cells, positive, both, says):
    label, notes = drafted(tmp_path, cells * 20, positive)
    assert (label.positive, label.negative) == both
    assert label.missing == "zero-vector"
    assert says in notes


@pytest.mark.parametrize(
    ("cells", "positive", "says"),
    [
        (["1", "NA"], ["1"], "has only 'NA' (1 row) beside the positive values"),
        (["1", "1"], ["1"], "has no other value than the positive ones"),
        (["1", "NA"], None, "has 1 different values beside marks for missing values, 'NA' (1 cell), not two"),
        (["Yes", "No"], ["yes"], "never has the positive value 'yes'; did you mean 'Yes'"),
        (["1.0", "0.0"], ["1"], "never has the positive value '1'; did you mean '1.0'"),
        ([f"code {place}" for place in range(1001)], ["code 7"], "has over 1000 different values"),
    ],
)
def test_a_label_without_two_classes_is_refused(tmp_path, cells, positive, says):
    with pytest.raises(ConfigurationError) as refused:
        drafted(tmp_path, cells, positive)
    assert says in str(refused.value)


def drafted_classes(tmp_path, cells, **options):
    path = tmp_path / "data.csv"
    rows = [f"{place * 7 % 13},{cell}" for place, cell in enumerate(cells)]
    path.write_text("\n".join(["x,kind", *rows, ""]), encoding="utf-8")
    schema, notes = infer(path, "kind", target="classes", **options)
    return schema, "\n".join(notes[1:])


def test_a_label_of_classes_lists_all_texts_but_marks_and_rarer_spellings(tmp_path):
    schema, notes = drafted_classes(tmp_path, ["10", "2", "1", "2", "NA", "", "b", "B", "b"] * 3)
    assert schema.version == 4
    assert schema.label.values == ("1", "2", "10", "b")
    assert (schema.label.missing, schema.label.unlisted) == ("zero-vector", "zero-vector")
    assert "has 4 classes: '2' (6 rows), 'b' (6), '1' (3)" in notes
    assert "'NA' (3 rows): a mark for a missing value" in notes
    assert "'B' (3 rows): in neither class" in notes


@pytest.mark.parametrize(
    ("cells", "options", "sentence"),
    [
        (["a", "a", "NA"], {}, "has 1 different values, and a label has 2 to 100 classes"),
        ([str(place) for place in range(150)], {}, "different values, and a label has 2 to 100 classes"),
        (["a", "b"], {"positive": ["a"]}, "no positive values"),
    ],
)
def test_a_label_of_classes_that_cannot_be_is_refused(tmp_path, cells, options, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        drafted_classes(tmp_path, cells, **options)
