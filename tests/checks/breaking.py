"""A pytest plugin that breaks one check: `RADOFED_BROKEN_CHECK=ID python -m pytest -p tests.checks.breaking TEST`.

A condition keeps its side effects and never raises, a row is removed, and a call is not made. Where a run's outcome
proves nothing, its exit status is one of these and not pytest's.
"""

import ast
import os
from pathlib import Path

import pytest

from tests.checks.enumeration import Check, Walk, checks_of
from tests.checks.importing import Importer, module_of

VARIABLE = "RADOFED_BROKEN_CHECK"
OUTCOME = "RADOFED_BROKEN_OUTCOME"
"""If set, a file that the node id of the first test that failed is written to."""
NOT_IMPORTED, TIMED_OUT = 70, 71


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
