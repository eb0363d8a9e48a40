"""Cohorts that a party must not upload for, nor charge: what a hostile coordinator or member may show."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from rado.v1 import cohort_pb2, query_pb2
from radofed.conformance.kit import SMALLEST_COHORT
from radofed.conformance.play import Edit, Play
from wire.envelopes import Envelope, MessageType, SigningKey

Good = dict[str, Envelope]
"""The acceptances of a good cohort, by party."""


class BadCohort(NamedTuple):
    """A change of a good cohort."""

    section: str
    what: str
    change: Callable[[Play, Good], Sequence[Envelope]]
    around: Callable[[cohort_pb2.Cohort], None] = lambda _: None
    """A change of the cohort's own message."""
    others: int = SMALLEST_COHORT - 1
    """How many of the kit's parties are asked."""
    edit: Edit | None = None
    """A change of the query, which is still a good one."""


def bad_cohorts() -> list[BadCohort]:
    """All of them."""
    return [*_with_another_acceptance(), *_with_other_members(), *_of_another_query()]


def _key() -> bytes:
    return X25519PrivateKey.generate().public_key().public_bytes_raw()


def _peer_s(make: Callable[[Play, Envelope], Envelope]) -> Callable[[Play, Good], list[Envelope]]:
    """The cohort with the acceptance of its first peer made anew."""

    def change(play: Play, good: Good) -> list[Envelope]:
        peer = play.peers[0]
        return [*{**good, peer: make(play, good[peer])}.values()]

    return change


def _stating(**fields: Any) -> Callable[[Play, Good], list[Envelope]]:
    """The cohort with an acceptance of a peer that states this, rightly signed."""
    return _peer_s(lambda play, _: play.acceptance_of(play.peers[0], **{"mask_key": _key(), **fields}))


def _signed_by(play: Play, good: Envelope, kind: MessageType, place: int | None) -> Envelope:
    """The peer's statement, signed as this kind by one of the peers; None: by a key of no roster."""
    if place is None:
        return SigningKey.generate(play.kit.roster.federation).sign(kind, good.payload)
    return play.kit.signing_key(play.peers[place]).sign(kind, good.payload)


def _with_another_acceptance() -> list[BadCohort]:
    acceptance, ready = MessageType.ACCEPTANCE, MessageType.READY
    by_another, by_nobody = (_peer_s(partial(_signed_by, kind=acceptance, place=place)) for place in (1, None))
    as_ready = _peer_s(partial(_signed_by, kind=ready, place=0))

    def own_changed(play: Play, good: Good) -> list[Envelope]:
        own = play.kit.request.name
        return [*{**good, own: replace(good[own], signature=os.urandom(64))}.values()]

    def many_rows(play: Play, good: Good) -> list[Envelope]:
        return _stating(rows=play.query.max_rows)(play, good)

    return [
        BadCohort("7.4", "a forged acceptance", _peer_s(lambda _, good: replace(good, signature=os.urandom(64)))),
        BadCohort("7.4", "an acceptance that another party signed", by_another),
        BadCohort("7.4", "an acceptance by a key of a swapped roster", by_nobody),
        BadCohort("2", "an acceptance that was signed as another type", as_ready),
        BadCohort("7.4", "an acceptance of another attempt", _stating(attempt=2)),
        BadCohort("7.4", "an acceptance of another query", _stating(query_id=os.urandom(32))),
        BadCohort("6", "a mask key of low order", _stating(mask_key=bytes(32))),
        BadCohort("3", "a member whose roster is newer than can be fetched", _stating(roster_version=1000)),
        BadCohort("7.4", "more rows than max_rows", many_rows),
        BadCohort("7.4", "its own acceptance with another signature", own_changed),
    ]


def _with_other_members() -> list[BadCohort]:
    def own(play: Play, good: Good) -> Envelope:
        return good[play.kit.request.name]

    def without_own(play: Play, good: Good) -> list[Envelope]:
        return [each for each in good.values() if each is not own(play, good)]

    def twice(play: Play, good: Good) -> list[Envelope]:
        return [*good.values(), good[play.peers[0]]]

    def few(play: Play, good: Good) -> list[Envelope]:
        return [own(play, good), good[play.peers[0]]]

    def not_asked(play: Play, good: Good) -> list[Envelope]:
        outside = next(peer for peer in play.kit.peers if peer not in play.peers)
        return [*few(play, good), play.acceptance_of(outside, _key())]

    def at_most_three(message: query_pb2.Query) -> None:
        message.max_parties = 3

    return [
        BadCohort(
            "7.4", "more members than max_parties", lambda _, good: [*good.values()], others=3, edit=at_most_three
        ),
        BadCohort("7.4", "no acceptance of its own", without_own),
        BadCohort("7.4", "a member twice", twice),
        BadCohort("7.4", "fewer members than cohort_min", few),
        BadCohort("7.4", "itself alone", lambda play, good: [own(play, good)]),
        BadCohort("7.4", "a member that the query does not ask", not_asked),
    ]


def _of_another_query() -> list[BadCohort]:
    def whole(_: Play, good: Good) -> list[Envelope]:
        return [*good.values()]

    def renamed(cohort: cohort_pb2.Cohort) -> None:
        cohort.query_id = os.urandom(32)

    def numbered(cohort: cohort_pb2.Cohort) -> None:
        cohort.attempt = 2

    return [
        BadCohort("7.4", "the id of another query", whole, renamed),
        BadCohort("7.4", "the number of another attempt", whole, numbered),
    ]
