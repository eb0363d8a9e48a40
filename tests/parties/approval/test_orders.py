"""Orders about approvals of several queries: by the node's user beside the node, and by other users in files."""

import re
import time
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from parties.approval.decision_files import DecisionFiles
from parties.approval.decisions import DecisionError, Delegates, Person
from parties.approval.giving import MOST_QUESTIONS, NO_SUBJECT, Do, Order, do, proposed
from parties.approval.standing import Covers
from parties.config import PartyConfig
from parties.policy import ApprovalRules
from tests.federation.party import Ada
from tests.federation.processes import rado
from tests.parties.answering.test_standing_approvals import DAY_S, asked, in_study, round_of, standing, waits
from tests.parties.approval.test_files import FIRST, SECOND, act_as, as_root, shared
from tests.parties.report.report_world import SCHEMA, ada_at, old, records, statistic
from tests.parties.report.report_world import policy as statistics_policy
from wire.status import PartyState

pytestmark = pytest.mark.usefixtures("small_comb")
__all__ = ["shared"]
WIDE = {"epsilon": "1000", "delta": "1e-3"}


@pytest.fixture
def asking(world, tmp_path, shared):
    """A party that asks two people about everything; they are other users."""
    rules = ApprovalRules(everything=True, approvers=2, users=(f"user {FIRST}", f"user {SECOND}"))
    files = DecisionFiles(shared, world.query().federation, "ada")
    policy = statistics_policy(world, limits=WIDE, approval=rules)
    return Ada(world, tmp_path, records=records(), schema=SCHEMA, policy=policy, decision_files=files)


@pytest.fixture
def beside(world, tmp_path):
    """A party whose commands run beside it."""
    ada = ada_at(world, tmp_path, approval={"everything": True}, limits=WIDE)
    text = (tmp_path / "policy.toml").read_text()
    if "[approval]" not in text:
        (tmp_path / "policy.toml").write_text(f"{text}\n[approval]\neverything = true\n")
    return ada


def take(ada) -> None:
    ada.lifecycle.gate.take_decisions(ada.lifecycle.policy)


def order(ada, uid: int, subject: bytes, wanted: Order, reason: str = "") -> tuple[bool, str]:
    """Leave an order as another user, and what the node says of it."""
    files = ada.decision_files

    def left() -> float:
        return files.leave(subject, approves=True, name="", reason=reason, order=wanted.to_dict())

    since = act_as(uid, left)
    take(ada)
    return act_as(uid, lambda: files.outcome(subject, since))


TRAINING = Order(Do.APPROVE, Covers.TRAINING)


@as_root
def test_two_users_approve_a_training_and_one_revokes_it(asking):
    envelope = asked(asking, round_of(asking.world))
    take(asking)
    counted, words = order(asking, FIRST, envelope.payload_hash, TRAINING)
    assert counted
    assert "1 of 2 approvals" in words
    asking.go(envelope, state=PartyState.PENDING)
    assert waits(asking, envelope)
    # Others see the proposal, and confirm it by its id.
    (shown,) = act_as(SECOND, asking.decision_files.approvals)
    approval_id = bytes.fromhex(shown["approval_id"])
    counted, words = order(asking, SECOND, approval_id, Order(Do.CONFIRM))
    assert "in force" in words
    asking.go(envelope, state=PartyState.PENDING)
    assert asking.state(envelope) is not None
    counted, words = order(asking, FIRST, approval_id, Order(Do.REVOKE), "enough")
    assert (counted, "revoked" in words) == (True, True)
    (found,) = standing(asking).all(asking.lifecycle.policy)
    assert [re.sub(r", 20[-\d]+ [\d:]+ UTC", ", WHEN", line) for line in found.people] == [
        f"approved by user {FIRST}, WHEN",
        f"approved by user {SECOND}, WHEN",
        f"revoked by user {FIRST}, WHEN: enough",
    ]
    assert waits(asking, asked(asking, round_of(asking.world, old()[0])))


@pytest.mark.more
@as_root
def test_who_is_not_listed_orders_nothing(asking):
    envelope = asked(asking, round_of(asking.world))
    take(asking)
    for wanted in (TRAINING, Order(Do.DELEGATE, user="root", until_unix_s=time.time() + DAY_S)):
        counted, words = order(asking, 54_077, envelope.payload_hash, wanted)
        assert not counted
        assert "not among the users" in words
    assert standing(asking).all(asking.lifecycle.policy) == []


@as_root
@pytest.mark.more
@pytest.mark.parametrize(
    "content", [{"do": "open"}, {"user": 7}, {"epsilon": 7}, {"questions": "all"}, {"questions": [7]}]
)
def test_what_is_no_order_does_not_count(asking, content):
    envelope = asked(asking, round_of(asking.world))
    take(asking)

    def left() -> float:
        written = TRAINING.to_dict() | content
        return asking.decision_files.leave(envelope.payload_hash, approves=True, name="", reason="", order=written)

    since = act_as(FIRST, left)
    take(asking)
    counted, words = act_as(FIRST, lambda: asking.decision_files.outcome(envelope.payload_hash, since))
    assert not counted
    assert "no order" in words


@as_root
def test_a_delegate_decides_in_place_of_who_named_them(asking):
    """And the two are one person: with both, one of two approvals is there."""
    envelope = asked(asking, round_of(asking.world))
    take(asking)
    third = "user 54077"
    until = time.time() + DAY_S
    counted, words = order(asking, FIRST, NO_SUBJECT, Order(Do.DELEGATE, user=third, until_unix_s=until), "away")
    assert counted, words
    counted, words = order(asking, 54_077, envelope.payload_hash, TRAINING)
    assert (counted, "1 of 2" in words) == (True, True)
    (found,) = standing(asking).all(asking.lifecycle.policy)
    (line,) = found.people
    assert line.startswith(f"approved by {third} for user {FIRST}, 20")
    counted, words = order(asking, FIRST, found.approval_id, Order(Do.CONFIRM))
    assert "1 of 2" in words
    counted, words = order(asking, SECOND, found.approval_id, Order(Do.CONFIRM))
    assert "in force" in words
    # Once it is over, they decide no more.
    counted, words = order(asking, FIRST, NO_SUBJECT, Order(Do.UNDELEGATE))
    assert counted
    other = asked(asking, in_study(asking.world))
    take(asking)
    counted, words = order(asking, 54_077, other.payload_hash, Order(Do.APPROVE, Covers.STUDY, "1"))
    assert (counted, "not among the users" in words) == (False, True)


RULES = ApprovalRules(everything=True, users=("root", "daemon", "sign-on:ann@example.org"))


@pytest.mark.parametrize(
    ("who", "user", "ahead_s", "words"),
    [
        ("nobody", "bin", DAY_S, "only they name a delegate"),
        ("root", "daemon", DAY_S, "no one decides for two"),
        ("root", "no-such-user", DAY_S, "no user of this machine"),
        ("root", "sign-on:bob@example.org", DAY_S, "may be one person"),
        ("sign-on:ann@example.org", "bin", DAY_S, "may be one person"),
        ("root", "bin", -1, "until a moment in the future"),
        ("root", "bin", 93 * DAY_S, "within 92 days"),
    ],
)
def test_a_delegation_that_does_not_count(ada, who, user, ahead_s, words):
    policy, now = ada.lifecycle.policy.model_copy(update={"approval": RULES}), time.time()
    delegates = Delegates(ada.history.database)
    with pytest.raises(DecisionError, match=words):
        delegates.name(Person(who), user, now + ahead_s, "", policy, now)
    assert delegates.all() == []


def test_a_delegation_holds_for_its_time(ada):
    policy = ada.lifecycle.policy.model_copy(update={"approval": RULES})
    delegates, now = Delegates(ada.history.database), 1e9
    delegates.name(Person("root"), "bin", now + 10, "away", policy, now)
    assert delegates.seated(Person("bin"), policy, now + 9).acts_for == "root"
    assert delegates.seated(Person("bin"), policy, now + 10).acts_for == ""
    # Another delegate takes the place of the first.
    delegates.name(Person("root"), "sys", now + 10, "", policy, now)
    assert delegates.seated(Person("bin"), policy, now + 1).acts_for == ""
    # Who is not on the list any more has no delegate.
    without = policy.model_copy(update={"approval": RULES.model_copy(update={"users": ("daemon",)})})
    assert delegates.seated(Person("sys"), without, now + 1).acts_for == ""


def test_a_delegation_ends_whatever_letters_a_name_has(ada):
    policy = ada.lifecycle.policy.model_copy(update={"approval": ApprovalRules(users=("Große Äsche",))})
    delegates, now = Delegates(ada.history.database), 1e9
    delegates.name(Person("Große Äsche"), "bin", now + 10, "", policy, now)
    assert delegates.end(Person("Große Äsche"), now + 1) == 1
    assert delegates.seated(Person("bin"), policy, now + 2).acts_for == ""


# The commands of the node's user.


def at(ada) -> tuple[str, str]:
    return "--config", str(ada.directory / "party.toml")


def test_the_commands_give_list_and_revoke(beside):
    envelope = asked(beside, round_of(beside.world))
    digits = envelope.payload_hash.hex()
    beside.history.database.flush()
    shown = rado("party", "explain", digits, *at(beside))["data"]
    assert shown["asked"]["training"].startswith('training of newton with "rounds=3": at most epsilon 30')
    given = rado("party", "approve", digits[:12], *at(beside), "--for", "training", "--epsilon", "20")["data"]
    assert (given["in_force"], given["terms"]["epsilon"]) == (True, "20")
    (listed,) = rado("party", "approvals", *at(beside))["data"]["approvals"]
    assert listed["approval_id"] == given["approval_id"]
    beside.go(envelope, state=PartyState.PENDING)
    assert beside.state(envelope) is not None
    revoked = rado("party", "revoke", given["approval_id"][:10], *at(beside), "--reason", "over")["data"]
    assert revoked["state"] == "revoked"
    assert rado("party", "approvals", *at(beside))["data"]["approvals"] == []
    assert len(rado("party", "approvals", "--all", *at(beside))["data"]["approvals"]) == 1
    # Twice is none.
    rado("party", "revoke", given["approval_id"][:10], *at(beside), code=1)
    assert beside.ledger.verify() == []


def test_a_list_of_questions_comes_from_a_file(beside, tmp_path):
    envelope = asked(beside, statistic(beside.world))
    questions = tmp_path / "questions.txt"
    questions.write_text('# of the board of 3 May\nx["smoker"]\nx["age"] >= 65 & x["smoker"]  # pensioners\n')
    words = ("--for", "questions", "--questions", str(questions))
    digits = envelope.payload_hash.hex()
    rado("party", "approve", digits, *at(beside), *words, code=4)
    given = rado("party", "approve", digits, *at(beside), *words, "--epsilon", "3", "--until", _tomorrow())["data"]
    assert given["terms"]["questions"] == ['(x["age"] >= 65) & x["smoker"]', 'x["smoker"]']
    beside.go(envelope, state=PartyState.PENDING)
    assert beside.state(envelope) is not None


def _tomorrow() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + DAY_S))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--for", "everything"), 4),
        (("--epsilon", "1"), 4),
        (("--for", "training", "--epsilon", "31"), 4),
        (("--for", "training", "--epsilon", "much"), 4),
        (("--for", "training", "--until", "2020-01-01"), 4),
        (("--for", "study"), 4),
        (("--for", "study", "--epsilon", "1"), 4),
        (("--for", "questions", "--questions", "/no/such/file", "--epsilon", "1"), 4),
    ],
)
@pytest.mark.more
def test_what_cannot_be_approved_is_a_sentence(beside, words, code):
    envelope = asked(beside, round_of(beside.world))
    rado("party", "approve", envelope.payload_hash.hex(), *at(beside), *words, code=code)
    assert standing(beside).all(beside.lifecycle.policy) == []


def test_a_query_that_waits_no_longer_or_a_policy_that_changed_gives_nothing(beside):
    config = PartyConfig.load(beside.directory / "party.toml")
    envelope = asked(beside, round_of(beside.world))
    digits = envelope.payload_hash.hex()
    with pytest.raises(DecisionError, match="policy changed"):
        do(config, TRAINING, digits, Person("root"), policy_seen="other")
    beside.lifecycle.end_queries({envelope.payload_hash})
    beside.lifecycle.gate.gone(envelope.payload_hash, 1)
    with pytest.raises(DecisionError, match="does not wait"):
        do(config, TRAINING, digits, Person("root"))
    with pytest.raises(ConfigurationError, match="no approval begins"):
        do(config, Order(Do.REVOKE), "abc", Person("root"))


def test_an_order_says_what_it_needs(beside):
    envelope = asked(beside, in_study(beside.world))
    with pytest.raises(ConfigurationError, match="needs an epsilon"):
        proposed(Order(Do.APPROVE, Covers.STUDY), envelope, time.time())
    with pytest.raises(ConfigurationError, match="give both"):
        proposed(Order(Do.APPROVE, Covers.QUESTIONS, "1"), envelope, time.time())
    with pytest.raises(ConfigurationError, match="give both"):
        proposed(Order(Do.APPROVE, Covers.QUESTIONS, None, time.time() + 10), envelope, time.time())
    with pytest.raises(ConfigurationError, match="names no training"):
        proposed(TRAINING, envelope, time.time())
    with pytest.raises(ConfigurationError, match="has no question"):
        proposed(Order(Do.APPROVE, Covers.QUESTIONS, "1", time.time() + 10), envelope, time.time())
    with pytest.raises(ConfigurationError, match="names no study"):
        proposed(Order(Do.APPROVE, Covers.STUDY, "1"), asked(beside, statistic(beside.world, *old())), time.time())
    with pytest.raises(ConfigurationError, match="above 0"):
        proposed(Order(Do.APPROVE, Covers.STUDY, "0"), envelope, time.time())
    with pytest.raises(ConfigurationError, match="no number"):
        Order(Do.APPROVE, epsilon="1/0")
    with pytest.raises(ConfigurationError, match="no number"):
        Order(Do.APPROVE, epsilon="1e999")
    for until in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="is no time"):
            Order(Do.APPROVE, until_unix_s=until)
    for user in ("a\0", "a" * 257):
        with pytest.raises(ConfigurationError, match="printable characters"):
            Order(Do.DELEGATE, user=user)
    with pytest.raises(ConfigurationError, match="at most 1000 questions"):
        Order(Do.APPROVE, questions=("y == 1",) * (MOST_QUESTIONS + 1))
    with pytest.raises(ConfigurationError, match="at most 100000 queries"):
        Order(Do.APPROVE, queries=-1)
    assert proposed(Order(Do.APPROVE, Covers.STUDY, "1/3"), envelope, time.time()).epsilon == str(Fraction(1, 3))


@pytest.mark.variants(1)
@as_root
@pytest.mark.parametrize(
    "content",
    [
        {"epsilon": "1e999999999"},
        {"until_unix_s": float("nan")},
        {"until_unix_s": 10**400},
        {"queries": float("inf")},
    ],
)
def test_numbers_of_other_users_that_have_no_room_stop_nothing(asking, content):
    """Of any user who may write in the directory: the node would be busy with them, or stop at each poll."""
    envelope = asked(asking, round_of(asking.world))
    take(asking)

    def left() -> float:
        written = Order(Do.APPROVE, Covers.TRAINING).to_dict() | content
        return asking.decision_files.leave(envelope.payload_hash, approves=True, name="", reason="", order=written)

    since = act_as(54_077, left)
    take(asking)
    counted, _words = act_as(54_077, lambda: asking.decision_files.outcome(envelope.payload_hash, since))
    assert (counted, standing(asking).all(asking.lifecycle.policy)) == (False, [])


@pytest.mark.variants(1)
@as_root
@pytest.mark.parametrize("name", [f"decision-{'ab' * 117}-54077.json", f"decision-{'ab' * 32}-{'9' * 175}.json"])
def test_a_name_that_no_command_gives_stops_no_other_decision(asking, name):
    envelope = asked(asking, round_of(asking.world))
    take(asking)
    act_as(54_077, lambda: (asking.decision_files.directory / name).write_text("{}"))
    counted, words = order(asking, FIRST, envelope.payload_hash, TRAINING)
    assert (counted, "1 of 2 approvals" in words) == (True, True)


@pytest.mark.more
@as_root
def test_a_delegate_without_a_name_does_not_count(asking):
    until = time.time() + DAY_S
    counted, words = order(asking, FIRST, NO_SUBJECT, Order(Do.DELEGATE, user="sys", until_unix_s=until))
    assert counted, words

    def left() -> float:
        written = Order(Do.DELEGATE, until_unix_s=until).to_dict() | {"user": "a\0b"}
        return asking.decision_files.leave(NO_SUBJECT, approves=True, name="", reason="", order=written)

    since = act_as(FIRST, left)
    take(asking)
    counted, words = act_as(FIRST, lambda: asking.decision_files.outcome(NO_SUBJECT, since))
    assert (counted, "printable" in words) == (False, True)


@pytest.mark.more
@as_root
def test_a_reason_that_cannot_be_kept_does_not_count(asking):
    envelope = asked(asking, round_of(asking.world))
    take(asking)
    counted, words = order(asking, FIRST, envelope.payload_hash, TRAINING, "\ud800")
    assert (counted, "does not count" in words) == (False, True)


@as_root
def test_who_decides_in_files_is_asked_whether_a_study_is_one_of_another_spelling(asking):
    envelope = asked(asking, in_study(asking.world, protocol_number="EK 2026/17"))
    other = asked(asking, in_study(asking.world, protocol_number="EK2026-17"))
    take(asking)

    def asked_of() -> dict[str, list[str]]:
        return {each.query_id.hex(): list(each.same_study) for each in asking.decision_files.waiting()}

    shown = act_as(FIRST, asked_of)
    (sentence,) = shown[other.payload_hash.hex()]
    assert sentence.startswith('a study with the number "EK 2026/17" exists, nothing spent; is "EK2026-17" the same?')
    assert "each has a budget of its own" in sentence
    # Which of both is the right one is not for the node to say: it asks at each.
    assert len(shown[envelope.payload_hash.hex()]) == 1
    counted, _ = order(asking, FIRST, other.payload_hash, Order(Do.APPROVE, Covers.STUDY, epsilon="2"))
    assert counted
    (proposal,) = act_as(SECOND, asking.decision_files.approvals)
    assert proposal["same_study"] == [sentence]
