"""A party answers a query about an epoch from the rows of that epoch alone."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.numbers.fixed_point import plan_encoding
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import FixedSupportDesign
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from parties.answering.attempts import AttemptState
from parties.answering.contribution import integer_vector
from parties.ledger.charges import RECORD, charge_for
from tests.federation.party import SCHEMA, Ada, in_epochs, make_records
from wire.errors import Code
from wire.statements import Acceptance

NAMES = ("2026-11", "2026-12")
CODES = np.array([0, 1, 1, 0, 1] * 8, dtype=np.int32)
CLIP = Clip(Fraction(2), SCHEMA.bias)
TABLE = RadosQuery(4, FixedSupportDesign(Fraction(1, 2), CLIP, 1 << 20))


def with_epochs(ada: Ada, codes=CODES, ids=None) -> None:
    ada.lifecycle.follow_data(in_epochs(ada.lifecycle.party, NAMES, codes, ids))


def about(world, epoch: str | None, kind=None):
    kind = kind or MomentsQuery(CLIP, 7, 1 << 25)
    bits = 10 if isinstance(kind, MomentsQuery) else 16
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=bits)
    return world.query(kind=kind, encoding=encoding, epoch=epoch, max_rows=1000)


@pytest.fixture
def ada(world, tmp_path):
    found = Ada(world, tmp_path, policy=world.policy(designs=["moments", "fixed-support"]))
    with_epochs(found)
    return found


def asked(ada, epoch, kind=None) -> Acceptance | Code:
    """What the party answers to a query about an epoch."""
    before = len(ada.hub.answers)
    ada.go(ada.world.ask(about(ada.world, epoch, kind)))
    if ada.hub.accepted[before]:
        return Acceptance.from_bytes(ada.hub.answers[before].payload)
    ada.hub.accepted, ada.hub.answers = [False], ada.hub.answers[before:]
    return ada.hub.refusal_code


def test_the_rows_of_the_epoch_alone_are_counted_summed_and_charged(ada):
    for epoch, rows in (("2026-11", 16), ("2026-12", 24), (None, 40)):
        found = asked(ada, epoch)
        assert not isinstance(found, Code), found
        assert found.rows == rows
        party = ada.lifecycle.party.about(epoch)
        chosen = np.isin(CODES, [i for i, name in enumerate(NAMES) if epoch in (None, name)])
        all_rows = make_records()
        alone = Records(all_rows.features[chosen], all_rows.labels[chosen], all_rows.usable[chosen])
        assert party.records.digest == alone.digest
    charges = [event.charge for event in ada.ledger.events()]
    assert [charge.row_epoch for charge in charges] == ["2026-11", "2026-12", None]
    alone = charge_for(about(ada.world, "2026-11"), 16)
    assert ada.ledger.reserved(RECORD).epsilon == 2 * alone.bound(RECORD).epsilon


def test_an_epoch_without_rows_is_refused_before_anything_is_reserved(ada):
    assert asked(ada, "2027-01") is Code.EPOCH_EMPTY
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, epochs=None))
    assert asked(ada, "2026-11") is Code.EPOCH_EMPTY
    assert ada.ledger.events() == []


def test_whether_there_are_rows_is_not_said_to_a_learner_that_is_refused(ada):
    ada.lifecycle.follow(ada.world.policy(designs=["plain"]))
    assert asked(ada, "2027-01") is Code.POLICY_DESIGN


def test_a_row_in_two_epochs_is_refused_before_anything_is_reserved(ada):
    asked(ada, "2026-11")
    codes = CODES.copy()
    codes[0] = 1
    with_epochs(ada, codes)
    assert asked(ada, "2026-12") is Code.EPOCH_CHANGED
    assert len(ada.ledger.events()) == 1
    with_epochs(ada)
    assert asked(ada, "2026-12").rows == 24


def test_new_rows_of_later_epochs_are_answered(ada):
    asked(ada, "2026-11")
    # The rows of the first epoch left the table: others came.
    with_epochs(ada, np.ones(40), range(100, 140))
    assert asked(ada, "2026-12").rows == 40


def test_a_contribution_goes_on_after_a_restart_from_the_rows_of_its_epoch(ada):
    envelope = ada.world.ask(about(ada.world, "2026-12"))
    assert ada.lifecycle.advance(ada.work(envelope))
    ada.restart()
    with_epochs(ada)
    ada.lifecycle.compute(ada.work(envelope))
    assert ada.state(envelope) is AttemptState.READY


def test_equal_rows_of_two_epochs_have_noise_of_their_own(ada):
    """With the same noise, the answers about one epoch would tell whether a row of another is like its own."""
    one = make_records(20, seed=3)
    twice = Records(*(np.concatenate([getattr(one, name)] * 2) for name in ("features", "labels", "usable")))
    party = in_epochs(replace(ada.lifecycle.party, records=twice), NAMES, np.repeat([0, 1], 20))
    tables = [TABLE.epoch(party.about(name).records, 16, party.about(name).secret) for name in NAMES]
    assert party.about(NAMES[0]).records.digest == party.about(NAMES[1]).records.digest
    assert len({*tables, TABLE.epoch(one, 16, party.secret)}) == 3


def test_held_back_rows_of_an_epoch_are_those_of_all_rows(ada):
    whole, part = ada.lifecycle.party, ada.lifecycle.party.about("2026-12")
    assert part.numbers.by_id.tolist() == whole.numbers.by_id[CODES == 1].tolist()


def test_a_question_about_a_row_in_two_epochs_is_refused_as_its_query_would_be(ada):
    asked(ada, "2026-11")
    with_epochs(ada, np.ones(40))
    query = about(ada.world, "2026-12")
    question = replace(query, features=(*query.features, "question"))
    ada.hub.accepted.clear()
    ada.hub.answers.clear()
    ada.lifecycle.advance(ada.work(ada.world.ask(question)))
    assert ada.hub.refusal_code is Code.EPOCH_CHANGED


def test_a_contribution_is_the_sum_over_the_epoch(ada):
    party = ada.lifecycle.party.about("2026-12")
    opened = ada.world.open(ada.world.ask(about(ada.world, "2026-12", MomentsQuery(CLIP, 7, 3))))
    values = integer_vector(opened, party.records, Computation(ada.lifecycle._random, party.secret))
    exact = MomentsQuery(CLIP, 7, 3).sums(party.records, 10)
    whole = MomentsQuery(CLIP, 7, 3).sums(ada.lifecycle.party.records, 10)
    assert np.abs(values - exact).max() < 40 < np.abs(values - whole).max()
