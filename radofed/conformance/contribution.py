"""One party's upload, opened alone: the kit has the Paillier key, and the mask keys of all other members.

A sum that differs from the expected one is told apart from a wrong mask, a wrong tag, and noise that is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import Encoding
from dpcore.paillier.mask_graph import MaskGraph
from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, cohort_mask, pad, polynomial, tag_mask
from dpcore.paillier.packing import from_total
from dpcore.paillier.public import InvalidCiphertextError
from dpcore.paillier.secret import SecretKey
from dpcore.paillier.survivors import self_mask, self_tag_mask
from dpcore.records.computation import SummedKind
from dpcore.records.persons import PersonRows, sums_over_persons
from dpcore.records.records import Records
from wire.binding import OpeningSecret
from wire.query import OpenedQuery, Query
from wire.statements import Acceptance

FALSE_ALARM = 1e-9
"""The probability that a right contribution is called wrong, for each of its checks of noise."""


@dataclass(frozen=True)
class Peers:
    """The other members of a cohort, by name, with the private mask keys that the kit has of them."""

    keys: Mapping[str, X25519PrivateKey]


@dataclass(frozen=True)
class Problem:
    """What is wrong with an upload. section: of docs/protocol.md."""

    section: str
    what: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Contribution:
    """What an upload holds."""

    values: NDArray[np.int64]
    """(length,), in the units that are sent; meaningless if there are problems with slots or masks."""
    problems: tuple[Problem, ...]
    obfuscators: tuple[int, ...] = ()
    """r of each ciphertext, c = (1 + n M) r^n: random below n, and never used twice."""


def open_contribution(
    ciphertexts: bytes,
    opened: OpenedQuery,
    acceptance: Acceptance,
    peers: Peers,
    cohort_digest: bytes,
    secret: SecretKey,
    opening: OpeningSecret,
    self_seed: bytes | None = None,
) -> Contribution:
    """The values of one party's masked ciphertexts, the tag among them, and what is wrong with them.

    self_seed: of the mask of its own, if members may vanish.
    """
    key, encoding, query = opened.public_key, opened.query.encoding, opened.query
    empty = np.zeros(query.length, dtype=np.int64)
    try:
        numbers = key.from_wire(ciphertexts)
        key.validate(numbers)
    except (InvalidCiphertextError, ValueError) as error:
        return Contribution(empty, (Problem("6", "ciphertexts are units modulo n^2, of a fixed width", str(error)),))
    plain = [int(each) for each in secret.decrypt_many(numbers)]
    obfuscators = _obfuscators([int(each) for each in numbers], secret)
    if (predictable := _predictable(obfuscators, key.bits)) is not None:
        return Contribution(empty, (Problem("6", _ENCRYPTED, predictable),), obfuscators)
    attempt = CohortAttempt(opened.query_id, acceptance.attempt, cohort_digest)
    graph = MaskGraph.of((acceptance.party, *peers.keys), cohort_digest, query.mask_neighbours)
    shared = {name: peers.keys[name] for name in graph.peers(acceptance.party)}
    slots = _slots(plain[:-1], encoding, key.bits)
    if slots is None:
        return Contribution(empty, (Problem("6", _SLOTS, "a plaintext has bits beyond the slots, or a slot beyond w"),))
    mask = _mask(acceptance, shared, attempt, slots.shape, encoding)
    own_tag_mask = 0
    if self_seed is not None:
        shape, bits = (slots.shape[0], slots.shape[1]), encoding.value_bits
        mask = mask + self_mask(self_seed, acceptance.party, attempt, shape=shape, value_bits=bits)
        own_tag_mask = self_tag_mask(self_seed, acceptance.party, attempt)
    laid_out = _unmasked(slots, mask, encoding)
    if (said := _wrong_slots(laid_out, query, acceptance)) is not None:
        guess = _guessed(slots, mask, encoding, query, acceptance)
        return Contribution(empty, (Problem("6", _MASKS if guess else _SLOTS, guess or said),))
    values = laid_out[:, 1:].reshape(-1)[: query.length].copy()
    tag = (plain[-1] - own_tag_mask) % PRIME if plain[-1] < PRIME else plain[-1]
    wrong = _wrong_tag(tag, values, opened, acceptance, shared, attempt, opening)
    return Contribution(values, () if wrong is None else (Problem("6", _TAG, wrong),), obfuscators)


_ENCRYPTED = "each ciphertext is obfuscated at random"
_LEAST_RANDOM_BITS = 128
"""A random r below n is shorter than n by so many bits with a probability of 2^-128."""


def _obfuscators(ciphertexts: Sequence[int], secret: SecretKey) -> tuple[int, ...]:
    """R of each ciphertext: c mod n is r^n mod n, whose root the holder of the primes can take."""
    n, order = secret.public_key.n, (secret.p - 1) * (secret.q - 1)
    return tuple(pow(each % n, pow(n, -1, order), n) for each in ciphertexts)


def _predictable(obfuscators: Sequence[int], bits: int) -> str | None:
    if 1 in obfuscators:
        return "a ciphertext is not obfuscated: whoever sees it can read it"
    if len(set(obfuscators)) < len(obfuscators):
        return "two ciphertexts have the same r: their quotient can be read"
    shortest = min(min(r, (1 << bits) - r).bit_length() for r in obfuscators)
    return f"an r has {shortest} bits, and can be found" if shortest < bits - _LEAST_RANDOM_BITS else None


_SLOTS = "slots hold the values, the row count and zeros, in the form of section 6"
_MASKS = "every slot is masked with every peer"
_TAG = "the tag is that of the values, masked and padded"


def _slots(plain: Sequence[int], encoding: Encoding, modulus_bits: int) -> NDArray[np.uint64] | None:
    """The slots of each plaintext, (ciphertexts, slots); None if there are bits where none may be."""
    count = encoding.slots_per_ciphertext(modulus_bits)
    found = [
        [number >> encoding.slot_bits * slot & (1 << encoding.slot_bits) - 1 for slot in range(count)]
        for number in plain
    ]
    beyond = any(number >> encoding.slot_bits * count for number in plain)
    too_wide = any(slot >> encoding.value_bits for row in found for slot in row)
    return None if beyond or too_wide else np.array(found, dtype=np.uint64)


def _mask(
    acceptance: Acceptance,
    peers: Mapping[str, X25519PrivateKey],
    attempt: CohortAttempt,
    shape: tuple[int, ...],
    encoding: Encoding,
) -> NDArray[np.uint64]:
    """The party's mask, from its peers' halves: what a peer adds the party subtracts."""
    own = {acceptance.party: acceptance.mask_key}
    rows, columns = shape
    total = np.zeros(shape, dtype=np.uint64)
    for name, key in peers.items():
        total -= cohort_mask(name, key, own, attempt, shape=(rows, columns), value_bits=encoding.value_bits)
    return np.asarray(total & np.uint64((1 << encoding.value_bits) - 1), dtype=np.uint64)


def _unmasked(slots: NDArray[np.uint64], mask: NDArray[np.uint64], encoding: Encoding) -> NDArray[np.int64]:
    return from_total((slots - mask) & np.uint64((1 << encoding.value_bits) - 1), 1, encoding)


def _wrong_slots(laid_out: NDArray[np.int64], query: Query, acceptance: Acceptance) -> str | None:
    checks = laid_out[:, 0]
    if (checks != acceptance.rows).any():
        place = int(np.flatnonzero(checks != acceptance.rows)[0])
        return f"the check slot of ciphertext {place} holds {checks[place]}, and the acceptance says {acceptance.rows}"
    unused = laid_out[:, 1:].reshape(-1)[query.length :]
    return f"{np.count_nonzero(unused)} unused slots do not hold 0" if unused.any() else None


def _guessed(
    slots: NDArray[np.uint64], mask: NDArray[np.uint64], encoding: Encoding, query: Query, acceptance: Acceptance
) -> str:
    """What may have been done instead; empty if only some slots are wrong."""
    other = {
        "the slots are not masked at all": np.zeros_like(mask),
        "the masks have the wrong signs: the lesser name adds, the other subtracts": (~mask + np.uint64(1)),
    }
    for sentence, tried in other.items():
        if _wrong_slots(_unmasked(slots, tried, encoding), query, acceptance) is None:
            return sentence
    right = _unmasked(slots, mask, encoding)[:, 0] == acceptance.rows
    return "" if right.any() else "no check slot shows the row count once the masks of all peers are taken off"


def _wrong_tag(
    plain: int,
    values: NDArray[np.int64],
    opened: OpenedQuery,
    acceptance: Acceptance,
    peers: Mapping[str, X25519PrivateKey],
    attempt: CohortAttempt,
    opening: OpeningSecret,
) -> str | None:
    own = {acceptance.party: acceptance.mask_key}
    of_values = polynomial(values, coefficient(opening.seed, query_id=opened.query_id, attempt=attempt.number))
    padding = pad(opening.key, acceptance.mask_key, acceptance.party, attempt)
    mask = -sum(tag_mask(name, key, own, attempt) for name, key in peers.items()) % PRIME
    if plain == (padding + mask + of_values) % PRIME:
        return None
    wrong = {
        "the tag is not masked": (padding + of_values) % PRIME,
        "the tag has no pad": (mask + of_values) % PRIME,
        "the tag's masks have the wrong signs": (padding - mask + of_values) % PRIME,
    }
    for sentence, number in wrong.items():
        if plain == number:
            return sentence
    if plain >= PRIME:
        return "the tag is not reduced modulo 2^130 - 5"
    return (
        "the tag is not pad + mask + sum of alpha^j x_j: the coefficient, the pad, the masks or the values are others"
    )


def expected_sums(query: Query, records: Records, persons: PersonRows | None = None) -> NDArray[np.int64]:
    """The sums over the records, without noise. The kit asks kinds whose values are sums over rows alone.

    persons: whose each row is, if the query protects persons. Which of a person's rows count one 256th more is the
    party's own draw, which moves the sums by far less than the noise.
    """
    kind, bits = cast("SummedKind", query.kind), query.encoding.fraction_bits
    if persons is None:
        return kind.sums(records, bits, None)
    # Of gradients a person's sum is shortened as a whole.
    if (of_persons := getattr(kind, "person_sums", None)) is not None:
        found: NDArray[np.int64] = of_persons(records, bits, persons)
        return found
    return sums_over_persons(persons, records, lambda rows, _: kind.sums(rows, bits, None))


def of_deviation(noise: NDArray[np.float64]) -> str | None:
    """What is wrong with noise that should be standard normal, (n,); None if nothing.

    n times the mean of squares has a distribution close to the chi-squared one, whose quantiles Wilson and Hilferty
    (1931) approximate. A false alarm has about the probability FALSE_ALARM.
    """
    count = len(noise)
    if count == 0:
        return None
    furthest = float(np.abs(noise).max())
    allowed = -NormalDist().inv_cdf(FALSE_ALARM / (2 * count))
    ratio = float(np.square(noise).mean())
    side = 2 / (9 * count)
    spread = NormalDist().inv_cdf(1 - FALSE_ALARM) * side**0.5
    low, high = (max(0.0, 1 - side + sign * spread) ** 3 for sign in (-1, 1))
    if furthest > allowed:
        return f"a value is {furthest:.1f} standard deviations of the noise from the sum over the rows"
    if ratio > high:
        return f"the noise has {ratio**0.5:.2f} times the standard deviation"
    if ratio < low:
        return f"the noise has only {ratio**0.5:.2f} times the standard deviation"
    return None
