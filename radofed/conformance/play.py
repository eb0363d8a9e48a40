"""One query that the kit plays to a party: what the coordinator shows of it, and what the party sends.

The kit's learner asks it, and the kit's parties accept it, with mask keys that the kit keeps.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.predicates.expressions import Predicate
from dpcore.predicates.notation import parse
from dpcore.queries.moments import longest_norm
from dpcore.records.coding import SIGNS
from dpcore.records.schema import Schema
from learner.decryption import LearnerKey
from learner.planning import Plan, plan_query
from learner.requests import GradientRequest, MomentsRequest, Request, StatisticRequest
from rado.v1 import cohort_pb2, party_service_pb2, query_pb2
from radofed.conformance.contribution import Contribution, Peers, open_contribution
from radofed.conformance.findings import UnmetError
from radofed.conformance.kit import COLLUDERS, LEARNER, SMALLEST_COHORT, Kit
from radofed.conformance.stage import Stage
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query, Retry
from wire.statements import Acceptance, Chunk, Cohort, Pending, Ready, Receipt, Refusal, check_receipt, open_statement
from wire.statements import upload_digest as digest_of_upload
from wire.status import PartyState, Phase

S = TypeVar("S", Acceptance, Refusal, Pending, Ready, Receipt)
Edit = Callable[[query_pb2.Query], None]


@dataclass(frozen=True)
class Answer:
    """What a party answered to an attempt: exactly one of both."""

    envelope: Envelope
    acceptance: Acceptance | None
    refusal: Refusal | None


@dataclass(frozen=True)
class Asking:
    """The kit's learner, with a Paillier key of this run."""

    kit: Kit
    key: LearnerKey

    def plan(
        self,
        request: Request,
        others: int = SMALLEST_COHORT - 1,
        *,
        understood: Iterable[str] = (),
        question: bool = False,
        learner: str = LEARNER,
    ) -> Plan:
        """A query for the party under test and so many of the kit's. learner: who asks, of those of the kit."""
        asked = [self.kit.subject, *(self.kit.member(peer) for peer in self.kit.peers[:others])]
        certificate = self.key.certify(learner, self.kit.signing_key(learner), with_subgroup=False)
        return plan_query(
            request,
            roster=self.kit.roster,
            asked=asked,
            learner=learner,
            certificate=certificate,
            understood=frozenset(understood),
            question=question,
        )

    def signed(self, plan: Plan, edit: Edit | None = None, *, by: str = LEARNER) -> Envelope:
        """The query of a plan, changed, and signed as a query by this member."""
        if edit is None:
            return self.kit.signing_key(by).sign(MessageType.QUERY, plan.query.to_bytes())
        message = plan.query.to_proto()
        edit(message)
        return self.kit.signing_key(by).sign(MessageType.QUERY, message.SerializeToString(deterministic=True))


def requests(kit: Kit, epsilon: Fraction) -> dict[str, Request]:
    """A request of each kind that the schema allows, at this cost.

    No record is clipped in the first. In two others most are, to lengths that noise does not hide.
    """
    terms = terms_at(epsilon)
    schema = kit.schema
    found: dict[str, Request] = {"moments": MomentsRequest(schema, norm_bound=longest_norm(schema), **terms)}
    bias = int(schema.bias)
    found["moments, clipped"] = MomentsRequest(schema, norm_bound=bias + Fraction(1, 8), **terms)
    # A part of a budget has Gaussian noise, the whole the smaller of both.
    found["statistic"] = StatisticRequest(schema, predicates(schema), part=Fraction(99, 100), **terms)
    found["statistic, Laplace"] = StatisticRequest(
        schema, predicates(schema)[:2], pure=True, **{**terms, "epsilon": epsilon / 2}
    )
    if schema.label.coding == SIGNS:
        theta = tuple((-1) ** place / (4 + place) for place in range(schema.d))
        found["gradient"] = GradientRequest(schema, theta, clip=Fraction(1, 8), **terms)
    return found


def terms_at(epsilon: Fraction) -> dict[str, Any]:
    """What all requests of the kit have, at this cost."""
    return {
        "epsilon": epsilon,
        "colluders": COLLUDERS,
        "max_rows": 10_000,
        "answer_within_s": 600,
        "prepare_within_s": 600,
        "upload_within_s": 600,
    }


def predicates(schema: Schema) -> tuple[Predicate, ...]:
    """One about each group of coordinates, one with the label, and one that is not Boolean."""
    texts = []
    for group in schema.groups:
        name = json.dumps(group.name, ensure_ascii=False)
        match group.comparison:
            case "number":
                lower, upper = group.bounds or (0.0, 1.0)
                middle = group.written((lower + upper) / 2)  # type: ignore[union-attr]  # such groups are real
                texts.append(f"x[{name}] >= {json.dumps(middle) if group.is_named else middle}")  # type: ignore[union-attr]
            case "value":
                value = group.values[0]  # type: ignore[union-attr]  # such groups are categories
                texts.append(f"x[{name}] == {json.dumps(value, ensure_ascii=False)}")
            case "flag":
                texts.append(f"x[{name}]")
    first = json.dumps(schema.coordinates[0], ensure_ascii=False)
    texts.append(f"clip((3 * z[{first}] + 2) / 4)")
    texts += [f"({texts[0]}) & (y == 1)"] if schema.label.coding == SIGNS else []
    return tuple(map(parse, texts))


@dataclass
class Play:
    """One query as it is played to the party under test."""

    stage: Stage
    asking: Asking
    plan: Plan
    envelope: Envelope
    """The signed query."""
    patience_s: float
    attempt: int = 1
    retry: Envelope | None = None
    mask_keys: dict[str, X25519PrivateKey] = field(default_factory=dict)
    """Of the peers, for the present attempt."""
    around: dict[str, Any] = field(default_factory=dict)
    """Further fields of what the party is shown, if members may vanish."""
    sharing_digest: bytes = b""
    """Of the sharing that cohorts name, if members may vanish."""
    self_seed: bytes | None = None
    """Of the mask of the party's own, if members may vanish."""
    _shown: int = 0

    @property
    def kit(self) -> Kit:
        """The federation."""
        return self.stage.kit

    @property
    def query(self) -> Query:
        """As it was planned; the signed one may be another."""
        return self.plan.query

    @property
    def query_id(self) -> bytes:
        """Of the signed query."""
        return self.envelope.payload_hash

    @property
    def opened(self) -> OpenedQuery:
        """The planned query, under the id of the signed one."""
        return OpenedQuery(self.envelope, self.query, self.plan.public_key)

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """The kit's parties that are asked."""
        return tuple(sorted(self.query.binding.parties - {self.kit.request.name}))

    # What the party sees.

    def show(
        self,
        phase: Phase,
        state: PartyState,
        *,
        cohort: cohort_pb2.Cohort | None = None,
        held: Sequence[int] = (),
    ) -> None:
        """Show the present attempt in this phase."""
        work = party_service_pb2.Work(
            query=self.envelope.to_proto(),
            attempt=self.attempt,
            phase=phase.value,
            state=state.value,
            cohort=cohort,
            chunks_held=held,
            retry=None if self.retry is None else self.retry.to_proto(),
            **self.around,
        )
        self._shown = self.stage.show(work)

    def is_seen(self) -> bool:
        """Whether the party fetches what was shown last, in time."""
        return bool(self.stage.wait(lambda: self.stage.is_seen(self._shown), self.patience_s))

    def seen(self, quiet_s: float) -> None:
        """Wait until the party has fetched what was shown last, and so much longer. Raises UnmetError."""
        if not self.is_seen():
            raise UnmetError("1", f"it has not fetched work for {self.patience_s:g} s")
        time.sleep(quiet_s)

    def end(self, phase: Phase = Phase.FAILED) -> None:
        """Show that the attempt has ended."""
        self.show(phase, PartyState.LEFT_OUT)

    def begin_again(self) -> None:
        """The next attempt, which the learner signs."""
        self.attempt += 1
        self.mask_keys = {}
        self.retry = Retry(self.query_id, LEARNER, self.attempt).sign(self.kit.signing_key(LEARNER))

    # What it sends.

    def _sent(self, method: str, find: Callable[[Any], Any], timeout_s: float) -> Any:
        def look() -> Any:
            return next((found for call in self.stage.calls(method) if (found := find(call.request)) is not None), None)

        return self.stage.wait(look, timeout_s)

    def _opened(self, kind: type[S], signed: Any) -> tuple[Envelope, S] | None:
        """A statement if it is about the present attempt, verified. Raises UnmetError if it is not as it should be."""
        envelope = Envelope.from_proto(signed)
        said = kind.from_bytes(envelope.payload)
        if (said.query_id, said.attempt) != (self.query_id, self.attempt):
            return None
        try:
            open_statement(kind, envelope, self.kit.roster)
        except WireError as error:
            raise UnmetError("2", f"a {kind.KIND} does not verify: {error.public_sentence}") from error
        if said.party != self.kit.request.name:
            raise UnmetError("2", f"a {kind.KIND} names {said.party}")
        return envelope, said

    def answer(self, timeout_s: float | None = None) -> Answer | None:
        """The party's answer to the present attempt; None if it sends none in time. Raises UnmetError."""

        def find(request: party_service_pb2.SubmitAnswerRequest) -> Answer | None:
            which = request.WhichOneof("answer")
            if which == "acceptance" and (found := self._opened(Acceptance, request.acceptance)):
                return Answer(found[0], found[1], None)
            if which == "refusal" and (said := self._opened(Refusal, request.refusal)):
                return Answer(said[0], None, said[1])
            return None

        found: Answer | None = self._sent("SubmitAnswer", find, self.patience_s if timeout_s is None else timeout_s)
        return found

    def is_pending(self, timeout_s: float) -> bool:
        """Whether the party says, in time, that a person has to decide first. Raises UnmetError."""

        def find(request: party_service_pb2.SubmitAnswerRequest) -> bool | None:
            waits = request.WhichOneof("answer") == "pending"
            return True if waits and self._opened(Pending, request.pending) else None

        return bool(self._sent("SubmitAnswer", find, timeout_s))

    def refused_later(self, timeout_s: float) -> bool:
        """Whether the party refuses what it accepted, in time."""

        def find(request: party_service_pb2.SubmitAnswerRequest) -> bool | None:
            is_refusal = request.WhichOneof("answer") == "refusal"
            return True if is_refusal and self._opened(Refusal, request.refusal) else None

        return bool(self._sent("SubmitAnswer", find, timeout_s))

    def accepted(self) -> Answer:
        """The party's acceptance. Raises UnmetError if it sends none."""
        self.show(Phase.ANSWERING, PartyState.SILENT)
        with self._timed():
            answer = self.answer()
        if answer is None:
            raise UnmetError("7.2", f"no answer to a query within {self.patience_s:g} s")
        if answer.refusal is not None:
            raise RefusedError(answer.refusal.code)
        return answer

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.stage.slowest_s = max(self.stage.slowest_s, min(time.monotonic() - began, self.patience_s / 2))

    def ready(self) -> None:
        """Let the party compute. Raises UnmetError if it does not get ready."""
        self.show(Phase.PREPARING, PartyState.ACCEPTED)

        def find(request: party_service_pb2.SubmitReadyRequest) -> bool | None:
            return True if self._opened(Ready, request.ready) else None

        if not self._sent("SubmitReady", find, self.patience_s):
            raise UnmetError("7.3", f"no Ready within {self.patience_s:g} s after the acceptance")
        self.show(Phase.PREPARING, PartyState.READY)

    def acceptances(self, own: Answer) -> dict[str, Envelope]:
        """Those of a cohort of all that are asked, by party; the kit's with fresh mask keys."""
        found = {self.kit.request.name: own.envelope}
        for peer in self.peers:
            key = self.mask_keys.setdefault(peer, X25519PrivateKey.generate())
            found[peer] = self.acceptance_of(peer, key.public_key().public_bytes_raw())
        return {member.name: found[member.name] for member in self.kit.roster.parties if member.name in found}

    def acceptance_of(self, peer: str, mask_key: bytes, **changes: Any) -> Envelope:
        """A peer's signed acceptance of the present attempt, with these fields changed."""
        fields = {
            "query_id": self.query_id,
            "attempt": self.attempt,
            "party": peer,
            "rows": 100,
            "mask_key": mask_key,
            "roster_version": self.kit.roster.version,
            # Later acceptances have more entries.
            "ledger_head": cohort_pb2.LedgerHead(entries=time.time_ns() // 1000, digest=os.urandom(32)),
        }
        message = cohort_pb2.Acceptance(**{**fields, **changes})
        payload = message.SerializeToString(deterministic=True)
        return self.kit.signing_key(peer).sign(MessageType.ACCEPTANCE, payload)

    def cohort(self, acceptances: Iterable[Envelope]) -> cohort_pb2.Cohort:
        """The message of a cohort, of whatever acceptances."""
        signed = [each.to_proto() for each in acceptances]
        return cohort_pb2.Cohort(
            query_id=self.query_id, attempt=self.attempt, acceptances=signed, sharing_digest=self.sharing_digest
        )

    def chunks(self) -> dict[int, set[bytes]]:
        """All chunks that came for this query, whatever the attempt, by index."""
        found: dict[int, set[bytes]] = {}
        for call in self.stage.calls("UploadChunk"):
            if call.request.query_id == self.query_id:
                found.setdefault(call.request.chunk.index, set()).add(call.request.chunk.ciphertexts)
        return found

    def uploaded(self, own: Answer, acceptances: Mapping[str, Envelope]) -> "Upload":
        """What the party uploads for this cohort. Raises UnmetError if it is not complete or not well formed."""
        message = self.cohort(acceptances.values())
        self.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=message)
        cohort = Cohort.from_proto(message)
        opened = self.opened

        def receipts() -> Receipt | None:
            for call in self.stage.calls("SubmitReceipt", "UploadChunk"):
                is_there = call.method == "SubmitReceipt" or (
                    self.stage.takes_receipts and call.request.HasField("receipt")
                )
                if is_there and (found := self._opened(Receipt, call.request.receipt)):
                    return found[1]
            return None

        with self._timed():
            receipt = self.stage.wait(receipts, self.patience_s)
        if receipt is None:
            more = f"; {len(self.chunks())} of {opened.chunks} chunks came" if self.chunks() else ""
            raise UnmetError(
                "7.5", f"no upload with a receipt within {self.patience_s:g} s after the cohort was shown{more}"
            )
        parts = [
            Chunk.from_proto(call.request.chunk)
            for call in self.stage.calls("UploadChunk")
            if (call.request.query_id, call.request.attempt) == (self.query_id, self.attempt)
        ]
        by_index = {part.index: part for part in parts}
        if sorted(by_index) != list(range(opened.chunks)):
            raise UnmetError("6", f"chunks {sorted(by_index)} came, and an upload has chunks 0 to {opened.chunks - 1}")
        if any(by_index[part.index] != part for part in parts):
            raise UnmetError("7.5", "two different chunks of one index came")
        try:
            check_receipt(receipt, cohort, chunks=opened.chunks, ciphertexts=opened.ciphertexts)
        except WireError as error:
            raise UnmetError("6", f"the receipt does not match: {error.public_sentence}") from error
        if receipt.upload_digest != digest_of_upload([by_index[index].content_hash for index in range(opened.chunks)]):
            raise UnmetError("6", "the receipt's upload_digest is not that of the chunks")
        self.show(Phase.UPLOADING, PartyState.UPLOADED, cohort=message, held=range(opened.chunks))
        assert own.acceptance is not None, "it was accepted"
        return Upload(self, own.acceptance, cohort, tuple(by_index[index] for index in range(opened.chunks)))


class RefusedError(UnmetError):
    """The party refuses a query that the kit's policy allows."""

    def __init__(self, code: Code) -> None:
        self.code = code
        super().__init__("7.2", f"it was refused with {code.value}")


@dataclass(frozen=True)
class Upload:
    """A party's complete upload for a cohort."""

    play: Play
    acceptance: Acceptance
    cohort: Cohort
    chunks: tuple[Chunk, ...]

    @property
    def ciphertexts(self) -> bytes:
        """All of them."""
        return b"".join(chunk.ciphertexts for chunk in self.chunks)

    def open(self) -> Contribution:
        """The values alone, by the peers' mask keys and the learner's Paillier key."""
        play = self.play
        return open_contribution(
            self.ciphertexts,
            play.opened,
            self.acceptance,
            Peers(play.mask_keys),
            self.cohort.digest,
            play.asking.key.secret,
            play.plan.opening,
            play.self_seed,
        )
