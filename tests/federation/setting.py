"""A learner's environment: a provisioned federation on disk, and a coordinator with answers set by a test."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc

from learner.client import warn
from learner.config import LearnerConfig
from learner.session import Session
from rado.v1 import learner_service_pb2 as messages
from rado.v1 import member_service_pb2
from rado.v1.learner_service_pb2_grpc import LearnerServiceServicer, add_LearnerServiceServicer_to_server
from rado.v1.member_service_pb2_grpc import MemberServiceServicer, add_MemberServiceServicer_to_server
from radobase.writing import create_durably
from radofed.provision import provision
from tests.federation.learner import World, encrypt, random_values, to_chunks
from tests.federation.material import server_credentials
from wire.envelopes import Envelope, SigningKey
from wire.errors import CODE_METADATA_KEY, Code, WireError
from wire.features import OWN_FEATURES
from wire.query import open_query
from wire.roster import Roster
from wire.statements import Chunk
from wire.status import PartyProgress, Phase, QueryStatus

ROWS = {"ada": 100, "bo": 200, "cy": 300}


class CoordinatorStub(LearnerServiceServicer, MemberServiceServicer):
    """`phases`: the sequence of WatchQuery. `totals`: header and chunks by query id. `fail`: code by method name."""

    def __init__(self, roster: Envelope) -> None:
        self.roster = roster
        self.features: list[Envelope] = []
        self.own_features = OWN_FEATURES
        self.retried: list[Envelope] = []
        self.submitted: list[Envelope] = []
        self.cancelled: list[Envelope] = []
        self.phases = [Phase.ANSWERING, Phase.UPLOADING, Phase.COMPLETE]
        self.code, self.detail = "", ""
        self.parties: tuple[PartyProgress, ...] = ()
        self.totals = {}
        self.fail: dict[str, Code] = {}
        self.spoil_chunk = lambda chunk: chunk
        self.on_submit = lambda envelope: None
        self.id_of = lambda envelope: envelope.payload_hash
        # What the stub says instead of an error's sentence, and of a response.
        self.worded = lambda sentence: sentence
        self.spoil = lambda response: response

    def start(self, tls) -> str:
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_LearnerServiceServicer_to_server(self, self._server)
        add_MemberServiceServicer_to_server(self, self._server)
        port = self._server.add_secure_port("127.0.0.1:0", server_credentials(tls))
        self._server.start()
        return f"127.0.0.1:{port}"

    def stop(self) -> None:
        self._server.stop(0).wait()

    def _guard(self, method, context):
        if method in self.fail:
            error = WireError(self.fail[method])
            context.set_trailing_metadata(((CODE_METADATA_KEY, error.code.value),))
            context.abort(error.status, self.worded(error.public_sentence))

    def FetchRoster(self, request, context):  # noqa: N802 - gRPC's names
        self._guard("FetchRoster", context)
        return member_service_pb2.FetchRosterResponse(roster=self.roster.to_proto())

    def FetchFeatures(self, request, context):  # noqa: N802
        self._guard("FetchFeatures", context)
        stated = [envelope.to_proto() for envelope in self.features]
        return self.spoil(member_service_pb2.FetchFeaturesResponse(parties=stated, coordinator=self.own_features))

    def FetchAdmission(self, request, context):  # noqa: N802
        self._guard("FetchAdmission", context)
        return member_service_pb2.FetchAdmissionResponse()

    def SubmitQuery(self, request, context):  # noqa: N802
        self._guard("SubmitQuery", context)
        envelope = Envelope.from_proto(request.query)
        self.submitted.append(envelope)
        self.on_submit(envelope)
        return messages.SubmitQueryResponse(query_id=self.id_of(envelope))

    def WatchQuery(self, request, context):  # noqa: N802
        self._guard("WatchQuery", context)
        at = min(request.cursor, len(self.phases) - 1)
        return self.spoil(
            messages.WatchQueryResponse(status=self.status(request.query_id, at).to_proto(), cursor=at + 1)
        )

    def status(self, query_id, at=0):
        phase = self.phases[at]
        code, detail = (self.code, self.detail) if phase is Phase.FAILED else ("", "")
        if phase is Phase.LOST:
            detail = "In attempt 1 of 3 these did not finish: bo."
        return QueryStatus(query_id, 1, phase, self.parties, code, detail, 60, 0, 1_800_000_000)

    def ListQueries(self, request, context):  # noqa: N802
        known = [self.status(q.payload_hash).to_proto() for q in self.submitted]
        return self.spoil(messages.ListQueriesResponse(queries=known))

    def CancelQuery(self, request, context):  # noqa: N802
        self._guard("CancelQuery", context)
        self.cancelled.append(Envelope.from_proto(request.cancel))
        return messages.CancelQueryResponse()

    def RetryQuery(self, request, context):  # noqa: N802
        self._guard("RetryQuery", context)
        self.retried.append(Envelope.from_proto(request.retry))
        return messages.RetryQueryResponse()

    def FetchTotal(self, request, context):  # noqa: N802
        self._guard("FetchTotal", context)
        return messages.FetchTotalResponse(total=self.totals[request.query_id][0].to_proto())

    def FetchTotalChunk(self, request, context):  # noqa: N802
        self._guard("FetchTotalChunk", context)
        octets = self.totals[request.query_id][1][request.index]
        chunk = Chunk.of(request.index, octets).to_proto()
        return messages.FetchTotalChunkResponse(chunk=self.spoil_chunk(chunk))


class Setting:
    """A provisioned federation, a coordinator stub that serves it, and the learner's configuration."""

    def __init__(self, root, learner_key):
        self.made = provision(
            root / "federation",
            federation="clinics",
            coordinator_address="127.0.0.1:1",
            parties=list(ROWS),
            rows_at_least=ROWS,
        )
        directories = {m.name: m.directory for m in self.made.members}
        offline = self.made.directory / "federation"
        signed = Envelope.from_bytes((offline / "roster.signed").read_bytes())
        self.world = World(
            learner_key,
            dict(ROWS),
            federation_key=SigningKey.load(offline / "federation.key", "clinics"),
            learner_key=SigningKey.load(directories["learner"] / "signing.key", "clinics"),
            party_keys={name: SigningKey.load(directories[name] / "signing.key", "clinics") for name in ROWS},
            fixed_roster=Roster.from_bytes(signed.payload),
        )
        jwk = {**learner_key.secret.to_jwk(), "not_before_unix_s": learner_key.not_before_unix_s}
        create_durably(directories["learner"] / "paillier.jwk", json.dumps(jwk).encode())
        self.stub = CoordinatorStub(signed)
        config = LearnerConfig.load(directories["learner"] / "learner.toml")
        coordinator = LearnerConfig.load(directories["learner"] / "learner.toml").tls.model_copy(
            update={
                "certificate": directories["coordinator"] / "certificate.pem",
                "key": directories["coordinator"] / "tls.key",
            }
        )
        self.stub.features = [self.world.features(name) for name in ROWS]
        address = self.stub.start(coordinator.files)
        self.config = config.model_copy(update={"coordinator": address})
        self.config_file = directories["learner"] / "learner.toml"
        self.config_file.write_text(self.config_file.read_text().replace("127.0.0.1:1", address))
        self.stub.on_submit = self.answer
        self.attempt = 1
        self.rows = dict(ROWS)

    def answer(self, envelope):
        """The total of an honest cohort for a query."""
        opened = open_query(envelope, self.world.roster, now_unix_s=time.time())
        # Sums that wrap fail the tag.
        largest = min(1 << 20, opened.query.encoding.largest_sum // len(self.rows))
        contributions = [(random_values(opened, seed, largest), m) for seed, m in enumerate(self.rows.values())]
        self.expected = sum(values for values, _ in contributions)
        total = self.world.total(opened, self.rows, attempt=self.attempt)
        tag = self.world.tag(opened, total.cohort, self.expected)
        self.stub.totals[opened.query_id] = (total, to_chunks(opened, encrypt(opened, contributions, tag)))

    def session(self, *, give_up_after_s=1.0, note=warn, progress=True, **changes):
        config = self.config.model_copy(update=changes)
        return Session(config, give_up_after_s=give_up_after_s, note=note, progress=progress)

    def issue(self, version, change=lambda members: members):
        roster = self.world.roster
        newer = replace(roster, version=version, members=change(roster.members))
        self.stub.roster = newer.sign(self.world.federation_key)
        return newer
