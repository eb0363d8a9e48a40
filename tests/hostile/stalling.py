"""Coordinators that keep members waiting: one that accepts connections, and one that speaks the protocol."""

import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from rado.v1 import (
    learner_service_pb2,
    learner_service_pb2_grpc,
    member_service_pb2,
    member_service_pb2_grpc,
    party_service_pb2,
    party_service_pb2_grpc,
)
from tests.federation.material import server_credentials
from tests.federation.processes import ProcessFederation
from tests.waiting import HANG_S
from wire.envelopes import Envelope
from wire.features import OWN_FEATURES
from wire.identity import TlsFiles
from wire.status import QueryStatus, Work
from wire.transport import SERVER_OPTIONS

# Untyped: the generated types declare every call abstract, and the generated classes refuse calls that are not served.
MemberService: Any = member_service_pb2_grpc.MemberServiceServicer
PartyService: Any = party_service_pb2_grpc.PartyServiceServicer
LearnerService: Any = learner_service_pb2_grpc.LearnerServiceServicer


class Holding(MemberService, PartyService, LearnerService):
    """Answers every call at once over mutual TLS, shows the same work for ever, and ignores how long a poll may wait.

    status: what every learner is shown. calls: how many there were of each kind.
    """

    def __init__(self, federation: ProcessFederation, status: QueryStatus | None = None) -> None:
        self.work, self.status = [], status
        self.calls: Counter[str] = Counter()
        self.accepted: set[bytes] = set()
        home = federation.directory("coordinator")
        self.roster = Envelope.from_bytes((home / "roster.signed").read_bytes())
        self._server = grpc.server(ThreadPoolExecutor(32), options=SERVER_OPTIONS)
        member_service_pb2_grpc.add_MemberServiceServicer_to_server(self, self._server)
        party_service_pb2_grpc.add_PartyServiceServicer_to_server(self, self._server)
        learner_service_pb2_grpc.add_LearnerServiceServicer_to_server(self, self._server)
        files = TlsFiles(home / "ca.pem", home / "certificate.pem", home / "tls.key")
        self._server.add_secure_port(federation.address, server_credentials(files))
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait(HANG_S)

    def show(self, work: Iterable[Work]) -> None:
        """From now on every party is shown this."""
        self.work = [each.to_proto() for each in work]

    # ruff: noqa: N802 (gRPC fixes the names and the arguments of these methods)

    def FetchRoster(self, request, context):
        now_ms = int(time.time() * 1000)
        return member_service_pb2.FetchRosterResponse(roster=self.roster.to_proto(), server_time_unix_ms=now_ms)

    def FetchFeatures(self, request, context):
        return member_service_pb2.FetchFeaturesResponse(coordinator=OWN_FEATURES)

    def SubmitFeatures(self, request, context):
        return party_service_pb2.SubmitFeaturesResponse()

    def FetchWork(self, request, context):
        self.calls["poll"] += 1
        return party_service_pb2.FetchWorkResponse(work=self.work, cursor=request.cursor + 1)

    def SubmitAnswer(self, request, context):
        self.calls["answer"] += 1
        self.accepted.add(request.acceptance.payload)
        return party_service_pb2.SubmitAnswerResponse()

    def SubmitReady(self, request, context):
        self.calls["ready"] += 1
        return party_service_pb2.SubmitReadyResponse()

    def WatchQuery(self, request, context):
        self.calls["watch"] += 1
        return learner_service_pb2.WatchQueryResponse(status=self.status.to_proto(), cursor=request.cursor + 1)


def process_status(pid: int) -> tuple[int, int, int]:
    """(threads, resident memory, own memory) of a process, in bytes.

    Its own memory, which may be swapped out, has no pages of files, such as libraries. Of these the system keeps as
    many resident as it likes.
    """
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, anonymous, swapped = (int(fields[each].split()[0]) * 1024 for each in ("VmRSS", "RssAnon", "VmSwap"))
    return int(fields["Threads"]), resident, anonymous + swapped
