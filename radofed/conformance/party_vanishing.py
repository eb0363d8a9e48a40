"""A query of which some members may vanish: sharing, unmasking, and what a party must not give (docs/protocol.md, 7).

The kit plays all other members of the sharing, so it opens what the party deals to each, and puts the party's two
secrets together.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import RadofedError
from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.sharing import SHARE_BYTES, Recovery, SharesError
from dpcore.paillier.survivors import (
    SealError,
    Secret,
    open_share,
    open_unmasking,
    self_commitment,
    share_commitment,
    survivors_digest,
)
from rado.v1 import cohort_pb2
from radofed.conformance.dealing import Member
from radofed.conformance.findings import UnmetError
from radofed.conformance.party_good import SMALL, Trial
from radofed.conformance.play import Answer, Play, requests
from wire.envelopes import Envelope
from wire.errors import WireError
from wire.features import Feature
from wire.statements import Acceptance, Cohort, KeyShares, Ready, Unmasking, open_statement
from wire.status import PartyState, Phase

_PEERS, _MAY_VANISH = 6, 1
_DEALT = "survivors: it deals shares of both keys to all that accepted, and any threshold of them gives them back"
_UPLOADED = "survivors: its upload has a mask of its own beside those with the others"
_UNMASKED = "survivors: it gives its shares of the survivors' seeds and of the vanished member's mask key"


@dataclass
class Sharing:
    """One attempt whose members may vanish, as far as it has come."""

    trial: Trial
    play: Play
    own: Answer
    members: dict[str, Member]
    """The kit's, by name."""
    acceptances: dict[str, Envelope]
    """Of all, by name, in order."""
    message: cohort_pb2.Cohort
    dealt: KeyShares | None = None
    """What the party dealt."""
    cohort: Cohort | None = None
    dealt_by: dict[str, KeyShares] = field(default_factory=dict)
    """What each member of the kit dealt."""

    @classmethod
    def begin(cls, trial: Trial) -> "Sharing":
        """Let the party and all of the kit's parties accept. Raises UnmetError."""
        request = replace(requests(trial.kit, SMALL)[trial.kinds[0]], may_vanish=_MAY_VANISH)
        play = trial.play(trial.asking.plan(request, _PEERS))
        own = play.accepted()
        trial.check_acceptance(play, own)
        said = own.acceptance
        assert said is not None, "it was accepted"
        if not said.share_key:
            raise UnmetError("7", "its acceptance has no share key")
        if said.share_key == said.mask_key:
            raise UnmetError("7", "its share key is its mask key, which becomes known if it vanishes")
        members = {name: Member(name) for name in play.peers}
        play.mask_keys = {name: member.mask_key for name, member in members.items()}
        keys = {name: {"share_key": each.share_public, "mask_key": each.mask_public} for name, each in members.items()}
        signed = {name: play.acceptance_of(name, **keys[name]) for name in play.peers}
        signed[trial.kit.request.name] = own.envelope
        ordered = {each.name: signed[each.name] for each in trial.kit.roster.parties if each.name in signed}
        return cls(trial, play, own, members, ordered, play.cohort(ordered.values()))

    @property
    def name(self) -> str:
        """Of the party under test."""
        return self.trial.kit.request.name

    @property
    def digest(self) -> bytes:
        """Of the sharing."""
        return Cohort.from_proto(self.message).digest

    @property
    def about(self) -> CohortAttempt:
        """What shares are bound to."""
        return CohortAttempt(self.play.query_id, self.play.attempt, self.digest)

    @property
    def said(self) -> dict[str, Acceptance]:
        """What each acceptance says, in order."""
        return {name: Acceptance.from_bytes(each.payload) for name, each in self.acceptances.items()}

    @property
    def needed(self) -> int:
        """How many shares give a secret back."""
        return self.play.query.threshold(len(self.acceptances))

    def show(self, message: cohort_pb2.Cohort) -> None:
        """Show a sharing to the party."""
        self.play.around = {"sharing": message}
        self.play.show(Phase.PREPARING, PartyState.ACCEPTED)

    def given(self) -> list[tuple[Ready, KeyShares | None]]:
        """Every Ready of this attempt so far, with its shares. Raises UnmetError."""
        found = []
        for call in self.trial.stage.calls("SubmitReady"):
            ready = Ready.from_bytes(call.request.ready.payload)
            if (ready.query_id, ready.attempt) != (self.play.query_id, self.play.attempt):
                continue
            found.append((self._verified(Ready, call.request.ready), self._shares_of(call.request)))
        return found

    def _shares_of(self, request: Any) -> KeyShares | None:
        return self._verified(KeyShares, request.key_shares) if request.HasField("key_shares") else None

    def _verified(self, kind: Any, message: Any) -> Any:
        try:
            said, _ = open_statement(kind, Envelope.from_proto(message), self.trial.kit.roster)
        except WireError as error:
            raise UnmetError("2", f"a {kind.KIND} does not verify: {error.public_sentence}") from error
        if said.party != self.name:
            raise UnmetError("2", f"a {kind.KIND} names {said.party}")
        return said

    def deals(self) -> None:
        """The party deals for the sharing, and the kit puts its secrets together. Raises UnmetError."""
        self.show(self.message)
        found = self.trial.stage.wait(self.given, self.trial.patience_s)
        if not found:
            raise UnmetError("7", f"no Ready within {self.trial.patience_s:g} s after the sharing was shown")
        ready, dealt = found[-1]
        if dealt is None:
            raise UnmetError("7", "its Ready has no KeyShares")
        if {ready.sharing_digest, dealt.sharing_digest} != {self.digest}:
            raise UnmetError("7", "Ready and KeyShares do not name the digest of the sharing")
        if len(dealt.sealed) != len(self.acceptances):
            raise UnmetError("7", f"it deals to {len(dealt.sealed)} members, and {len(self.acceptances)} accepted")
        self.dealt = dealt
        mask_key = self._secret(Secret.MASK_KEY)
        seed = self._secret(Secret.SELF_MASK)
        public = X25519PrivateKey.from_private_bytes(mask_key).public_key().public_bytes_raw()
        if public != self.said[self.name].mask_key:
            raise UnmetError("7", "the shares of its mask key do not give the key of its acceptance")
        if self_commitment(seed, self.name, self.about) != dealt.self_commitment:
            raise UnmetError("7", "the shares of its seed do not give what it committed to")
        self.play.self_seed = seed

    def _secret(self, of: Secret) -> bytes:
        """One of the party's secrets, from the shares of the kit's members. Raises UnmetError."""
        assert self.dealt is not None, "it has dealt"
        commitments = self.dealt.self_shares if of is Secret.SELF_MASK else self.dealt.key_shares
        shares = {}
        for place, name in enumerate(self.acceptances, start=1):
            if name == self.name:
                continue
            dealer_key = self.said[self.name].share_key
            member, sealed = self.members[name], self.dealt.sealed[place - 1]
            try:
                share = open_share(sealed, of, self.name, dealer_key, name, member.share_key, self.about)
            except SealError as error:
                raise UnmetError("7", f"what it sealed for {name} does not open") from error
            if share_commitment(share, of, self.name, name, self.about) != commitments[place - 1]:
                raise UnmetError("7", f"a share for {name} is another than it committed to")
            shares[place] = share
        places = sorted(shares)[: self.needed]
        fewer = places[:-1]
        try:
            secret = Recovery(places).secret({place: shares[place] for place in places})
        except SharesError as error:
            raise UnmetError("7", f"{self.needed} shares give no secret: the polynomial's degree is t - 1") from error
        try:
            early = Recovery(fewer).secret({place: shares[place] for place in fewer})
        except SharesError:
            return secret
        if early == secret:
            raise UnmetError("7", f"{len(fewer)} shares give its secret, and {self.needed} are to be needed")
        return secret

    def others_deal(self) -> None:
        """All members of the kit deal."""
        keys = {name: said.share_key for name, said in self.said.items()}
        for name, member in self.members.items():
            self.dealt_by[name] = member.deal(keys, self.needed, self.about)

    def ready_of(self, names: Sequence[str], digest: bytes | None = None) -> list[Any]:
        """Signed Ready messages of these members, in order; of the party's own as it sent it."""
        own = [
            call.request.ready
            for call in self.trial.stage.calls("SubmitReady")
            if Ready.from_bytes(call.request.ready.payload).query_id == self.play.query_id
        ]
        found = []
        for name in names:
            if name == self.name:
                found.append(own[-1])
                continue
            said = Ready(self.play.query_id, self.play.attempt, name, self.digest if digest is None else digest)
            found.append(self.trial.kit.signing_key(name).sign(Ready.KIND, said.to_bytes()).to_proto())
        return found

    def prepare_cohort(self, names: Sequence[str], digest: bytes | None = None) -> dict[str, Envelope]:
        """Have the next cohort, of these members, shown with the sharing and their Ready."""
        self.play.sharing_digest = self.digest
        self.play.around = {"sharing": self.message, "ready": self.ready_of(names, digest)}
        return {name: self.acceptances[name] for name in names}

    # Unmasking.

    def show_survivors(self, survivors: Sequence[str]) -> None:
        """Show which members uploaded, and what each member of the cohort dealt to the party."""
        assert self.dealt is not None and self.cohort is not None, "it has uploaded"  # noqa: PT018  (one reason)
        place = [*self.acceptances].index(self.name)
        sealed = [
            self.dealt.sealed[place] if name == self.name else self.dealt_by[name].sealed[place]
            for name in self.acceptances
        ]
        self.play.around |= {"survivors": list(survivors), "sealed_shares": sealed}
        self.play.show(Phase.UNMASKING, PartyState.UPLOADED, cohort=self.cohort.to_proto())

    def unmaskings(self) -> list[Unmasking]:
        """Those of this attempt so far. Raises UnmetError."""
        found = []
        for call in self.trial.stage.calls("SubmitUnmasking"):
            said = Unmasking.from_bytes(call.request.unmasking.payload)
            if (said.query_id, said.attempt) == (self.play.query_id, self.play.attempt):
                found.append(self._verified(Unmasking, call.request.unmasking))
        return found

    def check_unmasking(self, said: Unmasking, survivors: Sequence[str]) -> None:
        """Raise UnmetError unless each share is the one that was dealt to the party."""
        assert self.cohort is not None and self.dealt is not None, "it has uploaded"  # noqa: PT018  (one reason)
        about = CohortAttempt(self.play.query_id, self.play.attempt, self.cohort.digest)
        digest = survivors_digest(survivors, about)
        if (said.cohort_digest, said.survivors_digest) != (self.cohort.digest, digest):
            raise UnmetError("7", "its Unmasking is for another cohort, or other survivors")
        share_key, key = self.said[self.name].share_key, self.play.plan.opening.key
        names = [*self.acceptances]
        try:
            shares = open_unmasking(said.sealed, len(names), self.name, share_key, key, digest, about)
        except SealError as error:
            raise UnmetError("7", "its Unmasking does not open with the learner's key") from error
        for name, share in zip(names, shares, strict=True):
            of = Secret.SELF_MASK if name in survivors else Secret.MASK_KEY
            dealt = self.dealt if name == self.name else self.dealt_by[name]
            commitments = dealt.self_shares if of is Secret.SELF_MASK else dealt.key_shares
            place = names.index(self.name)
            if share_commitment(share, of, name, self.name, self.about) != commitments[place]:
                said_of = "is missing" if share == b"\xff" * SHARE_BYTES else "is another than was dealt"
                raise UnmetError(
                    "7", f"its share of the {'seed' if of is Secret.SELF_MASK else 'mask key'} of {name} {said_of}"
                )


def survivors(trial: Trial) -> None:
    """Everything about a query whose members may vanish."""
    others = {
        "survivors: it gives no shares for fewer survivors than the threshold": _too_few_survivors,
        "survivors: it gives no shares for a second set of survivors": _second_survivors,
        "survivors: it deals for no second sharing of an attempt": _second_sharing,
        "survivors: it deals for no sharing in which a member has no share key": _without_share_key,
        "survivors: it deals for no sharing smaller than the smallest cohort": _small_sharing,
        "survivors: it uploads for no cohort smaller than the threshold": _small_cohort,
        "survivors: it uploads for no cohort with a member that dealt for another sharing": _of_other_sharing,
        "survivors: it uploads for no cohort of another sharing": _other_digest,
    }
    if Feature.SURVIVORS.value not in trial.features:
        for what in (_DEALT, _UPLOADED, _UNMASKED, *others):
            trial.findings.add("7", what, passed=None, detail="it does not state survivors")
        return
    _to_the_end(trial)
    shown = [(what, *_shown(trial, tried)) for what, tried in others.items()]
    # All are waited for at one time: a party that does nothing is slow to test.
    time.sleep(trial.quiet_s)
    for what, sharing, judge in shown:
        with trial.case("7", what):
            judge()
        if sharing is not None:
            sharing.play.end()


Judge = Callable[[], None]
"""Raises UnmetError if the party did what it must not do."""


def _shown(trial: Trial, tried: "Callable[[Trial, Sharing], Judge]") -> tuple[Sharing | None, Judge]:
    """Show something that a party must not follow; how it is judged later. What fails before that is judged so, too."""
    sharing = None
    try:
        sharing = Sharing.begin(trial)
        return sharing, tried(trial, sharing)
    except (UnmetError, RadofedError) as error:
        return sharing, partial(_raise, error)


def _raise(error: Exception) -> None:
    raise error


def _to_the_end(trial: Trial) -> None:
    with trial.case("7", _DEALT):
        sharing = Sharing.begin(trial)
        sharing.deals()
        with trial.case("7", _UPLOADED):
            _upload(trial, sharing)
            with trial.case("7", _UNMASKED):
                survivors = _all_but_one(sharing)
                sharing.show_survivors(survivors)
                given = trial.stage.wait(sharing.unmaskings, trial.patience_s)
                if not given:
                    raise UnmetError("7", f"no Unmasking within {trial.patience_s:g} s")
                sharing.check_unmasking(given[-1], survivors)
        sharing.play.end(Phase.COMPLETE)


def _upload(trial: Trial, sharing: Sharing) -> None:
    """The party uploads for a cohort of all that accepted. Raises UnmetError."""
    sharing.others_deal()
    upload = sharing.play.uploaded(sharing.own, sharing.prepare_cohort([*sharing.acceptances]))
    sharing.cohort = upload.cohort
    trial.check_upload(sharing.play, upload)


def _all_but_one(sharing: Sharing, vanished: int = -1) -> list[str]:
    lost = sharing.play.peers[vanished]
    return [name for name in sharing.acceptances if name != lost]


def _no_more(sharing: Sharing, count: int, why: str) -> Judge:
    """Raise UnmetError if there are unmaskings of more sets of survivors than so many."""

    def judge() -> None:
        if len({each.survivors_digest for each in sharing.unmaskings()}) > count:
            raise UnmetError("7", why)

    return judge


def _too_few_survivors(trial: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    _upload(trial, sharing)
    few = [name for name in _all_but_one(sharing) if name != sharing.play.peers[0]]
    sharing.show_survivors(few)
    return _no_more(sharing, 0, f"it gives its shares for {len(few)} survivors, and {sharing.needed} are needed")


def _second_survivors(trial: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    _upload(trial, sharing)
    sharing.show_survivors(_all_but_one(sharing))
    if not trial.stage.wait(sharing.unmaskings, trial.patience_s):
        raise UnmetError("7", f"no Unmasking within {trial.patience_s:g} s")
    sharing.show_survivors(_all_but_one(sharing, 0))
    return _no_more(sharing, 1, "it gives its shares for two sets of survivors, which open what neither alone opens")


def _second_sharing(_: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    other = {**sharing.acceptances}
    name = sharing.play.peers[0]
    member = Member(name)
    keys: dict[str, Any] = {"share_key": member.share_public, "mask_key": member.mask_public}
    other[name] = sharing.play.acceptance_of(name, **keys)
    sharing.show(sharing.play.cohort(other.values()))

    def judge() -> None:
        if len({shares.sharing_digest for _, shares in sharing.given() if shares is not None}) > 1:
            raise UnmetError("7", "it deals shares of one key to two sets of members")

    return judge


def _not_dealt(sharing: Sharing, acceptances: Iterable[Envelope]) -> Judge:
    sharing.show(sharing.play.cohort(acceptances))

    def judge() -> None:
        if sharing.given():
            raise UnmetError("7", "it deals for it")

    return judge


def _without_share_key(_: Trial, sharing: Sharing) -> Judge:
    name = sharing.play.peers[0]
    bare = sharing.play.acceptance_of(name, sharing.members[name].mask_public)
    return _not_dealt(sharing, {**sharing.acceptances, name: bare}.values())


def _small_sharing(_: Trial, sharing: Sharing) -> Judge:
    few = {*[*sharing.acceptances][: sharing.play.query.cohort_min - 2], sharing.name}
    return _not_dealt(sharing, [each for name, each in sharing.acceptances.items() if name in few])


def _not_uploaded(sharing: Sharing, acceptances: dict[str, Envelope]) -> Judge:
    play = sharing.play
    play.show(Phase.UPLOADING, PartyState.UPLOADING, cohort=play.cohort(acceptances.values()))

    def judge() -> None:
        if play.chunks():
            raise UnmetError("7", "it uploads for it")

    return judge


def _small_cohort(_: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    kept = [name for name in _all_but_one(sharing) if name != sharing.play.peers[0]]
    return _not_uploaded(sharing, sharing.prepare_cohort(kept))


def _of_other_sharing(_: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    acceptances = sharing.prepare_cohort([*sharing.acceptances], os.urandom(32))
    return _not_uploaded(sharing, acceptances)


def _other_digest(_: Trial, sharing: Sharing) -> Judge:
    sharing.deals()
    acceptances = sharing.prepare_cohort([*sharing.acceptances])
    sharing.play.sharing_digest = os.urandom(32)
    return _not_uploaded(sharing, acceptances)
