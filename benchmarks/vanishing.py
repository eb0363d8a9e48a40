"""`python -m benchmarks.vanishing`: what a query whose members may vanish costs, and how often an attempt is lost.

Not one of the registered benchmarks: it prints the tables of docs/how-to/parties-that-vanish.md. Each part is the
function that a node calls, on its own. Lost attempts are computed, for parties that vanish independently.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from math import comb, sqrt

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt, cohort_mask
from dpcore.paillier.sharing import Recovery
from dpcore.paillier.survivors import (
    SEALED_BYTES,
    Dealt,
    Secret,
    deal_keys,
    open_share,
    open_unmasking,
    seal_unmasking,
    self_mask,
    share_commitment,
    survivors_digest,
)
from dpcore.randomness.sources import SystemRandom

SIZES = ((4, 1), (10, 2), (40, 5))
"""Parties, and how many of them may vanish: the most that are safe beside one colluder."""
CHANCES = (0.001, 0.01, 0.05)
COLLUDERS = 1
REPEATS = 7
SHAPE, VALUE_BITS = (200, 63), 45
"""Of 12,400 values under a key of 3072 bits."""


def lost(parties: int, may_vanish: int, chance: float) -> float:
    """How probable it is that more vanish, of so many parties that each do so with this chance."""
    return 1 - sum(
        comb(parties, gone) * chance**gone * (1 - chance) ** (parties - gone) for gone in range(may_vanish + 1)
    )


def noise(parties: int, may_vanish: int) -> float:
    """The standard deviation of the total's noise if all answer, over that of noise that follows the cohort."""
    honest = parties - COLLUDERS
    return sqrt(honest / (honest - may_vanish))


class Query:
    """The keys of all members of one query, and what they deal and reveal if as many vanish as may."""

    def __init__(self, parties: int, may_vanish: int) -> None:
        draw = SystemRandom()
        self.names = [f"party-{number:02}" for number in range(parties)]
        self.needed, self.random = parties - may_vanish, draw
        self.about = CohortAttempt(draw.bytes(32), 1, draw.bytes(32))
        self.mask_keys = {name: X25519PrivateKey.generate() for name in self.names}
        self.share_keys = {name: X25519PrivateKey.generate() for name in self.names}
        self.seeds = {name: draw.bytes(32) for name in self.names}
        self.public = {name: key.public_key().public_bytes_raw() for name, key in self.share_keys.items()}
        self.survivors = self.names[: self.needed]
        self.opening = X25519PrivateKey.generate()
        self.digest = survivors_digest(self.survivors, self.about)
        self.dealt = {name: self.deal(name) for name in self.names}
        self.given = {name: self.unmask(name) for name in self.survivors}

    def deal(self, name: str) -> Dealt:
        """What a party does before it is ready."""
        return deal_keys(
            name,
            seed=self.seeds[name],
            mask_key=self.mask_keys[name].private_bytes_raw(),
            share_key=self.share_keys[name],
            members=self.public,
            needed=self.needed,
            attempt=self.about,
            random=self.random,
        )

    def of(self, dealer: str) -> Secret:
        """Which secret of a member the learner gets."""
        return Secret.SELF_MASK if dealer in self.survivors else Secret.MASK_KEY

    def unmask(self, name: str) -> bytes:
        """What a survivor does."""
        place, own = self.names.index(name), self.share_keys[name]
        shares = [
            open_share(self.dealt[each].sealed[place], self.of(each), each, self.public[each], name, own, self.about)
            for each in self.names
        ]
        key = self.opening.public_key().public_bytes_raw()
        return seal_unmasking(shares, name, own, key, self.digest, self.about, self.random)

    def open(self) -> None:
        """What the learner does beside what it does anyhow."""
        shares = {
            name: open_unmasking(
                sealed, len(self.names), name, self.public[name], self.opening, self.digest, self.about
            )
            for name, sealed in self.given.items()
        }
        recovery = Recovery([self.names.index(name) + 1 for name in self.survivors])
        keys = {name: self.mask_keys[name].public_key().public_bytes_raw() for name in self.survivors}
        for at, dealer in enumerate(self.names):
            for name, each in shares.items():
                share_commitment(each[at], self.of(dealer), dealer, name, self.about)
            secret = recovery.secret({self.names.index(name) + 1: each[at] for name, each in shares.items()})
            if dealer in self.survivors:
                self_mask(secret, dealer, self.about, shape=SHAPE, value_bits=VALUE_BITS)
            else:
                private = X25519PrivateKey.from_private_bytes(secret)
                cohort_mask(dealer, private, keys, self.about, shape=SHAPE, value_bits=VALUE_BITS)


def seconds(work: Callable[[], object]) -> float:
    """The median processor time."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def main() -> None:
    """Print both tables."""
    lines = ["| parties | may vanish | deals | unmasks | learner | a party sends | gets | the learner gets |"]
    for parties, may_vanish in SIZES:
        query = Query(parties, may_vanish)
        name = query.names[0]
        sends = parties * (SEALED_BYTES + 2 * 16) + len(query.given[name])
        total = parties * parties * (SEALED_BYTES + 2 * 16) + sum(len(each) for each in query.given.values())
        times = [seconds(work) for work in (partial(query.deal, name), partial(query.unmask, name), query.open)]
        shown = " | ".join(f"{1e3 * each:.1f} ms" for each in times)
        gets = parties * SEALED_BYTES
        lines.append(f"| {parties} | {may_vanish} | {shown} | {sends:,} B | {gets:,} B | {total:,} B |")
    lines.append("| parties | may vanish | noise | " + " | ".join(f"lost at {100 * p:g} %" for p in CHANCES) + " |")
    for parties, most in SIZES:
        for may_vanish in sorted({0, 1, most}):
            chances = " | ".join(f"{100 * lost(parties, may_vanish, chance):.2g} %" for chance in CHANCES)
            factor = noise(parties, may_vanish)
            lines.append(f"| {parties} | {may_vanish} | {factor:.2f} | {chances} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
