"""Noise for the cohort that answers, at a party: what it uploads for which cohort, and lies about the cohort."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import TotalError
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.predicates.expressions import AtLeast
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SystemRandom
from parties.answering.attempts import AttemptState
from parties.answering.contribution import encrypted_chunks, masked_chunks
from parties.ledger.charges import RECORD
from parties.policy import check_cohort
from tests.federation.party import SCHEMA, Ada, ready
from tests.parties.answering.test_contribution import decode, small_obfuscator
from wire.envelopes import fingerprint
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES, Feature
from wire.statements import Cohort

pytestmark = pytest.mark.usefixtures("small_comb")
S = AttemptState
POLICY = {"designs": ["statistic"], "smallest_cohort": 2, "assumed_colluders": 0}
VALUES = 1800
"""So many that a top-up of half its size is four deviations away from a whole one."""
NO_COLLUDERS, ONE_COLLUDER = Cohorts(2, 2, 3), Cohorts(2, 1, 3)
FEATURES = (Feature.BASE.value, Feature.COHORT_NOISE.value)
AGES = tuple(AtLeast("age", Fraction(place, 16)) for place in range(VALUES))
GAUSSIAN, LAPLACE = GaussianShares(1 << 12, NO_COLLUDERS), LaplaceShares(Fraction(2000), 2, NO_COLLUDERS)


def query(world, noise=GAUSSIAN, predicates=AGES, **changes):
    """Of at least two of three parties; as many collude as its noise says."""
    cohorts = noise.cohorts
    fields = {
        "kind": StatisticQuery(predicates, SCHEMA, noise),
        "encoding": plan_encoding(largest_sum=1 << 28, max_parties=3, fraction_bits=0),
        "cohort_min": cohorts.smallest,
        "honest_parties": cohorts.honest,
        "features": FEATURES,
        "noise_of_cohort": True,
    }
    return world.query(**fields | changes)


@pytest.fixture
def party(ada) -> Ada:
    """A party that answers statistics of two parties, and assumes that none colludes."""
    ada.policy = ada.world.policy(**POLICY)
    ada.restart()
    return ada


def prepared(party: Ada, others: tuple[str, ...], noise=GAUSSIAN):
    envelope, _ = ready(party, query(party.world, noise))
    return envelope, party.world.cohort(party.hub.answers[-1], others=others)


def uploads(party: Ada, envelope, cohort, own_cohorts=None) -> list[list[bytes]]:
    """What ada uploaded, and what honest peers without rows upload for the cohort that they are shown."""
    opened = party.world.open(envelope)
    kind, made = opened.query.kind, [[sent[0] for _, sent in sorted(party.hub.chunks.items())]]
    for acceptance in cohort.open(party.world.roster):
        if acceptance.party == "ada":
            continue
        shown = (own_cohorts or {}).get(acceptance.party, cohort)
        acceptances = shown.open(party.world.roster)
        values = kind.shares.draw(opened.query.length, SystemRandom())
        bare = encrypted_chunks(opened, values, acceptance.rows, small_obfuscator(opened))
        made.append(
            list(
                masked_chunks(
                    opened,
                    values,
                    bare,
                    own_name=acceptance.party,
                    own_key=party.world.mask_keys[acceptance.party, 1],
                    acceptances=acceptances,
                    cohort_digest=shown.digest,
                    alpha=1,
                    top_up=kind.top_up(opened.query.d, len(acceptances), SystemRandom()),
                )
            )
        )
    return made


def noise_of(party: Ada, envelope, cohort, secret_key) -> np.ndarray:
    """The noise of the encrypted total, in integer units."""
    opened = party.world.open(envelope)
    rows = sum(acceptance.rows for acceptance in cohort.open(party.world.roster))
    total = decode(opened, secret_key, uploads(party, envelope, cohort), rows)
    return total - opened.query.kind.sums(party.records, 0)


def is_enough(noise: np.ndarray, expected: float) -> bool:
    """Whether the empirical deviation is that of the noise that was charged: four of its own standard deviations."""
    kurtosis = 6.0 if np.abs(noise).max() > 5 * noise.std() else 3.0
    return bool(abs(noise.std() / expected - 1) < 4 * np.sqrt((kurtosis - 1) / 4 / len(noise)))


@pytest.mark.variants(1)
@pytest.mark.parametrize("others", [("bo",), ("bo", "cy")])
def test_an_encrypted_total_has_the_noise_that_its_cohort_needs(party, secret_key, others):
    """Two of two honest parties, or three of three, have the same noise together: 2 s^2."""
    envelope, cohort = prepared(party, others)
    party.upload(envelope, cohort)
    assert party.state(envelope) is S.UPLOADED
    found = noise_of(party, envelope, cohort, secret_key)
    assert is_enough(found, (1 << 12) * np.sqrt(2))


@pytest.mark.variants(1)
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_top_up_that_is_left_out_or_half_is_noticed_in_the_total(party, secret_key, monkeypatch, part):
    real = Cohorts.top_up
    monkeypatch.setattr(Cohorts, "top_up", lambda *given: int(part * real(*given)))
    envelope, cohort = prepared(party, ("bo",))
    party.upload(envelope, cohort)
    found = noise_of(party, envelope, cohort, secret_key)
    assert not is_enough(found, (1 << 12) * np.sqrt(2))
    assert found.std() < (1 << 12) * np.sqrt(2)


@pytest.mark.more
def test_laplace_noise_is_topped_up_as_well(party, secret_key):
    envelope, cohort = prepared(party, ("bo",), LAPLACE)
    party.upload(envelope, cohort)
    found = noise_of(party, envelope, cohort, secret_key)
    assert found.std() == pytest.approx(2000 * np.sqrt(2), rel=0.2)
    # Without top-ups it would be root(2/3) of that, and the mean magnitude of a whole Laplace variable is its scale.
    assert np.abs(found).mean() == pytest.approx(2000, rel=0.12)


def test_the_charge_is_the_same_whichever_cohort_answers(party):
    costs = set()
    for others in (("bo",), ("bo", "cy")):
        envelope, cohort = prepared(party, others)
        party.upload(envelope, cohort)
        costs.add(party.ledger.cost(envelope.payload_hash, 1).bound(RECORD))
    assert len(costs) == 1


def test_parties_that_are_shown_different_cohorts_have_no_total(party, secret_key):
    """Ada sees three members and adds less noise, bo sees two: their masks do not cancel."""
    envelope, large = prepared(party, ("bo", "cy"))
    small = Cohort(large.query_id, 1, large.acceptances[:2])
    party.upload(envelope, large)
    assert party.state(envelope) is S.UPLOADED
    opened = party.world.open(envelope)
    own, bo = uploads(party, envelope, small)
    for shown in ([own, bo], uploads(party, envelope, large)[:2]):
        with pytest.raises(TotalError):
            decode(opened, secret_key, shown, len(party.records.features) + 50)


def test_a_second_cohort_after_the_charge_gets_no_second_top_up(party):
    envelope, large = prepared(party, ("bo", "cy"))
    party.upload(envelope, large)
    sent = {key: list(chunks) for key, chunks in party.hub.chunks.items()}
    party.upload(envelope, Cohort(large.query_id, 1, large.acceptances[:2]))
    assert party.hub.chunks == sent
    assert len(party.hub.receipts) == 1


def test_another_cohort_before_the_charge_gets_noise_of_its_own(party, monkeypatch):
    """Nothing has left: a top-up that was made for a cohort which came to nothing is forgotten."""
    envelope, large = prepared(party, ("bo", "cy"))
    small = Cohort(large.query_id, 1, large.acceptances[:2])
    drawn = []
    real = StatisticQuery.top_up
    monkeypatch.setattr(StatisticQuery, "top_up", lambda *given: drawn.append(given[2]) or real(*given))

    def crash(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(party.attempts, "charge", crash)
        with pytest.raises(KeyboardInterrupt):
            party.upload(envelope, small)
    party.restart()
    assert party.hub.chunks == {}
    party.upload(envelope, large)
    assert party.state(envelope) is S.UPLOADED
    assert drawn == [2, 3]


def strangers(party: Ada, *accepted: str) -> None:
    keys = [fingerprint(party.world.party_keys[name].public_bytes) for name in accepted]
    party.lifecycle.follow(party.world.policy(**POLICY, accepted_members=keys))


@pytest.mark.variants(1)
@pytest.mark.parametrize(("noise", "allowed"), [(GAUSSIAN, False), (GaussianShares(1 << 12, ONE_COLLUDER), True)])
def test_members_that_are_not_accepted_count_as_colluding(party, noise, allowed):
    """They would make this party's noise smaller, and none of them need be honest."""
    strangers(party, "bo")
    envelope = party.world.ask(query(party.world, noise))
    party.go(envelope)
    assert party.state(envelope) is (S.READY if allowed else None)
    if not allowed:
        assert party.hub.refusal_code is Code.POLICY_COHORT
    # Noise for the smallest cohort does not depend on them.
    fixed = replace(noise, cohorts=None)
    plain = query(
        party.world, noise, kind=StatisticQuery(AGES, SCHEMA, fixed), features=FEATURES[:1], noise_of_cohort=False
    )
    envelope = party.world.ask(plain)
    assert party.go(envelope)
    assert party.state(envelope) is S.READY


@pytest.mark.more
def test_a_cohort_that_is_padded_with_members_that_are_not_accepted_is_refused(party):
    envelope, large = prepared(party, ("bo", "cy"))
    strangers(party, "bo")
    party.upload(envelope, large)
    assert (party.state(envelope), party.hub.chunks) == (S.ENDED, {})
    assert not party.ledger.is_charged(envelope.payload_hash, 1)


def test_the_members_of_a_cohort_themselves_are_counted(world):
    asked, policy = query(world), world.policy(**POLICY)
    for names in (("ada", "bo"), ("ada", "bo", "cy")):
        check_cohort(policy, world.roster, "ada", names, asked)
    stranger = world.policy(**POLICY, accepted_members=[fingerprint(world.party_keys["bo"].public_bytes)])
    check_cohort(stranger, world.roster, "ada", ("ada", "bo"), asked)
    with pytest.raises(WireError, match="has not accepted 1, and its policy assumes 0 more") as caught:
        check_cohort(stranger, world.roster, "ada", ("ada", "bo", "cy"), asked)
    assert caught.value.code is Code.POLICY_COHORT


def test_a_cohort_that_is_padded_with_an_acceptance_that_its_party_did_not_sign_is_refused(party):
    world = party.world
    for forged in (
        lambda small: world.acceptance(small.query_id, "cy", key=world.party_keys["bo"]),
        lambda _: world.acceptance(b"q" * 32, "cy"),
        lambda small: small.acceptances[1],
    ):
        envelope, _ = ready(party, query(world, predicates=AGES[:3]))
        small = world.cohort(party.hub.answers[-1], others=("bo",))
        padding = forged(small)
        party.upload(envelope, Cohort(small.query_id, 1, (*small.acceptances, padding)))
        assert (party.state(envelope), party.hub.chunks) == (S.ENDED, {})


def test_the_rule_is_signed_and_both_ways_of_saying_it_agree(world):
    followed = query(world)
    assert followed.to_proto().noise_of_cohort
    assert type(followed).from_bytes(followed.to_bytes()) == followed
    assert set(FEATURES) < set(OWN_FEATURES)
    fixed = StatisticQuery(AGES, SCHEMA, replace(GAUSSIAN, cohorts=None))
    other = StatisticQuery(AGES, SCHEMA, GaussianShares(1 << 12, ONE_COLLUDER))
    for wrong in (
        {"features": FEATURES[:1]},
        {"noise_of_cohort": False},
        {"kind": fixed},
        {"kind": other},
        {"kind": fixed, "features": FEATURES[:1]},
        {"kind": fixed, "noise_of_cohort": False},
    ):
        with pytest.raises(WireError, match=r"has its feature|follows its cohorts") as caught:
            query(world, **wrong)
        assert caught.value.code is Code.QUERY_INVALID
    plain = query(world, kind=fixed, features=FEATURES[:1], noise_of_cohort=False)
    assert plain.honest_of(3) == 2
    assert followed.honest_of(3) == 3
