"""Files that nodes of earlier versions wrote, read by this one. README.md says how they were made."""

import csv
import gzip
import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coordinator.config import CoordinatorConfig
from coordinator.live import LiveQuery, restore
from coordinator.store import Store, read_queries, read_roster, read_seen
from dpcore.errors import TotalError
from dpcore.paillier.secret import SecretKey
from learner.config import LearnerConfig
from learner.journal import query_ids_of
from learner.keys import load_key
from learner.model import Model, predict
from learner.opening import open_total
from learner.release import Release
from learner.state import LearnerState
from parties.config import PartyConfig
from parties.database import LedgerBusyError, LedgerDamagedError, LedgerOwner, LedgerSetBackError, PartyDatabase
from parties.history.history import Page
from parties.history.reading import HistoryReader
from parties.history.seeds import seeds_of
from parties.ledger.anchor import head_path
from parties.ledger.charges import ScopeKind, marginal
from parties.ledger.format import CHAINED_VERSION, FORMAT_VERSION
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from radobase.files.databases import kept_file
from radobase.files.schemas import load_schema
from radofed.node_config import role_of
from tests.federation.faults import fill
from wire.binding import OpeningSecret
from wire.cohort import Acceptance, Receipt, open_statement
from wire.envelopes import Envelope, Kind, SigningKey, load_public_key
from wire.query import open_query
from wire.roster import Role, open_roster
from wire.status import Phase
from wire.upload import CHUNK_BYTES

HERE = Path(__file__).parent
VERSIONS = ("0.1", "0.2", "0.2.0", "0.2.1")
CURVES = HERE / "0.2.0"
"""Of a run of `additive`: its queries have feature maps."""
# Formats of the ledger, with the file of each.
LEDGERS = {1: "0.1/ledger.sqlite.gz", 2: "0.2/ledger.format-2.sqlite.gz", 3: "0.2/ledger.sqlite.gz"}
OWNER = LedgerOwner("clinics", "ada", "data.csv")


def unpacked(name: str, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.decompress((HERE / name).read_bytes()))
    to.chmod(0o600)
    return to


@pytest.fixture(params=VERSIONS)
def recorded(request, tmp_path) -> Path:
    """A copy of a version's files. Version control does not keep the modes of keys."""
    copy = tmp_path / request.param
    shutil.copytree(HERE / request.param, copy)
    for key in [*copy.rglob("*.jwk"), *copy.rglob("opening.key")]:
        key.chmod(0o600)
    return copy


def test_there_is_little_of_it():
    assert sum(file.stat().st_size for file in HERE.rglob("*") if "__pycache__" not in file.parts) < 700_000


def test_configurations_are_read(recorded):
    party = PartyConfig.load(recorded / "party.toml")
    assert (party.federation, party.name, party.source) == ("clinics", "ada", "data.csv")
    assert CoordinatorConfig.load(recorded / "coordinator.toml").federation == "clinics"
    assert LearnerConfig.load(recorded / "learner.toml").name == "lab"
    assert [role_of(recorded / f"{role.value}.toml") for role in Role] == list(Role)
    policy = Policy.load(recorded / "policy.toml")
    assert "plain" in policy.designs
    assert policy.limits.of_ledger.lifetime.epsilon == (400 if recorded.name == "0.2.0" else 100)
    assert [feature.name for feature in load_schema(recorded / "schema.toml").features] == ["age", "smoker"]


def test_messages_are_verified(recorded):
    roster = open_roster(
        Envelope.from_bytes((recorded / "roster.signed").read_bytes()), load_public_key(recorded / "federation.pub")
    )
    assert [member.name for member in roster.parties] == ["ada", "bo", "cy"]
    seen = set()
    unpacked_store(recorded).close()
    with closing(sqlite3.connect(recorded / "coordinator.sqlite")) as file:
        for kind, content in file.execute("SELECT kind, envelope FROM statements"):
            seen.add(kind)
            if kind == Kind.ACCEPTANCE.value:
                open_statement(Acceptance, Envelope.from_bytes(content), roster, older=True)
            elif kind == Kind.RECEIPT.value:
                open_statement(Receipt, Envelope.from_bytes(content), roster, older=True)
    assert {Kind.ACCEPTANCE.value, Kind.RECEIPT.value} <= seen
    for path in recorded.glob("queries/*/query.signed"):
        envelope = Envelope.from_bytes(path.read_bytes())
        opened = open_query(envelope, roster, now_unix_s=roster.issued_at_unix_s + 60)
        assert opened.query_id.hex() == path.parent.name


def unpacked_store(recorded: Path) -> Store:
    return Store(unpacked(f"{recorded.name}/coordinator.sqlite.gz", recorded / "coordinator.sqlite"), "clinics")


def test_a_learners_state_and_releases_are_read(recorded):
    key = load_public_key(recorded / "federation.pub")
    state = LearnerState(recorded, key)
    assert state.newest_version() == 1
    ids = state.query_ids()
    assert len(ids) >= 2
    for query_id in ids:
        assert state.find(query_id).query_id == query_id
        assert state.is_sent(query_id)
    releases = [Release.load(directory) for directory in sorted((recorded / "releases").iterdir())]
    for release in releases:
        release.verify(key)
        assert release.party_rows == {"ada": 60, "bo": 70, "cy": 80}
        assert release.query_id in ids
    rados = [release for release in releases if release.query.kind.array == "rados"]
    assert [release.rados.shape for release in rados[:1]] == ([] if recorded.name == "0.2.0" else [(40, 3)])


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.2.1"])
def test_models_predict(version):
    for name in ("mean-variance", "radoboost"):
        model = Model.load(HERE / version / f"{name}.json")
        found = predict(model, HERE / version / "data.csv")
        assert 0 < np.mean(np.array(found.labels) > 0) < 1
        assert model.learner == name


def test_a_model_of_curves_predicts_as_it_did():
    found = predict(Model.load(CURVES / "curves.json"), CURVES / "data.csv")
    with (CURVES / "predicted.csv").open(newline="") as file:
        recorded = list(csv.DictReader(file))
    assert found.labels.tolist() == [int(row["label"]) for row in recorded]
    assert found.scores == pytest.approx([float(row["score"]) for row in recorded], rel=1e-12)


def test_a_model_of_curves_is_exported_as_it_was():
    recorded = json.loads((CURVES / "exported.json").read_text())
    exported = Model.load(CURVES / "curves.json").to_original_units()
    # The rest is in words, which may improve, or was added.
    for part in ("format", "format_version", "schema_digest", "intercept", "features", "terms", "privacy"):
        assert exported[part] == recorded[part], part
    assert recorded["label"].items() <= exported["label"].items()


def test_queries_with_maps_are_read_and_their_answers_too():
    roster = open_roster(
        Envelope.from_bytes((CURVES / "roster.signed").read_bytes()), load_public_key(CURVES / "federation.pub")
    )
    ids = query_ids_of(CURVES / "curves.json.journal")
    queries = []
    for query_id in ids:
        envelope = Envelope.from_bytes((CURVES / "queries" / query_id.hex() / "query.signed").read_bytes())
        queries.append(open_query(envelope, roster, now_unix_s=roster.issued_at_unix_s + 60).query)
    assert [query.kind.name for query in queries] == ["statistic", "moments", *["gradient"] * 6]
    assert [query.feature_map is not None for query in queries] == [False, *[True] * 7]
    releases = {release.query_id: release for release in map(Release.load, (CURVES / "releases").iterdir())}
    assert sorted(releases[query_id].query.kind.name for query_id in releases.keys() & set(ids)) == [
        "gradient", "moments", "statistic",
    ]  # fmt: skip


def test_the_journal_of_a_run_names_its_queries():
    assert [query_id.hex()[:16] for query_id in query_ids_of(HERE / "0.2/newton.json.journal")] == [
        "c27da41d9750885c", "a115162441112274",
    ]  # fmt: skip


def live_total(version: str, to: Path) -> tuple[LiveQuery, list[bytes], SecretKey]:
    """The query of a recorded total, the total's chunks, and the learner's key."""
    shutil.copy(HERE / version / "paillier.jwk", to)
    (to / "paillier.jwk").chmod(0o600)
    store = Store(unpacked(f"{version}/coordinator.sqlite.gz", to / "coordinator.sqlite"), "clinics")
    lives = {each.query_id: restore(each, now=0, now_unix_s=each.submitted_at_unix_s) for each in store.load()}
    store.close()
    ((query_id, content),) = ((path.name, path.read_bytes()) for path in (HERE / version / "totals").iterdir())
    assert len(content) <= CHUNK_BYTES
    return lives[bytes.fromhex(query_id)], [content], load_key(to / "paillier.jwk").secret


def test_a_total_of_version_0_1_opens_with_its_key(tmp_path):
    """The learner's key, the query, the statements of the cohort and the ciphertexts, all of version 0.1."""
    recorded = HERE / "0.1"
    live, chunks, secret = live_total("0.1", tmp_path)
    release = Release.load(recorded / "releases" / live.query_id.hex()[:16])
    roster = open_roster(release.roster_envelope, load_public_key(recorded / "federation.pub"))
    opened = open_total(live.total, chunks, live.opened, roster, secret)
    assert np.array_equal(opened.values.reshape(release.integers.shape), release.integers)


def test_a_total_with_a_commitment_opens_with_its_opening_secret(tmp_path):
    """Version 0.2.1: the query commits to the seed of the tag, and the learner had not fetched this total."""
    recorded = HERE / "0.2.1"
    live, chunks, secret = live_total("0.2.1", tmp_path)
    (directory,) = recorded.glob(f"queries/{live.query_id.hex()}")
    roster = open_roster(
        Envelope.from_bytes((directory / "roster.signed").read_bytes()), load_public_key(recorded / "federation.pub")
    )
    opening = OpeningSecret((directory / "opening.key").read_bytes())
    assert live.opened.query.binding.commitment
    opened = open_total(live.total, chunks, live.opened, roster, secret, opening=opening)
    assert sum(each.rows for each in opened.acceptances) == 210
    chunks = [bytes(reversed(chunks[0]))]
    with pytest.raises(TotalError):
        open_total(live.total, chunks, live.opened, roster, secret, opening=opening)


def test_a_coordinator_continues_from_its_store(recorded):
    version = recorded.name
    store = unpacked_store(recorded)
    queries = [restore(each, now=0, now_unix_s=each.submitted_at_unix_s) for each in store.load()]
    store.close()
    path = recorded / "coordinator.sqlite"
    assert (
        sum(live.round.phase is Phase.COMPLETE for live in queries)
        == {"0.1": 1, "0.2": 4, "0.2.0": 9, "0.2.1": 11}[version]
    )
    assert sum(live.is_open for live in queries) == (version != "0.2.0")
    assert len(read_queries(path)) == len(queries)
    assert read_roster(path) is not None
    assert (set(read_seen(path)) == set()) is (version == "0.1")
    kept = kept_file(path, 1)
    if version in ("0.2.0", "0.2.1"):
        assert not kept.exists()
        return
    # Tables were added to the older files, and the copy has none of them.
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    before = kept.read_bytes()
    with closing(sqlite3.connect(kept)) as file:
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert names.isdisjoint({"asked"} | ({"features", "heads", "seen"} if version == "0.1" else set()))
        (count,) = file.execute("SELECT count(*) FROM queries").fetchone()
    assert count == len(queries)
    Store(path, "clinics").close()
    assert kept.read_bytes() == before


def test_a_store_of_another_federation_is_left_alone(tmp_path):
    path = unpacked("0.1/coordinator.sqlite.gz", tmp_path / "coordinator.sqlite")
    with pytest.raises(Exception, match="belongs to federation 'clinics'"):
        Store(path, "other")
    assert not kept_file(path, 1).exists()


def ledger_of(path: Path, *, create: bool = True) -> Ledger:
    return Ledger.open(path, OWNER, Policy.load(HERE / "0.2/policy.toml").limits.of_ledger, create=create)


def mask_keys(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as file:
        return [key for (key,) in file.execute("SELECT mask_key FROM attempts WHERE mask_key IS NOT NULL")]


def rows_of_events(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(
            "SELECT query_id, attempt, state, cohort_digest, spool_digest FROM events ORDER BY 1"
        ).fetchall()


@pytest.mark.parametrize("version", LEDGERS)
def test_a_ledger_keeps_every_charge_and_its_copy_is_kept_once(tmp_path, version):
    path = unpacked(LEDGERS[version], tmp_path / "ledger.sqlite")
    if version >= CHAINED_VERSION:
        shutil.copy(HERE / "0.2/ledger.sqlite.head", head_path(path))
    keys, events = mask_keys(path), rows_of_events(path)
    assert len(keys) == 1
    ledger = ledger_of(path)
    charged = {1: 1, 2: 4, 3: 4}[version]
    state = ledger.state(now_unix_s=0)
    assert (state.charged, state.reserved, ledger.verify()) == (charged, 1, [])
    ledger.database.close()
    assert rows_of_events(path) == events
    # The attempt that was accepted goes on.
    assert mask_keys(path) == keys
    kept = kept_file(path, version)
    assert [file.name for file in tmp_path.glob("*.format-*")] == ([kept.name] if version < FORMAT_VERSION else [])
    if version == FORMAT_VERSION:
        return
    copy = kept.read_bytes()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert keys[0] not in copy
    assert rows_of_events(kept) == events
    with closing(sqlite3.connect(kept)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (version,)
    # Once: neither another start nor a reader makes another.
    ledger_of(path).database.close()
    ledger_of(path, create=False).database.close()
    assert kept.read_bytes() == copy


@pytest.mark.parametrize(("version", "cause"), [(1, "newer format"), (2, "newer format"), (3, "it is a copy")])
def test_a_kept_copy_in_the_ledgers_place_is_noticed(tmp_path, version, cause):
    path = unpacked(LEDGERS[version], tmp_path / "ledger.sqlite")
    if version >= CHAINED_VERSION:
        shutil.copy(HERE / "0.2/ledger.sqlite.head", head_path(path))
    ledger_of(path).database.close()
    kept_file(path, version).replace(path)
    with pytest.raises(LedgerSetBackError, match=cause):
        ledger_of(path)
    # Also if its head is lost.
    head_path(path).unlink()
    with pytest.raises(LedgerSetBackError, match="it is a copy"):
        ledger_of(path)


def test_the_figure_of_version_0_1_is_counted(tmp_path):
    path = unpacked(LEDGERS[1], tmp_path / "ledger.sqlite")
    with closing(sqlite3.connect(path)) as file:
        ((epsilon,),) = file.execute("SELECT epsilon FROM events WHERE state = 'charged'")
    ledger = ledger_of(path)
    assert ledger.spent(marginal("smoker")).epsilon == Fraction(epsilon)
    assert marginal("smoker").kind is ScopeKind.MARGINAL
    ledger.database.close()


def test_reading_an_older_ledger_keeps_no_copy(tmp_path):
    path = unpacked(LEDGERS[1], tmp_path / "ledger.sqlite")
    before = path.read_bytes()
    ledger = ledger_of(path, create=False)
    assert ledger.state(now_unix_s=0).charged == 1
    ledger.database.close()
    assert [file.name for file in tmp_path.iterdir() if ".format-" in file.name] == []
    assert path.read_bytes() == before


def test_a_ledger_is_not_updated_if_no_copy_can_be_kept(small_disk):
    path = unpacked(LEDGERS[2], small_disk / "ledger.sqlite")
    fill(small_disk)
    # SQLite needs a page or two to open the file.
    filling = small_disk / "filling-65536"
    os.truncate(filling, filling.stat().st_size - 8192)
    with pytest.raises(LedgerBusyError, match=r"no copy can be kept before its update from format 2 \(No space"):
        ledger_of(path)
    assert [file.name for file in small_disk.iterdir() if "format" in file.name] == []
    filling.unlink()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
    ledger_of(path).database.close()
    assert kept_file(path, 2).exists()


def test_a_damaged_ledger_is_not_kept(tmp_path):
    path = unpacked(LEDGERS[1], tmp_path / "ledger.sqlite")
    path.write_bytes(path.read_bytes()[:20480])
    with pytest.raises(LedgerDamagedError):
        PartyDatabase(path, OWNER)
    assert not kept_file(path, 1).exists()


@pytest.mark.parametrize(
    ("version", "kinds", "charged"),
    [
        ("0.2", ["dp-feat", "gradient", "moments", "moments", "plain", "statistic"], 4),
        ("0.2.0", [*["gradient"] * 6, "moments", "statistic", "statistic"], 9),
        ("0.2.1", ["gaussian", *["gradient"] * 7, *["moments"] * 3, "statistic"], 11),
    ],
)
def test_a_history_is_read(tmp_path, version, kinds, charged):
    shutil.copytree(HERE / version, tmp_path / version)
    state = tmp_path / version / "state"
    unpacked(f"{version}/ledger.sqlite.gz", state / "ledger.sqlite")
    unpacked(f"{version}/history.sqlite.gz", state / "history.sqlite")
    with HistoryReader(PartyConfig.load(tmp_path / version / "party.toml")) as reader:
        found = reader.page(Page())
    assert sorted(each.shown.kind for each in found) == kinds
    assert sum(attempt.is_charged for each in found for attempt in each.attempts) == charged


@pytest.mark.parametrize(("version", "charged", "checked"), [("0.2", 4, 0), ("0.2.0", 9, 0), ("0.2.1", 0, 11)])
def test_seeds_of_past_queries_are_shown(tmp_path, version, charged, checked):
    """Their digits are those of another key here: the recorded party's own is not kept."""
    shutil.copytree(HERE / version, tmp_path / version)
    place = tmp_path / version
    unpacked(f"{version}/ledger.sqlite.gz", place / "state/ledger.sqlite")
    unpacked(f"{version}/history.sqlite.gz", place / "state/history.sqlite")
    config = PartyConfig.load(place / "party.toml")
    SigningKey.generate("clinics").save(config.signing_key)
    found = seeds_of(config)
    assert (len(found.unchecked), found.checked) == (charged, checked)
    assert all(len(each.digits) == 35 for each in found.unchecked)
    assert len({each.digits for each in found.unchecked}) == charged
