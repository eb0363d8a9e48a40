"""The protocol of dp_feat_error: folds with one sensitive coordinate, releases, and their cost."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import DataSet
from dpcore.accounting.composition import DeltaTooSmallError, InfiniteEpsilonError, VoidEpsilonError
from dpcore.accounting.dp_feat import epsilon_for, largest_rados, theorem_epsilon
from dpcore.accounting.noise_shares import IntegerNoise, joint_squared, smallest_share
from dpcore.estimators.base import RadoClassifier, RadoSample
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import Design, DpFeatDesign, JointDesign, SensitiveFeature
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.encoding import store
from dpcore.records.records import Records

Matrix = NDArray[np.float64]

FOLDS, FRACTION_BITS = 10, 16
DELTA, HALF = Fraction(1, 10**6), Fraction(1, 2)
# The sensitive coordinate is the first, and its values are 2 apart.
SENSITIVE, SQUARED_RANGE = 0, 4
ROUNDS, PARTIES = 1000, (1, 4)
PER_RADO = (None, *(Fraction(text) for text in ("2", "1", "0.5", "0.3", "0.1")))
SMALLEST_PER_RADO = Fraction(1, 10)

Errors = dict[str, list[float]]
"""Test errors in % by estimator, one per fold, over all repeats."""

MEAN_VARIANCE, BOOST = "mean-variance", "RadoBoost"
LEARNERS = (MEAN_VARIANCE, BOOST)
TRUNCATED, COUNTED, THEOREM, JOINT, DROPPED = "truncated", "exact count", "Theorem 6", "joint", "without the column"


@dataclass(frozen=True)
class Sensitive:
    """The sensitive feature of a data set: its index among the numbers, or among the categories.

    threshold: the number is not a boolean; +1 means at least its median over the training rows. Otherwise the column
    has two values, and +1 means the larger.
    """

    words: str
    column: int
    category: bool = False
    threshold: bool = False


PACKAGED = {"breast_cancer, benign": Sensitive("mean radius >= median", 0, threshold=True)}
QUICK_SETS = {
    "heart_four_hospitals": Sensitive("sex", 1),
    "abalone": Sensitive("length >= median", 0, threshold=True),
}
SETS = QUICK_SETS | {
    "wine_white": Sensitive("alcohol >= median", 10, threshold=True),
    "magic": Sensitive("fLength >= median", 0, threshold=True),
    "adult": Sensitive("sex", 6, category=True),
}


@dataclass(frozen=True, eq=False)
class Fold:
    """Training records of one fold, test features and labels; coordinate 0 is the sensitive one, the last the bias.

    number: counts all folds and repeats, so that each has its own randomness.
    """

    train: Matrix
    train_labels: NDArray[np.int8]
    test: Matrix
    test_labels: NDArray[np.int8]
    number: int

    def parties(self, count: int) -> list[Records]:
        """The training rows in `count` parts whose sizes differ by at most one."""
        parts = np.array_split(np.arange(len(self.train)), count)
        features = store(self.train)
        return [Records(features[part], self.train_labels[part], np.ones(len(part), dtype=np.bool_)) for part in parts]

    def error(self, learner: RadoClassifier, release: RadoSample) -> float:
        """Test error in %; a release that lacks the sensitive coordinate is tested without it."""
        first = self.test.shape[1] - release.rados.shape[1]
        return 100 * float(np.mean(learner.fit_release(release).predict(self.test[:, first:]) != self.test_labels))


def folds_of(data: DataSet, sensitive: Sensitive, repeats: int) -> list[Fold]:
    """Stratified folds, encoded by their training rows, the sensitive column as one coordinate of -1 and +1."""
    labels = np.where(data.positive, 1, -1).astype(np.int8)
    name = "categories" if sensitive.category else "numeric"
    table = getattr(data, name)
    rest = replace(data, **{name: np.delete(table, sensitive.column, axis=1)})
    found: list[Fold] = []
    for seed in range(repeats):
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(data.numeric, data.positive):
            signs = sign_of(table[:, sensitive.column], train, sensitive)
            features = np.column_stack([signs, rest.encode(train)])
            found.append(Fold(features[train], labels[train], features[test], labels[test], len(found)))
    return found


def sign_of(column: NDArray[Any], training: NDArray[np.intp], sensitive: Sensitive) -> Matrix:
    """The sensitive coordinate, (m,) of -1 and +1. A missing cell counts as +1."""
    if sensitive.threshold:
        return np.where(column < np.nanmedian(column[training]), -1.0, 1.0)
    smaller = min(set(column.tolist()) - {""})
    return np.where(column == smaller, -1.0, 1.0)


@dataclass(frozen=True)
class Ask:
    """A kind of rado release: a design over a number of parties."""

    parties: int
    rados: int
    design: Design

    def release(self, fold: Fold) -> RadoSample:
        """The total of all parties' rados, as the learner receives it, with its distribution."""
        query, held = RadosQuery(self.rados, self.design), fold.parties(self.parties)
        random = SeededRandom(f"{fold.number}/{self}".encode())
        total = np.zeros(query.length(fold.train.shape[1]), dtype=np.int64)
        for records in held:
            total += query.contribution(records, FRACTION_BITS, Computation(random))
        distribution = query.distribution(fold.train.shape[1], [records.rows for records in held], FRACTION_BITS)
        return RadoSample(query.decode(total, FRACTION_BITS), len(fold.train), bias=True, distribution=distribution)


def dp_feat(per_rado: Fraction | None) -> DpFeatDesign:
    return DpFeatDesign((SensitiveFeature(SENSITIVE, "sensitive"),), per_rado)


def first(release: RadoSample, rados: int) -> RadoSample:
    """A release of fewer rados: the first ones, since they are independent."""
    return replace(release, rados=release.rados[:rados])


def joint_ask(rados: int, parties: int, epsilon: Fraction) -> tuple[Ask, float]:
    """`joint` with the least noise for `epsilon` at DELTA against the learner alone, and its epsilon."""
    squared = joint_squared(SQUARED_RANGE, FRACTION_BITS)
    share = smallest_share(squared, parties, rados, epsilon, DELTA, rados, HALF)
    counted = IntegerNoise(share, parties, rados).distribution(squared, rados, HALF).epsilon(DELTA).upper
    return Ask(parties, rados, JointDesign("sensitive", (SENSITIVE,), SQUARED_RANGE, share)), counted


def exact_epsilon(party_rows: Sequence[int], rados: int, per_rado: Fraction | None) -> float | None:
    """The epsilon against the learner alone, at DELTA; None if infinite."""
    try:
        return epsilon_for(party_rows, rados, per_rado, DELTA).upper
    except (InfiniteEpsilonError, VoidEpsilonError, DeltaTooSmallError):
        return None


@dataclass(frozen=True)
class Point:
    """The cost and errors of one method on one data set.

    per_rado: Algorithm 2's epsilon, None without truncation. epsilon: the exact one of the whole release at DELTA, for
    the first fold's rows, None if infinite or if the column is not released. theorem: n per_rado. target: the epsilon
    for which the number of rados, or the noise, was chosen.
    """

    way: str
    parties: int
    rados: int
    per_rado: Fraction | None
    epsilon: float | None
    theorem: float | None
    target: float | None = None
    errors: Errors = field(default_factory=dict)

    def __str__(self) -> str:
        split = "1 party" if self.parties == 1 else f"{self.parties} parties"
        if self.way == TRUNCATED:
            return f"eps per rado {per_rado_word(self.per_rado)}, {split}"
        return self.way if self.target is None else f"{self.way}, epsilon {self.target:g}"

    def mean(self, learner: str) -> float:
        """Test error in %, over the folds."""
        return statistics.fmean(self.errors[learner])

    def learn(self, fold: Fold, release: RadoSample) -> None:
        """Add both estimators' test errors on one fold."""
        learners: dict[str, RadoClassifier] = {MEAN_VARIANCE: MeanVariance(), BOOST: RadoBoost(ROUNDS)}
        for name, learner in learners.items():
            self.errors.setdefault(name, []).append(fold.error(learner, release))

    def as_setting(self) -> dict[str, Any]:
        """The entry of the point in the JSON file."""
        return {
            "way": self.way,
            "parties": self.parties,
            "rados": self.rados,
            "epsilon_per_rado": None if self.per_rado is None else float(self.per_rado),
            "exact_epsilon": None if self.epsilon is None else round(self.epsilon, 4),
            "theorem_epsilon": self.theorem,
            "target_epsilon": self.target,
            "mean_error_percent": {learner: round(self.mean(learner), 2) for learner in self.errors},
        }


def per_rado_word(per_rado: Fraction | None) -> str:
    return "none" if per_rado is None else f"{float(per_rado):g}"


def truncated_points(rows: int, rados: int) -> list[Point]:
    """Every epsilon per rado over every number of parties; errors come later."""
    found = []
    for parties in PARTIES:
        sizes = [len(part) for part in np.array_split(np.arange(rows), parties)]
        for per_rado in PER_RADO:
            theorem = None if per_rado is None else theorem_epsilon(rados, per_rado)
            epsilon = exact_epsilon(sizes, rados, per_rado)
            found.append(Point(TRUNCATED, parties, rados, per_rado, epsilon, theorem))
    return found


def counted_point(rows: int, most: int, target: Fraction) -> Point | None:
    """The most rados, without truncation, of epsilon at most `target`; None if that is one, or more than `most`."""
    rados = largest_rados([rows], None, float(target), DELTA)
    if not 2 <= rados <= most:
        return None
    return Point(COUNTED, 1, rados, None, exact_epsilon([rows], rados, None), None, float(target))


def theorem_point(rows: int, most: int, target: Fraction) -> Point | None:
    """As many rados as Theorem 6 allows at the least epsilon per rado; None as in `counted_point`."""
    rados = int(target / SMALLEST_PER_RADO)
    if not 2 <= rados <= most:
        return None
    exact = exact_epsilon([rows], rados, SMALLEST_PER_RADO)
    theorem = theorem_epsilon(rados, SMALLEST_PER_RADO)
    return Point(THEOREM, 1, rados, SMALLEST_PER_RADO, exact, theorem, float(target))
