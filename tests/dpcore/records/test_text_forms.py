"""The form in which texts are compared: its steps, texts of the same form, and schemas that state it."""

import hashlib
import time
import unicodedata

import numpy as np
import pytest

from dpcore.errors import SchemaError
from dpcore.records.encoding import Texts, WantedColumn, encode
from dpcore.records.schema import Schema, SchemaFieldError
from dpcore.records.texts import BLANKS, LONGEST, form_of, same_form

TOML = """
schema_version = 2
name = "stages"
bias = false
texts = ["nfc", "trim"]

[label]
column = "ill"
positive = ["sí"]
negative = ["no"]
missing = "zero-vector"

[[features]]
name = "stage"
type = "category"
values = ["Genève", "Orléans"]
missing = "zero-vector"
unknown = "zero"

[[features]]
name = "smoker"
type = "boolean"
true = ["já"]
false = ["no"]
missing = "zero-vector"
unknown = "zero-vector"
"""
SCHEMA = Schema.from_toml(TOML)
ANY_CASE = Schema.from_toml(TOML.replace('["nfc", "trim"]', '["trim", "case", "nfc"]'))
FIRST = Schema.from_toml(
    TOML.replace("schema_version = 2", "schema_version = 1").replace('texts = ["nfc", "trim"]', "")
)


def decomposed(text):
    return unicodedata.normalize("NFD", text)


def encoded(schema, stage, smoker="no", ill="no"):
    cells = {
        WantedColumn(column, "texts"): Texts(np.array([0]), (text,))
        for column, text in (("stage", stage), ("smoker", smoker), ("ill", ill))
    }
    return encode(schema, cells, 1, label=True)


@pytest.mark.parametrize(
    ("steps", "text", "form"),
    [
        ((), " Gene\u0300ve\u00a0", " Gene\u0300ve\u00a0"),
        (("nfc",), "Gene\u0300ve\u00a0", "Genève\u00a0"),
        (("trim",), f"{BLANKS}a b{BLANKS}", "a b"),
        (("trim",), "a\u00a0b\u200c", "a\u00a0b\u200c"),
        (("case",), "STRASSE", "strasse"),
        (("case",), "Straße", "strasse"),
        (("nfc", "trim", "case"), "\ufeffGENE\u0300VE ", "genève"),
        (("case", "nfc"), "\u1e9b\u0323", "\u1e69"),
    ],
)
def test_the_steps(steps, text, form):
    assert form_of(steps)(text) == form
    assert form_of(steps)(form) == form


def test_blanks_are_those_of_unicode_and_three_without_width():
    # Python's isspace also has four separators of information, which are no White_Space.
    spaces = {chr(point) for point in range(0x110000) if chr(point).isspace()} - set("\x1c\x1d\x1e\x1f")
    assert set(BLANKS) == spaces | {"\u200b", "\u2060", "\ufeff"}
    assert len(BLANKS) == len(set(BLANKS))


MARKS = "\u0300\u0316" * 100_000


def test_a_long_text_is_left_as_it_is_and_takes_no_time():
    """Composing takes time quadratic in combining marks: this text would take minutes, in a schema or in one cell."""
    form, begun = form_of(("nfc", "trim", "case")), time.process_time()
    assert form(f"\u00a0A{MARKS}") == f"\u00a0A{MARKS}"
    longest = "\u00a0" + "A" * (LONGEST - 1)
    assert form(longest) == "a" * (LONGEST - 1)
    assert form(longest + "A") == longest + "A"
    schema = Schema.from_toml(TOML.replace('"Orléans"', f'"Orléans", "a{MARKS}"'))
    assert Schema.from_canonical(schema.canonical_bytes()) == schema
    assert encoded(schema, f"a{MARKS}").x[0].tolist() == [0, 0, 1, -1]
    assert time.process_time() - begun < 2


@pytest.mark.more
def test_many_texts_of_marks_are_read_quickly():
    """As many texts of the longest kind as a query's schema may have."""
    values = ", ".join(f'"{number:04}{MARKS[: LONGEST - 4]}"' for number in range(1000))
    begun = time.process_time()
    Schema.from_toml(TOML.replace('"Orléans"', values))
    assert time.process_time() - begun < 10


def test_the_first_two_texts_of_the_same_form_are_found():
    assert same_form(["a", "b", "A", "B"], ("case",)) == ("a", "A")
    assert same_form(["a", "a", "A"], ("nfc",)) is None


@pytest.mark.parametrize(
    "cell", ["Genève", decomposed("Genève"), "\u00a0Genève\u2009", f"\ufeff{decomposed('Genève')}\u200b"]
)
def test_a_cell_of_the_same_form_is_the_listed_value(cell):
    assert encoded(SCHEMA, cell).x[0, :2].tolist() == [1, 0]
    assert encoded(FIRST, cell).x[0, :2].tolist() == [float(cell == "Genève"), 0]


def test_labels_and_booleans_are_compared_in_the_same_form():
    cells = [decomposed("sí") + "\u00a0", decomposed("já") + "\u3000"]
    for schema, usable in ((SCHEMA, True), (FIRST, False)):
        found = encoded(schema, "Genève", smoker=cells[1], ill=cells[0])
        assert found.usable.tolist() == [usable]
    assert encoded(SCHEMA, "Genève", smoker=cells[1], ill=cells[0]).labels.tolist() == [1]


def test_case_counts_unless_the_schema_says_otherwise():
    for schema, hit in ((SCHEMA, 0), (ANY_CASE, 1)):
        found = encoded(schema, decomposed("GENÈVE"), smoker="JÁ", ill="SÍ")
        assert found.usable.tolist() == [bool(hit)]
        assert found.x[0].tolist() == [hit, 0, hit]


@pytest.mark.parametrize(("schema", "missing"), [(SCHEMA, True), (FIRST, False)])
def test_a_cell_of_blanks_is_missing(schema, missing):
    # An unlisted stage leaves zeros, a missing one leaves the row out.
    assert encoded(schema, "\u00a0\u200b").usable.tolist() == [not missing]


def test_the_texts_of_a_schema_are_kept_in_their_form():
    """So that two files whose texts differ in their Unicode form, or in blanks, have one digest. Case is shown."""
    turned = decomposed(TOML).replace("schema_version", "schema_version").replace('"no"', '"no\u00a0"')
    assert Schema.from_toml(turned) == SCHEMA
    assert Schema.from_toml(turned).digest == SCHEMA.digest
    assert ANY_CASE.coordinates == SCHEMA.coordinates == ("stage=Genève", "stage=Orléans", "smoker")
    assert ANY_CASE.texts == ("nfc", "trim", "case")
    assert len({ANY_CASE.digest, SCHEMA.digest, FIRST.digest}) == 3


@pytest.mark.parametrize(
    ("steps", "old", "new", "field", "both"),
    [
        ("nfc", '"Genève", ', f'"Genève", "{decomposed("Genève")}", ', "features.stage.values", ("Genève",)),
        ("trim", '"Genève", ', '"Genève", "Genève\u00a0", ', "features.stage.values", ("'Genève'", r"'Genève\xa0'")),
        ("case", '"Genève", ', '"Genève", "GENÈVE", ', "features.stage.values", ("'Genève'", "'GENÈVE'")),
        ("case", '["sí"]', '["No"]', "label.positive and negative", ("'No'", "'no'")),
        ("case", '["sí"]', '["sí", "SÍ"]', "label.positive and negative", ("'sí'", "'SÍ'")),
        ("case", '["já"]', '["NO"]', "features.smoker.true and false", ("'NO'", "'no'")),
    ],
)
def test_texts_of_the_same_form_are_refused_and_named(steps, old, new, field, both):
    text = TOML.replace(old, new).replace('["nfc", "trim"]', f'["{steps}"]')
    with pytest.raises(SchemaFieldError) as caught:
        Schema.from_toml(text)
    assert caught.value.field == field
    assert all(said in caught.value.sentence for said in both)
    Schema.from_toml(text.replace(f'["{steps}"]', "[]"))


def test_a_schema_without_the_fields_is_of_version_1_and_keeps_its_digest():
    """A schema of radofed 0.2.1: the digest that its party states."""
    assert FIRST.version == 1
    assert b"texts" not in FIRST.canonical_bytes()
    same = Schema.from_toml(TOML.replace('["nfc", "trim"]', "[]"))
    assert same == FIRST
    assert same.digest == FIRST.digest == hashlib.sha256(b"rado.v1/schema\0" + FIRST.canonical_bytes()).digest()
    assert same.to_toml() == FIRST.to_toml()


def test_the_canonical_form_of_version_2():
    assert SCHEMA.version == 2
    assert SCHEMA.canonical_bytes().decode() == (
        '{"bias":false,"features":[{"column":"stage","impute":null,"missing":"zero-vector","name":"stage",'
        '"type":"category","unknown":"zero","values":["Genève","Orléans"]},{"column":"smoker","false":["no"],'
        '"impute":null,"missing":"zero-vector","name":"smoker","true":["já"],"type":"boolean",'
        '"unknown":"zero-vector"}],"label":{"column":"ill","missing":"zero-vector","negative":["no"],'
        '"positive":["sí"]},"name":"stages","schema_version":2,"texts":["nfc","trim"]}'
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"texts":["nfc","trim"]', '"texts":["trim","nfc"]'),
        ('"texts":["nfc","trim"]', '"texts":["nfc","nfc","trim"]'),
        ('"texts":["nfc","trim"]', '"texts":[]'),
        (',"texts":["nfc","trim"]', ""),
        ('"Genève"', f'"{decomposed("Genève")}"'),
        ('"Genève"', '"Genève\u00a0"'),
        ('"schema_version":2', '"schema_version":1'),
    ],
)
def test_what_is_not_canonical_is_refused(old, new):
    text = SCHEMA.canonical_bytes().decode()
    assert old in text
    with pytest.raises(SchemaError):
        Schema.from_canonical(text.replace(old, new).encode())


@pytest.mark.parametrize(
    ("old", "new", "field", "sentence"),
    [
        ("schema_version = 2", "schema_version = 1", "texts", "needs schema_version = 2"),
        ('texts = ["nfc", "trim"]\n', "", "texts", 'is missing; write texts = ["nfc", "trim"], or []'),
        ('["nfc", "trim"]', '["nfkc"]', "texts", "'nfkc' is not a step; did you mean 'nfc'"),
        ('["nfc", "trim"]', '"nfc"', "texts", "is not a list of steps"),
        ('["nfc", "trim"]', "[1]", "texts", "1 is not a step"),
        (
            'unknown = "zero"\n',
            'unknown = "zero"\nunreadable = "impute"\n',
            "features.stage.unreadable",
            "is not a key",
        ),
    ],
)
def test_fields_of_version_2(old, new, field, sentence):
    with pytest.raises(SchemaFieldError) as caught:
        Schema.from_toml(TOML.replace(old, new))
    assert caught.value.field == field
    assert sentence in caught.value.sentence
