"""Record what the nodes of this version write, as tests/recorded/VERSION: `python -m tests.recorded.record`.

Run it once, when a version is released. A coordinator, three parties (60, 70 and 80 made-up rows) and a learner answer
rados, a run of `newton`, a query whose total is not fetched, and one that stays open.
"""

import contextlib
import gzip
import random
import shutil
import sqlite3
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.requests import MomentsRequest
from learner.session import Session
from radobase.schema_files import load_schema
from radobase.version import program_version
from radofed.node_config import PolicyChoices
from tests.federation import ProcessFederation, rado
from tests.waiting import wait_until
from wire.status import Phase

HERE = Path(__file__).parent
ROWS = {"ada": 60, "bo": 70, "cy": 80}
SCHEMA = """\
schema_version = 1
name = "stays"
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 128.0
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
"""
ALLOWING = PolicyChoices(
    designs=("plain", "moments", "gaussian", "gradient", "statistic"),
    allow_unprotected=True,
    required_witnesses=0,
    epsilon="100",
    delta="1e-3",
    unbounded_queries=5,
    delta_per_query="1e-5",
)


def table(rows: int, seed: int) -> str:
    """Rows of a made-up table: the older and the smokers are ill more often."""
    draw = random.Random(seed)
    lines = ["age,smoker,ill"]
    for _ in range(rows):
        age, smoker = draw.randrange(20, 90), draw.random() < 0.4
        ill = age / 128 + 0.4 * smoker + draw.gauss(0, 0.15) > 0.6
        lines.append(f"{age},{'yes' if smoker else 'no'},{'yes' if ill else 'no'}")
    return "\n".join([*lines, ""])


def write(federation: ProcessFederation) -> bytes:
    """Let the nodes work. Returns the id of the query whose total is not fetched."""
    learner = federation.learner
    config, schema = ("--config", str(learner.config)), str(federation.directory("ada") / "schema.toml")
    create_key(learner.directory / "paillier.jwk", bits=2048)
    with contextlib.chdir(learner.directory):
        asked = ("--schema", schema, "--design", "plain", "--rados", "40")
        release = rado("learner", "query", *config, *asked)["data"]["release"]
        rado("learner", "train", release, "--estimator", "radoboost", "-o", "radoboost.json")
        run = ("--schema", schema, "--epsilon", "2", "--rounds", "2", "-o", "newton.json")
        rado("learner", "train", *config, "--estimator", "newton", *run)
    rado("backup", "create", str(federation.root / "ada.backup"), "--config", str(federation.member("ada").config))
    with Session(LearnerConfig.load(learner.config), progress=False) as session:
        request = MomentsRequest(load_schema(Path(schema)), epsilon=Fraction(1))
        unfetched = session.ask(session.plan(request))
        wait_until(lambda: session.status(unfetched).phase is Phase.COMPLETE, what="the total")
        federation.stop("cy")
        session.ask(session.plan(request))
        wait_until(lambda: "accepted" in federation.log("bo").splitlines()[-1], what="the open query")
    return unfetched


def database(source: Path, to: Path) -> None:
    """A copy of a database with everything that was committed, compressed. The node must have ended."""
    with tempfile.TemporaryDirectory() as place, contextlib.closing(sqlite3.connect(source)) as held:
        with contextlib.closing(sqlite3.connect(Path(place) / "copy")) as copy:
            held.backup(copy)
        to.write_bytes(gzip.compress((Path(place) / "copy").read_bytes(), mtime=0))


def keep(federation: ProcessFederation, unfetched: bytes, to: Path) -> None:
    """Copy what the tests read."""
    ada, hub, lab = federation.directory("ada"), federation.directory("coordinator"), federation.learner.directory
    names = {
        ada: ("party.toml", "policy.toml", "schema.toml", "data.csv", "federation.pub"),
        hub: ("coordinator.toml", "roster.signed"),
        lab: ("learner.toml", "paillier.jwk", "radoboost.json", "newton.json", "newton.json.journal"),
    }
    for directory, files in names.items():
        for name in files:
            shutil.copy(directory / name, to / name)
    shutil.copytree(lab / "state/queries", to / "queries")
    shutil.copytree(lab / "releases", to / "releases")
    shutil.copy(ada / "state/ledger.sqlite.head", to)
    database(ada / "state/ledger.sqlite", to / "ledger.sqlite.gz")
    database(ada / "state/history.sqlite", to / "history.sqlite.gz")
    database(hub / "state/coordinator.sqlite", to / "coordinator.sqlite.gz")
    (to / "ada.backup.gz").write_bytes(gzip.compress((federation.root / "ada.backup").read_bytes(), mtime=0))
    (total,) = (hub / "state/spool" / unfetched.hex() / "total").iterdir()
    (to / "totals").mkdir()
    shutil.copy(total, to / "totals" / unfetched.hex())


def main() -> int:
    """Record the version that this checkout states."""
    to = HERE / program_version()
    with tempfile.TemporaryDirectory() as place:
        parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
        with ProcessFederation(
            Path(place), parties=parties, schema=SCHEMA, federation="clinics", learners=["lab"], policy=ALLOWING
        ) as federation:
            federation.start_all()
            wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
            unfetched = write(federation)
            for name in list(federation.processes):
                federation.stop(name)
            to.mkdir()
            keep(federation, unfetched, to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
