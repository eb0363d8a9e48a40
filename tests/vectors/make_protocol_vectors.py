"""Write the protocol's vectors next to this file: python tests/vectors/make_protocol_vectors.py

Run from the root of the repository. Keys come from fixed seeds, so that a second run writes the same bytes
(tests/protocol/test_protocol_vectors.py compares). Payloads, signatures and digests are computed here from the protobuf
messages, hashlib and Ed25519 alone, as docs/protocol.md says, not with the code that the vectors test.
"""

import hashlib
import hmac
import json
import math
import sys
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "protos")]

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from rado.v1 import cohort_pb2, envelope_pb2, query_pb2, roster_pb2

HERE = Path(__file__).resolve().parent
NOW = 1_790_000_000
STUDY = {
    "purpose": "\u00c9tude de la gen\u00e8se, \u7814\u7a76",
    "protocol_number": "EK 2026/17",
    "organisation": "University of Chur",
    "person_in_charge": "Dr. Ada Meier",
    "begins": "2026-01-01",
    "ends": "2027-12-31",
}
PURPOSE = "Study 17: \u00e9tude de la gen\u00e8se, \u7814\u7a76"
ROLES = {
    "Roster": "federation",
    "Query": "learner",
    "PaillierKey": "learner",
    "Cancel": "learner",
    "Retry": "learner",
}
SCHEMA = (
    b'{"bias":true,"features":[{"column":"c","impute":null,"missing":"refuse","name":"big","threshold":"4020000000000000"'
    b',"type":"threshold"}],"label":{"column":"y","missing":"refuse","negative":["0"],"positive":["1"]},"name":"vector",'
    b'"schema_version":1}'
)
# Version 2: with steps for texts, whose own texts are in their form, and a policy for unreadable numbers.
SCHEMA_2 = (
    '{"bias":false,"features":[{"column":"stage","impute":null,"missing":"zero-vector","name":"stage","type":"category",'
    '"unknown":"zero","values":["Gen\u00e8ve","X"]},{"column":"v","impute":null,"lower":"0000000000000000",'
    '"missing":"zero-vector","name":"v","out_of_bounds":"clip","type":"real","unreadable":"zero-vector",'
    '"upper":"3ff0000000000000"}],"label":{"column":"y","missing":"refuse","negative":["0"],"positive":["1"]},'
    '"name":"vector","schema_version":2,"texts":["nfc","trim","case"]}'
).encode()
# Version 5: with a weight, and two labels of one file, whose digests a third one is over.
WEIGHED = (
    '{"bias":true,"features":[{"column":"c","impute":null,"missing":"refuse","name":"big","threshold":"4020000000000000"'
    ',"type":"threshold"}],"label":LABEL,"name":"vector","schema_version":5,"texts":["trim"],"weight":{"column":"w",'
    '"missing":"no-weight","out_of_bounds":"clip","unreadable":"refuse","upper":"4014000000000000"}}'
)
LABELS = ("y", "z")
# Weights, of a schema whose upper bound is 5, and what they are in units of 1/1024.
WEIGHTS = (("0", 0), ("0.001", 0), ("0.0025", 1), ("1", 205), ("2.5", 512), ("4.999", 1024), ("5", 1024), ("7", 1024))
# Steps, the text of a cell, and the text in the form of the steps.
FORMS = (
    ([], "Gene\u0300ve\u00a0", "Gene\u0300ve\u00a0"),
    (["nfc"], "Gene\u0300ve\u00a0", "Gen\u00e8ve\u00a0"),
    (["trim"], "\ufeff\u00a0a\u00a0b\u2009\u200b", "a\u00a0b"),
    (["trim"], "\u001ca\u200c", "\u001ca\u200c"),
    (["case"], "STRA\u1e9eE \u00c9", "strasse \u00e9"),
    (["case"], "E\u0301", "e\u0301"),
    (["nfc", "trim", "case"], "\u00a0GENE\u0300VE\u3000", "gen\u00e8ve"),
    (["nfc", "case"], "\u1e9b\u0323", "\u1e69"),
    (["nfc", "trim", "case"], "\u00a0" + "A" * 255, "a" * 255),
    (["nfc", "trim", "case"], "\u00a0" + "A" * 256, "\u00a0" + "A" * 256),
)


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def u32(number):
    return number.to_bytes(4, "big")


def key(name):
    return Ed25519PrivateKey.from_private_bytes(sha(b"test key of ", name.encode()))


def public(name):
    return key(name).public_key().public_bytes_raw()


def mask_key(name):
    return X25519PrivateKey.from_private_bytes(sha(b"test mask key of ", name.encode()))


def mask_public(name):
    return mask_key(name).public_key().public_bytes_raw()


def mask_stream(name, peer, query_id, attempt, cohort_digest, count, value_bits):
    """The stream that `name` adds, one number per slot: negated at the member whose name sorts last."""
    lesser, greater = sorted((name, peer))
    parts = [bytes([len(text)]) + text.encode() for text in (lesser, greater)]
    info = b"rado.v1/mask\0" + query_id + u32(attempt) + b"".join(parts)
    shared = mask_key(name).exchange(mask_key(peer).public_key())
    secret = hmac.digest(hmac.digest(cohort_digest, shared, "sha256"), info + b"\1", "sha256")
    octets = Cipher(algorithms.AES256(secret), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
    sign = 1 if name == lesser else -1
    return [sign * int.from_bytes(octets[8 * i : 8 * i + 8], "little") % 2**value_bits for i in range(count)]


TAG_PRIME = 2**130 - 5
TAG_VALUES = {"a": [3, -5, 2**40, -(2**40), 0], "b": [-1, 7, 2**33, 1, 12]}


def hkdf(secret, salt, info, length):
    extracted = hmac.digest(salt, secret, "sha256")
    found, block = b"", b""
    for count in range(1, -(-length // 32) + 1):
        block = hmac.digest(extracted, block + info + bytes([count]), "sha256")
        found += block
    return found[:length]


def named(*names):
    return b"".join(bytes([len(name)]) + name.encode() for name in names)


def agreement_key(name):
    """The X25519 private key of a member's Ed25519 key pair."""
    return X25519PrivateKey.from_private_bytes(hashlib.sha512(sha(b"test key of ", name.encode())).digest()[:32])


def opening_key():
    return X25519PrivateKey.from_private_bytes(sha(b"test opening key"))


def tag_seed():
    return hkdf(sha(b"test opening key"), bytes(32), b"rado.v1/tag-seed-of-query\0", 32)


def binding(nonce):
    opening = opening_key().public_key()
    seeds = []
    for name in ("a", "b", "c"):
        pad = hkdf(agreement_key(name).exchange(opening), nonce, b"rado.v1/tag-seed\0" + named(name), 32)
        seeds.append(query_pb2.SealedSeed(party=name, seed=bytes(x ^ y for x, y in zip(tag_seed(), pad, strict=True))))
    commitment = hkdf(tag_seed(), nonce, b"rado.v1/tag-seed-commitment\0", 32)
    return query_pb2.Binding(opening_key=opening.public_bytes_raw(), seeds=seeds, commitment=commitment)


def residue(octets):
    return int.from_bytes(octets, "big") % TAG_PRIME


def tags():
    """A bound query's coefficient, and for each member of its cohort the pad, the mask and the tag of some values."""
    asked = signed("Query", "learner", payload(query()))
    query_id, attempt, digest = sha(asked.payload), 2, sha(b"test cohort")
    where = query_id + u32(attempt)
    alpha = residue(hkdf(tag_seed(), query_id, b"rado.v1/tag-coefficient\0" + u32(attempt), 48))
    members = {}
    for name, peer, sign in (("a", "b", 1), ("b", "a", -1)):
        opened = mask_key(name).exchange(opening_key().public_key())
        pad = residue(hkdf(opened, digest, b"rado.v1/tag-pad\0" + where + named(name), 48))
        shared = mask_key(name).exchange(mask_key(peer).public_key())
        mask = sign * residue(hkdf(shared, digest, b"rado.v1/tag-mask\0" + where + named("a", "b"), 48)) % TAG_PRIME
        of_values = sum(pow(alpha, j, TAG_PRIME) * x for j, x in enumerate(TAG_VALUES[name], 1))
        tag = (pad + mask + of_values) % TAG_PRIME
        members[name] = {"values": TAG_VALUES[name], "pad": str(pad), "mask": str(mask), "tag": str(tag)}
    return {
        "query": describe("Query", asked, query_id=query_id),
        "opening_private_key": sha(b"test opening key").hex(),
        "attempt": attempt,
        "cohort_digest": digest.hex(),
        "seed": tag_seed().hex(),
        "coefficient": str(alpha),
        "mask_private_keys": {name: sha(b"test mask key of ", name.encode()).hex() for name in ("a", "b")},
        "members": members,
        "total": str(sum(int(member["tag"]) for member in members.values())),
    }


def trust_statements(query_id):
    """Statements of the features: retries, features, heads, challenges, witnesses, a roster that expires."""
    head = cohort_pb2.LedgerHead(entries=7, digest=sha(b"entry 7"), sealed_sums=b"sealed")
    fields = {"query_id": query_id, "attempt": 1, "party": "a", "rows": 120, "mask_key": mask_public("a")}
    acceptance = signed("Acceptance", "a", payload(cohort_pb2.Acceptance(**fields, roster_version=3, ledger_head=head)))
    expiring = roster()
    expiring.not_after_unix_s = NOW + 90 * 86_400
    stated = {"federation": "vectors", "party": "a"}
    features = ["base-0-3", "class-products", "class-weights", "cohort-noise", "event-times", "mask-graph"]
    features += ["numbers", "persons", "question", "short-opening", "study", "survivors", "training", "weights"]
    made = {
        "Retry": ("learner", query_pb2.Retry(query_id=query_id, learner="learner", attempt=2)),
        "Features": (
            "a",
            roster_pb2.Features(**stated, features=features, version="0.3.0", signed_at_unix_s=NOW),
        ),
        "Challenge": ("a", cohort_pb2.Challenge(**stated, nonce=sha(b"nonce"), signed_at_unix_s=NOW)),
        "Witness": (
            "b",
            cohort_pb2.Witness(
                federation="vectors",
                party="b",
                subject="a",
                nonce=sha(b"nonce"),
                newest=acceptance,
                in_cohorts=[sha(acceptance.signature)[:8]],
                in_cohorts_from=3,
            ),
        ),
        "Roster": ("federation", expiring),
    }
    described = {kind: describe(kind, signed(kind, who, payload(message))) for kind, (who, message) in made.items()}
    return described | {"Acceptance": describe("Acceptance", acceptance)}


def signed(kind, signer, payload, *, federation="vectors", domain_kind=None, role=None):
    domain = "".join(
        f"{part}\0" for part in ("rado.v1", federation, domain_kind or kind, role or ROLES.get(kind, "party"))
    )
    return envelope_pb2.Signed(
        payload=payload, key_id=sha(public(signer)), signature=key(signer).sign(domain.encode() + payload)
    )


def payload(message):
    return message.SerializeToString(deterministic=True)


def roster():
    def member(role, word, name):
        return roster_pb2.Member(
            role=role,
            name=name,
            signing_key=b"" if word == "coordinator" else public(name),
            certificate_san=f"rado://vectors/{word}/{name}",
            rows_at_least=100 if word == "party" else None,
        )

    return roster_pb2.Roster(
        federation="vectors",
        version=3,
        issued_at_unix_s=NOW - 1000,
        members=[
            member(roster_pb2.ROLE_COORDINATOR, "coordinator", "coordinator"),
            member(roster_pb2.ROLE_LEARNER, "learner", "learner"),
            member(roster_pb2.ROLE_PARTY, "party", "a"),
            member(roster_pb2.ROLE_PARTY, "party", "b"),
            member(roster_pb2.ROLE_PARTY, "party", "c"),
        ],
    )


def paillier_key(**changes):
    # Any odd number of 2048 bits is enough: no vector of this file is decrypted.
    modulus = int.from_bytes(b"".join(sha(b"modulus", u32(i)) for i in range(8)), "big") | (1 << 2047) | 1
    fields = {
        "learner": "learner",
        "modulus": modulus.to_bytes(256, "big"),
        "not_before_unix_s": NOW - 1000,
        "not_after_unix_s": NOW + 100_000,
    }
    return query_pb2.PaillierKey(**fields | changes)


def query(**changes):
    fields = {
        "federation": "vectors",
        "learner": "learner",
        "nonce": bytes(range(32)),
        "roster_version": 3,
        "schema": SCHEMA,
        "schema_digest": sha(b"rado.v1/schema\0", SCHEMA),
        "rados": query_pb2.RadosQuery(
            rados=10,
            dp_feat=query_pb2.DpFeatDesign(
                sensitive_feature="big",
                epsilon_per_rado=query_pb2.Rational(numerator=1, denominator=2),
                split=query_pb2.SPLIT_LOCAL,
            ),
        ),
        "encoding": query_pb2.Encoding(fraction_bits=16, value_bits=38, slot_bits=40),
        "paillier_key": signed("PaillierKey", "learner", payload(paillier_key())),
        "delta": query_pb2.Rational(numerator=1, denominator=1_000_000),
        "max_rows": 1_000_000,
        "max_parties": 3,
        "cohort_min": 2,
        "honest_parties": 1,
        "created_at_unix_s": NOW - 10,
        "not_after_unix_s": NOW + 3600,
        "answer_within_s": 60,
        "prepare_within_s": 600,
        "upload_within_s": 600,
        "max_attempts": 3,
        "binding": binding(bytes(range(32))),
    }
    return query_pb2.Query(**{"features": ["base-0-3"]} | fields | changes)


def rational(numerator, denominator=1):
    return query_pb2.Rational(numerator=numerator, denominator=denominator)


VANISHING = {"may_vanish": 1, "cohort_min": 3, "honest_parties": 2, "max_parties": 4}
NORM_BOUND = rational(5, 4)
# Four is a square modulo any odd number; nobody knows its order here.
SUBGROUP = query_pb2.Subgroup(generator=b"\4", order_bits=576)


def mapped_nodes():
    """4 t >= the bias and the label is positive; -4 t >= 1. t is the map's only term, and the bias its coordinate 1."""
    form = query_pb2.AffineForm(coordinates=[0, 1], weights=[4, -1])
    below = query_pb2.AffineForm(coordinates=[0], weights=[-4], constant=-1)
    return [
        query_pb2.PredicateNode(non_negative=form),
        query_pb2.PredicateNode(label_is_positive=True),
        query_pb2.PredicateNode(all_of=query_pb2.Operands(places=[0, 1])),
        query_pb2.PredicateNode(non_negative=below),
    ]


KINDS = {
    "plain": {"rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign())},
    "joint": {
        "rados": query_pb2.RadosQuery(rados=10, joint=query_pb2.JointDesign(sensitive_column="c", share_sigma=9000))
    },
    "fixed support": {
        "rados": query_pb2.RadosQuery(
            rados=10,
            fixed_support=query_pb2.FixedSupportDesign(
                fraction=rational(1, 3), norm_bound=NORM_BOUND, edge_sigma=5000, split=query_pb2.SPLIT_LOCAL
            ),
        )
    },
    "gaussian": {
        "rados": query_pb2.RadosQuery(
            rados=10, gaussian=query_pb2.GaussianDesign(norm_bound=NORM_BOUND, share_sigma=7000)
        )
    },
    "moments": {
        "moments": query_pb2.MomentsQuery(norm_bound=NORM_BOUND, edge_multiplier=640, share_sigma=900),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=38, slot_bits=40),
    },
    "moments, of the training part": {
        "moments": query_pb2.MomentsQuery(norm_bound=NORM_BOUND, edge_multiplier=640, share_sigma=900),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=38, slot_bits=40),
        "held_back": query_pb2.HeldBack(share=rational(1, 5), part=query_pb2.PART_TRAINING),
    },
    "moments, mapped": {
        "moments": query_pb2.MomentsQuery(norm_bound=NORM_BOUND, edge_multiplier=640, share_sigma=900),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=38, slot_bits=40),
        "feature_map": query_pb2.FeatureMap(terms=[query_pb2.MapTerm(column=0, halvings=1)]),
    },
    "gaussian, of the held-back part": {
        "rados": query_pb2.RadosQuery(
            rados=10, gaussian=query_pb2.GaussianDesign(norm_bound=NORM_BOUND, share_sigma=7000)
        ),
        "held_back": query_pb2.HeldBack(share=rational(2, 3), part=query_pb2.PART_HELD_BACK),
    },
    "statistic": {
        "statistic": query_pb2.StatisticQuery(
            nodes=[
                query_pb2.PredicateNode(flag=0),
                query_pb2.PredicateNode(label_is_positive=True),
                query_pb2.PredicateNode(all_of=query_pb2.Operands(places=[0, 1])),
                query_pb2.PredicateNode(complement=0),
            ],
            predicates=[2, 3],
            share_sigma=40,
        ),
        "encoding": query_pb2.Encoding(fraction_bits=0, value_bits=38, slot_bits=40),
    },
    "statistic, Laplace": {
        "statistic": query_pb2.StatisticQuery(
            nodes=[
                query_pb2.PredicateNode(
                    clipped=query_pb2.ClippedForm(
                        form=query_pb2.AffineForm(coordinates=[0, 1], weights=[3, -1], constant=2), scale=4
                    )
                )
            ],
            predicates=[0],
            laplace=query_pb2.LaplaceShare(scale=rational(512, 3), shares=1),
        ),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=38, slot_bits=40),
    },
    "statistic, mapped": {
        "statistic": query_pb2.StatisticQuery(nodes=mapped_nodes(), predicates=[2, 3], share_sigma=40),
        "encoding": query_pb2.Encoding(fraction_bits=0, value_bits=38, slot_bits=40),
        "feature_map": query_pb2.FeatureMap(terms=[query_pb2.MapTerm(column=0, halvings=1)]),
    },
    "gradient": {
        "gradient": query_pb2.GradientQuery(
            loss=query_pb2.LOSS_LOGISTIC, theta=[1 << 20, -(1 << 19)], clip=rational(2, 3), share_sigma=90
        ),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=46, slot_bits=48),
    },
    "gradient, in a basis": {
        "gradient": query_pb2.GradientQuery(
            loss=query_pb2.LOSS_HINGE,
            theta=[0, 0],
            clip=rational(2, 3),
            share_sigma=90,
            basis=[1 << 13, 0, -(1 << 11), 1 << 12],
        ),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=46, slot_bits=48),
    },
    "moments, of persons": {
        "moments": query_pb2.MomentsQuery(norm_bound=NORM_BOUND, edge_multiplier=640, share_sigma=900 << 8),
        "encoding": query_pb2.Encoding(fraction_bits=7, value_bits=46, slot_bits=48),
        "persons": query_pb2.Persons(parties=2),
        "plain fields": {"features": ["base-0-3", "persons"]},
    },
    "plain, with a mask graph": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {"features": ["base-0-3", "mask-graph"], "mask_neighbours": 22},
    },
    "plain, where one may vanish": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {"features": ["base-0-3", "survivors"], **VANISHING},
    },
    "plain, with a quorum wait": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {"quorum_wait_s": 30},
    },
    "plain, with short opening": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {
            "features": ["base-0-3", "short-opening"],
            "paillier_key": signed("PaillierKey", "learner", payload(paillier_key(subgroup=SUBGROUP))),
        },
    },
    "plain, with a purpose": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {"purpose": PURPOSE},
    },
    "plain, of a study": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "study": query_pb2.Study(**STUDY),
        "plain fields": {"features": ["base-0-3", "study"]},
    },
    "plain, of an epoch": {
        "rados": query_pb2.RadosQuery(rados=10, plain=query_pb2.PlainDesign()),
        "plain fields": {"epoch": "2026-11"},
    },
}


def other_query(name):
    changes = dict(KINDS[name])
    fields = query(**changes.pop("plain fields", {}))
    if "rados" not in changes:
        fields.ClearField("rados")
    for field, value in changes.items():
        getattr(fields, field).CopyFrom(value)
    return fields


def study_digest():
    """Section 5: a domain, then each text after its length."""
    texts = (text.encode() for text in STUDY.values())
    return sha(b"rado.v1/study\0", *(part for text in texts for part in (u32(len(text)), text)))


def moments_of_records():
    """Section 6: x in units of 2^-7, y, and the sums without noise, by the definition."""
    records = [([100, -128, 128], 1), ([-37, 128, 128], -1), ([0, 128, 128], 1), ([64, 128, 128], -1)]
    most = (25 * 4**7) // 16 - 4**7
    edges, products = [0] * 3, [0] * 5
    clipped = []
    for x, y in records:
        free, square = x[:2], sum(v * v for v in x[:2])
        if square > most:
            free = [math.trunc(v * math.sqrt(most / square)) for v in free]
        v = [*free, x[2]]
        clipped.append(v)
        edges = [total + 640 * y * part for total, part in zip(edges, v, strict=True)]
        pairs = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
        products = [total + (5 if j == k else 7) * v[j] * v[k] for total, (j, k) in zip(products, pairs, strict=True)]
    return {
        "fraction_bits": 7,
        "norm_bound": "5/4",
        "edge_multiplier": 640,
        "x": [x for x, _ in records],
        "y": [y for _, y in records],
        "clipped": clipped,
        "sums": edges + products,
    }


def gradient_of_records():
    """Section 6: x in units of 2^-7, y, and the sums without noise, record by record in exact arithmetic."""
    bits, theta, clip = 7, [5 << 18, -(3 << 19), 1 << 20], Fraction(2, 3)
    basis = [[6000, 100, 0], [-50, 4096, 900], [0, 0, 2048]]
    records = [([100, -128, 128], 1), ([-37, 128, 128], -1), ([0, 17, 128], 1), ([64, 128, 128], -1)]
    most = int(clip**2 * 4 ** (bits + 12))
    sums, weights = [0, 0, 0], []
    for x, y in records:
        # int() truncates toward zero, as required.
        z = [int(Fraction(sum(p * y * v for p, v in zip(row, x, strict=True)), 4096)) for row in basis]
        margin = sum(t * v for t, v in zip(theta, z, strict=True))
        step = margin // 2 ** (bits + 20 - 10)
        middle = Decimal(2 * max(-16384, min(16383, step)) + 1) / 2048
        weight = int((4096 / (1 + middle.exp())).to_integral_value(ROUND_HALF_EVEN))
        while weight**2 * sum(v * v for v in z) > most:
            weight -= 1
        weights.append(weight)
        sums = [total - weight * v for total, v in zip(sums, z, strict=True)]
    return {
        "fraction_bits": bits,
        "loss": "logistic",
        "theta": theta,
        "clip": "2/3",
        "basis": basis,
        "x": [x for x, _ in records],
        "y": [y for _, y in records],
        "weights": weights,
        "sums": sums,
    }


def statistic_of_records():
    """Section 6: the sums of three predicates in units of 2^-7, by the definition; the last row is not usable."""
    records = [([100, 128], 1, True), ([-37, 128], -1, True), ([128, 128], -1, True), ([0, 0], 1, False)]

    def value(x, y):
        form = Fraction(3 * x[0] - 2 * x[1], 128) + 1
        clipped = min(Fraction(1), max(Fraction(0), form / 4))
        return [Fraction(x[0] >= 0 and y == 1), 1 - clipped, max(clipped, Fraction(y == -1))]

    usable = [[math.floor(128 * part) for part in value(x, y)] for x, y, whole in records if whole]
    return {
        "fraction_bits": 7,
        "predicates": [
            '(z["big"] >= 0) & (y == 1)',
            '~clip((3 * z["big"] - 2 * z["bias"] + 1) / 4)',
            'clip((3 * z["big"] - 2 * z["bias"] + 1) / 4) | (y == -1)',
        ],
        "x": [x for x, _, _ in records],
        "y": [y for _, y, _ in records],
        "usable": [whole for _, _, whole in records],
        "sums": [sum(column) for column in zip(*usable, strict=True)],
    }


def statistic_of_mapped_records():
    """Section 6: forms are over the map's coordinates, here halves of the column, truncated toward zero."""
    one, half, quarter = 1 << 30, 1 << 29, 1 << 28
    values = [quarter, half - 1, half, half + 1, one, -half - 1, -half, -half + 1, -one]
    records = [(x, y, True) for x in values for y in (1, -1)] + [(0, 1, False)]

    def term(x):
        return abs(x) // 2 * (1 if x >= 0 else -1)

    usable = [(term(x), y) for x, y, whole in records if whole]
    above, below = [(4 * t - one >= 0, y) for t, y in usable], [-4 * t - one >= 0 for t, _ in usable]
    return {
        "fraction_bits": 0,
        "feature_map": payload(query_pb2.FeatureMap(terms=[query_pb2.MapTerm(column=0, halvings=1)])).hex(),
        "statistic": payload(query_pb2.StatisticQuery(nodes=mapped_nodes(), predicates=[2, 3])).hex(),
        # In units of 2^-30.
        "x": [[x, one if whole else 0] for x, _, whole in records],
        "y": [y for _, y, _ in records],
        "usable": [whole for _, _, whole in records],
        "sums": [sum(fits and y == 1 for fits, y in above), sum(below)],
    }


def mask_graph():
    """Section 6: the order of a cohort's members, and with whom each of some shares masks."""
    names, digest, neighbours = [f"p{i}" for i in range(30)], sha(b"cohort of thirty"), 20
    order = sorted(names, key=lambda name: sha(b"rado.v1/mask-order\0", digest, named(name)))

    def away(name, other):
        steps = abs(order.index(name) - order.index(other))
        return min(steps, len(order) - steps)

    shown = (order[0], order[15], "p0")
    peers = {name: sorted(other for other in names if 0 < away(name, other) <= neighbours // 2) for name in shown}
    return {"cohort_digest": digest.hex(), "neighbours": neighbours, "order": order, "peers": peers}


def describe(kind, envelope, **more):
    return {
        "kind": kind,
        "payload": envelope.payload.hex(),
        "key_id": envelope.key_id.hex(),
        "signature": envelope.signature.hex(),
        **{name: value.hex() if isinstance(value, bytes) else value for name, value in more.items()},
    }


def labelled():
    """The schemas of a file with two labels and a weight, and the digest of the file."""
    label = '{"column":"COLUMN","missing":"refuse","negative":null,"positive":["1"]}'
    forms = {name: WEIGHED.replace("LABEL", label.replace("COLUMN", name)).encode() for name in LABELS}
    digests = {name: sha(b"rado.v1/schema\0", form) for name, form in forms.items()}
    found = {name: {"canonical": form.decode(), "digest": digests[name].hex()} for name, form in forms.items()}
    return {"schemas": found, "digest": sha(b"rado.v1/labels\0", b"".join(sorted(digests.values()))).hex()}


def good():
    asked = signed("Query", "learner", payload(query()))
    query_id = sha(asked.payload)
    acceptances = [
        signed(
            "Acceptance",
            party,
            payload(
                cohort_pb2.Acceptance(query_id=query_id, attempt=2, party=party, rows=rows, mask_key=mask_public(party))
            ),
        )
        for party, rows in (("a", 120), ("b", 345))
    ]
    cohort_digest = sha(b"rado.v1/cohort\0", query_id, u32(2), u32(2), *(sha(a.payload) for a in acceptances))
    hashes = [sha(b"chunk 0"), sha(b"chunk 1")]
    upload_digest = sha(b"rado.v1/upload\0", u32(2), *hashes)
    receipt = cohort_pb2.Receipt(
        query_id=query_id,
        attempt=2,
        party="a",
        cohort_digest=cohort_digest,
        upload_digest=upload_digest,
        chunks=2,
        ciphertexts=3,
    )
    refusal = cohort_pb2.Refusal(query_id=query_id, attempt=2, party="c", code="UNAVAILABLE")
    ready = cohort_pb2.Ready(query_id=query_id, attempt=2, party="a")
    pending = cohort_pb2.Pending(query_id=query_id, attempt=2, party="c")
    cancel = query_pb2.Cancel(query_id=query_id, learner="learner")
    return {
        "description": "docs/protocol.md, sections 2 to 7. Bytes are lower-case hexadecimal.",
        "now_unix_s": NOW,
        "keys": {name: public(name).hex() for name in ("federation", "learner", "a", "b", "c")},
        "schema": {"canonical": SCHEMA.decode(), "digest": sha(b"rado.v1/schema\0", SCHEMA).hex()},
        "schema_of_version_2": {"canonical": SCHEMA_2.decode(), "digest": sha(b"rado.v1/schema\0", SCHEMA_2).hex()},
        "schemas_of_two_labels": labelled(),
        "weights": [{"weight": weight, "units": units} for weight, units in WEIGHTS],
        "forms_of_texts": [{"texts": steps, "cell": cell, "form": form} for steps, cell, form in FORMS],
        "roster": describe("Roster", signed("Roster", "federation", payload(roster())), version=3),
        "query": describe("Query", asked, query_id=query_id),
        "other_queries": {
            name: describe(
                "Query",
                (envelope := signed("Query", "learner", payload(other_query(name)))),
                query_id=sha(envelope.payload),
            )
            for name in KINDS
        },
        "study": {**STUDY, "digest": study_digest().hex()},
        "moments": moments_of_records(),
        "gradient": gradient_of_records(),
        "statistic": statistic_of_records(),
        "statistic_mapped": statistic_of_mapped_records(),
        "acceptances": [describe("Acceptance", a, payload_hash=sha(a.payload)) for a in acceptances],
        "cohort": {"query_id": query_id.hex(), "attempt": 2, "digest": cohort_digest.hex()},
        "masks": {
            "private_keys": {name: sha(b"test mask key of ", name.encode()).hex() for name in ("a", "b")},
            "ciphertexts": 2,
            "slots": 3,
            "value_bits": 38,
            "of": {
                name: mask_stream(name, peer, query_id, 2, cohort_digest, 6, 38)
                for name, peer in (("a", "b"), ("b", "a"))
            },
        },
        "mask_graph": mask_graph(),
        "tag": tags(),
        "trust": trust_statements(query_id),
        "upload": {"chunk_hashes": [h.hex() for h in hashes], "digest": upload_digest.hex()},
        "receipt": describe("Receipt", signed("Receipt", "a", payload(receipt))),
        "refusal": describe("Refusal", signed("Refusal", "c", payload(refusal))),
        "ready": describe("Ready", signed("Ready", "a", payload(ready))),
        "pending": describe("Pending", signed("Pending", "c", payload(pending))),
        "cancel": describe("Cancel", signed("Cancel", "learner", payload(cancel))),
    }


def bad_queries():
    def ask(name, code, *, signer="learner", suffix=b"", domain=None, **changes):
        data = payload(query(**changes)) + suffix
        envelope = signed("Query", signer, data, **domain or {})
        return describe("Query", envelope, name=name, code=code)

    def certified(**changes):
        return signed("PaillierKey", "learner", payload(paillier_key(**changes)))

    dp_feat = query().rados.dp_feat
    two_thirds = query_pb2.Rational(numerator=4, denominator=6)
    unsplit = query_pb2.DpFeatDesign(sensitive_feature="big")
    absent = query_pb2.DpFeatDesign(sensitive_feature="bias", split=dp_feat.split)
    rado = query_pb2.RadosQuery
    short = paillier_key().modulus[128:]
    yield ask("a field that nobody knows", "FIELD_UNKNOWN", suffix=b"\x98\x06\x01")
    for name, text in (
        ("a purpose of 201 characters", "x" * 201),
        ("a purpose of two lines", "study 17\nstudy 18"),
        ("a purpose that changes its direction", "study \u202e17"),
        ("a purpose that ends with a space", "study 17 "),
        ("a purpose of another space", "study\u00a017"),
    ):
        yield ask(name, "QUERY_INVALID", purpose=text)
    for name, changes in (
        ("a study without a protocol number", {"protocol_number": ""}),
        ("a study with a protocol number of 61 characters", {"protocol_number": "x" * 61}),
        ("a study with a person of two lines", {"person_in_charge": "Ada\nBob"}),
        ("a study whose day has no hyphens", {"ends": "20271231"}),
        ("a study that begins on a day that there is not", {"begins": "2026-02-30"}),
        ("a study that ends before it begins", {"ends": "2025-12-31"}),
    ):
        study = query_pb2.Study(**{**STUDY, **changes})
        yield ask(name, "QUERY_INVALID", study=study, features=["base-0-3", "study"])
    yield ask("a study without its feature", "QUERY_INVALID", study=query_pb2.Study(**STUDY))
    yield ask("a feature without its study", "QUERY_INVALID", features=["base-0-3", "study"])
    for name, text in (
        ("an epoch without a name", ""),
        ("an epoch with a space", "2026 11"),
        ("a long epoch", "x" * 41),
    ):
        yield ask(name, "QUERY_INVALID", epoch=text)
    yield ask("rados of persons", "QUERY_INVALID", persons=query_pb2.Persons(parties=1))
    masks = {"features": ["base-0-3", "mask-graph"]}
    yield ask("masks with 21 others", "QUERY_INVALID", mask_neighbours=21, **masks)
    yield ask("masks with 18 others", "QUERY_INVALID", mask_neighbours=18, **masks)
    vanishing = {"features": ["base-0-3", "survivors"], **VANISHING}
    yield ask("parties that vanish without the feature", "QUERY_INVALID", **VANISHING)
    yield ask("the feature of parties that vanish without any", "QUERY_INVALID", features=["base-0-3", "survivors"])
    yield ask("more that vanish than a cohort can lose", "QUERY_INVALID", **vanishing | {"may_vanish": 2})
    yield ask(
        "as many honest parties as the square of those that vanish",
        "QUERY_INVALID",
        **vanishing | {"honest_parties": 1},
    )
    yield ask(
        "parties that vanish from a mask graph",
        "QUERY_INVALID",
        **vanishing | {"features": ["base-0-3", "mask-graph", "survivors"], "mask_neighbours": 20},
    )
    yield ask("a mask graph without its feature", "QUERY_INVALID", mask_neighbours=20)
    yield ask("the feature of a mask graph without one", "QUERY_INVALID", **masks)
    yield ask("signed by a party", "SIGNATURE_INVALID", signer="a")
    yield ask("signed as a roster", "SIGNATURE_INVALID", domain={"domain_kind": "Roster"})
    yield ask("signed in another role", "SIGNATURE_INVALID", domain={"role": "party"})
    yield ask("signed for another federation", "SIGNATURE_INVALID", domain={"federation": "elsewhere"})
    yield ask("cut short", "MESSAGE_MALFORMED", suffix=b"\x0a\x7f")
    yield ask("another federation", "FEDERATION_MISMATCH", federation="elsewhere")
    yield ask("a learner that the roster lacks", "PEER_UNKNOWN", learner="stranger")
    yield ask("planned with a newer roster", "ROSTER_STALE", roster_version=4)
    yield ask("over", "QUERY_EXPIRED", created_at_unix_s=NOW - 9000, not_after_unix_s=NOW - 301)
    yield ask("not yet begun", "QUERY_EXPIRED", created_at_unix_s=NOW + 301)
    yield ask("a schema digest of another schema", "QUERY_INVALID", schema_digest=bytes(32))
    yield ask("a schema with white space", "QUERY_INVALID", schema=SCHEMA + b" ")
    yield ask("no nonce", "QUERY_INVALID", nonce=b"")
    yield ask("delta of one", "QUERY_INVALID", delta=query_pb2.Rational(numerator=1, denominator=1))
    yield ask("delta not in lowest terms", "QUERY_INVALID", delta=two_thirds)
    yield ask("delta without a denominator", "QUERY_INVALID", delta=query_pb2.Rational(numerator=1))
    yield ask("no rados", "QUERY_INVALID", rados=rado(dp_feat=dp_feat))
    yield ask("no design", "QUERY_INVALID", rados=rado(rados=10))
    joint = query_pb2.JointDesign(sensitive_column="bias", share_sigma=9)
    quiet = query_pb2.GaussianDesign(norm_bound=NORM_BOUND, share_sigma=2)
    short_bound = query_pb2.GaussianDesign(norm_bound=rational(1), share_sigma=20)
    whole = query_pb2.FixedSupportDesign(
        fraction=rational(1), norm_bound=NORM_BOUND, edge_sigma=9, split=query_pb2.SPLIT_LOCAL
    )
    yield ask("joint for a column that is not there", "QUERY_INVALID", rados=rado(rados=10, joint=joint))
    yield ask("noise below what is counted", "QUERY_INVALID", rados=rado(rados=10, gaussian=quiet))
    yield ask("a norm bound that the bias fills", "QUERY_INVALID", rados=rado(rados=10, gaussian=short_bound))
    yield ask("a support of all records", "QUERY_INVALID", rados=rado(rados=10, fixed_support=whole))
    loud = query_pb2.GaussianDesign(norm_bound=NORM_BOUND, share_sigma=1 << 40)
    yield ask("noise that overflows", "ENCODING_OVERFLOW", rados=rado(rados=10, gaussian=loud))
    yield ask("no split", "QUERY_INVALID", rados=rado(rados=10, dp_feat=unsplit))
    yield ask("a sensitive coordinate that is not boolean", "QUERY_INVALID", rados=rado(rados=10, dp_feat=absent))
    short_commitment = query_pb2.Binding(
        opening_key=binding(b"").opening_key, seeds=binding(b"").seeds, commitment=bytes(31)
    )
    yield ask("a commitment of 31 bytes", "QUERY_INVALID", binding=short_commitment)
    uncommitted = query_pb2.Binding(opening_key=binding(b"").opening_key, seeds=binding(b"").seeds)
    yield ask("no commitment to the seed", "QUERY_INVALID", binding=uncommitted)
    yield ask("no binding", "QUERY_INVALID", binding=None)
    part = query_pb2.HeldBack(share=rational(1, 5), part=query_pb2.PART_TRAINING)
    both = {"held_back": part}
    yield ask("a part of the rows of dp-feat", "QUERY_INVALID", **both)
    noisy = rado(rados=10, gaussian=query_pb2.GaussianDesign(norm_bound=NORM_BOUND, share_sigma=7000))
    for name, odd in (
        ("no part", query_pb2.HeldBack(share=rational(1, 5))),
        ("no share that is held back", query_pb2.HeldBack(part=query_pb2.PART_TRAINING)),
        ("all rows held back", query_pb2.HeldBack(share=rational(1), part=query_pb2.PART_TRAINING)),
        ("a share not in lowest terms", query_pb2.HeldBack(share=rational(2, 10), part=query_pb2.PART_TRAINING)),
    ):
        yield ask(name, "QUERY_INVALID", rados=noisy, **both | {"held_back": odd})
    yield ask("a cohort smaller than nobody", "QUERY_INVALID", cohort_min=0)
    yield ask("a cohort larger than all", "QUERY_INVALID", cohort_min=4)
    yield ask("no attempt", "QUERY_INVALID", max_attempts=0)
    yield ask("no time to answer", "QUERY_INVALID", answer_within_s=0)
    yield ask("sums that overflow", "ENCODING_OVERFLOW", max_rows=1 << 22)
    narrow = query_pb2.Encoding(fraction_bits=16, value_bits=39, slot_bits=40)
    yield ask("slots that carry", "ENCODING_OVERFLOW", encoding=narrow)
    yield ask("a Paillier key of 1024 bits", "KEY_INVALID", paillier_key=certified(modulus=short))
    padded = b"\0" + paillier_key().modulus
    yield ask("a Paillier key with a leading zero", "KEY_INVALID", paillier_key=certified(modulus=padded))
    yield ask("another learner's Paillier key", "KEY_INVALID", paillier_key=certified(learner="other"))
    yield ask("a Paillier key that ends too soon", "KEY_INVALID", paillier_key=certified(not_after_unix_s=NOW))
    modulus = int.from_bytes(paillier_key().modulus, "big")
    named = {"features": ["base-0-3", "short-opening"]}
    yield ask("a subgroup without its feature", "QUERY_INVALID", paillier_key=certified(subgroup=SUBGROUP))
    yield ask("the feature of a subgroup without one", "QUERY_INVALID", **named)
    for name, octets, order_bits in (
        ("a generator with a leading zero", b"\0\4", 576),
        ("a generator that is one", b"\1", 576),
        ("a generator above the modulus", b"\xff" * 256, 576),
        ("a generator of order two", (modulus - 1).to_bytes(256, "big"), 576),
        ("a subgroup of too small an order", b"\4", 511),
        ("a subgroup of too large an order", b"\4", 2049),
    ):
        odd = query_pb2.Subgroup(generator=octets, order_bits=order_bits)
        yield ask(name, "KEY_INVALID", paillier_key=certified(subgroup=odd), **named)
    stolen = signed("PaillierKey", "a", payload(paillier_key()))
    yield ask("a Paillier key signed by a party", "SIGNATURE_INVALID", paillier_key=stolen)


def bad_rosters():
    def issue(name, code, change=lambda roster: None, *, signer="federation"):
        message = roster()
        change(message)
        return describe("Roster", signed("Roster", signer, payload(message)), name=name, code=code)

    yield issue("signed by a learner", "SIGNATURE_INVALID", signer="learner")
    yield issue("older than version 3", "ROSTER_STALE", lambda r: setattr(r, "version", 2))
    yield issue("two members of one name", "MESSAGE_MALFORMED", lambda r: setattr(r.members[3], "name", "a"))
    yield issue(
        "two members with one key", "MESSAGE_MALFORMED", lambda r: setattr(r.members[3], "signing_key", public("a"))
    )
    yield issue("no coordinator", "MESSAGE_MALFORMED", lambda r: r.members.__delitem__(0))
    yield issue("a member without a role", "MESSAGE_MALFORMED", lambda r: setattr(r.members[2], "role", 0))
    yield issue("a name in capitals", "MESSAGE_MALFORMED", lambda r: setattr(r.members[2], "name", "A"))


def bad():
    return {
        "description": "What must be refused, with the code: rosters where version 3 was seen, queries at now_unix_s.",
        "cases": [*bad_queries(), *bad_rosters()],
    }


def text(value):
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


FILES = {"protocol.json": good, "protocol_bad.json": bad}

if __name__ == "__main__":
    for name, make in FILES.items():
        (HERE / name).write_text(text(make()))
