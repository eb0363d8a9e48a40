"""Files that nodes of earlier versions wrote, read by this one. README.md says how they were made."""

import gzip
import os
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coordinator.config import CoordinatorConfig
from coordinator.membership import WitnessExchange
from coordinator.open_queries import restore
from coordinator.store import Store, read_queries, read_roster
from dpcore.errors import ConfigurationError, TotalError
from dpcore.queries.rados import RADOS_LEAK
from learner.config import LearnerConfig
from learner.decryption import load_key, open_total
from learner.journal import query_ids_of
from learner.model import Model
from learner.predictions import predict
from learner.release import Release, ReleaseError
from learner.state import LearnerState
from parties.config import PartyConfig
from parties.database import LedgerBusyError, LedgerDamagedError, LedgerOwner, LedgerSetBackError, PartyDatabase
from parties.history.history import HistoryPage
from parties.history.reading import HistoryReader
from parties.ledger.charges import CHAINED_VERSION, FORMAT_VERSION, ScopeKind, marginal
from parties.ledger.head import LocalHead, head_path
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from radobase.schema_files import load_schema
from radobase.version import program_version
from radobase.writing import kept_file
from radofed.node_config import role_of
from tests.federation.faults import fill
from wire.binding import OpeningSecret
from wire.envelopes import Envelope, MessageType, load_public_key
from wire.errors import Code, WireError
from wire.features import check_known
from wire.query import open_query
from wire.roster import Role, open_roster
from wire.statements import CHUNK_BYTES, Acceptance, Receipt, open_statement
from wire.status import Phase

HERE = Path(__file__).parent
OLDER = HERE / "older"
VERSIONS = ("0.3.0",)
# Ledgers, each with its format, how many charges it has, and how many reservations.
LEDGERS = {"0.1": (1, 1, 1), "0.2-format-2": (2, 4, 1), "0.2": (3, 4, 1), "0.2.0": (3, 9, 0), "0.2.1": (4, 11, 1)}
OWNER = LedgerOwner("clinics", "ada", "data.csv")


def unpacked(file: Path, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.decompress(file.read_bytes()))
    to.chmod(0o600)
    return to


def signed(name: str) -> Envelope:
    return Envelope.from_bytes((OLDER / name).read_bytes())


def test_there_is_little_of_it():
    assert sum(file.stat().st_size for file in HERE.rglob("*") if "__pycache__" not in file.parts) < 700_000


# From 0.3.0 on, a later version reads what an earlier one wrote.


@pytest.fixture(params=VERSIONS)
def recorded(request, tmp_path) -> Path:
    """A copy of a version's files. Version control does not keep the modes of keys."""
    copy = tmp_path / request.param
    shutil.copytree(HERE / request.param, copy)
    for key in [*copy.rglob("*.jwk"), *copy.rglob("opening.key")]:
        key.chmod(0o600)
    unpacked(copy / "coordinator.sqlite.gz", copy / "coordinator.sqlite")
    for name in ("ledger.sqlite", "history.sqlite"):
        unpacked(copy / f"{name}.gz", copy / "state" / name)
    shutil.copy(copy / "ledger.sqlite.head", head_path(copy / "state/ledger.sqlite"))
    return copy


def test_every_version_that_promises_to_be_read_is_recorded():
    assert {path.name for path in HERE.iterdir() if re.fullmatch(r"[0-9.]+", path.name)} == set(VERSIONS)
    assert program_version() in VERSIONS


def test_configurations_are_read(recorded):
    party = PartyConfig.load(recorded / "party.toml")
    assert (party.federation, party.name, party.source) == ("clinics", "ada", "data.csv")
    assert CoordinatorConfig.load(recorded / "coordinator.toml").federation == "clinics"
    assert LearnerConfig.load(recorded / "learner.toml").name == "lab"
    assert [role_of(recorded / f"{role.value}.toml") for role in Role] == list(Role)
    policy = Policy.load(recorded / "policy.toml")
    assert "plain" in policy.designs
    assert policy.limits.of_ledger.lifetime.epsilon == 100
    assert [feature.name for feature in load_schema(recorded / "schema.toml").features] == ["age", "smoker"]


def test_messages_are_verified(recorded):
    roster = open_roster(
        Envelope.from_bytes((recorded / "roster.signed").read_bytes()), load_public_key(recorded / "federation.pub")
    )
    assert [member.name for member in roster.parties] == ["ada", "bo", "cy"]
    seen = set()
    with closing(sqlite3.connect(recorded / "coordinator.sqlite")) as file:
        for kind, content in file.execute("SELECT kind, envelope FROM statements"):
            seen.add(kind)
            if kind == MessageType.ACCEPTANCE.value:
                open_statement(Acceptance, Envelope.from_bytes(content), roster)
            elif kind == MessageType.RECEIPT.value:
                open_statement(Receipt, Envelope.from_bytes(content), roster)
    assert {MessageType.ACCEPTANCE.value, MessageType.RECEIPT.value} <= seen
    for path in recorded.glob("queries/*/query.signed"):
        envelope = Envelope.from_bytes(path.read_bytes())
        opened = open_query(envelope, roster, now_unix_s=roster.issued_at_unix_s + 60)
        check_known(opened.query.features)
        assert opened.query_id.hex() == path.parent.name


def test_a_learners_state_and_releases_are_read(recorded):
    key = load_public_key(recorded / "federation.pub")
    state = LearnerState(recorded, key)
    assert state.newest_version() == 1
    ids = state.query_ids()
    assert len(ids) == 5
    for query_id in ids:
        assert state.find(query_id).query_id == query_id
        assert state.is_sent(query_id)
    releases = {each.query.kind.array: each for each in map(Release.load, (recorded / "releases").iterdir())}
    for release in releases.values():
        release.verify(key)
        assert release.party_rows == {"ada": 60, "bo": 70, "cy": 80}
        assert release.query_id in ids
    assert set(releases) == {"rados", "moments", "gradient"}
    assert releases["rados"].rados.shape == (40, 3)
    # A statement keeps the sentences of the version that made it.
    (leak,) = (text for text in releases["rados"].statement.warnings if "independent component" in text)
    assert leak != RADOS_LEAK
    assert leak.startswith("Rados are not protected as a whole")


def test_models_predict(recorded):
    for name in ("radoboost", "newton"):
        model = Model.load(recorded / f"{name}.json")
        found = predict(model, recorded / "data.csv")
        assert 0 < np.mean(np.array(found.labels) > 0) < 1
        assert model.estimator == name
    assert len(query_ids_of(recorded / "newton.json.journal")) == 2


def test_a_total_opens_with_its_opening_secret(recorded):
    store = Store(recorded / "coordinator.sqlite", "clinics")
    lives = {each.query_id: restore(each, now=0, now_unix_s=each.submitted_at_unix_s) for each in store.load()}
    store.close()
    ((query_id, content),) = ((path.name, path.read_bytes()) for path in (recorded / "totals").iterdir())
    assert len(content) <= CHUNK_BYTES
    live, secret = lives[bytes.fromhex(query_id)], load_key(recorded / "paillier.jwk").secret
    directory = recorded / "queries" / query_id
    roster = open_roster(
        Envelope.from_bytes((directory / "roster.signed").read_bytes()), load_public_key(recorded / "federation.pub")
    )
    opening = OpeningSecret((directory / "opening.key").read_bytes())
    opened = open_total(live.total, [content], live.opened, roster, secret, opening=opening)
    assert sum(each.rows for each in opened.acceptances) == 210
    with pytest.raises(TotalError):
        open_total(live.total, [bytes(reversed(content))], live.opened, roster, secret, opening=opening)


def test_a_coordinator_continues_from_its_store(recorded):
    path = recorded / "coordinator.sqlite"
    store = Store(path, "clinics")
    queries = [restore(each, now=0, now_unix_s=each.submitted_at_unix_s) for each in store.load()]
    store.close()
    assert sum(live.round.phase is Phase.COMPLETE for live in queries) == 4
    assert sum(live.is_open for live in queries) == 1
    assert len(read_queries(path)) == len(queries)
    assert read_roster(path) is not None


def test_a_ledger_and_a_history_are_read(recorded):
    config = PartyConfig.load(recorded / "party.toml")
    with HistoryReader(config) as reader:
        found = list(reader.page(HistoryPage()))
        asked = [reader.find(each.shown.query_id.hex()).asked for each in found]
    assert sorted(each.shown.kind for each in found) == ["gradient", "moments", "moments", "moments", "plain"]
    assert sum(attempt.is_charged for each in found for attempt in each.attempts) == 4
    ledger = ledger_of(recorded / "state/ledger.sqlite")
    assert (ledger.state(now_unix_s=0).charged, ledger.state(now_unix_s=0).reserved, ledger.verify()) == (4, 1, [])
    ledger.database.close()
    assert None not in asked


# A ledger of any version opens.


def older_ledger(version: str, to: Path) -> Path:
    path = unpacked(OLDER / f"ledger-{version}.sqlite.gz", to / "ledger.sqlite")
    if LEDGERS[version][0] >= CHAINED_VERSION:
        shutil.copy(OLDER / f"ledger-{version}.sqlite.head", head_path(path))
    return path


def ledger_of(path: Path, *, create: bool = True) -> Ledger:
    return Ledger.open(path, OWNER, Policy.load(HERE / "0.3.0/policy.toml").limits.of_ledger, create=create)


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
    format_version, charged, reserved = LEDGERS[version]
    path = older_ledger(version, tmp_path)
    keys, events = mask_keys(path), rows_of_events(path)
    assert len(keys) == reserved
    ledger = ledger_of(path)
    state = ledger.state(now_unix_s=0)
    assert (state.charged, state.reserved, ledger.verify()) == (charged, reserved, [])
    ledger.database.close()
    assert rows_of_events(path) == events
    # The attempt that was accepted goes on.
    assert mask_keys(path) == keys
    kept = kept_file(path, format_version)
    assert format_version < FORMAT_VERSION
    assert [file.name for file in tmp_path.glob("*.format-*")] == [kept.name]
    copy = kept.read_bytes()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not any(key in copy for key in keys)
    assert rows_of_events(kept) == events
    with closing(sqlite3.connect(kept)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (format_version,)
    # Once: neither another start nor a reader makes another.
    ledger_of(path).database.close()
    ledger_of(path, create=False).database.close()
    assert kept.read_bytes() == copy


@pytest.mark.parametrize(
    ("version", "cause"), [("0.1", "newer format"), ("0.2-format-2", "newer format"), ("0.2.1", "it is a copy")]
)
def test_a_kept_copy_in_the_ledgers_place_is_noticed(tmp_path, version, cause):
    path = older_ledger(version, tmp_path)
    ledger_of(path).database.close()
    kept_file(path, LEDGERS[version][0]).replace(path)
    with pytest.raises(LedgerSetBackError, match=cause):
        ledger_of(path)
    # Also if its head is lost.
    head_path(path).unlink()
    with pytest.raises(LedgerSetBackError, match="it is a copy"):
        ledger_of(path)


def test_the_figure_of_version_0_1_is_counted(tmp_path):
    path = older_ledger("0.1", tmp_path)
    with closing(sqlite3.connect(path)) as file:
        ((epsilon,),) = file.execute("SELECT epsilon FROM events WHERE state = 'charged'")
    ledger = ledger_of(path)
    assert ledger.spent(marginal("smoker")).epsilon == Fraction(epsilon)
    assert marginal("smoker").kind is ScopeKind.MARGINAL
    ledger.database.close()


def test_reading_an_older_ledger_keeps_no_copy(tmp_path):
    path = older_ledger("0.1", tmp_path)
    before = path.read_bytes()
    ledger = ledger_of(path, create=False)
    assert ledger.state(now_unix_s=0).charged == 1
    ledger.database.close()
    assert [file.name for file in tmp_path.iterdir() if ".format-" in file.name] == []
    assert path.read_bytes() == before


def test_a_ledger_is_not_updated_if_no_copy_can_be_kept(small_disk):
    path = older_ledger("0.2-format-2", small_disk)
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
    path = older_ledger("0.1", tmp_path)
    path.write_bytes(path.read_bytes()[:20480])
    with pytest.raises(LedgerDamagedError):
        PartyDatabase(path, OWNER)
    assert not kept_file(path, 1).exists()


def test_a_ledger_and_its_head_are_of_one_moment(tmp_path, monkeypatch):
    """Another process may update it, write the head and say so in the ledger: it would look set back."""
    path = older_ledger("0.2-format-2", tmp_path)
    read, locked = LocalHead.read, []

    def reading(head: Path) -> LocalHead | None:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                locked.append(str(error))
        return read(head)

    monkeypatch.setattr(LocalHead, "read", reading)
    ledger = ledger_of(path)
    locked.clear()
    assert (ledger.database.set_back(), locked) == ("", ["database is locked"])
    ledger.database.close()


def test_a_ledger_whose_index_lacks_an_event_is_not_updated(tmp_path):
    path = older_ledger("0.2-format-2", tmp_path)
    content, query_id = path.read_bytes(), rows_of_events(path)[0][0]
    # The first two places are the index of events and the table, in this file.
    place = content.index(query_id, content.index(query_id) + 1)
    path.write_bytes(content[:place] + bytes(1) + content[place + 1 :])
    with pytest.raises(LedgerDamagedError, match="index of events lacks query"):
        ledger_of(path)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (2,)


# What else versions before 0.3.0 wrote opens, or is refused with a sentence.


def test_older_configurations_open():
    party = PartyConfig.load(OLDER / "party-0.2.0.toml")
    assert (party.federation, party.name, party.source) == ("clinics", "ada", "data.csv")
    assert CoordinatorConfig.load(OLDER / "coordinator-0.2.0.toml").federation == "clinics"
    assert LearnerConfig.load(OLDER / "learner-0.2.0.toml").name == "lab"
    assert Policy.load(OLDER / "policy-0.2.0.toml").limits.of_ledger.lifetime.epsilon == 400


def test_an_older_history_opens_and_says_what_was_asked(tmp_path):
    for name in ("party", "policy"):
        shutil.copy(OLDER / f"{name}-0.2.0.toml", tmp_path / f"{name}.toml")
    unpacked(OLDER / "ledger-0.2.0.sqlite.gz", tmp_path / "state/ledger.sqlite")
    unpacked(OLDER / "history-0.2.0.sqlite.gz", tmp_path / "state/history.sqlite")
    with HistoryReader(PartyConfig.load(tmp_path / "party.toml")) as reader:
        found = reader.page(HistoryPage())
        one = reader.find(found[0].shown.query_id.hex())
    assert sorted(each.shown.kind for each in found) == [*["gradient"] * 6, "moments", "statistic", "statistic"]
    assert sum(attempt.is_charged for each in found for attempt in each.attempts) == 9
    # The signed query is of a version that this one does not read. What it said in words is kept.
    assert one.asked is None
    assert one.words
    assert one.signed == ()


def test_an_older_model_opens():
    model = Model.load(OLDER / "model-0.2.json")
    assert 0 < np.mean(np.array(predict(model, OLDER / "data-0.2.csv").labels) > 0) < 1


def test_a_release_of_0_2_1_opens():
    release = Release.load(OLDER / "release-0.2.1")
    release.verify(load_public_key(OLDER / "federation-0.2.1.pub"))
    assert release.party_rows == {"ada": 60, "bo": 70, "cy": 80}


def test_a_release_of_an_older_version_is_refused_with_a_sentence():
    with pytest.raises(ReleaseError, match=r"A version before 0\.2\.1 made it"):
        Release.load(OLDER / "release-0.2")


def test_an_older_roster_is_refused_with_a_sentence():
    with pytest.raises(WireError, match=r"before version 0\.2\.1") as refused:
        open_roster(signed("roster-0.2.0.signed"), load_public_key(OLDER / "federation-0.2.0.pub"))
    assert refused.value.code is Code.SIGNATURE_INVALID


def test_an_older_store_is_refused_with_a_sentence(tmp_path):
    path = unpacked(OLDER / "coordinator-0.2.1.sqlite.gz", tmp_path / "coordinator.sqlite")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"another version of radofed wrote it .* move the file away"):
        Store(path, "clinics")
    assert path.read_bytes() == before


# Messages of 0.2.1, as its nodes signed them.


def test_an_older_query_is_refused_with_a_sentence():
    roster = open_roster(signed("roster-0.2.1.signed"), load_public_key(OLDER / "federation-0.2.1.pub"))
    opened = open_query(signed("query-0.2.1.signed"), roster, now_unix_s=roster.issued_at_unix_s + 60)
    with pytest.raises(WireError, match=r"The learner's node is older than 0\.3\.0: upgrade it to 0\.3\.0") as refused:
        check_known(opened.query.features)
    assert refused.value.code is Code.FEATURE_MISSING


def test_an_older_party_is_refused_with_a_sentence(tmp_path):
    """Its statement is kept, so that learners see why they cannot ask it."""
    roster = open_roster(signed("roster-0.2.1.signed"), load_public_key(OLDER / "federation-0.2.1.pub"))
    path = unpacked(OLDER / "coordinator-0.2.1.sqlite.gz", tmp_path / "older.sqlite")
    with closing(sqlite3.connect(path)) as file:
        ((content,),) = file.execute("SELECT envelope FROM features WHERE party = 'ada'")
    store = Store(tmp_path / "coordinator.sqlite", "clinics")
    exchange = WitnessExchange(store, lambda: roster, lambda: 0.0)
    with pytest.raises(WireError, match=r"ada's node has version 0\.2\.1: upgrade it to 0\.3\.0") as refused:
        exchange.state_features(Envelope.from_bytes(content), roster.find("ada", Role.PARTY))
    assert refused.value.code is Code.FEATURE_MISSING
    assert len(exchange.features()) == 1
    store.close()
