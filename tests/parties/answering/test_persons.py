"""A party answers queries about persons: it counts them, sums their averages, and refuses what it cannot tell."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore.numbers.fixed_point import plan_encoding
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.held_back import HeldBack, Part, RowNumbers
from dpcore.records.persons import PERSON_WEIGHT, Persons
from dpcore.records.records import Records
from parties.answering.contribution import integer_vector
from parties.ledger.charges import PERSON, RECORD, charge_for
from parties.policy import PolicyLimits, ScopeLimit
from tests.federation.party import ROW_KEY, SCHEMA, Ada, in_epochs
from wire.errors import Code
from wire.features import Feature
from wire.statements import Acceptance

MOMENTS = MomentsQuery(Clip(Fraction(2), SCHEMA.bias), 7, 1 << 34)
GRADIENT = GradientQuery("logistic", (0, 0, 0), Fraction(1), 1 << 40)
IDS = [f"patient {place % 9}" for place in range(40)]


def about(world, persons=Persons(1), kind=MOMENTS, **more):  # noqa: B008  (it is frozen)
    features = (Feature.BASE.value, *([] if persons is None else [Feature.PERSONS.value]))
    return world.query(
        kind=kind.of_persons(persons),
        encoding=plan_encoding(largest_sum=1 << 48, max_parties=3, fraction_bits=10),
        persons=persons,
        features=features,
        **{"max_rows": 1000, **more},
    )


def with_ids(ada: Ada, ids) -> None:
    party = ada.lifecycle.party
    ada.lifecycle.follow_data(replace(party, numbers=RowNumbers(ROW_KEY, ROW_KEY.of_ids(ids)), load="load"))


@pytest.fixture
def ada(world, tmp_path):
    found = Ada(world, tmp_path, policy=world.policy(designs=["moments", "gradient"]))
    with_ids(found, IDS)
    return found


def asked(ada, query) -> Acceptance | Code:
    """What the party answers."""
    before = len(ada.hub.answers)
    ada.go(ada.world.ask(query))
    if ada.hub.accepted[before]:
        return Acceptance.from_bytes(ada.hub.answers[before].payload)
    ada.hub.accepted, ada.hub.answers = [False], ada.hub.answers[before:]
    return ada.hub.refusal_code


def test_a_party_states_its_persons_and_charges_their_scope(ada):
    query = about(ada.world)
    found = asked(ada, query)
    assert not isinstance(found, Code), found
    assert found.rows == 9
    (charge,) = (event.charge for event in ada.ledger.events())
    assert charge == charge_for(query, 9)
    assert [scope for scope, _ in charge.bounds] == [PERSON]
    # A record is within a person.
    assert charge.bound(RECORD) == charge.bound(PERSON)
    assert ada.ledger.reserved(PERSON).epsilon == ada.ledger.reserved(RECORD).epsilon > 0


def test_a_query_of_records_bounds_nothing_of_persons(ada):
    asked(ada, about(ada.world, None))
    asked(ada, about(ada.world))
    assert ada.ledger.reserved(RECORD).epsilon > ada.ledger.reserved(PERSON).epsilon > 0
    (persons, records) = ada.ledger.state(now_unix_s=None).scopes[:2]
    assert (persons.scope, records.scope) == (PERSON, RECORD)
    assert (persons.held.unbounded, records.held.unbounded) == (1, 0)


def test_a_party_without_ids_refuses_before_anything_is_reserved(ada):
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, numbers=RowNumbers(ROW_KEY)))
    assert asked(ada, about(ada.world)) is Code.PERSONS_UNKNOWN
    ada.lifecycle.follow_data(replace(ada.lifecycle.party, numbers=None))
    assert asked(ada, about(ada.world)) is Code.PERSONS_UNKNOWN
    assert ada.ledger.events() == []


def test_a_row_without_an_id_is_refused_before_anything_is_reserved(ada):
    with_ids(ada, [*IDS[:-1], ""])
    assert asked(ada, about(ada.world)) is Code.PERSONS_UNKNOWN
    assert ada.ledger.events() == []
    assert asked(ada, about(ada.world, None)).rows == 40


def test_a_party_with_a_limit_for_persons_refuses_queries_of_records(ada):
    limit = ScopeLimit(epsilon="2", delta="1e-5")
    base = ada.lifecycle.party.policy
    limits = base.limits.model_copy(update={"person": limit})
    ada.lifecycle.follow(base.model_copy(update={"limits": limits}))
    assert asked(ada, about(ada.world, None)) is Code.UNIT_REFUSED
    assert ada.ledger.events() == []
    assert asked(ada, about(ada.world)).rows == 9


def test_gradients_of_persons_need_their_rows(ada):
    """Where workers of a cluster read the table, the party has no single rows. Nothing is charged."""
    party = ada.lifecycle.party
    features: Any = FeaturesElsewhere(40, 3, None)
    elsewhere = Records(features, party.records.labels, party.records.usable)
    ada.lifecycle.follow_data(replace(party, records=elsewhere))
    assert asked(ada, about(ada.world, kind=GRADIENT)) is Code.PLAN_INFEASIBLE
    assert ada.ledger.events() == []
    assert asked(ada, about(ada.world, kind=MOMENTS)).rows == 9


def test_the_limit_for_persons_is_one_of_its_own(ada):
    limits = PolicyLimits(epsilon="9", delta="1e-4", person=ScopeLimit(epsilon="1", delta="1e-5"))
    found = limits.of_ledger
    assert found.of(PERSON).epsilon == 1
    assert found.of(RECORD).epsilon == 9
    assert found.named_scopes[:2] == (PERSON, RECORD)
    assert str(found).startswith("epsilon 9 at delta 0.0001; person epsilon 1 at")


def test_more_than_the_limit_for_persons_is_refused(ada):
    little = replace(ada.ledger.limits.lifetime, epsilon=Fraction(1, 10**9))
    ada.ledger.limits = replace(ada.ledger.limits, person=little)
    assert asked(ada, about(ada.world)) is Code.BUDGET_EXCEEDED
    assert ada.ledger.events() == []


def test_both_parts_of_persons_at_one_party_count_once_and_at_several_in_full(ada):
    parts = {part: HeldBack(Fraction(1, 5), part) for part in Part}
    for parties, is_divided in ((1, True), (2, False)):
        charges = [
            charge_for(about(ada.world, Persons(parties), held_back=part), 9, division=ada.lifecycle.party.division)
            for part in parts.values()
        ]
        assert all((charge.side is not None) == is_divided for charge in charges)


def test_persons_of_an_epoch_are_counted_in_it(ada):
    codes = np.array([place % 9 // 5 for place in range(40)])
    ada.lifecycle.follow_data(in_epochs(ada.lifecycle.party, ("2026-11", "2026-12"), codes, [p % 9 for p in range(40)]))
    assert asked(ada, about(ada.world, epoch="2026-11")).rows == 5
    assert asked(ada, about(ada.world, epoch="2026-12")).rows == 4


@pytest.mark.parametrize("kind", [replace(MOMENTS, share_sigma=3), replace(GRADIENT, share_sigma=3)])
def test_a_contribution_is_of_persons(ada, kind):
    """Of persons with one row each it is that of records, in finer units."""
    party, opened = ada.lifecycle.party, ada.world.open(ada.world.ask(about(ada.world, kind=kind)))

    def values(ids):
        numbers = RowNumbers(ROW_KEY, ROW_KEY.of_ids(ids))
        return integer_vector(opened, party.records, Computation(ada.lifecycle._random, party.secret, numbers=numbers))

    single, sums = values([str(place) for place in range(40)]), kind.sums(party.records, 10)
    # Gradients are shortened as wholes, those of records by their weights.
    assert single == pytest.approx(PERSON_WEIGHT * sums, abs=60 if kind.name == "moments" else 1 << 24)
    assert np.linalg.norm(values(IDS)) < np.linalg.norm(single) / 3


def test_rows_that_do_not_count_are_counted_and_logged(ada, monkeypatch, caplog):
    monkeypatch.setattr("dpcore.records.persons.PERSON_WEIGHT", 4)
    with_ids(ada, ["a"] * 10 + ["b"] * 30)
    assert ada.lifecycle.party.rows_left_out(about(ada.world)) == 32
    assert ada.lifecycle.party.rows_left_out(about(ada.world, None)) == 0
    with caplog.at_level("WARNING"):
        asked(ada, about(ada.world))
    assert any("rows left out" in record.getMessage() for record in caplog.records)
