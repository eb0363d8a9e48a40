"""A party with several labels answers a query as a party whose schema has the query's label alone."""

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
from dpcore.records.features import Label
from parties.answering.attempts import AttemptState
from parties.answering.contribution import integer_vector
from tests.federation.party import SCHEMA, Ada, make_records
from wire.errors import Code
from wire.statements import Acceptance

DIED = replace(SCHEMA, label=Label(column="died", positive=("1",), missing="zero-vector"))
UNKNOWN = replace(SCHEMA, label=Label(column="died", positive=("2",), missing="zero-vector"))
CLIP = Clip(Fraction(2), SCHEMA.bias)
MOMENTS = MomentsQuery(CLIP, 7, 1 << 25)
EXACT = MomentsQuery(CLIP, 7, 3)
TABLE = RadosQuery(4, FixedSupportDesign(Fraction(1, 2), CLIP, 1 << 20))
RECORDS = make_records()
LABELS = np.where(np.arange(RECORDS.rows) % 3, 1, -1).astype(np.int8)
USABLE = np.arange(RECORDS.rows) % 5 != 0


def with_labels(ada: Ada) -> None:
    labels = np.where(USABLE, LABELS, np.int8(1))
    other = RECORDS.labelled(labels, USABLE, DIED.label.coding)
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, others=((DIED, other),)))


@pytest.fixture
def ada(world, tmp_path):
    found = Ada(world, tmp_path, policy=world.policy(designs=["moments", "fixed-support"]))
    with_labels(found)
    return found


def asking(ada, schema, kind=MOMENTS):
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=10)
    return ada.world.query(kind=kind, encoding=encoding, schema=schema, max_rows=1000)


def asked(ada, schema) -> Acceptance | Code:
    before = len(ada.hub.answers)
    ada.go(ada.world.ask(asking(ada, schema)))
    if ada.hub.accepted[before]:
        return Acceptance.from_bytes(ada.hub.answers[before].payload)
    ada.hub.accepted, ada.hub.answers = [False], ada.hub.answers[before:]
    return ada.hub.refusal_code


def test_each_label_is_answered_and_charged(ada):
    for schema in (SCHEMA, DIED):
        assert asked(ada, schema).rows == RECORDS.rows
    assert len(ada.ledger.events()) == 2


def test_another_label_is_refused_before_anything_is_reserved(ada):
    assert asked(ada, UNKNOWN) is Code.SCHEMA_MISMATCH
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, others=()))
    assert asked(ada, DIED) is Code.SCHEMA_MISMATCH
    assert ada.ledger.events() == []


def test_a_contribution_is_the_sum_over_the_rows_with_the_label(ada):
    query = asking(ada, DIED, EXACT)
    party = ada.lifecycle.party.under(DIED)
    opened = ada.world.open(ada.world.ask(query))
    values = integer_vector(opened, party.records, Computation(ada.lifecycle._random, party.secret))
    edges = RECORDS.features[USABLE] * LABELS[USABLE, np.newaxis]
    exact = (edges / 2.0**30).sum(axis=0) * (7 << 10)
    assert np.abs(values[: RECORDS.d] - exact).max() < 60
    assert np.abs(EXACT.sums(RECORDS, 10)[: RECORDS.d] - exact).max() > 200


def test_a_contribution_goes_on_after_a_restart_under_its_label(ada):
    envelope = ada.world.ask(asking(ada, DIED))
    assert ada.lifecycle.advance(ada.work(envelope))
    ada.restart()
    with_labels(ada)
    ada.lifecycle.compute(ada.work(envelope))
    assert ada.state(envelope) is AttemptState.READY


def test_what_repeats_its_draws_has_draws_of_its_own_for_each_label(ada):
    """With one draw for two labels, the difference of two answers would have no noise."""
    party = ada.lifecycle.party
    same = replace(party, others=((DIED, party.records),))
    under = same.under(DIED)
    assert under.records.digest == same.records.digest
    assert under.secret.schema_digest == DIED.digest
    assert TABLE.epoch(under.records, 10, under.secret) != TABLE.epoch(same.records, 10, same.secret)
    assert under.secret.secret == same.secret.secret
