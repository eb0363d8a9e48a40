"""An operator with the federation key fills the roster, and cohorts, with parties that it runs itself.

Live: a party counts only members whose fingerprints its policy lists, however many others sign acceptances.
"""

import json
import sqlite3
import time
from contextlib import closing
from fractions import Fraction

import pytest

from dpcore.predicates.notation import parse
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.requests import StatisticRequest
from learner.session import AttemptLostError, Session
from radofed.node_config import PolicyChoices
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation
from tests.waiting import HANG_S, wait_until

ROWS = "age,smoker,stayed\n" + "40,yes,yes\n" * 10
HONEST, SYBILS = ("ada", "bo", "cy"), ("s1", "s2", "s3")
# c = 1 and h = 2: a cohort needs three accepted members.
POLICY = PolicyChoices(
    designs=("statistic",), smallest_cohort=3, assumed_colluders=1, epsilon="100", delta="1e-5", required_witnesses=0
)


@pytest.fixture
def federation(tmp_path):
    parties = dict.fromkeys((*HONEST, *SYBILS), ROWS)
    with ProcessFederation(tmp_path, parties=parties, schema=STAYS.to_toml(), policy=POLICY) as made:
        for name in HONEST:
            accept_only(made, name, HONEST)
        create_key(made.learner.directory / "paillier.jwk", bits=2048)
        made.start("coordinator")
        wait_until(lambda: '"listening"' in made.log("coordinator"), what="the coordinator")
        yield made


def accept_only(federation: ProcessFederation, name: str, accepted) -> None:
    """Leave these members' fingerprints in a party's policy, and no other."""
    policy = federation.directory(name) / "policy.toml"
    lines = policy.read_text().splitlines()
    unwanted = {f"# {member.name}" for member in federation.made.members if member.name not in accepted}
    kept = [line for line in lines if not (line.startswith('  "') and line[line.index("# ") :] in unwanted)]
    assert len(kept) < len(lines)
    policy.write_text("\n".join(kept) + "\n")


def start(federation: ProcessFederation, *names: str) -> None:
    """Start parties, and wait until the coordinator knows what their nodes can do."""
    for name in names:
        federation.start(name)
    for name in names:
        wait_until(lambda name=name: '"roster accepted"' in federation.log(name), what=name)


def request(**changes) -> StatisticRequest:
    fields = {"epsilon": Fraction(1), "pure": True, "cohort_min": 3, "colluders": 1, "quorum_wait_s": 10}
    # Noise that follows the cohort would count the others as colluding.
    fields |= {"cohort_noise": "smallest"}
    fields |= {"answer_within_s": 300, "prepare_within_s": 300, "upload_within_s": 300}
    return StatisticRequest(STAYS, (parse('x["smoker"]'),), **fields | changes)


def charges(federation: ProcessFederation, name: str) -> int:
    path = federation.directory(name) / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
        return ledger.execute("SELECT COUNT(*) FROM events WHERE state = 'charged'").fetchone()[0]


def refusals(federation: ProcessFederation, name: str, event: str) -> list[str]:
    lines = [json.loads(line) for line in federation.log(name).splitlines()]
    return [line["code"] for line in lines if line["event"] == event]


def test_a_cohort_full_of_sybils_gets_nothing_of_a_party(federation):
    """The cohort has four members, three of them the operator's; ada counts itself. Later two members that it knows."""
    start(federation, "ada", *SYBILS)
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        plan = wait_until(lambda: planned(session), what="the statements of features")
        query_id = session.ask(plan)
        with pytest.raises(AttemptLostError, match=r"gave up: ada \(POLICY_COHORT\)"):
            session.watch(query_id, timeout_s=HANG_S)
        # Ada accepted, as the roster has two more members that it accepts, and refused this cohort without them.
        assert refusals(federation, "ada", "cohort refused") == ["POLICY_COHORT"]
        assert charges(federation, "ada") == 0
        # Ada's refusal ends the attempt at once: the others were charged if they came before it. They may still be
        # at it, so that only the end shows what the attempt cost them.
        assert max(charges(federation, name) for name in SYBILS) <= 1
        start(federation, "bo", "cy")
        assert session.retry(query_id) == 2
        session.watch(query_id, timeout_s=HANG_S)
        release = session.fetch(query_id)
        # The operator's parties may be in it; they do not count.
        assert set(release.party_rows) == {*HONEST, *SYBILS}
        assert [charges(federation, name) for name in HONEST] == [1, 1, 1]
        assert all(charges(federation, name) in (1, 2) for name in SYBILS)


def planned(session: Session, **changes):
    """A plan once enough parties have stated their features."""
    try:
        return session.plan(request(**changes))
    except Exception:  # noqa: BLE001 (tried again)
        return None


def test_a_party_that_accepts_too_few_members_of_the_roster_refuses_before_it_computes(federation):
    accept_only(federation, "ada", ("ada", "bo"))
    start(federation, "ada", *SYBILS)
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        plan = wait_until(lambda: planned(session), what="the statements of features")
        session.ask(plan)
        wait_until(lambda: refusals(federation, "ada", "refused"), what="the refusal")
        assert refusals(federation, "ada", "refused") == ["POLICY_COHORT"]
        assert '"accepted"' not in federation.log("ada")


def test_sybils_are_no_witnesses_of_a_ledger(federation):
    """They answer the party's challenge; it waits for a member that it accepts."""
    policy = federation.directory("ada") / "policy.toml"
    assert "required_witnesses = 0" in policy.read_text()
    policy.write_text(policy.read_text().replace("required_witnesses = 0", "required_witnesses = 1"))
    start(federation, "ada", *SYBILS)
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        session.ask(wait_until(lambda: planned(session, quorum_wait_s=None), what="statements"))
        for name in SYBILS:
            wait_until(lambda name=name: '"accepted"' in federation.log(name), what=name)
        time.sleep(2)
        assert '"accepted"' not in federation.log("ada")
        start(federation, "bo")
        wait_until(lambda: '"accepted"' in federation.log("ada"), what="ada's answer")
