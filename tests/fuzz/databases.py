"""Targets: the SQLite files of a party and of the coordinator, as files and by the texts in their cells."""

import dataclasses
import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

from coordinator import status
from coordinator.events import PartyAnswer
from coordinator.rounds import Rules, begin
from coordinator.store import Statement, Store, read_seen
from dpcore.accounting.filters import Loss, PrivacyLimit
from dpcore.errors import RadofedError
from parties.answering.attempts import Attempts
from parties.database import LedgerOwner
from parties.history.database import HistoryDatabase
from parties.history.history import History, What
from parties.ledger.chain import Head
from parties.ledger.charges import RECORD, Charge, bounds_text, marginal, read_charge
from parties.ledger.head import Account, LocalHead, Sums
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from tests.fuzz import world
from tests.fuzz.mutation import json_octets, octets_near
from tests.fuzz.target import Target, scratch, written
from wire.envelopes import MessageType
from wire.statements import sign

OWNER = LedgerOwner(world.FEDERATION, "ann", "data.csv")
LIMITS = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 1000)), 3)
CHARGE = Charge(((RECORD, Loss(Fraction(1, 3), Fraction(1, 10**6), Fraction(1, 8), Fraction(0))),), "lea")
QUERY = b"q" * 32
_numbers = itertools.count()


def make_ledger(path: Path) -> None:
    """A ledger with a charge, a reservation, and an accepted attempt."""
    ledger = Ledger.open(path, OWNER, LIMITS)
    attempts = Attempts(ledger)
    acceptance = world.acceptance("ann", QUERY)
    attempts.accept(
        acceptance,
        lambda complete: sign(complete, world.KEYS["ann"]),
        CHARGE,
        mask_key=bytes(32),
        not_after_unix_s=world.NOW,
        now_unix_s=world.NOW,
    )
    weak = Charge(((marginal("smoker", "smoker"), CHARGE.bounds[0][1]),), "lea", b"epoch")
    ledger.reserve(QUERY, 2, weak, lapses_at_unix_s=world.NOW + 9, now_unix_s=world.NOW)
    ledger.charge(QUERY, 2, cohort_digest=bytes(32), spool_digest=bytes(32), now_unix_s=world.NOW)
    ledger.database.close()


def make_store(path: Path) -> None:
    """A store with one query, an acceptance, a roster, features and a ledger head."""
    store = Store(path, world.FEDERATION)
    rules = Rules(world.PARTIES, 2, 4, 1000, 60, 60, 60, 2)
    data = begin(rules, now=0.0, expires_at=3600.0).to_dict(0.0)
    opened = world.opened()
    store.add_query(
        opened.envelope, "lea", submitted_at_unix_s=world.NOW, not_after_unix_s=world.NOW + 3600, round_data=data
    )
    said = sign(world.acceptance("ann"), world.KEYS["ann"])
    data["answers"] = {"ann": dataclasses.asdict(PartyAnswer(said.payload_hash.hex(), rows=world.ROWS))}
    store.save(
        opened.query_id,
        data,
        work_changed=True,
        finished_at_unix_s=None,
        statement=Statement(1, "ann", MessageType.ACCEPTANCE, said, 7),
    )
    store.remember_roster(3, world.ROSTER_ENVELOPE)
    features = world.KEYS["ann"].sign(MessageType.FEATURES, world.statements()[MessageType.FEATURES][0])
    store.remember_features("ann", world.NOW, features)
    store.close()


@cache
def template(make: Callable[[Path], None]) -> Path:
    """The file that `make` writes, in small pages, so that an edit meets something of each."""
    path = scratch("databases") / make.__name__
    make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return path


def fresh(name: str, data: bytes | None, make: Callable[[Path], None]) -> Path:
    """A file with this content, or that of the template, without the journals of the last one."""
    directory = scratch(name)
    for left in directory.iterdir():
        left.unlink(missing_ok=True)  # a connection that is closed takes its own files along
    # Another name each time: SQLite knows the open files of a process by their inodes, which are used again.
    path = directory / f"{next(_numbers)}.sqlite"
    path.write_bytes(data) if data is not None else shutil.copy(template(make), path)
    return path


def all_of(uses) -> None:
    """Call each, and then raise the first of our own errors. Any other error is raised at once."""
    errors = []
    for use in uses:
        try:
            use()
        except RadofedError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def use_ledger(path: Path) -> None:
    """What a start of the party, and `rado ledger show` and `verify`, read."""

    def use(*, create: bool) -> None:
        # The head beside it is another target.
        ledger = Ledger.open(path, OWNER, LIMITS, create=create, anchored=False)
        attempts = Attempts(ledger)
        with closing(ledger.database):
            all_of(
                (
                    ledger.verify,
                    lambda: ledger.state(world.NOW).to_dict(),
                    lambda: ledger.cost(QUERY, 2),
                    attempts.unfinished,
                    lambda: attempts.of_query(QUERY),
                )
            )

    all_of((lambda: use(create=False), lambda: use(create=True)))


def read_ledger(data: bytes) -> None:
    use_ledger(fresh("ledger-file", data, make_ledger))


def change(path: Path, statement: str, values: tuple) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement, values)


def read_bounds(data: bytes) -> None:
    """In a ledger, bounds that differ from the chain's are refused before they are read."""
    charge = read_charge(data.decode(errors="replace"), "lea", None)
    assert read_charge(bounds_text(charge), "lea", None) == charge


def a_head() -> bytes:
    """The file beside a ledger."""
    path = scratch("head-made") / "ledger.sqlite.head"
    sums = Sums(((RECORD, CHARGE.bounds[0][1]),), 1)
    owner, head = (world.FEDERATION, "ann", "data.csv"), Head(7, b"d" * 32)
    LocalHead(owner, bytes(32), head, Account(sums, (b"abcd",))).write(path)
    return path.read_bytes()


def read_head(data: bytes) -> None:
    head = LocalHead.read(written("ledger-head", "ledger.sqlite.head", data))
    assert head is not None
    head.write(scratch("ledger-head") / "again")
    assert LocalHead.read(scratch("ledger-head") / "again") == head


def read_attempt(data: bytes) -> None:
    path = fresh("ledger-attempt", None, make_ledger)
    half = len(data) // 2
    change(path, "UPDATE attempts SET answer = ?, state = CAST(? AS TEXT)", (data, data[:half]))
    use_ledger(path)


def use_store(path: Path) -> None:
    """What a start of the coordinator, and `rado coordinator status`, read."""

    def use() -> None:
        with closing(Store(path, world.FEDERATION)) as store:
            all_of(
                (
                    lambda: [core_restore(stored) for stored in store.load()],
                    lambda: store.revision,
                    store.roster,
                    store.features,
                    lambda: store.newest_head("ann"),
                    lambda: _seen(path),
                )
            )

    all_of((lambda: status._queries(path, {}), use))


def _seen(path: Path) -> None:
    """As coordinator.status reads it, which takes a file that it cannot read for one of an earlier version."""
    with suppress(sqlite3.Error):
        assert all(isinstance(at_unix_s, int) for at_unix_s in read_seen(path).values())


def core_restore(stored):
    """As coordinator.core.Core.start does."""
    from coordinator.core import Core

    core = Core.__new__(Core)
    core.clock, core.wall_clock = (lambda: 0.0), (lambda: float(world.NOW))
    return core._restore(stored)


def read_store(data: bytes) -> None:
    use_store(fresh("store-file", data, make_store))


def read_round(data: bytes) -> None:
    path = fresh("store-round", None, make_store)
    change(path, "UPDATE queries SET round = CAST(? AS TEXT)", (data,))
    use_store(path)


def read_cell(data: bytes) -> None:
    """Any type in any cell: the store's columns have none that SQLite enforces."""
    path = fresh("store-cell", None, make_store)
    tables = ("roster", "queries", "statements", "features", "heads", "facts")
    with closing(sqlite3.connect(path)) as connection:
        columns = [
            (table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})").fetchall()
        ]
    table, column = columns[(data[0] if data else 0) % len(columns)]
    values = [None, data[2:], data[2:].decode(errors="replace"), len(data), 1.5, -1]
    value = values[(data[1] if len(data) > 1 else 0) % len(values)]
    try:
        change(path, f"UPDATE OR REPLACE {table} SET {column} = ?", (value,))
    except sqlite3.IntegrityError:
        return
    use_store(path)


def read_history_details(data: bytes) -> None:
    path = fresh("history-details", None, make_history)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET details = CAST(? AS TEXT)", (data,))
    database = HistoryDatabase(path, federation=world.FEDERATION, party="ann", create=False)
    try:
        history = History(database)
        history.events([QUERY])
        history.refusals()
    finally:
        database.close()


def make_history(path: Path) -> None:
    """A history with a refusal."""
    database = HistoryDatabase(path, federation=world.FEDERATION, party="ann")
    History(database).happened(QUERY, 1, What.REFUSED, world.NOW, code="POLICY_LIMITS", detail="x")
    database.close()


def targets() -> list[Target]:
    bounds = [["record", "", "", "1/3", "1/1000000", "1/8", "0/1"], ["marginal", "a", "b", "1/3", "0/1", "1/8", "0/1"]]
    with closing(sqlite3.connect(template(make_store))) as connection:
        (text,) = connection.execute("SELECT round FROM queries").fetchone()
    answer = sign(world.acceptance("ann", QUERY), world.KEYS["ann"]).to_bytes()
    any_cell = octets_near([bytes([place, kind, 49, 50]) for place in range(24) for kind in range(6)])
    return [
        Target("ledger-file", read_ledger, octets_near([template(make_ledger).read_bytes()]), 1 << 20,
               ("parties.ledger.ledger.Ledger.open",), examples=30),
        Target("ledger-bounds", read_bounds, json_octets([bounds, []]), 1 << 20,
               ("parties.ledger.charges.read_charge",), examples=40),
        Target("ledger-head", read_head, octets_near([a_head()]), 16 << 20, ("parties.ledger.head._HEAD",),
               examples=30),
        Target("ledger-attempt", read_attempt, octets_near([answer, b"ready", b"accepted" * 2]), 1 << 20, (),
               examples=20),
        Target("store-file", read_store, octets_near([template(make_store).read_bytes()]), 1 << 20,
               ("coordinator.store._STORE", "coordinator.store.Store.load"), examples=30),
        Target("store-round", read_round, json_octets([json.loads(text)]), 1 << 20,
               ("coordinator.rounds.Round.from_dict", "coordinator.store.read_queries"), examples=40),
        Target("history-details", read_history_details, json_octets([{"code": "POLICY_LIMITS", "detail": "x"}]),
               1 << 16, ("parties.history.history._DETAILS",), examples=60),
        Target("store-cell", read_cell, any_cell, 1 << 16, (), examples=60),
    ]  # fmt: skip
