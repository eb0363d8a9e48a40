"""Write the vectors of packing and Paillier encryption next to this file.

Run it with `python tests/vectors/make_encryption_vectors.py`. Everything is drawn from seeds, so that a second run
writes the same bytes (tests/dpcore/paillier/test_encryption_vectors.py compares). Expected values are computed here
with Python's integers and GMP's modular power alone, not with the code that the vectors test; only random numbers and
the two short keys come from dpcore, the primes of the long ones from paillier_test_primes.json.
"""

import hashlib
import json
import sys
from pathlib import Path

import gmpy2

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom

FORMAT = (
    "Integers that may exceed 2^53 are decimal strings; plaintexts, keys and ciphertexts are lower-case hexadecimal "
    "without a prefix."
)


def power(base, exponent, modulus):
    return int(gmpy2.powmod(base, exponent, modulus))


def hexadecimal(number):
    return format(number, "x")


def packed(values, rows, masks, *, w, slot_bits, slots):
    """Plaintexts of one contribution, slot by slot; masks: one number per slot, or None."""
    plaintexts = []
    for index in range(-(-len(values) // (slots - 1))):
        chunk = values[index * (slots - 1) : (index + 1) * (slots - 1)]
        content = [rows, *chunk, *[0] * (slots - 1 - len(chunk))]
        plaintext = 0
        for slot, value in enumerate(content):
            mask = masks[index][slot] if masks else 0
            plaintext += ((value + 2 ** (w - 1) + mask) % 2**w) << (slot_bits * slot)
        plaintexts.append(plaintext)
    return plaintexts


def zero_sum_masks(random, parties, ciphertexts, slots, w):
    masks = [[[random.below(2**w) for _ in range(slots)] for _ in range(ciphertexts)] for _ in range(parties - 1)]
    last = [[-sum(m[c][s] for m in masks) % 2**w for s in range(slots)] for c in range(ciphertexts)]
    return [*masks, last]


def packing_case(random, name, *, w, slot_bits, modulus_bits, length, parties, masked, extremes):
    slots = (modulus_bits - 1) // slot_bits
    ciphertexts = -(-length // (slots - 1))
    bound = (2 ** (w - 1) - 1) // parties
    masks = zero_sum_masks(random, parties, ciphertexts, slots, w) if masked else [None] * parties
    contributions = []
    for party in range(parties):
        values = [random.below(2 * bound + 1) - bound for _ in range(length)]
        if extremes:
            values[0], values[1] = bound, -bound
        rows = random.below(min(bound, 50_000))
        plaintexts = packed(values, rows, masks[party], w=w, slot_bits=slot_bits, slots=slots)
        contributions.append({"rows": rows, "values": values, "mask": masks[party], "plaintexts": plaintexts})
    return {
        "name": name,
        "encoding": {"fraction_bits": 16, "value_bits": w, "slot_bits": slot_bits},
        "modulus_bits": modulus_bits,
        "length": length,
        "slots_per_ciphertext": slots,
        "contributions": [
            {
                "rows": c["rows"],
                "values": [str(v) for v in c["values"]],
                "mask": [[str(m) for m in row] for row in c["mask"]] if c["mask"] else None,
                "plaintexts": [hexadecimal(p) for p in c["plaintexts"]],
            }
            for c in contributions
        ],
        "total_plaintexts": [hexadecimal(sum(c["plaintexts"][i] for c in contributions)) for i in range(ciphertexts)],
        "total_rows": sum(c["rows"] for c in contributions),
        "total_values": [str(sum(c["values"][i] for c in contributions)) for i in range(length)],
    }


def packing(random):
    cases = [
        packing_case(random, "one party, one value", w=20, slot_bits=24, modulus_bits=512, length=1, parties=1,
                     masked=False, extremes=False),
        packing_case(random, "three parties, extremes, padding", w=44, slot_bits=48, modulus_bits=512, length=13,
                     parties=3, masked=False, extremes=True),
        packing_case(random, "masks that sum to zero", w=44, slot_bits=48, modulus_bits=512, length=13, parties=3,
                     masked=True, extremes=True),
        packing_case(random, "widest slot", w=62, slot_bits=64, modulus_bits=512, length=6, parties=4, masked=True,
                     extremes=True),
        packing_case(random, "a key of 3072 bits", w=43, slot_bits=48, modulus_bits=3072, length=100, parties=2,
                     masked=False, extremes=False),
        packing_case(random, "a key of 2048 bits", w=36, slot_bits=40, modulus_bits=2048, length=60, parties=3,
                     masked=False, extremes=True),
        packing_case(random, "a key of 4096 bits", w=43, slot_bits=48, modulus_bits=4096, length=90, parties=2,
                     masked=True, extremes=True),
    ]  # fmt: skip
    good = {"description": f"Packing, docs/protocol.md. {FORMAT}", "cases": cases}
    return good, {
        "description": f"Totals that must be refused, with the step and the error that must. {FORMAT}",
        "cases": bad_totals(cases[2]),
    }


def bad_totals(source):
    """Invalid variants of one valid case."""
    totals = [int(p, 16) for p in source["total_plaintexts"]]
    shares = [[int(p, 16) for p in c["plaintexts"]] for c in source["contributions"]]
    slots, slot_bits = source["slots_per_ciphertext"], source["encoding"]["slot_bits"]

    def case(name, plaintexts, fails_at, error, ciphertext):
        return {
            "name": name,
            **{key: source[key] for key in ("encoding", "modulus_bits", "length", "total_rows")},
            "parties": len(shares),
            "total_plaintexts": [hexadecimal(p) for p in plaintexts],
            "fails_at": fails_at,
            "error": error,
            "ciphertext": ciphertext,
        }

    missing = [t - s for t, s in zip(totals, shares[0], strict=True)]
    doubled = [t + s for t, s in zip(totals, shares[0], strict=True)]
    swapped = [t - a + b for t, a, b in zip(totals, shares[0], shares[1], strict=True)]
    second = [totals[0], totals[1] - shares[0][1]]
    return [
        case("a contribution is missing", missing, "open_total", "CheckSlotError", 0),
        case("a contribution counted twice", doubled, "open_total", "CheckSlotError", 0),
        case("one contribution twice, another missing", swapped, "open_total", "CheckSlotError", 0),
        case("a contribution is missing from the second ciphertext", second, "open_total", "CheckSlotError", 1),
        case("a bit above the slots", [totals[0], totals[1] + (1 << (slots * slot_bits))], "unpack_total",
             "PlaintextRangeError", 1),
        case("a ciphertext is missing", totals[:1], "unpack_total", "TotalError", None),
    ]  # fmt: skip


def encryption(random, n, plaintext):
    r = 1 + random.below(n - 1)
    obfuscator = power(r, n, n * n)
    ciphertext = (1 + n * plaintext) * obfuscator % (n * n)
    return {"plaintext": plaintext, "r": r, "obfuscator": obfuscator, "ciphertext": ciphertext}


def product(ciphertexts, n):
    result = 1
    for ciphertext in ciphertexts:
        result = result * ciphertext % (n * n)
    return result


def short_exponents(random, n):
    """Obfuscators H^a for H = h^n mod n^2, h = -x^2 mod n, as a comb or any other method must compute them."""
    x, length = 2 + random.below(n - 2), -(-n.bit_length() // 2)
    base = power(-x * x % n, n, n * n)
    exponents = [0, 1, 2 ** (length - 1), 2**length - 1, random.below(2**length), random.below(2**length)]
    return {
        "x": hexadecimal(x),
        "base": hexadecimal(base),
        "exponents": [hexadecimal(exponent) for exponent in exponents],
        "obfuscators": [hexadecimal(power(base, exponent, n * n)) for exponent in exponents],
    }


def masked(random, n, ciphertext, plaintext):
    """A ciphertext to which a plaintext, also a negative one, is added, as a member's masks are."""
    numbers = [random.below(n), -random.below(n), 0]
    return [
        {
            "added": str(number),
            "ciphertext": hexadecimal(ciphertext * (1 + n * (number % n)) % (n * n)),
            "plaintext": hexadecimal((plaintext + number) % n),
        }
        for number in numbers
    ]


def total(random, n, parties=3, w=30, slot_bits=32):
    """Values through all steps: packed, encrypted under given obfuscators, multiplied, decrypted, unpacked."""
    slots = (n.bit_length() - 1) // slot_bits
    bound = (2 ** (w - 1) - 1) // parties
    contributions = []
    for _ in range(parties):
        values = [random.below(2 * bound + 1) - bound for _ in range(slots - 1)]
        rows = random.below(50_000)
        (plaintext,) = packed(values, rows, None, w=w, slot_bits=slot_bits, slots=slots)
        contributions.append({"rows": rows, "values": values, **encryption(random, n, plaintext)})
    return {
        "encoding": {"fraction_bits": 12, "value_bits": w, "slot_bits": slot_bits},
        "contributions": [
            {k: v if k in ("rows", "values") else hexadecimal(v) for k, v in each.items() if k != "r"}
            for each in contributions
        ],
        "ciphertext": hexadecimal(product([each["ciphertext"] for each in contributions], n)),
        "plaintext": hexadecimal(sum(each["plaintext"] for each in contributions)),
        "rows": sum(each["rows"] for each in contributions),
        "values": [sum(column) for column in zip(*(each["values"] for each in contributions), strict=True)],
    }


def key_case(random, name, p, q):
    n = p * q
    plaintexts = [0, 1, n - 1, random.below(n), random.below(n)]
    encryptions = [encryption(random, n, plaintext) for plaintext in plaintexts]
    ciphertexts = [each["ciphertext"] for each in encryptions]
    return {
        "name": name,
        "p": hexadecimal(p),
        "q": hexadecimal(q),
        "n": hexadecimal(n),
        "bits": n.bit_length(),
        "ciphertext_bytes": 2 * -(-n.bit_length() // 8),
        "fingerprint": hashlib.sha256(n.to_bytes(-(-n.bit_length() // 8), "big")).hexdigest(),
        "encryptions": [{k: hexadecimal(v) for k, v in e.items()} for e in encryptions],
        "product": {"ciphertext": hexadecimal(product(ciphertexts, n)), "plaintext": hexadecimal(sum(plaintexts) % n)},
        "wire": "".join(format(ciphertext, f"0{4 * -(-n.bit_length() // 8)}x") for ciphertext in ciphertexts),
        "short_exponents": short_exponents(random, n),
        "masked": masked(random, n, ciphertexts[3], plaintexts[3]),
        "total": total(random, n),
    }


def paillier(random):
    small, odd = (SecretKey.generate_test_key(random, bits=bits) for bits in (512, 516))
    kept = json.loads((Path(__file__).parent / "paillier_test_primes.json").read_text())["keys"]
    full = {key["bits"]: (int(key["p"], 16), int(key["q"], 16)) for key in kept}
    good = {
        "description": f"Paillier with generator n + 1. The keys are test keys. {FORMAT}",
        "cases": [
            key_case(random, "a test key of 512 bits", small.p, small.q),
            key_case(random, "a test key whose length is no whole number of bytes", odd.p, odd.q),
            *(key_case(random, f"a test key of {bits} bits", p, q) for bits, (p, q) in full.items()),
        ],
    }
    n, ok = small.p * small.q, 2 + random.below(small.p)

    def case(name, ciphertexts, index):
        return {"name": name, "n": hexadecimal(n), "ciphertexts": [hexadecimal(c) for c in ciphertexts],
                "fails_at": "validate", "error": "InvalidCiphertextError", "index": index}  # fmt: skip

    def key(name, modulus):
        return {"name": name, "n": hexadecimal(modulus), "ciphertexts": [], "fails_at": "public_key",
                "error": "InvalidKeyError", "index": None}  # fmt: skip

    legal = full[2048][0] * full[2048][1]
    bad = [
        case("zero", [ok, 0, ok], 1),
        case("n squared", [ok, ok, n * n], 2),
        case("beyond n squared", [n * n + 1], 0),
        case("n itself", [n, ok], 0),
        case("a multiple of p", [ok, ok, ok, small.p * 12345], 3),
        case("a multiple of q", [ok, small.q, ok, small.p], 1),
        key("a modulus of 512 bits", n),
        key("an even modulus", legal - 1),
        key("no modulus", 0),
        key("a modulus of 4098 bits", (1 << 4097) + 1),
    ]
    return good, {"description": f"Ciphertexts and keys that must be refused. {FORMAT}", "cases": bad}


def short_opening(random):
    """Keys with a subgroup: what it obfuscates, and what is opened by the orders and by the full exponent."""
    kept = json.loads((Path(__file__).parent / "paillier_test_primes.json").read_text())["short_opening_keys"]
    names = ("p", "q", "p_order", "q_order", "generator")
    cases = [short_opening_case(random, *(int(key[name], 16) for name in names)) for key in kept]
    return {"description": f"Keys with short opening, docs/protocol.md. They are test keys. {FORMAT}", "cases": cases}


def short_opening_case(random, p, q, p_order, q_order, generator):
    n, order_bits = p * q, (p_order * q_order).bit_length()
    width, length = -(-n.bit_length() // 8), order_bits + 128
    base = power(generator, n, n * n)
    exponents = [0, 1, 2**length - 1, random.below(2**length)]
    inside = [power(base, exponent, n * n) for exponent in exponents]
    outside = power(2 + random.below(n - 2), n, n * n)
    plaintexts = [0, n - 1, random.below(n), random.below(n)]
    ciphertexts = [(1 + n * m) * o % (n * n) for m, o in zip(plaintexts, inside, strict=True)]
    other = random.below(n)
    octets = b"rado.v1/subgroup-key\0" + width.to_bytes(4, "big") + n.to_bytes(width, "big")
    octets += generator.to_bytes(width, "big") + order_bits.to_bytes(4, "big")
    numbers = {"p": p, "q": q, "p_order": p_order, "q_order": q_order, "n": n, "generator": generator, "base": base}
    return {
        "name": f"a test key of {n.bit_length()} bits",
        **{name: hexadecimal(number) for name, number in numbers.items()},
        "order_bits": order_bits,
        "exponent_bits": length,
        "fingerprint": hashlib.sha256(octets).hexdigest(),
        "exponents": [hexadecimal(exponent) for exponent in exponents],
        "obfuscators": [hexadecimal(obfuscator) for obfuscator in inside],
        "plaintexts": [hexadecimal(plaintext) for plaintext in plaintexts],
        "ciphertexts": [hexadecimal(ciphertext) for ciphertext in ciphertexts],
        "outside": {
            "ciphertext": hexadecimal((1 + n * other) * outside % (n * n)),
            "plaintext": hexadecimal(other),
            "total": hexadecimal((1 + n * other) * outside * ciphertexts[2] % (n * n)),
            "total_plaintext": hexadecimal((other + plaintexts[2]) % n),
        },
    }


def vectors():
    """Name of each file and its text."""
    packing_good, packing_bad = packing(SeededRandom(b"radofed vectors: packing"))
    paillier_good, paillier_bad = paillier(SeededRandom(b"radofed vectors: paillier"))
    contents = {
        "packing.json": packing_good,
        "packing_bad_totals.json": packing_bad,
        "paillier.json": paillier_good,
        "paillier_bad_inputs.json": paillier_bad,
        "short_opening.json": short_opening(SeededRandom(b"radofed vectors: short opening")),
    }
    return {name: json.dumps(content, indent=1) + "\n" for name, content in contents.items()}


if __name__ == "__main__":
    for name, text in vectors().items():
        (Path(__file__).parent / name).write_text(text)
