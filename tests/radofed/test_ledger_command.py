"""`rado ledger`: figures for people and programs, and nothing changed by looking."""

import json
import re
from fractions import Fraction

import pytest

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.database import LedgerOwner
from parties.ledger.charges import RECORD, Charge, marginal
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from radofed.cli.entry_point import run
from radofed.node_config import PolicyChoices, party_toml, policy_toml

TABLE = Charge(((RECORD, Loss.of_epsilon(Fraction(2), Fraction(0))),), "lea", b"table")
SMOKER = Charge(((marginal("smoker", "smokes"), Loss.of_epsilon(Fraction(3), Fraction(1, 10**6))),), "max")


@pytest.fixture
def party(tmp_path):
    (tmp_path / "party.toml").write_text(party_toml("clinics", "ada", "hub:7443"))
    (tmp_path / "policy.toml").write_text(policy_toml({}, {}, PolicyChoices(unbounded_queries=4)))
    limits = LedgerLimits(PrivacyLimit(Fraction(100), Fraction(1, 10)), 9)
    ledger = Ledger.open(tmp_path / "state" / "ledger.sqlite", LedgerOwner("clinics", "ada", "data.csv"), limits)
    for number, charge in enumerate((TABLE, TABLE, SMOKER, TABLE, SMOKER)):
        key = number.to_bytes(32, "big")
        ledger.reserve(key, 1, charge, lapses_at_unix_s=1e12, now_unix_s=0.0)
        if number < 3:
            ledger.charge(key, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0.0)
    ledger.database.close()
    return tmp_path


def rado(capsys, *arguments):
    code = run(["ledger", *arguments])
    return code, capsys.readouterr().out


def test_show_gives_every_scope_with_what_is_left(party, capsys):
    code, out = rado(capsys, "show", "--config", str(party / "party.toml"), "--format", "json")
    data = json.loads(out)["data"]
    assert code == 0
    by_scope = {scope["scope"]: scope for scope in data["scopes"]}
    assert list(by_scope) == ["record", "joint:smokes", "marginal:smoker"]
    # Three events of one table are one release; it bounds what is below too.
    assert [by_scope[name]["spent_epsilon"] for name in by_scope] == [2, 2, 5]
    assert by_scope["marginal:smoker"]["spent_and_reserved_epsilon"] == 8
    assert by_scope["marginal:smoker"]["remaining_epsilon"] == 2
    assert by_scope["record"]["spent"]["unbounded_events"] == 1
    assert data["unbounded"] == {"charged": 1, "limit": 4, "remaining": 2}
    assert (data["events_charged"], data["events_reserved"], len(data["warnings"])) == (3, 2, 1)
    assert data["more_like_the_last"] == {
        "learner": "max",
        "cost": "epsilon 3 at delta 1e-06 for marginal:smoker",
        "lifetime": 0,
        "these_24_hours": None,
    }


def test_show_says_it_in_words_and_changes_nothing(party, capsys):
    path = party / "state" / "ledger.sqlite"
    before = path.read_bytes()
    code, out = rado(capsys, "show", "--config", str(party / "party.toml"))
    assert code == 0
    assert re.search(r"^marginal:smoker +5 +10 +1e-05 ", out, re.MULTILINE)
    # Charged and reserved are 2 + 2 * 3 of 10, in two attempts each of delta 1e-6 of 5e-6.
    assert "Room for about 0 more like the last, of max (epsilon 3 at delta 1e-06 for marginal:smoker)." in out
    assert "A learner's own figure is usually smaller" in out
    assert "Without a bound for whole records: 1 charged of 4 allowed, 2 remaining" in out
    assert out.strip().splitlines()[-1].startswith("Warning: 1 event without any privacy bound for whole records")
    assert path.read_bytes() == before


def test_show_under_another_policy(party, capsys):
    (party / "other.toml").write_text(
        '[limits]\nepsilon = "4"\ndelta = "1e-5"\n[limits.per_learner]\nepsilon = "1"\ndelta = "0"\n'
    )
    arguments = ("--config", str(party / "party.toml"), "--policy", str(party / "other.toml"), "--format", "json")
    code, out = rado(capsys, "show", *arguments)
    data = json.loads(out)["data"]
    assert code == 0
    assert data["scopes"][2]["remaining_epsilon"] == 0
    assert [entry["learner"] for entry in data["learners"]] == ["lea", "max"]
    # A limit without delta admits no event that has one.
    assert data["learners"][1]["scopes"][2]["spent_epsilon"] is None


def test_there_is_nothing_to_show_before_the_first_start(tmp_path, capsys):
    (tmp_path / "party.toml").write_text(party_toml("clinics", "ada", "hub:7443"))
    (tmp_path / "policy.toml").write_text("")
    code, _ = rado(capsys, "show", "--config", str(tmp_path / "party.toml"))
    assert code == 4
    assert not (tmp_path / "state").exists()


def test_verify(party, capsys):
    code, out = rado(capsys, "verify", "--config", str(party / "party.toml"))
    assert code == 0
    *checked, unchecked = out.splitlines()
    assert len(checked) == 4
    assert "its chain of 8 entries is unbroken" in checked[1]
    assert unchecked.startswith("not checked: whether both are older copies of themselves")
    assert "federation.pub" in unchecked
    limits = LedgerLimits(PrivacyLimit(Fraction(1), Fraction(0)))
    ledger = Ledger.open(party / "state" / "ledger.sqlite", LedgerOwner("clinics", "ada", "data.csv"), limits)
    with ledger.database.transaction() as connection:
        connection.execute("UPDATE events SET spool_digest = NULL")
    ledger.database.close()
    code, out = rado(capsys, "verify", "--config", str(party / "party.toml"), "--format", "json")
    faults = json.loads(out)["data"]["faults"]
    # Each of three charges differs from the chain, and is bound to no bytes.
    assert (code, len(faults)) == (1, 6)
