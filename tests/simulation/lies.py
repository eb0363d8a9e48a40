"""What a deviating coordinator of a simulated run shows: anything well-formed that was signed by someone.

A lie takes the place of the next true answer that it fits. The number that it carries chooses among its forms and among
what was seen. The learner and one member may deviate too (tests/simulation/strays.py) and sign for it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpcore.paillier.packing import pack
from tests.simulation.nodes import LEARNER
from tests.simulation.strays import ELSEWHERE, abroad, acceptance, by_name, by_number, chosen, fault, foreign_acceptance
from wire.envelopes import Envelope
from wire.query import Retry
from wire.statements import Acceptance, Cohort, sign
from wire.status import PartyState, Phase, Total, Work

if TYPE_CHECKING:
    from tests.simulation.federation import Federation

Change = Callable[[str, Any], Any]


@dataclass
class Lies:
    """The coordinator's lies that are not told yet, by what they are about, and what nodes have seen."""

    happened: Counter[str]
    due: dict[str, deque[tuple[str, Change]]] = field(default_factory=dict)
    acceptances: list[tuple[Acceptance, Envelope]] = field(default_factory=list)
    receipts: list[Envelope] = field(default_factory=list)
    retries: list[Envelope] = field(default_factory=list)
    queries: list[Envelope] = field(default_factory=list)
    challenges: dict[str, list[Envelope]] = field(default_factory=dict)
    witnesses: list[Envelope] = field(default_factory=list)
    rosters: list[Envelope] = field(default_factory=list)
    works: dict[str, list[Work]] = field(default_factory=dict)
    totals: list[Total] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)

    def plan(self, about: str, kind: str, change: Change) -> None:
        """To be told once. change: what a recipient is shown in place of the truth, None if the lie does not fit it."""
        self.due.setdefault(about, deque()).append((kind, change))

    def told(self, about: str, recipient: str, truth: Any) -> Any:
        """What a recipient is shown."""
        waiting = self.due.get(about, deque())
        for lie in list(waiting):
            kind, change = lie
            shown = change(recipient, truth)
            if shown is not None and shown != truth:
                waiting.remove(lie)
                self.happened[kind] += 1
                return shown
        return truth


@fault("show next attempt", by_name)
def _show_next_attempt(federation: "Federation", name: str, form: str) -> None:
    """A coordinator shows a party the next attempt of every query: without a retry, or with one that it can get."""

    def change(party: str, work: Work) -> Work | None:
        if party != name:
            return None
        query_id, attempt, keys = work.query_id, work.attempt + 1, federation.keys
        others = (work.retry, chosen(federation.lies.retries, int(form)))
        keys = (keys.federation, keys.parties[name], abroad(keys.learner))
        own = [Retry(query_id, LEARNER, attempt).sign(key) for key in keys]
        retry = chosen([*others, *own], int(form))
        return replace(work, attempt=attempt, phase=Phase.ANSWERING, state=PartyState.SILENT, cohort=None, retry=retry)

    federation.lies.plan("work", "show next attempt", change)


@fault("show other work", by_name)
def _show_other_work(federation: "Federation", name: str, form: str) -> None:
    """Another phase, an earlier answer, another party's, another query's, or one of another federation."""
    number = int(form)

    def change(party: str, work: Work) -> Work | None:
        if party != name:
            return None
        lies, one_of = federation.lies, number // 7
        others = [each for other, shown in sorted(lies.works.items()) if other != name for each in shown[-3:]]
        match number % 7:
            case 0:
                return replace(work, phase=chosen(list(Phase), one_of), state=PartyState.SILENT)
            case 1:
                return chosen(lies.works.get(name, []), one_of)
            case 2:
                return chosen(others, one_of)
            case 3:
                query = chosen(lies.queries, one_of)
                return query and replace(work, query=query)
            case 4:
                query = chosen(lies.queries, one_of)
                shown = replace(work, phase=Phase.ANSWERING, state=PartyState.SILENT, attempt=1, cohort=None)
                return query and replace(shown, query=query, retry=None)
            case 5:
                return replace(work, attempt=max(1, work.attempt - 1))
            case _:
                return replace(work, chunks_held=frozenset({0}))

    federation.lies.plan("work", "show other work", change)


@fault("show other cohort", by_name, 18)
def _show_other_cohort(federation: "Federation", name: str, form: str) -> None:
    """A party is shown a cohort of acceptances that the coordinator has, or that the member makes for it."""
    number = int(form)

    def change(party: str, work: Work) -> Work | None:
        if party != name:
            return None
        said = federation.lies.acceptances
        latest = {each.party: envelope for each, envelope in said if _is_of(each, work)}
        own = latest.get(name)
        # Mostly to a party that has its contribution: another one gives up at once.
        if own is None or (number // 8 % 4 and work.state not in (PartyState.READY, PartyState.UPLOADING)):
            return None
        cohort = _another_cohort(federation, name, work, latest, number)
        members = sorted(cohort, key=lambda envelope: Acceptance.from_bytes(envelope.payload).party)
        if number % 8 == 3:
            members.reverse()
        query_id, attempt = work.query_id, work.attempt
        if number % 8 == 4 and said:
            other, _ = chosen(said, number // 8)
            query_id, attempt = other.query_id, other.attempt
        shown = Cohort(query_id, attempt, tuple(members))
        return replace(work, phase=Phase.UPLOADING, cohort=shown, state=PartyState.READY)

    federation.lies.plan("work", "show other cohort", change)


def _is_of(said: Acceptance, work: Work) -> bool:
    return (said.query_id, said.attempt) == (work.query_id, work.attempt)


def _another_cohort(
    federation: "Federation", name: str, work: Work, latest: dict[str, Envelope], number: int
) -> list[Envelope]:
    said, one_of = federation.lies.acceptances, number // 8
    others = sorted(latest.keys() - {name})
    member = chosen(others, one_of)
    deviant = federation.coalition.deviant
    own = latest[name]
    match number % 8:
        case 0 if member:  # without one member
            del latest[member]
        case 1 if member:  # a member's acceptance of another attempt or query, or an earlier one of this
            own = [(each, envelope) for each, envelope in said if each.party == member]
            others = [envelope for each, envelope in own if not _is_of(each, work)]
            latest[member] = chosen(others or [envelope for _, envelope in own], one_of)
        case 2 if member:  # one member twice
            return [*latest.values(), latest[member]]
        case 5 | 6 if deviant and deviant != name:  # this party and the member that deviates, twice or three times
            key, about = federation.keys.parties[deviant], (deviant, work.query_id, work.attempt)
            made = [sign(acceptance(federation, *about), key) for _ in range(2)]
            return [own, *made] if number % 8 == 5 else [own, *made, *(latest[m] for m in others[:1])]
        case 7 if member:  # signed in another federation
            key = abroad(federation.keys.parties[member])
            latest[member] = sign(Acceptance.from_bytes(latest[member].payload), key)
        case _:
            pass
    return list(latest.values())


@fault("show other survivors", by_name, 18)
def _show_other_survivors(federation: "Federation", name: str, form: str) -> None:
    """Members that uploaded are said to have vanished, or the reverse; another sharing, other or damaged shares."""
    number = int(form)

    def change(party: str, work: Work) -> Work | None:
        if party != name or work.sharing is None:
            return None
        others = [each for each in work.survivors if each != name]
        member = chosen(others, number // 6)
        match number % 6:
            case 0 if member:
                return replace(work, survivors=tuple(each for each in work.survivors if each != member))
            case 1 if member:
                return replace(work, survivors=tuple(each for each in work.survivors if each != name))
            case 2 if work.cohort is not None:
                members = [Acceptance.from_bytes(each.payload).party for each in work.cohort.acceptances]
                return replace(work, survivors=tuple(members) if number // 6 % 2 else work.survivors[::-1])
            case 3:
                kept = tuple(each for at, each in enumerate(work.sharing.acceptances) if at != number // 6 % 5)
                return replace(work, sharing=replace(work.sharing, acceptances=kept))
            case 4 if work.sealed_shares:
                return replace(work, sealed_shares=work.sealed_shares[::-1])
            case 5 if work.ready:
                return replace(work, ready=work.ready[::-1] if number // 6 % 2 else work.ready[1:])
            case _:
                return None

    federation.lies.plan("work", "show other survivors", change)


@fault("show other witnesses", by_name)
def _show_other_witnesses(federation: "Federation", name: str, form: str) -> None:
    """Answers to other questions or of other members, none, repeated ones, or another newest statement."""
    number = int(form)

    def change(party: str, truth: tuple) -> tuple | None:
        if party != name:
            return None
        answers, newest = truth
        lies, one_of = federation.lies, number // 6
        said = [envelope for each, envelope in lies.acceptances if each.party == name]
        match number % 6:
            case 0:
                return (), None
            case 1:
                return (*answers, *lies.witnesses[-20:]), newest
            case 2:
                return answers, chosen([e for _, e in lies.acceptances], one_of)
            case 3:
                return answers, foreign_acceptance(federation, name)
            case 4:
                return (*answers, *answers), chosen(lies.receipts, one_of)
            case _:
                return answers, chosen(said, one_of)

    federation.lies.plan("witnesses", "show other witnesses", change)


@fault("show other roster", by_number)
def _show_other_roster(federation: "Federation", form: str) -> None:
    """An earlier roster, another federation's, or one that another key signed."""
    number, keys = int(form), federation.keys

    def change(_recipient: str, truth: Envelope) -> Envelope | None:
        match number % 4:
            case 0 | 1:
                return chosen(federation.lies.rosters, number // 4)
            case 2:
                roster = replace(federation.roster, federation=ELSEWHERE, version=federation.version + 9)
                return roster.sign(abroad(keys.federation))
            case _:
                roster = replace(federation.roster, version=federation.version + 9)
                return roster.sign(chosen([keys.learner, *keys.parties.values(), abroad(keys.federation)], number // 4))

    federation.lies.plan("roster", "show other roster", change)


@fault("show other total", by_number, 18)
def _show_other_total(federation: "Federation", form: str) -> None:
    """Another total's statements or numbers, an order of members that is not the cohort's, or one member fewer."""
    number = int(form)

    def changed_head(_recipient: str, truth: Total) -> Total | None:
        lies, members = federation.lies, truth.cohort.acceptances
        match number % 5:
            case 0:
                return chosen(lies.totals, number // 5)
            case 1:
                cohort = replace(truth.cohort, acceptances=members[::-1])
                return replace(truth, cohort=cohort, receipts=truth.receipts[::-1])
            case 2:
                cohort = replace(truth.cohort, acceptances=members[1:])
                return replace(truth, cohort=cohort, receipts=truth.receipts[1:])
            case _:
                receipts = (chosen(lies.receipts, number // 5), *truth.receipts[1:])
                return replace(truth, receipts=receipts)

    def changed_chunk(_recipient: str, _truth: bytes) -> bytes | None:
        return chosen(federation.lies.chunks, number // 5)

    if number % 5 == 4:
        federation.lies.plan("chunk", "show other total", changed_chunk)
    else:
        federation.lies.plan("total", "show other total", changed_head)


@fault("withhold roster", lambda order, names: ("withhold roster", order.choice(list(names))), 1)
def _withhold(federation: "Federation", name: str) -> None:
    """A new roster without a member exists, and the coordinator goes on serving the old one."""
    federation.expel(name, is_served=False)
    federation.happened["withhold roster"] += 1


@fault("forge total", lambda order, _names: ("forge total", str(order.randrange(4))), 26)
def _forge_total(federation: "Federation", form: str) -> None:
    """A coordinator changes what the learner fetches next."""

    def change(_recipient: str, truth: bytes) -> bytes:
        key = federation.keys.secret.public_key
        ciphertexts = key.from_wire(truth)
        live = federation.coordinator.core.find(federation.fetched)
        encoding = live.opened.query.encoding
        match form:
            case "0":  # an edit of one value
                changed = key.add_plaintexts(ciphertexts, [1 << encoding.slot_bits, *[0] * (len(ciphertexts) - 1)])
            case "1":  # twice the whole total
                changed = [ciphertext * ciphertext % (key.n * key.n) for ciphertext in ciphertexts]
            case "2":  # another value in place of all, with the right check slot
                rows = sum(Acceptance.from_bytes(envelope.payload).rows for envelope in live.cohort.acceptances)
                changed = _from_nothing(federation, encoding, rows, len(live.cohort.acceptances), len(ciphertexts))
            case _:  # half of the modulus of a slot
                half = 1 << (encoding.value_bits - 1)
                changed = key.add_plaintexts(ciphertexts, [half << encoding.slot_bits, *[0] * (len(ciphertexts) - 1)])
        return key.to_wire(changed)

    federation.lies.plan("chunk", "forge total", change)


def _from_nothing(federation: "Federation", encoding, rows: int, parties: int, count: int):
    """A total without any upload: ones for the first two parties only."""
    key = federation.keys.secret.public_key
    values = np.zeros(len(federation.names), dtype=np.int64)
    values[:2] = 1
    nothing = np.zeros_like(values)
    packed = [pack(values, rows, encoding, key.bits)]
    packed += [pack(nothing, 0, encoding, key.bits) for _ in range(parties - 1)]
    plaintexts = [sum(each) for each in zip(*packed, strict=True)]
    plaintexts += [1] * (count - len(plaintexts))
    return key.encrypt_many(plaintexts, federation.obfuscators.source(key))
