"""Losses: convex, as steep as claimed, and with the gradients that differences show."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from dpcore.records.losses import HINGE, LOGISTIC, margin_loss

LOSSES = [LOGISTIC, HINGE]
margins = st.floats(-800, 800)


@pytest.mark.parametrize("loss", LOSSES)
@given(margins, margins, st.floats(0, 1))
def test_a_loss_is_convex_and_lipschitz(loss, a, b, share):
    between, at_a, at_b = loss.value(np.array([share * a + (1 - share) * b, a, b]))
    assert between <= share * at_a + (1 - share) * at_b + 1e-9
    assert abs(at_a - at_b) <= abs(a - b) * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
@given(margins)
def test_weights_are_in_the_unit_interval_and_fall(loss, z):
    weight, later = loss.weight(np.array([z, z + 1.0]))
    assert 0 <= later <= weight <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_that_of_the_total(loss):
    random = np.random.default_rng(3)
    edges, theta = random.normal(size=(40, 4)), random.normal(size=4)
    step = 1e-6
    slopes = [
        (loss.total(theta + step * e, edges) - loss.total(theta - step * e, edges)) / (2 * step) for e in np.eye(4)
    ]
    assert np.allclose(loss.gradient(theta, edges), slopes, rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_lipschitz_constant_is_exact(loss):
    """The steepest record is one that is far on the wrong side, and as long as allowed."""
    edge = np.array([[0.6, -0.8]]) * 1.5
    slope = np.linalg.norm(loss.gradient(-40 * edge[0], edge))
    assert slope * (1 - 1e-9) <= loss.lipschitz(1.5) <= slope * (1 + 1e-9)


def test_losses_have_names():
    assert [margin_loss(name).name for name in ("logistic", "hinge")] == ["logistic", "hinge"]
    assert margin_loss("hinge").value(np.array([0.0, 3.0])).tolist() == [1.0, 0.0]
    with pytest.raises(ConfigurationError, match="choose one of logistic, hinge"):
        margin_loss("square")
