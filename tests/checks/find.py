"""Finds the tests of new checks: `python -m tests.checks.find tests/FOLDER ...` writes them into checks.json.

One run measures which tests come to the line where each new check raises. Those tests run with the check broken until
one fails. Entries of vanished checks go. What no test notices is listed as unmapped: write its test, or say why it
needs none.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from coverage import CoverageData

from tests.checks.enumeration import ROOT, Check, all_checks
from tests.checks.running import MAPPING, read, run_broken

UNMAPPED = "no test fails without it"
_CONFIGURATION = "[run]\nparallel = true\ninclude = {files}\n"


def candidates(checks: Iterable[Check], paths: list[str]) -> dict[str, list[str]]:
    """Functions of the tests in these paths that come to each check's line."""
    with tempfile.TemporaryDirectory() as directory:
        configuration, data = Path(directory) / "coveragerc", Path(directory) / "data"
        files = ",".join(sorted({str(ROOT / check.path) for check in checks}))
        configuration.write_text(_CONFIGURATION.format(files=files), encoding="utf-8")
        options = ["-q", "-p", "no:cacheprovider", "--cov", "--cov-report=", "--cov-context=test"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"--cov-config={configuration}", *paths],
            cwd=ROOT,
            env=os.environ | {"COVERAGE_FILE": str(data)},
            check=False,
        )
        measured = CoverageData(str(data))
        measured.read()
        lines = {path: measured.contexts_by_lineno(str(ROOT / path)) for path in {check.path for check in checks}}
    found = {check.id: lines[check.path].get(check.line, []) for check in checks}
    return {check: sorted({_function(test) for test in tests if test}) for check, tests in found.items()}


def _function(context: str) -> str:
    """A test without its parameters and phase."""
    return context.partition("|")[0].partition("[")[0]


def main() -> None:
    """Writes the file."""
    content, checks = read(), all_checks()
    place = {check.id: number for number, check in enumerate(checks)}
    for part in content.values():
        for vanished in part.keys() - place.keys():
            del part[vanished]
    known = content["checks"] | content["redundant"] | content["excluded"]
    new = [check for check in checks if check.id not in known]
    content["unmapped"] = {check.id: content["unmapped"].get(check.id, UNMAPPED) for check in new}
    tests = candidates(new, sys.argv[1:]) if new and sys.argv[1:] else {}
    jobs = [(check, those) for check, those in tests.items() if those]
    for check, outcome in run_broken(jobs, at_once=len(os.sched_getaffinity(0))):
        if outcome.is_noticed:
            content["checks"][check] = _function(outcome.failed)
            del content["unmapped"][check]
    ordered = {
        part: {check: entries[check] for check in sorted(entries, key=place.get)} for part, entries in content.items()
    }
    MAPPING.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    for check in content["unmapped"]:
        print("no test fails without:" if tests.get(check) else "no test comes to:", check)
    print({part: len(entries) for part, entries in content.items()})


if __name__ == "__main__":
    main()
