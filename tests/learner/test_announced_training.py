"""What a learner announces of a training, and that a run which is continued announces the same."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.estimators import make_estimator
from learner.training import AskedTraining, _options_words
from tests.learner.test_warm_start import SCHEMA
from tests.wire.every_query import training_of
from wire.request_fields import QueryTerms, seconds_of

DAY_S = 24 * 3600


class Source:
    """A source with a journal, or none."""

    def __init__(self, training=None) -> None:
        self.training = training


class Announcing:
    """What `AskedTraining` reads of a federation."""

    def __init__(self, training=None, **terms) -> None:
        self.source, self.terms = Source(training), terms


def training(estimator: str = "newton", epsilon: str = "1", **options) -> AskedTraining:
    made = make_estimator(estimator, **options)
    return AskedTraining(estimator, made, SCHEMA, Fraction(epsilon), Fraction(1, 10**6), {})


def test_it_announces_its_rounds_and_its_whole_budget():
    found = training(rounds=10)._announced(Announcing())
    assert (found.estimator, found.queries, found.options) == ("newton", 10, "rounds=10")
    assert (found.epsilon, found.delta, found.max_attempts) == (1, Fraction(1, 10**6), 3)
    assert found.schema_digest == SCHEMA.unweighted.digest
    assert found.ends_unix_s - found.begins_unix_s == 7 * DAY_S
    assert training("decision-stump")._announced(Announcing()).queries == 0


def test_options_are_announced_as_the_wire_takes_them():
    class Odd:
        def __init__(self, way: str = "") -> None:
            self.way = way

        def get_params(self, *, deep: bool) -> dict[str, str]:
            return {"way": self.way}

    for way, words in (("up ", "way=up"), ("a\u202eb\n", "way=ab"), ("x" * 300, f"way={'x' * 192} ...")):
        assert _options_words(Odd(way)) == words
        replace(training_of(SCHEMA), options=words)


def test_people_who_have_days_make_it_longer():
    found = training(rounds=10)._announced(Announcing(answer_within_s=3 * DAY_S))
    assert found.ends_unix_s - found.begins_unix_s == 30 * DAY_S + 10 * 7200


def test_a_run_that_is_continued_announces_the_same_and_another_does_not():
    first = training(rounds=10)._announced(Announcing())
    assert training(rounds=10)._announced(Announcing(first)) == first
    for other in (training(rounds=9), training(rounds=10, epsilon="2"), training("logistic-gd", rounds=10)):
        assert other._announced(Announcing(first)).name != first.name
    ended = type(first)(**{**vars(first), "begins_unix_s": 1, "ends_unix_s": 2})
    assert training(rounds=10)._announced(Announcing(ended)).name != first.name


def test_days_to_answer_make_the_query_live_longer():
    asked = QueryTerms(answer_within="3d")
    assert (asked.answer_within_s, asked.expires_after_s) == (3 * DAY_S, 4 * DAY_S)
    assert QueryTerms(answer_within="45min").expires_after_s == DAY_S + 2700
    with pytest.raises(ConfigurationError, match="give one of them"):
        QueryTerms(answer_within="3d", answer_within_s=60)
    for wrong in ("3", "3 weeks", "0d", "1.5h", ""):
        with pytest.raises(ConfigurationError, match="with a unit"):
            seconds_of(wrong, "answer_within")
