"""An accountant of its own: exact privacy losses, convolved, with no bound between.

delta at epsilon is E[(1 - e^(epsilon - L))_+] over the loss L under one neighbour, for the pair of distributions that
is the worst of each kind: of pure releases, and with a chance to reveal all, randomized response (Kairouz, Oh and
Viswanath, ICML 2015, theorem 3.3; Murtagh and Vadhan, TCC 2016, for unequal epsilons); of Laplace batches, the most
that a record moves; of Gaussian noise, the whole shift. It uses nothing of dpcore.accounting.
"""

import math
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from scipy.stats import norm


@dataclass(frozen=True, eq=False)
class Exact:
    """Finite losses and their probabilities under one neighbour, and the probability of an infinite one.

    mu: of a Gaussian beside them; 0 for none.
    """

    losses: np.ndarray
    masses: np.ndarray
    infinite: float = 0.0
    mu: float = 0.0

    def __add__(self, other):
        """Both releases."""
        return Exact(
            np.add.outer(self.losses, other.losses).ravel(),
            np.multiply.outer(self.masses, other.masses).ravel(),
            1 - (1 - self.infinite) * (1 - other.infinite),
            math.hypot(self.mu, other.mu),
        ).merged()

    def merged(self):
        """Equal losses once; they are multiples of short fractions."""
        keys, places = np.unique(np.rint(self.losses * 2**36), return_inverse=True)
        return replace(self, losses=keys / 2**36, masses=np.bincount(places, self.masses))

    def delta(self, epsilon):
        """The least delta at this epsilon."""
        left = epsilon - self.losses
        if self.mu:
            # Balle and Wang, ICML 2018, theorem 8.
            above = norm.cdf(self.mu / 2 - left / self.mu)
            each = above - np.exp(left + norm.logcdf(-self.mu / 2 - left / self.mu))
        else:
            each = -np.expm1(np.minimum(left, 0.0))
        return self.infinite + (1 - self.infinite) * float(self.masses @ each)


NOTHING = Exact(np.zeros(1), np.ones(1))


def randomized_response(epsilon, delta=0.0):
    """The worst (epsilon, delta)-private release."""
    kept = 1 / (1 + math.exp(-epsilon))
    return Exact(np.array([epsilon, -epsilon]), np.array([kept, 1 - kept]), delta)


def moved(shift, scale):
    """One integer with discrete Laplace noise that a record moves by `shift`, from its masses: far tails are lumped."""
    z = np.arange(-1, shift + 1)
    q = math.exp(-1 / scale)
    masses = (1 - q) / (1 + q) * q ** np.abs(z)
    # All at or below 0, and all from `shift` on, have one loss.
    masses[0], masses[1] = 0.0, 1 / (1 + q)
    masses[-1] = q**shift / (1 + q) if shift else masses[-1]
    return Exact((np.abs(z - shift) - np.abs(z)) / scale, masses).merged()


def laplace_batch(shifts, scale):
    """Integers that a record moves by these amounts."""
    return reduce(Exact.__add__, (moved(shift, scale) for shift in shifts), NOTHING)


def gaussian(mu):
    """Gaussian noise with a shift of mu standard deviations."""
    return Exact(np.zeros(1), np.ones(1), mu=mu)
