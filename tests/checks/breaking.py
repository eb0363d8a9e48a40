"""A pytest plugin that breaks one check: `RADOFED_BROKEN_CHECK=ID python -m pytest -p tests.checks.breaking TEST`.

A condition keeps its side effects and never raises, a row is removed, and a call is not made. Where a run's outcome
proves nothing, its exit status is one of these and not pytest's.
"""

import ast
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType

import pytest

from tests.checks.enumeration import Check, Walk, checks_of

VARIABLE = "RADOFED_BROKEN_CHECK"
OUTCOME = "RADOFED_BROKEN_OUTCOME"
"""If set, a file that the node id of the first test that failed is written to."""
NOT_IMPORTED, TIMED_OUT = 70, 71


def module_of(path: str) -> str:
    """The name of the module in a file of the repository."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Importer(importlib.abc.MetaPathFinder):
    """Imports modules through a walk each: nothing is written, and no compiled module is used or stored.

    walks: by the modules' names, made when the module is imported.
    """

    def __init__(self, walks: Mapping[str, Callable[[], Walk]]) -> None:
        self._walks = walks
        self.imported: set[str] = set()

    def install(self) -> None:
        """From now on. Raises RuntimeError if one of the modules is imported already."""
        early = sorted(self._walks.keys() & sys.modules.keys())
        if early:
            raise RuntimeError(f"imported too early: {', '.join(early)}")
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname, path=None, target=None):
        """The module's own place, with another loader."""
        if fullname not in self._walks:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            self.imported.add(fullname)
            spec.loader = _Loader(fullname, spec.origin, self._walks[fullname])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, walk: Callable[[], Walk]) -> None:
        super().__init__(fullname, path)
        self._walk = walk

    def get_code(self, fullname: str) -> CodeType:
        tree = self._walk().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class Breaking(Walk):
    """Breaks the check of this id."""

    def __init__(self, path: str, broken: str) -> None:
        super().__init__(path)
        self._broken = broken

    def condition(self, check: Check, expression: ast.expr, *, trips: bool) -> ast.expr:
        """Evaluated as before, with a truth at which nothing raises."""
        if check.id != self._broken:
            return expression
        return ast.BoolOp(ast.And() if trips else ast.Or(), [expression, ast.Constant(not trips)])

    def row(self, check: Check, element: ast.expr) -> ast.expr | None:
        """Removed."""
        return None if check.id == self._broken else element

    def call(self, check: Check, statement: ast.Expr) -> ast.stmt:
        """Not made."""
        return ast.Pass() if check.id == self._broken else statement


class _Plugin:
    def __init__(self, broken: str) -> None:
        path = broken.partition("::")[0]
        if broken not in {check.id for check in checks_of(path)}:
            raise pytest.UsageError(f"no check {broken}")
        self._module = module_of(path)
        self._importer = Importer({self._module: lambda: Breaking(path, broken)})
        self._importer.install()
        self._failed: list[str] = []
        self._timed_out = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._failed.append(report.nodeid)
            self._timed_out |= "Timeout (>" in str(report.longrepr)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self._module not in self._importer.imported:
            session.exitstatus = NOT_IMPORTED
        elif self._timed_out:
            session.exitstatus = TIMED_OUT
        elif self._failed and OUTCOME in os.environ:
            Path(os.environ[OUTCOME]).write_text(self._failed[0], encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    if VARIABLE in os.environ:
        early_config.pluginmanager.register(_Plugin(os.environ[VARIABLE]), "breaking")
