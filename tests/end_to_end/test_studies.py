"""Studies over real processes and mutual TLS: from the question to the reports, budgets, a restart and a backup."""

import json
from datetime import UTC, datetime

import pytest

from learner.studies import load_study
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_approval import ROWS
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until
from wire.envelopes import fingerprint

pytestmark = pytest.mark.more
ALLOWING = PolicyChoices(designs=("statistic",), epsilon="20", delta="1e-4")
RULES = """
[[studies]]
protocol_number = "EK 2026/17"
[[studies]]
protocol_number = "EK 2026/18"
[limits.studies."EK 2026/17"]
epsilon = "1"
delta = "1e-4"
"""
STUDY = """protocol_number = "EK 2026/17"
purpose = "Which patients are older than 65?"
organisation = "University of Chur"
person_in_charge = "Dr. Ada Meier"
begins = 2026-01-01
ends = 2099-12-31
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    root = tmp_path_factory.mktemp("studies")
    with ProcessFederation(root, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as made:
        for name in ROWS:
            policy = made.directory(name) / "policy.toml"
            policy.write_text(f"study_required = true\n{policy.read_text()}{RULES}")
        made.start_all()
        wait_until(lambda: "listening" in made.log("coordinator"), what="the coordinator")
        # `rado party check` says that a party without witnesses is not ready.
        wait_until(lambda: all('"ledger witnessed"' in made.log(name) for name in ROWS), what="the parties")
        rado("learner", "keygen", "--config", str(made.learner.config), "--bits", "2048")
        yield made


def at(federation, name: str) -> tuple[str, str]:
    return "--config", str(federation.member(name).config)


def statistic(federation, question: str, *more: str, epsilon: str = "0.6", code: int = 0) -> dict:
    asked = ("--epsilon", epsilon, "--delta", "0", "--cohort-min", "4", "--answer-within-s", "30", *more)
    schema = ("--schema", str(federation.directory("a") / "schema.toml"))
    return rado(
        "learner", "statistic", question, *schema, *asked, "--config", str(federation.learner.config), code=code
    )


def studies(federation, name: str = "a") -> dict[str, dict]:
    found = rado("party", "studies", *at(federation, name))["data"]["studies"]
    return {each["protocol_number"]: each for each in found}


def spent(federation, number: str, name: str = "a") -> float:
    return studies(federation, name)[number]["scopes"][0]["spent_epsilon"]


def file(federation, name: str, **changes: str) -> str:
    text = STUDY
    for old, new in changes.items():
        text = "\n".join(f'{old} = "{new}"' if line.startswith(f"{old} =") else line for line in text.splitlines())
    path = federation.root / name
    path.write_text(text)
    return str(path)


def test_a_study_from_the_question_to_the_reports(federation):
    config = federation.learner.config
    # Before anything is asked, both sides say what would happen.
    findings = {each["name"]: each for each in rado("party", "check", *at(federation, "a"))["data"]["findings"]}
    assert findings["studies"]["status"] == "ok"
    assert '"EK 2026/17", "EK 2026/18"; queries without a study are refused' in findings["studies"]["detail"]
    refused = statistic(federation, "y == 1", "--would-accept", code=1)
    assert "POLICY_STUDY" in json.dumps(refused)
    config.write_text(f"{config.read_text()}\n[study]\n{STUDY}")
    statistic(federation, "y == 1", "--would-accept")
    assert spent(federation, "EK 2026/17") == 0

    # One answer, and each party shows and counts it in the study.
    statistic(federation, "y == 1")
    # The history notes a charge a moment after the ledger.
    wait_until(lambda: studies(federation)["EK 2026/17"]["stated"][0]["answered"], what="the answer in the history")
    own = studies(federation)["EK 2026/17"]
    (stated,) = own["stated"]
    assert (stated["person_in_charge"], stated["learners"], stated["answered"]) == ("Dr. Ada Meier", ["learner"], 1)
    assert 0 < own["scopes"][0]["spent_epsilon"] < 0.6001
    for name in ROWS:
        assert spent(federation, "EK 2026/17", name) == own["scopes"][0]["spent_epsilon"]
    shown = rado("ledger", "history", *at(federation, "b"))["data"]["queries"][0]
    assert shown["study"]["digest"] == stated["digest"]
    asked = rado("learner", "history", "--config", str(config))["data"]["queries"]
    assert asked[0]["study"] == {name: stated[name] for name in asked[0]["study"]}

    # The study's budget is exhausted. The party's is not: the same learner's other study is answered.
    more = statistic(federation, 'x["age"] >= 50', code=6)
    assert "BUDGET_EXCEEDED" in json.dumps(more)
    other = file(federation, "other.toml", protocol_number="EK 2026/18", purpose="Something else")
    statistic(federation, 'x["age"] >= 50', "--study", other)
    assert spent(federation, "EK 2026/17") == own["scopes"][0]["spent_epsilon"]
    assert 0 < spent(federation, "EK 2026/18") < 0.6001
    both = rado("ledger", "show", *at(federation, "a"))["data"]["scopes"][0]["spent_epsilon"]
    assert both > spent(federation, "EK 2026/18")

    # A study that no policy lists, and one that ended: nothing is charged, and of the latter nothing is sent.
    unlisted = file(federation, "unlisted.toml", protocol_number="EK 1")
    assert "POLICY_STUDY" in json.dumps(statistic(federation, 'x["age"] >= 60', "--study", unlisted, code=6))
    ended = file(federation, "ended.toml", ends="2026-01-02")
    sent = len(rado("learner", "history", "--config", str(config))["data"]["queries"])
    late = statistic(federation, 'x["age"] >= 60', "--study", ended, code=6)["error"]
    assert (late["code"], "It ended on 2026-01-02" in late["message"]) == ("STUDY_DATES", True)
    assert len(rado("learner", "history", "--config", str(config))["data"]["queries"]) == sent
    assert rado("ledger", "show", *at(federation, "a"))["data"]["scopes"][0]["spent_epsilon"] == both
    assert "EK 1" in studies(federation)

    # Both reports, as data and as pages.
    since = datetime.fromtimestamp(0, UTC).strftime("%Y-%m-%d")
    page = federation.root / "party.html"
    report = rado("party", "report", *at(federation, "a"), "--from", since, "--output", str(page))["data"]
    spent_in = {each["protocol_number"]: each["scopes"][0]["spent_epsilon"] for each in report["report"]["studies"]}
    assert spent_in["EK 2026/17"] == own["scopes"][0]["spent_epsilon"]
    assert "Dr. Ada Meier" in page.read_text()
    release = asked[0]["release"]
    page = federation.root / "learner.html"
    found = rado("learner", "report", release, "--config", str(config), "--output", str(page))["data"]["report"]
    assert [each["protocol_number"] for each in found["studies"]] == ["EK 2026/17"]
    assert "University of Chur" in page.read_text()
    assert "Studies state theirs" in page.read_text()
    assert json.loads((federation.root / release / "release.json").read_text())["study"]["digest"] == stated["digest"]


def test_a_restart_and_a_backup_keep_what_a_study_spent(federation):
    before = spent(federation, "EK 2026/17")
    assert before > 0
    federation.kill("a")
    federation.start("a")
    wait_until(lambda: federation.log("a").count("ledger witnessed") == 2, what="the others to witness a's ledger")
    assert "BUDGET_EXCEEDED" in json.dumps(statistic(federation, 'x["age"] >= 70', code=6))
    assert spent(federation, "EK 2026/17") == before
    saved = federation.root / "a.backup"
    rado("backup", "create", str(saved), *at(federation, "a"))
    rado("restore", str(saved), str(federation.root / "restored"))
    config = next((federation.root / "restored").rglob("party.toml"))
    found = rado("party", "studies", "--config", str(config))["data"]["studies"]
    again = {each["protocol_number"]: each for each in found}["EK 2026/17"]
    assert again["scopes"][0]["spent_epsilon"] == before
    assert again["stated"][0]["person_in_charge"] == "Dr. Ada Meier"


def test_only_the_listed_statement_is_answered_where_a_policy_lists_its_digest(federation):
    """A study whose last day is moved is another statement, until the party lists it."""
    policy = federation.directory("b") / "policy.toml"
    text, stated = policy.read_text(), load_study(file(federation, "stated.toml", protocol_number="EK 2026/18"))
    number = 'protocol_number = "EK 2026/18"'
    assert len(stated.digest.hex()) == len(fingerprint(bytes(32)).replace(":", ""))
    policy.write_text(text.replace(number, f'{number}\ndigests = ["{stated.digest.hex()}"]', 1))
    rado("party", "reload", *at(federation, "b"))
    try:
        same = ("--study", str(federation.root / "stated.toml"))
        statistic(federation, 'x["age"] >= 55', "--would-accept", *same)
        longer = file(federation, "longer.toml", protocol_number="EK 2026/18", ends="2099-12-30")
        refused = statistic(federation, 'x["age"] >= 55', "--would-accept", "--study", longer, code=1)
        assert json.dumps(refused).count("POLICY_STUDY") == 1
    finally:
        policy.write_text(text)
        rado("party", "reload", *at(federation, "b"))
