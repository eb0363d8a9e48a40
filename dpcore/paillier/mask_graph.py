"""Which members of a cohort share masks: every two, or those near one another in an order that the cohort decides.

Masks between every two of N members cost each of them N - 1 key agreements and streams. In the circulant graph of k
neighbours, k = 2 r, the members stand in a circle, and each shares masks with those at most r places away.

    place  by SHA-256("rado.v1/mask-order" || 00 || cohort digest || u8(|name|) || name), ascending

The order and k follow from signed data alone. The digest binds the names of the members, so members that derive masks
for one digest and one query have one graph.

- **Claim 1.** Whoever lacks the mask keys of the members H, and knows the rest, learns of their uploads for a cohort
  the sum over each connected component of the graph on H, and nothing else; of a component of which a member did not
  upload for this cohort, nothing.
- **Claim 2.** `connectivity` is exact. So unless `may_be_divided` by l, any l of the accepted members may collude, with
  all that are not accepted: an honest member's component has all other honest members that it accepted.
- **Claim 3.** If k > l + s for s members that are not accepted, that holds in every order.

No claim is about chances, so a coordinator or a member that tries many cohorts or keys for an order that it likes gains
nothing but a refusal. Proofs: docs/explanation/proofs.md, "The mask graph".

Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (CCS 2020), section 3, draw a random
graph instead. The circulant graph is Harary's (1962): no other of as few edges takes more members to divide.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

import numpy as np

_DOMAIN = b"rado.v1/mask-order\0"


@dataclass(frozen=True)
class MaskGraph:
    """The graph over the members of one cohort."""

    order: tuple[str, ...]
    """The members' names, once around the circle."""
    neighbours: int
    """k, even; 0 for all others."""

    def __post_init__(self) -> None:
        if self.neighbours < 0 or self.neighbours % 2:
            raise ValueError(f"{self.neighbours} neighbours: in a circle they are an even number")

    @classmethod
    def of(cls, names: Iterable[str], cohort_digest: bytes, neighbours: int) -> "MaskGraph":
        """The graph of a cohort's members. cohort_digest: 32 bytes. neighbours: of the query; 0 for all others."""
        return _graph(tuple(names), cohort_digest, neighbours)

    @property
    def is_complete(self) -> bool:
        """Whether every two members share masks."""
        return is_complete(len(self.order), self.neighbours)

    def peers(self, name: str) -> tuple[str, ...]:
        """The members that share masks with this one. Raises KeyError for a name that is not a member's."""
        place = self._places[name]
        if self.is_complete:
            return self.order[:place] + self.order[place + 1 :]
        reach = self.neighbours // 2
        steps = (step for step in range(-reach, reach + 1) if step)
        return tuple(self.order[(place + step) % len(self.order)] for step in steps)

    def connectivity(self, kept: Collection[str]) -> int:
        """The fewest of the members `kept` that have to leave until the rest is divided, or one is left.

        A member's cost is how many of the r places after it are kept. Two members, each more than r places after the
        other, are divided by emptying the r places after each, and everything that divides the rest empties two such
        runs. So it is the least sum of two costs.
        """
        size, reach = len(self.order), self.neighbours // 2
        inside = np.fromiter((name in kept for name in self.order), dtype=bool, count=size)
        places = np.flatnonzero(inside)
        least = max(0, len(places) - 1)
        if self.is_complete:
            return least
        counted = np.concatenate(([0], np.cumsum(np.concatenate((inside, inside[:reach])))))
        costs = counted[places + 1 + reach] - counted[places + 1]
        by_cost = np.argsort(costs, kind="stable")
        ranked = list(zip(costs[by_cost].tolist(), places[by_cost].tolist(), strict=True))
        for at, (cost, place) in enumerate(ranked):
            # At most 2 r of those that follow are too near, so this ends soon.
            for other_cost, other in ranked[at + 1 :]:
                if cost + other_cost >= least:
                    break
                if reach < (other - place) % size < size - reach:
                    least = cost + other_cost
                    break
            if 2 * cost >= least:
                break
        return least

    def may_be_divided(self, kept: Collection[str], leaving: int) -> bool:
        """Whether the members `kept` are in more than one part once some `leaving` of them, or fewer, have left."""
        fewest = self.connectivity(kept)
        return fewest <= leaving and fewest < len(set(kept) & self._places.keys()) - 1

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.order)}


def is_complete(members: int, neighbours: int) -> bool:
    """Whether every two of so many members share masks. neighbours: of the query; 0 for all others."""
    return not neighbours or neighbours >= members - 1


# A process that computes for many members derives the order once.
@lru_cache(maxsize=16)
def _graph(names: tuple[str, ...], cohort_digest: bytes, neighbours: int) -> MaskGraph:
    def place(name: str) -> bytes:
        octets = name.encode()
        return sha256(_DOMAIN + cohort_digest + len(octets).to_bytes(1, "big") + octets).digest()

    return MaskGraph(tuple(sorted(names, key=place)), neighbours)
