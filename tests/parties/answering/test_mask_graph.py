"""A party in a cohort whose members do not share masks with all: what it sends, and cohorts that divide its masks.

The coordinator is hostile here: it orders the acceptances of a cohort as it likes, and so chooses among orders.
"""

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.paillier.mask_graph import MaskGraph
from dpcore.paillier.masks import CohortAttempt, cohort_mask
from dpcore.paillier.packing import unpack_total
from dpcore.predicates.expressions import AtLeast
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import plain_design
from parties.answering import decisions
from parties.answering.attempts import AttemptState
from parties.answering.contribution import encrypted_chunks, masked_chunks
from parties.policy import check_masks, check_query
from tests.federation.party import FEDERATION, SCHEMA, Ada, World
from tests.parties.answering.test_contribution import decode, small_obfuscator
from wire.envelopes import SigningKey, fingerprint
from wire.errors import Code, WireError
from wire.features import Feature
from wire.statements import Acceptance, Cohort

pytestmark = pytest.mark.usefixtures("small_comb")
MEMBERS, STRANGERS, NEIGHBOURS = 60, ("p57", "p58", "p59"), 20
NAMES = ("ada", *(f"p{place:02}" for place in range(1, MEMBERS)))
FEATURES = (Feature.BASE.value, Feature.MASK_GRAPH.value)
ENCODING = plan_encoding(largest_sum=10_000 << 16, max_parties=MEMBERS, fraction_bits=16)


@pytest.fixture(scope="module")
def keys():
    return {name: SigningKey.generate(FEDERATION) for name in NAMES}


@pytest.fixture
def world(secret_key, keys):
    return World(secret_key, party_keys=dict(keys))


def asked(world: World, honest: int, **changes):
    """Of 60 parties, all but `honest` of whom may collude."""
    fields = {
        "max_rows": 10_000,
        "max_parties": MEMBERS,
        "cohort_min": honest + 1,
        "honest_parties": honest,
        "encoding": ENCODING,
        "mask_neighbours": NEIGHBOURS,
        "features": FEATURES,
    }
    return world.query(**{"kind": RadosQuery(8, plain_design(SCHEMA))} | fields | changes)


def wary(ada: Ada) -> Ada:
    """Ada, who has not accepted three of the parties."""
    accepted = [fingerprint(key.public_bytes) for name, key in ada.world.party_keys.items() if name not in STRANGERS]
    ada.policy = ada.world.policy(accepted_members=accepted)
    ada.restart()
    return ada


def prepared(ada: Ada, honest: int, **changes):
    envelope = ada.world.ask(asked(ada.world, honest, **changes))
    assert ada.go(envelope)
    assert ada.state(envelope) is AttemptState.READY
    return envelope, ada.world.cohort(ada.hub.answers[-1], others=NAMES[1:])


def graph_of(cohort: Cohort) -> MaskGraph:
    return MaskGraph.of([Acceptance.from_bytes(each.payload).party for each in cohort.acceptances], cohort.digest, 20)


def ordered_so_that(cohort: Cohort, wanted: Callable[[MaskGraph], bool]) -> Cohort:
    """What a coordinator does that wants an order: it tries, as the order of acceptances is its own choice."""
    draw = random.Random(1)
    for _ in range(20_000):
        shuffled = Cohort(cohort.query_id, 1, tuple(draw.sample(cohort.acceptances, len(cohort.acceptances))))
        if wanted(graph_of(shuffled)):
            return shuffled
    raise AssertionError("no order was found")


def known_to(world: World, opened, cohort: Cohort, coalition: set[str]) -> np.ndarray:
    """The part of ada's mask that some members can compute, with their mask keys."""
    public = {a.party: a.mask_key for a in cohort.open(world.roster)}["ada"]
    shape = (opened.value_ciphertexts, ENCODING.slots_per_ciphertext(opened.public_key.bits))
    attempt = CohortAttempt(opened.query_id, 1, cohort.digest)
    own = (
        cohort_mask(
            name, world.mask_keys[name, 1], {"ada": public}, attempt, shape=shape, value_bits=ENCODING.value_bits
        )
        for name in coalition
    )
    return -sum(own)


def without(opened, secret_key, chunks: list[bytes], mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and row counts of one decrypted upload less a mask, centred."""
    ciphertexts = [each for chunk in chunks for each in opened.public_key.from_wire(chunk)]
    plaintexts = secret_key.decrypt_many(ciphertexts)[: opened.value_ciphertexts]
    length = opened.query.length
    values, rows = unpack_total(plaintexts, length, 1, ENCODING, opened.public_key.bits)
    half, modulus = 1 << (ENCODING.value_bits - 1), 1 << ENCODING.value_bits
    masks = mask[:, 1:].reshape(-1)[:length].astype(np.int64)
    return (values - masks + half) % modulus - half, (rows - mask[:, 0].astype(np.int64) + half) % modulus - half


def test_what_a_party_sends_adds_up_with_what_its_neighbours_send(ada, secret_key, monkeypatch):
    """All 60 members follow one graph. Other streams than those of a member's neighbours do not cancel."""
    monkeypatch.setattr("parties.answering.lifecycle.integer_vector", lambda opened, *_: np.arange(opened.query.length))
    envelope, cohort = prepared(ada, 45)
    ada.upload(envelope, cohort)
    assert ada.state(envelope) is AttemptState.UPLOADED
    opened, acceptances = ada.world.open(envelope), cohort.open(ada.world.roster)
    obfuscator = small_obfuscator(opened)
    uploads = [[sent[0] for _, sent in sorted(ada.hub.chunks.items())]]
    for acceptance in acceptances[1:]:
        values = np.ones(opened.query.length, dtype=np.int64)
        uploads.append(
            list(
                masked_chunks(
                    opened,
                    values,
                    encrypted_chunks(opened, values, acceptance.rows, obfuscator),
                    own_name=acceptance.party,
                    own_key=ada.world.mask_keys[acceptance.party, 1],
                    acceptances=acceptances,
                    cohort_digest=cohort.digest,
                    alpha=1,
                )
            )
        )
    total = decode(opened, secret_key, uploads, sum(acceptance.rows for acceptance in acceptances))
    assert (total == np.arange(opened.query.length) + MEMBERS - 1).all()
    neighbours = known_to(ada.world, opened, cohort, set(graph_of(cohort).peers("ada")))
    values, rows = without(opened, secret_key, uploads[0], neighbours & np.uint64((1 << ENCODING.value_bits) - 1))
    assert (values == np.arange(opened.query.length)).all()
    assert (rows == ada.records.rows).all()


def test_a_query_that_its_largest_cohort_would_divide_is_refused_before_anything_is_reserved(ada):
    """41 accepted members may collude, and 20 divide the others."""
    envelope = ada.world.ask(asked(ada.world, 19))
    assert not ada.go(envelope)
    assert (ada.hub.refusal_code, ada.state(envelope)) == (Code.MASKS_TOO_FEW, None)
    # One more honest party is one colluder less.
    for honest, refused in ((40, True), (41, False)):
        opened = ada.world.open(ada.world.ask(asked(ada.world, honest)))
        policy = ada.world.policy()
        if refused:
            with pytest.raises(WireError, match=r"of which 20 may collude\. As each shares masks with 20 others"):
                check_query(policy, opened, ada.world.roster, "ada")
        else:
            check_query(policy, opened, ada.world.roster, "ada")
    # With masks between every two it is accepted.
    complete = asked(ada.world, 19, mask_neighbours=0, features=FEATURES[:1])
    check_query(ada.world.policy(), ada.world.open(ada.world.ask(complete)), ada.world.roster, "ada")


def followed(world: World, colluders: int):
    """A statistic of 40 to 60 parties whose noise is that of the cohort that answers."""
    cohorts = Cohorts(40, 40 - colluders, MEMBERS)
    noise = GaussianShares(1 << 12, cohorts)
    return asked(
        world,
        cohorts.honest,
        cohort_min=40,
        kind=StatisticQuery((AtLeast("age", Fraction(30)),), SCHEMA, noise),
        encoding=plan_encoding(largest_sum=1 << 28, max_parties=MEMBERS, fraction_bits=0),
        noise_of_cohort=True,
        features=tuple(sorted((*FEATURES, Feature.COHORT_NOISE.value))),
    )


@pytest.mark.parametrize(("colluders", "passes"), [(19, True), (20, False)])
def test_noise_of_the_cohort_counts_on_all_but_its_colluders(world, colluders, passes):
    """Of 60 as of 40 parties so many may collude, so a part that they cut off would lack noise."""
    query, policy = followed(world, colluders), world.policy(designs=["statistic"])
    for members in (NAMES, NAMES[:45]):
        for digest in (b"1" * 32, b"2" * 32):
            if passes:
                check_masks(policy, world.roster, "ada", members, query, digest)
                continue
            with pytest.raises(WireError) as caught:
                check_masks(policy, world.roster, "ada", members, query, digest)
            assert caught.value.code is Code.MASKS_TOO_FEW
    # Noise for the smallest cohort counts on 40 less the colluders, also of 60: many more may collude.
    fixed = asked(world, 40 - colluders, cohort_min=40)
    with pytest.raises(WireError) as caught:
        check_masks(policy, world.roster, "ada", NAMES, fixed, b"1" * 32)
    assert caught.value.code is Code.MASKS_TOO_FEW


def test_another_attempt_has_another_order(world):
    envelope = world.ask(asked(world, 45))
    first, second = (
        Cohort(envelope.payload_hash, attempt, tuple(world.acceptance(envelope.payload_hash, name) for name in NAMES))
        for attempt in (1, 2)
    )
    assert graph_of(first).order != graph_of(second).order


def is_alone(graph: MaskGraph) -> bool:
    """Whether all that ada has not accepted are her neighbours: with 17 others they share all her masks."""
    return set(STRANGERS) <= set(graph.peers("ada"))


def test_an_order_in_which_a_party_is_cut_off_is_refused_uncharged(ada):
    """Three strangers and 17 of the others may collude, and are all her neighbours."""
    envelope, cohort = prepared(wary(ada), 40)
    chosen = ordered_so_that(cohort, is_alone)
    assert graph_of(chosen).connectivity(set(NAMES) - set(STRANGERS)) == 17
    ada.upload(envelope, chosen)
    assert (ada.state(envelope), ada.hub.chunks, ada.hub.receipts) == (AttemptState.ENDED, {}, [])
    assert not ada.ledger.is_charged(envelope.payload_hash, 1)
    assert ada.hub.accepted == [True, False]
    refusal = ada.hub.answers[-1]
    assert b"MASKS_TOO_FEW" in refusal.payload


def test_without_the_check_her_neighbours_open_her_sum(ada, secret_key, monkeypatch):
    monkeypatch.setattr(decisions, "check_masks", lambda *_: None)
    monkeypatch.setattr("parties.answering.lifecycle.integer_vector", lambda opened, *_: np.arange(opened.query.length))
    envelope, cohort = prepared(wary(ada), 40)
    chosen = ordered_so_that(cohort, is_alone)
    ada.upload(envelope, chosen)
    assert ada.state(envelope) is AttemptState.UPLOADED
    opened, coalition = ada.world.open(envelope), set(graph_of(chosen).peers("ada"))
    assert len(coalition - set(STRANGERS)) == len(NAMES) - len(STRANGERS) - opened.query.honest_parties
    sent = [sent[0] for _, sent in sorted(ada.hub.chunks.items())]
    known = known_to(ada.world, opened, chosen, coalition) & np.uint64((1 << ENCODING.value_bits) - 1)
    values, rows = without(opened, secret_key, sent, known)
    assert (values == np.arange(opened.query.length)).all()
    assert (rows == ada.records.rows).all()


def test_in_another_order_of_the_same_acceptances_it_sends(ada):
    accepted = set(NAMES) - set(STRANGERS)
    envelope, cohort = prepared(wary(ada), 40)
    chosen = ordered_so_that(cohort, lambda graph: graph.connectivity(accepted) > 17)
    ada.upload(envelope, chosen)
    assert ada.state(envelope) is AttemptState.UPLOADED


CUTS = {
    "one party alone": lambda places: {(places["ada"] + step) % MEMBERS for step in range(-10, 11)} - {places["ada"]},
    "two arcs": lambda places: {(places["ada"] + 5 + step) % MEMBERS for step in (*range(10), *range(30, 40))},
}


@pytest.mark.parametrize("cut", CUTS)
def test_no_order_with_which_the_accepted_are_divided_passes(world, cut):
    """Three of those who divide them are strangers, and as many of the others may collude."""
    query, few = asked(world, 40), asked(world, 3)
    complete = asked(world, 40, mask_neighbours=0, features=FEATURES[:1])
    for seed in range(12):
        digest = seed.to_bytes(32, "big")
        graph = MaskGraph.of(NAMES, digest, NEIGHBOURS)
        places = {name: place for place, name in enumerate(graph.order)}
        divides = [graph.order[place] for place in CUTS[cut](places)]
        strangers = set(random.Random(seed).sample(divides, 3)) - {"ada"}
        inside = [fingerprint(world.party_keys[name].public_bytes) for name in NAMES if name not in strangers]
        policy = world.policy(accepted_members=inside)
        with pytest.raises(WireError) as caught:
            check_masks(policy, world.roster, "ada", NAMES, query, digest)
        assert caught.value.code is Code.MASKS_TOO_FEW
        # Of the same members in a complete graph, and of a cohort that is small enough for one.
        check_masks(policy, world.roster, "ada", NAMES, complete, digest)
        check_masks(policy, world.roster, "ada", NAMES[:21], few, digest)


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 5), st.integers(30, 57))
def test_what_passes_no_coalition_of_the_allowed_size_divides(secret_key, keys, digest, strangers, honest):
    """The check, and then the best coalitions: all members of any two runs that it can empty."""
    world = World(secret_key, party_keys=keys)
    query = asked(world, honest)
    outside = set(random.Random(digest).sample(NAMES[1:], strangers))
    inside = [fingerprint(keys[name].public_bytes) for name in NAMES if name not in outside]
    try:
        check_masks(world.policy(accepted_members=inside), world.roster, "ada", NAMES, query, digest)
    except WireError:
        return
    graph = MaskGraph.of(NAMES, digest, NEIGHBOURS)
    leaving = len(NAMES) - strangers - honest
    for first in range(MEMBERS):
        for second in range(first + 11, min(first + MEMBERS - 10, MEMBERS)):
            runs = {(start + step) % MEMBERS for start in (first, second) for step in range(10)}
            gone = {graph.order[place] for place in runs}
            between = {graph.order[place] for place in range(first + 10, second)} - outside - gone
            rest = set(NAMES) - outside - gone - between
            if between and rest:
                assert len(gone - outside) > leaving


def test_members_that_disagree_on_the_degree_mask_for_different_queries(world):
    """It is signed with the query, whose hash is in every mask."""
    few, many = (world.open(world.ask(asked(world, 45, mask_neighbours=k, nonce=b"n" * 16))) for k in (20, 22))
    assert few.query_id != many.query_id
    masks = ({"features": FEATURES[:1]}, {"mask_neighbours": 0}, {"mask_neighbours": 21}, {"mask_neighbours": 18})
    for wrong in masks:
        with pytest.raises(WireError, match="mask_neighbours") as caught:
            asked(world, 45, **wrong)
        assert caught.value.code is Code.QUERY_INVALID
