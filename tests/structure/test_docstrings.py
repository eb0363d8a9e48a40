"""Docstrings keep the convention of docs/CONTRIBUTING.md: short paragraphs, fields at the fields, proofs that exist."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.structure.sources import PACKAGES, ROOT, modules

MOST_WORDS = 60
PROOFS = (ROOT / "docs/explanation/proofs.md").read_text(encoding="utf-8")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    place: str
    text: str
    fields: frozenset[str] = frozenset()


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """All of a file, also those below fields."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield Docstring(getattr(node, "name", "the file"), text, _fields(node))
        if isinstance(node, ast.ClassDef):
            for before, statement in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign) and (text := _string(statement)):
                    yield Docstring(f"{node.name}.{ast.unparse(before.target)}", inspect.cleandoc(text))


def _string(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _fields(node: ast.AST) -> frozenset[str]:
    if not isinstance(node, ast.ClassDef) or not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return frozenset()
    return frozenset(ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign))


def paragraphs(text: str) -> list[str]:
    """Paragraphs, items of lists and entries of sections; without formulas and tables."""
    prose = "\n".join("" if re.search(r"\S {2,}\S", line) else line for line in text.splitlines())
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. ))|\n(?= {4}\S)", prose)
    return [part for part in parts if part.strip() and (not part.startswith("    ") or re.match(r" {4}\w+: ", part))]


def too_long(tree: ast.Module) -> list[str]:
    return [
        f"{each.place}: {len(part.split())} words, {part[:50]!r}"
        for each in docstrings(tree)
        for part in paragraphs(each.text)
        if len(part.split()) > MOST_WORDS
    ]


def run_on_fields(tree: ast.Module) -> list[str]:
    """Fields of dataclasses that the class's docstring lists one after the other."""
    return [
        f"{each.place}: {', '.join(named)}"
        for each in docstrings(tree)
        if len(named := [name for name in sorted(each.fields) if re.search(rf"(^|[.;] |\n){name}: ", each.text)]) > 1
    ]


def test_docstrings_have_short_paragraphs_and_fields_their_own():
    found = {name: too_long(tree) + run_on_fields(tree) for name, tree in modules().items()}
    assert not {name: each for name, each in found.items() if each}


def test_every_proof_that_a_file_names_is_on_the_page():
    """Named in a docstring, or in the comment that begins a part of a file."""
    named = {
        (path.relative_to(ROOT).as_posix(), heading)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for heading in re.findall(r'explanation/proofs\.md, "([^"]+)"', re.sub(r"[\s#]+", " ", path.read_text()))
    }
    assert len(named) > 20
    for path, heading in named:
        assert re.search(rf"^## {re.escape(heading)}\n\n`{path}`", PROOFS, re.MULTILINE), (path, heading)
    headings = set(re.findall(r"^## (.*)$", PROOFS, re.MULTILINE))
    assert headings == {heading for _, heading in named}


def test_long_paragraphs_and_run_on_fields_are_found():
    words = "word " * MOST_WORDS
    tree = ast.parse(
        '@dataclass\nclass Long:\n    """Summary.\n\n'
        f'    {words}\n\n    {words}word\n\n    a: one. b: two.\n    """\n\n'
        "    a: int\n    b: int\n"
        f'    """{words}word"""\n'
    )
    assert [fault.split(":")[0] for fault in too_long(tree)] == ["Long", "Long.b"]
    assert run_on_fields(tree) == ["Long: a, b"]
    assert paragraphs("- one\n- two\n\nRaises:\n    PlanError: three\n\n    1 + 1 = 2\n\nfield  table") == [
        "- one",
        "- two",
        "Raises:",
        "    PlanError: three",
    ]
