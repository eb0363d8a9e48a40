"""`rado ledger backup` and `acknowledge` without a coordinator: what they write, and what they refuse."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.answering.attempts import Attempts
from parties.database import LedgerOwner, LedgerSetBackError
from parties.ledger.charges import RECORD, Charge
from parties.ledger.head import head_path
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from radofed.provision import provision
from tests.waiting import HANG_S
from wire.envelopes import SigningKey
from wire.statements import Acceptance, sign

OWNER = LedgerOwner("test", "ada", "data.csv")
LIMITS = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 10**5)), 3)
ONE = Charge(((RECORD, Loss.of_epsilon(Fraction(1), Fraction(0))),), "lea")
KEYS = [bytes([200 + number]) * 32 for number in range(12)]


def opened(path: Path) -> Ledger:
    return Ledger.open(path, OWNER, LIMITS)


def make_party(root: Path) -> Path:
    """The directory of a party that spent 4, accepts three attempts, and ended others. Its coordinator does not run."""
    made = provision(
        root / "federation",
        federation="test",
        coordinator_address="127.0.0.1:1",
        parties=["ada", "bo", "cy"],
        policy=PolicyChoices(designs=("statistic",), unbounded_queries=3),
    )
    directory = next(member.directory for member in made.members if member.name == "ada")
    ledger = opened(directory / "state" / "ledger.sqlite")
    attempts, signing_key = Attempts(ledger), SigningKey.generate("clinics")
    for number, key in enumerate(KEYS[:7]):
        acceptance = Acceptance(number.to_bytes(32, "big"), 1, "ada", 3, os.urandom(32), 1)
        held = attempts.accept(
            acceptance, lambda said: sign(said, signing_key), ONE, mask_key=key, not_after_unix_s=10**10, now_unix_s=0
        )
        if number < 4:
            attempts.ready(held, b"s" * 32)
            attempts.charge(held, cohort_digest=b"c" * 32, spool_digest=b"m" * 32, now_unix_s=0)
    ledger.database.close()
    return directory


@pytest.fixture
def party(tmp_path):
    return make_party(tmp_path)


def rado(capsys, directory: Path, name: str, *arguments: str):
    code = run(["ledger", name, "--config", str(directory / "party.toml"), *arguments, "--format", "json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out)


def spent(directory: Path) -> Fraction:
    ledger = Ledger.open(directory / "state" / "ledger.sqlite", OWNER, LIMITS, create=False)
    with closing(ledger.database):
        return ledger.spent(RECORD).epsilon


def test_a_backup_has_every_charge_and_no_key(party, capsys, tmp_path):
    file = tmp_path / "backup.sqlite"
    previous = os.umask(0)
    try:
        code, printed = rado(capsys, party, "backup", str(file))
    finally:
        os.umask(previous)
    assert (code, printed["data"]["entries"]) == (0, 11)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    source, copy = (party / "state" / "ledger.sqlite").read_bytes(), file.read_bytes()
    assert [key in source for key in KEYS[:7]] == [False] * 4 + [True] * 3
    assert not any(key in copy for key in KEYS)
    ledger = Ledger.open(file, OWNER, LIMITS, create=False)
    assert (ledger.verify(), ledger.state().charged) == ([], 4)
    ledger.database.close()


def test_a_backup_leaves_nothing_of_a_key_in_free_pages(party, capsys, tmp_path):
    """In a ledger that another program wrote without secure_delete, erased keys stay in free space."""
    with sqlite3.connect(party / "state" / "ledger.sqlite") as file:
        file.execute("PRAGMA secure_delete = OFF")
        file.executemany(
            "INSERT INTO attempts VALUES (?, 9, 'ended', ?, 0, 1, NULL, 0, ?)",
            [(os.urandom(32), os.urandom(2000), key) for key in KEYS[7:]],
        )
        file.commit()
        file.execute("DELETE FROM attempts WHERE attempt = 9")
    file.close()
    assert all(key in (party / "state" / "ledger.sqlite").read_bytes() for key in KEYS[7:])
    assert rado(capsys, party, "backup", str(tmp_path / "backup"))[0] == 0
    assert not any(key in (tmp_path / "backup").read_bytes() for key in KEYS)


def test_a_backup_overwrites_nothing(party, capsys, tmp_path):
    (tmp_path / "there").write_bytes(b"mine")
    assert rado(capsys, party, "backup", str(tmp_path / "there"))[0] == 4
    assert (tmp_path / "there").read_bytes() == b"mine"
    assert rado(capsys, party, "backup", str(tmp_path / "no" / "where"))[0] == 4


@pytest.mark.parametrize("with_head", [True, False])
def test_a_restored_backup_is_noticed_also_if_nothing_happened_since(party, capsys, tmp_path, with_head):
    path = party / "state" / "ledger.sqlite"
    assert rado(capsys, party, "backup", str(tmp_path / "backup"))[0] == 0
    shutil.copy(tmp_path / "backup", path)
    if not with_head:
        head_path(path).unlink()
    with pytest.raises(LedgerSetBackError, match="rado ledger backup"):
        opened(path)
    code, printed = rado(capsys, party, "verify", "--offline")
    assert (code, len(printed["data"]["faults"])) == (1, 1)


def test_without_a_witness_it_charges_the_whole_limit_only_if_told_twice(party, capsys, tmp_path):
    path = party / "state" / "ledger.sqlite"
    rado(capsys, party, "backup", str(tmp_path / "backup"))
    shutil.copy(tmp_path / "backup", path)
    before = path.read_bytes()
    assert rado(capsys, party, "acknowledge", "--yes", "--wait-s", "0")[0] == 2
    code, printed = rado(capsys, party, "acknowledge", "--without-witness", "--wait-s", "0")
    assert (code, printed["data"]["whole_limit"]) == (1, True)
    assert path.read_bytes() == before
    code, printed = rado(capsys, party, "acknowledge", "--without-witness", "--yes", "--wait-s", "0")
    assert (code, printed["data"]["ok"]) == (0, True)
    assert spent(party) == 10
    ledger = opened(path)
    assert (ledger.state().remaining_unbounded, ledger.head().entries > 1 << 32, ledger.verify()) == (0, True, [])
    ledger.database.close()
    # Nothing is left to acknowledge.
    code, printed = rado(capsys, party, "acknowledge", "--without-witness", "--yes", "--wait-s", "0")
    assert (code, printed["data"]["charges"], spent(party)) == (0, [], 10)


def test_a_lost_ledger_is_replaced_by_one_whose_limit_is_spent(party, capsys):
    path = party / "state" / "ledger.sqlite"
    path.unlink()
    code, _ = rado(capsys, party, "acknowledge", "--without-witness", "--wait-s", "0")
    assert (code, path.exists()) == (1, False)
    code, _ = rado(capsys, party, "acknowledge", "--without-witness", "--yes", "--wait-s", "0")
    assert (code, spent(party)) == (0, 10)
    opened(path).database.close()


def test_a_running_node_keeps_its_ledger(party, capsys):
    from parties.config import PartyConfig
    from parties.state_directory import lock_party

    with lock_party(PartyConfig.load(party / "party.toml")):
        assert rado(capsys, party, "acknowledge", "--yes", "--wait-s", "0")[0] == 4


KILLED = """
import os, signal, sys
from pathlib import Path
from parties.ledger import head
from tests.radofed.test_ledger_backup import ONE, opened

ledger = opened(Path(sys.argv[1]))
for number in range(100, 103):
    query_id = number.to_bytes(32, "big")
    if number == 102:
        head.write_durably = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    ledger.reserve(query_id, 1, ONE, lapses_at_unix_s=1e12, now_unix_s=0.0)
    ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
    print(number, flush=True)
"""


@pytest.mark.more
def test_a_kill_between_the_commit_and_the_head_loses_no_charge(party):
    path = party / "state" / "ledger.sqlite"
    root = Path(__file__).resolve().parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "protos")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (killed.returncode, killed.stdout.split()) == (-9, ["100", "101"])
    ledger = opened(path)
    assert (ledger.state().charged, ledger.state().reserved, ledger.verify()) == (6, 4, [])
