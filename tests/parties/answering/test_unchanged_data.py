"""The party computes only what it reserved, from the rows of its acceptance, even if its data changed meanwhile."""

import gc
import weakref
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import LabelIs
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import FixedSupportDesign
from dpcore.records.clipping import Clip
from dpcore.records.computation import PartySecret
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.held_back import HeldBack, Part, RowKey, RowNumbers
from dpcore.records.records import Records
from parties.answering import lifecycle
from parties.answering.attempts import AttemptState
from parties.ledger.charges import RECORD, Division, Side
from tests.federation.party import SCHEMA, Ada, make_records
from wire.status import Phase

pytestmark = pytest.mark.usefixtures("small_comb")
TABLE = RadosQuery(20, FixedSupportDesign(Fraction(1, 2), Clip(Fraction(2), bias=True), 400_000))
STATISTIC = StatisticQuery((LabelIs(True),), SCHEMA, GaussianShares(400_000))
# The same number of coordinates, and another meaning.
AGE, SMOKER = SCHEMA.features
SAME_SIZE = replace(SCHEMA, features=(replace(AGE, upper=50.0), SMOKER))


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path, policy=world.policy(designs=["fixed-support", "dp-feat", "statistic"]))


def other_label(records: Records) -> Records:
    labels = np.array(records.labels)
    labels[7] = -labels[7]
    return Records(records.features, labels, records.usable)


def hold(ada, **changes) -> None:
    ada.lifecycle._party = replace(ada.lifecycle._party, **changes)


def accepted(ada, **changes):
    work = ada.work(ada.world.ask(ada.world.query(**changes)))
    assert ada.lifecycle.advance(work)
    return work


@pytest.mark.parametrize("changed", ["nothing", "a label", "the secret"])
def test_another_noised_table_than_the_one_reserved_is_not_computed(ada, changed):
    """It would be a second release, and the ledger would count it as the first."""
    work = accepted(ada, kind=TABLE)
    ada.restart()
    if changed == "a label":
        hold(ada, records=other_label(ada.records))
    if changed == "the secret":
        hold(ada, secret=PartySecret(b"another".ljust(32), SCHEMA.digest))
    ada.lifecycle.compute(work)
    whole = changed == "nothing"
    assert ada.state(work.query) is (AttemptState.READY if whole else AttemptState.ENDED)
    assert (ada.ledger.reserved(RECORD).epsilon > 0) is whole
    assert (ada.spools.used_bytes() > 0) is whole


def test_a_table_under_another_map_is_another_table(ada):
    """One table is charged once. Under the same name a second map's release of the same rows would be free."""
    edge = FeatureMap((Term(Hat(0, None, 0, ONE)),), SCHEMA.bias)
    maps = [None, edge, FeatureMap((*edge.terms, Term(Column(1))), SCHEMA.bias)]
    for feature_map in maps:
        mapped = {} if feature_map is None else {"feature_map": feature_map}
        assert accepted(ada, kind=TABLE, **mapped)
    charges = [event.charge for event in ada.ledger.events()]
    assert len({charge.epoch for charge in charges}) == len(charges) == 3
    assert ada.ledger.reserved(RECORD).epsilon > 2 * charges[0].bound(RECORD).epsilon


@pytest.mark.parametrize("kind", [TABLE, None])
def test_a_schema_that_changed_is_not_computed_for(ada, kind):
    work = accepted(ada, **({} if kind is None else {"kind": kind}))
    assert SAME_SIZE.d == SCHEMA.d
    ada.restart()
    hold(ada, schema=SAME_SIZE)
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is AttemptState.ENDED
    assert ada.spools.used_bytes() == 0


@pytest.mark.parametrize("kind", [TABLE, None])
@pytest.mark.parametrize("same", [True, False])
def test_a_restart_computes_from_the_rows_of_the_acceptance_or_ends_uncharged(ada, kind, same):
    hold(ada, data_digest="first")
    work = accepted(ada, **({} if kind is None else {"kind": kind}))
    ada.restart()
    hold(ada, data_digest="first" if same else "second")
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is (AttemptState.READY if same else AttemptState.ENDED)
    assert (ada.spools.used_bytes() > 0) is same
    if not same:
        (kept,) = ada.history.refusals()
        assert kept.detail == "After it was accepted: The data changed after this party accepted the query."


NUMBERS = RowNumbers(RowKey(b"s" * 32, "fed", "ada", "data"), np.arange(40, dtype=np.uint64))
OTHER_KEY = RowNumbers(RowKey(b"s" * 32, "fed", "ada", "renamed"), NUMBERS.by_id)


@pytest.mark.parametrize(("numbers", "computed"), [(NUMBERS, True), (OTHER_KEY, False), (None, False)])
def test_a_part_is_computed_after_a_restart_if_the_same_key_divides_the_rows(ada, numbers, computed):
    """Its charge keeps the name of the load that it was accepted with."""
    hold(ada, data_digest="first", numbers=NUMBERS, load="one")
    work = accepted(ada, kind=STATISTIC, held_back=HeldBack(Fraction(1, 5), Part.TRAINING))
    (event,) = ada.ledger.events()
    assert event.charge.side == Side(Division("one", NUMBERS.key.name), Fraction(1, 5), is_held_back=False)
    ada.restart()
    hold(ada, data_digest="first", numbers=numbers, load="two")
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is (AttemptState.READY if computed else AttemptState.ENDED)
    if computed:
        assert [found.charge for found in ada.ledger.events()] == [event.charge]


@pytest.mark.parametrize("without", ["ids", "a name of the load", "a part"])
def test_without_ids_or_a_part_an_answer_counts_in_full(ada, without):
    by_place = replace(NUMBERS, by_id=None)
    hold(ada, numbers=by_place if without == "ids" else NUMBERS, load="" if without == "a name of the load" else "one")
    part = {} if without == "a part" else {"held_back": HeldBack(Fraction(1, 5), Part.TRAINING)}
    accepted(ada, kind=STATISTIC, **part)
    (event,) = ada.ledger.events()
    assert event.charge.side is None


def test_rows_of_an_acceptance_that_were_not_noted_are_unknown(ada):
    """The process may end between the acceptance and its note. It then computes nothing, and charges nothing."""
    hold(ada, data_digest="first")
    work = accepted(ada)
    ada.restart()
    with ada.history.database.transaction() as connection:
        connection.execute("DELETE FROM events")
    hold(ada, data_digest="first")
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is AttemptState.ENDED


def test_data_that_are_loaded_again_are_for_later_queries(ada, monkeypatch):
    """Also with another number of rows. An accepted query is computed from the rows of its acceptance."""
    used = []
    monkeypatch.setattr(lifecycle, "integer_vector", _noting(lifecycle.integer_vector, used))
    before, after = ada.lifecycle.party, replace(ada.lifecycle.party, records=make_records(31), data_digest="second")
    work = accepted(ada)
    ada.lifecycle.follow_data(after)
    later = accepted(ada)
    for each in (work, later):
        ada.lifecycle.compute(each)
        assert ada.state(each.query) is AttemptState.READY
    assert used == [before.records, after.records]
    assert [ada.attempts.find(each.query.payload_hash, 1).rows for each in (work, later)] == [40, 31]
    digests = [ada.history.data_digest(each.query.payload_hash, 1) for each in (work, later)]
    assert digests == ["", "second"]


@pytest.mark.more
def test_former_rows_are_held_no_longer_than_an_attempt_needs_them(ada):
    hold(ada, records=make_records(seed=5))
    computed, over = accepted(ada), accepted(ada)
    former = weakref.ref(ada.lifecycle.party.records)
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, records=make_records(31)))
    ada.lifecycle.compute(computed)
    gc.collect()
    assert former() is not None
    ada.lifecycle.advance(replace(over, phase=Phase.FAILED))
    gc.collect()
    assert former() is None


def test_a_policy_that_is_read_while_data_are_loaded_stays(ada):
    loaded = replace(ada.lifecycle.party, records=make_records(31))
    policy = ada.world.policy(designs=["dp-feat"])
    ada.lifecycle.follow(policy)
    ada.lifecycle.follow_data(loaded)
    assert ada.lifecycle.policy is policy
    assert ada.lifecycle.party.records.rows == 31


def _noting(real, used):
    def noting(opened, records, computation):
        used.append(records)
        return real(opened, records, computation)

    return noting
