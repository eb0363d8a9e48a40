"""Every alert fires in the state that it is for, made with the parts of real nodes, and not before."""

import contextlib
import dataclasses
import time
from fractions import Fraction

import pytest

from coordinator.config import CoordinatorConfig
from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.approval.notifying import NotifySettings
from parties.config import PartyConfig
from parties.data.row_guard import RowCounts
from parties.ledger.charges import RECORD, Charge
from parties.ledger.witnessed import Evidence
from parties.node import PartyNode
from radobase.exposition import exposition
from radobase.logs import Log
from radobase.metrics import Room, WatchSettings, ready_samples
from radobase.watch_server import WatchServer
from tests.federation.coordinator import RunningNode
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation, free_port
from tests.radobase.alert_rules import Moment, rules
from tests.radobase.scraping import read_page, scrape
from wire.envelopes import Envelope

DAY_S = 86_400
ROWS = "age,smoker,stayed\n61,yes,yes\n20,no,no\n30,yes,no\n"


class Nodes:
    """A party and a coordinator that run in this process, and do not know of one another."""

    def __init__(self, root):
        with contextlib.ExitStack() as opened:
            parties = dict.fromkeys(("ada", "bo"), ROWS)
            made = opened.enter_context(ProcessFederation(root, parties=parties, schema=STAYS.to_toml()))
            config = PartyConfig.load(made.member("ada").config)
            changes = {"spool_bytes": 1 << 20, "notify": NotifySettings(command=("/bin/false",))}
            self.party = opened.enter_context(PartyNode(config.model_copy(update=changes)))
            loaded = CoordinatorConfig.load(made.member("coordinator").config)
            self.coordinator = RunningNode(loaded.model_copy(update={"listen": "127.0.0.1:0"}))
            opened.callback(self.coordinator.close)
            self._opened = opened.pop_all()
        self.watch, self.coordinator_watch = self.party._watch, self.coordinator.node._watch

    def close(self):
        self._opened.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    found = Nodes(tmp_path_factory.mktemp("alerts"))
    yield found
    found.close()


def page(watch, *instead):
    """A scrape of a node, with some samples in place of its own of the same metric."""
    replaced = {sample.metric for sample in instead}
    own = [sample for sample in watch.samples() if sample.metric not in replaced]
    return read_page(exposition([*own, *instead, *ready_samples(watch.reasons())]).decode())


@contextlib.contextmanager
def node_down(nodes):
    settings = WatchSettings(listen=f"127.0.0.1:{free_port()}")
    with WatchServer(settings, reasons=nodes.watch.reasons, samples=nodes.watch.samples, log=Log("test")):
        before = Moment(scrape(settings.place))
    yield before, Moment(scrape(settings.place))


@contextlib.contextmanager
def not_ready(nodes):
    """The party has no coordinator, the coordinator needs nothing."""
    yield Moment(page(nodes.coordinator_watch)), Moment(page(nodes.watch))


@contextlib.contextmanager
def ledger_set_back(nodes):
    before = Moment(page(nodes.watch))
    guard = nodes.party._guard
    guard.evidence = Evidence(Envelope(b"", b"", b""), "bo")
    yield before, Moment(page(nodes.watch))
    guard.evidence = None


@contextlib.contextmanager
def rows_not_accepted(nodes):
    before, guard = Moment(page(nodes.watch)), nodes.party._row_guard
    held = guard.counts
    guard.hold(RowCounts(held.rows, 0))
    yield before, Moment(page(nodes.watch))
    guard.hold(held)


@contextlib.contextmanager
def out_of_reach(nodes):
    nodes.party._contact_unix_s = time.time()
    before = Moment(page(nodes.watch))
    nodes.party._contact_unix_s = time.time() - 400
    yield before, Moment(page(nodes.watch))
    nodes.party._contact_unix_s = None


@contextlib.contextmanager
def parties_away(nodes):
    away = page(nodes.coordinator_watch)
    for member in nodes.coordinator_watch._membership.roster.parties:
        nodes.coordinator_watch._seen.note(member)
    yield Moment(page(nodes.coordinator_watch)), Moment(away)


@contextlib.contextmanager
def certificate_expires(nodes):
    found = page(nodes.watch)
    expiry = nodes.watch._own.certificate.not_after.timestamp()
    yield Moment(found, unix_s=expiry - 31 * DAY_S), Moment(found, unix_s=expiry - 29 * DAY_S)


@contextlib.contextmanager
def roster_expires(nodes):
    found = page(nodes.coordinator_watch)
    expiry = nodes.coordinator_watch._membership.roster.not_after_unix_s
    yield Moment(found, unix_s=expiry - 31 * DAY_S), Moment(found, unix_s=expiry - 29 * DAY_S)


@contextlib.contextmanager
def ledger_nearly_spent(nodes):
    ledger, now = nodes.party._ledger, time.time()

    def spend(number, share):
        loss = Loss.of_epsilon(ledger.limits.lifetime.epsilon * share, Fraction(0))
        query_id = bytes([number]) * 32
        ledger.reserve(query_id, 1, Charge(((RECORD, loss),), "lea"), lapses_at_unix_s=now + 1000, now_unix_s=now)
        ledger.charge(query_id, 1, cohort_digest=bytes(32), spool_digest=bytes(32), now_unix_s=now)

    spend(1, Fraction(4, 5))
    before = page(nodes.watch)
    assert before("rado_ledger_remaining_ratio", scope="record") == pytest.approx(0.2, rel=1e-4)
    spend(2, Fraction(3, 20))
    yield Moment(before), Moment(page(nodes.watch))


@contextlib.contextmanager
def attempts_lost(nodes):
    first = page(nodes.watch)
    second = page(nodes.watch)
    nodes.watch.note_lost()
    yield Moment(second, first), Moment(page(nodes.watch), second)


@contextlib.contextmanager
def decision_waits(nodes):
    """No test waits for minutes: when the query was shown is said."""
    database = nodes.party._history.database

    def shown(ago_s: float) -> Moment:
        with database.transaction() as connection:
            connection.execute("DELETE FROM queries")
            connection.execute(
                "INSERT INTO queries VALUES (?, ?, 'lea', '', '', ?, NULL, NULL, NULL, 0, 1, NULL, NULL)",
                (b"q" * 32, time.time() - ago_s, int(time.time()) + DAY_S),
            )
        return Moment(page(nodes.watch))

    yield shown(200.0), shown(400.0)
    with database.transaction() as connection:
        connection.execute("DELETE FROM queries")


@contextlib.contextmanager
def proposal_waits(nodes):
    """No test waits for an hour: when the first person approved is said."""
    database, now = nodes.party._ledger.database, time.time()

    def proposed(ago_s: float, acts: int) -> Moment:
        with database.transaction() as connection:
            connection.execute("DELETE FROM approvals")
            connection.execute("DELETE FROM approval_acts")
            connection.execute(
                "INSERT INTO approvals VALUES (?, '{}', ?, 'proposed', ?)", (b"a" * 32, int(now) + DAY_S, now - ago_s)
            )
            if acts:
                act = (b"a" * 32, "ada", "", "", "approved", "", now - ago_s)
                connection.execute("INSERT INTO approval_acts VALUES (?, ?, ?, ?, ?, ?, ?)", act)
        return Moment(page(nodes.watch))

    # What nobody approved waits for nobody.
    assert not proposed(4000.0, 0).firing(rules()["RadoProposalWaits"]["expr"])
    yield proposed(3000.0, 1), proposed(4000.0, 1)
    with database.transaction() as connection:
        connection.execute("DELETE FROM approvals")
        connection.execute("DELETE FROM approval_acts")


@contextlib.contextmanager
def study_nearly_spent(nodes):
    ledger, now = nodes.party._ledger, time.time()
    kept = ledger.limits
    own = PrivacyLimit(Fraction(1), Fraction(1, 10**5))
    # Other tests have spent much of the party's own budget.
    roomy = PrivacyLimit(Fraction(100), Fraction(1, 10**5))
    ledger.limits = dataclasses.replace(kept, lifetime=roomy, studies={"EK 1": own, "EK 2": own})

    def spend(number, share):
        loss = Loss.of_epsilon(share, Fraction(0))
        charge = Charge(((RECORD, loss),), "lea", study="EK 1")
        query_id = bytes([number]) * 32
        ledger.reserve(query_id, 1, charge, lapses_at_unix_s=now + 1000, now_unix_s=now)
        ledger.charge(query_id, 1, cohort_digest=bytes(32), spool_digest=bytes(32), now_unix_s=now)

    spend(11, Fraction(1, 5))
    before = page(nodes.watch)
    # One more answer fits up to more than 0.8, as composition with a delta costs less than the sum.
    assert 0.15 < before("rado_study_spent_ratio", study="EK 1") <= 0.2
    assert before("rado_study_spent_ratio", study="EK 2") == 0
    spend(12, Fraction(15, 20))
    yield Moment(before), Moment(page(nodes.watch))
    ledger.limits = kept


@contextlib.contextmanager
def notification_fails(nodes):
    first = page(nodes.watch)
    nodes.watch.note_notification("failed")
    second = page(nodes.watch)
    nodes.watch.note_notification("given_up")
    yield Moment(second, first), Moment(page(nodes.watch), second)


@contextlib.contextmanager
def spool_nearly_full(nodes):
    before = Moment(page(nodes.watch))
    contribution = nodes.party._config.state_directory / "spool" / "00-1-masked"
    contribution.mkdir()
    (contribution / "chunk-0.bin").write_bytes(bytes(1_000_000))
    yield before, Moment(page(nodes.watch))
    (contribution / "chunk-0.bin").unlink()
    contribution.rmdir()


@contextlib.contextmanager
def disk_nearly_full(nodes):
    """No test fills a disk: the free bytes are said."""
    room = Room(0, 100, disk_free_bytes=6, disk_bytes=100)
    full = dataclasses.replace(room, disk_free_bytes=4)
    yield Moment(page(nodes.watch, *room.samples())), Moment(page(nodes.watch, *full.samples()))


FIRED = {
    "RadoNodeDown": node_down,
    "RadoNotReady": not_ready,
    "RadoLedgerSetBack": ledger_set_back,
    "RadoRowsNotAccepted": rows_not_accepted,
    "RadoCoordinatorOutOfReach": out_of_reach,
    "RadoPartiesAway": parties_away,
    "RadoCertificateExpiresSoon": certificate_expires,
    "RadoRosterExpiresSoon": roster_expires,
    "RadoLedgerNearlySpent": ledger_nearly_spent,
    "RadoAttemptsLost": attempts_lost,
    "RadoDecisionWaits": decision_waits,
    "RadoProposalWaits": proposal_waits,
    "RadoStudyNearlySpent": study_nearly_spent,
    "RadoNotificationFails": notification_fails,
    "RadoSpoolNearlyFull": spool_nearly_full,
    "RadoDiskNearlyFull": disk_nearly_full,
}
"""The states in which alerts fire: a node's moment before, when it must not, and the moment when it must."""


@pytest.mark.parametrize("alert", FIRED)
def test_it_fires_in_its_state_and_not_before(nodes, alert):
    expression = rules()[alert]["expr"]
    with FIRED[alert](nodes) as (before, now):
        assert not before.firing(expression)
        assert now.firing(expression)
