"""Each line of docs/papers.md names code and a test that exist, or says why the statement is left out."""

import re

from tests.structure.sources import ROOT

PAGE = ROOT / "docs/papers.md"
HEADER = ["Statement", "Where", "Compared by"]


def rows():
    """Statement, code and test of each line of the tables."""
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    return [each for each in cells if each != HEADER and not set("".join(each)) <= set("-: ")]


def named(cell):
    """(file, name) of each `file` or `file: name` in a cell."""
    return [tuple(part.strip() for part in f"{text}:".split(":")[:2]) for text in re.findall(r"`([^`]+)`", cell)]


def fault(row):
    """What is wrong with a line, or None."""
    if len(row) != len(HEADER):
        return f"{len(row)} cells"
    _, where, compared = row
    if where.startswith("left out"):
        return None if len(where) > len("left out: ....") else "say why"
    for cell in (where, compared):
        if not named(cell):
            return f"name a file, not {cell!r}"
        for file, name in named(cell):
            if not (ROOT / file).is_file():
                return f"there is no {file}"
            if name and not re.search(rf"\b{re.escape(name)}\b", (ROOT / file).read_text(encoding="utf-8")):
                return f"{file} has no {name}"
    return None if re.search("`(tests|benchmarks)/", compared) else "name a test or a benchmark"


def test_a_line_names_what_exists():
    assert len(rows()) > 70
    assert {row[0]: found for row in rows() if (found := fault(row))} == {}


def test_the_check_sees_what_is_missing():
    assert named("`dpcore/a.py: b` and `tests/c.py`") == [("dpcore/a.py", "b"), ("tests/c.py", "")]
    here = "`tests/structure/test_papers.py: fault`"
    assert fault(["Lemma", here, here]) is None
    assert "has no" in str(fault(["Lemma", here, here.replace("fault", "x" * 9)]))
    assert fault(["Lemma", "`dpcore/no.py`", here]) == "there is no dpcore/no.py"
    assert fault(["Lemma", "left out", "-"]) == "say why"
    assert fault(["Lemma", "somewhere", here]) == "name a file, not 'somewhere'"
