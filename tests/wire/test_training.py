"""The training that a query names: its terms, and queries that do not keep them."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.federation.party import World
from tests.wire.every_query import every_query, training_of
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import Query
from wire.training import LONGEST_OPTIONS, MOST_QUERIES, Training

WRONG = {
    "a short name": {"name": b"n" * 31},
    "an estimator in capitals": {"estimator": "Newton"},
    "no estimator": {"estimator": ""},
    "long options": {"options": "x" * (LONGEST_OPTIONS + 1)},
    "options with a line break": {"options": "rounds=3\napproved"},
    "options that change direction": {"options": "rounds=3\u202e"},
    # As each version of Python judges alike: one of a later Unicode prints it.
    "options with a mark of no shape": {"options": "\u0890"},
    "options with an outer space": {"options": "rounds=3 "},
    "a short digest": {"schema_digest": b"d" * 31},
    "no epsilon": {"epsilon": Fraction(0)},
    "a delta of 1": {"delta": Fraction(1)},
    "a negative delta": {"delta": Fraction(-1, 2)},
    "too many queries": {"queries": MOST_QUERIES + 1},
    "no attempt": {"max_attempts": 0},
    "an end before its beginning": {"ends_unix_s": 5},
}


@pytest.fixture
def query(secret_key) -> Query:
    return every_query(World(secret_key))["moments of a training"]


def refused(change) -> None:
    with pytest.raises(WireError) as caught:
        change()
    assert caught.value.code is Code.QUERY_INVALID


@pytest.mark.variants(12)
@pytest.mark.parametrize("how", WRONG)
def test_terms_that_are_none_are_refused(query, how):
    refused(lambda: training_of(query.schema, **WRONG[how]))


def test_it_travels_whole(query):
    assert Query.from_bytes(query.to_bytes()).training == query.training
    assert Training.from_bytes(query.training.to_bytes()) == query.training


def test_each_of_its_terms_is_in_its_digest(query):
    terms = query.training
    changes = {
        "name": b"m" * 32,
        "estimator": "additive",
        "options": "",
        "schema_digest": b"d" * 32,
        "epsilon": Fraction(2),
        "delta": Fraction(0),
        "queries": 0,
        "max_attempts": 4,
        "begins_unix_s": terms.begins_unix_s - 1,
        "ends_unix_s": terms.ends_unix_s + 1,
    }
    assert set(changes) == set(vars(terms))
    assert len({terms.digest, *(replace(terms, **{name: value}).digest for name, value in changes.items())}) == 11


def test_a_query_outside_of_the_training_that_it_names_is_refused(query):
    terms, created = query.training, query.created_at_unix_s
    for outside in (
        replace(terms, schema_digest=b"d" * 32),
        replace(terms, max_attempts=query.max_attempts - 1) if query.max_attempts > 1 else None,
        replace(terms, begins_unix_s=created + 1),
        replace(terms, begins_unix_s=created - 20, ends_unix_s=created - 10),
    ):
        if outside is not None:
            refused(lambda outside=outside: replace(query, training=outside))


def test_a_training_and_its_feature_go_together(query):
    refused(lambda: replace(query, training=None))
    refused(lambda: replace(query, features=(Feature.BASE.value,)))


def test_its_words_say_what_it_may_cost(query):
    assert query.training.words == (
        'training of newton with "rounds=10": at most epsilon 1 at delta 1e-06, 10 queries, each in up to 3 attempts'
    )
    # What a learner writes there looks like no limit.
    claims = replace(query.training, options='rounds=1": at most epsilon 0.1')
    assert claims.title == r'training of newton with "rounds=1\": at most epsilon 0.1"'
    assert "as many queries as fit in it" in replace(query.training, queries=0).words
