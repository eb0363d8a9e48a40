"""How values spread, as a model's map states it."""

import numpy as np
import pytest

from dpcore.estimators.additive_terms import additive_terms
from dpcore.estimators.private_histograms import Histogram
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Term
from dpcore.records.features import CategoryFeature, Label, RealFeature
from dpcore.records.schema import Schema
from learner.score_parts import spread_of

FEE = RealFeature(name="fee", lower=0.0, upper=100.0)
SCHEMA = Schema(name="fees", label=Label(column="ill", positive=("yes",)), features=(FEE,))


def heavy() -> Histogram:
    """Nine rows of ten pay nothing; the others pay little, and few of them much."""
    edges = np.linspace(-1, 1, 33)
    shares = 0.5 ** np.arange(32.0)
    return Histogram(edges, 0.1 * shares / shares.sum(), {-ONE: 0.9})


def test_a_heavy_tail_is_known_from_the_terms_of_the_additive_estimator():
    found = heavy()
    made = additive_terms(SCHEMA, {0: found}, knots=4, pairs=False).feature_map
    spread = spread_of(FEE, 0, made)
    assert spread.is_stated
    assert dict(spread.points) == {-ONE: pytest.approx(0.9, abs=1e-6)}
    assert spread.shares.sum() == pytest.approx(1.0)
    assert sum(spread.shares_between) == pytest.approx(0.1, abs=1e-6)
    values, weights = found.values()
    x, shares = spread.coordinates[:, 0], spread.shares
    # Uniform values would have the mean 0.
    assert float(shares @ x) == pytest.approx(float(weights @ values), abs=0.02)
    mapped = made.of(np.column_stack([x, np.ones(len(x))]))
    hats = [place for place, term in enumerate(made.terms) if isinstance(term.function, Hat)]
    assert len(hats) == 4
    np.testing.assert_allclose(shares @ mapped[:, hats], 0.0, atol=0.003)
    # The middle of those who pay, against that of the bounds.
    (middle,) = spread.quantiles([0.5])
    assert middle / ONE == pytest.approx(float(found.quantiles([0.5])[0]), abs=0.1)
    assert middle / ONE < -0.8


def test_a_point_mass_below_a_hat_is_not_among_the_other_values():
    """Half of the values are 0, below the peak of a hat; the others are uniform."""
    points, edges = {0: 0.5}, np.linspace(-1, 1, 33)
    made = additive_terms(SCHEMA, {0: Histogram(edges, np.full(32, 0.5 / 32), points)}, knots=3, pairs=False)
    spread = spread_of(FEE, 0, made.feature_map)
    assert dict(spread.points) == {0: pytest.approx(0.5, abs=1e-6)}
    assert spread.quantiles([0.25, 0.5, 0.75]) == pytest.approx([-ONE / 2, 0, ONE / 2], abs=0.03 * ONE)


def test_without_centres_values_are_uniform():
    for made in (None, FeatureMap((Term(Column(0)), Term(Hat(0, -ONE, -ONE // 2, ONE))), bias=True)):
        spread = spread_of(FEE, 0, made)
        assert not spread.is_stated
        assert spread.quantiles([0.25, 0.5]) == pytest.approx([-ONE // 2, 0], abs=2)
        assert float(spread.shares @ spread.coordinates[:, 0]) == pytest.approx(0.0)
        assert float(spread.shares @ np.square(spread.coordinates[:, 0])) == pytest.approx(1 / 3)


def test_centres_that_no_spread_has_still_give_shares():
    """Noise can make means inconsistent: point masses above 1 in all, hats above what they can be."""
    hats = (Term(Hat(0, -ONE, 0, ONE), ONE), Term(Hat(0, -ONE, ONE // 2, None), 1))
    masses = (Term(PointMass(0, 0), 8 * ONE // 10), Term(PointMass(0, ONE), 7 * ONE // 10))
    for terms in (hats, masses, hats + masses):
        spread = spread_of(FEE, 0, FeatureMap(terms, bias=True))
        assert spread.shares.sum() == pytest.approx(1.0)
        assert (spread.shares >= 0).all()
        assert sum(share for _, share in spread.points) <= 1.0 + 1e-12
        low, middle, high = spread.quantiles([0.0, 0.5, 1.0])
        assert -ONE <= low <= middle <= high <= ONE


def test_values_of_a_category_count_equally():
    spread = spread_of(CategoryFeature(name="ward", values=("a", "b", "c", "d")), 3, None)
    np.testing.assert_array_equal(spread.coordinates, np.eye(4))
    np.testing.assert_array_equal(spread.shares, np.full(4, 0.25))
