"""`rado backup` and `rado restore` for every role: what is saved, what comes back, and what is said."""

import gzip
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import threading
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.accounting.filters import PrivacyLimit
from parties.database import COPIED, LedgerSetBackError
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from radofed.backup.archive import Item, Manifest, write_archive
from radofed.backup.making import back_up
from radofed.backup.restoring import Expected, restore, verify_backup
from radofed.cli.entry_point import run
from tests.radofed.backup.nodes import RECORDED, config_of, content_of, make_federation
from tests.radofed.test_ledger_backup import KEYS, LIMITS, ONE, OWNER, make_party, opened


@pytest.fixture
def party(tmp_path):
    """A party of the federation test that spent 4 and accepts three attempts, with keys of these."""
    directory = make_party(tmp_path)
    (directory / "schema.toml").write_text("")
    (directory / "state/secret").write_bytes(b"n" * 32)
    (directory / "state/secret").chmod(0o600)
    (directory / "state/spool").mkdir()
    (directory / "state/spool/chunk").write_bytes(b"a contribution")
    (directory / "data.csv").write_text("a row")
    return directory


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory):
    return make_federation(tmp_path_factory.mktemp("provisioned"))


@pytest.fixture
def federation(provisioned, tmp_path):
    shutil.copytree(provisioned, tmp_path / "clinics")
    return tmp_path / "clinics"


def rado(capsys, *arguments: object, code: int = 0) -> dict:
    assert run([*map(str, arguments), "--format", "json"]) == code, capsys.readouterr().err
    printed = json.loads(capsys.readouterr().out)
    return printed["data"] if code == 0 else printed["error"]


def create(capsys, file: Path, config: Path, *more: str, code: int = 0) -> dict:
    return rado(capsys, "backup", "create", file, "--config", config, *more, code=code)


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*") if path.is_file()}


def test_a_directory_keeps_the_newest_backups_of_a_node(party, capsys, tmp_path, monkeypatch):
    backups = tmp_path / "backups"
    backups.mkdir()
    # Of another member, and of another name: a directory may have the backups of several nodes.
    names = ("test.party.bo-20200101T020000Z.backup", "test.party.ada-last.backup", "test.party.ada.backup")
    others = [backups / name for name in names]
    for other in others:
        other.write_text("another's")
    made = []
    for day in range(4):
        monkeypatch.setattr("time.time", lambda day=day: 1_800_000_000 + 86_400 * day)
        made.append(create(capsys, backups, party / "party.toml", "--keep", "2"))
    files = [Path(each["file"]) for each in made]
    assert files[0].name == "test.party.ada-20270115T080000Z.backup"
    assert [each["deleted"] for each in made] == [[], [], [str(files[0])], [str(files[1])]]
    assert set(backups.iterdir()) == {*others, *files[2:]}
    again = create(capsys, backups, party / "party.toml", code=4)
    assert again["message"].endswith("already exists; give another file")
    for wrong in (("--keep", "0"), ("--keep", "-1")):
        assert "at least 1" in create(capsys, backups, party / "party.toml", *wrong, code=4)["message"]
    assert (
        "needs a directory"
        in create(capsys, tmp_path / "a.backup", party / "party.toml", "--keep", "1", code=4)["message"]
    )
    assert set(backups.iterdir()) == {*others, *files[2:]}


def test_a_partys_backup_has_its_state_and_no_key(party, capsys, tmp_path):
    (party / "state/former-rosters").mkdir()
    (party / "state/former-rosters/0000000000000000001.signed").write_bytes(b"a roster")
    (party / "spellings").write_text("[columns]")
    (party / "party.toml").write_text('recode = "spellings"\n' + (party / "party.toml").read_text())
    file, back = tmp_path / "ada.backup", tmp_path / "back"
    made = create(capsys, file, party / "party.toml")
    assert (made["role"], made["name"], made["federation"], made["has_keys"]) == ("party", "ada", "test", False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_bytes()
    secrets = [(party / name).read_bytes() for name in ("signing.key", "tls.key", "state/secret")]
    assert not any(secret in content for secret in [*secrets, *KEYS])
    assert b"a contribution" not in content
    assert {each["what"] for each in made["missing"] if each["key"]} == {"signing.key", "tls.key", "state/secret"}
    assert rado(capsys, "backup", "verify", file)["files"] == made["files"]
    found = rado(capsys, "restore", file, back)
    assert set(content_of(back)) == {
        "party.toml", "policy.toml", "schema.toml", "spellings", "federation.pub", "ca.pem", "certificate.pem",
        "state/ledger.sqlite", "state/former-rosters/0000000000000000001.signed",
    }  # fmt: skip
    assert modes(back) == {0o600}
    assert stat.S_IMODE(back.stat().st_mode) == stat.S_IMODE((back / "state").stat().st_mode) == 0o700
    for name in ("party.toml", "policy.toml", "ca.pem"):
        assert (back / name).read_bytes() == (party / name).read_bytes()
    assert "the ledger lacks what was charged since then" in found["lost"]
    # In this order: while the signing key is the old one, the others' statements can be read.
    words = " ".join(found["next"])
    order = [words.index(part) for part in ("signing.key", "the table", "ledger acknowledge", "party start")]
    assert order == sorted(order)


def test_a_restored_ledger_has_every_charge_and_is_noticed(party, capsys, tmp_path):
    create(capsys, tmp_path / "b", party / "party.toml", "--with-keys")
    rado(capsys, "restore", tmp_path / "b", tmp_path / "back")
    path = tmp_path / "back/state/ledger.sqlite"
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT value FROM identity WHERE key = ?", (COPIED,)).fetchone() == ("1",)
        assert file.execute("SELECT count(mask_key) FROM attempts").fetchone() == (0,)
    ledger = Ledger.open(path, OWNER, LIMITS, create=False)
    assert (ledger.state().charged, ledger.verify()) == (4, [])
    ledger.database.close()
    with pytest.raises(LedgerSetBackError, match="a copy"):
        opened(path)
    # Nothing is given back: without a witness all that remains is charged.
    config = ("--config", tmp_path / "back/party.toml")
    arguments = ("ledger", "acknowledge", *config, "--without-witness", "--yes", "--wait-s", "0")
    assert rado(capsys, *arguments)["whole_limit"]
    ledger = opened(path)
    assert ledger.state().charged >= 4
    ledger.database.close()


def test_keys_are_saved_if_asked_for_and_keep_their_passphrase(party, capsys, tmp_path, monkeypatch):
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse")
    passphrase.chmod(0o600)
    monkeypatch.setenv("RADO_PASSPHRASE_FILE", str(passphrase))
    rado(capsys, "provision", "passphrase", party)
    made = create(capsys, tmp_path / "b", party / "party.toml", "--with-keys")
    assert made["has_keys"]
    assert {"the passphrase", "the rows"} <= {each["what"] for each in made["missing"]}
    assert not any(each["key"] for each in made["missing"])
    rado(capsys, "restore", tmp_path / "b", tmp_path / "back")
    for name in ("signing.key", "tls.key", "state/secret"):
        assert (tmp_path / "back" / name).read_bytes() == (party / name).read_bytes()
    assert b"ENCRYPTED" in (tmp_path / "back/signing.key").read_bytes()
    assert b"correct horse" not in (tmp_path / "b").read_bytes()


def test_a_coordinators_backup_has_queries_and_totals_and_no_upload(federation, capsys, tmp_path):
    made = create(capsys, tmp_path / "b", config_of(federation, "coordinator"))
    assert "tls.key" in {each["what"] for each in made["missing"]}
    rado(capsys, "restore", tmp_path / "b", tmp_path / "back")
    back = content_of(tmp_path / "back")
    assert f"state/spool/{'ab' * 32}/total/0-of-a-total" in back
    assert not any("upload" in name for name in back)
    with closing(sqlite3.connect(tmp_path / "back/state/coordinator.sqlite")) as file:
        assert file.execute("SELECT count(*) FROM queries").fetchone() == (5,)


def test_a_learners_backup_has_queries_and_releases(federation, capsys, tmp_path):
    directory = federation / "members/lab"
    (directory / "state/.roster.signed.0123").write_bytes(b"unfinished")
    (directory / "releases/elsewhere").symlink_to(tmp_path)
    old = min((directory / "releases").iterdir()) / "release.json"
    os.utime(old, (1_000_000_000, 1_000_000_000))
    made = create(capsys, tmp_path / "b", config_of(federation, "lab"), "--with-keys")
    assert made["has_keys"]
    rado(capsys, "restore", tmp_path / "b", tmp_path / "back")
    before, back = content_of(directory), content_of(tmp_path / "back")
    assert {name for name in before if name not in back} == {"state/.roster.signed.0123"}
    assert {name: before[name] for name in back} == back
    assert "paillier.jwk" in back
    directories = [tmp_path / "back", *(path for path in (tmp_path / "back").rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    assert (tmp_path / "back/releases" / old.parent.name / "release.json").stat().st_mtime == 1_000_000_000
    # Without keys: neither the Paillier key nor those of single queries.
    made = create(capsys, tmp_path / "c", config_of(federation, "lab"))
    left = {Path(each["what"]).name for each in made["missing"] if each["key"]}
    assert left == {"signing.key", "tls.key", "paillier.jwk", "opening.key"}


@pytest.mark.parametrize("with_keys", [False, True])
def test_an_operators_backup(federation, capsys, tmp_path, with_keys):
    operator = federation / "federation"
    more = ["--with-keys"] * with_keys
    made = rado(capsys, "backup", "create", tmp_path / "b", "--operator", operator, *more)
    assert (made["role"], made["federation"], made["has_keys"]) == ("operator", "clinics", with_keys)
    rado(capsys, "restore", tmp_path / "b", tmp_path / "back", "--role", "operator")
    expected = {name: content for name, content in content_of(operator).items() if with_keys or ".key" not in name}
    assert content_of(tmp_path / "back") == expected
    code = 0 if with_keys else 4
    assert run(["provision", "renew-roster", str(tmp_path / "back")]) == code


def test_an_operator_without_members_is_backed_up(capsys, tmp_path):
    rado(capsys, "provision", "create", tmp_path / "operator", "--federation", "clinics")
    made = rado(capsys, "backup", "create", tmp_path / "b", "--operator", tmp_path / "operator")
    assert made["federation"] == "clinics"
    inside = tmp_path / "operator/b"
    assert (
        "give a file elsewhere"
        in rado(capsys, "backup", "create", inside, "--operator", tmp_path / "operator", code=4)["message"]
    )


@pytest.mark.more
def test_every_copy_of_a_ledger_that_is_written_is_consistent(party, tmp_path):
    """A node charges while backups are made."""
    limits = LedgerLimits(PrivacyLimit(Fraction(10**6), Fraction(1, 10**5)), 3)
    ledger = Ledger.open(party / "state/ledger.sqlite", OWNER, limits)

    def charge() -> None:
        for number in range(100, 140):
            query_id = number.to_bytes(32, "big")
            ledger.reserve(query_id, 1, ONE, lapses_at_unix_s=1e12, now_unix_s=0.0)
            ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)

    node, made = threading.Thread(target=charge), 0
    node.start()
    while node.is_alive() or made < 3:
        made += 1
        back_up(party / "party.toml", tmp_path / f"{made}")
        # The check includes the chain, which agrees with every event.
        verify_backup(tmp_path / f"{made}", Expected())
    node.join()
    ledger.database.close()
    restore(tmp_path / f"{made}", tmp_path / "back", Expected())
    copy = Ledger.open(tmp_path / "back/state/ledger.sqlite", OWNER, LIMITS, create=False)
    assert copy.state().charged >= 4
    copy.database.close()


def test_a_backup_is_a_tar_file(party, capsys, tmp_path):
    made = create(capsys, tmp_path / "b", party / "party.toml", "--with-keys")
    with tarfile.open(tmp_path / "b") as archive:
        names = archive.getnames()
        assert names == ["manifest.json", *(f"files/{each['path']}" for each in made["files"])]
        assert all(member.isreg() and member.mode == 0o600 for member in archive)
        manifest = json.load(archive.extractfile("manifest.json"))
    assert (manifest["format"], manifest["format_version"], manifest["role"]) == ("radofed-backup", 1, "party")


def test_paths_outside_of_the_directory_are_never_written_and_are_named(party, capsys, tmp_path):
    state = tmp_path / "var/state"
    state.parent.mkdir()
    shutil.move(party / "state", state)
    config = party / "party.toml"
    config.write_text(config.read_text().replace('state_directory = "state"', f'state_directory = "{state}"'))
    made = create(capsys, tmp_path / "b", config)
    assert made["outside"] == {"outside/state_directory": str(state)}
    shutil.rmtree(state)
    found = rado(capsys, "restore", tmp_path / "b", tmp_path / "back")
    assert not state.exists()
    assert (tmp_path / "back/outside/state_directory/ledger.sqlite").exists()
    assert found["next"][0] == f"move {tmp_path / 'back/outside/state_directory'} to {state}"


def test_nothing_is_overwritten(party, capsys, tmp_path):
    file = tmp_path / "b"
    create(capsys, file, party / "party.toml")
    before = file.read_bytes()
    assert "already exists" in create(capsys, file, party / "party.toml", code=4)["message"]
    assert file.read_bytes() == before
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for place in (party, file, tmp_path / "link"):
        assert "overwrites nothing" in rado(capsys, "restore", file, place, code=4)["message"]
    rado(capsys, "restore", file, tmp_path / "empty")
    assert (tmp_path / "empty/party.toml").exists()


@pytest.mark.parametrize(("option", "other"), [("--role", "learner"), ("--name", "bo"), ("--federation", "clinics")])
def test_the_backup_of_another_member_is_refused(party, capsys, tmp_path, option, other):
    file, back = tmp_path / "b", tmp_path / "back"
    create(capsys, file, party / "party.toml")
    for command in (["backup", "verify", file], ["restore", file, back]):
        message = rado(capsys, *command, option, other, code=4)["message"]
        assert "is of party ada of test" in message
        assert repr(other) in message
    assert not back.exists()


def test_a_key_that_others_can_read_is_not_backed_up(party, capsys, tmp_path):
    (party / "signing.key").chmod(0o644)
    assert "chmod 600" in create(capsys, tmp_path / "b", party / "party.toml", "--with-keys", code=4)["message"]
    assert not (tmp_path / "b").exists()


def test_a_name_that_no_backup_can_have_is_refused(federation, capsys, tmp_path):
    directory = federation / "members/lab/releases" / ("a" * 91)
    directory.mkdir()
    (directory / "release.json").write_text("{}")
    message = create(capsys, tmp_path / "b", config_of(federation, "lab"), code=4)["message"]
    assert "move or rename it" in message
    assert not (tmp_path / "b").exists()


def test_a_file_that_changes_while_it_is_copied_is_noticed(tmp_path):
    file = tmp_path / "large"
    file.write_bytes(b"before")

    class Changing(Item):
        def entry(self):
            file.write_bytes(b"behind")
            return super().entry()

    from radofed.backup.making import _PLAIN

    items = [Item("large", (file, _PLAIN), 0), Changing("small", b"", 0)]
    manifest = Manifest("operator", "operator", "clinics", 0, "0", "", (), {}, ())
    with pytest.raises(Exception, match="large: changed while it was copied"):
        write_archive(tmp_path / "b", manifest, items)
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_what_is_said_of_an_old_backup(party, capsys, tmp_path):
    """A year later the certificate has expired, and the clock may be behind."""
    made = back_up(party / "party.toml", tmp_path / "b", now_unix_s=1_700_000_000)
    assert run(["restore", str(tmp_path / "b"), str(tmp_path / "back")]) == 0
    printed = capsys.readouterr().out
    assert "made at 2023-11-14 22:13:20 UTC" in printed
    assert "days ago" in printed
    import datetime as dt

    from radofed.backup.restoring import age, next_steps, words_of

    assert [age(made, made.created_at_unix_s + s) for s in (5, 60, 7200, 90_000)] == [
        "5 s", "1 minute", "2 hours", "1 day",
    ]  # fmt: skip
    assert age(made, made.created_at_unix_s - 1) == ""
    assert "check the clock" in words_of(made, made.created_at_unix_s - 1)[1]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=300)
    assert any("rado certificate renew" in step for step in next_steps(made, tmp_path / "back", later))
    now = dt.datetime.now(dt.UTC)
    assert not any("rado certificate renew" in step for step in next_steps(made, tmp_path / "back", now))


def test_a_backup_is_not_put_into_what_is_backed_up(federation, capsys):
    inside = federation / "members/lab/releases/b"
    assert "give a file elsewhere" in create(capsys, inside, config_of(federation, "lab"), code=4)["message"]
    assert not inside.exists()


def test_either_a_node_or_an_operator(federation, capsys, tmp_path):
    assert "give either" in rado(capsys, "backup", "create", tmp_path / "b", code=4)["message"]


@pytest.mark.parametrize("file", ["0.3.0/ada.backup.gz", "older/ada-0.2.backup.gz"])
def test_a_recorded_backup_is_restored(capsys, tmp_path, file):
    (tmp_path / "b").write_bytes(gzip.decompress((RECORDED.parent / file).read_bytes()))
    found = rado(capsys, "restore", tmp_path / "b", tmp_path / "back", "--name", "ada", "--role", "party")
    assert found["has_keys"] is False
    assert {"state/ledger.sqlite", "state/history.sqlite", "state/roster.signed"} <= set(content_of(tmp_path / "back"))
