"""A question whether a party would accept a query: decided as the query is, and nothing is reserved or charged."""

import time
from fractions import Fraction

import pytest

from parties.answering.decisions import verify_cohort
from tests.federation.party import Ada, limits, ready, reserved, spent
from tests.parties.answering.test_refusals import REFUSALS
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import Query
from wire.statements import Acceptance, open_statement
from wire.status import PartyState, Phase

pytestmark = pytest.mark.usefixtures("small_comb")


def question(ada, query: Query | None = None):
    """The same query, with the mark that it only asks."""
    query = query or ada.world.query()
    changes = {name: getattr(query, name) for name in Query.__dataclass_fields__ if name != "features"}
    return ada.world.ask(Query(**changes, features=tuple(sorted({*query.features, Feature.QUESTION}))))


def test_it_is_answered_with_the_rows_and_nothing_is_kept(ada):
    envelope = question(ada)
    entries = ada.ledger.state()
    assert not ada.go(envelope)
    (answer,) = ada.hub.answers
    said, _ = open_statement(Acceptance, answer, ada.world.roster)
    assert (said.query_id, said.rows) == (envelope.payload_hash, ada.records.rows)
    assert said.ledger_head is None
    assert ada.hub.accepted == [True]
    assert ada.state(envelope) is None
    assert (spent(ada), reserved(ada), ada.reported_charges) == (0, 0, 0)
    assert ada.ledger.state() == entries
    assert ada.lifecycle.held() == set()
    assert ada.history.count_waiting(time.time()) == 0


@pytest.mark.variants(4)
@pytest.mark.parametrize("case", [case for case in REFUSALS if "seed" not in case])
def test_it_is_refused_as_the_query_is(ada, case):
    make, code = REFUSALS[case]
    assert not ada.go(question(ada, make(ada)))
    assert ada.hub.refusal_code is code


def test_a_full_ledger_would_refuse(ada, tmp_path):
    """Asked over and over, a question takes nothing of it."""
    full = Ada(ada.world, tmp_path / "full", limits=limits("1/1000", "1e-3"))
    for number in range(3):
        full.go(question(full))
        assert full.hub.accepted == [False] * (number + 1)
    assert full.hub.answers
    assert reserved(full) == 0


def test_no_coordinator_makes_a_charge_of_it(ada):
    """It says that the question has a cohort, with this party's own signed answer in it."""
    envelope = question(ada)
    ada.go(envelope)
    cohort = ada.world.cohort(ada.hub.answers[0])
    for phase, state in ((Phase.PREPARING, PartyState.ACCEPTED), (Phase.UPLOADING, PartyState.UPLOADING)):
        assert not ada.lifecycle.advance(ada.work(envelope, phase=phase, state=state, cohort=cohort))
        ada.lifecycle.compute(ada.work(envelope, phase=phase, state=state, cohort=cohort))
    assert (ada.hub.chunks, ada.hub.receipts, ada.hub.readies) == ({}, [], [])
    assert (spent(ada), reserved(ada)) == (0, 0)
    with pytest.raises(WireError, match="question, which has no cohort") as refused:
        verify_cohort(cohort, ada.world.open(envelope), 1, ada.lifecycle.party, ada.world.roster, ada.hub.answers[0])
    assert refused.value.code is Code.QUERY_INVALID


def test_the_query_itself_is_charged_as_ever(ada):
    ada.go(question(ada))
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    assert ada.reported_charges == 1
    assert spent(ada) > Fraction(0)
