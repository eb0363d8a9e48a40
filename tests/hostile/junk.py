"""What a coordinator can show a party that no member signed, by the megabyte, and what it costs the party.

`python -m tests.hostile.junk SECONDS [KIND ...]` measures a real party process against it on loopback, and prints
memory, processor time and changed files. It ends by itself.
"""

import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from rado.v1 import member_service_pb2, party_service_pb2
from radofed.node_config import PolicyChoices
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation
from tests.hostile.stalling import Holding, process_status
from tests.waiting import wait_until
from wire.envelopes import Envelope, MessageType, SigningKey, key_id
from wire.query import MAX_QUERY_BYTES
from wire.statements import Cohort
from wire.status import MOST_WORK, PartyState, Phase, Work

RESPONSE_BYTES = 1 << 20
ROWS = "age,smoker,stayed\n" + "40,yes,yes\n" * 20
# Without witnesses, which a coordinator can withhold: the party then looks at no work at all.
POLICY = PolicyChoices(designs=("statistic",), epsilon="100", delta="1e-5", required_witnesses=0)
SAMPLE_EVERY_S = 60.0

Response = party_service_pb2.FetchWorkResponse


def noise(payload_bytes: int = 100, key: bytes = b"") -> Envelope:
    """An envelope of noise. key: the id of the key that it claims to be signed with."""
    return Envelope(secrets.token_bytes(payload_bytes), key or secrets.token_bytes(32), secrets.token_bytes(64))


@dataclass(frozen=True)
class Known:
    """What a hostile coordinator knows: ids of the members' keys, and what a learner signed earlier."""

    learner_key: bytes
    party_key: bytes
    signed: tuple[Envelope, ...]


def work_of(query: Envelope, **changes: Any) -> party_service_pb2.Work:
    plain = Work(query, 1, Phase.ANSWERING, PartyState.SILENT, None, frozenset())
    return replace(plain, **changes).to_proto()


def filled(entry: Callable[[], party_service_pb2.Work]) -> Response:
    """A response of RESPONSE_BYTES, each entry another one."""
    size_bytes = entry().ByteSize() + 4
    return Response(work=[entry() for _ in range(RESPONSE_BYTES // size_bytes)])


def unreadable(_: Known) -> Response:
    entry = party_service_pb2.Work(attempt=1, phase=99, chunks_held=[1] * 90)
    return Response(work=[entry] * (RESPONSE_BYTES // entry.ByteSize()))


def empty(_: Known) -> Response:
    """Two bytes an entry: what takes most memory once it is parsed."""
    return Response.FromString(b"\x0a\x00" * (RESPONSE_BYTES // 2))


def strangers(_: Known) -> Response:
    """Queries of noise, each new and with another key."""
    return filled(lambda: work_of(noise(900)))


def forged(known: Known) -> Response:
    """As if the learner had signed each: what costs most processor time."""
    return filled(lambda: work_of(noise(key=known.learner_key)))


def long_queries(known: Known) -> Response:
    return filled(lambda: work_of(noise(MAX_QUERY_BYTES - 500, known.learner_key)))


def cohorts(known: Known) -> Response:
    """Junk queries with junk cohorts, in every phase."""
    phases = cycle(Phase)

    def entry() -> party_service_pb2.Work:
        cohort = Cohort(secrets.token_bytes(32), 1, tuple(noise(key=known.party_key) for _ in range(100)))
        return work_of(noise(key=known.learner_key), phase=next(phases), cohort=cohort)

    return filled(entry)


def retries(known: Known) -> Response:
    """Attempts without end at a query that the learner did sign, with retries that it did not."""
    attempts = iter(range(2, 1 << 31))
    return filled(lambda: work_of(known.signed[0], attempt=next(attempts), retry=noise(40, known.learner_key)))


def challenges(known: Known) -> Response:
    size_bytes = noise().to_proto().ByteSize() + 4
    shown = [noise(key=known.party_key).to_proto() for _ in range(RESPONSE_BYTES // size_bytes)]
    return Response(challenges=shown)


def chunks(known: Known) -> Response:
    held = frozenset(range(1, 1 << 17))
    return Response(work=[work_of(noise(key=known.learner_key), chunks_held=held) for _ in range(2)])


def nothing(_: Known) -> Response:
    """Between junk: as an honest coordinator, so that pauses do not grow."""
    return Response()


def signed(known: Known) -> Response:
    """What the learner did sign, and no version reads: the party refuses each once."""
    return Response(work=[work_of(each) for each in known.signed])


KINDS: dict[str, Callable[[Known], Response]] = {
    made.__name__: made
    for made in (
        unreadable, empty, strangers, forged, long_queries, cohorts, retries, challenges, chunks,
    )
}  # fmt: skip
"""Every kind of junk, by name."""
OTHERS = {made.__name__: made for made in (nothing, signed)}


class Showing(Holding):
    """A coordinator that answers every poll at once: with responses of these, one after another, for ever.

    Its roster is the federation's at first, and then noise. Its answers to a challenge are noise.
    """

    def __init__(self, federation: ProcessFederation, responses: Iterator[Response]) -> None:
        super().__init__(federation, [])
        self._responses = responses

    # ruff: noqa: N802 (gRPC fixes the names and the arguments of these methods)

    def FetchRoster(self, request: Any, context: Any) -> Any:
        self.calls["roster"] += 1
        if self.calls["roster"] == 1:
            return super().FetchRoster(request, context)
        return member_service_pb2.FetchRosterResponse(roster=noise(RESPONSE_BYTES).to_proto())

    def AskWitnesses(self, request: Any, context: Any) -> Any:
        return party_service_pb2.AskWitnessesResponse()

    def FetchWitnesses(self, request: Any, context: Any) -> Any:
        self.calls["witnesses"] += 1
        answers = [noise(200).to_proto() for _ in range(RESPONSE_BYTES // 300)]
        return party_service_pb2.FetchWitnessesResponse(witnesses=answers, newest=noise().to_proto())

    def SubmitWitness(self, request: Any, context: Any) -> Any:
        self.calls["witness"] += 1
        return party_service_pb2.SubmitWitnessResponse()

    def FetchWork(self, request: Any, context: Any) -> Any:
        self.calls["poll"] += 1
        shown = next(self._responses)
        shown.cursor = request.cursor + 1
        return shown


def known_of(federation: ProcessFederation) -> Known:
    """In this federation. What the learner signed is no query that any version reads."""
    keys = [
        SigningKey.load(member.directory / "signing.key", "test")
        for member in (federation.learner, federation.member("bo"))
    ]
    signed_ones = tuple(keys[0].sign(MessageType.QUERY, b"query %d" % number) for number in range(MOST_WORK))
    return Known(*(key_id(key.public_bytes) for key in keys), signed_ones)


def processor_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_state(federation: ProcessFederation, name: str) -> dict[str, tuple[int, int]]:
    """(bytes, time of the last change) of the files in a party's state directory."""
    files = (federation.directory(name) / "state").rglob("*")
    return {str(f.name): (f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()}


def measure(federation: ProcessFederation, responses: Iterator[Response], seconds: float) -> dict[str, Any]:
    """Run ada for so long, after a start of 10 s, and measure."""
    with Showing(federation, responses) as showing:
        federation.start("ada")
        wait_until(lambda: showing.calls["poll"] > 1, what="the first polls")
        time.sleep(10)
        pid, polls, files = federation.processes["ada"].pid, showing.calls["poll"], disk_state(federation, "ada")
        begun, begun_s, log = time.monotonic(), processor_s(pid), len(federation.log("ada"))
        samples = []
        while (passed := time.monotonic() - begun) < seconds:
            time.sleep(min(SAMPLE_EVERY_S, seconds - passed))
            threads, rss, _ = process_status(pid)
            samples.append({"s": round(time.monotonic() - begun), "rss_mb": round(rss / 1e6, 1), "threads": threads})
        passed = time.monotonic() - begun
        found = {
            "seconds": round(passed),
            "polls": showing.calls["poll"] - polls,
            "processor_share": round((processor_s(pid) - begun_s) / passed, 4),
            "rss": samples,
            "answers": showing.calls["answer"],
            "witnesses": showing.calls["witness"],
            "rosters": showing.calls["roster"],
            "log_bytes": len(federation.log("ada")) - log,
            "changed_files": [
                name for name, state in disk_state(federation, "ada").items() if files.get(name) != state
            ],
        }
        federation.stop("ada")
        return found


def main(seconds: float, names: list[str]) -> None:
    """Measure a party that is answered at once with nothing, and then with junk of these kinds in turn."""
    for shown in (None, names):
        with tempfile.TemporaryDirectory() as directory:
            parties = dict.fromkeys(("ada", "bo", "cy"), ROWS)
            with ProcessFederation(
                Path(directory), parties=parties, schema=STAYS.to_toml(), policy=POLICY, fresh=True
            ) as made:
                known = known_of(made)
                if shown is None:
                    responses: Iterator[Response] = iter(Response, None)
                else:
                    kinds = cycle((KINDS | OTHERS)[name] for name in shown)
                    responses = (make(known) for make in kinds)
                found = measure(made, responses, min(seconds, 120) if shown is None else seconds)
        sys.stdout.write(json.dumps({"shown": shown or "nothing", **found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:] or list(KINDS))
