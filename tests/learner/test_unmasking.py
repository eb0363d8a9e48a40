"""A total of the members that uploaded opens, whatever shares are bad as long as enough are good, and no other does."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.errors import TotalError
from dpcore.paillier.masks import TagError
from dpcore.paillier.packing import CheckSlotError
from dpcore.queries.statement import statement_for
from learner.decryption import CohortError
from learner.release import Release, ReleaseError
from learner.unmasking import UnmaskingError
from tests.federation.learner import REQUEST, World
from tests.federation.vanishing import VanishingTotal
from wire.errors import WireError
from wire.query import setting_of
from wire.statements import sign

ROWS = {"ada": 100, "bo": 200, "cy": 300, "dee": 400, "eve": 500}
VANISHING = replace(REQUEST, may_vanish=1, cohort_min=3, rados=4)


@pytest.fixture
def world(learner_key):
    return World(learner_key, dict(ROWS))


@pytest.fixture
def opened(world):
    return world.ask(VANISHING)


def check(result, made, names):
    assert [each.party for each in result.acceptances] == list(names)
    assert result.rows == sum(ROWS[name] for name in names)
    assert np.array_equal(result.values, sum(made.values[name] for name in names))


def test_a_total_of_all_and_one_without_a_member_open(world, opened):
    everyone = VanishingTotal(world, opened, tuple(ROWS))
    check(everyone.make(), everyone, ROWS)
    others = VanishingTotal(world, opened, ("ada", "bo", "dee", "eve"))
    check(others.make(), others, others.survivors)


def test_a_member_that_was_not_ready_counts_among_those_that_may_vanish(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "eve"), ("ada", "bo", "cy", "eve"))
    check(made.make(), made, made.members)


def test_a_share_that_is_bad_is_named_and_another_takes_its_place(world, opened, caplog):
    made = VanishingTotal(world, opened, tuple(ROWS))
    shares = made.shares("bo")
    shares[3] = bytes(33)
    given = [made.unmasking(name) for name in ("ada", "cy", "dee", "eve")] + [made.unmasking("bo", shares)]
    with caplog.at_level(logging.WARNING):
        check(made.make(unmaskings=given), made, ROWS)
    assert "shares are bad" in caplog.text
    assert "{'dee': ['bo']}" in str(caplog.records[-1].__dict__)


@pytest.mark.parametrize("wrong", ["seal", "length"])
def test_without_enough_good_shares_the_bad_member_is_named(world, opened, wrong):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    shares = made.shares("bo")
    bad = made.unmasking("bo", shares[:-1] if wrong == "length" else shares)
    if wrong == "seal":
        bad = replace(bad, sealed=bad.sealed[:-1] + bytes([bad.sealed[-1] ^ 1]))
    given = [*(made.unmasking(name) for name in ("ada", "cy", "dee")), bad]
    with pytest.raises(UnmaskingError, match=r"3 shares of .* 4 are needed \(those of bo are bad\)") as caught:
        made.make(unmaskings=given)
    assert caught.value.members == ("bo",)


def test_a_share_that_is_not_what_its_dealer_signed_names_both(world, opened):
    """Either of them may have changed it: cy seals another share for bo than it signs, or bo gives another one."""
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    signed, sealed = made.key_shares["cy"], made.dealt("cy").sealed
    made.key_shares["cy"] = replace(signed, sealed=(signed.sealed[0], sealed[1], *signed.sealed[2:]))
    with pytest.raises(UnmaskingError, match="those that bo gave are not what cy signed, so cy or who gave") as dealt:
        made.make()
    made.key_shares["cy"] = signed
    shares = made.shares("bo")
    shares[2] = bytes(33)
    given = [*(made.unmasking(name) for name in ("ada", "cy", "dee")), made.unmasking("bo", shares)]
    with pytest.raises(UnmaskingError) as changed:
        made.make(unmaskings=given)
    assert str(changed.value) == str(dealt.value), "the learner sees no difference"
    assert dealt.value.members == changed.value.members == ("bo", "cy")


def test_a_bad_share_of_its_own_names_a_member(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    shares = made.shares("bo")
    shares[1] = bytes(33)
    given = [*(made.unmasking(name) for name in ("ada", "cy", "dee")), made.unmasking("bo", shares)]
    with pytest.raises(UnmaskingError, match="not what bo signed, so bo is at fault") as caught:
        made.make(unmaskings=given)
    assert caught.value.members == ("bo",)


def test_a_member_whose_shares_are_of_no_secret_of_its_own_is_named(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    honest = made.key_shares["cy"]
    made.key_shares["cy"] = replace(made.dealt("cy", seed=b"x" * 32), self_commitment=honest.self_commitment)
    with pytest.raises(UnmaskingError, match="what cy dealt of its keys is no secret of its own") as caught:
        made.make()
    assert caught.value.members == ("cy",)
    made.key_shares["cy"] = honest
    made.key_shares["eve"] = made.dealt("eve", mask_key=X25519PrivateKey.generate().private_bytes_raw())
    with pytest.raises(UnmaskingError, match="what eve dealt"):
        made.make()


def test_a_share_that_a_member_could_not_open_says_nothing_of_it(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    shares = made.shares("bo")
    shares[0] = None
    given = [*(made.unmasking(name) for name in ("ada", "cy", "dee")), made.unmasking("bo", shares)]
    with pytest.raises(UnmaskingError, match=r"3 shares of ada's keys are good and 4 are needed:") as caught:
        made.make(unmaskings=given)
    assert caught.value.members == ("ada",)


def test_shares_of_no_one_secret_name_their_dealer(world, opened):
    """Each share fits its commitment, and together they give a number beyond a secret, or another one."""
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    first, second = made.dealt("cy"), made.dealt("cy")
    mixed = {
        field: (*getattr(first, field)[:2], *getattr(second, field)[2:])
        for field in ("sealed", "self_shares", "key_shares")
    }
    made.key_shares["cy"] = replace(first, **mixed)
    with pytest.raises(UnmaskingError, match="what cy dealt"):
        made.make()


def test_statements_that_are_not_of_the_total_are_refused(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    other = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    signed = {name: made.unmasking(name) for name in made.survivors}

    def refused(sentence, change=lambda total: total, error=(TotalError, WireError), unmaskings=None):
        with pytest.raises(error, match=sentence):
            made.make(change, unmaskings)

    refused("not of its sharing", lambda t: replace(t, sharing=other.sharing))
    reordered = replace(made.sharing, acceptances=made.sharing.acceptances[::-1])
    refused("not of its sharing", lambda t: replace(t, sharing=reordered))
    refused("does not say who had accepted", lambda t: replace(t, sharing=None), CohortError)
    refused("another attempt", lambda t: replace(t, sharing=replace(t.sharing, attempt=2)), CohortError)
    refused("in its order", lambda t: replace(t, survivors=t.survivors[::-1], receipts=t.receipts[::-1]))
    refused(
        "4 are needed",
        lambda t: replace(t, survivors=t.survivors[1:], receipts=t.receipts[1:], unmaskings=t.unmaskings[1:]),
    )
    refused("not one receipt", lambda t: replace(t, receipts=t.receipts[1:]))
    refused("4 statements of shares", lambda t: replace(t, key_shares=t.key_shares[1:]))
    forged = replace(made.sharing.acceptances[0], signature=bytes(64))
    refused("6 statements of shares", lambda t: replace(t, key_shares=(*t.key_shares, forged)), UnmaskingError)
    refused("6 unmaskings of a", lambda t: replace(t, unmaskings=(*t.unmaskings, forged, forged)), UnmaskingError)
    refused("shares that every member", lambda t: replace(t, key_shares=t.key_shares[::-1]))
    refused("has 3 unmaskings and needs 4", lambda t: replace(t, unmaskings=t.unmaskings[1:]))
    refused("an unmasking twice", lambda t: replace(t, unmaskings=(*t.unmaskings, t.unmaskings[0])))
    refused(
        "for other survivors",
        unmaskings=[*list(signed.values())[1:], replace(signed["ada"], survivors_digest=bytes(32))],
    )
    refused(
        "for other survivors", unmaskings=[*list(signed.values())[1:], replace(signed["ada"], cohort_digest=bytes(32))]
    )
    refused("no survivor", unmaskings=[*list(signed.values())[1:], made.unmasking("eve")])
    made.key_shares["ada"] = replace(made.key_shares["ada"], sharing_digest=bytes(32))
    refused("shares that every member")


def test_a_cohort_with_an_acceptance_that_is_not_in_its_sharing_is_refused(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "cy", "dee"))
    other = sign(replace(made.acceptances["eve"], rows=501), world.party_keys["eve"])
    made.cohort = replace(made.cohort, acceptances=(*made.cohort.acceptances[:-1], other))
    with pytest.raises(UnmaskingError, match="not of its sharing"):
        made.make()


def test_a_total_of_a_query_whose_members_may_not_vanish_has_no_survivors(world):
    opened = world.ask(replace(VANISHING, may_vanish=None))
    made = VanishingTotal(world, opened, tuple(ROWS))
    with pytest.raises(CohortError, match="the query does not allow that"):
        made.make()
    with pytest.raises(CohortError, match="the query does not allow that"):
        made.make(lambda t: replace(t, survivors=()))
    made.cohort = replace(made.cohort, sharing_digest=b"")
    with pytest.raises(CohortError, match="the query does not allow that"):
        made.make()


def test_a_member_of_the_sharing_without_a_share_key_is_refused(world, opened):
    made = VanishingTotal(world, opened, tuple(ROWS))
    bare = sign(replace(made.acceptances["eve"], share_key=b""), world.party_keys["eve"])
    made.sharing = replace(made.sharing, acceptances=(*made.sharing.acceptances[:-1], bare))
    made.cohort = replace(made.cohort, acceptances=(*made.cohort.acceptances[:-1], bare))
    made.cohort = replace(made.cohort, sharing_digest=made.sharing.digest)
    with pytest.raises(UnmaskingError, match="no share key"):
        made.make(unmaskings=[])


def test_the_sum_over_other_members_than_the_survivors_does_not_open(world, opened):
    """A coordinator that adds up fewer or other uploads than it says gets no total accepted."""
    made = VanishingTotal(world, opened, tuple(ROWS))
    uploads = made.uploads()
    made.uploads = lambda: {**uploads, "ada": uploads["bo"]}
    with pytest.raises((CheckSlotError, TagError)):
        made.make()


def released(world, opened, made, result, **changes):
    query = opened.query
    rows = [each.rows for each in result.acceptances]
    fields = {
        "query_envelope": opened.envelope,
        "roster_envelope": world.roster_envelope,
        "cohort": made.cohort,
        "receipts": made.receipts,
        "statement": statement_for(query.kind, rows, query.delta, schema=query.schema, setting=setting_of(query)),
        "created_at_unix_s": 1_800_000_000,
        "integers": result.values.reshape(query.kind.shape(query.d)),
        "survivors": made.survivors,
    }
    return Release(**fields | changes)


def test_a_release_says_which_members_it_is_of(world, opened, tmp_path):
    made = VanishingTotal(world, opened, ("ada", "bo", "dee", "eve"))
    release = released(world, opened, made, made.make())
    assert (list(release.party_rows), release.vanished) == (["ada", "bo", "dee", "eve"], ("cy",))
    assert release.cohort_rows == 1200
    release.verify(world.federation_key.public_bytes)
    release.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    assert (loaded.survivors, loaded.vanished, loaded.digest) == (made.survivors, ("cy",), release.digest)
    loaded.verify(world.federation_key.public_bytes)


def test_a_release_of_other_members_than_its_cohort_has_is_refused(world, opened):
    made = VanishingTotal(world, opened, ("ada", "bo", "dee", "eve"))
    result = made.make()
    for survivors in ((), ("ada", "bo", "dee", "zoe")):
        with pytest.raises(ReleaseError, match="not those of its cohort"):
            released(world, opened, made, result, survivors=survivors)
    few = released(world, opened, made, result, survivors=("ada", "bo"), receipts=made.receipts[:2])
    with pytest.raises(WireError, match="3 are needed"):
        few.verify(world.federation_key.public_bytes)
    other = released(world, opened, made, result, receipts=made.receipts[::-1])
    with pytest.raises(WireError, match="do not match"):
        other.verify(world.federation_key.public_bytes)
