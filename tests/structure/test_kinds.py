"""Kinds of query describe themselves: few files ask which kind they have."""

import ast
from collections.abc import Iterator

from tests.structure.sources import modules

MOST_FILES = 8
KINDS = {
    *("RadosQuery", "MomentsQuery", "ClassMomentsQuery", "StatisticQuery", "GradientQuery", "ClassGradientQuery"),
    *("LabelMomentsQuery", "NumberMomentsQuery"),
    *("LabelGradientQuery", "NumberGradientQuery", "HazardGradientQuery"),
    *("PlainDesign", "DpFeatDesign", "JointDesign", "FixedSupportDesign", "GaussianDesign"),
    *("RadosRequest", "MomentsRequest", "ChosenRequest", "StatisticRequest", "GradientRequest"),
}


def dispatches(tree: ast.Module, kinds: set[str]) -> Iterator[int]:
    """The lines that ask which of the kinds a value is: isinstance, match, a table by class, a comparison of types."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, asked]) if names(asked) & kinds:
                yield node.lineno
            case ast.MatchClass(cls=asked) if names(asked) & kinds:
                yield asked.lineno
            case ast.Dict(keys=keys) if any(names(key) & kinds for key in keys if isinstance(key, ast.Name)):
                yield node.lineno
            case ast.Compare(comparators=asked) if any(names(name) & kinds for name in asked):
                yield node.lineno


def names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def classes(trees: dict[str, ast.Module], package: str, suffix: str) -> set[str]:
    return {
        node.name
        for module, tree in trees.items()
        if module.startswith(package)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith(suffix)
    }


def test_few_files_ask_which_kind_they_have():
    found = {name: list(dispatches(tree, KINDS)) for name, tree in modules().items()}
    asking = {name: lines for name, lines in found.items() if lines}
    assert len(asking) <= MOST_FILES, "these files ask which kind of query, design or request they have:\n" + "\n".join(
        f"{name}, lines {', '.join(map(str, lines))}" for name, lines in asking.items()
    )
    # What is written to the wire has to.
    assert "wire.query_kinds" in asking


def test_all_kinds_are_looked_for():
    trees = modules()
    assert (
        classes(trees, "dpcore.queries", "Query") - {"SumQuery"}
        | classes(trees, "dpcore.rados.designs", "Design") - {"RadoDesign"}
        | classes(trees, "learner.requests", "Request")
        == KINDS
    )


def test_each_way_of_asking_is_found():
    ways = [
        "isinstance(kind, RadosQuery)",
        "isinstance(kind, queries.RadosQuery | int)",
        "match kind:\n    case Release(kind=RadosQuery(rados=n)):\n        pass",
        "{RadosQuery: 1}[type(kind)]",
        "type(kind) is RadosQuery",
        "type(kind) in (int, RadosQuery)",
    ]
    for text in ways:
        assert list(dispatches(ast.parse(text), KINDS)), text
    for text in ("RadosQuery(1, design)", "isinstance(kind, int)", "match kind:\n    case int():\n        pass"):
        assert not list(dispatches(ast.parse(text), KINDS)), text
