"""A party in JavaScript, written from the documents alone, in a federation with two of ours, over real processes."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.release import Release
from parties.data.dataset import load
from radofed.node_config import PolicyChoices
from tests.conformance.joined import digits_of, outcomes
from tests.federation.processes import ProcessFederation, free_port, rado
from tests.waiting import HANG_S, wait_until

HERE = Path(__file__).parent
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(NODE is None, reason="Node.js is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules/@grpc/grpc-js").is_dir(),
        reason="the packages of tests/foreign_party are not installed: `make foreign-party` installs them",
    ),
]

ROWS = {"a": 300, "b": 200, "node": 250}
OURS = PolicyChoices(designs=("statistic", "moments", "gradient"), epsilon="100000", delta="1e-4")
SCHEMA = """
schema_version = 2
name = "stays"
texts = ["nfc", "trim", "case"]
[label]
column = "stayed"
positive = ["yes"]
missing = "zero-vector"
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
missing = "impute"
impute = 40.0
out_of_bounds = "clip"
unreadable = "zero-vector"
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
missing = "zero-vector"
unknown = "zero-vector"
[[features]]
name = "ward"
type = "category"
values = ["medical", "surgical"]
missing = "refuse"
unknown = "zero"
"""


def real(value: float) -> str:
    return np.array(value, ">f8").tobytes().hex()


CANONICAL = {
    "bias": True,
    "features": [
        {
            "column": "age",
            "impute": real(40.0),
            "lower": real(0.0),
            "missing": "impute",
            "name": "age",
            "out_of_bounds": "clip",
            "type": "real",
            "unreadable": "zero-vector",
            "upper": real(100.0),
        },
        {
            "column": "smoker",
            "false": ["no"],
            "impute": None,
            "missing": "zero-vector",
            "name": "smoker",
            "true": ["yes"],
            "type": "boolean",
            "unknown": "zero-vector",
        },
        {
            "column": "ward",
            "impute": None,
            "missing": "refuse",
            "name": "ward",
            "type": "category",
            "unknown": "zero",
            "values": ["medical", "surgical"],
        },
    ],
    "label": {"column": "stayed", "missing": "zero-vector", "negative": None, "positive": ["yes"]},
    "name": "stays",
    "schema_version": 2,
    "texts": ["nfc", "trim", "case"],
}
"""What a partner writes by hand, from section 4 of the protocol."""


def table(rows: int, seed: int) -> str:
    random = np.random.RandomState(seed)
    ages = np.round(random.uniform(-5, 110, rows), 1).astype(str)
    ages[::17], ages[::19] = "", "n/a"
    columns = (
        ages,
        random.choice(["yes", "NO", "no ", "perhaps"], rows),
        random.choice(["Medical", "surgical", "other"], rows),
        random.choice(["yes", "no"], rows),
    )
    return "age,smoker,ward,stayed\n" + "".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True))


def write_config(directory: Path, learners: dict, members: list[str], names: dict, **policy) -> None:
    """Writes the foreign party's own configuration beside what joining left there."""
    files = {
        "federation_key": "federation.pub",
        "signing_key": "signing.key",
        "tls": {"ca": "ca.pem", "certificate": "certificate.pem", "key": "tls.key"},
        "schema": "schema.json",
        "state": "state-node",
    }
    allowed = {
        "learners": learners,
        "accepted_members": members,
        "designs": ["statistic", "moments", "gradient"],
        "epsilon": 100_000,
        "delta": 1e-4,
    }
    (directory / "party.json").write_text(json.dumps(files | names | {"policy": allowed | policy}))


def joining(*arguments: str, where: Path, code: int = 0) -> str:
    """`node join.mjs ARGUMENTS`. Returns what it prints."""
    command = [NODE, str(HERE / "join.mjs"), *arguments]
    done = subprocess.run(command, cwd=where, timeout=HANG_S, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.strip() + done.stderr


def serve(directory: Path, log: Path) -> subprocess.Popen:
    """`node party.mjs DIRECTORY`."""
    with log.open("ab") as file:
        command = [NODE, str(HERE / "party.mjs"), str(directory)]
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


class NodeFederation(ProcessFederation):
    """Whose party `node` is the foreign one."""

    def start(self, name: str) -> None:
        if name != "node":
            return super().start(name)
        self.processes[name] = serve(self.directory(name), self.root / "node.log")
        return None

    def configure(self, **policy) -> None:
        """Writes the foreign party's own configuration, from what provisioning left in its directory."""
        directory = self.directory("node")
        (directory / "schema.json").write_text(json.dumps(CANONICAL, sort_keys=True, separators=(",", ":")))
        fingerprints = {m.name: m.fingerprint for m in self.made.members}
        members = [fingerprints["a"], fingerprints["b"]]
        names = {"federation": "test", "name": "node", "coordinator": self.address, "data": "data.csv"}
        # What a client needs to take part: it is asked without the rest.
        names |= {"features": ["base-0-3"]}
        write_config(directory, {self.learner.name: fingerprints[self.learner.name]}, members, names, **policy)

    def ask(self, *arguments: str, code: int = 0) -> dict:
        where = ("--config", str(self.learner.config), "--schema", str(self.root / "schema.toml"))
        return rado("learner", *arguments, *where, "--ask-again", code=code).get("data", {})

    def ready(self, count: int = 1) -> None:
        """Waits for the foreign party to have confirmed its ledger so often."""
        wait_until(lambda: self.log("node").count('"ledger confirmed"') == count, what="the foreign party")

    def ledger(self) -> list[dict]:
        lines = (self.directory("node") / "state-node/ledger.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("foreign")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with NodeFederation(root, parties=parties, schema=SCHEMA, policy=OURS) as made:
        (root / "schema.toml").write_text(SCHEMA)
        made.configure()
        rado("learner", "keygen", "--config", str(made.learner.config), "--bits", "2048")
        made.start_all()
        made.ready()
        yield made


def test_it_passes_the_vectors():
    subprocess.run([NODE, "--test", str(HERE)], check=True, timeout=HANG_S, capture_output=True)


PREDICATES = (
    'x["age"] >= 65',
    '~x["smoker"] & (y == 1)',
    'x["ward"] == "surgical"',
    '(z["age"] + 2 * z["smoker"] >= 0)',
)


@pytest.fixture(scope="module")
def records(federation):
    """All parties' records, (m, d) and (m,), which only a test may see."""
    held = [load(federation.directory(name) / "data.csv", Schema.from_toml(SCHEMA)).records for name in ROWS]
    return [np.concatenate([getattr(each, part) for each in held]) for part in ("features", "labels", "usable")]


def test_its_counts_are_in_the_total(federation, records):
    x, y, usable = records
    # So large an epsilon leaves a noise of some hundredths of a row.
    answer = federation.ask("statistic", *PREDICATES, "--epsilon", "150")
    age, smoker, surgical = x.astype(np.int64)[:, [0, 1, 3]].T
    expected = [
        usable & (age >= int(0.3 * 2**30)),
        usable & (smoker < 0) & (y == 1),
        usable & (surgical > 0),
        usable & (age + 2 * smoker >= 0),
    ]
    assert answer["rows"] == sum(ROWS.values())
    counts = [answer["rows"] * each["estimate"] for each in answer["estimates"]]
    assert counts == [pytest.approx(each.sum(), abs=0.4) for each in expected]


def test_its_moments_are_in_the_total(federation, records):
    x, y, _ = records
    answer = federation.ask("query", "--design", "moments", "--epsilon", "100", "--norm-bound", "3")
    moments = Release.load(Path(answer["release"])).moments
    edges = x * 2.0**-30 * y[:, None]
    assert moments.rows == len(edges)
    assert np.abs((moments.edge_sum - edges.sum(0)) / moments.edge_noise).max() < 6
    noisy = moments.product_noise > 0  # all but the square of the bias, which no party sends
    assert np.abs((moments.product_sum - edges.T @ edges)[noisy] / moments.product_noise[noisy]).max() < 6


def test_it_takes_part_in_a_training(federation):
    where = (
        "--estimator",
        "newton",
        "--epsilon",
        "20",
        "--rounds",
        "2",
        "--output",
        str(federation.root / "newton.json"),
    )
    before = federation.log("node").count('"uploaded"')
    federation.ask("train", *where)
    assert federation.log("node").count('"uploaded"') == before + 2


def test_killed_in_the_middle_it_goes_on(federation):
    charged = sum(entry["kind"] == "charge" for entry in federation.ledger())
    accepted, confirmed = (federation.log("node").count(event) for event in ('"accepted"', '"ledger confirmed"'))
    federation.stop("a")  # so that the cohort has to wait
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(federation.ask, "statistic", PREDICATES[0], "--epsilon", "1", "--cohort-min", "3")
        wait_until(lambda: federation.log("node").count('"accepted"') == accepted + 1, what="the acceptance")
        federation.kill("node")
        federation.start("a")
        federation.start("node")
        federation.ready(confirmed + 1)
        assert asked.result(HANG_S)["rows"] == sum(ROWS.values())
    assert sum(entry["kind"] == "charge" for entry in federation.ledger()) == charged + 1
    assert federation.log("node").count('"accepted"') == accepted + 1


def test_it_refuses_beyond_its_budget_and_its_policy(federation):
    federation.stop("node")
    confirmed = federation.log("node").count('"ledger confirmed"')
    federation.configure(epsilon=0.5, designs=["statistic"])
    federation.start("node")
    federation.ready(confirmed + 1)
    before = federation.ledger()
    for arguments, code in (
        (("statistic", PREDICATES[1], "--epsilon", "1"), "BUDGET_EXCEEDED"),
        (("query", "--design", "moments", "--epsilon", "1"), "POLICY_DESIGN"),
    ):
        federation.ask(*arguments, code=6)
        assert federation.log("node").splitlines()[-1].count(code)
    assert federation.ledger() == before


def test_an_older_copy_of_its_ledger_stops_it(federation):
    federation.stop("node")
    state = federation.directory("node") / "state-node"
    ledger = state / "ledger.jsonl"
    ledger.write_text("".join(f"{line}\n" for line in ledger.read_text().splitlines()[:2]))
    federation.start("node")
    assert federation.processes["node"].wait(HANG_S) == 1
    assert "the ledger was set back" in federation.log("node")


def test_it_joins_by_a_request_of_its_own(tmp_path):
    digits = joining("request", "north", "clinics", "north", "1200", where=tmp_path)
    operator, hub = str(tmp_path / "operator"), str(tmp_path / "hub")
    federation = rado("provision", "create", operator, "--federation", "clinics")["data"]["federation_fingerprint"]
    names = ("--federation", "clinics", "--role", "coordinator", "--name", "hub", "--address", "localhost:7443")
    asked = rado("provision", "request", hub, *names)["data"]
    requests = (asked["file"], str(tmp_path / "north/north.request"))
    compared = ("--fingerprint", f"hub={asked['fingerprint']}", "--fingerprint", f"north={digits}")
    rado("provision", "sign", operator, *requests, *compared)
    answer = str(tmp_path / "operator/admissions/north.admission")
    wrong = federation[:-1] + ("1" if federation[-1] == "0" else "0")
    assert "digits" in joining("install", "north", answer, wrong, where=tmp_path, code=1)
    assert not (tmp_path / "north/certificate.pem").exists()
    assert "coordinator localhost:7443" in joining("install", "north", answer, federation, where=tmp_path)


NOT_PLAYED = {
    "dp-feat",
    "fixed-support",
    "persons",
    "epochs",
    "it refuses a query about an epoch without rows with EPOCH_EMPTY",
    "a query that names its training is answered as any other",
    "it refuses a query whose training is of another schema",
    "it refuses a query after its training's end",
    "it refuses a query that names the feature training and no training",
    "a person who approved a training is not asked again within its terms",
    "survivors",
}


def test_it_passes_the_kit(tmp_path):
    digits = joining("request", "foreign", "trial", "foreign", "0", where=tmp_path)
    assert len(digits.split()) == 6
    address = f"127.0.0.1:{free_port()}"
    words = (
        "conformance",
        "party",
        str(tmp_path / "kit"),
        str(tmp_path / "foreign/foreign.request"),
        "--listen",
        address,
    )
    given = Path(rado(*words, "--only-prepare")["data"]["directory"])
    federation = digits_of(tmp_path / "kit/operator/federation.pub")
    joining("install", "foreign", str(given / "foreign.admission"), federation, where=tmp_path)
    home, members = tmp_path / "foreign", json.loads((given / "members.json").read_text())
    for file in ("rows.csv", "schema.json"):
        shutil.copy(given / file, home)
    learner, limits = members["accepted_learner"], members["limits"]
    names = {"federation": members["federation"], "name": "foreign", "coordinator": address, "data": "rows.csv"}
    parties = [each["key_id"] for each in members["accepted_parties"]]
    budget = {"epsilon": float(limits["epsilon"]), "delta": float(limits["delta"])}
    write_config(home, {learner["name"]: learner["key_id"]}, parties, names, **budget)

    def tried(*more: str) -> dict:
        process = serve(home, tmp_path / "foreign.log")
        try:
            return rado(*words, "--wait-s", "300", *more)["data"]
        finally:
            process.kill()
            process.wait(HANG_S)

    data = tried("--quiet-s", "1.5")
    assert data["conforms"], outcomes(data, "failed")
    assert data["passed"] > 80
    # It states and computes less than ours, and the kit says of what it shows nothing.
    assert not data["complete"]
    assert {each["what"].split(":")[0].split(",")[0] for each in data["not_played"]} == NOT_PLAYED
    shutil.rmtree(home / "state-node")
    data = tried("--set-back")
    assert (data["conforms"], data["skipped"]) == (True, 0), outcomes(data, "failed")
