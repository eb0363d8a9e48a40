"""What other modules ask of the scores of a model, whatever its label: learner.scoring has what each type says."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.records.features import Target, nearest

if TYPE_CHECKING:
    from dpcore.estimators.oracle import StatisticOracle
    from dpcore.evaluation.evaluation import PlannedBatch
    from dpcore.evaluation.options import EvaluationOptions
    from dpcore.predicates.expressions import Predicate
    from learner.model import Model
    from learner.predictions import Errors

Floats = NDArray[np.float64]


class Scoring(ABC):
    """What other modules ask of a model's scores, whatever its label."""

    label: Target
    has_classes: ClassVar[bool] = True
    """Whether scores say a class; otherwise what is about classes raises SchemaError."""
    prediction_rule: ClassVar[str] = ""
    """How an exported score becomes a prediction, of a label without classes."""
    undecided: ClassVar[int]
    """The code of a row without a prediction."""
    link: ClassVar[str]
    """The name of the link in an exported model."""
    link_in_words: ClassVar[str]
    link_rule: ClassVar[str]
    """The link, as an exported model states it."""
    decision: ClassVar[str]
    """How scores decide, as an exported model states it."""
    log_odds: ClassVar[Mapping[str, str]]
    """Estimators whose scores the link makes probabilities of, with the assumption."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What each score speaks for."""

    @property
    @abstractmethod
    def texts(self) -> tuple[str, ...]:
        """What can be predicted: probabilities are in this order."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """How scores decide, after "a model that adds up what each column contributes"."""

    @property
    @abstractmethod
    def codes(self) -> tuple[int, ...]:
        """The codes of `texts`."""

    @abstractmethod
    def predicted(self, scores: Floats) -> NDArray[np.int8]:
        """The codes (rows,) that scores say."""

    @abstractmethod
    def by_link(self, scores: Floats) -> Floats:
        """The link's probabilities: (rows,) of the positive class, or (rows, k)."""

    @abstractmethod
    def of_each(self, probabilities: Floats) -> Floats:
        """Probabilities as models give them, for each of `texts`: (rows, texts)."""

    @abstractmethod
    def relative(self, theta: Floats) -> Floats:
        """A row of weights for each score, (scores, d): beside the average, as the module says."""

    @abstractmethod
    def coefficients(self, theta: Floats) -> Floats:
        """The rows that a logistic regression of scikit-learn has: one for two classes, whatever the label's type."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Of a row's line in a file of scores."""

    @abstractmethod
    def cells(self, scores: Any, code: int, chances: Any) -> tuple[Any, ...]:
        """That line, for scores and a code as `predict` gives them. chances: None if the model has none."""

    @abstractmethod
    def counted(self, codes: NDArray[np.int8]) -> tuple[dict[str, Any], str]:
        """How many rows are predicted to be what: for JSON, and in words."""

    @abstractmethod
    def errors_by_class(self, errors: "Errors") -> tuple[dict[str, Any], tuple[str, ...]]:
        """What a confusion matrix adds to a count of errors: for JSON, and in words."""

    @abstractmethod
    def check_evaluation(self, options: "EvaluationOptions") -> None:
        """Raise ConfigurationError, before anything is asked, if an option has no meaning for this label."""

    @abstractmethod
    def evaluate(
        self, model: "Model", oracle: "StatisticOracle", options: "EvaluationOptions", *, unseen: bool | None = None
    ) -> Any:
        """Measure the model: dpcore.evaluation. Raises what its function for this label raises."""

    @abstractmethod
    def batches(self, model: "Model", options: "EvaluationOptions") -> tuple["PlannedBatch", ...]:
        """What `evaluate` asks for."""

    @abstractmethod
    def is_right(self, model: "Model") -> "Predicate":
        """Whether the model's prediction is the label."""

    @property
    def effect(self) -> str:
        """What `effect_of` is, of a label without classes."""
        return ""

    def effect_of(self, value: float) -> float:
        """What an addition to the score does to a prediction: `effect`. Of classes the addition itself."""
        return value

    def prediction(self, model: Any) -> dict[str, Any]:  # noqa: ARG002  (of a label without classes)
        """How an exported score becomes a prediction, of a label without classes."""
        return {}

    def place_of(self, name: str) -> int:
        """The place of the score that speaks for this. Raises ConfigurationError if none does."""
        if name not in self.names:
            raise ConfigurationError(f"the model has no score for {name!r}; {nearest(name, self.names)}")
        return self.names.index(name)

    def text_of(self, code: int) -> str:
        """The text of a code that is predicted."""
        return self.texts[self.codes.index(code)]
