"""Every field of every message is in the list of what a sender could say differently, and every row has its tests."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import rado.v1
from docs.generate.message_fields import FIELDS
from docs.generate.recipients import ROWS

TESTS = Path(__file__).resolve().parents[1]


def messages() -> dict[str, list[str]]:
    """The fields of every message of the protocol."""
    files = [name for _, name, _ in pkgutil.iter_modules(rado.v1.__path__) if name.endswith("_pb2")]
    found = {}
    for name in files:
        described = importlib.import_module(f"rado.v1.{name}").DESCRIPTOR.message_types_by_name
        assert not [message for message in described.values() if message.nested_types], "list nested messages too"
        found.update({message: [field.name for field in each.fields] for message, each in described.items()})
    return found


def classified(message: str) -> list[str]:
    return [field for fields in FIELDS[message].values() for field in fields.split()]


def test_every_message_is_listed():
    assert FIELDS.keys() == messages().keys()


@pytest.mark.parametrize("message", FIELDS)
def test_every_field_has_one_row(message):
    """A new field fails here until docs/generate/message_fields.py gives it a row of docs/generate/recipients.py."""
    assert sorted(classified(message)) == sorted(messages()[message])


def test_every_row_has_fields_and_no_other_rows_are_named():
    assert {key for rows in FIELDS.values() for key in rows} == ROWS.keys()


def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("key", ROWS)
def test_every_row_names_tests_that_exist(key):
    named = ROWS[key].tests
    assert named
    missing = {file: set(names) - functions(TESTS / file) for file, names in named.items()}
    assert not any(missing.values()), missing
