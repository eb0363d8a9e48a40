"""The vectors from three parties' rows to a learner's answer, with our own code at every step."""

import json
from fractions import Fraction

import gmpy2
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import PRIME, CohortAttempt, cohort_mask, pad, polynomial, tag_mask
from dpcore.paillier.packing import mask_addends, pack
from dpcore.paillier.public import multiply
from dpcore.paillier.secret import SecretKey
from dpcore.records.records import Records
from learner.decryption import open_total
from parties.answering.contribution import tag_coefficient
from radofed.conformance.contribution import Peers, open_contribution
from tests.protocol.test_protocol_vectors import FEDERATION_KEY, GOOD, envelope
from tests.protocol.test_record_vectors import VECTORS, script, stored
from tests.protocol.vector_keys import signing_key
from wire.binding import OpeningSecret
from wire.query import open_query, setting_of
from wire.roster import open_roster
from wire.statements import Acceptance, Cohort
from wire.status import Total

ANSWER = json.loads((VECTORS / "answer.json").read_text())
KINDS = ("moments", "statistic")


def test_the_file_is_what_its_script_writes():
    made = script("make_answer_vectors")
    for name, make in made.FILES.items():
        assert (VECTORS / name).read_text() == made.base.text(make())


@pytest.fixture(scope="module")
def secret():
    return SecretKey(int(ANSWER["p"], 16), int(ANSWER["q"], 16))


def opened_query(vector):
    roster = open_roster(envelope(GOOD["roster"]), FEDERATION_KEY)
    opened = open_query(envelope(vector["query"]), roster, now_unix_s=ANSWER["now_unix_s"])
    assert opened.query_id.hex() == vector["query"]["query_id"]
    return opened, roster


def records_of(schema, member, tmp_path):
    block = stored(schema, member["csv"], tmp_path)
    assert block.features.tolist() == [row["coordinates"] for row in member["rows"]]
    return Records(block.features, block.labels, block.usable)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_to_sums(kind, tmp_path):
    vector = ANSWER[kind]
    opened, _ = opened_query(vector)
    query = opened.query
    for member in vector["members"].values():
        records = records_of(query.schema, member, tmp_path)
        assert query.kind.sums(records, query.encoding.fraction_bits).tolist() == member["sums"]
        assert [one + more for one, more in zip(member["sums"], member["noise"], strict=True)] == member["values"]


@pytest.mark.parametrize("kind", KINDS)
def test_values_to_ciphertexts(kind):
    vector = ANSWER[kind]
    opened, _ = opened_query(vector)
    key, encoding, n = opened.public_key, opened.query.encoding, opened.public_key.n
    digest = bytes.fromhex(vector["cohort_digest"])
    said = {
        name: Acceptance.from_bytes(envelope(each["acceptance"]).payload) for name, each in vector["members"].items()
    }
    attempt = CohortAttempt(opened.query_id, vector["attempt"], digest)
    for name, member in vector["members"].items():
        values = np.array(member["values"], dtype=np.int64)
        bare = pack(values, said[name].rows, encoding, key.bits)
        assert [format(each, "x") for each in bare] == member["bare_plaintexts"]
        own = X25519PrivateKey.from_private_bytes(bytes.fromhex(member["mask_private_key"]))
        peers = {peer: each.mask_key for peer, each in said.items() if peer != name}
        shape = (opened.value_ciphertexts, encoding.slots_per_ciphertext(key.bits))
        mask = cohort_mask(name, own, peers, attempt, shape=shape, value_bits=encoding.value_bits)
        addends = mask_addends(values, said[name].rows, encoding, key.bits, mask)
        masked = [(one + more) % n for one, more in zip(bare, addends, strict=True)]
        assert [format(each, "x") for each in masked] == member["masked_plaintexts"]
        alpha = tag_coefficient(opened, vector["attempt"], name, signing_key(name))
        padding = pad(own, opened.query.binding.opening_key, name, attempt)
        tag = (padding + tag_mask(name, own, peers, attempt) + polynomial(values, alpha)) % PRIME
        assert format(tag, "x") == member["tag"]
        made = [
            key.raw_encrypt(plaintext, gmpy2.powmod(int(r, 16), n, n * n))
            for plaintext, r in zip([*masked, tag], member["obfuscators_r"], strict=True)
        ]
        assert key.to_wire(made).hex() == member["chunk"]


@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", KINDS)
def test_one_upload_is_opened_with_its_peers_mask_keys(kind, secret):
    """What the conformance kit does."""
    vector = ANSWER[kind]
    opened, _ = opened_query(vector)
    opening = OpeningSecret(bytes.fromhex(vector["opening_private_key"]))
    keys = {
        name: X25519PrivateKey.from_private_bytes(bytes.fromhex(each["mask_private_key"]))
        for name, each in vector["members"].items()
    }
    for name, member in vector["members"].items():
        said = Acceptance.from_bytes(envelope(member["acceptance"]).payload)
        peers = Peers({peer: key for peer, key in keys.items() if peer != name})
        digest, chunk = bytes.fromhex(vector["cohort_digest"]), bytes.fromhex(member["chunk"])
        found = open_contribution(chunk, opened, said, peers, digest, secret, opening)
        assert found.problems == ()
        assert found.values.tolist() == member["values"]
        # With another member's key taken off, nothing is right, and the sentence says that it is the masks.
        swapped = Peers({peer: X25519PrivateKey.generate() for peer in peers.keys})
        (problem,) = open_contribution(chunk, opened, said, swapped, digest, secret, opening).problems
        assert "masks of all peers" in problem.sentence


@pytest.mark.parametrize("kind", KINDS)
def test_total_to_answer(kind, secret):
    vector = ANSWER[kind]
    opened, roster = opened_query(vector)
    members = vector["members"].values()
    cohort = Cohort(opened.query_id, vector["attempt"], tuple(envelope(each["acceptance"]) for each in members))
    assert cohort.digest.hex() == vector["cohort_digest"]
    receipts = tuple(envelope(each["receipt"]) for each in members)
    chunk = multiply(opened.public_key, [bytes.fromhex(each["chunk"]) for each in members])
    assert chunk.hex() == vector["total"]["chunk"]
    total = Total(cohort, receipts, 1, opened.ciphertexts)
    opening = OpeningSecret(bytes.fromhex(vector["opening_private_key"]))
    found = open_total(total, [chunk], opened, roster, secret, opening=opening)
    assert found.values.tolist() == vector["total"]["values"]
    assert found.rows == vector["total"]["rows"] == vector["answer"]["rows"]
    query, answer = opened.query, vector["answer"]
    sums = [float(Fraction(each)) for each in answer["sums"]]
    if kind == "statistic":
        decoded = query.kind.decode(found.values, query.encoding.fraction_bits)
        np.testing.assert_allclose(np.ravel(decoded), sums, rtol=1e-15)
        cost = query.kind.protection(setting_of(query)).cost((4, 3, 5), query.delta)
        assert (cost.epsilon_if_others_collude, cost.delta) == (float(Fraction(answer["epsilon"])), 0.0)
    else:
        unit = query.kind.sum_unit(query.encoding.fraction_bits)
        np.testing.assert_allclose(found.values[: query.d] * unit, sums[: query.d], rtol=1e-15)
