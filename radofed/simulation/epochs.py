"""Rows that arrive in epochs, in a simulation: each is released once, and every model is tested on the next epoch.

After each epoch three models are trained without further queries: on its release alone, on all releases so far added
up, and, of moments, on all with forgetting. Under drift the second goes on answering for what was.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.pooled import check_forgetting, pooled_moments, pooled_rados
from dpcore.numbers.fixed_point import ONE
from dpcore.paillier.secret import SecretKey
from dpcore.queries.statement import PrivacyStatement
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.randomness.sources import SystemRandom
from dpcore.records.encoding import Texts, WantedColumn
from radobase.printing import amount
from radobase.tables.tables import TableSource, open_table, read_blocks
from radofed.simulation.designs import DesignOptions
from radofed.simulation.federation import SimulatedFederation
from radofed.simulation.results import worst
from radofed.simulation.run import SimulationOptions, opened_release
from radofed.simulation.table import SimulationTable, party_names
from radofed.simulation.workers import start_hosts
from wire.texts import EPOCH_RULE, is_epoch

NEWEST, ALL = "newest", "all"
_BY_COLUMN = "by-column:"
_LEAST_EPOCHS = 2
_MOST_EPOCHS = 1000


@dataclass(frozen=True, eq=False)
class NamedEpoch:
    """An epoch's name, and its rows as indices into the table, ascending."""

    name: str
    rows: NDArray[np.int64]


def epoch_column(text: str) -> str | None:
    """The column that an option names; None for a number of epochs."""
    return text.removeprefix(_BY_COLUMN) or None if text.startswith(_BY_COLUMN) else None


def epochs_of(text: str, source: TableSource, rows: int) -> list[NamedEpoch]:
    """The epochs, oldest first.

    text: their number, for runs of rows in the table's order; or by-column:NAME, whose texts are sorted. Raises
    ConfigurationError if there are fewer than two, or an epoch has no rows; DataError for a name that none can have.
    """
    if (column := epoch_column(text)) is not None:
        return _by_column(column, source)
    if not (text.isascii() and text.isdecimal()) or not _LEAST_EPOCHS <= int(text) <= min(rows, _MOST_EPOCHS):
        raise ConfigurationError(
            f"epochs is {text!r}: give a number from {_LEAST_EPOCHS} to the table's rows, or by-column:NAME"
        )
    runs = np.array_split(np.arange(rows), int(text))
    return [NamedEpoch(str(number), run) for number, run in enumerate(runs, start=1)]


def _by_column(column: str, source: TableSource) -> list[NamedEpoch]:
    wanted, table = WantedColumn(column, "texts"), open_table(source)
    found: dict[str, list[NDArray[np.int64]]] = {}
    for block in read_blocks(table, [wanted]):
        cells = block.cells[wanted]
        assert isinstance(cells, Texts), "the column is wanted as texts"
        for code, name in enumerate(cells.texts):
            if len(places := np.flatnonzero(cells.codes == code)):
                found.setdefault(name, []).append(block.first_row + places)
    if odd := next((name for name in found if not is_epoch(name)), None):
        row = int(found[odd][0][0])
        raise table.error(EPOCH_RULE, row=row, column=column)
    if len(found) < _LEAST_EPOCHS:
        raise ConfigurationError(f"column {column!r} names {amount(len(found), 'epoch')}: give a table with at least 2")
    return [NamedEpoch(name, np.concatenate(found[name])) for name in sorted(found)]


@dataclass(frozen=True)
class TestedEpoch:
    """The errors on one epoch's usable rows of models that were trained on the epochs before it."""

    epoch: str
    rows: int
    trained_on: int
    """Epochs before it."""
    newest: float
    """Error of the model of the last of them alone."""
    all: float
    """Of all, added up alike."""
    forgetting: float | None
    """Of all with forgetting; None for rados, which have no weights."""


@dataclass(frozen=True)
class EpochsResult:
    """The result of a simulation over epochs."""

    estimator: str
    tested: tuple[TestedEpoch, ...]
    privacy: PrivacyStatement
    """Of the epoch that costs most: the releases compose in parallel."""
    factor: Fraction
    """The forgetting factor."""
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """For people: a line for each tested epoch, then the privacy."""
        lines = [f"{self.estimator}, tested on each epoch after training on those before it (errors in percent):"]
        lines.append(f"{'epoch':>12} {'rows':>8} {NEWEST:>8} {ALL:>8} {f'forget {self.factor}':>12}")
        for each in self.tested:
            weighted = "-" if each.forgetting is None else f"{100 * each.forgetting:.2f}"
            errors = f"{100 * each.newest:>8.2f} {100 * each.all:>8.2f} {weighted:>12}"
            lines.append(f"{each.epoch:>12} {each.rows:>8} {errors}")
        parallel = (
            "Each row is in one epoch's release, so these figures are those of all releases together, for a row that "
            "is replaced by another one of its epoch."
        )
        return [*lines, *self.privacy.short_sentences(), parallel, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "estimator": self.estimator,
            "forgetting": str(self.factor),
            "epochs": [asdict(each) for each in self.tested],
            "privacy": self.privacy.to_dict(),
            "notes": list(self.notes),
        }


def check_epochs(epochs: Sequence[NamedEpoch], table: SimulationTable, parties: int, least: int) -> None:
    """Raise ConfigurationError or DataError, before anything is computed, if epochs are too few or too small.

    least: how many there must be. Each has a row for each party, and all but the first a usable row to test on.
    """
    if len(epochs) < least:
        raise ConfigurationError(f"{amount(len(epochs), 'epoch')}, and this simulation needs {least}: give more epochs")
    for number, epoch in enumerate(epochs):
        if len(epoch.rows) < parties:
            raise ConfigurationError(
                f"epoch {epoch.name} has {amount(len(epoch.rows), 'row')} for {parties} parties: name fewer epochs or "
                "parties"
            )
        if number and not table.records.usable[epoch.rows].any():
            raise DataError(
                f"epoch {epoch.name} has no usable rows to test on: correct the table, or name fewer epochs"
            )


def parts_of(
    table: SimulationTable, epoch: NamedEpoch, number: int, options: SimulationOptions
) -> list[NDArray[np.int64]]:
    """The rows of an epoch, the `number`-th, divided among the parties, as indices into the table."""
    generator = np.random.default_rng([options.seed, number])
    positive = table.records.labels[epoch.rows] > 0
    return [epoch.rows[part] for part in options.partition.divide(options.parties, positive, None, generator)]


def simulate_epochs(
    table: SimulationTable,
    epochs: Sequence[NamedEpoch],
    options: SimulationOptions,
    learner: tuple[str, Any],
    factor: Fraction,
    note: Callable[[str], None] = lambda _: None,
) -> EpochsResult:
    """Release each epoch once, train after each, and test on the next.

    options: with a design. learner: an estimator of releases and its name. factor: of forgetting. note: progress
    callback. Raises ConfigurationError and PlanError.
    """
    check_forgetting(factor)
    design = options.design
    assert design is not None, "epochs are released by a design"
    names = party_names(options.parties)
    secret = SecretKey.generate(SystemRandom(), bits=options.key_bits) if options.encrypt else None
    samples: list[RadoSample | Moments] = []
    tested: list[TestedEpoch] = []
    statements: list[PrivacyStatement] = []
    with start_hosts(table.records, options.seed, names, workers=options.actors, timeout_s=options.timeout_s) as hosts:
        federation = SimulatedFederation(hosts, names, options.seed, secret, **options.of_requests)
        for number, epoch in enumerate(epochs, start=1):
            if samples:
                tested.append(_tested(table, epoch, samples, learner[1], factor))
            if number < len(epochs):
                sample, statement = _released(federation, table, epoch, number, options, design)
                samples.append(sample)
                statements.append(statement)
                note(f"epoch {epoch.name}: {amount(len(epoch.rows), 'row')} released")
    return EpochsResult(learner[0], tuple(tested), worst(statements), factor, tuple(table.notes))


def _released(
    federation: SimulatedFederation,
    table: SimulationTable,
    epoch: NamedEpoch,
    number: int,
    options: SimulationOptions,
    design: DesignOptions,
) -> tuple[RadoSample | Moments, PrivacyStatement]:
    """The release of one epoch's rows, divided among the parties, and its statement."""
    parts = parts_of(table, epoch, number, options)
    request = replace(design.request(table.schema, [[len(part) for part in parts]]), epoch=epoch.name)
    planned = federation.plan(design, request, parts, number)
    statement = design.statement(planned.kind, planned.plan.query, planned.party_rows)
    opened = opened_release(planned, federation.ask(planned))
    assert not isinstance(opened, ClassMoments | NumberMoments), "the label has two classes"
    return opened, statement


def _tested(
    table: SimulationTable,
    epoch: NamedEpoch,
    samples: Sequence[RadoSample | Moments],
    learner: Any,
    factor: Fraction,
) -> TestedEpoch:
    usable = epoch.rows[table.records.usable[epoch.rows]]
    x, labels = table.records.features[usable] / float(ONE), table.records.labels[usable]

    def error(sample: RadoSample | Moments) -> float:
        fit = learner.fit_moments if isinstance(sample, Moments) else learner.fit_release
        fit(sample)
        return float(np.mean((learner.decision_function(x) > 0) != (labels > 0)))

    moments = [each for each in samples if isinstance(each, Moments)]
    rados = [each for each in samples if isinstance(each, RadoSample)]
    whole: RadoSample | Moments = pooled_moments(moments) if moments else pooled_rados(rados)
    return TestedEpoch(
        epoch=epoch.name,
        rows=len(usable),
        trained_on=len(samples),
        newest=error(samples[-1]),
        all=error(whole),
        forgetting=error(pooled_moments(moments, factor)) if moments else None,
    )
