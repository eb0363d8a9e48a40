"""Tables of known truth, and an oracle over rows in memory that adds Gaussian noise of a given mu to each answer."""

from fractions import Fraction

import numpy as np
from scipy.special import expit

from dpcore.errors import OracleRefusedError
from dpcore.estimators.oracle import GradientEstimate, RowOracle
from dpcore.rados.distribution import Moments
from dpcore.records.schema import Label, RealFeature, Schema


def real_schema(features, *, bias=True):
    return Schema(
        name="world",
        label=Label(column="label", positive=("1",)),
        features=tuple(RealFeature(name=f"x{j}", lower=-1, upper=1) for j in range(features)),
        bias=bias,
    )


def logistic_table(m, d, seed, *, alike=0.0):
    """Rows within [-1, 1] with a bias last (m, d), labels by a logistic model with its own theta (d,).

    alike: the common share of all features, from 0 to 1.
    """
    random = np.random.default_rng(seed)
    common = random.uniform(-1, 1, size=(m, 1))
    x = np.column_stack([alike * common + (1 - alike) * random.uniform(-1, 1, size=(m, d - 1)), np.ones(m)])
    theta = random.normal(size=d) * 3
    return x, np.where(random.uniform(size=m) < expit(x @ theta), 1, -1), theta


class RowsOracle:
    """Exact sums of rows, with noise on each: mu is that of the whole budget, None adds no noise.

    answers: the number after which the budget is spent. asked: (kind, theta, clip, part) of every answer.
    """

    def __init__(self, x, labels, *, mu=None, seed=0, answers=None, bias=True):
        self.schema = real_schema(x.shape[1] - 1, bias=bias)
        self.rows, self.epsilon, self.delta = len(x), Fraction(1), Fraction(1, 10**6)
        edges = x * np.asarray(labels, dtype=float)[:, np.newaxis]
        self._rows = RowOracle(edges)
        # Already encoded by the schema.
        self._rows.edges = edges
        self.mu, self.answers, self.asked = mu, answers, []
        self.random = np.random.default_rng(seed)

    def moments(self, *, part=Fraction(1)):
        self._charge("moments", None, None, part)
        exact = self._rows.moments()
        if self.mu is None:
            return exact
        square = exact.d / 3 + 2 / 3
        sigma = np.sqrt(2) * (square + square / 4) / (self.mu * np.sqrt(float(part)))
        noise = np.full((exact.d, exact.d), sigma / np.sqrt(2))
        np.fill_diagonal(noise, sigma)
        noise[-1, -1] = 0.0
        drawn = np.triu(self.random.normal(size=noise.shape) * noise)
        products = exact.product_sum + drawn + np.triu(drawn, 1).T
        edge_noise = sigma / np.sqrt(square / 2)
        return Moments(
            edge_sum=exact.edge_sum + edge_noise * self.random.normal(size=exact.d),
            product_sum=(products + products.T) / 2,
            rows=exact.rows,
            bias=True,
            norm_bound=exact.norm_bound,
            edge_noise=edge_noise,
            product_noise=noise,
        )

    def gradient(self, theta, *, clip, part=Fraction(1), loss="logistic"):
        self._charge("gradient", theta.copy(), clip, part)
        exact = self._rows.gradient(theta, clip=clip, loss=loss)
        if self.mu is None:
            return exact
        deviation = 2 * float(clip) / self.rows / (self.mu * np.sqrt(float(part)))
        return GradientEstimate(exact.mean + deviation * self.random.normal(size=len(theta)), deviation, self.rows)

    def _charge(self, kind, theta, clip, part):
        if self.answers is not None and len(self.asked) >= self.answers:
            raise OracleRefusedError("the budget is spent")
        self.asked.append((kind, theta, clip, part))
        assert sum(part for *_, part in self.asked) <= 1
