"""Targets: the methods of the coordinator's services, called as gRPC calls them, on a core with a running query."""

import asyncio
import shutil
from contextvars import copy_context
from functools import cache

from google.protobuf.message import DecodeError, Message

from coordinator.membership import Admissions
from coordinator.service import LearnerService, MemberService, PartyService
from rado.v1 import learner_service_pb2, member_service_pb2, party_service_pb2
from radobase.logs import Log
from tests.federation.coordinator_core import Parts
from tests.fuzz import world
from tests.fuzz.messages import signer
from tests.fuzz.mutation import messages_near
from tests.fuzz.target import Target, scratch
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError
from wire.gate import _caller
from wire.statements import Ready, Refusal, sign
from wire.transport import MAX_MESSAGE_BYTES

MODULES = {
    "MemberService": member_service_pb2,
    "PartyService": party_service_pb2,
    "LearnerService": learner_service_pb2,
}
LEARNERS = frozenset({MessageType.QUERY, MessageType.CANCEL, MessageType.RETRY})


class Hub(Parts):
    """A coordinator without sockets on a clock that stands still."""

    def __init__(self) -> None:
        directory = scratch("hub")
        shutil.rmtree(directory)
        directory.mkdir()
        self.open_parts(
            directory / "coordinator.sqlite",
            directory / "spool",
            roster=lambda: world.ROSTER,
            federation=world.FEDERATION,
            clock=lambda: 1000.0,
            wall_clock=lambda: float(world.NOW),
        )
        membership = type("Served", (), {"envelope": world.ROSTER_ENVELOPE})()
        admissions = Admissions(directory / "admissions", Log("fuzz"))
        self.services = {
            "MemberService": MemberService(membership, self.witnesses, admissions, self.core.wall_clock),
            "PartyService": PartyService(self.intake, self.views, self.witnesses),
            "LearnerService": LearnerService(self.intake, self.views),
        }

    async def to_phase(self, phase: int) -> None:
        """A query that is asked (1), ready but for one party (2), or uploading (3)."""
        await self.core.start()
        for at in (0, 1):
            await self.intake.query(world.opened(at).envelope, world.MEMBERS["lea"])
        self.witnesses.ask(signed(MessageType.CHALLENGE), world.MEMBERS["ann"])
        parties = world.PARTIES if phase == 3 else world.PARTIES[1:]
        for party in parties if phase > 1 else ():
            said = sign(world.acceptance(party), world.KEYS[party])
            await self.intake.acceptance(said, world.MEMBERS[party])
        if phase == 3:
            for party in world.PARTIES:
                ready = sign(Ready(world.opened().query_id, 1, party), world.KEYS[party])
                await self.intake.ready(ready, world.MEMBERS[party])

    def close(self) -> None:
        self.core._store_thread.shutdown()
        self.core._adding.close()
        self.store.close()


def signed(kind: MessageType, payload: bytes | None = None, party: str = "ann") -> Envelope:
    key = "lea" if kind in LEARNERS else party
    return world.KEYS[key].sign(kind, world.statements()[kind][0] if payload is None else payload)


METHODS: dict[str, MessageType | None] = {
    "MemberService.FetchRoster": None,
    "MemberService.FetchFeatures": None,
    "MemberService.FetchAdmission": None,
    "PartyService.FetchWork": None,
    "PartyService.SubmitFeatures": MessageType.FEATURES,
    "PartyService.AskWitnesses": MessageType.CHALLENGE,
    "PartyService.SubmitWitness": MessageType.WITNESS,
    "PartyService.FetchWitnesses": None,
    "PartyService.SubmitAnswer": MessageType.ACCEPTANCE,
    "PartyService.SubmitReady": MessageType.READY,
    "PartyService.UploadChunk": None,
    "PartyService.SubmitReceipt": MessageType.RECEIPT,
    "PartyService.SubmitUnmasking": MessageType.UNMASKING,
    "LearnerService.SubmitQuery": MessageType.QUERY,
    "LearnerService.WatchQuery": None,
    "LearnerService.ListQueries": None,
    "LearnerService.CancelQuery": MessageType.CANCEL,
    "LearnerService.RetryQuery": MessageType.RETRY,
    "LearnerService.FetchTotal": None,
    "LearnerService.FetchTotalChunk": None,
}
"""Every call of the coordinator, with the kind of signed message that it carries."""


def request_class(method: str):
    service, call = method.split(".")
    return getattr(MODULES[service], f"{call}Request")


def reader(method: str):
    """A reader of a request. Its first byte: the phase of the query (3), and whether the payload is signed again.

    A hostile member signs what it likes; a request whose signature does not hold is the other half.
    """
    service, call = method.split(".")

    def read(data: bytes) -> None:
        first, kind = (data[0] if data else 0), METHODS[method]
        try:
            request = request_class(method).FromString(data[1:])
        except DecodeError as error:
            raise WireError(Code.MESSAGE_MALFORMED) from error  # as wire.gate.Gate does
        if kind is not None and first & 4:
            resign(request, kind)
        party = world.PARTIES[(first >> 3) % 2]
        caller = world.MEMBERS["lea" if service == "LearnerService" else party]
        asyncio.run(serve(service, call, request, caller, 1 + first % 3))

    return read


def resign(request, kind: MessageType) -> None:
    for field, part in request.ListFields():
        if field.message_type is not None and field.message_type.name == "Signed":
            named = {"refusal": MessageType.REFUSAL, "pending": MessageType.PENDING}.get(field.name, kind)
            for each in [part] if isinstance(part, Message) else part:
                each.CopyFrom(signed(named, each.payload, signer(named, each.payload)).to_proto())


async def serve(service: str, call: str, request, caller, phase: int) -> None:
    hub = Hub()
    try:
        await hub.to_phase(phase)
        context = copy_context()
        context.run(_caller.set, caller)
        if getattr(request, "wait_s", 0):
            request.wait_s = 0
        method = getattr(hub.services[service], call)
        response = await asyncio.get_running_loop().create_task(method(request, None), context=context)
        assert response.SerializeToString() is not None
        while hub.core._carried:
            await asyncio.wait(set(hub.core._carried))
        assert hub.core.find(world.opened().query_id).query_id == world.opened().query_id
    finally:
        hub.close()


@cache
def _requests() -> dict[str, list]:
    seeds = {method: [request_class(method)()] for method in METHODS}
    for method, kind in METHODS.items():
        field = next((f.name for f in request_class(method).DESCRIPTOR.fields if f.message_type), None)
        if kind is not None:
            seeds[method] = [
                request_class(method)(**{field: signed(kind, payload).to_proto()})
                for payload in world.statements()[kind][:3]
            ]
    party, learner = party_service_pb2, learner_service_pb2
    query_id = world.opened().query_id
    refusal = sign(Refusal(query_id, 1, "ann", Code.UNAVAILABLE), world.KEYS["ann"])
    seeds["PartyService.SubmitAnswer"] += [
        party.SubmitAnswerRequest(refusal=refusal.to_proto()),
        party.SubmitAnswerRequest(pending=signed(MessageType.PENDING).to_proto()),
    ]
    seeds["PartyService.UploadChunk"] = [
        party.UploadChunkRequest(query_id=query_id, attempt=1, chunk=world.chunk().to_proto())
    ]
    seeds["PartyService.FetchWork"] = [party.FetchWorkRequest(cursor=1, wait_s=0)]
    seeds["PartyService.FetchWitnesses"] = [party.FetchWitnessesRequest(nonce=world.octets("challenge"))]
    for name in ("WatchQuery", "FetchTotal", "FetchTotalChunk"):
        seeds[f"LearnerService.{name}"] = [getattr(learner, f"{name}Request")(query_id=query_id)]
    return seeds


def targets() -> list[Target]:
    from hypothesis import strategies as st

    def inputs(method: str):
        first = st.integers(0, 15).map(lambda value: bytes([value]))
        return st.tuples(first, messages_near(_requests()[method])).map(b"".join)

    return [
        Target(
            f"call-{method.split('.')[1].lower()}",
            reader(method),
            inputs(method),
            MAX_MESSAGE_BYTES + 1,
            (method,),
            examples=16,
        )
        for method in METHODS
    ]
