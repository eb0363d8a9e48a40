"""A federation of four processes, one of which asks people: from a query that waits to its history."""

import csv
import io
import json
import shutil
import time
from contextlib import contextmanager, redirect_stdout, suppress
from fractions import Fraction
from types import SimpleNamespace

import pytest
import yaml

from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.requests import MomentsRequest
from learner.session import QueryEndedError, Session
from parties.config import PartyConfig
from parties.history.database import FILE, HistoryDatabase
from parties.history.history import History
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until

ROWS = {"a": 300, "b": 280, "c": 320, "d": 250}
ALLOWING = PolicyChoices(designs=("statistic", "moments"), epsilon="20", delta="1e-4")
PURPOSE = 'Study 17: "readmissions"'
PHASES = {"answer_within_s": 300, "prepare_within_s": 300, "upload_within_s": 300}


@contextmanager
def asking(root, *, rules: str = "everything = true\n", settings: str = ""):
    """Four parties, a coordinator and a learner with its key. Party a asks people.

    rules: of a's `[approval]`. settings: further lines of a's configuration.
    """
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as federation:
        with (federation.directory("a") / "policy.toml").open("a") as policy:
            policy.write(f"\n[approval]\n{rules}")
        config = federation.member("a").config
        config.write_text(settings + config.read_text())
        federation.serve("--bits", "2048")
        yield federation


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with asking(tmp_path_factory.mktemp("approval")) as federation:
        yield federation


@pytest.fixture
def learner(federation):
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        yield session


def at(federation, name: str) -> tuple[str, str]:
    return "--config", str(federation.member(name).config)


def ask(session: Session) -> bytes:
    """Ask all four parties for moments, and return the query's id."""
    request = MomentsRequest(
        schema=Schema.from_toml(SCHEMA), epsilon=Fraction(1), cohort_min=4, purpose=PURPOSE, **PHASES
    )
    return session.ask(session.plan(request))


def pending(federation) -> list[dict]:
    return rado("party", "pending", *at(federation, "a"))["data"]["pending"]


def waiting(federation, query_id: bytes) -> dict:
    def found():
        return next((each for each in pending(federation) if each["query_id"] == query_id.hex()), None)

    return wait_until(found, what="the query at a")


def ledger(federation, name: str = "a") -> dict:
    return rado("ledger", "show", *at(federation, name))["data"]


def in_history(federation, query_id: bytes, name: str = "a") -> dict:
    return rado("ledger", "history", query_id.hex()[:12], *at(federation, name))["data"]


def test_from_pending_to_history(federation, learner):
    before = ledger(federation)
    query_id = ask(learner)
    shown = waiting(federation, query_id)
    assert (shown["learner"], shown["kind"]) == ("learner", "moments")
    assert shown["reasons"] == ["every query needs approval"]
    assert shown["purpose"] == PURPOSE

    # The others have answered meanwhile, and the learner knows who is waited for.
    def known() -> dict[str, str]:
        return {party.party: party.state.word for party in learner.status(query_id).parties}

    wait_until(lambda: known()["a"] == "pending", what="the coordinator to know that a party waits")
    states = known()
    del states["a"]
    # No row is read to explain it.
    rows = federation.directory("a") / "data.csv"
    rows.rename(rows.with_suffix(".away"))
    explained = rado("party", "explain", query_id.hex()[:8], *at(federation, "a"))["data"]
    rows.with_suffix(".away").rename(rows)
    assert explained["others"] == ["b", "c", "d"]
    assert (explained["rows"], explained["refusal"]) == (300, "")
    record = explained["costs"][0]
    assert record["scope"] == "whole records"
    assert 0 < record["cost"] <= 1
    assert record["remaining"] < 20
    assert explained["more_like_it"] > 20
    most = explained["most_costs"][0]
    assert (explained["attempts"], explained["asked"]["purpose"]) == (3, PURPOSE)
    assert record["cost"] < most["cost"] < 3 * record["cost"]
    assert shown["costs"]["most_costs"] == explained["most_costs"]
    # Nothing was charged, reserved or computed while people look at it.
    assert ledger(federation) == before
    assert not (federation.directory("a") / "state" / "spool" / query_id.hex()).exists()

    decided = rado(
        "party", "approve", query_id.hex()[:8], *at(federation, "a"), "--name", "Ann", "--reason", "as agreed"
    )
    assert decided["data"]["verdict"] == "approved"
    release = learner.watch(query_id, timeout_s=HANG_S)
    assert release.phase.word == "complete"

    # What follows the charge is written a moment later.
    wait_until(lambda: in_history(federation, query_id)["attempts"][0]["outcome"] == "charged and sent", what="the end")
    found = in_history(federation, query_id)
    assert found["decision"].startswith("accepted, approved by Ann (")
    assert found["people"][0]["reason"] == "as agreed"
    assert found["purpose"] == PURPOSE
    assert json.dumps(PURPOSE) in federation.log("a")
    (attempt,) = found["attempts"]
    assert attempt["charged"]
    assert attempt["cohort"] == ROWS
    assert attempt["bytes_out"] == explained["upload_bytes"] == found["bytes_out"]
    # What was explained is what it cost and what remained.
    assert attempt["scopes"][0] == record
    assert found["detail"]["columns"] == explained["asked"]["columns"]


def test_the_histories_of_two_members_agree(federation, learner):
    query_id = ask(learner)
    waiting(federation, query_id)
    rado("party", "approve", query_id.hex(), *at(federation, "a"))
    learner.watch(query_id, timeout_s=HANG_S)
    ours, theirs = in_history(federation, query_id), in_history(federation, query_id, "b")
    assert ours["asked"] == theirs["asked"]
    assert ours["attempts"][0]["cohort_digest"]
    assert ours["attempts"][0]["cohort_digest"] == theirs["attempts"][0]["cohort_digest"]
    assert theirs["decision"] == "accepted"


def test_a_refusal_ends_the_query_for_this_party(federation, learner):
    spent = ledger(federation)["events_charged"]
    query_id = ask(learner)
    waiting(federation, query_id)
    rado("party", "refuse", query_id.hex(), *at(federation, "a"), "--name", "Ann", "--reason", "asked too often")
    with pytest.raises(QueryEndedError):
        learner.watch(query_id, timeout_s=HANG_S)
    codes = {party.party: party.code for party in learner.status(query_id).parties}
    assert codes["a"] == "PERSON_REFUSED"
    found = in_history(federation, query_id)
    assert found["decision"].startswith("refused: PERSON_REFUSED, Ann (")
    assert "asked too often" in found["decision"]
    assert ledger(federation)["events_charged"] == spent
    # Too late.
    rado("party", "approve", query_id.hex(), *at(federation, "a"), "--name", "Bob", code=1)


def test_a_paused_party_answers_once_it_is_resumed(federation, learner):
    rado("party", "pause", *at(federation, "b"), "--reason", "maintenance")
    query_id = ask(learner)
    waiting(federation, query_id)
    rado("party", "approve", query_id.hex(), *at(federation, "a"))
    wait_until(
        lambda: {p.party: p.state.word for p in learner.status(query_id).parties}["a"] == "ready", what="the others"
    )
    assert {p.party: p.state.word for p in learner.status(query_id).parties}["b"] == "silent"
    assert '"paused"' in federation.log("b")
    charged = ledger(federation, "b")["events_charged"]
    came = wait_until(lambda: rado("party", "status", *at(federation, "b"))["data"]["paused"]["unanswered"], what="b")
    assert came == rado("party", "pending", *at(federation, "b"))["data"]["unanswered_while_paused"] == 1
    noted = in_history(federation, query_id, "b")
    assert noted["decision"].startswith("not answered: this party was paused by ")
    assert noted["learner"] == "learner"
    assert noted["signed"]
    assert ledger(federation, "b")["events_charged"] == charged
    assert rado("party", "resume", *at(federation, "b"))["data"]["unanswered"] == 1
    assert learner.watch(query_id, timeout_s=HANG_S).phase.word == "complete"
    assert in_history(federation, query_id, "b")["decision"] == "accepted"


def test_a_query_that_waits_is_found_again_after_a_restart(federation, learner):
    query_id = ask(learner)
    waiting(federation, query_id)
    assert federation.stop("a") == 0
    started = federation.log("a").count('"started"')
    rado("party", "approve", query_id.hex(), *at(federation, "a"))
    federation.start("a")
    wait_until(lambda: federation.log("a").count('"started"') > started, what="the party")
    assert learner.watch(query_id, timeout_s=HANG_S).phase.word == "complete"


@pytest.fixture(scope="module")
def past(federation):
    """Two queries that a person approved, and one that was refused."""
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        for decision in ("approve", "approve", "refuse"):
            query_id = ask(session)
            waiting(federation, query_id)
            rado("party", decision, query_id.hex(), *at(federation, "a"), "--name", "Ann")
            with suppress(QueryEndedError):
                session.watch(query_id, timeout_s=HANG_S)


@pytest.mark.more
@pytest.mark.usefixtures("past")
def test_the_learner_has_a_history_too(federation):
    config = ("--config", str(federation.learner.config))
    found = rado("learner", "history", *config)["data"]
    outcomes = [query["outcome"] for query in found["queries"]]
    # Nobody fetched a total, and one query was refused.
    ended = sum(outcome.startswith("ended: COHORT_TOO_SMALL") for outcome in outcomes)
    assert ended >= 1
    assert sum(outcome == "sent; not opened here" for outcome in outcomes) == found["count"] - ended >= 2
    query_id = next(each["query_id"] for each in found["queries"] if each["outcome"].startswith("sent"))
    rado("learner", "fetch", query_id[:12], *config)
    opened = rado("learner", "history", query_id[:12], *config)["data"]
    assert (opened["outcome"], opened["cohort"], opened["purpose"]) == ("opened in attempt 1", ROWS, PURPOSE)
    assert opened["detail"]["values"] == in_history(federation, bytes.fromhex(query_id))["detail"]["values"]


@pytest.mark.usefixtures("past")
def test_members_compare_their_histories(federation, tmp_path):
    files = []
    for name, role in (("a", "ledger"), ("b", "ledger"), ("learner", "learner")):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(rado(role, "history", *at(federation, name))))
    found = rado("audit", "compare", *map(str, files[:2]))["data"]
    assert found["agrees"]
    assert found["agreed"] >= 3
    assert rado("audit", "compare", str(files[0]), str(files[2]))["data"]["agrees"]
    # A coordinator that shows another cohort to one member.
    content = json.loads(files[1].read_text())
    query = next(query for query in content["data"]["queries"] if query["attempts"][0]["charged"])
    query["attempts"][0]["cohort_digest"] = "ab" * 32
    files[1].write_text(json.dumps(content))
    (contradiction,) = rado("audit", "compare", *map(str, files[:2]), code=1)["data"]["differences"]
    true = in_history(federation, bytes.fromhex(query["query_id"]))["attempts"][0]["cohort_digest"]
    assert contradiction == (
        f"query {query['query_id'][:16]}: attempt 1: cohort {true[:16]} in the first, {'ab' * 8} in the second"
    )
    files[1].write_text("{}")
    rado("audit", "compare", *map(str, files[:2]), code=4)


@pytest.fixture
def copied(federation, learner, tmp_path):
    """A copy of the party's files in which a query waits, to be changed; and the query's id."""
    query_id = ask(learner)
    waiting(federation, query_id)
    shutil.copytree(federation.directory("a"), tmp_path / "a", ignore=shutil.ignore_patterns("*.sock", "lock"))
    learner.cancel(query_id)
    config = tmp_path / "a" / federation.member("a").config.name
    return config, query_id


def explained(config, query_id) -> dict:
    return rado("party", "explain", query_id.hex(), "--config", str(config))["data"]


def test_an_explanation_says_what_would_be_refused_anyway(copied, monkeypatch):
    config, query_id = copied
    assert explained(config, query_id)["refusal"] == ""
    policy = config.parent / "policy.toml"
    whole = policy.read_text()
    for text, other, reason in (
        ('designs = ["statistic", "moments"]', 'designs = ["statistic"]', "It is 'moments'."),
        ('epsilon = "20"', 'epsilon = "0.1"', "privacy budget does not cover"),
    ):
        assert text in whole
        policy.write_text(whole.replace(text, other))
        assert reason in explained(config, query_id)["refusal"]
    policy.write_text(whole)
    late = time.time() + 2 * 86_400
    monkeypatch.setattr("radofed.cli.party_approval.time", SimpleNamespace(time=lambda: late))
    assert "expired" in explained(config, query_id)["refusal"]


def test_a_query_that_expired_is_not_decided_on(copied, monkeypatch):
    config, query_id = copied
    late = time.time() + 2 * 86_400
    monkeypatch.setattr("parties.approval.deciding.time", SimpleNamespace(time=lambda: late))
    rado("party", "approve", query_id.hex(), "--config", str(config), code=4)
    monkeypatch.setattr("parties.history.reading.time", SimpleNamespace(time=lambda: late))
    found = rado("ledger", "history", query_id.hex(), "--config", str(config))["data"]
    assert found["decision"] == "not answered: no one decided before it expired"
    assert found["people"] == []


def test_what_cannot_be_explained_says_why(copied, capsys):
    config, query_id = copied
    loaded = PartyConfig.load(config)
    roster = loaded.state_directory / "roster.signed"
    roster.rename(roster.with_suffix(".away"))
    assert run(["party", "explain", query_id.hex(), "--config", str(config)]) == 4
    assert "has not seen a roster yet" in capsys.readouterr().err
    roster.with_suffix(".away").rename(roster)
    database = HistoryDatabase(loaded.state_directory / FILE, federation="test", party="a")
    history = History(database)
    history.complete([(b"\xee" * 31 + bytes([end]), "lea", 1.0) for end in (1, 2)])
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=time.time() + 1)
    database.close()
    for prefix, reason in (
        ("", "no query of this party"),
        ("not hexadecimal", "no query of this party"),
        ("ee" * 31, "several queries begin with"),
        (query_id.hex(), "its signed text is not kept"),
    ):
        assert run(["party", "explain", prefix, "--config", str(config)]) == 4
        assert reason in capsys.readouterr().err


@pytest.mark.usefixtures("past")
def test_history_as_a_table_and_as_csv(federation):
    arguments = ["ledger", "history", *at(federation, "a")]
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run([*arguments, "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(printed.getvalue())))
    found = rado(*arguments)["data"]
    assert [line["query_id"] for line in lines] == [query["query_id"] for query in found["queries"]]
    assert found["count"] == len(lines) >= 3
    newest = found["queries"][0]["shown_at_unix_s"]
    assert rado(*arguments, "--limit", "2", "--skip", "1")["data"]["queries"] == found["queries"][1:3]
    assert rado(*arguments, "--learner", "nobody")["data"] == {"queries": [], "count": 0}
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(newest))
    assert json.dumps(newest) not in json.dumps(rado(*arguments, "--until", until)["data"])
    with redirect_stdout(printed := io.StringIO()):
        assert run(arguments) == 0
    assert "approved by Ann" in " ".join(printed.getvalue().split())


@pytest.mark.more
def test_a_report_to_sign_beside_running_nodes(federation, tmp_path):
    page, registry = tmp_path / "report.html", tmp_path / "registry.yaml"
    before, found = ledger(federation), rado("ledger", "history", *at(federation, "a"), "--limit", "1000")["data"]
    files = ("--output", str(page), "--registry", str(registry))
    data = rado("party", "report", *at(federation, "a"), "--from", "2020-01-01", *files)["data"]["report"]
    assert (data["count"], data["queries"]) == (found["count"], _shown_again(data, found["queries"]))
    assert data["attempts_charged"] == before["events_charged"]
    assert data["budgets"][0]["spent"] == before["scopes"][0]["spent_epsilon"]
    assert data["more_like_the_last"] == before["more_like_the_last"]["lifetime"]
    assert data["bytes_out"] == sum(query["bytes_out"] for query in found["queries"]) > 0
    assert ledger(federation) == before
    text = page.read_text()
    assert all(query["query_id"][:12] in text for query in found["queries"])
    assert "approved by Ann" in text
    members = yaml.safe_load(registry.read_text())["deployment"]["model"]["actors"]
    assert {member["name"] for member in members} == {*ROWS, "coordinator", "learner"}


def _shown_again(data: dict, queries: list[dict]) -> list[dict]:
    """The history's queries, with what a report adds to each."""
    added = ("columns", "predicates", "more_predicates", "honest_parties", "signed")
    return [
        query | {name: reported[name] for name in added}
        for query, reported in zip(queries, data["queries"], strict=True)
    ]
