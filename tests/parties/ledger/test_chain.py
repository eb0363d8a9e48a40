"""The chain and its head: what is lost, cut, changed or older than the head is refused, and named."""

import hashlib
import shutil
import sqlite3
import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.filters import Loss
from dpcore.errors import RadofedError
from parties.database import LedgerDamagedError, LedgerHeadError, LedgerSetBackError, PartyDatabase
from parties.ledger import chain
from parties.ledger.charges import Charge
from parties.ledger.head import LocalHead, head_path
from parties.ledger.ledger import Ledger, LedgerConflictError
from parties.ledger.limits import BudgetExceededError, UnboundedExceededError
from tests.federation.party import OWNER, SMOKER, limits
from wire.statements import LedgerHead

LIMIT = limits("10", "2e-5", unbounded=4)
TENTH = Charge(((SMOKER, Loss.of_epsilon(Fraction(1, 10), Fraction(0))),), "lea")
TABLE = Charge(TENTH.bounds, "max", b"a table")
COHORT, SPOOL = b"c" * 32, b"s" * 32
ROUGH = limits("1000", "1e-3", unbounded=10**6)


def query(number: int) -> bytes:
    return number.to_bytes(32, "big")


def reserve(ledger: Ledger, number: int, charge: Charge = TENTH, lapses: float = 1e12, now: float = 0.0) -> None:
    ledger.reserve(query(number), 1, charge, lapses_at_unix_s=lapses, now_unix_s=now)


def charge(ledger: Ledger, number: int) -> None:
    ledger.charge(query(number), 1, cohort_digest=COHORT, spool_digest=SPOOL, now_unix_s=1.0)


def spend(ledger: Ledger, *numbers: int) -> None:
    for number in numbers:
        reserve(ledger, number)
        charge(ledger, number)


def opened(path, **options) -> Ledger:
    return Ledger.open(path, OWNER, ROUGH, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def spent(path):
    """Three charges and a reservation, closed."""
    ledger = opened(path)
    spend(ledger, 1, 2, 3)
    reserve(ledger, 4, TABLE)
    ledger.database.close()
    return path


# The chain against a plain list.

operations = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "charge", "release", "lapse", "reopen", "fail"]),
        st.integers(0, 4),
        st.sampled_from([TENTH, TABLE, Charge()]),
    ),
    max_size=12,
)


@given(operations)
def test_the_chain_is_the_list_of_reservations_and_charges(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("chain") / "ledger.sqlite"
    ledger = Ledger.open(path, OWNER, LIMIT)
    expected: list[tuple[str, bytes]] = []
    held: dict[int, str] = {}
    for step, number, cost in steps:
        match step:
            case "reserve":
                try:
                    reserve(ledger, number, cost, lapses=100.0)
                except (LedgerConflictError, BudgetExceededError, UnboundedExceededError):
                    continue
                if number not in held:
                    held[number] = "reserved"
                    expected.append(("reserved", query(number)))
            case "charge":
                if held.get(number) is None:
                    with pytest.raises(LedgerConflictError):
                        charge(ledger, number)
                    continue
                charge(ledger, number)
                if held[number] == "reserved":
                    held[number] = "charged"
                    expected.append(("charged", query(number)))
            case "release":
                if held.get(number) == "reserved":
                    assert ledger.release(query(number), 1)
                    del held[number]
            case "lapse":
                ledger.lapse(1000.0)
                held = {key: state for key, state in held.items() if state == "charged"}
            case "reopen":
                ledger.database.close()
                ledger = Ledger.open(path, OWNER, LIMIT)
            case _:
                # Where the limit is reached already, the reservation itself fails.
                with pytest.raises((ZeroDivisionError, UnboundedExceededError)), ledger.database.transaction():
                    reserve(ledger, 99, TENTH)
                    raise ZeroDivisionError
        assert ledger.verify() == []
        local = LocalHead.read(head_path(path))
        assert local is not None
        assert local.head == ledger.head()
    with ledger.database.transaction() as connection:
        rows = connection.execute("SELECT number, kind, query_id FROM chain ORDER BY number").fetchall()
    assert [tuple(row[1:]) for row in rows] == expected
    assert [row[0] for row in rows] == list(range(1, len(expected) + 1))
    assert {int.from_bytes(row, "big"): state for row, state in _states(ledger)} == held
    ledger.database.close()


def _states(ledger: Ledger) -> list[tuple[bytes, str]]:
    with ledger.database.transaction() as connection:
        return connection.execute("SELECT query_id, state FROM events").fetchall()


def test_the_digests_are_those_of_the_definition(path):
    ledger = opened(path)
    reserve(ledger, 1, TABLE)
    with ledger.database.transaction() as connection:
        (nonce,) = connection.execute("SELECT value FROM identity WHERE key = 'nonce'").fetchone()
        (bounds,) = connection.execute("SELECT bounds FROM events").fetchone()

    def text(value: str) -> bytes:
        return b"t" + struct.pack(">Q", len(value.encode())) + value.encode()

    def data(value: bytes) -> bytes:
        return b"b" + struct.pack(">Q", len(value)) + value

    first = hashlib.sha256(
        b"rado.v1/ledger-genesis\0" + b"".join(map(text, (OWNER.federation, OWNER.party, OWNER.source, nonce)))
    ).digest()
    entry = [b"i" + struct.pack(">q", 1), text("reserved"), data(query(1)), b"i" + struct.pack(">q", 1), text("max")]
    entry += [data(b"a table"), text(bounds), b"d" + struct.pack(">d", 1e12), b"n", b"n", b"d" + struct.pack(">d", 0)]
    expected = hashlib.sha256(b"rado.v1/ledger-entry\0" + first + b"".join(entry)).digest()
    assert ledger.head() == chain.Head(1, expected)
    assert len(bytes.fromhex(nonce)) == 16


def test_two_ledgers_of_one_owner_have_different_chains(tmp_path):
    heads = set()
    for name in ("a.sqlite", "b.sqlite"):
        ledger = opened(tmp_path / name)
        reserve(ledger, 1)
        heads.add(ledger.head().digest)
    assert len(heads) == 2


# Damage.


def test_a_lost_ledger_is_not_replaced_by_a_new_one(spent):
    spent.unlink()
    with pytest.raises(LedgerSetBackError, match=r"missing.*rado ledger acknowledge"):
        opened(spent)
    assert not spent.exists()


def test_an_older_copy_is_refused(path):
    ledger = opened(path)
    spend(ledger, 1)
    older = path.read_bytes()
    spend(ledger, 2)
    ledger.database.close()
    path.write_bytes(older)
    with pytest.raises(LedgerSetBackError, match="2 entries, and the head beside it names 4"):
        opened(path)
    # A reader sees it too, and reads it anyway.
    assert "names 4" in opened(path, create=False).database.set_back()


def test_an_older_copy_that_went_on_alone_is_refused(path, tmp_path):
    ledger = opened(path)
    spend(ledger, 1)
    (tmp_path / "fork").mkdir()
    fork = tmp_path / "fork" / "ledger.sqlite"
    for suffix in ("", ".head"):
        shutil.copy(f"{path}{suffix}", f"{fork}{suffix}")
    spend(ledger, 2)
    ledger.database.close()
    other = opened(fork)
    spend(other, 3, 4)
    other.database.close()
    shutil.copy(fork, path)
    with pytest.raises(LedgerSetBackError, match="differs at entry 4"):
        opened(path)


def test_another_ledger_of_the_same_owner_is_refused(spent, tmp_path):
    other = tmp_path / "other.sqlite"
    ledger = opened(other)
    spend(ledger, *range(9))
    ledger.database.close()
    shutil.copy(other, spent)
    with pytest.raises(LedgerSetBackError, match="another ledger"):
        opened(spent)


def test_a_ledger_without_its_head_is_refused(spent):
    head_path(spent).unlink()
    with pytest.raises(LedgerSetBackError, match="7 entries, and the head beside it is missing"):
        opened(spent)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_damaged_head_is_refused_and_not_overwritten(spent, harm):
    file = head_path(spent)
    content = bytearray(file.read_bytes())
    if harm == "flip":
        content[content.index(b'"entries": 7') + 11] ^= 1
    else:
        del content[len(content) // 2 if harm == "cut" else 0 :]
    file.write_bytes(content)
    with pytest.raises(RadofedError, match="rado ledger acknowledge"):
        opened(spent)
    assert file.read_bytes() == content


def test_a_ledger_cut_in_half_is_refused(spent):
    content = spent.read_bytes()
    spent.write_bytes(content[: len(content) // 2])
    with pytest.raises(LedgerDamagedError):
        opened(spent)


def test_an_id_of_another_type_is_named_too():
    assert chain._named("a text", 1) == "query 'a text', attempt 1"
    assert chain._named(query(1), None) == f"query {query(1).hex()[:16]}, attempt None"


def test_entries_count_from_1_those_of_an_acknowledgement_too(path):
    ledger = opened(path)
    reserve(ledger, 1)
    with ledger.database.transaction() as connection:
        connection.execute("DELETE FROM chain")
        connection.execute("UPDATE events SET state = 'charged', cohort_digest = x'00', spool_digest = x'00'")
        for kind, number, follows in (
            (chain.EntryKind.ACKNOWLEDGED, 0, False),
            (chain.EntryKind.ACKNOWLEDGED, 1, True),
            (chain.EntryKind.ACKNOWLEDGED, 7, True),
            (chain.EntryKind.CHARGED, 1, True),
            (chain.EntryKind.CHARGED, 2, False),
        ):
            chain.append(connection, kind, query(1), 1, number=number)
            assert chain.faults(connection) == (
                [] if follows else [f"entry {number}: follows entry 0; entries are missing"]
            )
            connection.execute("DELETE FROM chain")
    ledger.database.close()


def test_a_fault_names_the_attempt(spent):
    with sqlite3.connect(spent) as file:
        file.execute("UPDATE events SET learner = 'max' WHERE query_id = ?", (query(1),))
    file.close()
    with pytest.raises(LedgerDamagedError, match=f"query {query(1).hex()[:16]}, attempt 1: is charged otherwise"):
        opened(spent)


def counted(path) -> list[tuple[object, ...]] | None:
    """What a ledger counts; None if it is refused, at the start or when it is read, or verify names a fault."""
    try:
        ledger = opened(path)
    except RadofedError:
        return None
    try:
        if ledger.verify():
            return None
        with ledger.database.transaction() as connection:
            return connection.execute("SELECT * FROM events ORDER BY query_id").fetchall()
    except LedgerDamagedError:
        return None
    finally:
        ledger.database.close()


def test_a_flipped_bit_never_changes_what_is_counted_unnoticed(spent, tmp_path):
    before, whole, head = counted(spent), spent.read_bytes(), head_path(spent).read_bytes()
    assert before is not None
    assert len(before) == 4
    held = [at for at in range(len(whole)) if whole[at]]
    noticed = 0
    for number, at in enumerate(held[:: max(1, len(held) // 150)]):
        copy = tmp_path / f"{number}.sqlite"
        content = bytearray(whole)
        content[at] ^= 1 << number % 8
        copy.write_bytes(content)
        head_path(copy).write_bytes(head)
        found = counted(copy)
        assert found in (None, before), f"byte {at}, bit {number % 8}"
        noticed += found is None
    assert noticed > 20


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET bounds = replace(bounds, '1/10', '1/11') WHERE state = 'charged'",
        "UPDATE events SET state = 'reserved' WHERE query_id = x'" + query(2).hex() + "'",
        "DELETE FROM events WHERE query_id = x'" + query(2).hex() + "'",
        "UPDATE events SET learner = 'max'",
        "UPDATE events SET epoch = x'00'",
        "UPDATE events SET recorded_at_unix_s = 5",
        "UPDATE events SET attempt = 2 WHERE query_id = x'" + query(1).hex() + "'",
        "UPDATE events SET cohort_digest = zeroblob(32)",
        "UPDATE events SET lapses_at_unix_s = 5 WHERE state = 'reserved'",
        "INSERT INTO events SELECT x'00', 1, learner, epoch, bounds, 'reserved', 5, NULL, NULL, 0 FROM events LIMIT 1",
        "DELETE FROM chain WHERE number = 2",
        "DELETE FROM chain WHERE number = 7",
        "UPDATE chain SET bounds = '[]' WHERE number = 1",
        "UPDATE chain SET kind = 'acknowledged' WHERE number = 1",
        "UPDATE chain SET attempt = -1 WHERE number = 1",
        "UPDATE events SET attempt = -9223372036854775808 WHERE query_id = x'" + query(1).hex() + "'",
        "UPDATE identity SET value = '00' WHERE key = 'nonce'",
    ],
)  # fmt: skip
def test_every_change_of_an_entry_or_an_event_is_named(spent, change):
    with sqlite3.connect(spent) as file:
        file.execute(change)
    file.close()
    with pytest.raises((LedgerDamagedError, LedgerSetBackError)):
        opened(spent)
    reader = opened(spent, create=False)
    assert reader.verify() or reader.database.set_back()
    reader.database.close()


# The head is written before a call returns.


def test_a_head_that_cannot_be_written_stops_the_call_and_is_written_later(path, monkeypatch):
    ledger = opened(path)
    spend(ledger, 1)
    before = head_path(path).read_bytes()

    def fails(*_given, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("parties.ledger.head.write_durably", fails)
        reserve_raised = pytest.raises(LedgerHeadError, match="nothing leaves until it is")
        with reserve_raised:
            reserve(ledger, 2)
        with pytest.raises(LedgerHeadError):
            charge(ledger, 2)
        assert head_path(path).read_bytes() == before
    # The same call again finds the charge, and writes the head.
    charge(ledger, 2)
    local = LocalHead.read(head_path(path))
    assert local is not None
    assert local.head == ledger.head() == chain.Head(4, ledger.head().digest)


def test_a_ledger_ahead_of_its_head_is_one_whose_process_died(path):
    ledger = opened(path)
    spend(ledger, 1)
    behind = head_path(path).read_bytes()
    spend(ledger, 2)
    ledger.database.close()
    head_path(path).write_bytes(behind)
    ledger = opened(path)
    assert ledger.state().charged == 2
    local = LocalHead.read(head_path(path))
    assert local is not None
    assert local.head == ledger.head()


def test_the_head_is_beside_the_ledger_that_a_link_points_to(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "ledger.sqlite"
    opened(tmp_path / "disk" / "ledger.sqlite").database.close()
    link.symlink_to(tmp_path / "disk" / "ledger.sqlite")
    spend(opened(link), 1)
    assert (tmp_path / "disk" / "ledger.sqlite.head").exists()
    assert not (tmp_path / "ledger.sqlite.head").exists()


# Formats without a chain.


APPROVAL_TABLES = ("approvals", "approval_acts", "approval_uses")


def without_chain(path) -> None:
    """Make a ledger of format 2 of it."""
    head_path(path).unlink()
    with sqlite3.connect(path) as file:
        later = ("chain", "witnessed", "receipts", "seen_in_cohorts", "evidence")
        for table in (*later, "in_cohorts", "computed_late", "known_names", "row_epochs", *APPROVAL_TABLES):
            file.execute(f"DROP TABLE {table}")
        file.execute("DELETE FROM identity WHERE key = 'nonce'")
        file.execute("PRAGMA user_version = 2")
    file.close()


def test_a_ledger_of_format_2_gets_its_chain(spent):
    without_chain(spent)
    ledger = opened(spent)
    with ledger.database.transaction() as connection:
        rows = connection.execute("SELECT kind, query_id FROM chain ORDER BY number").fetchall()
    assert rows == [("charged", query(n)) for n in (1, 2, 3)] + [("reserved", query(4))]
    assert ledger.verify() == []
    charge(ledger, 4)
    ledger.database.close()
    assert opened(spent).state().charged == 4


def test_a_crash_between_the_conversion_and_the_head_is_survived(spent, monkeypatch):
    without_chain(spent)

    def killed(*_given, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("parties.ledger.head.write_durably", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(spent)
    assert not head_path(spent).exists()
    opened(spent).database.close()
    head_path(spent).unlink()
    with pytest.raises(LedgerSetBackError):
        opened(spent)


def test_a_copy_of_an_older_format_is_refused_once_there_was_a_newer_one(spent):
    head = head_path(spent).read_bytes()
    without_chain(spent)
    head_path(spent).write_bytes(head)
    before = spent.read_bytes()
    with pytest.raises(LedgerSetBackError, match="format 2"):
        opened(spent)
    assert spent.read_bytes() == before


# Heads of this ledger that others show.


def signed(number: int, digest: bytes) -> LedgerHead:
    return LedgerHead(number, digest, b"")


def test_only_a_head_that_is_not_in_the_chain_contradicts_it(path):
    ledger = opened(path)
    digests = []
    for number in range(3):
        reserve(ledger, number)
        digests.append(ledger.head().digest)
    for number, digest in enumerate(digests, 1):
        assert not ledger.contradicts(signed(number, digest))
        assert ledger.contradicts(signed(number, b"x" * 32))
    assert ledger.contradicts(signed(4, b"x" * 32))


def made_up(name: bytes, common: int) -> sqlite3.Connection:
    """A chain of 300 entries, of which the first `common` are those of every other."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE identity (key, value)")
    connection.execute("CREATE TABLE chain (number INTEGER PRIMARY KEY, digest)")
    digests = [chain.digest_after(b"both" if n <= common else name, n, "", ()) for n in range(1, 301)]
    connection.executemany("INSERT INTO chain VALUES (?, ?)", list(enumerate(digests, 1)))
    return connection


@given(st.integers(1, 300), st.integers(0, 300))
def test_a_trail_shows_a_common_entry_close_to_the_last_one(entries, common):
    """It is common, and at most half as far again from the head as the last common one."""
    common = min(common, entries)
    trail = chain.trail(made_up(b"theirs", common), entries)
    found = chain.common_entries(made_up(b"ours", common), entries, trail)
    assert found is not None
    assert found <= common
    assert entries - found <= Fraction(3, 2) * (entries - common) or found == 0


def test_a_trail_names_the_entries_that_every_version_names():
    assert chain._trail_numbers(20) == [20, 19, 18, 17, 16, 14, 12, 8, 4, 0]
    assert chain._trail_numbers(3) == [3, 2, 1, 0]
    assert chain._trail_numbers(0) == [0, 0]


def test_the_owner_is_part_of_the_chain(path):
    PartyDatabase(path, OWNER).close()
    first = {"federation": "a", "party": "b", "source": "c", "nonce": "d"}
    assert len({chain.genesis(first), *(chain.genesis(first | {key: "x"}) for key in first)}) == 5
    assert chain.genesis({}) == chain.genesis(dict.fromkeys(first, ""))
