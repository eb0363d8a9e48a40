"""What a simulation over epochs is asked for: releases that add up, or retraining by queries with warm starts."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpcore.declared import first_changed, names_of, values_of
from dpcore.errors import ConfigurationError
from dpcore.records.features import two_classes
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from learner.estimators import BY_QUERIES, class_of
from radobase.schema_files import shared_of
from radobase.tables.recoding import columns_of
from radobase.tables.tables import TableSource
from radofed.simulation.designs import DesignOptions
from radofed.simulation.epochs import EpochsResult, check_epochs, epoch_column, epochs_of, simulate_epochs
from radofed.simulation.evaluation import asks, check_estimators, from_release, named_estimators
from radofed.simulation.oracles import Budget
from radofed.simulation.run import SimulationOptions
from radofed.simulation.simulate_options import EpochFields, RunFields, SimulationFields
from radofed.simulation.table import Partition, SimulationTable, read_table
from radofed.simulation.warm_starts import LEAST_EPOCHS, LEAST_ROUNDS, WarmStartsResult, simulate_warm_starts
from wire.request_fields import ReleaseFields

_OF_FOLDS = ("folds", "hold_back", "evaluation_epsilon", "split", "adaptive")
_USUAL = "mean-variance"


def simulate_over_epochs(
    data: TableSource,
    asked: SimulationFields,
    over: EpochFields,
    *,
    schema: Schema | SharedSchema | str | Path | None,
    estimators: str | Sequence[str] | Mapping[str, Any] | None,
    parameters: Mapping[str, Any] | None,
    note: Callable[[str], None],
) -> EpochsResult | WarmStartsResult:
    """Simulate what `over` says. parameters: of the only estimator; the others as of `radofed.simulate`.

    Raises ConfigurationError for options of folds, or for an estimator that learns neither from releases nor from a
    start; what the simulations raise; and DataError as `check_epochs` does.
    """
    assert over.epochs is not None, "epochs are asked for"
    if odd := first_changed(asked, _OF_FOLDS):
        raise ConfigurationError(f"with --epochs models are tested on the next epoch: leave {odd} out")
    (learner, *more) = named_estimators(estimators or _USUAL, None, parameters, asked.class_weight).items()
    if more or not (from_release(learner[1]) or _starts(learner[1])):
        able = [name for name in BY_QUERIES if "start" in _parameters(class_of(name))]
        raise ConfigurationError(
            f"with --epochs give one estimator that learns from releases, such as {_USUAL}, or one that starts from an "
            f"earlier model: {', '.join(able)}"
        )
    by_queries = asks(learner[1])
    options = _options(asked, learner, by_queries=by_queries)
    if by_queries and over.is_forgetting_given:
        raise ConfigurationError("--forgetting weighs releases, and this estimator starts from a model: leave it out")
    table, epochs = _read(data, asked, over.epochs, schema)
    check_epochs(epochs, table, options.parties, LEAST_EPOCHS if by_queries else 2)
    if not by_queries:
        return simulate_epochs(table, epochs, options, learner, over.factor, note)
    rounds = learner[1].get_params()["rounds"] if asked.rounds is None else asked.rounds
    if rounds < LEAST_ROUNDS:
        raise ConfigurationError(f"rounds is {rounds}: choose at least {LEAST_ROUNDS}")

    def of_rounds(count: int) -> Any:
        (made,) = named_estimators(dict([learner]), count).values()
        return made

    return simulate_warm_starts(table, epochs, options, (learner[0], of_rounds), rounds, note)


def _parameters(estimator: Any) -> Mapping[str, inspect.Parameter]:
    """Of its training by queries."""
    return inspect.signature(estimator.fit_queries).parameters


def _starts(estimator: Any) -> bool:
    """Whether it is trained by queries, in rounds, and may start from a model."""
    in_rounds = hasattr(estimator, "get_params") and "rounds" in estimator.get_params()
    return asks(estimator) and "start" in _parameters(estimator) and in_rounds


def _options(asked: SimulationFields, learner: tuple[str, Any], *, by_queries: bool) -> SimulationOptions:
    """The checked options. Raises ConfigurationError."""
    partition = Partition.parse(asked.partition)
    if partition.column is not None:
        raise ConfigurationError("with --epochs rows are not divided by a column: choose another --partition")
    design, budget = None, None
    if not by_queries:
        if asked.rounds is not None:
            raise ConfigurationError("with --epochs releases have no rounds: leave --rounds out")
        design = DesignOptions(**values_of(asked, ReleaseFields), delta=asked.delta)
        check_estimators(dict([learner]), moments=design.design_name == "moments")
    elif asked.epsilon is None:
        raise ConfigurationError(f"{learner[0]}: queries need a budget, so give epsilon")
    elif unused := asked.described:
        raise ConfigurationError(f"{learner[0]}: trained by queries, so leave out {', '.join(unused)}")
    else:
        budget = Budget(asked.epsilon, asked.delta)
    return SimulationOptions(**values_of(asked, RunFields), partition=partition, design=design, budget=budget)


def _read(
    data: TableSource, asked: SimulationFields, epochs: str, schema: Schema | SharedSchema | str | Path | None
) -> tuple[SimulationTable, Any]:
    """The table, and its epochs. Raises ConfigurationError, SchemaError or DataError."""
    loaded = shared_of(schema)
    column = epoch_column(epochs)
    if loaded is not None and column in columns_of(loaded, None):
        raise ConfigurationError(
            f"the schema has the column {column!r} of the epochs, which is public at parties: take it out of the schema"
        )
    table = read_table(
        data,
        label=asked.label,
        positive=names_of(asked.positive) or None,
        schema=loaded,
        group_column=column,
        target=asked.target,
        exposure=asked.exposure,
        event=asked.event,
    )
    two_classes(table.schema.label, "a simulation over epochs")
    return table, epochs_of(epochs, data, table.records.rows)
