"""Shrinking by group: the stationary point of the likelihood, and a smaller error than without."""

import numpy as np
import pytest

from dpcore.estimators.additive_rounds import Prior
from dpcore.estimators.additive_terms import TermGroup

D, VARIANCE = 24, 0.5
GROUPS = (
    TermGroup("strong", "strong", tuple(range(8)), np.eye(8)),
    TermGroup("none", "none", tuple(range(8, 23)), np.eye(15)),
)


def basis(seed: int = 1) -> np.ndarray:
    return np.eye(D) + 0.1 * np.random.default_rng(seed).normal(size=(D, D))


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """phi, with weights of size 2 in the first group, 0 in the second, 5 in the free one; and phi with noise."""
    random = np.random.default_rng(seed)
    theta = np.concatenate([2.0 * random.normal(size=8), np.zeros(15), [5.0]])
    phi = np.linalg.inv(basis()).T @ theta
    return phi, phi + np.sqrt(VARIANCE) * random.normal(size=D)


def log_likelihood(prior: Prior, sizes, phi: np.ndarray) -> float:
    covariance = VARIANCE * np.eye(D) + 1e4 * prior.free @ prior.free.T
    for size, root in zip(sizes, prior.groups, strict=True):
        covariance = covariance + size * root @ root.T
    _, log_determinant = np.linalg.slogdet(covariance)
    return float(-0.5 * (log_determinant + phi @ np.linalg.solve(covariance, phi)))


@pytest.mark.more
def test_a_group_without_signal_is_shrunk_and_others_are_not():
    prior = Prior.of(GROUPS, basis())
    sizes = np.mean([prior.shrunk(drawn(seed)[1], VARIANCE).sizes for seed in range(40)], axis=0)
    assert sizes[0] == pytest.approx(4.0, rel=0.25)
    assert sizes[1] < 0.15


def test_the_error_is_less_than_half_of_that_without_shrinking():
    prior = Prior.of(GROUPS, basis())
    pairs = [drawn(seed) for seed in range(40)]
    raw = np.mean([np.square(seen - phi).sum() for phi, seen in pairs])
    shrunk = np.mean([np.square(prior.shrunk(seen, VARIANCE).mean - phi).sum() for phi, seen in pairs])
    assert shrunk < raw / 2


def test_the_variances_make_what_was_seen_likeliest():
    prior, (_, seen) = Prior.of(GROUPS, basis()), drawn(7)
    sizes = prior.shrunk(seen, VARIANCE).sizes
    best = log_likelihood(prior, sizes, seen)
    for place in range(2):
        for factor in (0.8, 1.25):
            other = sizes.copy()
            other[place] *= factor
            assert log_likelihood(prior, other, seen) <= best + 0.02


def test_weights_in_no_group_are_not_shrunk():
    prior = Prior.of(GROUPS, np.eye(D))
    seen = np.zeros(D)
    seen[-1] = 3.0
    found = prior.shrunk(seen, VARIANCE).mean
    assert found[-1] == pytest.approx(3.0, rel=1e-3)
    np.testing.assert_allclose(found[:-1], 0.0, atol=1e-6)


def test_groups_of_a_kind_share_what_they_say():
    """Of sixty groups of one weight each without signal, some would get more than their noise if alone."""
    seen = np.sqrt(VARIANCE) * np.random.default_rng(3).normal(size=60)
    alone, together = (
        Prior.of([TermGroup(f"{n}", kind(n), (n,), np.eye(1)) for n in range(60)], np.eye(60)).shrunk(seen, VARIANCE)
        for kind in (str, lambda n: "same")
    )
    assert np.square(together.mean).sum() < 0.4 * np.square(alone.mean).sum()
    # One that stands out keeps its own.
    seen[7] = 12.0
    strong = Prior.of([TermGroup(f"{n}", "same", (n,), np.eye(1)) for n in range(60)], np.eye(60)).shrunk(
        seen, VARIANCE
    )
    assert strong.mean[7] > 10.0
    assert np.delete(strong.sizes, 7).max() < strong.sizes[7] / 4


def test_variances_of_a_kind_make_likelihood_times_prior_largest():
    prior = Prior.of(
        [TermGroup("a", "same", tuple(range(8)), np.eye(8)), TermGroup("b", "same", (8, 9), np.eye(2))], basis()
    )
    seen = drawn(7)[1]
    found = prior.shrunk(seen, VARIANCE)

    def likelihood(place, size):
        sizes = found.sizes.copy()
        sizes[place] = size
        return log_likelihood(prior, sizes, seen)

    means = []
    for place, t in enumerate(found.sizes):
        rise = (likelihood(place, t * 1.001) - likelihood(place, t * 0.999)) / (0.002 * t)
        # The prior's log falls by a/2 (1 / t - mean / t^2), with a = 6: what the mean was follows.
        means.append(t - 2 * rise * t**2 / 6)
    assert means[0] == pytest.approx(means[1], rel=0.02)
    # It is the likeliest variance that both have.
    best = max(np.geomspace(0.1, 20, 400), key=lambda t: log_likelihood(prior, [t, t], seen))
    assert means[0] == pytest.approx(best, rel=0.03)


def test_a_prior_moves_with_the_coordinates():
    prior, (_, seen) = Prior.of(GROUPS, basis()), drawn(3)
    rotation, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(D, D)))
    found, moved = prior.shrunk(seen, VARIANCE), prior.moved(rotation).shrunk(rotation @ seen, VARIANCE)
    np.testing.assert_allclose(moved.mean, rotation @ found.mean, atol=1e-6)
    np.testing.assert_allclose(moved.prior, rotation @ found.prior @ rotation.T, rtol=1e-6, atol=1e-3)


def test_what_bends_have_in_common_with_a_column_belongs_to_the_column():
    column, bends = TermGroup("x, slope", "slope", (0,), np.eye(1)), TermGroup("x, bends", "bends", (1, 2), np.eye(2))
    prior = Prior.of([column, bends], basis()[:4, :4])
    np.testing.assert_allclose(prior.columns.T @ prior.groups[1], 0.0, atol=1e-12)
    np.testing.assert_allclose(prior.columns @ (prior.columns.T @ prior.groups[0]), prior.groups[0], atol=1e-12)
    # Where no direction of the bends is left, they have no variance.
    found = prior.moved(prior.columns.T).shrunk(np.array([3.0, 3.0]), VARIANCE)
    assert found.sizes[0] > 1.0
    assert found.sizes[1] < 1e-6
