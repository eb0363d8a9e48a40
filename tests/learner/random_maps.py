"""Models over random feature maps, and rows at and around everything that a map tells apart."""

import numpy as np
from hypothesis import strategies as st

from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema, ThresholdFeature
from learner.model import Model

STATEMENT = PrivacyStatement("one record", "record", 1.5, 1e-6, 2.5, None, ("Counted.",), ("Whole.",))
SCHEMA = Schema(
    name="visits",
    label=Label(column="ill", positive=("sick",), negative=("well",)),
    features=(
        RealFeature(name="age", lower=18.0, upper=95.0, out_of_bounds="clip", missing="impute", impute=41.5),
        RealFeature(name="dose", column="mg", lower=-0.25, upper=1e-3),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        CategoryFeature(name="ward", values=("north", "east"), unknown="zero"),
        ThresholdFeature(name="dear", column="bill", threshold=99.5),
    ),
)
REALS = (0, 1)
# Some are 0 or one unit from 0, where truncation puts two units of values; some are a unit apart.
UNITS = st.one_of(st.sampled_from([-ONE, ONE, 0, 1, -1, 2, ONE // 2, ONE // 2 + 1]), st.integers(-ONE, ONE))


@st.composite
def hats(draw, coordinate):
    knots = sorted(draw(st.lists(UNITS, min_size=3, max_size=3, unique=True)))
    ends = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
    return Hat(coordinate, knots[0] if ends[0] else None, knots[1], knots[2] if ends[1] else None)


@st.composite
def maps(draw, schema=SCHEMA):
    """A map of the schema: up to eight functions of columns, then up to four products of them."""
    width = schema.d - schema.bias
    functions = draw(
        st.lists(
            st.one_of(
                st.builds(Column, st.integers(0, width - 1)),
                *(hats(j) for j in REALS),
                *(st.builds(PointMass, st.just(j), UNITS) for j in REALS),
            ),
            min_size=1,
            max_size=8,
            unique=True,
        )
    )
    sources = [schema.sources(schema.coordinates[function.coordinate]) for function in functions]
    pairs = [(a, b) for b in range(len(functions)) for a in range(b) if sources[a] != sources[b]]
    if pairs:
        functions += [Product(*pair) for pair in draw(st.lists(st.sampled_from(pairs), max_size=4, unique=True))]
    terms = []
    for function in functions:
        centre = draw(st.integers(0, ONE)) if isinstance(function, Hat | PointMass) else 0
        terms.append(Term(function, centre, draw(st.integers(0, 8))))
    return FeatureMap(tuple(terms), schema.bias)


@st.composite
def models(draw, schema=SCHEMA):
    """A model over such a map."""
    feature_map = draw(maps(schema))
    weights = draw(st.lists(st.floats(-8, 8), min_size=feature_map.d, max_size=feature_map.d))
    return Model(np.array(weights), schema, "additive", bytes(range(32)), STATEMENT, None, feature_map)


def told_apart(feature_map: FeatureMap, coordinate: int) -> list[int]:
    """The knots and point masses of a coordinate, the bounds, and the units next to them."""
    found = {-ONE, 0, ONE}
    for term in feature_map.terms:
        match term.function:
            case Hat(j, left, peak, right) if j == coordinate:
                found |= {knot for knot in (left, peak, right) if knot is not None}
            case PointMass(j, at) if j == coordinate:
                found.add(at)
    return sorted({min(max(unit + step, -ONE), ONE) for unit in found for step in (-1, 0, 1)})


def encoded(model: Model, seed: int, count: int = 300):
    """Encoded rows, (count, d): half of the real values where something is told apart, some between two units."""
    random = np.random.default_rng(seed)
    x = np.ones((count, model.schema.d))
    for j in range(model.schema.d - model.schema.bias):
        if j in REALS:
            special = np.array(told_apart(model.feature_map, j)) + random.choice([0.0, 0.5, -0.5], (count, 1))
            chosen = random.choice(special.shape[1], count)
            at = np.clip(special[np.arange(count), chosen], -ONE, ONE) / ONE
            x[:, j] = np.where(random.random(count) < 0.5, at, random.uniform(-1, 1, count))
        else:
            x[:, j] = random.choice([-1.0, 1.0] if j in (2, 5) else [0.0, 1.0], count)
    return x
