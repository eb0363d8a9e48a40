"""Several labels in one schema file: each label's schema is that of a file without the others."""

from dataclasses import replace

import pytest

from dpcore.errors import SchemaError
from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema, SchemaFieldError
from dpcore.records.shared_schema import MOST_LABELS, SharedSchema, schema_words, shared_differences
from radobase.schema_files import load_schema, load_shared, schema_of

START = 'schema_version = 5\nname = "stays"\ntexts = []\n'
FEATURES = """
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""
BACK = '[[labels]]\nname = "back"\ncolumn = "readmitted"\npositive = ["yes"]\nmissing = "zero-vector"\n'
DAYS = '[[labels]]\ntype = "number"\ncolumn = "days"\nlower = 0.0\nupper = 60.0\n'
BOTH = START + BACK + DAYS + FEATURES
ALONE = {
    "back": START + BACK.replace("[[labels]]", "[label]").replace('name = "back"\n', "") + FEATURES,
    "days": START + DAYS.replace("[[labels]]", "[label]") + FEATURES,
}


def test_each_label_has_the_schema_of_a_file_without_the_others():
    shared = SharedSchema.from_toml(BOTH)
    assert shared.labels == ("back", "days")
    for name, text in ALONE.items():
        alone = Schema.from_toml(text)
        assert shared.about(name) == alone
        assert shared.about(name).digest == alone.digest
    # One label of two classes is of version 1 wherever it is written, so that digests of old files hold.
    assert shared.about("back").version == 1
    assert shared.about("back").digest != shared.about("days").digest != shared.digest


def test_one_label_is_as_before(tmp_path):
    (tmp_path / "s.toml").write_text(ALONE["back"])
    alone = Schema.from_toml(ALONE["back"])
    shared = load_shared(tmp_path / "s.toml")
    assert (shared.labels, shared.digest) == (("readmitted",), alone.digest)
    assert load_schema(tmp_path / "s.toml") == load_schema(tmp_path / "s.toml", "readmitted") == alone
    assert shared.to_toml() == alone.to_toml()
    assert shared.others == ()


def test_a_label_is_named_where_there_are_several(tmp_path):
    (tmp_path / "s.toml").write_text(BOTH)
    with pytest.raises(SchemaError, match="has 2 labels, 'back', 'days': name one"):
        load_schema(tmp_path / "s.toml")
    with pytest.raises(SchemaError, match="no label 'bakc'; did you mean 'back'"):
        schema_of(tmp_path / "s.toml", "bakc")
    with pytest.raises(
        SchemaFieldError, match=r"labels: are 'back' and 'days', .* Schema.from_toml\(text, label='back'\)"
    ):
        Schema.from_toml(BOTH)
    assert Schema.from_toml(BOTH, label="days") == Schema.from_toml(ALONE["days"])
    with pytest.raises(SchemaError, match="no label 'day'; did you mean 'days'"):
        Schema.from_toml(BOTH, label="day")
    with pytest.raises(SchemaError, match="canonical"):
        Schema.from_canonical(b'{"labels":[]}')


def test_it_reads_back_as_it_was_written_and_the_order_does_not_matter():
    shared = SharedSchema.from_toml(BOTH)
    assert SharedSchema.from_toml(shared.to_toml(["a note"])) == shared
    turned = SharedSchema.from_toml(START + DAYS + BACK + FEATURES)
    assert turned.labels == ("days", "back")
    assert turned.digest == shared.digest
    assert shared_differences(turned, shared) == []
    assert "labels 'back', 'days', digest" in schema_words(shared)


def test_differences_name_the_label():
    shared = SharedSchema.from_toml(BOTH)
    other = SharedSchema.from_toml(BOTH.replace("60.0", "90.0").replace("100.0", "120.0"))
    found = {(each.field, each.mine, each.theirs) for each in shared_differences(shared, other)}
    assert found == {("labels.days.upper", "60.0", "90.0"), ("features.age.upper", "100.0", "120.0")}
    one = SharedSchema.from_toml(START + BACK + FEATURES)
    assert [each.field for each in shared_differences(shared, one)] == ["labels.days"]
    assert shared.nearest_to(other.about("days")) == shared.about("days")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOTH.replace("= 5", "= 4"), "labels: needs schema_version = 5"),
        (START + BACK + '[label]\ncolumn = "x"\npositive = ["1"]\n' + FEATURES, "labels: stands beside"),
        (START + "labels = []\n" + FEATURES, r"labels: \[\] is not a list of tables; write \[\[labels\]\]"),
        (START + "labels = [3]\n" + FEATURES, r"labels: \[3\] is not a list of tables"),
        (START + "labels = 3\n" + FEATURES, r"labels: 3 is not a list of tables; write \[\[labels\]\]"),
        (START + "labels = 3\n" + BACK.replace("[[labels]]", "[label]"), "labels: 3 is not a list of tables"),
        (START.replace("5", "1") + "labels = 3\n" + FEATURES, "labels: 3 is not a list of tables"),
        (
            BOTH + DAYS.replace("[[labels]]", '[[labels]]\nname = "long"').replace("60", "90"),
            "labels.long: is of the column",
        ),
        (START + BACK + BACK + FEATURES, "labels.back: is the name of two labels"),
        (START + BACK + BACK.replace('"back"', '"again"') + FEATURES, "labels.again: is the same label as 'back'"),
        (START + BACK.replace('"back"', "3") + FEATURES, r"labels\[1\].name: 3 is not a text"),
        (START + '[[labels]]\npositive = ["yes"]\n' + FEATURES, "labels.1.column: is missing"),
        (BOTH.replace("lower = 0.0\nupper = 60", "lower = 0.0\nuper = 60"), "labels.days.uper: is not a key"),
        (BOTH.replace('"days"', '"age"'), "features.age.column: 'age' is the label's column"),
        (START + FEATURES, "label: is missing"),
    ],
)
def test_a_wrong_file_is_refused_by_a_sentence(text, says):
    with pytest.raises(SchemaFieldError, match=says):
        SharedSchema.from_toml(text)


def test_labels_share_the_features_and_have_a_number():
    schema = Schema.from_toml(ALONE["back"])
    other = replace(schema, features=(RealFeature(name="age", lower=0.0, upper=1.0),))
    with pytest.raises(SchemaFieldError, match="other features"):
        SharedSchema({"a": schema, "b": replace(other, label=Label(column="x", positive=("1",)))})
    many = {f"l{i}": replace(schema, label=Label(column=f"l{i}", positive=("1",))) for i in range(MOST_LABELS + 1)}
    with pytest.raises(SchemaFieldError, match="has 21 labels"):
        SharedSchema(many)
    assert len(SharedSchema(dict(list(many.items())[1:])).schemas) == MOST_LABELS


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            '[[labels]]\nname = "long"\ncolumn = "days"\npositive = ["8", "9"]\n',
            "'days' and 'long' of one column, 'days'",
        ),
        ('[[labels]]\nname = "rate"\ntype = "count"\ncolumn = "days"\nupper = 60\n', "'days' and 'rate' of one column"),
    ],
)
def test_labels_of_one_column_are_allowed_where_they_are_about_different_things_and_pointed_out(second, words):
    assert words in schema_words(SharedSchema.from_toml(START + DAYS + second + FEATURES))


def test_two_causes_of_one_column_are_two_labels():
    cause = '[[labels]]\nname = "{0}"\ntype = "event"\ncolumn = "months"\nevent = "status"\nhappened = ["{0}"]\n'
    cause += "borders = [1.0]\n"
    text = START + cause.format("death") + cause.format("relapse")
    assert SharedSchema.from_toml(text + FEATURES).labels == ("death", "relapse")
    with pytest.raises(SchemaFieldError, match=r"labels.again: is of the column 'months' .* keep one of the two"):
        SharedSchema.from_toml(
            text + cause.format("death").replace('= "death"', '= "again"').replace("1.0", "2.0") + FEATURES
        )
