"""Masking, charging and uploading: which bytes are sent, and the effect of an interruption at any point."""

import errno
import os

import numpy as np
import pytest

from dpcore.paillier.packing import CheckSlotError
from parties.answering.attempts import AttemptState
from parties.answering.contribution import encrypted_chunks, masked_chunks
from parties.answering.coordinator_calls import StoppedError
from rado.v1 import cohort_pb2
from tests.federation.party import ready, refused_with, reserved, spent
from wire.envelopes import MessageType
from wire.errors import Code, ConnectionLostError, WireError
from wire.statements import Cohort
from wire.status import PartyState, Phase

S = AttemptState
pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.fixture
def several_chunks(monkeypatch):
    """Two ciphertexts of a 2048-bit key a chunk."""
    monkeypatch.setattr("wire.statements.CHUNK_BYTES", 1024)


def test_nothing_leaves_before_the_charge_is_on_disk(ada):
    envelope, cohort = ready(ada)
    seen = []
    ada.hub.before["upload_chunk"] = lambda: seen.append(ada.ledger.is_charged(envelope.payload_hash, 1))
    ada.upload(envelope, cohort)
    assert seen
    assert all(seen)


@pytest.mark.usefixtures("several_chunks")
def test_a_killed_upload_resumes_with_the_same_bytes(ada):
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


@pytest.mark.usefixtures("several_chunks")
@pytest.mark.parametrize("is_older", [False, True])
def test_the_receipt_goes_with_the_last_chunk_if_the_coordinator_takes_it(ada, is_older):
    envelope, cohort = ready(ada, ada.world.plain_query(150))
    ada.hub.is_older = is_older
    calls = []
    for name in ("upload_chunk", "receipt"):
        ada.hub.before[name] = lambda name=name: calls.append((name, len(ada.hub.receipts)))
    chunks = ada.world.open(envelope).chunks
    ada.upload(envelope, cohort)
    # The hub counts a receipt that came with a chunk as a call of its own; it follows at once either way.
    assert calls == [("upload_chunk", 0)] * chunks + [("receipt", 0)]
    assert ada.state(envelope) is S.UPLOADED
    ada.hub.opened_receipt()


def test_after_a_restart_an_uploaded_attempt_gives_its_receipt_again_and_no_bytes(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    first, sent = ada.hub.receipts[:], dict(ada.hub.chunks)
    ada.restart()
    ada.upload(envelope, cohort, state=PartyState.UPLOADED, chunks_held=frozenset({0}))
    assert ada.hub.receipts == first * 2
    assert ada.hub.chunks == sent
    assert ada.state(envelope) is S.UPLOADED
    assert ada.ledger.unbounded() == 1


@pytest.mark.usefixtures("several_chunks")
def test_an_upload_stops_between_chunks_and_resumes(ada):
    envelope, cohort = ready(ada, ada.world.plain_query(150))
    work = ada.work(envelope, phase=Phase.UPLOADING, state=PartyState.UPLOADING, cohort=cohort)
    with pytest.raises(StoppedError):
        ada.lifecycle.advance(work, lambda: not ada.hub.chunks)
    assert len(ada.hub.chunks) == 1
    ada.lifecycle.advance(work)
    assert ada.state(envelope) is S.UPLOADED


def test_chunks_that_the_coordinator_lost_are_sent_again(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["receipt"] = [refused_with(Code.CHUNK_MISSING)]
    ada.upload(envelope, cohort, chunks_held=frozenset({0}))
    assert len(ada.hub.chunks[1, 0]) == 1
    assert ada.state(envelope) is S.UPLOADED


def test_every_charge_is_reported_once(ada):
    envelope, cohort = ready(ada)
    assert ada.reported_charges == 0
    ada.upload(envelope, cohort)
    ada.restart()
    ada.upload(envelope, cohort)
    assert ada.reported_charges == 1


def test_a_lost_receipt_is_sent_again_with_the_same_bytes(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    ada.restart()
    ada.upload(envelope, cohort, chunks_held=frozenset({0}))
    assert ada.hub.receipts[0] == ada.hub.receipts[1]
    ada.upload(envelope, cohort, state=PartyState.UPLOADED)
    assert len(ada.hub.receipts) == 2
    assert len(ada.hub.chunks[1, 0]) == 1


def flip_last_byte(path):
    held = path.read_bytes()
    path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))


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
        flip_last_byte(path)
    ada.restart()
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert ada.hub.receipts == []
    assert ada.state(envelope) is (S.BURNT if charged else S.ENDED)
    assert (spent(ada) > 0) is charged
    assert reserved(ada) == 0
    assert ada.reported_losses == int(charged)
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks


def test_an_expired_query_is_not_uploaded(ada):
    envelope, cohort = ready(ada)
    ada.offset_s = 3600 + 301
    ada.upload(envelope, cohort)
    assert not ada.hub.chunks
    assert (ada.state(envelope), spent(ada)) == (S.ENDED, 0)


def test_temporary_failures_are_left_to_the_caller(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["upload_chunk"] = [refused_with(Code.SPOOL_FULL), refused_with(Code.CHUNK_CONFLICT)]
    with pytest.raises(WireError):
        ada.upload(envelope, cohort)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.CHARGED
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is S.UPLOADED


def test_the_contribution_is_over_exactly_the_accepted_rows(ada, secret_key):
    """With its peers' masks, what was uploaded opens to this party's row count in every check slot; else to nothing."""
    from tests.parties.answering.test_contribution import decode, small_obfuscator

    envelope, cohort = ready(ada, ada.world.plain_query())
    ada.upload(envelope, cohort)
    opened = ada.world.open(envelope)
    chunks = [sent[0] for _, sent in sorted(ada.hub.chunks.items())]
    with pytest.raises(CheckSlotError):
        decode(opened, secret_key, [chunks], ada.records.rows)
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
                    alpha=1,
                )
            )
        )
    values = decode(opened, secret_key, uploads, ada.records.rows + 100)
    edges = ada.records.features / 2.0**30 * ada.records.labels[:, None]
    rados = opened.query.kind.decode(values, 16)
    slack = 40 * 2.0**-16
    assert rados.shape == (20, 3)
    assert (rados <= np.maximum(edges, 0).sum(0) + slack).all()
    assert (rados >= np.minimum(edges, 0).sum(0) - slack).all()
    assert len(np.unique(rados[:, 0])) > 10


def test_a_crash_between_masking_and_charging_sends_the_same_bytes_or_another_cohort_s(ada, monkeypatch):
    """Nothing is bound before the charge: the masks are computed again for each cohort, from the bare contribution."""
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
    forged = cohort_pb2.Acceptance(query_id=envelope.payload_hash, attempt=1, party="bo", rows=50, mask_key=bytes(32))
    signed = ada.world.party_keys["bo"].sign(MessageType.ACCEPTANCE, forged.SerializeToString())
    others = (signed, cohort.acceptances[2])
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


def test_a_contribution_that_is_not_the_one_spooled_is_not_charged(ada):
    """Its files were exchanged for others that fit one another."""
    envelope, cohort = ready(ada)
    query_id = envelope.payload_hash
    spool = ada.spools.open(query_id, 1)
    chunks = [spool.chunk(index).ciphertexts for index in range(len(spool.hashes))]
    values = spool.values()
    width = len(chunks[0]) // spool.ciphertexts if len(chunks) == 1 else 512
    ada.spools.remove(query_id, 1)
    other = [chunks[0][:-1] + bytes([chunks[0][-1] ^ 1]), *chunks[1:]]
    ada.spools.write(query_id, 1, iter(other), needed_bytes=10_000, width=width, values=values)
    ada.upload(envelope, cohort)
    assert ada.hub.chunks == {}
    assert spent(ada) == 0


@pytest.mark.usefixtures("several_chunks")
def test_no_chunk_of_a_contribution_is_sent_if_a_later_one_was_changed(ada):
    envelope, cohort = ready(ada, ada.world.plain_query(150))
    ada.hub.fail["upload_chunk"] = [ConnectionLostError("hub", "cut")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    spool = ada.spools.open(envelope.payload_hash, 1, masked=True)
    assert len(spool.hashes) > 1
    path = spool.path / f"chunk-{len(spool.hashes) - 1:06d}.bin"
    flip_last_byte(path)
    ada.restart()
    ada.upload(envelope, cohort)
    assert ada.hub.chunks == {}
    assert ada.state(envelope) is S.BURNT
