"""Asks the other parties how far a party's ledger was, and charges what it lacks. The node must be stopped."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SystemRandom
from parties.answering.witnesses import LedgerGuard
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.database import LedgerOwner
from parties.ledger.acknowledgement import Claim, Plan, charge_plan, plan
from parties.ledger.charges import Charge
from parties.ledger.head import SumsKey, head_path, read_or_none
from parties.ledger.ledger import Ledger
from parties.ledger.witnessed import Witnessed
from parties.policy import Policy
from parties.rosters import Rosters
from parties.state_directory import lock_party
from radobase.logs import Log
from radobase.printing import amount
from wire.cohort import LedgerHead
from wire.envelopes import Envelope, SigningKey, load_public_key
from wire.errors import ConnectionLostError, TimedOutError, WireError
from wire.roster import Roster
from wire.witness import witnessed_head

PAUSE_S = 0.25
CALL_PATIENCE_S = 3.0
# More than any roster has: all members are asked.
_ALL = 1 << 30
_NO_WITNESS = (
    "no accepted member showed an entry: ask again when more of them run. If none can, repeat with --without-witness, "
    "which charges the whole remaining limit of every scope"
)


@dataclass(frozen=True)
class Found:
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


def find(config: PartyConfig, *, wait_s: float) -> Found:
    """Ask for witnesses of an existing ledger and compare, also while its node runs. Changes nothing.

    Raises ConfigurationError, LedgerFileError, and ConnectionLostError if the coordinator cannot be reached.
    """
    with _opened(config, config.ledger_file, create=False) as ledger:
        return _find(config, ledger, wait_s=wait_s, offline_allowed=False, keeps=False)


def acknowledge(config: PartyConfig, *, wait_s: float, yes: bool, without_witness: bool) -> Found:
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


def _find(config: PartyConfig, ledger: Ledger, *, wait_s: float, offline_allowed: bool, keeps: bool) -> Found:
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
    return Found(
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
    with CoordinatorClient(config.coordinator, tls, give_up_after_s=min(wait_s, CALL_PATIENCE_S)) as client:
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
