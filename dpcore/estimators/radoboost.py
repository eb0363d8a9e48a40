"""RadoBoost: boosting on Rademacher observations (Nock, Patrini and Friedman, ICML 2015, Algorithm 1)."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import LinearClassifier, RadoClassifier, RadoSample
from dpcore.estimators.boosting import BoostingRules, Score, Selection, boost, make_oracle
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.progress import Progress


class RadoBoost(RadoClassifier):
    """Boosting on rados; by default it keeps the iterate of lowest exponential rado loss (equation 2), start included.

    - recentre: t > 0, the rados' mean is first multiplied by t / sqrt(m), see `centre_of`; None is Algorithm 1 on the
      rados as they are.
    - n_rounds: T, the maximum of rounds.
    - oracle: which feature a round takes: "strong", of largest |r_t| (section 4); "prudential", of largest |r_t| <=
      lambda_p (section 5.2); "median", of median |r_t| (section 6). lambda_p: in (0, 1].
    - kappa: at least 1, divides every step, alpha_t = log((1 + r_t) / (1 - r_t)) / (2 kappa pi_*).
    - clip: in (0, 1] or None, |r_t| is lowered to it before the oracle looks. floor: in [0, 1), at most clip, |r_t| is
      raised to it; Lemma 4 then no longer holds. smallest_edge: boosting stops once every |r_t| is at most this.
    - selection: the iterate that is kept: "lowest-loss"; "last", theta_T as Algorithm 1 returns it; or a function from
      theta (d,) to a score; the lowest is kept, the last among equals.
    - patience: boosting stops after this many rounds without a better iterate; None never stops.
    - n_rados, random_state: as in `RadoClassifier`.

    Without a floor the loss after T rounds is at most exp(-sum r_t^2 / (2 kappa)) (Lemma 4, equation 17).

    With recentre None a falling loss implies little about the error on records: a rado's mean grows with m and its
    spread with sqrt(m), so n << 2^m rados of a real table are usually separable, and their loss has no minimum.

    After fitting, besides what `RadoClassifier` sets: `rounds_`, a `RoundTrace`; `best_round_`, the number of theta_'s
    steps; `log_rado_loss_`, the log of its loss in nats over the rados as they were boosted; `weights_`, (n,), after
    the last round; `stopped_because_`, a sentence, or None if all rounds ran; `warning_`, a sentence if theta_
    separates the rados, else None.

    `fit_release` and `fit` raise ConfigurationError if a parameter is out of range, or the prudential oracle admits no
    feature at the start.
    """

    def __init__(
        self,
        n_rounds: int = 1000,
        *,
        recentre: float | None = 1.0,
        oracle: str = "strong",
        lambda_p: float = 0.9,
        kappa: float = 1.0,
        clip: float | None = None,
        floor: float = 0.0,
        smallest_edge: float = 1e-10,
        selection: Selection = "lowest-loss",
        patience: int | None = None,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_rados=n_rados, random_state=random_state)
        self.n_rounds = n_rounds
        self.recentre = recentre
        self.oracle = oracle
        self.lambda_p = lambda_p
        self.kappa = kappa
        self.clip = clip
        self.floor = floor
        self.smallest_edge = smallest_edge
        self.selection = selection
        self.patience = patience

    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        rules = BoostingRules(
            n_rounds=self.n_rounds,
            oracle=make_oracle(self.oracle, self.lambda_p),
            kappa=self.kappa,
            clip=self.clip,
            floor=self.floor,
            smallest_edge=self.smallest_edge,
            patience=self.patience,
        )
        centre = None if self.recentre is None else centre_of(release, self.recentre)
        boosted = boost(release.rados, rules, self.selection, progress, centre=centre)
        self.rounds_ = boosted.rounds
        self.best_round_ = boosted.best_round
        self.log_rado_loss_ = boosted.log_loss
        self.weights_ = boosted.weights
        self.stopped_because_ = boosted.stopped_because
        self.warning_ = boosted.warning
        return boosted.theta


def centre_of(release: RadoSample, t: float) -> Vector:
    """What is subtracted from every rado, (d,), so that their mean keeps the share min(1, t / sqrt(m)).

    Rados of mean mu and covariance V have about the log loss -theta . mu + theta . V theta / 2, as sums of many
    records.

    At its minimum V^-1 mu the margins have the variance L = mu . V^-1 mu, and n rados estimate the mean of
    their exponentials only where log n is above about L / 2.

    For plain rados mu = (1/2) sum e and V = (1/4) sum e e^T, so L <= m by Cauchy and Schwarz: too large for any n. With
    the mean's share t / sqrt(m) the minimum has the same direction, and L <= t^2.

    Raises ConfigurationError if t is not positive and finite.
    """
    if not (math.isfinite(t) and t > 0):
        raise ConfigurationError(f"recentre is {t}: give a positive number, or None for the rados as they are")
    mean: Vector = release.rados.mean(axis=0)
    return mean * (1.0 - min(1.0, t / math.sqrt(release.rows)))


# AdaBoost with the weak learner of RadoBoost, on edge vectors: the baseline of ICML 2015, section 4. It trains on rows,
# so it is a comparison for those who may see them.


LOWEST_ERROR = "lowest-error"


class AdaBoost(LinearClassifier):
    """Boosting on edge vectors; by default it keeps the iterate of lowest 0/1 error on the rows, as the paper does.

    n_rounds, oracle, lambda_p, clip, floor, patience: as in `RadoBoost`; section 4 proposes a floor on |r_t| where
    outliers make every normalised edge small. random_state: scikit-learn's, for the draw of n_rows.

    - update: of the weights, "linear" (equation 11 on edge vectors) or "exponential" (Schapire and Singer, Machine
      Learning 37, 1999).
    - selection: as in `RadoBoost`, or "lowest-error": the lowest error on all rows passed to `fit`, the last among
      equals.
    - fit_intercept: whether to add a bias coordinate.
    - n_rows: AdaBoost(n), boost on this many rows, drawn without replacement; None, or more than there are, takes all.

    After fitting, besides what `LinearClassifier` sets: `rounds_`, `best_round_`, `stopped_because_` and `warning_` as
    in `RadoBoost`; `log_loss_`, the log of theta_'s exponential loss on the rows used for boosting, in nats.
    """

    def __init__(
        self,
        n_rounds: int = 1000,
        *,
        update: str = "linear",
        oracle: str = "strong",
        lambda_p: float = 0.9,
        clip: float | None = None,
        floor: float = 0.0,
        selection: Selection = LOWEST_ERROR,
        patience: int | None = None,
        fit_intercept: bool = True,
        n_rows: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_rounds = n_rounds
        self.update = update
        self.oracle = oracle
        self.lambda_p = lambda_p
        self.clip = clip
        self.floor = floor
        self.selection = selection
        self.patience = patience
        self.fit_intercept = fit_intercept
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows; returns self. Not private: the result may reveal rows.

        As `RadoClassifier.fit`, and ConfigurationError if a parameter is out of range.
        """
        rules = BoostingRules(
            n_rounds=self.n_rounds,
            oracle=make_oracle(self.oracle, self.lambda_p),
            clip=self.clip,
            floor=self.floor,
            update=self.update,
            patience=self.patience,
        )
        if self.n_rows is not None and self.n_rows < 1:
            raise ConfigurationError(f"n_rows is {self.n_rows}: boost on at least one row, or None for all")
        edges = self._edges(X, y, bias=self.fit_intercept)
        selection = error_of(edges) if self.selection == LOWEST_ERROR else self.selection
        boosted = boost(self._sample(edges), rules, selection)
        self.rounds_ = boosted.rounds
        self.best_round_ = boosted.best_round
        self.log_loss_ = boosted.log_loss
        self.stopped_because_ = boosted.stopped_because
        self.warning_ = boosted.warning
        self._keep(boosted.theta, bias=self.fit_intercept)
        return self

    def _sample(self, edges: Matrix) -> Matrix:
        if self.n_rows is None or self.n_rows >= len(edges):
            return edges
        chosen = check_random_state(self.random_state).choice(len(edges), size=self.n_rows, replace=False)
        sample: Matrix = edges[chosen]
        return sample


def error_of(edges: Matrix) -> Score:
    """The selection that keeps the iterate of lowest 0/1 error on edge vectors (m, d); a margin of zero is an error."""

    def error(theta: Vector) -> float:
        return float(np.mean(edges @ theta <= 0))

    return error
