"""Few files ask for a feature's type, and there a new type is an error: it never falls into the case of another."""

import ast
from collections.abc import Iterator

from dpcore.records.features import FEATURE_TYPES
from dpcore.records.features.described import OneGroup
from tests.structure.sources import modules
from tests.structure.test_kinds import dispatches, names

MOST_FILES = 8
TYPES = {"RealFeature", "BooleanFeature", "CategoryFeature", "ThresholdFeature", "DateFeature"}
UNIONS = {"Feature", "Group"}
TOLD_APART = {"type", *FEATURE_TYPES}


def asked(tree: ast.AST) -> Iterator[int]:
    """The lines that ask for a feature's type: by its class, by classes that have a name, or by its type's name."""
    yield from dispatches(tree, TYPES)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.BinOp() | ast.Tuple() as value) if name not in UNIONS:
                if names(value) & TYPES:
                    yield node.lineno
            case ast.Compare(left=ast.Attribute(attr="type"), comparators=others) if constants(others) & TOLD_APART:
                yield node.lineno
            case ast.MatchClass(kwd_attrs=attributes, kwd_patterns=patterns) if "type" in attributes:
                if constants(patterns) & TOLD_APART:
                    yield patterns[0].lineno


def constants(nodes: list[ast.expr] | list[ast.pattern]) -> set[object]:
    return {each.value for node in nodes for each in ast.walk(node) if isinstance(each, ast.Constant)}


def unguarded(tree: ast.AST) -> Iterator[int]:
    """The lines that ask outside of a match that ends with assert_never."""
    guarded = {
        pattern.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Match) and ends_with_assert_never(node)
        for case in node.cases
        for pattern in ast.walk(case.pattern)
        if isinstance(pattern, ast.MatchClass)
    }
    yield from (line for line in asked(tree) if line not in guarded)


def ends_with_assert_never(node: ast.Match) -> bool:
    match node.cases[-1]:
        case ast.match_case(
            pattern=ast.MatchAs(pattern=None),
            guard=None,
            body=[ast.Expr(value=ast.Call(func=ast.Name("assert_never")))],
        ):
            return True
    return False


def test_few_files_ask_for_a_features_type():
    found = {name: list(asked(tree)) for name, tree in modules().items()}
    asking = {name: lines for name, lines in found.items() if lines}
    assert len(asking) <= MOST_FILES, "these files ask for a feature's type, ask the feature instead:\n" + "\n".join(
        f"{name}, lines {', '.join(map(str, lines))}" for name, lines in asking.items()
    )
    # What puts features into groups has to.
    assert "dpcore.records.schema" in asking


def test_no_type_falls_into_the_case_of_another():
    found = {name: list(unguarded(tree)) for name, tree in modules().items()}
    assert not {name: lines for name, lines in found.items() if lines}, "end these questions with assert_never"


def test_only_a_group_s_type_is_asked_for():
    """A feature of several groups, such as a date, is in no case: what works for its groups works for it."""
    of_several = {kind.__name__ for kind in FEATURE_TYPES.values() if not issubclass(kind, OneGroup)}
    assert of_several == {"DateFeature"}
    for name, tree in modules().items():
        assert not list(dispatches(tree, of_several)), name


def test_all_types_are_looked_for():
    assert {getattr(kind, "__name__", "") for kind in FEATURE_TYPES.values()} == TYPES


def test_each_way_of_asking_is_found():
    ways = [
        "isinstance(feature, RealFeature)",
        "kinds = BooleanFeature | ThresholdFeature",
        "feature.type == 'category'",
        "feature.type in ('real', 'threshold')",
        "match feature:\n    case Feature(type='real'):\n        pass",
        "{RealFeature: 1}[type(feature)]",
        "match feature:\n    case RealFeature():\n        pass\n    case _:\n        pass",
        "match feature:\n    case RealFeature():\n        pass",
    ]
    for text in ways:
        assert list(asked(ast.parse(text))), text
        assert list(unguarded(ast.parse(text))), text
    text = "match feature:\n    case RealFeature():\n        pass\n    case _:\n        assert_never(feature)"
    assert list(asked(ast.parse(text)))
    assert not list(unguarded(ast.parse(text)))
    for text in ("RealFeature(name='a')", "kind.type == 'page'", "def f(x: RealFeature | BooleanFeature): pass"):
        assert not list(asked(ast.parse(text))), text
