"""Which studies a policy answers, when, and within which limits; refusals cost nothing."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from parties.answering.attempts import AttemptState
from parties.approval.deciding import explain
from parties.config import PartyConfig
from parties.history.history import HistoryPage, What
from parties.history.reading import HistoryReader
from parties.policy import Policy, check_query
from parties.report.page import policy_words
from tests.federation.party import Ada, limits, ready, spent
from tests.parties.report.report_world import ada_at, statistic
from tests.wire.every_query import STUDY
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import PaillierKey
from wire.status import Phase

pytestmark = pytest.mark.usefixtures("small_comb")
FEATURES = (Feature.BASE.value, Feature.STUDY.value)
OTHER = replace(STUDY, protocol_number="EK 2026/18")
ALLOWED = {"protocol_number": STUDY.protocol_number}
DAY_S = 86_400


def of(world, study, **more):
    return world.query(**({} if study is None else {"study": study, "features": FEATURES}), **more)


RULES = {
    "none where one is wanted": ({"study_required": True}, None, "It names no study"),
    "another number": ({"studies": [ALLOWED]}, OTHER, 'allows no study "EK 2026/18"'),
    "another case": ({"studies": [ALLOWED]}, replace(STUDY, protocol_number="ek 2026/17"), "allows no study"),
    "another statement": (
        {"studies": [ALLOWED | {"digests": [OTHER.digest.hex()]}]},
        STUDY,
        f"as it was stated before.*{STUDY.digest.hex()}",
    ),
    "another learner": ({"studies": [ALLOWED | {"learners": ["max"]}]}, STUDY, "does not let 'lea' ask within study"),
}


@pytest.mark.parametrize("case", RULES)
@pytest.mark.more
def test_each_rule_refuses_with_its_sentence(world, case):
    rules, study, sentence = RULES[case]
    envelope = world.ask(of(world, study))
    with pytest.raises(WireError, match=sentence) as caught:
        check_query(world.policy(**rules), world.open(envelope), world.roster, "ada")
    assert caught.value.code is Code.POLICY_STUDY


def test_what_the_rules_do_not_refuse_is_answered(world):
    allowing = [
        ({}, None),
        ({}, STUDY),
        ({"studies": [ALLOWED]}, None),
        ({"study_required": True}, OTHER),
        (
            {"studies": [ALLOWED | {"digests": [STUDY.digest.hex()], "learners": ["lea"]}], "study_required": True},
            STUDY,
        ),
        # Its purpose is one.
        ({"purpose_required": True}, STUDY),
    ]
    for rules, study in allowing:
        check_query(world.policy(**rules), world.open(world.ask(of(world, study))), world.roster, "ada")
    for rules in RULES.values():
        assert list(policy_words(world.policy(**rules[0])))
    said = " ".join(policy_words(world.policy(studies=[ALLOWED | {"learners": ["lea"]}], study_required=True)))
    assert "Queries that name no study are refused." in said
    assert 'by protocol number: "EK 2026/17". Within study "EK 2026/17" may ask: lea.' in said


TWICE = '[[studies]]\nprotocol_number = "EK 1"\n' * 2
FAULTS = {
    "is listed twice": TWICE,
    "no \\[\\[studies\\]\\] table allows": '[[studies]]\nprotocol_number = "EK 1"\n'
    '[limits.studies."EK 2"]\nepsilon = "1"\ndelta = "1e-6"',
    "a protocol number has 1 to 60 printable": '[[studies]]\nprotocol_number = "a\\nb"',
    "without outer spaces": '[limits.studies."EK 2 "]\nepsilon = "1"\ndelta = "1e-6"',
    "1 to 60 printable": f'[[studies]]\nprotocol_number = "{"x" * 61}"',
}


@pytest.mark.parametrize("sentence", FAULTS)
@pytest.mark.more
def test_a_policy_that_contradicts_itself_is_not_read(tmp_path, sentence):
    path = tmp_path / "policy.toml"
    path.write_text(FAULTS[sentence])
    with pytest.raises(ConfigurationError, match=sentence):
        Policy.load(path)


def test_a_limit_of_a_study_is_read_as_those_of_columns_are(tmp_path):
    path = tmp_path / "policy.toml"
    text = '[limits]\ncomposition = "gaussian"\n[limits.studies."EK 2026/17"]\nepsilon = "2"\ndelta = "1e-6"\n'
    path.write_text(f'{text}[limits.per_study]\nepsilon = "0.5"\ndelta = "1e-6"')
    found = Policy.load(path).limits.of_ledger
    own, each = found.of_study("EK 2026/17"), found.of_study("another")
    assert (own.epsilon, own.delta, own.is_gaussian) == (2, Fraction(1, 10**6), True)
    assert (each.epsilon, each.is_gaussian) == (Fraction(1, 2), True)


@pytest.mark.parametrize("case", ["not begun", "ended"])
def test_a_study_that_is_not_open_is_refused_uncharged(ada, case):
    days = {"not begun": (date(2099, 1, 1), STUDY.ends), "ended": (STUDY.begins, date(2026, 1, 2))}[case]
    study = replace(STUDY, begins=days[0], ends=days[1])
    envelope = ada.world.ask(of(ada.world, study))
    assert not ada.go(envelope)
    assert ada.hub.refusal_code is Code.STUDY_DATES
    assert (ada.state(envelope), spent(ada), ada.ledger.events()) == (None, 0, [])
    (shown,) = ada.history.page(HistoryPage())
    assert shown.study == study
    (happened,) = [each for each in ada.history.events([shown.query_id])[shown.query_id] if each.what is What.REFUSED]
    assert happened.details["detail"].startswith(
        "It begins on 2099" if case == "not begun" else "It ended on 2026-01-02"
    )


def test_what_was_accepted_on_the_last_day_is_completed_and_no_further_attempt_accepted(ada):
    noon = int(time.time()) // DAY_S * DAY_S + DAY_S // 2
    today = datetime.fromtimestamp(noon, UTC).date()
    certificate = PaillierKey("lea", ada.world.key.public_key, noon - DAY_S, noon + 9 * DAY_S)
    query = of(
        ada.world,
        replace(STUDY, ends=today),
        paillier_key=certificate.sign(ada.world.learner_key),
        created_at_unix_s=noon,
        not_after_unix_s=noon + 5 * DAY_S,
    )
    ada.offset_s = noon - time.time()
    envelope, cohort = ready(ada, query)
    ada.offset_s += DAY_S
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED
    charged = spent(ada)
    assert charged > 0
    ada.go(envelope, attempt=2, phase=Phase.ANSWERING)
    assert not ada.hub.accepted[-1]
    assert ada.state(envelope, 2) is None
    assert spent(ada) == charged


@pytest.mark.more
def test_the_budget_of_a_study_ends_while_the_partys_does_not(world, tmp_path):
    """By a party's own answers: reserved, charged and refused in one ledger; another study and none still fit."""
    wide = limits("1000", "1e-3", studies={STUDY.protocol_number: limits("10", "1e-3").lifetime})
    ada = Ada(world, tmp_path, limits=wide)
    envelope, cohort = ready(ada, of(world, STUDY, max_attempts=1))
    ada.upload(envelope, cohort)
    cost = float(spent(ada))
    assert 5 < cost < 10
    before = len(ada.hub.answers)
    again = world.ask(of(world, STUDY, max_attempts=1))
    assert not ada.go(again)
    assert (ada.hub.accepted[before:], ada.state(again), float(spent(ada))) == ([False], None, cost)
    refusal = ada.history.refusals()[-1]
    assert (refusal.code, 'of the limit of study "EK 2026/17"' in refusal.detail) == (Code.BUDGET_EXCEEDED, True)
    for study in (OTHER, None):
        assert ada.go(world.ask(of(world, study, max_attempts=1)))
    # A restart finds the same.
    ada.restart()
    assert not ada.go(world.ask(of(world, STUDY, max_attempts=1)))


def test_a_study_that_differs_between_parties_has_no_cohort(ada):
    """Each party sees what it accepted: the query's id, which the acceptances sign, is the digest of all of it."""
    query = of(ada.world, STUDY)
    envelope, _ = ready(ada, query)
    own = ada.hub.answers[-1]
    # The learner signed another study for bo, with the same number; the coordinator joins both acceptances.
    altered = ada.world.ask(replace(query, study=replace(STUDY, purpose="Something else")))
    assert altered.payload_hash != envelope.payload_hash
    cohort = ada.world.cohort(own)
    others = [ada.world.acceptance(altered.payload_hash, "bo"), *cohort.acceptances[2:]]
    before = len(ada.hub.answers)
    ada.upload(envelope, replace(cohort, acceptances=(own, *others)))
    assert (ada.hub.chunks, spent(ada)) == ({}, 0)
    assert not any(ada.hub.accepted[before:])
    refusal = ada.history.refusals()[-1]
    assert (refusal.code, "an acceptance for another attempt" in refusal.detail) == (Code.ATTEMPT_MISMATCH, True)
    # Without the learner's signature nothing of the study can be changed.
    forged = replace(envelope, payload=altered.payload)
    with pytest.raises(WireError) as caught:
        ada.world.open(forged)
    assert caught.value.code is Code.SIGNATURE_INVALID


def test_an_explanation_says_that_the_study_is_over(world, tmp_path):
    """While it waited for a person."""
    ada, now = ada_at(world, tmp_path, approval={"everything": True}), time.time()
    study = replace(STUDY, ends=datetime.fromtimestamp(now + DAY_S, UTC).date())
    lasting = {"paillier_key": world.certificate(10 * DAY_S), "not_after_unix_s": int(now) + 5 * DAY_S}
    envelope = world.ask(statistic(world, study=study, features=FEATURES, **lasting))
    ada.go(envelope)
    config = PartyConfig.load(tmp_path / "party.toml")
    with HistoryReader(config) as reader:
        for later_s, said in ((0, ""), (3 * DAY_S, f"It ended on {study.ends}")):
            assert said in explain(config, reader, envelope.payload_hash.hex(), now + later_s).refusal
        assert explain(config, reader, envelope.payload_hash.hex(), now).refusal == ""
