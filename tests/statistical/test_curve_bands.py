"""Bands of `covariance_` cover the curves that the population's best model of the class has.

The class: the functions that a run chose, and the loss with its clipped weights. Coverage is pointwise, averaged over
columns and over points that are spread as the rows are.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import qmc
from sklearn.base import clone

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.sensitivity import moments_squared
from dpcore.estimators import additive, private_newton
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.oracle import GradientEstimate
from dpcore.estimators.private_newton import PrivateNewton, Whitening
from dpcore.estimators.row_oracle import RowOracle
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.queries.norms import edge_multiplier
from dpcore.records.clipping import Clip
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.moments import Moments

COLUMNS, BITS, DELTA = 5, 16, Fraction(1, 10**6)
POINTS = np.linspace(-0.95, 0.95, 39)
# Spread evenly over the cube; 2^14 points stand for the population.
POPULATION = np.column_stack([2 * qmc.Sobol(COLUMNS, seed=1).random_base2(14) - 1, np.ones(1 << 14)])


def chance(x):
    """Of the positive class: a wave, a bend, a line, and two columns without any effect."""
    score = 1.2 * np.sin(2.5 * x[:, 0]) + 2 * np.abs(x[:, 1]) - 1 + x[:, 2]
    return 1 / (1 + np.exp(-score))


class NoisyRows(RowOracle):
    """Rows with the noise of a federation, in real numbers."""

    def __init__(self, rows, epsilon, random):
        x = random.uniform(-1, 1, (rows, COLUMNS))
        # RowOracle scales columns by their ends.
        x[:2] = [[-1.0] * COLUMNS, [1.0] * COLUMNS]
        labels = np.where(random.random(rows) < chance(x), 1.0, -1.0)
        super().__init__(np.column_stack([x, np.ones(rows)]) * labels[:, np.newaxis])
        self.epsilon, self.delta, self.random = Fraction(epsilon), DELTA, random

    def _deviation(self, squared_sensitivity, part):
        return np.sqrt(float(squared_sensitivity) / float(part)) / gaussian_mu(self.epsilon, self.delta)

    def statistic(self, predicates, *, part):
        found = super().statistic(predicates)
        deviation = self._deviation(batch_sensitivity(predicates).l2_squared, part) / self.rows
        values = found.values + self.random.normal(scale=deviation, size=len(found.values))
        return Estimates(values, self.rows, 0.95, 0.0, 0.0, 0.0, deviation)

    def moments(self, *, part, norm_bound, feature_map=None):
        found = super().moments(norm_bound=norm_bound, feature_map=feature_map)
        k = edge_multiplier(norm_bound, BITS)
        deviation = self._deviation(moments_squared(Clip(norm_bound, bias=True), BITS, k), part)
        edge_noise, d = deviation / 2**BITS / k, found.d
        product_noise = np.full((d, d), deviation / 4**BITS / 7)
        np.fill_diagonal(product_noise, deviation / 4**BITS / 5)
        product_noise[-1, -1] = 0
        drawn = np.triu(self.random.normal(size=(d, d)) * product_noise)
        return Moments(
            found.edge_sum + self.random.normal(scale=edge_noise, size=d),
            found.product_sum + drawn + np.triu(drawn, 1).T,
            self.rows,
            True,
            float(norm_bound),
            edge_noise,
            product_noise,
        )

    def gradient(self, theta, *, clip, part, basis, feature_map=None):
        found = super().gradient(theta, clip=clip, basis=basis, feature_map=feature_map)
        deviation = self._deviation(4 * clip**2, part) / self.rows
        noise = self.random.normal(scale=deviation, size=len(found.mean))
        return GradientEstimate(found.mean + noise, deviation, self.rows)


@pytest.fixture
def fitted(monkeypatch):
    """A function that fits rows; returns the estimator, and the weights of the population's best model of its class."""
    kept = {}

    def whitening_of(moments, shrinkage, of=Whitening.of):
        kept["whitening"] = of(moments, shrinkage)
        return kept["whitening"]

    def clip_of(relative, size, of=private_newton.clip_of):
        # That of all directions; an estimator may ask about fewer later.
        kept["clip"] = of(relative, kept["whitening"].size)
        return of(relative, size)

    monkeypatch.setattr(Whitening, "of", whitening_of)
    for module in (additive, private_newton):
        monkeypatch.setattr(module, "clip_of", clip_of)

    def fit(estimator, rows, epsilon, random):
        model = clone(estimator).fit_queries(NoisyRows(rows, epsilon, random))
        basis = kept["whitening"].basis.matrix
        z = coordinates(model, POPULATION) @ basis.T
        start = np.linalg.solve(basis.T, model.theta_)
        return model, basis.T @ best(z, chance(POPULATION), float(kept["clip"]), start)

    return fit


def coordinates(model, x):
    """What the weights of the model are of."""
    functions = getattr(model, "feature_map_", None)
    return x if functions is None else functions.of(x)


def best(z, positive, clip, phi):
    """The minimiser of the loss whose gradient is -w y z, w = min(1 / (1 + exp(y phi . z)), clip / |z|)."""
    most = clip / np.linalg.norm(z, axis=1)
    for _ in range(30):
        gradient, hessian = np.zeros(len(phi)), 1e-6 * np.eye(len(phi))
        for sign, share in ((1, positive), (-1, 1 - positive)):
            weight = 1 / (1 + np.exp(np.clip(sign * (z @ phi), -50, 50)))
            gradient -= sign * (share * np.minimum(weight, most)) @ z / len(z)
            curved = share * np.where(weight < most, weight * (1 - weight), 0.0)
            hessian += (z * curved[:, np.newaxis]).T @ z / len(z)
        step = -np.linalg.solve(hessian, gradient)
        phi = phi + step * min(1.0, 3.0 / np.linalg.norm(step))
        if np.linalg.norm(step) < 1e-4:
            return phi
    raise AssertionError("the best model was not found")


def covered(model, theta):
    """The share of points at which the band holds the curve of `theta`, by column."""
    shares = []
    for column in range(COLUMNS):
        x = np.zeros((len(POINTS), COLUMNS + 1))
        x[:, -1], x[:, column] = 1.0, POINTS
        values = coordinates(model, x)
        values -= values.mean(axis=0)
        deviations = np.sqrt(np.einsum("ij,jk,ik->i", values, model.covariance_, values))
        shares.append(np.mean(np.abs(values @ (model.theta_ - theta)) <= 1.96 * deviations))
    return shares


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("estimator", "rows", "epsilon"),
    [
        (PrivateAdditive(pairs=False), 20_000, 1),
        (PrivateAdditive(pairs=False), 20_000, 3),
        (PrivateAdditive(pairs=False), 5_000, 3),
        # The truth rises along this column.
        (PrivateAdditive(pairs=False, increasing="x2"), 20_000, 1),
        (PrivateNewton(), 20_000, 1),
        (PrivateNewton(), 3_000, 1),
        (PrivateNewton(), 3_000, 10),
    ],
)
def test_bands_cover_what_they_say(fitted, estimator, rows, epsilon):
    runs = [covered(*fitted(estimator, rows, epsilon, np.random.default_rng(seed))) for seed in range(500)]
    found = np.mean(runs, axis=0)
    assert found.mean() > 0.95
    assert found.min() > 0.9
