"""Predicates as messages: each has one canonical form, and any other table is refused before it is used."""

from dataclasses import replace
from fractions import Fraction

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import RadofedError
from dpcore.predicates.evaluation import MOST_NODES
from dpcore.predicates.expressions import (
    Above,
    Affine,
    And,
    AtLeast,
    Clipped,
    Constant,
    Equals,
    Flag,
    FormCoordinates,
    LabelAbove,
    LabelIs,
    NonNegative,
    Not,
    Or,
)
from dpcore.predicates.notation import to_text
from dpcore.records.features import DateFeature, Day, EventTime, Label
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from tests.wire.test_query_kinds import SCHEMA
from wire.codec import rational_to_proto
from wire.errors import Code, WireError
from wire.query_kinds import read_predicates, write_predicates

FORMS = FormCoordinates(SCHEMA)

FORM = Affine((("age", 3), ("ward=b", -2)), 5)
ATOMS = st.sampled_from(
    [
        Constant(True),
        Constant(False),
        LabelIs(True),
        LabelIs(False),
        Flag("smoker"),
        Flag("tall"),
        Equals("ward", "a"),
        Equals("ward", "c"),
        AtLeast("age", Fraction(65)),
        AtLeast("age", Fraction(-1, 3)),
        Above("age", Fraction(65)),
        NonNegative(FORM),
        Clipped(FORM, 16),
    ]
)


def joined(parts):
    several = st.lists(parts, min_size=2, max_size=4).map(tuple)
    return parts.map(Not) | several.map(And) | several.map(Or)


PREDICATES = st.recursive(ATOMS, joined, max_leaves=12)


def written(*predicates) -> query_pb2.StatisticQuery:
    message = query_pb2.StatisticQuery()
    write_predicates(predicates, FORMS, message)
    return query_pb2.StatisticQuery.FromString(message.SerializeToString())


@settings(deadline=None)
@given(st.lists(PREDICATES, min_size=1, max_size=6, unique=True))
def test_predicates_survive_a_round_trip(predicates):
    message = written(*predicates)
    assert read_predicates(message, FORMS) == tuple(predicates)
    assert len(message.nodes) == len({node.SerializeToString(deterministic=True) for node in message.nodes})


def test_shared_nodes_travel_once():
    flag = Flag("smoker")
    message = written(flag & LabelIs(True), flag | Not(flag), flag)
    assert len(message.nodes) == 5
    assert list(message.predicates) == [2, 4, 0]


def table(first="flag: 1", second="label_is_positive: true", both="0, 1", more="predicates: 2"):
    """The table of a conjunction, as a peer may change it."""
    nodes = f"nodes {{ {first} }} nodes {{ {second} }} nodes {{ all_of {{ places: [{both}] }} }}"
    return text_format.Parse(f"{nodes} {more}", query_pb2.StatisticQuery())


def form(coordinates: str, weights: str):
    return table(f"non_negative {{ coordinates: [{coordinates}] weights: [{weights}] }}")


def real(bound: str):
    return table(f"at_least {{ feature: 0 bound {{ {bound} }} }}")


HOSTILE = {
    "a node uses itself": table(both="2, 1"),
    "a node twice": table(more="predicates: [2, 3] nodes { flag: 1 }"),
    "a node of no use": table(more="predicates: 2 nodes { flag: 3 }"),
    "another order": table("label_is_positive: true", "flag: 1", "1, 0"),
    "a root that is absent": table(more="predicates: [2, 77]"),
    "a root behind the last": table(more="predicates: [2, 3]"),
    "a feature that is absent": table("flag: 77"),
    "a feature behind the last": table(f"flag: {len(SCHEMA.features)}"),
    "a value that is absent": table("equals { feature: 2 value: 3 }"),
    "a value of no category": table("equals { feature: 1 value: 0 }"),
    "nothing": table(""),
    "a bound not in lowest terms": real("numerator: 2 denominator: 4"),
    "more coordinates than weights": form("0, 1", "1"),
    "coordinates in another order": form("1, 0", "1, 1"),
    "a coordinate that is absent": form(str(len(SCHEMA.coordinates)), "1"),
    "a weight of zero": form("0", "0"),
    "a large weight": form("0", str(1 << 32)),
    "a scale of zero": table("clipped { form { constant: 1 } }"),
    "one operand": table(both="1"),
}


def test_the_table_is_accepted_unchanged():
    assert table() == written(Flag("smoker") & LabelIs(True))
    assert read_predicates(table(), FORMS) == (Flag("smoker") & LabelIs(True),)


def test_a_clipped_form_has_a_form():
    """One that is absent would be the same predicate as one that is empty."""
    message = written(Clipped(FORM, 16))
    message.nodes[0].clipped.ClearField("form")
    with pytest.raises(WireError, match="has no form"):
        read_predicates(message, FORMS)


@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_any_other_table_is_refused(message):
    with pytest.raises(RadofedError) as refused:
        read_predicates(message, FORMS)
    if isinstance(refused.value, WireError):
        assert refused.value.code is Code.QUERY_INVALID


def test_a_short_table_of_an_exponential_tree_is_refused():
    with pytest.raises(WireError, match="nodes"):
        read_predicates(doubled(25), FORMS)


def test_a_deep_tree_is_refused_without_a_recursion():
    message = query_pb2.StatisticQuery()
    message.nodes.add().flag = 1
    for place in range(50_000):
        message.nodes.add().complement = place
    message.predicates.append(50_000)
    with pytest.raises(WireError, match="deep"):
        read_predicates(message, FORMS)


def doubled(levels: int) -> query_pb2.StatisticQuery:
    """A tree of 2^(levels + 1) - 1 nodes, of which each level travels once."""
    message = query_pb2.StatisticQuery()
    message.nodes.add().flag = 1
    for place in range(levels):
        message.nodes.add().all_of.places.extend([place, place])
    message.predicates.append(levels)
    return message


def test_a_tree_is_as_large_as_it_is_written_out():
    levels = MOST_NODES.bit_length() - 2
    assert 2 ** (levels + 1) - 1 == MOST_NODES - 1
    (found,) = read_predicates(doubled(levels), FORMS)
    assert isinstance(found, And)
    with pytest.raises(WireError, match=f"at most {MOST_NODES} nodes"):
        read_predicates(doubled(levels + 1), FORMS)


def test_a_table_of_too_many_nodes_is_refused_before_it_is_read():
    message = query_pb2.StatisticQuery()
    message.nodes.extend([query_pb2.PredicateNode(flag=1)] * (MOST_NODES + 1))
    with pytest.raises(WireError, match="batch"):
        read_predicates(message, FORMS)


def test_of_a_time_to_an_event_a_query_is_shown_in_the_words_of_its_label():
    label = EventTime(column="months", event="died", happened=("1",), censored=("0",), borders=(12.0, 24.0))
    message, forms = query_pb2.StatisticQuery(), FormCoordinates(replace(SCHEMA, label=label))
    asked = (LabelIs(True), LabelIs(False), Not(LabelAbove(Fraction(12))))
    write_predicates(asked, forms, message)
    found = read_predicates(message, forms)
    assert found == asked
    assert [to_text(each) for each in found] == ["y.event", "y == -1", "y.time <= 12"]


def test_a_table_may_be_as_deep_and_large_as_the_limits(monkeypatch):
    message = written(Flag("smoker") & Not(LabelIs(True)))
    limits = {"MOST_DEPTH": 3, "MOST_NODES": 4}
    for name, most in limits.items():
        monkeypatch.setattr(f"wire.query_kinds.{name}", most)
    assert read_predicates(message, FORMS) == (Flag("smoker") & Not(LabelIs(True)),)
    for name, most in limits.items():
        with monkeypatch.context() as patched:
            patched.setattr(f"wire.query_kinds.{name}", most - 1)
            with pytest.raises(WireError, match="at most"):
                read_predicates(message, FORMS)


DATES = Schema(
    name="dates",
    label=Label(column="y", positive=("1",)),
    features=(
        DateFeature(name="in", first="2019-01-01", last="2024-12-31", since="2000-01-01", parts=("month",)),
        DateFeature(name="out", first="2019-01-01", last="2024-12-31"),
    ),
)


def written_dates(*predicates) -> query_pb2.StatisticQuery:
    message = query_pb2.StatisticQuery()
    write_predicates(predicates, FormCoordinates(DATES), message)
    return message


def test_dates_travel_as_days_after_the_stated_one_and_groups_by_their_places():
    half = Fraction(2 * Day.of("2020-02-29").number + 1, 2)
    predicates = (
        AtLeast("in", Day.of("2020-02-29")),
        Above("in", half),
        Equals("in.month", "March"),
        AtLeast("out", Day.of("2018-12-31")),
    )
    message = written_dates(*predicates)
    assert read_predicates(message, FormCoordinates(DATES)) == predicates
    first, _, month, out = message.nodes
    assert (first.at_least.feature, first.at_least.bound.numerator, first.at_least.bound.denominator) == (0, 7364, 1)
    assert (month.equals.feature, month.equals.value, out.at_least.feature) == (1, 2, 2)


@pytest.mark.parametrize("number", [Fraction(1 << 40), Fraction(-(10**6)), Fraction(1, 1 << 40), Fraction(2**62)])
def test_a_number_of_days_that_is_no_date_is_refused(number):
    message = written_dates(AtLeast("in", Day.of("2020-02-29")))
    message.nodes[0].at_least.bound.CopyFrom(rational_to_proto(number))
    with pytest.raises(WireError, match="no date") as refused:
        read_predicates(message, FormCoordinates(DATES))
    assert refused.value.code is Code.QUERY_INVALID
