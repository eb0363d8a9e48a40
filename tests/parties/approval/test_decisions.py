"""People's decisions: whose counts, how many are needed, what comes too late."""

import os
import pwd
import threading

import pytest

from parties.approval.decisions import Decision, DecisionError, Decisions, Person, Verdict, counted, why_not
from parties.history.database import HistoryDatabase
from parties.policy import ApprovalRules, PinnedLearner, Policy

QUERY = b"q" * 32
KEY = "ab" * 32


@pytest.fixture
def decisions(tmp_path):
    database = HistoryDatabase(tmp_path / "history.sqlite", federation="clinics", party="ada")
    yield Decisions(database)
    database.close()


def policy(*, requesters=(), **rules) -> Policy:
    learner = PinnedLearner(name="lea", signing_key=KEY, requesters=requesters)
    return Policy(learners=(learner,), approval=ApprovalRules(everything=True, **rules))


def decide(decisions, person, *, approves=True, under=None, still_waits=True, reason=""):
    decision = Decision(person, approves, reason, 1.0)
    return decisions.decide(QUERY, "lea", under or policy(), decision, still_waits=still_waits)


ANN, BOB, CAT = (Person(user, name) for user, name in (("officer", "Ann"), ("second", "Bob"), ("third", "Cat")))


def test_one_approval_approves(decisions):
    assert decisions.decided(QUERY, "lea", policy()).verdict is Verdict.UNDECIDED
    assert decide(decisions, ANN, reason="as agreed").verdict is Verdict.APPROVED
    (kept,) = decisions.of(QUERY)
    assert (kept.person, kept.approves, kept.reason) == (ANN, True, "as agreed")
    assert str(kept) == "approved by Ann (officer): as agreed"
    assert decisions.decided(b"r" * 32, "lea", policy()).verdict is Verdict.UNDECIDED


def test_two_names_of_one_user_are_one_person_also_where_names_are_asked_for(decisions):
    """Anybody can type a name."""
    two = policy(approvers=2, names=True)
    assert decide(decisions, ANN, under=two).verdict is Verdict.UNDECIDED
    with pytest.raises(DecisionError, match=r"Ann.* decided so already, and another name is no other person"):
        decide(decisions, Person("officer", "Bob"), under=two)
    found = decide(decisions, BOB, under=two)
    assert (found.verdict, found.counted, found.needed) == (Verdict.APPROVED, 2, 2)


def test_two_names_of_one_user_are_one_person_where_no_names_are_asked_for(decisions):
    two = policy(approvers=2)
    decide(decisions, ANN, under=two)
    with pytest.raises(DecisionError, match="another name is no other person"):
        decide(decisions, Person("officer", "Bob"), under=two)
    # Again without a name, or with the same one, changes nothing.
    assert decide(decisions, Person("officer"), under=two).counted == 1
    assert decide(decisions, ANN, under=two).verdict is Verdict.UNDECIDED
    assert decide(decisions, Person("second"), under=two).verdict is Verdict.APPROVED


def test_one_refusal_refuses(decisions):
    two = policy(approvers=2, names=True)
    decide(decisions, ANN, under=two)
    assert decide(decisions, BOB, approves=False, under=two).verdict is Verdict.REFUSED
    with pytest.raises(DecisionError, match=r"already refused, by Ann \(officer\), Bob \(second\)"):
        decide(decisions, CAT, under=two)


def test_an_approval_may_be_taken_back_while_the_query_waits(decisions):
    two = policy(approvers=2, names=True)
    decide(decisions, ANN, under=two)
    assert decide(decisions, ANN, approves=False, under=two).verdict is Verdict.REFUSED
    assert [each.approves for each in decisions.of(QUERY)] == [False]


def test_a_refusal_stays(decisions):
    decide(decisions, ANN, approves=False)
    with pytest.raises(DecisionError, match="already refused"):
        decide(decisions, ANN)


@pytest.mark.parametrize("person", [Person("lea-staff"), Person("officer", "Dr Lea"), Person("LEA-Staff", "Ann")])
@pytest.mark.parametrize("approves", [True, False])
def test_who_asks_does_not_decide(decisions, person, approves):
    with pytest.raises(DecisionError, match="does not decide on its queries"):
        decide(decisions, person, approves=approves, under=policy(requesters=("lea-staff", "dr lea")))
    assert decisions.of(QUERY) == []


def test_a_name_is_asked_for(decisions):
    with pytest.raises(DecisionError, match="--name"):
        decide(decisions, Person("officer"), under=policy(names=True))
    assert decisions.of(QUERY) == []


def test_a_query_that_does_not_wait_is_not_decided_on(decisions):
    with pytest.raises(DecisionError, match="does not wait"):
        decide(decisions, ANN, still_waits=False)
    assert decisions.of(QUERY) == []


def test_the_policy_of_the_moment_counts(decisions):
    decide(decisions, Person("officer"))
    assert decisions.decided(QUERY, "lea", policy()).verdict is Verdict.APPROVED
    stricter = {
        "two": policy(approvers=2),
        "named": policy(names=True),
        "without those who ask": policy(requesters=("officer",)),
    }
    for rules in stricter.values():
        assert decisions.decided(QUERY, "lea", rules).verdict is Verdict.UNDECIDED


def test_people_who_decide_at_once_are_all_counted(decisions):
    people, rules = [Person(f"user {n}", f"person {n}") for n in range(8)], policy(approvers=8, names=True)
    start = threading.Barrier(len(people))

    def one(person):
        start.wait()
        decide(decisions, person, under=rules)

    threads = [threading.Thread(target=one, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decisions.decided(QUERY, "lea", rules).verdict is Verdict.APPROVED


@pytest.mark.parametrize("name", ["a\nb", "x" * 501])
def test_a_name_that_cannot_be_shown_is_refused(name):
    with pytest.raises(DecisionError, match="printable"):
        Person.present(name)


def test_a_person_is_the_real_user_whatever_the_environment_says(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "alice")
    assert Person.present("Ann Lee") == Person(pwd.getpwuid(os.getuid()).pw_name, "Ann Lee")


def test_only_the_users_that_the_policy_names_decide(decisions):
    named = policy(users=("second", "Third"))
    with pytest.raises(DecisionError, match="not among the users who decide"):
        decide(decisions, ANN, under=named)
    assert decide(decisions, CAT, under=named).verdict is Verdict.APPROVED
    # Of a time when anybody could decide.
    assert decisions.decided(QUERY, "lea", policy(users=("second",))).verdict is Verdict.UNDECIDED


def test_who_signed_on_does_not_count_beside_a_user_of_this_machine():
    """They may be one person, also where the policy asked for one approval when the console started."""
    ann, bob = Person("sign-on:ann@example.org"), Person("sign-on:bob@example.org")
    assert len(counted([ann, Person("ann")])) == 1
    assert counted([Person("ann"), ann, bob]) == [ann, bob]
    assert len(counted([Person("bob", acts_for=ann.user), bob])) == 1


def test_a_delegate_of_who_asks_does_not_decide():
    """Also where the policy names who asks by the identity alone."""
    delegate = Person("sign-on:bob@example.org", acts_for="sign-on:ann@example.org")
    assert "does not decide on its queries" in why_not(delegate, "lea", policy(requesters=["ann@example.org"]))
