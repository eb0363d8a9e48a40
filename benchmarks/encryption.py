"""Claim: packed Paillier costs a thousandth of one value per ciphertext, a hundred-thousandth with a filled pool.

Compared with, in the same run: `phe`, one value per ciphertext, the usual choice; our packing with Paillier's own
obfuscator r^n, which shows the gain from packing alone; HEU's Paillier, one value per ciphertext; and TenSEAL's BFV, a
lattice scheme that packs thousands of integers. The last two run in environments of their own.

A key with short opening is measured beside the usual one.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import starmap
from operator import add
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.environments import UnavailableError
from benchmarks.heu_paillier import Heu, heu
from benchmarks.lattice import DEGREE, PLAIN_MODULUS, Lattice, lattice
from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    ratio,
    require,
    take_turns,
)
from dpcore.numbers.fixed_point import Encoding, plan_encoding
from dpcore.numbers.processors import processors
from dpcore.paillier.obfuscation import Obfuscator, ObfuscatorPool
from dpcore.paillier.packing import open_total, pack
from dpcore.paillier.public import Ciphertext, PublicKey, multiply
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import RandomSource, SystemRandom

KEY_BITS = 3072
OTHER_KEY_BITS = (2048, 4096)
RADOS, COORDINATES = 1000, 100
# A sum over a million rows in units of 2^-16, from at most 16 parties: slots of 48 bits.
FRACTION_BITS, ROWS, PARTIES = 16, 1_000_000, 16
# The slow candidates are timed on samples; their cost is the same for every value or ciphertext.
PHE_VALUES = 32
FULL_EXPONENT_CIPHERTEXTS = 32
DECRYPTED_CIPHERTEXTS = 128
# Additions are short: each time is over this many.
PHE_PASSES, UPLOADS = 50, 9
FILL_WITHIN_S = 120.0

PHE = "phe, one value a ciphertext"
PACKED = "packed, r^n"
COMB = "packed, short exponent, comb"
COMB_AND_TABLE = "packed, short exponent, comb, its table built anew"
POOL = "packed, from a filled pool"
SUBGROUP = "packed, short opening's subgroup, comb"
OPENED_SHORT = "packed, short opening, 1 thread"
OPENED_MIXED = "packed, short opening, one party outside the subgroup, 1 thread"
HEU = "HEU, one value a ciphertext"
BFV = "TenSEAL BFV"

LEAST_TIMES_ENCRYPT, LEAST_TIMES_DECRYPT = {POOL: 100_000.0, COMB: 1_200.0}, 110.0
LEAST_TIMES_SHORT = 300.0
MOST_BYTES = 12.4

PerValue = dict[str, list[float]]
"""Seconds per value of each repeat, by candidate."""


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
    """One key, one with short opening, one encoding, and the values of two parties."""

    secret: SecretKey
    short: SecretKey
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


def _prepare(bits: int) -> _Setting:
    random = SystemRandom()
    largest_sum = ROWS << FRACTION_BITS
    values = np.random.default_rng(1).integers(-largest_sum // 2, largest_sum // 2, size=(2, RADOS * COORDINATES))
    encoding = plan_encoding(largest_sum=largest_sum, max_parties=PARTIES, fraction_bits=FRACTION_BITS)
    usual, short = (SecretKey.generate(random, bits=bits, with_short_opening=each) for each in (False, True))
    return _Setting(usual, short, encoding, values[0], values[1], random)


class _Filled:
    """A pool that is filled before each use. fill_s: seconds of each fill."""

    def __init__(self, at: _Setting) -> None:
        self.pool, self.fill_s = ObfuscatorPool(at.key, at.random), list[float]()
        self._count = len(at.pack(at.mine))

    def fill(self) -> None:
        """Fill the pool for all values."""
        begun = time.perf_counter()
        self.pool.prepare(self._count)
        while self.pool.ready < self._count:
            require(time.perf_counter() - begun < FILL_WITHIN_S, "the pool does not fill")
            time.sleep(0.01)
        self.fill_s.append(time.perf_counter() - begun)


def _encryption(at: _Setting) -> tuple[PerValue, list[Measure]]:
    """Each way to encrypt, packing included, and the work done ahead."""
    phe_key = at.secret.to_phe().public_key
    full, comb = FullExponent(at.key, at.random), Obfuscator(at.key, at.random)
    short = Obfuscator(at.short.public_key, at.random)
    few = at.mine[: FULL_EXPONENT_CIPHERTEXTS * at.values_per_ciphertext]
    integers = [int(value) for value in at.mine[:PHE_VALUES]]
    filled = _Filled(at)

    def table_and_all() -> None:
        at.key.encrypt_many(at.pack(at.mine), Obfuscator(at.key, at.random))

    with filled.pool:
        seconds = take_turns(
            {
                PHE: lambda: [phe_key.encrypt(value) for value in integers],
                PACKED: lambda: at.key.encrypt_many(at.pack(few), full),
                COMB: lambda: at.key.encrypt_many(at.pack(at.mine), comb),
                COMB_AND_TABLE: table_and_all,
                SUBGROUP: lambda: at.short.public_key.encrypt_many(at.pack(at.mine), short),
                POOL: lambda: at.key.encrypt_many(at.pack(at.mine), filled.pool),
            },
            before={POOL: filled.fill},
        )
    counts = {PHE: len(integers), PACKED: len(few)}
    per_value = {way: [s / counts.get(way, len(at.mine)) for s in values] for way, values in seconds.items()}
    ahead = [s / len(at.mine) * 1e6 for s in filled.fill_s[1:]]
    return per_value, [Measure.of("encrypt: filling the pool, ahead, 1 thread", "us per value", ahead)]


def _addition(at: _Setting, ours: list[Ciphertext]) -> PerValue:
    """Adding one party's contribution, without and with its check on arrival; the last from bytes to bytes."""
    phe_key = at.secret.to_phe().public_key
    both = np.stack([at.mine, at.theirs], axis=1)[:PHE_VALUES].tolist()
    pairs = [(phe_key.encrypt(a), phe_key.encrypt(b)) for a, b in both]
    total, upload = list(ours), at.key.to_wire(ours)

    def add_packed() -> None:
        for _ in range(UPLOADS - 1):
            at.key.add_many(total, ours)

    candidates: dict[str, Any] = {
        PHE: lambda: [list(starmap(add, pairs)) for _ in range(PHE_PASSES)],
        "packed": add_packed,
        "check": lambda: at.key.validate(at.key.from_wire(upload)),
        "packed, of spooled bytes, 1 thread": lambda: multiply(at.key, [upload] * UPLOADS, threads=1),
    }
    if processors() > 1:
        every = f"packed, of spooled bytes, {processors()} threads"
        candidates[every] = lambda: multiply(at.key, [upload] * UPLOADS, threads=processors())
    counts = {PHE: PHE_PASSES * len(pairs), "check": len(at.mine)}
    added = (UPLOADS - 1) * len(at.mine)
    seconds = take_turns(candidates)
    per_value = {way: [s / counts.get(way, added) for s in values] for way, values in seconds.items()}
    both_steps = zip(per_value["packed"], per_value.pop("check"), strict=True)
    return per_value | {"packed, and checked on arrival": [add_s + check for add_s, check in both_steps]}


def _decryption(at: _Setting, ours: list[Ciphertext], comb: Obfuscator) -> PerValue:
    """Opening a total of two parties, unpacking and the check slots included."""
    count = DECRYPTED_CIPHERTEXTS * at.values_per_ciphertext
    total = ours[:DECRYPTED_CIPHERTEXTS]
    at.key.add_many(total, at.key.encrypt_many(at.pack(at.theirs[:count]), comb))
    phe_secret = at.secret.to_phe()
    sums = [phe_secret.public_key.encrypt(int(value)) for value in at.mine[:PHE_VALUES]]

    def open_with(threads: int) -> NDArray[np.int64]:
        plaintexts = at.secret.decrypt_many(total, threads=threads)
        return open_total(plaintexts, count, 2, at.encoding, at.key.bits, rows=ROWS)

    def open_short(total: list[Ciphertext]) -> NDArray[np.int64]:
        plaintexts = at.short.decrypt_many(total, threads=1)
        return open_total(plaintexts, count, 2, at.encoding, at.key.bits, rows=ROWS)

    wanted, short, mixed = at.mine[:count] + at.theirs[:count], _short_total(at, count), _short_total(at, count, True)
    for opened_sums in (open_with(1), open_short(short), open_short(mixed)):
        require(bool((opened_sums == wanted).all()), "the packed total opens to other sums")
    opened = [phe_secret.decrypt(value) for value in sums]
    require(opened == at.mine[:PHE_VALUES].tolist(), "phe opens to other values")
    candidates: dict[str, Any] = {
        PHE: lambda: [phe_secret.decrypt(value) for value in sums],
        "packed, 1 thread": lambda: open_with(1),
        "the exponentiations alone, 1 thread": lambda: _exponentiations(at.secret, total, 1),
        OPENED_SHORT: lambda: open_short(short),
        OPENED_MIXED: lambda: open_short(mixed),
    }
    if processors() > 1:
        candidates[f"packed, {processors()} threads"] = lambda: open_with(processors())
        candidates[f"the exponentiations alone, {processors()} threads"] = lambda: _exponentiations(
            at.secret, total, processors()
        )
    seconds = take_turns(candidates)
    return {way: [s / (len(sums) if way == PHE else count) for s in values] for way, values in seconds.items()}


def _short_total(at: _Setting, count: int, one_outside: bool = False) -> list[Ciphertext]:
    """The total of two parties under the key with short opening. one_outside: whether one draws as without it."""
    public = at.short.public_key
    inside = Obfuscator(public, at.random)
    other = Obfuscator(public.without_subgroup, at.random) if one_outside else inside
    total = public.encrypt_many(at.pack(at.mine[:count]), inside)
    public.add_many(total, public.encrypt_many(at.pack(at.theirs[:count]), other))
    return total


def _exponentiations(secret: SecretKey, total: list[Ciphertext], threads: int) -> None:
    """The exponentiations of any decryption by the Chinese remainder theorem: the least time on this machine.

    One run per thread, in which the interpreter's lock is released twice.
    """

    def run(part: list[Ciphertext]) -> None:
        for prime in (mpz(secret.p), mpz(secret.q)):
            gmpy2.powmod_base_list([ciphertext % prime**2 for ciphertext in part], prime - 1, prime**2)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, [total[thread::threads] for thread in range(threads)]))


@dataclass
class _Found:
    """The results of one key. per_value: by step. bytes_per_value: by candidate. ahead: work done in advance."""

    key_bits: int
    per_value: dict[str, PerValue]
    bytes_per_value: dict[str, float]
    ahead: list[Measure]
    ciphertexts: int
    exponent_bits: int

    def add_lattice(self, peer: Lattice) -> None:
        """Add TenSEAL's figures."""
        for step, seconds in (("encrypt", peer.encrypt), ("add", peer.add), ("decrypt", peer.decrypt)):
            self.per_value[step][BFV] = seconds
        self.bytes_per_value[BFV] = peer.bytes_per_value

    def add_peer(self, peer: Heu) -> None:
        """Add HEU's figures."""
        for step, seconds in (("encrypt", peer.encrypt), ("add", peer.add), ("decrypt", peer.decrypt)):
            self.per_value[step][HEU] = seconds

    def measures(self) -> list[Measure]:
        """Microseconds and bytes per value; the key's size is in the name if it is not the usual one."""
        times = [
            Measure.of(f"{step}: {way}", "us per value", [s * 1e6 for s in seconds])
            for step, ways in self.per_value.items()
            for way, seconds in ways.items()
        ]
        sizes = [Measure.of(f"size: {way}", "bytes per value", [size]) for way, size in self.bytes_per_value.items()]
        return [self._named(measure) for measure in (*times, *self.ahead, *sizes)]

    def ratios(self) -> list[Measure]:
        """The times of phe over those of each candidate, and of r^n and BFV over the comb's."""
        found = [
            ratio(f"{step}: {PHE} / {way}", ways[PHE], seconds)
            for step, ways in self.per_value.items()
            for way, seconds in ways.items()
            if way != PHE
        ]
        ours = self.per_value["encrypt"]
        found += [ratio(f"encrypt: {way} / {COMB}", ours[way], ours[COMB]) for way in (PACKED, BFV) if way in ours]
        opened = self.per_value["decrypt"]
        found.append(
            ratio(f"decrypt: packed, 1 thread / {OPENED_SHORT}", opened["packed, 1 thread"], opened[OPENED_SHORT])
        )
        packed = self.bytes_per_value["packed"]
        found += [
            ratio(f"size: {way} / packed", [size], [packed])
            for way, size in self.bytes_per_value.items()
            if way != "packed"
        ]
        return [self._named(measure) for measure in found]

    def targets(self) -> list[Target]:
        """The figures to reach, at the usual key."""
        medians = {measure.what: measure.median for measure in self.ratios()}
        wanted = {f"encrypt: {PHE} / {way}": least for way, least in LEAST_TIMES_ENCRYPT.items()}
        wanted[f"decrypt: {PHE} / packed, {processors()} thread{'s' if processors() > 1 else ''}"] = LEAST_TIMES_DECRYPT
        wanted[f"decrypt: {PHE} / {OPENED_SHORT}"] = LEAST_TIMES_SHORT
        targets = [Target(what, "times", least, medians[what], at_least=True) for what, least in wanted.items()]
        size = self.bytes_per_value["packed"]
        return [
            *targets,
            Target("size: packed, check slots included", "bytes per value", MOST_BYTES, size, at_least=False),
        ]

    def _named(self, measure: Measure) -> Measure:
        prefix = "" if self.key_bits == KEY_BITS else f"{self.key_bits}-bit key, "
        return replace(measure, what=prefix + measure.what)


def _one_key(bits: int) -> _Found:
    at = _prepare(bits)
    encrypting, ahead = _encryption(at)
    comb = Obfuscator(at.key, at.random)
    ours = at.key.encrypt_many(at.pack(at.mine), comb)
    per_value = {"encrypt": encrypting, "add": _addition(at, ours), "decrypt": _decryption(at, ours, comb)}
    sizes = {PHE: float(at.key.ciphertext_bytes), "packed": len(at.key.to_wire(ours)) / len(at.mine)}
    return _Found(bits, per_value, sizes, ahead, len(ours), comb.exponent_bits)


def _lattice_notes(found: _Found) -> list[str]:
    """Run TenSEAL and add it to `found`; returns its notes."""
    rows = np.random.default_rng(2).integers(-(ROWS << 15), ROWS << 15, size=(2, RADOS * COORDINATES))
    try:
        peer = lattice(rows[0], rows[1])
    except UnavailableError as error:
        return [f"TenSEAL was not run: {error}."]
    found.add_lattice(peer)
    return [
        (
            f"TenSEAL {peer.version} (BFV, degree {DEGREE}, 128 bits of security, plaintexts mod a prime of "
            f"{PLAIN_MODULUS.bit_length()} bits) rests on lattices, not on factoring; it has no check slot, no "
            "equivalent of `validate`, and its own keys and ciphertexts. Its repeats do not take turns with the others."
        )
    ]


def _heu_notes(found: _Found) -> list[str]:
    """Run HEU and add it to `found`; returns its notes."""
    rows = np.random.default_rng(3).integers(-(ROWS << 15), ROWS << 15, size=(2, PHE_VALUES))
    try:
        peer = heu(rows[0], rows[1], found.key_bits)
    except UnavailableError as error:
        return [f"HEU was not run: {error}."]
    found.add_peer(peer)
    return [
        (
            f"HEU {peer.version} (ZPaillier, {found.key_bits} bits, one thread) has its own key and encrypts one value "
            "a ciphertext. Its repeats do not take turns with the others."
        )
    ]


def run(*, everything: bool = False) -> Report:
    usual = _one_key(KEY_BITS)
    notes = [
        "Everything is on one thread unless stated; the pool is filled in advance, and that time is given separately.",
        "phe computes with gmpy2 too; its values are integers, so it never rescales an exponent; its size is bare.",
        *_heu_notes(usual),
        *_lattice_notes(usual),
    ]
    found = [usual, *(_one_key(bits) for bits in (OTHER_KEY_BITS if everything else ()))]
    measures, ratios = [m for each in found for m in each.measures()], [r for each in found for r in each.ratios()]
    encoding = plan_encoding(largest_sum=ROWS << FRACTION_BITS, max_parties=PARTIES, fraction_bits=FRACTION_BITS)
    setting = {
        "key_bits": [each.key_bits for each in found],
        "values": RADOS * COORDINATES,
        "ciphertexts": [each.ciphertexts for each in found],
        "slot_bits": encoding.slot_bits,
        "exponent_bits": [each.exponent_bits for each in found],
        "sampled": {
            "phe_values": PHE_VALUES,
            "r^n_ciphertexts": FULL_EXPONENT_CIPHERTEXTS,
            "decrypted_ciphertexts": DECRYPTED_CIPHERTEXTS,
        },
    }
    tables = [
        Table(
            f"Encryption, {KEY_BITS}-bit key, {RADOS} x {COORDINATES} values",
            MEASURE_HEADER,
            [m.cells() for m in measures],
        ),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    claim = (__doc__ or "").partition("\n")[0]
    return Report("encryption", claim, setting, measures, ratios, tables, notes, usual.targets())


def draw(report: Report, figure: Figure) -> None:
    """Microseconds per value on a logarithmic axis, with minimum and maximum, of the usual key."""
    shown = [m for m in report.measures if m.unit == "us per value" and "-bit key" not in m.what][::-1]
    axes = figure.subplots()
    medians = [measure.median for measure in shown]
    spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
    axes.barh([measure.what for measure in shown], medians, xerr=spread, color="tab:blue")
    axes.set_xscale("log")
    axes.set_xlabel("microseconds per value (median, min to max)")
