"""`rado learner train|evaluate|predict`: from answers to a model, and from a model to what it is worth."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radofed.cli.arguments import OldEstimator, estimator_option, exact, named_option
from radofed.cli.framework import check_directory, check_new, command
from radofed.cli.learner.queries import Timeout
from radofed.cli.output import Output, QueryProgress, Result

if TYPE_CHECKING:
    from dpcore.records.schema import Schema
    from learner.federation import BudgetedOracle, Federation
    from learner.model import Model

# ruff: noqa: PLC0415  (a command imports what it needs when it runs, so that help comes at once)

ESTIMATOR_HELP = (
    "From a release: mean-variance, for rados and moments; radoboost, radoboost-l1, -l2, -linf or -slope, for rados; "
    "moments-discriminant, for moments. By asking: newton, logistic-gd, hinge-gd, logistic-regression, "
    "linear-regression, naive-bayes, conjunction, decision-stump, decision-list, point, threshold."
)

DEFAULT_ESTIMATOR = "mean-variance"

MaybeConfig = Annotated[
    Path | None, typer.Option("--config", "-c", help="The learner's configuration file; to ask.", show_default=False)
]
Epsilon = Annotated[str | None, typer.Option(help="To ask: the whole budget, when the others collude; exact.")]
Delta = Annotated[str, typer.Option(help="The delta that epsilon is counted at, exact; 0 takes Laplace noise alone.")]
CohortMin = Annotated[int | None, typer.Option(help="The fewest parties of a cohort.")]
Colluders = Annotated[int | None, typer.Option(help="Parties assumed to collude.")]
MaxRows = Annotated[int | None, typer.Option(help="The most rows that a cohort may have.")]


def add_to(app: typer.Typer) -> None:
    """Make them commands of `app`."""
    for name, function in (("train", train), ("evaluate", evaluate), ("statistic", statistic), ("predict", predict)):
        command(app, name)(function)


def train(
    output: Output,
    to: Annotated[Path, typer.Option("--output", "-o", help="Write the model there.", show_default=False)],
    release: Annotated[
        Path | None,
        typer.Argument(help="The directory of a release; none for an estimator that asks.", show_default=False),
    ] = None,
    estimator: Annotated[str | None, typer.Option(help=ESTIMATOR_HELP, show_default=DEFAULT_ESTIMATOR)] = None,
    learner: OldEstimator = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the estimator as NAME=VALUE, such as n_rounds=500; repeatable."),
    ] = None,
    config: MaybeConfig = None,
    schema: Annotated[Path | None, typer.Option(help="To ask: the schema that the parties share.")] = None,
    epsilon: Epsilon = None,
    delta: Delta = "1e-6",
    rounds: Annotated[int | None, typer.Option(help="To ask: how many rounds, for estimators that have them.")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="To ask: what was asked; the same command goes on from it. By default beside MODEL."),
    ] = None,
    cohort_min: CohortMin = None,
    colluders: Colluders = None,
    max_rows: MaxRows = None,
    timeout_s: Timeout = None,
) -> Result:
    """Train a model: on a release, which costs no more privacy, or by asking the parties within a budget.

    An estimator that asks in several rounds continues where it was interrupted: run the same command again. Where the
    parties refuse in the middle, it keeps its last iterate and says what was spent.
    """
    from dpcore.errors import ConfigurationError
    from dpcore.records.features import nearest
    from learner.estimators import BY_QUERIES, FROM_RELEASES, make_estimator

    name = estimator_option(output, estimator, learner) or DEFAULT_ESTIMATOR
    check_new(to)
    check_directory(to)
    options = dict(named_option(text) for text in option or ())
    if name not in (*BY_QUERIES, *FROM_RELEASES):
        raise ConfigurationError(f"no estimator is called {name!r}; {nearest(name, (*BY_QUERIES, *FROM_RELEASES))}")
    if name not in BY_QUERIES:
        asks = {"--config": config, "--schema": schema, "--epsilon": epsilon, "--rounds": rounds, "--journal": journal}
        if given := [option for option, value in asks.items() if value is not None]:
            raise ConfigurationError(f"{name} learns from a release and takes no {given[0]}; leave it out")
        if release is None:
            raise ConfigurationError(f"{name} learns from a release: give its directory")
        return _train_on(output, release, to, name, options)
    if release is not None:
        raise ConfigurationError(f"{name} asks for what it learns from: leave the release out")
    if schema is None:
        raise ConfigurationError(f"{name} asks: give the --schema that the parties share")
    from learner.training import model_of_answers
    from radofed.common.files.schemas import load_schema

    if rounds is not None:
        options["rounds"] = rounds
    asking = make_estimator(name, **options)
    journal = journal or to.with_name(f"{to.name}.journal")
    terms = _terms(cohort_min, colluders, max_rows)
    with _federation(output, config, load_schema(schema), terms, timeout_s, journal) as federation:
        oracle = _within(federation, name, epsilon, delta)
        asking.fit_queries(oracle)
        model = model_of_answers(asking, oracle, name)
    answers = len(oracle.answers)
    rows = max(sum(answer.party_rows.values()) for answer in oracle.answers)
    data = {**_saved(output, model, asking, to), "answers": answers}
    words = f"{to}: {name} over {rows} rows, {answers} answer{'s' * (answers != 1)}"
    return Result(data, "\n".join([words, *model.statement.sentences()]))


def _saved(output: Output, model: "Model", estimator: Any, to: Path) -> dict[str, Any]:
    """Save a model and print its estimator's warning, such as that theta separates the rados; what JSON says of it."""
    model.save(to)
    warning = getattr(estimator, "warning_", None)
    if warning is not None:
        output.note(f"warning: {warning}")
    data = {
        "model": to,
        "estimator": model.learner,
        "learner": model.learner,
        "d": model.schema.d,
        "release_digest": model.release_digest,
    }
    return {**data, "privacy": model.statement.to_dict(), "warning": warning}


def _train_on(output: Output, release: Path, to: Path, name: str, options: dict[str, Any]) -> Result:
    from learner.estimators import make_estimator
    from learner.release import Release
    from learner.training import fitted, model_of

    # What is misspelt need not wait for a release to load.
    make_estimator(name, **{option: value for option, value in options.items() if option != "synthetic_rados"})
    loaded = Release.load(release)
    output.note(f"training {name} on {loaded.contents} of {loaded.schema.d} coordinates ...")
    estimator = fitted(loaded, name, **options)
    data = _saved(output, model_of(estimator, loaded, name), estimator, to)
    return Result(data, f"{to}: {name} over {loaded.rows} rows")


def evaluate(
    output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    config: MaybeConfig = None,
    epsilon: Epsilon = None,
    delta: Delta = "1e-6",
    confidence: Annotated[float, typer.Option(help="How sure all intervals together are.")] = 0.95,
    bins: Annotated[int, typer.Option(help="Bins of the scores, for calibration and ROC.")] = 20,
    scale: Annotated[float, typer.Option(help="Of the bins' edges, for scores that are no log odds.")] = 1.0,
    cohort_min: CohortMin = None,
    colluders: Colluders = None,
    max_rows: MaxRows = None,
    timeout_s: Timeout = None,
) -> Result:
    """Ask the parties how good a model is on their rows: error, confusion matrix, calibration, ROC, with intervals.

    One batch of statistics, charged as any other query.
    """
    from dpcore.evaluation.evaluation import evaluate as ask_evaluation
    from learner.model import Model

    loaded = Model.load(model)
    terms = _terms(cohort_min, colluders, max_rows)
    with _federation(output, config, loaded.schema, terms, timeout_s, None) as federation:
        oracle = _within(federation, "evaluate", epsilon, delta)
        found = ask_evaluation(loaded.theta, oracle, confidence=confidence, bins=bins, scale=scale)
    statement = oracle.statement()
    data = {"model": model, **found.to_dict(), "privacy": statement.to_dict()}
    return Result(data, "\n".join([*found.sentences(), *statement.sentences()]))


def statistic(
    output: Output,
    predicate: Annotated[
        list[str],
        typer.Argument(help="Such as '(x[\"age\"] >= 65) & (y == 1)'; several are one batch.", show_default=False),
    ],
    schema: Annotated[Path, typer.Option(help="The schema that the parties share.", show_default=False)],
    config: MaybeConfig = None,
    epsilon: Epsilon = None,
    delta: Delta = "1e-6",
    tolerance: Annotated[
        float | None, typer.Option(help="Refuse where so few rows cannot keep it, before anybody is asked.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure all tolerances together are.")] = 0.95,
    noise_rate: Annotated[
        float, typer.Option(help="Labels are known to be flipped at this rate; correct for it.")
    ] = 0.0,
    cohort_min: CohortMin = None,
    colluders: Colluders = None,
    max_rows: MaxRows = None,
    timeout_s: Timeout = None,
) -> Result:
    """Ask for the fraction of all parties' rows for which each predicate holds, with the tolerance it really has.

    x["name"] is a feature in its own units, y the label (1 or -1), z["name"] a coordinate scaled to [-1, 1]; &, |, ~
    join. docs/asking.md has the whole grammar.
    """
    from dpcore.predicates.checking import check
    from dpcore.predicates.notation import parse
    from radofed.common.files.schemas import load_schema

    shared = load_schema(schema)
    predicates = tuple(parse(text) for text in predicate)
    # Before a connection is made.
    check(predicates, shared)
    terms = _terms(cohort_min, colluders, max_rows)
    with _federation(output, config, shared, terms, timeout_s, None) as federation:
        oracle = _within(federation, "statistic", epsilon, delta)
        found = oracle.statistic(predicates, tolerance=tolerance, confidence=confidence, noise_rate=noise_rate)
    if tolerance is not None and found.tolerance > tolerance:
        # Parties of the cohort may have fewer rows than the roster's have together.
        output.note(f"warning: a tolerance of {tolerance:g} is not kept: {found.rows} rows are too few for it")
    statement = oracle.statement()
    widths = {name: getattr(found, name) for name in ("tolerance", "sampling", "quantisation", "noise")}
    estimates = [
        {"predicate": text, "estimate": value} for text, value in zip(predicate, found.values.tolist(), strict=True)
    ]
    data = {"estimates": estimates, "rows": found.rows, "confidence": found.confidence, **widths}
    lines = [
        f"{value:.5f} +- {found.tolerance:.5f}  {text}" for text, value in zip(predicate, found.values, strict=True)
    ]
    lines.append(
        f"over {found.rows} rows; all tolerances hold together with probability {found.confidence:g}: sampling "
        f"{found.sampling:.5f}, quantisation {found.quantisation:.5f}, noise {found.noise:.5f}"
    )
    lines.append("on these rows themselves, without sampling, each is right to quantisation and noise")
    return Result({**data, "privacy": statement.to_dict()}, "\n".join([*lines, *statement.sentences()]))


@contextmanager
def _federation(
    output: Output,
    config: Path | None,
    schema: "Schema",
    terms: dict[str, Any],
    timeout_s: float | None,
    journal: Path | None,
) -> "Iterator[Federation]":
    from dpcore.errors import ConfigurationError
    from learner.config import LearnerConfig
    from learner.federation import Federation
    from learner.journal import SessionSource
    from learner.session import Session, check_timeout

    check_timeout(timeout_s)
    if config is None:
        raise ConfigurationError("this asks the parties: give the learner's --config")
    with Session(LearnerConfig.load(config)) as session:
        source = SessionSource(session, journal, on_status=QueryProgress(), timeout_s=timeout_s, note=output.note)
        yield Federation(source, schema, **terms)


def _within(federation: "Federation", what: str, epsilon: str | None, delta: str) -> "BudgetedOracle":
    from dpcore.errors import ConfigurationError

    if epsilon is None:
        raise ConfigurationError(
            f"{what} asks, and answers have noise: give the --epsilon that they are to stay within"
        )
    return federation.within(exact(epsilon, "epsilon"), exact(delta, "delta"))


def _terms(cohort_min: int | None, colluders: int | None, max_rows: int | None) -> dict[str, Any]:
    terms = {"cohort_min": cohort_min, "colluders": colluders, "max_rows": max_rows}
    return {name: value for name, value in terms.items() if value is not None}


def predict(
    _output: Output,
    model: Annotated[Path, typer.Argument(help="A model that train wrote.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file of rows.", show_default=False)],
    to: Annotated[Path | None, typer.Option("--output", "-o", help="Write scores and labels there, as CSV.")] = None,
) -> Result:
    """Predict the label of every row, and count the errors where the file has labels."""
    from learner.model import Model, error_rate
    from learner.model import predict as predict_rows
    from radofed.common.tables.tables import open_table

    if to is not None:
        check_new(to)
    loaded = Model.load(model)
    found = predict_rows(loaded, file)
    rows, usable = len(found.labels), int((found.labels != 0).sum())
    positive = int((found.labels > 0).sum())
    data: dict[str, Any] = {"rows": rows, "usable": usable, "positive": positive}
    data["positive_fraction"] = positive / usable if usable else None
    lines = [f"{rows} rows, {rows - usable} of them not usable, {positive} predicted positive"]
    if loaded.schema.label.column in open_table(file).columns:
        data["error_rate"] = error_rate(loaded, file)
        lines.append(f"wrong on {100 * data['error_rate']:.2f} % of the labelled rows")
    if to is not None:
        text = "score,label\n" + "".join(
            f"{score:.17g},{label}\n" if label else ",\n"
            for score, label in zip(found.scores, found.labels, strict=True)
        )
        to.write_text(text, encoding="utf-8")
        lines.append(f"{to}: a score and a label (1 or -1) for each row; empty where a row is not usable")
    return Result({**data, "file": to}, "\n".join(lines))
