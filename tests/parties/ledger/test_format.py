"""Ledgers of the first format: converted completely, counted as strictly, and unchanged by a reader."""

import json
import sqlite3
from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.accounting.concentrated import laplace_curve
from dpcore.accounting.filters import Loss
from dpcore.accounting.gaussian import shift_distribution
from dpcore.accounting.protection import loss_of
from parties.database import LedgerDamagedError, LedgerFileError, LedgerOwner, PartyDatabase
from parties.ledger.chain import append_all
from parties.ledger.charges import (
    AWAITS_HEAD,
    FORMAT_VERSION,
    Charge,
    UnreadableEntryError,
    bounds_text,
    joint,
    marginal,
    read_charge,
    update_format,
)
from parties.ledger.head import head_path
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, UnboundedExceededError
from tests.federation.party import SMOKER, limits
from tests.parties.ledger.test_chain import APPROVAL_TABLES

OWNER = LedgerOwner("clinics", "ada", "data.csv")
OLD_EVENTS = """
CREATE TABLE events (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    scope TEXT NOT NULL,
    epsilon TEXT,
    delta TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'charged')),
    lapses_at_unix_s REAL NOT NULL,
    cohort_digest BLOB,
    spool_digest BLOB,
    recorded_at_unix_s REAL NOT NULL,
    PRIMARY KEY (query_id, attempt)
) STRICT
"""
ROWS = [
    (b"a" * 32, 1, "marginal:smoker", "1/10", "1/1000000", "charged", 5.0, b"c" * 32, b"s" * 32, 4.0),
    (b"b" * 32, 1, "marginal:smoker", "4/1", "1/1000000", "charged", 5.0, b"c" * 32, b"s" * 32, 4.0),
    (b"c" * 32, 2, "none", None, "0/1", "charged", 5.0, b"c" * 32, b"s" * 32, 4.0),
    (b"d" * 32, 1, "marginal:age", "2/1", "0/1", "reserved", 1e12, None, None, 4.0),
]


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "ledger.sqlite"
    PartyDatabase(path, OWNER).close()
    head_path(path).unlink()
    with sqlite3.connect(path) as file:
        for table in (
            "events",
            "chain",
            "witnessed",
            "receipts",
            "seen_in_cohorts",
            "evidence",
            "in_cohorts",
            "computed_late",
            "known_names",
            "row_epochs",
            *APPROVAL_TABLES,
        ):
            file.execute(f"DROP TABLE {table}")
        file.execute("DELETE FROM identity WHERE key = 'nonce'")
        file.execute(OLD_EVENTS)
        file.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ROWS)
        file.execute("PRAGMA user_version = 1")
    file.close()
    return path


def version(path) -> int:
    file = sqlite3.connect(path)
    (found,) = file.execute("PRAGMA user_version").fetchone()
    file.close()
    return found


def check(ledger: Ledger) -> None:
    first, second = (Loss.of_epsilon(epsilon, Fraction(1, 10**6)) for epsilon in (Fraction(1, 10), Fraction(4)))
    assert ledger.spent(SMOKER) == replace(first + second, is_earlier=True)
    assert ledger.spent(SMOKER).rho == Fraction(1, 200) + 4
    assert ledger.reserved(marginal("age")).epsilon == 2
    assert (ledger.unbounded(), ledger.unbounded(charged=False)) == (3, 1)
    assert ledger.verify() == []


def test_an_old_ledger_is_converted_and_continues(old):
    allowed = limits("5", "1e-5", unbounded=5)
    ledger = Ledger.open(old, OWNER, allowed)
    check(ledger)
    # The same attempt is bound as it was, and the reservation can be paid.
    ledger.charge(b"a" * 32, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=6.0)
    ledger.charge(b"d" * 32, 1, cohort_digest=b"x" * 32, spool_digest=b"y" * 32, now_unix_s=6.0)
    one = Charge(((SMOKER, Loss.of_epsilon(Fraction(1), Fraction(0))),), "lea")
    with pytest.raises(BudgetExceededError):
        ledger.reserve(b"e" * 32, 1, one, lapses_at_unix_s=1e12, now_unix_s=6.0)
    # A joint charge of the feature's column counts for it once an event names the column.
    ledger.reserve(
        b"f" * 32,
        1,
        Charge(((SMOKER, Loss.of_epsilon(Fraction(1, 2), Fraction(0))),)),
        lapses_at_unix_s=1e12,
        now_unix_s=6.0,
    )
    with pytest.raises(UnboundedExceededError):
        ledger.reserve(b"g" * 32, 1, Charge(), lapses_at_unix_s=1e12, now_unix_s=6.0)
    ledger.database.close()
    assert version(old) == FORMAT_VERSION
    assert Ledger.open(old, OWNER, allowed).spent(SMOKER).epsilon == Fraction(41, 10)


def test_reading_leaves_an_old_ledger_unchanged(old):
    before = old.read_bytes()
    ledger = Ledger.open(old, OWNER, limits("5", "1e-5"), create=False)
    check(ledger)
    ledger.database.close()
    assert version(old) == 1
    assert old.read_bytes() == before


def test_a_feature_of_format_1_may_have_a_colon_in_its_name(old):
    with sqlite3.connect(old) as file:
        file.execute("UPDATE events SET scope = 'marginal:with: colon' WHERE scope = 'marginal:age'")
    file.close()
    assert Ledger.open(old, OWNER, limits("5", "1e-5")).reserved(marginal("with: colon")).epsilon == 2


def test_two_processes_may_update_one_ledger(old):
    """Both saw the old format before one of them updated it."""
    Ledger.open(old, OWNER, limits("5", "1e-5")).database.close()
    with sqlite3.connect(old, isolation_level=None) as file:
        update_format(file)
    file.close()
    check(Ledger.open(old, OWNER, limits("5", "1e-5")))


def test_a_ledger_of_format_3_keeps_its_chain(tmp_path):
    path, allowed = tmp_path / "ledger.sqlite", limits("5", "1e-5")
    ledger = Ledger.open(path, OWNER, allowed)
    ledger.reserve(b"a" * 32, 1, Charge(), lapses_at_unix_s=1e12, now_unix_s=0.0)
    head = ledger.head()
    ledger.database.close()
    with sqlite3.connect(path) as file:
        for table in ("in_cohorts", "computed_late", "known_names", "row_epochs", *APPROVAL_TABLES):
            file.execute(f"DROP TABLE {table}")
        file.execute("PRAGMA user_version = 3")
    file.close()
    ledger = Ledger.open(path, OWNER, allowed)
    assert (ledger.head(), ledger.verify()) == (head, [])
    ledger.database.close()
    assert version(path) == FORMAT_VERSION


def test_the_number_of_events_is_stored_where_it_is_not_one():
    """Charges of equal cost have equal texts: those of earlier versions, which stored no number, and new ones."""
    assert bounds_text(Charge()) == "[]"
    assert bounds_text(Charge(events=3)) == '[["events", 3]]'


def test_a_crash_during_the_conversion_leaves_it_old(old, monkeypatch):
    calls = []

    def fails(*given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return bounds_text(*given)

    with monkeypatch.context() as patched:
        patched.setattr("parties.ledger.charges.bounds_text", fails)
        with pytest.raises(KeyboardInterrupt):
            Ledger.open(old, OWNER, limits("5", "1e-5"))
    assert version(old) == 1
    check(Ledger.open(old, OWNER, limits("5", "1e-5")))


def test_an_old_event_that_is_not_understood_stops_the_party(old):
    with sqlite3.connect(old) as file:
        file.execute("UPDATE events SET scope = 'everything' WHERE attempt = 1")
    file.close()
    with pytest.raises(LedgerDamagedError, match="everything"):
        Ledger.open(old, OWNER, limits("5", "1e-5"))
    assert version(old) == 1


@pytest.mark.parametrize("found", [0, FORMAT_VERSION + 1])
def test_a_format_that_is_not_known_is_refused(old, found):
    with sqlite3.connect(old) as file:
        file.execute(f"PRAGMA user_version = {found}")
    file.close()
    with pytest.raises(LedgerFileError, match=f"format {found}"):
        Ledger.open(old, OWNER, limits("5", "1e-5"))


def test_a_charge_is_read_back_as_it_was():
    exact = Loss(Fraction(1, 3), Fraction(1, 10**6), Fraction(0.1), Fraction(1, 7))
    charge = Charge(((joint('a "b"'), exact), (marginal("é", "ü"), exact)), "lea", b"\0\1")
    assert read_charge(bounds_text(charge), "lea", b"\0\1") == charge
    for events in (1, 2, 3):
        unbounded = Charge((), "lea", events=events)
        assert read_charge(bounds_text(unbounded), "lea", None) == unbounded


@pytest.mark.parametrize(
    "entry",
    [
        '["events", 1.5]',
        '["events", true]',
        '["events", 0]',
        '["record", 0, "", "1/1", "0/1", "0/1", "0/1"]',
        '["record", 1, "", "1/1", "0/1", "0/1", "0/1"]',
        '["marginal", 5, "", "1/1", "0/1", "0/1", "0/1"]',
        '["record", "", 1, "1/1", "0/1", "0/1", "0/1"]',
        '["record", "", "", "1e3", "0/1", "0/1", "0/1"]',
        '["record", "", "", "0.5", "0/1", "0/1", "0/1"]',
    ],
)
def test_a_charge_that_no_version_wrote_is_refused(entry):
    good = '["record", "", "", "1/1", "0/1", "0/1", "0/1"]'
    assert read_charge(f'[{good}, ["events", 2]]', "lea", None).events == 2
    with pytest.raises(UnreadableEntryError):
        read_charge(f"[{entry}]", "lea", None)


def test_verify_names_impossible_entries(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.sqlite", OWNER, limits("5", "1e-5"))
    ledger.reserve(b"a" * 32, 1, Charge(), lapses_at_unix_s=1e12, now_unix_s=0.0)
    assert ledger.verify() == []
    with ledger.database.transaction() as connection:
        connection.execute("UPDATE events SET state = 'charged', bounds = '[[1]]'")
        connection.execute("INSERT INTO attempts VALUES (?, 1, 'uploaded', x'00', 1, 3, NULL, 5, NULL)", (b"b" * 32,))
    faults = ledger.verify()
    assert len(faults) == 4
    said = ("otherwise than the chain says", "not readable", "bound to no cohort", "is not charged")
    assert [words in fault for words, fault in zip(said, faults, strict=True)] == [True] * 4


def test_a_ledger_of_format_4_opens_and_goes_on_under_its_own_rule(tmp_path):
    """Its charges have no curve: they are of an earlier version, whose rule used all of delta."""
    path, allowed = tmp_path / "ledger.sqlite", limits("10", "1e-5")
    ledger = Ledger.open(path, OWNER, allowed)
    gaussian = Loss(Fraction(1), Fraction(1, 10**6), Fraction(1, 100), Fraction(0))
    pure = Loss.of_epsilon(Fraction(1, 2), Fraction(0))
    for number, loss in enumerate((gaussian, pure)):
        charge = Charge(((SMOKER, loss),), "lea")
        ledger.reserve(bytes([number]) * 32, 1, charge, lapses_at_unix_s=1e12, now_unix_s=4.0)
    new = ledger.reserved(SMOKER)
    assert not new.is_earlier
    ledger.database.close()
    with sqlite3.connect(path) as file:
        for row, text in file.execute("SELECT rowid, bounds FROM events").fetchall():
            (entry,) = json.loads(text)
            file.execute("UPDATE events SET bounds = ? WHERE rowid = ?", (json.dumps([entry[:7]]), row))
        file.execute("DELETE FROM chain")
        append_all(file)
        file.execute("INSERT INTO identity VALUES (?, '1')", (AWAITS_HEAD,))
        for table in ("row_epochs", *APPROVAL_TABLES):
            file.execute(f"DROP TABLE {table}")
        file.execute("PRAGMA user_version = 4")
    file.close()
    head_path(path).unlink()
    ledger = Ledger.open(path, OWNER, allowed)
    assert version(path) == FORMAT_VERSION
    held, limit = ledger.reserved(SMOKER), allowed.lifetime
    assert held == replace(new, is_earlier=True)
    assert limit.admits(held)
    # As before: nothing that the rule of that version would have refused for the sum of deltas and rho is admitted.
    many = gaussian.times(int((limit.largest_rho - held.rho) / gaussian.rho))
    assert limit.admits(held + many)
    assert not limit.admits(held + gaussian.times(int(limit.largest_rho / gaussian.rho)))
    one = Charge(((SMOKER, gaussian),), "lea")
    ledger.reserve(b"n" * 32, 1, one, lapses_at_unix_s=1e12, now_unix_s=4.0)
    assert ledger.reserved(SMOKER).is_earlier


@pytest.mark.parametrize("earlier", [False, True])
def test_curves_are_stored_exactly_and_charges_of_earlier_versions_stay_such(earlier):
    curve, rho = laplace_curve(Fraction(40), 40, 1)
    for loss in (
        Loss(Fraction(1), Fraction(0), rho, Fraction(0), curve, rho),
        Loss.of_epsilon(Fraction(1, 3), Fraction(0)),
        Loss(Fraction(1), Fraction(1, 10**6), Fraction(1, 7), Fraction(1, 10**9)),
        Loss.of_epsilon(Fraction(0), Fraction(0)),
    ):
        charge = Charge(((SMOKER, replace(loss, is_earlier=earlier)),), "lea")
        ((_, read),) = read_charge(bounds_text(charge), "lea", None).bounds
        assert read.is_earlier is earlier
        # What an earlier version would have written says less: never less loss.
        s = Fraction(4)
        assert read == loss if not earlier else read.divergence(s) >= loss.divergence(s)
    damaged = bounds_text(charge).replace("]]]", ']]], ["x"]') if not earlier else '[["record", "", "", "1/1"]]'
    with pytest.raises(UnreadableEntryError):
        read_charge(damaged, "lea", None)


def test_what_is_charged_is_what_is_read():
    """A party computes only what costs as much as it reserved."""
    for distribution in (shift_distribution(0.1, 10, Fraction(1, 10), 1e-12), shift_distribution(0.1, 10, 1, 1e-12)):
        charge = Charge(((SMOKER, loss_of(distribution, Fraction(1, 10**6))),), "lea")
        assert read_charge(bounds_text(charge), "lea", None) == charge


def test_a_charge_keeps_its_mu_and_one_of_format_5_has_none():
    gaussian = loss_of(shift_distribution(0.5, slack=1e-12), Fraction(1, 10**6))
    charge = Charge(((SMOKER, gaussian),), "lea")
    stored = bounds_text(charge)
    assert read_charge(stored, "lea", None).bound(SMOKER) == gaussian
    assert gaussian.shift is not None
    assert gaussian.slack == Fraction(1e-12)
    (entry,) = json.loads(stored)
    before = read_charge(json.dumps([entry[:-1]]), "lea", None).bound(SMOKER)
    assert before == replace(gaussian, shift=None, slack=Fraction(0))
    for damaged in ([*entry, []], [*entry[:-1], ["1/2"]], [*entry[:-1], ["-1/2", "0/1"]]):
        with pytest.raises(UnreadableEntryError):
            read_charge(json.dumps([damaged]), "lea", None)
