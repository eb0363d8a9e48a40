"""The program's source files as syntax trees, and their imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpcore", "wire", "parties", "coordinator", "learner", "radobase", "radofed")


@cache
def modules(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, ast.Module]:
    """Every file's tree by its module's dotted name; a package's name is that of its __init__.py."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return found


def imports(trees: dict[str, ast.Module], packages: frozenset[str] = frozenset()) -> dict[str, set[str]]:
    """The modules that each module imports, anywhere in the file, except for type checkers only.

    `from a import b` imports a.b if that is a module, otherwise a. packages: names of those that are an
    __init__.py, needed for relative imports.
    """
    return {
        name: {target for node in _executed(tree) for target in _targets(node, name, trees, packages)} - {name}
        for name, tree in trees.items()
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """A shortest import cycle through each module that is on one, each cycle once."""
    found = {}
    for start in sorted(graph):
        path = _shortest(graph, start)
        if path is not None:
            found.setdefault(frozenset(path), path)
    return list(found.values())


def _shortest(graph: dict[str, set[str]], start: str) -> list[str] | None:
    came_from: dict[str, str] = {}
    edge = [start]
    while edge:
        following = []
        for name in edge:
            for target in sorted(graph[name] & graph.keys()):
                if target == start:
                    path = [name]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                if target not in came_from:
                    came_from[target] = name
                    following.append(target)
        edge = following
    return None


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below, except the body of `if TYPE_CHECKING:`; an expression contains none."""
    yield node
    if isinstance(node, ast.If) and _is_type_checking(node.test):
        children = node.orelse
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _executed(child)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _targets(node: ast.AST, name: str, trees: dict[str, ast.Module], packages: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in trees)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = name.split(".")
            kept = parts[: len(parts) - node.level + (name in packages)]
            base = ".".join([*kept, *([node.module] if node.module else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            if inner in trees:
                yield inner
            elif base in trees:
                yield base
