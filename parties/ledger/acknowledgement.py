"""What a data officer charges for a ledger that was lost or set back, so that nothing that was spent is given back.

Claims are heads of this party's ledger that others, or the file beside it, still hold. With accounts in them:

    charge = (the claims' sums) - (this ledger's sums up to the last entry that provably is common), at least 0

in each scope, as one event of an unknown learner, and the missing events without a bound by number. What this ledger
added after the common entry stays on top, because there may have been two copies.

What is only reserved here is charged. Without an account, or any claim of an accepted member, the whole remaining limit
of every scope is charged.

The chain continues above every claim, so that older heads do not count any more. Without a witness it continues 2^32
entries higher. Assumes at most two copies that both went on: of claims from several of them only the largest sums are
charged.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from dpcore.accounting.filters import BASIC_SHARE, FAILURE_SHARE, NO_LOSS, Loss, PrivacyLimit
from parties.database import COPIED
from parties.ledger import chain
from parties.ledger.chain import EntryKind
from parties.ledger.charges import AWAITS_HEAD, RECORD, Charge, Scope, bounds_text, read_charge
from parties.ledger.head import Account, Sums
from parties.ledger.ledger import NO_BYTES, Ledger
from parties.ledger.limits import Event, LedgerLimits
from wire.envelopes import sha256

UNWITNESSED_STEP = 1 << 32


@dataclass(frozen=True)
class Claim:
    """A head of this party's ledger."""

    source: str
    """Who holds it."""
    entries: int
    account: Account | None
    """None if it has none that this party can read."""


@dataclass(frozen=True)
class Plan:
    """What `acknowledge` writes."""

    whole: bool
    """Whether it is the whole remaining limit."""
    number: int
    """Of its first entry at least."""
    charges: tuple[Charge, ...]
    """At least one, so that the chain continues."""


def plan(ledger: Ledger, claims: Sequence[Claim], *, witnessed: bool) -> Plan:
    """What is to be charged. witnessed: whether an accepted member showed one of the claims. Changes nothing."""
    newest = max((claim.entries for claim in claims), default=0)
    # A head above all others without an account says that more was spent, but not how much.
    whole = not witnessed or any(claim.account is None for claim in claims if claim.entries == newest)
    with ledger.database.transaction() as connection:
        own = chain.head(connection).entries + sum(not event.charged for event in ledger.events())
        number = max(own, newest) + (1 if witnessed else UNWITNESSED_STEP)
        if whole:
            return Plan(True, number, _whole_limits(ledger.limits, ledger.merged_events()))
        missing = [
            claim.account.sums.less(_up_to(connection, claim.entries, claim.account.trail))
            for claim in claims
            if claim.account is not None
        ]
    return Plan(False, number, _charges(reduce(Sums.largest, missing)))


def charge_plan(ledger: Ledger, decided: Plan, now_unix_s: float) -> None:
    """Charge a plan, durably, and write the head. Ends every attempt that is not charged: it may be elsewhere.

    ledger: opened with `anchored=False`, and unchanged since the plan was made. Raises LedgerBusyError.
    """
    with ledger.database.transaction() as connection:
        ledger.charge_reserved(now_unix_s)
        connection.execute("UPDATE attempts SET state = 'burnt', mask_key = NULL WHERE state IN ('accepted', 'ready')")
        for index, charge in enumerate(decided.charges):
            query_id = sha256(b"rado.v1/ledger-acknowledgement\0", secrets.token_bytes(16))
            connection.execute(
                "INSERT INTO events VALUES (?, 1, ?, NULL, ?, 'charged', ?, ?, ?, ?)",
                (query_id, charge.learner, bounds_text(charge), now_unix_s, NO_BYTES, NO_BYTES, now_unix_s),
            )
            ledger.database.append(EntryKind.ACKNOWLEDGED, query_id, 1, number=decided.number + index)
        connection.execute("DELETE FROM evidence")
        connection.execute("DELETE FROM identity WHERE key IN (?, ?)", (COPIED, AWAITS_HEAD))
    ledger.database.anchor()


def _up_to(connection: sqlite3.Connection, entries: int, trail: tuple[bytes, ...]) -> Sums:
    """The sums of the events whose last entry is at most the last one that is provably common with a head."""
    common = chain.common_entries(connection, entries, trail)
    rows = connection.execute(
        "SELECT bounds, learner, epoch, recorded_at_unix_s FROM events WHERE ? >= (SELECT max(number) FROM chain "
        "WHERE chain.query_id = events.query_id AND chain.attempt = events.attempt)",
        (-1 if common is None else common,),
    )
    return Sums.of(Event(read_charge(*charge), True, at) for *charge, at in rows)


def _charges(missing: Sums) -> tuple[Charge, ...]:
    """One event for the sums, which bounds whole records, and one for those without a bound."""
    known = dict(missing.scopes)
    bounds = tuple({RECORD: NO_LOSS, **known}.items())
    counted = (Charge(events=missing.unbounded),) if missing.unbounded else ()
    return (Charge(bounds), *counted)


def _whole_limits(limits: LedgerLimits, events: Iterable[Event]) -> tuple[Charge, ...]:
    """What exhausts the limit of every scope, also of those that no event or limit names."""
    held = Sums.of(events)
    named = {scope.key: scope for scope in (*limits.named_scopes, *(scope for scope, _ in held.scopes))}
    largest = tuple((scope, _largest(limits, scope)) for scope in named.values())
    return _charges(Sums(largest, limits.unbounded_events).less(held))


def _largest(limits: LedgerLimits, scope: Scope) -> Loss:
    """A loss that leaves nothing of a scope's limit. For RECORD, also of a scope that is not named."""
    own = _exhausting(limits.of(scope))
    return own.largest(_exhausting(limits.lifetime)) if scope.key == RECORD.key else own


def _exhausting(limit: PrivacyLimit) -> Loss:
    return Loss(limit.epsilon, BASIC_SHARE * limit.delta, limit.largest_rho, FAILURE_SHARE * limit.delta)
