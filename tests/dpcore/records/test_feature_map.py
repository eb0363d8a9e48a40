"""Feature maps: exact values, bounds, what is refused, and that no map changes a sensitivity."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.noise_shares import gradient_squared, moments_squared
from dpcore.errors import PlanError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery, usual_norm
from dpcore.records.clipping import Clip
from dpcore.records.feature_map import (
    MOST_TERMS,
    Column,
    FeatureMap,
    Hat,
    PointMass,
    Product,
    Term,
    in_steps,
    in_units,
)
from dpcore.records.records import BLOCK_ROWS, Records, edges
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema

SCHEMA = Schema(
    name="shapes",
    label=Label(column="y", positive=("yes",)),
    features=(
        RealFeature(name="age", lower=20.0, upper=60.0),
        RealFeature(name="dose", lower=0.0, upper=1.0),
        BooleanFeature(name="smokes", true=("yes",), false=("no",)),
        CategoryFeature(name="city", values=("a", "b")),
    ),
)
BIAS = 5
KNOTS = (-ONE, -ONE // 3, 12345, ONE // 2, ONE)


def row_of_hats(coordinate: int, knots=KNOTS) -> list[Hat]:
    ends = [None, *knots, None]
    return [Hat(coordinate, *ends[place : place + 3]) for place in range(len(knots))]


MAP = FeatureMap(
    (
        Term(Column(0)),
        *(Term(hat, ONE // 5, 1) for hat in row_of_hats(0)),
        Term(PointMass(1, -ONE), 77, 2),
        Term(Column(2), 0, 3),
        Term(Hat(1, -ONE, ONE, None), ONE // 2),
        Term(Product(1, 8), 0, 1),
        Term(Product(6, 7)),
    ),
    bias=True,
)


def records(rows: int = 200, seed: int = 1) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, (rows, 6), endpoint=True).astype(np.int32)
    features[:, 2] = np.where(features[:, 2] > 0, ONE, -ONE)
    features[::3, 1] = -ONE
    features[:5, 0] = KNOTS
    features[:, BIAS] = ONE
    usable = generator.random(rows) < 0.9
    features[~usable] = 0
    labels = np.where((generator.random(rows) < 0.5) | ~usable, 1, -1).astype(np.int8)
    return Records(features, labels, usable)


def value(function, x: list[int], centred: list[int]) -> int:
    """The definition, in Python integers."""
    match function:
        case Column(coordinate):
            return x[coordinate]
        case PointMass(coordinate, at):
            return ONE if x[coordinate] == at else 0
        case Product(first, second):
            return centred[first] * centred[second] // ONE
        case Hat(coordinate, left, peak, right):
            v = x[coordinate]
            if v <= peak:
                return ONE if left is None else max(0, ONE * (v - left) // (peak - left) if v > left else 0)
            return ONE if right is None else (ONE - ONE * (v - peak) // (right - peak) if v < right else 0)
    raise AssertionError(function)


def by_definition(feature_map: FeatureMap, x: list[int]) -> list[int]:
    centred: list[int] = []
    for term in feature_map.terms:
        centred.append(value(term.function, x, centred) - term.centre)
    halved = [int(Fraction(c, 1 << t.halvings)) for c, t in zip(centred, feature_map.terms, strict=True)]
    return [*halved, ONE] if feature_map.bias else halved


@pytest.mark.parametrize("bits", [0, 10, 30])
def test_edges_are_the_labels_times_the_terms(bits):
    rows = records(BLOCK_ROWS + 30)
    found = np.concatenate([block for _, block in edges(rows.mapped(MAP), bits)])
    assert found.shape == (rows.rows, MAP.d) == (rows.rows, 12)
    for at in [*range(60), *range(BLOCK_ROWS, rows.rows)]:
        expected = [0] * MAP.d
        if rows.usable[at]:
            terms = by_definition(MAP, rows.features[at].tolist())
            expected = [int(rows.labels[at]) * int(Fraction(v, 1 << (30 - bits))) for v in terms]
        assert found[at].tolist() == expected


@given(st.lists(st.integers(-ONE, ONE), min_size=2, max_size=8, unique=True).map(sorted), st.integers(-ONE, ONE))
def test_the_hats_of_a_row_of_knots_add_up_to_one(knots, x):
    feature_map = FeatureMap(tuple(map(Term, row_of_hats(0, knots))), bias=False)
    row = Records(np.array([[x]], np.int32), np.ones(1, np.int8), np.ones(1, bool)).mapped(feature_map)
    ((_, values),) = edges(row, 30)
    assert values.sum() == ONE
    assert values.min() >= 0
    assert np.count_nonzero(values) <= 2


knot = st.integers(-ONE, ONE)
hats = st.lists(knot, min_size=3, max_size=3, unique=True).map(lambda k: Hat(0, *sorted(k)))
flat = st.lists(knot, min_size=2, max_size=2, unique=True).map(sorted)
functions = st.one_of(
    hats,
    flat.map(lambda k: Hat(1, None, *k)),
    flat.map(lambda k: Hat(1, *k, None)),
    st.builds(PointMass, st.integers(0, 1), st.sampled_from([-ONE, 0, ONE])),
)
shaped = st.builds(Term, functions, st.integers(0, ONE), st.integers(0, 8))
extreme = st.sampled_from([-ONE, -1, 0, 1, ONE])


@given(st.lists(shaped, min_size=2, max_size=6, unique_by=lambda term: term.function), st.tuples(extreme, extreme))
def test_no_map_leaves_the_interval(terms, x):
    products = [Term(Product(0, place)) for place in range(1, len(terms))]
    feature_map = FeatureMap((*terms, *products), bias=False)
    row = Records(np.array([x], np.int32), np.ones(1, np.int8), np.ones(1, bool)).mapped(feature_map)
    ((_, values),) = edges(row, 30)
    assert np.abs(values).max() <= ONE
    assert values[0].tolist() == by_definition(feature_map, list(x))


CLIP = Clip(Fraction(6, 5), bias=True)
STEEP = FeatureMap(
    (*(Term(Hat(0, at, at + 1, None), ONE // 2) for at in range(-3, 3)), Term(PointMass(1, 0))), bias=True
)


@pytest.mark.parametrize("feature_map", [MAP, STEEP], ids=["usual", "jumps"])
def test_two_records_differ_by_no_more_than_the_clip_allows(feature_map):
    """Whatever the map: the bound is that of the clip, and some pair comes close to it."""
    moments, bits = MomentsQuery(CLIP, 5 * 64, 3), 6
    gradient = GradientQuery("logistic", (-(20 << 20),) * feature_map.d, Fraction(1, 2), 3)
    generator, found = np.random.default_rng(3), {"moments": 0, "gradient": 0}
    for _ in range(150):
        x = generator.integers(-4, 5, (2, 6)).astype(np.int32)
        x[:, [0, 1]] *= generator.choice([1, ONE // 8])
        x[:, [2, 3, 4]] = ONE
        x[:, BIAS] = ONE
        labels = generator.choice([-1, 1], 2).astype(np.int8)
        sums = []
        for at in range(2):
            one = Records(x[at : at + 1], labels[at : at + 1], np.ones(1, bool)).mapped(feature_map)
            sums.append((moments.sums(one, bits), gradient.sums(one, bits)))
        for place, name in enumerate(found):
            distance = sum(int(v) ** 2 for v in sums[0][place] - sums[1][place])
            found[name] = max(found[name], distance)
    assert moments_squared(CLIP, bits, 5 * 64) / 4 < found["moments"] <= moments_squared(CLIP, bits, 5 * 64)
    assert gradient_squared(Fraction(1, 2), bits) / 4 < found["gradient"] <= gradient_squared(Fraction(1, 2), bits)


def test_records_under_other_maps_have_other_digests():
    """The noise of a noised table derives from the digest: with the same one, a second map would cancel it."""
    rows, other = records(), replace(MAP, terms=MAP.terms[:4])
    digests = {rows.digest, rows.mapped(MAP).digest, rows.mapped(other).digest}
    assert len(digests) == 3
    assert rows.mapped(MAP).digest == rows.mapped(other).mapped(MAP).digest
    assert records(seed=2).mapped(MAP).digest not in digests


def test_runs_of_rows_and_parts_keep_the_map():
    mapped = records().mapped(MAP)
    whole = np.concatenate([block for _, block in edges(mapped, 8)])
    ((_, part),) = edges(mapped.between(7, 50), 8)
    np.testing.assert_array_equal(part, whole[7:50])
    kept = np.arange(200) % 2 == 0
    for only in (mapped.only(kept), mapped.only(kept).zeroed()):
        ((_, found),) = edges(only, 8)
        np.testing.assert_array_equal(found, np.where(kept[:, None], whole, 0))


def test_values_for_predictions_are_those_of_records():
    rows = records(500, seed=7)
    ((_, exact),) = edges(Records(rows.features, np.ones(500, np.int8), rows.usable).mapped(MAP), 30)
    found = MAP.of(rows.features / ONE)
    np.testing.assert_allclose(found[rows.usable], exact[rows.usable] / ONE, rtol=0, atol=2.0**-28)


def test_it_has_no_sensitive_coordinates():
    with pytest.raises(PlanError, match="no sensitive coordinates"):
        next(edges(records().mapped(MAP), 8, sensitive=[2]))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Hat(0, 5, 5, 9), "not in ascending order"),
        (lambda: Hat(0, 9, 5, None), "not in ascending order"),
        (lambda: Hat(0, None, 5, None), "constant"),
        (lambda: Hat(0, -ONE - 1, 5, 9), "beyond the schema's bounds"),
        (lambda: PointMass(0, ONE + 1), "beyond the schema's bounds"),
        (lambda: Term(Column(0), 1), "centre 1 is out of range"),
        (lambda: Term(PointMass(0, 0), ONE + 1), "out of range"),
        (lambda: Term(Column(0), 0, 9), "halvings is 9"),
        (lambda: FeatureMap((), True), "1 to 4096 terms"),
        (lambda: FeatureMap(tuple(Term(PointMass(0, n)) for n in range(MOST_TERMS + 1)), True), "1 to 4096 terms"),
        (lambda: FeatureMap((Term(Column(0)), Term(Column(0), 0, 1)), True), "occurs twice"),
        (lambda: FeatureMap((Term(Column(0)), Term(Product(0, 0))), True), "two different terms"),
        (lambda: FeatureMap((Term(Column(0)), Term(Column(1)), Term(Product(1, 0))), True), "two different terms"),
        (lambda: FeatureMap((Term(Column(0)), Term(Product(0, 2)), Term(Column(1))), True), "two different terms"),
        (
            lambda: FeatureMap((*map(Term, (Column(0), Column(1), Product(0, 1), Product(1, 2))),), True),
            "product of a product|is of a product",
        ),
    ],
)
def test_a_map_that_is_no_map(make, sentence):
    with pytest.raises(PlanError, match=sentence):
        make()


def test_hats_and_products_are_the_polynomial_kernel_of_degree_2():
    """docs/how-to/ask.md: weights at the knots give a column's square within 1/K^2, for K even intervals."""
    intervals = 8
    knots = [2 * ONE * place // intervals - ONE for place in range(intervals + 1)]
    hats = [*row_of_hats(0, knots), *row_of_hats(1, knots)]
    polynomial = FeatureMap((*map(Term, (Column(0), Column(1), Product(0, 1), *hats)),), True)
    x = np.column_stack([np.random.default_rng(5).uniform(-1, 1, (400, 2)), np.ones(400)])
    z = x[::-1]
    squares = np.square(np.array(knots) / ONE)
    off = polynomial.of(x)[:, 3 : 4 + intervals] @ squares - x[:, 0] ** 2
    assert off.min() >= -1e-8
    assert 0.9 / intervals**2 < off.max() <= 1 / intervals**2 + 1e-8

    def features(rows):
        terms = polynomial.of(rows)
        own = [terms[:, 3 + first : 4 + first + intervals] @ squares for first in (0, intervals + 1)]
        return np.column_stack([np.sqrt(2) * terms[:, :3], *own, terms[:, -1]])

    kernel = (features(x) * features(z)).sum(axis=1)
    assert np.abs(kernel - (1 + x[:, 0] * z[:, 0] + x[:, 1] * z[:, 1]) ** 2).max() <= 5 / intervals**2


@pytest.mark.parametrize(
    ("feature_map", "sentence"),
    [
        (FeatureMap((Term(Column(BIAS)),), True), "coordinates 0 to 4"),
        (FeatureMap((Term(Column(99)),), True), "coordinates 0 to 4"),
        (FeatureMap((Term(Hat(2, -ONE, ONE, None)),), True), "'smokes', which is no real feature"),
        (FeatureMap((Term(PointMass(3, ONE)),), True), "'city=a', which is no real feature"),
        (FeatureMap((*map(Term, (*row_of_hats(0)[:2], Product(0, 1))),), True), "column 'age' with itself"),
        (FeatureMap((*map(Term, (Column(3), Column(4), Product(0, 1))),), True), "column 'city' with itself"),
        (FeatureMap((Term(Column(0)),), False), "differ in the bias"),
    ],
)
def test_a_map_that_does_not_fit_the_schema(feature_map, sentence):
    MAP.check(SCHEMA)
    with pytest.raises(SchemaError, match=sentence):
        feature_map.check(SCHEMA)


def test_names_and_words_are_in_the_columns_units():
    assert MAP.names(SCHEMA)[:3] == ("age", "age~20", "age~33.3333")
    assert MAP.names(SCHEMA)[6:] == ("dose=0", "smokes", "dose~1", "age~20*dose~1", "dose=0*smokes", "bias")
    assert MAP.words(SCHEMA) == "2 coordinates, 6 hats, 1 point mass, 2 products (features age, dose, smokes)"


def test_few_functions_are_described_one_by_one():
    """Otherwise a needle at 40, and steps at 40 in both directions, would look the same to who approves a query."""

    def words(*terms: Term) -> str:
        return FeatureMap(terms, bias=True).words(SCHEMA)

    up, needle = Hat(0, None, 0, ONE // 2), Hat(0, -1, 0, 1)
    assert words(Term(up)) == "1 hat (feature age): age 1 up to 40, falling to 50"
    assert words(Term(Hat(0, -ONE, 0, None))) == "1 hat (feature age): age rising from 20 to 40"
    assert words(Term(needle, ONE // 4, 4)) == (
        "1 hat (feature age): age rising from 39.99999998 to 40, falling to 40.00000002, less 0.25, over 16"
    )
    assert words(Term(Column(2)), Term(PointMass(1, -ONE), ONE // 2, 1), Term(Product(0, 1))) == (
        "1 coordinate, 1 point mass, 1 product (features dose, smokes): dose = 0, less 0.5, over 2; "
        "(smokes) * (dose = 0, less 0.5)"
    )


def test_it_is_plain_data():
    assert FeatureMap.from_list(MAP.to_list(), bias=True) == MAP
    for wrong in ({}, {"function": "code"}, {**MAP.to_list()[0], "coordinate": 0.5}, {**MAP.to_list()[0], "more": 1}):
        with pytest.raises(PlanError, match="term of a feature map"):
            FeatureMap.from_list([wrong], bias=True)


@given(st.floats(20, 60))
def test_units_and_steps(age):
    assert in_units(SCHEMA, 0, in_steps(SCHEMA, 0, age)) == pytest.approx(age, abs=1e-7)
    with pytest.raises(SchemaError, match="no real feature"):
        in_units(SCHEMA, 2, 0)


def test_the_usual_norm_is_the_mean_length_of_a_uniform_record():
    rows = 100_000
    features = np.random.default_rng(4).integers(-ONE, ONE, (rows, 6), endpoint=True).astype(np.int32)
    features[:, 2], features[:, BIAS] = np.where(features[:, 2] > 0, ONE, -ONE), ONE
    # A point mass has no place in a uniform column; its square is that of the share that its centre states.
    without = FeatureMap((*MAP.terms[:6], Term(Column(2), 0, 3), Term(Hat(1, -ONE, ONE, None), ONE // 2)), True)
    mapped = Records(features, np.ones(rows, np.int8), np.ones(rows, bool)).mapped(without)
    squares = sum(float(np.square(block * 2.0**-20).sum()) for _, block in edges(mapped, 20)) / rows
    assert float(usual_norm(SCHEMA, without)) ** 2 == pytest.approx(squares, rel=0.01)
