"""`radofed.simulate`: reads what is asked for, and runs the simulation over folds or over epochs."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, overload

from dpcore.declared import names_of, values_of, with_fields
from dpcore.errors import ConfigurationError
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from radobase.options import from_texts
from radobase.schema_files import load_feature_map, shared_of
from radobase.tables.tables import as_source
from radofed.simulation.epochs import EpochsResult
from radofed.simulation.evaluation import (
    HoldBack,
    check_estimators,
    check_target,
    check_weights_count,
    named_estimators,
)
from radofed.simulation.measured import check_numbers
from radofed.simulation.over_epochs import simulate_over_epochs
from radofed.simulation.results import SimulationResult
from radofed.simulation.run import (
    Note,
    SimulationOptions,
    asked_of_a_federation,
    run_simulation,
    usual_estimator,
)
from radofed.simulation.simulate_options import EpochFields, RunFields, SimulationFields
from radofed.simulation.table import Partition, SimulationTable, read_table
from radofed.simulation.warm_starts import WarmStartsResult


@overload
def simulate(data: Any, *, epochs: None = None, **fields: Any) -> SimulationResult: ...


@overload
def simulate(data: Any, *, epochs: str | int, **fields: Any) -> EpochsResult | WarmStartsResult: ...


def simulate(
    data: Any,
    *,
    schema: Schema | SharedSchema | str | Path | None = None,
    feature_map: FeatureMap | str | Path | None = None,
    estimators: str | Sequence[str] | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    note: Note | None = None,
    epochs: str | int | None = None,
    forgetting: Fraction | str | float | None = None,
    **fields: Any,
) -> SimulationResult | EpochsResult | WarmStartsResult:
    """Cross-validate estimators on releases of a simulated federation, as `rado simulate` does.

    data: the path of a CSV (also gzipped) or Parquet file, an Arrow table, or a data frame such as those of pandas and
    polars, without its index. It is read through `schema` (one, or its file), or through one that is inferred from the
    whole table with `label` and its `positive` values, which is not private.

    estimators: names, or a mapping from names to objects with fit_queries, fit_release, fit_moments or (for comparison,
    on the pooled rows) fit. `logistic`, scikit-learn's default on the same rows, and `majority` are always measured.
    options: parameters of the only estimator. note: progress callback, one sentence a call.

    feature_map: what records of the design are mapped by before they are clipped, or its file in the columns' units;
    estimators of releases then learn over its terms.

    epochs: rows arrive in epochs, a number of them or "by-column:NAME". Then there are no folds: each is released once,
    or an estimator that starts from an earlier model trains on each, and models are tested on the next one.

    forgetting: the weight of each epoch relative to the next one, by default 1/2, for moments.

    fields: those of `radofed.simulation.simulate_options.SimulationFields`, as `rado simulate --help` explains them.
    The design and its options are shared by estimators of releases. epsilon and delta are also the budget of each
    estimator that queries, separately in each fold. Exact numbers may be strings, such as "1e-6".

    The same seed gives the same figures for all `workers` and `encrypt`. Raises ConfigurationError, SchemaError,
    DataError or PlanError, each with what would work, and SimulationError if an estimator or a worker fails.
    """
    inspect.signature(simulate).bind(data, **fields)
    asked = from_texts(SimulationFields, fields)
    over = from_texts(EpochFields, {"epochs": None if epochs is None else str(epochs), "forgetting": forgetting})
    if over.epochs is not None:
        _check_over_epochs(asked, mapped=feature_map is not None)
        return simulate_over_epochs(
            as_source(data),
            asked,
            over,
            schema=schema,
            estimators=estimators,
            parameters=options,
            note=note or (lambda _: None),
        )
    defaults = None
    if estimators is None:
        estimators, epsilon = usual_estimator(asked, mapped=feature_map is not None)
        asked = replace(asked, epsilon=epsilon)
        if estimators == "newton":
            defaults = f"estimator {estimators}, epsilon {epsilon}"
    chosen = named_estimators(estimators, asked.rounds, options, asked.class_weight)
    settings = _settings(chosen, asked)
    if feature_map is not None and settings.design is None:
        raise ConfigurationError(
            "a feature map is of a release: name an estimator of releases, such as mean-variance, or leave the map out"
        )
    table = _table(data, schema, asked, settings)
    _check_estimators_fit(chosen, table.schema, settings)
    if settings.design is not None and feature_map is not None:
        settings = replace(settings, design=replace(settings.design, feature_map=_map(feature_map, table.schema)))
    if note is not None and defaults is not None:
        note(defaults)
    return run_simulation(table, settings, chosen, note or (lambda _: None))


def _check_over_epochs(asked: SimulationFields, *, mapped: bool) -> None:
    """Raise ConfigurationError for what a simulation over epochs does not have."""
    if asked.unit == "person":
        raise ConfigurationError("a simulation over epochs protects records: leave unit out, or epochs")
    if mapped:
        raise ConfigurationError("with epochs releases are of records without a feature map: leave the map out")


def _table(
    data: Any, schema: Schema | SharedSchema | str | Path | None, asked: SimulationFields, settings: SimulationOptions
) -> SimulationTable:
    """The rows that are shared out, encoded. Raises what `read_table` raises."""
    return read_table(
        as_source(data),
        label=asked.label,
        positive=names_of(asked.positive) or None,
        schema=shared_of(schema),
        group_column=settings.partition.column,
        target=asked.target,
        exposure=asked.exposure,
        event=asked.event,
        id_column=asked.id_column,
        persons_may_repeat=asked.persons_may_repeat or 1,
    )


def _check_estimators_fit(estimators: Mapping[str, Any], schema: Schema, settings: SimulationOptions) -> None:
    """Raise ConfigurationError for an estimator that does not learn the schema's label, or not with its weight."""
    check_target(estimators, schema.label)
    check_weights_count(estimators, schema)
    if schema.label.coding.has_value:
        check_numbers(settings, estimators)


def _settings(estimators: Mapping[str, Any], asked: SimulationFields) -> SimulationOptions:
    design, budget = asked_of_a_federation(estimators, asked)
    if design is not None:
        check_estimators(estimators, moments=design.design_name == "moments")
    return SimulationOptions(
        **values_of(asked, RunFields),
        partition=Partition.parse(asked.partition),
        design=design,
        budget=budget,
        exact=asked.is_exact,
        hold_back=HoldBack.of(asked.hold_back, asked.evaluation_epsilon, asked.epsilon, asked.delta),
    )


simulate.__signature__ = with_fields(SimulationFields, simulate)  # type: ignore[attr-defined]


def _map(feature_map: FeatureMap | str | Path, schema: Schema) -> FeatureMap:
    if isinstance(feature_map, FeatureMap):
        feature_map.check(schema)
        return feature_map
    return load_feature_map(Path(feature_map), schema)
