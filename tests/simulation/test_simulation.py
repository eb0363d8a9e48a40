"""The protocol under random operations and faults: no run breaks a promise.

See tests/simulation/federation.py for the promises and tests/simulation/faults.py for the faults.
"""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.run import CASES, Report, bench, kept_case, simulate

OPERATIONS = 20_000
MANY_OPERATIONS = 1_000_000
PAIRS_AT_LEAST = 100


def _part(job: tuple[int, int]) -> Report:
    first, operations = job
    return simulate(first, lambda so_far: so_far.operations >= operations)


def _in_parts(operations: int, parts: int) -> Report:
    """On all processors, each part from a seed of its own."""
    report = Report()
    # A process of threads, as a test's is, is not copied: a copy may wait for ever for a lock of one of them.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(_part, [(1_000_000 * n, operations // parts) for n in range(parts)]):
            report.add(part)
    return report


def test_no_run_breaks_a_promise(capsys):
    """In two parts, as tests that run beside it wait for nodes."""
    report = _in_parts(OPERATIONS, 2)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report.lines()) + "\n")
    assert report.operations >= OPERATIONS
    assert report.happened["progress"] > report.runs / 2


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_a_million_operations_break_no_promise(capsys):
    """Every pair of faults occurs together in at least PAIRS_AT_LEAST runs."""
    report = _in_parts(MANY_OPERATIONS, 100)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report.lines()) + "\n")
    assert report.operations >= MANY_OPERATIONS
    assert report.rarest_pair[1] >= PAIRS_AT_LEAST


@pytest.mark.parametrize("name", sorted(file.stem for file in CASES.glob("*.json")))
def test_runs_that_once_failed(name):
    with bench() as own:
        own.play(*kept_case(name))
