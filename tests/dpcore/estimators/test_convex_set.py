"""Projections: inside, nearest, idempotent and non-expansive; diameters are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.records.losses import Ball, Box

BOX = Box((-1.0, 0.0, 2.0), (1.0, 0.25, 7.0))
SETS = [Ball(1.5), Ball(1e-3), BOX]
points = arrays(np.float64, 3, elements=st.floats(-1e6, 1e6))


@pytest.mark.parametrize("convex", SETS)
@given(points, points)
def test_projections_are_inside_idempotent_and_non_expansive(convex, a, b):
    p, q = convex.project(a), convex.project(b)
    assert convex.contains(p)
    assert np.array_equal(convex.project(p), p)
    assert np.linalg.norm(p - q) <= np.linalg.norm(a - b) * (1 + 1e-9) + 1e-12
    if convex.contains(a):
        assert np.array_equal(p, a)


@pytest.mark.parametrize("convex", SETS)
@given(points, points)
def test_no_point_of_the_set_is_nearer_than_the_projection(convex, a, other):
    """The angle at the projection between the point outside and any point inside is at least a right one."""
    p, inside = convex.project(a), convex.project(other)
    size = 1 + np.linalg.norm(a - p) * (1 + np.linalg.norm(p))
    assert (a - p) @ (inside - p) <= 1e-9 * size


@pytest.mark.parametrize("convex", SETS)
@given(points, points)
def test_no_two_points_are_further_apart_than_the_diameter(convex, a, b):
    assert np.linalg.norm(convex.project(a) - convex.project(b)) <= convex.diameter(3) * (1 + 1e-12)


def test_diameters_are_reached():
    far = np.array([1e9, 1e9, 1e9])
    for convex in SETS:
        assert np.linalg.norm(convex.project(far) - convex.project(-far)) >= convex.diameter(3) * (1 - 1e-9)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_radius_is_refused(radius):
    with pytest.raises(ConfigurationError, match="positive and finite"):
        Ball(radius)


@pytest.mark.parametrize(
    ("lower", "upper"), [((), ()), ((0.0,), (0.0,)), ((0.0, 0.0), (1.0,)), ((0.0,), (float("inf"),))]
)
def test_empty_boxes_are_refused(lower, upper):
    with pytest.raises(ConfigurationError, match="lower"):
        Box(lower, upper)


def test_a_box_knows_its_dimension():
    for call in (BOX.diameter, lambda d: BOX.project(np.zeros(d)), lambda d: BOX.contains(np.zeros(d))):
        with pytest.raises(ShapeError, match="3 coordinates and theta 2"):
            call(2)
