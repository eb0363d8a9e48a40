"""What a party does among members that behave: it states, accepts, computes, masks, uploads, and tries again."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import RadofedError
from learner.planning import Plan
from radofed.conformance.contribution import expected_sums, of_deviation
from radofed.conformance.findings import Findings, UnmetError
from radofed.conformance.kit import LEARNER, SMALLEST_COHORT, Kit
from radofed.conformance.play import Answer, Asking, Edit, Play, RefusedError, Upload, requests
from radofed.conformance.rados import wrong_rados
from radofed.conformance.stage import Stage
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.features import Feature, open_features
from wire.statements import Acceptance, Challenge, Witness, name_of, open_witness
from wire.status import PartyState, Phase

CLEAR, MEDIUM, SMALL, LARGE = Fraction(8), Fraction(3, 2), Fraction(1), Fraction(95)
"""Costs at the kit's limit of 150. One clear answer of each kind (one at half of it), four medium ones, eleven small
ones and one large one fit, even if epsilons are added up: 53 beside 95. Two large ones do not, even if they are counted
as Gaussian noise exactly."""
UNDERSTOOD = (Feature.BASE.value,)


@dataclass
class Trial:
    """A party under test, and what is known of it so far."""

    kit: Kit
    stage: Stage
    asking: Asking
    findings: Findings
    patience_s: float
    least_quiet_s: float
    features: frozenset[str] = frozenset()
    kinds: list[str] = field(default_factory=list)
    """Kinds of query that it computes, the first one for all that needs any."""
    mask_keys: list[bytes] = field(default_factory=list)
    newest: Envelope | None = None
    """Its acceptance with the most ledger entries; None as long as none has a head."""
    obfuscators: set[int] = field(default_factory=set)
    """r of all ciphertexts of all uploads."""
    noise: list[NDArray[np.float64]] = field(default_factory=list)
    """Of all uploads, in standard deviations."""
    cohorts_with: dict[str, list[Envelope]] = field(default_factory=dict)
    """Acceptances of the kit's parties that the party has verified in a cohort, by party."""
    approve: str = ""
    """The command with which a person approves the training of a query, "{query}" in it being the query's id."""

    @property
    def quiet_s(self) -> float:
        """How long to wait for what must not happen: twice what the party took for what it may do, or more."""
        return max(self.least_quiet_s, 2 * self.stage.slowest_s)

    @contextmanager
    def case(self, section: str, what: str) -> Iterator[list[str]]:
        """What is tried, until it is done or UnmetError is raised. Yields where remarks go."""
        remarks: list[str] = []
        try:
            yield remarks
        except UnmetError as error:
            self.findings.add(error.section, what, passed=False, detail=error.sentence)
        except WireError as error:
            self.findings.add("2", what, passed=False, detail=f"a message cannot be read: {error.public_sentence}")
        except RadofedError as error:
            self.findings.add(section, what, passed=False, detail=str(error))
        else:
            self.findings.add(section, what, passed=True, detail="; ".join(remarks))

    def play(self, plan: Plan, edit: Edit | None = None, *, by: str = LEARNER) -> Play:
        """A query of this plan, changed, and signed by this member."""
        return Play(self.stage, self.asking, plan, self.asking.signed(plan, edit, by=by), self.patience_s)

    def plan(self, epsilon: Fraction = SMALL, *, others: int = 2, question: bool = False) -> Plan:
        """A plan of the first kind that the party computes."""
        kind = self.kinds[0] if self.kinds else "moments"
        request = requests(self.kit, epsilon)[kind]
        return self.asking.plan(request, others, understood=UNDERSTOOD, question=question)

    def uploaded(self, play: Play) -> Upload:
        """Play the present attempt to its end, all members behaving, and check what was uploaded. Raises UnmetError."""
        own = play.accepted()
        self.check_acceptance(play, own)
        play.ready()
        acceptances = play.acceptances(own)
        upload = play.uploaded(own, acceptances)
        for name, envelope in acceptances.items():
            if name != self.kit.request.name:
                self.cohorts_with.setdefault(name, []).append(envelope)
        self.check_upload(play, upload)
        return upload

    def check_acceptance(self, play: Play, own: Answer) -> None:
        """Raise UnmetError if an acceptance is not as it should be."""
        said = own.acceptance
        assert said is not None, "it was accepted"
        if said.rows != (rows := self.kit.rows_of(play.query)):
            unit = "rows" if play.query.persons is None else "persons"
            raise UnmetError("4", f"it accepts for {said.rows} {unit}, and the query is about {rows}")
        if said.mask_key in self.mask_keys:
            raise UnmetError("7.2", "a mask key is used in two attempts")
        self.mask_keys.append(said.mask_key)
        if said.ledger_head is not None and (self.newest is None or _entries(self.newest) < said.ledger_head.entries):
            self.newest = own.envelope

    def check_upload(self, play: Play, upload: Upload) -> None:
        """Raise UnmetError if an upload does not hold the sums over the rows. Keeps its noise for `check_noise`."""
        values = self.opened(upload)
        if play.query.kind.learned_as == "rados":
            if (wrong := wrong_rados(play.query, self.kit.records, values)) is not None:
                raise UnmetError("6", f"{play.query.kind.name}: {wrong}")
            return
        difference = (values - expected_sums(play.query, *self.kit.records_of(play.query))).astype(np.float64)
        noise = difference / deviation(play)
        self.noise.append(noise)
        if (wrong := of_deviation(noise)) is not None:
            raise UnmetError("6", f"{play.query.kind.name}: {wrong}")

    def opened(self, upload: Upload) -> NDArray[np.int64]:
        """The values that an upload holds. Raises UnmetError if it is not well formed."""
        found = upload.open()
        if found.problems:
            first = found.problems[0]
            raise UnmetError(first.section, f"{first.what}: {first.sentence}")
        if self.obfuscators.intersection(found.obfuscators):
            raise UnmetError("6", "ciphertexts of two uploads have the same r: their quotient can be read")
        self.obfuscators.update(found.obfuscators)
        return found.values


def deviation(play: Play) -> float:
    """Of one party's share of the noise, in the units that are sent."""
    shares = play.query.kind.shares
    assert shares is not None, "each kind that is asked has shares of noise"
    parties = len(play.peers) + 1
    return shares.deviation(parties) / float(np.sqrt(parties))


def starts(trial: Trial, within_s: float) -> bool:
    """Whether the party connects; what it states."""
    findings, stage = trial.findings, trial.stage
    what = "the party connects with its certificate, and fetches work"
    if not stage.wait(lambda: trial.stage.calls("FetchWork"), within_s):
        tried = [call.method for call in stage.calls("FetchRoster", "SubmitFeatures", "AskWitnesses")]
        said = f"no FetchWork within {within_s:g} s" + (f", only {', '.join(dict.fromkeys(tried))}" if tried else "")
        return findings.add("1", what, passed=False, detail=said)
    findings.add("1", what, passed=True)
    stage.wait(lambda: stage.calls("SubmitFeatures"), trial.quiet_s)
    stated = stage.calls("SubmitFeatures")
    what = "its statement of features is well formed, and names base-0-3"
    if not stated:
        findings.add("3", what, passed=None, detail="it states nothing: it is asked as one that has the base alone")
        return True
    with trial.case("3", what):
        own, _ = open_features(Envelope.from_proto(stated[-1].request.features), trial.kit.roster)
        if own.party != trial.kit.request.name:
            raise UnmetError("3", f"it names {own.party}")
        if Feature.BASE not in own.features:
            raise UnmetError("3", f"it names {', '.join(own.features) or 'none'}")
        if own.schemas and trial.kit.schema.digest not in own.schemas:
            raise UnmetError("4", "the schemas that it states lack the digest of the kit's schema")
        trial.features = frozenset(own.features)
    return True


def waits_for_witnesses(trial: Trial) -> None:
    """After a start it answers nothing until others have confirmed its ledger."""
    stage, what = trial.stage, "after its start it answers nothing before other parties have answered its challenge"
    if not stage.wait(lambda: stage.calls("AskWitnesses"), trial.quiet_s):
        trial.findings.add("7.9", what, passed=None, detail="it sends no challenge: it keeps no chain")
        return
    play = trial.play(trial.plan())
    with trial.case("7.9", what):
        play.show(Phase.ANSWERING, PartyState.SILENT)
        # How long the party takes to answer is not known yet.
        play.seen(min(5 * trial.quiet_s, trial.patience_s))
        if play.answer(0.0) is not None:
            raise UnmetError("7.9", "it answers a query: a copy of an older ledger would, too")
    play.end()


def kinds(trial: Trial) -> None:
    """Which kinds of query it computes, and whether their sums are right."""
    for kind, request in requests(trial.kit, CLEAR).items():
        what = f"{kind}: the sums over the rows, with its share of the noise"
        play = trial.play(trial.asking.plan(request, understood=UNDERSTOOD))
        try:
            with trial.case("6", what):
                unless_not_computed(trial, play)
                trial.kinds.append(kind)
        except NotComputedError as error:
            trial.findings.add("6", what, passed=None, detail=f"it is refused with {error.code.value}")
        play.end(Phase.COMPLETE)
    what = "the noise of all uploads has the standard deviation that the queries name"
    if trial.noise:
        wrong = of_deviation(np.concatenate(trial.noise))
        trial.findings.add("6", what, wrong is None, wrong or "")


class NotComputedError(Exception):
    """A kind is refused as one that the party does not compute."""

    def __init__(self, code: Code) -> None:
        self.code = code


def unless_not_computed(trial: Trial, play: Play, *codes: Code) -> Upload:
    """`Trial.uploaded`; raises NotComputedError if it is refused as what the party does not compute, or with these."""
    try:
        return trial.uploaded(play)
    except RefusedError as error:
        if error.code in (Code.POLICY_DESIGN, *codes):
            raise NotComputedError(error.code) from error
        raise


def repeats(trial: Trial) -> None:
    """The same work again, and a coordinator that lost what it had."""
    play = trial.play(trial.plan())
    with trial.case("7.2", "shown the same query again after its answer, it sends no other answer"):
        own = play.accepted()
        trial.check_acceptance(play, own)
        play.show(Phase.ANSWERING, PartyState.SILENT)
        play.seen(trial.quiet_s)
        answers = {
            call.request.acceptance.payload
            for call in trial.stage.calls("SubmitAnswer")
            if call.request.acceptance.payload
            and Acceptance.from_bytes(call.request.acceptance.payload).query_id == play.query_id
        }
        if len(answers) > 1:
            raise UnmetError("7.2", f"{len(answers)} different acceptances came")
    with trial.case("7.5", "a receipt that is not taken with the last chunk comes by SubmitReceipt"):
        trial.stage.takes_receipts = False
        play.ready()
        acceptances = play.acceptances(own)
        upload = play.uploaded(own, acceptances)
        trial.check_upload(play, upload)
    trial.stage.takes_receipts = True
    with trial.case("7.8", "a coordinator that lost chunks and receipt gets the same bytes again, or nothing"):
        cohort = play.cohort(acceptances.values())
        play.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=cohort)
        play.seen(trial.quiet_s)
        if any(len(chunks) > 1 for chunks in play.chunks().values()):
            raise UnmetError("7.5", "other bytes came for the same cohort: with fresh noise they could be averaged")
    with trial.case("7.5", "it uploads for no second cohort of the same attempt"):
        fresh = {**acceptances, **{peer: _with_another_key(play, peer) for peer in play.peers}}
        before = {index: set(chunks) for index, chunks in play.chunks().items()}
        play.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=play.cohort(fresh.values()))
        play.seen(trial.quiet_s)
        if play.chunks() != before:
            raise UnmetError(
                "7.5", "bytes for another cohort came: the difference of both sums has no noise of its own"
            )
    play.end(Phase.COMPLETE)


def _with_another_key(play: Play, peer: str) -> Envelope:
    return play.acceptance_of(peer, X25519PrivateKey.generate().public_key().public_bytes_raw())


def tries_again(trial: Trial) -> None:
    """A lost attempt, and another with the learner's signature."""
    play = trial.play(trial.plan())
    with trial.case("7.6", "after a lost attempt, it contributes anew to the one that the learner signed"):
        first = trial.uploaded(play)
        play.end(Phase.LOST)
        play.begin_again()
        second = trial.uploaded(play)
        if first.ciphertexts == second.ciphertexts:
            raise UnmetError("7.6", "both attempts have the same bytes")
        same = int(np.count_nonzero(first.open().values == second.open().values))
        if same > len(second.open().values) // 2:
            raise UnmetError("7.6", f"{same} values have the same noise in both attempts")
    play.end(Phase.COMPLETE)


def questions(trial: Trial) -> None:
    """A query that only asks."""
    what = "a question is answered without a ledger head, and never uploaded"
    if Feature.QUESTION.value not in trial.features:
        trial.findings.add("7.2", what, passed=None, detail="it does not state the feature question")
        return
    plan = trial.plan(LARGE, question=True)
    play = trial.play(plan)
    with trial.case("7.2", what):
        own = play.accepted()
        assert own.acceptance is not None, "it was accepted"
        if own.acceptance.ledger_head is not None:
            raise UnmetError("7.2", "the answer has a ledger head, as if something were reserved")
        play.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=play.cohort(play.acceptances(own).values()))
        play.seen(trial.quiet_s)
        if play.chunks():
            raise UnmetError("7.2", "it uploads for a question")
    beside = trial.play(trial.plan(LARGE))
    with trial.case("7.2", "a question reserves nothing: beside an open one, another large query fits"):
        beside.accepted()
    beside.end()
    play.end()


def optional_features(trial: Trial) -> None:
    """What a query asks only of parties that state it."""
    cohort_what = "noise of the cohort that answers: a top-up for the cohort that came"
    if Feature.COHORT_NOISE.value in trial.features and isinstance(trial.plan().query.kind.shares, GaussianShares):
        # Of 24 that are asked three answer, so that nearly all of the noise is the top-up.
        request = replace(requests(trial.kit, SMALL)[trial.kinds[0]], cohort_min=SMALLEST_COHORT)
        plan = trial.asking.plan(request, len(trial.kit.peers), understood={*UNDERSTOOD, Feature.COHORT_NOISE.value})
        play = trial.play(plan)
        with trial.case("6", cohort_what):
            _of_three(trial, play)
        play.end(Phase.COMPLETE)
    else:
        trial.findings.add("6", cohort_what, passed=None, detail="it does not state cohort-noise")
    graph_what = "a mask graph: masks with its neighbours in the circle, and with no others"
    if Feature.MASK_GRAPH.value in trial.features:
        plan = trial.plan(others=len(trial.kit.peers))
        features = tuple(sorted({*plan.query.features, Feature.MASK_GRAPH.value}))
        graphed = replace(plan, query=replace(plan.query, mask_neighbours=20, features=features))
        play = trial.play(graphed)
        with trial.case("6", graph_what):
            trial.uploaded(play)
        play.end(Phase.COMPLETE)
    else:
        trial.findings.add("6", graph_what, passed=None, detail="it does not state mask-graph")


def _of_three(trial: Trial, play: Play) -> None:
    """Many are asked and three answer: shares are for many, and a top-up makes up for those that are absent."""
    own = play.accepted()
    play.ready()
    present = (trial.kit.request.name, *play.peers[: SMALLEST_COHORT - 1])
    acceptances = {name: each for name, each in play.acceptances(own).items() if name in present}
    play.mask_keys = {name: key for name, key in play.mask_keys.items() if name in present}
    upload = play.uploaded(own, acceptances)
    found = upload.open()
    if found.problems:
        raise UnmetError(found.problems[0].section, f"{found.problems[0].what}: {found.problems[0].sentence}")
    difference = found.values - expected_sums(play.query, trial.kit.records)
    shares = play.query.kind.shares
    cohorts = play.query.kind.cohorts
    assert isinstance(shares, GaussianShares), "the first kind that is computed has such shares"
    assert cohorts is not None, "its noise follows the cohort"
    sigma = shares.share_sigma
    first, more = cohorts.first_share(sigma), cohorts.top_up(sigma, len(acceptances))
    noise = difference / float(np.hypot(first, more))
    if (wrong := of_deviation(noise)) is not None:
        raise UnmetError("6", wrong)


def witnesses(trial: Trial) -> None:
    """Another party's challenge."""
    kit = trial.kit
    peer = next(iter(trial.cohorts_with), kit.peers[0])
    nonce = os.urandom(32)
    challenge = Challenge(kit.roster.federation, peer, nonce, int(time.time())).sign(kit.signing_key(peer))
    trial.stage.challenge(challenge)

    def answered() -> Witness | None:
        calls = trial.stage.calls("SubmitWitness")
        for signed in (each for call in calls for each in (call.request.witness, *call.request.more)):
            if Witness.from_bytes(signed.payload).nonce == nonce:
                return open_witness(Envelope.from_proto(signed), kit.roster)[0]
        return None

    with trial.case("7.9", "it answers another party's challenge with what it verified in cohorts"):
        witness = trial.stage.wait(answered, trial.patience_s)
        if witness is None:
            raise UnmetError("7.9", "no Witness came: other parties wait for it when they start")
        if (witness.party, witness.subject) != (kit.request.name, peer):
            raise UnmetError("7.9", f"it is of {witness.party} about {witness.subject}")
        known = trial.cohorts_with.get(peer, [])
        if missing := {name_of(envelope) for envelope in known} - {*witness.in_cohorts}:
            raise UnmetError(
                "7.9", f"it does not name {len(missing)} of {len(known)} acceptances that it verified in cohorts"
            )
        if known and (witness.newest is None or _entries(witness.newest) < max(map(_entries, known))):
            raise UnmetError("7.9", "it does not show the acceptance with the most ledger entries")


def _entries(envelope: Envelope) -> int:
    head = Acceptance.from_bytes(envelope.payload).ledger_head
    return 0 if head is None else head.entries
