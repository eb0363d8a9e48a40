"""The vectors that other implementations check themselves by, good and bad."""

import importlib.util
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.mask_graph import MaskGraph
from dpcore.paillier.masks import PRIME, CohortAttempt, check_tag, coefficient, cohort_mask, pad, polynomial, tag_mask
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import FormCoordinates
from dpcore.predicates.notation import parse
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Basis, Clip
from dpcore.records.features.described import Numbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import form_of
from rado.v1 import query_pb2
from wire.binding import Binding, OpeningSecret, montgomery_key
from wire.envelopes import Envelope, SigningKey, sha256
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES, open_features
from wire.query import open_query, open_retry
from wire.query_kinds import feature_map_from_proto, read_predicates
from wire.roster import open_roster
from wire.statements import (
    Acceptance,
    Cohort,
    Pending,
    Ready,
    Receipt,
    Refusal,
    check_receipt,
    check_receipts,
    name_of,
    open_challenge,
    open_statement,
    open_witness,
    upload_digest,
    witnessed_head,
)

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
GOOD = json.loads((VECTORS / "protocol.json").read_text())
BAD = json.loads((VECTORS / "protocol_bad.json").read_text())
FEDERATION_KEY = bytes.fromhex(GOOD["keys"]["federation"])


def envelope(vector) -> Envelope:
    return Envelope(*(bytes.fromhex(vector[part]) for part in ("payload", "key_id", "signature")))


@pytest.fixture(scope="module")
def roster():
    return open_roster(envelope(GOOD["roster"]), FEDERATION_KEY, at_least_version=3)


def test_files_are_what_their_script_writes():
    specification = importlib.util.spec_from_file_location(
        "make_protocol_vectors", VECTORS / "make_protocol_vectors.py"
    )
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    for name, make in script.FILES.items():
        assert (VECTORS / name).read_text() == script.text(make())


@pytest.mark.parametrize(("vector", "version"), [("schema", 1), ("schema_of_version_2", 2)])
def test_schema(vector, version):
    schema = Schema.from_canonical(GOOD[vector]["canonical"].encode())
    assert schema.version == version
    assert schema.digest.hex() == GOOD[vector]["digest"]
    assert schema.canonical_bytes().decode() == GOOD[vector]["canonical"]


def test_schemas_of_several_labels_and_weights():
    vector = GOOD["schemas_of_two_labels"]
    schemas = {name: Schema.from_canonical(each["canonical"].encode()) for name, each in vector["schemas"].items()}
    shared = SharedSchema(schemas)
    assert {name: each.digest.hex() for name, each in shared.by_label.items()} == {
        name: each["digest"] for name, each in vector["schemas"].items()
    }
    assert shared.digest.hex() == vector["digest"]
    assert SharedSchema.from_toml(shared.to_toml()) == shared
    weights = [float(each["weight"]) for each in GOOD["weights"]]
    cells = Numbers(np.array(weights), np.zeros(len(weights), dtype=np.bool_))
    assert shared.first.weight.encode(cells)[0].tolist() == [each["units"] for each in GOOD["weights"]]


@pytest.mark.parametrize("vector", GOOD["forms_of_texts"])
def test_forms_of_texts(vector):
    assert form_of(vector["texts"])(vector["cell"]) == vector["form"]


def test_roster_serialises_to_the_same_payload(roster):
    assert roster.version == 3
    assert [m.name for m in roster.parties] == ["a", "b", "c"]
    assert roster.to_bytes() == envelope(GOOD["roster"]).payload


def test_query(roster):
    opened = open_query(envelope(GOOD["query"]), roster, now_unix_s=GOOD["now_unix_s"])
    assert opened.query_id.hex() == GOOD["query"]["query_id"]
    assert opened.query.to_bytes() == opened.envelope.payload
    # 10 rados of 2 coordinates in 51 slots of 40 bits, one of them the check slot.
    assert (opened.query.length, opened.value_ciphertexts, opened.ciphertexts, opened.chunks) == (20, 1, 2, 1)


@pytest.mark.parametrize("name", GOOD["other_queries"])
def test_other_kinds_of_query(roster, name):
    vector = GOOD["other_queries"][name]
    opened = open_query(envelope(vector), roster, now_unix_s=GOOD["now_unix_s"])
    assert opened.query_id.hex() == vector["query_id"]
    assert opened.query.to_bytes() == opened.envelope.payload
    assert opened.query.quorum_wait_s == (30 if "quorum" in name else 0)
    assert bool(opened.query.purpose) == ("purpose" in name)
    assert opened.query.epoch == ("2026-11" if "epoch" in name else None)
    assert (opened.query.study_digest is not None) == ("study" in name)
    lengths = {"moments": 4, "statistic": 2, "statistic, Laplace": 1, "gradient": 2, "gradient, in a basis": 2}
    lengths["moments, of the training part"] = lengths["moments, mapped"] = 4
    lengths["statistic, mapped"], lengths["moments, of persons"] = 2, 4
    assert (opened.query.persons is not None) == ("persons" in name)
    assert (opened.query.feature_map is not None) == ("mapped" in name)
    assert opened.query.length == lengths.get(name, 20)
    assert (opened.query.held_back is not None) == (" part" in name)


def test_a_study_and_its_digest(roster):
    found = open_query(
        envelope(GOOD["other_queries"]["plain, of a study"]), roster, now_unix_s=GOOD["now_unix_s"]
    ).query.study
    assert found.to_dict() == GOOD["study"]


def test_moments_of_records():
    vector = GOOD["moments"]
    bits = vector["fraction_bits"]
    x, y = np.array(vector["x"]), np.array(vector["y"], dtype=np.int8)
    records = Records((x << (30 - bits)).astype(np.int32), y, np.ones(len(y), dtype=bool))
    clip = Clip(Fraction(vector["norm_bound"]), bias=True)
    assert clip.apply(x, bits).tolist() == vector["clipped"]
    assert vector["clipped"] != vector["x"]
    sums = MomentsQuery(clip, vector["edge_multiplier"], 3).sums(records, bits)
    assert sums.tolist() == vector["sums"]


def records_of(vector) -> Records:
    x = np.array(vector["x"]) << (30 - vector["fraction_bits"])
    usable = np.array(vector.get("usable", [True] * len(x)))
    return Records(x.astype(np.int32), np.array(vector["y"], dtype=np.int8), usable)


def test_gradient_of_records():
    vector = GOOD["gradient"]
    basis = Basis(tuple(map(tuple, vector["basis"])))
    kind = GradientQuery(vector["loss"], tuple(vector["theta"]), Fraction(vector["clip"]), 3, basis)
    assert kind.sums(records_of(vector), vector["fraction_bits"]).tolist() == vector["sums"]
    # Some are shortened and some are not, or the vector would not show the rule.
    assert len(set(vector["weights"])) == len(vector["weights"])


def test_statistic_of_records():
    vector = GOOD["statistic"]
    schema = Schema.from_canonical(GOOD["schema"]["canonical"].encode())
    predicates = tuple(map(parse, vector["predicates"]))
    found = sums(predicates, schema, records_of(vector), vector["fraction_bits"], None)
    assert found.tolist() == vector["sums"]


def test_statistic_of_mapped_records():
    vector = GOOD["statistic_mapped"]
    schema = Schema.from_canonical(GOOD["schema"]["canonical"].encode())
    mapped = query_pb2.FeatureMap.FromString(bytes.fromhex(vector["feature_map"]))
    feature_map = feature_map_from_proto(mapped, schema)
    message = query_pb2.StatisticQuery.FromString(bytes.fromhex(vector["statistic"]))
    predicates = read_predicates(message, FormCoordinates(schema, feature_map))
    usable = np.array(vector["usable"])
    records = Records(np.array(vector["x"], dtype=np.int32), np.array(vector["y"], dtype=np.int8), usable)
    assert sums(predicates, schema, records.mapped(feature_map), 0).tolist() == vector["sums"]
    # Without the map the same places are the schema's coordinates, and the sums are others.
    bare = read_predicates(message, FormCoordinates(schema))
    assert sums(bare, schema, records, 0).tolist() != vector["sums"]


def test_cohort_and_statements(roster):
    vector = GOOD["cohort"]
    acceptances = tuple(envelope(a) for a in GOOD["acceptances"])
    cohort = Cohort(bytes.fromhex(vector["query_id"]), vector["attempt"], acceptances)
    assert cohort.digest.hex() == vector["digest"]
    assert [(a.party, a.rows) for a in cohort.open(roster)] == [("a", 120), ("b", 345)]
    receipt, member = open_statement(Receipt, envelope(GOOD["receipt"]), roster)
    assert member.name == "a"
    check_receipt(receipt, cohort, chunks=2, ciphertexts=3)
    with pytest.raises(WireError):
        check_receipt(receipt, cohort, chunks=2, ciphertexts=4)
    for statement_type, name in ((Refusal, "refusal"), (Ready, "ready"), (Pending, "pending"), (Acceptance, None)):
        data = envelope(GOOD[name]) if name else acceptances[1]
        statement, _ = open_statement(statement_type, data, roster)
        assert statement.to_bytes() == data.payload


def test_a_cohort_with_a_member_twice_or_of_another_attempt_is_refused(roster):
    query_id = bytes.fromhex(GOOD["cohort"]["query_id"])
    first, second = (envelope(a) for a in GOOD["acceptances"])
    for attempt, members in ((2, (first, first)), (1, (first, second))):
        with pytest.raises(WireError):
            Cohort(query_id, attempt, members).open(roster)


def test_more_members_than_parties_are_refused_before_their_signatures_are_checked(roster):
    vector = GOOD["cohort"]
    first = envelope(GOOD["acceptances"][0])
    unsigned = replace(first, signature=bytes(len(first.signature)))
    members = (unsigned,) * (len(roster.parties) + 1)
    with pytest.raises(WireError, match="more members than the roster has parties"):
        Cohort(bytes.fromhex(vector["query_id"]), vector["attempt"], members).open(roster)


def test_a_cohort_has_a_receipt_of_each_member(roster):
    vector = GOOD["cohort"]
    acceptances = tuple(envelope(a) for a in GOOD["acceptances"])
    cohort = Cohort(bytes.fromhex(vector["query_id"]), vector["attempt"], acceptances)
    with pytest.raises(WireError, match="not one receipt for each member"):
        check_receipts((envelope(GOOD["receipt"]),), cohort, roster, chunks=2, ciphertexts=3)


def test_masks(roster):
    vector, cohort = GOOD["masks"], GOOD["cohort"]
    keys = {n: X25519PrivateKey.from_private_bytes(bytes.fromhex(k)) for n, k in vector["private_keys"].items()}
    acceptances = {
        a.party: a for a in (open_statement(Acceptance, envelope(v), roster)[0] for v in GOOD["acceptances"])
    }
    for name, expected in vector["of"].items():
        (peer,) = set(acceptances) - {name}
        assert acceptances[name].mask_key == keys[name].public_key().public_bytes_raw()
        mask = cohort_mask(
            name,
            keys[name],
            {peer: acceptances[peer].mask_key},
            CohortAttempt(bytes.fromhex(cohort["query_id"]), cohort["attempt"], bytes.fromhex(cohort["digest"])),
            shape=(vector["ciphertexts"], vector["slots"]),
            value_bits=vector["value_bits"],
        )
        assert mask.reshape(-1).tolist() == expected


def test_mask_graph():
    vector = GOOD["mask_graph"]
    graph = MaskGraph.of(sorted(vector["order"]), bytes.fromhex(vector["cohort_digest"]), vector["neighbours"])
    assert graph.order == tuple(vector["order"])
    assert {name: sorted(graph.peers(name)) for name in vector["peers"]} == vector["peers"]


def test_tags(roster):
    """The coefficient, pads, masks and tags of docs/protocol.md, and the total that the learner accepts."""
    vector = GOOD["tag"]
    opened = open_query(envelope(vector["query"]), roster, now_unix_s=GOOD["now_unix_s"])
    binding, query_id = opened.query.binding, opened.query_id
    attempt = CohortAttempt(query_id, vector["attempt"], bytes.fromhex(vector["cohort_digest"]))
    opening = OpeningSecret(bytes.fromhex(vector["opening_private_key"]))
    assert (opening.public_bytes, opening.seed.hex()) == (binding.opening_key, vector["seed"])
    assert Binding.seal(opening, roster.parties, opened.query.nonce) == binding
    alpha = coefficient(opening.seed, query_id=query_id, attempt=vector["attempt"])
    assert alpha == int(vector["coefficient"])
    keys = {n: X25519PrivateKey.from_private_bytes(bytes.fromhex(k)) for n, k in vector["mask_private_keys"].items()}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    values, pads = np.zeros(5, dtype=np.int64), []
    for name, expected in vector["members"].items():
        own = np.array(expected["values"], dtype=np.int64)
        values, pads = values + own, [*pads, pad(opening.key, public[name], name, attempt)]
        mask = tag_mask(name, keys[name], {n: k for n, k in public.items() if n != name}, attempt)
        assert pads[-1] == pad(keys[name], binding.opening_key, name, attempt) == int(expected["pad"])
        assert mask == int(expected["mask"])
        assert (pads[-1] + mask + polynomial(own, alpha)) % PRIME == int(expected["tag"])
    check_tag(int(vector["total"]), values, alpha, pads)


def test_a_party_unseals_the_seed_with_its_signing_key(roster):
    vector = GOOD["tag"]
    binding = open_query(envelope(vector["query"]), roster, now_unix_s=GOOD["now_unix_s"]).query.binding
    for name in ("a", "b", "c"):
        signing = SigningKey(Ed25519PrivateKey.from_private_bytes(sha256(b"test key of ", name.encode())), "vectors")
        assert signing.public_bytes.hex() == GOOD["keys"][name]
        assert binding.unseal(name, signing, bytes(range(32))).hex() == vector["seed"]
        assert montgomery_key(signing.public_bytes) == signing.agreement_key().public_key().public_bytes_raw()


def test_statements_of_the_features(roster):
    vector = GOOD["trust"]
    opened = open_query(envelope(GOOD["query"]), roster, now_unix_s=GOOD["now_unix_s"])
    assert open_retry(envelope(vector["Retry"]), opened, roster).attempt == 2
    assert open_features(envelope(vector["Features"]), roster)[0].features == OWN_FEATURES
    challenge, _ = open_challenge(envelope(vector["Challenge"]), roster)
    witness, member = open_witness(envelope(vector["Witness"]), roster)
    assert (witness.nonce, witness.subject, member.name) == (challenge.nonce, "a", "b")
    said = open_statement(Acceptance, envelope(vector["Acceptance"]), roster)[0]
    assert (said.roster_version, said.ledger_head.entries, said.ledger_head.sealed_sums) == (3, 7, b"sealed")
    assert witnessed_head(witness.newest, "a", roster) == said.ledger_head
    assert (witness.in_cohorts, witness.in_cohorts_from) == ((name_of(witness.newest),), 3)
    assert (
        open_roster(envelope(vector["Roster"]), bytes.fromhex(GOOD["keys"]["federation"])).not_after_unix_s
        > GOOD["now_unix_s"]
    )
    for kind, statement in (("Acceptance", said), ("Witness", witness), ("Challenge", challenge)):
        assert statement.to_bytes() == envelope(vector[kind]).payload


def test_upload_digest():
    hashes = [bytes.fromhex(h) for h in GOOD["upload"]["chunk_hashes"]]
    assert upload_digest(hashes).hex() == GOOD["upload"]["digest"]


@pytest.mark.parametrize("case", BAD["cases"], ids=lambda case: case["name"])
def test_bad_vectors_are_refused_with_their_code(case, roster):
    with pytest.raises(WireError) as caught:
        if case["kind"] == "Roster":
            open_roster(envelope(case), FEDERATION_KEY, at_least_version=3)
        else:
            open_query(envelope(case), roster, now_unix_s=GOOD["now_unix_s"])
    assert caught.value.code is Code(case["code"]), caught.value
