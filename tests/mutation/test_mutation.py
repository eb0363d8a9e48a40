"""The configuration of mutation testing and the list of survivors belong to the code as it is."""

import tomllib

import pytest

from tests.checks.enumeration import MUTATED as PATTERNS
from tests.mutation.groups import GROUPS, ROOT, SURVIVORS, Survivor, batches, explained, first_failure, group_of

CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]


def mutated_files():
    return {path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_names_files_of_one_group(pattern):
    found = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)]
    assert found
    assert len({group_of(path) for path in found}) == 1


def test_every_group_is_mutated():
    assert {group_of(path) for path in mutated_files()} == set(GROUPS)


@pytest.mark.parametrize("path", CONFIGURATION["pytest_add_cli_args_test_selection"])
def test_every_selected_test_is_there(path):
    assert (ROOT / path).exists()


def test_every_survivor_has_a_reason_and_a_line_in_its_file():
    for survivor in explained():
        assert survivor.path in mutated_files(), survivor
        source = (ROOT / survivor.path).read_text(encoding="utf-8")
        assert " ".join(survivor.before.split()) in " ".join(source.split()), survivor
    for reason in tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))["reason"]:
        assert len(reason["why"]) > 20
        assert reason["mutants"] == sorted(reason["mutants"])


def test_a_survivor_is_read_as_it_is_written():
    survivor = Survivor("parties/policy.py", "Policy.members_needed", "return max(c: 1)", "return min(c: 1) => 2")
    assert Survivor.of(str(survivor)) == survivor


def test_messages_have_no_maps():
    """Their order is the one thing that `deterministic=True` decides, which is not mutated."""
    protos = [path.read_text(encoding="utf-8") for path in (ROOT / "protos").rglob("*.proto")]
    assert protos
    assert not any("map<" in text for text in protos)


@pytest.mark.parametrize(
    ("tests", "sizes"), [(0, []), (1, [1]), (8, [8]), (9, [8, 1]), (48, [8, 40]), (49, [8, 40, 1]), (500, [8, 40, 452])]
)
def test_batches_are_all_tests_in_their_order(tests, sizes):
    names = [str(number) for number in range(tests)]
    found = list(batches(names))
    assert [len(batch) for batch in found] == sizes
    assert [name for batch in found for name in batch] == names


@pytest.mark.parametrize(("statuses", "status"), [([0, 0, 0], 0), ([1], 1), ([0, 1], 1), ([0, 0, 3], 3), ([0, 5], 5)])
def test_a_mutant_runs_until_a_batch_does_not_pass(statuses, status):
    answers = iter(statuses)
    assert first_failure(["a test"] * 100, lambda batch: next(answers)) == status
    assert list(answers) == []
