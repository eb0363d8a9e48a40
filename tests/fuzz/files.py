"""Targets: what a node finds on its disk."""

import datetime as dt
import io
import json
import shutil
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from coordinator import status
from coordinator.config import CoordinatorConfig
from coordinator.membership import Membership
from coordinator.store import Store
from coordinator.uploads import SpoolDamagedError, UploadSpool
from dpcore.errors import RadofedError
from dpcore.evaluation.descriptive.description import Describe
from dpcore.evaluation.evaluation import Evaluation
from dpcore.queries.statement import PrivacyStatement
from dpcore.randomness.sources import SystemRandom
from dpcore.records.feature_map import FeatureMap
from learner import inquiries, model_file
from learner import release as releases
from learner.accepted_parties import AcceptedParties, parties_toml
from learner.accepted_parties import accept as accept_party
from learner.config import LearnerConfig
from learner.decryption import load_key
from learner.journal import SessionSource
from learner.model import Model
from learner.release import Release
from learner.report.measured import read_evaluation
from learner.report.page import calibration_plot, precision_plot, roc_plot
from learner.shapes import every_shapes
from learner.state import LearnerState
from learner.uncertainty import ClassCalibration
from parties.answering.spool import Spools
from parties.config import PartyConfig
from parties.data.row_guard import load_known
from parties.members import Rosters, accept
from parties.policy import Policy
from parties.state_directory import load_or_create
from rado.v1 import roster_pb2
from radobase import cluster_jobs, ray_cluster
from radobase.local_status import _STATUS
from radobase.logs import Log
from radobase.metrics import Reason, readiness_to_dict
from radobase.reading import parse_json, read_text
from radobase.schema_files import load_feature_map, load_schema
from radobase.tables.recoding import load_recode
from radobase.watch_server import LIMIT_BYTES as PROBE_LIMIT_BYTES
from radobase.watch_server import Health
from radofed import node_config, provision
from radofed.audit import Exported, compare
from radofed.certificates import Authority, make_request, private_pem
from radofed.console.learner.evaluations import EvaluationFile
from radofed.console.learner.trainings import TrainingFile
from radofed.console.sign_on import SignOnAccess
from tests.federation.material import STAYS
from tests.fuzz import world
from tests.fuzz.mutation import json_octets, messages_near, octets_near, texts_near
from tests.fuzz.target import InFile, Target, scratch
from tests.learner.class_models import class_model
from tests.learner.shapes.mapped import model as mapped_model
from tests.wire.test_query_kinds import SCHEMA
from wire.envelopes import MessageType, SigningKey, key_id, load_public_key, sha256
from wire.identity import Certificate, TlsFiles
from wire.roster import Role, installed_rosters
from wire.statements import Chunk, Cohort

QUERY = b"q" * 32
MAP = """map_version = 1
[[terms]]
name = "b"
hats = "age"
knots = [20, 40.5, 60]
ends = true
centre = 0.25
halvings = 1
[[terms]]
column = "smoker"
[[terms]]
point = "age"
at = 0
[[terms]]
product = ["b", "smoker"]
"""
FEDERATION_KEY = world.KEYS["federation"].public_bytes
MEBIBYTE = 1 << 20


RECODE = """[columns.smoker]
column = "raucht"
cells = { "ja" = "yes", "nein" = "no", "?" = "" }
[columns.age]
factor = 0.1
offset = 1
"""


def read_recode(path: Path) -> None:
    """A recode that is read says the same each time."""
    assert len(load_recode(path, STAYS).digest) == len(load_recode(path, STAYS).digest) == 32


def read_map(path: Path) -> None:
    """A map that is read fits the schema, and travels."""
    found = load_feature_map(path, STAYS)
    found.check(STAYS)
    assert FeatureMap.from_list(found.to_list(), bias=STAYS.bias) == found


@cache
def release() -> Release:
    statement = PrivacyStatement("one record", "none", None, None, None, None, ("a",), ("w",))
    cohort = world.cohort()
    return Release(
        world.opened().envelope,
        world.ROSTER_ENVELOPE,
        Cohort(cohort.query_id, cohort.attempt, cohort.acceptances),
        world.total().receipts,
        statement,
        world.NOW,
        np.arange(world.opened().query.length).reshape(world.opened().query.kind.shape(SCHEMA.d)),
    )


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def sealed(data: bytes, digest) -> bytes:
    """The JSON object with the right digest, as a person would write who changed a file on purpose."""
    if len(data) > MEBIBYTE:
        return data
    try:
        content = json.loads(data)
        content.pop("digest", None)
        content["digest"] = digest(content)
        return json.dumps(content).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):  # the parser under test says what is wrong
        return data


def beside_array(root: Path) -> Path:
    (root / f"{release().query.kind.array}.npy").write_bytes(npy(release().integers))
    return root / "release.json"


def seal_release(data: bytes) -> bytes:
    return sealed(data, lambda content: releases._digest(content, release().integers).hex())


def read_release(path: Path) -> None:
    found = Release.load(path.parent)
    assert found.digest
    assert found.rows == sum(found.party_rows.values())
    found.verify(FEDERATION_KEY)


def beside_release(root: Path) -> Path:
    (root / "release.json").write_text(json.dumps({**release().to_json(), "digest": release().digest.hex()}))
    return root / f"{release().query.kind.array}.npy"


def read_array(path: Path) -> None:
    assert np.array_equal(Release.load(path.parent).integers, release().integers)


def read_model(path: Path) -> None:
    model = Model.load(path)
    model.save(path.with_name("again.json"))
    again = Model.load(path.with_name("again.json"))
    assert again.theta.tobytes() == model.theta.tobytes()
    assert again.digest == model.digest
    every_shapes(model)
    model.to_original_units()


@cache
def model_json() -> dict:
    statement = PrivacyStatement("one record", "record", 1.0, 1e-6, 2.0, None, ("a",), ("w",))
    covariance = np.eye(SCHEMA.d) / 3
    model = Model(np.arange(SCHEMA.d) / 7, SCHEMA, "newton", bytes(32), statement, covariance=covariance)
    return model_file.to_json(model)


def inquiry_json() -> dict:
    asked = Describe(columns=("age",), by='x["age"] >= 65', edges={"age": (20.0, 60.0)})
    return {"format": inquiries.FORMAT, "format_version": inquiries.FORMAT_VERSION, **asked.to_dict()}


def evaluation_json() -> dict:
    share = {"estimate": 0.25, "on_rows": [0.2, 0.3], "on_distribution": [0.1, 0.4]}
    bins = [{"predicted": ends, "rows": 5.0, "observed": share} for ends in ([0.0, 0.5], [0.5, 1.0])]
    point = {"threshold": 0.0, "false_positive_rate": share, "true_positive_rate": share}
    names = ("error", "true_positive_rate", "false_positive_rate", "precision", "balanced_accuracy", "auc", "f1")
    sizes = ("usable_half_width", "cell_half_width", "rounding", "deviation", "auc_half_width", "largest_bin")
    model = model_file.from_json(model_json(), Model)
    data = dict.fromkeys(names, share) | dict.fromkeys(sizes, 0.25)
    data |= {"rows": 9, "usable": 8.5, "confidence": 0.95, "confusion": [[1.0, 2.0], [3.0, 2.5]], "roc": [point]}
    decided = {"threshold": 0.0, "recall": share, "precision": share, "f1": share}
    data |= {"positive_share": share, "thresholds": [decided]}
    data |= {"unseen": True, "edges_found": True, "part": {"share": "1/5", "part": "held-back"}, "calibration": bins}
    data |= {"model_digest": model.digest.hex(), "privacy": model.statement.to_dict()}
    return {"schema_version": 1, "status": "ok", "data": data}


def read_an_evaluation(path: Path) -> None:
    found = read_evaluation(path, model_file.from_json(model_json(), Model))
    assert isinstance(found.figures, Evaluation)
    calibration_plot(found.figures, found.own)
    roc_plot(found.figures, found.own)
    precision_plot(found.figures, found.own)
    json.dumps(found.to_dict(), allow_nan=False)


def class_evaluation_json() -> dict:
    share = {"estimate": 0.25, "on_rows": [0.2, 0.3], "on_distribution": [0.1, 0.4]}
    model = class_model(mapped=False)
    names = model.scoring.names
    data = {"rows": 9, "part": None, "unseen": True, "confidence": 0.95, "cell_half_width": 1.5, "deviation": 0.5}
    data |= {"error": share, "classes": {name: {"recall": share, "precision": share} for name in names}}
    data |= {"confusion": {name: dict.fromkeys(names, 1.25) for name in names}}
    data |= {"model_digest": model.digest.hex(), "privacy": model.statement.to_dict()}
    return {"schema_version": 1, "status": "ok", "data": data}


def read_a_class_evaluation(path: Path) -> None:
    found = read_evaluation(path, class_model(mapped=False))
    json.dumps(found.to_dict(), allow_nan=False)
    found.figures.sentences()


def calibrated_class_model() -> dict:
    calibration = ClassCalibration(np.full((3, 3), 1 / 3), "made up")
    return model_file.to_json(replace(class_model(), calibration=calibration))


def beside_tls(name: str):
    def prepare(root: Path) -> Path:
        for each, content in tls_files().items():
            if each != name:
                (root / each).write_bytes(content)
                (root / each).chmod(0o600)
        return root / name

    return prepare


def read_tls(path: Path) -> None:
    files = TlsFiles(*(path.with_name(each) for each in ("ca", "certificate", "key")))
    files.check(world.FEDERATION, Role.PARTY, "ann", dt.datetime.now(dt.UTC))


@cache
def tls_files() -> dict[str, bytes]:
    now = dt.datetime.now(dt.UTC)
    authority, request = Authority.create(world.FEDERATION, now), make_request(world.FEDERATION, Role.PARTY, "ann")
    certificate = authority.sign_request(request.request_pem, Role.PARTY, "ann", now)
    return {"ca": authority.certificate_pem, "certificate": certificate, "key": request.key_pem}


def beside_spool(name: str):
    """One of the files of a contribution that is on a party's disk."""

    def prepare(root: Path) -> Path:
        Spools(root / "spool", 1 << 30).write(QUERY, 1, [b"c" * 100], needed_bytes=100, width=10, values=np.arange(3))
        return root / "spool" / f"{QUERY.hex()}-1" / name

    return prepare


def read_spool(path: Path) -> None:
    spool = Spools(path.parents[1], 1 << 30).open(QUERY, 1)
    assert len(spool.digest) == 32
    spool.verify()
    spool.values()


_uploads: dict[Path, UploadSpool] = {}


def beside_upload(root: Path) -> Path:
    shutil.rmtree(root / "spool", ignore_errors=True)
    _uploads[root / "spool"] = UploadSpool(root / "spool", 1 << 30)
    _uploads[root / "spool"].put(QUERY, 1, "ann", Chunk.of(0, b"c" * 100))
    (path,) = (root / "spool").rglob("0-*")
    return path


def read_uploaded(path: Path) -> None:
    assert _uploads[path.parents[3]].read(QUERY, 1, "ann", 0) == b"c" * 100


def signed_if_marked(data: bytes) -> bytes:
    """A file as it is, or after a NUL a payload that the federation signs."""
    return world.KEYS["federation"].sign(MessageType.ROSTER, data[1:]).to_bytes() if data[:1] == b"\0" else data


def read_membership(path: Path) -> None:
    database = path.with_name("coordinator.sqlite")
    database.unlink(missing_ok=True)
    with closing(Store(database, world.FEDERATION)) as store:
        Membership(
            path, federation=world.FEDERATION, name="hub", federation_key=FEDERATION_KEY, store=store, log=Log("fuzz")
        )


def in_state(name: str, file: str, use, query_id: bytes = QUERY) -> InFile:
    """One of a learner's files about a query."""

    def prepare(root: Path) -> Path:
        place = root / "queries" / query_id.hex()
        place.mkdir(parents=True, exist_ok=True)
        (place / "roster.signed").write_bytes(world.ROSTER_ENVELOPE.to_bytes())
        return place / file

    return InFile(name, prepare, lambda path: use(LearnerState(path.parents[2], FEDERATION_KEY)))


@cache
def authority_files() -> dict[str, bytes]:
    made = Authority.create(world.FEDERATION, dt.datetime.fromtimestamp(world.NOW, dt.UTC))
    return {"ca.key": private_pem(made.key), "ca.pem": made.certificate_pem}


def beside_authority(name: str):
    def prepare(root: Path) -> Path:
        for each, content in authority_files().items():
            if each != name:
                (root / each).write_bytes(content)
                (root / each).chmod(0o600)
        return root / name

    return prepare


def read_authority(path: Path) -> None:
    assert Authority.load(path.parent).federation == world.FEDERATION


def rosters(directory: Path) -> Rosters:
    return Rosters(directory, federation=world.FEDERATION, federation_key=FEDERATION_KEY, log=Log("fuzz"))


def read_installed_roster(path: Path) -> None:
    assert all(roster.version for roster in installed_rosters(path.parent, FEDERATION_KEY))


PARTIES_TEXT = parties_toml({"ann": "ab" * 32, "bob": "cd" * 32})


def read_parties_to_extend(path: Path) -> None:
    """A learner accepts a party in a file that people have edited."""
    party = world.MEMBERS["bob"]
    before = AcceptedParties.load(path)
    changed = accept_party(LearnerConfig.model_construct(parties=path), party).changed
    assert changed is not before.accepts(party)
    assert AcceptedParties.load(path).accepts(party)


POLICY_TEXT = node_config.policy_toml({}, {}, node_config.PolicyChoices())


def read_policy_to_extend(path: Path) -> None:
    """An officer accepts a member in a policy that people have edited."""
    member = world.MEMBERS["bob"]
    config = PartyConfig.model_construct(policy=path, name="ann")
    before = Policy.load(path)
    assert accept(config, member).changed is (key_id(member.signing_key).hex() not in before.accepted_members)
    assert key_id(member.signing_key).hex() in Policy.load(path).accepted_members


def read_node_status(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert isinstance(parse_json(text, scratch("node-status") / "node.sock", _STATUS), dict)


def read_health(data: bytes) -> None:
    health = Health.of_answer(data, "127.0.0.1:9464")
    assert Health.of_answer(json.dumps(health.to_dict()).encode(), "again") == health


def read_exported_history(path: Path) -> None:
    exported = Exported.load(path)
    assert compare(exported, exported).agrees


def address_file(root: Path) -> Path:
    return CoordinatorConfig.model_construct(state_directory=root, listen="127.0.0.1:7443").address_file


def read_address(path: Path) -> None:
    status._address(CoordinatorConfig.model_construct(state_directory=path.parent, listen="127.0.0.1:7443"))


def read_ray_files(path: Path) -> None:
    """Ray's note of this machine's cluster, and the cluster's token."""
    for kind in (ray_cluster._NOTE, ray_cluster._TOKEN):
        read_text(path, kind)


def configuration(model):
    def read(path):
        loaded = model.load(path)
        assert model.load(path) == loaded
        if model is CoordinatorConfig:
            assert loaded.host_and_port
        if model is Policy:
            assert loaded.limits.of_ledger
            assert loaded.members_needed(2) >= 2

    return read


POLICY = """
accepted_members = ["{key}"]
designs = ["moments", "gradient"]
smallest_cohort = 3
[[learners]]
name = "lea"
signing_key = "{key}"
[limits]
epsilon = "10"
delta = "1e-5"
per_day = {{ epsilon = "1", delta = "1e-6" }}
[limits.columns.age]
epsilon = "0.5"
delta = "0"
""".format(key="ab" * 32)


@cache
def pems() -> dict[str, bytes]:
    path = scratch("pems")
    world.KEYS["ann"].save(path / "key") if not (path / "key").exists() else None
    from wire.envelopes import save_public_key

    save_public_key(path / "pub", FEDERATION_KEY)
    return {name: (path / name).read_bytes() for name in ("key", "pub")}


def exported_history() -> dict[str, object]:
    attempt = {"attempt": 1, "charged": True, "cohort_digest": "cd" * 32, "cohort": {"ann": 3, "bob": 4}}
    query = {"query_id": "ab" * 32, "shown_at_unix_s": 1.5, "learner": "lea", "kind": "moments", "attempts": [attempt]}
    return {"data": {"queries": [query]}}


def read_training(path):
    found = TrainingFile.load(path)
    path.write_bytes(found.to_bytes())
    assert TrainingFile.load(path) == found


def read_run(path):
    found = EvaluationFile.load(path)
    path.write_bytes(found.to_bytes())
    assert EvaluationFile.load(path) == found


def targets() -> list[Target]:
    jwk = {**world.secret_key().to_jwk(), "not_before_unix_s": world.NOW}
    rounds = [{"asked": "ab" * 32, "query_id": "cd" * 32}] * 2
    journal = {"format": "radofed-journal", "format_version": 1, "rounds": rounds}
    training = {"format": "radofed-training", "format_version": 1, "estimator": "newton", "warning": ""}
    training |= {"given": {"epsilon": "1", "delta": "1e-6", "option": "clip=1"}}
    evaluation = {"format": "radofed-evaluation", "format_version": 1, "model": "m"}
    evaluation |= {"given": {"epsilon": "1"}, "said": ["A sentence."]}
    integers = sha256(np.arange(3).astype("<i8").tobytes()).hex()
    manifest = {"chunks": [sha256(b"c" * 100).hex()], "ciphertexts": 10, "values": integers}
    party = node_config.party_toml(world.FEDERATION, "ann", "hub:7443")
    hub = node_config.coordinator_toml(world.FEDERATION, "hub", "127.0.0.1:7443")
    lea = node_config.learner_toml(world.FEDERATION, "lea", "hub:7443")
    words = ["[cluster]", "[limits]", "0", "1.5", "true", '"1e-6"', "[[learners]]", "epsilon", "[tls]", "= {}"]
    signed, query = world.ROSTER_ENVELOPE.to_bytes(), world.opened().envelope.to_bytes()
    asked = world.opened().query_id
    arrays = [npy(release().integers), npy(np.zeros((0, 7), np.int64)), npy(np.ones(3)), npy(np.zeros(2, "<i4"))]
    plain = [
        cluster_jobs.pickle.dumps(message) for message in (("ready", None), ("result", (1, b"x")), ("e", np.arange(3)))
    ]
    tls = tls_files()
    authority = authority_files()
    roster = messages_near([roster_pb2.Roster.FromString(world.ROSTER.to_bytes())])
    payloads = roster.map(lambda payload: b"\0" + payload)
    return [
        Target("policy", InFile("policy", "policy.toml", configuration(Policy)), texts_near([POLICY], words),
               256 << 10, ("radobase.configuration._FILE", "radobase.reading.read_toml")),
        Target("party-toml", InFile("party-toml", "party.toml", configuration(PartyConfig)),
               texts_near([party], words), 256 << 10, ()),
        Target("coordinator-toml", InFile("coordinator-toml", "c.toml", configuration(CoordinatorConfig)),
               texts_near([hub], words), 256 << 10, ()),
        Target("learner-toml", InFile("learner-toml", "l.toml", configuration(LearnerConfig)),
               texts_near([lea], words), 256 << 10, ()),
        Target("parties-toml", InFile("parties-toml", "parties.toml", configuration(AcceptedParties)),
               texts_near([PARTIES_TEXT], words), 256 << 10, ()),
        Target("schema-file", InFile("schema-file", "schema.toml", load_schema), texts_near([SCHEMA.to_toml()]),
               MEBIBYTE, ("radobase.reading.read_text",)),
        Target("recode-toml", InFile("recode", "recode.toml", read_recode), texts_near([RECODE], ["factor = 0"]),
               MEBIBYTE, ("radobase.tables.recoding._RECODE",)),
        Target("feature-map-toml", InFile("feature-map", "map.toml", read_map),
               texts_near([MAP], ['product = ["b", "b"]', "centre = [1]"]),
               MEBIBYTE, ("radobase.schema_files._MAP",)),
        Target("journal", InFile("journal", "journal", lambda path: SessionSource(None, path)),
               json_octets([journal]), 4 * MEBIBYTE,
               ("learner.journal._JOURNAL", "radobase.reading.parse_json")),
        Target("inquiry", InFile("inquiry", "ab.inquiry.json", lambda path: inquiries.load_inquiry(
               path.with_name("ab"))),
               json_octets([inquiry_json()]), MEBIBYTE, ("learner.inquiries._FILE",)),
        Target("training", InFile("training", "newton-1.training", read_training), json_octets([training]), MEBIBYTE,
               ("radofed.console.learner.trainings._FILE",)),
        Target("console-evaluation", InFile("evaluation", "m-1.evaluation", read_run), json_octets([evaluation]),
               MEBIBYTE, ("radofed.console.learner.evaluations._FILE",)),
        Target("release-json", InFile("release", beside_array, read_release, seal_release),
               json_octets([release().to_json()]), 32 * MEBIBYTE,
               ("learner.release._FIELDS", "learner.release.Release.load", "radobase.reading.read_json")),
        Target("release-array", InFile("release-array", beside_release, read_array),
               octets_near(arrays), 32 * MEBIBYTE,
               ("learner.release._ARRAY", "radobase.reading.read_array"), examples=40),
        Target("model", InFile("model", "model.json", read_model, lambda data: sealed(data, model_file.digest_of)),
               json_octets([model_json(), model_file.to_json(mapped_model()), calibrated_class_model()]), 32 * MEBIBYTE,
               ("learner.model_file.MODEL", "learner.model.Model.load")),
        Target("evaluation", InFile("evaluation", "evaluation.json", read_an_evaluation),
               json_octets([evaluation_json()]), 4 * MEBIBYTE,
               ("learner.report.measured._EVALUATION",)),
        Target("class-evaluation", InFile("class-evaluation", "evaluation.json", read_a_class_evaluation),
               json_octets([class_evaluation_json()]), 4 * MEBIBYTE,
               ("learner.report.measured._EVALUATION",)),
        Target("paillier-jwk", InFile("paillier-jwk", "key.jwk", load_key), json_octets([jwk]), 1 << 16,
               ("learner.decryption._KEY", "dpcore.paillier.secret.SecretKey.from_jwk")),
        Target("signing-key", InFile("signing-key", "signing.key", lambda path: SigningKey.load(path, "fuzz")),
               octets_near([pems()["key"]]),
               1 << 16, ("wire.envelopes._KEY", "wire.envelopes.SigningKey.load")),
        Target("public-key", InFile("public-key", "federation.pub", load_public_key), octets_near([pems()["pub"]]),
               1 << 16, ("wire.envelopes._PUBLIC_KEY", "wire.envelopes.load_public_key")),
        Target("certificate", InFile("certificate", "certificate.pem", Certificate.load),
               octets_near([tls["certificate"], tls["ca"]]), 1 << 20,
               ("wire.identity._PEM", "wire.identity.Certificate.load")),
        Target("tls-ca", InFile("tls-ca", beside_tls("ca"), read_tls), octets_near([tls["ca"]]), 1 << 20, ()),
        Target("tls-key", InFile("tls-key", beside_tls("key"), read_tls), octets_near([tls["key"]]), 1 << 20, ()),
        Target("manifest", InFile("manifest", beside_spool("manifest.json"), read_spool),
               json_octets([manifest]), 16 * MEBIBYTE,
               ("parties.answering.spool._MANIFESTS",)),
        Target("contribution", InFile("contribution", beside_spool("chunk-000000.bin"), read_spool),
               octets_near([b"c" * 100]), 512 << 10, ("parties.answering.spool._CHUNK",), examples=20),
        Target("contribution-values", InFile("contribution-values", beside_spool("values.bin"), read_spool),
               octets_near([np.arange(3).astype("<i8").tobytes()]), 512 << 10,
               ("parties.answering.spool._INTEGERS",), examples=20),
        Target("uploaded-chunk", InFile("uploaded", beside_upload, read_uploaded),
               octets_near([b"c" * 100]), 512 << 10, ("coordinator.uploads._CHUNK",),
               allowed=(RadofedError, SpoolDamagedError), examples=20),
        Target("proxy-secret", InFile("proxy-secret", "secret", lambda path: SignOnAccess("https://example.org", path)),
               octets_near([b"k" * 64, b"k" * 20]), 4096, ("radofed.console.sign_on._SECRET",), examples=20),
        Target("party-secret", InFile("party-secret", "secret", lambda path: load_or_create(path, SystemRandom())),
               octets_near([bytes(32)]), 4096, ("parties.state_directory._SECRET",), examples=20),
        Target("party-roster", InFile("party-roster", "roster.signed", lambda path: rosters(path.parent)),
               octets_near([signed]), 4 * MEBIBYTE, ("parties.members._ROSTER",)),
        Target("former-roster",
               InFile("former-roster", "former-rosters/1.signed",
                      lambda path: rosters(path.parents[1]).former()),
               octets_near([signed]), 4 * MEBIBYTE, ("parties.members._FORMER",),
               examples=20),
        Target("coordinator-roster", InFile("membership", "roster.signed", read_membership, signed_if_marked),
               octets_near([signed]) | payloads, 4 * MEBIBYTE,
               ("coordinator.membership._ROSTER",), examples=20),
        Target("learner-roster", InFile("learner-roster", "roster.signed", lambda path: LearnerState(
            path.parent, FEDERATION_KEY).newest_roster()), octets_near([signed]), 4 * MEBIBYTE,
               ("learner.state._ENVELOPE",)),
        Target("learner-query", in_state("asked", "query.signed", lambda state: state.find(asked).query, asked),
               octets_near([query]), 4 * MEBIBYTE, ()),
        Target("opening-key", in_state("opening", "opening.key", lambda state: state.opening(QUERY)),
               octets_near([bytes(32), b"k" * 32]), 32, ("learner.state._SECRET",)),
        Target("provision-roster",
               InFile("provision-roster", "roster.signed",
                      lambda path: provision.signed_roster(path, FEDERATION_KEY)),
               octets_near([signed]), 4 * MEBIBYTE,
               ("radofed.provision._ROSTER",)),
        Target("installed-roster", InFile("installed-roster", "roster.signed", read_installed_roster),
               octets_near([signed]), 4 * MEBIBYTE, ("wire.roster._INSTALLED",)),
        Target("authority-key", InFile("authority", beside_authority("ca.key"), read_authority),
               octets_near([authority["ca.key"]]), MEBIBYTE,
               ("radofed.certificates._KEY",)),
        Target("authority-certificate", InFile("authority", beside_authority("ca.pem"), read_authority),
               octets_near([authority["ca.pem"]]), MEBIBYTE,
               ("radofed.certificates._CERTIFICATE",)),
        Target("policy-to-extend", InFile("policy-to-extend", "policy.toml", read_policy_to_extend),
               texts_near([POLICY_TEXT]), 256 << 10,
               ("parties.members._POLICY",), examples=20),
        Target("parties-to-extend", InFile("parties-to-extend", "parties.toml", read_parties_to_extend),
               texts_near([PARTIES_TEXT]), 256 << 10,
               ("learner.accepted_parties._PARTIES",), examples=20),
        Target("rows-stated",
               InFile("rows-stated", "rows",
                      lambda path: LearnerState(path.parent, FEDERATION_KEY).rows_stated(world.ROSTER)),
               json_octets([{"ann": {"rows": 5, "at_unix_s": 9, "key": "00"}}]), 1 << 20,
               ("learner.state._ROWS_FILE",)),
        Target("rows-loaded", InFile("rows-loaded", "rows.json", lambda path: load_known(path.parent)),
               json_octets([{"counts": {"rows": 9, "usable": 5, "changed": {"age": 3}},
                             "accepted": {"rows": 5, "usable": 5}, "accepted_by": "ann", "accepted_at_unix_s": 1}]),
               16 << 20, ("parties.data.row_guard._KIND",)),
        Target("attempts-signed",
               in_state("attempts-signed", "attempts", lambda state: state.attempts_signed(QUERY) >= 1),
               texts_near(["2\n"]), 8, ("learner.state._NUMBER",)),
        Target("node-status", read_node_status, json_octets([{"party": "ann", "attempts": []}]), MEBIBYTE,
               ("radobase.local_status._STATUS",)),
        Target("node-health", read_health, json_octets([readiness_to_dict([]), readiness_to_dict([Reason.PAUSED])]),
               PROBE_LIMIT_BYTES, ("radobase.watch_server._ANSWER",)),
        Target("query-end", in_state("query-end", "ended", lambda state: state.end(QUERY) is not None),
               json_octets([{"code": "CANCELLED", "detail": "", "at_unix_s": 1}]), 1 << 16,
               ("learner.state._END",)),
        Target("exported-history", InFile("exported-history", "history.json", read_exported_history),
               json_octets([exported_history()]), MEBIBYTE,
               ("radofed.audit._HISTORY",)),
        Target("address-file", InFile("address", address_file, read_address),
               texts_near(["127.0.0.1:7443\n"]), 4096, ("coordinator.status._ADDRESS",)),
        Target("ray-files", InFile("ray", "ray", read_ray_files), texts_near(["10.0.0.1:6379"]), 4096,
               ("radobase.ray_cluster._NOTE", "radobase.ray_cluster._TOKEN",
                "radobase.reading.read_bytes")),
        Target("cluster-message", cluster_jobs._read, octets_near(plain), MEBIBYTE, ("radobase.cluster_jobs._read",)),
    ]  # fmt: skip
