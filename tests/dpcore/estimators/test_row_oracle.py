"""Rows as an oracle without noise: their scaling and its inverse, and each of the three answers."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.estimators.oracle import RowOracle
from dpcore.predicates.expressions import Affine, Clipped, Flag, LabelIs
from dpcore.records.clipping import Basis
from dpcore.records.schema import BooleanFeature, RealFeature

X = np.array([[0.0, 5.0, 3.0], [1.0, 5.0, 7.0], [2.0, 5.0, 3.0], [4.0, 5.0, 7.0]])
SIGNS = np.array([1.0, 1.0, -1.0, 1.0])


def oracle_of(x=X, signs=SIGNS):
    return RowOracle(np.column_stack([x, np.ones(len(x))]) * signs[:, np.newaxis])


def test_features_are_scaled_and_classifiers_scaled_back():
    rows = oracle_of()
    wanted = [[-1.0, 0.0, -1.0], [-0.5, 0.0, 1.0], [0.0, 0.0, -1.0], [1.0, 0.0, 1.0]]
    assert np.array_equal(rows.edges, np.column_stack([wanted, np.ones(4)]) * SIGNS[:, np.newaxis])
    assert [type(feature) for feature in rows.schema.features] == [RealFeature, RealFeature, BooleanFeature]
    assert (rows.rows, rows.d, rows.mean_square) == (4, 4, pytest.approx((2.25 + 4 + 4) / 4))
    theta = np.array([0.5, 3.0, -1.0, 0.25])
    given = rows.in_given_units(theta)
    assert np.allclose(X @ given[:-1] + given[-1], rows.edges @ theta * SIGNS)


def test_statistics_are_means():
    rows = oracle_of()
    half = Clipped(Affine((("x0", 1),), 1), 2)
    found = rows.statistic([half, Flag("x2"), LabelIs(positive=True)])
    assert found.values == pytest.approx([7 / 16, 1 / 2, 3 / 4], abs=2**-19)
    assert (found.quantisation, found.noise, found.deviation) == (2**-20, 0.0, 0.0)
    assert found.sampling > 0.0
    flipped = rows.statistic([LabelIs(positive=True)], noise_rate=0.1)
    assert flipped.values == pytest.approx([(0.9 * 0.75 - 0.1 * 0.25) / 0.8])
    assert flipped.quantisation == 0.0


def test_moments_are_sums_of_records_clipped_beside_the_bias():
    rows = oracle_of()
    plain = rows.moments()
    assert np.allclose(plain.edge_sum, rows.edges.sum(axis=0))
    assert np.allclose(plain.product_sum, rows.edges.T @ rows.edges)
    assert plain.norm_bound == 2.0
    clipped = rows.moments(norm_bound=Fraction(5, 4))
    short = rows.edges.copy()
    short[:, :-1] *= 0.75 / np.linalg.norm(short[:, :-1], axis=1, keepdims=True)
    assert np.allclose(clipped.product_sum, short.T @ short)
    assert np.allclose(clipped.edge_sum, short.sum(axis=0))
    assert clipped.product_sum[-1, -1] == 4.0
    assert clipped.norm_bound == 1.25
    assert np.allclose(rows.moments(norm_bound=Fraction(2)).product_sum, plain.product_sum)


@pytest.mark.parametrize("clip", [Fraction(1, 2), Fraction(100)])
def test_a_gradient_is_clipped(clip):
    rows = oracle_of(np.array([[3.0], [1.0]]), np.ones(2))
    answer = rows.gradient(np.array([-50.0, 0.0]), clip=clip)
    # Scaled to 1 and -1; one is on the wrong side, with weight 1 and length sqrt 2.
    assert np.linalg.norm(answer.mean) == pytest.approx(min(float(clip), np.sqrt(2)) / 2)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_in_a_basis_gradients_are_of_the_basis_coordinates(loss):
    rows = oracle_of()
    basis = Basis.of(np.array([[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 3.0]]))
    phi = np.array([0.3, -0.2, 0.1, 0.4])
    found = rows.gradient(phi, clip=Fraction(1000), loss=loss, basis=basis)
    plain = rows.gradient(basis.matrix.T @ phi, clip=Fraction(1000), loss=loss)
    assert np.allclose(found.mean, basis.matrix @ plain.mean)
    assert np.linalg.norm(rows.gradient(phi, clip=Fraction(1, 10), loss=loss, basis=basis).mean) <= 0.1
