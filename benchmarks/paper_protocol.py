"""The protocol of the experiments of Nock, Patrini and Friedman (ICML 2015), as in their released program.

For reproduction only. In addition to the paper (sections 4 and 6) the program (github.com/rnock/RadoBoost_Github) says:
features are standardised on the whole set, folds included; there is no bias; |r_t| is clipped at 0.8 before the
oracle's choice; the iterate kept is the one of lowest 0/1 error on the training rows, the last among equals, which is
unknown from rados only; n = min(1000, m / 2), T = 1000, ten stratified folds; a floor on |r_t|, where used, is 0.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.datasets import RULES, SHARED, DataSet, Rule, read
from dpcore.estimators.base import MOST_RADOS_FROM_ROWS, RadoSample, draw_plain_rados
from dpcore.estimators.radoboost import AdaBoost, RadoBoost, error_of

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

FOLDS, ROUNDS, CLIP, FLOOR = 10, 1000, 0.8, 0.1

SETS = ("banknote", "ionosphere", "fertility", "abalone", "wine_white", "transfusion")
LARGE_SETS = ("magic",)
"""Transfusion and magic are those that the paper shows in its Table 2."""

MORE_RULES: dict[str, Rule] = {"fertility": (("fertility",), lambda label: label == "O", ())}


def paper_sets(*, everything: bool) -> list[DataSet]:
    """The sets of the protocol, numbers only, as the program has no categories; none if they are absent."""
    rules = RULES | MORE_RULES
    names = SETS + LARGE_SETS if everything else SETS
    return [read(name, rules[name]) for name in names] if SHARED.is_dir() else []


@dataclass(frozen=True, eq=False)
class Fold:
    """Standardised rows, labels in {-1, 1} and test edges; `random` draws rados, samples and noise."""

    rows: Matrix
    labels: Vector
    test_edges: Matrix
    random: np.random.RandomState

    @property
    def edges(self) -> Matrix:
        """y_i x_i of the training rows, (m, d)."""
        return self.labels[:, np.newaxis] * self.rows

    @property
    def rados(self) -> int:
        """The number of rados: n = min(1000, m / 2)."""
        return min(MOST_RADOS_FROM_ROWS, len(self.rows) // 2)

    def error(self, theta: Vector) -> float:
        """Test error in %; a margin of zero is an error."""
        return 100 * float(np.mean(self.test_edges @ theta <= 0))

    def noised(self, zeta: float) -> "Fold":
        """The same with N(0, zeta^2) added to every training coordinate (section 5.2); test edges stay clean."""
        noise = zeta * self.random.standard_normal(self.rows.shape)
        return Fold(self.rows + noise, self.labels, self.test_edges, self.random)


def folds_of(data: DataSet, seed: int) -> list[Fold]:
    """The ten folds of one repeat."""
    labels = np.where(data.positive, 1.0, -1.0)
    deviation = data.numeric.std(axis=0)
    rows = (data.numeric - data.numeric.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    random = np.random.RandomState(seed)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(rows, data.positive)
    return [
        Fold(rows[training], labels[training], labels[test, np.newaxis] * rows[test], random)
        for training, test in splits
    ]


def draw_fixed_support(edges: Matrix, count: int, support: int, random: np.random.RandomState) -> Matrix:
    """Rados of `count` signatures uniform over those that select exactly `support` rows (equation 18), (count, d)."""
    rados = np.empty((count, edges.shape[1]))
    for number in range(count):
        rados[number] = edges[random.choice(len(edges), size=support, replace=False)].sum(axis=0)
    return rados


def boost_rados(
    fold: Fold, rados: Matrix, *, oracle: str = "strong", clip: float | None = CLIP, floor: float = 0.0
) -> float:
    """Test error in % of RadoBoost on rados of the fold."""
    learner = RadoBoost(ROUNDS, recentre=None, oracle=oracle, clip=clip, floor=floor, selection=error_of(fold.edges))
    return fold.error(learner.fit_release(RadoSample(rados=rados, rows=len(fold.rows), bias=False)).theta_)


def boost_rows(fold: Fold, *, n_rows: int | None = None, update: str = "linear", floor: float = 0.0) -> float:
    """Test error in % of AdaBoost, or AdaBoost(n_rows), on the fold."""
    learner = AdaBoost(
        ROUNDS, update=update, clip=CLIP, floor=floor, fit_intercept=False, n_rows=n_rows, random_state=fold.random
    )
    return fold.error(learner.fit(fold.rows, fold.labels).theta_)


def boost_plain(fold: Fold, *, clip: float | None = CLIP, floor: float = 0.0) -> float:
    """Test error in % of RadoBoost on plain rados of the fold."""
    return boost_rados(fold, draw_plain_rados(fold.edges, fold.rados, fold.random), clip=clip, floor=floor)


Way = Callable[[Fold], float]

ADABOOST, ADABOOST_N, RADOBOOST = "AdaBoost", "AdaBoost(n)", "RadoBoost"
NO_CLIP = "RadoBoost, no clip"
WAYS: dict[str, Way] = {
    ADABOOST: boost_rows,
    ADABOOST_N: lambda fold: boost_rows(fold, n_rows=fold.rados),
    RADOBOOST: boost_plain,
    NO_CLIP: lambda fold: boost_plain(fold, clip=None),
    "AdaBoost, exponential update": lambda fold: boost_rows(fold, update="exponential"),
    "AdaBoost, floor 0.1": lambda fold: boost_rows(fold, floor=FLOOR),
    "RadoBoost, floor 0.1": lambda fold: boost_plain(fold, floor=FLOOR),
}
"""Table 1's three algorithms, and the options of the released program."""
