"""The ledger's file alone holds every charge: damage to other files loses no charge and leaks no key."""

import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.accounting.filters import Loss
from parties.database import LedgerBusyError, LedgerFileError
from parties.ledger.charges import Charge
from parties.ledger.ledger import Ledger
from tests.federation.party import OWNER, SMOKER, Ada, limits, ready
from wire.statements import Acceptance

LIMIT = limits("10", "2e-5")
CHARGES = 6
# Byte 18 of a database's header: 1 with a rollback journal, 2 with a write-ahead log.
JOURNAL_BYTE = 18

SPENDER = """
import sys
from pathlib import Path
from parties.ledger.ledger import Ledger
from tests.parties.ledger.test_file import CHARGES, LIMIT, OWNER, spend

def wait():
    print("charged", flush=True)
    sys.stdin.read()

ledger = Ledger.open(Path(sys.argv[1]), OWNER, LIMIT)
for number in range(CHARGES):
    spend(ledger, number)
if sys.argv[2] == "between transactions":
    wait()
with ledger.database.transaction() as connection:
    connection.execute("DELETE FROM events")
    wait()
"""


def query(number: int) -> bytes:
    return number.to_bytes(32, "big")


def spend(ledger: Ledger, number: int) -> None:
    charge = Charge(((SMOKER, Loss.of_epsilon(Fraction(1, 10), Fraction(0))),), "lea")
    ledger.reserve(query(number), 1, charge, lapses_at_unix_s=1e12, now_unix_s=0.0)
    ledger.charge(query(number), 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)


def beside(path: Path) -> list[Path]:
    """Other files that SQLite keeps for the ledger."""
    return [found for found in path.parent.glob(f"{path.name}-*") if found.stat().st_size]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture(scope="module", params=["between transactions", "inside a transaction"])
def left_by_kill(request, tmp_path_factory):
    """The files of a process that charged six times and was then killed."""
    directory = tmp_path_factory.mktemp("killed")
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", SPENDER, str(directory / "ledger.sqlite"), request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "protos")])},
    )
    with process:
        assert process.stdout.readline() == "charged\n"
        os.kill(process.pid, signal.SIGKILL)
    return directory


@pytest.fixture
def killed(left_by_kill, tmp_path):
    return Path(shutil.copytree(left_by_kill, tmp_path / "state")) / "ledger.sqlite"


def unharmed(path: Path) -> Path:
    return path


def removed(path: Path) -> Path:
    for file in beside(path):
        file.unlink()
    return path


def copied_without(path: Path) -> Path:
    """The ledger and its head, without what SQLite keeps beside it."""
    shutil.copy(f"{path}.head", path.with_name("copy.sqlite.head"))
    return Path(shutil.copy(path, path.with_name("copy.sqlite")))


def cut_in_half(path: Path) -> Path:
    for file in beside(path):
        os.truncate(file, file.stat().st_size // 2)
    return path


def one_bit_flipped(path: Path) -> Path:
    for file in beside(path):
        data = bytearray(file.read_bytes())
        data[len(data) // 4] ^= 1
        file.write_bytes(data)
    return path


@pytest.mark.variants(1)
@pytest.mark.parametrize("harm", [unharmed, removed, copied_without, cut_in_half, one_bit_flipped])
def test_every_charge_survives_a_kill_and_the_loss_of_other_files(killed, harm):
    path = harm(killed)
    for create in (False, True):
        ledger = Ledger.open(path, OWNER, LIMIT, create=create)
        state = ledger.state()
        assert (state.charged, state.reserved, ledger.verify()) == (CHARGES, 0, [])
        assert ledger.spent(SMOKER).epsilon == Fraction(CHARGES, 10)
        ledger.database.close()


@pytest.mark.usefixtures("small_comb")
def test_the_charge_is_in_the_ledger_s_own_file_before_the_first_byte_leaves(ada):
    envelope, cohort = ready(ada)
    seen = []

    def look() -> None:
        ledger = Ledger.open(copied_without(ada.directory / "ledger.sqlite"), OWNER, ada.limits, create=False)
        seen.append((ledger.is_charged(envelope.payload_hash, 1), ledger.verify()))
        ledger.database.close()

    ada.hub.before["upload_chunk"] = look
    ada.upload(envelope, cohort)
    assert seen == [(True, [])]


@pytest.fixture
def weak_defaults(monkeypatch):
    """SQLite as it may be built elsewhere: without secure_delete, and with less forced to disk."""
    connect = sqlite3.connect

    def weakly(*given, **options):
        connection = connect(*given, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr("parties.database.sqlite3.connect", weakly)


@pytest.mark.usefixtures("weak_defaults")
def test_settings_for_durability_and_erasure_do_not_depend_on_sqlite_s_defaults(path):
    Ledger.open(path, OWNER, LIMIT).database.close()
    ledger = Ledger.open(path, OWNER, LIMIT)
    with ledger.database.transaction() as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("journal_mode", "synchronous", "secure_delete")
        }
    # 3 is EXTRA: a committed transaction stays committed after a power failure.
    assert found == {"journal_mode": ("truncate",), "synchronous": (3,), "secure_delete": (1,)}


@pytest.mark.more
@pytest.mark.usefixtures("weak_defaults")
def test_a_mask_key_is_erased_from_every_file_while_the_ledger_is_open(world, tmp_path):
    ada = Ada(world, tmp_path, limits=limits("1000", "1e-3", unbounded=150))
    keys = [secrets.token_bytes(32) for _ in range(150)]

    def readable() -> set[bytes]:
        held = b"".join(file.read_bytes() for file in tmp_path.glob("ledger.sqlite*"))
        return {key for key in keys if key in held}

    attempts = []
    for number, key in enumerate(keys):
        envelope = world.acceptance(query(number), "ada", rows=40)
        acceptance = Acceptance.from_bytes(envelope.payload)
        attempts.append(
            ada.attempts.accept(
                acceptance, lambda _, e=envelope: e, Charge(), mask_key=key, not_after_unix_s=10_000, now_unix_s=0.0
            )
        )
    assert readable() == set(keys)
    for number, held in enumerate(attempts):
        ada.attempts.ready(held, b"s" * 32)
        if number % 3:
            ada.attempts.charge(held, cohort_digest=b"c" * 32, spool_digest=b"m" * 32, now_unix_s=0.0)
        else:
            ada.attempts.end(held)
        assert readable() == set(keys[number + 1 :])


@pytest.fixture
def older(path):
    """A ledger as earlier versions left it when they were killed: charges are in a write-ahead log only."""
    path.parent.mkdir()
    made = path.with_name("made.sqlite")
    Ledger.open(made, OWNER, LIMIT).database.close()
    with_log = sqlite3.connect(made, isolation_level=None)
    with_log.execute("PRAGMA journal_mode = WAL")
    charging = Ledger.open(made, OWNER, LIMIT, create=False)
    for number in range(CHARGES):
        spend(charging, number)
    for suffix in ("", "-wal", ".head"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    with_log.close()
    charging.database.close()
    assert path.read_bytes()[JOURNAL_BYTE] == 2
    return path


def test_a_ledger_with_a_write_ahead_log_is_read_and_left_as_it_is(older):
    ledger = Ledger.open(older, OWNER, LIMIT, create=False)
    assert (ledger.state().charged, ledger.verify()) == (CHARGES, [])
    ledger.database.close()
    assert older.read_bytes()[JOURNAL_BYTE] == 2


def test_a_party_merges_a_write_ahead_log_into_the_file(older):
    ledger = Ledger.open(older, OWNER, LIMIT)
    assert older.read_bytes()[JOURNAL_BYTE] == 1
    assert beside(older) == []
    assert (ledger.state().charged, ledger.verify()) == (CHARGES, [])
    spend(ledger, CHARGES)
    alone = Ledger.open(copied_without(older), OWNER, LIMIT)
    assert alone.state().charged == CHARGES + 1


def test_a_write_ahead_log_that_others_read_is_waited_for(older, monkeypatch):
    monkeypatch.setattr("parties.database.BUSY_TIMEOUT_S", 0.1)
    reader = Ledger.open(older, OWNER, LIMIT, create=False)
    with pytest.raises(LedgerBusyError, match="nothing was changed"):
        Ledger.open(older, OWNER, LIMIT)
    reader.database.close()
    assert Ledger.open(older, OWNER, LIMIT).state().charged == CHARGES


def test_nothing_is_charged_once_another_program_gave_the_ledger_a_write_ahead_log(path):
    ledger = Ledger.open(path, OWNER, LIMIT)
    spend(ledger, 1)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    with pytest.raises(LedgerFileError, match="restart this party"):
        spend(ledger, 2)
    ledger.database.close()
    other.close()
    ledger = Ledger.open(path, OWNER, LIMIT)
    assert ledger.state().charged == 1
    spend(ledger, 2)
