"""The life of a query at the party, with a coordinator that follows the test: honest, late, or lying."""

import errno
import os
import secrets
from dataclasses import replace
from fractions import Fraction

import pytest

import parties.answering.decisions
from dpcore.accounting.dp_feat import own_epsilon
from dpcore.accounting.filters import NO_LOSS
from dpcore.errors import PlanError
from dpcore.randomness.sources import SeededRandom, SeededRandomRefusedError
from dpcore.records.computation import PartySecret
from parties.answering.attempts import AttemptState
from parties.answering.coordinator_calls import StoppedError
from parties.answering.decisions import Party
from parties.answering.lifecycle import QueryLifecycle
from parties.ledger.charges import RECORD
from radobase.logs import Log
from tests.federation.party import (
    OPENING,
    SCHEMA,
    SMOKER,
    Ada,
    World,
    make_records,
    ready,
    refused_with,
    reserved,
    spent,
)
from wire.binding import Binding, OpeningSecret
from wire.cohort import Ready, open_statement
from wire.envelopes import sha256
from wire.errors import Code, ConnectionLostError, WireError
from wire.query import Query
from wire.status import PartyState, Phase
from wire.upload import upload_digest

S = AttemptState
OTHER = OpeningSecret(bytes(range(1, 33)))
pytestmark = pytest.mark.usefixtures("small_comb")


def test_a_query_from_start_to_end(ada):
    envelope, cohort = ready(ada)
    assert spent(ada) == 0
    assert ada.hub.accepted == [True]
    said, _ = open_statement(Ready, ada.hub.readies[0], ada.world.roster)
    assert (said.query_id, said.attempt, said.party) == (envelope.payload_hash, 1, "ada")
    assert not ada.hub.chunks
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED
    assert spent(ada) == Fraction(own_epsilon(40, 20, None, Fraction(1, 10**6)))
    assert ada.ledger.spent(SMOKER).delta == Fraction(1, 10**6)
    receipt = ada.hub.opened_receipt()
    sent = [chunks[0] for _, chunks in sorted(ada.hub.chunks.items())]
    assert receipt.upload_digest == upload_digest([sha256(chunk) for chunk in sent])
    assert receipt.cohort_digest == cohort.digest
    assert (receipt.chunks, receipt.ciphertexts) == (len(sent), ada.world.open(envelope).ciphertexts)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.COMPLETE, state=PartyState.UPLOADED))
    assert ada.state(envelope) is S.ENDED
    assert spent(ada) > 0
    assert ada.spools.used_bytes() == 0


def test_a_restored_coordinator_gets_the_same_statements_and_bytes_again_for_one_charge(ada):
    """Its backup is of before the acceptance. It may form the same cohort again, and no other."""
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    before, (receipt,) = spent(ada), ada.hub.receipts
    ada.go(envelope)
    ada.go(envelope, phase=Phase.PREPARING, state=PartyState.ACCEPTED)
    assert ada.hub.answers == [cohort.acceptances[0]] * 2
    assert len(set(ada.hub.readies)) == 1 < len(ada.hub.readies)
    other = ada.world.cohort(ada.hub.answers[0])
    assert other.digest != cohort.digest
    ada.upload(envelope, other)
    assert ada.hub.receipts == [receipt]
    ada.upload(envelope, cohort)
    assert ada.hub.receipts == [receipt] * 2
    assert all(len(set(chunks)) == 1 for chunks in ada.hub.chunks.values())
    assert (spent(ada), ada.state(envelope)) == (before, S.UPLOADED)


def test_plain_rados_are_recorded_as_without_a_bound(ada):
    envelope, cohort = ready(ada, ada.world.plain_query())
    ada.upload(envelope, cohort)
    state = ada.ledger.state()
    assert (state.unbounded_charged, ada.ledger.spent(RECORD)) == (1, NO_LOSS)
    assert "without any privacy bound for whole records" in state.warning
    # The release of a boolean feature's own values still has a bound.
    assert spent(ada) > 0


def test_a_repeated_answer_is_the_same_bytes_after_a_restart(ada):
    envelope = ada.world.ask()
    ada.hub.fail["answer"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.lifecycle.advance(ada.work(envelope))
    held = ada.attempts.find(envelope.payload_hash, 1)
    ada.restart()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    assert ada.hub.answers == [held.answer]
    ada.lifecycle.advance(work)
    assert len(ada.hub.answers) == 1
    # Newer work that awaits the answer is of a coordinator that has lost it.
    ada.lifecycle.advance(ada.work(envelope))
    assert ada.hub.answers == [held.answer] * 2


def test_a_party_that_said_that_a_person_decides_still_answers(ada):
    """Also after a restart: the coordinator's work then shows that state."""
    envelope = ada.world.ask()
    assert ada.lifecycle.advance(ada.work(envelope, state=PartyState.PENDING))
    assert ada.hub.accepted == [True]


def test_an_answer_that_came_too_late_is_not_computed_for(ada):
    ada.hub.fail["answer"] = [refused_with(Code.PHASE_MISMATCH)]
    envelope = ada.world.ask()
    assert not ada.go(envelope)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.FAILED))
    assert ada.state(envelope) is S.ENDED
    assert reserved(ada) == 0


def test_work_past_the_answering_phase_is_ignored(ada):
    for phase in (Phase.PREPARING, Phase.UPLOADING, Phase.ADDING, Phase.COMPLETE, Phase.FAILED):
        assert not ada.go(ada.world.ask(), phase=phase)
    assert not ada.go(ada.world.ask(), state=PartyState.REFUSED)
    assert ada.hub.answers == []


def test_a_lost_ready_is_sent_again_after_a_restart(ada):
    envelope = ada.world.ask()
    ada.hub.fail["ready"] = [ConnectionLostError("hub", "cut")]
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    ada.lifecycle.compute(work)
    with pytest.raises(ConnectionLostError):
        ada.lifecycle.advance(work)
    ada.restart()
    assert not ada.lifecycle.advance(ada.work(envelope, phase=Phase.PREPARING, state=PartyState.ACCEPTED))
    assert len(ada.hub.readies) == 1


def sealed(world: World, *, without: str = "", **others: OpeningSecret) -> Query:
    """A query with a seed for each party but one. others: the secrets from which some get another seed."""
    nonce, members = secrets.token_bytes(16), {member.name: member for member in world.roster.parties}
    members.pop(without, None)
    binding = Binding.seal(OPENING, list(members.values()), nonce)
    seeds = dict(binding.sealed_seeds)
    for name, other in others.items():
        # What the opening key of the query agrees on, applied to another seed.
        pad = bytes(a ^ b for a, b in zip(seeds[name], OPENING.seed, strict=True))
        seeds[name] = bytes(a ^ b for a, b in zip(pad, other.seed, strict=True))
    return world.query(nonce=nonce, binding=replace(binding, sealed_seeds=tuple(sorted(seeds.items()))))


def test_a_query_with_one_seed_for_all_is_answered(ada):
    envelope = ada.world.ask(sealed(ada.world))
    assert ada.go(envelope)
    assert ada.state(envelope) is S.READY


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (lambda world: sealed(world, without="ada"), Code.PARTY_NOT_ASKED),
        (lambda world: sealed(world, ada=OTHER), Code.SEED_MISMATCH),
        (lambda world: replace(sealed(world), nonce=secrets.token_bytes(16)), Code.SEED_MISMATCH),
        (
            lambda world: replace(made := sealed(world), binding=replace(made.binding, commitment=bytes(32))),
            Code.SEED_MISMATCH,
        ),
    ],
    ids=["no seed", "another seed than the others", "a binding of another query", "a commitment to another seed"],
)
def test_a_query_with_another_seed_for_this_party_is_refused_and_not_charged(ada, query, code):
    """With unequal seeds the learner solves for one party's values (dpcore.paillier.masks, claim 2)."""
    envelope = ada.world.ask(query(ada.world))
    assert not ada.go(envelope)
    assert ada.hub.refusal_code is code
    assert ada.state(envelope) is None
    assert reserved(ada) == spent(ada) == 0


def test_the_seeds_of_others_are_theirs_to_check(ada):
    envelope = ada.world.ask(sealed(ada.world, bo=OTHER))
    assert ada.go(envelope)
    bo = ada.world.open(envelope).query
    with pytest.raises(WireError, match="another than the query commits to"):
        bo.binding.unseal("bo", ada.world.party_keys["bo"], bo.nonce)


@pytest.mark.parametrize(
    ("check", "query"),
    [
        ("check_seed", lambda world: sealed(world, ada=OTHER)),
        ("check_known", lambda world: world.query(features=())),
        ("check_known", lambda world: world.query(features=("a-later-feature", "base-0-3"))),
    ],
)
def test_a_node_that_was_updated_sends_nothing_for_what_it_would_not_accept_now(ada, monkeypatch, check, query):
    monkeypatch.setattr(parties.answering.decisions, check, lambda *_: None)
    envelope, cohort = ready(ada, query(ada.world))
    monkeypatch.undo()
    ada.upload(envelope, cohort)
    assert ada.hub.chunks == {}
    assert ada.state(envelope) is S.ENDED
    assert spent(ada) == 0


def test_masking_itself_refuses_another_seed(ada, monkeypatch):
    monkeypatch.setattr(parties.answering.decisions, "check_seed", lambda *_: None)
    envelope, cohort = ready(ada, sealed(ada.world, ada=OTHER))
    ada.upload(envelope, cohort)
    assert ada.hub.chunks == {}
    assert ada.state(envelope) is S.ENDED
    assert spent(ada) == 0


def test_an_interrupted_computation_is_repeated_after_a_restart(ada):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    with pytest.raises(StoppedError):
        ada.lifecycle.compute(work, lambda: False)
    assert ada.state(envelope) is S.ACCEPTED
    ada.restart()
    assert ada.lifecycle.advance(work)
    ada.lifecycle.compute(work)
    assert ada.state(envelope) is S.READY


def test_a_full_disk_ends_the_attempt_quietly(ada, monkeypatch):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)

    def full(*_: object):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("parties.answering.spool.overwrite_durably", full)
    ada.lifecycle.compute(work)
    monkeypatch.undo()
    assert not ada.lifecycle.advance(work)
    assert ada.state(envelope) is S.ENDED
    assert (ada.hub.readies, ada.spools.used_bytes(), reserved(ada)) == ([], 0, 0)
    assert ada.go(ada.world.ask())


def test_a_quota_that_is_too_small_ends_the_attempt(world, tmp_path):
    ada = Ada(world, tmp_path, spool_bytes=100)
    envelope = world.ask()
    ada.go(envelope)
    assert ada.state(envelope) is S.ENDED
    assert ada.hub.readies == []


def test_data_that_changed_while_the_party_was_down_end_the_attempt(ada):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    ada.lifecycle.advance(work)
    ada.records = make_records(41)
    ada.restart()
    ada.lifecycle.compute(work)
    assert ada.state(envelope) is S.ENDED


def test_the_next_attempt_is_fresh_and_charged_again(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    once = spent(ada)
    assert ada.go(envelope, attempt=2)
    assert ada.state(envelope, 1) is S.ENDED
    ada.upload(envelope, ada.world.cohort(ada.hub.answers[1], attempt=2), attempt=2)
    assert spent(ada) == 2 * once
    assert ada.hub.chunks[1, 0] != ada.hub.chunks[2, 0]
    # An old attempt stays over, for any message of the coordinator.
    ada.upload(envelope, cohort)
    assert ada.state(envelope, 1) is S.ENDED
    assert len(ada.hub.receipts) == 2


def test_an_attempt_that_ends_without_a_charge_releases_everything(ada):
    envelope, _ = ready(ada)
    assert reserved(ada) > 0
    ada.lifecycle.advance(ada.work(envelope, attempt=2, phase=Phase.PREPARING))
    assert (ada.state(envelope), reserved(ada), ada.spools.used_bytes()) == (S.ENDED, 0, 0)


def test_queries_that_are_gone_or_expired_end(ada):
    first, _ = ready(ada)
    ada.hub = type(ada.hub)(ada.world)
    ada.restart()
    second, _ = ready(ada)
    ada.lifecycle.end_queries(ada.lifecycle.held() - {second.payload_hash})
    assert (ada.state(first), ada.state(second)) == (S.ENDED, S.READY)
    ada.lifecycle.end_expired()
    assert ada.state(second) is S.READY
    ada.offset_s = 3600 + 301
    ada.lifecycle.end_expired()
    assert ada.state(second) is S.ENDED
    assert reserved(ada) == 0


def test_a_seeded_source_is_refused(ada, world):
    with pytest.raises(SeededRandomRefusedError):
        QueryLifecycle(
            Party(
                "ada",
                world.party_keys["ada"],
                world.policy(),
                SCHEMA,
                ada.records,
                PartySecret(bytes(32), SCHEMA.digest),
            ),
            attempts=ada.attempts,
            spools=ada.spools,
            rosters=ada.rosters,
            history=ada.history,
            coordinator=ada.hub,
            random=SeededRandom(1),
            log=Log("test"),
        )


def test_no_log_line_holds_what_an_error_says_of_the_data(ada, monkeypatch, caplog):
    canary = "canary 271828"

    def contribution(*_: object, **__: object):
        raise PlanError(f"row {canary}")

    monkeypatch.setattr("parties.answering.lifecycle.integer_vector", contribution)
    with caplog.at_level("DEBUG"):
        envelope = ada.world.ask()
        ada.go(envelope)
    assert ada.state(envelope) is S.ENDED
    said = "".join(f"{r.getMessage()} {getattr(r, 'fields', {})} {r.exc_info}" for r in caplog.records)
    assert "contribution failed" in said
    assert "PlanError" in said
    assert canary not in said


def test_a_contribution_that_is_ready_after_its_query_expired_is_not_offered(ada, monkeypatch):
    work = ada.work(ada.world.ask())
    assert ada.lifecycle.advance(work)
    write = ada.spools.write

    def slowly(*arguments, **options):
        ada.offset_s = 10**6
        return write(*arguments, **options)

    monkeypatch.setattr(ada.spools, "write", slowly)
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is not AttemptState.READY
    assert ada.hub.readies == []
