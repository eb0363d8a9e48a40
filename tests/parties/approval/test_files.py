"""Decisions that other users of the machine leave in files: who decided is who owns the file."""

import importlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from parties.approval.decision_files import DecisionFiles, overflow_uid
from parties.approval.decisions import DecisionError, Decisions, Verdict
from parties.config import PartyConfig
from parties.policy import ApprovalRules
from rado.v1 import query_pb2
from radofed.cli import party_approval as commands
from radofed.cli.output import Output
from tests.federation.party import Ada
from tests.waiting import wait_until
from wire.status import PartyState

pytestmark = pytest.mark.usefixtures("small_comb")
FIRST, SECOND, GROUP = 54_001, 54_002, 54_000
OUTPUT = Output(as_json=False, debug=False)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")


@pytest.fixture
def shared():
    """A directory that other users reach, as pytest's are not."""
    directory = Path(tempfile.mkdtemp(prefix="rado-decisions-", dir="/tmp"))
    directory.chmod(0o755)
    made = directory / "decisions"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, 0, GROUP)
        made.chmod(0o3770)
    yield made
    shutil.rmtree(directory)


@pytest.fixture
def asking(world, tmp_path, shared):
    rules = ApprovalRules(everything=True, approvers=2)
    files = DecisionFiles(shared, world.query().federation, "ada")
    files.check()
    return Ada(world, tmp_path, policy=world.policy().model_copy(update={"approval": rules}), decision_files=files)


def waits(ada):
    envelope = ada.world.ask(ada.world.query())
    ada.go(envelope)
    ada.lifecycle.gate.take_decisions(ada.lifecycle.policy)
    return envelope


class Acting:
    """A function that runs as another user, in a child that has loaded all that it needs."""

    def __init__(self, uid, function) -> None:
        self._result, write = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(write)
            return
        try:
            os.setgroups([])
            os.setgid(GROUP)
            os.setuid(uid)
            found = ["ok", function()]
        except BaseException as error:  # noqa: BLE001  (whatever it is, the parent shows it)
            found = ["failed", f"{type(error).__name__}: {error}"]
        os.write(write, json.dumps(found).encode())
        os._exit(0)

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def result(self):
        os.waitpid(self._pid, 0)
        with os.fdopen(self._result) as file:
            state, found = json.load(file)
        assert state == "ok", found
        return found


def act_as(uid, function):
    return Acting(uid, function).result()


def leave(ada, envelope, uid, *, approves=True):
    def left():
        for name in ("LOGNAME", "USER"):
            os.environ[name] = "alice"
        found = ada.decision_files.find(envelope.payload_hash.hex()[:9])
        assert (found.query_id, found.needed, len(found.reasons)) == (envelope.payload_hash, 2, 1)
        ada.decision_files.leave(found.query_id, approves=approves, name="Ann Lee", reason="study 17")

    act_as(uid, left)


@as_root
def test_two_users_approve_and_one_user_twice_does_not(asking):
    envelope = waits(asking)
    for uid, expected in ((FIRST, []), (FIRST, []), (SECOND, [True])):
        leave(asking, envelope, uid)
        asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
        asking.go(envelope, state=PartyState.PENDING)
        assert asking.hub.accepted == expected
    people = [each.person for each in Decisions(asking.history.database).of(envelope.payload_hash)]
    assert [person.user for person in people] == [f"user {FIRST}", f"user {SECOND}"]
    assert {person.name for person in people} == {"Ann Lee"}
    # Nothing is left of it: the query does not wait any more.
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    assert [path.name for path in asking.decision_files.directory.glob("[dw]*")] == []


@as_root
def test_a_refusal_of_another_user_refuses_and_cannot_be_taken_away(asking):
    envelope = waits(asking)
    leave(asking, envelope, FIRST, approves=False)
    (path,) = asking.decision_files.directory.glob("decision-*")

    def steal():
        with pytest.raises(PermissionError):
            path.unlink()
        with pytest.raises(PermissionError):
            path.rename(path.with_name("other"))

    act_as(SECOND, steal)
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    decided = Decisions(asking.history.database).decided(envelope.payload_hash, "lea", asking.lifecycle.policy)
    assert decided.verdict is Verdict.REFUSED


CHANGES = {
    "another query": {"query_id": "00" * 32},
    "another party": {"party": "bo"},
    "long": {"reason": "x" * 100_000},
    "no approval": {"approves": 1},
    "a long name": {"name": "x" * 501},
    "a long reason": {"reason": "x" * 501},
    "lines": {"name": "Bob\napproved by Ann"},
}


def forge(directory, content, owner, how):
    path, mine = directory / f"decision-{content['query_id']}-{owner}.json", directory / "mine"
    text = json.dumps(content | CHANGES.get(how, {}))
    match how:
        case "link":
            mine.write_text(text)
            path.symlink_to("mine")
        case "second name":
            mine.write_text(text)
            path.hardlink_to(mine)
        case "pipe":
            os.mkfifo(path)
        case "a list" | "junk":
            path.write_text("[]" if how == "a list" else "[" * 9000)
        case "padded":
            path.write_text(text + " " * 100_000)
        case _:
            path.write_text(text)
            path.chmod(0o666 if how == "writable" else 0o644)


WAYS = ["another's name", "writable", "link", "second name", "pipe", "a list", "junk", "padded", *CHANGES]


@pytest.mark.variants(2)
@as_root
@pytest.mark.parametrize("how", WAYS)
def test_a_file_that_is_no_persons_own_decision_does_not_count(asking, how):
    envelope = waits(asking)
    owner = SECOND if how == "another's name" else FIRST
    directory = asking.decision_files.directory
    content = {
        "format": 1,
        "federation": asking.world.query().federation,
        "party": "ada",
        "query_id": envelope.payload_hash.hex(),
        "approves": True,
        "name": "Bob",
        "reason": "",
    }
    act_as(FIRST, lambda: forge(directory, content, owner, how))
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    assert Decisions(asking.history.database).of(envelope.payload_hash) == []
    assert not list(directory.glob("decision-*"))
    (outcome,) = directory.glob("outcome-*")
    assert json.loads(outcome.read_text())["counted"] is False


@pytest.mark.more
@as_root
def test_a_directory_in_the_place_of_a_decision_stops_nothing(asking):
    envelope = waits(asking)
    path = asking.decision_files.directory / f"decision-{envelope.payload_hash.hex()}-{FIRST}.json"
    act_as(FIRST, path.mkdir)
    leave(asking, envelope, SECOND)
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    (decision,) = Decisions(asking.history.database).of(envelope.payload_hash)
    assert decision.person.user == f"user {SECOND}"


@as_root
def test_a_pipe_that_somebody_holds_open_is_not_read(asking):
    envelope = waits(asking)
    path = asking.decision_files.directory / f"decision-{envelope.payload_hash.hex()}-{FIRST}.json"
    act_as(FIRST, lambda: os.mkfifo(path))
    held = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        (left,) = asking.decision_files.left()
    finally:
        os.close(held)
    assert "no file of its own" in left.cause


def test_a_file_that_shows_another_query_than_its_name_says_is_refused(asking):
    envelope = waits(asking)
    (path,) = asking.decision_files.directory.glob("waiting-*.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "query_id": "11" * 32}))
    with pytest.raises(ConfigurationError, match="another id"):
        asking.decision_files.find("11")
    assert envelope.payload_hash.hex() in path.name


@as_root
def test_owners_that_a_user_namespace_hides_do_not_count(asking, monkeypatch):
    envelope = waits(asking)
    leave(asking, envelope, overflow_uid())
    monkeypatch.setattr("parties.approval.decision_files._sees_users", lambda: False)
    (left,) = asking.decision_files.left()
    assert "user namespace" in left.cause
    monkeypatch.undo()
    (left,) = asking.decision_files.left()
    assert left.cause == ""


@pytest.mark.more
@as_root
def test_the_command_of_another_user_needs_no_part_of_the_partys_state(asking, shared):
    """`rado party pending`, `explain` and `approve` by people who reach the configuration and the directory alone."""
    envelope = waits(asking)
    state = shared.parent / "state"
    state.mkdir(mode=0o700)
    config = shared.parent / "party.toml"
    config.write_text(
        f'federation = "{asking.world.query().federation}"\nname = "ada"\ncoordinator = "localhost:7443"\n'
        'federation_key = "federation.pub"\nsigning_key = "signing.key"\nstate_directory = "state"\n'
        'decisions = "decisions"\npolicy = "policy.toml"\nschema = "schema.toml"\ndata = "data.csv"\n'
        '[tls]\nca = "ca.pem"\ncertificate = "certificate.pem"\nkey = "tls.key"\n'
    )
    config.chmod(0o644)
    digits = envelope.payload_hash.hex()
    # A child that is another user cannot import from root's directories: all is loaded here.
    for module in ("parties.approval.deciding", "parties.approval.deciding", "parties.history.reading"):
        importlib.import_module(module)
    PartyConfig.load(config)
    commands._pending_in(asking.decision_files, full=False)
    commands._lines_of(asking.decision_files.find(digits))
    (first,) = act_as(FIRST, lambda: commands.pending(OUTPUT, config).data["pending"])
    assert first["query_id"] == digits
    assert first["cost"] == "no bound, in up to 3 attempts"
    shown = act_as(
        FIRST, lambda: commands._lines_of(DecisionFiles.for_others(PartyConfig.load(config)).find(digits[:8]))
    )
    assert any(asking.world.query().federation in line for line in shown)
    assert "waits because every query needs approval" in shown
    assert any(line.startswith("most that all 3 attempts may cost in total, ") for line in shown)
    assert "purpose: none is stated" in " ".join(shown)
    child = Acting(FIRST, lambda: commands.approve(OUTPUT, config, digits[:8], "Ann", "study 17").data)

    def ended() -> bool:
        asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
        return child.has_ended()

    wait_until(ended, what="the user's command")
    assert child.result() == {
        "query_id": digits, "approves": True, "counted": True, "outcome": "undecided: 1 of 2 approvals"
    }  # fmt: skip
    (decision,) = Decisions(asking.history.database).of(envelope.payload_hash)
    assert (decision.person.user, decision.reason) == (f"user {FIRST}", "study 17")


def test_one_user_decides_for_a_query_that_waits_and_sees_the_outcome(asking):
    envelope = waits(asking)
    files = asking.decision_files
    since = files.leave(envelope.payload_hash, approves=True, name="", reason="")
    assert files.outcome(envelope.payload_hash, since) is None
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    assert files.outcome(envelope.payload_hash, since) == (True, "undecided: 1 of 2 approvals")
    since = files.leave(b"q" * 32, approves=True, name="", reason="")
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    assert files.outcome(b"q" * 32, since) == (False, "this query does not wait for a decision (any more)")
    with pytest.raises(ConfigurationError, match="no query that waits"):
        files.find("00ff")
    with pytest.raises(DecisionError, match="printable"):
        files.leave(envelope.payload_hash, approves=True, name="a\nb", reason="")


@pytest.mark.parametrize(("mode", "words"), [(0o777, r"chmod \+t"), (0o770, r"chmod \+t")])
def test_a_directory_in_which_decisions_can_be_removed_is_refused(shared, mode, words):
    shared.chmod(mode)
    with pytest.raises(ConfigurationError, match=words):
        DecisionFiles(shared, "clinics", "ada").check()


@as_root
def test_a_directory_of_another_user_is_refused(shared):
    os.chown(shared, FIRST, GROUP)
    with pytest.raises(ConfigurationError, match="belongs to this node's user"):
        DecisionFiles(shared, "clinics", "ada").check()
    with pytest.raises(ConfigurationError, match="make the directory"):
        DecisionFiles(shared / "none", "clinics", "ada").check()


def test_a_file_or_a_place_that_others_can_replace_is_no_directory_of_decisions(shared):
    file = shared / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="must name a directory"):
        DecisionFiles(file, "clinics", "ada").check()
    shared.parent.chmod(0o777)
    with pytest.raises(ConfigurationError, match="replace this file"):
        DecisionFiles(shared, "clinics", "ada").check()


def test_a_query_of_an_older_version_that_still_waits_stops_no_node(asking, shared):
    """The node of 0.2.0 waited for a decision when it was updated: a query that this version cannot read."""
    envelope = asking.world.ask(asking.world.query())
    asking.go(envelope)
    older = query_pb2.Query.FromString(envelope.payload)
    older.binding.ClearField("commitment")
    stored = replace(envelope, payload=older.SerializeToString(deterministic=True)).to_bytes()
    with asking.history.database.transaction() as connection:
        connection.execute("UPDATE queries SET envelope = ?", (stored,))
    asking.lifecycle.gate.take_decisions(asking.lifecycle.policy)
    (waiting,) = asking.history.waiting(0.0)
    assert waiting.query is None
    assert not list(shared.rglob(f"*{envelope.payload_hash.hex()[:16]}*"))
