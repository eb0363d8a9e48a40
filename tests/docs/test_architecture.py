"""The architecture page names files and functions that exist, and a row's journey stays short."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
STEP = re.compile(r"^\| (\d+) \| `([^`]+)` \| ([^|]*) \|", re.MULTILINE)
STEPS = STEP.findall(PAGE)
MOST_FILES_OF_A_ROW = 24


def defined(path: Path) -> set[str]:
    """Functions and classes of a file, and methods as Class.method and by themselves."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {*methods, *(f"{node.name}.{name}" for name in methods)}
    return found


def test_files_exist():
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", PAGE)) - {"secret.py", "decisions.py"}
    assert len(named) > 50
    assert not [path for path in sorted(named) if not (ROOT / path).is_file()]


def test_folders_exist():
    named = set(re.findall(r"`([a-z]+(?:/[a-z0-9_]+)+)`", PAGE))
    assert len(named) > 20
    assert not [folder for folder in sorted(named) if not (ROOT / folder).is_dir()]


def test_functions_stand_in_their_files():
    assert len(STEPS) > 30
    for _, path, functions in STEPS:
        named = {name for name in re.findall(r"`([A-Za-z_.]+)`", functions) if name != "Work"}
        assert named, path
        assert named <= defined(ROOT / path), path


def test_a_rows_journey_is_short():
    numbers = [int(number) for number, _, _ in STEPS]
    ends = [place for place, number in enumerate(numbers) if number == 1]
    assert len(ends) == 2, "two journeys"
    files = [path for _, path, _ in STEPS[: ends[1]]]
    assert len(files) == len(set(files)) <= MOST_FILES_OF_A_ROW
