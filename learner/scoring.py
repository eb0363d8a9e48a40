"""What the scores of a model say of its label: one class here for each type of label.

    two classes       one score; above 0 it says the positive class. Its logistic link is 1 / (1 + exp(-score)).
    several classes   a score for each class; the largest says the class. The link is their softmax.

A number, a count and a time to an event have no classes: learner.value_scoring.

Models, reports, exports and commands ask the scoring and no type. A new type of label adds a class and an entry in
`_OF_TYPE`.

**Beside the average.** A number that is added to the scores of all classes changes no prediction and no probability. So
what columns add to them is shown with weights whose average over the classes is 0 (`Scoring.relative`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.records.features import Classes, Label, Target
from learner.estimators import LOG_ODDS, LOG_ODDS_OF_CLASSES
from learner.scoring_base import Floats, Scoring
from learner.value_scoring import value_scoring_of

if TYPE_CHECKING:
    from dpcore.estimators.oracle import StatisticOracle
    from dpcore.evaluation.class_costs import ClassCosts
    from dpcore.evaluation.class_evaluation import ClassEvaluation
    from dpcore.evaluation.evaluation import Evaluation, PlannedBatch
    from dpcore.evaluation.options import EvaluationOptions
    from dpcore.predicates.expressions import Predicate
    from learner.model import Model
    from learner.predictions import Errors


@dataclass(frozen=True)
class OneScore(Scoring):
    """Of a label of two classes."""

    label: Label
    undecided: ClassVar[int] = 0
    link: ClassVar[str] = "logistic"
    link_in_words: ClassVar[str] = "the model's logistic link, 1 / (1 + exp(-margin))"
    link_rule: ClassVar[str] = "probability of positive: 1 / (1 + exp(-margin)), not measured"
    decision: ClassVar[str] = "positive if margin > 0, else negative"
    log_odds: ClassVar[Mapping[str, str]] = LOG_ODDS
    codes: ClassVar[tuple[int, ...]] = (-1, 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The positive class."""
        return (" or ".join(self.label.positive),)

    @property
    def texts(self) -> tuple[str, ...]:
        """Negative first."""
        return self.label.names

    @property
    def rule(self) -> str:
        """Positive above 0."""
        return f'says "{self.names[0]}" for the label {self.label.column} if the sum, the score, is above 0'

    def predicted(self, scores: Floats) -> NDArray[np.int8]:
        """1, or -1, which a score of zero has."""
        return np.where(scores > 0, np.int8(1), np.int8(-1))

    def by_link(self, scores: Floats) -> Floats:
        """(rows,), of the positive class."""
        return np.asarray(np.exp(-np.logaddexp(0.0, -scores)))

    def of_each(self, probabilities: Floats) -> Floats:
        """(rows, 2)."""
        return np.column_stack([1.0 - probabilities, probabilities])

    def relative(self, theta: Floats) -> Floats:
        """The weights."""
        return theta[np.newaxis]

    def coefficients(self, theta: Floats) -> Floats:
        """The weights."""
        return theta[np.newaxis]

    @property
    def columns(self) -> tuple[str, ...]:
        """The label as a sign and as a text, and the positive class's probability."""
        return "score", "label", "label_text", "probability"

    def cells(self, scores: Any, code: int, chances: Any) -> tuple[Any, ...]:
        """As the columns say."""
        return f"{scores:.17g}", code, self.text_of(code), "" if chances is None else f"{chances:.6g}"

    def counted(self, codes: NDArray[np.int8]) -> tuple[dict[str, Any], str]:
        """The positive ones, and their share."""
        usable, positive = int(np.count_nonzero(codes)), int(np.count_nonzero(codes > 0))
        data = {"positive": positive, "positive_fraction": positive / usable if usable else None}
        return data, f"{positive} of {usable} predicted positive"

    def errors_by_class(self, errors: "Errors") -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002  (no matrix)
        """Nothing."""
        return {}, ()

    def check_evaluation(self, options: "EvaluationOptions") -> None:
        """All have a meaning; costs are of two classes."""
        from dpcore.evaluation.options import Costs  # noqa: PLC0415  (slow to import)

        if options.cost is not None:
            Costs.parse(options.cost)

    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> "Evaluation":
        """Error, rates, calibration and ROC."""
        from dpcore.evaluation.evaluation import evaluate  # noqa: PLC0415  (slow to import)

        offset = model.log_odds_offset
        return evaluate(model.theta, oracle, options, unseen=unseen, feature_map=model.feature_map, offset=offset)

    def is_right(self, model: "Model") -> "Predicate":
        """The sign of the score is the label's."""
        from dpcore.evaluation.selection import is_right  # noqa: PLC0415  (slow to import)

        return is_right(model.theta, model.schema, model.feature_map)

    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """Where the scores are, then the rows by label and bin."""
        from dpcore.evaluation.evaluation import planned_batches  # noqa: PLC0415  (slow to import)

        return planned_batches(model.theta, model.schema, options, feature_map=model.feature_map)


@dataclass(frozen=True)
class ScoreOfEachClass(Scoring):
    """Of a label of several classes."""

    label: Classes
    undecided: ClassVar[int] = -1
    link: ClassVar[str] = "softmax"
    link_in_words: ClassVar[str] = "the softmax of the scores, exp(score) / the sum of exp(score) over the classes"
    link_rule: ClassVar[str] = "probability of a class: exp(score) / the sum of exp(score) over `scores`, not measured"
    decision: ClassVar[str] = "the class is the `name` of the largest score, the first of equal ones"
    log_odds: ClassVar[Mapping[str, str]] = LOG_ODDS_OF_CLASSES

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return self.label.values

    @property
    def texts(self) -> tuple[str, ...]:
        """The classes."""
        return self.label.values

    @property
    def codes(self) -> tuple[int, ...]:
        """Places from 0."""
        return tuple(range(len(self.label.values)))

    @property
    def rule(self) -> str:
        """The largest score."""
        of_each = f"has such a sum, a score, for each class of the label {self.label.column}"
        return f"{of_each}, and says the class of the largest"

    def predicted(self, scores: Floats) -> NDArray[np.int8]:
        """The class of the largest score, the first of equal ones."""
        return np.asarray(scores.argmax(axis=1), dtype=np.int8)

    def by_link(self, scores: Floats) -> Floats:
        """(rows, k)."""
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(parts / parts.sum(axis=1, keepdims=True))

    def of_each(self, probabilities: Floats) -> Floats:
        """As they are."""
        return probabilities

    def relative(self, theta: Floats) -> Floats:
        """(k, d), whose columns add up to 0."""
        return np.asarray(theta - theta.mean(axis=0))

    def coefficients(self, theta: Floats) -> Floats:
        """(k, d); of two classes the difference, as scikit-learn has one score for two."""
        return theta[1:] - theta[:1] if len(theta) == 2 else theta

    @property
    def columns(self) -> tuple[str, ...]:
        """The label's text, and a score and a probability of each class."""
        return "label_text", *(f"{what} {name}" for what in ("score", "probability") for name in self.names)

    def cells(self, scores: Any, code: int, chances: Any) -> tuple[Any, ...]:
        """As the columns say."""
        known = [""] * len(self.names) if chances is None else [f"{chance:.6g}" for chance in chances]
        return self.text_of(code), *(f"{score:.17g}" for score in scores), *known

    def counted(self, codes: NDArray[np.int8]) -> tuple[dict[str, Any], str]:
        """Of each class."""
        sizes = {name: int(np.count_nonzero(codes == code)) for code, name in enumerate(self.names)}
        return {"predicted": sizes}, f"predicted: {', '.join(f'{size} {name!r}' for name, size in sizes.items())}"

    def errors_by_class(self, errors: "Errors") -> tuple[dict[str, Any], tuple[str, ...]]:
        """The confusion matrix, and how many of each class's rows and predictions are right."""
        columns = list(zip(*errors.confusion, strict=True))
        each = list(zip(self.names, errors.confusion, strict=True))
        data = {"confusion": {name: dict(zip(self.names, row, strict=True)) for name, row in each}}
        return data, tuple(
            f"{name!r}: {row[code]} of {sum(row)} found, {row[code]} of {sum(columns[code])} predicted are right"
            for code, (name, row) in enumerate(each)
        )

    def check_evaluation(self, options: "EvaluationOptions") -> None:
        """Bins of one score have none."""
        from dpcore.declared import first_changed  # noqa: PLC0415  (needed only here)

        if odd := first_changed(options, ("bins", "scale", "edges_part")):
            raise ConfigurationError(
                f"{odd} is about bins of the one score of two classes: leave it out for a label of {self.label.words}"
            )
        self._costs(options)

    def _costs(self, options: "EvaluationOptions") -> "ClassCosts | None":
        from dpcore.evaluation.class_costs import ClassCosts, tried_shifts  # noqa: PLC0415  (slow to import)

        if options.cost is None:
            return None
        costs = ClassCosts.parse(options.cost, self.names)
        tried_shifts(costs)
        return costs

    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> "ClassEvaluation":
        """The confusion matrix, and for costs those of shifted scores."""
        from dpcore.evaluation.class_evaluation import evaluate_classes  # noqa: PLC0415  (slow to import)

        return evaluate_classes(
            model.theta,
            oracle,
            options.confidence,
            unseen=unseen,
            feature_map=model.feature_map,
            costs=self._costs(options),
        )

    def is_right(self, model: "Model") -> "Predicate":
        """The class of the largest score is the label's."""
        from dpcore.evaluation.class_evaluation import is_right_class  # noqa: PLC0415  (slow to import)

        return is_right_class(model.theta, model.schema, model.feature_map)

    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """One batch of all cells, for costs with shifts of the scores."""
        from dpcore.estimators.oracle import WHOLE  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.class_costs import tried_shifts  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.class_evaluation import shifted_cells  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.evaluation import PlannedBatch  # noqa: PLC0415  (slow to import)

        costs = self._costs(options)
        shifts = np.zeros((1, len(self.names))) if costs is None else tried_shifts(costs)[1]
        cells = shifted_cells(model.theta, model.schema, shifts, model.feature_map)
        with_shifts = f", with {len(shifts)} shifts of the scores" if len(shifts) > 1 else ""
        return (PlannedBatch(cells, WHOLE, f"rows by class and predicted class{with_shifts}", is_exact=True),)


_OF_TYPE: Mapping[str, type[OneScore | ScoreOfEachClass]] = {Label.type: OneScore, Classes.type: ScoreOfEachClass}


def scoring_of(label: Target, *, is_rate: bool = True) -> Scoring:
    """What scores say of this label. is_rate: of a count, whether they are logarithms of rates."""
    found = value_scoring_of(label, is_rate=is_rate)
    return _OF_TYPE[label.type](label) if found is None else found  # type: ignore[arg-type]  # of the label's own type


def by_score(found: Mapping[str, Any]) -> Any:
    """JSON of what is stated for each score, by name: the value itself if there is one score, None if there is none."""
    if len(found) <= 1:
        return next(iter(found.values()), None)
    return {"by_class": dict(found)}
