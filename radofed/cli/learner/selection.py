"""`rado learner select`: which of several candidates has the best score on the parties' rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dpcore.declared import Option
from radobase.printing import columns as table
from radobase.printing import in_lines
from radofed.cli.learner.histograms import planned_counts
from radofed.cli.learner.sessions import asked_federation, question_result
from radofed.cli.output import Output, Result
from wire.request_fields import CONFIDENCE, LABEL, AskOptions

if TYPE_CHECKING:
    from dpcore.predicates.expressions import Predicate
    from dpcore.records.feature_map import FeatureMap
    from dpcore.records.held_back import HeldBack
    from dpcore.records.schema import Schema


@dataclass(frozen=True, kw_only=True)
class SelectOptions(AskOptions):
    """The options of `rado learner select`."""

    predicate: Annotated[
        tuple[str, ...], Option("Candidates as of `rado learner statistic`; none with --model.", argument=True)
    ] = ()
    schema: Annotated[Path | None, Option("The schema that the parties share; models have theirs.")] = None
    label: Annotated[str | None, LABEL] = None
    model: Annotated[
        tuple[Path, ...], Option("A model that train wrote, as a candidate; repeatable. Right predictions are counted.")
    ] = ()
    weight: Annotated[
        tuple[float, ...],
        Option("What a row counts for a candidate, such as its price; repeatable, in the order of the candidates."),
    ] = ()
    tolerance: Annotated[
        float | None,
        Option("How much the best expectation may be above the chosen one; an error before any query.", above=0),
    ] = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    plan: Annotated[bool, Option("Print the query's cost and its noise; ask nothing.")] = False


@dataclass(frozen=True)
class _Candidates:
    """What is compared, and on which rows."""

    names: Sequence[str]
    predicates: Sequence["Predicate"]
    schema: "Schema"
    feature_map: "FeatureMap | None" = None
    held_back: "HeldBack | None" = None
    unseen: bool = True


def select(output: Output, options: SelectOptions) -> Result:
    """Choose the candidate with the best score on the parties' rows.

    A candidate is a predicate, whose score is the share of rows for which it holds, or a model, whose score is the
    share that it predicts right. Models that were trained with --hold-back are compared on the rows held back.

    Asks one batch of statistics. All noisy scores are revealed, so all are paid for: candidates that exclude one
    another cost as much as two, others as many as there are.
    """
    from dpcore.errors import ConfigurationError
    from dpcore.evaluation.selection import select as ask_selection
    from learner.questions import QuestionAnsweredError

    if options.model and (options.predicate or options.schema is not None or options.label is not None):
        raise ConfigurationError("compare either models, which have their schema, or predicates: give one of the two")
    found = _of_models(options.model) if options.model else _of_predicates(options)
    with asked_federation(output, options, found.schema, found.held_back) as federation:
        oracle = federation.within(*options.budget("a selection"))
        if options.plan:
            distinct = tuple(dict.fromkeys(found.predicates))
            return planned_counts(oracle.planned(distinct), distinct, options.confidence)
        try:
            chosen = ask_selection(
                found.predicates,
                oracle,
                weights=options.weight or None,
                tolerance=options.tolerance,
                confidence=options.confidence,
                feature_map=found.feature_map,
            )
        except QuestionAnsweredError as answered:
            return question_result([answered.found])
    statement = oracle.statement()
    scores = [(f"{score:.5f}", name) for score, name in zip(chosen.scores.tolist(), found.names, strict=True)]
    lines = [*table(("score", "candidate"), scores, right=(0,)), *chosen.sentences(found.names, unseen=found.unseen)]
    data = {**chosen.to_dict(found.names, unseen=found.unseen), "privacy": statement.to_dict()}
    return Result(data, in_lines([*lines, *statement.short_sentences()]))


def _of_predicates(options: SelectOptions) -> _Candidates:
    from dpcore.errors import ConfigurationError
    from dpcore.predicates.evaluation import check
    from dpcore.predicates.notation import parse
    from radobase.schema_files import load_schema

    if options.schema is None:
        raise ConfigurationError("predicates are about columns: give the --schema that the parties share")
    schema, predicates = load_schema(options.schema, options.label), [parse(text) for text in options.predicate]
    if predicates:
        # Check before connecting.
        check(list(dict.fromkeys(predicates)), schema)
    return _Candidates(options.predicate, predicates, schema)


def _of_models(files: Sequence[Path]) -> _Candidates:
    from dpcore.errors import ConfigurationError
    from dpcore.records.held_back import HeldBack, Part
    from learner.model import Model

    models = [Model.load(file) for file in files]
    first = models[0]
    for file, model in zip(files, models, strict=True):
        if model.schema != first.schema or model.feature_map != first.feature_map:
            raise ConfigurationError(
                f"{file} is over other coordinates than {files[0]}: one query has one schema and one map; evaluate each"
            )
        if model.held_back != first.held_back:
            raise ConfigurationError(f"{file} and {files[0]} hold other shares of rows back: train them with one share")
    held_back = None if first.held_back is None else HeldBack(first.held_back, Part.HELD_BACK)
    predicates = [model.scoring.is_right(model) for model in models]
    names = list(map(str, files))
    return _Candidates(names, predicates, first.schema, first.feature_map, held_back, unseen=held_back is not None)
