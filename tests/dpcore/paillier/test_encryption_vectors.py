"""The vectors of packing and Paillier encryption, good and bad. Their generator still makes them."""

import importlib.util
import json
from pathlib import Path

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

import dpcore.paillier.packing
import dpcore.paillier.public
from dpcore import errors
from dpcore.numbers.fixed_point import Encoding
from dpcore.paillier.obfuscation import Comb
from dpcore.paillier.packing import ciphertext_count, open_total, pack, unpack_total
from dpcore.paillier.public import DEFAULT_BITS, MAXIMUM_BITS, MINIMUM_BITS, PublicKey
from dpcore.paillier.secret import SecretKey, ShortOpening
from dpcore.paillier.subgroup import Subgroup

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def cases(name):
    loaded = json.loads((VECTORS / name).read_text())["cases"]
    assert loaded
    return [pytest.param(case, id=case["name"]) for case in loaded]


def error_named(name):
    for module in (dpcore.paillier.packing, dpcore.paillier.public, errors):
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(name)


def integers(numbers):
    return [int(number, 16) for number in numbers]


@pytest.mark.parametrize("case", cases("packing.json"))
def test_packing(case):
    encoding, bits, length = Encoding(**case["encoding"]), case["modulus_bits"], case["length"]
    parties = len(case["contributions"])
    assert encoding.slots_per_ciphertext(bits) == case["slots_per_ciphertext"]
    assert ciphertext_count(length, encoding, bits) == len(case["total_plaintexts"])
    for contribution in case["contributions"]:
        values = np.array([int(v) for v in contribution["values"]], dtype=np.int64)
        mask = contribution["mask"]
        mask = None if mask is None else np.array([[int(m) for m in row] for row in mask], dtype=np.uint64)
        assert pack(values, contribution["rows"], encoding, bits, mask) == integers(contribution["plaintexts"])
    total = integers(case["total_plaintexts"])
    opened = open_total(total, length, parties, encoding, bits, rows=case["total_rows"])
    assert opened.tolist() == [int(v) for v in case["total_values"]]


@pytest.mark.parametrize("case", cases("packing_bad_totals.json"))
def test_bad_totals_are_refused(case):
    arguments = (integers(case["total_plaintexts"]), case["length"], case["parties"], Encoding(**case["encoding"]),
                 case["modulus_bits"])  # fmt: skip
    if case["fails_at"] == "open_total":
        unpack_total(*arguments)
    with pytest.raises(error_named(case["error"])) as refused:
        if case["fails_at"] == "unpack_total":
            unpack_total(*arguments)
        else:
            open_total(*arguments, rows=case["total_rows"])
    assert type(refused.value).__name__ == case["error"]
    assert getattr(refused.value, "ciphertext", None) == case["ciphertext"]


@pytest.mark.variants(2)
@pytest.mark.parametrize("case", cases("paillier.json"))
def test_paillier(case):
    secret = SecretKey.for_tests(int(case["p"], 16), int(case["q"], 16))
    key = secret.public_key
    assert key.n == int(case["n"], 16)
    assert (key.bits, key.ciphertext_bytes) == (case["bits"], case["ciphertext_bytes"])
    assert key.fingerprint() == case["fingerprint"]
    ciphertexts = []
    for encryption in case["encryptions"]:
        plaintext, r, obfuscator, ciphertext = integers(
            encryption[k] for k in ("plaintext", "r", "obfuscator", "ciphertext")
        )
        assert gmpy2.powmod(r, key.n, key.n_squared) == obfuscator
        assert key.raw_encrypt(plaintext, mpz(obfuscator)) == ciphertext
        assert secret.decrypt_many([ciphertext]) == [plaintext]
        ciphertexts.append(ciphertext)
    assert key.to_wire(ciphertexts).hex() == case["wire"]
    assert key.from_wire(bytes.fromhex(case["wire"])) == ciphertexts
    total = key.from_wire(key.to_wire(ciphertexts[:1]))
    for ciphertext in ciphertexts[1:]:
        key.add_many(total, [ciphertext])
    assert total == [int(case["product"]["ciphertext"], 16)]
    assert secret.decrypt_many(total) == [int(case["product"]["plaintext"], 16)]


@pytest.mark.parametrize("case", cases("paillier.json"))
def test_short_exponents(case):
    n, given = int(case["n"], 16), case["short_exponents"]
    x, base = int(given["x"], 16), int(given["base"], 16)
    assert gmpy2.powmod(-x * x % n, n, n * n) == base
    comb = Comb(base, n, -(-n.bit_length() // 2), teeth=6, tables=2)
    for exponent, obfuscator in zip(integers(given["exponents"]), integers(given["obfuscators"]), strict=True):
        assert comb.power(exponent) == obfuscator


@pytest.mark.parametrize("case", cases("paillier.json"))
def test_plaintexts_that_are_added(case):
    secret = SecretKey.for_tests(int(case["p"], 16), int(case["q"], 16))
    bare = int(case["encryptions"][3]["ciphertext"], 16)
    numbers = [int(each["added"]) for each in case["masked"]]
    made = secret.public_key.add_plaintexts([bare] * len(numbers), numbers)
    assert made == integers(each["ciphertext"] for each in case["masked"])
    assert secret.decrypt_many(made) == integers(each["plaintext"] for each in case["masked"])


@pytest.mark.parametrize("case", cases("paillier.json"))
def test_totals_from_values_to_values(case):
    secret, given = SecretKey.for_tests(int(case["p"], 16), int(case["q"], 16)), case["total"]
    key, encoding, length = secret.public_key, Encoding(**given["encoding"]), len(given["values"])
    product = [mpz(1)]
    for each in given["contributions"]:
        packed = pack(np.array(each["values"], dtype=np.int64), each["rows"], encoding, key.bits)
        assert packed == [int(each["plaintext"], 16)]
        ciphertext = key.raw_encrypt(packed[0], mpz(each["obfuscator"], 16))
        assert ciphertext == int(each["ciphertext"], 16)
        key.add_many(product, [ciphertext])
    assert product == [int(given["ciphertext"], 16)]
    plaintexts = secret.decrypt_many(product)
    assert plaintexts == [int(given["plaintext"], 16)]
    parties = len(given["contributions"])
    opened = open_total(plaintexts, length, parties, encoding, key.bits, rows=given["rows"])
    assert opened.tolist() == given["values"]


@pytest.mark.parametrize("case", cases("short_opening.json"))
def test_short_opening(case):
    p, q, p_order, q_order, n, generator, base = integers(
        case[name] for name in ("p", "q", "p_order", "q_order", "n", "generator", "base")
    )
    secret = SecretKey(p, q, ShortOpening(generator, p_order, q_order))
    key = secret.public_key
    assert key == PublicKey(n, Subgroup(generator, case["order_bits"]))
    assert key.subgroup.exponent_bits == case["exponent_bits"]
    assert key.fingerprint() == case["fingerprint"]
    comb = Comb(base, n, case["exponent_bits"], teeth=6, tables=2)
    obfuscators, plaintexts = integers(case["obfuscators"]), integers(case["plaintexts"])
    assert [comb.power(exponent) for exponent in integers(case["exponents"])] == obfuscators
    ciphertexts = [key.raw_encrypt(m, mpz(o)) for m, o in zip(plaintexts, obfuscators, strict=True)]
    assert ciphertexts == integers(case["ciphertexts"])
    assert secret.decrypt_many(ciphertexts) == plaintexts
    other, plaintext, total, total_plaintext = integers(case["outside"].values())
    product = [mpz(other)]
    key.add_many(product, [ciphertexts[2]])
    assert product == [total]
    assert secret.decrypt_many([other, total]) == [plaintext, total_plaintext]


def test_every_key_length_is_covered():
    bits = {case.values[0]["bits"] for case in cases("paillier.json")}
    assert {MINIMUM_BITS, DEFAULT_BITS, MAXIMUM_BITS} <= bits


@pytest.mark.parametrize("case", cases("paillier_bad_inputs.json"))
def test_bad_inputs_are_refused(case):
    n, ciphertexts = int(case["n"], 16), integers(case["ciphertexts"])
    if case["fails_at"] == "public_key":
        with pytest.raises(error_named(case["error"])):
            PublicKey(n)
        return
    key = PublicKey.for_tests(n)
    with pytest.raises(error_named(case["error"])) as refused:
        key.validate(ciphertexts)
    assert refused.value.index == case["index"]


@pytest.mark.slow
def test_the_generator_still_makes_these_files():
    spec = importlib.util.spec_from_file_location("make_encryption_vectors", VECTORS / "make_encryption_vectors.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    for name, text in generator.vectors().items():
        assert (VECTORS / name).read_text() == text, name
