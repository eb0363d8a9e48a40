"""Theorem 3: the cost of few rados of a restricted set (Nock, Patrini, Friedman, ICML 2015, section 2)."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, entr, expit

from dpcore.accounting.dp_feat import admissible_range
from dpcore.errors import ConfigurationError, DataError, PlanError, RadofedError, ShapeError
from dpcore.estimators.boosting import logistic_rado_loss
from dpcore.numbers.distributions import binomial_mass
from dpcore.numbers.fixed_point import Mask, Matrix, Vector
from dpcore.research.largest_norm import largest_norm
from dpcore.research.signature_sets import SignatureSet


@dataclass(frozen=True)
class Penalties:
    """Theorem 3's quantities for one theta, set Sigma_r and n rados, in nats; Theta is the ball of r_theta."""

    m: int
    n: int
    """Rows, and rados drawn."""
    structural: float
    """Q = -(1/m) log rho', exact."""
    structural_bound: float
    """The right side of inequality 7, at least Q."""
    log_rho_lower: float
    log_rho: float
    """Bounds on log rho, equal up to rounding where the largest rado norm is found (dpcore.research.largest_norm)."""
    log_q: float
    """Log of the expression in equation 6 times `constant`, at the upper bound of rho."""
    log_rate: float
    """Log of `constant` rho sqrt(r_theta pi^*_r / n + d / (n m) log(2 e n / (d eta))), equation 8 without m^beta."""
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

    def rate(self, beta: float) -> float:
        """Equation 8's last term, for beta in [0, 1/2): at least `statistical` where `is_large_enough(beta)`.

        With x = q / sqrt(n), -log(1 - x) / m <= x / (m (1 - x)), at most x m^(-1/2 - beta) where 1 - x >= m^(beta -
        1/2); and x is at most sqrt(m) times equation 8's root, as d log(2 e n / d) + log(1/eta) <= d log(2 e n / (d
        eta)).

        Raises ConfigurationError if beta is out of range.
        """
        _check_beta(beta)
        log_rate = self.log_rate - beta * math.log(self.m)
        return math.exp(log_rate) if log_rate < _LARGEST_LOG else math.inf

    def is_large_enough(self, beta: float) -> bool:
        """Whether m is "sufficiently large" for equation 8: q / sqrt(n) <= 1 - m^(beta - 1/2).

        rho grows with m, so a larger table need not be. Raises ConfigurationError if beta is not in [0, 1/2).
        """
        _check_beta(beta)
        share = self.log_q - math.log(self.n) / 2
        return share < 0 and math.exp(share) <= 1 - self.m ** (beta - 0.5)


_LARGEST_LOG = 700.0


def _check_beta(beta: float) -> None:
    if not 0 <= beta < 0.5:
        raise ConfigurationError(f"beta is {beta}: equation 8 needs 0 <= beta < 1/2")


def boosting_bound(r: Vector, m: int, penalty: float) -> float:
    """Equation 13: log 2 - T gamma^2 / (2 m) + Q', which bounds F_log(theta_T) over the examples, in nats.

    r: (T,), the normalised edges of RadoBoost's rounds, so that gamma = min |r_t| is the largest with which the weak
    learning assumption holds. penalty: Q', the last term of inequality 5 or 8. Raises ShapeError if r is not
    (T,) or has no round.
    """
    if r.ndim != 1 or not r.size:
        raise ShapeError(f"r has shape {r.shape}: give (T,), one edge a round")
    return math.log(2) - len(r) * float(np.abs(r).min()) ** 2 / (2 * m) + penalty


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

    radius: r_theta, by default the norm of theta. eta: the failure probability. constant: the one that equation 6
    leaves open (q = Omega(...)).

    Inequality 7: Q = F_log(theta) - F_log^r(theta, Sigma_r). Both are convex and log 2 at theta = 0, so the first is at
    most log 2 + theta . grad F_log(theta), and the second at least log 2 - theta . E[pi] / m.

    For a theta fixed in advance, by Hoeffding with the maximum M of exp(-theta . pi), inequality 5 holds with q = (M /
    F) sqrt(log(1/eta) / 2).

    Raises ShapeError, ConfigurationError also if n < d, where equation 6's count of sign patterns does not apply.
    """
    _check_set(theta, edges, signatures, n, eta, constant)
    norm = float(np.linalg.norm(theta))
    reach = norm if radius is None else radius
    if not (math.isfinite(reach) and reach >= norm):
        raise ConfigurationError(f"radius is {reach} and theta has norm {norm:.6g}: give a ball that contains theta")
    m, d = edges.shape
    products = np.asarray(edges @ theta, dtype=np.float64)
    log_loss = signatures.log_loss(products)
    longest = largest_norm(edges, signatures)
    # F_log over the examples is F_log^r over all signatures (Lemma 2).
    log_rho_prime = log_loss - float(np.sum(np.logaddexp(0.0, -products) - math.log(2)))
    gradient = np.exp(-np.logaddexp(0.0, products)) @ edges / m
    mean_rado = signatures.inclusion() @ edges / m
    log_rho = reach * longest.upper - log_loss
    radicand = reach * longest.upper + d * math.log(2 * math.e * n / d) - math.log(eta)
    largest_exponent = -float(products[signatures.best_selection(products)].sum())
    return Penalties(
        m=m,
        n=n,
        structural=-log_rho_prime / m,
        structural_bound=reach * float(np.linalg.norm(gradient) + np.linalg.norm(mean_rado)),
        log_rho_lower=reach * longest.lower - log_loss,
        log_rho=log_rho,
        log_q=math.log(constant) + log_rho + math.log(radicand) / 2,
        log_rate=math.log(constant)
        + log_rho
        + math.log(reach * longest.upper / (n * m) + d * math.log(2 * math.e * n / (d * eta)) / (n * m)) / 2,
        log_q_of_theta=largest_exponent - log_loss + math.log(-math.log(eta) / 2) / 2,
    )


def _statistical(log_q: float, m: int, n: int) -> float:
    share = log_q - math.log(n) / 2
    return -math.log1p(-math.exp(share)) / m if share < 0 else math.inf


def _check_set(theta: Vector, edges: Matrix, signatures: SignatureSet, n: int, eta: float, constant: float) -> None:
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


# Lemma 9: edges from rados whose signatures are known (Nock, Patrini, Friedman, ICML 2015, section 7.1).
#
# With S (n, m) the selections and E (m, d) the edges, rados are S E, so E = (S^T S)^{-1} S^T Pi, if and only if S has
# rank m: never for n < m, and for n >= m with probability close to 1.


class UnrecoverableError(RadofedError):
    """The signatures leave some edge undetermined. rank: of the selections. rows: m."""

    def __init__(self, *, rank: int, rows: int) -> None:
        self.rank, self.rows = rank, rows
        super().__init__(f"the signatures have rank {rank} for {rows} edges: give rados of more signatures")


def determined_rows(selection: Mask) -> Mask:
    """Which edges the rados determine, for any other edges: (m,). selection: (n, m) bool, n >= 1.

    Edge i is determined if no vector of the null space of S has an i-th coordinate; also for n < m (Lemma 9 (b)).
    Raises ShapeError if the selection has another shape.
    """
    _check_signatures(selection)
    _, singular, directions = np.linalg.svd(selection.astype(np.float64), full_matrices=True)
    rank = _rank(singular, selection.shape)
    fixed: Mask = np.linalg.norm(directions[rank:], axis=0) < np.sqrt(np.finfo(np.float64).eps)
    return fixed


def reconstruct_edges(rados: Matrix | NDArray[np.int64], selection: Mask) -> Matrix | NDArray[np.int64]:
    """The edge vectors (m, d) behind rados (n, d) of known signatures (n, m) (Lemma 9 (a)).

    Integers give the exact edges, verified by summing them again; floats least squares. Raises ShapeError if the
    arrays do not fit, UnrecoverableError if S does not have rank m, DataError if integer rados are not the sums.
    """
    _check_signatures(selection)
    if rados.ndim != 2 or len(rados) != len(selection):
        raise ShapeError(f"rados have shape {rados.shape}: give ({len(selection)}, d), one rado for each signature")
    matrix = selection.astype(np.float64)
    edges, _, rank, _ = np.linalg.lstsq(matrix, rados.astype(np.float64), rcond=None)
    if rank < selection.shape[1]:
        raise UnrecoverableError(rank=int(rank), rows=selection.shape[1])
    if not np.issubdtype(rados.dtype, np.integer):
        return np.asarray(edges, dtype=np.float64)
    integers: NDArray[np.int64] = np.rint(edges).astype(np.int64)
    if not np.array_equal(selection.astype(np.int64) @ integers, rados):
        raise DataError("the rados are not sums of integer edges over this selection: give their own signatures")
    return integers


def _rank(singular: Matrix, shape: tuple[int, ...]) -> int:
    return int((singular > singular.max() * max(shape) * np.finfo(np.float64).eps).sum())


def _check_signatures(selection: Mask) -> None:
    if selection.ndim != 2 or selection.dtype != np.bool_ or 0 in selection.shape:
        raise ShapeError(
            f"selection is {selection.dtype} of shape {selection.shape}: give bool (n, m), neither of them 0"
        )


# Theorem 7: the number of signatures that DP-FEAT draws to admit n (Nock, Patrini, Friedman, ICML 2015).


@dataclass(frozen=True)
class Draws:
    """n_R, the signatures drawn from all of {-1, +1}^m until n are admitted: exact values, and Theorem 7's bound."""

    acceptance: float
    """The probability of admission."""
    expected: float
    """E[n_R], n / acceptance; inf if none is admitted."""
    quantile: float
    """The least N with P(n_R <= N) >= 1 - eta; inf if none is admitted."""
    theorem: float
    """The theorem's N, which it claims to suffice."""
    theorem_probability: float
    """P(n_R <= theorem), exact up to rounding."""
    eta: float

    @property
    def expected_rejections(self) -> float:
        """E[n_R] - n: the expected number of rejected signatures."""
        return self.expected * (1 - self.acceptance)

    @property
    def theorem_holds(self) -> bool:
        """Whether P(n_R <= theorem) is at least 1 - eta, as the theorem claims."""
        return self.theorem_probability >= 1 - self.eta


def draws(rows: int, n: int, epsilon_per_rado: Fraction, eta: float = 0.05) -> Draws:
    """The distribution of n_R for m = rows, compared with Theorem 7: P(n_R <= N) = P(Binomial(N, acceptance) >= n).

    The theorem's count is not always enough, although it is claimed for every eta and epsilon: n_eta^* grows without
    bound as beta = 1/(1 + exp(epsilon/2)) goes to 0. For m = 10 rows, n = 1,000 rados at epsilon = 20 should need no
    rejection but need one with probability 0.86. `theorem_holds` reports this.

    Raises PlanError, ConfigurationError if eta is not in (0, 1).
    """
    if n < 1:
        raise PlanError(f"{n} rados: ask for at least one")
    if not 0 < eta < 1:
        raise ConfigurationError(f"eta is {eta}: give a probability strictly between 0 and 1")
    low, _ = admissible_range(rows, epsilon_per_rado)
    # Rounding may give slightly more than 1.
    acceptance = min(1.0, binomial_mass(rows, low))
    bound = theorem_bound(rows, n, epsilon_per_rado, eta)
    return Draws(
        acceptance=acceptance,
        expected=n / acceptance if acceptance else math.inf,
        quantile=_quantile(n, acceptance, eta),
        theorem=bound,
        theorem_probability=_within(bound, n, acceptance),
        eta=eta,
    )


def theorem_bound(rows: int, n: int, epsilon_per_rado: Fraction, eta: float) -> float:
    """Theorem 7's count: n if n <= n_eta^*, else n ceil(log(n / n_eta^*) / (m D_BE(1 - beta || 1/2))).

    n_eta^* = eta (1 - exp(2 beta - 1)) / (4 beta), D_BE(p || 1/2) = log 2 + p log p + (1 - p) log(1 - p), in nats.
    """
    beta = float(expit(-float(epsilon_per_rado) / 2))
    if beta == 0:
        return float(n)  # beta underflows to 0: n_eta^* is infinite
    free = eta * -math.expm1(2 * beta - 1) / (4 * beta)
    if n <= free:
        return float(n)
    divergence = math.log(2) - float(entr(beta) + entr(1 - beta))
    if free <= 0 or divergence <= 0:
        return math.inf
    return float(n) * math.ceil(math.log(n / free) / (rows * divergence))


def _within(count: float, n: int, acceptance: float) -> float:
    """P(n_R <= count)."""
    if acceptance == 0 or count < n:
        return 0.0
    return 1.0 if math.isinf(count) else float(betainc(n, count - n + 1, acceptance))


def _quantile(n: int, acceptance: float, eta: float) -> float:
    if acceptance == 0:
        return math.inf
    below, above = n - 1, n
    while _within(above, n, acceptance) < 1 - eta:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        if _within(middle, n, acceptance) >= 1 - eta:
            above = middle
        else:
            below = middle
    return float(above)


# Theorem 8: RadoBoost's rate on the noise-free rados, after boosting on noisy ones (ICML 2015, section 5.2).


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
    """The most that noise adds, with probability 1 - tau (`noise_allowance`)."""
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

    theta: (d,), the last iterate of RadoBoost on noisy rados. clean: (n, d), the same without noise, which only the
    holder of the rows has. r: (T,), the rounds' normalised edges (equation 9). zeta: of the noise on each coordinate of
    each edge. support: m*.

    The theorem requires sqrt(m*) = Omega(zeta log(1/tau)), with open constants; `proved` is a condition with every
    constant: equation 17 holds on the noisy rados, and exp(-theta . pi) on a clean one is at most exp(max_j |theta .
    noise_j|) larger, which `noise_allowance` bounds.

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

    Each of the n d sums of `support` sub-Gaussian terms of variance zeta^2 exceeds u with probability at most 2
    exp(-u^2 / (2 support zeta^2)); with u^2 = 2 support zeta^2 log(2 n d / tau), |theta . noise_j| <= |theta|_1 u for
    every theta. The signatures must not depend on the noise.

    Raises ConfigurationError if a number is out of range.
    """
    if n < 1 or support < 1 or not (math.isfinite(zeta) and zeta >= 0) or not 0 < tau < 1:
        raise ConfigurationError(
            f"n = {n}, support = {support}, zeta = {zeta}, tau = {tau}: give n and support of at least 1, zeta of at "
            "least 0, tau strictly between 0 and 1"
        )
    return float(np.abs(theta).sum()) * zeta * math.sqrt(2 * support * math.log(2 * n * len(theta) / tau))
