"""A federation whose keys the test holds, clients that can misbehave, and a coordinator to try them on.

Contributions here are packed and valid but not obfuscated (obfuscator 1): the coordinator does not see the
difference, and thousands are fast.
"""

import asyncio
import dataclasses
import datetime as dt
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from gmpy2 import mpz

from coordinator.config import CoordinatorConfig
from coordinator.server import Node
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.paillier.packing import open_total, pack
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import PlainDesign
from rado.v1 import (
    learner_service_pb2,
    learner_service_pb2_grpc,
    member_service_pb2_grpc,
    party_service_pb2,
    party_service_pb2_grpc,
    query_pb2,
)
from radobase.writing import create_durably
from radofed.certificates import Authority, make_request
from radofed.provision import provision
from tests.federation.material import STAYS as SCHEMA
from tests.federation.material import query_of
from tests.federation.processes import Forked, serve_debugging
from tests.waiting import HANG_S, wait_until
from wire.binding import Binding, OpeningSecret
from wire.envelopes import Envelope, MessageType, SigningKey, load_public_key
from wire.errors import Code, WireError
from wire.identity import TlsFiles
from wire.query import OpenedQuery, PaillierKey, Query, open_query
from wire.roster import Role, Roster, open_roster
from wire.statements import (
    Acceptance,
    Chunk,
    Cohort,
    Pending,
    Ready,
    Receipt,
    Refusal,
    check_receipts,
    chunk_ranges,
    sign,
    upload_digest,
)
from wire.status import Phase, QueryStatus, Total
from wire.transport import Caller, open_channel

FEDERATION = "test"
OPENING = OpeningSecret(bytes(range(32)))
PARTIES = ("ann", "bob", "cat", "dan")
LEARNERS = ("lea", "lou")
ROWS = {"ann": 10, "bob": 20, "cat": 30, "dan": 40}
# d = 3, and 62 values to a ciphertext of a 2048-bit key: 3 chunks, the last one not full.
MANY_RADOS = 50_000


class World:
    """Members of one provisioned federation."""

    def __init__(self, root: Path, secret_key) -> None:
        self.root = root
        made = provision(
            root / "federation",
            federation=FEDERATION,
            coordinator_address="127.0.0.1:7443",
            parties=PARTIES,
            learners=LEARNERS,
        )
        self.directories = {member.name: member.directory for member in made.members}
        self.secret_key = secret_key
        self.keys = {n: SigningKey.load(self.directories[n] / "signing.key", FEDERATION) for n in (*PARTIES, *LEARNERS)}
        self.federation_key = SigningKey.load(made.directory / "federation" / "federation.key", FEDERATION)
        home = self.directories["coordinator"]
        config = CoordinatorConfig.load(home / "coordinator.toml")
        self.config = config.model_copy(update={"listen": "127.0.0.1:0", "log_level": "debug"})
        self.roster_envelope = Envelope.from_bytes(self.config.roster.read_bytes())
        self.roster = open_roster(self.roster_envelope, load_public_key(self.config.federation_key))

    def with_limits(self, **limits) -> CoordinatorConfig:
        return self.config.model_copy(update={"limits": self.config.limits.model_copy(update=limits)})

    def tls(self, name: str) -> TlsFiles:
        home = self.directories[name]
        return TlsFiles(home / "ca.pem", home / "certificate.pem", home / "tls.key")

    def member(self, name: str):
        return next(member for member in self.roster.members if member.name == name)

    def certified(self, role: Role, name: str, now: dt.datetime | None = None) -> TlsFiles:
        """TLS files that the federation's own authority issued, for any name."""
        offline, home = self.root / "federation" / "federation", self.root / f"{role.value}-{name}-{now}"
        ca = x509.load_pem_x509_certificate((offline / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((offline / "ca.key").read_bytes(), None)
        request = make_request(FEDERATION, role, name)
        hosts = ("127.0.0.1",) if role is Role.COORDINATOR else ()
        now = dt.datetime.now(dt.UTC) if now is None else now
        certificate = Authority(FEDERATION, ca, key).sign_request(request.request_pem, role, name, now, hosts=hosts)
        home.mkdir()
        (home / "certificate.pem").write_bytes(certificate)
        create_durably(home / "tls.key", request.key_pem)
        return TlsFiles(offline / "ca.pem", home / "certificate.pem", home / "tls.key")

    def new_roster(self, version: int, *, without: tuple[str, ...] = ()) -> Roster:
        """Sign another roster into the coordinator's file."""
        members = tuple(member for member in self.roster.members if member.name not in without)
        roster = dataclasses.replace(self.roster, version=version, members=members)
        self.config.roster.write_bytes(roster.sign(self.federation_key).to_bytes())
        return roster

    def query(self, *, rados: int = 4, learner: str = "lea", now: float | None = None, **changes) -> Envelope:
        created = int(time.time() if now is None else now)
        nonce = changes.pop("nonce", None) or secrets.token_bytes(16)
        key = PaillierKey(learner, self.secret_key.public_key, created - 1000, created + 10**6)
        fields = {
            "federation": FEDERATION,
            "learner": learner,
            "nonce": nonce,
            "schema": SCHEMA,
            "kind": RadosQuery(rados, PlainDesign()),
            "encoding": plan_encoding(largest_sum=1000 << 16, max_parties=4, fraction_bits=16),
            "paillier_key": key.sign(self.keys[learner]),
            "max_parties": 4,
            "binding": Binding.seal(OPENING, self.roster.parties, nonce),
        }
        return self.keys[learner].sign(MessageType.QUERY, query_of(created, **fields | changes).to_bytes())

    def open(self, envelope: Envelope) -> OpenedQuery:
        return open_query(envelope, self.roster, now_unix_s=Query.from_bytes(envelope.payload).created_at_unix_s)

    def acceptance(
        self, query_id: bytes, party: str, *, attempt: int = 1, rows: int | None = None, share_key: bytes = b""
    ) -> Envelope:
        rows = ROWS[party] if rows is None else rows
        said = Acceptance(query_id, attempt, party, rows, secrets.token_bytes(32), 1, share_key=share_key)
        return sign(said, self.keys[party])

    def refusal(self, query_id: bytes, party: str, code: Code = Code.UNAVAILABLE, *, attempt: int = 1) -> Envelope:
        return sign(Refusal(query_id, attempt, party, code), self.keys[party])

    def pending(self, query_id: bytes, party: str, *, attempt: int = 1) -> Envelope:
        return sign(Pending(query_id, attempt, party), self.keys[party])

    def ready(self, query_id: bytes, party: str, *, attempt: int = 1) -> Envelope:
        return sign(Ready(query_id, attempt, party), self.keys[party])

    def values(self, opened: OpenedQuery, party: str) -> np.ndarray:
        """A contribution that differs from any other party's and from twice its own: one digit of base 16 each."""
        return np.full(opened.query.length, 16 ** PARTIES.index(party)) + np.arange(opened.query.length) % 7

    def chunks(self, opened: OpenedQuery, party: str) -> list[Chunk]:
        key, query = opened.public_key, opened.query
        plaintexts = pack(self.values(opened, party), ROWS[party], query.encoding, key.bits)
        # The last one is in the tag's place.
        ciphertexts = [key.raw_encrypt(plaintext, mpz(1)) for plaintext in [*plaintexts, mpz(7)]]
        return [
            Chunk.of(index, key.to_wire([ciphertexts[i] for i in places]))
            for index, places in enumerate(chunk_ranges(opened.ciphertexts, opened.ciphertexts_per_chunk))
        ]

    def receipt(self, opened: OpenedQuery, cohort: Cohort, party: str, upload: list[Chunk], **changes) -> Envelope:
        said = Receipt(
            query_id=opened.query_id,
            attempt=cohort.attempt,
            party=party,
            cohort_digest=cohort.digest,
            upload_digest=upload_digest([chunk.content_hash for chunk in upload]),
            chunks=opened.chunks,
            ciphertexts=opened.ciphertexts,
        )
        return sign(dataclasses.replace(said, **changes), self.keys[party])

    def check_total(self, opened: OpenedQuery, total: Total, chunks: list[Chunk], members: tuple[str, ...]) -> None:
        """The total is exactly the sum over these members, each once, and its header proves it."""
        acceptances = total.cohort.open(self.roster)
        assert tuple(a.party for a in acceptances) == members
        check_receipts(total.receipts, total.cohort, self.roster, chunks=total.chunks, ciphertexts=total.ciphertexts)
        ciphertexts = [c for chunk in chunks for c in opened.public_key.from_wire(chunk.ciphertexts)]
        query = opened.query
        n = opened.public_key.n
        # Without obfuscation a product is 1 + n * sum, which needs no key to open; the key opens the first ones, too.
        assert all(c % n == 1 for c in ciphertexts)
        plaintexts = [int((c - 1) // n) for c in ciphertexts]
        assert self.secret_key.decrypt_many(ciphertexts[:3]) == plaintexts[:3]
        assert plaintexts[-1] == 7 * len(members)
        values = open_total(
            plaintexts[:-1],
            query.length,
            len(members),
            query.encoding,
            opened.public_key.bits,
            rows=sum(a.rows for a in acceptances),
        )
        np.testing.assert_array_equal(values, sum(self.values(opened, party) for party in members))


class Client:
    """One member's calls to a running coordinator, without the checks of a real node."""

    def __init__(
        self, world: World, name: str, address: str, *, tls: TlsFiles | None = None, give_up_after_s: float = 0.0
    ) -> None:
        self.world, self.name = world, name
        self.channel = open_channel(address, tls or world.tls(name))
        self.call = Caller(address, give_up_after_s=give_up_after_s)
        self.party = party_service_pb2_grpc.PartyServiceStub(self.channel)
        self.learner = learner_service_pb2_grpc.LearnerServiceStub(self.channel)
        self.members = member_service_pb2_grpc.MemberServiceStub(self.channel)

    def submit(self, envelope: Envelope) -> bytes:
        request = learner_service_pb2.SubmitQueryRequest(query=envelope.to_proto())
        return self.call(self.learner.SubmitQuery, request).query_id

    def watch(self, query_id: bytes, cursor: int = 0, wait_s: int = 0) -> tuple[QueryStatus, int]:
        request = learner_service_pb2.WatchQueryRequest(query_id=query_id, cursor=cursor, wait_s=wait_s)
        response = self.call(self.learner.WatchQuery, request)
        return QueryStatus.from_proto(response.status), response.cursor

    def until(self, query_id: bytes, phase: Phase, timeout_s: float = HANG_S) -> QueryStatus:
        end, cursor = time.monotonic() + timeout_s, 0
        while time.monotonic() < end:
            status, cursor = self.watch(query_id, cursor, 1)
            if status.phase is phase:
                return status
        raise AssertionError(f"{status} did not become {phase}")

    def cancel(self, query_id: bytes, learner: str | None = None) -> None:
        payload = query_pb2.Cancel(query_id=query_id, learner=learner or self.name).SerializeToString()
        envelope = self.world.keys[self.name].sign(MessageType.CANCEL, payload)
        self.call(self.learner.CancelQuery, learner_service_pb2.CancelQueryRequest(cancel=envelope.to_proto()))

    def total(self, query_id: bytes) -> Total:
        response = self.call(self.learner.FetchTotal, learner_service_pb2.FetchTotalRequest(query_id=query_id))
        return Total.from_proto(response.total)

    def total_chunk(self, query_id: bytes, index: int) -> Chunk:
        request = learner_service_pb2.FetchTotalChunkRequest(query_id=query_id, index=index)
        return Chunk.from_proto(self.call(self.learner.FetchTotalChunk, request).chunk)

    def work(self, cursor: int = 0, wait_s: int = 0):
        return self.call(self.party.FetchWork, party_service_pb2.FetchWorkRequest(cursor=cursor, wait_s=wait_s))

    def accept(self, envelope: Envelope) -> None:
        self.call(self.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(acceptance=envelope.to_proto()))

    def refuse(self, envelope: Envelope) -> None:
        self.call(self.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(refusal=envelope.to_proto()))

    def be_pending(self, envelope: Envelope) -> None:
        self.call(self.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(pending=envelope.to_proto()))

    def ready(self, envelope: Envelope) -> None:
        self.call(self.party.SubmitReady, party_service_pb2.SubmitReadyRequest(ready=envelope.to_proto()))

    def upload(self, query_id: bytes, chunk: Chunk, attempt: int = 1) -> None:
        request = party_service_pb2.UploadChunkRequest(query_id=query_id, attempt=attempt, chunk=chunk.to_proto())
        self.call(self.party.UploadChunk, request)

    def give_receipt(self, envelope: Envelope) -> None:
        self.call(self.party.SubmitReceipt, party_service_pb2.SubmitReceiptRequest(receipt=envelope.to_proto()))

    def cohort(self) -> Cohort:
        (work,) = self.work().work
        return Cohort.from_proto(work.cohort)


class Clients:
    """All members' clients on one coordinator."""

    def __init__(self, world: World, address: str, **options) -> None:
        self.world = world
        self._each = {name: Client(world, name, address, **options) for name in (*PARTIES, *LEARNERS)}

    def __getitem__(self, name: str) -> Client:
        return self._each[name]

    def close(self) -> None:
        for client in self._each.values():
            client.channel.close()

    def to_uploading(self, query_id: bytes, members: tuple[str, ...] = PARTIES, *, attempt: int = 1) -> Cohort:
        """Let these accept and the others refuse, until the cohort is fixed."""
        for party in PARTIES:
            if party in members:
                self[party].accept(self.world.acceptance(query_id, party, attempt=attempt))
            else:
                self[party].refuse(self.world.refusal(query_id, party, attempt=attempt))
        for party in members:
            self[party].ready(self.world.ready(query_id, party, attempt=attempt))
        return self[members[0]].cohort()

    def contribute(self, opened: OpenedQuery, cohort: Cohort, party: str) -> None:
        """Upload everything, and the receipt."""
        chunks = self.world.chunks(opened, party)
        for chunk in chunks:
            self[party].upload(opened.query_id, chunk, cohort.attempt)
        self[party].give_receipt(self.world.receipt(opened, cohort, party, chunks))

    def check_total(self, opened: OpenedQuery, members: tuple[str, ...]) -> None:
        lea = self["lea"]
        lea.until(opened.query_id, Phase.COMPLETE)
        total = lea.total(opened.query_id)
        chunks = [lea.total_chunk(opened.query_id, index) for index in range(total.chunks)]
        self.world.check_total(opened, total, chunks, members)


class RunningNode:
    """A coordinator inside this process, on a loop in a separate thread."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self._started: Future[str] = Future()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(config)), daemon=True)
        self._thread.start()
        self.address = self._started.result(HANG_S)

    async def _run(self, config: CoordinatorConfig) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with Node(config) as self.node:
                self._started.set_result(self.node.address)
                await self._stop.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    def on_loop(self, function, *args) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        if self._thread.is_alive() and self._stop is not None:
            self.on_loop(self._stop.set)
        self._thread.join(HANG_S)
        assert not self._thread.is_alive(), "the coordinator did not stop"


MAIN = "import sys; from tests.federation.processes import serve_debugging; serve_debugging(sys.argv[1])"


class Process:
    """A coordinator in a separate process. fresh: for what has to do with its memory (tests.federation.processes).

    descriptors: the most files and sockets that the system lets it have, if it is fresh.
    """

    def __init__(self, world: World, *, fresh: bool = False, descriptors: int | None = None) -> None:
        self.world = world
        world.config.address_file.unlink(missing_ok=True)
        self.log = world.root / "coordinator.log"
        config = str(world.directories["coordinator"] / "coordinator.toml")
        self.process = (
            self._started_fresh(config, descriptors) if fresh else Forked(serve_debugging, (config,), self.log)
        )
        self.address = self._wait_for_address()
        self.clients = Clients(world, self.address)

    def _started_fresh(self, config: str, descriptors: int | None) -> subprocess.Popen[bytes]:
        limited = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*limited, sys.executable, "-c", MAIN, config],
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([".", "protos"])},
            )

    def _wait_for_address(self) -> str:
        def address() -> str:
            if self.world.config.address_file.exists():
                return self.world.config.address_file.read_text().strip()
            assert self.process.poll() is None, self.log.read_text()
            return ""

        return wait_until(address, what="the coordinator's address")

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        self.clients.close()
        return self.process.wait(HANG_S)

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def refused(code: Code, function, *args, **options) -> WireError:
    """The refusal that a call must end in."""
    with pytest.raises(WireError) as caught:
        function(*args, **options)
    assert caught.value.code is code, f"{caught.value.code}: {caught.value}"
    return caught.value
