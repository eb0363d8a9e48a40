"""What a plan says that answers are worth at most, against every released number, from the queries themselves."""

import re
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import sums
from dpcore.queries.statistic import StatisticQuery
from dpcore.records.losses import WEIGHT_BITS
from dpcore.records.records import Records
from learner.estimators import make_estimator
from learner.federation import Federation
from learner.planned_questions import made_up_records
from radofed.demo.tables import schema
from radofed.planning.asked_cost import bare_ask_cost
from radofed.planning.asked_queries import AskRequest, PlannedParties
from radofed.planning.design_cost import PlanRequest
from radofed.planning.designs import plan_cost, planned
from radofed.planning.made_up import made_up_schema

ROWS = (9000, 9000, 11_000, 11_000)
KINDS_OF_ROWS = 16


def tables(d, bias):
    """Rows that vary as much as rows can, and made-up ones."""
    rng = np.random.default_rng(d)
    x = rng.choice([-ONE, ONE], (KINDS_OF_ROWS, d)).astype(np.int32)
    if bias:
        x[:, -1] = ONE
    usable = np.ones(KINDS_OF_ROWS, dtype=np.bool_)
    return Records(x, rng.choice([-1, 1], KINDS_OF_ROWS).astype(np.int8), usable)


def some(records):
    return Records(*(each[:KINDS_OF_ROWS] for each in (records.features, records.labels, records.usable)))


def row_of(records, place):
    part = slice(place, place + 1)
    return Records(records.features[part], records.labels[part], records.usable[part], feature_map=records.feature_map)


def precisions(query, records, rows, parties):
    """v^2 / s^2 of every released number: of a row's value over the records, and of the noise, in integer units."""
    kind, bits = query.kind, query.encoding.fraction_bits
    seen = query.seen(records)
    each = []
    for place in range(seen.rows):
        one = row_of(seen, place)
        if isinstance(kind, StatisticQuery):
            each.append(sums(kind.predicates, query.schema, one, bits))
        else:
            each.append(kind.sums(one, bits))
    noise = kind.noise.deviation(parties) if isinstance(kind, StatisticQuery) else kind.shares.deviation(parties)
    return rows * np.array(each, dtype=np.float64).var(axis=0) / noise**2


def worth_of(precision, rows):
    """rows / (1 + s^2 / v^2)."""
    return rows * precision / (1 + precision)


ASKED = {
    "linear-regression": {},
    "newton": {},
    "logistic-gd": {"rounds": 3},
    "hinge-gd": {"rounds": 2},
    "additive": {"rounds": 4},
    "naive-bayes": {},
    "decision-list": {"max_rules": 3},
    "decision-stump": {},
}


def asked(estimator, epsilon, delta, shared):
    request = AskRequest(
        party_rows=ROWS, schema=shared, epsilon=Fraction(epsilon), delta=delta, estimator=estimator,
        options=ASKED[estimator],
    )  # fmt: skip
    parties = PlannedParties(request)
    oracle = Federation(parties, shared).within(request.epsilon, delta)
    make_estimator(estimator, **request.options).fit_queries(oracle)
    return bare_ask_cost(request), parties.plans


@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", ["0.05", "2"])
@pytest.mark.parametrize("estimator", ASKED)
def test_no_number_of_a_plan_is_worth_more(estimator, epsilon, delta):
    by_predicates = estimator in ("naive-bayes", "decision-list", "decision-stump")
    if delta == 0 and not by_predicates:
        pytest.skip("moments and gradients have Gaussian noise")
    shared = schema()
    cost, plans = asked(estimator, epsilon, delta, shared)
    rows = sum(ROWS)
    most = cost.signal.worth
    for records in (tables(shared.d, bias=True), some(made_up_records(shared))):
        found = [precisions(plan.query, records, rows, len(ROWS)) for plan in plans]
        for precision in found:
            assert worth_of(precision, rows).max() <= most * (1 + 1e-12)
        # Also if all answers are to one question.
        together = sum(precision.max() for precision in found)
        assert worth_of(together, rows) <= most * (1 + 1e-12)
    # What is printed is no less.
    assert printed(cost.signal.sentence()) >= most


def printed(sentence):
    said = re.search(r"without noise over ([\d.,]+) of", sentence)
    assert said
    return float(said[1].replace(",", ""))


def moments_plan(d, epsilon, *, bias, edge_weight=None):
    request = PlanRequest(
        design="moments", party_rows=ROWS, rados=None, epsilon=Fraction(epsilon), coordinates=d, bias=bias,
        edge_weight=edge_weight,
    )  # fmt: skip
    cost = plan_cost(request)
    return cost, planned(request).query.kind


def exact_worths(kind, bits, d, places, *, bias):
    """What every number of moments is worth over rows that are 0 but in some places, there every sign as often."""
    signs = np.array(list(product((-1, 1), repeat=len(places) + 1)))
    x = np.zeros((len(signs), d), dtype=np.int32)
    x[:, places] = signs[:, :-1] * ONE
    if bias:
        x[:, -1] = ONE
    records = Records(x, signs[:, -1].astype(np.int8), np.ones(len(x), dtype=np.bool_))
    values = np.array([kind.sums(row_of(records, place), bits) for place in range(len(x))], dtype=np.float64)
    return worth_of(sum(ROWS) * values.var(axis=0) / kind.shares.deviation(len(ROWS)) ** 2, sum(ROWS))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("d", [1, 2, 9])
@pytest.mark.parametrize("epsilon", ["0.01", "3"])
@pytest.mark.parametrize("edge_weight", [None, Fraction(1, 1000)], ids=["usual", "of products"])
def test_no_moment_is_worth_more_and_one_as_much(d, epsilon, bias, edge_weight):
    """Edges, squares and products of two coordinates, which have 5/7 of the noise of squares, over coin flips."""
    if d - bias < 1:
        pytest.skip("no feature")
    cost, kind = moments_plan(d, epsilon, bias=bias, edge_weight=edge_weight)
    free = range(d - bias)
    rows = [*combinations(free, 1), *combinations(free, 2), tuple(free)]
    exact = max(exact_worths(kind, cost.noise.fraction_bits, d, list(places), bias=bias).max() for places in rows)
    assert exact <= cost.signal.worth * (1 + 1e-12)
    assert printed(cost.signal.sentence()) >= exact
    if not bias and (d > 1 or edge_weight is None):
        # With a bias no vector has one coordinate alone; of one coordinate no square has a variance of 1/4 here.
        # Clipping rounds coordinates down to a few fraction bits.
        assert exact >= cost.signal.worth * 0.99


def test_products_of_two_coordinates_count():
    """39,555 of 40,000 rows was printed, of squares; products of two coordinates are worth 39,770."""
    cost, _ = moments_plan(20, 3, bias=True, edge_weight=Fraction(1, 1000))
    square = cost.noise.product_noise_sd / cost.noise.spread
    assert cost.signal.noise_over_sampling == pytest.approx(square * 5 / 7)


@pytest.mark.parametrize("d", [2, 5, 12])
def test_one_coordinate_of_a_gradient_may_have_all_its_length(d):
    """The root mean square over coordinates bounds no single coordinate."""
    shared = made_up_schema(d)
    request = AskRequest(
        party_rows=ROWS, schema=shared, epsilon=Fraction(1), estimator="logistic-gd",
        options={"rounds": 1, "clip": 0.5},
    )  # fmt: skip
    cost = bare_ask_cost(request)
    parties = PlannedParties(request)
    make_estimator("logistic-gd", rounds=1, clip=0.5).fit_queries(
        Federation(parties, shared).within(request.epsilon, request.delta)
    )
    (plan,) = parties.plans
    # Only the bias is not zero, and both labels are equally frequent.
    x = np.zeros((2, d), dtype=np.int32)
    x[:, -1] = ONE
    records = Records(x, np.array([-1, 1], dtype=np.int8), np.ones(2, dtype=np.bool_))
    exact = worth_of(precisions(plan.query, records, sum(ROWS), len(ROWS)), sum(ROWS)).max()
    assert exact == pytest.approx(cost.signal.worth, rel=1e-9)
    assert exact <= cost.signal.worth * (1 + 1e-12)
    noise = plan.query.kind.shares.deviation(len(ROWS)) / 2 ** (plan.query.encoding.fraction_bits + WEIGHT_BITS)
    mean_square = sum(ROWS) / (1 + d * noise**2 / (0.5**2 * sum(ROWS)))
    assert exact > mean_square * (1 + 1e-9)
