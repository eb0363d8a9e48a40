"""The disaster drills of docs/operating.md, section 11: the tests type what the page says, over real processes.

One federation for all of them, in the order of the page. A line of `rado ... start` starts a process; digits that the
page leaves to the telephone are read from the member's own key.
"""

import re
import shlex
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

from learner.release import Release
from tests.docs.examples import DOCS
from tests.end_to_end.test_joining import SCHEMA, Home
from tests.federation.processes import rado
from tests.waiting import wait_until
from wire.envelopes import public_key_of, spoken

pytestmark = pytest.mark.slow

PAGE = (DOCS / "operating.md").read_text().partition("## 11. Disaster drills")[2]
PARTIES = ("north", "south", "west")
DIGITS = "12345 67890 12345 67890 12345 67890"


def commands(title: str) -> list[str]:
    """The commands of one drill, in order. Before any title: those of every night."""
    sections = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    text = sections[title] if title else PAGE.partition("### ")[0]
    return re.findall(r"^ {4}((?:rado|cp|mv) .*)$", text, re.MULTILINE)


class Drill(Home):
    """A federation whose administrators follow the page, in one directory."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        requests = [
            self.request("hub", "coordinator", "--address", self.address),
            *(self.request(name, "party", "--rows", "300") for name in PARTIES),
            self.request("lab", "learner"),
        ]
        signed = self.sign(*requests)
        (root / "table").mkdir()
        (root / "backups").mkdir()
        installed = self.install(signed)
        for seed, (each, answer) in enumerate(zip(signed["data"]["admissions"], installed, strict=True)):
            if each["role"] == "party":
                self.prepare(each["name"], answer, seed)
        policies = [root / name / "policy.toml" for name in PARTIES]
        for policy in policies:
            policy.write_text(policy.read_text().replace('designs = ["moments"]', 'designs = ["moments", "statistic"]'))
        shutil.copy(root / "north/data.csv", root / "table")
        (root / "schema.toml").write_text(SCHEMA)
        rado("learner", "keygen", "--config", str(self.config("lab")), "--bits", "2048")
        self.start("hub", "listening")
        for name in PARTIES:
            self.accept("lab", name, self.digits_of(name))
            self.start(name)

    def type(self, line: str, *more: str, code: int = 0) -> dict:
        """Type one line of the page. Returns what a command of rado prints as JSON."""
        words = shlex.split(line)
        if words[0] != "rado":
            subprocess.run(words, check=True, cwd=self.root)
            return {}
        if words[2] == "start":
            config = Path(words[-1])
            self.start(config.parent.name, "listening" if words[1] == "coordinator" else '"started"')
            return {}
        words = [spoken(public_key_of(self.newest / "signing.key")) if w == DIGITS else w for w in words]
        with chdir(self.root):
            return rado(*words[1:], *more, code=code)

    newest: Path
    """The directory whose owner reads digits out."""

    def lose(self, name: str) -> None:
        """A fire: the node is gone, and its disk with it."""
        if name in self.nodes:
            self.nodes.pop(name).kill()
        shutil.rmtree(self.root / name)

    def ask(self, column: str, *more: str, code: int = 0) -> dict:
        config = ("--config", str(self.config("lab")), "--schema", str(self.root / "schema.toml"))
        asked = rado(
            "learner", "statistic", f'x["{column}"] >= 0.5', *config, "--epsilon", "1", "--ask-again", *more, code=code
        )
        return asked.get("data", asked)

    def parties_of_the_newest(self) -> set[str]:
        releases = self.root / "lab/releases"
        newest = max(releases.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        return set(Release.load(newest).party_rows)

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def spent(self, directory: str = "north") -> float:
        shown = rado("ledger", "show", "--config", str(self.config(directory)))["data"]
        return shown["scopes"][0]["spent"]["epsilon"]


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    found = Drill(tmp_path_factory.mktemp("drills"))
    yield found
    for node in found.nodes.values():
        node.kill()


def everyone_answers(drill: Drill, column: str = "age") -> None:
    drill.ask(column)
    assert drill.parties_of_the_newest() == set(PARTIES)


def test_every_night(drill):
    everyone_answers(drill)
    lines = commands("")
    assert len(lines) == 4
    for line in lines:
        assert drill.type(line)["data"]["has_keys"]


def test_a_partys_disk_is_lost(drill):
    # Spent after the backup: this is what an older ledger forgets.
    everyone_answers(drill, "dose")
    before = drill.spent()
    lines = commands("A party's disk is lost")
    verify, restore, copy, look, charge, start = lines
    drill.lose("north")
    assert drill.type(verify)["data"]["name"] == "north"
    restored = drill.type(restore)["data"]
    assert "the ledger lacks what was charged" in restored["lost"]
    drill.type(copy)
    # It does not start before, and charges nothing without --yes.
    assert drill.spent() < before
    assert rado("party", "check", "--config", str(drill.config("north")), code=1)
    shown = drill.type(look, code=1)["data"]
    assert not shown["ok"]
    assert shown["claims"]
    assert drill.type(charge)["data"]["ok"]
    # No charge is lost, and not the whole limit is charged.
    assert before <= drill.spent() < 1.001 * before
    drill.type(start)
    wait_until(lambda: "ledger witnessed" in drill.log("north"), what="the witnesses")
    everyone_answers(drill)


def test_the_coordinators_disk_is_lost(drill):
    config = ("--config", str(drill.config("lab")))
    schema = ("--schema", str(drill.root / "schema.toml"), "--no-wait")
    query = rado("learner", "query", *config, *schema, "--design", "moments", "--epsilon", "1")["data"]["query_id"]

    def is_complete() -> bool:
        return rado("learner", "status", query, *config)["data"]["phase"].lower() == "complete"

    wait_until(is_complete, what="the total")
    backup = commands("")[1]
    (drill.root / "backups/hub.backup").unlink()
    drill.type(backup)
    # After the backup the operator signs, and parties see the newer roster.
    rado("provision", "renew-roster", str(drill.operator))
    newest = str(drill.operator / "roster.signed")
    rado("coordinator", "roster", newest, "--config", str(drill.config("hub")))
    wait_until(lambda: '"version": 2' in drill.log("hub"), what="the roster")
    drill.ask("age")
    spent = drill.spent()
    restore, roster, start = commands("The coordinator's disk is lost")
    drill.lose("hub")
    drill.type(restore)
    drill.type(roster)
    drill.type(start)
    # A total that was complete is still there, and the federation goes on.
    assert rado("learner", "fetch", query, *config)["data"]["parties"] == 3
    everyone_answers(drill)
    assert drill.spent() >= spent


def test_the_learners_disk_is_lost(drill):
    restore, listed = commands("The learner's disk is lost")
    (drill.root / "backups/lab.backup").unlink()
    drill.type(commands("")[2])
    asked = len(rado("learner", "list", "--config", str(drill.config("lab")))["data"]["queries"])
    drill.lose("lab")
    drill.type(restore)
    assert len(drill.type(listed)["data"]["queries"]) == asked > 0
    everyone_answers(drill)


def test_a_key_is_lost_or_stolen(drill):
    request, sign, roster, move, install, start, *accept = commands("A key is lost or stolen")
    assert len(accept) == 5
    thief = drill.root / "stolen"
    shutil.copytree(drill.root / "north", thief, ignore=shutil.ignore_patterns("*.sock"))
    before = drill.spent()
    drill.nodes.pop("north").kill()
    made = drill.type(request)["data"]
    drill.newest = drill.root / "north-2"
    drill.type(sign, f"--fingerprint=north={made['fingerprint']}")
    drill.type(roster)
    wait_until(lambda: '"version": 3' in drill.log("hub"), what="the roster")
    # Who has the old keys is out at once.
    stolen = rado("certificate", "renew", "--before-due", "--config", str(thief / "party.toml"), code=2)
    assert stolen["error"]["code"] == "PEER_UNKNOWN"
    drill.type(move)
    drill.type(install, "--fingerprint", drill.digits)
    drill.type(start)
    for line in accept:
        drill.type(line)
    assert all("policy reloaded" in drill.log(name) for name in ("south", "west"))
    wait_until(lambda: "ledger witnessed" in drill.log("north-2"), what="the witnesses")
    assert drill.spent("north-2") == before
    everyone_answers(drill)
    assert drill.spent("north-2") > before


def test_the_operators_disk_is_lost_and_a_roster_is_wrong(drill):
    restore, listed, copy, renew, install = commands("The operator's disk is lost, or a roster is wrong")
    shutil.rmtree(drill.operator)
    drill.type(restore)
    # The backup is of before version 2.
    assert drill.type(listed)["data"]["version"] == 1
    rado("provision", "renew-roster", str(drill.operator))
    refused = drill.type(install, code=4)["error"]["message"]
    assert re.search(r"version 2, and version 3 is there", refused)
    drill.type(copy)
    assert drill.type(renew)["data"]["version"] == 4
    drill.type(install)
    wait_until(lambda: '"version": 4' in drill.log("hub"), what="the roster")
    everyone_answers(drill)


def test_without_any_backup_a_coordinator_starts_again_and_no_charge_is_lost(drill):
    """The page says it in a sentence: new keys for the same name and address."""
    before = drill.spent("north-2")
    drill.lose("hub")
    request = drill.request("hub", "coordinator", "--address", drill.address)
    signed = drill.sign(request, command="replace-key")
    drill.install(signed)
    drill.start("hub", "listening")
    everyone_answers(drill)
    assert drill.spent("north-2") > before


def test_without_any_backup_a_party_is_charged_all_that_remains(drill):
    policy = (drill.root / "north-2/policy.toml").read_text()
    drill.lose("north-2")
    request = drill.request("north", "party", "--rows", "300", directory="north-3")
    signed = drill.sign(request, command="replace-key")
    (installed,) = drill.install(signed, directory="north-3")
    config = ("--config", str(drill.config("hub")))
    version = rado("coordinator", "roster", signed["data"]["roster"], *config)["data"]["version"]
    wait_until(lambda: f'"version": {version}' in drill.log("hub"), what="the roster")
    drill.prepare("north-3", installed, 0)
    (drill.root / "north-3/policy.toml").write_text(policy)
    config = ("--config", str(drill.config("north-3")))
    # No one can read what the old key sealed.
    assert not rado("ledger", "acknowledge", *config, "--wait-s", "3", code=1)["data"]["ok"]
    charged = rado("ledger", "acknowledge", *config, "--without-witness", "--yes", "--wait-s", "0")["data"]
    assert charged["whole_limit"]
    assert drill.spent("north-3") == pytest.approx(10)


def test_the_page_names_the_tests_of_the_other_drills():
    root = DOCS.parent
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert {"tests/drills", "tests/end_to_end/test_restored_party.py", "tests/radofed/backup"} <= set(named)
    assert all((root / name).exists() for name in named)
