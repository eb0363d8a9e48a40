"""The page: well formed and without scripts, whatever learners write; each claim has its place in the threat model."""

import re
import time
from pathlib import Path

import pytest

from dpcore.accounting.odds import chance_after
from parties.policy import Policy
from parties.report import gathering
from parties.report.page import assumptions, consequences, document, not_protected, policy_words
from rado.v1 import cohort_pb2
from radobase.presentation.words import seldom, who_opens_a_part
from radobase.printing import printable
from tests.html_page import Page, check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.parties.report.report_world import (
    BACKWARDS,
    CONTROL,
    HTML,
    ada_at,
    answer,
    old,
    report_of,
    statistic,
    wards,
    without_noise,
)

pytestmark = pytest.mark.usefixtures("small_comb")
THREAT_MODEL = Path(__file__).resolve().parents[3] / "docs/threat-model-details.md"


@pytest.fixture
def ada(world, tmp_path):
    return ada_at(world, tmp_path)


@pytest.fixture
def full(ada, world):
    """A party that answered and refused, asked by a learner that writes what it likes."""
    for predicates in ((), wards(), old(), (*wards(), *old())):
        answer(ada, statistic(world, *predicates))
    ada.go(world.ask(without_noise(world)))
    return ada


def test_it_loads_nothing_and_runs_nothing(full):
    check_that_it_loads_nothing(document(report_of(full)).saved())


@pytest.mark.more
def test_headings_tables_and_pictures_can_be_followed_without_seeing_them(full):
    page = check_that_it_can_be_followed(document(report_of(full)).saved())
    assert len(page.named("table")) >= 8
    assert len(page.named("svg")) >= 2


def test_text_of_learners_is_text(full):
    text = document(report_of(full)).saved()
    page = Page(text)
    assert HTML not in text
    assert HTML in page.words
    for hostile in (BACKWARDS, CONTROL):
        assert hostile not in text
    assert not [character for character in text if not character.isprintable() and character != "\n"]
    assert "left\\u202etfel" in page.words


def test_what_cannot_be_seen_is_written_out():
    assert printable("a\u202eb\x00c\u200bd\n") == "a\\u202eb\\x00c\\u200bd\\n"
    assert printable("Zürich, Ελλάδα, עברית") == "Zürich, Ελλάδα, עברית"


def test_the_five_answers_come_first_with_the_figures_of_the_ledger(full):
    report = report_of(full)
    words = Page(document(report).saved()).words
    start = words.split("What was asked, and what was decided")[0]
    state = full.ledger.state().scopes[0]
    assert "lea (5 queries, 4 answered)" in start
    assert f"{report.bytes_out:,} bytes of encrypted, masked sums." in start
    # The sentence of explanations too, with when that is (docs/threat-model-details.md, P3).
    assert who_opens_a_part(1).partition("; ")[2] in start
    assert "No one reads these alone" not in words
    assert f"epsilon {state.spent_epsilon:.4g} of 3 is spent" in start
    assert f"{report.more:,} more queries like the last one" in start
    assert "the learner and up to 1 of the accepted parties it could compute" in start
    assert f"within its limit (epsilon 3) it is at most {chance_after(0.5, 3.0, 1e-5).of_100()}" in start
    assert f"until now its chance is at most {chance_after(0.5, state.spent_epsilon, 1e-5).of_100()}" in start
    assert "at most 0.001 (1 in 1,000)" in start
    assert "can reveal rows" not in start
    assert words.count("The budget bounds what the composition of all answers says about one row.") == 2


def test_every_query_and_member_is_shown(full):
    report = report_of(full)
    words = Page(document(report).saved()).words
    for query in report.queries:
        assert query.read.shown.query_id.hex()[:12] in words
    for member in report.members:
        assert member.fingerprint in words
    assert "refused: POLICY_DESIGN" in words
    # A batch whose words leave predicates out is listed.
    assert words.count('(x["age"] >= 65) & x["smoker"]') >= 2


# What a party's signed words say of it, as the report lists it; None for what names the attempt, or is random.
SAID = {
    "Acceptance": {"rows": "Number of rows", "ledger_head": "State of the ledger", "mask_key": None,
                   "roster_version": None, "share_key": None},
    "Refusal": {"code": "Decisions"},
    "Pending": {},
    "Receipt": {"cohort_digest": None, "upload_digest": None, "chunks": "Sums over the rows",
                "ciphertexts": "Sums over the rows", "ledger_head": "State of the ledger"},
    "Witness": {"federation": None, "subject": None, "nonce": None, "newest": "Attempts of others",
                "in_cohorts": "Attempts of others", "in_cohorts_from": "Attempts of others"},
}  # fmt: skip


@pytest.mark.variants(1)
@pytest.mark.parametrize("message", SAID)
def test_what_left_has_all_that_a_party_says_of_itself(full, message):
    fields = set(getattr(cohort_pb2, message).DESCRIPTOR.fields_by_name) - {"query_id", "attempt", "party"}
    assert fields == set(SAID[message])
    table = (
        Page(document(report_of(full)).saved())
        .words.split("What left, to whom")[1]
        .split("do not come from this party")[0]
    )
    for words in filter(None, SAID[message].values()):
        assert words in table


def test_a_period_without_queries_says_so(ada):
    words = Page(document(report_of(ada, since=1.0, until=2.0)).saved()).words
    assert "No one: no query was shown to this party in the period." in words
    assert "No data: no answer was charged" in words
    assert "there is none to compare with what remains" in words


def test_a_period_that_lasts_says_up_to_when_it_counts(ada):
    from dataclasses import replace

    from parties.ledger.budgets import Period

    report = report_of(ada)
    assert "not over" not in Page(document(report).saved()).words
    lasting = replace(report, period=Period(report.period.since_unix_s, time.time() + 1e6))
    assert "The period is not over" in Page(document(lasting).saved()).words


def test_without_a_bound_no_chance_is_claimed(world, tmp_path):
    limits = {"epsilon": "50", "delta": "1e-5", "unbounded_queries": 3}
    ada = ada_at(world, tmp_path, designs=["plain"], allow_unprotected=True, limits=limits)
    answer(ada, without_noise(world))
    words = Page(document(report_of(ada)).saved()).words
    assert (
        "No figure bounds what the composition of all answers reveals about a row: 1 answer without any bound" in words
    )
    assert "1 event without any privacy bound for whole records" in words
    assert "at most 5" not in words
    assert "Chance of a guess" not in words
    assert "such answers can reveal rows" in words
    assert words.count("No budget bounds what the composition of all answers says about one row.") == 2
    assert "The budget bounds" not in words


def test_a_long_list_says_what_it_leaves_out(ada, world, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_LISTED", 1)
    monkeypatch.setattr("parties.report.page.MOST_LISTED", 1)
    for _ in range(2):
        ada.go(world.ask(without_noise(world)))
    assert "The newest 1 of 2 queries follow." in Page(document(report_of(ada)).saved()).words


def test_each_claim_is_in_the_threat_model(full):
    report = report_of(full)
    text = THREAT_MODEL.read_text()
    sources = [each.source for each in (*consequences(report), *assumptions(report), *not_protected(report))]
    assert len(sources) > 15
    for source in ", ".join(sources).split(", "):
        heading = rf"^### {source}\." if source.startswith("P") else rf"^###? {re.escape(source)}\.? "
        assert re.search(heading, text, re.MULTILINE), source


def test_consequences_follow_the_policy(world, tmp_path):
    ada = ada_at(world, tmp_path, assumed_colluders=0)
    answer(ada, statistic(world))
    report = report_of(ada)
    words = " ".join(each.who + each.learns for each in consequences(report))
    assert "up to 0 of the parties" in words
    assert "more than 0 of the accepted parties" in words
    assert "at least 2 parties, this one among them, keep their noise" in words


def test_every_rule_of_a_policy_has_its_words():
    made = Policy.model_validate(
        {
            "learners": [{"name": "lea", "signing_key": "ab" * 32}],
            "designs": ["moments", "statistic"],
            "assumed_colluders": 2,
            "limits": {
                "epsilon": "7",
                "delta": "1e-5",
                "record": {"epsilon": "3", "delta": "1e-6"},
                "columns": {"age": {"epsilon": "2.5", "delta": "1e-6"}},
                "features": {"smoker": {"epsilon": "1.5", "delta": "1e-6"}},
                "per_learner": {"epsilon": "4.5", "delta": "1e-6"},
                "per_day": {"epsilon": "0.5", "delta": "1e-6"},
                "rados_per_query": 1234,
                "predicates_per_query": 5678,
                "map_terms_per_query": 432,
                "attempts_per_query": 2,
            },
            "approval": {
                "learners": ["lea"],
                "designs": ["moments"],
                "epsilon_at_least": "0.25",
                "admitted_predicates": ['x["smoker"]'],
                "approvers": 2,
            },
            "history": {"days": 400, "predicates_days": 30},
        }
    )
    words = " ".join(policy_words(made))
    for said in (
        "pins: lea.", "moments (", "statistic (", "At most 2 of the parties", "at least 4 parties",
        "epsilon 7 at delta 1e-05",
        "whole records, instead: epsilon 3", "column age, instead: epsilon 2.5", "feature smoker, instead: epsilon 1.5",
        "each learner, in addition: epsilon 4.5", "24 hours, in addition: epsilon 0.5", "1234 rados",
        "5678 predicates", "2 attempts", "7 days", "approval of 2 people", "queries of lea", "of the kinds moments",
        "432 terms of a feature map",
        "epsilon 0.25 or more", "list of admitted predicates", "400 days", "30 days", "are refused",
    ):  # fmt: skip
        assert said in words, said
    nothing = " ".join(policy_words(Policy()))
    assert "Every query is refused" in nothing
    assert "No query waits" in nothing
    everything = Policy.model_validate({"approval": {"everything": True}, "allow_unprotected": True})
    words = " ".join(policy_words(everything))
    assert "approval of one person: every query." in words
    # No more is known of who decided.
    assert "distinguished by the user of the operating system, or by who signed on. Who may write" in words
    assert "no one is excluded from deciding" in words
    named = {"learners": [{"name": "lea", "signing_key": "ab" * 32, "requesters": ["al"]}]}
    named |= {"approval": {"everything": True, "names": True}}
    words = " ".join(policy_words(Policy.model_validate(named)))
    assert "distinguished by the user of the operating system" in words
    assert "do not decide on the queries of lea." in words
    assert "no one is excluded" not in words
    assert "whole records unprotected are allowed, at most 0 attempts" in " ".join(policy_words(everything))


@pytest.mark.parametrize(
    ("probability", "said"),
    [(1e-3, "0.001 (1 in 1,000)"), (0.0, "0"), (1.0, "1"), (0.3, "0.3 (1 in 3)"), (1 / 3, "0.3334 (1 in 3)")],
)
def test_small_probabilities_in_words(probability, said):
    assert seldom(probability) == said


@pytest.mark.more
def test_it_says_that_epsilon_is_a_bound_and_that_no_purpose_was_stated(full):
    words = document(report_of(full)).saved()
    assert "proved upper bounds and not estimates" in words
    assert "No query whose words are kept states a purpose." in words
    assert "purpose" in report_of(full).to_dict()
