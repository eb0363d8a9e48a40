"""Regressions of a central curator, who sees all rows, with and without privacy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, PoissonRegressor

from benchmarks.environments import work
from benchmarks.measured_tables import MeasuredSplit
from benchmarks.private_peers import AdaSSP, Split, Vector, diffprivlib_python
from dpcore.accounting.gaussian import gaussian_mu
from dpcore.queries.moments import usual_norm

_PENALTY, _MOST_STEPS = 1e-6, 2000
_LARGEST_SCORE = 30.0


def pooled(split: MeasuredSplit) -> Vector:
    """Weights (d,), the bias last, of least squares for t or of a Poisson regression, without privacy."""
    x, y = split.train[:, :-1], split.values(split.train_labels)
    model = PoissonRegressor(alpha=_PENALTY, max_iter=_MOST_STEPS) if split.is_count else LinearRegression()
    model.fit(x, y)
    return np.append(model.coef_, model.intercept_)


def as_split(split: MeasuredSplit) -> Split:
    """The same rows with labels t in [-1, 1], for learners of private_peers."""
    labels = (split.scaled(split.train_labels), split.scaled(split.test_labels))
    return Split(split.train, labels[0], split.test, labels[1], float(usual_norm(split.schema)))


def adassp(split: MeasuredSplit, epsilon: float, delta: float, draws: int, seed: int) -> list[Vector]:
    """Wang's AdaSSP for labels in [-1, 1]; see `benchmarks.private_peers.AdaSSP`."""
    learner, random = AdaSSP(as_split(split), delta), np.random.default_rng(seed)
    return [learner.theta(epsilon, random) for _ in range(draws)]


def diffprivlib(splits: list[MeasuredSplit], epsilons: tuple[float, ...], draws: int) -> NDArray[np.float64]:
    """Weights of its LinearRegression for pure epsilon, (epsilons, folds, draws, d). Raises UnavailableError."""
    job: dict[str, Any] = {"folds": len(splits), "epsilons": epsilons, "draws": draws}
    for fold, split in enumerate(splits):
        job |= {f"train{fold}": split.train[:, :-1], f"labels{fold}": split.scaled(split.train_labels)}
    return np.array(work(diffprivlib_python(), "diffprivlib_regression_worker.py", job))


@dataclass(frozen=True)
class DescentSetting:
    """steps T; clip, of each gradient over the norm bound times the root mean square of labels about their mean."""

    steps: int
    clip: float


DESCENTS = tuple(DescentSetting(steps, clip) for steps in (100, 400) for clip in (0.3, 1.0, 3.0))


def noisy_descent(
    split: MeasuredSplit, epsilon: float, delta: float, setting: DescentSetting, random: np.random.Generator
) -> Vector:
    """Full-batch gradient descent on squares of t, or on the Poisson likelihood, with noise in each step: (d,).

    T steps of mu_0 = 2 clip / sigma compose to mu = sqrt(T) mu_0 exactly (neighbours: one record replaced). Returned is
    the mean of the last half of the iterates. It starts at the best constant, and knows how large labels are: free.
    """
    rows = split.train.astype(np.float32)
    values = split.values(split.train_labels).astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1)
    norm, mean = float(usual_norm(split.schema)), float(values.mean())
    clip = setting.clip * norm * float(values.std())
    sigma = 2.0 * clip * np.sqrt(setting.steps) / gaussian_mu(epsilon, delta)
    theta, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    theta[-1] = np.log(mean) if split.is_count else mean
    # The largest step at which descent on rows of this length goes down; of counts for twice the mean.
    step_length = 1.0 / (norm**2 * (2.0 * mean if split.is_count else 1.0))
    for step in range(setting.steps):
        scores = rows @ theta.astype(np.float32)
        means = np.exp(np.minimum(scores, _LARGEST_SCORE)) if split.is_count else scores
        slopes = means - values
        slopes *= np.minimum(1.0, clip / np.maximum(np.abs(slopes) * lengths, 1e-12))
        gradient = rows.T @ slopes + sigma * random.standard_normal(len(theta))
        theta = theta - step_length * gradient / len(rows)
        if step >= setting.steps // 2:
            total += theta
    return total / (setting.steps - setting.steps // 2)


def best_descent(
    splits: list[MeasuredSplit],
    epsilon: float,
    delta: float,
    explained: Callable[[MeasuredSplit, Vector], float],
    tuning_folds: int,
    draws: int,
) -> NDArray[np.float64]:
    """What is explained, (draws, folds), with the setting that explains most of the first folds' test rows."""
    random = np.random.default_rng(1)

    def found(split: MeasuredSplit, setting: DescentSetting) -> float:
        return explained(split, noisy_descent(split, epsilon, delta, setting, random))

    tried = [np.mean([found(split, setting) for split in splits[:tuning_folds]]) for setting in DESCENTS]
    best = DESCENTS[int(np.argmax(tried))]
    return np.array([[found(split, best) for split in splits] for _ in range(draws)])
