"""What binding and anchoring cost in one query: the tag, the learner's second opening, and the ledger's head.

Each part is the function that a node calls, on its own, with the sizes of the query. A query without a tag, or without
an anchored ledger, does not exist, so there is no other query to compare with.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.measuring import Measure, Table, Target, require
from dpcore.accounting.filters import Loss, PrivacyLimit
from dpcore.numbers.processors import processors
from dpcore.paillier.masks import PRIME, CohortAttempt, check_tag, coefficient, pad, polynomial, tag_mask
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from parties.database import LedgerOwner
from parties.ledger.charges import RECORD, Charge
from parties.ledger.head import SumsKey
from parties.ledger.ledger import NO_BYTES, Ledger
from parties.ledger.limits import LedgerLimits
from wire.binding import Binding, OpeningSecret
from wire.envelopes import SigningKey
from wire.roster import Member, Role

REPEATS = 20
MOST_SHARE = 10.0
# Entries that a ledger has after some dozens of queries.
CHARGED_BEFORE = 100
_CHARGE = Charge(((RECORD, Loss(Fraction(0), Fraction(1, 10**6), Fraction(1, 100), Fraction(0))),), "lab")


@dataclass(frozen=True)
class Part:
    """A part of the cost. times: how often it happens in a query, at each party or at the learner.

    turns: its processor time in the query over that of one call: the parties share these processors, and the learner's
    two openings have one each.
    """

    turns: float
    times: int
    work: Callable[[], object]


def _parts(secret: SecretKey, length: int, parties: int, directory: Path) -> dict[str, Part]:
    parties_turns = max(1.0, parties / processors())
    return {**_tag(secret, length, parties, parties_turns), **_anchor(directory, parties_turns)}


def _tag(secret: SecretKey, length: int, parties: int, parties_turns: float) -> dict[str, Part]:
    random = SystemRandom()
    names = [f"party-{i}" for i in range(parties)]
    signing = {name: SigningKey.generate("benchmark") for name in names}
    members = [Member(Role.PARTY, name, key.public_bytes, f"{name}.rado.test") for name, key in signing.items()]
    nonce, query_id, own = random.bytes(16), random.bytes(32), names[0]
    opening = OpeningSecret(random.bytes(32))
    binding = Binding.seal(opening, members, nonce)
    keys = {name: X25519PrivateKey.generate() for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    peers = {name: key for name, key in public.items() if name != own}
    attempt = CohortAttempt(query_id, 1, random.bytes(32))
    values = np.random.default_rng(1).integers(-(2**40), 2**40, length)
    obfuscator = Obfuscator(secret.public_key, random)
    ciphertext = int(secret.public_key.encrypt_many([5], obfuscator)[0])

    def at_party() -> int:
        alpha = coefficient(binding.unseal(own, signing[own], nonce), query_id=query_id, attempt=1)
        padded = polynomial(values, alpha) + pad(keys[own], binding.opening_key, own, attempt)
        return (padded + tag_mask(own, keys[own], peers, attempt)) % PRIME

    def at_learner() -> None:
        alpha = coefficient(opening.seed, query_id=query_id, attempt=1)
        pads = [pad(opening.key, public[name], name, attempt) for name in names]
        check_tag((sum(pads) + polynomial(values, alpha)) % PRIME, values, alpha, pads)

    beside = 1 / min(2, processors())
    require(secret.open_again(ciphertext) == 5, "the second opening of a ciphertext gives another plaintext")
    return {
        "tag, at each party": Part(parties_turns, 1, at_party),
        "the tag's ciphertext, at each party": Part(
            parties_turns, 1, lambda: secret.public_key.encrypt_many([0], obfuscator)
        ),
        "sealed seeds, at the learner": Part(1.0, 1, lambda: Binding.seal(opening, members, nonce)),
        # The check contains the polynomial twice, because the tag to check is made here.
        "tag, at the learner": Part(1.0, 1, at_learner),
        "the tag's ciphertext, at the learner": Part(beside, 1, lambda: secret.decrypt_many([ciphertext], threads=1)),
        "second opening, at the learner": Part(beside, 1, lambda: secret.open_again(ciphertext)),
    }


def _anchor(directory: Path, parties_turns: float) -> dict[str, Part]:
    limits = LedgerLimits(PrivacyLimit(Fraction(10**9), Fraction(1, 2)))
    ledger = Ledger.open(directory / "ledger.sqlite", LedgerOwner("benchmark", "party-0", "made"), limits)
    key = SumsKey("party-0", SigningKey.generate("benchmark"))
    for number_ in range(CHARGED_BEFORE):
        query_id = number_.to_bytes(32, "big")
        ledger.reserve(query_id, 1, _CHARGE, lapses_at_unix_s=2e9, now_unix_s=1e9)
        ledger.charge(query_id, 1, cohort_digest=NO_BYTES, spool_digest=NO_BYTES, now_unix_s=1e9)
    return {
        # At the acceptance and at the charge.
        "head beside the ledger, at each party": Part(parties_turns, 2, ledger.database.anchor),
        "head that travels, at each party": Part(parties_turns, 2, lambda: ledger.signed_head(key)),
    }


@dataclass(frozen=True)
class Cost:
    """A part, measured. seconds, processor_seconds: of a query, at the learner or at one party. turns: of the part."""

    what: str
    turns: float
    seconds: list[float]
    processor_seconds: list[float]

    def share(self, query_s: float) -> float:
        """In % of a query's time, if it overlaps with no other part: all processor time, and one wait for the disk."""
        busy = statistics.median(self.processor_seconds)
        waits = max(0.0, statistics.median(self.seconds) - busy)
        return 100 * (self.turns * busy + waits) / query_s


def measure(secret: SecretKey, length: int, parties: int, directory: Path) -> list[Cost]:
    """The cost of each part for a total of `length` values. directory: for a ledger, on the disk to be measured."""
    found = _parts(secret, length, parties, directory)
    costs = {name: Cost(name, part.turns, [], []) for name, part in found.items()}
    for turn in range(REPEATS + 1):
        for name, part in found.items():
            begun, busy = time.perf_counter(), time.process_time()
            part.work()
            busy, taken = time.process_time() - busy, time.perf_counter() - begun
            if turn:
                costs[name].seconds.append(part.times * taken)
                costs[name].processor_seconds.append(part.times * busy)
    return list(costs.values())


def reported(costs: Sequence[Cost], query: str, query_s: float) -> tuple[list[Measure], Table, Target]:
    """Measures in milliseconds, a table with shares of a query that takes `query_s`, and the target for their sum."""
    measures = [Measure.of(cost.what, "ms", [1e3 * value for value in cost.seconds]) for cost in costs]
    shares = [cost.share(query_s) for cost in costs]
    rows = [(*found.cells()[:-1], f"{share:.2f} %") for found, share in zip(measures, shares, strict=True)]
    table = Table(f"Binding and anchoring in {query}, ms", ("", "median", "min", "max", "share"), rows)
    target = Target(f"binding and anchoring / {query}", "%", MOST_SHARE, sum(shares), at_least=False)
    return measures, table, target
