"""The mutants that `make lint` refuses: mypy checks all of them at once, and no test need run."""

from collections.abc import Iterator
from pathlib import Path

from mutmut.configuration import config
from mutmut.mutation.data import MutantLineSpans
from mutmut.mutation.file_mutation import FailedTypeCheckMutant, MutatedMethodLocation
from mutmut.type_checking import run_type_checker
from mutmut.utils.file_utils import change_cwd
from mutmut.utils.format_utils import get_mutant_name


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
    """By name. mutmut's own function parses every changed file, which takes minutes."""
    return {mutant.name: mutant for mutant in _refused()}
