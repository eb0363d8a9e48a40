"""Members make their keys at home, join by requests and admissions, and learn; then one joins, and one is replaced."""

import shutil
import signal
import stat
import time
from pathlib import Path

import pytest

from learner.release import Release
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import Forked, free_port, rado, run_rado
from tests.waiting import wait_until
from wire.envelopes import public_key_of, spoken
from wire.identity import Certificate

PARTIES = ("north", "south", "west")


class Home:
    """An operator and members, each with a directory. Only requests and admissions travel between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = f"localhost:{free_port()}"
        self.operator = root / "operator"
        self.digits = rado("provision", "create", str(self.operator), "--federation", "clinics")["data"][
            "federation_fingerprint"
        ]
        self.nodes: dict[str, Forked] = {}
        self.commands: list[tuple[str, ...]] = []
        self.installed: dict[str, dict[Path, bytes]] = {}

    def rado(self, *words: str, code: int = 0) -> dict:
        self.commands.append(words[:2])
        return rado(*words, code=code)

    def request(self, name: str, role: str, *more: str, directory: str = "") -> tuple[Path, str]:
        """A member makes keys and a request: the file as the operator gets it, and the digits that are read out."""
        place = str(self.root / (directory or name))
        who = ("--federation", "clinics", "--role", role, "--name", name)
        made = self.rado("provision", "request", place, *who, *more)["data"]
        sent = self.root / "post" / f"{name}.request"
        sent.parent.mkdir(exist_ok=True)
        shutil.copy(made["file"], sent)
        return sent, made["fingerprint"]

    def sign(self, *requests: tuple[Path, str], command: str = "sign", code: int = 0) -> dict:
        digits = [f"--fingerprint={file.stem}={found}" for file, found in requests]
        files = [str(file) for file, _ in requests]
        return self.rado("provision", command, str(self.operator), *files, *digits, code=code)

    def install(self, signed: dict, *, code: int = 0, directory: str = "", digits: str = "") -> list[dict]:
        return [
            self.rado(
                *("provision", "install", each["file"], "--directory", str(self.root / (directory or each["name"]))),
                *("--fingerprint", digits or self.digits),
                code=code,
            )
            for each in signed["data"]["admissions"]
        ]

    def config(self, name: str) -> Path:
        roles = {"party", "coordinator", "learner"}
        return next(file for file in (self.root / name).glob("*.toml") if file.stem in roles)

    def start(self, name: str, words: str = '"started"') -> None:
        log, config = self.root / f"{name}.log", self.config(name)
        log.unlink(missing_ok=True)
        self.nodes[name] = Forked(run_rado, (config.stem, "start", "--config", str(config)), log)
        wait_until(lambda: log.exists() and words in log.read_text(), what=name)

    def prepare(self, name: str, installed: dict, seed: int) -> None:
        """What a party's people do: rows, schema, the policy's designs, and whom they accept."""
        place = self.root / name
        self.installed[name] = {file: file.read_bytes() for file in place.iterdir()}
        (place / "schema.toml").write_text(SCHEMA)
        (place / "data.csv").write_text(table(300, seed))
        policy = place / "policy.toml"
        policy.write_text(policy.read_text().replace("designs = []", 'designs = ["moments"]'))
        for other in installed["data"]["members"]:
            self.accept(name, other["name"], other["fingerprint"])

    def accept(self, member: str, name: str, digits: str, code: int = 0) -> dict:
        """A party or the learner accepts another member."""
        config = self.config(member)
        return rado(config.stem, "accept", name, "--config", str(config), "--fingerprint", digits, code=code)

    def digits_of(self, name: str) -> str:
        """What a member reads out: of its own key."""
        return spoken(public_key_of(self.root / name / "signing.key"))

    def learn(self, *options: str, cohort: int) -> dict[str, int]:
        """The university asks; returns the rows of each party in the total that it opened."""
        return Release.load(Path(self.ask(*options, cohort=cohort)["data"]["release"])).party_rows

    def ask(self, *options: str, cohort: int, code: int = 0) -> dict:
        schema = self.root / "schema.toml"
        schema.write_text(SCHEMA)
        config = ("--config", str(self.config("university")), "--schema", str(schema))
        asked = (
            "--design",
            "moments",
            "--epsilon",
            "1",
            "--cohort-min",
            str(cohort),
            "--answer-within-s",
            "300",
            *options,
        )
        return rado("learner", "query", *config, *asked, "--ask-again", code=code)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    found = Home(tmp_path_factory.mktemp("home"))
    requests = [
        found.request("hub", "coordinator", "--address", found.address),
        *(found.request(name, "party", "--rows", "300") for name in PARTIES),
        found.request("university", "learner"),
    ]
    signed = found.sign(*requests)
    for seed, (each, installed) in enumerate(zip(signed["data"]["admissions"], found.install(signed), strict=True)):
        if each["role"] == "party":
            found.prepare(each["name"], installed, seed)
    rado("learner", "keygen", "--config", str(found.config("university")), "--bits", "2048")
    found.start("hub", "listening")
    # Nobody was accepted yet, so nothing is asked.
    assert "rado learner accept NAME" in found.ask(cohort=3, code=4)["error"]["message"]
    for name in PARTIES:
        found.accept("university", name, found.digits_of(name))
    for name in PARTIES:
        found.start(name)
    yield found
    for node in found.nodes.values():
        node.kill()


@pytest.mark.parametrize("name", PARTIES)
def test_a_party_edits_its_policy_and_no_other_file(home, name):
    files = home.installed[name]
    assert len(files) > 5
    assert {file.name for file, content in files.items() if file.read_bytes() != content} == {"policy.toml"}


def keys_of(place: Path) -> set[bytes]:
    return {file.read_bytes() for file in place.glob("*.key")}


def test_a_federation_learns_and_no_private_key_left_its_home(home):
    assert home.learn(cohort=3) == dict.fromkeys(PARTIES, 300)
    homes = [home.root / name for name in (*PARTIES, "hub", "university")]
    secrets = set().union(*map(keys_of, homes))
    assert len(secrets) == 2 * len(homes)
    seen = [*(home.root / "post").iterdir(), *(file for file in home.operator.rglob("*") if file.is_file())]
    assert len(seen) > 3 * len(homes)
    for file in seen:
        assert not any(secret in file.read_bytes() for secret in secrets)
    modes = {stat.S_IMODE(file.stat().st_mode) for place in (*homes, home.operator) for file in place.glob("*.key")}
    assert modes == {0o600}


@pytest.fixture(scope="module")
def four(home):
    """The federation after one more party has joined, while the others ran."""
    before = {file: file.read_bytes() for name in PARTIES for file in (home.root / name).glob("*.toml")}
    home.commands.clear()
    signed = home.sign(home.request("east", "party", "--rows", "300"))
    (installed,) = home.install(signed)
    home.prepare("east", installed, 9)
    home.rado("coordinator", "roster", signed["data"]["roster"], "--config", str(home.config("hub")))
    # Two at the member, one at the operator, one at the coordinator.
    all_commands = [("provision", word) for word in ("request", "sign", "install")] + [("coordinator", "roster")]
    assert home.commands == all_commands
    wait_until(lambda: '"version": 2' in (home.root / "hub.log").read_text(), what="the new roster")
    assert {file: file.read_bytes() for file in before} == before, "a file of another member was changed"
    digits = home.digits_of("east")
    # Each officer decides for their own party.
    for name in PARTIES:
        assert home.accept(name, "east", "0" * 30, code=4)["error"]["message"].startswith("the roster's key of east")
        assert home.accept(name, "east", digits)["data"]["changed"]
        assert not home.accept(name, "east", digits)["data"]["changed"]
        home.nodes[name].send_signal(signal.SIGHUP)
        wait_until(lambda name=name: "policy reloaded" in (home.root / f"{name}.log").read_text(), what="the policy")
    home.start("east")
    return home


def test_one_more_party_joins_and_no_other_member_edits_a_file(four):
    """A learner asks it once it has accepted it, and does not wait for it before."""
    found = four.ask(cohort=3)
    assert set(found["data"]["rows_by_party"]) == {*PARTIES}
    status = ("learner", "status", found["data"]["query_id"], "--config", str(four.config("university")))
    assert rado(*status)["data"]["not_asked"] == ["east"]
    assert [party["name"] for party in rado(*status)["data"]["parties"]] == [*PARTIES]
    assert f'"query": "{found["data"]["query_id"]}"' not in (four.root / "east.log").read_text()
    refused = four.accept("university", "east", "0" * 30, code=4)["error"]["message"]
    assert refused.startswith("the roster's key of east")
    assert four.accept("university", "east", four.digits_of("east"))["data"]["changed"]
    assert set(four.learn(cohort=4)) == {*PARTIES, "east"}


def certificate_of(home: Home, name: str) -> Certificate:
    return Certificate.load(home.root / name / "certificate.pem")


def renewed(home: Home, name: str, *more: str, code: int = 0) -> dict:
    return rado("certificate", "renew", "--config", str(home.config(name)), *more, code=code)


def test_certificates_are_renewed_by_what_the_operator_left_at_the_coordinator(four):
    """The operator and the coordinator's administrator act once; a timer at each member does the rest."""
    names = ("south", "hub", "university")
    before = {name: certificate_of(four, name) for name in names}
    for name in names:
        assert not renewed(four, name)["data"]["is_due"]
        # None was left yet.
        assert not renewed(four, name, "--before-due")["data"]["is_new"]
    time.sleep(1)
    signed = rado("provision", "renew", str(four.operator), *names)["data"]
    rado("coordinator", "roster", signed["roster"], "--config", str(four.config("hub")))
    files = [each["file"] for each in signed["admissions"]]
    left = rado("coordinator", "admissions", *files, "--config", str(four.config("hub")))["data"]
    assert left == {"members": sorted(names, key=names.index)}
    # Nothing is due, so that the timer changes nothing.
    assert not renewed(four, "south")["data"]["is_new"]
    for name in names:
        found = renewed(four, name, "--before-due")["data"]
        assert (found["is_new"], found["is_due"]) == (True, False)
        assert certificate_of(four, name).not_after > before[name].not_after
        assert certificate_of(four, name).public_key_der == before[name].public_key_der
        # A second time there is nothing newer.
        assert not renewed(four, name, "--before-due")["data"]["is_new"]
    # A party looks at its next poll: tests/end_to_end/test_expiring_certificates.py.
    wait_until(lambda: "certificate read" in (four.root / "hub.log").read_text(), what="the coordinator")
    # Another member gets nothing of it.
    assert not renewed(four, "west", "--before-due")["data"]["is_new"]


def test_a_member_that_lost_its_keys_gets_new_ones(four):
    lost = four.request("north", "party", "--rows", "300", directory="new-north")
    refused = four.sign(lost, code=4)["error"]["message"]
    assert "rado provision replace-key" in refused
    signed = four.sign(lost, command="replace-key")
    four.install(signed, directory="new-north")
    assert not renewed(four, "north", "--before-due")["data"]["is_new"]
    rado("coordinator", "roster", signed["data"]["roster"], "--config", str(four.config("hub")))
    # The old keys are out at once, with the process that still holds them.
    wait_until(lambda: '"version": 4' in (four.root / "hub.log").read_text(), what="the new roster")
    # The university accepted the former key: it does not ask this party, so that nobody waits for its answer.
    assert set(four.learn(cohort=3)) == {"south", "west", "east"}
    listed = rado("learner", "members", "--config", str(four.config("university")))["data"]["members"]
    assert {each["name"] for each in listed if each["asked"]} == {"south", "west", "east"}
    assert four.accept("university", "north", four.digits_of("new-north"))["data"]["changed"]
    # So is its TLS key, though its certificate is valid for a year.
    assert renewed(four, "north", "--before-due", code=2)["error"]["code"] == "PEER_UNKNOWN"
    assert not renewed(four, "new-north", "--before-due")["data"]["is_new"]
