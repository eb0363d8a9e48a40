"""What a person chooses of a drafted schema: columns that are left out, and columns of codes as categories."""

import json

import pytest

from dpcore.errors import ConfigurationError, DataError
from parties.data.dataset import check
from parties.data.schema_draft import infer, parsed_category
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
    refused("did you mean 'stage'", DataError, excluded=["stages"])
    refused("did you mean 'stage'", DataError, categories={"stages": None})
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
