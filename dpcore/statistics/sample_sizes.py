"""Rows that suffice, and rows that are needed, to learn a concept class without privacy (Nissim's slides, 2017).

With probability at least 1 - beta over independent examples, every concept that is consistent with them errs with
probability at most alpha; or, in the agnostic case, every concept's error on them is within alpha of its error. What
privacy adds is in dpcore.statistics.pac and dpcore.research.pac_classes.
"""

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.statistics.accuracy import least_rows
from dpcore.statistics.pac import check_accuracy

MOST_POINTS = 16
"""Most points among which shattered sets are looked for."""


def occam_rows(concepts: int, alpha: float, beta: float, *, agnostic: bool = False) -> int:
    """Rows for a finite class (slide "Occam's Razor"), for any consistent concept.

    The least n with |C| (1 - alpha)^n <= beta, at most the slide's (log |C| + log(1 / beta)) / alpha. agnostic: with 2
    |C| exp(-2 n alpha^2) <= beta, Hoeffding's bound on both sides. Raises ConfigurationError.
    """
    check_accuracy(alpha, beta)
    if concepts < 1:
        raise ConfigurationError(f"a class of {concepts} concepts: give at least one")
    needed = math.log(concepts) - math.log(beta)
    if agnostic:
        return math.ceil((needed + math.log(2.0)) / (2.0 * alpha * alpha))
    return math.ceil(needed / -math.log1p(-alpha))


def point_rows(alpha: float, beta: float) -> int:
    """Rows for a point function whatever the domain (slide "learning points"): the least n, (1 - alpha)^n <= beta.

    The learner outputs a point of label 1 if it saw one, else the constant 0. Also for thresholds, with the largest
    point of label 1, and for each side of an interval.
    """
    return occam_rows(1, alpha, beta)


def log_growth(rows: int, dimension: int) -> float:
    """Log of sum_{i <= d} (n choose i), the most labellings of n points by a class of VC dimension d (Sauer's lemma).

    At most the slide's d log(e n / d) for n > d >= 1. In nats, relative error below 1e-9.
    """
    if rows < 1 or dimension < 0:
        raise ConfigurationError(f"{rows} points and a VC dimension of {dimension}: give at least 1, and at least 0")
    if dimension >= rows:
        return rows * math.log(2.0)
    terms = [math.lgamma(rows + 1) - math.lgamma(i + 1) - math.lgamma(rows - i + 1) for i in range(dimension + 1)]
    return float(np.logaddexp.reduce(terms))


def vc_rows(dimension: int, alpha: float, beta: float, *, agnostic: bool = False) -> int:
    """Rows for a class of VC dimension d, for any consistent concept (slide "VC dimension and PAC learning").

    The least n with 2 G(2 n) 2^(-alpha n / 2) <= beta, n >= 8 / alpha, G of `log_growth` (Blumer, Ehrenfeucht, Haussler
    and Warmuth, J. ACM 36(4), 1989). agnostic: 4 G(2 n) exp(-alpha^2 n / 8) <= beta (Vapnik and Chervonenkis 1971).
    """
    check_accuracy(alpha, beta)

    def enough(rows: int) -> bool:
        growth = log_growth(2 * rows, dimension)
        if agnostic:
            return math.log(4.0) + growth - alpha * alpha * rows / 8.0 <= math.log(beta)
        return rows >= 8.0 / alpha and (math.log(2.0) + growth - alpha * rows * math.log(2.0) / 2.0 <= math.log(beta))

    return least_rows(enough)


def vc_rows_needed(dimension: int, alpha: float, beta: float) -> int:
    """Fewer rows than this suffice for no learner, for some distribution and concept (the slide's lower bound).

    max((d - 1) / (32 alpha), (1 - alpha) / alpha log(1 / beta)), for alpha <= 1/8, beta <= 1/100 and d >= 2
    (Ehrenfeucht, Haussler, Kearns and Valiant, Information and Computation 82(3), 1989). Raises ConfigurationError.
    """
    check_accuracy(alpha, beta)
    if alpha > 1 / 8 or beta > 1 / 100 or dimension < 2:
        raise ConfigurationError("the lower bound is known for alpha <= 1/8, beta <= 1/100 and a VC dimension >= 2")
    return math.ceil(max((dimension - 1) / (32.0 * alpha), (1.0 - alpha) / alpha * -math.log(beta)))


def vc_dimension(predictions: ArrayLike) -> int:
    """The size of the largest set of points that a finite class shatters.

    predictions: (|C|, n) of zeros and ones, as of `dpcore.research.pac_classes.predictions_of`; n <= 16. -1 without a
    concept. Raises ShapeError.
    """
    labels = np.unique(np.asarray(predictions).astype(np.bool_), axis=0)
    if labels.ndim != 2 or labels.shape[1] > MOST_POINTS:
        raise ShapeError(
            f"predictions have shape {labels.shape}: give (concepts, points), at most {MOST_POINTS} points"
        )
    size = len(labels).bit_length() - 1
    while size > 0 and not any(
        len(np.unique(labels[:, list(chosen)], axis=0)) == 1 << size
        for chosen in itertools.combinations(range(labels.shape[1]), size)
    ):
        size -= 1
    return size
