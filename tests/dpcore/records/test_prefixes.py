"""Categories by the first characters of a code, such as a diagnosis's: what they compare, and their schema."""

from dataclasses import replace

import numpy as np
import pytest

from dpcore.records.encoding import Texts, WantedColumn, encode
from dpcore.records.features import CategoryFeature, Label, SchemaFieldError
from dpcore.records.schema import Schema, differences

CODES = CategoryFeature(name="code", values=("E11", "I10", "J4"), prefix=3, unknown="zero", missing="zero-vector")
SCHEMA = Schema(name="clinic", label=Label(column="ill", positive=("yes",)), features=(CODES,), texts=("nfc", "trim"))


def indicators(schema, *texts):
    cells = {WantedColumn("code", "texts"): Texts(np.arange(len(texts)), texts)}
    encoded = encode(schema, cells, len(texts), label=False)
    return encoded.x[:, :-1].astype(int).tolist(), encoded.tallies[0]


def test_the_first_characters_after_the_form_are_the_value():
    found, tally = indicators(SCHEMA, "E11.9", "\u00a0I10", "E1", "J4", "J44", "e11")
    assert found == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert (tally.unlisted, tally.alike) == (3, 1)
    folded = replace(SCHEMA, texts=("trim", "case"))
    assert indicators(folded, "e11.9", " E11")[0] == [[1, 0, 0]] * 2


def test_a_schema_with_a_prefix_is_of_version_5_and_one_without_keeps_its_form():
    assert (SCHEMA.version, replace(SCHEMA, features=(replace(CODES, prefix=None),)).version) == (5, 2)
    for read in (Schema.from_toml(SCHEMA.to_toml()), Schema.from_canonical(SCHEMA.canonical_bytes())):
        assert (read, read.digest) == (SCHEMA, SCHEMA.digest)
    assert b'"prefix":3,' in SCHEMA.canonical_bytes()
    whole = replace(SCHEMA, features=(replace(CODES, prefix=None),))
    assert b"prefix" not in whole.canonical_bytes()
    assert [each.field for each in differences(SCHEMA, whole)] == ["features.code.prefix"]
    with pytest.raises(SchemaFieldError, match=r"features\.code\.prefix: needs schema_version = 5"):
        Schema.from_toml(SCHEMA.to_toml().replace("schema_version = 5", "schema_version = 4"))


def test_a_value_that_no_cell_could_have_and_a_prefix_that_is_none_are_refused():
    for changes, sentence in (
        ({"values": ("E119",)}, "'E119' has more than the 3 characters of prefix"),
        ({"prefix": 0}, "0 is no number of characters"),
        ({"prefix": 257}, "257 is no number of characters"),
        ({"prefix": True}, "True is no number of characters"),
    ):
        with pytest.raises(SchemaFieldError, match=sentence):
            replace(CODES, **changes)
    # Folded, the sharp s is two characters.
    sharp = replace(CODES, values=("A1\u00df",))
    with pytest.raises(SchemaFieldError, match="more than the 3 characters"):
        replace(SCHEMA, features=(sharp,), texts=("case",))


def test_an_exported_model_says_how_a_prefix_is_compared():
    assert replace(CODES, prefix=None).cell_rules == ()
    (rule,) = CODES.cell_rules
    assert "first code points of the cell's text" in rule
