"""What a deviating learner and a deviating member of a simulated run sign and send beside their honest code.

The number of an operation chooses among the forms of a message and among what was seen.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import RadofedError
from rado.v1 import cohort_pb2
from tests.simulation.nodes import LEARNER, NAME
from wire.binding import Binding, OpeningSecret, _pad, _xored, montgomery_key
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.errors import Code
from wire.query import Query, Retry
from wire.roster import Role
from wire.statements import (
    Acceptance,
    Challenge,
    LedgerHead,
    Pending,
    Ready,
    Receipt,
    Refusal,
    Witness,
    nonce_about,
    sign,
)

if TYPE_CHECKING:
    from tests.simulation.federation import Federation

ELSEWHERE = "elsewhere"
"""Another federation, in which the same keys sign."""
Operation = tuple[str, ...]
Make = Callable[[random.Random, Sequence[str]], Operation]
_FORMS = 1 << 16


def by_number(kind: str) -> Make:
    """An operation with a form."""
    return lambda order, _names: (kind, str(order.randrange(_FORMS)))


def by_member(kind: str) -> Make:
    """An operation of a party or the learner."""
    return lambda order, names: (kind, order.choice([*names, LEARNER]))


def by_name(kind: str) -> Make:
    """An operation of or about a party, with a form."""
    return lambda order, names: (kind, order.choice(list(names)), str(order.randrange(_FORMS)))


FAULTS: dict[str, Make] = {}
"""Every fault by name: what breaks, and how nodes deviate."""
WEIGHTS: dict[str, int] = {}
"""How often a fault is chosen."""
ACTS: dict[str, Callable[..., None]] = {}
"""What each operation does."""


def fault(kind: str, make: Make | Callable[[str], Make], weight: int = 6) -> Callable:
    """A decorator of what happens. make: draws the operation of this kind, or makes such a function of the kind."""

    def register(act: Callable[..., None]) -> Callable[..., None]:
        FAULTS[kind] = make(kind) if make in (by_name, by_number, by_member) else make
        WEIGHTS[kind], ACTS[kind] = weight, act
        return act

    return register


def chosen(items: Sequence, number: int) -> Any:
    """One of the items, None if there are none."""
    return items[number % len(items)] if items else None


def abroad(key: SigningKey) -> SigningKey:
    """The same key in another federation."""
    return SigningKey(key._private_key, ELSEWHERE)


# The learner.


@fault("unequal seeds", by_number)
def _unequal_seeds(federation: "Federation", form: str) -> None:
    """A query with another seed for one party or for all, or with a commitment to a seed that nobody has, or none."""
    number = int(form)

    def changed(query: Query, opening: OpeningSecret) -> Query:
        honest, parties = query.binding, federation.roster.parties
        one = chosen(parties, number // 4).name
        sealed, unequal = dict(honest.sealed_seeds), frozenset(party.name for party in parties)
        match number % 4:
            case 0 | 1:
                unequal = frozenset({one}) if number % 4 == 0 else unequal
                for party in parties:
                    if party.name in unequal:
                        pad = _pad(opening.key, montgomery_key(party.signing_key), query.nonce, party.name)
                        sealed[party.name] = _xored(federation.order.randbytes(32), pad)
                binding = Binding(honest.opening_key, tuple(sorted(sealed.items())), honest.commitment)
            case 2:
                binding = replace(honest, commitment=federation.order.randbytes(32))
            case _:
                binding = replace(honest, commitment=b"")
        made = replace(query, binding=binding)
        federation.coalition.unequal[federation.id_of(made)] = unequal
        return made

    if federation.ask(changed=changed) is not None:
        federation.happened["unequal seeds"] += 1


@fault("stray retry", by_number)
def _stray_retry(federation: "Federation", form: str) -> None:
    """A retry of an attempt that was not lost, of the last one, of another query, or for another federation."""
    number = int(form)
    query_id = chosen(federation.asked, number // 4)
    if query_id is None:
        return
    live = federation.coordinator.core.get(query_id) if federation.coordinator.up else None
    attempt = 1 if live is None else live.round.attempt
    key = federation.keys.learner
    match number % 4:
        case 0:
            retry = Retry(query_id, LEARNER, attempt + 1)
        case 1:
            retry = Retry(query_id, LEARNER, attempt + 2)
        case 2:
            retry = Retry(federation.order.randbytes(32), LEARNER, attempt + 1)
        case _:
            retry, key = Retry(query_id, LEARNER, attempt + 1), abroad(key)
    signed = retry.sign(key)
    if number % 4 != 3:
        federation.signed_attempts.add((retry.query_id, retry.attempt))
    federation.lies.retries.append(signed)
    federation.learner.guarded(lambda: federation.learner.calls.retry_query(signed))
    federation.happened["stray retry"] += 1


@fault("foreign query", by_number)
def _foreign_query(federation: "Federation", form: str) -> None:
    """A query for another federation, signed there or here, or one for this federation that is signed there."""
    known = chosen(federation.lies.queries, int(form) // 3)
    if known is None:
        return
    key = federation.keys.learner
    query = replace(Query.from_bytes(known.payload), nonce=federation.order.randbytes(32))
    if int(form) % 3 != 2:
        query = replace(query, federation=ELSEWHERE)
    if int(form) % 3 != 1:
        key = abroad(key)
    signed = key.sign(MessageType.QUERY, query.to_bytes())
    federation.coalition.foreign.add(signed.payload_hash)
    federation.lies.queries.append(signed)
    federation.learner.guarded(lambda: federation.learner.calls.submit_query(signed))
    federation.happened["foreign query"] += 1


@fault("repeat query", by_number)
def _repeat_query(federation: "Federation", form: str) -> None:
    """A query whose nonce, opening key and seeds served before: the same bytes, another time, another opening key."""
    number = int(form)
    known = chosen(
        [q for q in federation.lies.queries if q.payload_hash not in federation.coalition.foreign], number // 3
    )
    if known is None:
        return
    if number % 3 == 0:
        federation.learner.guarded(lambda: federation.learner.calls.submit_query(known))
        federation.happened["repeat query"] += 1
        return
    before = Query.from_bytes(known.payload)
    opening = federation.openings.get(known.payload_hash)
    if opening is None:
        return

    def changed(query: Query, fresh: OpeningSecret) -> Query:
        if number % 3 == 1:
            return replace(query, nonce=before.nonce, binding=before.binding)
        return replace(query, nonce=before.nonce, binding=Binding.seal(fresh, federation.roster.parties, before.nonce))

    if federation.ask(changed=changed, opening=opening if number % 3 == 1 else None) is not None:
        federation.happened["repeat query"] += 1


# The member. The first that deviates in a run is the only one.


def deviating(federation: "Federation", name: str) -> str:
    """The member that deviates."""
    federation.coalition.deviant = federation.coalition.deviant or name
    return federation.coalition.deviant


def acceptance(
    federation: "Federation", name: str, query_id: bytes, attempt: int, *, rows: int = 20, mask_key: bytes = b""
) -> Acceptance:
    """An acceptance as a party's code would make it, beside the one that it made."""
    key = mask_key or X25519PrivateKey.generate().public_key().public_bytes_raw()
    head = LedgerHead(1000, federation.order.randbytes(32), b"")
    return Acceptance(query_id, attempt, name, rows, key, federation.coordinator.roster.version, head)


def foreign_acceptance(federation: "Federation", name: str) -> Envelope:
    """What a party signed in another federation, where its ledger is longer."""
    said = acceptance(federation, name, federation.order.randbytes(32), 1)
    return sign(said, abroad(federation.keys.parties[name]))


def _sent(federation: "Federation", name: str, kind: str, submit: Callable) -> None:
    with suppress(RadofedError):
        federation.network.call(name, Role.PARTY, submit)
    federation.happened[kind] += 1


@fault("stray statement", by_name)
def _stray_statement(federation: "Federation", name: str, form: str) -> None:
    """Of another attempt, an unknown query, in another member's name, for another federation, or too early or late."""
    number, name = int(form), deviating(federation, name)
    query_id = chosen(federation.asked, number // 20)
    if query_id is None:
        return
    live = federation.coordinator.core.get(query_id) if federation.coordinator.up else None
    attempt, sender, key = 1 if live is None else live.round.attempt, name, federation.keys.parties[name]
    match number % 4:
        case 0:
            attempt += 1
        case 1:
            query_id = federation.order.randbytes(32)
        case 2:
            sender = chosen([other for other in federation.names if other != name], number // 20)
        case _:
            key = chosen([key, abroad(key)], number // 20)
    digest = federation.order.randbytes(32)
    cohort = digest if live is None or live.cohort is None else live.cohort.digest
    about = (query_id, attempt, sender)
    intake = federation.coordinator.intake
    statement, take = [
        (acceptance(federation, sender, query_id, attempt, rows=chosen([20, 1, 10**6], number)), intake.acceptance),
        (Refusal(*about, Code.POLICY_DESIGN), intake.refusal),
        (Pending(*about), intake.pending),
        (Ready(*about), intake.ready),
        (Receipt(*about, cohort, digest, 1, 2, LedgerHead(1000, digest, b"")), intake.receipt),
    ][number // 4 % 5]
    signed = sign(statement, key)
    if isinstance(statement, Acceptance):
        federation.lies.acceptances.append((statement, signed))
    _sent(federation, name, "stray statement", lambda caller: take(signed, caller))


@fault("second acceptance", by_name)
def _second_acceptance(federation: "Federation", name: str, form: str) -> None:
    """Of the same attempt, with a fresh mask key, with another member's, or with one of low order."""
    number, name = int(form), deviating(federation, name)
    others = [said for said, _ in federation.lies.acceptances if said.party != name]
    said = chosen(others[-6:], number // 3)
    if said is None:
        return
    mine = acceptance(federation, name, said.query_id, said.attempt)
    if number % 3 == 1:
        mine = replace(mine, mask_key=said.mask_key)
    signed = sign(mine, federation.keys.parties[name])
    if number % 3 == 2:
        message = cohort_pb2.Acceptance.FromString(signed.payload)
        message.mask_key = bytes(32)
        payload = message.SerializeToString(deterministic=True)
        signed = federation.keys.parties[name].sign(MessageType.ACCEPTANCE, payload)
    federation.lies.acceptances.append((mine, signed))
    intake = federation.coordinator.intake
    _sent(federation, name, "second acceptance", lambda caller: intake.acceptance(signed, caller))


@fault("false witness", by_name)
def _false_witness(federation: "Federation", name: str, form: str) -> None:
    """An answer about another party, with what it signed elsewhere, with invented names, or to an old question."""
    number, name = int(form), deviating(federation, name)
    others = [other for other in federation.names if other != name]
    subject = chosen(others, number // 7)
    asked = federation.lies.challenges.get(subject)
    if not asked:
        return
    nonce = Challenge.from_bytes(asked[-1].payload).nonce
    said = [envelope for each, envelope in federation.lies.acceptances if each.party == subject]
    witness = Witness(NAME, name, subject, nonce, chosen(said, number // 7))
    invented = tuple(sorted(federation.order.randbytes(8) for _ in range(3)))
    match number % 7:
        case 0:
            witness = replace(witness, newest=chosen([e for _, e in federation.lies.acceptances], number // 7))
        case 1:
            witness = replace(witness, newest=foreign_acceptance(federation, subject))
        case 2:
            witness = replace(witness, in_cohorts=invented, in_cohorts_from=1)
        case 3:
            witness = replace(witness, nonce=Challenge.from_bytes(asked[0].payload).nonce)
        case 4:
            witness = replace(witness, federation=ELSEWHERE)
        case 5:
            witness = replace(witness, newest=None, in_cohorts_from=1)
        case _:
            witness = replace(witness, party=chosen(others, number))
    signed = witness.sign(federation.keys.parties[name])
    federation.lies.witnesses.append(signed)

    async def answer(caller):
        federation.coordinator.witnesses.answer(signed, caller)

    _sent(federation, name, "false witness", answer)


@fault("stray challenge", by_name)
def _stray_challenge(federation: "Federation", name: str, form: str) -> None:
    """A question in another party's name, an old one, one for another federation, or one about an acceptance."""
    number, name = int(form), deviating(federation, name)
    others = [other for other in federation.names if other != name]
    nonce, now = federation.order.randbytes(32), int(federation.clock.time())
    old = chosen([each for asked in federation.lies.challenges.values() for each in asked], number // 4)
    key, challenge = federation.keys.parties[name], Challenge(NAME, name, nonce, now)
    match number % 4:
        case 0:
            challenge = replace(challenge, party=chosen(others, number // 4))
        case 1 if old is not None:
            challenge = replace(challenge, nonce=Challenge.from_bytes(old.payload).nonce)
        case 2:
            challenge, key = replace(challenge, federation=chosen([NAME, ELSEWHERE], number // 4)), abroad(key)
        case _:
            challenge = replace(challenge, nonce=nonce_about(bytes(8), nonce))
    signed = challenge.sign(key)

    async def ask(caller):
        federation.coordinator.witnesses.ask(signed, caller)

    _sent(federation, name, "stray challenge", ask)
