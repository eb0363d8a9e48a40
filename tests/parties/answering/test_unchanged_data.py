"""The party computes only what it reserved, even if its disk changed while it was down."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import FixedSupportDesign
from dpcore.records.clipping import Clip
from dpcore.records.computation import PartySecret
from dpcore.records.records import Records
from parties.answering.attempts import AttemptState
from parties.ledger.charges import RECORD
from tests.parties.party_world import SCHEMA, Ada, make_records

pytestmark = pytest.mark.usefixtures("small_comb")
TABLE = RadosQuery(20, FixedSupportDesign(Fraction(1, 2), Clip(Fraction(2), bias=True), 400_000))
# The same number of coordinates, and another meaning.
AGE, SMOKER = SCHEMA.features
SAME_SIZE = replace(SCHEMA, features=(replace(AGE, upper=50.0), SMOKER))


@pytest.fixture
def ada(world, tmp_path):
    return Ada(world, tmp_path, policy=world.policy(designs=["fixed-support", "dp-feat"]))


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


@pytest.mark.parametrize("kind", [TABLE, None])
def test_a_schema_that_changed_is_not_computed_for(ada, kind):
    work = accepted(ada, **({} if kind is None else {"kind": kind}))
    assert SAME_SIZE.d == SCHEMA.d
    hold(ada, schema=SAME_SIZE)
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is AttemptState.ENDED
    assert ada.spools.used_bytes() == 0


def test_rows_that_changed_do_not_stop_what_is_not_repeatable(ada):
    """Fresh noise and fresh signatures cost the same over other values in as many rows."""
    work = accepted(ada)
    hold(ada, records=make_records(seed=5))
    ada.lifecycle.compute(work)
    assert ada.state(work.query) is AttemptState.READY
