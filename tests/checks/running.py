"""Runs tests with one check broken, in forks of one process that has imported the libraries but none of our modules.

`python -m tests.checks.running` breaks every check of checks.json and prints each that its test does not notice.
"""

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checks import breaking
from tests.checks.enumeration import ROOT

MAPPING = ROOT / "tests/checks/checks.json"
SLOWEST_S = 60
_OPTIONS = (
    *("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:cov"),
    *("--hypothesis-seed=0", f"--timeout={SLOWEST_S}"),
)


@dataclass(frozen=True)
class Outcome:
    """status: pytest's exit status, or one of tests.checks.breaking. failed: node id of the first test that failed."""

    status: int
    failed: str

    @property
    def is_noticed(self) -> bool:
        """Whether a test failed."""
        return self.status == pytest.ExitCode.TESTS_FAILED


def _warm_up() -> None:
    """Import what takes long, so that no fork has to."""
    import grpc.aio  # noqa: F401
    import hypothesis  # noqa: F401
    import numba  # noqa: F401
    import pyarrow as pa  # noqa: F401
    import pydantic  # noqa: F401
    import scipy.stats  # noqa: F401
    from cryptography import x509  # noqa: F401


def _in_fork(check: str | None, tests: list[str], outcome: Path) -> None:
    os.environ.pop(breaking.VARIABLE, None)
    plugin: tuple[str, ...] = ()
    if check is not None:
        os.environ |= {breaking.VARIABLE: check, breaking.OUTCOME: str(outcome)}
        plugin = ("-p", "tests.checks.breaking")
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(outcome.with_suffix(".hypothesis"))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        status = pytest.main([*_OPTIONS, *plugin, "--basetemp", str(outcome.with_suffix(".tmp")), *tests])
    os._exit(int(status))


def run_broken(jobs: Iterable[tuple[str | None, list[str]]], *, at_once: int) -> Iterator[tuple[str | None, Outcome]]:
    """The outcome of each job (check, tests). Without a check, the tests run unbroken."""
    _warm_up()
    waiting = iter(jobs)
    running: dict[int, tuple[str | None, Path]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(1 << 30):
            job = next(waiting, None) if len(running) < at_once else None
            if job is not None:
                place = Path(directory) / str(number)
                sys.stdout.flush()
                process = os.fork()
                if not process:
                    try:
                        _in_fork(*job, place)
                    finally:
                        os._exit(pytest.ExitCode.INTERNAL_ERROR)
                running[process] = (job[0], place)
                continue
            if not running:
                return
            process, status = os.waitpid(-1, 0)
            check, place = running.pop(process)
            failed = place.read_text(encoding="utf-8") if place.exists() else ""
            yield check, Outcome(os.waitstatus_to_exitcode(status), failed)


def read() -> dict[str, dict[str, str]]:
    """The file: tests or reasons by id, in parts.

    checks: the test that fails without the check. redundant: the check that refuses the same. excluded: why it protects
    no one. unmapped: checks that no test fails without; the aim is none.
    """
    return json.loads(MAPPING.read_text(encoding="utf-8"))


def main() -> None:
    """Exit status 1 if a check can be broken unnoticed, or a test fails without a broken check."""
    start = time.monotonic()
    chosen = sys.argv[1:]
    mapping = {check: test for check, test in read()["checks"].items() if not chosen or check in chosen}
    at_once = len(os.sched_getaffinity(0))
    failures = 0
    jobs = [(None, sorted(set(mapping.values()))), *((check, [test]) for check, test in mapping.items())]
    for check, outcome in run_broken(jobs, at_once=at_once):
        if check is None and outcome.status != pytest.ExitCode.OK:
            failures += 1
            print(f"the tests fail without a broken check (status {outcome.status})", flush=True)
        elif check is not None and not outcome.is_noticed:
            failures += 1
            print(f"not noticed by {mapping[check]} (status {outcome.status}): {check}", flush=True)
    print(f"{len(mapping)} checks broken, {failures} failures, {time.monotonic() - start:.0f} s")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
