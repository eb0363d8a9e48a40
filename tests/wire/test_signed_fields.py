"""What is shown of a query is what its digest binds: a change of any field, at any depth, changes what is shown."""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
from google.protobuf.descriptor import FieldDescriptor

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import SchemaError
from dpcore.predicates.expressions import And, Flag, LabelIs, Or
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.features import FEATURE_TYPES, DateFeature, Label
from dpcore.records.schema import Schema
from dpcore.records.weight import Weight
from rado.v1 import query_pb2
from tests.federation.party import World
from tests.wire.every_query import SCHEMA, STUDY, WEIGHED, every_query, step_and_needle
from wire.errors import WireError
from wire.query import Query
from wire.query_summary import signed_lines, signed_parts

#: Fields that cannot change alone in a valid query, and why that hides nothing.
NOT_ALONE = {
    "rado.v1.Training.schema_digest": "it is the digest of the query's schema",
    "rado.v1.Query.schema_digest": "a function of the schema; shown, too",
    "rado.v1.DpFeatDesign.split": "has one valid value",
    "rado.v1.DpFeatDesign.rounded_features": "follow from the protected features and the schema; shown, too",
    "rado.v1.RadosQuery.plain": "has no fields: that it is there is a line",
    "rado.v1.PredicateNode.label_share": "has no fields: the line of its node says what it is",
    "rado.v1.PredicateNode.label_square": "has no fields: the line of its node says what it is",
    "rado.v1.PredicateNode.label_exposure": "has no fields: the line of its node says what it is",
    "rado.v1.FixedSupportDesign.split": "has one valid value",
    "rado.v1.Query.schema": "shown as its fields, which are changed one by one",
}


@pytest.fixture(scope="module")
def queries(secret_key):
    return every_query(World(secret_key))


def shown(payload: bytes) -> dict[str, str]:
    """Each line that people see, by the field that it names."""
    lines = {}
    for part in signed_parts(payload):
        for field in part.fields:
            assert field.name not in lines, "no two lines have one name"
            lines[field.name] = str(field)
    return lines


def is_valid(payload: bytes) -> bool:
    try:
        Query.from_bytes(payload)
    except WireError:
        return False
    return True


GONE, MORE = object(), object()
"""In place of a value: the field is unset, or the last entry of a repeated one taken out; a text more is put in."""

FLAGS = {
    "cohort-noise": lambda m: (m, "noise_of_cohort"),
    "class-products": lambda m: (m.moments, "products_of_each_class"),
    "class-weights": lambda m: (m.gradient, "class_weights"),
    "mask-graph": lambda m: (m, "mask_neighbours"),
    "survivors": lambda m: (m, "may_vanish"),
    "persons": lambda m: (m, "persons"),
    "study": lambda m: (m, "study"),
}
"""Features whose fields are set if and only if a query names them."""


def is_set(message, name: str) -> bool:
    value = getattr(message, name)
    return message.HasField(name) if isinstance(value, query_pb2.Persons | query_pb2.Study) else bool(value)


def set_to(message, name: str, wanted: bool) -> None:
    if name == "mask_neighbours":
        message.mask_neighbours = 24 if wanted else 0
    elif name == "may_vanish":
        message.may_vanish = int(wanted)
        if wanted:
            message.max_parties = 4
    elif name == "class_weights":
        message.class_weights[:] = [2, 5] if wanted else []
    elif isinstance(getattr(message, name), bool):
        setattr(message, name, wanted)
    elif wanted and name == "study":
        message.study.CopyFrom(STUDY.to_proto())
    elif wanted:
        message.persons.parties = 1
    else:
        message.ClearField(name)


def name_features(message) -> None:
    """Name the features of the fields that are set, and no others of them."""
    named = [name for name, place in FLAGS.items() if is_set(*place(message))]
    features = sorted({*message.features, *FLAGS} - {*FLAGS} | {*named})
    del message.features[:]
    message.features.extend(features)


def set_fields(message) -> None:
    """Set the fields of the features that are named, and no others of them."""
    for name, place in FLAGS.items():
        if is_set(*place(message)) != (name in message.features):
            set_to(*place(message), name in message.features)


# What follows from another field, and so may have to change with it. Each leaves the field that was changed as it is.
REPAIRS = (
    lambda _: None,
    lambda m: setattr(m, "honest_parties", m.statistic.laplace.shares or m.honest_parties),
    lambda m: m.statistic.HasField("laplace") and setattr(m.statistic.laplace, "shares", m.honest_parties),
    name_features,
    set_fields,
)


def others(field: FieldDescriptor, value) -> Iterator:
    """What a field may be changed to. What makes no valid query is left out later."""
    if isinstance(value, query_pb2.Rational):
        exact = Fraction(value.numerator, value.denominator)
        for other in (exact + 1, exact / 2, exact * 2, exact / 3, (exact + 1) / 2):
            yield query_pb2.Rational(numerator=other.numerator, denominator=other.denominator)
    elif field.enum_type is not None:
        yield from (number for number in field.enum_type.values_by_number if number != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value + 2, value + 5, 2 * value, value + 8)
    elif isinstance(value, str):
        yield from ("another", "dose", "heavy", "age", "smoker", "zz-feature", f"{value}x", "2030-02-28")
    elif isinstance(value, bytes):
        yield value[:-1] + bytes([value[-1] ^ 2])


def spots(message, steps: tuple = ()) -> Iterator[tuple[tuple, FieldDescriptor, object]]:
    """(steps to a field or entry, the field, another value) for all that is set in a message, at any depth."""
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        at, value = (*steps, field.name), getattr(message, field.name)
        for where, entry in [((*at, n), e) for n, e in enumerate(value)] if field.is_repeated else [(at, value)]:
            if field.message_type is None or isinstance(entry, query_pb2.Rational):
                yield from ((where, field, other) for other in others(field, entry))
            else:
                yield from spots(entry, where)
        yield at, field, GONE
        if field.is_repeated and field.type == FieldDescriptor.TYPE_STRING:
            yield at, field, MORE


def change(message, where: tuple, field: FieldDescriptor, other) -> None:
    *parents, last = where
    for step in parents:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    if other is MORE:
        getattr(message, last).append("zz-feature")
    elif other is GONE:
        if field.is_repeated:
            del getattr(message, last)[-1:]
        else:
            message.ClearField(last)
    elif isinstance(other, query_pb2.Rational):
        getattr(message, last).CopyFrom(other)
    elif isinstance(last, int):
        message[last] = other
    else:
        setattr(message, last, other)


def changed(payload: bytes, done: set) -> Iterator[tuple[tuple, FieldDescriptor, bytes]]:
    """Valid queries that differ from this one in one field, and in what has to follow it.

    done: fields with the lines that show them, which were changed already, in another query.
    """
    before = shown(payload)
    for where, field, other in spots(query_pb2.Query.FromString(payload)):
        known = (where, tuple(before[name] for name in sorted(own_lines(where, before.keys()))))
        for repair in () if known in done else REPAIRS:
            message = query_pb2.Query.FromString(payload)
            try:
                change(message, where, field, other)
            except ValueError:  # out of the field's range
                break
            repair(message)
            made = message.SerializeToString(deterministic=True)
            if made != payload and is_valid(made):
                done.add(known)
                yield where, field, made
                break


WHOLE = (("schema",), ("paillier_key",), ("gradient", "basis"))


def own_lines(where: tuple, lines: set[str]) -> set[str]:
    """The names of the lines that show a field, or a message with it, or what is inside it."""
    # Of these, the lines are not one for each field or entry.
    where = next((whole for whole in WHOLE if where[: len(whole)] == whole), where)
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)[1:]
    return {name for name in lines if begins(name, path) or begins(path, name)}


def begins(path: str, first: str) -> bool:
    return path.startswith(first) and path[len(first) : len(first) + 1] in {"", ".", "["}


def reachable(descriptor) -> set[str]:
    """The full names of every field of a message and of the messages inside it."""
    found = {field.full_name for field in descriptor.fields}
    inside = [field.message_type for field in descriptor.fields if field.message_type is not None]
    return found.union(*(reachable(each) for each in inside))


def messages_of(where: tuple) -> set[str]:
    """The full names of the fields that hold the messages on the way to a field: what is inside them is shown."""
    found, message = set(), query_pb2.Query.DESCRIPTOR
    for step in where:
        if isinstance(step, str) and (field := message.fields_by_name[step]).message_type is not None:
            found.add(field.full_name)
            message = field.message_type
    return found


@pytest.mark.more
def test_a_change_of_any_field_changes_what_is_shown_at_its_own_line(queries):
    covered, done = set(), set()
    for name, query in queries.items():
        payload = query.to_bytes()
        before = shown(payload)
        for where, field, other in changed(payload, done):
            after = shown(other)
            own = own_lines(where, before.keys() | after.keys())
            assert any(before.get(each) != after.get(each) for each in own), (name, where)
            covered |= {field.full_name, *messages_of(where)}
            if field.message_type is not None and field.message_type.name == "Rational":
                covered |= {"rado.v1.Rational.numerator", "rado.v1.Rational.denominator"}
    missing = reachable(query_pb2.Query.DESCRIPTOR) - covered
    assert missing <= NOT_ALONE.keys(), "add a query with these fields to tests/wire/every_query.py"
    assert missing == NOT_ALONE.keys(), "these fields are changed, so they need no exception"


KEY_FIELDS = [*query_pb2.PaillierKey.DESCRIPTOR.fields, *query_pb2.Subgroup.DESCRIPTOR.fields]


@pytest.mark.parametrize("field", [field for field in KEY_FIELDS if field.message_type is None], ids=lambda f: f.name)
def test_a_change_of_the_key_s_certificate_is_shown(queries, field):
    payload = queries["moments with short opening"].to_bytes()
    message = query_pb2.Query.FromString(payload)
    key = query_pb2.PaillierKey.FromString(message.paillier_key.payload)
    of_subgroup = field.containing_type.name == "Subgroup"
    place = key.subgroup if of_subgroup else key
    setattr(place, field.name, next(others(field, getattr(place, field.name))))
    message.paillier_key.payload = key.SerializeToString(deterministic=True)
    before, after = shown(payload), shown(message.SerializeToString(deterministic=True))
    name = f"paillier_key.{'subgroup.' * of_subgroup}{field.name}"
    assert {line for line in before if before[line] != after[line]} == {name}


def test_that_a_key_has_a_subgroup_is_shown(queries):
    payloads = [queries[name].to_bytes() for name in ("moments", "moments with short opening")]
    lines = [{name for name in shown(payload) if "subgroup" in name} for payload in payloads]
    assert lines == [set(), {"paillier_key.subgroup.generator", "paillier_key.subgroup.order_bits"}]


DAY = DateFeature(
    name="day",
    first="2019-01-01",
    last="2024-12-31",
    since="2000-01-01",
    parts=("year",),
    missing="impute",
    impute="2020-01-01",
    unreadable="impute",
)
FULL = dataclasses.replace(SCHEMA, features=(*SCHEMA.features, DAY))
SCHEMA_PARTS = {type(part): part for part in (*FULL.features[::-1], FULL.label)}
DATES = ("2019-01-02", "2023-01-01", ("month",))
CELLS = ("refuse", "zero-vector", "zero", "other", "c", True, False, 8, 0.5, 70.0, 130.0, ("q",), ("b", "q"), *DATES)


def schemas_with_another(part, name: str) -> Iterator[Schema]:
    """Valid schemas in which this field of a part has another value."""
    # With a value to impute, or without one, as its policies need it.
    without = [{}, {"impute": None}] if hasattr(part, "impute") and name != "impute" else [{}]
    for cell, more in product(CELLS, without):
        try:
            other = dataclasses.replace(part, **{name: cell}, **more)
            features = tuple(other if each is part else each for each in FULL.features)
            label = other if part is FULL.label else FULL.label
            made = dataclasses.replace(FULL, label=label, features=features)
        except (SchemaError, TypeError):
            continue
        before = getattr(part, name)
        if made.digest != FULL.digest and (before is None or type(getattr(other, name)) in {type(before), type(None)}):
            yield made


def payload_with(query: Query, schema: Schema) -> bytes:
    message = query_pb2.Query.FromString(query.to_bytes())
    message.schema, message.schema_digest = schema.canonical_bytes(), schema.digest
    return message.SerializeToString(deterministic=True)


@pytest.mark.parametrize("part", SCHEMA_PARTS.values(), ids=lambda part: type(part).__name__)
def test_a_change_of_any_field_of_the_schema_is_shown(queries, part):
    query = queries["plain"]
    before = shown(payload_with(query, FULL))
    place = "schema.label" if part is FULL.label else f"schema.features[{FULL.features.index(part)}]"
    for field in dataclasses.fields(part):
        others = list(schemas_with_another(part, field.name))
        assert others, f"no valid schema has another {field.name}"
        for schema in others:
            after = shown(payload_with(query, schema))
            assert before[place] != after[place], field.name
    assert set(SCHEMA_PARTS) == {Label, *FEATURE_TYPES.values()}


def test_the_schema_s_own_fields_are_shown(queries):
    before = shown(queries["plain"].to_bytes())
    renamed = shown(payload_with(queries["plain"], dataclasses.replace(SCHEMA, name="other")))
    assert before["schema.name"] != renamed["schema.name"]
    turned = dataclasses.replace(SCHEMA, features=SCHEMA.features[::-1])
    assert before["schema.features[0]"] != shown(payload_with(queries["plain"], turned))["schema.features[0]"]
    assert before["schema.bias"] == "schema.bias: true"
    texts = [dataclasses.replace(SCHEMA, texts=steps) for steps in (("nfc", "trim"), ("nfc", "trim", "case"))]
    lines = [before, *(shown(payload_with(queries["plain"], schema)) for schema in texts)]
    assert len({line.get("schema.texts") for line in lines}) == len(lines)
    weights = [{}, {"upper": 4.0}, {"column": "n"}, {"missing": "refuse"}, {"unreadable": "no-weight"}]
    weights.append({"out_of_bounds": "no-weight"})
    assert {name for each in weights for name in each} == {field.name for field in dataclasses.fields(Weight)}
    weighed = [dataclasses.replace(WEIGHED, weight=dataclasses.replace(WEIGHED.weight, **each)) for each in weights]
    lines = [before, *(shown(payload_with(queries["moments by weight"], schema)) for schema in weighed)]
    assert len({line.get("schema.weight") for line in lines}) == len(lines)
    assert {field.name for field in dataclasses.fields(Schema)} == {
        "name", "bias", "label", "features", "texts", "weight",
    }  # fmt: skip


def test_a_step_of_thirty_years_and_a_needle_at_one_age_do_not_look_alike(secret_key):
    step, needle = (query.to_bytes() for query in step_and_needle(World(secret_key)))
    differ = {name: line for name, line in shown(step).items() if line != shown(needle)[name]}
    assert set(differ) == {"feature_map.terms[4]"}
    assert "age rising from 45 to 60, falling to 75" in differ["feature_map.terms[4]"]
    assert "left: -268435456" in differ["feature_map.terms[4]"]
    assert "age rising from 60.00000028 to 60.00000039, falling to 60.0000005" in shown(needle)["feature_map.terms[4]"]


def test_texts_that_hide_or_imitate_are_written_out(queries):
    texts = ("a\u202eb", "a\\u202eb", "a\nnode 2", "a\x1b[2J", "a\u2028b", 'a", "b')
    lines = []
    for text in texts:
        ward = dataclasses.replace(SCHEMA.features[3], values=("a", "b", text))
        schema = dataclasses.replace(SCHEMA, features=(*SCHEMA.features[:3], ward, *SCHEMA.features[4:]))
        lines.append(shown(payload_with(queries["plain"], schema))["schema.features[3]"])
    assert len(set(lines)) == len(texts)
    assert all(line.isprintable() for line in lines)


def test_the_largest_query_is_shown_in_a_length_that_follows_its_own(secret_key):
    """Predicates that share their parts would be longer than the query by the power of their depth."""
    shared = LabelIs(positive=True)
    for place in range(14):
        shared = And((shared, Or((shared, Flag("smoker") if place % 2 else Flag("heavy")))))
    kind = StatisticQuery((shared,), SCHEMA, GaussianShares(7000))
    payload = dataclasses.replace(every_query(World(secret_key))["statistic"], kind=kind).to_bytes()
    parts = signed_parts(payload)
    assert len("".join(signed_lines(parts))) < 20 * len(payload)
