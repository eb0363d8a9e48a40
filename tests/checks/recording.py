"""A pytest plugin that records which tests trip which checks, or tries which tests fail without a check.

With RADOFED_RECORDED=DIRECTORY, every process writes one JSON file into the directory: `tripped`, tests by check,
`seconds`, durations by test, and `processes`, the tests that start processes. A check in such a process is not seen.

With RADOFED_TRIED=FILE, the file names tests by check. The session runs each check's tests with that check switched off
until one fails, and adds a line to FILE.found. This is quick because nothing is imported again, and it is not proof: a
fixture or a cache may keep something. tests.checks.running proves it.
"""

import ast
import builtins
import json
import os
import subprocess
from collections import defaultdict
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.checks.enumeration import PROTECTING, Check, Walk, files
from tests.checks.importing import Importer, module_of

VARIABLE = "RADOFED_RECORDED"
TRIED = "RADOFED_TRIED"
_ROW = "recorded_row_"


class Recording(Walk):
    """Lets each check note that it trips."""

    def condition(self, check: Check, expression: ast.expr, *, trips: bool) -> ast.expr:
        """Noted if it has the truth that raises."""
        return _call("recorded_condition_", ast.Constant(check.id), ast.Constant(trips), expression)

    def call(self, check: Check, statement: ast.Expr) -> ast.stmt:
        """Noted if it raises, or if it never does and is made."""
        note = ast.Expr(_call("recorded_call_", ast.Constant(check.id)))
        if ast.unparse(statement.value) in PROTECTING.get(check.path, ()):
            return ast.If(_call("recorded_wanted_", ast.Constant(check.id)), [note, statement], [])
        handler = ast.ExceptHandler(ast.Name("BaseException", ast.Load()), None, [note, ast.Raise()])
        return ast.If(_call("recorded_wanted_", ast.Constant(check.id)), [ast.Try([statement], [handler], [], [])], [])

    def rows(self, loop: ast.For | ast.comprehension, checks: list[Check], within: ast.AST) -> None:
        """The number of the row is a variable, which the loop's conditions note as well."""
        ids = ast.Tuple([ast.Constant(check.id) for check in checks], ast.Load())
        loop.iter = _call("recorded_rows_", ids, loop.iter)
        loop.target = ast.Tuple([ast.Name(_ROW, ast.Store()), loop.target], ast.Store())
        for part in ast.walk(within):
            if (
                isinstance(part, ast.Call)
                and getattr(part.func, "id", "") == "recorded_condition_"
                and len(part.args) == 3
            ):
                part.args += [ids, ast.Name(_ROW, ast.Load())]


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


class _Plugin:
    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._off = ""
        self._tripped: defaultdict[str, set[str]] = defaultdict(set)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._processes: set[str] = set()
        self._test = ""
        builtins.recorded_condition_ = self._condition
        builtins.recorded_call_ = self._call
        builtins.recorded_wanted_ = lambda check: check != self._off
        builtins.recorded_rows_ = self._rows
        Importer({module_of(path): lambda path=path: Recording(path) for path in files()}).install()
        self._note_starts(subprocess.Popen, "__init__")
        self._note_starts(BaseProcess, "start")

    def _note_starts(self, kind, name):
        start = getattr(kind, name)

        def noted(*arguments, **options):
            self._processes.add(self._test)
            start(*arguments, **options)

        setattr(kind, name, noted)

    def _condition(self, check, trips, value, rows=(), row=0):
        if bool(value) == trips:
            self._tripped[check].add(self._test)
            if rows:
                self._tripped[rows[row]].add(self._test)
        return not trips if check == self._off else value

    def _rows(self, checks, elements):
        for place, element in enumerate(elements):
            row = min(place, len(checks) - 1)
            if checks[row] != self._off:
                yield row, element

    def _call(self, check):
        self._tripped[check].add(self._test)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid):
        self._test = nodeid

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl
    def pytest_sessionfinish(self):
        if self._directory is None:
            return
        content = {
            "tripped": {check: sorted(tests - {""}) for check, tests in self._tripped.items()},
            "seconds": self._seconds,
            "processes": sorted(self._processes),
        }
        (self._directory / f"{os.getpid()}.json").write_text(json.dumps(content), encoding="utf-8")


class _Trying(_Plugin):
    def __init__(self, file: Path) -> None:
        super().__init__(None)
        self._file = file
        self._failed = self._timed_out = False

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report):
        self._failed |= report.failed
        self._timed_out |= report.failed and "Timeout (>" in str(report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        items = defaultdict(list)
        for item in session.items:
            items[item.nodeid.partition("[")[0]].append(item)
        self._items = session.items
        for check, tests in json.loads(self._file.read_text(encoding="utf-8")).items():
            found = next((test for test in tests if self._fails(check, items[test])), None)
            with self._file.with_suffix(".found").open("a", encoding="utf-8") as file:
                file.write(json.dumps([check, found]) + "\n")
        return True

    def _another(self, item):
        """An item that shares as much with this one as possible, so that only this one's own fixtures end."""
        others = [other for other in self._items if other is not item]
        return next((other for other in others if other.parent is item.parent), next(iter(others), None))

    def _fails(self, check, items):
        """Whether a test fails with the check switched off, and passes after that with the check."""
        for item in items:
            if self._run(item, check):
                return not self._timed_out and not self._run(item, "")
        return False

    def _run(self, item, off):
        self._failed = self._timed_out = False
        self._off = off
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=self._another(item))
        finally:
            self._off = ""
        return self._failed


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    if VARIABLE in os.environ:
        early_config.pluginmanager.register(_Plugin(Path(os.environ[VARIABLE])), "recording")
    elif TRIED in os.environ:
        early_config.pluginmanager.register(_Trying(Path(os.environ[TRIED])), "trying")
