"""A series of adaptive questions to parties: which rows are asked, which tolerance is promised, and what is refused."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.errors import ConfigurationError, PlanError
from dpcore.estimators.kearns_list import KearnsList
from dpcore.predicates.notation import parse
from dpcore.records.encoding import store
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Label, Schema
from dpcore.statistics.accuracy import CHOSEN_BEFORE, Batch, SharedNoise
from dpcore.statistics.adaptive import Adaptive, Leak, Way
from learner.federation import Federation
from tests.federation.learner import Memory, World

DELTA = Fraction(1, 10**6)
QUESTION = ("y == 1",)


def coins(rows: int, features: int, seed: int) -> Records:
    """Independent fair coins, also as labels: no predicate about them has anything to find."""
    random = np.random.default_rng(seed)
    x = np.column_stack([random.choice([-1.0, 1.0], (rows, features)), np.ones(rows)])
    return Records(store(x), random.choice([-1, 1], rows).astype(np.int8), np.ones(rows, dtype=bool))


def federation(learner_key, rows: int, features: int = 2, seed: int = 0, parties: int = 3) -> Federation:
    names = [f"p{place}" for place in range(parties)]
    flags = [BooleanFeature(name=f"b{place}", true=("t",), false=("f",)) for place in range(features)]
    schema = Schema(name="coins", label=Label(column="l", positive=("t",)), features=tuple(flags))
    records = {name: coins(rows // parties, features, 100 * seed + place) for place, name in enumerate(names)}
    world = World(learner_key, dict.fromkeys(names, rows // parties))
    return Federation(Memory(world, records, secret=seed.to_bytes(32, "big")), schema)


def overfit(federation: Federation, adaptive: Adaptive | int | None) -> list[bool]:
    """Ask each feature against the label, then the vote that the answers choose; whether each tolerance held."""
    oracle = federation.within(Fraction(100), DELTA, adaptive)
    names = [feature.name for feature in oracle.schema.flags]
    agree = [f'x["{name}"] & (y == 1)' for name in names] + [f'~x["{name}"] & (y == -1)' for name in names]
    first = oracle.statistic([parse(text) for text in agree], part=Fraction(1, 2))
    votes = first.values[: len(names)] + first.values[len(names) :] - 0.5
    form = " ".join(f'{"+" if vote > 0 else "-"} 1*z["{name}"]' for name, vote in zip(names, votes, strict=True))
    second = oracle.statistic([parse(f"({form.lstrip('+ ')} >= 0) & (y == 1)")], part=Fraction(1, 2))
    return [bool(np.abs(found.values - 0.25).max() <= found.tolerance) for found in (first, second)]


@pytest.mark.more
def test_tolerances_hold_against_a_learner_that_overfits_only_in_a_series(learner_key):
    """600 questions and the vote that they choose, over 1,998 fair coins."""
    without = [overfit(federation(learner_key, 1998, 300, seed), None) for seed in range(5)]
    within = [overfit(federation(learner_key, 1998, 300, seed), 2) for seed in range(15)]
    assert all(first for first, _ in without)
    assert sum(second for _, second in without) <= 2
    # The stated share is 95 %, and Hoeffding's bound leaves more.
    assert sum(all(run) for run in within) >= 14


def test_a_split_asks_each_row_once_and_promises_what_a_piece_keeps(learner_key):
    asked = federation(learner_key, 30_000)
    oracle = asked.within(Fraction(50), DELTA, Adaptive(3, Way.SPLIT))
    found = [oracle.statistic(QUESTION, part=Fraction(1, 3)) for _ in range(3)]
    pieces = [query.held_back for query in asked.source.asked]
    assert pieces == [HeldBack(Fraction(0), Part.TRAINING, 3, place) for place in range(3)]
    covered = [
        np.sum([asked.source.part(name, query).usable for name in asked.source.records]) for query in asked.source.asked
    ]
    assert sum(covered) == 30_000
    assert all(abs(count - 10_000) < 500 for count in covered)
    rows = {estimates.rows for estimates in found}
    assert rows == {10_000}
    # Near that of 10,000 rows of one's own, at a third of the failure: their number is not known.
    own = math.sqrt(math.log(2 / (0.05 / 6)) / 20_000)
    assert all(1.5 * own < estimates.sampling < 2.5 * own for estimates in found)
    assert all("rows of its own" in estimates.premise for estimates in found)
    with pytest.raises(ConfigurationError, match="3 adaptive questions were asked"):
        oracle.statistic(QUESTION, part=Fraction(1, 100))


def test_without_a_series_the_premise_is_that_no_answer_chose_the_question(learner_key):
    found = federation(learner_key, 300).statistic(QUESTION, epsilon=Fraction(1))
    assert found.premise == CHOSEN_BEFORE


def test_few_answers_with_noise_tell_little_so_all_rows_answer_all(learner_key):
    asked = federation(learner_key, 30_000)
    oracle = asked.within(Fraction(1), DELTA, 10)
    found = [oracle.statistic(QUESTION, part=Fraction(1, 10)) for _ in range(10)]
    assert {query.held_back for query in asked.source.asked} == {None}
    assert all("tell little" in estimates.premise for estimates in found)
    # The first is a sample's, each later one larger.
    assert found[0].sampling == pytest.approx(math.sqrt(math.log(2 / (0.05 / 20)) / 60_000))
    assert all(earlier.sampling < later.sampling for earlier, later in pairwise(found))
    split = federation(learner_key, 30_000).within(Fraction(1), DELTA, Adaptive(10, Way.SPLIT))
    assert found[-1].tolerance < split.statistic(QUESTION, part=Fraction(1, 10)).tolerance


def test_private_answers_keep_tolerances_of_any_number_of_statistics(learner_key):
    asked = federation(learner_key, 3_000_000 // 1000, features=1)
    oracle = asked.within(Fraction(1, 100), DELTA, Adaptive(2, Way.PRIVACY))
    many = [f'100 * z["b0"] >= {place}' for place in range(-20, 20)]
    with pytest.raises(PlanError, match="too few"):
        oracle.statistic(many, part=Fraction(1, 2))
    roomy = asked.within(Fraction(1), Fraction(0), Adaptive(2, Way.PRIVACY))
    first, second = (roomy.statistic(QUESTION, part=Fraction(1, 2)) for _ in range(2))
    assert first.sampling < 0.05
    assert second.sampling == pytest.approx(math.tanh(1 / 4), rel=1e-6)
    assert second.sampling <= Leak(1.0, math.inf).bias(1e-9)


@pytest.mark.parametrize("way", Way)
def test_too_few_rows_are_refused_before_anything_is_asked(learner_key, way):
    asked = federation(learner_key, 60)
    oracle = asked.within(Fraction(1), DELTA, Adaptive(20, way))
    with pytest.raises(PlanError, match="60 rows are too few for 20 adaptive questions"):
        oracle.statistic(QUESTION, part=Fraction(1, 20))
    assert not asked.source.asked
    assert oracle.left == 1


def test_parties_that_state_no_rows_give_no_promise_beforehand(learner_key):
    asked = federation(learner_key, 3000)
    asked.source.world.rows = dict.fromkeys(asked.source.world.rows)
    with pytest.raises(PlanError, match="state rows, or leave adaptive out"):
        asked.within(Fraction(1), DELTA, 2).statistic(QUESTION, part=Fraction(1, 2))


def test_a_series_answers_statistics_only(learner_key):
    oracle = federation(learner_key, 3000).within(Fraction(1), DELTA, 2)
    with pytest.raises(ConfigurationError, match="leave adaptive out"):
        oracle.moments(part=Fraction(1, 2))


def test_answers_before_a_series_count_as_answers_of_it(learner_key):
    asked = federation(learner_key, 30_000)
    asked.statistic(QUESTION, epsilon=Fraction(1))
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        asked.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT)).statistic(QUESTION, part=Fraction(1, 3))
    later = asked.within(Fraction(1), DELTA, Adaptive(3, Way.INFORMATION))
    found = later.statistic(QUESTION, part=Fraction(1, 3))
    fresh = federation(learner_key, 30_000).within(Fraction(1), DELTA, Adaptive(3, Way.INFORMATION))
    assert found.sampling > fresh.statistic(QUESTION, part=Fraction(1, 3)).sampling
    later.statistic(QUESTION, part=Fraction(1, 3))
    with pytest.raises(ConfigurationError, match="were asked"):
        later.statistic(QUESTION, part=Fraction(1, 3))


SHARE = Fraction(1, 4)
THIRD = Fraction(1, 3)


@pytest.mark.parametrize("part", Part)
def test_answers_about_all_rows_count_in_a_series_about_a_part_of_them(learner_key, part):
    asked = federation(learner_key, 30_000)
    child = dict(zip(Part, asked.hold_back(SHARE), strict=True))[part]
    alone = child.within(Fraction(1), DELTA, Adaptive(3, Way.INFORMATION)).statistic(QUESTION, part=THIRD)
    asked = federation(learner_key, 30_000)
    child = dict(zip(Part, asked.hold_back(SHARE), strict=True))[part]
    asked.statistic(QUESTION, epsilon=Fraction(1))
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        child.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT)).statistic(QUESTION, part=THIRD)
    oracle = child.within(Fraction(1), DELTA, Adaptive(3, Way.INFORMATION))
    assert oracle.statistic(QUESTION, part=THIRD).sampling > alone.sampling
    oracle.statistic(QUESTION, part=THIRD)
    with pytest.raises(ConfigurationError, match="3 adaptive questions were asked"):
        oracle.statistic(QUESTION, part=THIRD)


def test_answers_about_a_part_count_in_a_series_about_all_rows(learner_key):
    asked = federation(learner_key, 30_000)
    training, _ = asked.hold_back(SHARE)
    training.statistic(QUESTION, epsilon=Fraction(1))
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        asked.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT)).statistic(QUESTION, part=THIRD)


@pytest.mark.parametrize("way", [Way.SPLIT, Way.INFORMATION])
def test_whatever_was_asked_about_the_other_part_tells_only_how_many_rows_this_one_has(learner_key, way):
    """An answer about the training rows that is no statistic: about the same rows it would have no bound in nats."""
    asked = federation(learner_key, 30_000)
    training, held_back = asked.hold_back(SHARE)
    training.within(Fraction(1), DELTA).moments()
    found = held_back.within(Fraction(1), DELTA, Adaptive(2, way)).statistic(QUESTION, part=Fraction(1, 2))
    failure = 0.05 / 2
    share = float(SHARE) / (2 if way is Way.SPLIT else 1)
    fresh = Batch(1, SharedNoise(LaplaceShares(Fraction(1), 1), 1, 0), share=share, is_fresh=True)
    assert found.sampling == pytest.approx(fresh.half_widths(30_000, failure).sampling, rel=1e-3)
    with pytest.raises(PlanError, match="that are no statistics are known already"):
        training.within(Fraction(1), DELTA, Adaptive(2, Way.INFORMATION)).statistic(QUESTION, part=Fraction(1, 2))


def test_a_larger_share_that_is_held_back_is_not_disjoint_from_the_training_rows(learner_key):
    asked = federation(learner_key, 30_000)
    training, _ = asked.hold_back(SHARE)
    _, more = asked.hold_back(2 * SHARE)
    more.statistic(QUESTION, epsilon=Fraction(1))
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        training.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT)).statistic(QUESTION, part=THIRD)


def test_local_answers_about_the_other_part_are_about_these_rows_too(learner_key):
    asked = federation(learner_key, 30_000)
    training, held_back = asked.hold_back(SHARE)
    training.statistic(QUESTION, epsilon=Fraction(1), delta=Fraction(0), local=True)
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        held_back.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT)).statistic(QUESTION, part=THIRD)


@pytest.mark.parametrize(("epoch", "counts"), [("2026-10", False), ("2026-11", True), (None, True)])
def test_answers_about_another_epoch_tell_nothing_of_this_one(learner_key, epoch, counts):
    parent = federation(learner_key, 30_000)
    asked = Federation(parent.source, parent.schema, epoch="2026-11")
    other = Federation(parent.source, parent.schema, epoch=epoch)
    # As if one federation had asked both, whose learner is one.
    asked._known = other._known
    other.within(Fraction(1), DELTA).moments()
    training, held_back = asked.hold_back(SHARE)
    # How many rows an epoch has is known from an answer about it.
    held_back.statistic(QUESTION, epsilon=Fraction(1))
    series = training.within(Fraction(1), DELTA, Adaptive(3, Way.SPLIT))
    if not counts:
        assert "rows of its own" in series.statistic(QUESTION, part=THIRD).premise
        return
    with pytest.raises(PlanError, match="no piece of them is fresh"):
        series.statistic(QUESTION, part=THIRD)


def test_the_rows_of_an_epoch_are_those_of_the_last_answer_about_it(learner_key):
    parent = federation(learner_key, 3000)
    asked = Federation(parent.source, parent.schema, epoch="2026-11")
    with pytest.raises(PlanError, match="state rows, or leave adaptive out"):
        asked.within(Fraction(1), DELTA, 2).statistic(QUESTION, part=Fraction(1, 2))
    assert asked.within(Fraction(1), DELTA).rows == 0
    asked.statistic(QUESTION, epsilon=Fraction(1))
    assert asked.within(Fraction(1), DELTA).rows == 3000


@pytest.mark.parametrize(
    ("way", "refusal"),
    [(Way.SPLIT, "no piece of them is fresh"), (Way.INFORMATION, "no statistics are known already")],
)
def test_answers_that_come_between_the_questions_of_a_series_count(learner_key, way, refusal):
    asked = federation(learner_key, 30_000)
    training, held_back = asked.hold_back(SHARE)
    series = training.within(Fraction(1), DELTA, Adaptive(3, way))
    series.statistic(QUESTION, part=THIRD)
    held_back.within(Fraction(1), DELTA).moments()
    series.statistic(QUESTION, part=THIRD)
    asked.within(Fraction(1), DELTA).moments()
    with pytest.raises(PlanError, match=refusal):
        series.statistic(QUESTION, part=THIRD)


@pytest.mark.more
def test_tolerances_about_a_part_hold_against_a_learner_that_overfits_all_rows(learner_key):
    """600 questions about 1,998 fair coins, and then the vote that they choose, about nine tenths of them."""
    held = []
    for seed in range(5):
        asked = federation(learner_key, 1998, 300, seed)
        training, _ = asked.hold_back(Fraction(1, 10))
        names = [feature.name for feature in asked.schema.flags]
        agree = [f'x["{name}"] & (y == 1)' for name in names] + [f'~x["{name}"] & (y == -1)' for name in names]
        first = asked.statistic(agree, epsilon=Fraction(50), delta=DELTA)
        votes = first.values[: len(names)] + first.values[len(names) :] - 0.5
        form = " ".join(f'{"+" if vote > 0 else "-"} 1*z["{name}"]' for name, vote in zip(names, votes, strict=True))
        vote = f"({form.lstrip('+ ')} >= 0) & (y == 1)"
        alone = training.statistic([vote], epsilon=Fraction(50), delta=DELTA)
        held.append(abs(alone.values[0] - 0.25) <= alone.tolerance)
        with pytest.raises(PlanError):
            training.within(Fraction(50), DELTA, 3).statistic([vote], part=THIRD)
    # Without a series nothing is promised of new rows, and the vote is not within its tolerance there.
    assert sum(held) <= 2


def test_a_tolerance_that_no_number_of_rows_keeps_is_refused_in_words(learner_key):
    oracle = federation(learner_key, 30_000).within(Fraction(1), Fraction(0), Adaptive(2, Way.PRIVACY))
    oracle.statistic(QUESTION, part=Fraction(1, 2))
    with pytest.raises(PlanError, match="no number of rows would at this noise, but a tolerance of"):
        oracle.statistic(QUESTION, part=Fraction(1, 2), tolerance=0.1)


def test_a_decision_list_states_the_error_that_it_has_on_new_rows(learner_key):
    """The labels: +1 if b0, else -1 if b1, else +1. Three questions, each chosen by the answers before."""
    asked = federation(learner_key, 60_000)
    for name, records in asked.source.records.items():
        first, second = records.features[:, 0] > 0, records.features[:, 1] > 0
        asked.source.records[name] = replace(records, labels=np.where(~first & second, -1, 1).astype(np.int8))
    learner = KearnsList(error=0.4, rounds=3).fit_queries(asked.within(Fraction(100), DELTA, 3))
    rows = coins(10_000, 2, 9).features
    labels = np.where((rows[:, 0] <= 0) & (rows[:, 1] > 0), -1, 1)
    assert (learner.predict(rows / 2.0**30) == labels).all()
    assert 0 < learner.error_bound_ < 0.2
    assert learner.guarantee_.endswith("of new rows, with probability 0.95")
    fresh = federation(learner_key, 60_000)
    with pytest.raises(PlanError, match="rows would"):
        KearnsList(error=0.001, rounds=3).fit_queries(fresh.within(Fraction(100), DELTA, 3))
