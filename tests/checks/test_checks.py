"""Every security check has a test that fails without it.

checks.json maps each check of tests.checks.enumeration to that test. A new check without an entry fails here:
`python -m tests.checks.find tests/FOLDER` finds its test and writes the entry. If it finds none, write one.
"""

import ast
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.checks.breaking import Breaking
from tests.checks.enumeration import ROOT, Listing, all_checks
from tests.checks.running import read

HOUR_S = 3600

SAMPLE = """
class Sample:
    def __init__(self, size, names):
        if size < 1 or not (names and len(names) < 9):
            raise ValueError("operands")
        rules = {"few": size < 100 and size != 13, "not a multiple": size % 7 != 0}
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)
        for name, value in (("a", size), ("b", size - 50)):
            if value == 40:
                raise ValueError(name)
        check(names)
        facts = (size != 8, size != 10)
        if not all(facts):
            raise ValueError("facts")

def check(names):
    if "x" in names:
        raise ValueError("x")
"""
CHECKS_OF_SAMPLE = {
    "Sample.__init__ rule: size < 100": (101, ["n"]),
    "Sample.__init__ rule: size != 13": (13, ["n"]),
    "Sample.__init__ rule: size % 7 != 0": (14, ["n"]),
    "Sample.__init__ rule: size != 8": (8, ["n"]),
    "Sample.__init__ rule: size != 10": (10, ["n"]),
    "Sample.__init__ if: size < 1": (-2, ["n"]),
    "Sample.__init__ if: not names": (2, []),
    "Sample.__init__ if: not len(names) < 9": (2, ["n"] * 9),
    "Sample.__init__ if: not holds": (13, ["n"]),
    "Sample.__init__ if: value == 40": (40, ["n"]),
    "Sample.__init__ row: ('a', size)": (40, ["n"]),
    "Sample.__init__ row: ('b', size - 50)": (90, ["n"]),
    "Sample.__init__ call: check(names)": (2, ["x"]),
    "Sample.__init__ if: not all(facts)": (8, ["n"]),
    "check if: 'x' in names": (2, ["x"]),
}
"""What each of them refuses."""


def sample(walk):
    tree = ast.fix_missing_locations(walk.visit(ast.parse(SAMPLE)))
    names = {}
    exec(compile(tree, "sample.py", "exec"), names)
    return names["Sample"]


@cache
def listed():
    return [check.id for check in all_checks()]


def test_every_check_of_the_code_has_a_test():
    """A check without an entry is new, and an entry without a check is old: run tests.checks.find."""
    content = read()
    entries = [check for part in content.values() for check in part]
    assert len(entries) == len(set(entries)), "a check stands in two parts of checks.json"
    assert sorted(set(listed()) - set(entries)) == []
    assert sorted(set(entries) - set(listed())) == []
    assert len(listed()) == len(set(listed()))


def test_reasons_are_given_for_checks_without_a_test():
    content = read()
    for part in ("redundant", "excluded", "unmapped"):
        assert all(len(reason.split()) >= 3 for reason in content[part].values())


def functions_of(file):
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))


def test_every_named_test_exists():
    existing = cache(lambda file: set(functions_of(file)))
    named = set(read()["checks"].values())
    assert [test for test in sorted(named) if test.partition("::")[2] not in existing(test.partition("::")[0])] == []


def test_each_kind_of_check_is_enumerated():
    listing = Listing("sample.py")
    listing.visit(ast.parse(SAMPLE))
    assert {check.id for check in listing.found} == {f"sample.py::{check}" for check in CHECKS_OF_SAMPLE}


@pytest.mark.parametrize("check", CHECKS_OF_SAMPLE)
def test_a_broken_check_does_not_raise(check):
    value, broken = CHECKS_OF_SAMPLE[check], sample(Breaking("sample.py", f"sample.py::{check}"))
    with pytest.raises(ValueError):
        sample(Breaking("sample.py", ""))(*value)
    broken(*value)


@pytest.mark.parametrize("check", ["Sample.__init__ if: size < 1", "check if: 'x' in names"])
def test_while_one_check_is_broken_the_others_raise(check):
    broken = sample(Breaking("sample.py", f"sample.py::{check}"))
    for other in (
        "Sample.__init__ rule: size != 13",
        "Sample.__init__ if: not names",
        "Sample.__init__ row: ('a', size)",
    ):
        with pytest.raises(ValueError):
            broken(*CHECKS_OF_SAMPLE[other])


@pytest.mark.slow
@pytest.mark.timeout(2 * HOUR_S)
def test_breaking_any_check_fails_its_test():
    """One check at a time, on all processors."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.checks.running"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
