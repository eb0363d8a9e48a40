"""One query through party, coordinator and learner code, without sockets.

    learner: plan -> parties: contributions -> parties: encrypt, mask -> coordinator: check, multiply -> learner: open

Without encryption the travel forms are added as integers mod 2^w and centred like the learner's decoder does. Masks
cancel in the whole sum, so both ways give the same values, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.uploads import check_chunk
from dpcore.errors import PlanError
from dpcore.numbers.progress import Progress
from dpcore.paillier.packing import from_total
from dpcore.paillier.public import PublicKey, multiply
from dpcore.paillier.secret import SecretKey
from learner.decryption import open_total
from learner.planning import Plan, plan_query
from learner.requests import Request
from radofed.simulation.designs import DesignOptions, divided_counts
from radofed.simulation.table import TablePersons
from radofed.simulation.workers import ATTEMPT, FEDERATION, Ask, Hosts, Share, seeded
from wire.envelopes import Envelope, MessageType, SigningKey
from wire.query import PaillierKey, open_query
from wire.query_kinds import AnyKind
from wire.roster import Member, Role, Roster, certificate_san
from wire.statements import Chunk, Cohort
from wire.status import Total

LEARNER, COORDINATOR = "learner", "coordinator"
# A simulation has no clock: all timestamps are this second.
NOW_UNIX_S = 1_000_000_000
_LEAST_BITS = 2048


@dataclass(frozen=True, eq=False)
class PlannedFold:
    """A query of one fold, signed and opened as every node opens it, but not sent.

    kind: what parties compute. parts: the rows of each party, as indices into the table.
    """

    plan: Plan
    roster: Roster
    ask: Ask
    parts: tuple[NDArray[np.int64], ...]
    party_rows: tuple[int, ...]
    """Number of training rows, or persons, of each party, in the roster's order."""

    @property
    def kind(self) -> AnyKind:
        """What parties compute: the query's kind, except if a coordinator divides the draw."""
        return self.ask.divided or self.ask.opened.query.kind


class SimulatedFederation:
    """A roster of simulated parties, a coordinator and a learner.

    secret: the learner's key to encrypt contributions, None to leave them unencrypted. persons: whose the table's rows
    are, if persons are the unit of privacy. mask_neighbours, may_vanish: of every request; None for the default.
    """

    def __init__(
        self,
        hosts: Hosts,
        parties: Sequence[str],
        seed: int,
        secret: SecretKey | None,
        persons: TablePersons | None = None,
        mask_neighbours: str | None = None,
        may_vanish: int | None = None,
    ) -> None:
        given = {"mask_neighbours": mask_neighbours, "may_vanish": may_vanish}
        self._persons, self._given = persons, {name: value for name, value in given.items() if value is not None}
        self._hosts, self._parties, self._seed, self._secret = hosts, tuple(parties), seed, secret
        self._learner = SigningKey.generate(FEDERATION)
        self._keys = hosts.signing_keys()
        # Without encryption the query has a modulus of the smallest size, which encrypts nothing.
        public = PublicKey((1 << (_LEAST_BITS - 1)) | 1) if secret is None else secret.public_key
        key = PaillierKey(LEARNER, public, NOW_UNIX_S, NOW_UNIX_S + 10 * 365 * 24 * 3600)
        self._certificate: Envelope = key.sign(self._learner)

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties' names, in the roster's order."""
        return self._parties

    @property
    def terms(self) -> dict[str, Any]:
        """The options of every request about masks, parties that vanish and the unit of privacy."""
        return self._given if self._persons is None else {**self._given, **self._persons.terms}

    def persons_of(self, part: NDArray[np.int64]) -> int:
        """How many persons rows of the table are of; 0 if they have no ids."""
        return 0 if self._persons is None else len(np.unique(self._persons.codes[part]))

    def plan(
        self,
        options: DesignOptions | None,
        request: Request,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        question: str = "",
    ) -> PlannedFold:
        """Plan and sign a query of fold `fold` over the rows `parts`.

        options: the design of a release, None for an estimator's query. question: then its label, unique in the fold.
        Raises PlanError, SchemaError or another RadofedError if the query is not possible.
        """
        request = replace(request, **self.terms)
        if request.may_vanish and self._secret is not None:
            raise PlanError(
                "a simulation does not take masks off for parties that vanish: leave encrypt out, which changes no "
                "figure, or leave may_vanish out"
            )
        sizes = tuple(len(part) if self._persons is None else self.persons_of(part) for part in parts)
        roster = self._roster(sizes, stated=options is None or options.split == "local")
        plan = plan_query(
            request,
            roster=roster,
            asked=roster.parties,
            learner=LEARNER,
            certificate=self._certificate,
            random=seeded(self._seed, fold, LEARNER, "nonce", question),
            now_unix_s=NOW_UNIX_S,
            stated_rows={party.name: party.rows_at_least for party in roster.parties if party.rows_at_least},
        )
        envelope = self._learner.sign(MessageType.QUERY, plan.query.to_bytes())
        opened = open_query(envelope, roster, now_unix_s=NOW_UNIX_S)
        divided = None if options is None else options.divided(opened.query.kind)
        return PlannedFold(plan, roster, Ask(fold, opened, divided, question, len(parts)), tuple(parts), sizes)

    def ask(self, planned: PlannedFold, progress: Progress | None = None) -> NDArray[np.int64]:
        """Send a query to all parties and return its opened total, (length,) int64.

        Raises PlanError or another RadofedError if a party or the learner refuses.
        """
        shares = self._shares(planned)
        if self._secret is None:
            encoding = planned.ask.opened.query.encoding
            return from_total(self._hosts.residues(planned.ask, shares), len(shares), encoding)
        return self._open(planned, shares, self._secret, progress)

    def _roster(self, rows: Sequence[int], *, stated: bool) -> Roster:
        """The roster of one fold. stated: whether it has the parties' rows; not if the pool is planned as a whole."""
        members = [
            Member(Role.COORDINATOR, COORDINATOR, b"", certificate_san(FEDERATION, Role.COORDINATOR, COORDINATOR)),
            Member(
                Role.LEARNER, LEARNER, self._learner.public_bytes, certificate_san(FEDERATION, Role.LEARNER, LEARNER)
            ),
        ]
        for party, count in zip(self._parties, rows, strict=True):
            san = certificate_san(FEDERATION, Role.PARTY, party)
            members.append(Member(Role.PARTY, party, self._keys[party], san, count if stated else None))
        return Roster(FEDERATION, 1, NOW_UNIX_S, tuple(members))

    def _shares(self, planned: PlannedFold) -> list[Share]:
        ask = planned.ask
        if ask.divided is None:
            codes = None if self._persons is None else self._persons.codes
            return [
                Share(party, part, persons=None if codes is None else codes[part])
                for party, part in zip(self._parties, planned.parts, strict=True)
            ]
        counts = divided_counts(ask.divided, planned.party_rows, seeded(self._seed, ask.fold, COORDINATOR, "split"))
        return [
            Share(party, part, column)
            for party, part, column in zip(self._parties, planned.parts, np.ascontiguousarray(counts.T), strict=True)
        ]

    def _open(
        self, planned: PlannedFold, shares: Sequence[Share], secret: SecretKey, progress: Progress | None
    ) -> NDArray[np.int64]:
        opened = planned.ask.opened
        cohort = Cohort(opened.query_id, ATTEMPT, tuple(self._hosts.acceptances(planned.ask, shares)))
        total, receipts = self._product(planned, shares, cohort, progress)
        header = Total(cohort, receipts, opened.chunks, opened.ciphertexts)
        return open_total(header, total, opened, planned.roster, secret, opening=planned.plan.opening).values

    def _product(
        self, planned: PlannedFold, shares: Sequence[Share], cohort: Cohort, progress: Progress | None
    ) -> tuple[list[bytes], tuple[Envelope, ...]]:
        """The coordinator's part: check every chunk, multiply it in as it arrives, and forget it."""
        opened = planned.ask.opened
        products: list[bytes] = []
        receipts: list[Envelope] = []
        for upload in self._hosts.uploads(planned.ask, shares, cohort.open(planned.roster), cohort.digest):
            for index, ciphertexts in enumerate(upload.chunks):
                check_chunk(opened, Chunk.of(index, ciphertexts))
                if not receipts:
                    products.append(ciphertexts)
                else:
                    products[index] = multiply(opened.public_key, [products[index], ciphertexts])
            receipts.append(upload.receipt)
            if progress is not None:
                progress(len(receipts), len(shares))
        return products, tuple(receipts)
