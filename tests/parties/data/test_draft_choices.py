"""What a person chooses of a drafted schema: columns that are left out, and columns of codes as categories."""

import json

import pytest

from dpcore.errors import ConfigurationError, DataError
from parties.data.dataset import check
from parties.data.schema_draft import infer, parsed_category, parsed_prefix
from radobase.schema_files import load_shared
from radofed.cli.entry_point import run

ROWS = "age,stage,site,ill\n" + "".join(
    f"{20 + row * 7 % 31}.5,{row % 4 or ''},{'abc'[row % 3]},{'yes' if row % 3 else 'no'}\n" for row in range(40)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(ROWS)
    return path


def features(schema):
    return {feature.column: feature for feature in schema.features}


def test_an_excluded_column_is_no_feature_and_said_so(table):
    schema, notes = infer(table, "ill", ["yes"], excluded=["site"])
    assert list(features(schema)) == ["age", "stage"]
    assert "'site' is left out, as asked." in notes
    assert infer(table, excluded=["ill"], positive=["a"])[0].label.column == "site"


def test_a_column_of_codes_is_a_category_as_asked(table):
    assert features(infer(table, "ill", ["yes"])[0])["stage"].type == "real"
    stage = features(infer(table, "ill", ["yes"], categories={"stage": None})[0])["stage"]
    assert (stage.type, stage.values, stage.missing, stage.impute) == ("category", ("1", "2", "3"), "impute", "1")


def test_listed_values_do_not_depend_on_the_data_and_what_differs_is_counted(table):
    schema, notes = infer(table, "ill", ["yes"], categories={"stage": ("0", "2", "1")})
    stage = features(schema)["stage"]
    assert (stage.values, stage.unknown) == (("0", "2", "1"), "zero")
    assert "'stage' never has '0' in this table." in notes
    assert any(note.startswith("'stage' has 10 cells with another text than the listed ones") for note in notes)
    assert check(schema, table).zero_vectors == 0


def test_choices_that_no_draft_can_have_are_refused(table, tmp_path):
    def refused(sentence, error=ConfigurationError, **options):
        with pytest.raises(error, match=sentence):
            infer(table, "ill", ["yes"], **options)

    refused("column 'ill' holds what was to be excluded", excluded=["ill"])
    refused("but there is 'stage'", DataError, excluded=["stages"])
    refused("but there is 'stage'", DataError, categories={"stages": None})
    refused("'ill' is the label's column", categories={"ill": None})
    refused("holds what was to be excluded, so it is no feature", excluded=["site"], categories={"site": None})
    refused("so it cannot be of the label", target="event", event="site", excluded=["site"])
    lines = ROWS.splitlines()
    table.write_text("\n".join([f"{lines[0]},none", *(f"{line}," for line in lines[1:])]))
    refused("category 'none' has no text; list its values: none=VALUE,VALUE", categories={"none": None})
    assert features(infer(table, "ill", ["yes"], categories={"none": ("a", "b")})[0])["none"].impute is None
    table.write_text("\n".join([f"{lines[0]},many", *(f"{line},{n}" for n, line in enumerate(lines[1:] * 30))]))
    refused("category 'many' has over 1000 different texts", categories={"many": None})


def test_a_category_is_a_column_with_or_without_values():
    assert parsed_category("stage") == ("stage", None)
    assert parsed_category("a=b=1, 2") == ("a=b", ("1", "2"))
    for wrong in ("=1,2", "stage=", "stage=1,,2", "stage=1,1"):
        with pytest.raises(ConfigurationError, match="write COLUMN, or COLUMN=VALUE,VALUE"):
            parsed_category(wrong)


def test_the_command_takes_both_options_again_and_again(table, capsys):
    chosen = ["--exclude", "age", "--exclude", "site", "--category", "stage=1,2,3"]
    command = ["schema", "infer", str(table), "--label", "ill", "--positive", "yes", *chosen]
    assert run([*command, "--format", "json"]) == 0
    schema = json.loads(capsys.readouterr().out)["data"]["schema"]
    assert 'values = ["1", "2", "3"]' in schema
    assert "[[features]]" in schema
    assert 'name = "age"' not in schema
    assert run([*command, "--category", "stage"]) == 4
    assert "category 'stage' is named twice" in capsys.readouterr().err
    assert run([*command, "--prefix", "stage=1", "--prefix", "stage=2"]) == 4
    assert "prefix 'stage' is named twice" in capsys.readouterr().err


def diagnoses(path, rows=240, empty=0):
    codes = [f"{'EIJ'[row % 3]}{row % 17:02}.{row % 2}" for row in range(rows)]
    cells = ["" if row < empty else code for row, code in enumerate(codes)]
    lines = [f"{cell},{20 + 7 * row % 31}.5,{'yes' if row % 3 else 'no'}" for row, cell in enumerate(cells)]
    path.write_text("\n".join(["diagnosis,age,ill", *lines]))


def test_a_column_of_many_codes_is_proposed_as_a_category_by_its_prefix(table):
    diagnoses(table, empty=5)
    schema, notes = infer(table, "ill", ["yes"])
    assert list(features(schema)) == ["age"]
    (note,) = (note for note in notes if "'diagnosis' is left out" in note)
    assert "by their first 3 characters they are 51 values: --prefix diagnosis=3 makes them a category" in note
    schema, notes = infer(table, "ill", ["yes"], prefixes={"diagnosis": 3})
    found = features(schema)["diagnosis"]
    assert (schema.version, found.prefix, len(found.values), found.missing) == (5, 3, 51, "impute")
    assert check(schema, table).zero_vectors == 0
    listed = infer(table, "ill", ["yes"], prefixes={"diagnosis": 1}, categories={"diagnosis": ("E", "I")})
    assert features(listed[0])["diagnosis"].values == ("E", "I")


def test_the_prefix_of_more_texts_than_are_counted_says_so(table):
    lines = [f"A{row % 100:02}.{row},{'yes' if row % 3 else 'no'}" for row in range(1100)]
    table.write_text("\n".join(["code,ill", *lines]))
    _, notes = infer(table, "ill", ["yes"], prefixes={"code": 3})
    assert any("the values are the first 3 characters of some of them" in note for note in notes)


def test_a_prefix_is_a_number_of_characters():
    assert parsed_prefix("a=b=3") == ("a=b", 3)
    for wrong in ("a", "a=", "=3", "a=x", "a=\u0663", "a=1000"):
        with pytest.raises(ConfigurationError, match="write COLUMN=NUMBER"):
            parsed_prefix(wrong)


def test_a_draft_may_have_several_labels(table, tmp_path, capsys):
    drafted = tmp_path / "s.toml"
    labels = ("--label", "ill", "--label", "age", "--positive", "ill=yes", "--target", "age=number")
    assert run(["schema", "infer", str(table), *labels, "--bounds", "age=0:99", "-o", str(drafted)]) == 0
    shared = load_shared(drafted)
    assert shared.labels == ("ill", "age")
    assert (shared.about("ill").label.positive, shared.about("age").label.upper) == (("yes",), 99.0)
    assert [feature.column for feature in shared.first.features] == ["stage", "site"]
    assert check(shared, table).usable_by_label == {"ill": 40, "age": 40}
    capsys.readouterr()
    assert run(["schema", "check", str(drafted), str(table), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert (found["labels"], found["digest"]) == (["ill", "age"], shared.digest.hex())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--label", "ill", "--label", "ill"), "a label is named twice"),
        (("--label", "ill", "--label", "age", "--target", "number"), "of none of the labels ill, age"),
        (("--label", "ill", "--label", "age", "--target", "age=count", "--target", "age=number"), "given twice"),
    ],
)
def test_options_that_fit_no_label_are_refused(table, capsys, options, says):
    assert run(["schema", "infer", str(table), *options]) != 0
    assert says in " ".join(capsys.readouterr().err.split())
