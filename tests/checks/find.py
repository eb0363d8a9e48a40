"""Finds the tests of new checks: `python -m tests.checks.find tests/FOLDER ...` writes them into checks.json.

One run records which tests trip which checks (tests.checks.recording). Then each check without a test is switched off,
and its candidates run, quickest first, until one fails, which a process of its own must prove. The file keeps what it
has; entries of vanished checks go. What no test trips is listed as unmapped: write its test, or say why it needs none.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.checks import recording
from tests.checks.enumeration import ROOT, all_checks
from tests.checks.running import MAPPING, read, run_broken

TESTS = (
    "tests/wire",
    "tests/dpcore/paillier",
    "tests/radobase/files",
    "tests/learner",
    "tests/coordinator",
    "tests/parties",
    "tests/protocol",
    "tests/simulation",
)
_MOST = 24
UNMAPPED = "no test fails without it"


def record(paths: list[str], directory: Path) -> None:
    """Run the tests on two processors and write what they trip into the directory."""
    arguments = ["-q", "-p", "tests.checks.recording", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
    environment = os.environ | {recording.VARIABLE: str(directory)}
    subprocess.run([sys.executable, "-m", "pytest", *arguments, *paths], cwd=ROOT, env=environment, check=False)


def recorded(directory: Path) -> dict[str, list[str]]:
    """Functions of tests that trip each check, quickest first, without those that start processes."""
    parts = [json.loads(file.read_text(encoding="utf-8")) for file in directory.glob("*.json")]
    seconds: defaultdict[str, float] = defaultdict(float)
    tripped: defaultdict[str, set[str]] = defaultdict(set)
    processes = {_function(test) for part in parts for test in part["processes"]}
    for part in parts:
        for test, duration in part["seconds"].items():
            seconds[_function(test)] += duration
        for check, tests in part["tripped"].items():
            tripped[check] |= {_function(test) for test in tests} - processes
    return {check: sorted(tests, key=lambda test: seconds[test]) for check, tests in tripped.items()}


def _function(test: str) -> str:
    """A node id without its parameters."""
    return test.partition("[")[0]


def proven(found: dict[str, str], candidates: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Each check with a test that fails without it in a process of its own: the one found, or another candidate."""
    left = {check: [test, *(t for t in candidates[check] if t != test)][:_MOST] for check, test in found.items()}
    while left:
        jobs = [(check, [tests.pop(0)]) for check, tests in left.items()]
        for check, outcome in run_broken(jobs, at_once=len(os.sched_getaffinity(0))):
            if outcome.is_noticed:
                yield check, _function(outcome.failed)
                del left[check]
        left = {check: tests for check, tests in left.items() if tests}


def find(new: set[str], candidates: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Each new check with a test that fails without it. The processors share the checks."""
    left = [check for check in candidates if check in new]
    parts = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as directory:
        processes = []
        for part in range(parts):
            file = Path(directory) / f"{part}.json"
            tried = {check: candidates[check][:_MOST] for check in left[part::parts]}
            file.write_text(json.dumps(tried), encoding="utf-8")
            tests = sorted({test for tests in tried.values() for test in tests})
            arguments = ["-q", "--tb=no", "-p", "tests.checks.recording", "-p", "no:cacheprovider", "--timeout=30"]
            if tests:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "pytest", *arguments, "--hypothesis-seed=0", *tests],
                        cwd=ROOT,
                        env=os.environ
                        | {recording.TRIED: str(file), "HYPOTHESIS_STORAGE_DIRECTORY": f"{file}.hypothesis"},
                        stdout=subprocess.DEVNULL,
                    )
                )
        done: set[str] = set()
        while True:
            ended = all(process.poll() is not None for process in processes)
            for file in Path(directory).glob("*.found"):
                for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
                    check, test = json.loads(line) if line.endswith("\n") else (None, None)
                    if test is not None and check not in done:
                        done.add(check)
                        yield check, test
            if ended:
                return
            time.sleep(1)


def main() -> None:
    """Writes the file."""
    content = read()
    ids = [check.id for check in all_checks()]
    for part in content.values():
        for vanished in part.keys() - set(ids):
            del part[vanished]
    new = set(ids) - content["checks"].keys() - content["redundant"].keys() - content["excluded"].keys()
    options = argparse.ArgumentParser(prog="python -m tests.checks.find", description=__doc__)
    options.add_argument("paths", nargs="*", default=[], help="tests to run; by default all that may trip a check")
    options.add_argument("--recorded", type=Path, help="directory of an earlier recording, to which this one is added")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.recorded or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if new and (given.paths or not any(directory.iterdir())):
            record(given.paths or list(TESTS), directory)
        candidates = recorded(directory)
    place = {check: number for number, check in enumerate(ids)}
    content["unmapped"] = {check: content["unmapped"].get(check, UNMAPPED) for check in new}
    _write(content, place)
    for check, test in proven(dict(find(new, candidates)), candidates):
        content["checks"][check] = test
        del content["unmapped"][check]
        _write(content, place)
    for check in content["unmapped"]:
        print("tripped, but no test fails:" if check in candidates else "never tripped:", check)
    print({part: len(entries) for part, entries in content.items()})


def _write(content: dict[str, dict[str, str]], place: dict[str, int]) -> None:
    ordered = {
        part: {check: entries[check] for check in sorted(entries, key=place.get)} for part, entries in content.items()
    }
    MAPPING.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
