"""Targets: texts that a person writes, or that a file or a message quotes."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.numbers.rationals import exact, exact_number
from dpcore.predicates.expressions import PredicateError
from dpcore.predicates.frontend import x
from dpcore.predicates.notation import parse, to_text
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.features import Day, day_of
from dpcore.records.features.date import written_form
from dpcore.records.schema import Schema, differences
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import TEXT_STEPS
from learner.estimators import BY_QUERIES, FROM_RELEASES, make_estimator
from parties.data.schema_draft import parsed
from radobase.configuration import split_target
from radobase.logs import TAIL_BYTES, newest
from radobase.options import decimal_number, named_option
from radobase.printing import local_time, printable
from radofed.joining.installing import set_passphrases
from radofed.planning.from_options import party_rows
from radofed.simulation.table import Partition
from tests.federation.material import STAYS
from tests.fuzz import world
from tests.fuzz.mutation import json_octets, texts_near
from tests.fuzz.target import Target, scratch, written
from tests.wire.test_query_kinds import SCHEMA
from wire.envelopes import ENVIRONMENT, public_key_of

PREDICATES = (
    '(x["age"] >= 65.5) & (y == 1)',
    'x["day"] >= "2024-02-29"',
    '~x["smoker"] | (x["ward"] == "b") & ~(x["age"] < 1/3)',
    'clip((3 * z["age"] - 2 * z["ward=a"] + 5) / 16)',
    'z["age"] + -2 * z["bias"] >= z["tall"] - 1',
    "true | ~false",
)
NUMBERS = (
    "1",
    "1e-6",
    "1/2",
    "0.50",
    " 3 ",
    "-7/9",
    "1_0.5e1_0",
    "+.5",
    "1e\u0663\u0663\u0663\u0663\u0663\u0663\u0663",
)
LOG_LINES = (
    {"time": "2026-11-23T04:00:00.123+00:00", "level": "info", "node": "party.ada", "event": "started", "rows": 1},
    {"time": "0001-01-01", "level": "error", "node": "", "event": "x", "trace": "a\nb", "of": [{"x": None}]},
)
ESTIMATORS = sorted(BY_QUERIES | FROM_RELEASES)


def decoded(data: bytes) -> str:
    """As the command line and files give a text: undecodable bytes as lone surrogates."""
    return data.decode(errors="surrogateescape")


def read_passphrase(data: bytes) -> None:
    """The file of a passphrase, and that of a key that is to have one."""
    key = scratch("passphrase") / "signing.key"
    key.unlink(missing_ok=True)
    world.KEYS["ann"].save(key)
    with patch.dict(os.environ, {ENVIRONMENT: str(written("passphrase", "secret", data))}):
        assert set_passphrases(key.parent) == [key.name]
        assert public_key_of(key) == world.KEYS["ann"].public_bytes
    with patch.dict(os.environ, {ENVIRONMENT: str(written("passphrase", "secret", b"x"))}):
        key.write_bytes(data)
        set_passphrases(key.parent)


def read_predicate(data: bytes) -> None:
    predicate = parse(decoded(data))
    try:
        text = to_text(predicate)
    except PredicateError:
        return  # the parentheses that it adds make it too long
    assert parse(text) == predicate


def read_schema(data: bytes) -> None:
    schema = Schema.from_toml(data.decode(errors="replace"))
    assert Schema.from_toml(schema.to_toml()).digest == schema.digest
    assert Schema.from_canonical(schema.canonical_bytes()) == schema


def read_shared_schema(data: bytes) -> None:
    """A file of one label or several."""
    shared = SharedSchema.from_toml(data.decode(errors="replace"))
    assert SharedSchema.from_toml(shared.to_toml()).digest == shared.digest
    assert {shared.about(name).digest for name in shared.labels} == {each.digest for each in shared.by_label.values()}


def read_date(data: bytes) -> None:
    """A cell of a column of dates, and an edge or bound that is one."""
    text = decoded(data)
    day = day_of(text)
    if day is not None:
        assert day_of(str(day)) == Day.of(text[:10]) == day
        assert text.startswith(str(day))
    assert len(written_form(text)) <= 23
    with suppress(ConfigurationError):
        parsed(f"admitted={text}")
    with suppress(PredicateError):
        assert to_text(x["admitted"] >= text) == f'x["admitted"] >= "{text}"'


def read_canonical(data: bytes) -> None:
    schema = Schema.from_canonical(data)
    assert schema.canonical_bytes() == data
    assert Schema.from_toml(schema.to_toml()).digest == schema.digest
    differences(schema, SCHEMA)


def read_number(data: bytes) -> None:
    """Every place that reads a number from the command line, and one behind another."""
    text = decoded(data)
    with suppress(ConfigurationError):
        assert decimal_number(text) == float(exact_number(text))
    value = exact(text, "--epsilon")
    assert isinstance(value, Fraction)
    assert value == exact_number(text)


def read_option(data: bytes) -> None:
    """--option NAME=VALUE of one of the estimators, by the first byte."""
    name = ESTIMATORS[data[0] % len(ESTIMATORS)] if data else ESTIMATORS[0]
    option, value = named_option(decoded(data[1:]))
    make_estimator(name, **{option: value})


def read_rows(data: bytes) -> None:
    rows = party_rows(None, None, decoded(data))
    assert all(isinstance(count, int) for count in rows)


def read_target(data: bytes) -> None:
    host, port = split_target(decoded(data))
    assert host
    assert 0 < port < 1 << 16


def read_partition(data: bytes) -> None:
    Partition.parse(decoded(data))


def read_statement(data: bytes) -> None:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return  # read by radobase.reading, a target of its own
    if isinstance(fields, dict):
        statement = PrivacyStatement.from_dict(fields)
        assert PrivacyStatement.from_dict(statement.to_dict()) == statement
        statement.sentences()


def read_log(data: bytes) -> None:
    """As a command and a page show the end of a node's log."""
    file = scratch("log") / "node.log"
    file.write_bytes(data)
    for line in newest(file, "debug", 100):
        # A trace has several lines.
        assert printable(str(line)).translate({ord("\n"): None, ord("\t"): None}).isprintable()
        if line.at_unix_s is not None:
            local_time(line.at_unix_s)


def targets() -> list[Target]:
    stated = replace(
        STAYS, texts=TEXT_STEPS, features=(replace(STAYS.features[0], unreadable="zero-vector"), *STAYS.features[1:])
    )
    schemas = [SCHEMA, STAYS, stated]
    two = SharedSchema({"one": SCHEMA, "other": replace(SCHEMA, label=replace(SCHEMA.label, column="other"))})
    tomls = [schema.to_toml(["A comment."]) for schema in schemas]
    words = ['"zero-vector"', '"impute"', "impute = 1", "threshold = 1", '"clip"']
    words += ["[[features]]", '"\u0301"', "texts = []"]
    canonical = [schema.canonical_bytes().decode() for schema in schemas]
    options = ["\0epsilon=1/2", "\1max_iter=10", "\2learning_rate=0.5", "\3penalty=1e999", "\4bias=True", "\5x=[1]"]
    statement = PrivacyStatement("one record", "record", 1.0, 1e-6, 2.0, None, ("a",), ("w",)).to_dict()
    nothing = PrivacyStatement("one record", "none", None, None, None, None, (), ()).to_dict()
    return [
        Target("predicate", read_predicate,
               texts_near(PREDICATES, ['x["age"]', 'z["age"]', "y", "clip", ">=", "==", "~", "(", "1/3"]), 1 << 17,
               ("dpcore.predicates.notation.parse",)),
        Target("schema-toml", read_schema,
               texts_near(tomls, words), 1 << 20,
               ("dpcore.records.schema.Schema.from_toml", "radobase.schema_files._SCHEMA"),
               allowed=(SchemaError,)),
        Target("schema-of-labels", read_shared_schema,
               texts_near([*tomls, two.to_toml()], [*words, "[[labels]]"]), 1 << 20,
               ("dpcore.records.shared_schema.SharedSchema.from_toml",), allowed=(SchemaError,)),
        Target("schema-canonical", read_canonical,
               texts_near(canonical) | json_octets([json.loads(text) for text in canonical]),
               512 * 1024, ("dpcore.records.schema.Schema.from_canonical",), allowed=(SchemaError,)),
        Target("date", read_date,
               texts_near(["2024-02-29", "2024-02-29T23:59:59.5", "0001-01-01:9999-12-31", "29.2.2024"]), 1 << 12,
               ("dpcore.records.features.date._CELL", "dpcore.records.features.described._DAY")),
        Target("number", read_number, texts_near(NUMBERS), 1 << 17, ("dpcore.numbers.rationals.exact_number",)),
        Target("option", read_option, texts_near(options, ["nan", "1e999"]), 1 << 17, ("radofed.cli.arguments",)),
        Target("party-rows", read_rows, texts_near(["10,20,30", "5"]), 1 << 17, ()),
        Target("address", read_target, texts_near(["hub:7443", "[::1]:80", "1.2.3.4:65535"]), 1 << 17, (),
               allowed=(ValueError,)),  # pydantic makes it a fault of the configuration
        Target("log", read_log,
               json_octets(LOG_LINES) | texts_near([json.dumps(line) for line in LOG_LINES], ["\n", "[", "1e999"]),
               TAIL_BYTES, ("radobase.logs._LINE",)),
        Target("passphrase", read_passphrase, texts_near(["word", "two words\n"]), 1024,
               ("wire.envelopes._PASSPHRASE", "radofed.joining.installing._KEY"), examples=6),
        Target("partition", read_partition, texts_near(["iid", "label-skew", "by-column:age"]), 1 << 12, ()),
        Target("statement", read_statement, json_octets([statement, nothing]), 1 << 16,
               ("dpcore.queries.statement.PrivacyStatement.from_dict",)),
    ]  # fmt: skip
