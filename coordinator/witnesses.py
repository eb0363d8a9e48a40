"""Relays challenges and witnesses of parties' ledgers, and keeps what parties state of their nodes.

A party that starts asks the others for its newest statement that they hold (wire.witness). The coordinator only relays:
it can withhold answers, and a party then answers no query, but it cannot make one, because every party signs its own.
Challenges and answers are in memory: a party asks again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.membership import check_sender
from coordinator.store import Store
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.features import Feature, open_features, too_old
from wire.query import CLOCK_SKEW_S
from wire.roster import Member, Roster
from wire.witness import open_challenge, open_witness

SHOW_AGAIN_AFTER_S = 60.0
# Parties refuse an older challenge.
SHOWN_FOR_S = float(CLOCK_SKEW_S)
FEATURES_BYTES = 4096


@dataclass
class _Asked:
    nonce: bytes
    envelope: Envelope
    taken_at: float
    answers: dict[str, Envelope] = field(default_factory=dict)
    shown_at: dict[str, float] = field(default_factory=dict)


class WitnessExchange:
    """At most one challenge of each party, and at most one answer of each other party to it.

    Use it from one event loop. clock: monotonic seconds.
    """

    def __init__(self, store: Store, roster: Callable[[], Roster], clock: Callable[[], float]) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self._asked: dict[str, _Asked] = {}

    def ask(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's challenge, in place of its older one. Raises WireError."""
        challenge, _ = open_challenge(envelope, self._roster())
        check_sender(challenge.party, caller)
        known = self._asked.get(caller.name)
        if known is None or known.nonce != challenge.nonce:
            self._asked[caller.name] = _Asked(challenge.nonce, envelope, self._clock())

    def answer(self, envelope: Envelope, caller: Member) -> None:
        """Take a party's answer. Raises WireError, QUERY_UNKNOWN if the challenge is not the newest."""
        witness, _ = open_witness(envelope, self._roster())
        check_sender(witness.party, caller)
        asked = self._asked.get(witness.subject)
        if asked is None or asked.nonce != witness.nonce or witness.subject == caller.name:
            raise WireError(Code.QUERY_UNKNOWN, "The challenge is not known.")
        asked.answers.setdefault(caller.name, envelope)

    def due(self, caller: Member) -> tuple[str, ...]:
        """Parties whose challenge is still valid, and this party has not answered and has not been shown lately."""
        now = self._clock()
        return tuple(
            party
            for party, asked in self._asked.items()
            if party != caller.name
            and now - asked.taken_at <= SHOWN_FOR_S
            and caller.name not in asked.answers
            and now - asked.shown_at.get(caller.name, float("-inf")) >= SHOW_AGAIN_AFTER_S
        )

    def show(self, caller: Member) -> tuple[Envelope, ...]:
        """The challenges that are due, which are not due again for a while."""
        shown = [self._asked[party] for party in self.due(caller)]
        for asked in shown:
            asked.shown_at[caller.name] = self._clock()
        return tuple(asked.envelope for asked in shown)

    def answers(self, nonce: bytes, caller: Member) -> tuple[Envelope, ...]:
        """The answers to a party's own challenge. Raises WireError(QUERY_UNKNOWN)."""
        asked = self._asked.get(caller.name)
        if asked is None or asked.nonce != nonce:
            raise WireError(Code.QUERY_UNKNOWN, "The challenge is not known: ask again.")
        return tuple(asked.answers.values())

    def newest(self, caller: Member) -> Envelope | None:
        """The statement of this party with the most ledger entries that this coordinator holds."""
        return self._store.newest_head(caller.name)

    def state_features(self, envelope: Envelope, caller: Member) -> None:
        """Store what a party states of its node, unless a newer statement is stored.

        Raises WireError, FEATURE_MISSING if the node is too old.
        """
        if len(envelope.payload) > FEATURES_BYTES:
            raise WireError(Code.MESSAGE_TOO_LARGE, f"A statement of features has at most {FEATURES_BYTES} bytes.")
        statement, _ = open_features(envelope, self._roster())
        check_sender(statement.party, caller)
        # Also of a node that is too old: the learners then see why they cannot ask it.
        self._store.remember_features(statement.party, statement.signed_at_unix_s, envelope)
        if Feature.BASE not in statement.features:
            raise WireError(Code.FEATURE_MISSING, too_old(f"{statement.party}'s node", statement.version))

    def features(self) -> tuple[Envelope, ...]:
        """What the roster's parties stated."""
        stated = self._store.features()
        return tuple(stated[party.name] for party in self._roster().parties if party.name in stated)
