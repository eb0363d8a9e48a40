"""Cross-validation of estimators on a table, over a simulated federation in each fold.

Estimators of releases share one query of a design in each fold. Each estimator that queries has its own budget and
queries.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.numbers.fixed_point import ONE
from dpcore.numbers.progress import Progress
from dpcore.paillier.secret import SecretKey
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import PrivacyStatement
from dpcore.randomness.sources import SystemRandom
from dpcore.records.features import EventTime
from dpcore.records.held_back import HeldBack
from dpcore.records.schema import Schema
from radobase.printing import amount
from radofed.simulation.designs import DesignOptions
from radofed.simulation.evaluation import (
    Evaluations,
    Fold,
    HoldBack,
    Released,
    asks,
    from_release,
    measure,
    notes_if_classes,
    notes_if_held_back,
)
from radofed.simulation.event_times import measure_event_times
from radofed.simulation.federation import PlannedFold, SimulatedFederation
from radofed.simulation.measured import measure_numbers
from radofed.simulation.oracles import Budget, Oracles, row_count_plan
from radofed.simulation.results import (
    FederationFacts,
    Row,
    SimulationResult,
    learners_warnings,
    notes_if_several,
    worst,
)
from radofed.simulation.simulate_options import RunFields, SimulationFields
from radofed.simulation.table import Partition, SimulationTable, divided_rows, party_names
from radofed.simulation.workers import Hosts, start_hosts
from wire.request_fields import ReleaseFields

# The options of a simulation: what they mean together, and which are refused.


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(RunFields):
    """The checked options of a simulation. Raises ConfigurationError if one is out of range."""

    partition: Partition
    design: DesignOptions | None
    """Of the releases; None if no estimator learns from one."""
    budget: Budget | None = None
    """Of each estimator that queries; None if none does."""
    hold_back: HoldBack | None = None
    """What parties hold back; None if nothing."""
    exact: bool = False
    """Whether estimators learn from the pooled rows, without noise, and nothing is asked."""

    def __post_init__(self) -> None:
        if self.design is None and self.budget is None:
            raise ConfigurationError(
                "the simulation has no query: give a design, or a budget for estimators that query"
            )
        super().__post_init__()

    @property
    def actors(self) -> int:
        """The number of Ray actors."""
        return (os.cpu_count() or 1) if self.workers is None else self.workers

    @property
    def training_part(self) -> HeldBack | None:
        """The part of the rows that estimators are trained on; None for all."""
        return None if self.hold_back is None else self.hold_back.training


def usual_estimator(asked: SimulationFields, *, mapped: bool) -> tuple[str, Fraction | None]:
    """The estimator to try if none is named, and its epsilon: one that asks, unless a release is described.

    mapped: whether a feature map is given, which is of a release, too.
    """
    if mapped or asked.described:
        return "mean-variance", asked.epsilon
    return "newton", Fraction(1) if asked.epsilon is None else asked.epsilon


def asked_of_a_federation(
    estimators: Mapping[str, Any], asked: SimulationFields
) -> tuple[DesignOptions | None, Budget | None]:
    """The design, if an estimator learns from a release, and the budget, if an estimator queries.

    Raises ConfigurationError.
    """
    if asked.is_exact:
        if asked.hold_back is not None:
            raise ConfigurationError("without an epsilon nothing is asked, so no rows are held back: give epsilon")
        # Of the query that shows the cohort, which is not sent.
        return None, Budget(Fraction(1), asked.delta)
    asking = [name for name, estimator in estimators.items() if asks(estimator)]
    budget = None
    if asking:
        if asked.epsilon is None:
            raise ConfigurationError(f"{', '.join(asking)}: queries need a budget, so give epsilon")
        budget = Budget(asked.epsilon, asked.delta, asked.adaptive)
    elif asked.adaptive is not None:
        raise ConfigurationError("no estimator asks statistics, so leave adaptive out")
    # Estimators of rows, such as adaboost, need no design, but on their own they have always had one.
    if not asking or any(map(from_release, estimators.values())):
        return DesignOptions(**values_of(asked, ReleaseFields), split=asked.split, delta=asked.delta), budget
    if unused := asked.described:
        raise ConfigurationError(
            f"{', '.join(asking)}: trained by queries, not on a design's release, so leave out {', '.join(unused)}, or "
            "name an estimator of releases too, such as mean-variance"
        )
    return None, budget


Note = Callable[[str], None]
"""Progress callback `(sentence)`."""

_LEAST_FOLDS = 2
_MANY_UPLOADS = 20


def run_simulation(
    table: SimulationTable, options: SimulationOptions, estimators: Mapping[str, Any], note: Note
) -> SimulationResult:
    """Simulate on a table that has been read. estimators: by name. Raises what `simulate` raises."""
    begin = time.perf_counter()
    splits = _folds(table, options)
    parts = [_parts(table, training, options, number) for number, (training, _) in enumerate(splits, start=1)]
    names = party_names(options.parties)
    secret = SecretKey.generate(SystemRandom(), bits=options.key_bits) if options.encrypt else None
    with start_hosts(table.records, options.seed, names, workers=options.actors, timeout_s=options.timeout_s) as hosts:
        federation = SimulatedFederation(hosts, names, options.seed, secret, table.persons, **options.of_requests)
        planned = _planned(federation, table.schema, options, parts)
        # Before any query: this refuses what has no finite bound.
        privacy = None if options.design is None else _privacy(options.design, planned)
        note(_set_up(planned[0], options))
        measured = [
            _measured(federation, each, _FoldRows(table, number, *split), options, estimators, note)
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
            *_notes_on_answers(options),
            *table.notes,
            *learners_warnings(rows, options.folds),
            *notes_if_classes(table, options.folds),
            *_notes_if_mapped(options, table.schema),
            *_notes_if_held_back(options, rows),
        ),
        hold_back=None if options.hold_back is None else options.hold_back.share,
        evaluated=_worst_of_each([fold.evaluated for fold in measured]),
    )


@dataclass(frozen=True, eq=False)
class _FoldRows:
    """One fold of the table."""

    table: SimulationTable
    number: int
    """From 1."""
    training: NDArray[np.int64]
    test: NDArray[np.int64]
    """Indices of its rows."""


@dataclass(frozen=True)
class _Measured:
    """The results of one fold."""

    rows: Sequence[Row]
    asked: dict[str, PrivacyStatement]
    """The statements of estimators that queried."""
    evaluated: dict[str, PrivacyStatement]
    """Those of evaluations."""
    query_s: float
    """Time of the federation."""


def _measured(
    federation: SimulatedFederation,
    planned: PlannedFold,
    fold: _FoldRows,
    options: SimulationOptions,
    estimators: Mapping[str, Any],
    note: Note,
) -> _Measured:
    """Query the federation and measure every estimator on one fold."""
    started = time.perf_counter()
    progress, schema = _uploads(note, fold.number), fold.table.schema
    release, oracles, evaluations = None, None, None
    if options.design is not None:
        release = opened_release(planned, federation.ask(planned, progress))
    query_s = time.perf_counter() - started
    if options.budget is not None and not options.exact:
        oracles = Oracles(
            federation, schema, planned.parts, fold.number, options.budget, progress, options.training_part
        )
    if options.hold_back is not None:
        held = options.hold_back
        evaluations = Evaluations(federation, schema, planned.parts, fold.number, held.budget, progress, held.training)
    feature_map = None if options.design is None else options.design.feature_map
    measured = replace(_fold(fold, release, oracles, evaluations), feature_map=feature_map)
    rows: Sequence[Row]
    if isinstance(schema.label, EventTime):
        rows = measure_event_times(estimators, measured, schema.label, options.seed)
    elif measured.coding.is_measured:
        rows = measure_numbers(estimators, measured, schema.label, options.seed)
    else:
        rows = measure(estimators, measured, options.seed)
    asked = {} if oracles is None else oracles.statements()
    evaluated = {} if evaluations is None else evaluations.statements()
    query_s += sum(each.seconds() for each in (oracles, evaluations) if each is not None)
    training_s = sum(row.seconds for row in rows)
    note(f"fold {fold.number} of {options.folds}: queries {query_s:.2f} s, training {training_s:.2f} s")
    return _Measured(rows, asked, evaluated, query_s)


def _folds(table: SimulationTable, options: SimulationOptions) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Training and test rows of each fold, ascending. A row that is not usable is in every training set, as zeros."""
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415  (slow to import, and not needed for a refusal)

    usable = _drawn(table, options.folds)
    labels = table.records.labels[usable]
    coding = table.records.coding
    if coding.has_value:
        return _plain_folds(table, options, usable)
    sizes = np.bincount(labels, minlength=coding.classes) if coding.classes else np.array([])
    # A class of several may have few rows, or none: then it is not in every fold.
    fewest = int(np.sort(sizes)[-2]) if coding.classes else min(int((labels > 0).sum()), int((labels <= 0).sum()))
    if fewest == 0:
        why = "" if table.unusable is None else f" ({table.unusable})"
        give = "another table" if coding.classes else "the values that are positive, or another table"
        raise ConfigurationError(f"all usable rows have one label{why}: give {give}")
    if coding.classes and fewest < options.folds:
        raise ConfigurationError(
            f"{options.folds} folds, and only one class has as many rows: choose at most {max(2, fewest)} folds, or "
            "give a table with more rows"
        )
    if fewest < _LEAST_FOLDS:
        raise ConfigurationError(
            "the rarer class has 1 usable row, and cross-validation needs at least 2, one to train on and one to test "
            "on: give a table with more rows of that class, or other --positive values"
        )
    if fewest < options.folds:
        raise ConfigurationError(
            f"{options.folds} folds, and the rarer class has {fewest} rows: choose at most {fewest} folds"
        )
    splitter = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
    return _of_places(table, usable, (places for _, places in _split(splitter, usable, labels)))


def _drawn(table: SimulationTable, folds: int) -> NDArray[np.int64]:
    """What folds are drawn of: the usable rows, or the first one of each person."""
    usable = np.flatnonzero(table.records.usable)
    if table.persons is None:
        return usable
    _, first = np.unique(table.persons.codes[usable], return_index=True)
    if len(first) < folds:
        raise ConfigurationError(f"{folds} folds of {amount(len(first), 'person')}: choose fewer, or give more persons")
    return usable[np.sort(first)]


def _plain_folds(
    table: SimulationTable, options: SimulationOptions, usable: NDArray[np.int64]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Of labels without classes, by which folds could be stratified."""
    values = table.records.coding.values(table.records.labels[usable])
    if not len(values) or values.min() == values.max():
        raise ConfigurationError("all usable rows have one label, so there is nothing to learn: give another table")
    if len(usable) < options.folds:
        raise ConfigurationError(
            f"{options.folds} folds of {len(usable)} usable rows: choose at most {len(usable)} folds"
        )
    order = np.random.default_rng(options.seed).permutation(len(usable))
    return _of_places(table, usable, np.array_split(order, options.folds))


def _of_places(
    table: SimulationTable, usable: NDArray[np.int64], places: Iterable[NDArray[np.int64]]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The folds whose test rows are at these places among the usable ones; of persons all usable rows of each."""
    tests = [np.sort(usable[each]).astype(np.int64) for each in places]
    if table.persons is None:
        return [(np.setdiff1d(np.arange(table.records.rows), test), test) for test in tests]
    codes = table.persons.codes
    theirs = [np.isin(codes, codes[test]) for test in tests]
    return [(np.flatnonzero(~own), np.flatnonzero(own & table.records.usable)) for own in theirs]


def _split(splitter: Any, usable: NDArray[np.int64], labels: NDArray[np.int8]) -> Any:
    """The splitter's folds, without its warning about a class that has fewer rows than folds: a note says so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        yield from splitter.split(usable, labels)


def _parts(
    table: SimulationTable, training: NDArray[np.int64], options: SimulationOptions, number: int
) -> tuple[NDArray[np.int64], ...]:
    """The rows of each party, as indices into the whole table."""
    generator = np.random.default_rng([options.seed, number])
    return divided_rows(table, training, options.partition, options.parties, generator)


def _fold(
    fold: _FoldRows,
    release: Released | None,
    oracles: Oracles | None,
    evaluations: Evaluations | None,
) -> Fold:
    table = fold.table
    usable = fold.training[table.records.usable[fold.training]]
    labels = table.records.labels
    return Fold(
        number=fold.number,
        training=_rows(table, usable),
        labels=labels[usable],
        test=_rows(table, fold.test),
        test_labels=labels[fold.test],
        times=None if table.times is None else table.times[usable],
        test_times=None if table.times is None else table.times[fold.test],
        bias=table.schema.bias,
        coding=table.records.coding,
        schema=table.schema,
        release=release,
        oracles=oracles,
        evaluations=evaluations,
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
    request = replace(request, held_back=options.training_part)
    return [federation.plan(options.design, request, part, number) for number, part in numbered]


def _worst_of_each(asked: Sequence[Mapping[str, PrivacyStatement]]) -> dict[str, PrivacyStatement]:
    """By name of the estimator, the statement of the fold that costs most. asked: by name, for each fold."""
    names = dict.fromkeys(name for fold in asked for name in fold)
    return {name: worst([fold[name] for fold in asked if name in fold]) for name in names}


def _privacy(design: DesignOptions, planned: Sequence[PlannedFold]) -> PrivacyStatement:
    """The statement of the fold that costs most. Folds with equal party sizes cost the same and are counted once."""
    distinct = {tuple(sorted(each.party_rows)): each for each in reversed(planned)}
    return worst([design.statement(each.kind, each.plan.query, each.party_rows) for each in distinct.values()])


def opened_release(planned: PlannedFold, values: NDArray[np.int64]) -> Released:
    """The total, decoded for an estimator."""
    query = planned.plan.query
    kind, bits = planned.kind, query.encoding.fraction_bits
    rows, part = sum(planned.party_rows), query.held_back
    if isinstance(kind, MomentsQuery):
        return kind.moments(values, bits, rows=rows, parties=len(planned.party_rows), held_back=part)
    assert isinstance(kind, RadosQuery), "a design releases rados or moments"
    distribution = kind.distribution(query.d, planned.party_rows, bits)
    about = rows if part is None else part.rows(rows)
    return RadoSample(kind.decode(values, bits), about, bias=query.schema.bias, distribution=distribution)


def _notes_on_answers(options: SimulationOptions) -> list[str]:
    if options.exact:
        note = (
            "No epsilon was given, so no query was sent: estimators learned from exact sums over the pooled rows. Give "
            "epsilon to measure what a federation learns."
        )
        return [note]
    asked = options.budget is not None
    return notes_if_several(options.folds, released=options.design is not None, asked=asked)


def _notes_if_mapped(options: SimulationOptions, schema: Schema) -> list[str]:
    if options.design is None or options.design.feature_map is None:
        return []
    return [f"Releases are of records under a feature map: {options.design.feature_map.words(schema)}."]


def _notes_if_held_back(options: SimulationOptions, rows: Sequence[Row]) -> list[str]:
    if options.hold_back is None:
        return []
    trained = [row for row in rows if row.sees not in ("rows", "labels") and row.evaluated_error is None]
    return notes_if_held_back(options.hold_back, options.folds, list(dict.fromkeys(row.learner for row in trained)))


def _set_up(planned: PlannedFold, options: SimulationOptions) -> str:
    """The settings of the federation, in a sentence."""
    query = planned.plan.query
    what = (
        ("nothing is asked" if options.exact else "estimators query")
        if options.design is None
        else f"{query.length} values a fold, design {options.design.design_name}"
    )
    return (
        f"{options.parties} parties ({options.partition}), c = {planned.plan.colluders} assumed to collude, "
        f"{query.honest_of(options.parties)} counted as honest; {what}"
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
        honest_parties=plan.query.honest_of(options.parties),
        partition=str(options.partition),
        design=None if options.design is None else options.design.design_name,
        rados=getattr(plan.query.kind, "rados", None),
        party_rows=(min(sizes), max(sizes)),
        encrypted=options.encrypt,
        unit="record" if plan.query.persons is None else "person",
        upload_bytes_per_party=plan.upload_bytes_per_party if options.encrypt and options.design is not None else None,
        workers=hosts.workers,
        seconds=seconds,
        vanishing=plan.vanishing,
    )
