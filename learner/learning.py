"""What a federation is asked for a model: trainings and evaluations by name, and plans of what would be asked."""

import inspect
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dpcore.declared import declarations, whole
from dpcore.errors import ConfigurationError
from dpcore.evaluation.options import EvaluationOptions
from dpcore.numbers.rationals import Exact, exact
from dpcore.records.features import nearest
from dpcore.records.held_back import Part
from dpcore.statistics.adaptive import Adaptive, Way
from learner.estimators import BY_QUERIES, FROM_RELEASES, class_of, make_estimator
from learner.inquiring import InquiringFederation
from learner.training import AskedTraining, check_learns, warning_of
from learner.warm_start import load_start
from radobase.keywords import check_keywords
from wire.request_fields import USUAL_DELTA

if TYPE_CHECKING:
    from dpcore.evaluation.class_evaluation import ClassEvaluation
    from dpcore.evaluation.count_evaluation import CountEvaluation
    from dpcore.evaluation.descriptive.inquiry import Inquiry
    from dpcore.evaluation.evaluation import Evaluation
    from dpcore.evaluation.event_evaluation import EventEvaluation
    from dpcore.evaluation.measured_evaluation import MeasuredEvaluation
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation
    from learner.inquiring import PlannedInquiry
    from learner.model import Model
    from learner.planned_questions import PlannedQuestions
    from learner.planning import Plan
    from learner.requests import Request

_PLANNED = ("statistic", "describe", "crosstab", "compare", "correlate", "survival", "levels", "train", "evaluate")
_OF_TRAINING = ("epsilon", "delta", "rounds", "adaptive", "hold_back", "start_from", "journal")


_OF_EVALUATION = ("epsilon", "delta", "adaptive")


class _Planner(InquiringFederation):
    """The inquiries of a federation, planned in place of asked."""

    def __init__(self, federation: "Federation") -> None:
        self._federation = federation

    def inquire(self, inquiry: "Inquiry", *, epsilon: Exact, delta: Exact = USUAL_DELTA) -> Any:
        return self._federation.planned_inquiry(inquiry, epsilon=epsilon, delta=delta)


class LearningFederation(InquiringFederation):
    """The trainings, evaluations and plans of a federation."""

    def train(
        self,
        estimator: str,
        *,
        epsilon: Exact | None = None,
        delta: Exact = USUAL_DELTA,
        rounds: int | None = None,
        adaptive: int | None = None,
        hold_back: Exact | None = None,
        start_from: "Model | Path | str | None" = None,
        journal: Path | str | None = None,
        **options: Any,
    ) -> "Model":
        """The model of an estimator that asks the parties, such as "newton", as `rado learner train` makes it.

        - epsilon, delta: of all its queries together. options: of the estimator.
        - hold_back: the share of its rows that each party leaves out, which `evaluate` then asks about.
        - start_from: an earlier model of the same schema, or its file.
        - journal: the file that keeps the queries so far; the same call continues an interrupted training from it.

        Raises ConfigurationError or PlanError before anything is asked, and what the estimator and the parties raise. A
        UserWarning says what to know of the model, and before anything is asked if most of its coefficients will not be
        measurable.
        """
        options |= {"delta": delta, "rounds": rounds, "adaptive": adaptive, "hold_back": hold_back}
        training, federation = _training(
            cast("Federation", self), estimator, epsilon=epsilon, start_from=start_from, **options
        )
        if journal is not None:
            federation = federation.with_journal(Path(journal))
        if (few := training.few_coefficients(federation)) is not None:
            warnings.warn(few, stacklevel=2)
        trained = training.run(federation)
        if (warning := warning_of(trained.estimator, trained.oracle.answers)) is not None:
            warnings.warn(warning, stacklevel=2)
        return trained.model

    def evaluate(
        self,
        model: "Model",
        *,
        epsilon: Exact | None = None,
        delta: Exact = 0,
        adaptive: int | None = None,
        **options: Any,
    ) -> "Evaluation | ClassEvaluation | MeasuredEvaluation | CountEvaluation | EventEvaluation":
        """The quality of a model on the parties' rows, as `rado learner evaluate` measures it.

        A model that was trained with rows held back is measured on these, any other on all rows. options: of
        `radofed.EvaluationOptions`.

        - delta: by default 0, which is Laplace noise.
        - adaptive: see `learner.federation.Federation.within`; each batch is about a piece of the rows.

        Raises ConfigurationError before anything is asked, and OracleRefusedError before anything is charged if too few
        parties would accept all batches.
        """
        from learner.questions import check_evaluation  # noqa: PLC0415  (imports the session)

        oracle, chosen, ask = _evaluation(
            cast("Federation", self), model, epsilon=epsilon, delta=delta, adaptive=adaptive, **options
        )
        for sentence in check_evaluation(model, oracle, chosen):
            warnings.warn(sentence.removeprefix("Warning: "), stacklevel=2)
        found: Evaluation | ClassEvaluation | MeasuredEvaluation | CountEvaluation | EventEvaluation
        found = ask(oracle)
        return found

    def plan(self, what: "Request | str", *values: Any, **options: Any) -> "Plan | PlannedInquiry | PlannedQuestions":
        """What a question would cost, and how exact its answer would be; nothing is sent.

        what: a request, or the name of a method with its arguments: `federation.plan("describe", by="sex", epsilon=1)`,
        `federation.plan("train", "newton", epsilon=1)`. Raises ConfigurationError for another name, PlanError if a
        training or an evaluation cannot be planned because no party states its rows, and as the method does.
        """
        federation = cast("Federation", self)
        if not isinstance(what, str):
            return federation.source.plan(what)
        if what in BY_QUERIES:
            raise ConfigurationError(f'name the method first: plan("train", {what!r}, epsilon=...)')
        if what not in _PLANNED:
            raise ConfigurationError(f"{what!r} is not planned here; {nearest(what, _PLANNED)}")
        if what in ("train", "evaluate"):
            return (_planned_training if what == "train" else _planned_evaluation)(federation, *values, **options)
        if what != "statistic":
            found: PlannedInquiry = getattr(_Planner(federation), what)(*values, **options)
            return found
        known = ("epsilon", "delta", "tolerance", "confidence")
        check_keywords(what, options, known)
        budget = {name: options.pop(name) for name in ("epsilon", "delta") if name in options}
        return federation.within(**budget).planned(*values, **options)


def _training(
    federation: "Federation",
    estimator: str,
    *,
    epsilon: Exact | None = None,
    delta: Exact = USUAL_DELTA,
    rounds: int | None = None,
    adaptive: int | None = None,
    hold_back: Exact | None = None,
    start_from: "Model | Path | str | None" = None,
    **options: Any,
) -> tuple[AskedTraining, "Federation"]:
    """What `train` asks, and the federation, or a part of its rows, that it asks. Raises as `train`."""
    if estimator in FROM_RELEASES and estimator not in BY_QUERIES:
        raise ConfigurationError(
            f"{estimator} learns from a release and asks nothing: ask for one by a session, and give it to "
            "radofed.train"
        )
    check_learns(estimator, federation.schema)
    check_keywords(estimator, options, (*_OF_TRAINING, *inspect.signature(class_of(estimator)).parameters))
    if epsilon is None:
        raise ConfigurationError("a training asks the parties: give the epsilon of all its answers, epsilon=1")
    budget = exact(epsilon, "epsilon"), exact(delta, "delta")
    chosen, adaptive = options | ({} if rounds is None else {"rounds": rounds}), whole(adaptive)
    made, start, share = make_estimator(estimator, **chosen), None, _left_out(federation)
    if hold_back is not None:
        if federation.held_back is not None:
            raise ConfigurationError("this federation is a part of the rows already: leave hold_back out")
        federation, share = federation.hold_back(hold_back)[0], exact(hold_back, "hold_back")
    if start_from is not None:
        source = Path(start_from) if isinstance(start_from, str) else start_from
        start = load_start(source, estimator, federation.schema, share, budget[1])
    return AskedTraining(estimator, made, federation.schema, *budget, federation.terms, adaptive, start), federation


def _planned_training(federation: "Federation", *values: Any, **options: Any) -> "PlannedQuestions":
    """The plan of `train`."""
    from learner.planned_questions import planned_questions  # noqa: PLC0415  (slow to import)

    if not values and "estimator" not in options:
        raise ConfigurationError('name the estimator: plan("train", "newton", epsilon=...)')
    if options.pop("journal", None) is not None:
        raise ConfigurationError("a plan keeps no journal: leave journal out")
    training, asked = _training(federation, *values, **options)
    units = asked.within(training.epsilon, training.delta).stated_units

    def ask(made_up: "Federation") -> tuple["BudgetedOracle", tuple[str, ...], str | None]:
        few = training.few_coefficients(made_up)
        trained = training.run(made_up)
        return trained.oracle, tuple(getattr(trained.estimator, "left_out_", ())), few

    return planned_questions(asked, f"a training of {training.name}", units, ask)


def _planned_evaluation(federation: "Federation", *values: Any, **options: Any) -> "PlannedQuestions":
    """The plan of `evaluate`."""
    from learner.planned_questions import planned_questions  # noqa: PLC0415  (slow to import)

    if not values and "model" not in options:
        raise ConfigurationError('give the model: plan("evaluate", model, epsilon=...)')
    oracle, _, _ = _evaluation(federation, *values, **options)

    def ask(made_up: "Federation") -> tuple["BudgetedOracle", tuple[str, ...], str | None]:
        asked, _, measure = _evaluation(made_up, *values, **options)
        measure(asked)
        return asked, (), None

    return planned_questions(federation, "an evaluation", oracle.stated_units, ask)


def _evaluation(
    federation: "Federation",
    model: "Model",
    *,
    epsilon: Exact | None = None,
    delta: Exact = 0,
    adaptive: int | None = None,
    **options: Any,
) -> tuple["BudgetedOracle", EvaluationOptions, Callable[["BudgetedOracle"], Any]]:
    """The oracle that `evaluate` asks, its options, and what asks it. Raises as `evaluate`."""
    if not hasattr(model, "schema"):
        raise ConfigurationError(f"the model is {model!r}: give what train() returned, or radofed.Model.load(...)")
    known = [*_OF_EVALUATION, *(field.name for field in declarations(EvaluationOptions))]
    check_keywords("evaluate", options, known)
    if epsilon is None:
        raise ConfigurationError("an evaluation asks the parties: give the epsilon of its answers, epsilon=1")
    chosen = EvaluationOptions(**options)
    if model.schema.digest != federation.schema.digest:
        raise ConfigurationError(
            f"the model's schema {model.schema.name!r} is another one than the federation's "
            f"{federation.schema.name!r}: evaluate it where its schema is shared"
        )
    model.scoring.check_evaluation(chosen)
    if adaptive is not None and model.held_back is None:
        raise ConfigurationError(
            "the model was trained on all rows, so nothing is claimed about new ones: leave adaptive out, or train "
            "with hold_back"
        )
    if model.held_back is not None:
        federation = federation.hold_back(model.held_back)[1]
    pieces = None if adaptive is None else Adaptive(whole(adaptive), Way.SPLIT)
    oracle = federation.within(epsilon, delta, pieces)
    return oracle, chosen, lambda asked: model.scoring.evaluate(model, asked, chosen)


def _left_out(federation: "Federation") -> Fraction | None:
    """The share that the federation's queries leave out already."""
    part = federation.held_back
    return part.share if part is not None and part.part is Part.TRAINING else None
