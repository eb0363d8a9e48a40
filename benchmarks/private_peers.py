"""Alternatives of a central curator, who sees all rows, to a federated moments release."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from benchmarks.environments import environment, work
from benchmarks.measuring import Measure
from dpcore.accounting.gaussian import gaussian_mu

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Errors = dict[str, NDArray[np.float64]]

# scikit-learn 1.8 removed a name that diffprivlib imports.
PINS = ("diffprivlib==0.6.6", "scikit-learn==1.7.2", "numpy<2.5")
# AdaSSP's probability that its ridge is too small, as in the paper's experiments.
RHO = 0.05


@dataclass(frozen=True, eq=False)
class Split:
    """Rows with their bias last, (rows, d), and labels -1 or +1. norm: the declared bound R, the bias included."""

    train: Matrix
    train_labels: Vector
    test: Matrix
    test_labels: Vector
    norm: float

    def clipped(self) -> Matrix:
        """Training rows, clipped to the declared norm, except the bias."""
        lengths = np.linalg.norm(self.train[:, :-1], axis=1)
        factors = np.minimum(1.0, np.sqrt(self.norm**2 - 1.0) / np.maximum(lengths, 1e-12))
        return np.column_stack([self.train[:, :-1] * factors[:, np.newaxis], self.train[:, -1]])

    def error(self, theta: Vector) -> float:
        """Test error in %."""
        return 100.0 * float(np.mean((self.test @ theta > 0) != (self.test_labels > 0)))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Test errors of several methods on one data set; d counts the bias.

    errors: by method, (epsilons, folds), in %, the mean over draws of noise. A subclass names the epsilons, and all
    methods in the order shown, ours first.
    """

    name: str
    training_rows: int
    d: int
    errors: Errors
    epsilons: ClassVar[tuple[float, ...]]
    ways: ClassVar[tuple[str, ...]]

    def mean(self, way: str, epsilon: float) -> float:
        """Test error in %, over folds and draws."""
        return float(self.errors[way][self.epsilons.index(epsilon)].mean())

    def above(self, way: str, epsilon: float) -> float:
        """Points of error of ours above `way`."""
        return self.mean(self.ways[0], epsilon) - self.mean(way, epsilon)

    def measures(self) -> list[Measure]:
        """Test errors; their spread is over folds."""
        return [
            Measure.of(f"{self.name}, epsilon {epsilon:g}: {way}", "% test error", list(values))
            for way, table in self.errors.items()
            for epsilon, values in zip(self.epsilons, table, strict=True)
        ]

    def cells(self, epsilon: float) -> tuple[str, ...]:
        """The cells of every method in a table."""
        return tuple(f"{self.mean(way, epsilon):.1f}" if way in self.errors else "-" for way in self.ways)

    def as_setting(self) -> dict[str, Any]:
        """The entry of the set in the JSON file."""
        ways = [way for way in self.ways if way in self.errors]
        means = {way: [round(self.mean(way, epsilon), 2) for epsilon in self.epsilons] for way in ways}
        return {"name": self.name, "training_rows": self.training_rows, "d": self.d, "mean_error_percent": means}


@dataclass(frozen=True)
class Paired:
    """Points of error of one method above another, over the same folds: mean and standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, ours: Sequence[float] | Vector, theirs: Sequence[float] | Vector) -> "Paired":
        """One value a fold, at least two."""
        apart = np.asarray(ours) - np.asarray(theirs)
        return cls(float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))))

    def __str__(self) -> str:
        return f"{self.mean:+.2f} +- {self.error:.2f}"


class AdaSSP:
    """Ridge regression from noisy sufficient statistics, the ridge chosen by the data: Wang, arXiv 1803.02596, Alg. 2.

    Noise as published: a third of the budget each to the least eigenvalue, X^T X and X^T y, whose sensitivities B^2,
    B^2 and B hold for a record that is added or removed. Replacing one changes them more, so this favours the peer.
    """

    def __init__(self, split: Split, delta: float) -> None:
        rows = split.clipped()
        self._products, self._edges, self._bound = rows.T @ rows, rows.T @ split.train_labels, split.norm
        self._least = float(np.linalg.eigvalsh(self._products)[0])
        self._log = np.log(6.0 / delta)

    def theta(self, epsilon: float, random: np.random.Generator) -> Vector:
        """One private draw, (d,)."""
        d = len(self._edges)
        square, third = self._bound**2, epsilon / 3.0
        noise = np.sqrt(self._log) / third
        least = max(0.0, self._least + noise * square * random.standard_normal() - self._log / third * square)
        ridge = max(0.0, np.sqrt(d * self._log * np.log(2 * d * d / RHO)) * square / third - least)
        upper = np.triu(random.standard_normal((d, d)))
        products = self._products + noise * square * (upper + np.triu(upper, 1).T)
        edges = self._edges + noise * self._bound * random.standard_normal(d)
        theta: Vector = np.linalg.solve(products + ridge * np.eye(d), edges)
        return theta


@dataclass(frozen=True)
class DescentSetting:
    """steps T; rate, the step's length in units of the mean clipped gradient over its clip; clip, of each gradient."""

    steps: int
    rate: float
    clip: float


DESCENT_GRID = tuple(
    DescentSetting(steps, rate, clip) for steps in (40, 160, 640) for rate in (2.0, 8.0) for clip in (0.25, 0.5, 1.0)
)


def noisy_descent(
    split: Split, epsilon: float, delta: float, setting: DescentSetting, random: np.random.Generator
) -> Vector:
    """Full-batch gradient descent on the logistic loss, (d,): clipped gradients summed, Gaussian noise each step.

    T steps of mu_0 = 2 clip / sigma compose to mu = sqrt(T) mu_0 exactly (neighbours: one record replaced). Returned is
    the mean of the last half of the iterates.
    """
    rows, labels = split.train.astype(np.float32), split.train_labels.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1)
    sigma = 2.0 * setting.clip * np.sqrt(setting.steps) / gaussian_mu(epsilon, delta)
    theta, total = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for step in range(setting.steps):
        slopes = -labels / (1.0 + np.exp(np.minimum(labels * (rows @ theta.astype(np.float32)), 50.0)))
        slopes *= np.minimum(1.0, setting.clip / np.maximum(np.abs(slopes) * lengths, 1e-12))
        gradient = rows.T @ slopes + sigma * random.standard_normal(len(theta))
        theta = theta - setting.rate * gradient / (setting.clip * len(rows))
        if step >= setting.steps // 2:
            total += theta
    return total / (setting.steps - setting.steps // 2)


@dataclass(frozen=True)
class ObjectiveSetting:
    """share of epsilon for the change of the Hessian; scale: rows are clipped to this times the declared norm."""

    share: float
    scale: float

    def ridge(self, epsilon: float, norm: float) -> float:
        """Delta, at which a Hessian weight of norm^2 / 4 changes log det by at most share epsilon."""
        return (self.scale * norm) ** 2 / 4 / float(np.expm1(self.share * epsilon))

    def sigma(self, epsilon: float, delta: float, norm: float) -> float:
        """The noise on each coordinate of the linear term: the least for the rest of epsilon."""
        tail = np.sqrt(2 * np.log(1 / delta))
        shift = (np.sqrt(tail**2 + 2 * (1 - self.share) * epsilon) - tail) / 2
        return self.scale * norm / float(shift)


OBJECTIVE_GRID = tuple(ObjectiveSetting(share, scale) for share in (0.05, 0.3) for scale in (0.25, 0.5, 1.0))


def objective_perturbation(
    split: Split, epsilon: float, delta: float, setting: ObjectiveSetting, random: np.random.Generator
) -> Vector:
    """The minimiser of the summed logistic loss + Delta |theta|^2 / 2 + b . theta, b normal: (d,).

    Chaudhuri, Monteleoni and Sarwate (JMLR 2011), with the Gaussian noise of Kifer, Smith and Thakurta (COLT 2012).
    Neighbours: one record replaced. b shifts by at most 2 R in the span of two rows, so its log density by at most 2 R
    t / sigma + 2 R^2 / sigma^2, but for exp(-t^2 / 2) = delta; the log Jacobian by at most log(1 + R^2 / (4 Delta)).
    """
    norm = setting.scale * split.norm
    rows = split.train * np.minimum(1.0, norm / np.linalg.norm(split.train, axis=1))[:, np.newaxis]
    edges = rows * split.train_labels[:, np.newaxis]
    ridge = setting.ridge(epsilon, split.norm)
    noise = setting.sigma(epsilon, delta, split.norm) * random.standard_normal(edges.shape[1])

    def objective(theta: Vector) -> tuple[float, Vector]:
        margins = edges @ theta
        value = np.logaddexp(0.0, -margins).sum() + ridge / 2 * theta @ theta + noise @ theta
        return float(value) / len(edges), (ridge * theta + noise - expit(-margins) @ edges) / len(edges)

    found = minimize(
        objective, np.zeros(edges.shape[1]), jac=True, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 1e-15}
    )
    theta: Vector = found.x
    return theta


@dataclass(frozen=True)
class SecondOrderSetting:
    """steps T; curvature, "hessian" or the quadratic upper "bound"; change of its eigenvalues, "add" lambda or "clip".

    scale: rows are clipped to this times the declared norm. Shares of a step's squared mu and the factor of the trace
    are those of the authors' program.
    """

    steps: int
    curvature: str
    change: str
    scale: float

    GRADIENT_SHARE: ClassVar[float] = 0.7
    TRACE_SHARE: ClassVar[float] = 0.1
    """Of what the gradient leaves."""
    TRACE_FACTOR: ClassVar[float] = 0.5

    def mus(self, mu: float) -> tuple[float, float, float]:
        """Those of a step's gradient, trace and direction: over all steps their squares add up to that of mu."""
        step, rest = mu**2 / self.steps, 1 - self.GRADIENT_SHARE
        shares = (self.GRADIENT_SHARE, rest * self.TRACE_SHARE, rest * (1 - self.TRACE_SHARE))
        gradient, trace, direction = (float(np.sqrt(step * share)) for share in shares)
        return gradient, trace, direction

    def weights(self, margins: Vector) -> Vector:
        """Each record's weight in the curvature, at most 1/4."""
        if self.curvature == "hessian":
            return np.asarray(expit(margins) * expit(-margins))
        halves = np.where(np.abs(margins) > 1e-6, margins, 1.0)
        return np.where(np.abs(margins) > 1e-6, np.tanh(halves / 2) / (2 * halves), 0.25)

    def inverse(self, curvature: Matrix, least: float) -> Matrix:
        """The inverse of the changed curvature, whose eigenvalues are at least `least`."""
        values, vectors = np.linalg.eigh(curvature)
        changed = values + least if self.change == "add" else np.maximum(values, least)
        return np.asarray((vectors / changed) @ vectors.T)

    def sensitivity(self, least: float, weight: float) -> float:
        """The most by which a replaced record, of this weight at most, moves `inverse` in spectral norm.

        "add": with M = H0 + least I of the other records, (M + a u u^T)^-1 differs from M^-1 by a positive matrix of
        norm at most a / (least (least + a)) (Sherman and Morrison), and two such differ by no more.

        "clip": 1 / max(x, least) has slopes of at most 1 / least^2, which bounds Frobenius norms; that of the change of
        H is at most sqrt(2) a.
        """
        return weight / (least * (least + weight)) if self.change == "add" else np.sqrt(2) * weight / least**2


SECOND_ORDER_GRID = tuple(
    SecondOrderSetting(steps, curvature, change, scale)
    for steps in (15, 40)
    for curvature in ("hessian", "bound")
    for change in ("add", "clip")
    for scale in (0.5, 1.0)
)


def second_order(
    split: Split, epsilon: float, delta: float, setting: SecondOrderSetting, random: np.random.Generator
) -> Vector:
    """Newton's method on the logistic loss with noise on gradient and direction, from theta = 0: (d,).

    Ganesh, Haghifam, Steinke and Thakurta, "Faster Differentially Private Convex Optimization via Second-Order Methods"
    (NeurIPS 2023, arXiv 2305.13209), the double noise mechanism; its constants are those of the authors' program.

    Neighbours: one record replaced. Rows are scaled to length 1 at most, so a gradient moves by at most 2 / n and a
    trace by 1 / (4 n). The least eigenvalue follows from the noisy trace, so it costs nothing more.
    """
    norm, n = setting.scale * split.norm, len(split.train)
    rows = split.train / np.maximum(norm, np.linalg.norm(split.train, axis=1))[:, np.newaxis]
    edges, weight = rows * split.train_labels[:, np.newaxis], 0.25 / n
    gradient_mu, trace_mu, direction_mu = setting.mus(gaussian_mu(epsilon, delta))
    theta = np.zeros(edges.shape[1])
    for _ in range(setting.steps):
        margins = edges @ theta
        gradient = -(expit(-margins) @ edges) / n + 2 / n / gradient_mu * random.standard_normal(len(theta))
        curvature = (edges.T * setting.weights(margins)) @ edges / n
        trace = float(np.trace(curvature)) + weight / trace_mu * float(random.standard_normal(1)[0])
        spread = setting.TRACE_FACTOR * max(trace, 0.0) / (n**2 * direction_mu**2 / 2)
        least = max(float(np.cbrt(spread)), 1 / n)
        moved = setting.sensitivity(least, weight) * float(np.linalg.norm(gradient)) / direction_mu
        direction = setting.inverse(curvature, least) @ gradient
        theta = theta - direction - moved * random.standard_normal(len(theta))
    return theta


def diffprivlib_python() -> Path:
    """The interpreter of an environment that holds diffprivlib. Raises UnavailableError if it cannot be made."""
    return environment("diffprivlib", PINS, "diffprivlib.models")


def diffprivlib_errors(
    split: Split, epsilons: tuple[float, ...], penalties: tuple[float, ...], draws: int
) -> NDArray[np.float64]:
    """Test errors in % of its LogisticRegression, (epsilons, penalties, draws); NaN where a fit failed.

    Objective perturbation (Chaudhuri, Monteleoni, Sarwate, JMLR 2011; neighbours: one record replaced) at delta = 0,
    with data_norm = sqrt(R^2 - 1); it accounts for the bias itself. Raises UnavailableError.
    """
    job = {
        "train": split.train[:, :-1],
        "test": split.test[:, :-1],
        "train_labels": split.train_labels,
        "test_labels": split.test_labels,
        "norm": np.sqrt(split.norm**2 - 1.0),
        "epsilons": epsilons,
        "penalties": penalties,
        "draws": draws,
    }
    return np.array(work(diffprivlib_python(), "diffprivlib_worker.py", job), dtype=np.float64)
