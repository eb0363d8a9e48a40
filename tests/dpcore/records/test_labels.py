"""Labels of several classes: their form in schemas, what their cells mean, and what is refused."""

import hashlib

import numpy as np
import pytest

from dpcore.errors import SchemaError
from dpcore.records.coding import class_codes
from dpcore.records.encoding import CellError, Texts, WantedColumn, encode, encode_stored
from dpcore.records.features import BooleanFeature, Classes, Label, SchemaFieldError, several_classes, two_classes
from dpcore.records.records import Records, edges, labelled_rows
from dpcore.records.schema import Schema, differences

FLAG = BooleanFeature(name="f", true=("y",), false=("n",))
SPECIES = Classes(column="kind", values=("cat", "dog", "eel"), unlisted="zero-vector", missing="zero-vector")
SCHEMA = Schema(name="s", label=SPECIES, features=(FLAG,))
TOML = """schema_version = 4
name = "s"
bias = true
texts = []

[label]
type = "classes"
column = "kind"
values = ["cat", "dog", "eel"]
missing = "zero-vector"
unlisted = "zero-vector"

[[features]]
name = "f"
type = "boolean"
true = ["y"]
false = ["n"]
missing = "refuse"
unknown = "refuse"
"""


def cells(*labels: str | None) -> dict[WantedColumn, Texts]:
    texts = tuple(dict.fromkeys(label for label in labels if label is not None))
    codes = np.array([-1 if label is None else texts.index(label) for label in labels], dtype=np.int64)
    flags = Texts(np.zeros(len(labels), dtype=np.int64), ("y",))
    return {WantedColumn("kind", "texts"): Texts(codes, texts), WantedColumn("f", "texts"): flags}


def test_the_canonical_form_is_of_version_4_and_names_the_type():
    canonical = (
        b'{"bias":true,"features":[{"column":"f","false":["n"],"impute":null,"missing":"refuse","name":"f","true":["y"],'
        b'"type":"boolean","unknown":"refuse"}],"label":{"column":"kind","missing":"zero-vector","type":"classes",'
        b'"unlisted":"zero-vector","values":["cat","dog","eel"]},"name":"s","schema_version":4}'
    )
    assert SCHEMA.canonical_bytes() == canonical
    assert SCHEMA.digest == hashlib.sha256(b"rado.v1/schema\0" + canonical).digest()
    assert Schema.from_canonical(canonical) == SCHEMA
    assert SCHEMA.to_toml() == TOML
    assert Schema.from_toml(TOML) == SCHEMA


def test_a_label_of_two_classes_keeps_its_form():
    schema = Schema(name="s", label=Label(column="kind", positive=("cat",)), features=(FLAG,))
    assert schema.version == 1
    assert (
        b'"label":{"column":"kind","missing":"refuse","negative":null,"positive":["cat"]}' in schema.canonical_bytes()
    )
    assert any(each.field == "label.type" for each in differences(schema, SCHEMA))


def test_codes_are_places_and_rows_without_a_class_are_zero():
    found = encode(SCHEMA, cells("dog", "cat", None, "cow", "eel"), 5, label=True)
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 1, 2]
    assert found.usable.tolist() == [True, True, False, False, True]
    assert found.x.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0], [1, 1]]
    assert (found.tallies[-1].missing, found.tallies[-1].unlisted) == (1, 1)
    assert encode_stored(SCHEMA, cells("eel"), 1).labels.tolist() == [2]


@pytest.mark.parametrize(
    ("cell", "policy", "sentence"),
    [(None, "missing", "there is no label"), ("cow", "unlisted", "does not list in values")],
)
def test_a_cell_without_a_class_is_refused_by_default(cell, policy, sentence):
    schema = Schema(name="s", label=Classes(column="kind", values=("cat", "dog")), features=(FLAG,))
    with pytest.raises(CellError, match=sentence) as refused:
        encode(schema, cells("cat", cell), 2, label=True)
    assert refused.value.row == 1
    assert f"label.{policy} =" in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("schema_version = 4", "schema_version = 3", "label.type"),
        ('type = "classes"', 'type = "numbers"', "label.type"),
        ('type = "classes"', 'type = "two-classes"', "label.type"),
        ('["cat", "dog", "eel"]', '["cat"]', "label.values"),
        ('["cat", "dog", "eel"]', '["cat", "cat"]', "label.values"),
        ('["cat", "dog", "eel"]', "[]", "label.values"),
        ('unlisted = "zero-vector"', 'unlisted = "zero"', "label.unlisted"),
        ("values", "classes", "label.classes"),
        ("texts = []", 'texts = ["trim", "case"]', None),
    ],
)
def test_what_is_refused_in_a_file_is_named(old, new, field):
    assert old in TOML
    text = TOML.replace(old, new, 1)
    if field is None:
        assert Schema.from_toml(text).label == SPECIES
        with pytest.raises(SchemaFieldError, match=r"label\.values"):
            Schema.from_toml(text.replace('"dog"', '"CAT"'))
        return
    with pytest.raises(SchemaFieldError) as refused:
        Schema.from_toml(text)
    assert refused.value.field == field


def test_what_needs_one_type_of_label_refuses_the_other_in_words():
    assert two_classes(Label(column="y", positive=("1",)), "a rado").column == "y"
    with pytest.raises(SchemaError, match=r"a rado needs a label of two classes .*'kind' is a label of 3 classes"):
        two_classes(SPECIES, "a rado")
    assert several_classes(SPECIES, "a sum").classes == 3
    with pytest.raises(SchemaError, match="a label of two classes"):
        several_classes(Label(column="y", positive=("1",)), "a sum")


def test_records_of_several_classes_have_no_edges():
    features = np.array([[1 << 30], [0], [-(1 << 29)]], dtype=np.int32)
    held = Records(features, np.array([2, 1, 0], np.int8), np.array([True, False, True]), coding=class_codes(3))
    with pytest.raises(SchemaError, match="labels that are signs"):
        next(edges(held, 4))
    ((first, x, codes),) = labelled_rows(held, 4)
    assert (first, x.tolist(), codes.tolist()) == (0, [[16], [0], [-8]], [2, 1, 0])
    for other in (held.between(0, 3), held.zeroed(), held.only(np.array([True, True, False]))):
        assert other.coding.classes == 3
    with pytest.raises(SchemaError, match="none of 2 classes"):
        Records(features, np.array([2, 1, 0], np.int8), np.array([True, False, True]), coding=class_codes(2))
    signs = Records(features, np.array([1, 1, -1], np.int8), np.array([True, False, True]))
    with pytest.raises(SchemaError, match="two classes"):
        next(labelled_rows(signs, 4))
    assert held.digest != Records(features, np.array([2, 1, 0], np.int8), held.usable, coding=class_codes(4)).digest
