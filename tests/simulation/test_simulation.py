"""The protocol under random operations and faults: no run breaks a promise, and known defects are found again.

See tests/simulation/federation.py for the promises and tests/simulation/faults.py for the faults.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import learner.opening
import parties.answering.decisions
import parties.database
from parties.ledger.ledger import Ledger
from tests.simulation.federation import ViolationError
from tests.simulation.run import FailedRunError, Options, Report, bench, operations_of, simulate

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
OPERATIONS = 20_000
MANY_OPERATIONS = 1_000_000
PAIRS_AT_LEAST = 100


def test_no_run_breaks_a_promise(capsys):
    report = simulate(0, lambda so_far: so_far.operations >= OPERATIONS)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(report.lines()) + "\n")
    assert report.happened["progress"] > report.runs / 2


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


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_runs_that_once_failed(file):
    case = json.loads(file.read_text())
    with bench() as own:
        own.play(Options(**case["options"] | {"pair": tuple(case["options"]["pair"])}), map(tuple, case["operations"]))


def find(promise: str, first_seed: int, runs: int = 150) -> str:
    """The violation that a defect causes within some runs; an empty text if none does."""
    with bench() as own:
        for seed in range(first_seed, first_seed + runs):
            options = Options.of(seed)
            try:
                own.play(options, operations_of(options))
            except ViolationError as violation:
                if violation.promise == promise:
                    return str(violation)
                raise
    return ""


def test_totals_that_are_not_bound_are_found(monkeypatch):
    """F1: without the tag a forged total opens."""
    monkeypatch.setattr(learner.opening, "check_tag", lambda *_: None)
    assert find("a total is its cohort's sum", 0)


def test_charges_that_vanish_with_a_log_are_found(monkeypatch):
    """F3: with a write-ahead log a charge is gone once the log is. The head beside the ledger would notice."""
    monkeypatch.setattr(parties.database, "JOURNAL_MODE", "wal")
    monkeypatch.setattr(parties.database, "difference", lambda *_: "")
    monkeypatch.setattr(Ledger, "contradicts", lambda *_: False)
    assert find("no charge is lost", 0)


def test_a_ledger_that_is_not_anchored_is_found(monkeypatch):
    """F2 and F3: an older copy of a whole machine answers as if nothing had been spent."""
    monkeypatch.setattr(parties.database, "difference", lambda *_: "")
    monkeypatch.setattr(Ledger, "contradicts", lambda *_: False)
    assert find("a set-back ledger is noticed", 0, runs=300)


def test_attempts_that_no_learner_signed_are_found(monkeypatch):
    """F4: a coordinator starts another attempt by itself, and the party pays."""
    monkeypatch.setattr(parties.answering.decisions, "check_retry", lambda *_: None)
    assert find("attempts are the learner's", 0)


def test_a_failing_run_is_shrunk_and_says_how_to_repeat_it(monkeypatch):
    monkeypatch.setattr(parties.answering.decisions, "check_retry", lambda *_: None)
    with bench() as own, pytest.raises(FailedRunError) as caught:
        for seed in range(150):
            own.run(seed, Report())
    failed = caught.value
    assert len(failed.operations) <= 12
    assert f"seed={failed.options.seed}" in str(failed)
    with bench() as own, pytest.raises(ViolationError):
        own.play(failed.options, failed.operations)
