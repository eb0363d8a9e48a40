"""Rows that a person has to check: what would be accepted is refused at once, and nothing is reserved or charged."""

import pytest

from parties.answering.attempts import AttemptState
from tests.federation.party import Ada, limits, ready, reserved, spent
from tests.parties.answering.test_questions import question
from tests.parties.answering.test_refusals import REFUSALS
from wire.errors import Code, ConnectionLostError
from wire.statements import Refusal, open_statement
from wire.status import PartyState, Phase

pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.mark.parametrize("asks", [True, False])
def test_what_would_be_accepted_is_refused_with_the_reason(ada, asks):
    ada.is_held = True
    envelope = question(ada) if asks else ada.world.ask()
    assert not ada.go(envelope)
    assert ada.hub.accepted == [False]
    assert ada.hub.refusal_code is Code.ROWS_NOT_ACCEPTED
    assert (spent(ada), reserved(ada), ada.reported_charges) == (0, 0, 0)
    assert ada.lifecycle.held() == set()


@pytest.mark.variants(4)
@pytest.mark.parametrize("case", [case for case in REFUSALS if "seed" not in case])
def test_who_is_refused_in_any_case_does_not_learn_it(ada, case):
    make, code = REFUSALS[case]
    ada.is_held = True
    ada.go(question(ada, make(ada)))
    assert ada.hub.refusal_code is code


def test_a_full_ledger_is_said_first(ada, tmp_path):
    full = Ada(ada.world, tmp_path / "full", limits=limits("1/1000", "1e-3"))
    full.is_held = True
    full.go(question(full))
    assert full.hub.refusal_code is Code.BUDGET_EXCEEDED


def test_another_query_is_answered_once_the_rows_are_accepted(ada):
    ada.is_held = True
    first = ada.world.ask()
    ada.go(first)
    ada.is_held = False
    # There is one answer for each attempt.
    ada.go(first)
    assert ada.hub.accepted == [False, False]
    ready(ada)
    assert ada.hub.accepted[-1]


@pytest.mark.parametrize("computed", [True, False])
def test_an_accepted_attempt_ends_uncharged(ada, computed):
    envelope = ada.world.ask()
    work = ada.work(envelope)
    ada.lifecycle.advance(work)
    if computed:
        ada.lifecycle.compute(work)
    ada.is_held = True
    ada.lifecycle.compute(work)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.PREPARING, state=PartyState.ACCEPTED))
    assert ada.state(envelope) is AttemptState.ENDED
    assert last_refusal(ada) is Code.ROWS_NOT_ACCEPTED
    assert (spent(ada), reserved(ada)) == (0, 0)


def test_a_cohort_is_not_charged_for(ada):
    envelope, cohort = ready(ada)
    ada.is_held = True
    ada.upload(envelope, cohort)
    assert (spent(ada), reserved(ada), ada.hub.chunks) == (0, 0, {})
    assert last_refusal(ada) is Code.ROWS_NOT_ACCEPTED


def test_a_charged_upload_goes_on(ada):
    envelope, cohort = ready(ada)
    ada.hub.fail["receipt"] = [ConnectionLostError("the coordinator", "away")]
    with pytest.raises(ConnectionLostError):
        ada.upload(envelope, cohort)
    charged = spent(ada)
    assert charged > 0
    ada.is_held = True
    ada.upload(envelope, cohort)
    assert (ada.state(envelope), spent(ada), ada.reported_charges) == (AttemptState.UPLOADED, charged, 1)


def last_refusal(ada) -> Code:
    assert not ada.hub.accepted[-1]
    return open_statement(Refusal, ada.hub.answers[-1], ada.world.roster)[0].code
