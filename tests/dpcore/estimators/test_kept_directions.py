"""Directions that do not pay for their noise are left out of later queries."""

import numpy as np
import pytest

from dpcore.estimators.additive_rounds import DROPPED, KeptDirections, Outlook, narrowed_answers, worth_keeping
from dpcore.estimators.whitened_rounds import Seen, Whitening
from dpcore.rados.distribution import Moments

D = 12


def rotated(seed: int = 1) -> np.ndarray:
    axes, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))
    return axes


def test_what_pays_is_kept_along_the_axes_of_the_prior():
    axes = rotated()
    prior = (axes * np.array([9.0, 4.0, 1.0, *[1e-6] * 9])) @ axes.T
    kept = worth_keeping(prior, np.zeros((D, 0)), Outlook(now=0.5, later=0.01, sampling=0.0))
    assert kept.shape == (D, 3)
    np.testing.assert_allclose(kept.T @ kept, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(axes[:, :3].T @ kept @ kept.T @ axes[:, :3], np.eye(3), atol=1e-9)


def test_some_directions_are_always_kept():
    axes = rotated()
    prior = (axes * np.array([9.0, *[1e-6] * 11])) @ axes.T
    always = axes[:, 5:8] @ np.array([[1.0, 1.0], [0.0, 1.0], [2.0, 0.0]])
    kept = worth_keeping(prior, always, Outlook(now=0.5, later=0.01, sampling=0.0))
    assert kept.shape == (D, 3)
    np.testing.assert_allclose(kept @ (kept.T @ always), always, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_number_of_directions_has_a_smaller_predicted_error(seed):
    random = np.random.default_rng(seed)
    variances = np.sort(random.exponential(size=D) ** 3)[::-1]
    outlook = Outlook(now=0.4, later=0.05, sampling=0.01)

    def predicted(count):
        noise = 0.01 + 1 / (1 / 0.4 + 1 / (0.05 * count)) if count else 0.01
        return sum(v * noise / (v + noise) for v in variances[:count]) + DROPPED * variances[count:].sum()

    kept = worth_keeping(np.diag(variances), np.zeros((D, 0)), outlook)
    assert kept.shape[1] == min(range(D + 1), key=predicted)


def test_more_noise_to_come_keeps_fewer():
    prior = np.diag(np.geomspace(10.0, 0.001, D))
    counts = [
        worth_keeping(prior, np.zeros((D, 0)), Outlook(now=later, later=later, sampling=0.0)).shape[1]
        for later in (0.0, 0.001, 0.1, 10.0)
    ]
    assert counts[0] == D
    assert counts == sorted(counts, reverse=True)
    assert counts[1] > counts[2] > counts[3]


def whitening() -> Whitening:
    random = np.random.default_rng(2)
    factor = random.normal(size=(D, D)) / 4
    noiseless = {"edge_noise": 0.0, "product_noise": np.zeros((D, D)), "norm_bound": 4.0, "bias": False}
    return Whitening.of(
        Moments(edge_sum=np.zeros(D), product_sum=500 * (factor @ factor.T), rows=500, **noiseless), shrinkage=0.1
    )


def test_the_basis_projects_whitened_records():
    made, axes = whitening(), rotated()[:, :4]
    kept = KeptDirections.every(D).narrowed(axes)
    np.testing.assert_allclose(kept.basis(made).matrix, axes @ axes.T @ made.basis.matrix, atol=2.0**-12)
    assert KeptDirections.every(D).basis(made) is made.basis


def test_the_size_along_axes_is_that_of_the_records_there():
    made = whitening()
    random = np.random.default_rng(2)
    factor = random.normal(size=(D, D)) / 4
    z = made.basis.matrix @ factor
    axes = rotated()[:, :4]
    assert made.size == pytest.approx(np.sqrt((z**2).sum()), rel=0.02)
    assert made.size_along(axes) == pytest.approx(np.sqrt(((axes.T @ z) ** 2).sum()), rel=0.02)


def test_answers_are_kept_along_the_axes():
    random = np.random.default_rng(5)
    axes = rotated()[:, :3]
    (narrowed,) = narrowed_answers([Seen(random.normal(size=D), random.normal(size=D), 0.3)], axes)
    (again,) = narrowed_answers([narrowed], np.eye(3))
    assert (narrowed.phi.shape, narrowed.noise) == ((3,), 0.3)
    np.testing.assert_array_equal(again.target, narrowed.target)
