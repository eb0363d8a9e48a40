"""A party with a full disk: it keeps its promise to a cohort and starts no other work."""

import os

import pytest

from parties.answering.attempts import AttemptState
from tests.federation.faults import fill
from tests.federation.party import Ada, ready, reserved, spent

pytestmark = pytest.mark.usefixtures("small_comb")


def test_a_disk_that_fills_up_once_the_party_is_ready_loses_nothing(world, small_disk):
    """The masked contribution and the charge use space that was reserved before the party reported ready."""
    ada = Ada(world, small_disk)
    envelope, cohort = ready(ada, world.plain_query(150))
    fill(small_disk)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED
    assert spent(ada) > 0
    assert ada.hub.opened_receipt().upload_digest == ada.spools.open(envelope.payload_hash, 1, masked=True).digest


def test_a_full_disk_loses_nothing_after_a_restart_either(world, small_disk):
    ada = Ada(world, small_disk)
    envelope, cohort = ready(ada, world.plain_query(150))
    fill(small_disk)
    ada.ledger.database.close()
    (small_disk / "filling-4096").unlink()  # opening a ledger takes a page or two
    ada.restart()
    fill(small_disk)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED


def test_a_disk_without_room_for_all_of_it_ends_the_attempt_before_it_is_ready(world, small_disk):
    ada = Ada(world, small_disk)
    envelope = world.ask(world.plain_query(150))
    work = ada.work(envelope)
    assert ada.lifecycle.advance(work)
    # Room for the bare contribution and a charge, but not for the masked one as well.
    opened = world.open(envelope)
    left = opened.ciphertexts * opened.public_key.ciphertext_bytes + 256 * 1024
    free = os.statvfs(small_disk)
    with (small_disk / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left)
    ada.lifecycle.compute(work)
    assert ada.state(envelope) is AttemptState.ENDED
    assert (ada.hub.readies, ada.spools.used_bytes(), reserved(ada)) == ([], 0, 0)
