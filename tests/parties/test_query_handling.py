"""A query's way through the party against a coordinator that does what the test says: honest, late, or lying."""

import errno
import os
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import PlanError
from dpcore.paillier.packing import CheckSlotError
from dpcore.privacy.dp_feat import own_epsilon
from dpcore.privacy.filters import NO_LOSS
from dpcore.queries.rados import RadosQuery
from dpcore.rados.protected import dp_feat_design
from dpcore.randomness import SeededRandom, SeededRandomRefusedError
from dpcore.schema import BooleanFeature, CategoryFeature, Label, Schema
from parties.attempts import AttemptState
from parties.charges import RECORD
from parties.contribution import encrypted_chunks, masked_chunks
from parties.handling import Holdings, QueryHandler, StoppedError
from tests.parties.party_world import SCHEMA, SMOKER, Ada, limits, make_records, ready, refused_with, reserved, spent
from wire.cohort import Acceptance, Cohort, Ready, open_statement, sign
from wire.envelopes import SigningKey, sha256
from wire.errors import Code, ConnectionLostError, WireError
from wire.logs import Log
from wire.status import PartyState, Phase
from wire.upload import upload_digest

S = AttemptState
pytestmark = pytest.mark.usefixtures("small_comb")
OTHER_SCHEMA = Schema(name="other", label=SCHEMA.label, features=SCHEMA.features)


def test_the_whole_way(ada):
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
    ada.handler.advance(ada.work(envelope, phase=Phase.COMPLETE, state=PartyState.UPLOADED))
    assert ada.state(envelope) is S.ENDED
    assert spent(ada) > 0
    assert ada.spools.used_bytes() == 0


def test_nothing_leaves_before_the_charge_is_on_disk(ada):
    envelope, cohort = ready(ada)
    seen = []
    ada.hub.before["upload_chunk"] = lambda: seen.append(ada.ledger.is_charged(envelope.payload_hash, 1))
    ada.upload(envelope, cohort)
    assert seen
    assert all(seen)


REFUSALS = {
    "policy": (lambda ada: ada.world.query(max_attempts=4), Code.POLICY_LIMITS),
    "schema": (lambda ada: ada.world.query(schema=OTHER_SCHEMA), Code.SCHEMA_MISMATCH),
    "rows": (lambda ada: ada.world.query(max_rows=39), Code.PLAN_INFEASIBLE),
    "empty design": (
        lambda ada: ada.world.query(kind=RadosQuery(20, dp_feat_design(SCHEMA, ["smoker"], Fraction(1, 1000)))),
        Code.PLAN_INFEASIBLE,
    ),
    "expired": (
        lambda ada: ada.world.query(created_at_unix_s=1_000_000, not_after_unix_s=1_000_100),
        Code.QUERY_EXPIRED,
    ),
    "newer roster than there is": (lambda ada: ada.world.query(roster_version=9), Code.ROSTER_STALE),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_carry_their_code_and_reserve_nothing(ada, case):
    make, code = REFUSALS[case]
    envelope = ada.world.ask(make(ada))
    assert not ada.go(envelope)
    assert ada.hub.refusal_code is code
    assert ada.state(envelope) is None
    assert reserved(ada) == 0


def test_a_forged_query_is_refused(ada):
    envelope = ada.world.ask(key=SigningKey.generate())
    ada.go(envelope)
    assert ada.hub.refusal_code is Code.SIGNATURE_INVALID


def test_a_tampered_query_is_refused(ada):
    envelope = ada.world.ask()
    other = ada.world.ask(ada.world.query(max_attempts=1))
    ada.go(type(envelope)(other.payload, envelope.key_id, envelope.signature))
    assert ada.hub.refusal_code is Code.SIGNATURE_INVALID


def test_an_attempt_beyond_the_signed_bound_is_refused(ada):
    envelope = ada.world.ask(ada.world.query(max_attempts=2))
    ada.go(envelope, attempt=3)
    assert ada.hub.refusal_code is Code.ATTEMPT_MISMATCH


def test_a_budget_that_does_not_cover_it_is_refused(world, tmp_path):
    epsilon = Fraction(own_epsilon(40, 20, None, Fraction(1, 10**6)))
    # Two of these cost the concentrated filter more than the sum of their epsilons.
    limit = limits(epsilon * 2 - Fraction(1, 10**20), Fraction(4, 10**6))
    ada = Ada(world, tmp_path, limits=limit)
    ada.go(world.ask())
    assert ada.hub.accepted == [True]
    ada.go(world.ask())
    assert ada.hub.accepted == [True, False]
    assert reserved(ada) == epsilon


def test_another_coordinate_of_the_same_column_is_refused(world, tmp_path):
    schema = Schema(
        name="twins",
        label=Label(column="y", positive=("1",)),
        features=(
            CategoryFeature(name="age", column="smoker", values=("yes",), unknown="zero"),
            BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        ),
    )
    ada = Ada(world, tmp_path, schema=schema)
    ada.go(world.ask(world.query(schema=schema)))
    assert ada.hub.refusal_code is Code.QUERY_INVALID


def test_plain_rados_are_recorded_as_without_a_bound(ada):
    envelope, cohort = ready(ada, ada.world.plain_query())
    ada.upload(envelope, cohort)
    state = ada.ledger.state()
    assert (state.unbounded_charged, ada.ledger.spent(RECORD)) == (1, NO_LOSS)
    assert "without any privacy bound for whole records" in state.warning
    # What a boolean feature's own values tell is bounded all the same.
    assert spent(ada) > 0


def test_an_internal_failure_while_answering_is_told_as_unavailable(ada, monkeypatch):
    monkeypatch.setattr("parties.handling.decide", lambda *_, **__: 1 / 0)
    ada.go(ada.world.ask())
    assert ada.hub.refusal_code is Code.UNAVAILABLE


def test_a_repeated_answer_is_the_same_bytes_after_a_restart(ada):
    envelope = ada.world.ask()
    ada.hub.fail["answer"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.handler.advance(ada.work(envelope))
    held = ada.attempts.find(envelope.payload_hash, 1)
    ada.restart()
    assert ada.handler.advance(ada.work(envelope))
    assert ada.hub.answers == [held.answer]
    ada.handler.advance(ada.work(envelope))
    assert len(ada.hub.answers) == 1


def test_an_answer_that_came_too_late_is_not_computed_for(ada):
    ada.hub.fail["answer"] = [refused_with(Code.PHASE_MISMATCH)]
    envelope = ada.world.ask()
    assert not ada.go(envelope)
    ada.handler.advance(ada.work(envelope, phase=Phase.FAILED))
    assert ada.state(envelope) is S.ENDED
    assert reserved(ada) == 0


def test_work_that_is_past_answering_is_left_alone(ada):
    for phase in (Phase.PREPARING, Phase.UPLOADING, Phase.ADDING, Phase.COMPLETE, Phase.FAILED):
        assert not ada.go(ada.world.ask(), phase=phase)
    assert not ada.go(ada.world.ask(), state=PartyState.REFUSED)
    assert ada.hub.answers == []


def test_a_lost_ready_is_told_again_after_a_restart(ada):
    envelope = ada.world.ask()
    ada.hub.fail["ready"] = [ConnectionLostError("hub", "cut")]
    work = ada.work(envelope)
    assert ada.handler.advance(work)
    ada.handler.compute(work)
    with pytest.raises(ConnectionLostError):
        ada.handler.advance(work)
    ada.restart()
    assert not ada.handler.advance(ada.work(envelope, phase=Phase.PREPARING, state=PartyState.ACCEPTED))
    assert len(ada.hub.readies) == 1


def test_computing_cut_off_is_done_anew_after_a_restart(ada):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.handler.advance(work)
    with pytest.raises(StoppedError):
        ada.handler.compute(work, lambda: False)
    assert ada.state(envelope) is S.ACCEPTED
    ada.restart()
    assert ada.handler.advance(work)
    ada.handler.compute(work)
    assert ada.state(envelope) is S.READY


def test_a_full_disk_ends_the_attempt_quietly(ada, monkeypatch):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    assert ada.handler.advance(work)

    def full(*_: object):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("parties.spool._write_durably", full)
    ada.handler.compute(work)
    monkeypatch.undo()
    assert not ada.handler.advance(work)
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
    ada.handler.advance(work)
    ada.records = make_records(41)
    ada.restart()
    ada.handler.compute(work)
    assert ada.state(envelope) is S.ENDED


@pytest.mark.usefixtures("several_chunks")
def test_a_killed_upload_goes_on_with_the_same_bytes(ada):
    envelope, cohort = ready(ada, ada.world.plain_query(150))
    opened = ada.world.open(envelope)
    assert opened.chunks > 3
    sent = []

    def die_at_third():
        sent.append(1)
        if len(sent) == 3:
            raise KeyboardInterrupt

    ada.hub.before["upload_chunk"] = die_at_third
    with pytest.raises(KeyboardInterrupt):
        ada.upload(envelope, cohort)
    ada.hub.before.clear()
    first = dict(ada.hub.chunks)
    ada.restart()
    assert ada.state(envelope) is S.CHARGED
    ada.upload(envelope, cohort, chunks_held=frozenset({0}))
    assert len(ada.hub.chunks[1, 0]) == 1
    assert ada.hub.chunks[1, 1] == [first[1, 1][0]] * 2
    assert {index for _, index in ada.hub.chunks} == set(range(opened.chunks))
    assert ada.ledger.unbounded() == 1
    ada.hub.opened_receipt()


@pytest.fixture
def several_chunks(monkeypatch):
    """Two ciphertexts of a 2048-bit key a chunk."""
    monkeypatch.setattr("wire.upload.CHUNK_BYTES", 1024)


@pytest.mark.usefixtures("several_chunks")
def test_an_upload_stops_between_chunks_and_goes_on(ada):
    envelope, cohort = ready(ada, ada.world.plain_query(150))
    work = ada.work(envelope, phase=Phase.UPLOADING, state=PartyState.UPLOADING, cohort=cohort)
    with pytest.raises(StoppedError):
        ada.handler.advance(work, lambda: not ada.hub.chunks)
    assert len(ada.hub.chunks) == 1
    ada.handler.advance(work)
    assert ada.state(envelope) is S.UPLOADED


def test_chunks_that_the_coordinator_lost_are_sent_again(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["receipt"] = [refused_with(Code.CHUNK_MISSING)]
    ada.upload(envelope, cohort, chunks_held=frozenset({0}))
    assert len(ada.hub.chunks[1, 0]) == 1
    assert ada.state(envelope) is S.UPLOADED


def test_a_lost_receipt_is_told_again_in_the_same_bytes(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    ada.restart()
    ada.upload(envelope, cohort, chunks_held=frozenset({0}))
    assert ada.hub.receipts[0] == ada.hub.receipts[1]
    ada.upload(envelope, cohort, state=PartyState.UPLOADED)
    assert len(ada.hub.receipts) == 2
    assert len(ada.hub.chunks[1, 0]) == 1


@pytest.mark.parametrize("charged", [False, True])
@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_lost_or_changed_spool_is_never_sent(ada, charged, damage):
    envelope, cohort = ready(ada)
    if charged:
        ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
        with pytest.raises(ConnectionLostError):
            ada.upload(envelope, cohort)
    if damage == "lost":
        ada.spools.remove(envelope.payload_hash, 1)
    else:
        path = ada.spools.open(envelope.payload_hash, 1, masked=charged).path / "chunk-000000.bin"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    ada.restart()
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert ada.hub.receipts == []
    assert ada.state(envelope) is (S.BURNT if charged else S.ENDED)
    assert (spent(ada) > 0) is charged
    assert reserved(ada) == 0
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks


def test_the_next_attempt_is_fresh_and_charged_anew(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    once = spent(ada)
    assert ada.go(envelope, attempt=2)
    assert ada.state(envelope, 1) is S.ENDED
    ada.upload(envelope, ada.world.cohort(ada.hub.answers[1], attempt=2), attempt=2)
    assert spent(ada) == 2 * once
    assert ada.hub.chunks[1, 0] != ada.hub.chunks[2, 0]
    # What is old stays over, whatever the coordinator says.
    ada.upload(envelope, cohort)
    assert ada.state(envelope, 1) is S.ENDED
    assert len(ada.hub.receipts) == 2


def test_an_attempt_that_ends_without_a_charge_gives_everything_back(ada):
    envelope, _ = ready(ada)
    assert reserved(ada) > 0
    ada.handler.advance(ada.work(envelope, attempt=2, phase=Phase.PREPARING))
    assert (ada.state(envelope), reserved(ada), ada.spools.used_bytes()) == (S.ENDED, 0, 0)


def test_queries_that_are_gone_or_expired_end(ada):
    first, _ = ready(ada)
    ada.hub = type(ada.hub)(ada.world)
    ada.restart()
    second, _ = ready(ada)
    ada.handler.end_absent([second.payload_hash])
    assert (ada.state(first), ada.state(second)) == (S.ENDED, S.READY)
    ada.handler.end_expired()
    assert ada.state(second) is S.READY
    ada.offset_s = 3600 + 301
    ada.handler.end_expired()
    assert ada.state(second) is S.ENDED
    assert reserved(ada) == 0


def test_an_expired_query_is_not_uploaded(ada):
    envelope, cohort = ready(ada)
    ada.offset_s = 3600 + 301
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada)) == (S.ENDED, 0)


def test_a_newer_roster_is_fetched_where_the_query_needs_it(ada):
    ada.world.version = 2
    ada.world.party_keys["dee"] = SigningKey.generate()
    assert ada.go(ada.world.ask(ada.world.query(roster_version=2)))
    assert ada.rosters.current.version == 2


def test_a_roster_that_goes_back_is_not_believed(ada, world):
    world.version = 3
    assert ada.rosters.offer(world.roster_envelope)
    ada.restart()
    world.version = 2
    assert not ada.rosters.offer(world.roster_envelope)
    world.version = 3
    world.party_keys["dee"] = SigningKey.generate()
    assert not ada.rosters.offer(world.roster_envelope)
    world.version, world.federation_key = 4, SigningKey.generate()
    assert not ada.rosters.offer(world.roster_envelope)
    assert ada.rosters.current.version == 3
    assert ada.rosters.current.find("dee", ada.rosters.current.parties[0].role) is None


def test_a_seeded_source_is_refused(ada, world):
    with pytest.raises(SeededRandomRefusedError):
        QueryHandler(
            Holdings("ada", world.party_keys["ada"], world.policy(), SCHEMA, ada.records, bytes(32)),
            attempts=ada.attempts,
            spools=ada.spools,
            rosters=ada.rosters,
            coordinator=ada.hub,
            random=SeededRandom(1),
            log=Log("test"),
        )


def test_what_may_pass_is_left_to_the_caller(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["upload_chunk"] = [refused_with(Code.SPOOL_FULL), refused_with(Code.CHUNK_CONFLICT)]
    with pytest.raises(WireError):
        ada.upload(envelope, cohort)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.CHARGED
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_no_log_line_holds_what_an_error_says_of_the_data(ada, monkeypatch, caplog):
    canary = "canary 271828"

    def contribution(*_: object, **__: object):
        raise PlanError(f"row {canary}")

    monkeypatch.setattr("parties.handling.integer_vector", contribution)
    with caplog.at_level("DEBUG"):
        envelope = ada.world.ask()
        ada.go(envelope)
    assert ada.state(envelope) is S.ENDED
    said = "".join(f"{r.getMessage()} {getattr(r, 'fields', {})} {r.exc_info}" for r in caplog.records)
    assert "contribution failed" in said
    assert "PlanError" in said
    assert canary not in said


def test_the_contribution_is_over_exactly_the_accepted_rows(ada, test_secret_key):
    """With its peers' masks, what was uploaded opens to this party's row count in every check slot; else to nothing."""
    from tests.parties.test_contribution import decode, small_obfuscator

    envelope, cohort = ready(ada, ada.world.plain_query())
    ada.upload(envelope, cohort)
    opened = ada.world.open(envelope)
    chunks = [sent[0] for _, sent in sorted(ada.hub.chunks.items())]
    with pytest.raises(CheckSlotError):
        decode(opened, test_secret_key, [chunks], ada.records.rows)
    nothing = np.zeros(opened.query.length, dtype=np.int64)
    acceptances = cohort.open(ada.world.roster)
    uploads = [chunks]
    for peer in ("bo", "cy"):
        bare = encrypted_chunks(opened, nothing, 50, small_obfuscator(opened))
        uploads.append(
            list(
                masked_chunks(
                    opened,
                    nothing,
                    bare,
                    own_name=peer,
                    own_key=ada.world.mask_keys[peer, 1],
                    acceptances=acceptances,
                    cohort_digest=cohort.digest,
                )
            )
        )
    values = decode(opened, test_secret_key, uploads, ada.records.rows + 100)
    edges = ada.records.features / 2.0**30 * ada.records.labels[:, None]
    rados = opened.query.kind.decode(values, 16)
    slack = 40 * 2.0**-16
    assert rados.shape == (20, 3)
    assert (rados <= np.maximum(edges, 0).sum(0) + slack).all()
    assert (rados >= np.minimum(edges, 0).sum(0) - slack).all()
    assert len(np.unique(rados[:, 0])) > 10


def test_a_crash_between_masking_and_charging_sends_the_same_bytes_or_another_cohort_s(ada, monkeypatch):
    """Until the charge nothing is bound: the masks are made anew, of the bare contribution, for what is shown then."""
    envelope, cohort = ready(ada)

    def crash(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ada.attempts, "charge", crash)
        with pytest.raises(KeyboardInterrupt):
            ada.upload(envelope, cohort)
    first = ada.spools.open(envelope.payload_hash, 1, masked=True).digest
    ada.restart()
    assert (spent(ada), ada.hub.chunks) == (0, {})
    ada.upload(envelope, cohort)
    assert ada.hub.opened_receipt().upload_digest == first
    assert ada.state(envelope) is S.UPLOADED


def test_after_the_charge_the_bare_contribution_is_gone(ada):
    envelope, cohort = ready(ada)
    assert ada.spools.open(envelope.payload_hash, 1).values().size
    ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    assert not list(ada.spools.directory.rglob("values.bin"))
    assert ada.attempts.find(envelope.payload_hash, 1).mask_key is None
    ada.restart()
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_a_peer_s_key_of_low_order_ends_the_attempt_uncharged(ada):
    envelope, cohort = ready(ada)
    forged = Acceptance(envelope.payload_hash, 1, "bo", 50, bytes(32))
    others = (sign(forged, ada.world.party_keys["bo"]), cohort.acceptances[2])
    ada.upload(envelope, Cohort(envelope.payload_hash, 1, (cohort.acceptances[0], *others)))
    assert ada.state(envelope) is S.ENDED
    assert (spent(ada), ada.hub.chunks) == (0, {})


def test_a_disk_that_is_full_while_masking_is_tried_again_and_charges_nothing(ada, monkeypatch):
    envelope, cohort = ready(ada)
    real = os.fsync

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WireError) as caught:
        ada.upload(envelope, cohort)
    assert caught.value.code is Code.SPOOL_FULL
    assert "takes 0 bytes" not in str(caught.value)
    monkeypatch.setattr(os, "fsync", real)
    assert (spent(ada), ada.hub.chunks) == (0, {})
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED
