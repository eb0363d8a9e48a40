"""The charge of one attempt: its privacy loss in each scope.

Scopes are nested: the marginal of a feature (the released values of its coordinate alone) is within the joint release
of its source column, which is within the release of whole records, which is within that of whole persons.

A bound for a scope also bounds every scope within it: a record that is replaced by another of the same person changes
one person. An event has no bound for a scope that is neither listed nor within a listed scope.
"""

import json
import math
import re
import secrets
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from dpcore.accounting.concentrated import pure_curve
from dpcore.accounting.filters import Loss
from dpcore.errors import PlanError, RadofedError
from dpcore.queries.kind import QueryKind
from dpcore.records.held_back import Part
from dpcore.records.schema import Schema
from parties.ledger.chain import CHAIN_TABLE, NONCE_BYTES, NONCE_KEY, append_all
from radobase.printing import json_text
from wire.errors import Code, WireError
from wire.query import Query, setting_of

# A 63-bit number that divides a power of ten also divides 10 to this power.
_DIGITS_OF_63_BITS = 63
_ROUNDED_DIGITS = 30


class ScopeKind(StrEnum):
    """Kinds of scope, widest first."""

    PERSON = "person"
    RECORD = "record"
    JOINT = "joint"
    MARGINAL = "marginal"


@dataclass(frozen=True)
class Scope:
    """What a bound covers: persons, records, a source column in the whole release, or a feature's own values."""

    kind: ScopeKind
    name: str = ""
    """The column's or the feature's, empty for persons and records."""
    column: str = ""
    """A feature's source column, if known; it is not part of the scope's identity."""

    def __post_init__(self) -> None:
        is_whole = self.kind in (ScopeKind.PERSON, ScopeKind.RECORD)
        if is_whole != (not self.name) or (self.column and self.kind is not ScopeKind.MARGINAL):
            raise ValueError(f"not a scope: {self!r}")

    @property
    def key(self) -> tuple[ScopeKind, str]:
        """The scope's identity."""
        return self.kind, self.name

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of the scope, widest first."""
        return list(ScopeKind).index(self.kind), self.name

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value


PERSON, RECORD = Scope(ScopeKind.PERSON), Scope(ScopeKind.RECORD)


def joint(column: str) -> Scope:
    """The scope of a source column."""
    return Scope(ScopeKind.JOINT, column)


def marginal(feature: str, column: str = "") -> Scope:
    """The scope of a feature's own values."""
    return Scope(ScopeKind.MARGINAL, feature, column)


@dataclass(frozen=True)
class Division:
    """Rows that one key divides by their ids (dpcore.records.held_back)."""

    load: str
    """The random name of the load of the rows: what a later load has, of the same table or another, is not known."""
    key: str
    """The name of the key."""


@dataclass(frozen=True)
class Side:
    """The part of divided rows that an event is about."""

    division: Division
    share: Fraction
    """s, of the rows that are held back."""
    is_held_back: bool


@dataclass(frozen=True)
class Charge:
    """Cost of one attempt.

    Raises ValueError if a scope has two bounds, a table's name or an epoch of rows is empty, it stands for no event, or
    has a side and does not bound whole records alone, or all epochs.
    """

    bounds: tuple[tuple[Scope, Loss], ...] = ()
    """Each scope with a bound of its own, and the bound; sorted by scope."""
    learner: str = ""
    """Who sent the query."""
    epoch: bytes | None = None
    """The name of the released noised table, if there is one. All events of one epoch are one release of that table,
    which counts once."""
    events: int = 1
    """How many events without a bound it stands for, 1 for every attempt."""
    side: Side | None = None
    """The part of the rows that it is about, and what it costs a record that leaves that part or joins it. None if it
    is about all rows, about rows without ids, or about an epoch."""
    presence: Loss | None = None
    row_epoch: str | None = None
    """The epoch of rows that it is about; None if it is about all rows (parties.ledger.row_epochs)."""
    study: str = ""
    """The protocol number of the study that it is part of; empty without one. If `learner` is empty, it may be part of
    any."""

    def __post_init__(self) -> None:
        scopes = [scope.key for scope, _ in self.bounds]
        is_odd = scopes not in ([PERSON.key], [RECORD.key]) or self.epoch is not None or self.row_epoch is not None
        if (self.side is None) != (self.presence is None) or (self.side is not None and is_odd):
            raise ValueError("a charge of a part of the rows bounds whole records, also of one that changes its part")
        if self.events < 1:
            raise ValueError("a charge stands for at least one event")
        if len({scope.key for scope, _ in self.bounds}) < len(self.bounds):
            raise ValueError("a charge bounds a scope twice")
        if self.epoch == b"" or self.row_epoch == "":
            raise ValueError("an epoch without a name")
        object.__setattr__(self, "bounds", tuple(sorted(self.bounds, key=lambda bound: bound[0].order)))

    def bound(self, scope: Scope, columns: Iterable[str] = ()) -> Loss | None:
        """The bound for a scope: its own, or that of the narrowest scope around it. None if there is none.

        columns: source columns of a feature of this name, in addition to the scope's own. Other scopes have none.
        """
        within = [scope.key]
        if scope.kind is ScopeKind.MARGINAL:
            within += [(ScopeKind.JOINT, column) for column in dict.fromkeys((scope.column, *columns)) if column]
        if scope.kind is not ScopeKind.PERSON:
            within.append(RECORD.key)
        return next((self._listed[key] for key in (*within, PERSON.key) if key in self._listed), None)

    @cached_property
    def _listed(self) -> dict[tuple[ScopeKind, str], Loss]:
        return {scope.key: loss for scope, loss in self.bounds}

    @cached_property
    def _hash(self) -> int:
        whose = self.learner, self.study
        return hash((self.bounds, whose, self.epoch, self.events, self.side, self.presence, self.row_epoch))

    def __hash__(self) -> int:
        # A ledger adds up thousands of equal charges, and a fraction's hash is slow.
        return self._hash

    @property
    def is_bounded(self) -> bool:
        """Whether whole records are protected."""
        return self.bound(RECORD) is not None

    def __str__(self) -> str:
        words = "; ".join(f"{loss} for {scope}" for scope, loss in self.bounds) or "no bound"
        words += "" if self.row_epoch is None else f"; rows of epoch {self.row_epoch} only"
        return f"{words}; study {json_text(self.study)}" if self.study else words


def charge_for(query: Query, rows: int, epoch: bytes | None = None, division: Division | None = None) -> Charge:
    """The charge of one attempt for a party of `rows` rows, or persons if the query is about persons.

    A marginal's charge uses only the party's own distribution, so it holds under any collusion. Shared noise counts
    `honest_parties` shares, this party's included: all other members may collude. A delta that is not a decimal is
    rounded up. epoch: the name of the table, for a release of a table with noise. division: of rows that
    have ids.

    Raises WireError(PLAN_INFEASIBLE) if the design is empty or has no finite bound at this size.
    """
    kind, schema, part, delta = query.kind, query.schema, query.held_back, _short(query.delta)
    try:
        protection = kind.protection(setting_of(query))
        loss = protection.loss(rows, delta)
        # A person at several parties may be in another part at each of them.
        is_whole = query.persons is None or query.persons.parties == 1
        is_divided = part is not None and division is not None and query.epoch is None and protection.is_of_part
        is_divided &= is_whole
        presence = protection.of_presence().loss(rows, delta) if is_divided else None
    except PlanError as error:
        raise WireError(Code.PLAN_INFEASIBLE, str(error)) from error
    study = "" if query.study is None else query.study.protocol_number
    charge = Charge(learner=query.learner, row_epoch=query.epoch, study=study)
    if loss is None:
        return charge
    match kind.scope:
        case "record" | "person" if part is not None and division is not None and presence is not None:
            # A charge has a side, or is about an epoch, where both parts count in full.
            side = Side(division, part.share, part.part is Part.HELD_BACK)
            return replace(charge, bounds=((_whole(kind), loss),), side=side, presence=presence)
        case "record" | "person":
            return replace(charge, bounds=((_whole(kind), loss),), epoch=epoch)
        case "joint":
            scopes = column_scopes(schema, kind.protected_column)
        case _:
            scopes = [marginal(name, schema.sources(name) or "") for name in kind.features(schema)]
    return replace(charge, bounds=tuple((scope, loss) for scope in scopes))


def _whole(kind: QueryKind) -> Scope:
    return RECORD if kind.persons is None else PERSON


def column_scopes(schema: Schema, column: str) -> list[Scope]:
    """A source column and its features, so that the features' own limits count the column's bound."""
    derived = (group for group in schema.groups if group.column == column)
    return [
        joint(column),
        *(marginal(group.name, column) for group in derived if group.coordinates == (group.name,)),
    ]


def _short(delta: Fraction) -> Fraction:
    """Delta if it is a decimal; otherwise delta rounded up to 30 digits, a relative change of less than 1e-11.

    The learner chooses delta. The denominator of a sum of fractions with coprime denominators grows without limit: a
    ledger would take minutes to add up some thousand of them.
    """
    if 10**_DIGITS_OF_63_BITS % delta.denominator == 0:
        return delta
    return Fraction(math.ceil(delta * 10**_ROUNDED_DIGITS), 10**_ROUNDED_DIGITS)


# File format of charges in the ledger, and the update from earlier formats.


FORMAT_VERSION = 8
CHAINED_VERSION = 3
"""The first format with a chain of entries, and so with a head beside the ledger."""
COHORTS_VERSION = 4
"""The first format that keeps more than the newest acceptance of each other party."""
ROW_EPOCHS_VERSION = 6
"""The first format with charges about epochs of rows, and with the rows of each."""
APPROVALS_VERSION = 7
"""The first format with approvals of several queries."""
SHARINGS_VERSION = 8
"""The first format that keeps keys of attempts whose members may vanish."""
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
    bounds TEXT NOT NULL,            -- JSON: [[kind, name, column, epsilon, delta, rho, failure, curve, gaussian],
                                     --        ..., ["events", n], ["row_epoch", name], ["study", number]],
                                     --        curve: [], or its part of rho and its values,
                                     --        gaussian: [], or mu^2 and the slack;
                                     --        ["side", load, key, share, held back, epsilon, ...] of a part
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
    name BLOB NOT NULL,              -- of its acceptance, verified in a cohort (wire.statements.name_of)
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


ROW_EPOCH_TABLE = """
CREATE TABLE row_epochs (
    name TEXT PRIMARY KEY,           -- of an epoch that an attempt was accepted about
    key_check BLOB NOT NULL,         -- of the key of the numbers
    numbers BLOB NOT NULL            -- of its rows: ascending, each once, little-endian 64-bit
) STRICT;
"""

APPROVAL_TABLES = """
CREATE TABLE approvals (
    approval_id BLOB PRIMARY KEY,    -- SHA-256 of its terms
    terms TEXT NOT NULL,             -- JSON
    until_unix_s REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('proposed', 'given', 'ended')),
    changed_at_unix_s REAL NOT NULL  -- when it came into this state
) STRICT;
CREATE TABLE approval_acts (
    approval_id BLOB NOT NULL,
    user TEXT NOT NULL,              -- of the operating system
    name TEXT NOT NULL,              -- as given, or empty
    acts_for TEXT NOT NULL,          -- the user whose delegate this one was, or empty
    act TEXT NOT NULL CHECK (act IN ('approved', 'refused', 'revoked')),
    reason TEXT NOT NULL,
    at_unix_s REAL NOT NULL
) STRICT;
CREATE TABLE approval_uses (
    query_id BLOB NOT NULL,          -- of an attempt that was reserved under an approval; it counts while its event is
    attempt INTEGER NOT NULL,        -- there, reserved or charged
    approval_id BLOB NOT NULL,
    items TEXT NOT NULL,             -- JSON: what is asked by it, each at most once under the approval
    PRIMARY KEY (query_id, attempt)
) STRICT;
CREATE INDEX uses_of_approval ON approval_uses (approval_id);
"""


SHARINGS_TABLE = """
CREATE TABLE IF NOT EXISTS sharings (
    query_id BLOB NOT NULL,          -- of an attempt that is not over, whose members may vanish
    attempt INTEGER NOT NULL,
    secret BLOB NOT NULL,            -- its share key and the seed of its own mask derive from it
    mask_key BLOB NOT NULL,          -- raw X25519 private key
    sharing_digest BLOB,             -- what it dealt for
    key_shares BLOB,                 -- signed, as first sent
    survivors_digest BLOB,           -- whom it unmasked
    unmasking BLOB,                  -- signed, as first sent
    PRIMARY KEY (query_id, attempt)
) STRICT;
"""


def bounds_text(charge: Charge) -> str:
    """A charge's bounds as stored in the file: every number exact, as "numerator/denominator"."""
    bounds: list[list[Any]] = [[s.kind.value, s.name, s.column, *_parts(loss)] for s, loss in charge.bounds]
    if charge.side is not None and charge.presence is not None:
        side = charge.side
        names = side.division.load, side.division.key
        bounds.append(["side", *names, _ratio(side.share), side.is_held_back, *_parts(charge.presence)])
    bounds += [["events", charge.events]] if charge.events != 1 else []
    bounds += [] if charge.row_epoch is None else [["row_epoch", charge.row_epoch]]
    return json.dumps(bounds + ([["study", charge.study]] if charge.study else []))


@lru_cache(maxsize=4096)
def read_charge(bounds: str, learner: str, epoch: bytes | None) -> Charge:
    """The charge stored in the file. Raises UnreadableEntryError if the text was not written by `bounds_text`."""
    try:
        read, events, side, presence = [], 1, None, None
        names: dict[str, str] = {}
        for entry in json.loads(bounds):
            match entry[0]:
                case "row_epoch" | "study":
                    names[entry[0]] = _name(entry)
                case "side":
                    side, presence = _side(entry)
                case "events":
                    _, events = entry
                    if type(events) is not int:
                        raise TypeError("a number of events is not an integer")
                case _:
                    kind, name, column, *parts = entry
                    if not all(isinstance(text, str) for text in (kind, name, column)):
                        raise TypeError("a scope is not a text")
                    read.append((Scope(ScopeKind(kind), name, column), _loss(parts)))
        row_epoch, study = names.get("row_epoch"), names.get("study", "")
        return Charge(tuple(read), learner, epoch, events, side, presence, row_epoch, study)
    except (ValueError, TypeError, LookupError, ZeroDivisionError, RecursionError, PlanError) as error:
        raise UnreadableEntryError(f"the bounds of a charge: {type(error).__name__}") from error


def _name(entry: list[Any]) -> str:
    _, text = entry
    if not isinstance(text, str) or not text:
        raise TypeError("an epoch of rows or a study is not named")
    return text


def _side(entry: list[Any]) -> tuple[Side, Loss]:
    """The part of the rows, and what it costs a record that leaves it or joins it."""
    _, load, key, share, is_held_back, *parts = entry
    if not (isinstance(load, str) and isinstance(key, str) and type(is_held_back) is bool):
        raise TypeError("a part of the rows is not named")
    return Side(Division(load, key), _exact(share), is_held_back), _loss(parts)


def update_format(connection: sqlite3.Connection) -> None:
    """Update a ledger of an earlier format, in one transaction. Another process may have done so already.

    Formats 1 and 2 had no chain: each event becomes an entry. Format 1 stored an event's scope, "marginal:FEATURE",
    with epsilon and delta, or no bound at all, and neither the learner nor the feature's column. An unknown learner
    counts as every learner.

    Up to format 3 only the newest acceptance of each other party was kept. Up to format 4 the charges have no curve,
    and are read as those of an earlier version; up to format 5 they have no side, are about all rows, and are part of
    no study.

    Up to format 6 there were no approvals of several queries. Raises ValueError for any other scope.
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
        if version < ROW_EPOCHS_VERSION:
            _execute_all(connection, ROW_EPOCH_TABLE)
        if version < APPROVALS_VERSION:
            _execute_all(connection, APPROVAL_TABLES)
        if version < SHARINGS_VERSION:
            _execute_all(connection, SHARINGS_TABLE)
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
    more = [] if loss.is_earlier else [curve, [] if loss.shift is None else [_ratio(loss.shift), _ratio(loss.slack)]]
    return [*map(_ratio, (loss.epsilon, loss.delta, loss.rho, loss.failure)), *more]


def _loss(parts: list[Any]) -> Loss:
    """The inverse of `_parts`. Up to format 4 there was no curve, up to format 5 no mu^2."""
    epsilon, delta, rho, failure = map(_exact, parts[:4])
    if len(parts) > 4:
        found, *gaussian = parts[4:]
        curved, *curve = found or ["0/1"]
        shift, slack = map(_exact, gaussian[0]) if gaussian and gaussian[0] else (None, Fraction(0))
        if len(gaussian) > 1:
            raise ValueError("a loss has more parts than this version knows")
        return Loss(epsilon, delta, rho, failure, tuple(map(_exact, curve)), _exact(curved), shift=shift, slack=slack)
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
