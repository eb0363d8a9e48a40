"""Regularisers of rado boosting: ridge, lasso, l-infinity and SLOPE (dpcore.estimators.regularised)."""

import bisect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Group:
    """Coordinates of one magnitude, which a round may change together.

    gain: the slope with which F falls, over the sum of their pi_*. members, signs: (size,), places and +-1.
    """

    gain: float
    members: NDArray[np.intp]
    signs: Vector


class Regulariser(ABC):
    """A convex Omega(theta) that depends on |theta| alone and grows with each |theta_k|."""

    @abstractmethod
    def value(self, theta: Vector) -> float:
        """Omega(theta)."""

    @abstractmethod
    def slopes(self, theta: Vector) -> tuple[Vector, Vector]:
        """Derivatives of Omega by |theta_k| from below and above, (d,) each; both from above if theta_k is 0."""

    @abstractmethod
    def along(self, theta: Vector, group: NDArray[np.intp]) -> Callable[[float], float]:
        """The derivative of Omega by the magnitude of a group's coordinates, as a function of it, the others fixed."""

    @abstractmethod
    def conjugate(self, v: Vector, strength: float) -> float:
        """The supremum of v . theta - strength Omega(theta) over theta, which may be infinite."""

    def steepest_group(
        self,
        theta: Vector,  # noqa: ARG002
        mean: Vector,  # noqa: ARG002
        strength: float,  # noqa: ARG002
        largest: Vector,  # noqa: ARG002
    ) -> Group | None:
        """The group of equal magnitude along which F falls most; None if single coordinates suffice (a sum over them).

        mean: (d,), sum_j w_j pi_j. largest: (d,), pi_*.
        """
        return None

    @abstractmethod
    def unit(self, rados: Matrix, shares: Vector, centre: Vector) -> float:
        """The unit of strengths chosen from rados less the centre (d,), weighted by shares (n,).

        It is positive unless all are zero.
        """


@dataclass(frozen=True)
class Ridge(Regulariser):
    """Omega(theta) = |theta|_2^2 / 2."""

    def value(self, theta: Vector) -> float:
        """Half the square of the norm."""
        return float(theta @ theta) / 2.0

    def slopes(self, theta: Vector) -> tuple[Vector, Vector]:
        """|theta_k|, twice."""
        size = np.abs(theta)
        return size, size

    def along(self, theta: Vector, group: NDArray[np.intp]) -> Callable[[float], float]:  # noqa: ARG002  the same
        """The magnitude itself, for each coordinate."""
        return lambda size: len(group) * size

    def conjugate(self, v: Vector, strength: float) -> float:
        """|v|^2 / (2 strength), infinite for a strength of 0 unless v is 0."""
        square = float(v @ v)
        if not square:
            return 0.0
        return square / (2.0 * strength) if strength else math.inf

    def unit(self, rados: Matrix, shares: Vector, centre: Vector) -> float:
        """The mean square of a coordinate: at this strength theta is about mean / unit, and margins about 1."""
        # One coordinate at a time, so that no matrix of differences is made.
        squares = [float(shares @ np.square(rados[:, k] - middle)) for k, middle in enumerate(centre)]
        return math.fsum(squares) / len(squares)


@dataclass(frozen=True, eq=False)
class SortedNorm(Regulariser):
    """Omega(theta) = sum_k weights_k |theta|_(k), |theta|_(1) the largest; weights (d,) not negative and not rising.

    All ones: lasso. (1, 0, ..., 0): l-infinity. Otherwise SLOPE (Bogdan et al., Annals of Applied Statistics 2015).
    """

    weights: Vector

    def value(self, theta: Vector) -> float:
        """The weighted sum of the sorted magnitudes."""
        return float(np.sort(np.abs(theta))[::-1] @ self.weights)

    def slopes(self, theta: Vector) -> tuple[Vector, Vector]:
        """The weights of the last and the first of the ranks that coordinate k may take among its equals."""
        size = np.abs(theta)
        ascending = np.sort(size)
        larger = len(size) - np.searchsorted(ascending, size, side="right")
        as_large = len(size) - np.searchsorted(ascending, size, side="left")
        above = self.weights[larger]
        return np.where(size > 0, self.weights[as_large - 1], above), above

    def along(self, theta: Vector, group: NDArray[np.intp]) -> Callable[[float], float]:
        """The weights of the ranks that a group of this magnitude takes, the first among equals."""
        others = np.sort(np.abs(np.delete(theta, group))).tolist()
        sums = np.concatenate([[0.0], np.cumsum(self.weights)])
        weights = (sums[len(group) :] - sums[: len(sums) - len(group)]).tolist()
        return lambda size: float(weights[len(others) - bisect.bisect_right(others, size)])

    def dual(self, v: Vector) -> float:
        """The dual norm, max_k (sum of the k largest |v|) / (sum of the k largest weights)."""
        return float((np.cumsum(np.sort(np.abs(v))[::-1]) / np.cumsum(self.weights)).max())

    def conjugate(self, v: Vector, strength: float) -> float:
        """0 if the dual norm of v is at most the strength, else infinite."""
        return 0.0 if self.dual(v) <= strength else math.inf

    def steepest_group(self, theta: Vector, mean: Vector, strength: float, largest: Vector) -> Group | None:
        """See `Regulariser`. Of one magnitude the coordinates with the largest slopes grow, or the others shrink."""
        if self.weights[0] == self.weights[-1]:
            return None
        size = np.abs(theta)
        signs = np.where(np.where(theta == 0, mean, theta) < 0, -1.0, 1.0)
        order = np.lexsort((-signs * mean, -size))
        ranked = size[order]
        starts = np.flatnonzero(np.diff(ranked, prepend=np.inf))
        ends = np.append(starts[1:], len(order))
        cluster = np.repeat(np.arange(len(starts)), ends - starts)
        slope = np.concatenate([[0.0], np.cumsum((signs * mean)[order] - strength * self.weights)])
        scale = np.concatenate([[0.0], np.cumsum(largest[order])])
        first, last = starts[cluster], ends[cluster]
        outward = (slope[1:] - slope[first]) / (scale[1:] - scale[first])
        inward = np.where(ranked > 0, (slope[:-1] - slope[last]) / (scale[last] - scale[:-1]), -np.inf)
        grows, shrinks = int(np.argmax(outward)), int(np.argmax(inward))
        if outward[grows] >= inward[shrinks]:
            group, gain = order[first[grows] : grows + 1], outward[grows]
        else:
            group, gain = order[shrinks : last[shrinks]], inward[shrinks]
        return Group(float(gain), group, signs[group])

    def unit(self, rados: Matrix, shares: Vector, centre: Vector) -> float:
        """The least strength at which boosting leaves theta at zero: the dual norm of the mean rado."""
        return self.dual(shares @ rados - centre)
