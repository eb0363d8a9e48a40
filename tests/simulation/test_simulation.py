"""The protocol under random operations and faults: no run breaks a promise.

See tests/simulation/federation.py for the promises and tests/simulation/faults.py for the faults.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.run import CASES, Options, Report, bench, kept_case, simulate

OPERATIONS = 400
MORE_OPERATIONS = 20_000
MANY_OPERATIONS = 1_000_000
PAIRS_AT_LEAST = 20


@pytest.mark.parametrize(
    ("first_seed", "operations"), [(0, OPERATIONS), pytest.param(1000, MORE_OPERATIONS, marks=pytest.mark.more)]
)
def test_no_run_breaks_a_promise(first_seed, operations, capsys):
    report = simulate(first_seed, lambda so_far: so_far.operations >= operations)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report.lines()) + "\n")
    assert report.happened["progress"] > report.runs / 2
    assert report.happened["mask graph"] or report.runs < 20


def _part(job: tuple[int, int]) -> Report:
    first, operations = job
    return simulate(first, lambda so_far: so_far.operations >= operations)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_a_million_operations_break_no_promise(capsys):
    """On all processors. Every pair of faults occurs together in at least PAIRS_AT_LEAST runs."""
    report, parts = Report(), 100
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(_part, [(1_000_000 * (n + 1), MANY_OPERATIONS // parts) for n in range(parts)]):
            report.add(part)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report.lines()) + "\n")
    assert report.operations >= MANY_OPERATIONS
    assert report.rarest_pair[1] >= PAIRS_AT_LEAST


UPLOADING_WITHOUT_BOB = [("stall uploads", "bob"), *[("poll all",)] * 6]
EXPELLED = [("expel", "bob"), *[("poll all",)] * 3]


@pytest.mark.parametrize("may_vanish", ["0", "1"])
def test_a_member_that_is_expelled_while_it_uploads(may_vanish):
    """If members may vanish, the only attempt gives a total without it. Otherwise one attempt is lost, at once."""
    ask = ("ask", "0" if may_vanish == "1" else "1", "0", "0", may_vanish)
    operations = [ask, *UPLOADING_WITHOUT_BOB, *EXPELLED, ("look", "1"), *[("poll all",)] * 6, ("look", "0")]
    with bench() as own:
        happened = own.play(Options(0, 5, "10", ("expel", "stall uploads")), operations)
    assert happened["expel"] == 1
    assert happened["stall uploads"] >= 1
    # One is the fresh query after the run.
    assert happened["total opened"] == 2
    assert bool(happened["total without members that vanished"]) == (may_vanish == "1")
    assert happened["retry"] == (0 if may_vanish == "1" else 1)


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", sorted(file.stem for file in CASES.glob("*.json")))
def test_runs_that_once_failed(name):
    with bench() as own:
        own.play(*kept_case(name))
