"""`rado learner train|evaluate|statistic|predict`: train models, measure them and use them."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcore.declared import Option, first_changed
from dpcore.numbers.rationals import upper
from radobase.options import named_options
from radobase.printing import amount, columns, in_lines, json_text
from radofed.cli.framework import check_directory, check_new
from radofed.cli.learner.event_times import predicted_times, ratio_lines
from radofed.cli.learner.prediction_files import scores_csv, values_csv
from radofed.cli.learner.sessions import ASKING, asked_federation, asked_source, question_result, split_of
from radofed.cli.output import Output, Result
from radofed.evaluation_options import (
    EvaluateOptions,
    check_evaluated,
    evaluation_plan,
    evaluation_questions,
    held_back_of,
)
from wire.request_fields import (
    ADAPTIVE,
    CONFIDENCE,
    LABEL,
    LOCAL,
    NOISE_RATE,
    AskOptions,
    TrainOptions,
)

if TYPE_CHECKING:
    from dpcore.evaluation.class_evaluation import ClassEvaluation
    from dpcore.evaluation.evaluation import Evaluation
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation
    from learner.model import Model
    from learner.predictions import Predictions


@dataclass(frozen=True, kw_only=True)
class StatisticOptions(AskOptions):
    """The options of `rado learner statistic`."""

    predicate: Annotated[
        tuple[str, ...], Option("Such as '(x[\"age\"] >= 65) & (y == 1)'; several make one batch.", argument=True)
    ]
    schema: Annotated[Path, Option("The schema that the parties share.")]
    label: Annotated[str | None, LABEL] = None
    tolerance: Annotated[
        float | None,
        Option("Largest tolerance allowed; an error before any query if the rows are too few.", above=0, below=1),
    ] = None
    confidence: Annotated[float, CONFIDENCE] = 0.95
    noise_rate: Annotated[float, NOISE_RATE] = 0.0
    adaptive: Annotated[int | None, ADAPTIVE] = None
    local: Annotated[bool, LOCAL] = False


def train(output: Output, options: TrainOptions) -> Result:
    """Train a model on a release, or by queries.

    A release costs no further privacy. Releases of several epochs add up to one over all their rows.

    Queries to the parties stay within the budget --epsilon, unless you decide on another attempt: the error that asks
    for it says what epsilon becomes. To continue training that was interrupted, run the same command again.

    Nothing is charged if too few parties say, before the first query, that they would accept all of it. If they refuse
    a later round even so, the estimator keeps its last iterate and reports what was spent.
    """
    from dpcore.errors import ConfigurationError
    from dpcore.records.features import nearest
    from learner.estimators import BY_QUERIES, FROM_RELEASES

    name, to = options.estimator, options.to
    check_new(to)
    check_directory(to)
    if name not in (*BY_QUERIES, *FROM_RELEASES):
        raise ConfigurationError(f"no estimator is called {name!r}; {nearest(name, (*BY_QUERIES, *FROM_RELEASES))}")
    if name not in BY_QUERIES:
        if odd := first_changed(
            options,
            (*ASKING, "schema", "label", "rounds", "class_weight", "journal", "hold_back", "adaptive", "start_from"),
        ):
            raise ConfigurationError(f"{name} learns from a release and takes no {odd}; leave it out")
        if not options.release:
            raise ConfigurationError(f"{name} learns from a release: give its directory")
        if len(options.release) == 1 and options.forgetting is not None:
            raise ConfigurationError("--forgetting weighs the releases of several epochs: name them, oldest first")
        return _train_on(output, options, named_options(options.option))
    if options.release or options.forgetting is not None:
        raise ConfigurationError(f"{name} queries the parties and takes no release: leave the release out")
    if options.schema is None:
        raise ConfigurationError(f"{name} queries the parties: give the --schema that they share")
    return _train_by_queries(output, name, options, options.schema)


def _train_by_queries(output: Output, name: str, options: TrainOptions, file: Path) -> Result:
    """Train the estimator `name` by queries over the schema of a file."""
    from learner.federation import Federation
    from learner.training import AskedTraining, warning_of
    from radobase.schema_files import load_schema
    from radofed.planning.asked_queries import ask_whole

    schema, to = load_schema(file, options.label), options.to
    training = AskedTraining.of(name, options, schema)
    if options.would_accept:
        # About each kind of query of a training, at its whole budget.
        with asked_source(output, replace(options, ask_again=False, reuse=False), None) as source:
            return question_result(*ask_whole(source.session, name, options, schema, options.timeout_s))
    with asked_source(output, options, options.journal or to.with_name(f"{to.name}.journal")) as source:
        federation = Federation(source, schema, **training.terms)
        session = source.session
        output.note(training.before_asking(len(session.selection(session.fetch_roster()).asked)))
        if (few := training.few_coefficients(federation)) is not None:
            output.note(f"warning: {few}")
        trained = training.run(federation)
    model, found = trained.model, trained.oracle.answers
    answers = len(found)
    rows = max(sum(answer.party_rows.values()) for answer in found)
    data = {**_saved(output, model, trained.estimator, warning_of(trained.estimator, found), to), "answers": answers}
    words = f"{to}: {name} over {amount(rows, 'row')}{_but_held_back(model)}, {answers} answer{'s' * (answers != 1)}"
    promised = [data["guarantee"]] if data["guarantee"] is not None else []
    promised += model.decision_sentences
    if model.log_hazards is not None:
        promised += ratio_lines(model)
    if model.started_from is not None:
        words += f", started from {options.start_from}"
    return Result(data, in_lines([words, *promised, *model.statement.short_sentences()]))


def _but_held_back(model: "Model") -> str:
    return "" if model.held_back is None else f" less those held back, a share of {float(model.held_back):g}"


def _saved(output: Output, model: "Model", estimator: Any, warning: str | None, to: Path) -> dict[str, Any]:
    """Save a model, print the warning of its training, for example of separated rados, and return the JSON fields."""
    from learner.estimators import guarantee_of

    model.save(to)
    if warning is not None:
        output.note(f"warning: {warning}")
    data = {
        "model": to,
        "estimator": model.estimator,
        "learner": model.estimator,
        "d": model.schema.d,
        "release_digest": model.release_digest,
        "held_back": None if model.held_back is None else str(model.held_back),
        "epochs": model.epochs,
        "started_from": model.started_from,
        "class_weights": model.class_weights,
    }
    guarantee = guarantee_of(estimator)
    return {**data, "privacy": model.statement.to_dict(), "warning": warning, "guarantee": guarantee}


def _train_on(output: Output, asked: TrainOptions, options: dict[str, Any]) -> Result:
    """Train an estimator on a saved release, or on those of several epochs."""
    from learner.epoch_releases import EpochReleases
    from learner.estimators import make_estimator
    from learner.release import Release
    from learner.training import fitted, model_of, warning_of

    name, to = asked.estimator, asked.to
    # Check the options before a release is loaded, which may be slow.
    make_estimator(name, **{option: value for option, value in options.items() if option != "synthetic_rados"})
    several = tuple(map(Release.load, asked.release))
    loaded = several[0] if len(several) == 1 else EpochReleases(several, asked.forgetting or Fraction(1))
    width = loaded.schema.d if loaded.query.feature_map is None else loaded.query.feature_map.d
    output.note(f"training {name} on {loaded.contents} of {width} coordinates ...")
    estimator = fitted(loaded, name, **options)
    model = model_of(estimator, loaded, name)
    data = _saved(output, model, estimator, warning_of(estimator, loaded), to)
    return Result(data, f"{to}: {name} over {amount(loaded.cohort_rows, 'row')}{_but_held_back(model)}")


def evaluate(output: Output, options: EvaluateOptions) -> Result:
    """Measure a model on the parties' rows.

    Prints error, rates, calibration and ROC, with intervals. A model that was trained with --hold-back is measured on
    the rows that were held back, also with intervals for new rows. Any other is measured on all rows, and nothing is
    claimed about new ones.

    Asks two batches of statistics, with Laplace noise unless --delta is given: where the scores are, then the rows of
    each label in each bin of scores. The parties charge both, one after the other.

    Says first what it asks, and what all of it costs. Several batches are sent only if enough parties say before that
    they would accept all of them.

    For the noise alone the interval of the error is about 40 / (rows x epsilon) wide.

    With --adaptive K each batch is one of K questions, about a piece of the rows: for models that were chosen, or
    trained, after earlier evaluations on the same rows.

    Of several classes it asks one batch, the rows of each class by predicted class, and prints what is right of each
    class's rows and predictions. --calibrated then gives each predicted class the probabilities of all classes. With
    --cost it also counts with shifted scores, and prints which shifts cost least.

    Of a number it asks three batches, and prints R^2, the mean absolute and squared error and the bias in the label's
    units, and observed beside predicted values.

    Of a count it asks three batches, and prints the explained deviance, and observed beside predicted rates. Of a time
    to an event it asks two, and prints concordance and the Brier score at each end of an interval.
    """
    from dpcore.errors import ConfigurationError
    from learner.model import Model

    if options.at_threshold is not None and options.cost is None:
        raise ConfigurationError("--at-threshold writes the model of the least cost: give --cost too")
    calibrated = options.calibrated
    for new in filter(None, (calibrated, options.at_threshold)):
        check_new(new)
        check_directory(new)
    loaded = Model.load(options.model)
    check_evaluated(loaded, options)
    with asked_federation(output, options, loaded.schema, held_back_of(loaded)) as federation:
        oracle = federation.within(*options.budget("evaluate"), split_of(options.adaptive))
        if options.would_accept:
            asked, unknown = evaluation_questions(loaded, federation, oracle, options)
            return question_result(asked, note=unknown)
        if not options.reuse:
            _note_before(output, loaded, federation, oracle, options)
        found = loaded.scoring.evaluate(loaded, oracle, options)
    statement = oracle.statement()
    data = {"model": options.model, "model_digest": loaded.digest, **found.to_dict(), "privacy": statement.to_dict()}
    lines = [*found.sentences(), *_table_of(found), *statement.short_sentences()]
    if calibrated is not None:
        lines.append(_save_calibrated(output, loaded, found, calibrated, data))
    if options.at_threshold is not None:
        lines.append(_save_at_threshold(output, loaded, found, options, data))
    return Result(data, in_lines(lines))


def _note_before(
    output: Output, model: "Model", federation: "Federation", oracle: "BudgetedOracle", options: EvaluateOptions
) -> None:
    """Note what an evaluation asks and costs, and ask first whether parties would accept all batches.

    Raises WireError if too few would.
    """
    from learner.journal import SessionSource
    from learner.questions import check_evaluation

    source = federation.source
    assert isinstance(source, SessionSource), "the federation is one of organisations"
    for sentence in evaluation_plan(model, federation, oracle, options, source.session):
        output.note(sentence)
    for sentence in check_evaluation(model, oracle, options):
        output.note(sentence)


def _table_of(found: Any) -> list[str]:
    """What is decided at each threshold, or observed in each bin of predictions, of evaluations that have it."""
    if not hasattr(found, "table"):
        return []
    header, rows = found.table()
    return columns(header, rows, right=range(4))


def _save_calibrated(
    output: Output, model: "Model", found: "Evaluation | ClassEvaluation", to: Path, data: dict[str, Any]
) -> str:
    """Save the calibrated model, and say so. What was paid for is printed, also if it is too little for that."""
    from dpcore.errors import ModelError

    data["calibrated"] = None
    try:
        better = model.calibrated(found)
    except ModelError as error:
        output.note(f"warning: {error}")
        return f"{to}: not written, for the reason above"
    better.save(to)
    data["calibrated"] = to
    return f"{to}: the model with probabilities"


def _save_at_threshold(
    output: Output,
    model: "Model",
    found: "Evaluation | ClassEvaluation",
    options: EvaluateOptions,
    data: dict[str, Any],
) -> str:
    """Save the model that decides at the threshold, and say so; what was paid for is printed if there is none."""
    from dpcore.errors import ModelError

    to = options.at_threshold
    assert to is not None, "a file is given"
    assert found.least_cost is not None, "a cost is given"
    data["at_threshold"] = None
    try:
        if data.get("calibrated") is not None:
            model = model.calibrated(found)
        better = model.at_threshold(found.least_cost)
    except ModelError as error:
        output.note(f"warning: {error}")
        return f"{to}: not written, for the reason above"
    if (warning := found.least_cost.warning()) is not None:
        output.note(f"w{warning[1:]}")
    better.save(to)
    data["at_threshold"] = to
    return f"{to}: the model that decides so"


def statistic(output: Output, options: StatisticOptions) -> Result:
    """Estimate how often predicates hold in the parties' rows.

    Prints the fraction of all parties' rows for each predicate, and its tolerance.

    x["name"] is a feature in its own units, y the label (1 or -1), z["name"] a coordinate scaled to [-1, 1]. Combine
    them with &, | and ~. docs/asking.md has the grammar.
    """
    from dpcore.predicates.evaluation import check
    from dpcore.predicates.notation import parse
    from learner.questions import QuestionAnsweredError
    from radobase.schema_files import load_schema

    shared, tolerance = load_schema(options.schema, options.label), options.tolerance
    predicates = tuple(parse(text) for text in options.predicate)
    # Check before connecting.
    check(predicates, shared)
    with asked_federation(output, options, shared) as federation:
        oracle = federation.within(*options.budget("statistic"), options.adaptive)
        try:
            found = oracle.statistic(
                predicates,
                tolerance=tolerance,
                confidence=options.confidence,
                noise_rate=options.noise_rate,
                local=options.local,
            )
        except QuestionAnsweredError as answered:
            return question_result([answered.found])
    if tolerance is not None and found.tolerance > tolerance:
        # The cohort may have fewer rows than all parties that are asked.
        output.note(f"warning: {amount(found.rows, 'row')} are too few for a tolerance of {tolerance:g}")
    statement = oracle.statement()
    widths = {name: getattr(found, name) for name in ("tolerance", "sampling", "quantisation", "noise")}
    each = list(zip(options.predicate, found.values.tolist(), strict=True))
    estimates = [{"predicate": text, "estimate": value} for text, value in each]
    data = {"estimates": estimates, "rows": found.rows, "confidence": found.confidence, **widths}
    data["premise"] = found.premise
    width = upper(found.tolerance, 5)
    lines = [f"{value:.5f} +- {width}  {text}" for text, value in each]
    lines.append(
        f"over {amount(found.rows, 'row')}; all tolerances hold with probability {found.confidence:g}: sampling "
        f"{upper(found.sampling, 5)}, quantisation {upper(found.quantisation, 5)}, noise {upper(found.noise, 5)}"
    )
    lines.append(f"this holds {found.premise}")
    lines.append("for these rows alone, each estimate is exact up to quantisation and noise, without sampling")
    return Result({**data, "privacy": statement.to_dict()}, in_lines([*lines, *statement.short_sentences()]))


def predict(
    output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file of rows.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a line for each row to this new CSV file.")
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id-column", help="With --output: a column to copy beside each row's number, such as an id."),
    ] = None,
) -> Result:
    """Predict the label of every row. If the file has labels, count the errors.

    Scores depend on the features only. The file of --output has the row's number, its score, its label as 1 or -1 and
    as the schema's text, and the probability of the positive label, if the model has probabilities.

    Of several classes it has the label's text, a score and a probability of each class. Errors are counted by class.
    Of a number or a count it has the prediction in the label's units, and R^2 or the explained deviance is printed.

    Of a time to an event it has the logarithm of the hazard ratio to a record of zeros, survival at each end of an
    interval, and the mean time up to the horizon. Hazard ratios are printed, and concordance and Brier score.
    """
    from dpcore.errors import ConfigurationError
    from learner.model import Model
    from learner.predictions import count_errors
    from learner.predictions import predict as predict_rows
    from learner.uncertainty import probability_in_words
    from radobase.tables.tables import open_table

    if to is not None:
        check_new(to)
        check_directory(to)
    elif id_column is not None:
        raise ConfigurationError("--id-column is for the file of scores: give its --output, or leave it out")
    loaded = Model.load(model)
    found = predict_rows(loaded, file)
    if found.survival is not None:
        return predicted_times(loaded, found, file, to, id_column)
    if found.values is not None:
        return _predicted_numbers(loaded, found, file, to, id_column)
    scoring = loaded.scoring
    rows, usable = len(found.labels), int((found.labels != scoring.undecided).sum())
    counts, words = scoring.counted(found.labels)
    data: dict[str, Any] = {"rows": rows, "usable": usable, **counts}
    lines = [f"{amount(rows, 'row')}, {rows - usable} of them not usable; {words}"]
    lines += [*loaded.decision_sentences, *(change.sentence for change in found.changes)]
    data["changes"] = [change.to_dict() for change in found.changes]
    if loaded.schema.label.column in open_table(file).columns:
        errors = count_errors(loaded, file)
        by_class, said = scoring.errors_by_class(errors)
        data |= {"error_rate": errors.rate, "labelled": errors.compared, "wrong": errors.wrong, **by_class}
        lines += [errors.sentence(), *said]
    data["probability"] = probability_in_words(loaded)
    if to is not None:
        to.write_text(scores_csv(scoring, found, file, id_column), encoding="utf-8")
        lines.append(f"{to}: a line for each row; without score and label if the row is not usable")
        output.note(f"probabilities: {probability_in_words(loaded)}")
    return Result({**data, "file": to}, in_lines(lines))


def _predicted_numbers(
    model: "Model", found: "Predictions", file: Path, to: Path | None, id_column: str | None
) -> Result:
    """What `predict` says of a label that is a number or a count."""
    from learner.measured_models import measured_errors
    from radobase.tables.tables import open_table

    assert found.values is not None, "a number has values"
    rows, known = len(found.values), found.values[found.labels > 0]
    data: dict[str, Any] = {"rows": rows, "usable": len(known)}
    data["predicted_mean"] = float(known.mean()) if len(known) else None
    lines = [f"{amount(rows, 'row')}, {rows - len(known)} of them not usable"]
    if len(known):
        lines.append(f"predicted: {known.min():.6g} to {known.max():.6g}, {known.mean():.6g} on average")
    lines += [change.sentence for change in found.changes]
    data["changes"] = [change.to_dict() for change in found.changes]
    if set(model.schema.label.columns) <= set(open_table(file).columns):
        errors = measured_errors(model, file)
        data |= errors.to_dict()
        lines.append(errors.sentence())
    if to is not None:
        to.write_text(values_csv(model.schema, found, file, id_column), encoding="utf-8")
        lines.append(f"{to}: a line for each row; without a prediction if the row is not usable")
    return Result({**data, "file": to}, in_lines(lines))


# `rado learner export`: write a model for use without radofed.


class Target(StrEnum):
    """The format of an exported model."""

    JSON = "json"
    SKLEARN = "sklearn"


def export(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    to: Annotated[Path, typer.Option("--output", "-o", help="Write the JSON to this new file.", show_default=False)],
    target: Annotated[
        Target, typer.Option("--to", help="json; sklearn prints how to make an estimator in Python.")
    ] = Target.JSON,
) -> Result:
    """Write a model as JSON, in the units of its columns.

    The file has the rules for its use, too. For a scikit-learn estimator use Python: Model.load(...).to_sklearn(). A
    file of one would be a pickle, and loading a pickle runs its author's code.
    """
    from dpcore.errors import ConfigurationError, ModelError
    from learner.model import Model
    from radobase.writing import write_durably

    if target is Target.SKLEARN:
        raise ConfigurationError(
            "a scikit-learn estimator in a file is a pickle, unsafe to load; in Python, write "
            "radofed.Model.load(pathlib.Path(FILE)).to_sklearn()"
        )
    check_new(to)
    exported = Model.load(model).to_original_units()
    content = json_text(exported, indent=2, allow_nan=False) + "\n"
    try:
        write_durably(to, content.encode())
    except OSError as error:
        raise ModelError(f"{to}: cannot be written ({error.strerror}); choose another place") from error
    data = {"model": model, "file": to, "format": exported["format"], "features": len(exported["features"])}
    return Result(data, f"{to}: {len(exported['features'])} features in the units of their columns")
