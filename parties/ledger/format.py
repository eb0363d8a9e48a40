"""File format of charges in the ledger, and the update from earlier formats."""

import json
import re
import secrets
import sqlite3
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpcore.accounting.concentrated import pure_curve
from dpcore.accounting.filters import Loss
from dpcore.errors import PlanError, RadofedError
from parties.ledger.chain import CHAIN_TABLE, NONCE_BYTES, NONCE_KEY, append_all
from parties.ledger.charges import Charge, Scope, ScopeKind, marginal

FORMAT_VERSION = 5
CHAINED_VERSION = 3
"""The first format with a chain of entries, and so with a head beside the ledger."""
COHORTS_VERSION = 4
"""The first format that keeps more than the newest acceptance of each other party."""
AWAITS_HEAD = "awaits_head"
"""Key in `identity` of a ledger that got its chain, and may have died before its head was beside it."""
_RATIO = re.compile(r"-?[0-9]+/[0-9]+")


class UnreadableEntryError(RadofedError, ValueError):
    """An entry of the ledger that this program did not write."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"the ledger has an entry that cannot be read ({cause}); stop this party, keep the file and ask the data "
            "officer: `rado ledger verify` names the entry"
        )


EVENTS_TABLE = """
CREATE TABLE events (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    learner TEXT NOT NULL,           -- empty if unknown
    epoch BLOB,                      -- of the released noised table, if any
    bounds TEXT NOT NULL,            -- JSON: [[kind, name, column, epsilon, delta, rho, failure, curve], ...,
                                     --        ["events", n]], curve: [], or its part of rho and its values
    state TEXT NOT NULL CHECK (state IN ('reserved', 'charged')),
    lapses_at_unix_s REAL NOT NULL,  -- of a reservation
    cohort_digest BLOB,
    spool_digest BLOB,
    recorded_at_unix_s REAL NOT NULL,
    PRIMARY KEY (query_id, attempt)
) STRICT
"""

ANCHOR_TABLES = f"""
{CHAIN_TABLE};
CREATE TABLE witnessed (
    party TEXT PRIMARY KEY,
    entries INTEGER NOT NULL,
    acceptance BLOB NOT NULL         -- its signed acceptance with the most ledger entries, verified in a cohort
) STRICT;
CREATE TABLE receipts (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    receipt BLOB NOT NULL,           -- signed, as first sent
    PRIMARY KEY (query_id, attempt)
) STRICT;
CREATE TABLE seen_in_cohorts (
    query_id BLOB NOT NULL,          -- others were in a cohort with this attempt, so it may have been charged
    attempt INTEGER NOT NULL,
    PRIMARY KEY (query_id, attempt)
) STRICT;
CREATE TABLE evidence (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    statement BLOB NOT NULL,         -- signed by this party, of entries that this ledger does not have
    source TEXT NOT NULL             -- who showed it
) STRICT;
"""

COHORT_TABLES = """
CREATE TABLE in_cohorts (
    party TEXT NOT NULL,
    name BLOB NOT NULL,              -- of its acceptance, verified in a cohort (wire.witness.name_of)
    entries INTEGER NOT NULL,        -- of its ledger, in that acceptance
    not_after_unix_s INTEGER NOT NULL, -- of the query
    acceptance BLOB,                 -- as signed
    PRIMARY KEY (party, name)
) STRICT;
CREATE TABLE known_names (
    name BLOB PRIMARY KEY            -- of this party's own acceptances, and of those that it acknowledged
) STRICT, WITHOUT ROWID;
CREATE TABLE computed_late (
    query_id BLOB NOT NULL,          -- accepted, and not computed, when a process started: perhaps a copy's
    attempt INTEGER NOT NULL,
    PRIMARY KEY (query_id, attempt)
) STRICT;
"""


def bounds_text(charge: Charge) -> str:
    """A charge's bounds as stored in the file: every number exact, as "numerator/denominator"."""
    bounds: list[list[Any]] = [[s.kind.value, s.name, s.column, *_parts(loss)] for s, loss in charge.bounds]
    return json.dumps(bounds + ([["events", charge.events]] if charge.events != 1 else []))


@lru_cache(maxsize=4096)
def read_charge(bounds: str, learner: str, epoch: bytes | None) -> Charge:
    """The charge stored in the file. Raises UnreadableEntryError if the text was not written by `bounds_text`."""
    try:
        read, events = [], 1
        for entry in json.loads(bounds):
            if entry[0] == "events":
                _, events = entry
                if type(events) is not int:
                    raise TypeError("a number of events is not an integer")
                continue
            kind, name, column, *parts = entry
            if not all(isinstance(text, str) for text in (kind, name, column)):
                raise TypeError("a scope is not a text")
            read.append((Scope(ScopeKind(kind), name, column), _loss(parts)))
        return Charge(tuple(read), learner, epoch, events)
    except (ValueError, TypeError, LookupError, ZeroDivisionError, RecursionError, PlanError) as error:
        raise UnreadableEntryError(f"the bounds of a charge: {type(error).__name__}") from error


def update_format(connection: sqlite3.Connection) -> None:
    """Update a ledger of an earlier format, in one transaction. Another process may have done so already.

    Formats 1 and 2 had no chain: each event becomes an entry. Format 1 stored an event's scope, "marginal:FEATURE",
    with epsilon and delta, or no bound at all, and neither the learner nor the feature's column. An unknown learner
    counts as every learner.

    Up to format 3 only the newest acceptance of each other party was kept. Up to format 4 the charges have no curve,
    and are read as those of an earlier version. Raises ValueError for any other scope.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 1:
            _from_format_1(connection)
        if version < CHAINED_VERSION:
            _add_chain(connection)
        if version < COHORTS_VERSION:
            _execute_all(connection, COHORT_TABLES)
        if version < FORMAT_VERSION:
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _from_format_1(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE events RENAME TO events_1")
    connection.execute(EVENTS_TABLE)
    columns = "query_id, attempt, scope, epsilon, delta, state, lapses_at_unix_s, cohort_digest, spool_digest"
    for row in connection.execute(f"SELECT {columns}, recorded_at_unix_s FROM events_1").fetchall():  # noqa: S608  (no outside text)
        query_id, attempt, scope, epsilon, delta, *rest = row
        connection.execute(
            "INSERT INTO events VALUES (?, ?, '', NULL, ?, ?, ?, ?, ?, ?)",
            (query_id, attempt, bounds_text(_charge_of_format_1(scope, epsilon, delta)), *rest),
        )
    connection.execute("DROP TABLE events_1")


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    # Not executescript, which commits.
    for statement in filter(str.strip, statements.split(";\n")):
        connection.execute(statement)


def _add_chain(connection: sqlite3.Connection) -> None:
    _execute_all(connection, ANCHOR_TABLES)
    connection.executemany("INSERT INTO identity VALUES (?, ?)", [new_nonce(), (AWAITS_HEAD, "1")])
    append_all(connection)


def new_nonce() -> tuple[str, str]:
    """The row of `identity` that distinguishes this ledger from every other."""
    return NONCE_KEY, secrets.token_hex(NONCE_BYTES)


def _charge_of_format_1(scope: str, epsilon: str | None, delta: str) -> Charge:
    if epsilon is None:
        return Charge()
    kind, _, feature = scope.partition(":")
    if kind != ScopeKind.MARGINAL.value:
        raise ValueError(f"an event with the unknown scope {scope!r}")
    loss = Loss.of_epsilon(Fraction(epsilon), Fraction(delta))
    return Charge(((marginal(feature), replace(loss, is_earlier=True)),))


def _parts(loss: Loss) -> list[Any]:
    curve = list(map(_ratio, (loss.curved, *loss.curve))) if loss.curve else []
    # A charge of an earlier version stays one, and what such a charge says of a curve follows from its epsilon.
    more = [] if loss.is_earlier else [curve]
    return [*map(_ratio, (loss.epsilon, loss.delta, loss.rho, loss.failure)), *more]


def _loss(parts: list[Any]) -> Loss:
    """The inverse of `_parts`. Up to format 4 there was no curve."""
    epsilon, delta, rho, failure = map(_exact, parts[:4])
    if len(parts) > 4:
        ((curved, *curve),) = parts[4:] if parts[4] else (["0/1"],)
        return Loss(epsilon, delta, rho, failure, tuple(map(_exact, curve)), _exact(curved))
    is_pure = delta == failure == 0
    return Loss(
        epsilon,
        delta,
        rho,
        failure,
        pure_curve(epsilon) if is_pure else (),
        rho if is_pure and epsilon else Fraction(0),
        is_earlier=True,
    )


def _exact(text: str) -> Fraction:
    # A decimal with an exponent could be a number of a billion digits.
    if not _RATIO.fullmatch(text):
        raise ValueError("not a numerator and a denominator")
    return Fraction(text)


def _ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"
