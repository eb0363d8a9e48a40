"""What is replaced in mutmut: prose is not mutated, calls are cheaper, and mypy looks at all mutants at once.

mutmut changes every string. A text with a space in it is prose, such as an error's message, unless it begins with a
word of SQL. Bytes are no prose: they are labels of hashes and of signatures. Neither prose is changed, nor an argument
that is prose dropped or replaced by None. SQL is not written in capitals or small letters: it would mean the same.
Messages are serialized with `deterministic=True`, which matters for maps, and no message has one: it stays.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
from mutmut.configuration import config
from mutmut.core import MutmutCallStack
from mutmut.mutation import file_mutation, trampoline
from mutmut.mutation.data import MutantLineSpans
from mutmut.mutation.file_mutation import FailedTypeCheckMutant, MutatedMethodLocation
from mutmut.type_checking import run_type_checker
from mutmut.utils.file_utils import change_cwd
from mutmut.utils.format_utils import get_mutant_name

_SQL = frozenset(("ALTER", "BEGIN", "CREATE", "DELETE", "DROP", "INSERT", "PRAGMA", "SELECT", "UPDATE", "WITH"))


def _is_prose_text(text: str) -> bool:
    return " " in text.strip() and text.split(maxsplit=1)[0] not in _SQL


def is_prose(node: cst.CSTNode) -> bool:
    """Whether an expression is a text for people."""
    match node:
        case cst.SimpleString():
            return isinstance(node.evaluated_value, str) and _is_prose_text(node.evaluated_value)
        case cst.FormattedString():
            literal = (part.value if isinstance(part, cst.FormattedStringText) else "…" for part in node.parts)
            return _is_prose_text("".join(literal))
        case cst.ConcatenatedString():
            return is_prose(node.left) or is_prose(node.right)
        case cst.IfExp():
            return is_prose(node.body) and is_prose(node.orelse)
    return False


def _is_order_of_maps(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "deterministic"


def _changes_nothing_else(before: cst.CSTNode, after: cst.CSTNode) -> bool:
    """Whether a mutation drops or replaces prose or the type of a cast, or changes the case of SQL."""
    match before, after:
        case cst.Call(), cst.Call():
            kept = {id(argument) for argument in after.args}
            changed = [(at, argument) for at, argument in enumerate(before.args) if id(argument) not in kept]
            is_cast = isinstance(before.func, cst.Name) and before.func.value == "cast"
            return any(
                is_prose(argument.value) or _is_order_of_maps(argument) or (is_cast and at == 0)
                for at, argument in changed
            )
        case cst.SimpleString(), cst.SimpleString():
            words = before.value.strip("\"'").split()
            return len(words) > 1 and words[0] in _SQL and before.value.lower() == after.value.lower()
        case ((cst.Assign() | cst.AnnAssign()), _):
            return before.value is not None and is_prose(before.value)
    return False


class _WithoutProse(file_mutation.MutationVisitor):
    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        is_type = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "TypeVar"
        return is_prose(node) or is_type or _is_order_of_maps(node) or super()._skip_node_and_children(node)

    def _create_mutations(self, node: cst.CSTNode) -> None:
        first = len(self.mutations)
        super()._create_mutations(node)
        made = self.mutations[first:]
        self.mutations[first:] = [m for m in made if not _changes_nothing_else(m.original_node, m.mutated_node)]


def _mutant_under_test() -> str:
    local = trampoline._mutant_under_test
    return os.environ.get("MUTANT_UNDER_TEST", "") if local is None else local


def install() -> None:
    """From now on, mutmut leaves prose alone, and its trampolines, which every call goes through, are cheaper.

    Which function called which is not noted: nothing here uses it, and its context variable could not be reset in tests
    of several modules (LookupError). The mutant under test is read from the environment only in processes that tests
    start.
    """
    file_mutation.MutationVisitor = _WithoutProse
    MutmutCallStack.get = lambda: (None, 0)
    MutmutCallStack.set = lambda value: None
    MutmutCallStack.reset = lambda token: None
    trampoline.get_mutant_under_test = _mutant_under_test


def _refused() -> Iterator[FailedTypeCheckMutant]:
    with change_cwd("mutants"):
        errors = run_type_checker(config().type_check_command)
    root = Path("mutants").absolute()
    spans: dict[Path, MutantLineSpans | None] = {}
    for error in errors:
        path = error.file_path.relative_to(root)
        index = spans.setdefault(path, MutantLineSpans.load(path))
        found = index.span_by_function_name.items() if index is not None else ()
        names = [name for name, span in found if span.start <= error.line_number <= span.end]
        if not names or names[0].endswith("_orig"):
            raise RuntimeError(f"outside of every mutant: {path}:{error.line_number}: {error.error_description}")
        place = MutatedMethodLocation(path, names[0], error.line_number, error.line_number)
        yield FailedTypeCheckMutant(place, get_mutant_name(path, names[0]), error)


def refused() -> dict[str, FailedTypeCheckMutant]:
    """The mutants that `make lint` refuses, by name. mutmut's own function parses every changed file, for minutes."""
    return {mutant.name: mutant for mutant in _refused()}
