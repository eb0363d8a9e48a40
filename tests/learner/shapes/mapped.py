"""Models to draw, made without training: every sort of column, and a map with every sort of function."""

import numpy as np
from hypothesis import strategies as st

from dpcore.numbers.fixed_point import ONE
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema
from learner.model import Model

HTML = "<script>alert('ward')</script>"
SCHEMA = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0, out_of_bounds="clip"),
        RealFeature(name="paid", column="fee", lower=-500.0, upper=1500.0, missing="impute", impute=0.0),
        BooleanFeature(name="smoker", true=("yes", "1"), false=("no",), missing="zero-vector"),
        CategoryFeature(name="ward", values=("east", HTML, "north"), unknown="zero"),
        ThresholdFeature(name="tall", column="height", threshold=180.0),
    ),
)
# Coordinates: age 0, paid 1, smoker 2, ward 3 to 5, tall 6, bias 7. The fee 0 is at -2^29.
FREE = -ONE // 2
MAP = FeatureMap(
    (
        *(Term(Column(coordinate)) for coordinate in range(7)),
        Term(Hat(0, -ONE, -ONE // 4, ONE // 2), ONE // 3, 1),
        Term(Hat(0, -ONE // 4, ONE // 2, ONE), ONE // 4, 1),
        Term(Hat(1, -ONE, 0, ONE), ONE // 5),
        Term(PointMass(1, FREE), 6 * ONE // 10),
        Term(Hat(0, -ONE // 2, ONE // 2, None), ONE // 2),
        Term(Hat(1, None, -ONE // 4, ONE // 4), ONE // 2),
        Term(Product(11, 12)),
        Term(Product(10, 11), 0, 1),
        Term(Product(4, 11)),
    ),
    bias=True,
)
STATEMENT = PrivacyStatement("one record", "record", 1.0, 1e-6, 2.0, None, ("Assumed.",), ())


def model(seed: int = 1, *, mapped: bool = True, covariance: bool = False) -> Model:
    """A model with random weights, and a random covariance of them."""
    random = np.random.default_rng(seed)
    d = MAP.d if mapped else SCHEMA.d
    spread = 0.1 * random.normal(size=(d, d))
    return Model(
        random.normal(size=d),
        SCHEMA,
        "additive",
        bytes(32),
        STATEMENT,
        None,
        MAP if mapped else None,
        spread @ spread.T if covariance else None,
    )


def rows(count: int, seed: int) -> np.ndarray:
    """Rows as the schema encodes them, with free ones, and values that no ward lists."""
    random = np.random.default_rng(seed)
    age, paid = random.uniform(-1, 1, (2, count))
    paid[random.random(count) < 0.3] = FREE / ONE
    ward = np.eye(4)[random.integers(0, 4, count)][:, :3]
    flags = random.choice([-1.0, 1.0], (count, 2))
    return np.column_stack([age, paid, flags[:, 0], ward, flags[:, 1], np.ones(count)])


@st.composite
def models(draw) -> Model:
    """Models with any map that fits the schema: knots that touch, centres that no spread has, pairs of any columns."""
    knot = st.one_of(st.integers(-ONE, ONE), st.sampled_from([-ONE, 1 - ONE, 0, 1, 2, ONE - 1, ONE]))
    centre = st.integers(0, ONE)
    terms = [Term(Column(place)) for place in draw(st.lists(st.integers(0, 6), unique=True))]
    for _ in range(draw(st.integers(0, 5))):
        left, peak, right = sorted(draw(st.lists(knot, min_size=3, max_size=3, unique=True)))
        left, right = draw(st.sampled_from([(left, right), (None, right), (left, None)]))
        terms.append(Term(Hat(draw(st.integers(0, 1)), left, peak, right), draw(centre), draw(st.integers(0, 8))))
    terms += [Term(PointMass(draw(st.integers(0, 1)), at), draw(centre)) for at in draw(st.lists(knot, max_size=3))]
    terms = list({term.function: term for term in terms}.values()) or [Term(Column(0))]
    column = [SCHEMA.sources(SCHEMA.coordinates[term.function.coordinate]) for term in terms]
    pairs = [(a, b) for b in range(len(terms)) for a in range(b) if column[a] != column[b]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=4, unique=True)) if pairs else []
    feature_map = FeatureMap(
        (*terms, *(Term(Product(*pair), 0, draw(st.integers(0, 2))) for pair in chosen)), bias=True
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = random.normal(size=(feature_map.d, feature_map.d))
    theta, kept = random.normal(size=feature_map.d), draw(st.sampled_from([None, spread @ spread.T]))
    return Model(theta, SCHEMA, "additive", bytes(32), STATEMENT, None, feature_map, kept)
