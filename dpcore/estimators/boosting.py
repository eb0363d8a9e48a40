"""Boosting one feature a round: RadoBoost on rados, AdaBoost on edge vectors.

Rows v_1 .. v_n are rados or edge vectors. The loss of theta is the exponential one, (1/n) sum_j exp(-theta . v_j):
equation 2 of Nock, Patrini and Friedman (ICML 2015) for rados, AdaBoost's for edge vectors.

With v_*k = max_j |v_jk| and z_jk = v_jk / v_*k in [-1, 1], round t of Algorithm 1 on weights w that sum to 1:

    edge     r = sum_j w_j z_jk for the feature k that an oracle picks (equation 9)
    step     alpha = atanh(r') / (kappa v_*k), where r' is r clipped or floored, and r' = r without either (equation 10)
    weights  "linear":       w_j (1 - r' z_j) / (1 - r'^2) (equation 11)
             "exponential":  w_j exp(-alpha v_j) (Schapire and Singer 1999)
             divided by their sum, which equation 11 leaves at 1 where r' = r

The bound, which tests assert at every round. For z in [-1, 1], by convexity, exp(-atanh(r') z) <= (1 - r' z) / sqrt(1 -
r'^2). With kappa = 1 the linear weights carry the product of these factors over rounds, the exponential ones the
exponentials themselves, so in both cases

    loss after T rounds <= product_t (1 - r'_t r_t) / sqrt(1 - r'_t^2).

Where |r'_t| <= |r_t| with the same sign, a factor is at most sqrt(1 - r'_t^2) <= exp(-r'_t^2 / 2): Lemma 4. A floor
raises |r'_t| above |r_t|, and the factor may then exceed 1.

For kappa >= 1 the linear weights do not depend on kappa, and theta is 1 / kappa times that of kappa = 1.

By Jensen the loss is at most the bound to the power 1 / kappa, so at most exp(-sum_t r'_t^2 / (2 kappa)), equation 17.
With exponential weights Jensen's inequality gives the same in each round. (Section 5.2 prints the step without its
factor 2.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.progress import Progress

# Losses over rados (n, d) and over edges (m, d), at theta (d,), in real units (ICML 2015, equations 1 to 4).


def _products(theta: Vector, rows: Matrix) -> Vector:
    if theta.ndim != 1 or rows.ndim != 2 or rows.shape[1] != theta.shape[0] or rows.shape[0] == 0:
        raise ShapeError(
            f"theta has shape {theta.shape} and rows {rows.shape}: give (d,) and (count, d), count positive"
        )
    return np.asarray(rows @ theta, dtype=np.float64)


def log_rado_loss(theta: Vector, rados: Matrix) -> float:
    """Log of the exponential rado loss, log((1/n) sum_j exp(-theta . pi_j)), in nats; finite if the products are.

    Equation 2. Raises ShapeError if the widths differ or there is no rado.
    """
    return log_loss_of_margins(_products(theta, rados))


def log_loss_of_margins(margins: Vector) -> float:
    """The same loss from known products theta . pi_j: log((1/n) sum_j exp(-margin_j)), n at least 1."""
    smallest = float(margins.min())
    exponentials = np.subtract(smallest, margins)
    np.exp(exponentials, out=exponentials)
    return math.log(float(exponentials.mean())) - smallest


def exponential_rado_loss(theta: Vector, rados: Matrix) -> float:
    """The exponential rado loss (equation 2); infinite if it overflows a double. Raises as `log_rado_loss`."""
    log_loss = log_rado_loss(theta, rados)
    try:
        return math.exp(log_loss)
    except OverflowError:
        return math.inf


def logistic_loss(theta: Vector, edges: Matrix) -> float:
    """The logistic loss (1/m) sum_i log(1 + exp(-theta . e_i)), in nats (equation 1). Raises ShapeError."""
    return float(np.logaddexp(0.0, -_products(theta, edges)).mean())


def logistic_rado_loss(theta: Vector, rados: Matrix, m: int) -> float:
    """The logistic rado loss log 2 + (1/m) log((1/n) sum_j exp(-theta . pi_j)), in nats (equation 4).

    Over all 2^m rados it equals `logistic_loss` (Lemma 2). Raises ShapeError, also if m < 1.
    """
    if m < 1:
        raise ShapeError(f"m is {m}: give the number of examples behind the rados, at least 1")
    return math.log(2) + log_rado_loss(theta, rados) / m


def mean_variance_loss(theta: Vector, rados: Matrix) -> float:
    """-E[theta . pi] + Var[theta . pi] over the given rados (variance with divisor n). Raises ShapeError.

    Over all 2^m rados, 4 times this plus m is the square loss sum_i (1 - theta . e_i)^2 over examples.
    """
    products = _products(theta, rados)
    return float(products.var() - products.mean())


# Weak feature index oracles (WFI): which feature a round takes (ICML 2015, Algorithm 1, step 2.1), from the normalised
# edges (equation 9). An edge of zero marks a feature that cannot be boosted; at least one is not zero.


Oracle = Callable[[Vector], int | None]
"""Maps the normalised edges (d,) to the index of the feature to boost, or None if the oracle admits none."""

ORACLES = ("strong", "prudential", "median")
"""The names of the oracles."""


def make_oracle(name: str, lambda_p: float) -> Oracle:
    """The oracle of this name; lambda_p in (0, 1] is the prudential one's. Raises ConfigurationError."""
    if name not in ORACLES:
        raise ConfigurationError(f"oracle is {name!r}: choose one of {', '.join(ORACLES)}")
    if not 0 < lambda_p <= 1:
        raise ConfigurationError(f"lambda_p is {lambda_p}: it must be in (0, 1]")
    if name == "prudential":
        return lambda edges: prudential_oracle(edges, lambda_p)
    return strong_oracle if name == "strong" else median_oracle


def strong_oracle(edges: Vector) -> int:
    """The feature of largest |r|, the first among equals (section 4)."""
    return int(np.argmax(np.abs(edges)))


def prudential_oracle(edges: Vector, lambda_p: float) -> int | None:
    """The feature of largest |r| among those with |r| <= lambda_p, the first among equals; None if there is none.

    Of the lambda_p-prudential oracles (section 5.2) it gives the largest decrease in Lemma 4.
    """
    sizes = np.abs(edges)
    admitted = np.where(sizes <= lambda_p, sizes, 0.0)
    feature = int(np.argmax(admitted))
    return feature if admitted[feature] > 0 else None


def median_oracle(edges: Vector) -> int:
    """The feature of median |r| among those with an edge; of two medians the larger; the first of equals."""
    usable = np.flatnonzero(edges)
    order = np.argsort(np.abs(edges[usable]), kind="stable")
    return int(usable[order[len(usable) // 2]])


Score = Callable[[Vector], float]
"""Maps theta (d,) to a score; the iterate of lowest score is kept."""

Selection = str | Score
"""Which iterate is kept: one of SELECTIONS, or the one of lowest score."""

LARGEST_EDGE = 1.0 - 2.0**-40
"""If |r_t| reaches 1, alpha_t is infinite; the step then uses this edge, and boosting stops."""

SMALLEST_COLUMN = 1e-300
"""A coordinate whose values are all at most this counts as zero: a step along it could overflow a double."""

SELECTIONS = ("lowest-loss", "last")
UPDATES = ("linear", "exponential")


@dataclass(frozen=True)
class BoostingRules:
    """How to boost; valid from construction. Raises ConfigurationError if a field is out of range."""

    n_rounds: int
    """T >= 1, the maximum number of rounds."""
    oracle: Oracle
    """Picks the feature."""
    kappa: float = 1.0
    """At least 1, divides every step."""
    clip: float | None = None
    """In (0, 1], |r_t| is lowered to it before the oracle looks; None is no clip."""
    floor: float = 0.0
    """In [0, 1) and at most clip, |r_t| of the picked feature is raised to it."""
    smallest_edge: float = 1e-10
    """In [0, 1), a feature whose |r_t| is at most this counts as having no edge."""
    update: str = "linear"
    """Of the weights, one of UPDATES."""
    patience: int | None = None
    """At least 1, boosting stops after this many rounds without a better iterate; None never stops."""

    def __post_init__(self) -> None:
        if not isinstance(self.n_rounds, Integral) or self.n_rounds < 1:
            raise ConfigurationError(f"n_rounds is {self.n_rounds}: boost for at least one round")
        if not (math.isfinite(self.kappa) and self.kappa >= 1):
            raise ConfigurationError(f"kappa is {self.kappa}: it must be finite and at least 1")
        if self.clip is not None and not 0 < self.clip <= 1:
            raise ConfigurationError(f"clip is {self.clip}: it must be in (0, 1], or None")
        if not 0 <= self.floor < 1 or self.floor > self.largest_edge:
            raise ConfigurationError(f"floor is {self.floor}: it must be in [0, 1) and no more than clip")
        if not 0 <= self.smallest_edge < 1:
            raise ConfigurationError(f"smallest_edge is {self.smallest_edge}: it must be in [0, 1)")
        if self.update not in UPDATES:
            raise ConfigurationError(f"update is {self.update!r}: choose one of {', '.join(UPDATES)}")
        if self.patience is not None and (not isinstance(self.patience, Integral) or self.patience < 1):
            raise ConfigurationError(f"patience is {self.patience}: it must be at least 1, or None")

    @property
    def largest_edge(self) -> float:
        """The largest |r_t| that a step may use."""
        return LARGEST_EDGE if self.clip is None else min(self.clip, LARGEST_EDGE)


@dataclass(frozen=True, eq=False)
class RoundTrace:
    """The rounds that took a step; arrays of shape (rounds,)."""

    feature: NDArray[np.int64]
    """Its index."""
    edge: Vector
    """Its normalised edge (equation 9), in [-1, 1]."""
    r: Vector
    """The edge that the step used, clipped or floored, in (-1, 1)."""
    alpha: Vector
    """The step along the feature, in 1/units of a row."""
    log_loss: Vector
    """Log of the exponential loss of theta after the step, in nats."""
    log_bound: Vector
    """Its upper bound from the module's docstring, in nats."""


@dataclass(frozen=True, eq=False)
class Boosted:
    """The result of boosting."""

    theta: Vector
    """(d,), the kept iterate."""
    best_round: int
    """The number of its steps."""
    log_loss: float
    """The log of its exponential loss, in nats."""
    weights: Vector
    """(n,), after the last round."""
    rounds: RoundTrace
    """The trace."""
    stopped_because: str | None
    """A sentence, or None if all rounds ran."""
    warning: str | None
    """A sentence if theta puts every row on its positive side: more rounds only scale it. Else None."""


def boost(rows: Matrix, rules: BoostingRules, selection: Selection, progress: Progress | None = None) -> Boosted:
    """Boost on rows (n, d), finite, and keep one iterate.

    selection: "lowest-loss", the start included; "last"; or a callable whose lowest score counts, the last among
    equals. Raises ConfigurationError if it is unknown, or the oracle admits no feature at the start.
    """
    if not callable(selection) and selection not in SELECTIONS:
        raise ConfigurationError(f"selection is {selection!r}: choose one of {', '.join(SELECTIONS)}, or a callable")
    state = Boosting(rows, rules)
    kept = _Kept(selection, state)
    stopped = None
    for done in range(int(rules.n_rounds)):
        if (stopped := state.refusal()) is not None:
            break
        state.step()
        kept.see(state, done + 1)
        if progress is not None:
            progress(done + 1, int(rules.n_rounds))
        if state.separated:
            stopped = (
                f"in round {done + 1} feature {state.feature} was at one extreme in every row with weight, so it "
                "separates them alone: a larger step would only scale theta"
            )
            break
        if rules.patience is not None and done + 1 - kept.improved_in >= rules.patience:
            stopped = f"after {done + 1} rounds: the last {rules.patience} (patience) found no better iterate"
            break
    margins = rows @ kept.theta
    return Boosted(
        theta=kept.theta,
        best_round=kept.round,
        log_loss=log_loss_of_margins(margins),
        weights=state.weights,
        rounds=state.trace(),
        stopped_because=stopped,
        warning=_SEPARATED if len(margins) and float(margins.min()) > 0 else None,
    )


_SEPARATED = (
    "theta is positive on all rows that it was trained on: the loss falls to zero along theta, so it has no minimum "
    "and does not measure the error on records"
)


def largest_sizes(rows: Matrix) -> Vector:
    """max_j |v_jk| for each coordinate, (d,), without allocating a matrix of absolute values."""
    largest: Vector = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    return largest


class _Kept:
    """The iterate kept by a selection."""

    def __init__(self, selection: Selection, state: "Boosting") -> None:
        self._selection = selection
        self.theta: Vector = state.theta.copy()
        self.round = self.improved_in = 0
        self._lowest = self._score(state)

    def _score(self, state: "Boosting") -> float:
        return float(self._selection(state.theta.copy())) if callable(self._selection) else state.log_loss

    def see(self, state: "Boosting", rounds: int) -> None:
        score = self._score(state)
        better = score < self._lowest
        if better:
            self._lowest, self.improved_in = score, rounds
        if better or self._selection == "last" or (callable(self._selection) and score == self._lowest):
            self.theta, self.round = state.theta.copy(), rounds


class Boosting:
    """The state of Algorithm 1; a round costs one matrix-vector product. Call `refusal`, then `step` if it is None.

    weights: (n,), they sum to 1. feature: the last boosted one. separated: its edge was 1 or -1, so boosting must end.
    """

    def __init__(self, rows: Matrix, rules: BoostingRules) -> None:
        n, d = rows.shape
        self._rows = rows
        self._rules = rules
        self._largest = largest_sizes(rows)
        # A coordinate that is zero in every row keeps edge 0 and is never picked.
        self._usable = self._largest > SMALLEST_COLUMN
        self._margins = np.zeros(n)
        self._rounds: list[tuple[int, float, float, float, float]] = []
        self._edges: Vector = np.zeros(d)
        self.weights: Vector = np.full(n, 1.0 / n)
        self.theta: Vector = np.zeros(d)
        self.log_loss = 0.0
        self.feature: int | None = None
        self.separated = False

    def refusal(self) -> str | None:
        """Pick the next feature; a sentence if there is none, ConfigurationError if the oracle never admitted one."""
        self._edges = np.divide(
            self.weights @ self._rows, self._largest, out=np.zeros_like(self.theta), where=self._usable
        )
        largest, smallest = self._rules.largest_edge, self._rules.smallest_edge
        seen = np.where(np.abs(self._edges) > smallest, np.clip(self._edges, -largest, largest), 0.0)
        done = len(self._rounds)
        if not seen.any():
            return f"after {done} rounds no feature has an edge above smallest_edge = {smallest:g}"
        self.feature = self._rules.oracle(seen)
        if self.feature is None:
            least = float(np.abs(seen[seen != 0]).min())
            if done == 0:
                raise ConfigurationError(
                    f"the oracle admits no feature: the smallest edge is {least:.3g}; raise lambda_p to at least that"
                )
            return f"after {done} rounds the oracle admits no feature: the smallest edge is {least:.3g}"
        return None

    def step(self) -> None:
        """Steps 2.2 and 2.3 along the feature that `refusal` picked."""
        feature = self.feature
        if feature is None:
            raise ConfigurationError("there is no feature to step along: call refusal first")
        edge = float(self._edges[feature])
        rules = self._rules
        r = math.copysign(min(max(abs(edge), rules.floor), rules.largest_edge), edge)
        column = self._rows[:, feature] / self._largest[feature]
        scaled_alpha = math.atanh(r) / rules.kappa  # atanh(r) = log((1 + r) / (1 - r)) / 2
        alpha = scaled_alpha / float(self._largest[feature])
        self.theta[feature] += alpha
        self._margins += scaled_alpha * column
        self.weights *= np.exp(-scaled_alpha * column) if rules.update == "exponential" else 1.0 - r * column
        self.weights /= self.weights.sum()
        self.log_loss = log_loss_of_margins(self._margins)
        self.separated = abs(edge) >= LARGEST_EDGE
        self._rounds.append((feature, edge, r, alpha, self.log_loss))

    def trace(self) -> RoundTrace:
        """The rounds so far."""
        feature, edge, r, alpha, log_loss = np.array(self._rounds, dtype=np.float64).reshape(-1, 5).T
        # Rounding may put an edge of 1 slightly above 1.
        factors = np.log1p(-r * np.clip(edge, -1.0, 1.0)) - 0.5 * np.log1p(-r * r)
        return RoundTrace(
            feature=feature.astype(np.int64),
            edge=edge,
            r=r,
            alpha=alpha,
            log_loss=log_loss,
            log_bound=np.cumsum(factors) / self._rules.kappa,
        )
