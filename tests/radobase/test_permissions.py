"""Files on which a node relies: refused if other users can change or replace them, and never made so."""

import os
import stat
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from coordinator.store import Store
from parties.database import LedgerOwner
from parties.history.database import HistoryDatabase
from parties.ledger.ledger import Ledger
from radobase import reading
from radobase.reading import ExposedKeyError, FileKind, WritableFileError, check_unwritable, read_bytes, with_remedy
from tests.federation.party import limits

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("wire", "parties", "coordinator", "learner", "radobase", "radofed")
PLAIN = FileKind(with_remedy("fix it"), limit_bytes=100, decides=True)
WRITABLE = [0o666, 0o664, 0o646, 0o662, 0o626, 0o777]

#: Kinds of files that others may write to, and why that is safe.
OTHERS = {
    "coordinator.membership._FILE": "signed; the member checks it",
    "coordinator.uploads._CHUNK": "its hash is in the coordinator's store",
    "coordinator.status._ADDRESS": "a command prints it; a node that answers there needs the coordinator's key",
    "coordinator.store._STORE": "made by Store, which checks the file",
    "learner.inquiries._FILE": "says how an answer of the learner's own is read; it must fit what was signed and asked",
    "learner.model_file.MODEL": "a model that was given: not the node's, and shared as its owner likes",
    "learner.release._FIELDS": "signed by the cohort; Release.verify",
    "learner.release._ARRAY": "its digest is among the fields",
    "learner.report.measured._EVALUATION": "a report's input",
    "learner.state._NUMBER": "in a directory of the learner's own; a wrong number signs no attempt",
    "learner.state._ROWS_FILE": "in a directory of the learner's own; wrong rows make a plan that parties refuse",
    "learner.state._END": "in a directory of the learner's own; words for people",
    "parties.answering.spool._MANIFESTS": "in a directory of mode 0700",
    "parties.answering.spool._CHUNK": "in a directory of mode 0700",
    "parties.answering.spool._INTEGERS": "in a directory of mode 0700",
    "parties.history.history._DETAILS": "no file: the details of a row of the history, which is checked",
    "parties.ledger.head._HEAD": "beside the ledger, which is checked; a head that does not fit stops the party",
    "parties.members._FORMER": "signed by the federation; people are shown who left, and nothing else follows from it",
    "radofed.audit._HISTORY": "another member's export; compared, and trusted with nothing",
    "radofed.conformance.kit._MANIFEST": "in a directory that the kit made; says which version of the kit",
    "radofed.conformance.kit._ROSTER": "in a directory that the kit makes for one test of a foreign program",
    "radofed.conformance.party._FILE": "what the kit kept of its own last run, for a test of a foreign program",
    "radofed.backup.archive._ARCHIVE": "a backup that was given; its manifest is checked",
    "radofed.backup.making._PLAIN": "copied into a backup, not obeyed",
    "radofed.backup.making._SMALL": "copied into a backup, not obeyed",
    "radofed.backup.archive._MANIFEST": "part of a backup",
    "radobase.ray_cluster._NOTE": "must belong to this user or root; Ray's own directory is open to all",
    "radobase.local_status._STATUS": "no file: the answer of a node on its socket",
    "radobase.logs._LINE": "no file: a line of a log",
    "radobase.tables.tables._TABLE": "the rows: their owner writes the table",
    "radobase.watch_server._ANSWER": "no file: the answer of a node",
    "radofed.console.learner.evaluations._FILE": "names a model and options; what it asks is confirmed again",
    "radofed.console.learner.trainings._FILE": "names a training of the learner's own directory",
    "radofed.joining.installing._FILE": "signed by the operator, whose digits the member compares",
    "radofed.joining.requests._FILE": "signed by the member, whose digits the operator compares",
}


def every_kind() -> dict[str, FileKind]:
    """Every kind of file of the product, by the name of its module and its own."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if "FileKind" in file.read_text(encoding="utf-8"):
                name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                kinds = vars(import_module(name)).items()
                found |= {f"{name}.{each}": kind for each, kind in kinds if isinstance(kind, FileKind)}
    return found


KINDS = every_kind()
TRUSTED = {name: kind for name, kind in KINDS.items() if kind.decides or kind.private}


@pytest.fixture
def file(tmp_path):
    """A file of its owner alone, in a directory of its own."""
    (tmp_path / "own").mkdir(mode=0o755)
    path = tmp_path / "own" / "a file.toml"
    path.write_bytes(b"x")
    path.chmod(0o600)
    return path


def is_read(path: Path, kind: FileKind = PLAIN) -> bool:
    return read_bytes(path, kind) == b"x"


def test_of_each_kind_of_file_it_is_known_whether_others_may_write_it():
    assert KINDS.keys() - TRUSTED.keys() == OTHERS.keys()
    assert len(TRUSTED) > 15


@pytest.mark.parametrize("name", sorted(TRUSTED))
def test_no_node_reads_a_file_that_others_can_change_or_replace(file, name):
    kind = TRUSTED[name]
    assert is_read(file, kind)
    for mode in WRITABLE:
        file.chmod(mode)
        with pytest.raises((WritableFileError, ExposedKeyError), match=f"mode {mode:04o}") as caught:
            read_bytes(file, kind)
        os.system(caught.value.fix)
        assert is_read(file, kind)
    file.parent.chmod(0o777)
    with pytest.raises(WritableFileError, match="replace this file in the directory") as caught:
        read_bytes(file, kind)
    os.system(caught.value.fix)
    assert is_read(file, kind)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o444, 0o600, 0o640, 0o644, 0o755])
def test_others_may_read_what_decides(file, mode):
    file.chmod(mode)
    assert is_read(file)


def test_a_directory_above_counts_and_a_sticky_one_does_not(file):
    above = file.parent.parent
    above.chmod(0o777)
    with pytest.raises(WritableFileError) as caught:
        read_bytes(file, PLAIN)
    assert (caught.value.place, caught.value.mode) == (above, 0o777)
    above.chmod(0o1777)
    assert is_read(file)
    above.chmod(0o775)
    assert is_read(file)


def test_a_link_in_the_middle_of_others_is_judged_by_its_place(file, tmp_path):
    for name in ("first", "middle"):
        (tmp_path / name).mkdir()
    middle = tmp_path / "middle" / "policy.toml"
    middle.symlink_to(f"../own/{file.name}")
    first = tmp_path / "first" / "policy.toml"
    first.symlink_to(middle)
    assert is_read(first)
    middle.parent.chmod(0o777)
    with pytest.raises(WritableFileError, match=str(middle.parent)):
        read_bytes(first, PLAIN)


def test_who_is_not_the_owner_is_told_that_the_owner_mends_it(file, monkeypatch):
    file.parent.chmod(0o777)
    monkeypatch.setattr(reading.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(WritableFileError, match="as its owner, or set this mode where it is mounted"):
        read_bytes(file, PLAIN)


@pytest.mark.parametrize("of_link", [True, False])
def test_a_link_is_judged_by_both_of_its_places(file, tmp_path, of_link):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "policy.toml"
    link.symlink_to(file)
    assert is_read(link)
    place = link.parent if of_link else file.parent
    place.chmod(0o777)
    with pytest.raises(WritableFileError, match=str(place)):
        read_bytes(link, PLAIN)


def test_a_directory_of_a_read_only_file_system_may_have_any_mode(file, monkeypatch):
    """As Kubernetes mounts configuration. Mounting needs the superuser: only what the system says is changed."""
    file.parent.chmod(0o777)

    class ReadOnly:
        f_flag = os.ST_RDONLY

    real = os.statvfs
    monkeypatch.setattr(reading.os, "statvfs", lambda path: ReadOnly if path == file.parent else real(path))
    assert is_read(file)


@pytest.mark.parametrize("place", ["file", "directory", "place of no file"])
@pytest.mark.parametrize("what", ["ledger", "history", "store"])
def test_no_database_is_opened_that_others_can_change_or_replace(tmp_path, what, place):
    path = tmp_path / what
    owner = LedgerOwner("clinics", "ada", "data.csv")
    opening = {
        "ledger": partial(Ledger.open, path, owner, limits("1", "1e-6")),
        "history": partial(HistoryDatabase, path, federation="clinics", party="ada"),
        "store": partial(Store, path, "clinics"),
    }[what]
    if place != "place of no file":
        for _ in range(2):
            opened = opening()
            getattr(opened, "database", opened).close()
    (path if place == "file" else tmp_path).chmod(0o666 if place == "file" else 0o777)
    with pytest.raises(WritableFileError, match="run: chmod"):
        opening()


def test_a_place_without_a_directory_is_named(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        check_unwritable(tmp_path / "nowhere" / "file")


STEPS = """
rado schema infer data.csv --label ill --positive yes --output schema.toml
rado provision init --federation clinics --directory fed --coordinator localhost:7443 --party north=10 --learner lab
rado learner keygen --config fed/members/lab/learner.toml
rado provision renew-roster fed/federation
rado provision create operator --federation wards
rado provision request east --federation wards --role party --name east
"""


@pytest.mark.more
def test_nothing_that_commands_make_is_writable_for_others_whatever_the_umask(tmp_path):
    rows = "".join(f"{20 + row % 50}.5,{'yes' if row % 3 else 'no'}\n" for row in range(200))
    (tmp_path / "data.csv").write_text(f"age,ill\n{rows}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = ["sh", "-c", f"set -e; umask 000; {STEPS}"]
    subprocess.run(script, check=True, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True)
    made = [each for each in tmp_path.rglob("*") if not each.is_symlink()]
    assert len(made) > 20
    assert [str(each) for each in made if each.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
