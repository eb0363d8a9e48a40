"""Theorem 8: RadoBoost's rate on the noise-free rados, after boosting on noisy ones (ICML 2015, section 5.2)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.rado_losses import logistic_rado_loss

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyRate:
    """The logistic rado loss on noise-free rados of a theta from noisy rados, and its bounds; nats."""

    loss: float
    """F_log^r(S, theta_T, U)."""
    noise_free: float
    """Right side of equation 17, log 2 - sum_t r_t^2 / (2 kappa m)."""
    stated: float
    """Right side of equation 19, half that rate."""
    allowance: float
    """The most that noise adds, with probability 1 - tau (`noise_allowance`); `noise_free + allowance` bounds the loss
    with that probability."""
    prudence: float
    """The largest |r_t|, so the oracle was lambda_p-prudential for this lambda_p."""

    @property
    def holds(self) -> bool:
        """Whether inequality 19 holds here."""
        return self.loss <= self.stated

    @property
    def proved(self) -> bool:
        """Whether the noisy rados alone prove inequality 19, with probability 1 - tau."""
        return self.noise_free + self.allowance <= self.stated


def noisy_rate(
    theta: Vector, clean: Matrix, r: Vector, *, m: int, support: int, zeta: float, kappa: float = 1.0, tau: float = 0.05
) -> NoisyRate:
    """Both sides of Theorem 8 after boosting.

    theta: (d,), the last iterate of RadoBoost on noisy rados. clean: (n, d), the same signatures' rados of the edges
    without noise, which only the holder of the rows has.

    r: (T,), the normalised edges (equation 9) of the rounds taken, on the noisy rados. m: rows. support: m*, the most
    edges in a rado. zeta: standard deviation of the noise on each coordinate of each edge. kappa: divides every step.
    tau: failure probability.

    The theorem requires sqrt(m*) = Omega(zeta log(1/tau)) and some prudence, with constants that it leaves open;
    `proved` is a condition with every constant, from the noisy rados alone.

    Its proof: on the noisy rados equation 17 holds (Lemma 4, to the power 1/kappa); exp(-theta . pi) on a clean rado is
    exp(-theta . noisy) times the exponential of at most max_j |theta . noise_j|, so the logistic rado loss grows by at
    most that over m; `noise_allowance` bounds it.

    Raises ShapeError if arrays do not fit, ConfigurationError if a number is out of range.
    """
    if r.ndim != 1 or not bool((np.abs(r) < 1).all()):
        raise ShapeError("r is not (T,) of normalised edges in (-1, 1): give those of the rounds that took a step")
    if not (math.isfinite(kappa) and kappa >= 1):
        raise ConfigurationError(f"kappa is {kappa}: it must be finite and at least 1")
    rate = float(r @ r) / (2 * kappa * m)
    return NoisyRate(
        loss=logistic_rado_loss(theta, clean, m),
        noise_free=math.log(2) - rate,
        stated=math.log(2) - rate / 2,
        allowance=noise_allowance(theta, n=len(clean), support=support, zeta=zeta, tau=tau) / m,
        prudence=float(np.abs(r).max(initial=0.0)),
    )


def noise_allowance(theta: Vector, *, n: int, support: int, zeta: float, tau: float) -> float:
    """With probability at least 1 - tau over the noise, every rado's |theta . noise_j| is at most this, for any theta.

    The noise of a rado is on each coordinate a sum of at most `support` independent terms, each Gaussian of standard
    deviation zeta or sub-Gaussian with that variance, as a discrete Gaussian is.

    sum_x exp(t x - x^2 / (2 zeta^2)) is exp(t^2 zeta^2 / 2) times a sum of exp(-(x - t zeta^2)^2 / (2 zeta^2)) over the
    integers, which by Poisson summation is largest where t zeta^2 is an integer.

    So each of the n d sums exceeds u in magnitude with probability at most 2 exp(-u^2 / (2 support zeta^2)); with u^2 =
    2 support zeta^2 log(2 n d / tau) all are jointly below u with probability 1 - tau, and then |theta .

    noise_j| <= |theta|_1 u for every theta, even one estimated from them. The signatures must not depend on the noise.

    Raises ConfigurationError if a number is out of range.
    """
    if n < 1 or support < 1 or not (math.isfinite(zeta) and zeta >= 0) or not 0 < tau < 1:
        raise ConfigurationError(
            f"n = {n}, support = {support}, zeta = {zeta}, tau = {tau}: give n and support of at least 1, zeta of at "
            "least 0, tau strictly between 0 and 1"
        )
    return float(np.abs(theta).sum()) * zeta * math.sqrt(2 * support * math.log(2 * n * len(theta) / tau))
