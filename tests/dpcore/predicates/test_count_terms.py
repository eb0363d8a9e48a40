"""Terms of the Poisson likelihood of counts as predicates: what they are, that they fit [0, 1], and how they travel."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.predicates.count_terms import deviance_bound, gain_bound
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, values
from dpcore.predicates.expressions import (
    Affine,
    CountDeviance,
    CountGain,
    FormCoordinates,
    LabelExposure,
    PredicateError,
    swap_label,
)
from dpcore.predicates.frontend import count, deviance, gain, loss, y, z
from dpcore.predicates.notation import parse, to_text
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.encoding import store
from dpcore.records.features import Count, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from rado.v1 import query_pb2
from wire.errors import WireError
from wire.query_kinds import read_predicates, write_predicates
from wire.query_summary import columns

AGE = RealFeature(name="age", lower=0.0, upper=100.0)
OVER = Count(column="n", upper=8, exposure="t", exposure_lower=0.5, exposure_upper=2.0)
SCHEMA = Schema(name="s", label=OVER, features=(AGE,))
BARE = Schema(name="s", label=Count(column="n", upper=8), features=(AGE,))
MOST = 6
"""Two counts are above it."""
GAIN = CountGain(MOST, Fraction(1, 2), Affine((("age", 3),), 1), 4, Fraction(3, 2))
LOSS = replace(GAIN, is_loss=True)
TEXTS = [
    'loss((3 * z["age"] + 1) / 4, 0.5, 1.5, 6)',
    'gain((3 * z["age"] + 1) / 4, 0.5, 1.5, 6)',
    "deviance(-1/3, 4)",
    "count(3)",
    "y.exposure",
    "~y.exposure & (y >= 2)",
]
BITS = 20


def held(schema: Schema, rows: int = 400, seed: int = 1) -> tuple[Records, tuple[np.ndarray, ...]]:
    random = np.random.default_rng(seed)
    age, counts, over = random.uniform(-1, 1, rows), random.integers(0, 9, rows), random.uniform(0.5, 2.0, rows)
    # Every corner of the bounds, too.
    age[:4], counts[:4], over[:4] = (-1, 1, -1, 1), (0, 0, 8, 8), (2.0, 2.0, 0.5, 0.5)
    labels = counts.astype(np.int32)
    if schema is SCHEMA:
        labels = np.column_stack([labels, np.rint(np.log(over) * 2**OFFSET_BITS)]).astype(np.int32)
    else:
        over = np.ones(rows)
    x = np.column_stack([age, np.ones(rows)])
    return Records(store(x), labels, np.ones(rows, bool), coding=schema.label.coding), (age, counts, over)


@pytest.mark.parametrize("schema", [SCHEMA, BARE])
def test_terms_are_those_of_the_likelihood(schema):
    records, (age, counts, over) = held(schema)
    counts = np.minimum(counts, MOST)
    found = values([GAIN, LOSS, ~GAIN, CountDeviance(MOST, Fraction(1, 2))], schema, records, BITS) / 2**BITS
    scores = 0.5 + 1.5 * (2 * np.clip((3 * age + 1) / 4, 0, 1) - 1)

    # The difference of two log-likelihoods of Poisson counts, whose factorials cancel.
    def likelihood(s: np.ndarray) -> np.ndarray:
        return counts * np.log(over * np.exp(s)) - over * np.exp(s)

    gains = likelihood(scores) - likelihood(np.full(len(age), 0.5))
    bound = gain_bound(MOST, 2.0 if schema is SCHEMA else 1.0, Fraction(1, 2), Fraction(3, 2))
    assert found[:, 0] == pytest.approx(np.maximum(gains, 0) / bound, abs=3e-6)
    assert found[:, 1] == pytest.approx(np.maximum(-gains, 0) / bound, abs=3e-6)
    assert found[:, [0, 2]].sum(axis=1) == pytest.approx(1.0, abs=3e-6)
    assert gains.min() < 0 < gains.max()
    means = over * math.exp(0.5)
    deviances = np.array([n * math.log(n / m) - n + m if n else m for n, m in zip(counts, means, strict=True)])
    assert found[:, 3] == pytest.approx(deviances / deviance_bound(schema.label, Fraction(1, 2), MOST), abs=3e-6)


def test_no_term_needs_clipping_within_the_bounds():
    """So that a sum of values is the sum of terms, moved and divided, without a bias."""
    generator = np.random.default_rng(2)
    for upper in (1, 8, 1000):
        for largest in (1.0, 40.0):
            label = Count(column="n", upper=upper, exposure="t", exposure_lower=largest / 100, exposure_upper=largest)
            centre, reach = Fraction(float(generator.uniform(-5, 3))), Fraction(float(generator.uniform(0.1, 4)))
            counts, over = np.array([0, upper / 2, upper])[:, None, None], np.linspace(largest / 100, largest, 7)
            s = float(centre) + float(reach) * np.linspace(-1, 1, 41)[:, None]
            gains = counts * (s - float(centre)) - over * (np.exp(s) - math.exp(centre))
            assert np.abs(gains).max() <= gain_bound(upper, largest, centre, reach) * (1 + 1e-12)
            means = over * math.exp(centre)
            terms = np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / means), 0) - counts + means
            assert terms.min() >= 0
            assert terms.max() <= deviance_bound(label, centre, upper) * (1 + 1e-12)


def test_a_count_is_a_share_of_a_bound():
    records, (_, counts, _) = held(BARE)
    share, rest = values([count(MOST), ~count(MOST)], BARE, records, BITS).T / 2**BITS
    assert share == pytest.approx(np.minimum(counts, MOST) / MOST, abs=3e-6)
    assert rest == pytest.approx(1 - np.minimum(counts, MOST) / MOST, abs=3e-6)


def test_the_exposure_is_a_share_of_its_upper_bound():
    records, (_, _, over) = held(SCHEMA)
    share, rest = values([y.exposure, ~y.exposure], SCHEMA, records, BITS).T / 2**BITS
    assert share == pytest.approx(over / 2.0, abs=3e-6)
    assert rest == pytest.approx(1 - over / 2.0, abs=3e-6)


def test_the_notation_python_and_the_wire_agree():
    written = [parse(text) for text in TEXTS]
    assert written[:2] == [loss((3 * z["age"] + 1) / 4, 0.5, 1.5, 6), gain((3 * z["age"] + 1) / 4, 0.5, 1.5, 6)]
    assert written[:2] == [LOSS, GAIN]
    assert written[2] == deviance(Fraction(-1, 3), 4)
    assert written[4] == LabelExposure()
    assert written[3] == count(3)
    for predicate in written:
        assert parse(to_text(predicate)) == predicate
    check(written, SCHEMA)
    message, coordinates = query_pb2.StatisticQuery(), FormCoordinates(SCHEMA)
    write_predicates(written, coordinates, message)
    assert list(read_predicates(message, coordinates)) == written
    assert columns(SCHEMA, [GAIN]) == ("age", "n", "t")
    assert columns(SCHEMA, [written[4]]) == ("n", "t")


def test_what_no_label_or_no_number_allows_is_refused():
    for predicate in (GAIN, CountDeviance(MOST, Fraction(0)), count(3), LabelExposure()):
        with pytest.raises(PredicateError, match="only a count has a rate"):
            check([predicate], Schema(name="s", label=Number(column="n", lower=0.0, upper=1.0), features=(AGE,)))
        with pytest.raises(PredicateError, match="no classes, which flip"):
            swap_label(predicate)
    with pytest.raises(PredicateError, match="the largest count is 0"):
        count(0)
    with pytest.raises(PredicateError, match="at most 8: give a bound up to that"):
        check([count(9)], BARE)
    with pytest.raises(PredicateError, match="has no exposure"):
        check([LabelExposure()], BARE)
    with pytest.raises(PredicateError, match="no coordinate 'height'"):
        check([CountGain(MOST, Fraction(0), Affine((("height", 1),)), 1, Fraction(1))], SCHEMA)
    for centre, scale, reach, match in ((65, 1, 1, "no logarithm"), (0, 0, 1, "scale is 0"), (0, 1, 0, "reach is 0")):
        with pytest.raises(PredicateError, match=match):
            CountGain(MOST, Fraction(centre), Affine((("age", 1),)), scale, Fraction(reach))
    message, coordinates = query_pb2.StatisticQuery(), FormCoordinates(SCHEMA)
    write_predicates([GAIN], coordinates, message)
    message.nodes[0].count_gain.ClearField("form")
    with pytest.raises(WireError, match="gain of a count has no form"):
        read_predicates(message, coordinates)


def test_a_record_has_a_gain_or_a_loss_and_exposures_in_bins_exclude_one_another():
    bins = [(z["age"] >= 0), ~(z["age"] >= 0)]
    records, _ = held(SCHEMA)
    found = values([GAIN, LOSS], SCHEMA, records, BITS)
    assert not found.prod(axis=1).any()
    assert batch_sensitivity([GAIN, LOSS]).l1 == 2
    assert batch_sensitivity([GAIN, LOSS, CountDeviance(MOST, Fraction(0))]).l1 == 3
    assert batch_sensitivity([y.exposure & each for each in bins]).l1 == 2
