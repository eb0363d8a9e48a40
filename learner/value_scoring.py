"""What the scores of a model say of a label that is a number, a count or a time to an event: no class.

    number   the place t of the label between its bounds, or of its logarithm
    count    the logarithm of the rate, or t
    time     the logarithm of the ratio of a row's hazard to that of a record of zeros

How scores become predictions is `Model.values` and `Model.survival`; for people and exports it is here, too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.records.features import Count, EventTime, Number, Target
from learner.scoring_base import Floats, Scoring

if TYPE_CHECKING:
    from dpcore.estimators.oracle import StatisticOracle
    from dpcore.evaluation.count_evaluation import CountEvaluation
    from dpcore.evaluation.evaluation import PlannedBatch
    from dpcore.evaluation.event_evaluation import EventEvaluation
    from dpcore.evaluation.measured_evaluation import MeasuredEvaluation
    from dpcore.evaluation.options import EvaluationOptions
    from dpcore.predicates.expressions import Predicate
    from learner.model import Model
    from learner.predictions import Errors

_LARGEST_LOG = 700.0


def _exponential(value: float) -> float:
    return math.exp(min(value, _LARGEST_LOG))


class ScoreOfValue(Scoring):
    """What is the same for the three: one score, and nothing of classes."""

    label: Number | Count | EventTime
    has_classes: ClassVar[bool] = False
    undecided: ClassVar[int] = 0
    decision: ClassVar[str] = "`prediction` says what it says"
    link: ClassVar[str] = "none"
    link_in_words: ClassVar[str] = ""
    link_rule: ClassVar[str] = ""
    log_odds: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def names(self) -> tuple[str, ...]:
        """The label's column."""
        return (self.label.column,)

    def relative(self, theta: Floats) -> Floats:
        """The weights."""
        return theta[np.newaxis]

    def coefficients(self, theta: Floats) -> Floats:
        """The weights."""
        return theta[np.newaxis]

    def no_classes(self) -> SchemaError:
        """That the label has none."""
        return SchemaError(
            f"models of {self.label.column!r}, a label of {self.label.words}, say a number and no class: `predict` has "
            "their predictions, and there are no probabilities of classes"
        )

    def _refuse(self) -> NoReturn:
        raise self.no_classes()

    @property
    def texts(self) -> tuple[str, ...]:
        """Raises SchemaError, as all that is about classes does."""
        self._refuse()

    @property
    def codes(self) -> tuple[int, ...]:
        """See `texts`."""
        self._refuse()

    def predicted(self, scores: Floats) -> NDArray[np.int8]:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def by_link(self, scores: Floats) -> Floats:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def of_each(self, probabilities: Floats) -> Floats:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    @property
    def columns(self) -> tuple[str, ...]:
        """See `texts`."""
        self._refuse()

    def cells(self, scores: Any, code: int, chances: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def counted(self, codes: NDArray[np.int8]) -> tuple[dict[str, Any], str]:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def errors_by_class(self, errors: "Errors") -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def is_right(self, model: "Model") -> "Predicate":  # noqa: ARG002
        """See `texts`."""
        self._refuse()

    def check_evaluation(self, options: "EvaluationOptions") -> None:
        """Scale and costs are about classes, and without a first release nobody knows where scores are."""
        from dpcore.declared import first_changed  # noqa: PLC0415  (needed only here)

        if odd := first_changed(options, ("scale", "cost")):
            raise ConfigurationError(
                f"{odd} is about scores of classes: leave it out for a label of {self.label.words}"
            )
        if not options.edges_part:
            raise ConfigurationError(
                f"the bins of a label of {self.label.words} are where its scores are: give an edges_part above 0"
            )


@dataclass(frozen=True)
class ScoreOfNumber(ScoreOfValue):
    """Of a label that is a number, and of a count whose score is its place."""

    label: Number | Count

    @property
    def rule(self) -> str:
        """Where the sum is between the bounds."""
        logarithm = "the logarithm of " if isinstance(self.label, Number) and self.label.log else ""
        return f"says from the sum, the score, where {logarithm}{self.label.column} is between its bounds, -1 and 1"

    @property
    def effect(self) -> str:
        """What `effect_of` is."""
        return "factor" if self.multiplies else "in the label's units"

    def effect_of(self, value: float) -> float:
        """What an addition to the score adds to the prediction; of logarithms, what it multiplies it by."""
        if isinstance(self.label, Number) and self.label.log:
            return _exponential(value * (math.log(self.label.upper) - math.log(self.label.lower)) / 2.0)
        start, end = self.label.in_units(np.array([0.0, value]))
        return float(end - start)

    @property
    def multiplies(self) -> bool:
        """Whether `effect_of` is a factor."""
        return isinstance(self.label, Number) and self.label.log

    def prediction(self, model: Any) -> dict[str, Any]:  # noqa: ARG002  (times need it)
        """How an exported score becomes a prediction."""
        if isinstance(self.label, Count):
            return {"kind": "linear", "at_minus_one": 0.0, "at_one": float(self.label.upper)}
        kind = "logarithm" if self.label.log else "linear"
        return {"kind": kind, "at_minus_one": self.label.lower, "at_one": self.label.upper}

    prediction_rule: ClassVar[str] = (
        "share = (score + 1) / 2; linear: prediction = at_minus_one + share * (at_one - at_minus_one); logarithm: "
        "prediction = at_minus_one * (at_one / at_minus_one) ** share"
    )

    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> "MeasuredEvaluation":
        """R^2, errors, and mean labels by bin of predictions."""
        from dpcore.evaluation.measured_evaluation import evaluate_numbers  # noqa: PLC0415  (slow to import)

        return evaluate_numbers(model.theta, oracle, options, unseen=unseen, feature_map=model.feature_map)

    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """Three."""
        from dpcore.evaluation.evaluation import PlannedBatch  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.measured_evaluation import planned_errors  # noqa: PLC0415  (slow to import)

        found = planned_errors(model.theta, model.schema, options, model.feature_map)
        return tuple(PlannedBatch(asked, part, what, is_exact=exact) for asked, part, what, exact in found)


@dataclass(frozen=True)
class ScoreOfCount(ScoreOfValue):
    """Of a count whose score is the logarithm of its rate."""

    label: Count

    @property
    def rule(self) -> str:
        """The rate."""
        over = "" if self.label.exposure is None else f" for an exposure ({self.label.exposure}) of 1"
        return f"says the rate of {self.label.column}{over}, which is the exponential of the sum, the score"

    @property
    def effect(self) -> str:
        """What `effect_of` is."""
        return "rate ratio"

    def effect_of(self, value: float) -> float:
        """The rate ratio."""
        return _exponential(value)

    def prediction(self, model: Any) -> dict[str, Any]:  # noqa: ARG002  (times need it)
        """How an exported score becomes a prediction."""
        return {"kind": "rate", "exposure": self.label.exposure}

    prediction_rule: ClassVar[str] = (
        "rate: prediction = exp(score), the mean count for an exposure of 1; multiply it by the exposure of the row if "
        "`exposure` names a column"
    )

    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> "CountEvaluation":
        """The explained deviance, and rates by bin of scores."""
        from dpcore.evaluation.count_evaluation import evaluate_counts  # noqa: PLC0415  (slow to import)

        return evaluate_counts(model.theta, oracle, options, unseen=unseen, feature_map=model.feature_map)

    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """Three."""
        from dpcore.evaluation.count_evaluation import planned_terms  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.evaluation import PlannedBatch  # noqa: PLC0415  (slow to import)

        found = planned_terms(model.theta, model.schema, options, model.feature_map)
        return tuple(PlannedBatch(asked, part, what, is_exact=exact) for asked, part, what, exact in found)


@dataclass(frozen=True)
class ScoreOfTime(ScoreOfValue):
    """Of a time to an event."""

    label: EventTime

    @property
    def rule(self) -> str:
        """The hazard ratio."""
        return (
            f"says from the sum, the score, how many times as large the hazard of {self.label.event} is as that of a "
            "record of zeros: the exponential of the score"
        )

    @property
    def effect(self) -> str:
        """What `effect_of` is."""
        return "hazard ratio"

    def effect_of(self, value: float) -> float:
        """The hazard ratio."""
        return _exponential(value)

    def prediction(self, model: Any) -> dict[str, Any]:
        """How an exported score becomes survival."""
        assert model.log_hazards is not None, "a model of a time to an event has them"
        return {"kind": "survival", "borders": list(self.label.borders), "log_hazards": model.log_hazards.tolist()}

    prediction_rule: ClassVar[str] = (
        "survival: the chance to be without the event at the end of interval j of `borders` is exp(-h), h the sum of "
        "exp(log_hazards[k] + score) over k up to j; a larger score is a larger risk"
    )

    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> "EventEvaluation":
        """Concordance and Brier scores."""
        from dpcore.evaluation.event_evaluation import evaluate_times  # noqa: PLC0415  (slow to import)

        assert model.log_hazards is not None, "a model of a time to an event has them"
        return evaluate_times(
            model.theta, model.log_hazards, oracle, options, unseen=unseen, feature_map=model.feature_map
        )

    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """Two."""
        from dpcore.evaluation.evaluation import PlannedBatch  # noqa: PLC0415  (slow to import)
        from dpcore.evaluation.event_evaluation import planned_histograms  # noqa: PLC0415  (slow to import)

        found = planned_histograms(model.theta, model.schema, options, model.feature_map)
        return tuple(PlannedBatch(asked, part, what, is_exact=exact) for asked, part, what, exact in found)


def value_scoring_of(label: Target, *, is_rate: bool) -> ScoreOfValue | None:
    """What scores say of a label without classes; None of classes. is_rate: whether scores are logarithms of rates."""
    if isinstance(label, Count):
        return ScoreOfCount(label) if is_rate else ScoreOfNumber(label)
    if isinstance(label, Number):
        return ScoreOfNumber(label)
    return ScoreOfTime(label) if isinstance(label, EventTime) else None
