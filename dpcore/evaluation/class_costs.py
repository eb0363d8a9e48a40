"""What wrong decisions among several classes cost, and shifts of the classes' scores that cost less.

**The rule.** Where scores are log odds and a row of class c costs w_c whatever it is called instead, the least expected
cost has the class of the largest p_c w_c: the score of c, raised by log w_c.

For a cost of each pair w_c is the mean over what c may be called, and for scores that are no log odds nobody knows the
scale.

So an evaluation asks for the confusion matrix with no shift, with this one, and with half and twice of it, and chooses
by what they cost on the rows. No other rule is tried: each would need a matrix of its own, and all have more noise.

**Costs.** With n_ab the noisy rows of class a that are called b, T their sum and C_ab the cost of one, the mean is
sum C_ab n_ab / T. The interval on the rows is that of dpcore.evaluation.thresholds.

On the distribution the costs of rows are independent numbers from 0 to the largest cost, so Hoeffding's bound (J. Am.
Stat. Assoc. 58, 1963, theorem 1) holds around the interval on the rows, each with half of the failure. All intervals
hold jointly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.evaluation.intervals import Count, Judge, count_of, mean_of_bounded
from dpcore.evaluation.options import written_costs
from dpcore.evaluation.thresholds import Cost, mean_on_rows
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.records.features import nearest

STRENGTHS = (0.0, 0.5, 1.0, 2.0)
"""How many times the rule's shifts are tried."""
MOST_CLASSES = 10
"""With more the cells of all matrices would be too many."""

_HIDDEN = (
    "What costs least is not measurable at this epsilon: the noise hides how many rows a class has. More rows or a "
    "larger epsilon help."
)


@dataclass(frozen=True)
class ClassCosts:
    """What a row of a class costs that is called another, in any unit. Raises ConfigurationError."""

    names: tuple[str, ...]
    costs: tuple[tuple[Fraction, ...], ...]
    """Of each class, by what it is called; 0 where it is called what it is."""

    def __post_init__(self) -> None:
        k = len(self.names)
        if len(self.costs) != k or any(len(row) != k for row in self.costs):
            raise ConfigurationError(
                f"costs of {k} classes are {k} rows of {k} numbers, by class and what it is called"
            )
        if any(self.costs[code][code] for code in range(k)) or min(min(row) for row in self.costs) < 0:
            raise ConfigurationError("a cost is below 0, or a row that is called what it is costs something")
        if not all(sum(row) for row in self.costs):
            raise ConfigurationError("mistakes on a class cost nothing: give a cost above 0 for each class")

    @classmethod
    def parse(cls, text: str, names: Sequence[str]) -> "ClassCosts":
        """From "flu=10:flu>cold=2"; costs that are left out are 1. Raises ConfigurationError."""
        rows = [[Fraction(int(code != other)) for other in range(len(names))] for code in range(len(names))]
        pairs: list[tuple[int, int, Fraction]] = []
        for what, cost in written_costs(text).items():
            if what in names:
                code = names.index(what)
                rows[code] = [cost if other != code else Fraction(0) for other in range(len(names))]
                continue
            of, arrow, called = what.partition(">")
            for each in (of, called) if arrow else (what,):
                if each not in names:
                    raise ConfigurationError(
                        f"the cost names {each!r}, which is no class of the label; {nearest(each, names)}. Write "
                        f"{names[0]}=5 for a row of {names[0]!r} that is called another class, {names[0]}>{names[1]}=5 "
                        "for one that is called this one"
                    )
            pairs.append((names.index(of), names.index(called), cost))
        for code, other, cost in pairs:
            rows[code][other] = cost
        return cls(tuple(names), tuple(map(tuple, rows)))

    @property
    def matrix(self) -> Matrix:
        """(k, k)."""
        return np.array([[float(cost) for cost in row] for row in self.costs])

    @property
    def shifts(self) -> Vector:
        """(k,), the rule's, which add up to 0."""
        means = np.log(self.matrix.sum(axis=1) / (len(self.names) - 1))
        return np.asarray(means - means.mean())

    @property
    def words(self) -> str:
        """For people."""
        parts = []
        for code, (name, row) in enumerate(zip(self.names, self.costs, strict=True)):
            others = [cost for other, cost in enumerate(row) if other != code]
            if len(set(others)) == 1:
                parts.append(f"{float(others[0]):g} for a row of {name!r}")
                continue
            called = ", ".join(
                f"{float(cost):g} called {other!r}"
                for other, cost in zip(self.names, row, strict=True)
                if other != name
            )
            parts.append(f"for a row of {name!r} {called}")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        each = zip(self.names, self.costs, strict=True)
        return {name: dict(zip(self.names, map(float, row), strict=True)) for name, row in each}


@dataclass(frozen=True)
class LeastClassCost:
    """The shifts whose decisions cost least, as far as the noise tells."""

    costs: ClassCosts
    strength: float | None
    """How many times the rule's shifts; None if calling all rows one class costs least."""
    shifts: tuple[float, ...]
    """By how much each class's score is raised."""
    calls: str
    """The class that all rows are called, if that costs least; else empty."""
    cost: Cost
    at_zero: Cost
    """That of the model as it is."""
    of_constant: Cost
    """That of the class that costs least if all rows are called it."""
    constant: str
    """This class."""
    possible: tuple[float, ...]
    """Strengths that were tried and whose cost may be as small."""
    better_than_zero: bool
    """Whether it surely costs less than the model as it is."""
    is_measurable: bool

    def sentences(self) -> tuple[str, ...]:
        """What was chosen, what it costs, and how sure that is."""
        if not self.is_measurable:
            return (_HIDDEN,)
        raised = ", ".join(f"{by:+.3g} {name!r}" for name, by in zip(self.costs.names, self.shifts, strict=True))
        what = f"calls every row {self.calls!r}" if self.calls else "is the model as it is"
        if self.strength:
            what = f"raises the scores by {raised}"
        found = (
            f"If mistakes cost {self.costs.words}, what costs least {what}. 1,000 rows then cost {self.cost.words}; "
            f"with the model as it is {self.at_zero.words}, and if all are called {self.constant!r} "
            f"{self.of_constant.words}."
        )
        return (found, warning) if (warning := self.warning()) else (found,)

    def warning(self) -> str | None:
        """That the choice is within the noise, if it is."""
        if len(self.possible) <= 1 and not (self.calls and self.possible):
            return None
        times = ", ".join(f"{each:g}" for each in self.possible)
        return f"Warning: the choice is within the noise. Shifts of {times} times the rule's may cost as little."

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "costs": self.costs.to_dict(),
            "strength": self.strength,
            "shifts": dict(zip(self.costs.names, self.shifts, strict=True)),
            "calls": self.calls or None,
            "cost": self.cost.to_dict(),
            "at_zero": self.at_zero.to_dict(),
            "all_one_class": {"class": self.constant, **self.of_constant.to_dict()},
            "possible": list(self.possible),
            "better_than_zero": self.better_than_zero,
            "measurable": self.is_measurable,
        }


@dataclass(frozen=True, eq=False)
class Shifted:
    """The confusion matrices of one evaluation, each with shifts of the classes' scores."""

    shifts: Matrix
    """(n, k), the first all 0."""
    strengths: tuple[float, ...]
    matrices: NDArray[np.float64]
    """(n, k, k), noisy rows by class and what it is called."""
    judge: Judge

    def least_cost(self, costs: ClassCosts) -> LeastClassCost:
        """Among the shifts that were asked about, and calling all rows one class."""
        weights, k = costs.matrix, len(costs.names)
        of_class = self.matrices[0].sum(axis=1)
        sums = np.concatenate([(self.matrices * weights).sum(axis=(1, 2)), of_class @ weights])
        norms = np.sqrt([*[np.square(weights).sum()] * len(self.shifts), *(k * np.square(weights).sum(axis=0))])
        best, statements = int(sums.argmin()), len(sums)
        reach = self.judge.noise.reach(1, self.judge.failure / statements)
        possible = sums - sums[best] <= reach * np.hypot(norms, norms[best]) + 1e-9 * (1.0 + abs(sums[best]))
        constant = int(sums[len(self.shifts) :].argmin())
        ends = [*(self._of_matrix(matrix, weights, statements) for matrix in self.matrices)]
        of_constant = self._cost(
            [(Count(float(rows), k), float(weights[code, constant])) for code, rows in enumerate(of_class)],
            weights,
            statements,
        )
        is_constant = best >= len(self.shifts)
        hidden = (of_class <= self.judge.noise.half_width(k, self.judge.failure / k)).any()
        shifted = np.zeros(k) if is_constant else self.shifts[best]
        return LeastClassCost(
            costs,
            None if is_constant else self.strengths[best],
            tuple(shifted.tolist()),
            costs.names[constant] if is_constant else "",
            of_constant if is_constant else ends[best],
            ends[0],
            of_constant,
            costs.names[constant],
            tuple(each for each, may in zip(self.strengths, possible.tolist(), strict=False) if may),
            not bool(possible[0]),
            not bool(hidden),
        )

    def _of_matrix(self, matrix: Matrix, weights: Matrix, statements: int) -> Cost:
        cells = [
            (count_of(float(rows)), float(cost)) for rows, cost in zip(matrix.ravel(), weights.ravel(), strict=True)
        ]
        return self._cost(cells, weights, statements)

    def _cost(self, cells: Sequence[tuple[Count, float]], weights: Matrix, statements: int) -> Cost:
        """The mean cost of a row."""
        most, total = float(weights.max()), sum(count.value for count, _ in cells)
        weighted = sum(cost * count.value for count, cost in cells)
        estimate = min(max(weighted / total, 0.0), most) if total > 0.0 else most
        failure, noise = self.judge.failure / statements, self.judge.noise
        on_rows = mean_on_rows(cells, noise.reach(1, failure), most)
        if not self.judge.unseen:
            return Cost(estimate, on_rows, None)
        half = failure / 2.0
        rows = total - noise.half_width(sum(count.cells for count, _ in cells), half / 2.0)
        low, high = mean_on_rows(cells, noise.reach(1, half / 2.0), most)
        ends = mean_of_bounded(low / most, high / most, rows, half)
        return Cost(estimate, on_rows, (most * ends.lower, most * ends.upper))


def tried_shifts(costs: ClassCosts) -> tuple[tuple[float, ...], Matrix]:
    """The strengths and shifts that an evaluation asks about, the first of them 0. Raises ConfigurationError."""
    if len(costs.names) > MOST_CLASSES:
        raise ConfigurationError(
            f"the label has {len(costs.names)} classes, and an evaluation with costs takes at most {MOST_CLASSES}"
        )
    strengths = STRENGTHS if np.abs(costs.shifts).max() > 1e-9 else STRENGTHS[:1]
    return strengths, np.outer(strengths, costs.shifts)


def raised(theta: Matrix, shifts: Sequence[float] | Vector, *, bias: bool) -> Matrix:
    """Theta (k, d) with higher scores of each class. Raises ConfigurationError without a bias."""
    if not bias:
        raise ConfigurationError("the model has no bias that scores could be raised by: use a schema with a bias")
    found = np.array(theta, dtype=np.float64)
    found[:, -1] += shifts
    return found
