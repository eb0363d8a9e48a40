"""How a model decides: the class weights of its training, and a threshold that was chosen for a stated cost.

A model with a threshold t has a score that is lowered by t, in its bias: `Threshold` keeps t and the costs. Of several
classes each score is raised in the same way, by `Shifts`.

So it calls a row positive where the score of the trained model is above t, and predictions, exports, pipelines and
later evaluations follow without a rule of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, log
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ModelError
from dpcore.evaluation.class_costs import ClassCosts
from dpcore.evaluation.options import Costs
from dpcore.queries.gradient import class_weights_in_words
from dpcore.records.weight import Weight

if TYPE_CHECKING:
    from dpcore.evaluation.class_costs import LeastClassCost
    from dpcore.evaluation.thresholds import LeastCost


@dataclass(frozen=True)
class Threshold:
    """By how much a score was lowered, and why. Raises ModelError if it is not finite."""

    score: float
    costs: Costs

    def __post_init__(self) -> None:
        if not isfinite(self.score):
            raise ModelError(f"the threshold is {self.score}; evaluate again")

    @property
    def words(self) -> str:
        """For people, a sentence."""
        return (
            f"Its score is lowered by {self.score:.4g}, the threshold that costs least in an evaluation, if mistakes "
            f"cost {self.costs.words}."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        exact = {"false_negative": str(self.costs.false_negative), "false_positive": str(self.costs.false_positive)}
        return {"score": self.score, "costs": exact}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The threshold with this `to_dict`."""
        costs = content["costs"]
        exact = Costs(Fraction(costs["false_negative"]), Fraction(costs["false_positive"]))
        return cls(float(content["score"]), exact)


@dataclass(frozen=True)
class Shifts:
    """By how much the score of each class was raised, and why. Raises ModelError if they are not finite."""

    raised: tuple[float, ...]
    costs: ClassCosts

    def __post_init__(self) -> None:
        if len(self.raised) != len(self.costs.names) or not all(map(isfinite, self.raised)):
            raise ModelError(f"the scores are raised by {list(self.raised)}; evaluate again")

    @property
    def words(self) -> str:
        """For people, a sentence."""
        by = ", ".join(f"{name!r} {each:+.4g}" for name, each in zip(self.costs.names, self.raised, strict=True))
        return (
            f"Its scores are raised by the shifts that cost least in an evaluation ({by}), if mistakes cost "
            f"{self.costs.words}."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        exact = [[str(cost) for cost in row] for row in self.costs.costs]
        return {"shifts": list(self.raised), "names": list(self.costs.names), "costs": exact}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The shifts with this `to_dict`."""
        exact = tuple(tuple(map(Fraction, row)) for row in content["costs"])
        return cls(tuple(map(float, content["shifts"])), ClassCosts(tuple(content["names"]), exact))


def decision_of(content: dict[str, Any]) -> Threshold | Shifts:
    """What a model's file says of how it decides."""
    return Shifts.from_dict(content) if "shifts" in content else Threshold.from_dict(content)


def shifts_of(found: "LeastClassCost", earlier: Shifts | None) -> Shifts:
    """What a model with this least cost has, whose scores were shifted when it was evaluated.

    Raises ModelError if the noise hides the choice, or if it is to call all rows the same.
    """
    if not found.is_measurable:
        raise ModelError(found.sentences()[0].rstrip("."))
    if found.calls:
        raise ModelError(
            f"calling every row {found.calls!r} costs least, as far as the noise tells, and needs no model: state "
            "other costs, or evaluate with a larger epsilon"
        )
    before = np.zeros(len(found.shifts)) if earlier is None else np.array(earlier.raised)
    return Shifts(tuple((before + found.shifts).tolist()), found.costs)


def threshold_of(found: "LeastCost", earlier: Threshold | None) -> Threshold:
    """What a model with this least cost has, which had an earlier threshold when it was evaluated.

    Raises ModelError if the noise hides the choice, or if it is to call all rows the same.
    """
    if not found.is_measurable:
        raise ModelError(found.sentences()[0].rstrip("."))
    if found.threshold is None:
        same = "positive" if found.calls == "all" else "negative"
        raise ModelError(
            f"calling every row {same} costs least, as far as the noise tells, and needs no model: state other costs, "
            "or evaluate with a larger epsilon"
        )
    return Threshold(found.threshold + (0.0 if earlier is None else earlier.score), found.costs)


def lowered(theta: NDArray[np.float64], by: float, *, bias: bool) -> NDArray[np.float64]:
    """Theta (d,) with a lower score. Raises ConfigurationError without a bias."""
    if not bias:
        raise ConfigurationError(
            "the model has no bias that a threshold could be taken from: use a schema with a bias, or compare the "
            "scores of `rado learner predict` with the threshold yourself"
        )
    return np.append(theta[:-1], theta[-1] - by)


def log_odds_offset(class_weights: Sequence[int], threshold: Threshold | Shifts | None) -> float:
    """What is added to a score of two classes before it can be log odds of the parties' rows.

    A training with weights sees odds k_+ / k_- times as large: the correction for prior shift (Saerens, Latinne and
    Decaestecker, Neural Computation 14, 2002).
    """
    offset = threshold.score if isinstance(threshold, Threshold) else 0.0
    return offset - (log(class_weights[1] / class_weights[0]) if len(class_weights) == 2 else 0.0)


def decision_sentences(
    class_weights: Sequence[int],
    names: Sequence[str],
    threshold: Threshold | Shifts | None,
    weight: Weight | None = None,
) -> list[str]:
    """What to know of a model's scores, for people. weight: by which the rows of its training counted."""
    found = []
    if weight is not None:
        found.append(
            f"Trained on rows that count by the weight {weight.column!r}, from 0 to {weight.upper:g}. What is said of "
            "its errors on a file of rows counts all of them alike."
        )
    if class_weights:
        classes = " : ".join(map(repr, names))
        found.append(
            f"Trained with {class_weights_in_words(class_weights)} ({classes}): its scores are about rows in these "
            "proportions, so they are no log odds of the parties' rows. Probabilities need a calibration."
        )
    if threshold is not None:
        found.append(threshold.words)
    return found
