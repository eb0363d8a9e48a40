import numpy as np
import pytest

from dpcore.estimators.whitened_rounds import cleaned_eigenvalues

D = 150


def noisy(noise: float, seed: int):
    """Eigenvalues of a noisy matrix, and the spread of the matrix without noise along each of its eigenvectors."""
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.normal(size=(D, D)))[0]
    true = (rotation * np.geomspace(1.0, 200.0, D)) @ rotation.T
    above = np.triu(random.normal(scale=noise, size=(D, D)))
    values, vectors = np.linalg.eigh(true + above + np.triu(above, 1).T)
    return values, np.einsum("ji,jk,ki->i", vectors, true, vectors)


@pytest.mark.parametrize("noise", [0.5, 2.0, 5.0])
def test_they_estimate_the_spread_along_the_noisy_eigenvectors(noise):
    for seed in range(3):
        values, spreads = noisy(noise, seed)
        error = np.abs(cleaned_eigenvalues(values, noise) - spreads)
        # A single eigenvalue moves by about the noise of an entry.
        assert np.sqrt(np.mean(np.square(error))) < 2.0 * noise
        # Eigenvalues of the noisy matrix are spread over 4 s sqrt(d) where all true ones are small.
        assert np.mean(error) < 0.5 * np.mean(np.abs(values - spreads))


def test_they_ascend():
    values, _ = noisy(2.0, 0)
    assert (np.diff(cleaned_eigenvalues(values, 2.0)) >= 0.0).all()


def test_without_noise_they_stay():
    values = np.array([-1.0, 0.0, 0.0, 3.0])
    np.testing.assert_array_equal(cleaned_eigenvalues(values, 0.0), values)
    np.testing.assert_allclose(cleaned_eigenvalues(values, 1e-9), values, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_units_do_not_matter(scale):
    values, _ = noisy(2.0, 1)
    np.testing.assert_allclose(
        cleaned_eigenvalues(values * scale, 2.0 * scale), scale * cleaned_eigenvalues(values, 2.0), rtol=1e-9
    )


def test_equal_eigenvalues_stay_equal():
    np.testing.assert_allclose(cleaned_eigenvalues(np.full(4, 2.0), 0.5), np.full(4, 2.0))
