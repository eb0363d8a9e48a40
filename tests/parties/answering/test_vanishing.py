"""A party in a query whose members may vanish, under a coordinator that shows it what it likes."""

import secrets
import sqlite3
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpcore.numbers.fixed_point import plan_encoding
from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.sharing import Recovery, SharesError
from dpcore.paillier.survivors import (
    Secret,
    deal_keys,
    open_share,
    open_unmasking,
    self_commitment,
    share_commitment,
    survivors_digest,
)
from dpcore.randomness.sources import SystemRandom
from parties.answering.attempts import AttemptState
from parties.answering.vanishing import OwnKeys
from parties.ledger.ledger import LedgerConflictError
from parties.policy import check_query, check_survivors
from tests.federation.party import FEDERATION, OPENING, Ada, World
from wire.binding import Binding
from wire.envelopes import SigningKey, fingerprint
from wire.errors import Code, WireError
from wire.features import Feature
from wire.statements import Acceptance, Cohort, KeyShares, Ready, Refusal, Unmasking, open_statement, sign
from wire.status import PartyState, Phase

pytestmark = pytest.mark.usefixtures("small_comb")
NAMES = ("ada", "bo", "cy", "dee")
FIVE = (*NAMES, "eve")
OTHERS = NAMES[1:]
ENCODING = plan_encoding(largest_sum=1000 << 16, max_parties=5, fraction_bits=16)


@pytest.fixture
def world(secret_key):
    return World(secret_key, party_keys={name: SigningKey.generate(FEDERATION) for name in FIVE})


class Asked:
    """A query to some parties of which one may vanish, and all but ada, whose keys the test has."""

    def __init__(self, ada: Ada, others=OTHERS, **changes) -> None:
        self.ada, self.world, self.others = ada, ada.world, others
        nonce = secrets.token_bytes(16)
        asked = [party for party in self.world.roster.parties if party.name in ("ada", *others)]
        fields = {"max_parties": len(asked), "may_vanish": 1, "encoding": ENCODING, "nonce": nonce} | changes
        fields["binding"] = Binding.seal(OPENING, asked, nonce)
        features = (Feature.BASE.value, Feature.SURVIVORS.value)
        self.envelope = self.world.ask(self.world.query(features=features, **fields))
        self.opened = self.world.open(self.envelope)
        self.share_keys = {name: X25519PrivateKey.generate() for name in others}

    def acceptance(self, name: str, **changes):
        plain = Acceptance.from_bytes(self.world.acceptance(self.opened.query_id, name).payload)
        key = self.share_keys[name].public_key().public_bytes_raw()
        return sign(replace(plain, **{"share_key": key} | changes), self.world.party_keys[name])

    def accept(self) -> None:
        """Ada accepts and computes; all have accepted."""
        assert self.ada.go(self.envelope), "it accepts"
        self.sharing = Cohort(
            self.opened.query_id, 1, (self.ada.hub.answers[-1], *(self.acceptance(name) for name in self.others))
        )
        self.cohort = replace(self.sharing, sharing_digest=self.sharing.digest)

    def show(self, phase: Phase, state: PartyState, **changes) -> None:
        self.ada.lifecycle.advance(self.ada.work(self.envelope, phase=phase, state=state, **changes))

    def prepare(self, **changes) -> None:
        self.show(Phase.PREPARING, PartyState.ACCEPTED, **{"sharing": self.sharing} | changes)

    @property
    def ready(self):
        """Of each member, ada's as she sent it."""
        said = [Ready(self.opened.query_id, 1, name, self.sharing.digest) for name in self.others]
        return (self.ada.hub.readies[-1], *(sign(each, self.world.party_keys[each.party]) for each in said))

    def upload(self, **changes) -> None:
        shown = {"cohort": self.cohort, "sharing": self.sharing, "ready": self.ready} | changes
        self.show(Phase.UPLOADING, PartyState.UPLOADING, **shown)

    def sealed(self) -> tuple[bytes, ...]:
        """What each member sealed for ada."""
        own = KeyShares.from_bytes(self.ada.hub.key_shares[-1].payload).sealed[0]
        members = {each.party: each.share_key for each in self.sharing.open(self.world.roster)}
        dealt = [
            deal_keys(
                name,
                seed=bytes(32),
                mask_key=bytes(32),
                share_key=self.share_keys[name],
                members=members,
                needed=3,
                attempt=CohortAttempt(self.opened.query_id, 1, self.sharing.digest),
                random=SystemRandom(),
            ).sealed[0]
            for name in self.others
        ]
        return (own, *dealt)

    def unmask(self, survivors=NAMES, **changes) -> None:
        shown = {"cohort": self.cohort, "sharing": self.sharing, "survivors": tuple(survivors)}
        shown |= {"sealed_shares": self.sealed()} | changes
        self.show(Phase.UNMASKING, PartyState.UPLOADED, **shown)

    @property
    def state(self):
        return self.ada.state(self.envelope)


@pytest.fixture
def asked(ada):
    asked = Asked(ada)
    asked.accept()
    return asked


@pytest.fixture
def uploaded(asked):
    asked.prepare()
    asked.upload()
    assert asked.state is AttemptState.UPLOADED
    return asked


def test_what_she_deals_gives_her_keys_back_to_the_others(asked):
    hub = asked.ada.hub
    assert not hub.readies, "before all have answered she is not ready"
    asked.prepare()
    said = open_statement(KeyShares, hub.key_shares[0], asked.world.roster)[0]
    ready = open_statement(Ready, hub.readies[0], asked.world.roster)[0]
    assert said.sharing_digest == ready.sharing_digest == asked.sharing.digest
    about = CohortAttempt(asked.opened.query_id, 1, asked.sharing.digest)
    public = Acceptance.from_bytes(hub.answers[-1].payload).share_key
    share = open_share(said.sealed[2], Secret.SELF_MASK, "ada", public, "cy", asked.share_keys["cy"], about)
    assert share_commitment(share, Secret.SELF_MASK, "ada", "cy", about) == said.self_shares[2]


@pytest.mark.parametrize(("others", "needed"), [(OTHERS, 3), (FIVE[1:], 4)])
def test_as_many_as_have_to_be_left_give_her_keys_back_and_no_fewer(ada, others, needed):
    """With one share less that were enough, a coalition would open what no promise lets it open."""
    asked = Asked(ada, others)
    asked.accept()
    asked.prepare()
    dealt = KeyShares.from_bytes(ada.hub.key_shares[0].payload)
    said = Acceptance.from_bytes(ada.hub.answers[-1].payload)
    about = CohortAttempt(asked.opened.query_id, 1, asked.sharing.digest)

    def recovered(of: Secret, count: int) -> bytes:
        shares = {
            place: open_share(dealt.sealed[place - 1], of, "ada", said.share_key, name, asked.share_keys[name], about)
            for place, name in list(enumerate(("ada", *others), start=1))[-count:]
        }
        try:
            return Recovery([*shares]).secret(shares)
        except SharesError:
            return b""

    mask_key = X25519PrivateKey.from_private_bytes(recovered(Secret.MASK_KEY, needed))
    assert mask_key.public_key().public_bytes_raw() == said.mask_key
    seed = recovered(Secret.SELF_MASK, needed)
    assert self_commitment(seed, "ada", about) == dealt.self_commitment
    assert recovered(Secret.MASK_KEY, needed - 1) != mask_key.private_bytes_raw()
    assert recovered(Secret.SELF_MASK, needed - 1) != seed


def test_her_keys_of_two_queries_differ(ada):
    """Who learns the keys of one attempt learns nothing of another."""
    kept = []
    for _ in range(2):
        asked = Asked(ada)
        asked.accept()
        kept.append(ada.attempts.sharings.find(asked.opened.query_id, 1))
    first, second = kept
    assert first.secret != second.secret
    assert first.mask_key != second.mask_key


def test_shares_of_another_query_are_left_out(uploaded):
    """A coordinator that shows what was dealt for another sharing gets no share of it."""
    former = uploaded.sealed()
    again = Asked(uploaded.ada)
    again.accept()
    again.prepare()
    again.upload()
    again.unmask(sealed_shares=(again.sealed()[0], *former[1:]))
    said = Unmasking.from_bytes(again.ada.hub.unmaskings[-1].payload)
    about = CohortAttempt(again.opened.query_id, 1, again.cohort.digest)
    public = Acceptance.from_bytes(again.ada.hub.answers[-1].payload).share_key
    shares = open_unmasking(said.sealed, 4, "ada", public, OPENING.key, said.survivors_digest, about)
    assert [share == b"\xff" * 33 for share in shares] == [False, True, True, True]


def test_she_deals_once_also_after_a_restart(asked):
    asked.prepare()
    asked.ada.restart()
    asked.prepare()
    first, second = asked.ada.hub.key_shares
    assert first == second
    other = replace(asked.sharing, acceptances=asked.sharing.acceptances[:1] + asked.sharing.acceptances[:0:-1])
    asked.ada.restart()
    asked.prepare(sharing=other)
    assert len(asked.ada.hub.key_shares) == 2
    assert asked.state is AttemptState.ENDED, "she refuses another sharing, uncharged"
    assert asked.ada.reported_charges == 0


def shared_without(asked, **changes):
    """A sharing in which dee's acceptance is another."""
    return replace(asked.sharing, acceptances=(*asked.sharing.acceptances[:3], asked.acceptance("dee", **changes)))


def test_a_sharing_that_she_cannot_verify_is_refused_uncharged(asked, caplog):
    asked.prepare(sharing=shared_without(asked, share_key=b""))
    assert asked.state is AttemptState.ENDED
    assert not asked.ada.hub.key_shares
    assert asked.ada.reported_charges == 0
    assert "dee accepted without a share key" in str(caplog.records[0].__dict__)


def test_a_sharing_that_names_a_sharing_is_refused_uncharged(asked):
    asked.prepare(sharing=asked.cohort)
    assert (asked.state, asked.ada.hub.key_shares, asked.ada.reported_charges) == (AttemptState.ENDED, [], 0)


def wrong_cohorts(asked) -> dict[str, dict]:
    """What a coordinator may show in place of the cohort of her sharing."""
    ready, other = asked.ready, asked.acceptance("dee")
    elsewhere = sign(Ready(asked.opened.query_id, 1, "cy", bytes(32)), asked.world.party_keys["cy"])
    return {
        "no sharing": {"sharing": None},
        "a member that dealt for another sharing": {"ready": (*ready[:2], elsewhere, *ready[3:])},
        "a member that did not say": {"ready": ready[:-1]},
        "another order": {"ready": ready[::-1]},
        "a cohort of no sharing": {"cohort": replace(asked.cohort, sharing_digest=b"")},
        "another sharing": {"sharing": replace(asked.sharing, acceptances=asked.sharing.acceptances[:3])},
        "an acceptance that is not in it": {
            "cohort": replace(asked.cohort, acceptances=(*asked.cohort.acceptances[:3], other))
        },
    }


WRONG = ("no sharing", "a member that did not say", "another order", "a cohort of no sharing", "another sharing")


@pytest.mark.parametrize(
    "case",
    [
        "a member that dealt for another sharing",
        "an acceptance that is not in it",
        *(pytest.param(case, marks=pytest.mark.more) for case in WRONG),
    ],
)
def test_a_cohort_is_refused_uncharged_unless_all_dealt_for_her_sharing(asked, case):
    asked.prepare()
    asked.upload(**wrong_cohorts(asked)[case])
    assert (asked.state, asked.ada.reported_charges, asked.ada.hub.chunks) == (AttemptState.ENDED, 0, {})


def test_more_that_are_ready_than_members_are_refused_before_any_signature_is_verified(asked):
    asked.prepare()
    forged = replace(asked.ready[0], signature=bytes(64))
    asked.upload(ready=(*asked.ready, forged))
    refusal = Refusal.from_bytes(asked.ada.hub.answers[-1].payload)
    assert (refusal.code, asked.ada.reported_charges) == (Code.QUERY_INVALID, 0)


def test_a_cohort_that_names_a_sharing_is_refused_where_nobody_may_vanish(ada):
    envelope = ada.world.ask()
    assert ada.go(envelope)
    cohort = replace(ada.world.cohort(ada.hub.answers[-1]), sharing_digest=bytes(32))
    ada.upload(envelope, cohort)
    assert (ada.state(envelope), ada.reported_charges) == (AttemptState.ENDED, 0)


def test_she_unmasks_one_set_for_ever(uploaded):
    hub, ada = uploaded.ada.hub, uploaded.ada
    uploaded.unmask(("ada", "bo", "dee"))
    (first,) = hub.unmaskings
    said = open_statement(Unmasking, first, uploaded.world.roster)[0]
    about = CohortAttempt(uploaded.opened.query_id, 1, uploaded.cohort.digest)
    assert said.survivors_digest == survivors_digest(("ada", "bo", "dee"), about)
    public = Acceptance.from_bytes(hub.answers[-1].payload).share_key
    digest = said.survivors_digest
    shares = open_unmasking(said.sealed, 4, "ada", public, OPENING.key, digest, about)
    assert len(set(shares)) == 4
    for restart in (False, True):
        if restart:
            ada.restart()
        uploaded.unmask(("ada", "bo", "cy"))
        uploaded.unmask(NAMES)
        assert hub.unmaskings == [first], "no share for another set"
    uploaded.unmask(("ada", "bo", "dee"))
    assert hub.unmaskings == [first, first]


def test_what_she_unmasks_is_a_part_of_the_cohort_that_she_charged_for(uploaded):
    hub, other = uploaded.ada.hub, uploaded.acceptance("dee")
    for survivors, changes in (
        (("ada", "bo"), {}),
        (("bo", "cy", "dee"), {}),
        (("bo", "ada", "cy"), {}),
        (("ada", "bo", "eve"), {}),
        (NAMES, {"sealed_shares": uploaded.sealed()[:3]}),
        (NAMES, {"cohort": replace(uploaded.cohort, acceptances=uploaded.cohort.acceptances[::-1])}),
        (NAMES, {"cohort": replace(uploaded.cohort, acceptances=(*uploaded.cohort.acceptances[:3], other))}),
        (NAMES, {"cohort": None}),
        (NAMES, {"sharing": replace(uploaded.sharing, acceptances=uploaded.sharing.acceptances[::-1])}),
        (NAMES, {"sharing": None}),
    ):
        uploaded.unmask(survivors, **changes)
        assert not hub.unmaskings, (survivors, changes)
    uploaded.unmask()
    assert len(hub.unmaskings) == 1


def test_a_share_that_does_not_open_is_left_out(uploaded):
    sealed = uploaded.sealed()
    uploaded.unmask(sealed_shares=(*sealed[:2], bytes(94), sealed[3]))
    said = Unmasking.from_bytes(uploaded.ada.hub.unmaskings[0].payload)
    about = CohortAttempt(uploaded.opened.query_id, 1, uploaded.cohort.digest)
    public = Acceptance.from_bytes(uploaded.ada.hub.answers[-1].payload).share_key
    shares = open_unmasking(said.sealed, 4, "ada", public, OPENING.key, said.survivors_digest, about)
    assert [share == b"\xff" * 33 for share in shares] == [False, False, True, False]


def test_a_share_of_another_length_is_left_out_and_moves_no_other(uploaded):
    """The coordinator refuses such shares of a member. One that works with that member shows them."""
    about = CohortAttempt(uploaded.opened.query_id, 1, uploaded.sharing.digest)
    public = Acceptance.from_bytes(uploaded.ada.hub.answers[-1].payload).share_key
    key = about.derive(uploaded.share_keys["cy"], public, b"rado.v1/share-seal\0", "cy", "ada", peer="ada", length=32)
    sealed = uploaded.sealed()
    longer = bytes(12) + AESGCM(key).encrypt(bytes(12), bytes(70), None)
    uploaded.unmask(sealed_shares=(*sealed[:2], longer, sealed[3]))
    said = Unmasking.from_bytes(uploaded.ada.hub.unmaskings[0].payload)
    about = CohortAttempt(uploaded.opened.query_id, 1, uploaded.cohort.digest)
    shares = open_unmasking(said.sealed, 4, "ada", public, OPENING.key, said.survivors_digest, about)
    assert [share == b"\xff" * 33 for share in shares] == [False, False, True, False]


def test_nothing_is_unmasked_before_the_charge(asked):
    asked.prepare()
    asked.unmask()
    assert not asked.ada.hub.unmaskings


def kept_keys(ada: Ada) -> int:
    with sqlite3.connect(ada.directory / "ledger.sqlite") as file:
        return file.execute("SELECT count(*) FROM sharings").fetchone()[0]


def test_the_keys_are_kept_until_the_attempt_is_over_and_in_no_copy(uploaded):
    ada = uploaded.ada
    assert kept_keys(ada) == 1
    copy = sqlite3.connect(":memory:")
    copy.deserialize(ada.ledger.database.backup())
    assert copy.execute("SELECT count(*) FROM sharings").fetchone() == (0,)
    uploaded.show(Phase.COMPLETE, PartyState.UNMASKED)
    assert (uploaded.state, kept_keys(ada)) == (AttemptState.ENDED, 0)
    with pytest.raises(LedgerConflictError, match="no keys to share"):
        ada.attempts.sharings.find(uploaded.opened.query_id, 1)


def test_a_query_without_it_keeps_nothing(ada):
    assert ada.go(ada.world.ask())
    assert kept_keys(ada) == 0
    assert Acceptance.from_bytes(ada.hub.answers[-1].payload).share_key == b""


def test_the_share_key_and_the_seed_are_independent():
    own = OwnKeys(b"s" * 32)
    assert own.seed != own.share_key.private_bytes_raw()
    assert "s" * 10 not in repr(own)


def five(ada: Ada) -> Asked:
    """All of five accept, and three are a cohort: four have to be left of five, three of four."""
    asked = Asked(ada, FIVE[1:])
    asked.accept()
    return asked


def test_a_cohort_of_fewer_than_have_to_be_left_is_refused_uncharged(ada):
    asked = five(ada)
    asked.prepare()
    few = replace(asked.cohort, acceptances=asked.cohort.acceptances[:3])
    asked.upload(cohort=few, ready=asked.ready[:3])
    assert (asked.state, ada.reported_charges, ada.hub.chunks) == (AttemptState.ENDED, 0, {})


def test_a_sharing_with_too_many_that_she_has_not_accepted_is_refused_uncharged(ada):
    """Beside eve, whom she has not accepted, three are left of five, but only two of four."""
    accepted = [fingerprint(ada.world.party_keys[name].public_bytes) for name in OTHERS]
    ada.policy = ada.world.policy(accepted_members=accepted)
    ada.restart()
    asked = five(ada)
    asked.prepare(
        sharing=replace(asked.sharing, acceptances=asked.sharing.acceptances[:2] + asked.sharing.acceptances[3:])
    )
    assert (asked.state, ada.hub.key_shares, ada.reported_charges) == (AttemptState.ENDED, [], 0)


def test_with_all_that_she_has_accepted_she_deals(ada):
    accepted = [fingerprint(ada.world.party_keys[name].public_bytes) for name in OTHERS]
    ada.policy = ada.world.policy(accepted_members=accepted)
    ada.restart()
    asked = five(ada)
    asked.prepare()
    assert len(ada.hub.key_shares) == 1


def test_as_many_as_a_cohort_needs_have_to_be_left_whoever_vanishes(ada):
    asked = Asked(ada)
    roster, query = asked.world.roster, asked.opened.query
    check_survivors(ada.world.policy(), roster, "ada", NAMES, query)
    check_query(ada.world.policy(), asked.opened, roster, "ada")
    accepted = [fingerprint(asked.world.party_keys[name].public_bytes) for name in ("bo", "cy")]
    wary = ada.world.policy(accepted_members=accepted)
    for check, strangers in (
        (lambda: check_survivors(wary, roster, "ada", NAMES, query), 1),
        (lambda: check_query(wary, asked.opened, roster, "ada"), 1),
        (lambda: check_survivors(ada.world.policy(assumed_colluders=2), roster, "ada", NAMES, query), 0),
    ):
        with pytest.raises(
            WireError, match=rf"1 of 4 members may vanish, .* not accepted {strangers} of them"
        ) as caught:
            check()
        assert caught.value.code is Code.POLICY_COHORT
    # Without anybody who may vanish, one that is not accepted is no obstacle.
    check_survivors(wary, roster, "ada", NAMES, replace(query, may_vanish=0, features=(Feature.BASE.value,)))
