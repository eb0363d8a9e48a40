"""The answers of a simulation to estimators that query: `learner.federation` over simulated parties.

A query takes the path of a release: planned for the fold's roster, signed, computed by party code, summed, opened. The
seed of the parties' draws contains the estimator's name and the query's number, so that no two queries share noise.
"""

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.declared import declaration, whole
from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.progress import Progress
from dpcore.paillier.secret import SecretKey
from dpcore.predicates.expressions import Constant
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.randomness.sources import SystemRandom
from dpcore.records.encoding import why_unusable
from dpcore.records.held_back import HeldBack
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from learner.budgeted_oracle import BudgetedOracle
from learner.composition import Unanswered
from learner.federation import Federation, check_terms
from learner.planning import Plan
from learner.requests import Request, StatisticRequest
from parties.data.dataset import load
from radobase.printing import amount
from radobase.schema_files import schema_of, shared_of
from radobase.tables.tables import as_source
from radofed.simulation.federation import PlannedFold, SimulatedFederation
from radofed.simulation.simulate_options import RunFields
from radofed.simulation.table import Partition, TablePersons, divided_rows, ids_of, party_names, read_table
from radofed.simulation.workers import LocalHosts
from wire.query import Query, setting_of
from wire.request_fields import KEY_BITS, UnitFields
from wire.roster import NAME

_DOMAIN = b"radofed/simulation/answer\0"


@dataclass(frozen=True)
class Budget:
    """The (epsilon, delta) of each estimator that queries, in a fold; delta 0 is pure differential privacy.

    Raises ConfigurationError if one is out of range.
    """

    epsilon: Fraction
    delta: Fraction
    adaptive: int | None = None
    """As of `learner.federation.Federation.within`."""

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise ConfigurationError(f"epsilon is {float(self.epsilon):g}: it must be positive")
        if not 0 <= self.delta < 1:
            raise ConfigurationError(
                f"delta is {float(self.delta):g}: choose at least 0, for Laplace noise only, and less than 1"
            )


@dataclass(frozen=True, eq=False)
class SimulatedAnswer:
    """An opened total of simulated parties: a `learner.answer_source.Answer`, read-only."""

    query: Query
    integers: NDArray[np.int64]
    party_rows: Mapping[str, int]
    digest: bytes
    statement: PrivacyStatement
    attempts: int = 1


class SimulatedSource:
    """The parties of one fold, for one estimator: a `learner.answer_source.AnswerSource`.

    parts: the rows of each party, as indices into the table. ending: of the labels of its questions, which must differ
    between two sources of one estimator. seconds: the time of all answers so far.
    """

    def __init__(
        self,
        federation: SimulatedFederation,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        estimator: str,
        progress: Progress | None = None,
        ending: str = "",
    ) -> None:
        self._federation, self._parts, self._fold = federation, tuple(parts), fold
        self._estimator, self._progress, self._ending = estimator, progress, ending
        self._waiting: dict[bytes, PlannedFold] = {}
        self._questions = 0
        self.seconds = 0.0

    @property
    def rows(self) -> int:
        """Number of training rows of all parties."""
        return sum(len(part) for part in self._parts)

    @property
    def persons(self) -> int:
        """The number of their persons."""
        return sum(self._federation.persons_of(part) for part in self._parts)

    def plan(self, request: Request) -> Plan:
        """Plan this estimator's next query; see learner.answer_source.AnswerSource."""
        self._questions += 1
        # Nothing but a fixed ending follows the number, so that no two names give the same label.
        question = f"{self._estimator}/{self._questions}{self._ending}"
        planned = self._federation.plan(None, request, self._parts, self._fold, question)
        self._waiting[planned.plan.query_id] = planned
        return planned.plan

    @property
    def earlier(self) -> tuple[SimulatedAnswer, ...]:
        """None: its parties are asked by one federation only."""
        return ()

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """None: a simulated party uploads in the first attempt."""
        return ()

    def answer(self, plan: Plan) -> SimulatedAnswer:
        """Answer a plan of this source, once: a second answer would have the same noise.

        Raises ConfigurationError if the plan was answered or is of another source, and what a party or the learner
        raises.
        """
        planned = self._waiting.pop(plan.query_id, None)
        if planned is None:
            raise ConfigurationError("this plan was answered already, or is of another source: plan the request again")
        begin = time.perf_counter()
        values = self._federation.ask(planned, self._progress)
        self.seconds += time.perf_counter() - begin
        query = planned.plan.query
        integers = values.reshape(query.kind.shape(query.d))
        integers.setflags(write=False)
        return SimulatedAnswer(
            query,
            integers,
            dict(zip(self._federation.parties, planned.party_rows, strict=True)),
            hashlib.sha256(_DOMAIN + plan.query_id + values.astype("<i8").tobytes()).digest(),
            statement_for(query.kind, planned.party_rows, query.delta, schema=query.schema, setting=setting_of(query)),
        )


class Oracles:
    """The oracles of one fold: one for each estimator that queries, each with the whole budget.

    held_back: the part of the rows that their queries are about; None for all.
    """

    def __init__(
        self,
        federation: SimulatedFederation,
        schema: Schema,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        budget: Budget,
        progress: Progress | None = None,
        held_back: HeldBack | None = None,
    ) -> None:
        self._federation, self._schema, self._parts, self._fold = federation, schema, parts, fold
        self._budget, self._progress, self._held_back = budget, progress, held_back
        self._asked: dict[str, tuple[SimulatedSource, BudgetedOracle]] = {}

    def of(self, estimator: str) -> BudgetedOracle:
        """Make the oracle of the estimator of this name. Raises ConfigurationError if it has one already."""
        if estimator in self._asked:
            raise ConfigurationError(f"{estimator!r} already has its oracle: an estimator gets its budget once")
        source = SimulatedSource(self._federation, self._parts, self._fold, estimator, self._progress)
        federation = Federation(source, self._schema, held_back=self._held_back, **self._federation.terms)
        oracle = federation.within(self._budget.epsilon, self._budget.delta, self._budget.adaptive)
        self._asked[estimator] = source, oracle
        return oracle

    def seconds(self, estimator: str | None = None) -> float:
        """Seconds that the answers to one estimator took; by default to all of them."""
        chosen = self._asked if estimator is None else {estimator}
        return sum(self._asked[name][0].seconds for name in chosen)

    def statements(self) -> dict[str, PrivacyStatement]:
        """The statement of the composition of all answers to an estimator, by name; only for those that queried.

        Raises PlanError if the composition has no finite cost.
        """
        return {name: oracle.statement() for name, (_, oracle) in self._asked.items() if oracle.answers}


def row_count_plan(
    federation: SimulatedFederation, schema: Schema, parts: Sequence[NDArray[np.int64]], fold: int, budget: Budget
) -> PlannedFold:
    """Plan the simplest query, the number of usable rows. It shows the cohort of every query, and is not sent.

    Raises PlanError or another RadofedError if no query is possible.
    """
    request = StatisticRequest(schema=schema, predicates=(Constant(value=True),), epsilon=budget.epsilon, pure=True)
    return federation.plan(None, request, parts, fold, "cohort")


# A simulated federation to query: try statistics, estimators of several rounds and evaluations on your own table.
# It has the interface of a federation of nodes.

_FEWEST = 2
"""Parties: one alone can hide its sums from no one."""
_WHOLE_TABLE = 1
"""The fold number. In a simulation with folds, draws depend on the fold; here there is one fold, of all rows."""


def simulated_federation(
    data: Any,
    *,
    label: str | None = None,
    positive: str | Sequence[str] | None = None,
    target: str | None = None,
    exposure: str | None = None,
    event: str | None = None,
    schema: Schema | SharedSchema | str | Path | None = None,
    id_column: str | None = None,
    parties: int = 10,
    partition: str = "iid",
    seed: int = 0,
    encrypt: bool = False,
    key_bits: int = KEY_BITS,
    **terms: Any,
) -> Federation:
    """Return a federation whose parties, in this process, hold the rows of a table.

    data: a CSV (also gzipped) or Parquet file, an Arrow table or a data frame. schema: one, or its file; otherwise one
    is inferred from the whole table, which is not private. target: "classes" for a label of several.

    exposure: of the target "count", the column of what it is counted over. event: of the target "event", the column of
    the event.

    id_column: of persons, for `unit="person"`. Other options: as of `rado simulate`; terms: as of
    `learner.federation.Federation`.

    The noise protects no one: two federations with one seed repeat each other's. The queries to one share none.

    There is neither a policy nor a ledger: only the budget of each oracle limits the queries. Raises
    ConfigurationError, SchemaError or DataError. A UserWarning names the column and the policy that made most rows
    unusable, if any are.
    """
    check_terms(terms, simulated_federation)
    parties, seed, key_bits, encrypt = _of_run(parties=parties, seed=seed, key_bits=key_bits, encrypt=encrypt)
    check_ids(id_column, terms)
    divided = Partition.parse(partition)
    table = read_table(
        as_source(data),
        label=label,
        positive=positive,
        target=target,
        exposure=exposure,
        event=event,
        schema=shared_of(schema),
        group_column=divided.column,
        id_column=id_column,
        persons_may_repeat=terms.get("persons_may_repeat") or 1,
    )
    if table.unusable is not None:
        warnings.warn(f"{table.unusable}: correct the table or the schema", stacklevel=2)
    parts = divided_rows(table, np.arange(table.records.rows), divided, parties, np.random.default_rng(seed))
    key = key_bits if encrypt else None
    return _asked(table.records, parts, party_names(parties), table.schema, seed, key, terms, table.persons)


def simulate_federation(
    parties: Mapping[str, Any],
    *,
    schema: Schema | SharedSchema | str | Path | None = None,
    label: str | None = None,
    id_column: str | None = None,
    seed: int = 0,
    encrypt: bool = False,
    key_bits: int = KEY_BITS,
    **terms: Any,
) -> Federation:
    """Return a federation whose parties, in this process, hold a table each, as organisations would.

        federation = radofed.simulate_federation({"north": frame, "south": "south.csv"}, schema="schema.toml")

    parties: their tables by name, as of `simulated_federation`, whose other options these are. label: the one that is
    asked about, if the schema has several. Raises ConfigurationError, SchemaError or DataError, which names the party.
    A UserWarning says why most rows of a party are not usable, if they are not.
    """
    check_terms(terms, simulate_federation)
    if not isinstance(parties, Mapping) or len(parties) < _FEWEST:
        raise ConfigurationError("give the table of each party by its name, {'north': ..., 'south': ...}, two or more")
    _check_names(parties)
    if schema is None:
        raise ConfigurationError(
            "give the schema that the parties share, schema=...; simulated_federation drafts one from a single table"
        )
    seed, key_bits, encrypt = _of_run(seed=seed, key_bits=key_bits, encrypt=encrypt)
    schema = schema_of(schema, label)
    check_ids(id_column, terms)
    tables = {name: _of_party(name, data, schema, id_column) for name, data in parties.items()}
    found = tables.values()
    records = Records(
        np.concatenate([each.features for each in found]),
        np.concatenate([each.labels for each in found]),
        np.concatenate([each.usable for each in found]),
        coding=schema.label.coding,
        weights=None if schema.weight is None else np.concatenate([each.weights for each in found]),
    )
    ends = np.cumsum([each.rows for each in found]).tolist()
    parts = [np.arange(first, last) for first, last in pairwise([0, *ends])]
    persons = None if id_column is None else _persons_of(parties, id_column, terms.get("persons_may_repeat") or 1)
    return _asked(records, parts, tuple(tables), schema, seed, key_bits if encrypt else None, terms, persons)


def _check_names(parties: Iterable[Any]) -> None:
    """Raise ConfigurationError unless all are names of members, as those of organisations are."""
    for name in parties:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigurationError(
                f"a party is called {name!r}: give it a name of at most 63 of a-z, 0-9 and '-', beginning with a letter"
            )


def _of_run(**given: Any) -> tuple[Any, ...]:
    """Options of `rado simulate`. Raises ConfigurationError if a value is out of its bounds or of another type."""
    found = {name: whole(value) for name, value in given.items()}
    for name, value in found.items():
        if value is None:
            raise ConfigurationError(f"{name} is None: give a value, or leave {name} out")
        declaration(RunFields, name).check(value)
    return tuple(found.values())


def check_ids(id_column: str | None, terms: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an unknown unit, and unless persons have ids, and nothing else has."""
    unit = terms.get("unit")
    if unit is not None:
        declaration(UnitFields, "unit").check(unit)
    if unit == "person" and id_column is None:
        raise ConfigurationError('unit = "person" needs the column that names each row\'s person: give id_column')
    if unit != "person" and id_column is not None:
        raise ConfigurationError('id_column names persons: give unit = "person" too, or leave id_column out')


def _persons_of(parties: Mapping[str, Any], id_column: str, repeat: int) -> TablePersons:
    """Whose the parties' rows are, one party after the other; a person is one of each party.

    A UserWarning says whose rows are at more parties than `repeat`: parties that do not see one another's ids cannot.
    """
    ids: dict[str, int] = {}
    codes, persons, at = [], 0, Counter[int]()
    for name, data in parties.items():
        try:
            shared = ids_of(as_source(data), id_column, ids)
        except (ConfigurationError, DataError) as error:
            raise type(error)(f"{name}: {error}") from error
        own, numbered = np.unique(shared, return_inverse=True)
        codes.append(numbered + persons)
        persons += len(own)
        at.update(own.tolist())
    if many := sum(parties_of > repeat for parties_of in at.values()):
        most = max(at.values())
        warnings.warn(
            f"{amount(many, 'id')} of {id_column!r} {'is' if many == 1 else 'are'} at up to {most} parties: the "
            f"epsilon holds for a person's rows at {repeat} of them, not for all; give persons_may_repeat={most}",
            stacklevel=3,
        )
    return TablePersons(np.concatenate(codes), repeat)


def _of_party(name: str, data: Any, schema: Schema, id_column: str | None) -> Records:
    """The rows of one party."""
    try:
        found = load(as_source(data), schema, id_column=id_column)
    except (ConfigurationError, DataError) as error:
        raise type(error)(f"{name}: {error}") from error
    usable = int(found.records.usable.sum())
    if (why := why_unusable(found.report.changes, rows=found.report.rows, usable=usable)) is not None:
        warnings.warn(f"{name}: {why}: correct the table or the schema", stacklevel=3)
    return found.records


def _asked(
    records: Records,
    parts: Sequence[NDArray[np.int64]],
    names: tuple[str, ...],
    schema: Schema,
    seed: int,
    key_bits: int | None,
    terms: Mapping[str, Any],
    persons: TablePersons | None = None,
) -> Federation:
    """The federation of parties that hold these parts of the records. key_bits: None to encrypt nothing."""
    secret = None if key_bits is None else SecretKey.generate(SystemRandom(), bits=key_bits)
    federation = SimulatedFederation(LocalHosts(records, seed, names), names, seed, secret, persons)
    return Federation(SimulatedSource(federation, parts, _WHOLE_TABLE, "asked"), schema, **terms)
