"""RadoBoost: boosting on Rademacher observations (Nock, Patrini and Friedman, ICML 2015, Algorithm 1).

Symbols beyond those of `dpcore`: w are the weights over rados, pi_*k = max_j |pi_jk|, r_t the normalised edge of round
t (equation 9), alpha_t its leveraging coefficient (equation 10).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Matrix, Progress, RadoClassifier, RadoSample, Vector
from dpcore.rados.losses import log_rado_loss

LARGEST_EDGE = 1.0 - 2.0**-40
"""Where |r_t| reaches 1, alpha_t is infinite; the step is taken with this edge instead, and boosting stops."""

Oracle = Callable[[Vector], int]
"""A weak feature index oracle: from the normalised edges (d,) to the index of the feature to boost."""


def strong_oracle(edges: Vector) -> int:
    """The feature of largest |r|, the first among equals (ICML 2015, section 3, WFI in its general form)."""
    return int(np.argmax(np.abs(edges)))


@dataclass(frozen=True, eq=False)
class RoundTrace:
    """What happened in each round that took a step; arrays of shape (rounds,).

    feature: its index. r: the normalised edge used, in (-1, 1). alpha: the step along the feature, in 1/units of a
    rado. log_loss: log of the exponential rado loss (equation 2) of theta after the step, in nats.
    """

    feature: NDArray[np.int64]
    r: Vector
    alpha: Vector
    log_loss: Vector


class RadoBoost(RadoClassifier):
    """Boosting on rados; keeps the iterate of lowest exponential rado loss (equation 2), the start included.

    n_rounds: T, the most rounds. kappa: at least 1, divides every alpha_t: alpha_t = log((1 + r_t) / (1 - r_t)) / (2
    kappa pi_*). With kappa = 1 this is equation 10; the loss after T rounds is then at most exp(-sum r_t^2 / 2) (Lemma
    4, proof), and in general at most exp(-sum r_t^2 / (2 kappa)) (equation 17; section 5.2 prints the step without its
    2, for which kappa = 1 would not give that bound). smallest_edge: boosting stops once |r_t| is no larger: no feature
    has an edge left. n_rados, random_state: as in `RadoClassifier`.

    After fitting, beside what `RadoClassifier` sets: `rounds_`, a `RoundTrace`; `best_round_`, how many of these steps
    theta_ has taken; `log_rado_loss_`, the log of its rado loss in nats; `weights_`, (n,), after the last round;
    `stopped_because_`, a sentence, or None where all rounds ran.
    """

    def __init__(
        self,
        n_rounds: int = 1000,
        *,
        kappa: float = 1.0,
        smallest_edge: float = 1e-10,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_rados=n_rados, random_state=random_state)
        self.n_rounds = n_rounds
        self.kappa = kappa
        self.smallest_edge = smallest_edge

    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        if self.n_rounds < 1:
            raise ConfigurationError(f"n_rounds is {self.n_rounds}: boost for at least one round")
        if not (math.isfinite(self.kappa) and self.kappa >= 1):
            raise ConfigurationError(f"kappa is {self.kappa}: it must be finite and at least 1")
        if not 0 <= self.smallest_edge < 1:
            raise ConfigurationError(f"smallest_edge is {self.smallest_edge}: it must be in [0, 1)")
        state = _Boosting(release.rados, self.kappa)
        self.stopped_because_ = self._boost(state, strong_oracle, progress)
        self.rounds_ = state.trace()
        self.weights_ = state.weights
        self.best_round_ = state.best_round
        self.log_rado_loss_ = state.best_log_loss
        return state.best_theta

    def _boost(self, state: "_Boosting", oracle: Oracle, progress: Progress | None) -> str | None:
        for done in range(self.n_rounds):
            edges = state.edges()
            feature = oracle(edges)
            r = float(edges[feature])
            if abs(r) <= self.smallest_edge:
                return f"after {done} rounds no feature has an edge above smallest_edge = {self.smallest_edge:g}"
            separated = abs(r) >= LARGEST_EDGE
            if separated:
                r = math.copysign(LARGEST_EDGE, r)
            state.step(feature, r)
            if progress is not None:
                progress(done + 1, self.n_rounds)
            if separated:
                return (
                    f"in round {done + 1} every weighted rado has the same extreme value on feature {feature}, which "
                    "separates them: a larger step would only scale theta"
                )
        return None


class _Boosting:
    """The state of Algorithm 1 between rounds; a round costs one matrix-vector product and one weight update."""

    def __init__(self, rados: Matrix, kappa: float) -> None:
        n, d = rados.shape
        self._kappa = kappa
        self._largest = np.abs(rados).max(axis=0)
        # A coordinate that is zero in every rado keeps edge 0 and is never picked.
        # Column-major, because a step reads one column.
        self._scaled = np.asfortranarray(rados / np.where(self._largest > 0, self._largest, 1.0))
        self._margins = np.zeros(n)
        self._theta = np.zeros(d)
        self._rounds: list[tuple[int, float, float, float]] = []
        self.weights: Vector = np.full(n, 1.0 / n)
        self.best_theta: Vector = np.zeros(d)
        self.best_round = 0
        self.best_log_loss = 0.0

    def edges(self) -> Vector:
        """Equation 9 for every coordinate, (d,)."""
        edges: Vector = self.weights @ self._scaled
        return edges

    def step(self, feature: int, r: float) -> None:
        """Steps 2.2 and 2.3: equations 10 and 11 along `feature` with edge r, |r| < 1."""
        column = self._scaled[:, feature]
        scaled_alpha = math.atanh(r) / self._kappa  # atanh(r) = log((1 + r) / (1 - r)) / 2
        alpha = scaled_alpha / float(self._largest[feature])
        self._theta[feature] += alpha
        self._margins += scaled_alpha * column
        self.weights = self.weights * ((1.0 - r * column) / (1.0 - r * r))
        # The loss of theta is that of its margins, seen as rados of one coordinate: no second product with the rados.
        log_loss = log_rado_loss(np.ones(1), self._margins[:, np.newaxis])
        self._rounds.append((feature, r, alpha, log_loss))
        if log_loss < self.best_log_loss:
            self.best_theta = self._theta.copy()
            self.best_round = len(self._rounds)
            self.best_log_loss = log_loss

    def trace(self) -> RoundTrace:
        feature, r, alpha, log_loss = zip(*self._rounds, strict=True) if self._rounds else ((), (), (), ())
        return RoundTrace(
            feature=np.array(feature, dtype=np.int64),
            r=np.array(r, dtype=np.float64),
            alpha=np.array(alpha, dtype=np.float64),
            log_loss=np.array(log_loss, dtype=np.float64),
        )
