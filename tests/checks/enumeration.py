"""The security checks of the code, enumerated from its syntax, and the walk that breaks or records them.

A check is one of these:

- `if`: an operand of the condition of `if CONDITION: ... raise`. The operands of `or` are checks of their own;
- `rule`: an operand of a value in a table of rules, `{"what must hold": CONDITION}` or `(CONDITION, ...)`, that a loop
  or `if not all(...)` raises from. The operands of `and` are checks of their own;
- `row`: an element of a literal that a loop goes through, if the loop raises, and likewise of a table of rules that is
  a comprehension;
- `call`: a call whose result is not used, of a function that verifies, by its name (VERIFYING), or one of PROTECTING.

What is none:

- a file that is not in SCOPE: it reads no peer's message, no state on disk and no secret;
- a bare `raise` inside `except`: it passes an error on. The check is where the error was raised first;
- `assert`: it states an invariant, and other code makes it true;
- an `if` without `raise`: it chooses what to do, and the tests of that choice stand in docs/threat-model-details.md.

checks.json excludes single checks besides, each with its reason.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MUTATED: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]["only_mutate"]
)
"""What protects, whose every operator and number is changed too (tests/mutation)."""

SCOPE = (
    "wire/*.py",
    "parties/members.py",
    "parties/answering/*.py",
    "parties/approval/*.py",
    "parties/history/*.py",
    "parties/database.py",
    "parties/ledger/*.py",
    "parties/policy.py",
    "parties/state_directory.py",
    "coordinator/core.py",
    "coordinator/limits.py",
    "coordinator/intake.py",
    "coordinator/open_queries.py",
    "coordinator/membership.py",
    "coordinator/round_state.py",
    "coordinator/rounds.py",
    "coordinator/uploads.py",
    "coordinator/store.py",
    "coordinator/service.py",
    "learner/accepted_parties.py",
    "learner/client.py",
    "learner/decryption.py",
    "learner/release.py",
    "learner/session.py",
    "learner/state.py",
    "learner/unmasking.py",
    "dpcore/accounting/filters.py",
    "dpcore/paillier/*.py",
    "dpcore/randomness/sources.py",
    "radofed/backup/*.py",
    "radofed/certificates.py",
    "radobase/reading.py",
    "radobase/schema_files.py",
    "radobase/tables/recoding.py",
    "radobase/writing.py",
    "radofed/joining/*.py",
    *MUTATED,
)

VERIFYING = ("check", "open", "verify", "validate", "require", "refuse")

PROTECTING = {
    "parties/database.py": (
        "connection.execute('PRAGMA synchronous = EXTRA')",
        "connection.execute('PRAGMA secure_delete = ON')",
    ),
}
"""Calls that protect and raise nothing, by file."""


@dataclass(frozen=True)
class Check:
    """One check. line: which only tests that trip it come to, if there is such a line; it is no part of the id."""

    id: str
    path: str
    line: int


class Walk(ast.NodeTransformer):
    """Goes through a module's checks in their order. Subclasses replace what they want replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: list[str] = []
        self._seen: Counter[str] = Counter()

    def condition(self, check: Check, expression: ast.expr, *, trips: bool) -> ast.expr:
        """Replacement of a condition that raises when its truth is `trips`."""
        return expression

    def row(self, check: Check, element: ast.expr) -> ast.expr | None:
        """Replacement of a literal's element, or None to remove it."""
        return element

    def call(self, check: Check, statement: ast.Expr) -> ast.stmt:
        """Replacement of a call."""
        return statement

    def _check(self, kind: str, line: int, source: str) -> Check:
        text = f"{self._path}::{'.'.join(self._names) or '<module>'} {kind}: {source}"
        self._seen[text] += 1
        count = self._seen[text]
        return Check(text if count == 1 else f"{text} #{count}", self._path, line)

    def _split(self, kind: str, expression: ast.expr, line: int, *, trips: bool) -> ast.expr:
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
            expression.operand = self._split(kind, expression.operand, line, trips=not trips)
            return expression
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or if trips else ast.And):
            expression.values = [self._split(kind, operand, line, trips=trips) for operand in expression.values]
            return expression
        negated = trips == (kind == "rule")
        check = self._check(kind, line, f"not {ast.unparse(expression)}" if negated else ast.unparse(expression))
        return self.condition(check, expression, trips=trips)

    def _rows(self, loop: ast.For | ast.comprehension) -> None:
        literal = loop.iter
        if not isinstance(literal, ast.Tuple | ast.List):
            return
        replaced = [self.row(self._check("row", each.lineno, ast.unparse(each)), each) for each in literal.elts]
        literal.elts = [element for element in replaced if element is not None]

    def _scope(self, node: ast.AST, name: str) -> ast.AST:
        self._names.append(name)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A scope."""
        return self._scope(node, node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A scope, with the tables of rules that its loops raise from."""
        tables = set(_tables(node))
        self._names.append(node.name)
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign) and _names(statement.targets) & tables:
                self._table(statement.value)
        self.generic_visit(node)
        self._names.pop()
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """A scope."""
        return self._scope(node, node.name)

    def _table(self, table: ast.expr) -> None:
        for part in ast.walk(table):
            if isinstance(part, ast.Tuple) and part is table:
                part.elts = [self._split("rule", value, value.lineno, trips=False) for value in part.elts]
            elif isinstance(part, ast.Dict):
                part.values = [self._split("rule", value, value.lineno, trips=False) for value in part.values]
            elif isinstance(part, ast.DictComp):
                part.value = self._split("rule", part.value, part.lineno, trips=False)
                self._rows(part.generators[0])

    def visit_If(self, node: ast.If) -> ast.AST:
        """`if CONDITION: ... raise`."""
        if _ends_with_raise(node.body):
            node.test = self._split("if", node.test, node.body[-1].lineno, trips=True)
        elif _ends_with_raise(node.orelse):
            node.test = self._split("if", node.test, node.orelse[-1].lineno, trips=False)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop through rows that raises."""
        self.generic_visit(node)
        if _raises(node.body):
            self._rows(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A call whose result is not used."""
        source = ast.unparse(node.value)
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if source in PROTECTING.get(self._path, ()) or (isinstance(call, ast.Call) and _is_verifying(call.func)):
            return self.call(self._check("call", node.lineno, source), node)
        return node


def _is_verifying(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name.lstrip("_").split("_")[0] in VERIFYING


def _tables(function: ast.FunctionDef) -> Iterator[str]:
    """Names of tables of rules: `for rule, holds in NAME.items()` or `if not all(NAME)` raise."""
    for node in ast.walk(function):
        match node:
            case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")), body=body):
                if _raises(body):
                    yield name
            case ast.If(
                test=ast.UnaryOp(operand=ast.Call(func=ast.Name(id="all"), args=[ast.Name(id=name)])), body=body
            ):
                if _ends_with_raise(body):
                    yield name


def _names(targets: list[ast.expr]) -> set[str]:
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _ends_with_raise(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise) and body[-1].exc is not None


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.If) and _ends_with_raise(statement.body) for statement in body)


class Listing(Walk):
    """Collects the checks of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.found: list[Check] = []

    def condition(self, check: Check, expression: ast.expr, *, trips: bool) -> ast.expr:
        self.found.append(check)
        return expression

    def row(self, check: Check, element: ast.expr) -> ast.expr | None:
        self.found.append(check)
        return element

    def call(self, check: Check, statement: ast.Expr) -> ast.stmt:
        self.found.append(check)
        return statement


def files() -> Iterator[str]:
    """The files of SCOPE, relative to the root."""
    for file in dict.fromkeys(file for pattern in SCOPE for file in sorted(ROOT.glob(pattern))):
        yield file.relative_to(ROOT).as_posix()


def checks_of(path: str) -> list[Check]:
    """The checks of one file."""
    listing = Listing(path)
    listing.visit(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return listing.found


def all_checks() -> list[Check]:
    """The checks of all files."""
    return [check for path in files() for check in checks_of(path)]


if __name__ == "__main__":
    for each in all_checks():
        print(each.id)
