"""`radofed.simulate`: cross-validate estimators on a table, over a simulated federation in each fold.

Estimators of releases share one query of a design in each fold. Each estimator that queries has its own budget and
queries.
"""

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.numbers.fixed_point import ONE
from dpcore.numbers.rationals import exact_number
from dpcore.paillier.public import MAXIMUM_BITS, MINIMUM_BITS
from dpcore.paillier.secret import SecretKey
from dpcore.progress import Progress
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement
from dpcore.randomness.sources import SystemRandom
from dpcore.records.schema import Schema
from dpcore.statistics.moments import Moments
from radofed.common.files.schemas import load_schema
from radofed.common.tables.tables import as_source
from radofed.simulation.designs import DesignOptions, given_words
from radofed.simulation.evaluation import Fold, asks, check_learners, from_release, measure, named_learners
from radofed.simulation.federation import PlannedFold, SimulatedFederation
from radofed.simulation.limits import MOST_PARTIES, check_parties
from radofed.simulation.partitions import Partition
from radofed.simulation.results import (
    FederationFacts,
    FoldRow,
    SimulationResult,
    learners_warnings,
    notes_if_several,
    worst,
)
from radofed.simulation.source import Budget, Oracles, row_count_plan
from radofed.simulation.table import SimulationTable, read_table
from radofed.simulation.workers import Hosts, start_hosts

Note = Callable[[str], None]
"""Progress callback `(sentence)`."""

TIMEOUT_S = 3600.0
KEY_BITS = 3072
_LARGEST_SEED = 2**32 - 1
_MANY_UPLOADS = 20


@dataclass(frozen=True)
class SimulationOptions:
    """The options of a simulation.

    parties: K, 2 to 1,000. design: of the releases, None if no estimator learns from one. budget: of each estimator
    that queries, None if none does. folds: F, at least 2, stratified by class. seed: of folds, partition and every
    draw of the parties. encrypt: whether contributions are encrypted and masked, under a key of `key_bits`. workers:
    Ray actors that share the parties; 0 computes in this process; None is one for each CPU. timeout_s: for each answer
    of an actor. Raises ConfigurationError if one is out of range.
    """

    parties: int
    partition: Partition
    design: DesignOptions | None
    budget: Budget | None = None
    folds: int = 10
    seed: int = 0
    encrypt: bool = False
    key_bits: int = KEY_BITS
    workers: int | None = None
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if self.design is None and self.budget is None:
            raise ConfigurationError(
                "the simulation has no query: give a design, or a budget for estimators that query"
            )
        check_parties(self.parties)
        ranges = {
            "folds": (self.folds, 2, 1000),
            "seed": (self.seed, 0, _LARGEST_SEED),
            "workers": (0 if self.workers is None else self.workers, 0, MOST_PARTIES),
        }
        for name, (value, least, most) in ranges.items():
            if not least <= value <= most:
                raise ConfigurationError(f"{name} is {value}: choose {least} to {most}")
        if not MINIMUM_BITS <= self.key_bits <= MAXIMUM_BITS:
            raise ConfigurationError(f"a key of {self.key_bits} bits: choose {MINIMUM_BITS} to {MAXIMUM_BITS}")
        if not self.timeout_s > 0:
            raise ConfigurationError(f"timeout_s is {self.timeout_s}: give a positive number of seconds")

    @property
    def actors(self) -> int:
        """The number of Ray actors."""
        return (os.cpu_count() or 1) if self.workers is None else self.workers


def simulate(
    data: Any,
    *,
    label: str | None = None,
    positive: str | Sequence[str] | None = None,
    schema: Schema | str | Path | None = None,
    parties: int = 10,
    partition: str = "iid",
    design: str | None = None,
    rados: int | None = None,
    sensitive: str | Sequence[str] = (),
    rounded: str | Sequence[str] = (),
    joint: bool = False,
    epsilon: Fraction | float | str | None = None,
    delta: Fraction | float | str = "1e-6",
    epsilon_per_rado: Fraction | float | str | None = None,
    split: str = "local",
    norm_bound: Fraction | float | str | None = None,
    support: Fraction | float | str | None = None,
    estimators: str | Sequence[str] | Mapping[str, Any] = ("mean-variance",),
    rounds: int | None = None,
    options: Mapping[str, Any] | None = None,
    folds: int = 10,
    seed: int = 0,
    encrypt: bool = False,
    key_bits: int = KEY_BITS,
    workers: int | None = None,
    timeout_s: float = TIMEOUT_S,
    note: Note | None = None,
    learners: str | Sequence[str] | Mapping[str, Any] | None = None,
) -> SimulationResult:
    """Cross-validate estimators on releases of a simulated federation, as `rado simulate` does.

    data: the path of a CSV (also gzipped) or Parquet file, an Arrow table, or a data frame such as those of pandas and
    polars, without its index. It is read through `schema` (one, or its file), or through one that is inferred from the
    whole table with `label` and its `positive` values, which is not private. parties, partition: see `Partition`; it
    divides the training rows of each fold. estimators: names, or a mapping from names to objects with
    fit_queries, fit_release, fit_moments or (for comparison, on the pooled rows) fit. `logistic`, scikit-learn's
    default on the same rows, and `majority` are always measured.

    design and the options up to `support`: shared by estimators of releases, see `DesignOptions`; default "plain".
    epsilon, delta: also the budget of each estimator that queries, separately in each fold; delta 0 is pure
    differential privacy, for estimators that query only statistics. If all estimators query, no other option of a
    design may be given. rounds: for estimators with that parameter. options: parameters of the only estimator. Exact
    numbers may be strings, such as "1e-6". note: progress callback, one sentence a call. Other options: see
    `SimulationOptions`. learners: the former name of `estimators`, accepted with a DeprecationWarning in this version.

    The same seed gives the same figures for all `workers` and `encrypt`. Raises ConfigurationError, SchemaError,
    DataError or PlanError, each with what would work, and SimulationError if an estimator or a worker fails.
    """
    if learners is not None:
        warnings.warn("learners is now estimators; the next version drops it", DeprecationWarning, stacklevel=2)
        estimators = learners
    chosen = named_learners(estimators, rounds, options)
    shared = {
        "name": design,
        "rados": rados,
        "sensitive": (sensitive,) if isinstance(sensitive, str) else tuple(sensitive),
        "rounded": (rounded,) if isinstance(rounded, str) else tuple(rounded),
        "joint": joint,
        "epsilon_per_rado": exact("epsilon per rado", epsilon_per_rado),
        "split": split,
        "norm_bound": exact("the norm bound", norm_bound),
        "support": exact("the support", support),
    }
    design_options, budget = _asked_of_a_federation(chosen, shared, epsilon, delta)
    settings = SimulationOptions(
        parties=parties,
        partition=Partition.parse(partition),
        design=design_options,
        budget=budget,
        folds=folds,
        seed=seed,
        encrypt=encrypt,
        key_bits=key_bits,
        workers=workers,
        timeout_s=timeout_s,
    )
    if design_options is not None:
        check_learners(chosen, moments=design_options.name == "moments")
    values = (positive,) if isinstance(positive, str) else positive
    table = read_table(
        as_source(data),
        label=label,
        positive=values,
        schema=_schema(schema),
        group_column=settings.partition.column,
    )
    return run_simulation(table, settings, chosen, note or (lambda _: None))


def run_simulation(
    table: SimulationTable, options: SimulationOptions, learners: Mapping[str, Any], note: Note
) -> SimulationResult:
    """Simulate on a table that has been read. learners: estimators by name. Raises what `simulate` raises."""
    begin = time.perf_counter()
    splits = _folds(table, options)
    parts = [_parts(table, training, options, number) for number, (training, _) in enumerate(splits, start=1)]
    names = party_names(options.parties)
    secret = SecretKey.generate(SystemRandom(), bits=options.key_bits) if options.encrypt else None
    with start_hosts(table.records, options.seed, names, workers=options.actors, timeout_s=options.timeout_s) as hosts:
        federation = SimulatedFederation(hosts, names, options.seed, secret)
        planned = _planned(federation, table.schema, options, parts)
        # Before any query: this refuses what has no finite bound.
        privacy = None if options.design is None else _privacy(options.design, planned)
        note(_set_up(planned[0], options))
        measured = [
            _measured(federation, each, _FoldRows(table, number, *split), options, learners, note)
            for number, (each, split) in enumerate(zip(planned, splits, strict=True), start=1)
        ]
        facts = _facts(options, planned, hosts, sum(fold.query_s for fold in measured))
    rows = [row for fold in measured for row in fold.rows]
    return SimulationResult(
        rows=tuple(rows),
        privacy=privacy,
        asked=_worst_of_each([fold.asked for fold in measured]),
        federation=facts,
        table_rows=table.records.rows,
        unusable_rows=int((~table.records.usable).sum()),
        coordinates=table.schema.d,
        folds=options.folds,
        seed=options.seed,
        seconds=time.perf_counter() - begin,
        notes=(
            *notes_if_several(options.folds, released=options.design is not None, asked=options.budget is not None),
            *table.notes,
            *learners_warnings(rows, options.folds),
        ),
    )


@dataclass(frozen=True, eq=False)
class _FoldRows:
    """One fold of the table. number: from 1. training, test: indices of its rows."""

    table: SimulationTable
    number: int
    training: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class _Measured:
    """The results of one fold. asked: the statements of estimators that queried. query_s: time of the federation."""

    rows: list[FoldRow]
    asked: dict[str, PrivacyStatement]
    query_s: float


def _measured(
    federation: SimulatedFederation,
    planned: PlannedFold,
    fold: _FoldRows,
    options: SimulationOptions,
    learners: Mapping[str, Any],
    note: Note,
) -> _Measured:
    """Query the federation and measure every estimator on one fold."""
    started = time.perf_counter()
    progress, schema = _uploads(note, fold.number), fold.table.schema
    release, oracles = None, None
    if options.design is not None:
        release = _release(planned, federation.ask(planned, progress), schema)
    query_s = time.perf_counter() - started
    if options.budget is not None:
        oracles = Oracles(federation, schema, planned.parts, fold.number, options.budget, progress)
    rows = measure(learners, _fold(fold, release, oracles), options.seed)
    asked = {} if oracles is None else oracles.statements()
    query_s += 0.0 if oracles is None else oracles.seconds()
    training_s = sum(row.seconds for row in rows)
    note(f"fold {fold.number} of {options.folds}: queries {query_s:.2f} s, training {training_s:.2f} s")
    return _Measured(rows, asked, query_s)


def party_names(parties: int) -> tuple[str, ...]:
    """The names of simulated parties, in the roster's order."""
    return tuple(f"party-{number:04d}" for number in range(1, parties + 1))


def _asked_of_a_federation(
    learners: Mapping[str, Any],
    shared: Mapping[str, Any],
    epsilon: Fraction | float | str | None,
    delta: Fraction | float | str,
) -> tuple[DesignOptions | None, Budget | None]:
    """The design, if an estimator learns from a release, and the budget, if an estimator queries.

    shared: options of `DesignOptions` except epsilon and delta. Raises ConfigurationError.
    """
    asking = [name for name, learner in learners.items() if asks(learner)]
    wanted = exact("epsilon", epsilon)
    budget = None
    if asking:
        if wanted is None:
            raise ConfigurationError(f"{', '.join(asking)}: queries need a budget, so give epsilon")
        budget = Budget(wanted, exact("delta", delta, zero=True) or Fraction(0))
    # Estimators of rows, such as adaboost, need no design, but on their own they have always had one.
    if not asking or any(map(from_release, learners.values())):
        given = {**shared, "name": shared["name"] or "plain"}
        return DesignOptions(**given, epsilon=wanted, delta=exact("delta", delta) or Fraction(0)), budget
    if unused := given_words(shared):
        raise ConfigurationError(
            f"{', '.join(asking)}: trained by queries, not on a design's release, so leave out {', '.join(unused)}, or "
            "name an estimator of releases too, such as mean-variance"
        )
    return None, budget


def exact(what: str, value: Fraction | float | str | None, *, zero: bool = False) -> Fraction | None:
    """A number as an exact fraction; a float counts as its shortest decimal.

    zero: whether 0 is allowed. Raises ConfigurationError if it is not a number, or not positive.
    """
    if value is None:
        return None
    try:
        found = value if isinstance(value, Fraction) else exact_number(str(value))
    except OverflowError as error:
        raise ConfigurationError(f"{what} of {value!r} is too large or too small: write, say, 1e-6 or 1/2") from error
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigurationError(f"{what} of {value!r} is not a finite number: write, say, 1e-6 or 1/2") from error
    if found < 0 or (found == 0 and not zero):
        raise ConfigurationError(f"{what} is {value}: it must be positive")
    return found


def _schema(schema: Schema | str | Path | None) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    return load_schema(Path(schema))


def _folds(table: SimulationTable, options: SimulationOptions) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Training and test rows of each fold, ascending. A row that is not usable is in every training set, as zeros."""
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415  (slow to import, and not needed for a refusal)

    usable = np.flatnonzero(table.records.usable)
    positive = table.records.labels[usable] > 0
    fewest = min(int(positive.sum()), int((~positive).sum()))
    if fewest == 0:
        raise ConfigurationError("all usable rows have one label: give the values that are positive, or another table")
    if fewest < options.folds:
        raise ConfigurationError(
            f"{options.folds} folds, and the rarer class has {fewest} rows: choose at most {max(2, fewest)} folds"
        )
    splitter = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
    rows = table.records.rows
    folds = []
    for _, places in splitter.split(usable, positive):
        test = np.sort(usable[places]).astype(np.int64)
        folds.append((np.setdiff1d(np.arange(rows), test), test))
    return folds


def _parts(
    table: SimulationTable, training: NDArray[np.int64], options: SimulationOptions, number: int
) -> tuple[NDArray[np.int64], ...]:
    """The rows of each party, as indices into the whole table."""
    generator = np.random.default_rng([options.seed, number])
    groups = None if table.groups is None else table.groups[training]
    positive = table.records.labels[training] > 0
    divided = options.partition.divide(options.parties, positive, groups, generator)
    return tuple(training[part] for part in divided)


def _fold(fold: _FoldRows, release: RadoSample | Moments | None, oracles: Oracles | None) -> Fold:
    table = fold.table
    usable = fold.training[table.records.usable[fold.training]]
    labels = table.records.labels
    return Fold(
        number=fold.number,
        training=_rows(table, usable),
        labels=labels[usable],
        test=_rows(table, fold.test),
        test_labels=labels[fold.test],
        bias=table.schema.bias,
        release=release,
        oracles=oracles,
    )


def _rows(table: SimulationTable, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows in real units, as the schema encodes them, to 2^-30."""
    return table.records.features[places] / float(ONE)


def _planned(
    federation: SimulatedFederation,
    schema: Schema,
    options: SimulationOptions,
    parts: Sequence[Sequence[NDArray[np.int64]]],
) -> list[PlannedFold]:
    """The design's query in each fold; without a design the simplest query, which shows the cohort."""
    numbered = list(enumerate(parts, start=1))
    if options.design is None:
        assert options.budget is not None, "without a design an estimator queries"
        return [row_count_plan(federation, schema, part, number, options.budget) for number, part in numbered]
    request = options.design.request(schema, [[len(part) for part in fold] for fold in parts])
    return [federation.plan(options.design, request, part, number) for number, part in numbered]


def _worst_of_each(asked: Sequence[Mapping[str, PrivacyStatement]]) -> dict[str, PrivacyStatement]:
    """By name of the estimator, the statement of the fold that costs most. asked: by name, for each fold."""
    names = dict.fromkeys(name for fold in asked for name in fold)
    return {name: worst([fold[name] for fold in asked if name in fold]) for name in names}


def _privacy(design: DesignOptions, planned: Sequence[PlannedFold]) -> PrivacyStatement:
    """The statement of the fold that costs most. Folds with equal party sizes cost the same and are counted once."""
    distinct = {tuple(sorted(each.party_rows)): each for each in reversed(planned)}
    return worst([design.statement(each.kind, each.plan.query, each.party_rows) for each in distinct.values()])


def _release(planned: PlannedFold, values: NDArray[np.int64], schema: Schema) -> RadoSample | Moments:
    """The total, decoded for an estimator."""
    kind, bits = planned.kind, planned.plan.query.encoding.fraction_bits
    rows = sum(planned.party_rows)
    if isinstance(kind, MomentsQuery):
        return kind.moments(values, bits, rows=rows, parties=len(planned.party_rows))
    assert isinstance(kind, RadosQuery), "a design releases rados or moments"
    distribution = kind.distribution(schema.d, planned.party_rows, bits)
    return RadoSample(kind.decode(values, bits), rows, bias=schema.bias, distribution=distribution)


def _set_up(planned: PlannedFold, options: SimulationOptions) -> str:
    """The settings of the federation, in a sentence."""
    query = planned.plan.query
    what = (
        "estimators query" if options.design is None else f"{query.length} values a fold, design {options.design.name}"
    )
    return (
        f"{options.parties} parties ({options.partition}), c = {planned.plan.colluders} assumed to collude, "
        f"{query.honest_parties} counted as honest; {what}"
    )


def _uploads(note: Note, number: int) -> Progress:
    """Progress callback `(done, whole)` that notes every tenth of many uploads."""

    def note_tenths(done: int, whole: int) -> None:
        if whole >= _MANY_UPLOADS and done * 10 // whole > (done - 1) * 10 // whole:
            note(f"fold {number}: {done} of {whole} uploads multiplied in")

    return note_tenths


def _facts(options: SimulationOptions, planned: Sequence[PlannedFold], hosts: Hosts, seconds: float) -> FederationFacts:
    plan = planned[0].plan
    sizes = [rows for each in planned for rows in each.party_rows]
    return FederationFacts(
        parties=options.parties,
        colluders=plan.colluders,
        cohort_min=plan.query.cohort_min,
        honest_parties=plan.query.honest_parties,
        partition=str(options.partition),
        design=None if options.design is None else options.design.name,
        rados=getattr(plan.query.kind, "rados", None),
        party_rows=(min(sizes), max(sizes)),
        encrypted=options.encrypt,
        upload_bytes_per_party=plan.upload_bytes_per_party if options.encrypt and options.design is not None else None,
        workers=hosts.workers,
        seconds=seconds,
    )
