"""The kit's run against one learner: it runs the learner's program, once for each case.

The program asks one query, opens its total, prints {"values": [...]} on standard output, the integers of the total in
order, and ends with exit code 0; for a total that it must not open, and a query that fails, with another.

Where RADO_CONFORMANCE_ASK has a word of ASKS, it asks that; of a training two queries or more, of which it prints the
last.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpcore.errors import ConfigurationError, RadofedError
from rado.v1 import learner_service_pb2, release_pb2
from radofed.conformance.findings import Finding, Findings, UnmetError
from radofed.conformance.kit import ASKED, Kit
from radofed.conformance.stage import Stage
from radofed.conformance.total import BadTotal, MadeTotal, Shown, bad_totals
from radofed.conformance.vanishing_total import VanishingTotal, bad_vanishing_totals
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES, Features, check_known
from wire.query import OpenedQuery, Query, open_query, open_retry
from wire.roster import Roster
from wire.status import Phase

_HOUR_S = 3600


@dataclass
class Case:
    """What the kit answers in one run of the program."""

    kit: Kit
    show: Callable[[MadeTotal], Shown] = Shown.of
    fields: dict[str, Any] = field(default_factory=dict)
    """What the first member's acceptance states otherwise."""
    phases: Sequence[Phase] = (Phase.COMPLETE,)
    """That are shown, one after another."""
    roster: Roster | None = None
    """That is served, if it is not the kit's first one."""
    opened: OpenedQuery | None = None
    made: MadeTotal | None = None
    shown: Shown | None = None
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Of the query, with their sections."""
    place: int = 0
    attempt: int = 1
    asks: str = ""
    """The part of ASKS that the program is to ask; empty for a query of its own choice."""
    asked: list[Query] = field(default_factory=list)
    """All queries of the run."""

    def handlers(self) -> dict[str, Callable[[Any], Any]]:
        """By method."""
        return {
            "SubmitQuery": self.submit,
            "WatchQuery": self.watch,
            "ListQueries": lambda _: learner_service_pb2.ListQueriesResponse(),
            "CancelQuery": lambda _: learner_service_pb2.CancelQueryResponse(),
            "RetryQuery": self.retry,
            "FetchTotal": lambda _: learner_service_pb2.FetchTotalResponse(total=self.total().total.to_proto()),
            "FetchTotalChunk": self.chunk,
        }

    def submit(self, request: learner_service_pb2.SubmitQueryRequest) -> learner_service_pb2.SubmitQueryResponse:
        """Take the query, checked as coordinator and parties check it."""
        envelope = Envelope.from_proto(request.query)
        self.opened = open_query(envelope, self.roster or self.kit.roster, now_unix_s=time.time())
        check_known(self.opened.query.features)
        query = self.opened.query
        if query.federation != self.kit.roster.federation or query.learner != self.kit.request.name:
            raise WireError(Code.FEDERATION_MISMATCH)
        if strangers := query.binding.parties - {*ASKED}:
            self.faults.append(("6", f"it asks {', '.join(sorted(strangers))}, which it has not accepted"))
        for name in sorted(query.binding.parties & {*ASKED}):
            try:
                query.binding.unseal(name, self.kit.signing_key(name), query.nonce)
            except WireError as error:
                self.faults.append(("6", f"the seed for {name}: {error.public_sentence}"))
        if self.opened.public_key.n % 4 != 1:
            self.faults.append(("5", "the Paillier modulus is no Blum integer: it is 3 modulo 4"))
        self.asked.append(query)
        self.attempt, self.place = 1, 0
        if self.asks and (missing := ASKS[self.asks].missing(query)):
            self.faults.append(("5", missing))
        if not self.faults:
            self.make()
        return learner_service_pb2.SubmitQueryResponse(query_id=self.opened.query_id)

    def make(self) -> None:
        """A cohort of as many as the query takes, and what is shown of its total."""
        assert self.opened is not None, "a query was taken"
        query = self.opened.query
        members = tuple(sorted(query.binding.parties))[: query.max_parties]
        fields = {members[0]: self.fields} if self.fields else {}
        kind = VanishingTotal if query.may_vanish else MadeTotal
        self.made = kind(self.kit, self.opened, members, self.attempt, fields).make()
        self.shown = self.show(self.made)

    def watch(self, request: learner_service_pb2.WatchQueryRequest) -> learner_service_pb2.WatchQueryResponse:
        """The next phase."""
        phase = self.phases[min(self.place, len(self.phases) - 1)]
        self.place += 1
        failed = phase is Phase.FAILED
        status = release_pb2.QueryStatus(
            query_id=request.query_id,
            attempt=self.attempt,
            phase=phase.value,
            code=Code.COHORT_TOO_SMALL.value if failed else "",
            detail="Nobody answered." if failed else "",
            remaining_s=60,
        )
        return learner_service_pb2.WatchQueryResponse(status=status, cursor=self.place)

    def retry(self, request: learner_service_pb2.RetryQueryRequest) -> learner_service_pb2.RetryQueryResponse:
        """Another attempt, which completes."""
        assert self.opened is not None, "a query was taken"
        said = open_retry(Envelope.from_proto(request.retry), self.opened, self.kit.roster)
        if said.attempt != self.attempt + 1:
            raise WireError(Code.ATTEMPT_MISMATCH)
        self.attempt, self.phases, self.place = said.attempt, (Phase.COMPLETE,), 0
        self.make()
        return learner_service_pb2.RetryQueryResponse()

    def total(self) -> Shown:
        """What is shown of the total. Raises WireError before there is one."""
        if self.shown is None:
            raise WireError(Code.TOTAL_UNAVAILABLE)
        return self.shown

    def chunk(self, request: learner_service_pb2.FetchTotalChunkRequest) -> learner_service_pb2.FetchTotalChunkResponse:
        """One chunk."""
        chunks = self.total().chunks
        if request.index >= len(chunks):
            raise WireError(Code.CHUNK_MALFORMED)
        return learner_service_pb2.FetchTotalChunkResponse(chunk=chunks[request.index].to_proto())


@dataclass(frozen=True)
class Ran:
    """How the program ended. code: None if it was stopped, because it took too long."""

    code: int | None
    values: list[int] | None
    said: str


@dataclass
class LearnerTrial:
    """A learner under test."""

    kit: Kit
    stage: Stage
    command: Sequence[str]
    findings: Findings
    patience_s: float
    queries: list[OpenedQuery] = field(default_factory=list)

    def run(self, case: Case, name: str) -> Ran:
        """Run the program once."""
        self.stage.answers = case.handlers()
        environment = {**os.environ, "RADO_CONFORMANCE_CASE": name, "RADO_CONFORMANCE_ASK": case.asks}
        try:
            done = subprocess.run(
                self.command, capture_output=True, text=True, timeout=self.patience_s, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            return Ran(None, None, f"it did not end within {self.patience_s:g} s")
        except OSError as error:
            raise UnmetError("8", f"the command cannot be run: {error}") from error
        if self.stage.fault is not None:
            raise self.stage.fault
        if case.opened is not None:
            self.queries.append(case.opened)
        return Ran(done.returncode, _values(done.stdout), _last_line(done.stderr))

    def opens(self, section: str, what: str, case: Case) -> bool:
        """Whether the program opens a good total, and its query is right."""
        try:
            ran = self.run(case, what)
            if case.opened is None:
                raise UnmetError("5", _why("no valid query came", self.stage, ran))
            if case.faults:
                raise UnmetError(*case.faults[0])
            if case.asks and (wrong := ASKS[case.asks].wrong(case.asked)):
                raise UnmetError("5", wrong)
            if ran.code != 0:
                raise UnmetError(section, f"it ended with {ran.code}: {ran.said}")
            assert case.made is not None, "a good query was answered"
            if ran.values != case.made.values.tolist():
                raise UnmetError("6", _differing(ran.values, case.made.values.tolist()))
        except UnmetError as error:
            return self.findings.add(error.section, what, passed=False, detail=error.sentence)
        except RadofedError as error:
            return self.findings.add(section, what, passed=False, detail=str(error))
        return self.findings.add(section, what, passed=True)

    def refuses(self, section: str, what: str, case: Case, after: str) -> None:
        """Whether the program ends without values, once it has made the call `after`."""
        before = len(self.stage.calls(after))
        ran = self.run(case, what)
        if len(self.stage.calls(after)) == before:
            self.findings.add(section, what, passed=False, detail=_why(f"it made no call {after}", self.stage, ran))
        elif ran.code is None:
            self.findings.add(section, what, passed=False, detail=ran.said)
        elif ran.values is not None or ran.code == 0:
            self.findings.add(
                section, what, passed=False, detail="it opened the total" if ran.values else "exit code 0"
            )
        else:
            self.findings.add(section, what, passed=True)


@dataclass(frozen=True)
class Part:
    """What a learner need not ask."""

    section: str
    what: str
    missing: Callable[[Query], str]
    """Why a query is none of it; empty if it is one."""
    wrong: Callable[[Sequence[Query]], str] = lambda _: ""
    """What is wrong with all queries of a run; empty if nothing."""


def _named(kind: str) -> Callable[[Query], str]:
    return lambda query: "" if query.kind.name == kind else f"it asks {query.kind.name}, and was to ask {kind}"


def _one_training(queries: Sequence[Query]) -> str:
    if len(queries) < _FEWEST_ROUNDS:
        return f"it asks {len(queries)} query, and a training was to have {_FEWEST_ROUNDS} or more"
    told = {None if query.training is None else query.training.digest for query in queries}
    return "" if len(told) == 1 else "its queries do not carry the same training, byte for byte"


_FEWEST_ROUNDS = 2
ASKS: Mapping[str, Part] = {
    "dp-feat": Part("5", "rados of dp-feat", _named("dp-feat")),
    "fixed-support": Part("5", "rados of fixed-support", _named("fixed-support")),
    "persons": Part("5", "a query that protects persons", lambda query: "" if query.persons else "it has no persons"),
    "epoch": Part("5", "a query about one epoch", lambda query: "" if query.epoch else "it has no epoch"),
    "training": Part(
        "5",
        "two queries or more of one training",
        lambda query: "" if query.training else "it names no training",
        _one_training,
    ),
    "survivors": Part(
        "8.3", "a query of which a member vanishes", lambda query: "" if query.may_vanish else "it has no may_vanish"
    ),
}
"""By the word that the program is given in RADO_CONFORMANCE_ASK."""


def try_learner(
    kit: Kit,
    command: Sequence[str],
    patience_s: float,
    on_each: Callable[[Finding], None] = lambda _: None,
    *,
    asks: Collection[str] = (),
    only_asks: bool = False,
) -> Findings:
    """Run the learner's program against good and bad totals.

    asks: parts of ASKS that the program can ask. only_asks: whether nothing else is played but a first total.

    Raises ConfigurationError if nothing can be served, or a part is unknown.
    """
    if unknown := sorted(set(asks) - set(ASKS)):
        raise ConfigurationError(f"the kit knows no query {unknown[0]!r} to be asked; it knows {', '.join(ASKS)}")
    findings = Findings(on_each)
    with Stage(kit) as stage:
        trial = LearnerTrial(kit, stage, command, findings, patience_s)
        stage.features = [_stated(kit, name) for name in ASKED]
        if not trial.opens("8.3", "it asks, and opens a total of all that it asks", Case(kit)):
            return findings
        if only_asks:
            reason = "--only-asks plays nothing else"
            findings.add("8", "bad totals, lost attempts and rosters", passed=None, detail=reason)
            _all_asks(trial, asks)
            return findings
        waits = (Phase.ANSWERING, Phase.PREPARING, Phase.UPLOADING, Phase.ADDING, Phase.COMPLETE)
        trial.opens("8.1", "it follows a query through all phases", Case(kit, phases=waits))
        stage.features = ()
        trial.opens("3", "it asks parties that state no features", Case(kit))
        stage.features = [_stated(kit, name) for name in ASKED]
        _queries_differ(trial)
        for bad in bad_totals():
            _refuses_total(trial, bad)
        failed = Case(kit, phases=(Phase.ANSWERING, Phase.FAILED))
        trial.refuses("8.1", "a query that failed gives no values", failed, "WatchQuery")
        _lost(trial)
        _all_asks(trial, asks)
        _rosters(trial)
    return findings


def _all_asks(trial: LearnerTrial, asks: Collection[str]) -> None:
    for name in ASKS:
        _asks(trial, name, is_played=name in asks)


def _asks(trial: LearnerTrial, name: str, *, is_played: bool) -> None:
    """What a learner need not ask, and what it must not open of it."""
    part = ASKS[name]
    bad_ones = bad_vanishing_totals() if name == "survivors" else []
    what = f"it asks {part.what}, and opens the total"
    if is_played:
        if not trial.opens(part.section, what, Case(trial.kit, asks=name)):
            return
        for bad in bad_ones:
            _refuses_total(trial, bad, name)
        return
    reason = f"its program is not said to ask {name}, with --asks"
    trial.findings.add(part.section, what, passed=None, detail=reason)
    for bad in bad_ones:
        trial.findings.add(bad.section, f"it opens no total with {bad.what}", passed=None, detail=reason)


def _refuses_total(trial: LearnerTrial, bad: BadTotal, asks: str = "") -> None:
    case = Case(trial.kit, bad.show, bad.fields, asks=asks)
    after = "FetchTotalChunk" if bad.section == "8.3" else "FetchTotal"
    trial.refuses(bad.section, f"it opens no total with {bad.what}", case, after)


def _queries_differ(trial: LearnerTrial) -> None:
    """Nonces and opening keys are fresh; the Paillier key may be the same."""
    for section, what, seen in (
        ("5", "each query has a fresh nonce", [each.query.nonce for each in trial.queries]),
        ("6", "each query has a fresh opening key", [each.query.binding.opening_key for each in trial.queries]),
    ):
        trial.findings.add(section, what, len(set(seen)) == len(seen))


def _lost(trial: LearnerTrial) -> None:
    """After a lost attempt it stops, or signs another."""
    case = Case(trial.kit, phases=(Phase.LOST,))
    what = "after a lost attempt it ends without values, or signs a Retry of the next one"
    ran = trial.run(case, what)
    if case.attempt == 1:
        trial.findings.add(
            "8.1", what, ran.code not in (0, None) and ran.values is None, ran.said if ran.code is None else ""
        )
    else:
        right = case.made is not None and ran.values == case.made.values.tolist()
        trial.findings.add("8.1", what, right, "" if right else "the values of the second attempt are others")


def _rosters(trial: LearnerTrial) -> None:
    """Rosters that it must not ask with. Tried last: it may remember the version of the last one."""
    kit, stage = trial.kit, trial.stage
    now = int(time.time())
    newer = replace(kit.roster, version=kit.roster.version + 1)
    ended = replace(newer, issued_at_unix_s=now - 2 * _HOUR_S, not_after_unix_s=now - _HOUR_S)
    served = {
        "a roster that another key signed": newer.sign(SigningKey.generate(kit.roster.federation)),
        "a roster that has expired": ended.sign(kit.federation_key),
    }
    for what, envelope in served.items():
        stage.roster = envelope
        _asks_nothing(trial, what, Case(kit))
    # Its version is above that of the kit's roster, which was only shown so far.
    renewed = replace(kit.roster, version=kit.roster.version + 2)
    stage.roster = renewed.sign(kit.federation_key)
    if trial.opens("3", "it takes a newer roster that the federation signed", Case(kit, roster=renewed)):
        stage.roster = kit.envelope
        _asks_nothing(trial, "an older roster than it has seen", Case(kit))


def _asks_nothing(trial: LearnerTrial, what: str, case: Case) -> None:
    ran = trial.run(case, what)
    sent = case.opened is not None
    ended = ran.code not in (0, None) and ran.values is None and not sent
    trial.findings.add(
        "3", f"it asks nothing with {what}", ended, "a query came" if sent else "" if ended else ran.said
    )


def _stated(kit: Kit, name: str) -> Envelope:
    said = Features(kit.roster.federation, name, OWN_FEATURES, "kit", int(time.time()))
    return said.sign(kit.signing_key(name))


def _values(printed: str) -> list[int] | None:
    """The values of the last line that is such an object; None if there is none."""
    for line in reversed(printed.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("values"), list):
            return [int(value) for value in np.ravel(found["values"])]
    return None


def _last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[::-1]), "nothing on standard error")


def _why(sentence: str, stage: Stage, ran: Ran) -> str:
    calls = dict.fromkeys(
        call.method for call in stage.calls("FetchRoster", "FetchFeatures", "SubmitQuery", "WatchQuery")
    )
    refused = f"; refused: {stage.refused}" if stage.refused else ""
    return f"{sentence}; it called {', '.join(calls) or 'nothing'}{refused}; it ended with {ran.code}: {ran.said}"


def _differing(values: list[int] | None, expected: list[int]) -> str:
    if values is None:
        return 'it printed no {"values": [...]} as its last line'
    if len(values) != len(expected):
        return f"it printed {len(values)} values, and the query has {len(expected)}"
    wrong = sum(one != other for one, other in zip(values, expected, strict=True))
    return f"{wrong} of {len(expected)} values are wrong"
