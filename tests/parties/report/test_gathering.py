"""What a report says agrees with the ledger and the history, whatever the rows are."""

import json
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.odds import chance_after, exceptions, right_guesses
from dpcore.errors import ConfigurationError
from dpcore.records.records import Records
from parties.history import reading
from parties.history.history import HistoryPage
from parties.ledger import budgets
from parties.ledger.budgets import Period
from parties.ledger.charges import RECORD
from parties.policy import Policy
from parties.report import gathering
from parties.report.page import document, registry_entry
from radofed.cli.output import json_ready
from tests.parties.report.report_world import (
    ROWS,
    ada_at,
    answer,
    old,
    records,
    report_of,
    statistic,
    wards,
    without_noise,
)
from wire.errors import Code
from wire.statements import Refusal, open_statement

pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.fixture
def ada(world, tmp_path):
    return ada_at(world, tmp_path)


def test_figures_are_those_of_the_ledger(ada, world):
    for predicates in ((), wards(), old()):
        answer(ada, statistic(world, *predicates))
    ada.go(world.ask(without_noise(world)))
    report, state = report_of(ada), ada.ledger.state()
    record = state.scopes[0]
    assert record.spent_epsilon > 0
    found = report.record
    assert (found.scope, found.limit_epsilon, found.limit_delta) == ("whole records", 3.0, 1e-5)
    assert (found.before, found.spent, found.remaining) == (0.0, record.spent_epsilon, record.remaining_epsilon)
    assert [spent for _, spent in found.steps] == sorted(spent for _, spent in found.steps)
    assert found.steps[-1][1] == found.spent
    assert len(found.steps) == report.charged == state.charged == 3
    assert (report.count, report.rows) == (4, ROWS)
    assert report.bytes_out == sum(len(sent) for chunks in ada.hub.chunks.values() for sent in chunks)
    (asker,) = report.askers
    assert (asker.learner, asker.queries, asker.answered, asker.charged) == ("lea", 4, 3, 3)
    assert asker.bytes_out == report.bytes_out
    assert dict(report.decisions) == {"answered": 3, "refused": 1}
    assert [query.predicates for query in report.queries[1:]] == [
        ('(x["age"] >= 65) & x["smoker"]',),
        report.queries[2].predicates,
        ('x["smoker"]',),
    ]
    assert report.queries[1].columns == ("age", "smoker")
    assert report.queries[1].cohort == ("ada", "bo", "cy")
    assert report.honest_parties == (2,)
    head = ada.ledger.head()
    assert (report.head_entries, report.head_digest) == (head.entries, head.digest.hex())


def test_chances_are_those_of_the_limit_and_of_what_is_spent(ada, world):
    answer(ada, statistic(world))
    report = report_of(ada)
    spent = ada.ledger.state().scopes[0].spent_epsilon
    half = report.chances[-1]
    assert half.before == "50 of 100"
    assert half.after_spent == chance_after(0.5, spent, 1e-5).of_100()
    assert half.after_limit == chance_after(0.5, 3.0, 1e-5).of_100()
    assert report.exceptions == exceptions(1e-5)
    assert report.right_guesses == right_guesses(3.0, 1e-5).of_100()
    assert [chance.before for chance in report.chances] == ["1 of 100", "10 of 100", "50 of 100"]


def test_a_limit_that_was_lowered_below_what_is_spent_states_nothing(ada, world, tmp_path):
    answer(ada, statistic(world))
    spent = ada.ledger.state().scopes[0].spent_epsilon
    text = (tmp_path / "policy.toml").read_text()
    for factor, stated in ((1.01, True), (0.99, False)):
        (tmp_path / "policy.toml").write_text(text.replace('epsilon = "3.0"', f'epsilon = "{factor * spent:.6f}"'))
        report = report_of(ada)
        assert report.record.limit_epsilon == pytest.approx(factor * spent, abs=1e-6)
        assert (report.right_guesses is not None) is stated
        assert all((chance.after_limit is not None) is stated for chance in report.chances)
        assert all(chance.after_spent for chance in report.chances)
        words = document(report).saved()
        assert ("More is spent than the policy's limit admits" in words) is not stated
        assert ("within its limit (epsilon" in words) is stated


def test_only_the_period_counts_and_the_budget_counts_from_the_beginning(ada, world):
    answer(ada, statistic(world))
    first = ada.ledger.state().scopes[0].spent_epsilon
    between = time.time()
    answer(ada, statistic(world, *wards()))
    whole = ada.ledger.state().scopes[0].spent_epsilon
    later, earlier = report_of(ada, since=between), report_of(ada, until=between)
    assert (later.count, earlier.count, later.charged, earlier.charged) == (1, 1, 1, 1)
    assert (later.record.before, later.record.spent) == (first, whole)
    assert (earlier.record.before, earlier.record.spent) == (0.0, first)
    assert (earlier.as_of_unix_s, later.as_of_unix_s) == (between, later.made_at_unix_s)
    assert later.bytes_out + earlier.bytes_out == report_of(ada).bytes_out


def test_a_period_without_queries(ada, world):
    answer(ada, statistic(world))
    report = report_of(ada, since=1.0, until=2.0)
    assert (report.count, report.queries, report.askers, report.charged, report.bytes_out) == (0, (), (), 0, 0)
    assert (report.has_last, report.last_charged, report.rows, report.record.spent) == (False, None, None, 0.0)


@pytest.mark.parametrize(("since", "until"), [(2.0, 2.0), (3.0, 2.0), (9e12, 1e13)], ids=str)
def test_a_period_that_is_empty_or_has_not_begun(ada, since, until):
    with pytest.raises(ConfigurationError, match="--from that is before --to"):
        report_of(ada, since=since, until=until)


def test_a_period_has_a_length():
    with pytest.raises(ConfigurationError):
        Period(5.0, 5.0)


@pytest.mark.more
def test_as_many_more_queries_fit_as_it_says(world, tmp_path):
    ada = ada_at(world, tmp_path, limits={"epsilon": "0.35", "delta": "1e-5", "unbounded_queries": 0})
    answer(ada, statistic(world))
    said = report_of(ada).more
    assert said > 1
    for left in range(said - 1, -1, -1):
        answer(ada, statistic(world))
        assert report_of(ada).more == left
    ada.go(world.ask(statistic(world)))
    refusal, _ = open_statement(Refusal, ada.hub.answers[-1], world.roster)
    assert refusal.code is Code.BUDGET_EXCEEDED


def test_after_an_answer_without_a_bound_no_chance_is_stated(world, tmp_path):
    ada = ada_at(
        world,
        tmp_path,
        designs=["plain", "statistic"],
        allow_unprotected=True,
        limits={"epsilon": "50", "delta": "1e-5", "unbounded_queries": 3},
    )
    answer(ada, statistic(world))
    assert report_of(ada).chances
    answer(ada, without_noise(world))
    report = report_of(ada)
    assert (report.chances, report.right_guesses, report.unbounded) == ((), None, 1)
    assert "without any privacy bound" in report.warning
    assert report.more == 2
    assert report.record.unbounded == 1


@pytest.mark.more
def test_a_feature_s_budget_is_a_line_of_its_own(world, tmp_path):
    limits = {"epsilon": "100", "delta": "1e-5", "unbounded_queries": 3}
    ada = ada_at(world, tmp_path, allow_unprotected=True, limits=limits)
    answer(ada, statistic(world))
    answer(ada, without_noise(world, "smoker"))
    names = [budget.scope for budget in report_of(ada).budgets]
    assert names == ["whole records", "column smoker", "feature smoker, its own released values"]
    state = ada.ledger.state()
    assert [budget.spent for budget in report_of(ada).budgets] == [scope.spent_epsilon for scope in state.scopes]


def test_scopes_with_the_most_spent_are_shown(world, tmp_path, monkeypatch):
    columns = {name: {"epsilon": "1", "delta": "1e-6"} for name in ("age", "ward", "stayed")}
    ada = ada_at(world, tmp_path)
    text = (tmp_path / "policy.toml").read_text()
    for name, limit in columns.items():
        text += f'\n[limits.columns.{name}]\nepsilon = "{limit["epsilon"]}"\ndelta = "{limit["delta"]}"\n'
    (tmp_path / "policy.toml").write_text(text)
    monkeypatch.setattr(budgets, "MOST_SCOPES", 3)
    report = report_of(ada)
    assert (len(report.budgets), report.scopes_left_out) == (3, 1)
    assert report.record.scope == "whole records"


def test_totals_count_what_is_not_listed(ada, world, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_LISTED", 2)
    monkeypatch.setattr(reading, "_AT_ONCE", 2)
    for _ in range(4):
        ada.go(world.ask(without_noise(world)))
    answer(ada, statistic(world))
    report = report_of(ada)
    assert (report.count, len(report.queries), report.askers[0].queries) == (5, 2, 5)
    assert report.queries[0].charged == 1
    assert dict(report.decisions) == {"answered": 1, "refused": 4}


@pytest.mark.more
def test_steps_are_few_and_end_with_the_last_charge(ada, world, monkeypatch):
    monkeypatch.setattr(budgets, "MOST_STEPS", 2)
    for _ in range(5):
        answer(ada, statistic(world))
    found = report_of(ada).record
    assert len(found.steps) == 2
    assert found.steps[-1][1] == found.spent


def test_a_query_that_is_not_kept_any_more_is_counted(ada, world):
    answer(ada, statistic(world, *old()))
    ada.history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=time.time() + 10)
    report = report_of(ada)
    (query,) = report.queries
    assert (query.columns, query.predicates, query.charged) == (None, (), 1)
    assert report.record.spent > 0
    assert report.more is not None


def test_a_charge_from_before_there_was_a_history(ada, world):
    answer(ada, statistic(world))
    ada.history.forget(whole_before_unix_s=time.time() + 10, predicates_before_unix_s=0.0)
    ada.history.complete(ada.ledger.charged_queries())
    report = report_of(ada)
    (query,) = report.queries
    assert (query.read.shown.kind, query.charged) == ("", 1)
    # The ledger still knows what it cost.
    assert report.more is not None
    assert report.record.spent == ada.ledger.state().scopes[0].spent_epsilon


def test_members_are_those_of_the_roster_as_the_policy_sees_them(world, tmp_path):
    accepted = world.policy().accepted_members[:1]
    ada = ada_at(world, tmp_path, accepted_members=list(accepted), learners=[])
    members = {member.name: member for member in report_of(ada).members}
    assert {name: member.role for name, member in members.items()} == {
        "hub": "coordinator",
        "ada": "party",
        "bo": "party",
        "cy": "party",
        "lea": "learner",
    }
    assert members["ada"].trust == "this party"
    assert members["bo"].trust == "accepted by fingerprint"
    assert members["cy"].trust.startswith("not accepted")
    assert members["lea"].trust == "may not ask"
    assert members["bo"].fingerprint.replace(":", "") == accepted[0].replace(":", "")
    assert members["hub"].fingerprint == ""
    pinned = {member.name: member for member in report_of(ada_at(world, _new(tmp_path))).members}
    assert pinned["lea"].trust == "may ask (key pinned)"


def test_members_that_left_are_listed_after_the_others(world, tmp_path):
    """They may have answered together with this party."""
    ada = ada_at(world, tmp_path)
    left = replace(world.roster, version=2, members=tuple(each for each in world.roster.members if each.name != "bo"))
    assert ada.rosters.offer(left.sign(world.federation_key))
    report = report_of(ada)
    assert [member.name for member in report.members if member.left_after is not None] == ["bo"]
    assert report.members[-1].left_after == 1
    entry = registry_entry(report)["deployment"]
    (actor,) = [actor for actor in entry["model"]["actors"] if actor["name"] == "bo"]
    assert (actor["left_after_roster"], actor["policy_of_this_party"]) == (1, "left after version 1 of the roster")
    assert "bo" not in entry["product"]["data_curators"]


def _new(directory):
    (directory / "again").mkdir()
    return directory / "again"


def test_without_a_roster_there_are_no_members(ada, tmp_path):
    (tmp_path / "roster.signed").unlink()
    report = report_of(ada)
    assert (report.members, report.roster_version) == ((), None)


def test_nothing_is_changed_by_looking(ada, world, tmp_path):
    answer(ada, statistic(world))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report_of(ada)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in set(after) ^ set(before)} <= {"history.sqlite-shm", "history.sqlite-wal"}
    assert [path.name for path in before if path.suffix != "-shm" and after.get(path) != before[path]] == []


def test_no_value_of_a_row_changes_a_report(world, tmp_path):
    """Two parties with the same questions and the same number of rows, and other values in every row."""
    reports = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        ada = ada_at(world, tmp_path / name)
        if name == "other":
            mine = records()
            ada.records = Records(-mine.features, (-mine.labels).astype(np.int8), mine.usable)
            ada.restart()
        for predicates in ((), wards()):
            answer(ada, statistic(world, *predicates))
        reports.append(json.dumps(_steady(json_ready(report_of(ada).to_dict())), sort_keys=True))
    assert reports[0] == reports[1]


def _steady(value):
    """Without what differs from run to run: times, ids, digests, and the fields that a query's signature covers."""
    if isinstance(value, dict):
        return {
            key: _steady(part)
            for key, part in value.items()
            if not key.endswith(("unix_s", "digest", "query_id")) and key not in {"steps", "signed"}
        }
    return [_steady(part) for part in value] if isinstance(value, list) else value


def test_the_dictionary_is_in_json_types(ada, world):
    answer(ada, statistic(world))
    data = json.loads(json.dumps(report_of(ada).to_dict()))
    assert data["more_like_the_last"] == report_of(ada).more
    assert data["queries"][0]["predicates"] == ['x["smoker"]']
    assert data["policy"]["limits"]["epsilon"] == "3"
    page = ada.history.page(HistoryPage())
    assert data["queries"][0]["query_id"] == page[0].query_id.hex()
    assert Fraction(data["budgets"][0]["spent"]) == Fraction(ada.ledger.state().scopes[0].spent_epsilon)
    assert ada.ledger.spent(RECORD).epsilon > 0


@pytest.mark.more
def test_a_change_of_the_limits_is_known_by_the_decisions_that_followed_them(ada, world, tmp_path):
    answer(ada, statistic(world))
    assert (report_of(ada).limits_changed, len(report_of(ada).policies.policies)) == (False, 1)
    between = time.time()
    text = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(text.replace('epsilon = "3.0"', 'epsilon = "2.5"'))
    # Nothing was decided under it yet.
    assert (report_of(ada).limits_changed, report_of(ada).limits_changed_in_period) == (True, True)
    assert report_of(ada, until=between).limits_changed_in_period is None
    ada.lifecycle.follow(Policy.load(tmp_path / "policy.toml"))
    answer(ada, statistic(world, *wards()))
    ada.go(world.ask(without_noise(world)))
    report = report_of(ada)
    first, second = report.policies.limits
    assert (first.decisions, second.decisions) == (1, 2)
    assert first.last_unix_s < between < second.first_unix_s
    assert "3.0" not in second.limits
    assert second.limits == str(report.policy.limits.of_ledger) != first.limits
    assert (report.limits_changed, report.limits_changed_in_period, report.policies.unknown) == (True, True, 0)
    later, latest = report_of(ada, since=between), report_of(ada, since=second.last_unix_s)
    # Between the decision before the period and its first.
    assert (later.limits_changed, later.limits_changed_in_period) == (True, None)
    assert (latest.limits_changed, latest.limits_changed_in_period) == (True, False)
    words = document(report).saved()
    assert "Yes, also within the period." in words
    assert "Yes, perhaps within the period." in document(later).saved()
    assert "Yes, outside of the period." in document(latest).saved()
    assert all(each.limits in words for each in (first, second))
    assert report.to_dict()["limits_changed"] is True


def test_decisions_of_before_that_name_no_policy_are_counted_and_say_nothing(ada, world):
    answer(ada, statistic(world))
    with ada.history.database.transaction() as connection:
        connection.execute("UPDATE events SET details = json_remove(details, '$.policy', '$.limits')")
    report = report_of(ada)
    assert (report.policies.policies, report.policies.unknown, report.limits_changed) == ((), 1, False)
    assert "Not known: no decision that is kept names the limits" in document(report).saved()
