"""Claim: packing and a fixed-base comb make Paillier a thousand times cheaper per value than one value a ciphertext.

The other ways, in the same run: `phe`, one value a ciphertext, which is what a user would reach for; and our packing
with Paillier's own obfuscator r^n, which shows what packing alone gives.
"""

from dataclasses import dataclass
from itertools import starmap
from operator import add
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, cores, ratio, require, take_turns
from dpcore.fixed_point import Encoding, plan_encoding
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import open_total, pack
from dpcore.paillier.public import Ciphertext, PublicKey
from dpcore.paillier.secret import SecretKey
from dpcore.randomness import RandomSource, SystemRandom

KEY_BITS = 3072
RADOS, COORDINATES = 1000, 100
# A sum over a million rows in units of 2^-16, from at most 16 parties: slots of 48 bits.
FRACTION_BITS, ROWS, PARTIES = 16, 1_000_000, 16
# The slow ways are timed on samples; their cost is the same for every value or ciphertext.
PHE_VALUES = 32
FULL_EXPONENT_CIPHERTEXTS = 32
DECRYPTED_CIPHERTEXTS = 256
# Additions are short: each is timed over so many passes.
PHE_PASSES, ADD_PASSES = 50, 5

PHE = "phe, one value a ciphertext"
PACKED = "packed, r^n"
COMB = "packed, short exponent, comb"
COMB_AND_TABLE = "packed, short exponent, comb, its table built anew"


class FullExponent:
    """Paillier's own obfuscators, r^n mod n^2 for a fresh r each."""

    def __init__(self, public_key: PublicKey, random: RandomSource) -> None:
        self.public_key, self._random = public_key, random

    def draw_many(self, count: int) -> list[Ciphertext]:
        """`count` independent obfuscators."""
        n = mpz(self.public_key.n)
        return [gmpy2.powmod(self._random.below(self.public_key.n - 1) + 1, n, n * n) for _ in range(count)]


@dataclass(frozen=True)
class _Setting:
    """One key, one encoding, and the values of two parties."""

    secret: SecretKey
    encoding: Encoding
    mine: NDArray[np.int64]
    theirs: NDArray[np.int64]
    random: RandomSource

    @property
    def key(self) -> PublicKey:
        return self.secret.public_key

    @property
    def values_per_ciphertext(self) -> int:
        return self.encoding.slots_per_ciphertext(self.key.bits) - 1

    def pack(self, values: NDArray[np.int64]) -> list[int]:
        return pack(values, ROWS // 2, self.encoding, self.key.bits)


def _prepare() -> _Setting:
    random = SystemRandom()
    largest_sum = ROWS << FRACTION_BITS
    values = np.random.default_rng(1).integers(-largest_sum // 2, largest_sum // 2, size=(2, RADOS * COORDINATES))
    encoding = plan_encoding(largest_sum=largest_sum, max_parties=PARTIES, fraction_bits=FRACTION_BITS)
    return _Setting(SecretKey.generate(random, bits=KEY_BITS), encoding, values[0], values[1], random)


def _encryption(at: _Setting) -> dict[str, list[float]]:
    """Seconds per value of each way to encrypt, packing included."""
    phe_key = at.secret.to_phe().public_key
    full, comb = FullExponent(at.key, at.random), Obfuscator(at.key, at.random)
    few = at.mine[: FULL_EXPONENT_CIPHERTEXTS * at.values_per_ciphertext]
    integers = [int(value) for value in at.mine[:PHE_VALUES]]
    seconds = take_turns(
        {
            PHE: lambda: [phe_key.encrypt(value) for value in integers],
            PACKED: lambda: at.key.encrypt_many(at.pack(few), full),
            COMB: lambda: at.key.encrypt_many(at.pack(at.mine), comb),
            "table": lambda: Obfuscator(at.key, at.random),
        }
    )
    counts = {PHE: len(integers), PACKED: len(few), COMB: len(at.mine)}
    per_value = {way: [s / count for s in seconds[way]] for way, count in counts.items()}
    both = zip(seconds[COMB], seconds["table"], strict=True)
    return per_value | {COMB_AND_TABLE: [(a + b) / len(at.mine) for a, b in both], "table": seconds["table"]}


def _addition(at: _Setting, ours: list[Ciphertext]) -> dict[str, list[float]]:
    """Seconds per value to add one party's contribution, without and with its check on arrival."""
    phe_key = at.secret.to_phe().public_key
    both = np.stack([at.mine, at.theirs], axis=1)[:PHE_VALUES].tolist()
    pairs = [(phe_key.encrypt(a), phe_key.encrypt(b)) for a, b in both]
    total = list(ours)

    def add_packed() -> None:
        for _ in range(ADD_PASSES):
            at.key.add_many(total, ours)

    seconds = take_turns(
        {
            PHE: lambda: [list(starmap(add, pairs)) for _ in range(PHE_PASSES)],
            "packed": add_packed,
            "check": lambda: at.key.validate(ours),
        }
    )
    per_value = {
        PHE: [s / (PHE_PASSES * len(pairs)) for s in seconds[PHE]],
        "packed": [s / (ADD_PASSES * len(at.mine)) for s in seconds["packed"]],
    }
    both_steps = zip(per_value["packed"], seconds["check"], strict=True)
    return per_value | {"packed, and checked on arrival": [add_s + check / len(at.mine) for add_s, check in both_steps]}


def _decryption(at: _Setting, ours: list[Ciphertext], comb: Obfuscator) -> dict[str, list[float]]:
    """Seconds per value to open a total of two parties, unpacking and the check slots included."""
    count = DECRYPTED_CIPHERTEXTS * at.values_per_ciphertext
    total = ours[:DECRYPTED_CIPHERTEXTS]
    at.key.add_many(total, at.key.encrypt_many(at.pack(at.theirs[:count]), comb))
    phe_secret = at.secret.to_phe()
    sums = [phe_secret.public_key.encrypt(int(value)) for value in at.mine[:PHE_VALUES]]

    def open_with(threads: int) -> NDArray[np.int64]:
        plaintexts = at.secret.decrypt_many(total, threads=threads)
        return open_total(plaintexts, count, 2, at.encoding, at.key.bits, rows=ROWS)

    require(bool((open_with(1) == at.mine[:count] + at.theirs[:count]).all()), "the packed total opens to other sums")
    opened = [phe_secret.decrypt(value) for value in sums]
    require(opened == at.mine[:PHE_VALUES].tolist(), "phe opens to other values")
    candidates: dict[str, Any] = {
        PHE: lambda: [phe_secret.decrypt(value) for value in sums],
        "packed, 1 thread": lambda: open_with(1),
    }
    if cores() > 1:
        candidates[f"packed, {cores()} threads"] = lambda: open_with(cores())
    seconds = take_turns(candidates)
    return {way: [s / (len(sums) if way == PHE else count) for s in values] for way, values in seconds.items()}


def _measures(step: str, per_value: dict[str, list[float]]) -> tuple[list[Measure], list[Measure]]:
    """Microseconds per value of each way, and how many times more phe takes."""
    measures = [
        Measure.of(f"{step}: {way}", "us per value", [s * 1e6 for s in seconds]) for way, seconds in per_value.items()
    ]
    ratios = [
        ratio(f"{step}: {PHE} / {way}", per_value[PHE], seconds) for way, seconds in per_value.items() if way != PHE
    ]
    return measures, ratios


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    at = _prepare()
    encrypting = _encryption(at)
    table = encrypting.pop("table")
    comb = Obfuscator(at.key, at.random)
    ours = at.key.encrypt_many(at.pack(at.mine), comb)
    measures, ratios = _measures("encrypt", encrypting)
    ratios.append(ratio(f"encrypt: {PACKED} / {COMB}", encrypting[PACKED], encrypting[COMB]))
    measures.append(Measure.of("encrypt: building the comb's table, once a query", "s", table))
    for step, per_value in (("add", _addition(at, ours)), ("decrypt", _decryption(at, ours, comb))):
        more, more_ratios = _measures(step, per_value)
        measures += more
        ratios += more_ratios
    packed_bytes, phe_bytes = len(at.key.to_wire(ours)) / len(at.mine), at.key.ciphertext_bytes
    measures += [
        Measure(f"size: {PHE}", "bytes per value", phe_bytes, phe_bytes, phe_bytes, 1),
        Measure("size: packed", "bytes per value", packed_bytes, packed_bytes, packed_bytes, 1),
    ]
    ratios.append(ratio(f"size: {PHE} / packed", [float(phe_bytes)], [packed_bytes]))
    setting = {
        "key_bits": KEY_BITS,
        "values": len(at.mine),
        "ciphertexts": len(ours),
        "slot_bits": at.encoding.slot_bits,
        "values_per_ciphertext": at.values_per_ciphertext,
        "exponent_bits": comb.exponent_bits,
        "sampled": {
            "phe_values": PHE_VALUES,
            "r^n_ciphertexts": FULL_EXPONENT_CIPHERTEXTS,
            "decrypted_ciphertexts": DECRYPTED_CIPHERTEXTS,
        },
    }
    tables = [
        Table("Encryption, 3072-bit key, 1000 x 100 values", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    notes = [
        "One thread, except where decryption says otherwise; phe computes with gmpy2 too.",
        "phe's values are integers, so it never rescales exponents; its size is the bare ciphertext's.",
    ]
    return Report("encryption", (__doc__ or "").partition("\n")[0], setting, measures, ratios, tables, notes)


def draw(report: Report, figure: Figure) -> None:
    """Microseconds per value on a logarithmic axis, with minimum and maximum."""
    shown = [measure for measure in report.measures if measure.unit == "us per value"][::-1]
    axes = figure.subplots()
    medians = [measure.median for measure in shown]
    spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
    axes.barh([measure.what for measure in shown], medians, xerr=spread, color="tab:blue")
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per value (median, min to max)")
