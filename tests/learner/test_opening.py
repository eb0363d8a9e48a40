import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, TotalError
from dpcore.paillier.masks import PRIME, TagError
from dpcore.paillier.packing import CheckSlotError
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from learner.keys import LearnerKey
from learner.opening import CohortError, open_total
from tests.federation.learner import REQUEST, World, encrypt, random_values, to_chunks
from wire.cohort import Cohort
from wire.envelopes import Kind, SigningKey
from wire.errors import Code, WireError
from wire.query import open_query

ROWS = {"ada": 100, "bo": 200, "cy": 300}


class Opening:
    """One query with its total. A test changes a part and opens the total."""

    def __init__(self, world, request=REQUEST, rows=ROWS, attempt=1):
        self.world = world
        self.opened = world.ask(request)
        self.total = world.total(self.opened, rows, attempt=attempt)
        self.contributions = [(random_values(self.opened, seed), m) for seed, m in enumerate(rows.values())]
        self.secret = world.key.secret
        self.ciphertexts = None
        self.progress = None

    def open(self):
        ciphertexts = self.ciphertexts
        if ciphertexts is None:
            tag = self.world.tag(self.opened, self.total.cohort, sum(values for values, _ in self.contributions))
            ciphertexts = encrypt(self.opened, self.contributions, tag)
        return self.open_chunks(to_chunks(self.opened, ciphertexts))

    def open_chunks(self, chunks):
        secret = self.world.openings[self.opened.query_id]
        return open_total(
            self.total, chunks, self.opened, self.world.roster, self.secret, self.progress, opening=secret
        )

    def refuse(self, error):
        """Open the total, expecting a refusal before any chunk is read."""

        def chunks():
            raise AssertionError("a chunk was drawn before everything signed had held")
            yield b""

        with pytest.raises(error) as caught:
            self.open_chunks(chunks())
        return caught.value


@pytest.fixture
def opening(world, small_chunks):
    return Opening(world)


def test_the_total_is_the_sum(opening):
    done = []
    opening.progress = lambda *step: done.append(step)
    result = opening.open()
    assert np.array_equal(result.values, sum(values for values, _ in opening.contributions))
    assert result.rows == 600
    assert [a.party for a in result.acceptances] == ["ada", "bo", "cy"]
    assert opening.opened.chunks > 1
    assert done == [(i, opening.opened.chunks) for i in range(1, opening.opened.chunks + 1)]


@given(data=st.data(), parties=st.integers(2, 5))
def test_any_sums_come_back_exactly(learner_key, data, parties):
    world = World(learner_key, {f"p{i}": None for i in range(parties)})
    request = replace(REQUEST, rados=3, cohort_min=2)
    opened = world.ask(request)
    largest = opened.query.encoding.largest_sum // parties
    vector = st.lists(
        st.integers(-largest, largest) | st.sampled_from([-largest, 0, largest]),
        min_size=opened.query.length,
        max_size=opened.query.length,
    )
    rows = {name: data.draw(st.integers(1, 2000)) for name in world.rows}
    contributions = [(data.draw(vector), m) for m in rows.values()]
    total = world.total(opened, rows)
    sums = np.array([sum(column) for column in zip(*(v for v, _ in contributions), strict=True)])
    chunks = to_chunks(opened, encrypt(opened, contributions, world.tag(opened, total.cohort, sums)))
    secret = world.openings[opened.query_id]
    result = open_total(total, chunks, opened, world.roster, learner_key.secret, opening=secret)
    assert result.values.tolist() == sums.tolist()


def test_a_total_of_a_part_of_the_cohort(opening):
    opening.contributions.pop()
    with pytest.raises(CheckSlotError) as caught:
        opening.open()
    assert (caught.value.ciphertext, caught.value.expected_rows) == (0, 600)
    assert caught.value.found_rows != 600


def test_a_contribution_that_counts_twice(opening):
    opening.contributions.append(opening.contributions[0])
    with pytest.raises(CheckSlotError):
        opening.open()


def test_a_single_ciphertext_that_counts_twice_is_named(opening):
    once, alone = encrypt(opening.opened, opening.contributions), encrypt(opening.opened, opening.contributions[:1])
    last = opening.opened.value_ciphertexts - 1
    assert last > 0
    once[last] = once[last] * alone[last] % opening.opened.public_key.n_squared
    opening.ciphertexts = once
    with pytest.raises(CheckSlotError, match=f"ciphertext {last} counts") as caught:
        opening.open()
    assert caught.value.ciphertext == last


def test_other_rows_than_the_cohort_signed(opening):
    opening.contributions[0] = (opening.contributions[0][0], 101)
    with pytest.raises(CheckSlotError) as caught:
        opening.open()
    assert caught.value.found_rows == 601


def test_another_key(opening):
    opening.secret = SecretKey.generate(SystemRandom(), bits=2048)
    assert "give the file of the key" in str(opening.refuse(ConfigurationError))


@pytest.mark.parametrize("drop", [0, 1, 2])
def test_a_missing_receipt(opening, drop):
    kept = tuple(r for i, r in enumerate(opening.total.receipts) if i != drop)
    opening.total = replace(opening.total, receipts=kept)
    assert opening.refuse(WireError).code is Code.RECEIPT_INVALID


def test_a_receipt_in_the_place_of_another(opening):
    first, _, last = opening.total.receipts
    opening.total = replace(opening.total, receipts=(first, first, last))
    assert opening.refuse(WireError).code is Code.RECEIPT_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": 2},
        {"query_id": bytes(32)},
        {"cohort_digest": bytes(32)},
        {"chunks": 1},
        {"ciphertexts": 1},
    ],
)
def test_a_receipt_for_something_else(opening, change):
    receipt = opening.world.receipt(opening.opened, opening.total.cohort, "bo", **change)
    first, _, last = opening.total.receipts
    opening.total = replace(opening.total, receipts=(first, receipt, last))
    assert opening.refuse(WireError).code is Code.RECEIPT_INVALID


def test_a_receipt_that_another_signed(opening):
    receipt = opening.world.receipt(opening.opened, opening.total.cohort, "bo", key=opening.world.party_keys["ada"])
    first, _, last = opening.total.receipts
    opening.total = replace(opening.total, receipts=(first, receipt, last))
    assert opening.refuse(WireError).code is Code.SIGNATURE_INVALID


def with_cohort(opening, acceptances, attempt=1):
    cohort = Cohort(opening.opened.query_id, attempt, tuple(acceptances))
    opening.total = replace(opening.total, cohort=cohort)


def test_a_cohort_with_a_stranger(opening):
    stranger = opening.world.acceptance(opening.opened, "mallory", 10, key=SigningKey.generate("clinics"))
    with_cohort(opening, [*opening.total.cohort.acceptances[:2], stranger])
    assert opening.refuse(WireError).code is Code.PEER_UNKNOWN


def test_a_cohort_with_a_stranger_under_a_members_name(opening):
    forged = opening.world.acceptance(opening.opened, "cy", 300, key=SigningKey.generate("clinics"))
    with_cohort(opening, [*opening.total.cohort.acceptances[:2], forged])
    assert opening.refuse(WireError).code is Code.SIGNATURE_INVALID


def test_a_cohort_with_the_learner_in_it(opening):
    own = opening.world.acceptance(opening.opened, "learner", 10, key=opening.world.learner_key)
    with_cohort(opening, [*opening.total.cohort.acceptances[:2], own])
    assert opening.refuse(WireError).code is Code.PEER_UNKNOWN


def test_a_member_that_is_listed_twice(opening):
    with_cohort(opening, [*opening.total.cohort.acceptances, opening.total.cohort.acceptances[0]])
    # The count is checked after the signatures and the names.
    assert opening.refuse(WireError).code is Code.MESSAGE_MALFORMED


def test_an_acceptance_of_another_attempt(opening):
    other = opening.world.acceptance(opening.opened, "cy", 300, attempt=2)
    with_cohort(opening, [*opening.total.cohort.acceptances[:2], other])
    assert opening.refuse(WireError).code is Code.ATTEMPT_MISMATCH


def test_a_cohort_of_another_query(opening):
    other = opening.world.ask()
    opening.total = opening.world.total(other, ROWS)
    assert "another query's" in str(opening.refuse(CohortError))


def test_a_cohort_that_is_too_small(opening):
    opening.total = opening.world.total(opening.opened, {"ada": 100, "bo": 200})
    assert "2 parties and the query allows 3 to 3" in str(opening.refuse(CohortError))


def test_a_cohort_that_is_too_large(world):
    opening = Opening(world, replace(REQUEST, max_parties=2, colluders=0))
    assert "3 parties and the query allows 2 to 2" in str(opening.refuse(CohortError))


def test_a_cohort_with_too_many_rows(opening):
    opening.total = opening.world.total(opening.opened, {"ada": 9000, "bo": 1000, "cy": 1})
    assert "10001 rows and the query allows 1 to 10000" in str(opening.refuse(CohortError))
    opening.total = opening.world.total(opening.opened, {"ada": 9000, "bo": 999, "cy": 1})
    opening.contributions = [(values, m) for (values, _), m in zip(opening.contributions, (9000, 999, 1), strict=True)]
    assert opening.open().rows == 10_000


def test_attempts_beyond_the_query(world):
    assert Opening(world, attempt=3).open().rows == 600
    opening = Opening(world, attempt=4)
    assert "attempt's number and the query allows 1 to 3" in str(opening.refuse(CohortError))


@pytest.mark.parametrize("change", [{"chunks": 1}, {"ciphertexts": 2}])
def test_a_total_of_another_size(opening, change):
    opening.total = replace(opening.total, **change)
    assert "discard it" in str(opening.refuse(TotalError))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda key, secret: 0, "is not between 0 and n"),
        (lambda key, secret: key.n_squared, "is not between 0 and n"),
        (lambda key, secret: secret.p, "shares a factor with n"),
    ],
)
def test_a_bad_ciphertext_is_named(opening, make, says):
    opening.ciphertexts = encrypt(opening.opened, opening.contributions)
    opening.ciphertexts[2] = make(opening.opened.public_key, opening.secret)
    with pytest.raises(TotalError, match=f"ciphertext 2 of the total {says}"):
        opening.open()


def test_chunks_of_the_wrong_length(opening):
    chunks = to_chunks(opening.opened, encrypt(opening.opened, opening.contributions))
    for spoilt in ([chunks[0][:-1], *chunks[1:]], [chunks[0], chunks[1] + chunks[0]], [*chunks, chunks[0]]):
        with pytest.raises(TotalError, match="fetch it again"):
            opening.open_chunks(spoilt)
    with pytest.raises(TotalError, match="fetch them all"):
        opening.open_chunks(chunks[:-1])


def test_a_random_ciphertext_is_not_a_total(opening):
    opening.ciphertexts = encrypt(opening.opened, opening.contributions)
    opening.ciphertexts[0] = pow(3, 12_345, opening.opened.public_key.n_squared)
    with pytest.raises(TotalError):
        opening.open()


@pytest.mark.more
def test_full_strength(world):
    key = LearnerKey(SecretKey.generate(SystemRandom(), bits=3072), int(time.time()))
    opening = Opening(World(key, dict(world.rows)))
    assert opening.opened.public_key.bits == 3072
    result = opening.open()
    assert np.array_equal(result.values, sum(values for values, _ in opening.contributions))


def test_a_total_with_another_tag_is_not_opened(world, small_chunks):
    plan = world.plan()
    opened = open_query(world.learner_key.sign(Kind.QUERY, plan.query.to_bytes()), world.roster, now_unix_s=time.time())
    total = world.total(opened, ROWS)
    contributions = [(random_values(opened, seed), m) for seed, m in enumerate(ROWS.values())]
    values = sum(values for values, _ in contributions)
    tag = world.tag(opened, total.cohort, values)

    def opening(found):
        chunks = to_chunks(opened, encrypt(opened, contributions, found))
        return open_total(total, chunks, opened, world.roster, world.key.secret, opening=plan.opening)

    assert np.array_equal(opening(tag).values, values)
    with pytest.raises(TagError):
        opening((tag + 1) % PRIME)
