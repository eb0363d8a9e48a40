"""Attacks on the asking path: queries that cost a party far more than they hold, and journals that ask twice."""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.mixed import PureLoss
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.accounting.protection import Setting as CostSetting
from dpcore.accounting.protection import loss_of
from dpcore.predicates import disjoint
from dpcore.predicates.disjoint import MOST_LOOKED_AT, batch_sensitivity
from dpcore.predicates.expressions import And, AtLeast, Constant, Flag, Not, PredicateError
from dpcore.queries.statement import CountedRelease, composed_cost
from dpcore.queries.statistic import StatisticQuery
from learner.journal import JournalError, SessionSource
from learner.requests import StatisticRequest
from tests.federation.party import SCHEMA, World
from tests.federation.setting import Setting
from wire import query as wire_query
from wire.envelopes import SigningKey
from wire.errors import Code, TimedOutError, WireError
from wire.status import Phase

# Python reduces every rational modulo this prime to hash it.
_HASH_MODULUS = (1 << 61) - 1
_DELTA = Fraction(1, 10**6)


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    yield made
    made.stub.stop()


class CountingTuple(tuple):
    """Counts how many of its items are walked over, one by one."""

    __slots__ = ()
    walked = 0

    def __iter__(self):
        for item in super().__iter__():
            CountingTuple.walked += 1
            yield item


def test_bounds_cannot_be_chosen_to_share_a_hash():
    # n = c d mod P: different rationals, one hash. 19,000 of them fit a query and take half an hour to read.
    generator = np.random.default_rng(1)
    divisors = [int(number) | 1 for number in generator.integers(1 << 40, 1 << 60, 500)]
    bounds = {Fraction((_HASH_MODULUS // 3) * divisor % _HASH_MODULUS, divisor) for divisor in divisors}
    assert len(bounds) > 400
    assert len({hash(AtLeast("age", bound)) for bound in bounds}) > len(bounds) // 2


def test_facts_of_many_predicates_do_not_walk_over_one_large_part_for_each():
    large, predicates = And((Flag("smoker"),) * 20_000), 50
    object.__setattr__(large, "parts", CountingTuple(large.parts))
    batch = [And((large, AtLeast("age", Fraction(place)))) for place in range(predicates)]
    CountingTuple.walked = 0
    batch_sensitivity(batch)
    assert CountingTuple.walked <= predicates * 4 * MOST_LOOKED_AT + 4 * 20_000


def test_grouping_does_work_in_proportion_to_the_facts(monkeypatch):
    compared = 0
    clusters = disjoint._clusters

    def counted(found):
        nonlocal compared
        compared += len(found)
        return clusters(found)

    monkeypatch.setattr(disjoint, "_clusters", counted)
    # All have 60 facts in common; the k-th of the first 60 differs from all others in one, so that levels peel off one.
    common, deep = [Flag(f"common {number}") for number in range(60)], [Flag(f"deep {number}") for number in range(60)]
    batch = [And((*common, *deep[:k], Not(deep[k]), *deep[k + 1 :])) for k in range(60)]
    batch += [And((*common, *deep, AtLeast("age", Fraction(place)))) for place in range(100)]
    batch_sensitivity(batch)
    facts = sum(len(predicate.parts) for predicate in batch)
    assert compared <= 10 * facts


def test_a_query_is_not_read_before_its_signature(learner_key, monkeypatch):
    world = World(learner_key.secret)
    predicates = (Constant(value=True), Flag("smoker"))
    payload = world.query(kind=StatisticQuery(predicates, SCHEMA, GaussianShares(10)))
    forged = world.ask(payload, key=SigningKey.generate("clinics"))
    read = []
    kind_of = wire_query.read_kind
    monkeypatch.setattr(wire_query, "read_kind", lambda *given: read.append(given) or kind_of(*given))
    with pytest.raises(WireError) as refused:
        world.open(forged)
    assert refused.value.code is Code.SIGNATURE_INVALID
    assert not read


def test_a_ledger_adds_up_short_fractions():
    scale = Fraction((1 << 63) - 25, (1 << 23) + 9)
    distribution = PureLoss(LaplaceShares(scale, 2).epsilon(1))
    loss = loss_of(distribution, _DELTA)
    for part in (loss.epsilon, loss.rho):
        assert part.denominator & (part.denominator - 1) == 0


def test_one_pure_release_costs_what_it_says():
    kind = StatisticQuery((Flag("smoker"),), SCHEMA, LaplaceShares(Fraction(1), 2))
    release = CountedRelease(kind, {"ada": 10, "bo": 10}, SCHEMA, CostSetting(SCHEMA.d, 0, 2))
    assert composed_cost([release], _DELTA).epsilon == 1


def asked_about(number: int) -> StatisticRequest:
    predicate = AtLeast("age", Fraction(number))
    return StatisticRequest(SCHEMA, (predicate,), epsilon=Fraction(1), pure=True, max_rows=1000)


def rounds(path) -> list[str]:
    return [entry["query_id"] for entry in json.loads(path.read_text())["rounds"]]


def test_a_journal_answers_again_without_asking(setting, tmp_path):
    journal = tmp_path / "journal"
    for _ in range(2):
        with setting.session() as session:
            source = SessionSource(session, journal)
            for number in (10, 20):
                source.answer(source.plan(asked_about(number)))
    assert len(setting.stub.submitted) == 2


def test_a_journal_with_another_state_directory_is_not_overwritten(setting, tmp_path):
    journal = tmp_path / "journal"
    with setting.session() as session:
        source = SessionSource(session, journal)
        for number in (10, 20):
            source.answer(source.plan(asked_about(number)))
    before = rounds(journal)
    elsewhere = {"state_directory": tmp_path / "state", "releases_directory": tmp_path / "elsewhere"}
    with setting.session(**elsewhere) as session:
        source = SessionSource(session, journal)
        # The first round was answered, for there is a second: asking it again would cost twice and lose the record.
        with pytest.raises(JournalError):
            source.answer(source.plan(asked_about(10)))
    assert rounds(journal) == before
    assert len(setting.stub.submitted) == 2


@pytest.mark.variants(1)
@pytest.mark.parametrize("code", [Code.INTERNAL, Code.DRAINING])
def test_a_round_that_continues_is_not_asked_again(setting, tmp_path, code):
    journal = tmp_path / "journal"
    with setting.session() as session:
        setting.stub.phases = [Phase.ANSWERING]
        source = SessionSource(session, journal, timeout_s=0.2)
        with pytest.raises(TimedOutError, match="continues"):
            source.answer(source.plan(asked_about(10)))
    with setting.session() as session:
        source = SessionSource(session, journal, timeout_s=0.2)
        # The coordinator fails once; the query is open there, and parties compute it.
        setting.stub.fail["WatchQuery"] = code
        with pytest.raises(WireError):
            source.answer(source.plan(asked_about(10)))
    assert len(setting.stub.submitted) == 1


def test_two_runs_do_not_share_a_journal(setting, tmp_path):
    journal = tmp_path / "journal"
    with setting.session() as one, setting.session() as other:
        first = SessionSource(one, journal)
        with pytest.raises(JournalError):
            second = SessionSource(other, journal)
            for source in (first, second):
                source.answer(source.plan(asked_about(10)))
    assert len(setting.stub.submitted) <= 1


@pytest.mark.more
def test_what_was_paid_can_be_saved(setting):
    long = And(tuple(AtLeast("age", Fraction(place, 7)) for place in range(5000)))
    request = StatisticRequest(SCHEMA, (long,), epsilon=Fraction(1), pure=True, max_rows=1000)
    with setting.session() as session:
        try:
            plan = session.plan(request)
        except PredicateError:
            # Refusing it before any party is asked is equally good.
            return
        release = session.run(plan)
    assert release.rows == sum(setting.rows.values())


class Killed(BaseException):
    """Stands for a process that ends here."""


@pytest.mark.variants(1)
@pytest.mark.parametrize("place", ["ask", "send", "watch", "fetch", "_saved"])
def test_a_run_that_is_killed_anywhere_asks_once(setting, tmp_path, monkeypatch, place):
    journal = tmp_path / "journal"

    def killed(*_given, **_named):
        raise Killed

    with setting.session() as session:
        monkeypatch.setattr(session, place, killed)
        source = SessionSource(session, journal)
        answered = 0
        try:
            for number in (10, 10):
                source.answer(source.plan(asked_about(number)))
                answered += 1
        except Killed:
            assert answered == 0
    with setting.session() as session:
        source = SessionSource(session, journal)
        first, second = (source.answer(source.plan(asked_about(10))) for _ in range(2))
    assert first.query_id != second.query_id
    assert len({envelope.payload_hash for envelope in setting.stub.submitted}) == 2
