"""Asks the other parties how far a party's ledger was, and charges what it lacks. The node must be stopped."""

import secrets
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from dpcore.accounting.filters import BASIC_SHARE, FAILURE_SHARE, NO_LOSS, Loss, PrivacyLimit
from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SystemRandom
from parties.answering.witnesses import LedgerGuard
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.database import COPIED, LedgerOwner
from parties.ledger import chain
from parties.ledger.chain import EntryKind
from parties.ledger.charges import AWAITS_HEAD, RECORD, Charge, Scope, bounds_text, read_charge
from parties.ledger.head import Account, Sums, SumsKey, head_path, read_or_none
from parties.ledger.ledger import NO_BYTES, Ledger
from parties.ledger.limits import Event, LedgerLimits
from parties.ledger.witnessed import Witnessed
from parties.members import Rosters
from parties.policy import Policy
from parties.state_directory import lock_party
from radobase.logs import Log
from radobase.printing import amount
from wire.envelopes import Envelope, SigningKey, load_public_key, sha256
from wire.errors import ConnectionLostError, TimedOutError, WireError
from wire.roster import Roster
from wire.statements import LedgerHead, witnessed_head
from wire.transport import coordinator_of

# What a data officer charges for a ledger that was lost or set back, so that nothing that was spent is given back.
#
# Claims are heads of this party's ledger that others, or the file beside it, still hold. With accounts in them:
#
#     charge = (the claims' sums) - (this ledger's sums up to the last entry that provably is common), at least 0
#
# in each scope, as one event of an unknown learner, and the missing events without a bound by number. What this ledger
# added after the common entry stays on top, because there may have been two copies.
#
# What is only reserved here is charged. Without an account, or any claim of an accepted member, the whole remaining
# limit of every scope is charged.
#
# The chain continues above every claim, so that older heads do not count any more. Without a witness it continues 2^32
# entries higher. Assumes at most two copies that both went on: of claims from several of them only the largest sums
# are charged.


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

    Ends every approval of several queries, too.

    ledger: opened with `anchored=False`, and unchanged since the plan was made. Raises LedgerBusyError.
    """
    with ledger.database.transaction() as connection:
        ledger.charge_reserved(now_unix_s)
        connection.execute("UPDATE attempts SET state = 'burnt', mask_key = NULL WHERE state IN ('accepted', 'ready')")
        # The file may be an older one: its keys may have been given for other members since.
        connection.execute("DELETE FROM sharings")
        for index, charge in enumerate(decided.charges):
            query_id = sha256(b"rado.v1/ledger-acknowledgement\0", secrets.token_bytes(16))
            connection.execute(
                "INSERT INTO events VALUES (?, 1, ?, NULL, ?, 'charged', ?, ?, ?, ?)",
                (query_id, charge.learner, bounds_text(charge), now_unix_s, NO_BYTES, NO_BYTES, now_unix_s),
            )
            ledger.database.append(EntryKind.ACKNOWLEDGED, query_id, 1, number=decided.number + index)
        # Revoked ones may be given in this copy, and used ones unused.
        ledger.approvals.end_all(now_unix_s)
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
    """What exhausts the limit of every scope, also of those that no event or limit names, and for rows of any epoch."""
    held = Sums.of(event for event in events if event.charge.row_epoch is None)
    named = {scope.key: scope for scope in (*limits.named_scopes, *(scope for scope, _ in held.scopes))}
    largest = tuple((scope, _largest(limits, scope)) for scope in named.values())
    return _charges(Sums(largest, limits.unbounded_events).less(held))


def _largest(limits: LedgerLimits, scope: Scope) -> Loss:
    """A loss that leaves nothing of a scope's limit. For RECORD, also of a scope that is not named."""
    own = _exhausting(limits.of(scope))
    return own.largest(_exhausting(limits.lifetime)) if scope.key == RECORD.key else own


def _exhausting(limit: PrivacyLimit) -> Loss:
    return Loss(limit.epsilon, BASIC_SHARE * limit.delta, limit.largest_rho, FAILURE_SHARE * limit.delta)


PAUSE_S = 0.25
CALL_PATIENCE_S = 3.0
# More than any roster has: all members are asked.
_ALL = 1 << 30
_NO_WITNESS = (
    "no accepted member showed an entry: ask again when more of them run. If none can, repeat with --without-witness, "
    "which charges the whole remaining limit of every scope"
)


@dataclass(frozen=True)
class Shortfall:
    """How far a ledger is, here and elsewhere."""

    own_entries: int
    cause: str
    """Why it is set back, empty if nothing says so."""
    accepted: tuple[str, ...]
    """Accepted members that answered."""
    silent: tuple[str, ...]
    """The others."""
    claims: tuple[Claim, ...]
    """This party's own heads, by who holds them."""
    plan: Plan | None = None
    """What is to be charged, None if nothing is."""
    is_done: bool = False
    """Whether it was charged, or nothing had to be."""
    advice: str = ""
    """What to do next."""
    unknown_names: frozenset[bytes] = frozenset()
    """Of attempts that accepted members showed and the ledger does not have."""

    def sentences(self) -> list[str]:
        """All of it in words."""
        lines = [f"this ledger: {amount(self.own_entries, 'entry')}", *(_claim_words(claim) for claim in self.claims)]
        lines.append(f"accepted members that answered: {', '.join(self.accepted) or 'none'}")
        if self.silent:
            lines.append(f"accepted members that did not answer: {', '.join(self.silent)}")
        lines.append(f"set back: {self.cause or 'nothing says so'}")
        if self.plan is not None:
            done = "charged" if self.is_done else "to be charged"
            what = "the whole remaining limit" if self.plan.whole else "what is missing here"
            lines.append(f"{done}: {what}: {'; '.join(_charge_words(charge) for charge in self.plan.charges)}")
        return [*lines, *([self.advice] if self.advice else [])]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "ok": self.is_done,
            "own_entries": self.own_entries,
            "set_back": self.cause,
            "answered": list(self.accepted),
            "silent": list(self.silent),
            "claims": [{"held_by": claim.source, "entries": claim.entries} for claim in self.claims],
            "whole_limit": None if self.plan is None else self.plan.whole,
            "charges": [] if self.plan is None else [_charge_words(charge) for charge in self.plan.charges],
            "advice": self.advice,
        }


def _claim_words(claim: Claim) -> str:
    readable = "" if claim.account is not None else ", without readable sums"
    return f"held by {claim.source}: {amount(claim.entries, 'entry')}{readable}"


def _charge_words(charge: Charge) -> str:
    return str(charge) if charge.bounds else f"{amount(charge.events, 'event')} without a bound"


def find(config: PartyConfig, *, wait_s: float) -> Shortfall:
    """Ask for witnesses of an existing ledger and compare, also while its node runs. Changes nothing.

    Raises ConfigurationError, LedgerFileError, and ConnectionLostError if the coordinator cannot be reached.
    """
    with _opened(config, config.ledger_file, create=False) as ledger:
        return _find(config, ledger, wait_s=wait_s, offline_allowed=False, keeps=False)


def acknowledge(config: PartyConfig, *, wait_s: float, yes: bool, without_witness: bool) -> Shortfall:
    """Ask for witnesses, and charge what the ledger lacks if `yes`. Charges nothing if nothing says it was set back.

    without_witness: whether to charge the whole remaining limit, whatever others show. Raises
    ConfigurationError if a node is running, LedgerFileError, and, without `without_witness`, ConnectionLostError if the
    coordinator cannot be reached.
    """
    with lock_party(config), tempfile.TemporaryDirectory() as directory:
        # For a ledger that is missing: an empty one that is thrown away, so that nothing is left if nothing is charged.
        path = config.ledger_file if config.ledger_file.exists() else Path(directory) / "ledger.sqlite"
        with _opened(config, path, create=True) as ledger:
            found = _find(config, ledger, wait_s=wait_s, offline_allowed=without_witness, keeps=True)
            if not found.cause:
                return replace(found, is_done=True, advice="nothing is charged")
            witnessed = not without_witness and any(claim.source in found.accepted for claim in found.claims)
            if not witnessed and not without_witness:
                return replace(found, advice=_NO_WITNESS)
            found = replace(found, plan=plan(ledger, found.claims, witnessed=witnessed))
        if not yes:
            return replace(found, advice="nothing was changed: repeat with --yes to charge it")
        assert found.plan is not None
        with _opened(config, config.ledger_file, create=True) as ledger:
            charge_plan(ledger, found.plan, time.time())
            # The chain continues above them. The party need not ask for them one by one.
            Witnessed(ledger.database).know(found.unknown_names)
        return replace(found, is_done=True, advice="the party can be started")


@contextmanager
def _opened(config: PartyConfig, path: Path, *, create: bool) -> Iterator[Ledger]:
    """The ledger as it is, or a new one with `create`. The head beside it stays."""
    limits = Policy.load(config.policy).limits.of_ledger
    owner = LedgerOwner(config.federation, config.name, config.source)
    ledger = Ledger.open(path, owner, limits, create=create, anchored=False)
    try:
        yield ledger
    finally:
        ledger.database.close()


def _find(config: PartyConfig, ledger: Ledger, *, wait_s: float, offline_allowed: bool, keeps: bool) -> Shortfall:
    log = Log(f"party.{config.name}")
    rosters = Rosters(
        config.state_directory,
        federation=config.federation,
        federation_key=load_public_key(config.federation_key),
        log=log,
    )
    signing_key = SigningKey.load(config.signing_key, config.federation)
    policy = Policy.load(config.policy)
    guard = LedgerGuard(
        federation=config.federation,
        party=config.name,
        signing_key=signing_key,
        policy=policy.model_copy(update={"required_witnesses": _ALL}),
        ledger=ledger,
        rosters=rosters,
        random=SystemRandom().bytes,
        log=log,
        keeps=keeps,
    )
    try:
        _ask(config, guard, rosters, policy, wait_s)
    except (ConnectionLostError, TimedOutError, WireError):
        if not offline_allowed:
            raise
    roster = rosters.known
    accepted = () if roster is None else _accepted(policy, roster, config.name)
    key = SumsKey(config.name, signing_key)
    claims = _claims(guard, roster, key, config)
    return Shortfall(
        ledger.head().entries,
        _cause(config, ledger, guard),
        tuple(name for name in accepted if name in guard.answered),
        tuple(name for name in accepted if name not in guard.answered),
        claims,
        unknown_names=guard.unknown_names(),
    )


def _ask(config: PartyConfig, guard: LedgerGuard, rosters: Rosters, policy: Policy, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    tls = config.tls.files
    with CoordinatorClient(coordinator_of(config), tls, give_up_after_s=min(wait_s, CALL_PATIENCE_S)) as client:
        rosters.refresh(client)
        expected = set(_accepted(policy, rosters.current, config.name))
        while True:
            guard.look(client)
            if expected <= set(guard.answered) or time.monotonic() >= end:
                return
            time.sleep(PAUSE_S)


def _accepted(policy: Policy, roster: Roster, own: str) -> tuple[str, ...]:
    others = (member.name for member in roster.parties if member.name != own)
    return tuple(name for name in others if policy.count_accepted(roster, own, (name,)))


def _claims(guard: LedgerGuard, roster: Roster | None, key: SumsKey, config: PartyConfig) -> tuple[Claim, ...]:
    held = [*guard.answered.items(), ("the coordinator", guard.newest)]
    claims = []
    head_file = read_or_none(head_path(config.ledger_file))
    if guard.evidence is not None:
        # What a member showed once, and is not its newest.
        held.append((guard.evidence.source, guard.evidence.statement))
    for source, statement in held:
        head = None if statement is None or roster is None else _head(statement, key.party, roster)
        if head is not None:
            claim = Claim(source, head.entries, key.open(head))
            claims += [claim] if claim not in claims else []
    if head_file is not None:
        claims.append(Claim("the .head file", head_file.head.entries, head_file.account))
    return tuple(sorted(claims, key=lambda claim: -claim.entries))


def _head(statement: Envelope, party: str, roster: Roster) -> LedgerHead | None:
    """Of a statement of this party; None if it is under a key that the roster does not list any more."""
    with suppress(WireError):
        return witnessed_head(statement, party, roster)
    return None


def _cause(config: PartyConfig, ledger: Ledger, guard: LedgerGuard) -> str:
    """Why the ledger is set back; empty if nothing says so."""
    if guard.is_set_back:
        return "this party signed entries that its ledger does not have"
    if not config.ledger_file.exists():
        return "the ledger is missing"
    try:
        return ledger.database.set_back()
    except ConfigurationError as error:
        return str(error)
