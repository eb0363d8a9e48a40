"""What a party says to the machine's monitoring: reasons why it is not ready, and counts of what happened."""

import datetime as dt
import sys
import time
from dataclasses import replace

import pytest

from parties.approval.decisions import Person
from parties.config import PartyConfig
from parties.data import held_data
from parties.history.database import HistoryDatabase
from parties.history.history import History, What
from parties.ledger.witnessed import Evidence
from parties.node import PartyNode
from radobase import exposition
from radobase.failure import Failure
from radobase.metrics import CERTIFICATE_EXPIRY, Reason, WatchSettings
from tests.federation.party import ready as ready_with_cohort
from tests.federation.processes import free_port
from tests.radobase.scraping import ready, scrape
from wire.envelopes import Envelope
from wire.roster import Role
from wire.status import Phase

ALONE = {Reason.COORDINATOR_UNREACHABLE, Reason.WAITING_FOR_WITNESSES}


@pytest.fixture
def config(offline):
    return PartyConfig.load(offline.member("ada").config)


def test_while_it_loads_its_data_it_says_so(config, monkeypatch):
    settings = WatchSettings(listen=f"127.0.0.1:{free_port()}")
    seen = []
    real = held_data.load

    def loading(*arguments, **options):
        seen.append((ready(settings.place), scrape(settings.place)))
        return real(*arguments, **options)

    monkeypatch.setattr(held_data, "load", loading)
    with PartyNode(config.model_copy(update={"watch": settings})) as node:
        ((while_loading, metrics),) = seen
        assert while_loading == (503, ["DATA_NOT_LOADED"])
        assert metrics("rado_certificate_expiry_timestamp_seconds") == node._own.certificate.not_after.timestamp()
        assert "rado_ledger_remaining_ratio" not in metrics.names
    assert not scrape(settings.place).up


def test_without_the_library_a_node_that_is_watched_does_not_start(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    # As in a process that has not imported it yet.
    monkeypatch.delitem(sys.modules, exposition.__name__)
    monkeypatch.delattr(exposition.__name__)
    watched = config.model_copy(update={"watch": WatchSettings(listen=f"127.0.0.1:{free_port()}")})
    with pytest.raises(ModuleNotFoundError) as caught:
        PartyNode(watched)
    failure = Failure.of(caught.value)
    assert (failure.code, failure.exit_code) == ("EXTRA_MISSING", 4)
    assert "python deploy/install.py metrics" in failure.message
    with PartyNode(config):
        pass


def test_each_state_has_its_reason(config, offline):
    with PartyNode(config) as node:
        watch, now = node._watch, time.time()
        assert set(watch.reasons()) == ALONE | {Reason.NO_ROSTER}
        assert node.status()["not_ready"] == [reason.value for reason in watch.reasons()]
        node._rosters.offer(Envelope.from_bytes((offline.made.directory / "federation/roster.signed").read_bytes()))
        assert set(watch.reasons()) == ALONE
        roster = node._rosters.current
        bo = roster.find("bo", Role.PARTY)
        node._guard._challenged["bo"] = time.monotonic(), now
        assert set(watch.reasons()) == {Reason.COORDINATOR_UNREACHABLE}
        node._contact_unix_s = now
        assert watch.reasons() == []
        # The roster that it knows still lists it.
        node._is_unknown = True
        assert watch.reasons() == [Reason.NOT_IN_ROSTER]
        node._is_unknown = False
        own, watch._signing_key = watch._signing_key, bo.signing_key
        assert watch.reasons() == [Reason.NOT_IN_ROSTER]
        watch._signing_key = own
        person = Person("officer", "Ann")
        node._pauses.pause(person, "", now)
        assert watch.reasons() == [Reason.PAUSED]
        node._pauses.resume(person, now)
        watch._clock = lambda: roster.not_after_unix_s + 1000.0
        assert set(watch.reasons()) == {Reason.ROSTER_EXPIRED, Reason.COORDINATOR_UNREACHABLE}
        watch._clock = lambda: node._own.certificate.not_after.timestamp() + 1
        assert Reason.CERTIFICATE_EXPIRED in watch.reasons()
        watch._clock = time.time
        # A renewed certificate is in use without a restart.
        renewed = node._own.certificate.not_after + dt.timedelta(days=300)
        node._own.certificate = replace(node._own.certificate, not_after=renewed)
        expiries = [sample.value for sample in watch.samples() if sample.metric is CERTIFICATE_EXPIRY]
        assert expiries == [renewed.timestamp()]
        node._guard.evidence = Evidence(Envelope(b"", b"", b""), "bo")
        assert watch.reasons() == [Reason.LEDGER_SET_BACK]
        node._guard.evidence = None
        watch._config = config.model_copy(update={"spool_bytes": 500_000})
        assert watch.reasons() == [Reason.SPOOL_FULL]
        watch._config = config
        assert watch.reasons() == []
    assert watch.reasons() == [Reason.DRAINING]
    # The ledger is closed by now, and is not read.
    assert "rado_ledger_remaining_ratio" not in {sample.metric.name for sample in watch.samples()}


@pytest.mark.parametrize(
    ("phase", "attempt", "losses"),
    [(Phase.LOST, 1, 1), (Phase.FAILED, 1, 1), (Phase.ANSWERING, 2, 1), (Phase.COMPLETE, 1, 0)],
)
def test_a_charged_attempt_that_ends_without_a_total_is_counted_once(ada, phase, attempt, losses):
    envelope, cohort = ready_with_cohort(ada)
    ada.upload(envelope, cohort)
    assert ada.reported_charges == 1
    for _ in range(2):
        ada.go(envelope, phase=phase, attempt=attempt)
        assert ada.reported_losses == losses


def test_an_attempt_that_is_not_charged_is_not_lost(ada):
    envelope, _ = ready_with_cohort(ada)
    ada.go(envelope, phase=Phase.FAILED)
    assert (ada.reported_charges, ada.reported_losses) == (0, 0)


def test_a_step_of_an_attempt_is_counted_once(tmp_path):
    noted = []
    history = History(HistoryDatabase(tmp_path / "history.sqlite", federation="f", party="ada"), noted.append)
    for attempt, what in ((1, What.REFUSED), (1, What.REFUSED), (2, What.REFUSED), (2, What.ACCEPTED)):
        history.happened(bytes(32), attempt, what, 1.0)
    assert noted == [What.REFUSED, What.REFUSED, What.ACCEPTED]
    history.database.close()
