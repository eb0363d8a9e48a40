"""The ledger: exact, durable, never overdrawn."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.filters import Loss
from parties.database import LedgerBusyError, LedgerDamagedError, LedgerFileError, LedgerOwner
from parties.ledger.charges import Charge, marginal
from parties.ledger.ledger import Ledger, LedgerConflictError
from parties.ledger.limits import BudgetExceededError, LedgerLimits
from tests.federation.party import SMOKER, limits
from tests.waiting import HANG_S
from wire.errors import Code
from wire.query import CLOCK_SKEW_S

OWNER = LedgerOwner("clinics", "ada", "data.csv")
# Of delta the basic filter, which most tests look at, has half.
LIMIT = limits("10", "2e-5", unbounded=10**9)
COHORT, SPOOL = b"c" * 32, b"s" * 32


def query(number: int) -> bytes:
    return number.to_bytes(32, "big")


def cost(epsilon: str | Fraction, delta: str = "1e-6", feature: str = "smoker") -> Charge:
    """A loss that only the basic filter can allow: its rho is far beyond every limit."""
    loss = Loss(Fraction(epsilon), Fraction(delta), Fraction(10**6), Fraction(0))
    return Charge(((marginal(feature), loss),), "lea")


def opened(path: Path, limit: LedgerLimits = LIMIT, owner: LedgerOwner = OWNER) -> Ledger:
    return Ledger.open(path, owner, limit)


def spent(ledger: Ledger) -> Fraction:
    return ledger.spent(SMOKER).epsilon


def reserved(ledger: Ledger) -> Fraction:
    return ledger.reserved(SMOKER).epsilon


def remaining(ledger: Ledger) -> float:
    return ledger.limits.of(SMOKER).left(ledger.spent(SMOKER) + ledger.reserved(SMOKER)).epsilon


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    return opened(path)


def reserve(ledger: Ledger, number: int, charge: Charge, *, attempt: int = 1, lapses: float = 1e12) -> None:
    ledger.reserve(query(number), attempt, charge, lapses_at_unix_s=lapses, now_unix_s=0.0)


def spend(ledger: Ledger, number: int, *, attempt: int = 1, cohort: bytes = COHORT, spool: bytes = SPOOL) -> None:
    ledger.charge(query(number), attempt, cohort_digest=cohort, spool_digest=spool, now_unix_s=0.0)


def test_reserve_charge_and_what_remains(ledger):
    reserve(ledger, 1, cost("4"))
    assert (spent(ledger), reserved(ledger), remaining(ledger)) == (0, 4, 6)
    spend(ledger, 1)
    assert (spent(ledger), reserved(ledger), remaining(ledger)) == (4, 0, 6)
    assert ledger.spent(SMOKER).delta == Fraction(1, 1_000_000)


def test_rationals_are_exact_up_to_the_last_unit(ledger):
    for number in range(3):
        reserve(ledger, number, cost("10/3", "0"))
    assert remaining(ledger) == 0
    with pytest.raises(BudgetExceededError) as caught:
        reserve(ledger, 9, cost(Fraction(1, 10**30), "0"))
    assert caught.value.code is Code.BUDGET_EXCEEDED
    assert (caught.value.scope.key, caught.value.remaining) == (SMOKER.key, 0)


def test_a_double_is_charged_as_exactly_itself(path):
    ledger = opened(path)
    reserve(ledger, 1, cost(Fraction(0.1), "0"))
    spend(ledger, 1)
    ledger.database.close()
    assert spent(opened(path)) == Fraction(0.1) != Fraction(1, 10)


def test_delta_is_a_limit_too(ledger):
    reserve(ledger, 1, cost("0.1", "9e-6"))
    with pytest.raises(BudgetExceededError) as caught:
        reserve(ledger, 2, cost("0.1", "2e-6"))
    assert (caught.value.requested.delta, caught.value.limit.split(" (")[0]) == (Fraction(2, 10**6), "of the lifetime")
    reserve(ledger, 2, cost("0.1", "1e-6"))


def test_each_scope_counts_against_its_own_limit(ledger):
    reserve(ledger, 1, cost("6", feature="a"))
    reserve(ledger, 2, cost("6", feature="b"))
    with pytest.raises(BudgetExceededError, match="for marginal:a; of the limit of the lifetime"):
        reserve(ledger, 3, cost("6", feature="a"))


def test_every_attempt_is_charged(ledger):
    for attempt in (1, 2):
        reserve(ledger, 1, cost("4"), attempt=attempt)
        spend(ledger, 1, attempt=attempt)
    assert spent(ledger) == 8
    with pytest.raises(BudgetExceededError):
        reserve(ledger, 1, cost("4"), attempt=3)


def test_the_same_reservation_again_changes_nothing_and_another_is_refused(ledger):
    reserve(ledger, 1, cost("4"))
    reserve(ledger, 1, cost("4"))
    assert reserved(ledger) == 4
    with pytest.raises(LedgerConflictError):
        reserve(ledger, 1, cost("5"))
    spend(ledger, 1)
    with pytest.raises(LedgerConflictError):
        reserve(ledger, 1, cost("4"))
    assert spent(ledger) == 4


def test_a_charge_binds_permanently(path):
    ledger = opened(path)
    reserve(ledger, 1, cost("4"))
    spend(ledger, 1)
    spend(ledger, 1)
    ledger.database.close()
    ledger = opened(path)
    for other in ({"cohort": b"x" * 32}, {"spool": b"x" * 32}):
        with pytest.raises(LedgerConflictError, match="bound"):
            spend(ledger, 1, **other)
    assert spent(ledger) == 4
    assert ledger.is_charged(query(1), 1)
    assert not ledger.is_charged(query(2), 1)


def test_what_is_not_reserved_cannot_be_charged(ledger):
    with pytest.raises(LedgerConflictError, match="reservation"):
        spend(ledger, 1)


def test_a_release_gives_back_a_reservation_and_never_a_charge(ledger):
    reserve(ledger, 1, cost("4"))
    assert ledger.release(query(1), 1)
    assert remaining(ledger) == 10
    reserve(ledger, 2, cost("4"))
    spend(ledger, 2)
    assert not ledger.release(query(2), 1)
    assert spent(ledger) == 4


def test_held_reservations_stay_until_they_are_let_go(ledger):
    reserve(ledger, 1, cost("4"), lapses=100.0)
    reserve(ledger, 2, cost("3"), lapses=200.0)
    assert ledger.hold_reservations() == 2
    reserve(ledger, 3, cost("1"), lapses=100.0)
    assert not ledger.release(query(1), 1)
    assert ledger.lapse(1e9) == 1
    assert ledger.held_until() == 100.0 + CLOCK_SKEW_S
    # Others were asked while a member could still come into a cohort with it.
    assert ledger.let_go(100.0 + CLOCK_SKEW_S) == (0, 0)
    ledger.seen_in_cohort(query(2), 1)
    assert ledger.let_go(101.0 + CLOCK_SKEW_S) == (0, 1)
    assert ledger.held_until() == 200.0 + CLOCK_SKEW_S
    assert ledger.let_go(1e9) == (1, 0)
    assert (ledger.held_until(), spent(ledger), remaining(ledger)) == (None, 3, 7)


def test_a_reservation_that_lapsed_is_not_charged_any_more(ledger):
    """Also while it is held, or was not released yet: others count on it that no byte leaves afterwards."""
    reserve(ledger, 1, cost("4"), lapses=100.0)
    with pytest.raises(LedgerConflictError, match="lapsed; no byte may leave"):
        ledger.charge(query(1), 1, cohort_digest=COHORT, spool_digest=SPOOL, now_unix_s=100.5)
    ledger.charge(query(1), 1, cohort_digest=COHORT, spool_digest=SPOOL, now_unix_s=100.0)
    # What is charged may still be sent.
    ledger.charge(query(1), 1, cohort_digest=COHORT, spool_digest=SPOOL, now_unix_s=200.0)


def test_a_held_reservation_is_charged_as_usual(ledger):
    reserve(ledger, 1, cost("4"))
    ledger.hold_reservations()
    spend(ledger, 1)
    assert (ledger.held_until(), spent(ledger)) == (None, 4)


def test_the_charged_queries_have_their_learner_and_the_time_of_their_first_charge(ledger):
    reserve(ledger, 1, cost("4"))
    assert ledger.charged_queries() == []
    spend(ledger, 1)
    ((query_id, learner, at),) = ledger.charged_queries()
    assert (query_id, learner) == (query(1), cost("4").learner)
    assert at == ledger.first_charge_unix_s()


def test_reservations_lapse_and_charges_do_not(ledger):
    reserve(ledger, 1, cost("4"), lapses=100.0)
    reserve(ledger, 2, cost("4"), lapses=100.0)
    spend(ledger, 2)
    assert ledger.lapse(100.0) == 0
    assert ledger.lapse(100.1) == 1
    assert (spent(ledger), reserved(ledger)) == (4, 0)
    with pytest.raises(LedgerConflictError):
        spend(ledger, 1)


def test_a_lapsed_reservation_makes_room(ledger):
    reserve(ledger, 1, cost("8"), lapses=100.0)
    ledger.reserve(query(2), 1, cost("8"), lapses_at_unix_s=1e12, now_unix_s=101.0)
    assert reserved(ledger) == 8


def test_a_lowered_limit_stops_a_charge(path):
    ledger = opened(path)
    reserve(ledger, 1, cost("4"))
    ledger.database.close()
    ledger = opened(path, limits("3", "0.1", unbounded=9))
    with pytest.raises(BudgetExceededError):
        spend(ledger, 1)
    assert spent(ledger) == 0


@pytest.mark.parametrize("field", ["federation", "party", "source"])
def test_anothers_ledger_is_refused(path, field):
    opened(path).database.close()
    other = LedgerOwner(**{**OWNER.__dict__, field: "other"})
    with pytest.raises(LedgerFileError, match=field):
        opened(path, owner=other)


@pytest.mark.parametrize("content", [b"", b"not a ledger" * 1000, b"SQLite format 3\0" + b"\0" * 4096])
def test_a_file_that_is_not_a_ledger_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerFileError):
        opened(path)
    assert path.read_bytes() == content


def test_a_damaged_ledger_says_what_to_do_and_not_to_restore_a_copy(ledger, path):
    for number in range(200):
        reserve(ledger, number, cost(Fraction(1, 10**6), "0", "x" * 100))
    ledger.database.close()
    whole = path.read_bytes()
    # Pages in the middle of the file, so that its header is still a ledger's.
    path.write_bytes(whole[:8192] + b"\xff" * 8192 + whole[16384:])
    damaged = path.read_bytes()
    with pytest.raises(LedgerDamagedError) as caught:
        opened(path)
    said = str(caught.value)
    assert "keep the file and ask the data officer" in said
    assert "An older copy or a new ledger forgets what was spent" in said
    assert "backup" not in said
    assert path.read_bytes() == damaged


def test_a_ledger_that_is_damaged_while_it_is_open_is_not_called_busy(ledger, monkeypatch):
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    with pytest.raises(LedgerDamagedError), ledger.database.transaction():
        raise error
    assert spent(ledger) == 0


def test_a_ledger_that_another_process_holds_is_busy(ledger, path, monkeypatch):
    monkeypatch.setattr("parties.database.BUSY_TIMEOUT_S", 0.05)
    other = opened(path)
    with ledger.database.transaction(), pytest.raises(LedgerBusyError, match="nothing was changed"):
        reserve(other, 1, cost("1"))
    reserve(other, 1, cost("1"))


def test_another_sqlite_file_is_refused(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerFileError, match="not a ledger"):
        opened(path)


def test_opening_without_creating(path):
    with pytest.raises(LedgerFileError, match="no ledger yet"):
        Ledger.open(path, OWNER, LIMIT, create=False)
    assert not path.exists()


def test_only_the_owner_reads_it(ledger, path):
    assert path.stat().st_mode & 0o077 == 0
    assert [left.name for left in path.parent.glob(".*")] == []


def test_a_full_disk_changes_nothing(ledger):
    reserve(ledger, 1, cost("1"))
    pages = ledger.database._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger.database._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerBusyError):
        for number in range(2, 1000):
            reserve(ledger, number, cost(Fraction(1, 10**6), "0", "x" * 1000))
    count = ledger.state().reserved
    ledger.database._connection.execute("PRAGMA max_page_count = 100000")
    reserve(ledger, 2000, cost("1"))
    assert ledger.state().reserved == count + 1


def test_an_error_inside_a_transaction_undoes_all_of_it(ledger):
    with pytest.raises(RuntimeError), ledger.database.transaction():
        reserve(ledger, 1, cost("4"))
        raise RuntimeError
    assert reserved(ledger) == 0


operations = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "charge", "release"]),
        st.integers(0, 3),
        st.fractions(0, 6, max_denominator=7),
        st.integers(0, 1),
    ),
    max_size=25,
)


@given(operations)
def test_any_list_of_operations_keeps_to_the_limit(tmp_path_factory, steps):
    """Against a model that is a dictionary."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite"
    ledger = opened(path)
    held, charged = {}, {}
    for what, number, epsilon, variant in steps:
        before = sum(held.values()) + sum(e for e, _ in charged.values())
        try:
            match what:
                case "reserve":
                    reserve(ledger, number, cost(epsilon, "0"))
                    assert number not in charged
                    assert held.get(number, epsilon) == epsilon
                    assert number in held or before + epsilon <= 10
                    held[number] = epsilon
                case "charge":
                    spend(ledger, number, spool=bytes([variant]) * 32)
                    if number in charged:
                        assert charged[number][1] == variant
                    else:
                        charged[number] = (held.pop(number), variant)
                case "release":
                    assert ledger.release(query(number), 1) == (number in held)
                    held.pop(number, None)
        except BudgetExceededError:
            assert what == "reserve"
            assert before + epsilon > 10
        except LedgerConflictError:
            wrong_again = what == "reserve" and (number in charged or held.get(number) != epsilon)
            unpaid = what == "charge" and number not in held and charged.get(number, (0, None))[1] != variant
            assert wrong_again or unpaid
        assert spent(ledger) == sum(e for e, _ in charged.values())
        assert reserved(ledger) == sum(held.values())
        assert spent(ledger) + reserved(ledger) <= 10
    ledger.database.close()


def test_threads_cannot_overdraw_together(ledger):
    """Eight threads of one process, each requesting 30 of 100 available tenths."""

    def want(thread: int) -> int:
        done = 0
        for number in range(30):
            try:
                reserve(ledger, 100 * thread + number, cost("0.1", "0"))
            except BudgetExceededError:
                continue
            spend(ledger, 100 * thread + number)
            done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(want, range(8))) == 100
    assert spent(ledger) == 10


SPENDER = """
import sys
from fractions import Fraction
from pathlib import Path
sys.path[:0] = {paths!r}
from parties.database import LedgerOwner
from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.ledger.charges import Charge, marginal
from parties.ledger.ledger import Ledger
from parties.ledger.limits import BudgetExceededError, LedgerLimits

limit = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 50_000)), 10**9)
tenth = Loss(Fraction(1, 10), Fraction(0), Fraction(10**6), Fraction(0))
ledger = Ledger.open(Path({path!r}), LedgerOwner("clinics", "ada", "data.csv"), limit)
done = 0
for number in range({count}):
    query_id = bytes([{process}]) + number.to_bytes(31, "big")
    try:
        ledger.reserve(query_id, 1, Charge(((marginal("smoker"), tenth),), "lea"),
                       lapses_at_unix_s=1e12, now_unix_s=0.0)
    except BudgetExceededError:
        break
    ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
    done += 1
    print(done, flush=True)
"""


def spender(path: Path, process: int, count: int) -> subprocess.Popen:
    root = Path(__file__).resolve().parents[3]
    code = SPENDER.format(paths=[str(root), str(root / "protos")], path=str(path), process=process, count=count)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_processes_cannot_overdraw_together(path):
    """Two processes, each requesting 60 of 100 available tenths.

    The file exists before: between its creation and the head beside it another process would find a head missing. A
    node's lock keeps a second one away.
    """
    opened(path).database.close()
    processes = [spender(path, number, 60) for number in range(2)]
    done = [len(process.communicate(timeout=HANG_S)[0].split()) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(done) == 100
    assert spent(opened(path)) == 10


@pytest.mark.more
def test_a_reported_charge_survives_kill_9(path):
    """Killed at 5 different moments, between any two statements: no charge that was reported is lost."""
    reported, lowest = 0, 0
    for number in range(5):
        process = spender(path, number, 10**6)
        lines = [process.stdout.readline() for _ in range(1 + 3 * number)]
        time.sleep(0.003 * number)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait(HANG_S)
        reported += len(lines)
        ledger = opened(path)
        # The one being charged when it was killed may stand without having been reported.
        assert lowest + len(lines) <= spent(ledger) * 10 <= lowest + len(lines) + 1
        assert reserved(ledger) * 10 <= number + 1
        lowest = int(spent(ledger) * 10)
    assert lowest >= reported >= 35


def test_verify_names_what_sqlite_finds(ledger):
    reserve(ledger, 1, cost(Fraction(1, 10**6), "0"))
    with ledger.database.transaction() as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE events SET state = 'free'")
        connection.execute("PRAGMA ignore_check_constraints = OFF")
    assert ledger.verify() == ["SQLite: CHECK constraint failed in events"]


def test_a_ledger_with_a_row_that_its_rules_forbid_is_damaged(ledger, path):
    reserve(ledger, 1, cost(Fraction(1, 10**6), "0"))
    ledger.database.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("UPDATE events SET state = 'free'")
    connection.close()
    with pytest.raises(LedgerDamagedError, match="CHECK"):
        opened(path)
