"""Theorem 3: the cost of few rados of a restricted set (Nock, Patrini, Friedman, ICML 2015, section 2)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.research.paper.signature_sets import SignatureSet

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Penalties:
    """Theorem 3's quantities for one theta, one set Sigma_r and n rados, Theta the ball of radius r_theta.

    Logarithms in nats, since rho and q overflow a double at a few hundred rows.
    """

    m: int
    n: int
    """Rows, and rados drawn."""
    structural: float
    """Q = -(1/m) log rho', exact."""
    structural_bound: float
    """The right side of inequality 7, at least Q."""
    log_rho_lower: float
    log_rho: float
    """Bounds on log rho, whose largest rado norm has bounds only (SignatureSet.largest_norm)."""
    log_q: float
    """Log of the expression in equation 6 times `constant`, at the upper bound of rho."""
    log_q_of_theta: float
    """Log of rho_theta sqrt(log(1/eta) / 2), where rho_theta has only theta in its supremum."""

    @property
    def statistical(self) -> float:
        """The second penalty of inequality 5, -(1/m) log(1 - q / sqrt(n)); infinite if q >= sqrt(n)."""
        return _statistical(self.log_q, self.m, self.n)

    @property
    def statistical_of_theta(self) -> float:
        """The same for a theta fixed before the rados are drawn, with a proved constant (see `penalties`)."""
        return _statistical(self.log_q_of_theta, self.m, self.n)


def penalties(
    theta: Vector,
    edges: Matrix,
    signatures: SignatureSet,
    n: int,
    *,
    radius: float | None = None,
    eta: float = 0.05,
    constant: float = 1.0,
) -> Penalties:
    """Theorem 3's rho, Q and q. theta: (d,). edges: (m, d), y_i x_i. signatures: Sigma_r. n: rados drawn from it.

    radius: r_theta, of the ball Theta; by default the norm of theta. eta: the failure probability. constant: a value
    for the constant that equation 6 leaves open (it states q = Omega(...)), so `log_q` is known only up to it.

    Proof of inequality 7: Q = F_log(theta) - F_log^r(theta, Sigma_r). Both are convex and log 2 at theta = 0, so the
    first is at most log 2 + theta . grad F_log(theta), and the second at least log 2 - theta . E[pi] / m.

    For one theta fixed in advance no constant is open: exp(-theta . pi) is in [0, M], M its maximum over the set, so by
    Hoeffding's inequality the mean over n independent draws is below its expectation F by more than M sqrt(log(1/eta) /
    (2 n)) with probability at most eta.

    Dividing by F gives inequality 5 with q = (M / F) sqrt(log(1/eta) / 2).

    Raises ShapeError if shapes differ, ConfigurationError if radius is below the norm of theta, eta is not in
    (0, 1), constant is not positive, or n < d, where equation 6's count of sign patterns does not apply.
    """
    _check(theta, edges, signatures, n, eta, constant)
    norm = float(np.linalg.norm(theta))
    reach = norm if radius is None else radius
    if not (math.isfinite(reach) and reach >= norm):
        raise ConfigurationError(f"radius is {reach} and theta has norm {norm:.6g}: give a ball that contains theta")
    m, d = edges.shape
    products = np.asarray(edges @ theta, dtype=np.float64)
    log_loss = signatures.log_loss(products)
    shortest, longest = signatures.largest_norm(edges)
    # F_log over the examples is F_log^r over all signatures (Lemma 2).
    log_rho_prime = log_loss - float(np.sum(np.logaddexp(0.0, -products) - math.log(2)))
    gradient = np.exp(-np.logaddexp(0.0, products)) @ edges / m
    mean_rado = signatures.inclusion() @ edges / m
    log_rho = reach * longest - log_loss
    radicand = reach * longest + d * math.log(2 * math.e * n / d) - math.log(eta)
    largest_exponent = -float(products[signatures.best_selection(products)].sum())
    return Penalties(
        m=m,
        n=n,
        structural=-log_rho_prime / m,
        structural_bound=reach * float(np.linalg.norm(gradient) + np.linalg.norm(mean_rado)),
        log_rho_lower=reach * shortest - log_loss,
        log_rho=log_rho,
        log_q=math.log(constant) + log_rho + math.log(radicand) / 2,
        log_q_of_theta=largest_exponent - log_loss + math.log(-math.log(eta) / 2) / 2,
    )


def _statistical(log_q: float, m: int, n: int) -> float:
    share = log_q - math.log(n) / 2
    return -math.log1p(-math.exp(share)) / m if share < 0 else math.inf


def _check(theta: Vector, edges: Matrix, signatures: SignatureSet, n: int, eta: float, constant: float) -> None:
    if theta.ndim != 1 or edges.ndim != 2 or edges.shape != (signatures.rows, len(theta)):
        raise ShapeError(
            f"theta has shape {theta.shape}, edges {edges.shape}, and signatures {signatures.rows} rows: "
            "give (d,), (m, d) and a set over m rows"
        )
    if n < len(theta):
        raise ConfigurationError(f"{n} rados in {len(theta)} coordinates: equation 6 needs n >= d")
    if not 0 < eta < 1:
        raise ConfigurationError(f"eta is {eta}: give a probability strictly between 0 and 1")
    if not (math.isfinite(constant) and constant > 0):
        raise ConfigurationError(f"constant is {constant}: give a positive number")
