"""Write answer.json next to this file: python tests/vectors/make_answer_vectors.py

Two queries over the rows of three parties: each party's sums, its noise, slots, masks, tag and ciphertexts, then the
product, its opening and the learner's answer. Noise and the obfuscators' r are given. A second run writes the same
bytes (tests/protocol/test_answer_vectors.py compares).

Computed here with integers, fractions and gmpy2's modular power, as docs/protocol.md says, not with the code that the
vectors test.
"""

import csv
import io
import json
import math
import random
import sys
from fractions import Fraction
from pathlib import Path

import gmpy2
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from rado.v1 import cohort_pb2, query_pb2
from tests.vectors import make_protocol_vectors as base
from tests.vectors import make_record_vectors as rows_of
from tests.vectors.make_protocol_vectors import NOW, TAG_PRIME, named, payload, rational, sha, signed, u32
from tests.vectors.make_record_vectors import ONE, TWO, canonical, digest_of, feature, real, schema

PARTIES = ("a", "b", "c")
F, W, SLOT_BITS = 7, 38, 40
K, SIGMA = 640, 900
SCALE = 512
ATTEMPT = 1

TABLE = schema(
    "answer",
    TWO,
    real("age", 0, 100, out_of_bounds="clip"),
    feature("smoker", type="boolean", true=["1"], false=["0"], unknown="refuse"),
    feature("ward", type="category", values=["north", "south"], unknown="zero", missing="zero-vector"),
    schema_version=1,
)
CSV = {
    "a": "age,smoker,ward,y\n20,1,north,1\n87.5,0,south,0\n64,1,east,1\n10,0,,0\n",
    "b": "age,smoker,ward,y\n33,0,north,\n50,1,south,1\n101,1,south,0\n",
    "c": "age,smoker,ward,y\n1,0,south,0\n99,0,north,1\n42,1,north,1\n42,1,north,0\n75,0,east,1\n",
}


def read(party):
    return [rows_of.of_row(TABLE, cells) for cells in csv.DictReader(io.StringIO(CSV[party]))]


# Section 6: the sums of a party's rows.


def shortened(number):
    """From units of 2^-30 to units of 2^-F, toward zero."""
    return int(Fraction(number, 1 << (30 - F)))


def moments(rows):
    """With R = 2, under which some rows are clipped."""
    d = len(rows[0]["coordinates"])
    most = 4 * 4**F - 4**F
    total = [0] * (d + d * (d + 1) // 2 - 1)
    clipped = []
    for row in rows:
        y, x = row["label"] or 1, [shortened(each) for each in row["coordinates"]]
        free, bias = x[:-1], x[-1]
        square = sum(each * each for each in free)
        factor = 1.0
        shorter = free
        if square > most:
            factor = math.sqrt(most / square)
            shorter = [int(each * factor) for each in free]
            while sum(each * each for each in shorter) > most:
                factor *= 1 - 2.0**-40
                shorter = [int(each * factor) for each in free]
        v = [*shorter, bias]
        clipped.append(v)
        pairs = [(j, k) for j in range(d) for k in range(j, d) if (j, k) != (d - 1, d - 1)]
        values = [K * y * each for each in v] + [(5 if j == k else 7) * v[j] * v[k] for j, k in pairs]
        total = [one + more for one, more in zip(total, values, strict=True)]
    return total, {"clipped": clipped}


def statistic_nodes():
    """smoker & (age >= 50); ~(ward == "south"); clip((3 z[age] + 2 z[bias]) / 4), in the order of a walk."""
    form = query_pb2.AffineForm(coordinates=[0, 4], weights=[3, 2])
    return [
        query_pb2.PredicateNode(flag=1),
        query_pb2.PredicateNode(at_least=query_pb2.RealTest(feature=0, bound=rational(50))),
        query_pb2.PredicateNode(all_of=query_pb2.Operands(places=[0, 1])),
        query_pb2.PredicateNode(equals=query_pb2.CategoryTest(feature=2, value=1)),
        query_pb2.PredicateNode(complement=3),
        query_pb2.PredicateNode(clipped=query_pb2.ClippedForm(form=form, scale=4)),
    ]


def statistic(rows):
    of_rows = []
    bound = rows_of.scaled(50.0, 0.0, 100.0)
    for row in rows:
        if not row["usable"]:
            of_rows.append([0, 0, 0])
            continue
        age, smoker, _, south, bias = row["coordinates"]
        clipped = min(Fraction(1), max(Fraction(0), Fraction(3 * age + 2 * bias, ONE) / 4))
        values = (Fraction(smoker == ONE and age >= bound), Fraction(south == 0), clipped)
        of_rows.append([math.floor(each * 2**F) for each in values])
    return [sum(column) for column in zip(*of_rows, strict=True)], {"of_rows": of_rows}


# The query, and what parties make of it.


def keys():
    primes = json.loads((HERE / "paillier_test_primes.json").read_text())["keys"][0]
    return int(primes["p"], 16), int(primes["q"], 16)


def query(kind):
    p, q = keys()
    certificate = base.paillier_key(modulus=(p * q).to_bytes(256, "big"))
    more = {"encoding": query_pb2.Encoding(fraction_bits=F, value_bits=W, slot_bits=SLOT_BITS), "rados": None}
    if kind == "moments":
        more["moments"] = query_pb2.MomentsQuery(norm_bound=rational(2), edge_multiplier=K, share_sigma=SIGMA)
    else:
        laplace = query_pb2.LaplaceShare(scale=rational(SCALE), shares=2)
        more["statistic"] = query_pb2.StatisticQuery(nodes=statistic_nodes(), predicates=[2, 4, 5], laplace=laplace)
    return base.query(
        schema=canonical(TABLE).encode(),
        schema_digest=digest_of(TABLE),
        paillier_key=signed("PaillierKey", "learner", payload(certificate)),
        max_rows=1000,
        cohort_min=3,
        honest_parties=2,
        **more,
    )


def pair_stream(name, peer, where, cohort_digest, count):
    """The stream that `name` adds, modulo 2^W."""
    return [each % 2**W for each in base.mask_stream(name, peer, where[0], where[1], cohort_digest, count, W)]


def tag_of(name, values, query_id, cohort_digest):
    where = query_id + u32(ATTEMPT)
    alpha = base.residue(base.hkdf(base.tag_seed(), query_id, b"rado.v1/tag-coefficient\0" + u32(ATTEMPT), 48))
    opened = base.mask_key(name).exchange(
        X25519PublicKey.from_public_bytes(base.opening_key().public_key().public_bytes_raw())
    )
    pad = base.residue(base.hkdf(opened, cohort_digest, b"rado.v1/tag-pad\0" + where + named(name), 48))
    mask = 0
    for peer in PARTIES:
        if peer != name:
            shared = base.mask_key(name).exchange(base.mask_key(peer).public_key())
            info = b"rado.v1/tag-mask\0" + where + named(*sorted((name, peer)))
            mask += (1 if name < peer else -1) * base.residue(base.hkdf(shared, cohort_digest, info, 48))
    of_values = sum(pow(alpha, place, TAG_PRIME) * value for place, value in enumerate(values, 1))
    return pad, (pad + mask + of_values) % TAG_PRIME


def answer(kind, sums):
    p, q = keys()
    n = p * q
    slots = (n.bit_length() - 1) // SLOT_BITS
    asked = signed("Query", "learner", payload(query(kind)))
    query_id = sha(asked.payload)
    made = {name: sums(read(name)) for name in PARTIES}
    rows = {name: len(read(name)) for name in PARTIES}
    acceptances = {name: accepted(name, rows[name], query_id) for name in PARTIES}
    hashes = [sha(each.payload) for each in acceptances.values()]
    cohort_digest = sha(b"rado.v1/cohort\0", query_id, u32(ATTEMPT), u32(len(PARTIES)), *hashes)
    members, product, total = {}, None, [0] * len(made["a"][0])
    pads = []
    for name in PARTIES:
        of_rows, shown = made[name]
        draw = random.Random(f"{kind} {name}")
        noise = [draw.randint(-2000, 2000) for _ in of_rows]
        values = [one + more for one, more in zip(of_rows, noise, strict=True)]
        total = [one + more for one, more in zip(total, values, strict=True)]
        plaintexts, bare = plain(name, values, rows[name], query_id, cohort_digest, slots)
        pad, tag = tag_of(name, values, query_id, cohort_digest)
        pads.append(pad)
        obfuscators = [draw.randrange(2, n) for _ in range(len(plaintexts) + 1)]
        ciphertexts = [encrypted(m, r, n) for m, r in zip([*plaintexts, tag], obfuscators, strict=True)]
        product = (
            ciphertexts if product is None else [a * b % (n * n) for a, b in zip(product, ciphertexts, strict=True)]
        )
        chunk = b"".join(each.to_bytes(512, "big") for each in ciphertexts)
        digest = sha(b"rado.v1/upload\0", u32(1), sha(chunk))
        members[name] = {
            "csv": CSV[name],
            "rows": read(name),
            **shown,
            "sums": of_rows,
            "noise": noise,
            "values": values,
            "acceptance": base.describe("Acceptance", acceptances[name]),
            "mask_private_key": sha(b"test mask key of ", name.encode()).hex(),
            "bare_plaintexts": [format(each, "x") for each in bare],
            "masked_plaintexts": [format(each, "x") for each in plaintexts],
            "tag": format(tag, "x"),
            "obfuscators_r": [format(each, "x") for each in obfuscators],
            "chunk": chunk.hex(),
            "upload_digest": digest.hex(),
            "receipt": base.describe("Receipt", receipt(name, query_id, cohort_digest, digest, len(ciphertexts))),
        }
    chunk = b"".join(each.to_bytes(512, "big") for each in product)
    opened = [decrypted(each, p, q) for each in product]
    return {
        "query": base.describe("Query", asked, query_id=query_id),
        "opening_private_key": sha(b"test opening key").hex(),
        "attempt": ATTEMPT,
        "cohort_digest": cohort_digest.hex(),
        "members": members,
        "total": {
            "chunk": chunk.hex(),
            "plaintexts": [format(each, "x") for each in opened],
            "values": total,
            "rows": sum(rows.values()),
        },
        "answer": said(kind, total, sum(rows.values())),
    }


def accepted(name, rows, query_id):
    said = cohort_pb2.Acceptance(
        query_id=query_id, attempt=ATTEMPT, party=name, rows=rows, mask_key=base.mask_public(name), roster_version=3
    )
    return signed("Acceptance", name, payload(said))


def receipt(name, query_id, cohort_digest, upload_digest, ciphertexts):
    said = cohort_pb2.Receipt(
        query_id=query_id,
        attempt=ATTEMPT,
        party=name,
        cohort_digest=cohort_digest,
        upload_digest=upload_digest,
        chunks=1,
        ciphertexts=ciphertexts,
    )
    return signed("Receipt", name, payload(said))


def plain(name, values, rows, query_id, cohort_digest, slots):
    """The plaintexts with masks and without, one for each ciphertext of values."""
    count = -(-len(values) // (slots - 1))
    padded = [*values, *[0] * (count * (slots - 1) - len(values))]
    contents = []
    for index in range(count):
        contents += [rows, *padded[index * (slots - 1) : (index + 1) * (slots - 1)]]
    streams = [
        pair_stream(name, peer, (query_id, ATTEMPT), cohort_digest, len(contents)) for peer in PARTIES if peer != name
    ]
    masks = [sum(each) for each in zip(*streams, strict=True)]
    masked = [(x + 2 ** (W - 1) + mask) % 2**W for x, mask in zip(contents, masks, strict=True)]
    bare = [(x + 2 ** (W - 1)) % 2**W for x in contents]
    return packed(masked, slots), packed(bare, slots)


def packed(slot_values, slots):
    return [
        sum(u << (SLOT_BITS * place) for place, u in enumerate(slot_values[start : start + slots]))
        for start in range(0, len(slot_values), slots)
    ]


def encrypted(plaintext, r, n):
    return (1 + n * plaintext) * int(gmpy2.powmod(r, n, n * n)) % (n * n)


def decrypted(ciphertext, p, q):
    n, order = p * q, (p - 1) * (q - 1)
    power = int(gmpy2.powmod(ciphertext, order, n * n))
    return (power - 1) // n * pow(order, -1, n) % n


def said(kind, total, rows):
    """What the learner makes of the values: estimates as fractions, and what the release cost."""
    if kind == "statistic":
        # Three predicates that may all change with one record.
        return {
            "rows": rows,
            "sums": [str(Fraction(each, 2**F)) for each in total],
            "epsilon": str(Fraction(3 * 2**F, SCALE)),
            "delta": "0",
        }
    d = 5
    units = [K * 2**F] * d
    units += [(5 if j == k else 7) * 4**F for j in range(d) for k in range(j, d) if (j, k) != (d - 1, d - 1)]
    return {"rows": rows, "sums": [str(Fraction(value, unit)) for value, unit in zip(total, units, strict=True)]}


def answers():
    p, q = keys()
    return {
        "description": "docs/protocol.md, sections 4 to 8. Coordinates in units of 2^-30; numbers in hexadecimal where "
        "they are texts without a fraction bar. The noise is given, and is not drawn as section 6 says.",
        "now_unix_s": NOW,
        "p": format(p, "x"),
        "q": format(q, "x"),
        "moments": answer("moments", moments),
        "statistic": answer("statistic", statistic),
    }


FILES = {"answer.json": answers}

if __name__ == "__main__":
    for name, make in FILES.items():
        (HERE / name).write_text(base.text(make()))
