"""The vectors that other implementations check themselves by, good and bad."""

import importlib.util
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt, cohort_mask
from dpcore.predicates.evaluation import sums
from dpcore.predicates.notation import parse
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.records.basis import Basis
from dpcore.records.clipping import Clip
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from wire.cohort import Acceptance, Cohort, Ready, Receipt, Refusal, check_receipt, open_statement
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import open_query
from wire.roster import open_roster
from wire.upload import upload_digest

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


def test_schema():
    schema = Schema.from_canonical(GOOD["schema"]["canonical"].encode())
    assert schema.digest.hex() == GOOD["schema"]["digest"]
    assert schema.canonical_bytes().decode() == GOOD["schema"]["canonical"]


def test_roster_serialises_to_the_same_payload(roster):
    assert roster.version == 3
    assert [m.name for m in roster.parties] == ["a", "b", "c"]
    assert roster.to_bytes() == envelope(GOOD["roster"]).payload


def test_query(roster):
    opened = open_query(envelope(GOOD["query"]), roster, now_unix_s=GOOD["now_unix_s"])
    assert opened.query_id.hex() == GOOD["query"]["query_id"]
    assert opened.query.to_bytes() == opened.envelope.payload
    # 10 rados of 2 coordinates in 51 slots of 40 bits, one of them the check slot.
    assert (opened.query.length, opened.ciphertexts, opened.chunks) == (20, 1, 1)


@pytest.mark.parametrize("name", GOOD["other_queries"])
def test_other_kinds_of_query(roster, name):
    vector = GOOD["other_queries"][name]
    opened = open_query(envelope(vector), roster, now_unix_s=GOOD["now_unix_s"])
    assert opened.query_id.hex() == vector["query_id"]
    assert opened.query.to_bytes() == opened.envelope.payload
    lengths = {"moments": 4, "statistic": 2, "statistic, Laplace": 1, "gradient": 2, "gradient, in a basis": 2}
    assert opened.query.length == lengths.get(name, 20)


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
    for statement_type, name in ((Refusal, "refusal"), (Ready, "ready"), (Acceptance, None)):
        data = envelope(GOOD[name]) if name else acceptances[1]
        statement, _ = open_statement(statement_type, data, roster)
        assert statement.to_bytes() == data.payload


def test_a_cohort_with_a_member_twice_or_of_another_attempt_is_refused(roster):
    query_id = bytes.fromhex(GOOD["cohort"]["query_id"])
    first, second = (envelope(a) for a in GOOD["acceptances"])
    for attempt, members in ((2, (first, first)), (1, (first, second))):
        with pytest.raises(WireError):
            Cohort(query_id, attempt, members).open(roster)


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
