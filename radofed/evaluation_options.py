"""What `rado learner evaluate` and the console's page of evaluations share: options, checks and questions."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpcore.declared import Option
from dpcore.evaluation.options import EvaluationOptions
from wire.request_fields import DELTA_OR_ZERO, SPLIT_ADAPTIVE, AskOptions

if TYPE_CHECKING:
    from dpcore.records.held_back import HeldBack
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation
    from learner.model import Model
    from learner.progress import WouldAccept
    from learner.session import Session

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help is fast)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(EvaluationOptions, AskOptions):
    """The options of `rado learner evaluate`."""

    model: Annotated[Path, Option("A model that train wrote.", argument=True)]
    delta: Annotated[Fraction, DELTA_OR_ZERO] = Fraction(0)
    adaptive: Annotated[int | None, SPLIT_ADAPTIVE] = None
    calibrated: Annotated[
        Path | None, Option("Write the model with probabilities, calibrated on this evaluation, to this new file.")
    ] = None
    at_threshold: Annotated[
        Path | None,
        Option(
            "With --cost: write the model that decides at the threshold of the least cost to this new file; with "
            "--calibrated also with its probabilities."
        ),
    ] = None


def held_back_of(model: "Model") -> "HeldBack | None":
    """The rows that a model is measured on: those that were held back from its training, or all."""
    from dpcore.records.held_back import HeldBack, Part

    return None if model.held_back is None else HeldBack(model.held_back, Part.HELD_BACK)


def check_evaluated(model: "Model", options: EvaluateOptions) -> None:
    """Raise ConfigurationError if the model cannot be measured so."""
    from dpcore.errors import ConfigurationError

    if options.calibrated is not None and not model.scoring.has_classes:
        label = model.schema.label
        raise ConfigurationError(f"{label.column!r} is {label.words}, without probabilities: leave --calibrated out")
    model.scoring.check_evaluation(options)
    if options.adaptive is not None and model.held_back is None:
        raise ConfigurationError(
            "the model was trained without --hold-back: nothing is claimed about new rows, and what is claimed about "
            "these rows holds for any model, so leave --adaptive out"
        )


def evaluation_questions(
    model: "Model", federation: "Federation", oracle: "BudgetedOracle", options: EvaluationOptions
) -> tuple[list["WouldAccept"], str]:
    """Whether parties would accept each batch of an evaluation, and what is not known of the batches yet."""
    from learner.questions import ask_about, batches_of

    named, is_exact = batches_of(model, federation, options)
    found = ask_about(federation, oracle.epsilon, oracle.delta, named, model.feature_map, oracle.adaptive)
    return (
        found,
        ""
        if is_exact
        else "the edges of batch 2 are known once batch 1 is answered; even steps of probability stood for them",
    )


def evaluation_plan(
    model: "Model", federation: "Federation", oracle: "BudgetedOracle", options: EvaluateOptions, session: "Session"
) -> list[str]:
    """What an evaluation will ask, of how many parties, and what all batches cost, each a sentence. Asks nothing.

    Raises what asking raises before it asks.
    """
    from dpcore.accounting.words import figures
    from learner.planned_questions import planned_questions
    from learner.planning import megabytes
    from learner.questions import batches_of
    from radobase.printing import amount

    def ask(made_up: "Federation") -> "tuple[BudgetedOracle, tuple[str, ...], str | None]":
        asked = made_up.within(oracle.epsilon, oracle.delta, oracle.adaptive)
        model.scoring.evaluate(model, asked, options)
        return asked, (), None

    named, _ = batches_of(model, federation, options)
    parties = amount(len(session.selection(session.fetch_roster()).asked), "party")
    said = [
        f"an evaluation asks {parties} {amount(len(named), 'time')}",
        *(f"{batch.words}, epsilon {float(oracle.epsilon * batch.part):.4g}" for batch in named),
    ]
    units = oracle.stated_units
    if not units:
        bound = f"epsilon {float(oracle.epsilon):g} at delta {float(oracle.delta):g} under collusion"
        return [*said, f"in total, at most {bound}, with one attempt of each; no party has stated how many it has"]
    planned = planned_questions(federation, "an evaluation", units, ask)
    cost = planned.statement
    assert cost.epsilon is not None, "statistics with noise have a bound"
    assert cost.epsilon_if_others_collude is not None, "it has both"
    assert cost.delta is not None, "it has both"
    total = figures(cost.epsilon, cost.epsilon_if_others_collude, cost.delta)
    size = f"each party uploads {megabytes(planned.upload_bytes_per_party)} MB"
    return [*said, f"in total, {total}, for {cost.unit}, with one attempt of each; {size}"]
