"""Omega-R.AdaBoost's published step, beside that of dpcore.estimators.regularised (Nock, NIPS 2016).

The paper's round takes the step of AdaBoost whatever Omega is, alpha = atanh(r) / pi_*k, and Omega enters the loss that
is followed, not the step. Its weak learner's rule for choosing features under each Omega, the conditions on omega and
the rates proved under them are left out. Here the oracle is RadoBoost's: the largest |r|.
"""

from dataclasses import dataclass

import numpy as np

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.boosting import LARGEST_EDGE, log_rado_loss
from dpcore.estimators.regularisers import Regulariser
from dpcore.numbers.fixed_point import Matrix, Vector


@dataclass(frozen=True, eq=False)
class PublishedRounds:
    """theta (d,) after the last round; objective (T + 1,), F at the start and after each round, in nats."""

    theta: Vector
    objective: Vector

    @property
    def rises(self) -> int:
        """The number of rounds that raised F."""
        return int((np.diff(self.objective) > 0).sum())


def omega_adaboost(rados: Matrix, regulariser: Regulariser, strength: float, n_rounds: int) -> PublishedRounds:
    """n_rounds rounds of the published step from theta = 0 on rados (n, d), with F at `strength`.

    Raises ShapeError, ConfigurationError if a number is out of range.
    """
    if rados.ndim != 2 or 0 in rados.shape:
        raise ShapeError(f"rados have shape {rados.shape}: give (n, d), neither of them 0")
    if n_rounds < 1 or not strength >= 0:
        raise ConfigurationError(f"{n_rounds} rounds at strength {strength}: give at least one, and a strength >= 0")
    largest = np.abs(rados).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    theta, margins, objective = np.zeros(rados.shape[1]), np.zeros(len(rados)), [0.0]
    for _ in range(n_rounds):
        weights = np.exp(margins.min() - margins)
        r = np.clip((weights / weights.sum()) @ rados / largest, -LARGEST_EDGE, LARGEST_EDGE)
        feature = int(np.argmax(np.abs(r)))
        alpha = np.arctanh(r[feature]) / largest[feature]
        theta[feature] += alpha
        margins += alpha * rados[:, feature]
        objective.append(log_rado_loss(theta, rados) + strength * regulariser.value(theta))
    return PublishedRounds(theta, np.array(objective))
